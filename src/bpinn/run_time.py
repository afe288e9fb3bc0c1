"""What a run would take: its size, and roughly its time."""

import time
from typing import Any

import jax

from bpinn.advice import EXPANSION
from bpinn.engine import available_cores
from bpinn.fields import MLP
from bpinn.inference import memory_of
from bpinn.methods import HMC, Collapsed
from bpinn.methods.collapsed import NEWTON
from bpinn.posterior import Posterior
from bpinn.problem import Problem
from bpinn.problem_file import ProblemFile

START_SECONDS = 5.0  # tracing and compiling, or reading what was compiled before
# A step in whitened coordinates takes longer than the gradient: 1 to 3.4 times on the templates curve, inverse-1d and
# ode-system (CPU seconds of their runs, 2 cores).
WHITENED = 2.5
MANY_POINTS = 100  # from which networks of several coordinates are slow (docs/howto/choices.md)
REPEATS = 3  # the shortest is used: other programs only make it longer


def facts_of(found: ProblemFile) -> dict[str, Any]:
    """The size of a problem and its method, and the approximate seconds of a run if they can be told.

    They are those of chains that mix well, on a machine that does nothing else.
    """
    posterior = Posterior(found.problem, native=True)
    chains = found.chains or found.method.chains
    micro = _gradient_microseconds(posterior)
    seconds = None
    if isinstance(found.method, HMC):
        steps = found.method.first_length * ((found.method.num_warmup or 350) + (found.method.num_draws or 400))
        whitened = WHITENED if found.method.coordinates == "whitened" else 1.0
        seconds = START_SECONDS + 1e-6 * micro * whitened * steps * chains / min(chains, available_cores())
    if isinstance(found.method, Collapsed):
        scalars = posterior.dim - posterior.model.parameters.num_weights
        newton = WHITENED * NEWTON * (2 * scalars + 1)
        steps = found.method.num_warmup + found.method.thin * (found.method.num_draws or 400)
        seconds = START_SECONDS + 1e-6 * micro * (newton + steps) * chains / min(chains, available_cores())
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
        "notes": [*found.notes, *_slow_fields(found.problem)],
    }


def _slow_fields(problem: Problem) -> list[str]:
    """Networks of several coordinates with an equation at many points: chains need many gradients."""
    points = sum(len(r.values) for r in problem.readings if r.is_exact)
    networks = [name for name, f in problem.fields.items() if isinstance(f, MLP) and len(problem.inputs(name)) > 1]
    if points < MANY_POINTS or not networks:
        return []
    names = f"{', '.join(networks)}: networks" if len(networks) > 1 else f"{networks[0]}: a network"
    return [
        f"{names} of several coordinates with {points} points of equations; chains are much faster with {EXPANSION}"
    ]


def _gradient_microseconds(posterior: Posterior, steps: int = 50) -> float:
    """Time of one gradient in a compiled loop."""
    gradient = jax.grad(posterior.log_density)

    @jax.jit
    def loop(z: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, steps, lambda _, z: z + 1e-12 * gradient(z), z)

    z = 0.1 * posterior.sample_prior(jax.random.key(0), 1)[0]
    jax.block_until_ready(loop(z))
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(loop(z))
        seconds.append(time.perf_counter() - started)
    return 1e6 * min(seconds) / steps
