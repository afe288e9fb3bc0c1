"""Approximations of the posterior by a fitted density: what variational inference and flows share."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.approximate import diagnose_approximation
from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.methods.base import Stage, check_choice, check_count
from bpinn.methods.pinn import first_fit
from bpinn.methods.spaces import SPACES, Frozen, Space, Whitened
from bpinn.methods.start import small
from bpinn.methods.training import Trained
from bpinn.model import Model
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.run_output import RunOutput

STARTS = ("auto", "small", "fit", "laplace")
BATCH = 2**20  # folded into the key of a step for the choice of its batch
MOST_PARAMETERS = 2000  # above this a square matrix is too large to train


@dataclass(frozen=True, kw_only=True)
class Approximation(Trained):
    """A density q(z) fitted by maximising the evidence lower bound, the mean of log p(z, data) - log q(z) under q.

    It is a density of ``v``, the coordinates of z in a `Space`, whose anchor is the memory of the fit.
    """

    is_posterior: ClassVar[bool] = True
    takes_statistics: ClassVar[bool] = True
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "log_q"})
    objective: ClassVar[str] = "elbo"
    sign: ClassVar[float] = -1.0
    before: ClassVar[dict[str, Any]] = {"coordinates": "plain"}

    coordinates: str = "whitened"
    num_samples: int = 5
    num_draws: int = 4000
    init: str = "auto"
    init_steps: int = 20_000

    @property
    def _num_draws(self) -> int:
        return self.num_draws

    def _check(self) -> None:
        super()._check()
        check_count(type(self).__name__, "num_samples", self.num_samples)
        check_count(type(self).__name__, "num_draws", self.num_draws, 4)
        check_choice(type(self).__name__, "init", self.init, STARTS)
        check_count(type(self).__name__, "init_steps", self.init_steps)
        check_choice(type(self).__name__, "coordinates", self.coordinates, tuple(SPACES))

    @property
    @abstractmethod
    def _start(self) -> str:
        """The start to use, with "auto" resolved."""

    def stages(self) -> tuple[Stage, ...]:
        if self._start == "small":
            return super().stages()
        loss = "posterior" if self._start == "laplace" else "likelihood"
        return (first_fit(self.init_steps, loss, self.readings_at_once), *super().stages())

    def _check_size(self, problem: Problem, instead: str) -> None:
        size = Parameters(problem).dim
        if size > MOST_PARAMETERS:
            raise InputError(
                f"{type(self).__name__}: the problem has {size} parameters, but a square matrix over the parameters is "
                f"limited to {MOST_PARAMETERS}; use bp.HMC(), {instead}, or a KarhunenLoeve field"
            )

    def space(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Space, Array, Array]:
        """The space to fit in, the starting point in units of the prior, and a key for what follows."""
        if self._start == "small":
            key, key_start = jax.random.split(key)
            start = small(model, data, key_start)
        else:
            start, _ = previous
        return self._space.around(model, data, start), start, key

    @property
    def _space(self) -> type[Space]:
        """The space to fit in; with batches one whose map does not have to be found from all readings in each step."""
        found = SPACES[self.coordinates]
        return Frozen if found is Whitened and self.readings_at_once is not None else found

    def judge(self, run: RunOutput) -> Diagnosis:
        return diagnose_approximation(run)

    def noise_size(self, dim: int) -> int:
        """Number of standard normal numbers that a draw needs."""
        return dim

    def ready(self, params: Any) -> Any:
        """What all draws need from the parameters, computed once."""
        return params

    @abstractmethod
    def carry(self, ready: Any, eps: Array) -> tuple[Array, Array]:
        """Transform standard normal ``eps`` into a draw ``v``; return it with the log density to train with."""

    def exact(self, ready: Any, eps: Array) -> tuple[Array, Array, dict[str, Array]]:
        """The draw ``v``, its exact log density, and the statistics to record with it."""
        return *self.carry(ready, eps), {}

    def cost(self, model: Model, data: Any, params: Any, memory: Any, key: Array) -> Array:
        space = self._space(model, data, memory)
        batch = None if self.readings_at_once is None else model.random_batch(data, jax.random.fold_in(key, BATCH))
        eps = jax.random.normal(key, (self.num_samples, self.noise_size(model.dim)), float)
        # Without the barrier XLA recomputes these at every use.
        eps, ready = jax.lax.optimization_barrier((eps, self.ready(params)))

        def one(eps: Array) -> Array:
            v, log_q = self.carry(ready, eps)
            log_p, log_determinant = space.log_density(v) if batch is None else space.estimated(v, batch)
            return log_q - log_determinant - log_p

        return jnp.mean(jax.vmap(one)(eps))

    def draw(
        self, model: Model, data: Any, params: Any, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        eps = jax.random.normal(key, (self.noise_size(model.dim),), float)
        v, log_q, stats = self.exact(self.ready(params), eps)
        z, log_determinant = self._space(model, data, memory).to_plain(v)
        return z, {"log_q": log_q - log_determinant, **stats}
