"""Ranks of true values among draws, coverage of intervals, and scores."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv

from bpinn.errors import InputError

GRID = 50  # points at which the distribution of ranks is compared with the uniform distribution
SIMULATED = 4000  # sets of uniform ranks that determine the width of simultaneous bands


@dataclass(frozen=True)
class Coverage:
    """How often central intervals contain the true value: the share, with its binomial 95% interval."""

    p: float
    share: float
    low: float
    high: float

    @property
    def is_right(self) -> bool:
        return self.low <= self.p <= self.high


@dataclass(frozen=True)
class Calibration:
    """The outcome of simulation-based calibration. Rows are simulations, columns the quantities in ``names``.

    ``truths`` has shape (simulations, quantities); ``draws`` has shape (simulations, draws, quantities) and holds an
    evenly spaced subset of the posterior draws; ``verdicts`` are those of `Result.diagnose`.
    """

    names: tuple[str, ...]
    truths: np.ndarray
    draws: np.ndarray
    verdicts: tuple[str, ...]

    @property
    def simulations(self) -> int:
        return len(self.truths)

    @cached_property
    def ranks(self) -> np.ndarray:
        """How many draws are below the true value, (simulations, quantities); ties are broken with a fixed seed."""
        below = np.sum(self.draws < self.truths[:, None], axis=1)
        ties = np.sum(self.draws == self.truths[:, None], axis=1)
        return below + np.random.default_rng(0).integers(0, ties + 1)

    @cached_property
    def pit(self) -> np.ndarray:
        """Ranks scaled to numbers between 0 and 1, uniform within each rank: uniform if the posterior is correct."""
        spread = np.random.default_rng(1).uniform(size=self.ranks.shape)
        return (self.ranks + spread) / (self.draws.shape[1] + 1)

    def column(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"calibration: {name!r} is not among {', '.join(self.names)}")
        return self.names.index(name)

    def evidence(self, name: str) -> float:
        """p-value: the probability that uniform ranks deviate from uniformity at some point as far as these do."""
        ecdf = _counts(self.pit[:, [self.column(name)]])[:, 0]
        least = _tail(ecdf, self.simulations).min()
        return float(np.mean(_least_tails(self.simulations) <= least))

    def is_uniform(self, name: str, level: float = 0.05) -> bool:
        """Whether the ranks are inside the simultaneous band of probability ``1 - level``."""
        return self.evidence(name) >= level

    def band(self, level: float = 0.05) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points between 0 and 1, and the limits of the simultaneous band of probability ``1 - level``."""
        from scipy.stats import binom  # imported here because it takes half a second and only this needs it

        points = np.arange(1, GRID) / GRID
        inner = np.quantile(_least_tails(self.simulations), level)
        low, high = (binom.ppf(q, self.simulations, points) / self.simulations for q in (inner / 2, 1 - inner / 2))
        return points, low, high

    def coverage(self, p: float, names: Iterable[str] | None = None) -> Coverage:
        """Coverage of central intervals of probability ``p``. Several quantities are not independent trials, so their
        share gets the interval of a single quantity."""
        _check_probability(p)
        columns = [self.column(name) for name in names] if names is not None else range(len(self.names))
        inside = np.abs(self.pit[:, list(columns)] - 0.5) <= p / 2
        held = inside.mean(axis=1).sum()
        low = betaincinv(held, self.simulations - held + 1, 0.025) if held > 0 else 0.0
        high = betaincinv(held + 1, self.simulations - held, 0.975) if held < self.simulations else 1.0
        return Coverage(p, float(inside.mean()), float(low), float(high))

    def crps(self) -> np.ndarray:
        """The continuous ranked probability score of each quantity, averaged over simulations: smaller is better."""
        return np.array([crps(self.draws[:, :, i], self.truths[:, i]).mean() for i in range(len(self.names))])

    def sharpness(self, p: float = 0.95) -> np.ndarray:
        """The width of central intervals of probability ``p`` of each quantity, averaged over simulations."""
        low, high = self._intervals(p)
        return (high - low).mean(axis=0)

    def interval_score(self, p: float = 0.95) -> np.ndarray:
        """The score of central intervals of probability ``p``, averaged over simulations: smaller is better."""
        return interval_score(*self._intervals(p), self.truths, p).mean(axis=0)

    def _intervals(self, p: float) -> tuple[np.ndarray, np.ndarray]:
        _check_probability(p)
        low, high = np.quantile(self.draws, [0.5 - p / 2, 0.5 + p / 2], axis=1)
        return low, high

    @property
    def contraction(self) -> np.ndarray:
        """One minus posterior variance over variance of the true values: how much the readings inform each quantity."""
        return 1 - self.draws.var(axis=1, ddof=1).mean(axis=0) / self.truths.var(axis=0, ddof=1)

    @property
    def bias(self) -> np.ndarray:
        """Mean of true value minus posterior mean, in posterior sds."""
        return ((self.truths - self.draws.mean(axis=1)) / self.draws.std(axis=1, ddof=1)).mean(axis=0)

    def __str__(self) -> str:
        bad = sum(verdict == "bad" for verdict in self.verdicts)
        lines = [f"{self.simulations} simulations, {bad} with the verdict 'do not trust'"]
        width = max(len(name) for name in self.names)
        # In brackets the 95% interval of each share, in percent.
        columns = "  ".join(f"{p:>14}" for p in ("in 50%", "in 80%", "in 95%"))
        lines.append(f"{'':{width}}  p of ranks  {columns}  bias, sd")
        for i, name in enumerate(self.names):
            shares = "  ".join(f"{_shown(self.coverage(p, [name])):>14}" for p in (0.5, 0.8, 0.95))
            mark = "" if self.is_uniform(name) else "  off"
            lines.append(f"{name:{width}}  {self.evidence(name):10.3f}  {shares}  {self.bias[i]:+8.2f}{mark}")
        off = sum(not self.is_uniform(name) for name in self.names)
        if off:
            lines.append(f"{off} of {len(self.names)} are off; 1 in 20 is expected by chance")
        return "\n".join(lines)

    __repr__ = __str__


