"""Blocks of chains as tasks on a cluster.

A chain's next block takes the state from the block before it, on the same worker if that is free. Between blocks only
functionals and statistics come here, unless blocks are stored in a run folder: then all of them do. If a worker dies,
Dask repeats the blocks that are lost, from the last state that was sent from here.
"""

import queue
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bpinn.cluster import worker
from bpinn.cluster.connection import Cluster, Sent
from bpinn.engine.advance import Block, Program, Request
from bpinn.engine.scheduler import Deliver, Scheduler

SEGMENT = 20  # blocks between states that are sent from here: at most so many are repeated to recover a state
TASK_SECONDS = 1.0  # least duration of a task to aim at: one costs some 10 ms of processor time here
TASKS_A_SECOND = 50  # most tasks that end in a second: beyond, tasks are longer, so that this process keeps up


@dataclass(frozen=True)
class Remote:
    """A chain's state on a worker: the block that it is the outcome of, and what reviews have decided since."""

    block: Any  # a future
    age: int  # blocks since a state was sent from here
    copy: Any = None  # the state itself, if it was delivered
    adjustments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Running:
    """A block that was submitted: the future of its outcome, and of what comes here of it."""

    program: Program
    request: Request
    block: Any
    answer: Any
    age: int
    deliver: Deliver


class Workers(Scheduler):
    """Blocks on the workers of a cluster."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.running: dict[str, Running] = {}
        self.finished: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Blocks of draws, by stage and chain.
        self.kept: defaultdict[tuple[int, int], list[Running]] = defaultdict(list)
        self.sent: tuple[Program, Sent] | None = None
        self.submitted = 0
        self.at_work = 0  # workers at the start of the stage

    def submit(self, program: Program, request: Request, deliver: Deliver) -> None:
        state, adjustments, age = request.state, (), 0
        if isinstance(state, Remote):
            adjustments = state.adjustments
            renewed = state.age >= SEGMENT and state.copy is not None
            state, age = (state.copy, 0) if renewed else (state.block, state.age + 1)
        else:
            state = worker.on_host(state)
        small = replace(request, state=None, position=worker.on_host(request.position) if state is None else None)
        sent = self._sent(program)
        self.submitted += 1
        name = f"{program.number}-{request.chain}-{request.first}-{id(self):x}-{self.submitted}"
        block = self.cluster.submit(worker.run_block, sent.digest, sent.future, small, state, adjustments, name=name)
        answer = block
        if not request.whole:
            # Before other blocks that wait on the same worker.
            answer = self.cluster.submit(worker.summary, block, age + 1 >= SEGMENT, name=name, priority=1)
        self.running[name] = Running(program, request, block, answer, age, deliver)
        answer.add_done_callback(lambda _: self.finished.put(name))

    def at_once(self, seconds: float, left: int) -> int:
        """As many as take a second, and fewer towards a review, so that chains reach it at about the same time."""
        target = TASK_SECONDS and max(TASK_SECONDS, self.at_work / TASKS_A_SECOND)
        affordable = int(target / seconds) if seconds else 1
        return max(1, min(affordable, left // 2))

    def wait(self) -> list[int]:
        names = [self.cluster.next(self.finished)]
        while not self.finished.empty():
            names.append(self.finished.get())
        return [self._delivered(self.running.pop(name)) for name in names if name in self.running]

    def _delivered(self, running: Running) -> int:
        block: Block = self.cluster.result(running.answer)
        request = running.request
        if not request.whole and request.first >= running.program.stage.num_warmup:
            self._keep(running)
        running.deliver(replace(block, state=Remote(running.block, running.age, block.state)))
        return request.chain

    def _keep(self, running: Running) -> None:
        """Hold a block of draws, and no more blocks than the method keeps."""
        kept = self.kept[running.program.number, running.request.chain]
        most = running.program.method.kept
        kept.append(running)
        held = sum(one.request.count for one in kept)
        while most is not None and held - kept[0].request.count >= most:
            held -= kept.pop(0).request.count

    @property
    def is_busy(self) -> bool:
        return bool(self.running)

    def prepare(self, program: Program, request: Request) -> Any:
        """Have every worker fetch and compile the program; those that come later do so at their first block.

        Dask prefers workers that hold what a task needs, so the first blocks then go to all of them.
        """
        self.at_work = len(self.cluster.workers)
        sent = self._sent(program)
        small = replace(request, state=None, position=worker.on_host(request.position))
        self.submitted += 1
        name = f"{id(self):x}-{self.submitted}"
        self.cluster.on_each(worker.compiled, sent.digest, sent.future, small, name=name)

    def _sent(self, program: Program) -> Sent:
        if self.sent is None or self.sent[0] is not program:  # pickled once, not for every block
            self.sent = program, self.cluster.send(program)
        return self.sent[1]

    def adjusted(self, program: Program, state: Any, adjustment: Any) -> Any:
        """What is adjusted is noted, and applied before the next block."""
        if isinstance(state, Remote):
            return replace(state, adjustments=(*state.adjustments, adjustment))
        return super().adjusted(program, state, adjustment)

    def fetched(self, program: Program, state: Any) -> Any:
        if not isinstance(state, Remote):
            return state
        found = state.copy
        if found is None:
            self.submitted += 1
            name = f"{id(self):x}-{self.submitted}"
            found = self.cluster.result(self.cluster.submit(worker.state_of, state.block, name=name, priority=1))
        for adjustment in state.adjustments:
            found = program.stage.apply(found, adjustment)
        return found

    def draws(self, spans: Sequence[tuple[int, int]]) -> np.ndarray | None:
        """Bring the draws here."""
        if not self.kept:
            return None
        last_stage = max(number for number, _ in self.kept)
        drawn: np.ndarray | None = None
        for chain, (first, last) in enumerate(spans):
            kept = [one for one in self.kept[last_stage, chain] if one.request.first < last]
            parts = []
            for one in kept:
                self.submitted += 1
                name = f"{id(self):x}-{self.submitted}"
                parts.append(self.cluster.submit(worker.draws_of, one.block, first, last, name=name, priority=1))
            at = 0
            for rows in self.cluster.results(parts):
                if drawn is None:
                    drawn = np.empty((len(spans), last - first, rows.shape[1]), rows.dtype)
                drawn[chain, at : at + len(rows)] = rows
                at += len(rows)
        return drawn

    def close(self) -> None:
        """Give up what is running, and free what workers hold."""
        futures = [future for one in self.running.values() for future in (one.block, one.answer)]
        if futures and self.cluster.client.status == "running":
            self.cluster.client.cancel(futures)
        self.running.clear()
        self.kept.clear()
        self.cluster.sent.clear()
