"""The paper's Bayesian neural network: a fully connected network with a normal prior."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.errors import InputError
from bpinn.fields.activations import BUILT_IN, MultiIndex, activation_of, closure, compose
from bpinn.fields.base import Bounds, Features, Field, Request, Streams, Wanted
from bpinn.native import streams, usable
from bpinn.registry import register


@register("mlp")
@dataclass(frozen=True)
class MLP(Field):
    """A fully connected network with independent normal priors on weights and biases.

    Arguments:
        hidden: width of each hidden layer; ``()`` makes the field linear in its inputs.
        activation: "tanh", "sin", "swish", "gelu", or an elementwise function of ``jax.numpy``.
        weight_sd, bias_sd: prior standard deviations, one number or one for each layer
            (``len(hidden) + 1`` of them).
        scale_inputs: map the domain to [-1, 1] before the first layer. Off unless asked for,
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
            raise InputError(f"MLP: hidden must be widths of layers, such as (50, 50), got {self.hidden!r}")
        if not isinstance(self.scale_inputs, bool):
            raise InputError(f"MLP: scale_inputs must be True or False, got {self.scale_inputs!r}")
        for width in hidden:
            if not isinstance(width, int | np.integer) or isinstance(width, bool) or width < 1:
                raise InputError(f"MLP: hidden widths must be positive whole numbers, got {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(int(width) for width in hidden))
        if isinstance(self.activation, str) and self.activation not in BUILT_IN:
            raise InputError(
                f"MLP: activation {self.activation!r} is not known; use one of "
                f"{', '.join(BUILT_IN)} or an elementwise function of jax.numpy"
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
            raise InputError(f"MLP: {name} must be a number or one for each layer, got {value!r}") from None
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
        """A neuron that drops out takes the weights that lead from it along; the others grow to make up for it."""
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
        plan = _plan(self.needed(requests), tuple(len(p) for p in points))
        stacked = np.concatenate([points[i] for i in plan.order]) if points else np.zeros((0, len(bounds)))
        if self.scale_inputs:
            low, high = np.array(bounds).T
            stacked = 2.0 * (stacked - low) / (high - low) - 1.0
        return jnp.asarray(stacked, dtype=float)

    def raw(self, theta: Array, prepared: Any, wanted: Wanted) -> list[Streams]:
        plan, bounds = _plan(wanted.requests, wanted.sizes), wanted.bounds
        if wanted.native and self._is_native(plan, len(bounds)):
            results = self._propagate_natively(theta, prepared, plan)
        else:
            results = self._propagate(self.unflatten(theta, bounds), prepared, plan)
        return self._unscaled(results, bounds)

    def _unscaled(self, results: list[Streams], bounds: Bounds) -> list[Streams]:
        """Derivatives by the inputs, where those by the scaled inputs are given."""
        if not self.scale_inputs:
            return results
        slope = [2.0 / (high - low) for low, high in bounds]
        return [
            {index: stream * float(np.prod(np.power(slope, index))) for index, stream in group.items()}
            for group in results
        ]

    def linear(self, bounds: Bounds) -> slice:
        """The weights and the bias of the output layer."""
        size, (m, n) = self.size(bounds), self._shapes(bounds)[-1]
        return slice(size - m * n - n, size)

    def features(self, theta: Array, prepared: Any, wanted: Wanted) -> Features:
        """The last hidden layer with its derivatives, and a column for the bias."""
        plan, bounds = _plan(wanted.requests, wanted.sizes), wanted.bounds
        values, composed = self._last_hidden(self.unflatten(theta, bounds), prepared, plan)
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

    @property
    def width(self) -> int:
        return max(self.hidden, default=1)

    def describe(self) -> str:
        layers = " and ".join(str(width) for width in self.hidden)
        hidden = f"hidden layer{'s' if len(self.hidden) > 1 else ''} of {layers}" if layers else "no hidden layer"
        activation = self.activation if isinstance(self.activation, str) else "own activation"
        return f"Bayesian neural network, {hidden}, {activation}"

    def _is_native(self, plan: "_Plan", inputs: int) -> bool:
        """Whether the compiled kernel has what is wanted: tanh, and derivatives up to the second."""
        if self.activation != "tanh" or any(group.order > 2 for group in plan.groups):
            return False
        seconds = max((len(group.carried) for group in plan.groups), default=0)
        return usable(inputs, self.hidden, seconds, len(plan.groups))

    def _propagate_natively(self, theta: Array, x: Array, plan: "_Plan") -> list[Streams]:
        inputs = x.shape[1]
        carried = [_by_order(group.carried) for group in plan.groups]
        numbers = [inputs, len(self.hidden), *self.hidden, len(plan.groups)]
        for group, (firsts, seconds) in zip(plan.groups, carried, strict=True):
            along = [index.index(1) for index in firsts]
            pairs = [along.index(c) for index in seconds for c, times in enumerate(index) for _ in range(times)]
            numbers += [group.count, len(firsts), *along, len(seconds), *pairs]
        sizes = [
            group.count for group, (f, s) in zip(plan.groups, carried, strict=True) for _ in range(1 + len(f) + len(s))
        ]
        parts = iter(jax.lax.split(streams(tuple(numbers), sum(sizes), theta, x), sizes))
        zero = (0,) * inputs
        return plan.share_out([{i: next(parts) for i in (zero, *f, *s)} for f, s in carried], theta.dtype)

    def _last_hidden(
        self, layers: Sequence[tuple[Array, Array]], x: Array, plan: "_Plan"
    ) -> tuple[Array, list[Streams]]:
        """What the output layer multiplies: values of all points, and for each group its derivatives as rows.

        All streams of all points go through each layer as the rows of one matrix.
        """
        inputs, heights = x.shape[1], [group.count for group in plan.groups]
        unit = {
            tuple(int(i == j) for j in range(inputs)): jnp.eye(inputs, dtype=x.dtype)[None, i] for i in range(inputs)
        }
        if len(layers) == 1:
            return x, [{i: unit[i] for i in group.derivatives if i in unit} for group in plan.groups]
        (weights, biases), *rest = layers
        # Outer products rather than a dot: with few inputs XLA fuses them with the activation.
        value = sum((x[:, i, None] * weights[i] for i in range(inputs)), start=biases)
        gradient = {tuple(int(i == j) for j in range(inputs)): weights[None, i] for i in range(inputs)}
        streams: list[Streams] = [gradient for _ in plan.groups]
        phi = activation_of(self.activation)
        for depth in range(len(rest)):
            last = depth == len(rest) - 1
            # The values of all points are one block of rows, so that the activation is one operation; splits rather
            # than slices, because a split's transpose is one concatenation and not a sum of padded arrays.
            y = phi.base(value)
            composed = [
                compose(phi.slopes(part, group.order), inner, group.derivatives if last else group.carried)
                for group, inner, part in zip(plan.groups, streams, jax.lax.split(y, heights), strict=True)
            ]
            if last:
                return phi.value(y), composed
            weights, biases = rest[depth]
            rows = [phi.value(y), *(row for outer in composed for row in outer.values())]
            stacked = jnp.concatenate(rows) if len(rows) > 1 else rows[0]
            value, *slabs = jax.lax.split(stacked @ weights, [row.shape[0] for row in rows])
            value = value + biases
            slab = iter(slabs)
            streams = [{index: next(slab) for index in outer} for outer in composed]
        raise AssertionError("unreachable: the last layer returns")

    def _propagate(self, layers: Sequence[tuple[Array, Array]], x: Array, plan: "_Plan") -> list[Streams]:
        inputs, heights = x.shape[1], [group.count for group in plan.groups]
        zero, (weights, biases) = (0,) * inputs, layers[-1]
        if len(layers) == 1:
            value = sum((x[:, i, None] * weights[i] for i in range(inputs)), start=biases)[:, 0]
            gradient = {tuple(int(i == j) for j in range(inputs)): weights[i] for i in range(inputs)}
            streams = [gradient for _ in plan.groups]
        else:
            values, composed = self._last_hidden(layers, x, plan)
            rows = [values, *(row for outer in composed for row in outer.values())]
            stacked = jnp.concatenate(rows) if len(rows) > 1 else rows[0]
            # A matrix-vector product, since the layer has a single output.
            value, *slabs = jax.lax.split(stacked @ weights[:, 0], [row.shape[0] for row in rows])
            value = value + biases[0]
            slab = iter(slabs)
            streams = [{index: next(slab) for index in outer} for outer in composed]
        parts = jax.lax.split(value, heights)
        return plan.share_out([{zero: v} | inner for v, inner in zip(parts, streams, strict=True)], value.dtype)


def _by_order(indices: tuple[MultiIndex, ...]) -> tuple[list[MultiIndex], list[MultiIndex]]:
    """First and second derivatives, each in the order of their coordinates."""
    ordered = sorted(indices, reverse=True)
    return [i for i in ordered if sum(i) == 1], [i for i in ordered if sum(i) == 2]


@dataclass(frozen=True)
class _Group:
    """Points that carry the same streams beside their values; ``members`` are the requests they belong to."""

    wanted: tuple[MultiIndex, ...]
    derivatives: tuple[MultiIndex, ...]
    carried: tuple[MultiIndex, ...]
    order: int
    members: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(size for _, size in self.members)


@dataclass(frozen=True)
class _Plan:
    """How the points of several requests are stacked: those that carry the same streams together."""

    requests: tuple[Request, ...]
    groups: tuple[_Group, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(i for group in self.groups for i, _ in group.members)

    def share_out(self, streams: Sequence[Streams], dtype: Any, width: int | None = None) -> list[Streams]:
        """Cut each group's streams into those of its members; a stream that is absent is zero.

        Streams are (n,), or with ``width`` (n, width).
        """
        results: list[Streams] = [{} for _ in self.requests]
        shape = () if width is None else (width,)
        for group, inner in zip(self.groups, streams, strict=True):
            sizes = [size for _, size in group.members]
            for index in group.wanted:
                stream = inner[index] if index in inner else jnp.zeros((), dtype)
                stream = jnp.broadcast_to(stream, (group.count, *shape))
                for (member, _), part in zip(group.members, jax.lax.split(stream, sizes), strict=True):
                    results[member][index] = part
        return results


@lru_cache(maxsize=256)
def _plan(requests: tuple[Request, ...], sizes: tuple[int, ...]) -> _Plan:
    by_streams: dict[tuple[MultiIndex, ...], list[int]] = {}
    for i, request in enumerate(requests):
        by_streams.setdefault(tuple(sorted(request)), []).append(i)
    groups = []
    for wanted, members in sorted(by_streams.items()):
        derivatives, carried = (tuple(i for i in indices if any(i)) for indices in (wanted, closure(wanted)))
        sized = tuple((i, sizes[i]) for i in members)
        groups.append(_Group(wanted, derivatives, carried, max(map(sum, wanted)), sized))
    return _Plan(requests, tuple(groups))
