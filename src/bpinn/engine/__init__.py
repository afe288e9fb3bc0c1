"""The engine: chains run in compiled blocks of steps, in parallel over cores, and the host acts between blocks.

`advance` is a block as a pure function; `store` keeps the records of a chain; `scheduler` decides what runs where; a
stage's `Policy` reviews chains at pauses; `stage_run` connects them, and `run` executes the stages of a method.
"""

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bpinn.convergence import statistics
from bpinn.engine import interrupts
from bpinn.engine.advance import Program, suited
from bpinn.engine.gather import Draws as Draws
from bpinn.engine.gather import complete, draws_of, history_of
from bpinn.engine.records import joined
from bpinn.engine.scheduler import Scheduler, Threads
from bpinn.engine.scheduler import available_cores as available_cores
from bpinn.engine.stage_run import Progress as Progress
from bpinn.engine.stage_run import StageRun
from bpinn.engine.store import Chain
from bpinn.errors import InputError
from bpinn.methods import Method
from bpinn.monitor import Monitor
from bpinn.parameters import Parameters
from bpinn.posterior import Posterior
from bpinn.problem import Problem
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_output import RunOutput

MOST_MAPPINGS = 30_000  # of memory; Linux allows 65,530 a process, and a compiled run takes some hundred


def make_room(anywhere: bool = False) -> None:
    """Drop compiled programs if there are very many: beyond the limit of memory mappings XLA crashes as it compiles.

    A process that infers a hundred different problems would reach it. What is needed again is compiled again. Only the
    main thread does it, unless ``anywhere``.
    """
    mappings, main = Path("/proc/self/maps"), threading.current_thread() is threading.main_thread()
    if (main or anywhere) and mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


def run(
    posterior: Posterior,
    method: Method,
    *,
    seed: int,
    chains: int,
    cores: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    checkpoint: Checkpoint | None = None,
    scheduler: Scheduler | None = None,
) -> Draws:
    """Run every stage of a method; on Ctrl-C keep the draws so far, or draw from the fit as it is.

    Chains are added as long as the method needs more. With a checkpoint each block is written to disk, and an existing
    run is resumed.
    """
    make_room()
    # The statistics module that the verdict needs is imported while the first stage compiles.
    scheduler = Threads(cores, first=[statistics]) if scheduler is None else scheduler
    finished: dict[int, list[Chain]] = {}
    more, seconds, draws = chains, dict[str, float](), None
    try:
        while more:
            try:
                found = _run(posterior, method, seed, chains, report, checkpoint, scheduler, finished)
            except KeyboardInterrupt:
                if draws is None:
                    raise
                interrupts.answered()
                draws.interrupted = True
                return draws
            if found.interrupted and draws is not None:  # the draws of those that were finished before
                draws.interrupted = True
                return draws
            seconds = {name: seconds.get(name, 0.0) + value for name, value in found.seconds.items()}
            draws, found.seconds = found, seconds
            more = 0 if draws.interrupted else method.more_chains(_output(posterior.monitor, draws))
            chains += more
        assert draws is not None
        return draws
    finally:
        scheduler.close()


def _output(monitor: Monitor, draws: Draws) -> RunOutput:
    return RunOutput(monitor.names, monitor.is_secondary, draws.functionals, draws.stats, draws.history)


def _run(
    posterior: Posterior,
    method: Method,
    seed: int,
    chains: int,
    report: Callable[[Progress], None],
    checkpoint: Checkpoint | None,
    scheduler: Scheduler,
    finished: dict[int, list[Chain]],
) -> Draws:
    """All stages, for the chains that are not ``finished``; those that are, by stage, are added to it at the end."""
    positions: list[Any] = [None] * chains
    seconds: dict[str, float] = {}
    history: dict[str, np.ndarray] = {}
    interrupted = False
    stages = method.stages()
    posterior = suited(posterior, method)
    for number, stage in enumerate(stages):
        last = number == len(stages) - 1
        if interrupted and not last:
            continue  # straight to the draws
        started = time.perf_counter()
        program = Program(posterior, method, number, seed)
        state = StageRun(program, positions, method.kept if last else 0, scheduler, report, finished.get(number, []))
        if checkpoint is not None and not interrupted:  # draws from an interrupted fit are not stored: it can resume
            state.restore(checkpoint)
            state.catch_up()
        try:
            state.compile()
            interrupts.raise_if_noted()
        except KeyboardInterrupt:
            if not history:
                raise
            interrupts.answered()
            interrupted = True  # keep what was fitted before, and draw from it
            if not last:
                continue
            state.compile()
        seconds[f"{stage.name} (compile)"] = time.perf_counter() - started
        started = time.perf_counter()
        stopped = state.run()
        if last:
            interrupted |= interrupts.was_noted()
            interrupts.answered()
            interrupts.hold()  # the draws must not be lost now
        if 0 < stage.num_warmup < stage.num_steps and state.warmed:
            seconds["warm-up"] = state.warmed - started
            started = state.warmed
        seconds[stage.name] = time.perf_counter() - started
        if stopped and (complete(state.chains) == 0 if last else not stage.may_stop):
            raise interrupts.Stopped(
                "stopped during warm-up, before the first draw; a run in a folder (out=) can be resumed"
            )
        interrupted |= stopped
        if any(chain.state is None for chain in state.chains):
            raise interrupts.Stopped("stopped before every chain had started")
        positions = positions if last else state.ends()
        finished[number] = state.chains
        if stage.has_history:
            history = joined(history, history_of(state.chains))
    draws = state.gather()
    draws.history, draws.seconds, draws.interrupted = history, seconds, interrupted or interrupts.was_noted()
    return draws


def stored(problem: Problem, method: Method, chains: int, checkpoint: Checkpoint, dtype: np.dtype) -> Draws | None:
    """The draws of an unfinished run that all chains have on disk; None if there are none yet. Nothing is run."""
    dim, functionals = Parameters(problem).dim, len(Monitor(problem).names)
    stages = method.stages()
    found: list[list[Chain]] = []
    for number, stage in enumerate(stages):
        keep = method.kept if number == len(stages) - 1 else 0
        found.append([Chain(i, stage, keep, checkpoint.chain(number, i)) for i in range(chains)])
        for chain in found[-1]:
            try:
                chain.read(dim, functionals)
            except InputError:
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                where = checkpoint.chain(number, chain.number).folder
                raise InputError(f"{where}: its files do not belong to this run ({error!r})") from None
    if not complete(found[-1]):
        return None
    history: dict[str, np.ndarray] = {}
    for of_stage in found:
        if of_stage[0].stage.has_history and all(chain.before for chain in of_stage):
            history = joined(history, history_of(of_stage))
    draws = draws_of(found[-1], dim, partial(checkpoint.collect, len(stages) - 1, dim=dim, dtype=dtype))
    draws.history, draws.interrupted = history, True
    return draws
