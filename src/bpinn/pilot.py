"""The first seconds of a run as a measurement: what its steps cost, and how well its chains mix.

Problems of the same size and kind differ by factors of ten in gradients per draw, and of five in the draws that they
need (6 to 120 gradients, 200 to 1600 draws on the templates and the gallery), so both are measured.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bpinn import engine
from bpinn.convergence import GOOD_ESS, GOOD_ESS_SECONDARY, ess_of, statistics
from bpinn.engine import Progress, interrupts
from bpinn.engine.advance import Program, Request
from bpinn.engine.scheduler import Threads
from bpinn.methods import Method
from bpinn.posterior import Posterior

# Processor seconds of each chain after compiling. A pilot ends after the first, if it has so many draws by then; and
# after the second in any case. Warm-up and 100 draws took 0.1 to 6 s on the templates and on problems of the gallery.
ENOUGH, MOST = 2.5, 8.0
DRAWS = 100  # from fewer, the effective draws of a run were often wrong by more than a factor of 2
FEWEST = 20  # from which there is an effective number at all
COMPILED = "/jax/core/compile/backend_compile_duration"  # what JAX calls them


@dataclass(frozen=True)
class Pilot:
    """What some chains of a run did, all at the same time.

    Seconds are processor time divided by the number of chains, so that other programs on the machine hardly matter;
    only those before the first step are not divided.
    """

    chains: int
    preparing: float  # before the first step: tracing, compiling, and what the first chain starts with
    compiling: float  # the part of it that the next run of the problem reads from the cache instead
    warming: float  # of warm-up
    warmed: int  # steps of warm-up that every chain did
    is_warm: bool  # whether these were all
    drawing: float = 0.0  # of the draws
    drawn: int = 0  # draws that every chain made
    recent: float = 0.0  # of one draw at the end, when trajectories have the length that they keep
    ess: float = 0.0  # effective draws of all chains together, see `effective`
    is_complete: bool = False  # whether the run would have ended there


class _Timed(Threads):
    """Notes when the first block of a stage starts; what comes before is compiling."""

    started: tuple[float, float] | None = None

    def prepare(self, program: Program, request: Request) -> Any:
        self.started = None
        return super().prepare(program, request)

    def submit(self, program: Program, request: Request, deliver: Callable[[Any], None]) -> None:
        self.started = self.started or _now()
        super().submit(program, request, deliver)


def pilot(posterior: Posterior, method: Method, seed: int, chains: int) -> Pilot:
    """Run so many chains for some seconds after compiling. Ctrl-C stops it as it stops a run."""
    scheduler, begun = _Timed(chains, first=[statistics]), _now()
    seen: list[tuple[float, int]] = []  # since the first step: seconds of a chain, and steps that every chain has done
    last: list[Progress] = []

    def watch(progress: Progress) -> None:
        if last and last[-1].running != progress.running:
            seen.clear()
        last[:] = [progress]
        assert scheduler.started is not None
        seen.append(((time.process_time() - scheduler.started[0]) / chains, progress.slowest))

    def is_over() -> bool:
        if not seen:
            return False
        enough = seen[-1][1] >= last[-1].running.num_warmup + DRAWS
        return seen[-1][0] > (ENOUGH if enough else MOST)

    complete = False
    with interrupts.listening(), _cacheable() as compiling, interrupts.until(is_over):
        try:
            draws = engine.run(posterior, method, seed=seed, chains=chains, report=watch, scheduler=scheduler)
            complete = not draws.interrupted
        except interrupts.Stopped:
            pass
    if not (complete or is_over()):
        raise KeyboardInterrupt
    assert scheduler.started is not None
    preparing, waited = scheduler.started[0] - begun[0], scheduler.started[1] - begun[1]
    # JAX measures by the clock: beside other programs that is more than its processor time.
    compiled = sum(compiling) * min(preparing / waited, 1.0)
    progress = last[0]
    functionals = progress.functionals()
    ess = 0.0
    if functionals is not None and functionals.shape[1] >= FEWEST:
        ess = effective(functionals, progress.monitor.is_secondary)
    phases = spent(seen, progress.running.num_warmup)
    return Pilot(chains, preparing, compiled, **phases, ess=ess, is_complete=complete)


def _now() -> tuple[float, float]:
    """Processor time, and that of the clock."""
    return time.process_time(), time.perf_counter()


def spent(seen: list[tuple[float, int]], warmup: int) -> dict[str, Any]:
    """Seconds of warm-up and of draws, from the seconds and steps at several times."""
    end, done = seen[-1]
    warm = next((seconds for seconds, steps in seen if steps >= warmup), None)
    if warm is None:
        return {"warming": end, "warmed": done, "is_warm": False}
    found = {"warming": warm, "warmed": warmup, "is_warm": True, "drawing": end - warm, "drawn": done - warmup}
    half = next((row for row in seen if row[1] > warmup and row[1] - warmup >= (done - warmup) / 2), (warm, warmup))
    if done > half[1]:
        found["recent"] = (end - half[0]) / (done - half[1])
    elif done > warmup:
        found["recent"] = (end - warm) / (done - warmup)
    return found


def effective(functionals: np.ndarray, secondary: np.ndarray) -> float:
    """Effective draws of the worst quantity; those of secondary ones count for more, as fewer are needed."""
    worth = np.where(secondary, GOOD_ESS / GOOD_ESS_SECONDARY, 1.0)
    return float(np.min(ess_of(functionals) * worth))


@contextmanager
def _cacheable() -> Iterator[list[float]]:
    """The durations of compilations that JAX reports, of those that it keeps if it has a cache."""
    found: list[float] = []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED and duration_secs >= jax.config.values["jax_persistent_cache_min_compile_time_secs"]:
            found.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
