"""What every method is made of: stages of steps, each step a pure function.

A method is a frozen settings object. It offers stages; a stage is a pure `init` and a pure
`step`, and the engine (`bpinn.engine`) runs the steps in compiled blocks, chain by chain.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from jax import Array

from bpinn.checks import is_whole
from bpinn.diagnostics import Diagnosis, diagnose_chains
from bpinn.errors import InputError
from bpinn.posterior import Model
from bpinn.problem import Problem
from bpinn.registry import Registry
from bpinn.run_output import RunOutput, SamplerStats


class Record(NamedTuple):
    """What a step hands to the host, arrays. ``z`` and ``functionals`` are None where positions are no draws."""

    z: Any
    functionals: Any
    stats: dict[str, Any]


class Pause(NamedTuple):
    """What a policy sees when all chains have come to a pause.

    ``functionals`` are (chains, steps, functionals), ``stats`` (chains, steps): of the steps since the last pause in
    warm-up, of all draws after it. ``is_equation`` marks the functionals that are equations, ``dim`` is the number of
    parameters. A decision depends on nothing else, so that a resumed run comes to the same ones.
    """

    done: int
    functionals: np.ndarray
    stats: SamplerStats
    is_equation: np.ndarray
    dim: int


class Decision(NamedTuple):
    """What a policy decides: a change of all chains (see `Stage.apply`), and how they go on."""

    adjustment: Any = None
    warm: bool = False  # warm-up is complete, and what is left of it is skipped
    enough: bool = False  # there are enough draws
    lost: tuple[int, ...] = ()  # chains to be restarted from another start, before anything else is done


class Policy:
    """Decides between blocks, from all chains together, how they go on. This one lets them run to the end."""

    num_steps: int

    def next_pause(self, done: int) -> int:
        """The step after ``done`` at which all chains wait for each other and are reviewed."""
        return self.num_steps

    def review(self, pause: Pause) -> Decision:
        return Decision()


@dataclass(frozen=True)
class Unsupervised(Policy):
    num_steps: int


@dataclass(frozen=True)
class Stage(ABC):
    """A part of a run: ``num_steps`` recorded steps, of which the first ``num_warmup`` are dropped."""

    name: ClassVar[str]
    has_history: ClassVar[bool] = False  # whether its records, before the draws, belong to the result's history
    verb: ClassVar[str] = "draws"  # what its steps are, for the display
    may_stop: ClassVar[bool] = False  # whether what it has is of use when it is stopped before its end
    num_steps: int
    num_warmup: int

    @property
    def most_restarts(self) -> int:
        """How often a chain that a policy finds lost may be restarted."""
        return 0

    @property
    def until_good(self) -> bool:
        """Whether it may end before all steps are done, when a review finds them enough."""
        return False

    @property
    def until_warm(self) -> bool:
        """Whether its warm-up may end before all of its steps are done, when a review finds that it can."""
        return False

    @property
    def steps_per_record(self) -> int:
        """How many of the method's own steps a recorded step is, for people."""
        return 1

    @abstractmethod
    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Any:
        """State of a chain at the start; ``previous`` is the stage before's last position, or None."""

    @abstractmethod
    def step(self, model: Model, data: Any, state: Any, key: Array, step: Array) -> tuple[Any, Record]:
        """One recorded step."""

    @abstractmethod
    def position(self, state: Any) -> Any:
        """What the next stage starts from: a chain's ``z``, or what was fitted."""

    def finished(self, state: Any) -> bool:
        """Whether a chain has no more to do before its steps are done."""
        return False

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        """How it is going, for the display: words with figures from the last statistics of each chain."""
        return []

    def policy(self) -> Policy:
        """What is decided between blocks; nothing unless overridden."""
        return Unsupervised(self.num_steps)

    def apply(self, state: Any, adjustment: Any) -> Any:
        """A chain's state after a policy's adjustment."""
        return state


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Settings of an estimator of the posterior. Data and seed come in the call of `infer`."""

    registry: ClassVar[Registry] = Registry("method")
    fewer: ClassVar[str] = "fewer num_draws"  # what to do when draws take too much memory
    unit: ClassVar[str] = "chain"  # what each of ``chains`` is called
    has_spread: ClassVar[bool] = True  # whether the spread of the draws stands for an uncertainty
    is_markov: ClassVar[bool] = True  # whether the draws of a chain follow each other, so that R-hat and ESS mean much
    is_posterior: ClassVar[bool] = True  # whether draws are of the posterior, or of something near it
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density"})  # statistics that its verdict is based on
    fitted: ClassVar[frozenset[str]] = frozenset()  # likewise of the history of a fit
    chains: int

    def plain(self) -> Self:
        """The same settings, with Python's own numbers in place of NumPy's."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: _plain(value) for name, value in given.items()})

    @property
    def kept(self) -> int | None:
        """How many of the last draws of each chain are kept; all, if None."""
        return None

    def check(self, problem: Problem) -> None:  # noqa: B027
        """Raise `InputError` if the method cannot take on the problem."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a run, in order; the last one gives the draws."""

    def judge(self, run: RunOutput) -> Diagnosis:
        """The verdict on a run's draws, before the readings are looked at; as Markov chains unless overridden."""
        return diagnose_chains(run)

    def extent(self, chains: int, draws: int) -> str:
        """How much a result holds, in words."""
        return f"{chains} {self.unit}{'s' if chains > 1 else ''} of {draws} draws"

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        """How much each chain counts in the probabilities of several solutions; None if chains cannot say.

        ``visits`` is the share of each chain's draws on each solution, (solutions, chains). Chains that have all
        visited all solutions count the same.
        """
        return None if np.any(visits == 0) else np.ones(visits.shape[1])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value


def check_count(method: str, name: str, value: Any, least: int = 1) -> None:
    if not is_whole(value, least):
        raise InputError(f"{method}: {name} must be a whole number of at least {least}, got {value!r}")


def check_number(method: str, name: str, value: Any, low: float, high: float) -> None:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not low < value < high:
        raise InputError(f"{method}: {name} must be a number between {low:g} and {high:g}, got {value!r}")


def check_choice(method: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{method}: {name} must be one of {known}, got {value!r}")
