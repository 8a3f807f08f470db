"""Choosing rho from bags alone: exact leave-one-bag-out and generalised cross-validation.

Both estimate, for each rho, the squared error of a bag mean that was held out, times the bag's
size: when bags are drawn at random that is the squared error of a *row*, σ² + E(xᵀθ̂ − xᵀθ0)². A
held-out bag hides its response; its features stay, for they are public, so W does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bagwise._extras import need
from bagwise.snr import estimate_snr
from bagwise.spectrum import Spectrum, feature_rank
from bagwise.statistics import AggregateStatistics, FloatArray, Rows
from bagwise.theory import best_rho

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: the 101 rhos of a path: 0, then even steps of the logarithm from 1e-5 to 1
RHOS: FloatArray = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 100)])
#: rhos that are tried on held-out bags: small ones matter, so the grid is logarithmic
RHO_GRID = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# 1 − h_a below which it is rounding: the bag determines a direction alone.
ALONE = 1e-11
UNTOLD = 1e-12
# 1 − λ above which a direction varies within bags, and what is left of the responses at the least.
VARIES, LEAST_LEFT = 1e-12, 1e-14


@dataclass(frozen=True, eq=False)
class RhoPath:
    """The linear model at every rho, and how well each predicts bags it did not see.

    Attributes
    ----------
    rhos : ndarray of shape (101,)
        0, then even steps of the logarithm from 1e-5 to 1.
    coefficients : ndarray of shape (101, n_features)
    intercepts : ndarray of shape (101,)
    scores : ndarray of shape (101,)
        Mean over bags of size times squared error of the held-out bag mean, which for random bags
        estimates the squared error of a row; lower is better. NaN when no bag can be held out.
    method : {"loo", "gcv"}
        What the scores are.
    rho : float
        The rho of the fitted model.
    """

    rhos: FloatArray
    coefficients: FloatArray
    intercepts: FloatArray
    scores: FloatArray
    method: str
    rho: float

    @property
    def best_rho(self) -> float:
        """The rho of the least score; the largest of several, and 1 when there are no scores."""
        if np.isnan(self.scores).all():
            return 1.0
        # Scores that differ by rounding are one score.
        good = self.scores <= np.nanmin(self.scores) * (1 + 1e-9)
        return float(self.rhos[good].max())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the scores against rho, with the rho of the model marked; needs bagwise[plot]."""
        pyplot = need("matplotlib.pyplot", "plot")
        axes: Axes = ax or pyplot.subplots(figsize=(6, 3.6), layout="constrained")[1]
        # 0 has no place on a logarithmic axis: it is drawn left of the smallest step.
        place = np.maximum(self.rhos, self.rhos[1] / 3)
        axes.semilogx(place[1:], self.scores[1:], color="#0072B2")
        axes.semilogx(place[:1], self.scores[:1], "o", color="#0072B2", markersize=4)
        chosen = float(np.interp(self.rho, self.rhos, self.scores))
        label = f"rho = {self.rho:.2g}"
        axes.plot(max(self.rho, place[0]), chosen, "o", color="#D55E00", label=label)
        ticks = [place[0], 1e-4, 1e-3, 1e-2, 1e-1, 1]
        axes.set_xticks(ticks, ["0", "0.0001", "0.001", "0.01", "0.1", "1"])
        axes.minorticks_off()
        names = {"loo": "leave-one-bag-out", "gcv": "generalised cross-validation"}
        axes.set(xlabel="rho", ylabel=f"{names[self.method]} error")
        axes.legend(frameon=False)
        return axes


def leave_one_out(
    spectrum: Spectrum, rows: Rows, fit_intercept: bool, rhos: FloatArray
) -> FloatArray:
    r"""(1/m) Σ_a k_a (r_a / (1 − h_a))² for each rho, without refitting.

    In the orthonormal coordinates U_aj = √k_a x̄_aᵀb_j/√λ_j and with t_j(ρ) of `Spectrum.slack`,

        √k_a r_a = e_a + ρ Σ_j U_aj u_j t_j,    e_a = √k_a ȳ_a − Σ_j U_aj u_j
        1 − h_a  = g_a + ρ Σ_j U_aj² t_j,       g_a = 1 − k_a/n − Σ_j U_aj²

    so that where e_a = g_a = 0 (fewer bags than features) rho cancels and ρ = 0 is the limit.
    A bag that nothing else tells about (1 − h_a = 0 at every rho) is left out, and so is one that
    lies so far from all others (1e5 of their spreads or so) that 1 − h_a is lost in rounding.
    """
    n, sizes = rows.bags.n_rows, rows.masses
    centre, response = np.zeros(len(spectrum.basis)), 0.0
    if fit_intercept:
        centre, response = rows.statistics.mean, rows.statistics.response_mean
    slack = spectrum.slack(rhos)
    pull = spectrum.loads[:, None] * slack
    to_unit = spectrum.basis / np.sqrt(spectrum.share)
    freedom = rows.bags.n_bags - fit_intercept - len(spectrum.share)
    interpolates = freedom <= 0 and spectrum.ridge == 0
    squares, count = np.zeros(len(rhos)), 0
    for part, block in rows.between_blocks(centre):
        root = np.sqrt(sizes[part])
        U = (root[:, None] * block) @ to_unit
        squared = np.square(U)
        gap = 1 - (sizes[part] / n if fit_intercept else 0) - squared.sum(axis=1)
        residual = root * (rows.responses[part] - response) - U @ spectrum.loads
        top, bottom = U @ (rhos * pull), squared @ (rhos * slack)
        top += residual[:, None]
        bottom += gap[:, None]
        alone = interpolates | (gap < ALONE)
        top[alone], bottom[alone] = U[alone] @ pull, squared[alone] @ slack
        told = bottom[:, -1] > UNTOLD
        top, bottom = (top, bottom) if told.all() else (top[told], bottom[told])
        top /= bottom
        squares += np.einsum("ij,ij->j", top, top)
        count += int(told.sum())
    return squares / count if count else np.full(len(rhos), np.nan)


