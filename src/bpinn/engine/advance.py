"""Blocks of steps as pure functions: what a chain does next depends only on the program, its state and the block.

A chain's key is derived from the seed and the chain's number, a step's key from the chain's key and the step's number.
So draws depend neither on how chains are distributed over cores or machines, nor on the size of blocks.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.compiling import BLOCK
from bpinn.engine.records import concatenated
from bpinn.methods import Method
from bpinn.methods.base import Record, Stage
from bpinn.model import Model
from bpinn.posterior import Posterior
from bpinn.problem import Problem

BLOCK_STEPS = 100  # most steps in a block: what the device buffers before the host reads it
RESTART = 2**30  # folded into the key of a restarted chain; larger than any step number

traces = 0  # how often a block was traced; checked by a test


@partial(jax.jit, static_argnames=("stage", "model"), compiler_options=BLOCK)
def _init(stage: Stage, model: Model, data: Any, key: Array, previous: Any) -> Any:
    # Strip weak types: a state read from a file does not have them either.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), stage.init(model, data, key, previous))


@partial(jax.jit, static_argnames=("stage", "model"), inline=True)
def _step(stage: Stage, model: Model, data: Any, state: Any, key: Array, step: Array) -> tuple[Any, Record]:
    """A step, which a block traces once: for the shapes of its records, and again as the body of its loop."""
    return stage.step(model, data, state, jax.random.fold_in(key, step), step)


@partial(jax.jit, static_argnames=("stage", "model", "size"), compiler_options=BLOCK)
def _block(
    stage: Stage, model: Model, data: Any, state: Any, key: Array, first: Array, count: Array, *, size: int
) -> Any:
    """``count`` steps from step ``first``, at most ``size``; records beyond ``count`` are undefined."""
    global traces
    traces += 1
    shapes = _step.eval_shape(stage, model, data, state, key, first)[1]
    buffers = jax.tree.map(lambda s: jnp.zeros((size, *s.shape), s.dtype), shapes)

    def body(i: Array, carry: Any) -> Any:
        state, buffers = carry
        state, record = _step(stage, model, data, state, key, first + i)
        return state, jax.tree.map(lambda b, r: b.at[i].set(r), buffers, record)

    return jax.lax.fori_loop(0, count, body, (state, buffers))


@dataclass(frozen=True)
class Request:
    """Steps to run: the chain, the first of them and how many, and the state they start from."""

    chain: int
    restarts: int
    state: Any  # None for a chain that has not started
    position: Any  # where the previous stage ended
    first: int
    count: int
    whole: bool = False  # whether draws and state are stored here after every block


@dataclass(frozen=True)
class Block:
    """The outcome of a request: the state after it, its records on the host, and how long it took."""

    chain: int
    first: int
    count: int
    state: Any
    record: Record
    seconds: float
    finished: bool = False  # whether the chain ends here, before all its steps are done
    place: str = ""  # the worker that ran it, if it was not this process

    def __sizeof__(self) -> int:
        """Bytes of its arrays, by which Dask decides what to move and what to spill."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves((self.state, self.record)) if hasattr(leaf, "nbytes"))


class Program:
    """One stage of a method on one posterior: everything that the blocks of all chains share.

    It can be pickled and sent to another process, which rebuilds it from the problem and the settings.
    """

    def __init__(self, posterior: Posterior, method: Method, number: int, seed: int):
        self.posterior, self.method, self.number, self.seed = posterior, method, number, seed
        self.stage = method.stages()[number]
        self.compiled_stage = self.stage.compiled()
        self.model, self.data = posterior.model.compiled(), posterior.data
        # A precision set by `with jax.enable_x64(True)` is local to its thread; threads that run blocks set it again.
        self.double = bool(jnp.result_type(float) == jnp.float64)

    def __reduce__(self) -> Any:
        return _rebuilt, (self.posterior.problem, self.method, self.number, self.seed, self.double)

    def key(self, chain: int, restarts: int) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), chain), self.number)
        return jax.random.fold_in(key, RESTART + restarts) if restarts else key

    def start(self, chain: int, restarts: int, position: Any) -> Any:
        """The initial state of a chain."""
        with jax.enable_x64(self.double):
            return _init(self.compiled_stage, self.model, self.data, self.key(chain, restarts), position)

    def shapes(self, position: Any) -> Any:
        """Shapes and dtypes of a state. This traces `start`, so that two threads do not trace it in succession."""
        return _init.eval_shape(self.compiled_stage, self.model, self.data, self.key(0, 0), position)

    def compile(self, state: Any) -> None:
        """Compile a block by running one with zero steps."""
        self._run(state, self.key(0, 0), 0, 0)

    def advance(self, request: Request) -> Block:
        """Run a block. The outcome depends only on the request, not on where it runs."""
        with jax.enable_x64(self.double):
            state = request.state
            if state is None:
                state = self.start(request.chain, request.restarts, request.position)
            began, key, parts = time.perf_counter(), self.key(request.chain, request.restarts), []
            for first in range(request.first, request.first + request.count, BLOCK_STEPS):
                count = min(BLOCK_STEPS, request.first + request.count - first)
                state, buffers = self._run(state, key, first, count)
                if request.first < self.stage.num_warmup:
                    buffers = buffers._replace(z=None)  # no draws yet
                parts.append(jax.tree.map(lambda a, count=count: np.array(a[:count]), jax.device_get(buffers)))
            record = parts[0] if len(parts) == 1 else concatenated(parts)
            seconds = time.perf_counter() - began
            finished = self.stage.finished(state)
        return Block(request.chain, request.first, request.count, state, record, seconds, finished)

    def _run(self, state: Any, key: Array, first: int, count: int) -> Any:
        numbers = jnp.int32(first), jnp.int32(count)
        return _block(self.compiled_stage, self.model, self.data, state, key, *numbers, size=BLOCK_STEPS)


def suited(posterior: Posterior, method: Method) -> Posterior:
    """The posterior as a method needs it: with statistics of readings, each of them, or batches of them."""
    each = posterior if method.takes_statistics else posterior.by_reading
    return each.in_batches(method.readings_at_once)


def _rebuilt(problem: Problem, method: Method, number: int, seed: int, double: bool) -> Program:
    with jax.enable_x64(double):
        return Program(suited(Posterior(problem), method), method, number, seed)
