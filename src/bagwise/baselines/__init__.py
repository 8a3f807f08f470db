"""Methods of the literature with the contract of our estimators, for comparison.

    binary                what they share: two classes or one response, a linear predictor
    ridge_means           ridge regression on bag means
    mean_map              class means from bag means, then logistic regression
    invcal                support vector regression on logits of shares
    proportion_svm        labels and support vector machine, by turns
    empirical_proportion  our bag-level loss, under its two other names
    transport             labels carried to rows by optimal transport, and logistic regression
    easy_llp              labels of rows without bias, from random bags
    mutual_contamination  which bag a row is from, told by a classifier of the classes
    bag_combination       squared loss on random combinations of bags

Bags of like rows, `score_bags` and `feature_bags`, are those of `bagwise.curated`. Each method says
what it assumes, and its paper's claim is a test. Two classes, or one response; linear but
for `deep_llp`; features of one scale wherever there is a ridge: put a ``StandardScaler`` before.
"""

from bagwise.baselines.bag_combination import BagCombinationClassifier as BagCombinationClassifier
from bagwise.baselines.bag_combination import BagCombinationRegressor as BagCombinationRegressor
from bagwise.baselines.easy_llp import EasyLLPClassifier as EasyLLPClassifier
from bagwise.baselines.easy_llp import EasyLLPRegressor as EasyLLPRegressor
from bagwise.baselines.empirical_proportion import deep_llp as deep_llp
from bagwise.baselines.empirical_proportion import (
    empirical_proportion_risk as empirical_proportion_risk,
)
from bagwise.baselines.invcal import InvCalClassifier as InvCalClassifier
from bagwise.baselines.mean_map import MeanMapClassifier as MeanMapClassifier
from bagwise.baselines.mutual_contamination import (
    ContaminationClassifier as ContaminationClassifier,
)
from bagwise.baselines.proportion_svm import ProportionSVMClassifier as ProportionSVMClassifier
from bagwise.baselines.ridge_means import RidgeMeansClassifier as RidgeMeansClassifier
from bagwise.baselines.ridge_means import RidgeMeansRegressor as RidgeMeansRegressor
from bagwise.baselines.transport import TransportClassifier as TransportClassifier
from bagwise.curated import feature_bags as feature_bags
from bagwise.curated import score_bags as score_bags
