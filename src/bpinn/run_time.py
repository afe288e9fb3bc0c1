"""What a run would take: its size, and roughly its time."""

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bpinn.advice import EXPANSION
from bpinn.engine import available_cores
from bpinn.fields import MLP
from bpinn.inference import memory_of
from bpinn.methods import Collapsed
from bpinn.methods.hamiltonian import Sampler
from bpinn.pilot import Pilot, pilot
from bpinn.posterior import Posterior
from bpinn.problem import Problem
from bpinn.problem_file import ProblemFile

# Effective draws of all chains when runs ended: 340 to 840 on the templates and the gallery, because it takes so many
# until R-hat is below its limit; and the effective draws of each draw, which are known as if by so many draws.
EFFECTIVE, WORTH, KNOWN = 600.0, 0.3, 100
# Where warm-up is still going on when the pilot ends: typical steps and draws, and what a draw then costs in steps of
# warm-up, whose last trajectories are longer than the first.
WARMUP, TYPICAL_DRAWS, GROWN = 375, 500, 1.3
READ = 2.5  # seconds that tracing takes at least, if what was compiled is read from the cache
# Factor between the middle of the range and its ends: after a pilot with draws, and after one without.
SPREAD, WIDE = 1.5, 2.0
MANY_POINTS = 100  # from which networks of several coordinates are slow (docs/howto/choices.md)
REPEATS = 3  # the shortest is used: other programs only make it longer


def facts_of(found: ProblemFile) -> dict[str, Any]:
    """The size of a problem and its method, and the approximate seconds of a run if they can be told.

    They are those that the run reports: from its start to its last draw, without the report, on a machine that does
    nothing else.
    """
    posterior = Posterior(found.problem, native=True)
    chains = found.chains or found.method.chains
    micro = _gradient_microseconds(posterior)
    seconds, spread = None, WIDE
    if isinstance(found.method, Sampler | Collapsed):
        measured = pilot(Posterior(found.problem), found.method, found.seed, min(chains, available_cores()))
        is_kept = jax.config.values["jax_compilation_cache_dir"] is not None
        seconds, spread = seconds_of(measured, found.method, chains, is_kept)
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
        "between": None if seconds is None else [seconds / spread, seconds * spread],
        "notes": [*found.notes, *_slow_fields(found.problem)],
    }


def seconds_of(measured: Pilot, method: Sampler | Collapsed, chains: int, is_kept: bool) -> tuple[float, float]:
    """Seconds of a run by its pilot, and the factor by which they may be wrong.

    ``is_kept`` says whether the run reads from a cache what was compiled for the pilot.
    """
    stage = method.stages()[-1]
    preparing = measured.preparing
    if is_kept:
        preparing = min(max(preparing - measured.compiling, READ), preparing)
    step = measured.warming / max(measured.warmed, 1)
    warming = measured.warming
    if not measured.is_warm:
        warming = step * (min(WARMUP, stage.num_warmup) if stage.until_warm else stage.num_warmup)
    least = stage.policy().next_pause(stage.num_warmup) - stage.num_warmup
    most = stage.num_steps - stage.num_warmup
    draws, spread = float(np.clip(TYPICAL_DRAWS, least, most)), WIDE
    if measured.ess:
        worth = (measured.ess + WORTH * KNOWN) / (measured.drawn * measured.chains + KNOWN)
        draws = EFFECTIVE / (worth * chains)
        draws, spread = float(np.clip(draws, least, most)), SPREAD
    if measured.is_complete:
        draws = min(draws, measured.drawn)
    new = draws - measured.drawn
    drawing = measured.drawing * min(draws / max(measured.drawn, 1), 1.0)
    drawing += max(new, 0.0) * (measured.recent or GROWN * method.thin * step)
    return preparing + chains / measured.chains * (warming + drawing), spread


def in_words(between: Sequence[float]) -> str:
    """A range of seconds, rounded."""
    unit, name = (1.0, "s") if between[1] < 120 else (60.0, "min") if between[1] < 7200 else (3600.0, "h")
    low, high = (_rounded(end / unit) for end in between)
    return f"{low} to {high} {name}" if low != high else f"{low} {name}"


def _rounded(number: float) -> str:
    """At most two digits that count."""
    return f"{number:.1f}" if number < 3 else f"{float(f'{number:.2g}'):.0f}"


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
