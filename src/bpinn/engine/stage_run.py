"""All chains of one stage: blocks are submitted, delivered and reviewed until every chain is finished."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bpinn.engine import interrupts
from bpinn.engine.advance import BLOCK_STEPS, Block, Program, Request
from bpinn.engine.gather import Draws, draws_of, functionals_of
from bpinn.engine.records import alike, between
from bpinn.engine.scheduler import Scheduler
from bpinn.engine.store import REMOVE, Chain
from bpinn.errors import DamagedError, InputError
from bpinn.methods.base import Pause, Stage
from bpinn.monitor import Monitor
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_output import SamplerStats

BLOCK_SECONDS = 0.5  # target duration of a block, so that progress updates and Ctrl-C is handled promptly


@dataclass
class Progress:
    """What a progress display receives between blocks."""

    running: Stage
    unit: str  # what each of the chains is called
    is_markov: bool  # whether R-hat and ESS of the draws are meaningful
    chains: list[Chain]
    monitor: Monitor
    functionals: Callable[[], np.ndarray | None]  # of the draws that every chain has
    started: float = field(default_factory=time.perf_counter)

    @property
    def stage(self) -> str:
        return self.running.name

    @property
    def slowest(self) -> int:
        """Steps that every chain has done."""
        return min(chain.done for chain in self.chains)

    @property
    def done(self) -> int:
        """Steps of all chains; a chain that ended early counts as if it had done all of its steps."""
        return sum(self.running.num_steps if chain.finished else chain.done for chain in self.chains)

    @property
    def total(self) -> int:
        return self.running.num_steps * len(self.chains)

    @property
    def figures(self) -> list[str]:
        """Figures of the sampler, such as the step size, once there are some."""
        latest = [chain.latest for chain in self.chains if chain.latest]
        return self.running.figures(latest) if latest else []


class StageRun:
    """The chains of a stage, which start at ``positions``, where the previous stage ended."""

    def __init__(
        self,
        program: Program,
        positions: Sequence[Any],
        keep: int | None,
        scheduler: Scheduler,
        report: Callable[[Progress], None],
        finished: Sequence[Chain] = (),
    ):
        """The first chains may be ``finished`` already, from an earlier run of the stage with fewer of them."""
        self.program, self.positions, self.scheduler, self.report = program, positions, scheduler, report
        self.stage, self.monitor = program.stage, program.posterior.monitor
        self.chains = [*finished, *(Chain(i, self.stage, keep) for i in range(len(finished), len(positions)))]
        self.policy = self.stage.policy()
        self.reviewed = 0  # the last pause
        self.pause = self.policy.next_pause(0)
        self.warmed = 0.0  # when the last chain finished its warm-up
        self.seconds_per_step = 0.0
        self.checkpoint: Checkpoint | None = None

    # --- what is on disk ---

    def restore(self, checkpoint: Checkpoint) -> None:
        """Read what is on disk, and write to it from now on; draws are then not held in memory."""
        self.checkpoint = checkpoint
        program = self.program
        like = program.shapes(self.positions[0])
        for chain in [chain for chain in self.chains if not chain.finished]:
            chain.folder = folder = checkpoint.chain(program.number, chain.number)
            try:
                chain.restore(like, program.model.dim, len(self.monitor.names))
            except DamagedError as error:
                checkpoint.forget(program.number, chain.number, error)
                chain.begin(folder.restarts)
            except InputError:
                raise
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                raise InputError(f"{folder.folder}: its files are not from this run ({error!r}); {REMOVE}") from None

    def catch_up(self) -> None:
        """Repeat the reviews up to the last pause that all chains have reached: chains that wait there need its
        decision, which is not stored."""
        while self.pause <= min(chain.done for chain in self.chains) and self.pause < self.stage.num_steps:
            self._review()

    # --- running ---

    def compile(self) -> None:
        """Compile before the blocks run; this may also compute the initial state of the first chain."""
        if not all(chain.finished for chain in self.chains):
            first = next(chain for chain in self.chains if not chain.finished)
            state = self.scheduler.prepare(self.program, self._request(first, 0))
            if state is not None:
                first.state = state

    def run(self) -> bool:
        """Run all chains to the end; True if they were stopped."""
        method = self.program.method
        progress = Progress(self.stage, method.unit, method.is_markov, self.chains, self.monitor, self.functionals)
        idle = [chain for chain in self.chains if not chain.finished]
        stopped = False
        while self.scheduler.is_busy or (idle and not stopped):
            try:
                interrupts.raise_if_noted()
                for chain in [] if stopped else [chain for chain in idle if chain.done < self.pause]:
                    self.scheduler.submit(self.program, self._request(chain, self._count(chain)), self._deliver)
                    idle.remove(chain)
                idle += [self.chains[i] for i in self.scheduler.wait() if not self.chains[i].finished]
                waiting = bool(idle) and not self.scheduler.is_busy and not stopped
                if waiting and all(chain.done >= self.pause for chain in idle):
                    self._review()
                    idle = [chain for chain in self.chains if not chain.finished]
                if not self.warmed and all(chain.done >= self.stage.num_warmup for chain in self.chains):
                    self.warmed = time.perf_counter()
                self.report(progress)
            except KeyboardInterrupt:
                stopped = True
                interrupts.answered()
        return stopped

    def _request(self, chain: Chain, count: int) -> Request:
        position, whole = self.positions[chain.number], self.checkpoint is not None
        return Request(chain.number, chain.restarts, chain.state, position, chain.done, count, whole)

    def _count(self, chain: Chain) -> int:
        """Number of steps of its next block. A block ends where warm-up ends, so that all its records are alike."""
        stage = self.stage
        end = min(stage.num_warmup if chain.done < stage.num_warmup else stage.num_steps, self.pause)
        left = end - chain.done
        affordable = int(BLOCK_SECONDS / self.seconds_per_step) if self.seconds_per_step else 1
        count = min(max(affordable, 1), BLOCK_STEPS, left)
        return min(count * self.scheduler.at_once(count * self.seconds_per_step, left // count), left)

    def _deliver(self, block: Block) -> None:
        self.seconds_per_step = block.seconds / block.count
        self.chains[block.chain].append(block, partial(self.scheduler.fetched, self.program))

    def _review(self) -> None:
        """All chains are at a pause: the policy decides how they continue.

        Chains that are already past it, in a resumed run, applied the decision before the run was stopped.
        """
        done, warmup = self.pause, self.stage.num_warmup
        first = self.reviewed if done <= warmup else warmup
        parts = alike([between(chain.reviewed, first, done) for chain in self.chains])
        record = jax.tree.map(lambda *a: np.stack(a), *parts)
        stats = SamplerStats(record.stats)
        pause = Pause(done, record.functionals, stats, self.monitor.is_secondary, self.program.model.dim)
        decision = self.policy.review(pause)
        lost = [self.chains[i] for i in decision.lost]
        lost = [chain for chain in lost if chain.done == done and chain.restarts < self.stage.most_restarts]
        for chain in lost:
            chain.restart()
        if lost:
            return  # the other chains wait for them here
        for chain in self.chains:
            if chain.done > done:
                continue
            chain.finished = decision.enough
            if decision.adjustment is not None:
                chain.state = self.scheduler.adjusted(self.program, chain.state, decision.adjustment)
            if decision.warm:
                chain.done = warmup
        self.reviewed = warmup if decision.warm else done
        self.pause = self.policy.next_pause(self.reviewed)

    # --- the outcome ---

    def functionals(self) -> np.ndarray | None:
        """Monitored quantities of the draws that every chain has."""
        return functionals_of(self.chains)

    def ends(self) -> list[Any]:
        """Where the next stage starts."""
        return [self.stage.position(self.scheduler.fetched(self.program, chain.state)) for chain in self.chains]

    def gather(self) -> Draws:
        dim, dtype, collect = self.program.model.dim, np.dtype(jnp.result_type(float)), self.scheduler.draws
        if self.checkpoint is not None:
            collect = partial(self.checkpoint.collect, self.program.number, dim=dim, dtype=dtype)
        return draws_of(self.chains, dim, collect)
