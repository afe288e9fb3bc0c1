"""The parameters of a problem as one flat vector: fields first, then unknowns and inferred noise levels."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.transforms import Transform, biject_to

from bpinn.fields import Field
from bpinn.fields.base import Bounds
from bpinn.problem import Problem


@dataclass(frozen=True, eq=False)
class Scalar:
    """An unknown (or inferred noise) on the real line: its prior, bijection and shapes."""

    name: str
    prior: dist.Distribution
    transform: Transform
    shape: tuple[int, ...]
    real_shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, prior: dist.Distribution) -> "Scalar":
        transform = biject_to(prior.support)
        return cls(name, prior, transform, prior.shape(), tuple(transform.inverse_shape(prior.shape())))

    @property
    def size(self) -> int:
        return int(np.prod(self.real_shape))

    @cached_property
    def key(self) -> tuple:
        leaves, tree = jax.tree.flatten(self.prior)
        return self.name, type(self.prior), str(tree), tuple(np.asarray(leaf).tobytes() for leaf in leaves)

    def constrain(self, z: Array) -> Array:
        return self.transform(z.reshape(self.real_shape))

    def log_prior(self, z: Array) -> Array:
        """Log density on the real line: the prior's log density plus the log Jacobian of the bijection."""
        real = z.reshape(self.real_shape)
        value = self.transform(real)
        return jnp.sum(self.prior.log_prob(value)) + jnp.sum(self.transform.log_abs_det_jacobian(real, value))

    def sample(self, key: Array) -> Array:
        return jnp.ravel(self.transform.inv(self.prior.sample(key)))

    def location_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread on the real line: exact if the prior is normal there, otherwise estimated from draws."""
        if type(self.prior) in (dist.Normal, dist.LogNormal):
            loc, scale = np.asarray(self.prior.loc, float), np.asarray(self.prior.scale, float)
            return np.broadcast_to(loc, self.shape).ravel(), np.broadcast_to(scale, self.shape).ravel()
        with jax.ensure_compile_time_eval():
            draws = np.asarray(jax.vmap(self.sample)(jax.random.split(jax.random.key(0), 4000)))
        low, middle, high = np.quantile(draws, [0.1587, 0.5, 0.8413], axis=0)
        return middle, 0.5 * (high - low)


class Parameters:
    """The layout of ``z`` and its prior. Problems with equal fields and priors have equal `Parameters`."""

    def __init__(self, problem: Problem):
        self.fields: tuple[tuple[str, Field, Bounds], ...] = tuple(
            (name, field, problem.bounds(name)) for name, field in problem.fields.items()
        )
        priors = problem.scalars
        self.scalars = tuple(Scalar.of(name, prior) for name, prior in priors.items())
        self.unknowns = tuple(scalar for scalar in self.scalars if scalar.name in problem.unknowns)
        sizes = [f.size(b) for _, f, b in self.fields] + [s.size for s in self.scalars]
        names = [name for name, *_ in self.fields] + [s.name for s in self.scalars]
        ends = np.cumsum(sizes)
        self.slices = {n: slice(int(e) - s, int(e)) for n, s, e in zip(names, sizes, ends, strict=True)}
        self.dim = int(ends[-1])
        self.num_weights = sum(sizes[: len(self.fields)])  # unknowns and noise levels follow the fields' parameters
        self.key = (self.fields, tuple(s.key for s in self.scalars), str(jnp.result_type(float)))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameters) and self.key == other.key

    def _parts(self, z: Array) -> dict[str, Array]:
        # One split rather than slices: its transpose is one concatenation.
        pieces = jax.lax.split(z, [s.stop - s.start for s in self.slices.values()])
        return dict(zip(self.slices, pieces, strict=True))

    def split(self, z: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Parameters of each field, and each unknown and inferred noise in its constrained space."""
        parts = self._parts(z)
        theta = {name: parts[name] for name, *_ in self.fields}
        return theta, {s.name: s.constrain(parts[s.name]) for s in self.scalars}

    def unflatten(self, z: Array) -> dict[str, Any]:
        """Each field's parameters in their natural shape, each unknown and noise in its constrained space."""
        theta, scalars = self.split(z)
        return {name: field.unflatten(theta[name], bounds) for name, field, bounds in self.fields} | scalars

    def log_prior(self, z: Array) -> Array:
        parts = self._parts(z)
        total = jnp.zeros((), z.dtype)
        for name, field, bounds in self.fields:
            total += field.log_prior(parts[name], bounds)
        for scalar in self.scalars:
            total += scalar.log_prior(parts[scalar.name])
        return total

    def sample_prior(self, key: Array) -> Array:
        """One draw of ``z``."""
        keys = jax.random.split(key, len(self.slices))
        draws = [f.sample_prior(k, b) for k, (_, f, b) in zip(keys, self.fields, strict=False)]
        draws += [s.sample(k) for k, s in zip(keys[len(self.fields) :], self.scalars, strict=True)]
        return jnp.concatenate([jnp.asarray(d, dtype=float) for d in draws])

    @cached_property
    def prior_location_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread of each component of ``z`` under the prior."""
        centre, scale = np.zeros(self.dim), np.ones(self.dim)
        for name, field, bounds in self.fields:
            scale[self.slices[name]] = field.prior_sd(bounds)
        for s in self.scalars:
            centre[self.slices[s.name]], scale[self.slices[s.name]] = s.location_scale()
        return centre, scale