def generalised_cross_validation(
    spectrum: Spectrum,
    statistics: AggregateStatistics,
    fit_intercept: bool,
    rhos: FloatArray,
) -> FloatArray:
    r"""(1/m) RSS / (1 − tr H / m)² for each rho, from the statistics alone.

    m − tr H = G + ρ Σ_j s_j t_j with s_j the share of a direction that the bags see and not the
    ridge. With as many directions as bags and no ridge, RSS = ρ² Σ_j u_j² t_j² and G = 0: rho
    cancels, and ρ = 0 is the limit.
    """
    m, ridge = statistics.n_bags, spectrum.ridge
    slack = spectrum.slack(rhos)
    seen = np.square(spectrum.root @ spectrum.basis).sum(axis=0) / spectrum.share
    unseen = ridge * np.square(spectrum.basis).sum(axis=0) / spectrum.share
    # seen + unseen = 1: of each pair the smaller one has the digits.
    mostly = seen > unseen
    freedom = m - fit_intercept - mostly.sum() + unseen[mostly].sum() - seen[~mostly].sum()
    loss = (seen[:, None] * slack).sum(axis=0)
    if freedom > ALONE * m:
        misfit, loss = spectrum.misfit(rhos), freedom + rhos * loss
    else:
        misfit = np.square(spectrum.loads[:, None] * slack).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(loss > UNTOLD, m * misfit / loss**2, np.nan))


def log_evidence(
    spectrum: Spectrum, statistics: AggregateStatistics, fit_intercept: bool, rhos: FloatArray
) -> FloatArray:
    r"""Log of how likely each rho makes the bag means, but for a constant that all ridges share.

    With θ ~ N(0, σ² P⁻¹), P = ρW + ridge I, and noise of variance σ²/k_a in the mean of bag a, the
    model's θ(ρ) is the posterior mean. Integrated over θ, over a flat prior of the intercept (one
    of the m bags) and over 1/σ² dσ², with M = A + P,

        ½ log |P| − ½ log |M| − ½ (m − 1) log (Σ_a k_a ȳ_a² − cᵀM⁻¹c)

    The determinants are what a model pays for being able to fit much; errors of held-out bags do
    not know of it, and with few bags they hardly tell models apart. Only the statistics enter.
    """
    share, rest = spectrum.share[:, None], 1 - spectrum.share[:, None]
    scaled = share + rhos * rest
    with np.errstate(divide="ignore"):
        if spectrum.ridge == 0:
            # A direction that does not vary within bags has a flat prior at every rho.
            varies = rest[:, 0] > VARIES
            paid = np.log(rhos * rest[varies]).sum(axis=0) - np.log(scaled).sum(axis=0)
        else:
            ridge, A = spectrum.ridge, spectrum.root.T @ spectrum.root
            width = np.linalg.eigvalsh(statistics.within).clip(min=0)[:, None]
            whole = np.linalg.slogdet(A + statistics.within + ridge * np.eye(len(A)))[1]
            paid = np.log(ridge + rhos * width).sum(axis=0) - np.log(scaled).sum(axis=0) - whole
            # What the spectrum leaves out as lost has λ = 0, but for rounding.
            paid -= (len(A) - len(share)) * np.log(np.maximum(rhos, VARIES))
    square = float(spectrum.target @ spectrum.target) + spectrum.left
    left = square - (share * np.square(spectrum.loads[:, None]) / scaled).sum(axis=0)
    # An exact fit is exact up to rounding.
    left = np.maximum(left, LEAST_LEFT * square)
    freedom = statistics.n_bags - fit_intercept
    return np.asarray(paid / 2 - freedom / 2 * np.log(left if square > 0 else np.ones_like(left)))


def theoretical_rho(statistics: AggregateStatistics) -> float:
    """The rho of least risk by the theory, at the signal and noise that the statistics show."""
    k = statistics.n_rows / statistics.n_bags
    if k == 1:
        return 1.0
    try:
        found = estimate_snr(statistics)
    except ValueError as error:
        raise ValueError(
            f"rho='theory' needs signal and noise: {error} Or pass rho='loo'."
        ) from None
    psi = (statistics.n_rows - 1) / feature_rank(statistics)
    return float(best_rho(k, psi, found.signal, found.noise))
