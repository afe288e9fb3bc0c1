"""The engine: compiled blocks of steps, again and again, chains over cores, with the host in between.

A chain's key comes from the seed and the chain's number, a step's key from the chain's key and
the step's number: draws do not depend on how chains are laid over cores, nor on the size of blocks.

Each chain runs the same single-chain program, one Python thread a core (a thread lets go of the
interpreter while XLA runs). Against one host device a core with ``shard_map`` this needs no global
JAX flag, compiles once, and draws are bit for bit those of a single core.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.convergence import statistics
from bpinn.engine import interrupts
from bpinn.engine.records import Watched, arrays_of, between, concatenated, joined, record_of, side_by_side
from bpinn.errors import DamagedError, InputError
from bpinn.methods import Method
from bpinn.methods.base import Record, Stage
from bpinn.posterior import Model, Posterior
from bpinn.run_folder.files import ChainFolder, Checkpoint

BLOCK_STEPS = 100  # most steps in a block: what the device buffers before the host takes it
BLOCK_SECONDS = 0.5  # how long a block should last, so that progress moves and Ctrl-C is heard
# A block is one chain on one core; threads inside it would only get in each other's way. The library of fused
# matrix products (ynn) has threads of its own and is slower at these sizes.
COMPILER_OPTIONS = {"xla_cpu_multi_thread_eigen": False, "xla_cpu_experimental_ynn_fusion_type": ""}

REMOVE = "remove the folder to have the chain drawn again"
RESTART = 2**30  # what a chain's key is folded with when it begins anew, beyond the number of any step

traces = 0  # how often a block was traced, watched by a test


@partial(jax.jit, static_argnames=("stage", "model"), compiler_options=COMPILER_OPTIONS)
def _init(stage: Stage, model: Model, data: Any, key: Array, previous: Any) -> Any:
    # Without weak types, which a state that comes from a file would not have either.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), stage.init(model, data, key, previous))


@partial(jax.jit, static_argnames=("stage", "model", "size"), compiler_options=COMPILER_OPTIONS)
def _block(
    stage: Stage, model: Model, data: Any, state: Any, key: Array, first: Array, count: Array, *, size: int
) -> Any:
    """``count`` steps from step ``first``, at most ``size``; records beyond ``count`` are not to be read."""
    global traces
    traces += 1

    def one(state: Any, step: Array) -> tuple[Any, Record]:
        return stage.step(model, data, state, jax.random.fold_in(key, step), step)

    shapes = jax.eval_shape(one, state, first)[1]
    buffers = jax.tree.map(lambda s: jnp.zeros((size, *s.shape), s.dtype), shapes)

    def body(i: Array, carry: Any) -> Any:
        state, buffers = carry
        state, record = one(state, first + i)
        return state, jax.tree.map(lambda b, r: b.at[i].set(r), buffers, record)

    return jax.lax.fori_loop(0, count, body, (state, buffers))


@dataclass
class Chain:
    """One chain of a stage: its state on the device and its records on the host."""

    number: int
    key: Array
    state: Any
    done: int = 0
    finished: bool = False
    restarts: int = 0  # how often it was lost and began anew
    step: int = 0  # of a fit, its own
    latest: dict[str, np.ndarray] = field(default_factory=dict)  # statistics of its last block
    records: deque[Record] = field(default_factory=deque)


@dataclass
class Progress:
    """What a display is told between blocks."""

    stage: str
    chains: list[Chain]
    num_steps: int
    num_warmup: int
    steps_per_record: int
    until_good: bool  # whether there may be fewer steps, as soon as they are enough
    until_warm: bool  # whether warm-up may be shorter
    equations: np.ndarray  # which of the functionals are equations
    unknowns: list[str]  # what the last of the functionals are
    started: float
    functionals: Callable[[], np.ndarray | None]


@dataclass
class Draws:
    """What came out of the engine: rectangular arrays (chains, draws, ...).

    ``history`` has what fits told of their steps, (chains, records), NaN where a chain ended
    before the others.
    """

    z: np.ndarray
    functionals: np.ndarray
    stats: dict[str, np.ndarray]
    history: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


def run(
    posterior: Posterior,
    method: Method,
    *,
    seed: int,
    chains: int,
    cores: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    checkpoint: Checkpoint | None = None,
) -> Draws:
    """Run every stage of a method; on Ctrl-C keep the draws that are done, or draw from what is fitted so far.

    With a checkpoint each block goes to disk, and what is there is taken up.
    """
    model, data = posterior.model.compiled(), posterior.data
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(chains)]
    positions: list[Any] = [None] * chains
    seconds: dict[str, float] = {}
    history: dict[str, np.ndarray] = {}
    interrupted = False
    stages = method.stages()
    # A precision set by `with jax.enable_x64(True)` is one thread's own; the chains' threads take it over.
    double = jnp.result_type(float) == jnp.float64
    with ThreadPoolExecutor(max_workers=cores or len(os.sched_getaffinity(0))) as pool:
        pool.submit(statistics)  # which the verdict needs, while the first stage compiles
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            if interrupted and not last:
                continue  # straight to the draws
            started = time.perf_counter()
            work = [Chain(i, jax.random.fold_in(key, number), None) for i, key in enumerate(keys)]
            equations = posterior.monitor.is_equation
            kept = method.kept if last else 0
            unknowns = list(posterior.monitor.number_names)
            state = _StageRun(stage, model, data, equations, unknowns, work, kept, pool, report, double)
            if checkpoint is not None and not interrupted:  # draws of a fit that was stopped are not the run's
                state.take_up(checkpoint, number, positions)
            try:
                state.compile(positions)
                interrupts.raise_if_noted()
            except KeyboardInterrupt:
                if not history:
                    raise
                interrupts.answered()
                interrupted = True  # what was fitted before is kept: draw from it
                if not last:
                    continue
                state.compile(positions)
            seconds[f"{stage.name} (compile)"] = time.perf_counter() - started
            started = time.perf_counter()
            stopped = state.go(positions)
            if last:
                interrupted |= interrupts.was_noted()
                interrupts.answered()
                interrupts.hold()  # what is drawn is not to be lost now
            if 0 < stage.num_warmup < stage.num_steps and state.warmed:
                seconds["warm-up"] = state.warmed - started
                started = state.warmed
            seconds[stage.name] = time.perf_counter() - started
            if stopped and (state.complete() == 0 if last else not stage.may_stop):
                raise KeyboardInterrupt("stopped before the first draw; nothing to keep")
            interrupted |= stopped
            positions = [stage.position(chain.state) for chain in work]
            if stage.told:
                history = joined(history, state.history())
        draws = state.gather()
    draws.history, draws.seconds, draws.interrupted = history, seconds, interrupted or interrupts.was_noted()
    return draws


class _StageRun:
    """All chains of one stage."""

    def __init__(
        self,
        stage: Stage,
        model: Model,
        data: Any,
        equations: np.ndarray,
        unknowns: list[str],
        chains: list[Chain],
        keep: int | None,
        pool: ThreadPoolExecutor,
        report: Callable[[Progress], None],
        double: bool,
    ):
        self.stage, self.model, self.data, self.equations, self.double = stage, model, data, equations, double
        self.unknowns, self.keys = unknowns, [chain.key for chain in chains]
        self.chains, self.keep, self.pool, self.report = chains, keep, pool, report
        self.warmup: list[list[dict[str, np.ndarray]]] = [[] for _ in chains]
        self.watched: list[list[Watched]] = [[] for _ in chains]  # of all steps, for reviews
        self.reviewed = 0  # the last pause
        self.pause = stage.pause_after(0)
        self.warmed = 0.0  # when the last chain was through its warm-up
        self.checkpoint: Checkpoint | None = None
        self.number = 0  # of the stage, on disk
        self.folders: list[ChainFolder] = []
        self.seconds_per_step = 0.0

    def take_up(self, checkpoint: Checkpoint, number: int, positions: Sequence[Any]) -> None:
        """Go on from what is on disk, and write there from now on; draws are then not held in memory."""
        self.checkpoint, self.number = checkpoint, number
        self.folders = [checkpoint.chain(number, chain.number) for chain in self.chains]
        init = partial(self.stage.init, self.model, self.data)
        wanted = jax.eval_shape(init, self.chains[0].key, positions[0])
        for chain in self.chains:
            folder = self.folders[chain.number]
            try:
                self._restore(chain, wanted)
            except DamagedError as error:
                checkpoint.forget(number, chain.number, error)
                self._begin(chain, folder.restarts)
            except InputError:
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise InputError(f"{folder.folder}: its files are not this run's ({error!r}); {REMOVE}") from None
        # The last pause that all have come to: those that are still there have not heard what was said at it.
        while self.pause <= min(chain.done for chain in self.chains) and self.pause < self.stage.num_steps:
            self._review()

    def _restore(self, chain: Chain, wanted: Any) -> None:
        """A chain from its blocks and its state on disk, which is like ``wanted``."""
        folder = self.folders[chain.number]
        done, leaves, blocks = folder.read()
        self._begin(chain, folder.restarts)
        if not done:
            folder.clear()  # blocks without a state, of a chain that was being forgotten
            return
        shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(wanted)]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != shapes:
            raise InputError(
                f"{folder.folder}: its state is not one that this version and precision make; go on with those that "
                f"the run was begun with, or {REMOVE}"
            )
        for first, arrays in blocks:
            count, record = int(arrays["count"]), record_of(arrays)
            rows = {"z": (count, self.model.dim), "functionals": (count, len(self.equations))}
            if any(arrays[name].shape != shape for name, shape in rows.items() if name in arrays):
                raise InputError(f"{folder.folder}: its block from step {first} is not this run's; {REMOVE}")
            self._keep(chain, record, first + count)
        chain.state = jax.tree.unflatten(jax.tree.structure(wanted), [jnp.asarray(leaf) for leaf in leaves])
        chain.finished = done >= self.stage.num_steps or self.stage.finished(chain.state)

    def compile(self, positions: Sequence[Any]) -> None:
        """Compile on a block of no steps, before the chains' threads start; the first state meanwhile, in a thread."""
        first = self.chains[0]
        if all(chain.finished for chain in self.chains):
            return
        if first.state is not None:
            self._run_block(first, first.state, 0)
            return
        given = self.stage, self.model, self.data, first.key, positions[0]
        shapes = _init.eval_shape(*given)  # which traces it, here: two threads would do so one after the other
        state = self.pool.submit(self._precisely, _init, *given)
        self._run_block(first, jax.tree.map(lambda a: jnp.asarray(np.zeros(a.shape, a.dtype)), shapes), 0)
        first.state = state.result()

    def _precisely(self, function: Callable, *args: Any) -> Any:
        with jax.enable_x64(self.double):
            return function(*args)

    def _run_block(self, chain: Chain, state: Any, count: int) -> Any:
        numbers = jnp.int32(chain.done), jnp.int32(count)
        return _block(self.stage, self.model, self.data, state, chain.key, *numbers, size=BLOCK_STEPS)

    def go(self, positions: Sequence[Any]) -> bool:
        """Run all chains to the end; True if they were stopped."""
        progress = Progress(
            self.stage.name, self.chains, self.stage.num_steps, self.stage.num_warmup, self.stage.steps_per_record,
            self.stage.until_good, self.stage.until_warm, self.equations, self.unknowns, time.perf_counter(),
            self.functionals,
        )  # fmt: skip
        waiting: dict[Future, Chain] = {}
        idle = [chain for chain in self.chains if not chain.finished]
        stopped = False
        while waiting or (idle and not stopped):
            try:
                interrupts.raise_if_noted()
                for chain in [] if stopped else [chain for chain in idle if chain.done < self.pause]:
                    waiting[self.pool.submit(self._advance, chain, positions[chain.number])] = chain
                    idle.remove(chain)
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    chain = waiting.pop(future)
                    future.result()
                    if not chain.finished:
                        idle.append(chain)
                if idle and not waiting and not stopped and all(chain.done >= self.pause for chain in idle):
                    self._review()
                    idle = [chain for chain in self.chains if not chain.finished]
                if not self.warmed and all(chain.done >= self.stage.num_warmup for chain in self.chains):
                    self.warmed = time.perf_counter()
                self.report(progress)
            except KeyboardInterrupt:
                stopped = True
                interrupts.answered()
        return stopped

    def _review(self) -> None:
        """All chains are at a pause: the stage looks at them together, and says how to go on, or that it is enough.

        Chains that are past it, in a run that is taken up again, have heard it before.
        """
        done, warmup = self.pause, self.stage.num_warmup
        first = self.reviewed if done <= warmup else warmup
        seen = [between(rows, first, done) for rows in self.watched]
        functionals, stats = jax.tree.map(lambda *a: np.stack(a), *seen)
        review = self.stage.review(done, functionals, stats, self.equations, self.model.dim)
        lost = [self.chains[i] for i in review.lost]
        lost = [chain for chain in lost if chain.done == done and chain.restarts < self.stage.most_restarts]
        for chain in lost:
            if self.folders:
                self.folders[chain.number].begin_anew()
            self._begin(chain, chain.restarts + 1)
        if lost:
            return  # the others wait for them here
        for chain in self.chains:
            if chain.done > done:
                continue
            chain.finished = review.enough
            if review.news is not None:
                chain.state = self.stage.hear(chain.state, review.news)
            if review.warm:
                chain.done = warmup
        self.reviewed = warmup if review.warm else done
        self.pause = self.stage.pause_after(self.reviewed)

    def _begin(self, chain: Chain, restarts: int) -> None:
        """Put a chain before its first step, from its own start or from another."""
        if restarts:
            chain.key = jax.random.fold_in(self.keys[chain.number], RESTART + restarts)
        chain.restarts, chain.state, chain.done, chain.step, chain.finished = restarts, None, 0, 0, False
        chain.records.clear()
        chain.latest = {}
        self.warmup[chain.number].clear()
        self.watched[chain.number].clear()

    def _advance(self, chain: Chain, position: Any) -> None:
        """One block of one chain, in a thread of its own."""
        self._precisely(self._advance_here, chain, position)

    def _advance_here(self, chain: Chain, position: Any) -> None:
        stage = self.stage
        if chain.state is None:
            chain.state = _init(stage, self.model, self.data, chain.key, position)
        # A block ends where warm-up ends, so that its records are all of one kind.
        end = min(stage.num_warmup if chain.done < stage.num_warmup else stage.num_steps, self.pause)
        wanted = int(BLOCK_SECONDS / self.seconds_per_step) if self.seconds_per_step else 1
        count = min(max(wanted, 1), BLOCK_STEPS, end - chain.done)
        began = time.perf_counter()
        state, buffers = self._run_block(chain, chain.state, count)
        warming = chain.done < stage.num_warmup
        if warming:
            buffers = buffers._replace(z=None)
        record = jax.tree.map(lambda a: np.array(a[:count]), jax.device_get(buffers))
        self.seconds_per_step = (time.perf_counter() - began) / count
        if stage.told:
            # A fit that has stopped early still fills its block; only the steps that it took are of interest.
            took = np.diff(record.stats["step"], prepend=chain.step) > 0
            record = record._replace(stats={name: values[took] for name, values in record.stats.items()})
        if self.folders:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
            self.folders[chain.number].append(chain.done, count, arrays_of(record, count), leaves)
        chain.state = state
        self._keep(chain, record, chain.done + count)
        chain.finished = chain.done >= stage.num_steps or stage.finished(state)

    def _keep(self, chain: Chain, record: Record, done: int) -> None:
        """Take a block's records into memory, be it new or from disk."""
        if self.stage.told:
            chain.step = max([chain.step, *record.stats["step"]])
        if all(len(values) for values in record.stats.values()):
            chain.latest = record.stats
        if record.functionals is not None:
            self.watched[chain.number].append((done, record.functionals, record.stats))
        if done <= self.stage.num_warmup:
            self.warmup[chain.number].append(record.stats)
        else:
            chain.records.append(record if self.checkpoint is None else record._replace(z=None))
            self._drop_surplus(chain.records)
        chain.done = done

    def _drop_surplus(self, records: deque[Record]) -> None:
        if self.keep is None:
            return
        held = sum(len(r.stats["log_density"]) for r in records)
        while records and held - len(records[0].stats["log_density"]) >= self.keep:
            held -= len(records.popleft().stats["log_density"])

    def complete(self) -> int:
        """Draws that every chain has."""
        return max(0, min(chain.done for chain in self.chains) - self.stage.num_warmup)

    def functionals(self) -> np.ndarray | None:
        """Monitored quantities of the draws that every chain has, (chains, draws, functionals)."""
        parts = [[np.asarray(r.functionals) for r in list(chain.records)] for chain in self.chains]
        if not all(parts):
            return None
        rows = [np.concatenate(p) for p in parts]
        shortest = min(len(row) for row in rows)
        return np.stack([row[:shortest] for row in rows])

    def gather(self) -> Draws:
        """As many draws as every chain has, as rectangular arrays: the first ones, or with ``keep`` the last."""
        rows = []
        for chain in self.chains:
            records = list(chain.records)
            if not records:
                return Draws(np.zeros((len(self.chains), 0, self.model.dim)), np.zeros(0), {})
            rows.append(concatenated(records))
        count = min(len(row.stats["log_density"]) for row in rows)
        if self.keep is not None:
            count = min(count, self.keep)
        chosen = slice(0, count) if self.keep is None else slice(-count, None)
        record = jax.tree.map(lambda *a: np.stack([x[chosen] for x in a]), *rows)
        z = record.z
        if self.checkpoint is not None:
            ends = [self.stage.num_warmup + count if self.keep is None else chain.done for chain in self.chains]
            dtype = np.dtype(jnp.result_type(float))
            z = self.checkpoint.collect(self.number, [(end - count, end) for end in ends], self.model.dim, dtype)
        stats = record.stats
        if self.stage.most_restarts:
            stats["restarts"] = np.repeat(np.array([[chain.restarts] for chain in self.chains], np.int8), count, axis=1)
        return Draws(z, record.functionals, stats)

    def history(self) -> dict[str, np.ndarray]:
        """What the steps before the draws told, (chains, records), and the number of the step of each record."""
        rows = [concatenated(blocks) for blocks in self.warmup if blocks]
        return side_by_side(rows) if rows else {}
