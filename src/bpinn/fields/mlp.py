"""The paper's Bayesian neural network: a fully connected network with a normal prior."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bpinn.arrays import on_device
from bpinn.errors import InputError
from bpinn.fields.activations import BUILT_IN, MultiIndex
from bpinn.fields.base import Bounds, Features, Field, Request, Streams, Wanted
from bpinn.fields.propagation import (
    features_natively,
    is_native,
    last_hidden,
    plan_of,
    propagate,
    propagate_natively,
    stacked_features,
)
from bpinn.fields.scales import Inferred, far_above, scale_of
from bpinn.registry import register

SDS = ("weight_sd", "bias_sd")


@register("mlp")
@dataclass(frozen=True)
class MLP(Field):
    """A fully connected network with independent normal priors on weights and biases.

    Arguments:
        hidden: width of each hidden layer; ``()`` makes the field linear in its inputs.
        activation: "tanh", "sin", "swish", "gelu", or an elementwise function written with ``jax.numpy``.
        weight_sd, bias_sd: prior standard deviations, one number or one per layer
            (``len(hidden) + 1`` of them). A positive prior in place of a number makes it inferred: one scalar prior is
            that of a standard deviation that all layers share, ``weight_sd_u`` in results if the field is ``u``; a
            vector prior has one for each layer; in a tuple, layer 2 has ``weight_sd_layer2_u``.
        scale_inputs: map the domain to [-1, 1] before the first layer. Off by default,
            because it changes the prior.
        inputs, positive: see `Field`.

    Example:
        >>> import bpinn as bp, numpyro.distributions as dist
        >>> bp.MLP(hidden=(20, 20), weight_sd=(1.0, 0.5, 0.5)).size(((-1.0, 1.0),))
        481
        >>> learning = bp.MLP(hidden=(20,), weight_sd=(2.0, dist.HalfNormal(1.0)), bias_sd=dist.HalfNormal(1.0))
        >>> sorted(learning.scale_priors(((-1.0, 1.0),)))
        ['bias_sd', 'weight_sd_layer2']
    """

    hidden: tuple[int, ...] = (50, 50)
    activation: str | Callable[[Array], Array] = "tanh"
    weight_sd: Any = 1.0
    bias_sd: Any = 1.0
    scale_inputs: bool = False

    def __post_init__(self) -> None:
        hidden = (self.hidden,) if isinstance(self.hidden, int | np.integer) else self.hidden
        if not isinstance(hidden, tuple | list | np.ndarray) or np.ndim(np.asarray(hidden, object)) != 1:
            raise InputError(f"MLP: hidden must be the widths of layers, such as (50, 50), got {self.hidden!r}")
        if not isinstance(self.scale_inputs, bool):
            raise InputError(f"MLP: scale_inputs must be True or False, got {self.scale_inputs!r}")
        for width in hidden:
            if not isinstance(width, int | np.integer) or isinstance(width, bool) or width < 1:
                raise InputError(f"MLP: hidden widths must be positive whole numbers, got {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(int(width) for width in hidden))
        if isinstance(self.activation, str) and self.activation not in BUILT_IN:
            raise InputError(
                f"MLP: activation {self.activation!r} is not known; use one of "
                f"{', '.join(BUILT_IN)} or an elementwise jax.numpy function"
            )
        if not isinstance(self.activation, str) and not callable(self.activation):
            raise InputError(f"MLP: activation must be a name or a function, got {self.activation!r}")
        for name in SDS:
            object.__setattr__(self, name, _checked(getattr(self, name), name, len(self.hidden) + 1))
        self._normalise_inputs()

    def _shapes(self, bounds: Bounds) -> list[tuple[int, int]]:
        widths = [len(bounds), *self.hidden, 1]
        return list(itertools.pairwise(widths))

    def size(self, bounds: Bounds) -> int:
        return sum(m * n + n for m, n in self._shapes(bounds))

    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        """One for parameters whose standard deviation is inferred: `raw` multiplies them by it."""
        sds = []
        for name in SDS:
            given = getattr(self, name)
            each = [given] * (len(self.hidden) + 1) if isinstance(given, Inferred) else given
            sds.append([1.0 if isinstance(sd, Inferred) else sd for sd in each])
        layers = zip(self._shapes(bounds), *sds, strict=True)
        return np.concatenate([np.repeat((w, b), (m * n, n)) for (m, n), w, b in layers])

    def scale_priors(self, bounds: Bounds) -> Mapping[str, dist.Distribution]:
        found = {}
        for name in SDS:
            given = getattr(self, name)
            if isinstance(given, Inferred):
                found[name] = given.prior
            else:
                found |= {_called(name, i): sd.prior for i, sd in enumerate(given) if isinstance(sd, Inferred)}
        return found

    def _factors(self, scales: Mapping[str, Array]) -> list[tuple[Any, Any]]:
        """What the weights and the biases of each layer are multiplied by: an inferred standard deviation, or one."""
        found = []
        for name in SDS:
            given = getattr(self, name)
            if isinstance(given, Inferred):
                found.append(list(jnp.broadcast_to(scales[name], (len(self.hidden) + 1,))))
            else:
                found.append(
                    [scales[_called(name, i)] if isinstance(sd, Inferred) else 1.0 for i, sd in enumerate(given)]
                )
        return list(zip(*found, strict=True))

    def _scaled(self, theta: Array, wanted: Wanted) -> Array:
        """The weights and biases themselves: ``theta`` has those with an inferred standard deviation in units of it."""
        if not wanted.scales:
            return theta
        layers = zip(self.unflatten(theta, wanted.bounds), self._factors(wanted.scales), strict=True)
        return jnp.concatenate([part for (w, b), (of_w, of_b) in layers for part in (of_w * jnp.ravel(w), of_b * b)])

    def _output_scales(self, wanted: Wanted) -> Array:
        """What the parameters of the output layer are multiplied by."""
        weight, bias = self._factors(wanted.scales)[-1]
        inputs = self.hidden[-1] if self.hidden else len(wanted.bounds)
        return jnp.append(jnp.full(inputs, weight, dtype=float), bias)

    def unflatten(self, theta: Array, bounds: Bounds) -> list[tuple[Array, Array]]:
        """[(weights (in, out), biases (out,)), ...], first layer first; those with an inferred sd in units of it."""
        shapes = self._shapes(bounds)
        # One split rather than many slices: its transpose is one concatenation, not a sum of padded arrays.
        parts = jax.lax.split(theta, [size for m, n in shapes for size in (m * n, n)])
        weights, biases = parts[::2], parts[1::2]
        return [(w.reshape(shape), b) for w, b, shape in zip(weights, biases, shapes, strict=True)]

    def dropout(self, key: Array, rate: float, bounds: Bounds) -> Array | None:
        """A dropped neuron zeroes its outgoing weights; those of the others are scaled up to compensate."""
        if not self.hidden:
            return None
        factors = []
        for depth, (m, n) in enumerate(self._shapes(bounds)):
            weights = jnp.ones((m, n), float)
            if depth:
                stays = jax.random.bernoulli(jax.random.fold_in(key, depth), 1.0 - rate, (m, 1))
                weights = weights * jnp.where(stays, 1.0 / (1.0 - rate), 0.0)
            factors += [jnp.ravel(weights), jnp.ones(n, float)]
        return jnp.concatenate(factors)

    def prepare(self, points: Sequence[np.ndarray], requests: Sequence[Request], bounds: Bounds) -> Any:
        plan = plan_of(self.needed(requests), tuple(len(p) for p in points))
        stacked = np.concatenate([points[i] for i in plan.order]) if points else np.zeros((0, len(bounds)))
        if self.scale_inputs:
            low, high = np.array(bounds).T
            stacked = 2.0 * (stacked - low) / (high - low) - 1.0
        return on_device(stacked)

    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        plan, bounds = plan_of(wanted.requests, wanted.sizes), wanted.bounds
        theta = self._scaled(theta, wanted)
        if wanted.native and is_native(self.activation, self.hidden, plan, len(bounds)):
            results = propagate_natively(self.activation, self.hidden, theta, prepared, plan)
        else:
            results = propagate(self.activation, self.unflatten(theta, bounds), prepared, plan)
        return self._unscaled(results, bounds)

    def _unscaled(self, results: list[Streams], bounds: Bounds) -> list[Streams]:
        """Convert derivatives in the scaled inputs to derivatives in the inputs."""
        if not self.scale_inputs:
            return results
        return [{index: stream * _factor(index, bounds) for index, stream in group.items()} for group in results]

    def linear(self, bounds: Bounds) -> slice:
        """The weights and the bias of the output layer."""
        size, (m, n) = self.size(bounds), self._shapes(bounds)[-1]
        return slice(size - m * n - n, size)

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        """The last hidden layer with its derivatives, and a column for the bias."""
        plan, bounds = plan_of(wanted.requests, wanted.sizes), wanted.bounds
        layers = self.unflatten(self._scaled(theta, wanted), bounds)
        values, composed = last_hidden(self.activation, layers, prepared, plan)
        parts = jax.lax.split(values, [group.count for group in plan.groups])
        zero = (0,) * len(bounds)
        streams = []
        for part, inner in zip(parts, composed, strict=True):
            one, nothing = jnp.ones((len(part), 1), part.dtype), jnp.zeros((len(part), 1), part.dtype)
            rows = {index: jnp.broadcast_to(row, part.shape) for index, row in inner.items()}
            streams.append({zero: jnp.append(part, one, 1)} | {i: jnp.append(r, nothing, 1) for i, r in rows.items()})
        columns = self._unscaled(plan.share_out(streams, values.dtype, values.shape[1] + 1), bounds)
        if wanted.scales:
            scales = self._output_scales(wanted)
            columns = [{index: rows * scales for index, rows in group.items()} for group in columns]
        offset = [{index: jnp.zeros(len(c), c.dtype) for index, c in group.items()} for group in columns]
        return Features(columns, offset)

    def stacked(self, theta: Array, prepared: Any, wanted: Wanted) -> Array:
        plan, bounds = plan_of(wanted.requests, wanted.sizes), wanted.bounds
        theta = self._scaled(theta, wanted)
        if wanted.native and is_native(self.activation, self.hidden, plan, len(bounds)):
            rows = features_natively(self.activation, self.hidden, theta, prepared, plan)
        else:
            rows = stacked_features(self.activation, self.unflatten(theta, bounds), prepared, plan)
        if wanted.scales:
            rows = rows * self._output_scales(wanted)[:, None]
        if not self.scale_inputs:
            return rows
        factors = [np.full(wanted.sizes[i], _factor(index, bounds)) for i, index in plan.blocks]
        return rows * jnp.asarray(np.concatenate(factors), rows.dtype)

    def layout(self, wanted: Wanted) -> tuple[tuple[int, MultiIndex], ...]:
        return plan_of(wanted.requests, wanted.sizes).blocks

    def offset(self, theta: Array, prepared: Any, wanted: Wanted) -> None:
        return None

    def criticism(self, scales: Mapping[str, np.ndarray], bounds: Bounds) -> list[tuple[str, str]]:
        return far_above(scales, self.scale_priors(bounds))

    @property
    def width(self) -> int:
        return max(self.hidden, default=1)

    def describe(self) -> str:
        layers = " and ".join(str(width) for width in self.hidden)
        hidden = f"hidden layer{'s' if len(self.hidden) > 1 else ''} of {layers}" if layers else "no hidden layer"
        activation = self.activation if isinstance(self.activation, str) else "custom activation"
        inferred = "".join(f", inferred {name}" for name in self.scale_priors(()))
        return f"Bayesian neural network, {hidden}, {activation}{inferred}"


def _checked(value: Any, name: str, layers: int) -> Inferred | tuple[Any, ...]:
    """One prior for all layers, or for each layer a number or a prior."""
    where = f"MLP: {name}"
    if isinstance(value, dist.Distribution | Inferred):
        inferred = scale_of(value, where)
        if inferred.prior.shape() not in ((), (layers,)):
            raise InputError(
                f"{where} has a prior of shape {inferred.prior.shape()}; give one scalar prior for all layers, or one "
                f"of shape ({layers},) for {layers} weight matrices"
            )
        return inferred
    several = isinstance(value, list | tuple)
    if several and any(isinstance(one, dist.Distribution | Inferred) for one in value):
        if len(value) != layers:
            raise InputError(_wrong_number(name, layers, len(value)))
        parts = tuple(scale_of(one, f"{where} of layer {i}") for i, one in enumerate(value, 1))
        vector = [part.prior.shape() for part in parts if isinstance(part, Inferred) and part.prior.shape()]
        if vector or None in parts:
            got = f"a prior of shape {vector[0]}" if vector else "None"
            raise InputError(f"{where}: each layer needs a number or a scalar prior, got {got}")
        return parts
    try:
        sds = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        hint = f"; call it, such as {value.__name__}(...)" if isinstance(value, type) else ""
        raise InputError(
            f"{where} must be a number, or one per layer, or a prior such as dist.HalfNormal(1.0), got {value!r}{hint}"
        ) from None
    if sds.ndim == 0:
        sds = np.full(layers, sds)
    if sds.shape != (layers,):
        raise InputError(_wrong_number(name, layers, sds.size))
    if not np.all(np.isfinite(sds)) or np.any(sds <= 0):
        raise InputError(f"{where} must be positive and finite, got {value!r}")
    return tuple(float(sd) for sd in sds)


def _wrong_number(name: str, layers: int, given: int) -> str:
    return (
        f"MLP: {layers - 1} hidden layers have {layers} weight matrices, but {name} has {given} numbers; give one "
        f"number, or {layers}"
    )


def _called(name: str, layer: int) -> str:
    """The name of the inferred standard deviation of one layer."""
    return f"{name}_layer{layer + 1}"


def _factor(index: MultiIndex, bounds: Bounds) -> float:
    """A derivative in the inputs over the same derivative in inputs scaled to [-1, 1]."""
    return float(np.prod(np.power([2.0 / (high - low) for low, high in bounds], index)))
