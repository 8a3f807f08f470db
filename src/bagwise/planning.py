"""What a bag size, a rho and an epsilon will cost, before anything is released."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import _check, theory
from bagwise._extras import need
from bagwise.theory.private import clipping, private_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAG_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# Bounds that clip nothing, for responses that are released as they are.
UNBOUNDED = 1e140


@dataclass(frozen=True)
class PlanLine:
    """One bag size at its best rho.

    Attributes
    ----------
    bag_size : int
    n_bags : int
    rho : float
        The best rho; 0 means the limit rho → 0⁺ when bags are fewer than features.
    bias, sampling, privacy : float
        Expected squared error beyond the noise of a response: from pulling rows of a bag together,
        from finitely many bags, and from the noise that protects labels.
    """

    bag_size: int
    n_bags: int
    rho: float
    bias: float
    sampling: float
    privacy: float

    @property
    def risk(self) -> float:
        """Expected squared error of a prediction beyond the noise: the sum of the three parts."""
        return self.bias + self.sampling + self.privacy


@dataclass(frozen=True)
class Plan:
    """A choice of bag size and rho, what it is expected to cost, and what it was chosen from.

    Attributes
    ----------
    best : PlanLine
        The bag size of least risk among those allowed.
    table : tuple of PlanLine
        Every bag size that was considered.
    per_label : PlanLine
        Bags of one row beside it: full labels, or noise on each label.
    signal, noise : float
        Standard deviations of the true prediction and of the noise.
    epsilon : float
        Privacy budget; infinite when there is none.
    sentences : tuple of str
        Why, in plain words, and where the theory stops.

    Examples
    --------
    >>> chosen = plan(10_000, 20, signal=1.0, noise=2.0, min_bag_size=5)
    >>> chosen.bag_size, round(chosen.risk, 3)
    (5, 0.039)
    """

    best: PlanLine
    table: tuple[PlanLine, ...]
    per_label: PlanLine
    signal: float
    noise: float
    epsilon: float
    sentences: tuple[str, ...]

    @property
    def bag_size(self) -> int:
        """Bag size of least expected error."""
        return self.best.bag_size

    @property
    def rho(self) -> float:
        """The rho to fit with."""
        return self.best.rho

    @property
    def risk(self) -> float:
        """Expected squared error of a prediction beyond the noise."""
        return self.best.risk

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain numbers and texts, for JSON; an infinite epsilon is None."""
        lines = [asdict(line) | {"risk": line.risk} for line in self.table]
        return {
            "bag_size": self.bag_size,
            "rho": self.rho,
            "risk": self.risk,
            "signal": self.signal,
            "noise": self.noise,
            "epsilon": self.epsilon if np.isfinite(self.epsilon) else None,
            "best": asdict(self.best) | {"risk": self.risk},
            "per_label": asdict(self.per_label) | {"risk": self.per_label.risk},
            "table": lines,
            "sentences": list(self.sentences),
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the three parts of the error for each bag size; needs bagwise[plot]."""
        pyplot = need("matplotlib.pyplot", "plot")
        axes: Axes = ax or pyplot.subplots(figsize=(7, 4), layout="constrained")[1]
        place, bottom = np.arange(len(self.table)), np.zeros(len(self.table))
        parts = {"bias": "#0072B2", "sampling": "#E69F00", "privacy": "#CC79A7"}
        for part, colour in parts.items():
            height = np.array([getattr(line, part) for line in self.table])
            label = {"bias": "bias", "sampling": "sampling noise", "privacy": "privacy noise"}[part]
            if height.any():
                axes.bar(place, height, 0.7, bottom, color=colour, label=label)
            bottom += height
        chosen = self.table.index(self.best)
        top = min(1.15 * bottom.max(), 1.5 * max(self.signal**2, self.risk))
        axes.plot(chosen, bottom[chosen] + 0.025 * top, "v", color="black", label="best")
        axes.axhline(self.per_label.risk, color="black", linewidth=0.8, label="bags of one row")
        if self.signal**2 < top:
            axes.axhline(self.signal**2, color="0.5", linestyle=":", label="predicting the mean")
        axes.set_xticks(place, [f"{line.bag_size:,}" for line in self.table])
        axes.set(
            xlabel="rows a bag, each at its best rho", ylabel="expected error beyond the noise"
        )
        axes.set_ylim(0, top)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
        return axes


def plan(
    n_rows: int,
    n_features: int,
    snr: float | None = None,
    signal: float | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
    bounds: tuple[float, float] | None = None,
    bag_sizes: Sequence[int] | None = None,
    min_bag_size: int = 1,
) -> Plan:
    """Choose bag size and rho jointly by the theory, and say what to expect.

    Parameters
    ----------
    n_rows, n_features : int
        The training table; more rows than features.
    snr : float
        Signal variance over noise variance; then the noise is taken to be 1. Or give both of
    signal, noise : float
        Standard deviations of the true prediction and of a response about it.
    epsilon : float or None
        Label-privacy budget; None when means are released as they are.
    bounds : (lo, hi)
        Public bounds to which responses are clipped; needed with epsilon. Responses are taken to be
        Gaussian about their middle.
    bag_sizes : sequence of int
        Sizes to choose from, by default 1, 2, 5, … 1000 and ``min_bag_size``; those below it or of
        fewer than two bags are left out.
    min_bag_size : int
        The anonymity that is asked for.

    Examples
    --------
    >>> chosen = plan(100_000, 50, snr=2, epsilon=1.0, bounds=(-5, 5), min_bag_size=10)
    >>> chosen.bag_size, round(chosen.rho, 4), round(chosen.risk, 2)
    (10, 0.0054, 0.1)
    """
    n, d = _check_table(n_rows, n_features)
    tau, sigma = _check_signal(snr, signal, noise)
    budget, width = _check_privacy(epsilon, bounds)
    sizes = _check_sizes(bag_sizes, min_bag_size, n)
    per_label, *lines = _lines(n, d, [1, *sizes], tau, sigma, budget, width)
    table = tuple(lines)
    best = min(table, key=lambda line: line.risk)
    sentences = (
        *_what(best, tau, budget),
        *_against_labels(best, table, per_label, budget),
        *_where_theory_stops(n - d, best, tau, sigma, bounds),
    )
    return Plan(best, table, per_label, tau, sigma, budget, sentences)


def _lines(
    n: int, d: int, sizes: list[int], tau: float, sigma: float, epsilon: float, width: float
) -> list[PlanLine]:
    """The parts of the risk of bags of each size at their best rho, all sizes in one go."""
    k, psi = np.array(sizes, dtype=np.float64), n / d
    rho = theory.best_private_rho(k, psi, epsilon, width, tau, sigma)
    numbers = map(np.asarray, (rho, k, psi, epsilon, width, tau, sigma))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.broadcast_arrays(*private_parts(*numbers))
    columns = (part.tolist() for part in (rho, *parts))
    return [PlanLine(k, n // k, *numbers) for k, *numbers in zip(sizes, *columns, strict=True)]


def _what(best: PlanLine, tau: float, epsilon: float) -> list[str]:
    """The choice, and what its error is made of."""
    rows = f"Bags of {best.bag_size} rows" if best.bag_size > 1 else "Bags of one row"
    rho = f" with rho = {best.rho:.2g}" if best.bag_size > 1 else ""
    share = 100 * best.risk / tau**2
    percent = f"{share:.2g} %" if share < 10 else f"{share:.0f} %"
    text = [
        f"{rows}{rho} are best: expected error {best.risk:.2g} beyond the noise, "
        f"{percent if share < 1000 else 'many times'} of the signal variance."
    ]
    parts = {"bias": best.bias, "sampling noise": best.sampling, "privacy noise": best.privacy}
    shares = {name: round(100 * part / best.risk) for name, part in parts.items() if best.risk}
    if shares:
        # Rounded shares add up to 100: the largest takes what the others leave.
        largest = max(shares, key=lambda name: parts[name])
        shares[largest] += 100 - sum(shares.values())
        said = ", ".join(f"{value} % is {name}" for name, value in shares.items() if value)
        text.append(f"Of that error {said}.")
    if best.risk >= tau**2:
        remedy = "collect more rows" + (", or spend more" if np.isfinite(epsilon) else "")
        text.append(f"That is no better than predicting the mean: {remedy}.")
    return text


def _against_labels(
    best: PlanLine, table: tuple[PlanLine, ...], per_label: PlanLine, epsilon: float
) -> list[str]:
    """Bags of one row beside larger ones."""
    if best.risk == 0:
        return []
    text = []
    name = "noise on each label" if np.isfinite(epsilon) else "full labels"
    if best.bag_size > 1:
        text.append(f"Bags of one row ({name}) {_cost(per_label.risk / best.risk)}.")
    larger = [line for line in table if line.bag_size > best.bag_size]
    near = [line for line in larger if line.risk < 1.1 * best.risk]
    for line in near[-1:]:
        size, more = line.bag_size, line.risk / best.risk - 1
        gain = f"buy {size}-anonymity for {more:.0%} more error"
        text.append(f"Bags of {size} at rho = {line.rho:.2g} {gain}.")
    if larger and not near:
        text.append(f"Bags of {larger[0].bag_size} {_cost(larger[0].risk / best.risk)}.")
    return text


def _cost(times: float) -> str:
    """What another choice would mean, from its error over that of the best."""
    if abs(times - 1) < 0.01:
        return "are as good"
    if times >= 2:
        return f"would mean {times:.1f} times the error" if times < 1000 else "would be far worse"
    return f"would mean {abs(times - 1):.0%} {'more' if times > 1 else 'less'} error"


def _where_theory_stops(
    spare: int, best: PlanLine, tau: float, sigma: float, bounds: tuple[float, float] | None
) -> list[str]:
    """What the numbers take for granted."""
    text = [
        "These figures hold for a linear truth, features that are roughly Gaussian, and bags drawn "
        "at random; bags that nature made (by day, by region) need a check of their own."
    ]
    # The theory is that of many rows: with rows to spare, or bags, in the tens, it is off by about
    # one part in as many.
    few = min(spare, best.n_bags) - 1
    if few < 3:
        text.append("With so few rows or bags do not trust them: the theory is that of many.")
    elif few < 50:
        text.append(f"With so few rows or bags expect them to be off by {1 / few:.0%} or so.")
    if bounds is not None:
        width = bounds[1] - bounds[0]
        kept = float(clipping(*map(np.asarray, (width, tau, sigma)))[0])
        text.append(
            f"Bounds of {bounds[0]:g} to {bounds[1]:g} clip {1 - kept:.1%} of responses that are "
            "Gaussian about their middle; what that does to the error is counted as bias."
        )
        if kept < 0.9:
            text.append("That is much: wider bounds may serve better.")
    return text


def _check_table(n_rows: Any, n_features: Any) -> tuple[int, int]:
    n = _check.whole("n_rows", n_rows, low=2, remedy="Pass the rows of the training table")
    d = _check.whole("n_features", n_features, low=1, remedy="Pass its features")
    if n > 10**15:
        _check.refuse("n_rows", "at most 1e15", f"n_rows={n}", "Plan for a part of them")
    if n <= d:
        got = f"n_rows={n}, n_features={d}"
        remedy = "With no more rows than features there is no theory: add rows or drop features"
        _check.refuse("n_rows", "above n_features", got, remedy)
    return n, d


def _check_signal(
    snr: float | None, signal: float | None, noise: float | None
) -> tuple[float, float]:
    """Standard deviations of signal and noise from either way to give them."""
    if (snr is None) == (signal is None and noise is None):
        got = f"snr={snr!r}, signal={signal!r}, noise={noise!r}"
        _check.refuse("snr", "given, or signal and noise, not both", got, "2 is a common snr")
    if snr is not None:
        remedy = "It is signal variance over noise variance"
        snr = _check.number("snr", snr, low=1e-100, high=1e100, remedy=remedy)
        return float(np.sqrt(snr)), 1.0
    remedy = "Pass both standard deviations"
    tau = _check.number("signal", signal, low=1e-50, high=1e50, remedy=remedy)
    return tau, _check.number("noise", noise, low=0, high=1e50, remedy=remedy)


def _check_privacy(
    epsilon: float | None, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    """Budget and width of the bounds; infinite and as wide as needed without privacy."""
    width = UNBOUNDED
    if bounds is not None:
        low, high = _check.interval("bounds", bounds)
        width = high - low
    if epsilon is None:
        return np.inf, width
    remedy = "Small is private, 1 is usual; leave it out for plain means"
    budget = _check.number("epsilon", epsilon, low=1e-100, remedy=remedy)
    if bounds is None:
        _check.refuse("bounds", "given with epsilon", "none", "Noise is scaled to (lo, hi)")
    return budget, width


def _check_sizes(bag_sizes: Sequence[int] | None, min_bag_size: int, n: int) -> list[int]:
    """Sizes to choose from, in order: those that were listed, or a range with the least allowed."""
    least = _check.whole("min_bag_size", min_bag_size, low=1, remedy="1 asks for nothing")
    listed = (*BAG_SIZES, least) if bag_sizes is None else bag_sizes
    if not isinstance(listed, Iterable):
        _check.refuse("bag_sizes", "a list", f"bag_sizes={bag_sizes!r}", "Pass [1, 10], say")
    remedy = "Pass rows a bag"
    sizes = {_check.whole("bag_sizes", k, low=1, remedy=remedy) for k in listed}
    allowed = sorted(k for k in sizes if least <= k <= n // 2)
    if not allowed:
        got = f"{sorted(sizes)} with min_bag_size={least}, n_rows={n}"
        _check.refuse("bag_sizes", "of two bags or more, large enough", got, "Choose other sizes")
    return allowed
