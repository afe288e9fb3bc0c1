"""Several solutions of one result: the draws of each, and its share or probability."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bpinn import diagnostics
from bpinn.modes import groups_of
from bpinn.shown import Shown

if TYPE_CHECKING:
    from bpinn.result import Result


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
        return f"probability {self.probability:.0%}" + (f" ± {self.error:.0%}" if self.error else "")

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
    shares = inside.mean(axis=2)
    weights = result.method.weights(shares, result.stats)
    if weights is None:
        return None
    weights = weights / weights.sum()
    mean = shares @ weights
    error = np.sqrt(((shares - mean[:, None]) ** 2) @ weights**2)
    return [(float(p), float(e)) for p, e in zip(mean, error, strict=True)]


def _picked(result: "Result", mask: np.ndarray) -> "Result":
    """The draws selected by ``mask``, (chains, draws), as a single chain."""
    return replace(
        result,
        z=result.z[mask][None],
        functionals=result.functionals[mask][None],
        stats=result.stats.select(lambda values: values[mask][None]),
        history={name: values if name == "step" else values[:1] for name, values in result.history.items()},
    )
