"""Which single reading would tell several solutions apart?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bpinn.design.candidates import MOST_DRAWS, Kind, Noise, Predicted, check_usable, kinds_of
from bpinn.errors import InputError
from bpinn.result import Result
from bpinn.solutions import Mode

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WHERE = "tell_apart"
CLEAR = 3.0  # units of noise between two solutions, at which a reading decides for one of them with 93% at least
NODES = 64  # of the quadrature over readings


@dataclass(frozen=True, eq=False)
class Separation:
    """The reading that tells several solutions apart best; prints in words, and `plot` draws it.

    A solution predicts the reading with a spread: that of its noise and that of its draws. ``differences`` are the
    distances between the predictions of each pair of solutions in units of this spread, (pairs, candidates). The
    reading is the one whose least separated pair is farthest apart. ``difference`` is this distance. The expected
    entropy of the solution's index ranks readings in the same way if they are hard to tell apart, but is zero at most
    places if they are easy to, and then cannot rank them.

    Attributes:
        kind: what to read: a field, or the name of sensors.
        at: where.
        noise: the noise of the reading, as in `Sensors`.
        difference: how far apart the least separated pair is, in units of noise.
        probability: the probability that the reading is expected to give to the right solution.
        pair: the numbers, from 1, of the least separated solutions.
        means: the mean prediction of the reading by each solution.

    Example:
        ``found = result.tell_apart(); print(found); found.plot().savefig("apart.png")``
    """

    kinds: tuple[Kind, ...]
    pairs: tuple[tuple[int, int], ...]
    differences: np.ndarray
    expected: np.ndarray  # (solutions, candidates), in the space in which noise is additive
    spread: np.ndarray  # the same
    weights: np.ndarray
    noises: tuple[float, ...]
    best: int
    means: tuple[float, ...]
    left: tuple[str, ...] = ()

    @property
    def _owner(self) -> tuple[int, int]:
        starts = np.cumsum([0, *(kind.size for kind in self.kinds)])
        which = int(np.searchsorted(starts, self.best, side="right")) - 1
        return which, self.best - int(starts[which])

    @property
    def scores(self) -> np.ndarray:
        """The distance of the least separated pair at each candidate."""
        return np.min(self.differences, axis=0)

    @property
    def kind(self) -> str:
        return self.kinds[self._owner[0]].name

    @property
    def at(self) -> dict[str, float]:
        which, i = self._owner
        return self.kinds[which].place(i)

    @property
    def noise(self) -> float:
        return self.noises[self._owner[0]]

    @property
    def difference(self) -> float:
        return float(self.scores[self.best])

    @property
    def pair(self) -> tuple[int, int]:
        return self.pairs[int(np.argmin(self.differences[:, self.best]))]

    @property
    def probability(self) -> float:
        return _right(self.weights, self.expected[:, self.best], self.spread[:, self.best])

    @property
    def is_clear(self) -> bool:
        """Whether the reading is likely to decide between all solutions."""
        return self.difference >= CLEAR

    @property
    def reading(self) -> str:
        """The reading in words: 'u at x=0.5'."""
        which, i = self._owner
        return self.kinds[which].named(i)

    @property
    def table(self) -> "pd.DataFrame":
        """Every candidate: the kind, the place and the distance of each pair, the best first."""
        import pandas as pd  # imported here because it takes a third of a second

        rows: dict[str, Any] = {"reading": np.repeat([k.name for k in self.kinds], [k.size for k in self.kinds])}
        for c in dict.fromkeys(c for kind in self.kinds for c in kind.at):
            rows[c] = np.concatenate([kind.at.get(c, np.full(kind.size, np.nan)) for kind in self.kinds])
        rows["difference"] = self.scores
        if len(self.pairs) > 1:
            rows |= {f"{a} and {b}": row for (a, b), row in zip(self.pairs, self.differences, strict=True)}
        return pd.DataFrame(rows).sort_values("difference", ascending=False, ignore_index=True, kind="stable")

    def as_dict(self) -> dict[str, Any]:
        """The reading and the numbers behind it, for JSON."""
        return {
            "reading": self.kind,
            "at": self.at,
            "noise": self.noise if np.isfinite(self.noise) else None,
            "solutions": len(self.means),
            "difference": self.difference,
            "pair": list(self.pair),
            "probability": self.probability,
            "means": list(self.means),
        }

    def plot(self) -> "Figure":
        """The distance between the solutions at all candidates, as `bp.plot.tell_apart` draws it."""
        from bpinn.plot import tell_apart  # imported here because matplotlib takes a second to import

        return tell_apart(self)

    def __str__(self) -> str:
        noise = f" (noise {self.noise:.2g})" if np.isfinite(self.noise) else ""
        values = ", ".join(f"{mean:.3g}" for mean in self.means)
        lines = [
            f"{len(self.means)} solutions are told apart best by {self.reading}{noise}",
            f"  they predict {values}: {_of(self.pair, len(self.means))} {self.difference:.3g} units of noise apart",
            f"  the reading is expected to give the right solution a probability of {self.probability:.0%}",
        ]
        if not self.is_clear:
            lines.append(
                f"  no single reading decides: that takes {CLEAR:g} units of noise; read it several times, or more "
                "precisely"
            )
        return "\n".join([*lines, *(f"  not considered: {line}" for line in self.left)])

    __repr__ = __str__


def _of(pair: tuple[int, int], count: int) -> str:
    return "these are" if count == 2 else f"{pair[0]} and {pair[1]}, the least separated ones, are"


def tell_apart(
    result: Result, candidates: Any = None, noise: Noise = None, of: str | Sequence[str] | None = None
) -> Separation:
    """See `Result.tell_apart`."""
    return separation(result, result.modes(), candidates, noise, of)


def separation(
    result: Result, modes: Sequence[Mode], candidates: Any, noise: Noise, of: Any, draws: int = MOST_DRAWS
) -> Separation:
    """The reading that tells these solutions apart best, from at most ``draws`` draws of each."""
    if len(modes) < 2:
        raise InputError(
            f"{WHERE}: the draws are on one solution, so there are none to tell apart; bp.next_sensor(result) says "
            "which reading would lower its uncertainty most"
        )
    kinds, left = kinds_of(result.problem, candidates, noise, of, WHERE)
    parts = [mode.result.thinned(draws) for mode in modes]
    found = [Predicted.of(kinds, part) for part in parts]
    expected = np.stack([one.responses.mean(axis=0) for one in found])
    noisy = np.stack([one.variance for one in found])
    spread = np.sqrt(noisy + np.stack([one.responses.var(axis=0) for one in found]))
    pairs = tuple(combinations(range(len(modes)), 2))
    with np.errstate(invalid="ignore"):
        apart = [np.abs(expected[a] - expected[b]) / np.sqrt(0.5 * (spread[a] ** 2 + spread[b] ** 2)) for a, b in pairs]
    differences = np.nan_to_num(np.stack(apart), nan=0.0)
    check_usable(np.all(np.isfinite(expected), axis=0), kinds, WHERE)
    best = int(np.argmax(np.min(differences, axis=0)))
    known = [mode.probability for mode in modes]
    # The share of chains on a solution says nothing about it, so without probabilities all are equal.
    weights = np.ones(len(modes)) if None in known else np.array(known, float)
    which, i = found[0].owner(best)
    means = tuple(float(one.values[which][:, i].mean()) for one in found)
    return Separation(
        tuple(kinds), tuple((a + 1, b + 1) for a, b in pairs), differences, expected, spread, weights / weights.sum(),
        tuple(kind.noise_of(result) for kind in kinds), best, means, tuple(left),
    )  # fmt: skip


def _right(weights: np.ndarray, means: np.ndarray, spread: np.ndarray) -> float:
    """The expected probability of the right solution after a reading, with normal predictions, by quadrature."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    mass = mass / mass.sum()
    total = 0.0
    for m, weight in enumerate(weights):
        y = means[m] + spread[m] * nodes
        with np.errstate(divide="ignore"):
            logs = np.log(weights)[:, None] - 0.5 * ((y - means[:, None]) / spread[:, None]) ** 2
        logs = logs - np.log(spread)[:, None]
        posterior = np.exp(logs[m] - np.logaddexp.reduce(logs, axis=0))
        total += float(weight * (mass @ posterior))
    return total
