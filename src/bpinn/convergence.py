"""Convergence: R-hat and ESS of the quantities of interest, chains on different solutions, sufficient draws.

Weights of a network have symmetries, so their R-hat is meaningless. What must agree between chains
are functionals: unknowns, noise, every field and equation at points across the domain, and the
log density.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bpinn import rhat_ess

GOOD_RHAT, CARE_RHAT = 1.01, 1.05
GOOD_ESS, CARE_ESS = 400, 100
# For secondary functionals (`Monitor.is_secondary`): equations contain derivatives, which mix slowly, and are read as
# bands, for which a tenth of an sd is enough; so it is for the scales of a field's prior.
GOOD_RHAT_SECONDARY, CARE_RHAT_SECONDARY = 1.05, 1.3
GOOD_ESS_SECONDARY, CARE_ESS_SECONDARY = 100, 10
# Target ESS per draw, at which the trajectory length is right: longer trajectories cost more than they gain, shorter
# ones do a random walk. For secondary functionals half of it is required.
WORTH, WORTH_SECONDARY = 0.22, 0.11
# Readings do not fit at all if the mean of their squared residuals, in units of noise, is beyond this (`Model.misfit`).
HOPELESS, RECENT = 25.0, 50  # and the number of draws it is judged by
FALLING = 0.7  # of the misfit of as many draws before: chains still approach a fit
STUCK = 1e6  # an R-hat beyond it is infinite but for rounding
LARGE = 2**22  # most numbers that are ranked at once
DRIFT = 0.25  # two chains are on two solutions only if neither moved by more than this share of their distance


@cache
def statistics() -> Any:
    """ArviZ's array statistics, imported at first use: the import takes a second, in which a run can compile."""
    from arviz_stats.base import array_stats

    return array_stats


@dataclass(frozen=True)
class Convergence:
    """R-hat (rank-normalised, the larger of split and folded) and ESS (the smaller of bulk and tail)."""

    names: tuple[str, ...]
    rhat: np.ndarray
    ess: np.ndarray

    def only(self, chosen: np.ndarray) -> "Convergence":
        """The same for a subset of the functionals."""
        names = tuple(name for name, c in zip(self.names, chosen, strict=True) if c)
        return Convergence(names, self.rhat[chosen], self.ess[chosen])

    def worst(self) -> tuple[str, float, float]:
        """Name and R-hat of the worst functional, and the smallest ESS."""
        i = int(np.argmax(self.rhat))
        return self.names[i], float(self.rhat[i]), float(np.min(self.ess))


def convergence(names: Sequence[str], draws: np.ndarray) -> Convergence:
    """R-hat and ESS of draws, (chains, draws, functionals). A functional that never moves has infinite R-hat."""
    rhat, ess = rhat_of(draws), ess_of(draws)
    return Convergence(tuple(names), rhat, ess)


