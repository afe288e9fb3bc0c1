"""The posterior of a problem on one flat vector, for use with any sampler."""

from collections.abc import Mapping
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.errors import InputError
from bpinn.measurements import Quantity, label
from bpinn.model import Model
from bpinn.monitor import Monitor
from bpinn.problem import Problem
from bpinn.quantity_at import QuantityAt
from bpinn.sufficient import summarised

if TYPE_CHECKING:
    from bpinn.coordinates import Coordinates

# Compiled once per model, so that calls outside a user's jit are fast.


@partial(jax.jit, static_argnames="model")
def _log_prior(model: Model, z: Array) -> Array:
    return model.log_prior(z)


@partial(jax.jit, static_argnames="model")
def _log_likelihood(model: Model, z: Array, data: Any) -> Array:
    return model.log_likelihood(z, data)


@partial(jax.jit, static_argnames=("model", "n"))
def _sample_prior(model: Model, key: Array, n: int) -> Array:
    return jax.vmap(model.parameters.sample_prior)(jax.random.split(key, n))


class Posterior:
    """The log density of a problem on one flat vector ``z``, for use with any sampler.

    ``z`` holds the parameters of every field, then every unknown and inferred noise on the real
    line. All normalising constants and the Jacobians of constrained unknowns are included. ``native=True`` evaluates
    networks with the native kernel if available: about twice as fast, with gradients but no other derivatives.

    Example:
        >>> import bpinn as bp, jax
        >>> problem = bp.Problem(
        ...     domain={"x": (0.0, 1.0)},
        ...     fields={"u": bp.MLP(hidden=())},
        ...     sensors={"u": bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[0.0, 1.0], noise=0.1)},
        ... )
        >>> posterior = bp.Posterior(problem)
        >>> posterior.dim
        2
        >>> z = posterior.sample_prior(jax.random.key(0), 3)
        >>> z.shape, posterior.log_density(z[0]).shape
        ((3, 2), ())
    """

    def __init__(self, problem: Problem, *, native: bool = False):
        self.problem = problem
        self.monitor = Monitor(problem)
        self._evaluate(summarised(problem), native)

    def _evaluate(self, problem: Problem, native: bool) -> None:
        self._evaluated = problem
        self.model = Model(problem, self.monitor).compiled(native)
        self.data = self.model.data_of(problem, self.monitor)

    @cached_property
    def by_reading(self) -> "Posterior":
        """The same posterior without sufficient statistics: its model predicts each reading."""
        if self._evaluated is self.problem:
            return self
        other = copy(self)
        other._evaluate(self.problem, self.model.native)
        return other

    def in_batches(self, batch: int | None) -> "Posterior":
        """The same posterior, with random batches of about ``batch`` readings for methods that use them."""
        if batch is None:
            return self
        whole = self.by_reading
        other = copy(whole)
        other.model = Model(self.problem, self.monitor, batch).compiled(whole.model.native)
        other.data = whole.data | {"batches": other.model.batches_of(self.problem)}
        return other

    @property
    def dim(self) -> int:
        """The length of ``z``."""
        return self.model.dim

    def log_prior(self, z: Array) -> Array:
        """Log density of the prior of ``z``, of shape (dim,)."""
        return _log_prior(self.model, z)

    def log_likelihood(self, z: Array) -> Array:
        """Log density of the readings, given ``z``."""
        return _log_likelihood(self.model, z, self.data)

    def log_density(self, z: Array) -> Array:
        """Log density of the posterior, up to the evidence: the sum of `log_prior` and `log_likelihood`."""
        return self.log_prior(z) + self.log_likelihood(z)

    def coordinates(self, reference: Array | None = None) -> "Coordinates":
        """Whitened coordinates, in which output weights and coefficients are nearly standard normal.

        An exact change of variables for a sampler of your own: ``log_density(w)``, ``to_plain(w)`` with the log
        determinant, ``to_white(z)``. Equations are linearised around the solution ``reference``, a vector ``z``; one is
        found unless it is given. It changes the shape of the density, not the posterior.

        Example:
            >>> import bpinn as bp, jax
            >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
            >>> posterior = bp.Posterior(problem)
            >>> coordinates = posterior.coordinates()
            >>> w = coordinates.to_white(posterior.sample_prior(jax.random.key(0), 1)[0])
            >>> w.shape == (posterior.dim,)
            True
        """
        from bpinn.coordinates import Coordinates, found_reference, reference_at  # which are made of models

        if reference is None:
            return Coordinates(self.model, self.data, found_reference(self.model, self.data, jax.random.key(0)))
        return Coordinates(self.model, self.data, reference_at(self.model, self.data, jnp.asarray(reference)))

    def sample_prior(self, key: Array, n: int) -> Array:
        """Draws of ``z`` from the prior, shape (n, dim)."""
        return _sample_prior(self.model, key, n)

    def unflatten(self, z: Array) -> dict[str, Any]:
        """Each field's parameters in their natural shape, each unknown and noise in its constrained space."""
        return self.model.parameters.unflatten(jnp.asarray(z))

    def evaluate(self, z: Any, quantity: Quantity, at: Mapping[str, Any] | None = None) -> np.ndarray:
        """A field, derivative or equation at points, for draws of ``z`` from any source.

        ``z`` has shape (dim,) or (n, dim), the values ``(*points)`` or ``(n, *points)``; ``quantity`` and ``at`` are as
        in `Result.predict`. It is for inspecting draws and compiles internally; do not call it inside ``jax.jit``.

        Example:
            >>> import bpinn as bp, jax
            >>> posterior = bp.Posterior(bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=(8,))}))
            >>> z = posterior.sample_prior(jax.random.key(0), 5)
            >>> posterior.evaluate(z, "u_x", {"x": [0.0, 0.5, 1.0]}).shape
            (5, 3)
        """
        where = f"evaluate {label(quantity)!r}"
        rows = np.asarray(z)
        if rows.ndim == 0 or rows.shape[-1] != self.dim or rows.size == 0:
            raise InputError(f"{where}: z has shape {rows.shape}; expected ({self.dim},) or (n, {self.dim})")
        found = QuantityAt.of(self.problem, quantity, at, where)
        flat = rows.reshape(-1, self.dim)
        values = np.concatenate([found.evaluate(flat, part) for part in found.slices()], axis=1)
        return values.reshape(*rows.shape[:-1], *found.shape)
