"""Where blocks run: in threads of this process, one per core. `bpinn.cluster` runs them on other machines.

A thread releases the interpreter lock while XLA runs. Compared with ``shard_map`` over one host device per core, this
needs no global JAX flag, compiles once, and gives draws that are bitwise identical to those of a single core.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from bpinn.engine.advance import Block, Program, Request

Deliver = Callable[[Block], None]


def available_cores() -> int:
    """Number of cores that this process may use; where the system does not report it, all cores of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Scheduler(ABC):
    """Runs blocks. All its arguments can be pickled for another process; a block does not depend on where it runs.

    The state of a delivered block may be a placeholder for one that stays where the block ran. The engine hands it
    back with the chain's next request, and asks for it with `adjusted` and `fetched`. Unless a request is ``whole``,
    draws may stay there too, until `draws` asks for them.
    """

    @abstractmethod
    def submit(self, program: Program, request: Request, deliver: Deliver) -> None:
        """Run a block, then call ``deliver`` with it in this process: in any thread, but one at a time per chain."""

    def at_once(self, seconds: float, left: int) -> int:
        """How many blocks to request at once, of ``left`` until chains wait for each other, if each takes ``seconds``.

        Fewer requests cost less where a request has to travel; progress and Ctrl-C wait for the end of one.
        """
        return 1

    @abstractmethod
    def wait(self) -> list[int]:
        """Wait for at least one block; return the chains whose blocks were delivered. Raises what a block raised."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether there are blocks to wait for."""

    @abstractmethod
    def prepare(self, program: Program, request: Request) -> Any:
        """Compile a program before its blocks run. May return the first state of the request's chain, or None."""

    @abstractmethod
    def close(self) -> None:
        """Wait for running blocks, then shut down."""

    def adjusted(self, program: Program, state: Any, adjustment: Any) -> Any:
        """The state after an adjustment, or a placeholder for it."""
        return program.stage.apply(state, adjustment)

    def fetched(self, program: Program, state: Any) -> Any:
        """The state itself."""
        return state

    def draws(self, spans: Sequence[tuple[int, int]]) -> np.ndarray | None:
        """``z`` of all chains, each over its span of steps (end exclusive); None if draws came with their blocks."""
        return None


class Threads(Scheduler):
    """Blocks in threads of this process."""

    def __init__(self, cores: int | None = None, first: Sequence[Callable[[], Any]] = ()):
        """The functions ``first`` run in the threads while the first program compiles."""
        self.pool = ThreadPoolExecutor(max_workers=cores or available_cores())
        self.running: dict[Future, int] = {}
        for function in first:
            self.pool.submit(function)

    def submit(self, program: Program, request: Request, deliver: Deliver) -> None:
        self.running[self.pool.submit(lambda: deliver(program.advance(request)))] = request.chain

    def wait(self) -> list[int]:
        finished, _ = wait(self.running, return_when=FIRST_COMPLETED)
        chains = []
        for future in finished:
            chains.append(self.running.pop(future))
            future.result()
        return chains

    @property
    def is_busy(self) -> bool:
        return bool(self.running)

    def prepare(self, program: Program, request: Request) -> Any:
        """Compute the initial state in a thread while a block compiles here."""
        if request.state is not None:
            program.compile(request.state)
            return None
        shapes = program.shapes(request.position)
        state = self.pool.submit(program.start, request.chain, request.restarts, request.position)
        program.compile(jax.tree.map(lambda a: jax.device_put(np.zeros(a.shape, a.dtype)), shapes))
        return state.result()

    def close(self) -> None:
        self.pool.shutdown()
