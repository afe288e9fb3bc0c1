"""By how much readings are expected to lower a variance: from covariances of draws, and by importance weights.

The next readings are chosen one after the other, each given those chosen before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn.design.candidates import Predicted

FOLDS = 10  # parts of the draws that are left out in turn, for the error
OUTER = 200  # simulated readings of each candidate
KEPT = 0.9999  # share of the variance of a field that is kept when its points are replaced by principal components


@dataclass(frozen=True, eq=False)
class Choice:
    """``gains`` are the variance that each candidate removes, (choices, candidates), given the choices before.

    ``chosen`` are numbers of candidates; ``shares`` the share of the first variance that is removed by all choices up
    to each one, and ``errors`` their standard errors. ``effective`` is the number of effective draws of the
    importance weights, NaN if none are used.
    """

    chosen: tuple[int, ...]
    gains: np.ndarray
    shares: tuple[float, ...]
    errors: tuple[float, ...]
    effective: float = float("nan")


def by_regression(target: np.ndarray, predicted: Predicted, count: int) -> Choice:
    """As if target and readings were jointly normal: exact for linear problems.

    A reading explains of the target what a regression on its prediction plus noise explains.
    """
    responses, noise = predicted.responses, predicted.variance
    usable = np.flatnonzero(np.all(np.isfinite(responses), axis=0))
    chosen, gains = _greedy(target, responses[:, usable], noise[usable], count)
    told = np.full((count, responses.shape[1]), np.nan)
    told[:, usable] = gains
    columns, variance = responses[:, usable[chosen]], noise[usable[chosen]]
    shares, errors = _shares(target, columns, variance), _errors(target, columns, variance)
    return Choice(tuple(int(i) for i in usable[chosen]), told, tuple(shares.tolist()), tuple(errors.tolist()))


def _errors(target: np.ndarray, columns: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Standard errors of `_shares`, by the jackknife over contiguous parts of the draws."""
    folds = np.array_split(np.arange(len(target)), FOLDS)
    without = [np.delete(np.arange(len(target)), fold) for fold in folds if len(fold)]
    each = np.array([_shares(target[rows], columns[rows], noise) for rows in without])
    return np.sqrt((len(each) - 1) * each.var(axis=0))


def _greedy(target: np.ndarray, responses: np.ndarray, noise: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    target, responses = target - target.mean(axis=0), responses - responses.mean(axis=0)
    scale = 1.0 / (len(target) - 1)
    across = scale * (target.T @ responses)
    own = scale * np.sum(responses**2, axis=0)
    before: list[np.ndarray] = []
    chosen: list[int] = []
    gains = np.empty((count, responses.shape[1]))
    for row in gains:
        row[:] = np.sum(across**2, axis=0) / (own + noise)
        best = int(np.argmax(row))
        root = np.sqrt(own[best] + noise[best])
        column = scale * (responses.T @ responses[:, best]) - sum((w * w[best] for w in before), np.zeros_like(own))
        weight = column / root
        across = across - np.outer(across[:, best] / root, weight)
        own = np.maximum(own - weight**2, 0.0)
        before.append(weight)
        chosen.append(best)
    return chosen, gains


def _shares(target: np.ndarray, columns: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The share of the variance that the first one, two, ... of these readings explain together."""
    target, columns = target - target.mean(axis=0), columns - columns.mean(axis=0)
    scale = 1.0 / (len(target) - 1)
    total, across, own = scale * np.sum(target**2), scale * (columns.T @ target), scale * (columns.T @ columns)
    found = []
    for k in range(1, len(noise) + 1):
        part = across[:k]
        found.append(np.sum(part * np.linalg.solve(own[:k, :k] + np.diag(noise[:k]), part)) / total)
    return np.array(found)


def by_weights(
    target: np.ndarray, predicted: Predicted, count: int, seed: int, only: np.ndarray | None = None
) -> Choice:
    """By nested Monte Carlo: readings are simulated from some draws, and weigh all the others by their likelihood.

    ``only`` restricts the candidates. Without assumptions, but it needs draws close to each simulated reading, which
    become few if the reading is much more precise than its prediction: see ``effective``.
    """
    target = _components(target - target.mean(axis=0))
    usable = np.all(np.isfinite(predicted.responses), axis=0)
    usable &= True if only is None else only
    rows = np.unique(np.linspace(0, len(target) - 1, OUTER).round().astype(int))
    base = np.zeros((len(rows), len(target)))
    base[np.arange(len(rows)), rows] = -np.inf  # a draw does not weigh the reading that was simulated from it
    total = before = float(np.sum(target.var(axis=0, ddof=1)))
    gains = np.full((count, len(usable)), np.nan)
    chosen: list[int] = []
    shares: list[float] = []
    simulated: list[float] = []
    effective = np.inf
    for number in range(count):
        for j in np.flatnonzero(usable):
            left, _ = _after(base + _log_weights(predicted, int(j), rows, [seed, number]), target)
            gains[number, j] = before - left.mean()
        best = int(np.nanargmax(gains[number]))
        base = base + _log_weights(predicted, best, rows, [seed, number])
        left, ess = _after(base, target)
        before, effective = float(left.mean()), min(effective, float(np.median(ess)))
        chosen.append(best)
        shares.append(1.0 - before / total)
        simulated.append(float(left.std(ddof=1) / np.sqrt(len(left)) / total))
    # That of simulated readings, and that of the draws, which is as large as for the regression.
    errors = np.hypot(simulated, _errors(target, predicted.responses[:, chosen], predicted.variance[chosen]))
    return Choice(tuple(chosen), gains, tuple(shares), tuple(errors.tolist()), effective)


def _components(centred: np.ndarray) -> np.ndarray:
    """The same distances between rows, in fewer columns."""
    if centred.shape[1] <= 2:
        return centred
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    kept = 1 + int(np.searchsorted(np.cumsum(sizes**2) / np.sum(sizes**2), KEPT))
    return left[:, :kept] * sizes[:kept]


def _log_weights(predicted: Predicted, j: int, rows: np.ndarray, seed: Sequence[int]) -> np.ndarray:
    """The log likelihood of readings simulated from some draws, for all draws, (rows, draws)."""
    which, i = predicted.owner(j)
    law, values, scale = predicted.kinds[which].likelihood, predicted.values[which][:, i], predicted.scales[which]
    scale = np.ravel(scale) if np.ndim(scale) else scale
    own: Any = scale[rows] if np.ndim(scale) else scale
    # The same random numbers for all candidates, so that their difference has less noise.
    readings = np.asarray(law.sample(np.random.default_rng(seed), values[rows], own), float)[:, None]
    with np.errstate(all="ignore"):
        logs = np.asarray(
            law.log_prob(readings, values[None], scale if scale is None or not np.ndim(scale) else scale[None])
        )
    return np.where(np.isnan(logs), -np.inf, logs)


def _after(log_weights: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The variance after each simulated reading, and the number of effective draws."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    squares = np.sum(weights**2, axis=1)
    means = weights @ target
    variance = weights @ np.sum(target**2, axis=1) - np.sum(means**2, axis=1)
    # The spread of few draws around their own mean is too small by this factor.
    return np.maximum(variance, 0.0) / np.maximum(1.0 - squares, 1e-12), 1.0 / squares
