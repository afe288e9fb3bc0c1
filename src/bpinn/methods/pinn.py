"""The standard physics-informed neural network, a fit without error bars."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bpinn.diagnostics import Diagnosis
from bpinn.methods.base import Record, Stage, check_count
from bpinn.methods.network import Network
from bpinn.methods.training import First, Fit, Sample
from bpinn.model import Model
from bpinn.registry import register
from bpinn.run_output import RunOutput

FIRST_RATE = 1e-2  # learning rate of a fit that only finds a starting point


class _Polish(NamedTuple):
    params: Array
    optimiser: Any
    best: Array
    lowest: Array


@dataclass(frozen=True)
class Polish(Stage):
    """L-BFGS from where Adam ended; the best vector along the way is kept."""

    name: ClassVar[str] = "polish"
    verb: ClassVar[str] = "polishing"
    has_history: ClassVar[bool] = True
    may_stop: ClassVar[bool] = True
    settings: "PINN"

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> _Polish:
        params = previous[0]
        return _Polish(params, optax.lbfgs().init(params), params, jnp.full((), jnp.inf, params.dtype))

    def step(self, model: Model, data: Any, state: _Polish, key: Array, step: Array) -> tuple[_Polish, Record]:
        optimiser = optax.lbfgs()

        def loss(params: Array) -> Array:
            return self.settings.misfit(model, data, self.settings.masked(model, params, key))

        value, gradient = optax.value_and_grad_from_state(loss)(state.params, state=state.optimiser)
        move, moved = optimiser.update(
            gradient, state.optimiser, state.params, value=value, grad=gradient, value_fn=loss
        )
        params = state.params + move
        reached = optax.tree_utils.tree_get(moved, "value")  # where the line search ended
        lowest = jnp.minimum(state.lowest, value)
        better = reached < lowest
        best, lowest = jnp.where(better, params, state.best), jnp.where(better, reached, lowest)
        told = {"step": step + 1, "loss": reached, "used": jnp.all(jnp.isfinite(gradient)).astype(float)}
        return _Polish(params, moved, best, lowest), Record(None, None, told)

    def position(self, state: _Polish) -> Any:
        return state.best, ()

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        return [f"loss {max(float(stats['loss'][-1]) for stats in latest):.5g}"]


@register("pinn")
@dataclass(frozen=True, kw_only=True)
class PINN(Network):
    """A physics-informed neural network: the parameters that fit the data best, without error bars.

    Arguments:
        num_steps: steps of Adam.
        learning_rate: learning rate of Adam, in units of the prior's standard deviations.
        schedule: "cosine" decreases the learning rate to a hundredth; "constant" keeps it.
        polish: steps of L-BFGS after Adam.
        loss: "mse" adds the mean squared residuals of the groups of sensors, regardless of their noise and units;
            "likelihood" weights each residual by its noise; "posterior" includes the prior and so gives the mode.
        patience: window, in steps; stop when the mean loss over a window is no better than over the previous one. By
            default there is no early stopping.
        batch: number of readings in each step of Adam, a random sample; by default all of them. L-BFGS takes all.
        chains: number of fits from different starts.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
        >>> result = bp.infer(problem, bp.PINN(num_steps=200), seed=0, progress=False)
        >>> result.draws("k").shape, result.diagnose().verdict
        ((1, 1), 'care')
    """

    fewer: ClassVar[str] = "fewer chains="
    has_spread: ClassVar[bool] = False
    polish: int = 0
    batch: int | None = None

    def __post_init__(self) -> None:
        self._check()
        check_count("PINN", "polish", self.polish, 0)
        if self.batch is not None:
            check_count("PINN", "batch", self.batch)

    @property
    def readings_at_once(self) -> int | None:
        return self.batch

    def cost(self, model: Model, data: Any, params: Array, memory: Any, key: Array) -> Array:
        if self.batch is None:
            return super().cost(model, data, params, memory, key)
        return self.estimated(model, data, self.masked(model, params, key), key)

    @classmethod
    def paper(cls, **changes: Any) -> "PINN":
        """The paper's settings: 200,000 steps of Adam at a learning rate of 0.001, on mean squared residuals."""
        return replace(cls(num_steps=200_000, learning_rate=1e-3, schedule="constant", loss="mse"), **changes)

    @property
    def _num_draws(self) -> int:
        return 1

    def judge(self, run: RunOutput) -> Diagnosis:
        health = super().judge(run)
        health.worsen("care", "a single solution, without any estimate of its uncertainty", "HMC for error bars")
        return health

    def extent(self, chains: int, draws: int) -> str:
        return "one solution, no error bars" if chains == 1 else f"{chains} solutions, no error bars"

    def stages(self) -> tuple[Stage, ...]:
        fit, sample = Fit.of(self), Sample(1, 0, self)
        return (fit, Polish(self.polish, self.polish, self), sample) if self.polish else (fit, sample)

    def draw(
        self, model: Model, data: Any, params: Array, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        return self.masked(model, params, key), {}


def first_fit(num_steps: int, loss: str, batch: int | None = None) -> First:
    """A stage that finds a starting point: a network that fits, or with ``loss="posterior"`` the posterior mode."""
    return First.of(PINN(num_steps=num_steps, learning_rate=FIRST_RATE, loss=loss, batch=batch))
