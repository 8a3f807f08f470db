"""CURATOR: the only code that ever sees an individual response.

Read it in the order of a release; docs/privacy.md says what is promised and how it is tested.

    table       the table, refused before anything is charged
    layout      which rows leave and in which bag, without a look at a response
    mechanism   clip, grid, exact sums, noise
    ledger      what was spent, on disk before noise is drawn; journal: the file it is kept in
    write       the files
    statement   what is said of it
    job         what every release does before its bags and after its means
    curator     release(): the above in order
    rounds      release_in_rounds(): the bags of one half follow from what the other released
    audit       does what comes out keep the promise?

The learner's side imports none of this. What it reads is `bagwise.released`.
"""

from bagwise.release.audit import Audit as Audit
from bagwise.release.audit import audit as audit
from bagwise.release.curator import release as release
from bagwise.release.journal import LedgerBroken as LedgerBroken
from bagwise.release.ledger import BudgetExceeded as BudgetExceeded
from bagwise.release.ledger import Ledger as Ledger
from bagwise.release.ledger import default_ledger as default_ledger
from bagwise.release.mechanism import Mechanism as Mechanism
from bagwise.release.rounds import release_in_rounds as release_in_rounds
