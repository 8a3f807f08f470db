"""One profile for property tests, and a place of their own for ledgers' witnesses."""

import os
import tempfile

from hypothesis import settings

# No deadlines, for machines are shared.
settings.register_profile("bagwise", deadline=None)
settings.load_profile("bagwise")
for folder in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ[folder] = tempfile.mkdtemp()
