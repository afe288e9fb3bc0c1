"""Activations with their derivatives, and the chain rule for whole Taylor streams.

A field is pushed through a network together with the partial derivatives that the equations
ask for. A partial derivative is named by its multi-index, a tuple with the order in each input:
``(0,)`` is u, ``(2,)`` is u_xx, ``(1, 1)`` is u_xy. A *stream* is the array of one such
derivative over points and neurons.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.polynomial import Polynomial

MultiIndex = tuple[int, ...]
Streams = Mapping[MultiIndex, Array]


def _horner(coefficients: Sequence[float], y: Array) -> Array:
    """A polynomial whose coefficients are static, lowest power first."""
    total = jnp.full_like(y, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * y + c if c else total * y
    return total


@lru_cache
def _tanh_factors(order: int) -> tuple[tuple[float, ...], ...]:
    """Q_1..Q_order with tanh^(k) = (1 - y^2) Q_k(y), y = tanh."""
    q, slope = Polynomial([1.0]), Polynomial([1.0, 0.0, -1.0])
    factors = []
    for _ in range(order):
        factors.append(tuple(float(c) for c in q.coef))
        q = Polynomial([0.0, -2.0]) * q + slope * q.deriv()
    return tuple(factors)


def _tanh(h: Array, order: int) -> list[Array]:
    y = jnp.tanh(h)
    if not order:
        return [y]
    slope = 1.0 - y * y
    return [y, slope] + [slope * _horner(factor, y) for factor in _tanh_factors(order)[1:]]


def _sin(h: Array, order: int) -> list[Array]:
    s = jnp.sin(h)
    if not order:
        return [s]
    c = jnp.cos(h)
    cycle = (s, c, -s, -c)
    return [cycle[k % 4] for k in range(order + 1)]


@lru_cache
def _sigmoid_polynomials(order: int) -> tuple[tuple[float, ...], ...]:
    """P_0..P_order with sigmoid^(k) = P_k(s), s = sigmoid."""
    p, slope = Polynomial([0.0, 1.0]), Polynomial([0.0, 1.0, -1.0])
    rows = []
    for _ in range(order + 1):
        rows.append(tuple(float(c) for c in p.coef))
        p = p.deriv() * slope
    return tuple(rows)


def _swish(h: Array, order: int) -> list[Array]:
    s = jax.nn.sigmoid(h)
    sigmoid = [_horner(p, s) for p in _sigmoid_polynomials(order)]
    # (h s)^(k) = h s^(k) + k s^(k-1)
    return [h * s] + [h * sigmoid[k] + k * sigmoid[k - 1] for k in range(1, order + 1)]


def softplus_derivatives(h: Array, order: int) -> list[Array]:
    """softplus(h) and its derivatives, the link of positive fields."""
    s = jax.nn.sigmoid(h)
    polynomials = _sigmoid_polynomials(max(order - 1, 0))
    return [jax.nn.softplus(h)] + [_horner(polynomials[k], s) for k in range(order)]


def _gelu(h: Array, order: int) -> list[Array]:
    """The exact gelu h Phi(h), not the tanh approximation."""
    cdf = jax.scipy.stats.norm.cdf(h)
    if not order:
        return [h * cdf]
    density = jax.scipy.stats.norm.pdf(h)
    derivatives = [h * cdf, cdf + h * density]
    for k in range(2, order + 1):
        # Phi^(j) = (-1)^(j-1) He_{j-1} pdf, so (h Phi)^(k) = h Phi^(k) + k Phi^(k-1)
        upper, lower = (_horner(_hermite(j), h) for j in (k - 1, k - 2))
        derivatives.append((-1.0) ** (k - 1) * density * (h * upper - k * lower))
    return derivatives


def _hermite(degree: int) -> tuple[float, ...]:
    return tuple(np.polynomial.hermite_e.herme2poly([0.0] * degree + [1.0]))


def _by_autodiff(function: Callable[[Array], Array]) -> Callable[[Array, int], list[Array]]:
    """Derivatives of a user's elementwise function, by nested forward differentiation."""
    return lambda h, order: [_derivative(function, k)(h) for k in range(order + 1)]


def _derivative(function: Callable[[Array], Array], order: int) -> Callable[[Array], Array]:
    if order == 0:
        return function
    lower = _derivative(function, order - 1)
    return lambda h: jax.jvp(lower, (h,), (jnp.ones_like(h),))[1]


BUILT_IN = {"tanh": _tanh, "sin": _sin, "swish": _swish, "gelu": _gelu}


def activation_derivatives(
    activation: str | Callable[[Array], Array],
) -> Callable[[Array, int], list[Array]]:
    """``derivatives(h, order)`` gives [phi(h), phi'(h), ..., phi^(order)(h)]."""
    return BUILT_IN[activation] if isinstance(activation, str) else _by_autodiff(activation)


@lru_cache(maxsize=4096)
def _chain_rule(index: MultiIndex) -> tuple[tuple[int, tuple[tuple[int, tuple[MultiIndex, ...]], ...]], ...]:
    """Faa di Bruno: d^index phi(h) = sum_k phi^(k)(h) sum c * prod h_beta, as static lists."""
    slots = tuple(i for i, n in enumerate(index) for _ in range(n))
    terms: Counter[tuple[MultiIndex, ...]] = Counter()
    for partition in _set_partitions(slots):
        blocks = (tuple(block.count(i) for i in range(len(index))) for block in partition)
        terms[tuple(sorted(blocks))] += 1
    by_order: dict[int, list[tuple[int, tuple[MultiIndex, ...]]]] = {}
    for product, count in terms.items():
        by_order.setdefault(len(product), []).append((count, product))
    return tuple((k, tuple(by_order[k])) for k in sorted(by_order))


def _set_partitions(slots: tuple[int, ...]):
    if not slots:
        yield []
        return
    first, rest = slots[0], slots[1:]
    for partition in _set_partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


def closure(wanted: Sequence[MultiIndex]) -> tuple[MultiIndex, ...]:
    """All derivatives that the chain rule needs to carry in order to give the wanted ones."""
    seen: set[MultiIndex] = set()
    for index in wanted:
        grid = np.ndindex(*(n + 1 for n in index))
        seen.update(tuple(int(i) for i in lower) for lower in grid)
    return tuple(sorted(seen, key=lambda index: (sum(index), index)))


def compose(derivatives: Sequence[Array], inner: Streams, wanted: Sequence[MultiIndex]) -> dict[MultiIndex, Array]:
    """Streams of phi(h) from the streams of h; a stream that is absent from ``inner`` is zero."""
    streams = {}
    for index in wanted:
        if not any(index):
            streams[index] = derivatives[0]
            continue
        total: Array | None = None
        for order, terms in _chain_rule(index):
            factor: Array | None = None
            for count, blocks in terms:
                if not all(block in inner for block in blocks):
                    continue
                product = inner[blocks[0]]
                for block in blocks[1:]:
                    product = product * inner[block]
                product = count * product if count > 1 else product
                factor = product if factor is None else factor + product
            if factor is not None:
                term = derivatives[order] * factor
                total = term if total is None else total + term
        streams[index] = jnp.zeros_like(derivatives[0]) if total is None else total
    return streams
