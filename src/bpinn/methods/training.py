"""Trained methods: Adam minimises a stochastic objective, then draws are made from the fitted parameters."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bpinn.approximate import diagnose_fit
from bpinn.diagnostics import Diagnosis
from bpinn.methods.base import Method, Record, Stage, check_choice, check_count, check_number
from bpinn.model import Model
from bpinn.run_output import RunOutput, SamplerStats

SCHEDULES = ("cosine", "constant")
FINAL_RATE = 1e-2  # of the initial learning rate, at the end of the cosine schedule


class Trace(NamedTuple):
    """The objective over the current window of steps and the previous one, for early stopping.

    Sums are of differences to the window's first loss; otherwise the variance would be lost in single precision.
    """

    first: Array
    total: Array
    squares: Array
    steps: Array
    previous_mean: Array
    previous_error: Array
    stopped: Array


class State(NamedTuple):
    """``memory`` is what the method keeps besides its parameters, such as those of its last steps."""

    params: Any
    optimiser: Any
    memory: Any
    trace: Trace
    steps: Array


@dataclass(frozen=True)
class Fit(Stage):
    """Steps of Adam; each record is the mean of the objective over ``settings.every`` steps.

    A step with a non-finite gradient is skipped, and left out of the mean; ``used`` is the share of the other steps.
    """

    name: ClassVar[str] = "fit"
    verb: ClassVar[str] = "step"
    has_history: ClassVar[bool] = True
    may_stop: ClassVar[bool] = True
    settings: "Trained"

    @classmethod
    def of(cls, settings: "Trained") -> Self:
        records = -(-settings.num_steps // settings.every)
        return cls(records, records, settings)

    @property
    def steps_per_record(self) -> int:
        return self.settings.every

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> State:
        params, memory = self.settings.begin(model, data, key, previous)
        zero = jnp.zeros((), float)
        trace = Trace(zero, zero, zero, jnp.int32(0), jnp.full((), -jnp.inf), zero, jnp.bool_(False))
        return State(params, self.settings.optimiser().init(params), memory, trace, jnp.int32(0))

    def step(self, model: Model, data: Any, state: State, key: Array, step: Array) -> tuple[State, Record]:
        s = self.settings
        optimiser = s.optimiser()
        first = step * s.every
        count = jnp.where(state.trace.stopped, 0, jnp.minimum(s.every, s.num_steps - first))

        def one(i: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
            state, total, used = carry
            (loss, memory), gradient = jax.value_and_grad(s.learn, argnums=2, has_aux=True)(
                model, data, state.params, state.memory, jax.random.fold_in(key, i)
            )
            usable = jnp.isfinite(loss) & jnp.all(
                jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)])
            )
            moves, moved = optimiser.update(gradient, state.optimiser, state.params)
            params, moved, memory = jax.tree.map(
                lambda new, old: new if new is old else jnp.where(usable, new, old),
                (optax.apply_updates(state.params, moves), moved, memory),
                (state.params, state.optimiser, state.memory),
            )
            memory = s.remember(model, params, memory)
            trace = state.trace if s.patience is None else _watch(state.trace, loss, s.patience)
            return (
                State(params, moved, memory, trace, state.steps + 1),
                total + jnp.where(usable, loss, 0.0),
                used + usable,
            )

        state, total, used = jax.lax.fori_loop(0, count, one, (state, jnp.zeros((), float), jnp.int32(0)))
        told = {"step": state.steps, s.objective: s.sign * total / used, "used": used / count}
        return state, Record(None, None, told)

    def position(self, state: State) -> Any:
        return state.params, state.memory

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        """The objective of the worst chain."""
        name, sign = self.settings.objective, self.settings.sign
        return [f"{name} {sign * max(sign * float(stats[name][-1]) for stats in latest):.5g}"]

    def finished(self, state: State) -> bool:
        return bool(state.trace.stopped)


@dataclass(frozen=True)
class First(Fit):
    """A fit that only finds a starting point."""

    name: ClassVar[str] = "start"
    verb: ClassVar[str] = "finding a starting point"
    has_history: ClassVar[bool] = False
    may_stop: ClassVar[bool] = False


def _watch(trace: Trace, loss: Array, patience: int) -> Trace:
    """Stop when the mean over a window is not lower than over the previous window by more than its error."""
    first = jnp.where(trace.steps == 0, loss, trace.first)
    off, count = loss - first, trace.steps + 1
    total, squares = trace.total + off, trace.squares + off * off
    full = count == patience
    mean = first + total / count
    error = jnp.maximum(squares / count - (total / count) ** 2, 0.0) / count
    gained = trace.previous_mean - mean
    settled = full & jnp.isfinite(gained) & (gained < jnp.sqrt(error + trace.previous_error))

    def anew(reset: Array, value: Array) -> Array:
        return jnp.where(full, reset, value)

    return Trace(
        first,
        anew(jnp.zeros_like(total), total),
        anew(jnp.zeros_like(squares), squares),
        anew(jnp.zeros_like(count), count),
        anew(mean, trace.previous_mean),
        anew(error, trace.previous_error),
        trace.stopped | settled,
    )


class Drawn(Protocol):
    """Settings of a method whose draws are made one by one from what was fitted."""

    def prepared(self, model: Model, data: Any, key: Array, previous: Any) -> Any:
        """What to draw from, and the memory of the fit, from where the previous stage ended."""

    def draw(
        self, model: Model, data: Any, params: Any, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        """One draw of ``z``, and the statistics to record with it."""


@dataclass(frozen=True)
class Sample(Stage):
    """Draws from the fitted parameters."""

    name: ClassVar[str] = "draws"
    settings: Drawn

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Any:
        return self.settings.prepared(model, data, key, previous)

    def step(self, model: Model, data: Any, state: Any, key: Array, step: Array) -> tuple[Any, Record]:
        params, memory = state
        z, stats = self.settings.draw(model, data, params, memory, key, step)
        stats |= {"log_density": model.log_density(z, data)}
        return state, Record(z, model.functionals(z, data), stats)

    def position(self, state: Any) -> Any:
        return state


@dataclass(frozen=True, kw_only=True)
class Trained(Method):
    """What trained methods share: the settings of Adam, and how draws are made from the fitted parameters."""

    unit: ClassVar[str] = "fit"
    is_markov: ClassVar[bool] = False
    is_posterior: ClassVar[bool] = False
    recorded: ClassVar[frozenset[str]] = frozenset()
    objective: ClassVar[str] = "loss"
    sign: ClassVar[float] = 1.0  # of the recorded objective relative to the loss
    every: ClassVar[int] = 100  # steps per record of the history

    num_steps: int = 20_000
    learning_rate: float = 1e-2
    schedule: str = "cosine"
    patience: int | None = None
    chains: int = 1

    @abstractmethod
    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Any, Any]:
        """The initial parameters, and the memory: what is stored with them but not trained.

        ``previous`` is the result of a preceding fit.
        """

    @abstractmethod
    def cost(self, model: Model, data: Any, params: Any, memory: Any, key: Array) -> Array:
        """The loss to minimise, estimated with the randomness of ``key``."""

    @abstractmethod
    def draw(
        self, model: Model, data: Any, params: Any, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        """One draw of ``z``, and the statistics to record with it."""

    def learn(self, model: Model, data: Any, params: Any, memory: Any, key: Array) -> tuple[Array, Any]:
        """The loss, and the memory after it was computed."""
        return self.cost(model, data, params, memory, key), memory

    def prepared(self, model: Model, data: Any, key: Array, previous: Any) -> Any:
        """Parameters and memory to draw from: those that the fit ended with, unless there is more to compute."""
        return previous

    def remember(self, model: Model, params: Any, memory: Any) -> Any:
        """The memory after a step."""
        return memory

    def optimiser(self) -> optax.GradientTransformation:
        rate: Any = self.learning_rate
        if self.schedule == "cosine":
            rate = optax.cosine_decay_schedule(self.learning_rate, self.num_steps, alpha=FINAL_RATE)
        return optax.adam(rate)

    def _check(self) -> None:
        name = type(self).__name__
        check_count(name, "num_steps", self.num_steps)
        check_number(name, "learning_rate", self.learning_rate, 0.0, np.inf)
        check_choice(name, "schedule", self.schedule, SCHEDULES)
        check_count(name, "chains", self.chains)
        if self.patience is not None:
            check_count(name, "patience", self.patience, 10)

    def stages(self) -> tuple[Stage, ...]:
        return Fit.of(self), Sample(self._num_draws, 0, self)

    def judge(self, run: RunOutput) -> Diagnosis:
        return diagnose_fit(run)

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        return None

    @property
    @abstractmethod
    def _num_draws(self) -> int: ...
