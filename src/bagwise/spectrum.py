r"""One joint decomposition of A and W, from which the linear model at every rho follows.

The linear model minimises ‖P(Xθ − y)‖² + ρ‖P⊥Xθ‖² + ridge‖θ‖². Directions b_j with
bᵢᵀ(A + ridge I)b_j = λ_j δ_ij and bᵢᵀW b_j = (1 − λ_j) δ_ij, 0 < λ_j ≤ 1, separate it:

    θ(ρ) = Σ_j b_j √λ_j u_j / (λ_j + ρ(1 − λ_j)),    u_j = b_jᵀc / √λ_j

Directions with λ_j = 0 carry no response and are left out, so ρ = 0 gives the limit ρ → 0⁺: of all
minimisers of the bag-level loss the one with the least within-bag variance. Of the directions in
which X does not vary at all, none is used: there θ has the least norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from bagwise.statistics import AggregateStatistics, FloatArray, Rows

EPS = float(np.finfo(np.float64).eps)
# Below these relative eigenvalues sums of squares hold fewer than nine digits of a direction...
TRUSTED = 1e-7
# ...and below this one none.
LOST = 1e-12


@dataclass(frozen=True)
class Spectrum:
    """Directions b_j, their shares λ_j and loads u_j.

    Attributes
    ----------
    basis : ndarray of shape (n_features, r)
        b_j as columns; r is the rank of A + ridge I.
    share : ndarray of shape (r,)
        λ_j in (0, 1]: how much of a direction's variation lies between bags.
    loads : ndarray of shape (r,)
        u_j: the response along each direction.
    ridge : float
        The ridge of the problem.
    root : ndarray of shape (r, n_features)
        RᵀR = A without the ridge.
    target : ndarray of shape (r,)
        Rᵀ target = c.
    left : float
        What no θ explains: Σ_a k_a ȳ_a² − ‖target‖².
    trusted : bool
        Whether every direction is known to nine digits or so.
    """

    basis: FloatArray
    share: FloatArray
    loads: FloatArray
    ridge: float
    root: FloatArray
    target: FloatArray
    left: float
    trusted: bool

    def slack(self, rhos: FloatArray) -> FloatArray:
        """t_j(ρ) = (1 − λ_j)/(λ_j + ρ(1 − λ_j)), shape (r, n_rhos); shrinking takes ρ t_j."""
        rest = (1 - self.share)[:, None]
        return np.asarray(rest / (self.share[:, None] + rhos * rest))

    def misfit(self, rhos: FloatArray) -> FloatArray:
        """Σ_a k_a (ȳ_a − f̄_a)² for each ρ, shape (n_rhos,), as a sum of squares."""
        residuals = self.target - self.coef(rhos) @ self.root.T
        return np.asarray(self.left + np.square(residuals).sum(axis=1))

    def coef(self, rhos: FloatArray) -> FloatArray:
        """θ(ρ) for each ρ, shape (n_rhos, n_features)."""
        share = self.share[:, None]
        gain = (np.sqrt(self.share) * self.loads)[:, None] / (share + rhos * (1 - share))
        return np.asarray((self.basis @ gain).T)


def spectrum_of_statistics(
    statistics: AggregateStatistics, fit_intercept: bool, ridge: float
) -> Spectrum:
    """Decomposition of the sums A, W, c themselves: fast, and exact unless X is ill-conditioned."""
    A, c, square = statistics.between, statistics.cross, statistics.response_square
    if not fit_intercept:
        n, mean, response = statistics.n_rows, statistics.mean, statistics.response_mean
        A = A + n * np.outer(mean, mean)
        c, square = c + n * response * mean, square + n * response**2
    penalised = A + ridge * np.eye(len(A))
    scale = _column_scale(penalised + statistics.within, statistics, fit_intercept)
    basis, share, least = _joint(penalised, statistics.within, scale)
    trusted = bool(least > TRUSTED and share.min(initial=1) > TRUSTED)
    known = (share > LOST) & _within_rank(statistics, len(share), fit_intercept, ridge)[::-1]
    basis, share = basis[:, known], np.minimum(share[known], 1)

    power, lines = np.linalg.eigh(A * np.outer(scale, scale))
    seen = (power > LOST * power[-1]) & _within_rank(statistics, len(A), fit_intercept, 0.0)[::-1]
    safe = np.where(scale > 0, scale, 1.0)
    root = np.sqrt(power[seen])[:, None] * (lines[:, seen] / safe[:, None]).T
    target = lines[:, seen].T @ (scale * c) / np.sqrt(power[seen])
    # As many directions as bags explain every response; what else is left is rounding.
    spare = statistics.n_bags - fit_intercept - seen.sum()
    left = max(square - float(target @ target), 0.0) if spare > 0 else 0.0
    loads = basis.T @ c / np.sqrt(share)
    return Spectrum(basis, share, loads, ridge, root, target, left, trusted)


def directions(statistics: AggregateStatistics) -> tuple[FloatArray, FloatArray]:
    """Shares λ_j of all directions in which rows vary, least first, and the b_j as columns.

    Those that do not differ between bags are among them, with λ_j = 0.
    """
    total = statistics.between + statistics.within
    scale = _column_scale(total, statistics, fit_intercept=True)
    basis, share, _ = _joint(statistics.between, statistics.within, scale)
    # Bags and rows bound the ranks of A and W more sharply than rounding does.
    share[: max(len(share) - statistics.n_bags + 1, 0)] = 0
    share[max(statistics.n_rows - statistics.n_bags, 0) :] = 1
    share[share < LOST] = 0
    return np.minimum(share, 1), basis


def feature_rank(statistics: AggregateStatistics) -> int:
    """Number of directions in which the rows vary, as far as sums of squares tell."""
    total = statistics.between + statistics.within
    scale = _column_scale(total, statistics, fit_intercept=True)
    size = np.linalg.eigvalsh(total * np.outer(scale, scale))
    return int((size > LOST * size[-1]).sum()) if size[-1] > 0 else 0


def spectrum_of_rows(rows: Rows, fit_intercept: bool, ridge: float) -> Spectrum:
    """The same from orthogonal factors of the rows, which keep twice the digits.

    With QR factors R_b of √k_a x̄_a and R_w of x_i − x̄_a, the singular value decomposition of
    (R_b; R_w) and then that of its upper left block give b_j and √λ_j without squaring X.
    """
    statistics = rows.statistics
    d = statistics.n_features
    centre, response = np.zeros(d), 0.0
    if fit_intercept:
        centre, response = statistics.mean, statistics.response_mean
    with_response = _triangle(_between_rows(rows, centre, response), d + 1)
    upper = np.vstack([with_response[:d, :d], np.sqrt(ridge) * np.eye(d)])
    target = np.concatenate([with_response[:d, d], np.zeros(d)])
    stack = np.vstack([upper, _triangle(rows.within_blocks(), d)])

    scale = _column_scale(stack.T @ stack, statistics, fit_intercept)
    active = scale > 0
    left, size, axes = np.linalg.svd(stack[:, active] * scale[active], full_matrices=False)
    unit = EPS * max(64, d)
    kept = size > unit * size[:1].max(initial=0)
    if fit_intercept:
        # Rounding of an entry is relative to its offset, and hides directions weaker than that.
        noise = 8 * EPS * np.abs(statistics.mean[active]) * np.sqrt(statistics.n_rows)
        kept &= size > np.linalg.norm(axes * (noise * scale[active]), axis=1)
    to_unit = _unscaled(axes[kept].T, size[kept], scale)
    turn_left, cosine, turn = np.linalg.svd(left[: len(upper), kept], full_matrices=False)
    known = cosine > 10 * unit
    known &= _within_rank(statistics, len(cosine), fit_intercept, ridge)
    basis = to_unit @ turn[known].T
    return Spectrum(
        basis=basis,
        share=np.minimum(cosine[known], 1) ** 2,
        loads=turn_left[:, known].T @ target,
        ridge=ridge,
        root=upper[:d],
        target=target[:d],
        left=float(with_response[d, d] ** 2),
        trusted=True,
    )


def _joint(
    penalised: FloatArray, within: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """b_j as columns, λ_j, least first, and the least eigenvalue of the scaled A + W."""
    active = scale > 0
    total = (penalised + within) * np.outer(scale, scale)
    size, axes = np.linalg.eigh(total[np.ix_(active, active)])
    kept = size > LOST * max(size[-1:].max(initial=0), 0)
    to_unit = _unscaled(axes[:, kept], np.sqrt(size[kept]), scale)
    share, turn = np.linalg.eigh(to_unit.T @ penalised @ to_unit)
    return to_unit @ turn, share, float(size.min(initial=1))


def _within_rank(
    statistics: AggregateStatistics, count: int, fit_intercept: bool, ridge: float
) -> NDArray[np.bool_]:
    """Which of the largest shares can differ from 0: bags bound the rank of A more sharply than
    any tolerance.
    """
    rank = statistics.n_bags - fit_intercept if ridge == 0 else count
    return np.arange(count) < rank


def _column_scale(
    total: FloatArray, statistics: AggregateStatistics, fit_intercept: bool
) -> FloatArray:
    """1/‖column‖, so that units of features do not matter; 0 for columns that do not vary."""
    norm = np.sqrt(np.maximum(np.diag(total), 0))
    floor = 8 * EPS * np.abs(statistics.mean) * np.sqrt(statistics.n_rows) if fit_intercept else 0
    return np.where(norm > floor, 1 / np.where(norm > 0, norm, 1), 0.0)


def _unscaled(axes: FloatArray, size: FloatArray, scale: FloatArray) -> FloatArray:
    """Axes of unit size in the features' own units, of least norm where X has no full rank."""
    active = scale > 0
    out = np.zeros((len(scale), len(size)))
    out[active] = scale[active, None] * axes / size
    if 0 < axes.shape[1] < axes.shape[0]:
        row_space = np.linalg.qr(axes / scale[active, None])[0]
        out[active] = row_space @ (row_space.T @ out[active])
    return out


def _between_rows(rows: Rows, centre: FloatArray, response: float) -> Iterable[FloatArray]:
    """Rows √k_a (x̄_a − centre, ȳ_a − response), in blocks."""
    for part, block in rows.between_blocks(centre):
        y = rows.responses[part] - response
        yield np.sqrt(rows.masses[part, None]) * np.column_stack([block, y])


def _triangle(blocks: Iterable[FloatArray], width: int) -> FloatArray:
    """R of the QR decomposition of blocks stacked on each other, padded to a square."""
    triangle = np.zeros((width, width))
    for block in blocks:
        stack = np.empty((width + len(block), width), order="F")
        stack[:width], stack[width:] = triangle, block
        factor = lapack.dgeqrf(stack, lwork=64 * width, overwrite_a=True)[0]
        triangle = np.triu(factor[:width])
    return triangle