def _check_probability(p: float) -> None:
    if not 0 < p < 1:
        raise InputError(f"calibration: p must lie between 0 and 1, such as 0.95, got {p!r}")


def _shown(found: Coverage) -> str:
    return f"{found.share:.0%} ({100 * found.low:.0f}–{100 * found.high:.0f})"


def crps(draws: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of draws, (forecasts, draws), for true values, (forecasts,).

    Example:
        >>> import numpy as np, bpinn as bp
        >>> bp.calibration.crps(np.array([[0.0, 1.0, 2.0]]), np.array([1.0])).round(3).tolist()
        [0.0]
    """
    ordered = np.sort(np.asarray(draws, float), axis=1)
    count = ordered.shape[1]
    weights = 2 * np.arange(1, count + 1) - count - 1
    between = ordered @ weights / (count * (count - 1))  # half the mean distance of two draws
    return np.abs(ordered - np.asarray(truths, float)[:, None]).mean(axis=1) - between


def interval_score(low: np.ndarray, high: np.ndarray, truths: np.ndarray, p: float) -> np.ndarray:
    """Width of central intervals plus 2 / (1 - p) times the distance by which they miss: smaller is better.

    Example:
        >>> import numpy as np, bpinn as bp
        >>> bp.calibration.interval_score(np.array([0.0]), np.array([1.0]), np.array([1.5]), p=0.5).tolist()
        [3.0]
    """
    missed = np.maximum(low - truths, 0) + np.maximum(truths - high, 0)
    return (high - low) + 2 / (1 - p) * missed


def _counts(pit: np.ndarray) -> np.ndarray:
    """How many values of each column are at most each point of the grid, (points, columns)."""
    points = np.arange(1, GRID) / GRID
    return np.sum(pit[None] <= points[:, None, None], axis=1)


def _tail(counts: np.ndarray, simulations: int) -> np.ndarray:
    """Two-sided tail probability of these counts, at each point, for uniform ranks."""
    points = (np.arange(1, GRID) / GRID).reshape(-1, *(1 for _ in counts.shape[1:]))
    below = bdtr(counts, simulations, points)
    above = bdtrc(counts - 1, simulations, points)
    return np.minimum(2 * np.minimum(below, above), 1.0)


@cache
def _least_tails(simulations: int) -> np.ndarray:
    """The smallest tail probability over the grid, for sets of uniform ranks (Säilynoja et al. 2022)."""
    uniform = np.random.default_rng(2).uniform(size=(simulations, SIMULATED))
    return _tail(_counts(uniform), simulations).min(axis=0)
