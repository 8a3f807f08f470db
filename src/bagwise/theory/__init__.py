"""Exact risk of linear models from bags as rows and features grow in proportion, a result a file.

    n rows, d Gaussian features, psi = n/d > 1, bags of k rows (k = n/m when sizes differ),
    y = xᵀθ0 + w with standard deviations tau of xᵀθ0 and sigma of w. Risk is E(xᵀθ̂ − xᵀθ0)².

Theorem 2.5 of the paper needs unit covariance, equal bags and rho > 0 (or psi > k). Here any
covariance is allowed, for risk depends on it through tau alone, and so are unequal bags and the
limit rho → 0⁺ when psi < k (`ridgeless`). All functions broadcast over arrays.
"""

from bagwise.theory.bias import bias as bias
from bagwise.theory.corollaries import RiskParts as RiskParts
from bagwise.theory.corollaries import bag_level as bag_level
from bagwise.theory.corollaries import instance_level as instance_level
from bagwise.theory.corollaries import ridgeless as ridgeless
from bagwise.theory.corollaries import snr_threshold as snr_threshold
from bagwise.theory.optimum import best_bag_size as best_bag_size
from bagwise.theory.optimum import best_private_rho as best_private_rho
from bagwise.theory.optimum import best_rho as best_rho
from bagwise.theory.optimum import limiting_bag_size as limiting_bag_size
from bagwise.theory.private import privacy_variance as privacy_variance
from bagwise.theory.private import private_limit as private_limit
from bagwise.theory.private import private_risk as private_risk
from bagwise.theory.risk import risk as risk
from bagwise.theory.variance import variance as variance
