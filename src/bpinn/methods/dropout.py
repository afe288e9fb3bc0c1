"""Dropout: networks with randomly dropped neurons, whose spread is taken as the uncertainty."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.methods.base import check_count, check_number
from bpinn.methods.network import Network, mask
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.registry import register
from bpinn.run_output import RunOutput


@register("dropout")
@dataclass(frozen=True, kw_only=True)
class Dropout(Network):
    """Dropout: a network is trained with randomly dropped neurons, and each draw drops neurons at random again.

    A draw is the network with the weights of the dropped neurons set to zero. Unknowns are not dropped: their draws
    are their values in the last training steps. The spread of the draws is not a posterior: it depends on the rate,
    and hardly on the noise.

    Arguments:
        rate: the probability that a hidden neuron is dropped.
        num_steps, learning_rate, schedule, loss, patience, chains: as in `PINN`. With a constant learning rate, the
            default here, unknowns keep moving, and this movement is their spread.
        num_draws: number of networks to draw.
        last: number of final training steps from which the draws of unknowns are taken, evenly spaced.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
        >>> result = bp.infer(problem, bp.Dropout(rate=0.05, num_steps=200, num_draws=50), seed=0, progress=False)
        >>> result.draws("k").shape
        (1, 50)
    """

    rate: float = 0.05
    num_draws: int = 4000
    last: int = 10_000
    schedule: str = "constant"

    def __post_init__(self) -> None:
        self._check()
        if not (type(self.rate) in (int, float) and self.rate == 0):
            check_number("Dropout", "rate", self.rate, 0.0, 1.0)
        check_count("Dropout", "num_draws", self.num_draws, 4)
        check_count("Dropout", "last", self.last)

    @classmethod
    def paper(cls, rate: float, **changes: Any) -> "Dropout":
        """The paper's settings: 200,000 steps of Adam at a learning rate of 0.001, 10,000 draws."""
        return replace(
            cls(rate=rate, num_steps=200_000, learning_rate=1e-3, loss="mse", num_draws=10_000, last=10_000), **changes
        )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        for name, field in problem.fields.items():
            if field.dropout(jax.random.key(0), self.rate, problem.bounds(name)) is None:
                raise InputError(
                    f"Dropout: field {name!r} has no hidden neurons to drop; use a network with hidden layers, such as "
                    "bp.MLP(hidden=(50, 50)), or use bp.HMC()"
                )

    @property
    def _num_draws(self) -> int:
        return self.num_draws

    def judge(self, run: RunOutput) -> Diagnosis:
        health = super().judge(run)
        health.worsen(
            "care",
            "the spread of dropout's draws is not a posterior: it depends on the dropout rate rather than on the noise",
            "HMC for error bars",
        )
        return health

    def masked(self, model: Model, params: Array, key: Array) -> Array:
        z = super().masked(model, params, key)
        return mask(model, key, self.rate) * z if self.rate > 0 else z

    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Array, Any]:
        """Also the unknowns of the last steps, as a ring buffer, and the number of steps done."""
        scalars = model.dim - model.parameters.num_weights
        ring = jnp.zeros((min(self.last, self.num_steps), scalars), float)
        return super().begin(model, data, key, previous)[0], (ring, jnp.int32(0))

    def remember(self, model: Model, params: Array, memory: Any) -> Any:
        ring, done = memory
        unknowns = Network.masked(self, model, params, jax.random.key(0))[model.parameters.num_weights :]
        return ring.at[done % ring.shape[0]].set(unknowns), done + 1

    def draw(
        self, model: Model, data: Any, params: Array, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        ring, done = memory
        size = ring.shape[0]
        filled = jnp.minimum(done, size)
        oldest = jnp.where(done < size, 0, done % size)
        place = jnp.minimum((number * (filled / self.num_draws)).astype(int), filled - 1)
        z = self.masked(model, params, key)
        return z.at[model.parameters.num_weights :].set(ring[(oldest + place) % size]), {}
