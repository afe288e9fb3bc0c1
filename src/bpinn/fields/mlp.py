"""The paper's Bayesian neural network: a fully connected network with a normal prior."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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
from bpinn.registry import register


@register("mlp")
@dataclass(frozen=True)
class MLP(Field):
    """A fully connected network with independent normal priors on weights and biases.

    Arguments:
        hidden: width of each hidden layer; ``()`` makes the field linear in its inputs.
        activation: "tanh", "sin", "swish", "gelu", or an elementwise function written with ``jax.numpy``.
        weight_sd, bias_sd: prior standard deviations, one number or one per layer
            (``len(hidden) + 1`` of them).
        scale_inputs: map the domain to [-1, 1] before the first layer. Off by default,
            because it changes the prior.
        inputs, positive: see `Field`.

    Example:
        >>> import bpinn as bp
        >>> bp.MLP(hidden=(20, 20), weight_sd=(1.0, 0.5, 0.5)).size(((-1.0, 1.0),))
        481
    """

    hidden: tuple[int, ...] = (50, 50)
    activation: str | Callable[[Array], Array] = "tanh"
    weight_sd: float | tuple[float, ...] = 1.0
    bias_sd: float | tuple[float, ...] = 1.0
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
        for name in ("weight_sd", "bias_sd"):
            object.__setattr__(self, name, self._per_layer(name))
        self._normalise_inputs()

    def _per_layer(self, name: str) -> tuple[float, ...]:
        value, layers = getattr(self, name), len(self.hidden) + 1
        try:
            sds = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise InputError(f"MLP: {name} must be a number, or one per layer, got {value!r}") from None
        if sds.ndim == 0:
            sds = np.full(layers, sds)
        if sds.shape != (layers,):
            raise InputError(
                f"MLP: {len(self.hidden)} hidden layers have {layers} weight matrices, but {name} has "
                f"{sds.size} numbers; give one number, or {layers}"
            )
        if not np.all(np.isfinite(sds)) or np.any(sds <= 0):
            raise InputError(f"MLP: {name} must be positive and finite, got {value!r}")
        return tuple(float(sd) for sd in sds)

    def _shapes(self, bounds: Bounds) -> list[tuple[int, int]]:
        widths = [len(bounds), *self.hidden, 1]
        return list(itertools.pairwise(widths))

    def size(self, bounds: Bounds) -> int:
        return sum(m * n + n for m, n in self._shapes(bounds))

    def prior_sd(self, bounds: Bounds) -> np.ndarray:
        layers = zip(self._shapes(bounds), self.weight_sd, self.bias_sd, strict=True)  # type: ignore[arg-type]
        return np.concatenate([np.repeat((w, b), (m * n, n)) for (m, n), w, b in layers])

    def unflatten(self, theta: Array, bounds: Bounds) -> list[tuple[Array, Array]]:
        """[(weights (in, out), biases (out,)), ...], first layer first."""
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
        return jnp.asarray(stacked, dtype=float)

    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        plan, bounds = plan_of(wanted.requests, wanted.sizes), wanted.bounds
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
        values, composed = last_hidden(self.activation, self.unflatten(theta, bounds), prepared, plan)
        parts = jax.lax.split(values, [group.count for group in plan.groups])
        zero = (0,) * len(bounds)
        streams = []
        for part, inner in zip(parts, composed, strict=True):
            one, nothing = jnp.ones((len(part), 1), part.dtype), jnp.zeros((len(part), 1), part.dtype)
            rows = {index: jnp.broadcast_to(row, part.shape) for index, row in inner.items()}
            streams.append({zero: jnp.append(part, one, 1)} | {i: jnp.append(r, nothing, 1) for i, r in rows.items()})
        columns = self._unscaled(plan.share_out(streams, values.dtype, values.shape[1] + 1), bounds)
        offset = [{index: jnp.zeros(len(c), c.dtype) for index, c in group.items()} for group in columns]
        return Features(columns, offset)

    def stacked(self, theta: Array, prepared: Any, wanted: Wanted) -> Array:
        plan, bounds = plan_of(wanted.requests, wanted.sizes), wanted.bounds
        if wanted.native and is_native(self.activation, self.hidden, plan, len(bounds)):
            rows = features_natively(self.activation, self.hidden, theta, prepared, plan)
        else:
            rows = stacked_features(self.activation, self.unflatten(theta, bounds), prepared, plan)
        if not self.scale_inputs:
            return rows
        factors = [np.full(wanted.sizes[i], _factor(index, bounds)) for i, index in plan.blocks]
        return rows * jnp.asarray(np.concatenate(factors), rows.dtype)

    def layout(self, wanted: Wanted) -> tuple[tuple[int, MultiIndex], ...]:
        return plan_of(wanted.requests, wanted.sizes).blocks

    def offset(self, theta: Array, prepared: Any, wanted: Wanted) -> None:
        return None

    @property
    def width(self) -> int:
        return max(self.hidden, default=1)

    def describe(self) -> str:
        layers = " and ".join(str(width) for width in self.hidden)
        hidden = f"hidden layer{'s' if len(self.hidden) > 1 else ''} of {layers}" if layers else "no hidden layer"
        activation = self.activation if isinstance(self.activation, str) else "custom activation"
        return f"Bayesian neural network, {hidden}, {activation}"


def _factor(index: MultiIndex, bounds: Bounds) -> float:
    """A derivative in the inputs over the same derivative in inputs scaled to [-1, 1]."""
    return float(np.prod(np.power([2.0 / (high - low) for low, high in bounds], index)))
