"""Activations with their derivatives, and the chain rule for Taylor streams.

A field is propagated through a network together with the partial derivatives that the equations
need. A partial derivative is identified by its multi-index, a tuple with the order in each input:
``(0,)`` is u, ``(2,)`` is u_xx, ``(1, 1)`` is u_xy. A *stream* is the array of one such
derivative over points and neurons.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.polynomial import Polynomial

MultiIndex = tuple[int, ...]
Streams = Mapping[MultiIndex, Array]


def _horner(coefficients: Sequence[float], y: Array) -> Array:
    """A polynomial with static coefficients, lowest power first."""
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


def _tanh_slopes(y: Array, order: int) -> list[Array]:
    if not order:
        return []
    slope = 1.0 - y * y
    return [slope] + [slope * _horner(factor, y) for factor in _tanh_factors(order)[1:]]


def _sin_slopes(h: Array, order: int) -> list[Array]:
    s, c = jnp.sin(h), jnp.cos(h)
    return [(s, c, -s, -c)[k % 4] for k in range(1, order + 1)]


@lru_cache
def _sigmoid_polynomials(order: int) -> tuple[tuple[float, ...], ...]:
    """P_0..P_order with sigmoid^(k) = P_k(s), s = sigmoid."""
    p, slope = Polynomial([0.0, 1.0]), Polynomial([0.0, 1.0, -1.0])
    rows = []
    for _ in range(order + 1):
        rows.append(tuple(float(c) for c in p.coef))
        p = p.deriv() * slope
    return tuple(rows)


def _swish_slopes(h: Array, order: int) -> list[Array]:
    s = jax.nn.sigmoid(h)
    sigmoid = [_horner(p, s) for p in _sigmoid_polynomials(order)]
    # (h s)^(k) = h s^(k) + k s^(k-1)
    return [h * sigmoid[k] + k * sigmoid[k - 1] for k in range(1, order + 1)]


def _softplus_slopes(h: Array, order: int) -> list[Array]:
    s = jax.nn.sigmoid(h)
    return [_horner(p, s) for p in _sigmoid_polynomials(order - 1)] if order else []


def _gelu_slopes(h: Array, order: int) -> list[Array]:
    cdf, density = jax.scipy.stats.norm.cdf(h), jax.scipy.stats.norm.pdf(h)
    slopes = [cdf + h * density]
    for k in range(2, order + 1):
        # Phi^(j) = (-1)^(j-1) He_{j-1} pdf, so (h Phi)^(k) = h Phi^(k) + k Phi^(k-1)
        upper, lower = (_horner(_hermite(j), h) for j in (k - 1, k - 2))
        slopes.append((-1.0) ** (k - 1) * density * (h * upper - k * lower))
    return slopes[:order]


def _hermite(degree: int) -> tuple[float, ...]:
    return tuple(np.polynomial.hermite_e.herme2poly([0.0] * degree + [1.0]))


def _derivative(function: Callable[[Array], Array], order: int) -> Callable[[Array], Array]:
    if order == 0:
        return function
    lower = _derivative(function, order - 1)
    return lambda h: jax.jvp(lower, (h,), (jnp.ones_like(h),))[1]


def _identity(h: Array) -> Array:
    return h


@dataclass(frozen=True)
class Activation:
    """An elementwise function phi in two steps: ``base`` on all rows at once, then the rest from its result y.

    ``value(y)`` is phi, ``slopes(y, order)`` are phi', ..., phi^(order). For tanh the base is tanh itself, since all
    its derivatives are polynomials in it; for the others it is the identity.
    """

    value: Callable[[Array], Array]
    slopes: Callable[[Array, int], list[Array]]
    base: Callable[[Array], Array] = _identity


BUILT_IN = {
    "tanh": Activation(_identity, _tanh_slopes, jnp.tanh),
    "sin": Activation(jnp.sin, _sin_slopes),
    "swish": Activation(jax.nn.silu, _swish_slopes),
    "gelu": Activation(lambda h: h * jax.scipy.stats.norm.cdf(h), _gelu_slopes),  # exact, not the tanh form
}
SOFTPLUS = Activation(jax.nn.softplus, _softplus_slopes)


def activation_of(activation: str | Callable[[Array], Array]) -> Activation:
    """From a name, or from a user's elementwise function, which is differentiated by nested forward mode."""
    if isinstance(activation, str):
        return BUILT_IN[activation]
    return Activation(activation, lambda h, order: [_derivative(activation, k)(h) for k in range(1, order + 1)])


@lru_cache(maxsize=4096)
def chain_rule(index: MultiIndex) -> tuple[tuple[int, tuple[tuple[int, tuple[MultiIndex, ...]], ...]], ...]:
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
    """All derivatives that the chain rule must carry to compute the wanted ones."""
    seen: set[MultiIndex] = set()
    for index in wanted:
        grid = np.ndindex(*(n + 1 for n in index))
        seen.update(tuple(int(i) for i in lower) for lower in grid)
    return tuple(sorted(seen, key=lambda index: (sum(index), index)))


def compose(slopes: Sequence[Array], inner: Streams, wanted: Sequence[MultiIndex]) -> dict[MultiIndex, Array]:
    """Derivative streams of phi(h) from those of h and phi', phi'', ...; streams missing in ``inner`` are zero."""
    streams = {}
    for index in wanted:
        total: Array | None = None
        for order, terms in chain_rule(index):
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
                term = slopes[order - 1] * factor
                total = term if total is None else total + term
        streams[index] = jnp.zeros_like(slopes[0]) if total is None else total
    return streams
