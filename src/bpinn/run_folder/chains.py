"""Checkpoints: blocks of records and the state of every chain on disk, so that any run can be resumed.

For each stage and chain a folder holds one file per block, and the state after the last block. A file appears under
its name only when it is complete and synced to disk. The state is written after its block, so that the state and the
blocks up to it are always consistent, whatever happens in between. Draws depend only on the seed, the chain and the
step number, so a lost block is recomputed bit for bit.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.errors import DamagedError, InputError
from bpinn.run_folder import files
from bpinn.run_folder.files import DRAWS, UNREADABLE, map_draws, read_arrays

BLOCKS = 9 * "[0-9]" + ".npz"
STATE, RESTARTS = "state.npz", "restarts.npz"


class ChainFolder:
    """One chain of one stage on disk. Each block is (first step, number of steps, arrays by name)."""

    def __init__(self, folder: Path, read_only: bool = False):
        self.folder, self.read_only = folder, read_only
        self.restarts = 0  # how often the chain was restarted from another starting point
        self._end = 0  # the step after the last block

    def _block(self, first: int) -> Path:
        return self.folder / f"{first:09d}.npz"

    def append(self, first: int, count: int, arrays: Mapping[str, np.ndarray], state: list[np.ndarray]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Steps between blocks may have been skipped on purpose; "follows" shows whether a block is missing.
        files.write_file(self._block(first), {**arrays, "follows": np.array(self._end)})
        self._end = first + count
        leaves = {f"leaf{i}": leaf for i, leaf in enumerate(state)}
        about = {"done": np.array(first + count), "restarts": np.array(self.restarts)}
        files.write_file(self.folder / STATE, {**about, **leaves})

    def read(self) -> tuple[int, list[np.ndarray], list[tuple[int, dict[str, np.ndarray]]]]:
        """Steps done, leaves of the state, and the blocks up to there with their first steps.

        Without a state, zero steps are done. Raises `DamagedError` if a file is damaged or missing.
        """
        self.restarts = self._read_restarts()
        path = self.folder / STATE
        if not path.exists():
            return 0, [], []
        arrays = read_arrays(path)
        if "done" not in arrays:
            raise DamagedError(f"{path}: the file is damaged (it lacks the number of steps done)")
        done = int(arrays.pop("done"))
        self.restarts = int(arrays.pop("restarts", 0))
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays))]
        blocks, at = [], 0
        for block in sorted(self.folder.glob(BLOCKS)):
            first = int(block.stem)
            if first >= done:
                break  # written, but its state was not; it is recomputed
            found = read_arrays(block)
            if not {"count", "follows"} <= set(found):
                raise DamagedError(f"{block}: the file is damaged (it lacks its step numbers)")
            if int(found["follows"]) != at:
                raise DamagedError(f"{self._block(at)}: the file is missing")
            blocks.append((first, found))
            at = first + int(found["count"])
        if at != done:
            raise DamagedError(f"{path}: the state is at step {done}, but the blocks end at step {at}")
        self._end = at
        return done, leaves, blocks

    def _read_restarts(self) -> int:
        """The number of restarts if there is no state; if this file is lost too, the restarts are repeated."""
        try:
            return int(read_arrays(self.folder / RESTARTS)["restarts"])
        except (InputError, *UNREADABLE):
            return 0

    def rows(self, first: int, last: int) -> Iterator[np.ndarray]:
        """``z`` of the steps ``first`` to ``last`` (exclusive), block by block."""
        for block in sorted(self.folder.glob(BLOCKS)):
            begin = int(block.stem)
            if begin >= last:
                return
            with np.load(block, allow_pickle=False) as file:
                if begin + int(file["count"]) > first:
                    yield file["z"][max(0, first - begin) : last - begin]

    def clear(self) -> None:
        """Delete the state and blocks, so that the chain is rerun from the same starting point."""
        if self.read_only:
            return
        (self.folder / STATE).unlink(missing_ok=True)  # before its blocks
        for path in self.folder.glob(BLOCKS):
            path.unlink()
        self._end = 0

    def restart(self) -> None:
        """Delete the state and blocks, and restart from another starting point."""
        self.clear()
        self.restarts += 1
        files.write_file(self.folder / RESTARTS, {"restarts": np.array(self.restarts)})


class Checkpoint:
    """The folders of all chains of a run; with ``read_only`` nothing in them is changed."""

    def __init__(self, folder: Path, warn: Any = None, read_only: bool = False):
        self.folder, self.warn, self.read_only = folder, warn or (lambda message: None), read_only
        self._chains: dict[tuple[int, int], ChainFolder] = {}

    def chain(self, stage: int, chain: int) -> ChainFolder:
        folder = self.folder / f"stage-{stage}" / f"chain-{chain}"
        return self._chains.setdefault((stage, chain), ChainFolder(folder, self.read_only))

    def collect(self, stage: int, spans: Sequence[tuple[int, int]], dim: int, dtype: np.dtype) -> np.ndarray:
        """``z`` of all chains, each over its span of steps (end exclusive), as one memory-mapped array.

        It is written block by block, so that memory does not grow with the number of draws.
        """
        if self.read_only:
            chains = enumerate(spans)
            return np.stack([np.concatenate([*self.chain(stage, i).rows(*span)]) for i, span in chains]).astype(dtype)
        shape = (len(spans), spans[0][1] - spans[0][0], dim)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        )

        def pieces() -> Iterator[bytes]:
            yield header.getvalue()
            for chain, (first, last) in enumerate(spans):
                for rows in self.chain(stage, chain).rows(first, last):
                    yield np.ascontiguousarray(rows, dtype).tobytes()

        files.write_file(self.folder / DRAWS, pieces())
        return map_draws(self.folder)

    def forget(self, stage: int, chain: int, why: DamagedError) -> None:
        """Warn about a damaged chain and clear it; it is then rerun, with the same draws."""
        self.warn(f"{why}; chain {chain} is rerun from its start, which gives the same draws")
        self.chain(stage, chain).clear()
