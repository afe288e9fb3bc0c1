"""The parts of a method: stages, each a sequence of steps, each step a pure function.

A method is a frozen settings object. It defines stages; a stage is a pure `init` and a pure
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
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.registry import Registry
from bpinn.run_output import RunOutput, SamplerStats


class Record(NamedTuple):
    """The arrays that a step passes to the host. ``z`` and ``functionals`` are None where positions are not draws.

    Example:
        ``return state, bp.Record(state.z, model.functionals(state.z, data), {"log_density": state.log_density})``
    """

    z: Any
    functionals: Any
    stats: dict[str, Any]


class Pause(NamedTuple):
    """What a policy sees when all chains have reached a pause.

    ``functionals`` are (chains, steps, functionals), ``stats`` (chains, steps): during warm-up, of the steps since the
    last pause; after it, of all draws. ``is_secondary`` marks equations and scales of fields, ``dim`` is the number
    of parameters. A decision depends on nothing else, so a resumed run makes the same decisions.
    """

    done: int
    functionals: np.ndarray
    stats: SamplerStats
    is_secondary: np.ndarray
    dim: int


class Decision(NamedTuple):
    """What a policy decides: an adjustment of all chains (see `Stage.apply`), and how they continue."""

    adjustment: Any = None
    warm: bool = False  # warm-up is complete; its remaining steps are skipped
    enough: bool = False  # there are enough draws
    lost: tuple[int, ...] = ()  # chains to restart from another starting point, before anything else is done


class Policy:
    """Decides between blocks, from all chains together, how they continue. This one lets them run to the end."""

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
    """A part of a run: ``num_steps`` recorded steps, the first ``num_warmup`` of which are discarded.

    Example:
        >>> import bpinn as bp
        >>> [stage.name for stage in bp.VI().stages()]
        ['start', 'fit', 'draws']
    """

    name: ClassVar[str]
    has_history: ClassVar[bool] = False  # whether the records before the draws go into the result's history
    verb: ClassVar[str] = "draws"  # what the display calls its steps
    may_stop: ClassVar[bool] = False  # whether its state is useful if it is stopped before its end
    num_steps: int
    num_warmup: int

    @property
    def most_restarts(self) -> int:
        """How often a chain may be restarted after a policy finds it lost."""
        return 0

    @property
    def until_good(self) -> bool:
        """Whether it may end before all steps are done, once a review finds enough draws."""
        return False

    @property
    def until_warm(self) -> bool:
        """Whether its warm-up may end early, once a review finds it complete."""
        return False

    @property
    def steps_per_record(self) -> int:
        """How many of the method's own steps a recorded step stands for, for the display."""
        return 1

    def compiled(self) -> "Stage":
        """The stage that is compiled: settings on which neither `init` nor `step` depends may be set to their defaults,
        so that runs that differ only in these share a program."""
        return self

    @abstractmethod
    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Any:
        """Initial state of a chain; ``previous`` is the last position of the previous stage, or None."""

    @abstractmethod
    def step(self, model: Model, data: Any, state: Any, key: Array, step: Array) -> tuple[Any, Record]:
        """One recorded step."""

    @abstractmethod
    def position(self, state: Any) -> Any:
        """What the next stage starts from: a chain's ``z``, or the fitted parameters."""

    def finished(self, state: Any) -> bool:
        """Whether a chain is finished before all its steps are done."""
        return False

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        """Figures for the display, from the latest statistics of each chain."""
        return []

    def policy(self) -> Policy:
        """The policy that decides between blocks; by default it decides nothing."""
        return Unsupervised(self.num_steps)

    def apply(self, state: Any, adjustment: Any) -> Any:
        """Apply a policy's adjustment to a chain's state."""
        return state


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Settings of an inference method. Data and seed are passed to `infer`.

    Example:
        >>> import bpinn as bp
        >>> isinstance(bp.HMC(chains=2), bp.Method)
        True
    """

    registry: ClassVar[Registry] = Registry("method")
    fewer: ClassVar[str] = "a smaller num_draws="  # completes "use ... to store fewer draws", if memory runs short
    unit: ClassVar[str] = "chain"  # what each of ``chains`` is called
    has_spread: ClassVar[bool] = True  # whether the spread of the draws represents an uncertainty
    is_markov: ClassVar[bool] = True  # whether each chain is a Markov chain, so that R-hat and ESS are meaningful
    is_posterior: ClassVar[bool] = True  # whether draws are from the posterior or an approximation of it
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density"})  # statistics that its verdict needs
    fitted: ClassVar[frozenset[str]] = frozenset()  # the same for the history of a fit
    takes_statistics: ClassVar[bool] = False  # whether it only needs the sum over readings, see `bpinn.sufficient`
    takes_start: ClassVar[bool] = False  # whether `infer` takes ``start=``, a result whose solutions are looked for
    before: ClassVar[dict[str, Any]] = {}  # what versions did that had no such setting: name and value
    chains: int

    def plain(self) -> Self:
        """The same settings, with NumPy scalars converted to Python numbers."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: _plain(value) for name, value in given.items()})

    @property
    def kept(self) -> int | None:
        """How many of the last draws of each chain are kept; None keeps all."""
        return None

    @property
    def readings_at_once(self) -> int | None:
        """How many readings a batch has, for methods that use some of them in each step; None for all."""
        return None

    def check(self, problem: Problem) -> None:  # noqa: B027
        """Raise `InputError` if the method cannot be used for the problem."""

    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a run, in order; the last one produces the draws."""

    def judge(self, run: RunOutput) -> Diagnosis:
        """The verdict on a run's draws, before the readings are checked; by default as Markov chains."""
        return diagnose_chains(run)

    def more_chains(self, run: RunOutput) -> int:
        """How many further chains a run needs, judged by those that are finished."""
        return 0

    def extent(self, chains: int, draws: int) -> str:
        """How much a result holds, in words."""
        return f"{chains} {self.unit}{'s' if chains > 1 else ''} of {draws} draws"

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        """Weight of each chain in the probabilities of several solutions; None if these cannot be estimated.

        ``visits`` is the share of each chain's draws on each solution, (solutions, chains). If every chain has visited
        every solution, all chains have the same weight.
        """
        return None if np.any(visits == 0) else np.ones(visits.shape[1])

    def weights_in_mixture(self, stats: SamplerStats) -> np.ndarray | None:
        """Weight of each chain's draws in the posterior; None if all are alike."""
        return None


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
