"""What decides the last bits of a draw: versions, flags, the processor, and a small fixed computation.

A block gives the same bits on two machines only if all of these agree. Each worker describes itself, and is refused if
its description differs from that of the process that started the run.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bpinn
from bpinn import native, portable
from bpinn.compiling import BLOCK
from bpinn.fields import MLP
from bpinn.model import Model
from bpinn.posterior import Posterior
from bpinn.problem import Problem, Sensors
from bpinn.run_folder.manifest import versions

# Settings of JAX that change what is computed.
FLAGS = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_disable_most_optimizations", "jax_default_prng_impl",
    "jax_threefry_partitionable", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_debug_nans",
    "jax_debug_infs",
)  # fmt: skip
INSTRUCTIONS = ("sse4", "avx", "fma", "f16c", "bmi", "amx")  # sets of instructions that compilers choose from
PROCESSOR = ("processor", "native kernel", "BLAS", "network", "functions", "linear algebra")  # what it decides
SIZE = 150  # of the matrices: from here on BLAS divides the work among threads


def flags() -> dict[str, Any]:
    """JAX's settings in this thread."""
    return {name: getattr(jax.config, name) if hasattr(jax.config, name) else jax.config.read(name) for name in FLAGS}


def set_flags(wanted: Mapping[str, Any]) -> None:
    now = flags()
    for name, value in wanted.items():
        if now[name] != value:
            jax.config.update(name, value)


def blas_threads() -> int:
    """Number of threads of the library that LAPACK calls of XLA run in; results of large matrices depend on it."""
    return max([int(library["num_threads"]) for library in _blas()], default=1)


def set_blas_threads(count: int) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(count, user_api="blas")


def _blas() -> list[dict[str, Any]]:
    import scipy.linalg  # noqa: F401  it brings the library that JAX calls
    from threadpoolctl import threadpool_info

    return [library for library in threadpool_info() if library["user_api"] == "blas"]


def description() -> dict[str, str]:
    """Everything that decides the last bits, by name, in the precision and with the flags of this thread."""
    python, minor, _ = platform.python_version_tuple()
    found = versions() | {"python": f"{python}.{minor}"}
    found["bpinn"] += f" ({_sources()})"
    set_by_user = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith("--xla_cpu")]
    found["XLA_FLAGS"] = " ".join(sorted(set_by_user)) or "none"
    found["backend"] = jax.default_backend()
    found["processor"] = _processor()
    kernel = native.library()
    found["native kernel"] = "none" if kernel is None else _hash(Path(kernel._name).read_bytes())
    named = {f"{b.get('internal_api')} {b.get('version')} for {b.get('architecture')}" for b in _blas()}
    found["BLAS"] = ", ".join(sorted(named)) or "none"
    return found | {name: _hash(np.asarray(value).tobytes()) for name, value in _computed().items()}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """How another description differs, as the end of a sentence; empty if it does not."""
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    stated = [name for name in names if name not in PROCESSOR]
    if stated:
        parts = [f"{name} is {there.get(name)} there and {here.get(name)} here" for name in stated]
        return f"{', '.join(parts)}; install the same versions and set the same flags"
    if names:
        shown = [n for n in names if n in ("processor", "BLAS")]
        parts = [f"{name} is {there.get(name)} there and {here.get(name)} here" for name in shown]
        what = ", ".join(parts) or f"a fixed computation gives other numbers ({', '.join(names)})"
        return f"{what}; draws would not be the same bit for bit (see portable arithmetic in docs/clusters.md)"
    return ""


def _sources() -> str:
    """Hash of the code: versions under development share a number."""
    root = Path(bpinn.__file__).parent
    files = sorted(path for kind in ("*.py", "*.c", "*.h") for path in root.rglob(kind))
    return _hash(b"\0".join(path.read_bytes() for path in files))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _processor() -> str:
    """The instruction sets that a compiler for this machine uses."""
    lines = native.processor().partition(":")[2].split()
    if portable.is_on() and {"avx2", "fma"} <= set(lines):
        return f"{platform.machine()}, portable"
    known = [flag for flag in lines if flag.startswith(INSTRUCTIONS)]
    return f"{platform.machine()} {' '.join(sorted(known))}".strip()


def _computed() -> dict[str, Any]:
    """A network with its gradient (the native kernel if it is in use), functions and sums, and linear algebra."""
    x = np.linspace(-1.0, 1.0, 12)

    def law(u, u_xx):
        return u_xx + jnp.sin(u)

    sensors = {"law": Sensors(law, {"x": x}, np.cos(x), 0.1), "u": Sensors("u", {"x": x}, np.sin(3 * x), 0.1)}
    problem = Problem({"x": (-1.0, 1.0)}, {"u": MLP(hidden=(9, 7))}, sensors)
    posterior = Posterior(problem, native=True)
    z = jnp.asarray(np.sin(np.arange(posterior.dim)), float)
    return _probe(posterior.model, posterior.data, z)


@partial(jax.jit, static_argnames="model", compiler_options=BLOCK)
def _probe(model: Model, data: Any, z: Any) -> dict[str, Any]:
    noise = jax.random.normal(jax.random.key(0), (SIZE, SIZE))
    matrix = noise @ noise.T + SIZE * jnp.eye(SIZE)
    half = jnp.linalg.cholesky(matrix)
    solved = jax.scipy.linalg.solve_triangular(half, noise, lower=True)
    curves = jnp.stack([jnp.tanh(noise), jnp.exp(noise), jax.scipy.special.erf(noise), jnp.log(noise**2)])
    return {
        "network": jax.grad(model.log_density)(z, data),
        "functions": jnp.concatenate([jnp.sum(curves, axis=(1, 2)), jnp.ravel(noise[:3] @ noise)]),
        "linear algebra": jnp.stack([half, solved]),
    }
