"""What is kept of a chain: its records, in memory or in a folder, and its state.

A chain with a folder stores its draws there; what reviews and the display need is held in memory either way.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from bpinn.engine.advance import Block
from bpinn.engine.records import Reviewed, arrays_of, record_of
from bpinn.errors import InputError
from bpinn.methods.base import Record, Stage
from bpinn.run_folder.chains import ChainFolder

REMOVE = "remove the folder to rerun the chain"


@dataclass
class Chain:
    """One chain of a stage: where it is, and its records on the host."""

    number: int
    stage: Stage
    keep: int | None = None  # how many of the last draws are kept; None keeps all
    folder: ChainFolder | None = None
    state: Any = None
    done: int = 0
    finished: bool = False
    restarts: int = 0
    place: str = ""  # the worker that ran its last block, if it was not this process
    step: int = 0  # of a fit, its own step number
    latest: dict[str, np.ndarray] = field(default_factory=dict)  # statistics of its last block
    records: deque[Record] = field(default_factory=deque)  # of the draws; without z if that is in a folder
    before: list[dict[str, np.ndarray]] = field(default_factory=list)  # statistics of the steps before the draws
    reviewed: list[Reviewed] = field(default_factory=list)  # of all steps, for reviews

    def begin(self, restarts: int) -> None:
        """Reset it to before its first step."""
        self.restarts, self.state, self.done, self.step, self.finished = restarts, None, 0, 0, False
        self.latest = {}
        for kept in (self.records, self.before, self.reviewed):
            kept.clear()

    def restart(self) -> None:
        """Discard everything and restart from another starting point."""
        if self.folder is not None:
            self.folder.restart()
        self.begin(self.restarts + 1)

    def append(self, block: Block, fetched: Callable[[Any], Any]) -> None:
        """Store a finished block, first of all on disk; ``fetched`` returns its state if that is elsewhere."""
        record, count = block.record, block.count
        if self.stage.has_history:
            # A fit that stopped early still fills its block; keep only the steps that it took.
            took = np.diff(record.stats["step"], prepend=self.step) > 0
            record = record._replace(stats={name: values[took] for name, values in record.stats.items()})
        if self.folder is not None:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(fetched(block.state))]
            self.folder.append(block.first, count, arrays_of(record, count), leaves)
        self.state, self.place = block.state, block.place
        self._hold(record, block.first + count)
        self.finished = self.done >= self.stage.num_steps or block.finished

    def restore(self, like: Any, dim: int, functionals: int) -> None:
        """Read its folder; a stored state must have the structure of ``like``. `DamagedError` if a file is damaged."""
        leaves = self.read(dim, functionals)
        assert self.folder is not None
        if leaves is None:
            self.folder.clear()  # blocks without a state, of a chain that was being discarded
            return
        shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(like)]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != shapes:
            raise InputError(
                f"{self.folder.folder}: its state was written by another version or in another precision; resume with "
                f"those that the run was started with, or {REMOVE}"
            )
        self.state = jax.tree.unflatten(jax.tree.structure(like), [jax.device_put(leaf) for leaf in leaves])
        self.finished = self.done >= self.stage.num_steps or self.stage.finished(self.state)

    def read(self, dim: int, functionals: int) -> list[np.ndarray] | None:
        """Load the records in its folder; return the leaves of its state, or None if there is none."""
        assert self.folder is not None
        done, leaves, blocks = self.folder.read()
        self.begin(self.folder.restarts)
        for first, arrays in blocks:
            count, record = int(arrays["count"]), record_of(arrays)
            rows = {"z": (count, dim), "functionals": (count, functionals)}
            if any(arrays[name].shape != shape for name, shape in rows.items() if name in arrays):
                raise InputError(f"{self.folder.folder}: its block from step {first} is not from this run; {REMOVE}")
            self._hold(record, first + count)
        return leaves if done else None

    def _hold(self, record: Record, done: int) -> None:
        """Hold a block's records in memory, whether new or from disk."""
        if self.stage.has_history:
            self.step = max([self.step, *record.stats["step"]])
        if all(len(values) for values in record.stats.values()):
            self.latest = record.stats
        if record.functionals is not None:
            self.reviewed.append((done, record.functionals, record.stats))
        if done <= self.stage.num_warmup:
            self.before.append(record.stats)
        else:
            self.records.append(record if self.folder is None else record._replace(z=None))
            self._drop_surplus()
        self.done = done

    def _drop_surplus(self) -> None:
        if self.keep is None:
            return
        held = sum(len(r.functionals) for r in self.records)
        while self.records and held - len(self.records[0].functionals) >= self.keep:
            held -= len(self.records.popleft().functionals)
