"""The Gaussian of the linear parameters of all fields given everything else, as one differentiable operation.

Readings that are linear in the streams of the fields, in units of their noise: reading r has the row S[:, r] and the
target t[r]. With the prior's precisions d the parameters a have the precision A = diag(d) + S S' = L L' and the mean
A^-1 S t, so that a = L^-T (L^-1 S t + v) for a standard normal residual v.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.native import library

Block = tuple[int, int, int]


class Layout(NamedTuple):
    """Which feature columns belong to which readings.

    ``sizes`` is the number of linear parameters of each field. ``blocks`` has for each field, in the order of its
    columns, (count, first row, width): column i of the block belongs to reading first row + i // width, and count is a
    multiple of width. ``rows`` is the number of readings.
    """

    sizes: tuple[int, ...]
    blocks: tuple[tuple[Block, ...], ...]
    rows: int

    @property
    def columns(self) -> tuple[int, ...]:
        """The number of columns of each field."""
        return tuple(sum(count for count, _, _ in blocks) for blocks in self.blocks)


def conditional(
    layout: Layout,
    features: Sequence[Array],
    slopes: Array,
    targets: Array,
    v: Array,
    precision: Array,
    native: bool = False,
) -> tuple[Array, Array, Array]:
    """The parameters (p,), the streams they make (C,), and the log determinant of the parameters' derivative by ``v``.

    ``features`` has an array (parameters, columns) for each field. Column c adds ``slopes[c]`` times itself to the row
    of its reading, and its stream is ``features[:, c] @ a``; ``slopes`` and streams lie field after field. ``native``
    takes the C code, in single precision and where it is available: its derivatives are of first order, in reverse
    mode, and that by ``precision`` is zero.

    >>> layout = Layout(sizes=(1,), blocks=(((2, 0, 1),),), rows=2)
    >>> one = jnp.ones(2)
    >>> a, streams, _ = conditional(layout, [one[None]], one, 3.0 * one, jnp.zeros(1), jnp.ones(1))
    >>> print(a.round(3), streams.round(3))
    [2.] [2. 2.]
    """
    arrays = (*features, slopes, targets, v, precision)
    if _usable(native, arrays):
        return _native(layout, tuple(features), slopes, targets, v, precision)
    factor, y = _factor(layout, features, slopes, targets, precision)
    a = solve_triangular(factor, y + v)
    parts = jnp.split(a, np.cumsum(layout.sizes)[:-1])
    streams = jnp.concatenate([part @ of_field for part, of_field in zip(parts, features, strict=True)])
    return a, streams, -jnp.sum(jnp.log(jnp.diag(factor)))


def residual(
    layout: Layout,
    features: Sequence[Array],
    slopes: Array,
    targets: Array,
    a: Array,
    precision: Array,
    native: bool = False,
) -> Array:
    """The residual ``v`` of the parameters ``a``: the inverse of `conditional`. The native one has no derivative."""
    if _usable(native, (*features, slopes, targets, a, precision)):
        shape = jax.ShapeDtypeStruct(a.shape, jnp.float32)
        call = jax.ffi.ffi_call("bpinn_conditional_residual", shape, vmap_method="sequential")
        return call(_plan(layout), *features, slopes, targets, a, precision)
    factor, y = _factor(layout, features, slopes, targets, precision)
    return factor @ a - y


class Gaussian(NamedTuple):
    """Means, root and its inverse of the conditional: ``a = mean + root @ v``, with upper triangular matrices (p, p).

    There is a mean for each row of targets.
    """

    means: Array
    root: Array
    inverse: Array


def gaussian(
    layout: Layout,
    features: Sequence[Array],
    slopes: Array,
    targets: Array,
    precision: Array,
    native: bool = False,
) -> Gaussian:
    """The map of `conditional` as matrices, for where it is fixed. The native one has no derivative.

    ``targets`` has shape (n, rows), for n means of the same root.
    """
    if _usable(native, (*features, slopes, targets, precision)):
        size = len(precision)
        shapes = tuple(
            jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((len(targets), size), (size, size), (size, size))
        )
        call = jax.ffi.ffi_call("bpinn_conditional_factor", shapes, vmap_method="sequential")
        return Gaussian(*call(_plan(layout), *features, slopes, targets, precision))
    factor, y = _factor(layout, features, slopes, targets.T, precision)
    root = solve_triangular(factor, jnp.eye(len(precision), dtype=factor.dtype))
    return Gaussian((root @ y).T, root, factor)


# --- in chunks of readings ---

System = tuple[Layout, Sequence[Array], Array, Array]  # layout, features, slopes and targets
Systems = Callable[[Any, Any], System]  # of the readings in a chunk, given what they depend on


def gaussian_in_chunks(systems: Systems, given: Any, chunks: Any, precision: Array, native: bool = False) -> Gaussian:
    """`gaussian` of the readings in all chunks, ``systems(given, chunk)`` for each."""
    if _usable(native, (precision,)):
        plan, sums = _summed(systems, given, chunks)
        size = len(precision)
        shapes = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, size), (size, size), (size, size)))
        call = jax.ffi.ffi_call("bpinn_conditional_matrices", shapes, vmap_method="sequential")
        return Gaussian(*call(plan, sums, precision))

    def one(known: tuple[Array, Array], chunk: Any) -> tuple[tuple[Array, Array], None]:
        # What is known goes into the next chunk as rows, as in `_factor`: nothing is squared.
        layout, features, slopes, targets = systems(given, chunk)
        rows = jnp.concatenate([known[0], rows_of(layout, features, slopes)])
        orthogonal, factor = jnp.linalg.qr(rows)
        return (factor, orthogonal.T @ jnp.concatenate([known[1], targets])), None

    first = jnp.diag(jnp.sqrt(precision)), jnp.zeros_like(precision)
    (factor, y), _ = jax.lax.scan(one, first, chunks)
    sign = jnp.where(jnp.diag(factor) < 0, -1.0, 1.0).astype(factor.dtype)
    factor, y = sign[:, None] * factor, sign * y
    root = solve_triangular(factor, jnp.eye(len(y), dtype=y.dtype))
    return Gaussian(solve_triangular(factor, y)[None], root, factor)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def conditional_in_chunks(
    systems: Systems, native: bool, given: Any, chunks: Any, v: Array, precision: Array
) -> tuple[Array, Array]:
    """The parameters (p,), and the log determinant of their derivative by ``v``: `conditional` in chunks.

    Its derivatives are of first order, in reverse mode, by ``given`` and ``v``.
    """
    return _chunks_forward(systems, native, given, chunks, v, precision)[0]


def _chunks_forward(
    systems: Systems, native: bool, given: Any, chunks: Any, v: Array, precision: Array
) -> tuple[tuple[Array, Array], Any]:
    if _usable(native, (v, precision)):
        plan, sums = _summed(systems, given, chunks)
        sizes = (v.shape, (), (2 * _size_of("chunk_tape", tuple(plan.tolist())),))
        shapes = tuple(jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes)
        call = jax.ffi.ffi_call("bpinn_conditional_solve", shapes, vmap_method="sequential")
        a, log_determinant, tape = call(plan, sums, v, precision)
        return (a, log_determinant), (given, chunks, v, tape)
    (mean,), _, factor = gaussian_in_chunks(systems, given, chunks, precision)
    a = mean + solve_triangular(factor, v)
    return (a, -jnp.sum(jnp.log(jnp.diag(factor)))), (given, chunks, v, (factor, factor @ mean))


def _chunks_backward(systems: Systems, native: bool, kept: Any, adjoints: tuple[Array, Array]) -> tuple[Any, ...]:
    given, chunks, v, tape = kept
    of_system = _natively_pulled if _usable(native, (v,)) else _pulled

    def one(total: Any, chunk: Any) -> tuple[Any, None]:
        layouts = []

        def system(given: Any) -> tuple[Sequence[Array], Array, Array]:
            layout, features, slopes, targets = systems(given, chunk)
            layouts.append(layout)
            return features, slopes, targets

        arrays, pull = jax.vjp(system, given)
        *of_arrays, q = of_system(layouts[0], arrays, v, tape, adjoints)
        return (jax.tree.map(jnp.add, total[0], pull(tuple(of_arrays))[0]), q), None

    first = jax.tree.map(jnp.zeros_like, given), jnp.zeros_like(v)
    (found, of_v), _ = jax.lax.scan(one, first, chunks)
    return found, None, of_v, jnp.zeros_like(v)


conditional_in_chunks.defvjp(_chunks_forward, _chunks_backward)


def _pulled(layout: Layout, arrays: Any, v: Array, tape: Any, adjoints: tuple[Array, Array]) -> tuple[Any, ...]:
    """The adjoints of features, slopes and targets in a chunk, and of ``v``.

    With R the factor of all chunks and U = R^-T S: a change of S changes R by P R, P the upper half of dU U' + U dU'.
    """
    (features, slopes, targets), (factor, y) = arrays, tape
    of_a, of_log_determinant = adjoints
    q = solve_triangular(factor, of_a, trans=1)
    upper = jnp.triu(jnp.outer(y, q) + jnp.outer(q, y + v) + of_log_determinant * jnp.eye(len(y), dtype=y.dtype))
    both = upper + upper.T - jnp.diag(jnp.diag(upper))  # twice the adjoint of dU U'
    rows, pull = jax.vjp(partial(rows_of, layout), features, slopes)
    whitened = solve_triangular(factor, rows.T, trans=1)
    of_rows = solve_triangular(factor, jnp.outer(q, targets) - both @ whitened)
    return (*pull(of_rows.T), q @ whitened, q)


def _natively_pulled(
    layout: Layout, arrays: Any, v: Array, tape: Array, adjoints: tuple[Array, Array]
) -> tuple[Any, ...]:
    features, slopes, targets = arrays
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in (*features, slopes, targets, v))
    call = jax.ffi.ffi_call("bpinn_conditional_chunk_backward", shapes, vmap_method="sequential")
    of_a, of_log_determinant = adjoints
    given = features, slopes, targets, v, tape, of_a, jnp.zeros_like(slopes), of_log_determinant
    found = call(_plan(layout), *given[0], *given[1:])
    return (list(found[: len(features)]), *found[len(features) :])


def _summed(systems: Systems, given: Any, chunks: Any) -> tuple[np.ndarray, Array]:
    """The plan of a chunk, and S S' and S t of all chunks in double precision, which only the C code reads."""
    layout = _layout_of(systems, given, chunks)
    size = 2 * _size_of("sums", tuple(_plan(layout).tolist()))

    def one(sums: Array, chunk: Any) -> tuple[Array, None]:
        _, features, slopes, targets = systems(given, chunk)
        shape = jax.ShapeDtypeStruct(sums.shape, jnp.float32)
        call = jax.ffi.ffi_call("bpinn_conditional_add", shape, vmap_method="sequential")
        return call(_plan(layout), *features, slopes, targets, sums), None

    return _plan(layout), jax.lax.scan(one, jnp.zeros(size, jnp.float32), chunks)[0]


