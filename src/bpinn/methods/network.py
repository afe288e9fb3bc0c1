"""What `PINN` and `Dropout` share: one parameter vector, trained on the data from small weights."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.errors import InputError
from bpinn.methods.base import check_choice
from bpinn.methods.start import prior_units, small
from bpinn.methods.training import Trained
from bpinn.model import Model
from bpinn.problem import Problem

LOSSES = ("mse", "likelihood", "posterior")


@dataclass(frozen=True, kw_only=True)
class Network(Trained):
    """A network trained as a point estimate. The trained vector is in units of the prior; ``loss`` is the objective."""

    learning_rate: float = 1e-3
    loss: str = "mse"

    def _check(self) -> None:
        super()._check()
        check_choice(type(self).__name__, "loss", self.loss, LOSSES)

    def check(self, problem: Problem) -> None:
        inferred = [r.noise_name for r in problem.readings if r.noise_name is not None]
        if inferred and self.loss != "posterior":
            name = inferred[0]
            raise InputError(
                f"{type(self).__name__}: {name!r} is to be inferred, which is not possible with loss={self.loss!r}; "
                "give the noise as a number, or use loss='posterior' or bp.HMC()"
            )

    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Array, Any]:
        return small(model, data, key), ()

    def masked(self, model: Model, params: Array, key: Array) -> Array:
        """The parameter vector ``z`` of the network, with dropout applied."""
        centre, scale = prior_units(model)
        return centre + scale * params

    def cost(self, model: Model, data: Any, params: Array, memory: Any, key: Array) -> Array:
        return self.misfit(model, data, self.masked(model, params, key))

    def misfit(self, model: Model, data: Any, z: Array) -> Array:
        if self.loss == "mse":
            return sum((jnp.mean(squares) for squares in _squares(model, data, z)), start=jnp.zeros((), z.dtype))
        count = sum(len(values) for values in data["values"])
        # An inferred noise would shrink to zero around a network that fits exactly; the prior prevents this.
        inferred = any(group.noise_name for group in model.groups)
        whole = model.log_likelihood if self.loss == "likelihood" and not inferred else model.log_density
        return -whole(z, data) / count

    def estimated(self, model: Model, data: Any, z: Array, key: Array) -> Array:
        """The misfit from a batch chosen at random; its mean is that of all readings."""
        batch = model.random_batch(data, key)
        if self.loss == "mse":
            groups = zip(_squares(model.batch, batch, z), batch["counted"], model.counts, strict=True)
            sums = [jnp.sum(jnp.where(counted, squares, 0.0)) / count for squares, counted, count in groups]
            return model.batches * sum(sums, start=jnp.zeros((), z.dtype))
        total = model.batches * model.batch.log_likelihood(z, batch)
        return -(total + model.log_prior(z) if self.loss == "posterior" else total) / sum(model.counts)


def _squares(model: Model, data: Any, z: Array) -> list[Array]:
    """Squared residuals of each group."""
    groups = zip(model.groups, model.predicted(z, data), data["values"], strict=True)
    return [group.likelihood.residual(values, mean) ** 2 for group, mean, values in groups]


def mask(model: Model, key: Array, rate: float) -> Array:
    """Factors on ``z`` that drop neurons of every network."""
    factors = []
    for i, (name, field, bounds) in enumerate(model.parameters.fields):
        factor = field.dropout(jax.random.fold_in(key, i), rate, bounds)
        part = model.parameters.slices[name]
        factors.append(jnp.ones(part.stop - part.start, float) if factor is None else factor)
    scalars = model.dim - sum(len(f) for f in factors)
    return jnp.concatenate([*factors, jnp.ones(scalars, float)])