def rhat_of(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised R-hat over (chains, draws, ...); infinite where chains are stuck."""
    draws = np.asarray(draws, float)
    if draws.shape[1] < (4 if draws.shape[0] > 1 else 8):
        return np.full(draws.shape[2:], np.inf)
    if draws.shape[0] == 1:  # for a single chain, compare the first half with the second
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, -half:]])
    rhat = _where_finite(rhat_ess.rhat, draws)
    return np.where(rhat < STUCK, rhat, np.inf)


def ess_of(draws: np.ndarray) -> np.ndarray:
    """Effective sample size, the smaller of bulk and tail; zero where chains are stuck."""
    draws = np.asarray(draws, float)
    if draws.shape[1] < 4:
        return np.zeros(draws.shape[2:])
    found = _where_finite(lambda part: np.minimum(rhat_ess.bulk_ess(part), rhat_ess.tail_ess(part)), draws)
    frozen = np.all(draws == draws[:, :1], axis=(0, 1))
    return np.where(frozen, 0.0, np.nan_to_num(found))


def _where_finite(statistic: Callable[[np.ndarray], np.ndarray], draws: np.ndarray) -> np.ndarray:
    """A statistic of each quantity whose draws are all finite; NaN for the others."""
    flat = draws.reshape(*draws.shape[:2], -1)
    finite = np.all(np.isfinite(flat), axis=(0, 1))
    found = np.full(flat.shape[2], np.nan)
    at_once = max(1, LARGE // max(1, flat.shape[0] * flat.shape[1]))
    for i in range(0, flat.shape[2], at_once):
        some = np.flatnonzero(finite[i : i + at_once]) + i
        if some.size:
            found[some] = statistic(flat[..., some])
    return found.reshape(draws.shape[2:])


def branches(functionals: np.ndarray, secondary: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Groups of chains that are on the same solution, the largest first.

    Two chains are on different solutions if the ranges of some field value or unknown do not overlap, and neither chain
    is moving towards the other. Chains that each overlap with a third are on the same solution.
    """
    draws = np.asarray(functionals, float)[..., ~secondary]
    chains, half = draws.shape[0], draws.shape[1] // 2
    low, high, mean = draws.min(axis=1), draws.max(axis=1), draws.mean(axis=1)
    moved = np.abs(draws[:, :half].mean(axis=1) - draws[:, half:].mean(axis=1))
    group = list(range(chains))
    for a in range(chains):
        for b in range(a):
            gap = (low[a] > high[b]) | (low[b] > high[a])
            still = np.maximum(moved[a], moved[b]) < DRIFT * np.abs(mean[a] - mean[b])
            if not np.any(gap & still):
                old, new = group[a], group[b]
                group = [new if g == old else g for g in group]
    found = [tuple(i for i in range(chains) if group[i] == g) for g in dict.fromkeys(group)]
    return tuple(sorted(found, key=len, reverse=True))


def enough(functionals: np.ndarray, secondary: np.ndarray) -> bool:
    """Whether a run of Markov chains is good, so that no more draws are needed.

    If chains are on different solutions, those on the same solution must agree. A chain that is alone on its solution
    is ignored; if all are alone, each needs to meet only the weaker limits, because no number of draws makes such a run
    good.
    """
    if not np.all(np.isfinite(functionals)):
        return False
    names = [""] * len(secondary)
    groups = branches(functionals, secondary)
    shared = [group for group in groups if len(group) > 1]
    for group in shared or groups:
        alone = len(group) == 1 < functionals.shape[0]
        found = convergence(names, functionals[list(group)])
        limits = (CARE_RHAT, CARE_ESS) if alone else (GOOD_RHAT, GOOD_ESS)
        judged = [(found.only(~secondary), *limits)]
        if np.any(secondary):
            limits = (CARE_RHAT_SECONDARY, CARE_ESS_SECONDARY) if alone else (GOOD_RHAT_SECONDARY, GOOD_ESS_SECONDARY)
            judged.append((found.only(secondary), *limits))
        for part, rhat, ess in judged:
            if np.max(part.rhat) > rhat or np.min(part.ess) < ess:
                return False
    return True


def is_hopeless(misfit: np.ndarray | None) -> bool:
    """Whether readings do not fit at all in any chain, nor ever better, by the misfit of each draw, (chains, draws)."""
    if misfit is None or not misfit.size:
        return False
    count = max(min(RECENT, misfit.shape[1] // 2), 1)
    now, before = (np.median(part, axis=1) for part in (misfit[:, -count:], misfit[:, -2 * count :][:, :count]))
    return bool(np.all((now > HOPELESS) & (now >= FALLING * before)))


def shortfall(functionals: np.ndarray, secondary: np.ndarray) -> float:
    """Target ESS per draw over the actual one, of the worst functional; below one if draws are better than needed.

    Chains that disagree lower the ESS, except chains on different solutions: longer trajectories would not take them
    from one to the other.
    """
    draws = np.asarray(functionals, float)
    moving = np.ptp(draws, axis=(0, 1)) > 0
    effective = np.zeros(int(moving.sum()))
    for group in branches(functionals, secondary):
        effective += np.nan_to_num(_where_finite(rhat_ess.bulk_ess, draws[list(group)][..., moving]))
    worth = np.maximum(effective / draws[..., 0].size, 1e-6)
    return float(np.max(np.where(secondary, WORTH_SECONDARY, WORTH)[moving] / worth, initial=0.0))
