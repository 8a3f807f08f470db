"""What the theory says of a linear fit, at the signal and noise that its bags show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bagwise import theory
from bagwise.snr import SnrEstimate, estimate_snr
from bagwise.spectrum import feature_rank
from bagwise.statistics import AggregateStatistics

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forecast:
    """Parts of the expected squared error of a row beyond the noise of its response.

    Attributes
    ----------
    rhos, bias, sampling, privacy : ndarray of shape (100,)
    snr : SnrEstimate
        Its noise holds the noise of the release.
    row_noise : float
        Standard deviation of a response about its true prediction, without that; 0 where the
        noise of the release leaves nothing.
    """

    rhos: FloatArray
    bias: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    snr: SnrEstimate
    row_noise: float

    @property
    def risk(self) -> FloatArray:
        """The sum of the parts."""
        return self.bias + self.sampling + self.privacy

    @property
    def best_rho(self) -> float:
        """The rho of least risk."""
        return float(self.rhos[np.argmin(self.risk)])

    def at(self, rho: float) -> float:
        """Risk at a rho."""
        return float(np.interp(max(rho, self.rhos[0]), self.rhos, self.risk))


def forecast(statistics: AggregateStatistics, added: float = 0.0) -> Forecast:
    """The theory's curves for random bags of these sums.

    Parameters
    ----------
    statistics : AggregateStatistics
    added : float
        What the noise of a release adds to the variance of a response: the mean of 2 k b².
    """
    snr = estimate_snr(statistics)
    k = statistics.n_rows / statistics.n_bags
    psi = (statistics.n_rows - 1) / feature_rank(statistics)
    rhos = np.geomspace(1e-5, 1.0, 100)
    bias = theory.bias(rhos, k, psi, snr.signal)
    noise = theory.variance(rhos, k, psi, snr.noise)
    share = min(added / snr.noise**2, 1.0) if snr.noise > 0 else 0.0
    row_noise = float(np.sqrt(max(snr.noise**2 - added, 0.0)))
    return Forecast(rhos, bias, noise * (1 - share), noise * share, snr, row_noise)
