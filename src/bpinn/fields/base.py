"""The interface of surrogates: what the posterior needs from a field."""

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


Streams = dict[MultiIndex, Array]  # derivatives by multi-index: (0, 2) is the second in the second input


class Wanted(NamedTuple):
    """An evaluation request: the derivatives and the number of points of each group.

    ``scales`` are the values of the field's inferred scales by name; ``native`` allows the compiled kernel.
    """

    requests: tuple[Request, ...]
    sizes: tuple[int, ...]
    bounds: Bounds
    native: bool
    scales: Mapping[str, Array]


class Rows(NamedTuple):
    """In place of points: what multiplies the coefficients of a fixed basis, shape (n, size)."""

    matrix: np.ndarray


class Features(NamedTuple):
    """The field before its link as an affine function: ``columns @ theta[linear] + offset``, for each group.

    For each derivative, ``columns`` has an array of shape (n, parameters) and ``offset`` one of shape (n,).
    """

    columns: list[Streams]
    offset: list[Streams]


@dataclass(frozen=True, kw_only=True)
class Field(ABC):
    """The prior of one unknown function, and how to evaluate it with its derivatives.

    The parameters of a field are one vector ``theta`` with independent zero-mean normal priors. A subclass is a frozen,
    hashable dataclass that implements `size`, `prior_sd`, `unflatten`, `prepare` and `raw`. If the field is linear in
    some of its parameters, `linear` returns which ones and `features` their coefficients. Inferred scales,
    such as a length, are declared with their priors in `scale_priors`; ``theta`` stays standardised, and `raw` applies
    them.

    ``inputs`` are the coordinates the field depends on (by default all of the domain's);
    ``positive=True`` passes the field through a softplus, ``unit * softplus(field / unit)`` with the `link_unit`.

    Example:
        >>> import bpinn as bp
        >>> field = bp.MLP(hidden=(5,))
        >>> isinstance(field, bp.Field), field.size(((0.0, 1.0),))
        (True, 16)
    """

    registry: ClassVar[Registry] = Registry("field")
    inputs: tuple[str, ...] | None = None
    positive: bool = False

    def __post_init__(self) -> None:
        self._normalise_inputs()

    def _normalise_inputs(self) -> None:
        """Convert ``inputs`` to a tuple; a single name is allowed."""
        kind = type(self).__name__
        if self.inputs is not None:
            names = (self.inputs,) if isinstance(self.inputs, str) else self.inputs
            if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
                raise InputError(
                    f"{kind}: inputs must be names of coordinates, such as ('x', 't'), got {self.inputs!r}"
                )
            object.__setattr__(self, "inputs", tuple(names))
        if not isinstance(self.positive, bool):
            raise InputError(f"{kind}: positive must be True or False, got {self.positive!r}")

    def check(self, bounds: Bounds) -> None:  # noqa: B027
        """Raise `InputError` if the field cannot be defined on these bounds."""

    def check_derivatives(self, requests: Sequence[Request]) -> None:  # noqa: B027
        """Raise `InputError` if the field does not have one of these derivatives."""

    def completed(self, values: np.ndarray, bounds: Bounds) -> "Field":
        """The field with everything that is not given chosen from the problem; by default it is complete.

        ``values`` are all readings of the field itself. Called once, when a problem is made.
        """
        return self

    @abstractmethod
    def size(self, bounds: Bounds) -> int:
        """Number of parameters, for a field whose inputs have these bounds."""

    @abstractmethod
    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        """Standard deviation of each parameter under the prior, shape (size,)."""

    @abstractmethod
    def unflatten(self, theta: Array, bounds: Bounds) -> Any:
        """The parameters in their natural shape, such as weight matrices."""

    @abstractmethod
    def prepare(self, points: Sequence[np.ndarray], requests: Sequence[Request], bounds: Bounds) -> Any:
        """Arrays needed at these points, computed once.

        ``points`` has one (n, inputs) array per group, ``requests`` the derivatives to evaluate there.
        """

    @abstractmethod
    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        """The field before its link: for each group, each requested derivative as an (n,) array."""

    # --- optional ---

    def scale_priors(self, bounds: Bounds) -> Mapping[str, dist.Distribution]:
        """Priors of scales inferred together with the field, by name; they appear in results as ``NAME_FIELD``."""
        return {}

    def linear(self, bounds: Bounds) -> slice:
        """The part of ``theta`` in which the field before its link is linear; empty by default."""
        return slice(0, 0)

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        """The coefficients of the linear parameters, which do not depend on them, and the offset."""
        raise NotImplementedError(f"{type(self).__name__} has no linear parameters")

    def stacked(self, theta: Array, prepared: Any, wanted: Wanted) -> Array:
        """The coefficients of `features` in one array, shape (linear parameters, columns).

        A column is one derivative at one point; `layout` gives their order.
        """
        columns = self.features(theta, prepared, wanted).columns
        return jnp.concatenate([columns[i][index] for i, index in self.layout(wanted)]).T

    def layout(self, wanted: Wanted) -> tuple[tuple[int, MultiIndex], ...]:
        """The order of the columns of `stacked`: for each block of columns the request's position and the derivative.

        A block of request ``i`` has ``wanted.sizes[i]`` columns, one for each point.
        """
        return tuple((i, index) for i, request in enumerate(wanted.requests) for index in request)

    def offset(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams] | None:
        """The offset of `features`; None if it is zero."""
        return self.features(theta, prepared, wanted).offset

    def fixed_basis(self, points: np.ndarray, index: MultiIndex, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
        """A derivative before the link at points: what multiplies the coefficients, (n, size), and what is added, (n,).

        For fields with a basis that nothing inferred changes, apart from the sizes of the coefficients. In double
        precision. `prepare` of these fields takes `Rows` in place of a group's points.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fixed basis")

    @property
    def has_fixed_basis(self) -> bool:
        return type(self).fixed_basis is not Field.fixed_basis

    def criticism(self, scales: Mapping[str, np.ndarray], bounds: Bounds) -> list[tuple[str, str]]:
        """What speaks against the field, given posterior draws of its scales by name: reasons, each with advice."""
        return []

    @property
    def link_unit(self) -> float:
        """The size of values of a positive field at which its link bends."""
        return 1.0

    @property
    def width(self) -> int:
        """Approximate number of values stored per point during evaluation, for planning memory."""
        return 1

    def describe(self) -> str:
        """A short description for reports."""
        return type(self).__name__

    def needed(self, requests: Sequence[Request]) -> tuple[Request, ...]:
        """The derivatives needed before the link to compute the requested ones after it."""
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
        """For each group of points, each requested derivative as an (n,) array.

        ``native`` allows the compiled kernel, if available; it supports gradients in ``theta``, no other derivatives.
        """
        raw = self.raw(theta, prepared, Wanted(self.needed(requests), tuple(sizes), bounds, native, scales or {}))
        return self.linked(raw, requests, bounds)

    def linked(self, raw: Sequence[Streams], requests: Sequence[Request], bounds: Bounds) -> list[Streams]:
        """The field from its streams before the link, for each group."""
        if not self.positive:
            return list(raw)
        linked = []
        zero, unit = (0,) * len(bounds), self.link_unit
        for streams, wanted in zip(raw, requests, strict=True):
            h = streams[zero] / unit
            derivatives = [index for index in wanted if any(index)]
            slopes = [slope / unit**k for k, slope in enumerate(SOFTPLUS.slopes(h, max(map(sum, wanted))))]
            outer = compose(slopes, streams, derivatives)
            linked.append({index: unit * SOFTPLUS.value(h) if index == zero else outer[index] for index in wanted})
        return linked

    def log_prior(self, theta: Array, bounds: Bounds) -> Array:
        """Log density of the parameters under the prior, with its normalising constant."""
        sd = self.prior_sd(bounds)
        constant = -float(np.sum(np.log(sd))) - 0.5 * len(sd) * float(np.log(2 * np.pi))
        if np.all(sd == sd[0]):  # saves a multiplication in the innermost loop
            return constant - (0.5 / float(sd[0]) ** 2) * jnp.vdot(theta, theta)
        scaled = theta / jnp.asarray(sd, theta.dtype)
        return constant - 0.5 * jnp.vdot(scaled, scaled)

    def sample_prior(self, key: Array, bounds: Bounds) -> Array:
        """One draw of the parameters, shape (size,)."""
        sd = jnp.asarray(self.prior_sd(bounds), dtype=float)
        return sd * jax.random.normal(key, sd.shape, sd.dtype)

    def dropout(self, key: Array, rate: float, bounds: Bounds) -> Array | None:
        """Factors on the parameters, shape (size,), that drop hidden neurons at random; None if there are none."""
        return None
