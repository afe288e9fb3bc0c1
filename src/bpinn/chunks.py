"""Readings in chunks: sums over many readings in memory that does not grow with their number.

A chunk holds as many readings of each group as every other chunk does, the last ones filled up with copies of the
group's last reading that do not count. One compiled function serves all chunks, one after another.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.problem import Problem

MOST_AT_ONCE = 8192  # points; with more of them readings are evaluated in chunks
POINTS = 4096  # of a chunk: what is kept for its gradient, some 10 MB for two layers of 50, stays near the processor


def number_of_chunks(problem: Problem) -> int:
    """How many chunks the readings of a problem are evaluated in; 1 is all at once."""
    points = sum(len(r.values) * sum(term.width for term in r.quantity.terms) for r in problem.readings)
    return 1 if points <= MOST_AT_ONCE else -(-points // POINTS)


def size_in_chunk(count: int, chunks: int) -> int:
    """How many of a group's readings each chunk holds."""
    return -(-count // chunks)


def rows_of_chunks(count: int, chunks: int, shuffled: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Which of a group's readings each chunk holds, (chunks, size), and whether each of them counts.

    Shuffled, each chunk is a random sample of the readings, always the same one.
    """
    rows = np.arange(chunks * size_in_chunk(count, chunks)).reshape(chunks, -1)
    if shuffled:  # those that do not count are spread over the chunks as well
        rows = np.random.default_rng(count).permutation(rows.ravel()).reshape(rows.shape)
    return np.minimum(rows, count - 1), rows < count


def total(density: Callable[[Array, Any], Array], z: Array, chunks: Any, once: bool) -> Array:
    """The sum of ``density(z, chunk)`` over chunks.

    With ``once`` value and gradient are found in one pass, and there are no other derivatives. Otherwise each chunk
    is evaluated again when derivatives are taken, so that nothing of it is kept.
    """
    return _total(density, z, chunks) if once else _sum(jax.checkpoint(density), z, chunks)


def _sum(density: Callable[[Array, Any], Array], z: Array, chunks: Any) -> Array:
    def one(carry: tuple[Array, Array], chunk: Any) -> tuple[tuple[Array, Array], None]:
        return _added(*carry, density(z, chunk)), None

    zero = jnp.zeros((), z.dtype)
    (found, lost), _ = jax.lax.scan(one, (zero, zero), chunks)
    return found + lost


def _added(found: Array, lost: Array, value: Array) -> tuple[Array, Array]:
    """A compensated sum (Neumaier): a million log densities in single precision would lose tenths otherwise."""
    new = found + value
    rest = jnp.where(jnp.abs(found) >= jnp.abs(value), (found - new) + value, (value - new) + found)
    return new, lost + jnp.where(jnp.isfinite(new), rest, 0.0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _total(density: Callable[[Array, Any], Array], z: Array, chunks: Any) -> Array:
    return _sum(density, z, chunks)


def _forward(density: Callable[[Array, Any], Array], z: Array, chunks: Any) -> tuple[Array, Array]:
    def one(carry: tuple[Array, Array, Array], chunk: Any) -> tuple[tuple[Array, Array, Array], None]:
        value, slope = jax.value_and_grad(density)(z, chunk)
        return (*_added(*carry[:2], value), carry[2] + slope), None

    zero = jnp.zeros((), z.dtype)
    (found, lost, slopes), _ = jax.lax.scan(one, (zero, zero, jnp.zeros_like(z)), chunks)
    return found + lost, slopes


_total.defvjp(_forward, lambda density, slopes, adjoint: (adjoint * slopes, None))


def mapped(values: Callable[[Any], Any], chunks: Any) -> Any:
    """``values(chunk)`` for each chunk, stacked."""
    return jax.lax.map(jax.checkpoint(values), chunks)


def joined(parts: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """Values of each group, stacked by chunk, (chunks, size), as one array over its readings."""
    return [part.reshape(-1)[:count] for part, count in zip(parts, counts, strict=True)]
