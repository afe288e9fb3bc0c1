"""What every surrogate of a field offers to the posterior."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.errors import InputError
from bpinn.fields.activations import SOFTPLUS, MultiIndex, closure, compose
from bpinn.registry import Registry

Bounds = tuple[tuple[float, float], ...]
Request = tuple[MultiIndex, ...]


class Wanted(NamedTuple):
    """The derivatives and the number of points of each group; ``native`` allows the compiled kernel."""

    requests: tuple[Request, ...]
    sizes: tuple[int, ...]
    bounds: Bounds
    native: bool


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """The prior of one unknown function, and how to evaluate it with its derivatives.

    Parameters of a field are one vector ``theta`` with independent zero-mean normal priors.
    ``inputs`` names the coordinates the field depends on (all of the domain's if not given);
    ``positive=True`` passes it through a softplus.
    """

    registry: ClassVar[Registry] = Registry("field")
    inputs: tuple[str, ...] | None = None
    positive: bool = False

    def _normalise_inputs(self) -> None:
        """``inputs`` as a tuple, also when a single name was given."""
        kind = type(self).__name__
        if self.inputs is not None:
            names = (self.inputs,) if isinstance(self.inputs, str) else self.inputs
            if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
                raise InputError(f"{kind}: inputs must be names of coordinates, as ('x', 't'), got {self.inputs!r}")
            object.__setattr__(self, "inputs", tuple(names))
        if not isinstance(self.positive, bool):
            raise InputError(f"{kind}: positive must be True or False, got {self.positive!r}")

    def check(self, bounds: Bounds) -> None:  # noqa: B027
        """Raise `InputError` if the field cannot live on these bounds."""

    @abstractmethod
    def size(self, bounds: Bounds) -> int:
        """Number of parameters, for a field whose inputs have these bounds."""

    @abstractmethod
    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        """Standard deviation of each parameter under the prior, shape (size,)."""

    @abstractmethod
    def unflatten(self, theta: Array, bounds: Bounds) -> Any:
        """The parameters in the shape in which a person thinks of them."""

    @abstractmethod
    def prepare(self, points: Sequence[np.ndarray], requests: Sequence[Request], bounds: Bounds) -> Any:
        """Arrays needed at these points, computed once.

        ``points`` has one (n, inputs) array for each group, ``requests`` the derivatives wanted there.
        """

    @abstractmethod
    def _raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[dict[MultiIndex, Array]]:
        """The field before its link: for each group, each wanted derivative as an (n,) array."""

    def needed(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """What must be evaluated before the link in order to give the requests after it."""
        return tuple(closure(r) if self.positive else tuple(r) for r in requests)

    def evaluate(
        self,
        theta: Array,
        prepared: Any,
        requests: Sequence[Request],
        sizes: Sequence[int],
        bounds: Bounds,
        native: bool = False,
    ) -> list[dict[MultiIndex, Array]]:
        """For each group of points, each wanted derivative as an (n,) array.

        ``native`` allows the compiled kernel, if there is one; it has a gradient by ``theta`` and no other derivatives.
        """
        raw = self._raw(theta, prepared, Wanted(self.needed(requests), tuple(sizes), bounds, native))
        if not self.positive:
            return raw
        linked = []
        zero = (0,) * len(bounds)
        for streams, wanted in zip(raw, requests, strict=True):
            h = streams[zero]
            derivatives = [index for index in wanted if any(index)]
            slopes = SOFTPLUS.slopes(h, max(map(sum, wanted)))
            outer = compose(slopes, streams, derivatives)
            linked.append({index: SOFTPLUS.value(h) if index == zero else outer[index] for index in wanted})
        return linked

    def log_prior(self, theta: Array, bounds: Bounds) -> Array:
        """Log density of the parameters under the prior, with its constant."""
        sd = self.prior_sd(bounds)
        constant = -float(np.sum(np.log(sd))) - 0.5 * len(sd) * float(np.log(2 * np.pi))
        if np.all(sd == sd[0]):  # one multiplication less in the innermost loop
            return constant - (0.5 / float(sd[0]) ** 2) * jnp.vdot(theta, theta)
        scaled = theta / jnp.asarray(sd, theta.dtype)
        return constant - 0.5 * jnp.vdot(scaled, scaled)

    def sample_prior(self, key: Array, bounds: Bounds) -> Array:
        """One draw of the parameters, shape (size,)."""
        sd = jnp.asarray(self.prior_sd(bounds), dtype=float)
        return sd * jax.random.normal(key, sd.shape, sd.dtype)

    def dropout(self, key: Array, rate: float, bounds: Bounds) -> Array | None:
        """Factors of the parameters, shape (size,), with which hidden neurons drop out at random; None without any."""
        return None
