"""What a run would take: its size, and roughly its time."""

import time
from typing import Any

import jax

from bpinn.engine import available_cores
from bpinn.inference import memory_of
from bpinn.methods import HMC
from bpinn.posterior import Posterior
from bpinn.problem_file import ProblemFile


def facts_of(found: ProblemFile) -> dict[str, Any]:
    """The size of a problem and its method, and the approximate seconds of a run if they can be told."""
    posterior = Posterior(found.problem, native=True)
    chains = found.chains or found.method.chains
    micro = _gradient_microseconds(posterior)
    seconds = None
    if isinstance(found.method, HMC):
        steps = found.method.first_length * ((found.method.num_warmup or 350) + (found.method.num_draws or 400))
        seconds = 1e-6 * micro * steps * chains / min(chains, available_cores())
    return {
        "title": found.title,
        "parameters": posterior.dim,
        "readings": sum(len(r.values) for r in found.problem.readings if not r.is_exact),
        "points": sum(len(r.values) for r in found.problem.readings if r.is_exact),
        "unknowns": list(found.problem.unknowns),
        "method": type(found.method).__name__,
        "chains": chains,
        "microseconds": micro,
        "mebibytes": memory_of(found.method, posterior.model, chains) / 2**20,
        "seconds": seconds,
        "notes": [*found.notes],
    }


def _gradient_microseconds(posterior: Posterior, steps: int = 50) -> float:
    """Time of one gradient in a compiled loop."""
    gradient = jax.grad(posterior.log_density)

    @jax.jit
    def loop(z: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, steps, lambda _, z: z + 1e-12 * gradient(z), z)

    z = 0.1 * posterior.sample_prior(jax.random.key(0), 1)[0]
    jax.block_until_ready(loop(z))
    started = time.perf_counter()
    jax.block_until_ready(loop(z))
    return 1e6 * (time.perf_counter() - started) / steps
