"""What runs on a worker: the check of its arithmetic, blocks of chains, and calls of functions.

Everything here is a pure function of its arguments, so that Dask may run it anywhere and repeat it. What is sent once
(a problem with its settings) is kept by the hash of its pickle, and XLA keeps what it compiled for it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bpinn.cluster import arithmetic
from bpinn.engine import make_room
from bpinn.engine.advance import Block, Program, Request
from bpinn.errors import InputError

MOST_HELD = 8  # problems
_held: OrderedDict[str, Any] = OrderedDict()
_compiled: set[str] = set()
_lock = threading.Lock()


def on_host(tree: Any) -> Any:
    """A state with NumPy arrays, as it is sent."""
    return jax.tree.map(np.asarray, tree)


def admitted(flags: dict[str, Any], threads: int, wanted: dict[str, str]) -> str:
    """Set up this process; return why its draws would differ, or nothing if they would not."""
    arithmetic.set_blas_threads(threads)
    with _lock:
        arithmetic.set_flags(flags)
        return arithmetic.differences(wanted, arithmetic.description())


def opened(digest: str, sent: bytes) -> Any:
    """What was sent, unpickled once."""
    import cloudpickle

    with _lock:
        if digest not in _held:
            try:
                flags, content = cloudpickle.loads(sent)
            except ImportError as error:
                raise InputError(
                    f"cluster: a worker cannot import what the problem uses ({error}); install it there, or define its "
                    "functions in the script itself, from where they are sent"
                ) from None
            _held[digest] = flags, content
            while len(_held) > MOST_HELD:
                _compiled.discard(_held.popitem(last=False)[0])
                make_room(anywhere=True)
        _held.move_to_end(digest)
        flags, content = _held[digest]
        arithmetic.set_flags(flags)
    return content


def compiled(digest: str, sent: bytes, request: Request) -> None:
    """Compile a program here before its blocks come; the request is any chain's first."""
    program: Program = opened(digest, sent)
    with jax.enable_x64(program.double):
        _compile(digest, program, program.start(request.chain, request.restarts, request.position))


def _compile(digest: str, program: Program, state: Any) -> None:
    if digest not in _compiled:  # so that the time of a block is that of its steps
        program.compile(state)
        _compiled.add(digest)


def held(digest: str, sent: bytes) -> None:
    """Have what was sent here."""
    opened(digest, sent)


def run_block(digest: str, sent: bytes, request: Request, state: Any, adjustments: tuple[Any, ...]) -> Block:
    """A block of a chain, from a state, or from the outcome of the block before it."""
    program: Program = opened(digest, sent)
    state = state.state if isinstance(state, Block) else state
    with jax.enable_x64(program.double):
        if state is None:
            state = program.start(request.chain, request.restarts, request.position)
        for adjustment in adjustments:
            state = program.stage.apply(state, adjustment)
        _compile(digest, program, state)
    block = program.advance(replace(request, state=state))
    return replace(block, state=on_host(block.state), place=_address())


def summary(block: Block, with_state: bool) -> Block:
    """A block as reviews and the display need it: without draws, and without the state unless that is wanted."""
    return replace(block, state=block.state if with_state else None, record=block.record._replace(z=None))


def state_of(block: Block) -> Any:
    return block.state


def draws_of(block: Block, first: int, last: int) -> np.ndarray:
    """``z`` of the steps ``first`` to ``last`` (exclusive) that are in this block."""
    return block.record.z[max(0, first - block.first) : last - block.first]


def call(digest: str, sent: bytes, item: Any) -> Any:
    """A function that was sent, of one argument."""
    function: Callable[[Any], Any] = opened(digest, sent)
    try:
        return function(item)
    except KeyboardInterrupt as stopped:  # which would end the worker
        raise RuntimeError(f"the task was cancelled ({stopped})") from None


def cores() -> int | None:
    """Number of threads of this worker; None elsewhere."""
    worker = _worker()
    return None if worker is None else int(worker.state.nthreads)


class Cancelled:
    """Whether the task of this thread is no longer wanted; an event as `threading.Event` has them."""

    def is_set(self) -> bool:
        from distributed.worker import thread_state

        worker, key = _worker(), getattr(thread_state, "key", None)
        task = None if worker is None else worker.state.tasks.get(key)
        return worker is not None and (task is None or task.state == "cancelled")


def _worker() -> Any:
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _address() -> str:
    worker = _worker()
    return "" if worker is None else str(worker.address)
