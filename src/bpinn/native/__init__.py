"""Optional native kernels in C: a network with its derivatives, and the Gaussian of linear parameters.

XLA runs a small network's gradient as dozens of small loops; the C code does the same work in about half the time, and
does not slow down a chain on the next core. It is compiled on first use with the system's C compiler, kept in
the user's cache folder, and used by the samplers in single precision. Without a compiler, on a processor without AVX2,
or with ``BPINN_NATIVE=0`` in the environment, everything runs in JAX alone.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn import portable

SOURCES = tuple(Path(__file__).with_name(name) for name in ("streams.c", "conditional.c"))
HEADERS = tuple(Path(__file__).with_name(name) for name in ("vectors.h", "plan.h", "activations.h"))
TARGETS = (
    *(f"bpinn_{what}_{way}" for what in ("streams", "features") for way in ("forward", "backward")),
    *(f"bpinn_conditional_{name}" for name in ("forward", "backward", "residual", "factor")),
    *(f"bpinn_conditional_{name}" for name in ("add", "solve", "matrices", "chunk_backward")),
)
MACHINE = f"-march={portable.LEVEL}" if portable.is_on() else "-march=native"
FLAGS = ("-O3", MACHINE, "-ffast-math", "-fno-finite-math-only", "-fPIC", "-std=gnu11")
# Linked separately: with -ffast-math, GCC links in startup code that, when the library is loaded, makes the whole
# process flush numbers below 1e-308 to zero.
LINK = ("-shared",)
MOST_LAYERS, MOST_INPUTS, MOST_GROUPS, MOST_STREAMS, MOST_ORDER = 16, 8, 16, 128, 4  # as in the C code
ACTIVATIONS = ("tanh", "sin", "swish", "gelu")  # in the order of the C code

Plan = tuple[int, ...]  # format: see read_plan in the C code


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, registered with JAX; None if it is not available."""
    if os.environ.get("BPINN_NATIVE", "1") == "0" or jax.default_backend() != "cpu":
        return None
    if platform.system() == "Windows":
        return None
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    try:
        loaded = ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None
    for name in TARGETS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(loaded, name)), platform="cpu")
    loaded.bpinn_tape_size.restype = ctypes.c_int64
    for size in ("tape", "sums", "chunk_tape"):
        getattr(loaded, f"bpinn_conditional_{size}_size").restype = ctypes.c_int64
    return loaded


def _compiled(compiler: str) -> Path:
    """The shared library in the cache folder, compiled if it does not exist yet."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    parts = (
        _source(),
        version,
        processor().encode(),
        " ".join(FLAGS + LINK).encode(),
        jax.__version__.encode(),
    )
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise OSError
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="bpinn-"))
    path = folder / f"streams-{name}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            compiled, linked = [os.path.join(inside, f"{source.stem}.o") for source in SOURCES], f"{inside}/streams.so"
            commands = [
                [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", "-c", str(source), "-o", to]
                for source, to in zip(SOURCES, compiled, strict=True)
            ]
            commands.append([compiler, *LINK, *compiled, "-o", linked, "-lm"])
            for command in commands:
                subprocess.run(command, capture_output=True, check=True, timeout=120)
            os.replace(linked, path)  # another process may have been faster; both files are equivalent
    return path


def cache_folder() -> Path:
    """The user's cache folder of bpinn; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bpinn"


def compilation_cache() -> Path:
    """Where compiled programs are kept, separately for each processor, version of JAX and of the kernel they call."""
    parts = (_source(), processor().encode(), jax.__version__.encode(), platform.machine().encode(), MACHINE.encode())
    return cache_folder() / f"xla-{hashlib.sha256(b' '.join(parts)).hexdigest()[:16]}"


def _source() -> bytes:
    return b"\0".join(file.read_bytes() for file in (*SOURCES, *HEADERS))


def processor() -> str:
    """The processor's features, so that machines that share a cache folder use separate libraries."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    return next((line for line in lines if line.startswith("flags")), platform.processor())


def usable(inputs: int, hidden: tuple[int, ...], streams: int, groups: int, order: int) -> bool:
    """Whether the kernel supports a network of this size in the current precision.

    ``streams`` is the largest number that a group of points carries, ``order`` that of the highest derivative.
    """
    fits = (
        0 < len(hidden) <= MOST_LAYERS
        and inputs <= MOST_INPUTS
        and groups <= MOST_GROUPS
        and streams <= MOST_STREAMS
        and order <= MOST_ORDER
    )
    return fits and jnp.result_type(float) == jnp.float32 and library() is not None


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def streams(plan: Plan, size: int, theta: Array, x: Array) -> Array:
    """All streams at all points, ordered by group, then stream; ``size`` numbers."""
    return _forward("streams", plan, (size,), theta, x)[0]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def features(plan: Plan, shape: tuple[int, int], theta: Array, x: Array) -> Array:
    """The last hidden layer's wanted streams and a last row for the output's bias, shape (width + 1, columns).

    Columns are ordered by group, then wanted stream, then point. The output layer's part of ``theta`` is not used.
    """
    return _forward("features", plan, shape, theta, x)[0]


def _forward(what: str, plan: Plan, shape: tuple[int, ...], theta: Array, x: Array) -> tuple[Array, Any]:
    shapes = (jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct((_tape_size(plan),), jnp.float32))
    call = jax.ffi.ffi_call(f"bpinn_{what}_forward", shapes, vmap_method="sequential")
    numbers = np.asarray(plan, np.int32)
    values, tape = call(numbers, theta, x)
    return values, (theta, x, tape)


def _backward(what: str, plan: Plan, _: Any, kept: Any, adjoint: Array) -> tuple[Array, Array]:
    theta, x, tape = kept
    shape = jax.ShapeDtypeStruct(theta.shape, jnp.float32)
    call = jax.ffi.ffi_call(f"bpinn_{what}_backward", shape, vmap_method="sequential")
    return call(np.asarray(plan, np.int32), theta, x, tape, adjoint), jnp.zeros_like(x)


streams.defvjp(lambda plan, size, *args: _forward("streams", plan, (size,), *args), partial(_backward, "streams"))
features.defvjp(partial(_forward, "features"), partial(_backward, "features"))


@cache
def _tape_size(plan: Plan) -> int:
    kernel = library()
    assert kernel is not None
    numbers = (ctypes.c_int32 * len(plan))(*plan)
    return int(kernel.bpinn_tape_size(numbers))
