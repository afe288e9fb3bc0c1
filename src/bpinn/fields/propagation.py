"""Taylor streams through a fully connected network: values and derivatives at all points, layer by layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.fields.activations import MultiIndex, activation_of, chain_rule, closure, compose
from bpinn.fields.base import Request, Streams
from bpinn.native import ACTIVATIONS, features, streams, usable

Activation = str | Callable[[Array], Array]
Layers = Sequence[tuple[Array, Array]]  # weights (in, out) and biases (out,)


def last_hidden(activation: Activation, layers: Layers, x: Array, plan: "Plan") -> tuple[Array, list[Streams]]:
    """The input of the output layer: values at all points, and for each group its derivatives, as rows.

    All streams at all points pass through each layer as the rows of one matrix.
    """
    inputs = x.shape[1]
    axes = [tuple(int(i == j) for j in range(inputs)) for i in range(inputs)]
    if len(layers) == 1:
        unit = dict(zip(axes, jnp.eye(inputs, dtype=x.dtype)[:, None], strict=True))
        return x, [{i: unit[i] for i in group.derivatives if i in unit} for group in plan.groups]
    phi = activation_of(activation)

    def activated(value: Array, inner: Sequence[Streams], last: bool) -> tuple[Array, list[Streams]]:
        # The values at all points are one block of rows, so that the activation is one operation. Splits instead
        # of slices, because a split's transpose is one concatenation, not a sum of padded arrays.
        y = phi.base(value)
        parts = jax.lax.split(y, [group.count for group in plan.groups])
        composed = [
            compose(phi.slopes(part, group.order), before, group.derivatives if last else group.carried)
            for group, before, part in zip(plan.groups, inner, parts, strict=True)
        ]
        return phi.value(y), composed

    (weights, biases), *rest = layers
    # Outer products instead of a dot: with few inputs XLA fuses them with the activation.
    value = sum((x[:, i, None] * weights[i] for i in range(inputs)), start=biases)
    gradient = {
        axis: weights[None, i] for i, axis in enumerate(axes)
    }  # one for all groups: so are its cotangents added
    carried: list[Streams] = [gradient for _ in plan.groups]
    for weights, biases in rest[:-1]:
        values, composed = activated(value, carried, False)
        product, carried = _through(weights, values, composed)
        value = product + biases
    return activated(value, carried, True)


def _through(weights: Array, values: Array, composed: Sequence[Streams]) -> tuple[Array, list[Streams]]:
    """Multiply values and all derivatives by the weights of a layer, in one product."""
    rows = [values, *(row for outer in composed for row in outer.values())]
    stacked = jnp.concatenate(rows) if len(rows) > 1 else rows[0]
    value, *slabs = jax.lax.split(stacked @ weights, [row.shape[0] for row in rows])
    slab = iter(slabs)
    return value, [{index: next(slab) for index in outer} for outer in composed]


def propagate(activation: Activation, layers: Layers, x: Array, plan: "Plan") -> list[Streams]:
    """The output of the network with its derivatives."""
    inputs, heights = x.shape[1], [group.count for group in plan.groups]
    zero, (weights, biases) = (0,) * inputs, layers[-1]
    if len(layers) == 1:
        value = sum((x[:, i, None] * weights[i] for i in range(inputs)), start=biases)[:, 0]
        gradient = {tuple(int(i == j) for j in range(inputs)): weights[i] for i in range(inputs)}
        derivatives = [gradient for _ in plan.groups]
    else:
        # A matrix-vector product, because the layer has a single output.
        product, derivatives = _through(weights[:, 0], *last_hidden(activation, layers, x, plan))
        value = product + biases[0]
    parts = jax.lax.split(value, heights)
    return plan.share_out([{zero: v} | inner for v, inner in zip(parts, derivatives, strict=True)], value.dtype)


def stacked_features(activation: Activation, layers: Layers, x: Array, plan: "Plan") -> Array:
    """The last hidden layer's wanted streams and a last row for the output's bias, shape (width + 1, columns).

    Columns are ordered by group, then wanted derivative, then point; see `Plan.blocks`.
    """
    values, composed = last_hidden(activation, layers, x, plan)
    zero = (0,) * x.shape[1]
    rows = []
    parts = jax.lax.split(values, [group.count for group in plan.groups])
    for group, part, inner in zip(plan.groups, parts, composed, strict=True):
        found = {zero: part} | inner
        rows += [jnp.broadcast_to(found.get(i, jnp.zeros((), part.dtype)), part.shape) for i in group.wanted]
    bias = np.concatenate([np.full(group.count, not any(i), float) for group in plan.groups for i in group.wanted])
    return jnp.concatenate([jnp.concatenate(rows).T, jnp.asarray(bias, values.dtype)[None]])


def is_native(activation: Activation, hidden: tuple[int, ...], plan: "Plan", inputs: int) -> bool:
    """Whether the compiled kernel supports the request."""
    if activation not in ACTIVATIONS:
        return False
    carried = max((1 + len(group.carried) for group in plan.groups), default=0)
    order = max((group.order for group in plan.groups), default=0)
    return usable(inputs, hidden, carried, len(plan.groups), order)


def propagate_natively(
    activation: Activation, hidden: tuple[int, ...], theta: Array, x: Array, plan: "Plan"
) -> list[Streams]:
    """The same as `propagate`, with the compiled kernel."""
    inputs = x.shape[1]
    carried = [_ordered(group, inputs) for group in plan.groups]
    sizes = [group.count for group, indices in zip(plan.groups, carried, strict=True) for _ in indices]
    parts = iter(jax.lax.split(streams(_numbers(activation, hidden, plan, inputs), sum(sizes), theta, x), sizes))
    return plan.share_out([{i: next(parts) for i in indices} for indices in carried], theta.dtype)


def features_natively(activation: Activation, hidden: tuple[int, ...], theta: Array, x: Array, plan: "Plan") -> Array:
    """The same as `stacked_features`, with the compiled kernel."""
    columns = sum(group.count * len(group.wanted) for group in plan.groups)
    return features(_numbers(activation, hidden, plan, x.shape[1]), (hidden[-1] + 1, columns), theta, x)


@lru_cache(maxsize=256)
def _numbers(activation: Activation, hidden: tuple[int, ...], plan: "Plan", inputs: int) -> tuple[int, ...]:
    """The plan as the kernel reads it; the format is that of read_plan in the C code."""
    numbers = [inputs, len(hidden), *hidden, ACTIVATIONS.index(activation), len(plan.groups)]
    for group in plan.groups:
        carried = _ordered(group, inputs)
        along = [index.index(1) for index in carried if sum(index) == 1]
        higher = [index for index in carried if sum(index) > 1]
        numbers += [group.count, group.order, len(along), *along, len(higher)]
        for index in higher:
            terms = [(order, *term) for order, terms in chain_rule(index) for term in terms]
            numbers.append(len(terms))
            for order, times, factors in terms:
                numbers += [order, times, *sorted(carried.index(i) for i in factors)]
        numbers += [len(group.wanted), *(carried.index(i) for i in group.wanted)]
    return tuple(numbers)


def _ordered(group: "Group", inputs: int) -> list[MultiIndex]:
    """The streams in the kernel's order: the value, then derivatives by order, each ordered by coordinate."""
    return [(0,) * inputs, *sorted(sorted(group.carried, reverse=True), key=sum)]


