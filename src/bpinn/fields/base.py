"""What every surrogate of a field offers to the posterior."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bpinn.errors import InputError
from bpinn.fields.activations import SOFTPLUS, MultiIndex, closure, compose
from bpinn.registry import Registry

Bounds = tuple[tuple[float, float], ...]
Request = tuple[MultiIndex, ...]


Streams = dict[MultiIndex, Array]  # derivatives by how often in each input: (0, 2) is the second in the second input


class Wanted(NamedTuple):
    """What to evaluate: the derivatives and the number of points of each group.

    ``scales`` are the values of the field's inferred scales by name; ``native`` allows the compiled kernel.
    """

    requests: tuple[Request, ...]
    sizes: tuple[int, ...]
    bounds: Bounds
    native: bool
    scales: Mapping[str, Array]


class Features(NamedTuple):
    """The field before its link as a linear function: ``columns @ theta[linear] + offset``, for each group.

    ``columns`` has arrays (n, parameters) for each derivative, ``offset`` arrays (n,).
    """

    columns: list[Streams]
    offset: list[Streams]


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """The prior of one unknown function, and how to evaluate it with its derivatives.

    Parameters of a field are one vector ``theta`` with independent zero-mean normal priors. A subclass is a frozen
    dataclass, hashable, and implements `size`, `prior_sd`, `unflatten`, `prepare` and `raw`. If the field is linear in
    some of its parameters it also says which (`linear`) and with which factors (`features`). Scales that are inferred,
    such as a length, are named with their priors (`scale_priors`); ``theta`` stays standardised, and `raw` applies
    them.

    ``inputs`` names the coordinates the field depends on (all of the domain's if not given);
    ``positive=True`` passes it through a softplus.
    """

    registry: ClassVar[Registry] = Registry("field")
    inputs: tuple[str, ...] | None = None
    positive: bool = False

    def __post_init__(self) -> None:
        self._normalise_inputs()

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
    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        """The field before its link: for each group, each wanted derivative as an (n,) array."""

    # --- what a field may have ---

    def scale_priors(self, bounds: Bounds) -> Mapping[str, dist.Distribution]:
        """Priors of scales that are inferred along with the field, by name; results call them ``NAME_FIELD``."""
        return {}

    def linear(self, bounds: Bounds) -> slice:
        """The part of ``theta`` in which the field before its link is linear; empty if there is none."""
        return slice(0, 0)

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        """The factors of the linear parameters, which do not depend on them, and what is added."""
        raise NotImplementedError(f"{type(self).__name__} has no linear parameters")

    @property
    def width(self) -> int:
        """About how many numbers are held for each point when it is evaluated, so that memory can be planned."""
        return 1

    def describe(self) -> str:
        """In words, for reports."""
        return type(self).__name__

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
        scales: Mapping[str, Array] | None = None,
    ) -> list[Streams]:
        """For each group of points, each wanted derivative as an (n,) array.

        ``native`` allows the compiled kernel, if there is one; it has a gradient by ``theta`` and no other derivatives.
        """
        raw = self.raw(theta, prepared, Wanted(self.needed(requests), tuple(sizes), bounds, native, scales or {}))
        return self.linked(raw, requests, bounds)

    def linked(self, raw: Sequence[Streams], requests: Sequence[Request], bounds: Bounds) -> list[Streams]:
        """The field from its streams before the link, for each group."""
        if not self.positive:
            return list(raw)
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
