"""Where to measure next: the reading that lowers an uncertainty most, or that tells several solutions apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bpinn.checks import is_whole
from bpinn.design.candidates import MOST_DRAWS, Kind, Noise, Predicted, check_usable, kinds_of
from bpinn.design.reduction import Choice, by_regression, by_weights
from bpinn.design.separation import Separation, separation
from bpinn.design.targets import Target, target_of
from bpinn.errors import InputError
from bpinn.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WHERE = "next_sensor"
FEWEST_DRAWS = 50
FEW_EFFECTIVE = 20
QUICK_DRAWS, MOST_OPERATIONS = 300, 2e10  # of a report: arithmetic for about a second on one core
HARDLY = 0.02  # share of the variance


@dataclass(frozen=True, eq=False)
class NextReading:
    """One of the next readings: what to read and where, its noise, and what is expected after it and those before.

    ``sd`` is the expected posterior sd of the target; ``reduction`` the share of its variance that is removed, with
    standard error ``error``.
    """

    kind: str
    at: dict[str, float]
    noise: float
    words: str
    sd: float
    reduction: float
    error: float


@dataclass(frozen=True, eq=False)
class NextSensor:
    """The readings that lower the uncertainty of a target most; prints in words, and `plot` draws it.

    Attributes:
        target: what they are for, in words.
        sd: its posterior sd now: root-mean-square over points for a field over the domain, 1 for several unknowns,
            which are counted in units of their sd.
        readings: the next readings, each given those before it (`NextReading`).
        exact: whether the reductions are from nested Monte Carlo.
        trusted: False if the verdict on the run is "do not trust".

    Example:
        ``bp.next_sensor(result, "k").table.head()`` has the best places
    """

    target: str
    sd: float
    readings: tuple[NextReading, ...]
    kinds: tuple[Kind, ...]
    choice: Choice
    variance: float
    exact: bool
    left: tuple[str, ...] = ()
    trusted: bool = True

    @property
    def at(self) -> dict[str, float]:
        """Where the first of them is."""
        return self.readings[0].at

    @property
    def kind(self) -> str:
        """What the first of them reads."""
        return self.readings[0].kind

    @property
    def reduction(self) -> float:
        """The share of the variance that all of them are expected to remove."""
        return self.readings[-1].reduction

    @property
    def shares(self) -> np.ndarray:
        """The share of the variance that each candidate alone removes, (candidates,) of all kinds side by side."""
        return self.choice.gains[0] / self.variance

    @property
    def table(self) -> "pd.DataFrame":
        """Every candidate: the kind, the place and the share of the variance that it removes, the best first."""
        import pandas as pd  # imported here because it takes a third of a second

        rows: dict[str, Any] = {"reading": np.repeat([k.name for k in self.kinds], [k.size for k in self.kinds])}
        for c in dict.fromkeys(c for kind in self.kinds for c in kind.at):
            rows[c] = np.concatenate([kind.at.get(c, np.full(kind.size, np.nan)) for kind in self.kinds])
        rows["reduction"] = self.shares
        rows["sd"] = self.sd * np.sqrt(np.clip(1.0 - self.shares, 0.0, None))
        return pd.DataFrame(rows).sort_values("reduction", ascending=False, ignore_index=True, kind="stable")

    def as_dict(self) -> dict[str, Any]:
        """The readings and the numbers behind them, for JSON."""
        return {
            "for": self.target,
            "sd": self.sd,
            "exact": self.exact,
            "trusted": self.trusted,
            "next": [
                {
                    "reading": r.kind,
                    "at": r.at,
                    "noise": r.noise if np.isfinite(r.noise) else None,
                    "sd": r.sd,
                    "reduction": r.reduction,
                    "error": r.error,
                }
                for r in self.readings
            ],
        }

    def plot(self) -> "Figure":
        """The expected reduction at all candidates, as `bp.plot.next_sensor` draws it."""
        from bpinn.plot import next_sensor  # imported here because matplotlib takes a second to import

        return next_sensor(self)

    def __str__(self) -> str:
        lines = [f"Where to measure next, for {self.target} (sd {self.sd:.3g} now)"]
        for number, r in enumerate(self.readings, 1):
            noise = f" (noise {r.noise:.2g})" if np.isfinite(r.noise) else ""
            lines.append(
                f"  {number}. {r.words}{noise}: expected sd {r.sd:.3g}, variance lower by {r.reduction:.0%} ± "
                f"{r.error:.0%}"
            )
        if self.readings[0].reduction < HARDLY + 2 * self.readings[0].error:
            lines.append("  hardly any candidate helps; more precise readings, or readings of something else, may")
        if self.choice.effective < FEW_EFFECTIVE:
            lines.append(
                f"  not reliable: only {self.choice.effective:.0f} draws are close to a simulated reading; use "
                "exact=False, or more draws"
            )
        if not self.trusted:
            lines.append('  the verdict on the draws is "do not trust", so this may be far off')
        return "\n".join([*lines, *(f"  not considered: {line}" for line in self.left)])

    __repr__ = __str__


def next_sensor(
    result: Result,
    for_: Any = None,
    candidates: Any = None,
    noise: Noise = None,
    *,
    of: str | Sequence[str] | None = None,
    count: int = 1,
    exact: bool = False,
    seed: int = 0,
) -> NextSensor:
    """Which reading, of what and where, is expected to lower an uncertainty most.

    From the draws alone, without another run: as much of the variance is removed as a regression of the target on the
    reading explains. That is exact for jointly normal draws.

    Arguments:
        result: a result of `bp.infer` whose draws are on one solution.
        for_: an unknown ("k", or an entry, "k[1]"), several of them, a field ("u", on average over the domain),
            or a field or another quantity at places, ``("u", {"x": 0.5})``. All unknowns by default, or the first field
            if there are none.
        candidates: places, an array for each coordinate, as in `Result.predict`, or a dictionary of these by what is
            read; a mesh over the domain by default.
        noise: the noise of the reading: a number, or a dictionary by what is read. By default that of the readings
            there are: of several groups of one quantity, the largest.
        of: what can be read: names of fields or sensors. By default everything that has noisy readings.
        count: number of readings to name, each given those before it.
        exact: simulate readings and weigh the draws by their likelihood, instead of the regression: for draws that
            are not normal. The noise of an estimate is then larger.
        seed: seed of the simulated readings.

    Example:
        ``advice = bp.next_sensor(result, "k", count=2); print(advice); advice.plot().savefig("next.png")``
    """
    if not isinstance(result, Result):
        raise InputError(f"{WHERE}: expected a result of bp.infer, got {type(result).__name__}")
    if not is_whole(count, 1):
        raise InputError(f"{WHERE}: count must be a whole number of at least 1, got {count!r}")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"{WHERE}: seed must be a whole number of at least 0, got {seed!r}")
    if not result.method.has_spread:
        raise InputError(
            f"{WHERE}: {type(result.method).__name__} gives a solution without uncertainty, so none can be lowered; "
            "use bp.HMC()"
        )
    modes = result.modes()
    if len(modes) > 1:
        raise InputError(
            f"{WHERE}: the draws are on {len(modes)} solutions; result.tell_apart() says which reading decides between "
            "them, and bp.next_sensor(mode.result) takes one of result.modes()"
        )
    return advised(result, for_, candidates, noise, of, int(count), exact, int(seed), MOST_DRAWS)


def attempted_advice(result: Result) -> "NextSensor | Separation | str":
    """Quick advice for a report, from few draws; or the reason why there is none.

    There is some for unknowns, and for several solutions, unless it would take more than about a second.
    """
    if not result.method.has_spread or not result.method.is_posterior:
        return "the method gives no posterior"
    modes = result.modes()
    draws = sum(min(QUICK_DRAWS, len(mode.result.z[0]) * len(mode.result.z)) for mode in modes)
    try:
        kinds, _ = kinds_of(result.problem, None, None, None, WHERE)
        if 2.0 * draws * result.z.shape[-1] * sum(kind.size for kind in kinds) > MOST_OPERATIONS:
            return "it would take more than a second; call bp.next_sensor(result)"
        if len(modes) > 1:
            return separation(result, modes, None, None, None, QUICK_DRAWS)
        if not result.problem.unknowns:
            return "there are no unknowns"
        return advised(result, None, None, None, None, 1, False, 0, QUICK_DRAWS)
    except InputError as error:
        return str(error)


def advised(
    result: Result, for_: Any, candidates: Any, noise: Noise, of: Any, count: int, exact: bool, seed: int, draws: int
) -> NextSensor:
    """`next_sensor` for a result on one solution, from at most ``draws`` draws."""
    fewer = result.thinned(draws)
    if fewer.z.shape[0] * fewer.z.shape[1] < FEWEST_DRAWS:
        raise InputError(
            f"{WHERE}: {fewer.z.shape[0] * fewer.z.shape[1]} draws are too few to estimate covariances; at least "
            f"{FEWEST_DRAWS} are needed"
        )
    target = target_of(fewer, for_, WHERE)
    kinds, left = kinds_of(result.problem, candidates, noise, of, WHERE)
    predicted = Predicted.of(kinds, fewer)
    check_usable(np.all(np.isfinite(predicted.responses), axis=0), kinds, WHERE)
    values = target.scaled
    choice = by_weights(values, predicted, count, seed) if exact else by_regression(values, predicted, count)
    return NextSensor(
        target.label, target.sd, _readings(result, target, predicted, choice), tuple(kinds), choice,
        float(np.sum(values.var(axis=0, ddof=1))), exact, tuple(left),
        result.diagnose().verdict != "bad",
    )  # fmt: skip


def _readings(result: Result, target: Target, predicted: Predicted, choice: Choice) -> tuple[NextReading, ...]:
    found = []
    for j, share, error in zip(choice.chosen, choice.shares, choice.errors, strict=True):
        which, i = predicted.owner(j)
        kind = predicted.kinds[which]
        after = target.sd * float(np.sqrt(max(1.0 - share, 0.0)))
        found.append(NextReading(kind.name, kind.place(i), kind.noise_of(result), kind.named(i), after, share, error))
    return tuple(found)
