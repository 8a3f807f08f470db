"""Learn about individuals when responses are known only as averages over groups ("bags").

Read the package in the order the data flows; a module imports only from those above it:

    tables      CSV and Parquet files, a batch of rows at a time
    bags        which row sits in which bag, and averages over bags
    curated     bags of like rows, by a score or by features
    losses      bag-level, instance-level and interpolating losses, with derivatives
    counts      the likelihood of a bag's count
    statistics  A, W, c: all that a linear model needs of a table
    encoding    columns of a table as numbers
    spectrum    one decomposition of them, every rho
    snr         signal and noise from them
    row_risk    risk of single rows from means of random bags; a scorer
    diagnostics how far bags are from random, and what their means can tell
    theory      exact risk of linear models, one result a file
    simulate    the same, drawn
    planning    theory -> Plan: bag size, rho, expected error, and why
    statement   what a release says of itself
    row_groups  whole bags of a release, and sums over them
    released    Release: the folder that crosses from curator to learner, and all that does
    engines     tables of any size, on this machine or on Spark: bags, sums, rows put together
    neural      networks from bags: one trainer for one or a thousand
    boosting    trees from bags: the objective and the rounds of LightGBM
    estimators  LEARNER: models with scikit-learn's contract, rho chosen from bags alone
    inspection  what can be said of a fitted model from bags alone
    release     CURATOR: the only code that sees a response; release(...), its ledger, its audit
    baselines   methods of the literature with the same contract, for comparison
    experiments one file an experiment, run(...) -> table
    benchmark   every method on real tables, and who stands where
    reports     table -> picture, model -> page
    app         the planner in the browser, and its JSON API
    cli         the command line
"""

from importlib.metadata import version as _version

from bagwise import theory as theory
from bagwise.bags import Bags as Bags
from bagwise.counts import count_loss as count_loss
from bagwise.diagnostics import Diagnosis as Diagnosis
from bagwise.diagnostics import diagnose as diagnose
from bagwise.engines.bag_table import BagTable as BagTable
from bagwise.estimators.auto import AggregateClassifier as AggregateClassifier
from bagwise.estimators.auto import AggregateRegressor as AggregateRegressor
from bagwise.estimators.boosting import (
    AggregateBoostingClassifier as AggregateBoostingClassifier,
)
from bagwise.estimators.boosting import (
    AggregateBoostingRegressor as AggregateBoostingRegressor,
)
from bagwise.estimators.glm import AggregateLogisticRegression as AggregateLogisticRegression
from bagwise.estimators.glm import AggregatePoissonRegressor as AggregatePoissonRegressor
from bagwise.estimators.linear import AggregateLinearRegression as AggregateLinearRegression
from bagwise.estimators.neural import AggregateMLPClassifier as AggregateMLPClassifier
from bagwise.estimators.neural import AggregateMLPRegressor as AggregateMLPRegressor
from bagwise.estimators.neural import AggregateTorchClassifier as AggregateTorchClassifier
from bagwise.estimators.neural import AggregateTorchRegressor as AggregateTorchRegressor
from bagwise.estimators.scores import probability_scores as probability_scores
from bagwise.losses import Derivatives as Derivatives
from bagwise.losses import bag_loss as bag_loss
from bagwise.losses import instance_loss as instance_loss
from bagwise.losses import interpolating_derivatives as interpolating_derivatives
from bagwise.losses import interpolating_loss as interpolating_loss
from bagwise.losses import within_bag_variance as within_bag_variance
from bagwise.planning import Plan as Plan
from bagwise.planning import plan as plan
from bagwise.released import Release as Release
from bagwise.row_risk import RowRisk as RowRisk
from bagwise.row_risk import row_risk as row_risk
from bagwise.row_risk import row_risk_difference as row_risk_difference
from bagwise.row_risk import row_scorer as row_scorer
from bagwise.simulate import simulate as simulate
from bagwise.snr import estimate_snr as estimate_snr
from bagwise.statistics import AggregateStatistics as AggregateStatistics

__version__ = _version("bagwise")
