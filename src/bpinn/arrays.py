"""Arrays on the device without compiling: `jnp.asarray` compiles a small program for every shape, of some 13 ms.

Large ones are kept in files, of which the system holds in memory what it has room for: a device that is a processor
reads them where they are.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LARGE = 2**28  # bytes of an array from which on it is kept in a file
BLOCK = 2**20  # numbers that are converted at once


def on_device(values: Any) -> Array:
    """Numbers of the host as an array of the current precision; a copy."""
    shape, dtype = np.shape(values), np.dtype(jnp.result_type(float))
    if not _is_large(shape, dtype):
        return jax.device_put(np.array(values, dtype))
    own, rows = _empty(shape, dtype), max(1, BLOCK // max(1, int(np.prod(shape[1:]))))
    for first in range(0, shape[0], rows):
        own[first : first + rows] = values[first : first + rows]
    return jax.device_put(own)


def stacked(part: Callable[[int], Any], number: int) -> Any:
    """The arrays of ``part(0)``, ``part(1)``, ... stacked along a new first axis, one part at a time."""
    first = part(0)
    leaves, structure = jax.tree.flatten(first)
    shapes = [((number, *leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves]
    whole = [_empty(*shape) for shape in shapes]
    for i in range(number):
        for own, leaf in zip(whole, jax.tree.leaves(first if i == 0 else part(i)), strict=True):
            own[i] = leaf
    return jax.tree.unflatten(structure, [jax.device_put(own) for own in whole])


def _is_large(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return int(np.prod(shape)) * dtype.itemsize >= LARGE


def _empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in memory, or in a file that goes with it."""
    if not _is_large(shape, dtype):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="bpinn-") as file:
        return np.memmap(file, dtype, "w+", shape=shape)