@dataclass(frozen=True)
class Group:
    """Points that carry the same streams besides their values; ``members`` are the requests they belong to."""

    wanted: tuple[MultiIndex, ...]
    derivatives: tuple[MultiIndex, ...]
    carried: tuple[MultiIndex, ...]
    order: int
    members: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(size for _, size in self.members)


@dataclass(frozen=True)
class Plan:
    """How the points of several requests are stacked: points that carry the same streams form a group."""

    requests: tuple[Request, ...]
    groups: tuple[Group, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(i for group in self.groups for i, _ in group.members)

    @property
    def blocks(self) -> tuple[tuple[int, MultiIndex], ...]:
        """What the columns of features are: for each block of columns the request and the derivative."""
        return tuple((i, index) for group in self.groups for index in group.wanted for i, _ in group.members)

    def share_out(self, streams: Sequence[Streams], dtype: Any, width: int | None = None) -> list[Streams]:
        """Split each group's streams among its members; missing streams are zero.

        Streams have shape (n,), or (n, width) if ``width`` is given.
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
def plan_of(requests: tuple[Request, ...], sizes: tuple[int, ...]) -> Plan:
    by_streams: dict[tuple[MultiIndex, ...], list[int]] = {}
    for i, request in enumerate(requests):
        by_streams.setdefault(tuple(sorted(request)), []).append(i)
    groups = []
    for wanted, members in sorted(by_streams.items()):
        derivatives, carried = (tuple(i for i in indices if any(i)) for indices in (wanted, closure(wanted)))
        sized = tuple((i, sizes[i]) for i in members)
        groups.append(Group(wanted, derivatives, carried, max(map(sum, wanted)), sized))
    return Plan(requests, tuple(groups))