def _layout_of(systems: Systems, given: Any, chunks: Any) -> Layout:
    found = []

    def first(given: Any, chunk: Any) -> Any:
        layout, *arrays = systems(given, chunk)
        found.append(layout)
        return arrays

    jax.eval_shape(first, given, jax.tree.map(lambda a: a[0], chunks))
    return found[0]


def _factor(
    layout: Layout, features: Sequence[Array], slopes: Array, targets: Array, precision: Array
) -> tuple[Array, Array]:
    """L', with a positive diagonal, and y = L^-1 S t, for one vector t or a matrix with several columns.

    By QR of the stacked rows: the precision spans many orders of magnitude, and its square root half as many, which
    single precision can hold.
    """
    rows = jnp.concatenate([jnp.diag(jnp.sqrt(precision)), rows_of(layout, features, slopes)])
    orthogonal, factor = jnp.linalg.qr(rows)
    sign = jax.lax.stop_gradient(jnp.where(jnp.diag(factor) < 0, -1.0, 1.0).astype(factor.dtype))
    return sign[:, None] * factor, (orthogonal[len(precision) :] * sign).T @ targets


def rows_of(layout: Layout, features: Sequence[Array], slopes: Array) -> Array:
    """S', of shape (rows, parameters)."""
    parts, first = [], 0
    for size, blocks, of_field in zip(layout.sizes, layout.blocks, features, strict=True):
        rows = jnp.zeros((layout.rows, size), of_field.dtype)
        at = 0
        for count, row, width in blocks:
            part = slopes[first : first + count, None] * of_field[:, at : at + count].T
            if width > 1:
                part = part.reshape(count // width, width, size).sum(axis=1)
            rows = rows + jnp.pad(part, ((row, layout.rows - row - len(part)), (0, 0)))
            at, first = at + count, first + count
        parts.append(rows)
    return jnp.concatenate(parts, axis=1)


# --- the native kernel ---


def _usable(native: bool, arrays: tuple[Array, ...]) -> bool:
    return native and all(array.dtype == jnp.float32 for array in arrays) and library() is not None


def _plan(layout: Layout) -> np.ndarray:
    """Format: see read_plan in the C code."""
    numbers = [len(layout.sizes), layout.rows]
    for size, blocks in zip(layout.sizes, layout.blocks, strict=True):
        numbers += [size, len(blocks), *(number for block in blocks for number in block)]
    return np.asarray(numbers, np.int32)


@cache
def _size_of(what: str, plan: tuple[int, ...]) -> int:
    kernel = library()
    assert kernel is not None
    return int(getattr(kernel, f"bpinn_conditional_{what}_size")((ctypes.c_int32 * len(plan))(*plan)))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _native(
    layout: Layout, features: tuple[Array, ...], slopes: Array, targets: Array, v: Array, precision: Array
) -> tuple[Array, Array, Array]:
    return _forward(layout, features, slopes, targets, v, precision)[0]


def _forward(
    layout: Layout, features: tuple[Array, ...], slopes: Array, targets: Array, v: Array, precision: Array
) -> tuple[tuple[Array, Array, Array], Any]:
    sizes = (v.shape, slopes.shape, (), (_size_of("tape", tuple(_plan(layout).tolist())),))
    shapes = tuple(jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes)
    call = jax.ffi.ffi_call("bpinn_conditional_forward", shapes, vmap_method="sequential")
    a, streams, log_determinant, tape = call(_plan(layout), *features, slopes, targets, v, precision)
    return (a, streams, log_determinant), (features, slopes, targets, v, precision, tape)


def _backward(layout: Layout, kept: Any, adjoints: tuple[Array, Array, Array]) -> tuple[Any, ...]:
    features, slopes, targets, v, precision, tape = kept
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in (*features, slopes, targets, v))
    call = jax.ffi.ffi_call("bpinn_conditional_backward", shapes, vmap_method="sequential")
    found = call(_plan(layout), *features, slopes, targets, v, tape, *adjoints)
    count = len(features)
    return (tuple(found[:count]), *found[count:], jnp.zeros_like(precision))


_native.defvjp(_forward, _backward)
