"""Several solutions of one result: the draws of each, and its share or probability."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bpinn import diagnostics
from bpinn.modes import groups_of
from bpinn.populations import log_mean, probabilities, rows_of
from bpinn.shown import Shown

if TYPE_CHECKING:
    from bpinn.result import Result


ROUNDING = 1e-6  # an error of a probability that is zero but for rounding


@dataclass(frozen=True)
class Mode(Shown):
    """One of several solutions (see `Result.modes`).

    ``share`` is its share of the draws; ``probability`` its posterior probability, with standard error ``error``, if
    the method can estimate it; ``differs`` says where it differs most from the first solution.
    """

    result: "Result"
    share: float
    probability: float | None
    error: float | None
    differs: str

    @property
    def weight(self) -> str:
        """Its share or its probability, in words."""
        if self.probability is None:
            return f"{self.share:.0%} of the draws"
        error = f" ± {self.error:.0%}" if self.error and self.error > ROUNDING else ""
        return f"probability {self.probability:.0%}" + error

    def __str__(self) -> str:
        says = ", which says nothing about its probability" if self.probability is None else ""
        return self.weight + says + (f"; differs most in {self.differs}" if self.differs else "")

    __repr__ = __str__


def solutions_of(result: "Result", groups: Sequence[Sequence[int]]) -> list[Mode]:
    """The solutions of a result, from the groups of chains that are on the same one, or from gaps between its draws."""
    chains, draws = result.z.shape[:2]
    if groups:
        shares = [len(group) / chains for group in groups]
        parts, known = [result.only(*group) for group in groups], None
    else:
        columns = ~result.monitor.is_secondary
        labels = groups_of(result.functionals[..., columns].reshape(chains * draws, -1)).reshape(chains, draws)
        inside = np.stack([labels == i for i in range(labels.max() + 1)])
        shares = [float(mask.mean()) for mask in inside]
        parts = [_picked(result, mask) for mask in inside] if len(inside) > 1 else [result]
        known = _probabilities(result, inside)
    names, secondary = result.functional_names, result.monitor.is_secondary
    found = []
    for i, (part, share) in enumerate(zip(parts, shares, strict=True)):
        differs = diagnostics.difference(names, part.functionals, parts[0].functionals, secondary) if i else ""
        probability, error = known[i] if known else (None, None)
        found.append(Mode(part, share, probability, error, differs))
    return found


def described(modes: Sequence[Mode]) -> str:
    """A line for each solution with its share or probability and its unknowns, if there are several."""
    lines = []
    for number, mode in enumerate(modes if len(modes) > 1 else [], 1):
        monitor = mode.result.monitor
        values = monitor.numbers_of(mode.result.functionals)
        pairs = zip(monitor.number_names, values.mean(axis=(0, 1)), values.std(axis=(0, 1)), strict=True)
        told = "".join(f", {name} = {mean:.4g} ± {sd:.2g}" for name, mean, sd in pairs)
        lines.append(f"\n  solution {number}: {mode.weight}{told}")
    return "".join(lines)


def _probabilities(result: "Result", inside: np.ndarray) -> list[tuple[float, float]] | None:
    """Probabilities and standard errors of solutions, or None; ``inside`` is (solutions, chains, draws)."""
    weights = result.method.weights(inside.mean(axis=2), result.stats)
    if weights is None:
        return None
    return probabilities(inside, weights)


def mixture_of(result: "Result") -> "Result":
    """The result with its draws in the proportions of the posterior, if its chains do not all have the same weight.

    Draws of chains with a large weight are repeated, and others left out.
    """
    weights = result.method.weights_in_mixture(result.stats)
    chains, draws = result.z.shape[:2]
    if weights is None or chains == 1 or np.ptp(weights) < 1e-6 * np.max(weights):
        return result
    return of_rows(result, rows_of(np.repeat(weights, draws), chains * draws), chains)


def _picked(result: "Result", mask: np.ndarray) -> "Result":
    """The draws selected by ``mask``, (chains, draws), as a single chain, in the proportions of the posterior."""
    weights = result.method.weights_in_mixture(result.stats)
    inside = np.flatnonzero(mask)
    if weights is not None:
        inside = inside[rows_of(weights[inside // mask.shape[1]], len(inside))]
    return of_rows(result, inside, 1)


def of_rows(result: "Result", rows: np.ndarray, chains: int) -> "Result":
    """The draws with these numbers, counted through all chains, split into chains of equal weight."""

    def take(values: np.ndarray) -> np.ndarray:
        flat = values.reshape(-1, *values.shape[2:])
        return flat[rows].reshape(chains, -1, *values.shape[2:])

    stats = result.stats.select(take)
    if "log_evidence" in stats:
        stats["log_evidence"] = np.full_like(stats["log_evidence"], log_mean(result.stats["log_evidence"][:, 0]))
    history = {name: values if name == "step" else values[:chains] for name, values in result.history.items()}
    return replace(result, z=take(result.z), functionals=take(result.functionals), stats=stats, history=history)
