"""What a run has done, on disk: blocks of records and the state of every chain, so that a run goes on after any end.

For each stage and chain a folder holds one file a block, and the state after the last of them. A file appears
under its name only when it is whole and on the disk; the state is written after its block, so that whatever comes in
between, state and blocks up to it belong together. Draws depend on the seed, the chain and the number of the
step alone, so that a block that was lost is made again, bit for bit.
"""

import errno
import fcntl
import io
import math
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.errors import DamagedError, InputError

BLOCKS = 9 * "[0-9]" + ".npz"
STATE, RESTARTS, DRAWS, LOCK = "state.npz", "restarts.npz", "draws.npy", "lock"
# Files that a process leaves which is killed while it writes them, of those that are written by who holds the folder.
UNFINISHED = (
    ".manifest.json.*.part", ".result.npz.*.part", ".draws.npy.*.part", ".simulation-*.npz.*.part",
    "stage-*/chain-*/.*.part",
)  # fmt: skip
# Whatever reading a file that is damaged, or meant to do harm, may end in.
UNREADABLE = (
    OSError, EOFError, ArithmeticError, LookupError, ValueError, TypeError, RuntimeError, MemoryError, SyntaxError,
    AttributeError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
# Errors of the system that say nothing of what is in a file.
ELSEWHERE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM, errno.ESTALE)
LARGE, MOST_PACKED = 2**28, 100  # bytes that an archive may unpack to however small it is, and times its own size


def write_file(path: Path, content: bytes | Mapping[str, np.ndarray] | Iterable[bytes]) -> None:
    """Write a file so that it is there whole or not at all; a full disk is said in a sentence.

    The content is bytes, in one piece or several, or arrays by name for an archive of NumPy.
    """
    try:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with temporary.open("xb") as file:
                if isinstance(content, Mapping):
                    np.savez(file, allow_pickle=False, **content)
                else:
                    file.writelines([content] if isinstance(content, bytes) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name itself
        finally:
            os.close(folder)
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror or error)
        raise InputError(f"{path}: cannot be written: {why}; what was written before is whole") from None


def map_draws(folder: Path, checksum: int | None = None) -> np.ndarray:
    """The draws that `Checkpoint.collect` wrote, which stay on the disk; ``checksum`` is what they had, if known."""
    path = folder / DRAWS
    try:
        if checksum is not None and draws_checksum(folder) != checksum:
            raise DamagedError(f"{path}: the file is damaged (its checksum is wrong)")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except InputError:
        raise
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError from None  # which is said where a run is
        raise DamagedError(f"{path}: the file is missing or damaged ({error})") from None


def draws_checksum(folder: Path) -> int:
    """CRC-32, as archives have it for each of their arrays."""
    total = 0
    with (folder / DRAWS).open("rb") as file:
        while piece := file.read(2**20):
            total = zlib.crc32(piece, total)
    return total


def read_arrays(path: Path, shown: str | None = None, largest: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of an archive of NumPy; `InputError` if it is damaged, or holds anything but plain arrays.

    ``shown`` is what to call it in messages, ``largest`` how many bytes it may unpack to. Nothing in it is run,
    whatever it holds.
    """
    shown, unpacked = shown or str(path), 0
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGE and unpacked > MOST_PACKED * path.stat().st_size:
            raise InputError(
                f"{shown}: would unpack to {unpacked / 2**30:.1f} GiB, more than {MOST_PACKED} times its size; such "
                "archives are not read"
            )
        if largest is not None and unpacked > largest:
            most = f"the {largest / 2**20:.0f} that are read"
            raise InputError(f"{shown}: would unpack to {unpacked / 2**20:.0f} MiB, more than {most}; leave some out")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except InputError:
        raise
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno in ELSEWHERE:
            raise InputError(f"{shown}: cannot be read: {error.strerror}") from None
        if isinstance(error, MemoryError) and not _is_lie(error, unpacked):
            raise
        raise DamagedError(f"{shown}: the file is damaged, or no NumPy archive of plain arrays ({error})") from None


def _is_lie(error: MemoryError, unpacked: int) -> bool:
    """Whether memory ran out because a header claims more than there is."""
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    return dtype is not None and math.prod(shape) * dtype.itemsize > unpacked


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; another one is refused. The system lets go of it when the process ends."""
    try:
        file = (folder / LOCK).open("a")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder}: another process is running in this folder; wait for it, or stop it") from None
        for path in (path for pattern in UNFINISHED for path in folder.glob(pattern)):
            path.unlink(missing_ok=True)
        yield


class ChainFolder:
    """One chain of one stage on disk. Each block is (first step, number of steps, arrays by name)."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.restarts = 0  # how often the chain began anew from another start
        self._end = 0  # the step after the last block

    def _block(self, first: int) -> Path:
        return self.folder / f"{first:09d}.npz"

    def append(self, first: int, count: int, arrays: Mapping[str, np.ndarray], state: list[np.ndarray]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Steps between blocks may have been skipped on purpose; that none is missing is seen from what each follows.
        write_file(self._block(first), {**arrays, "follows": np.array(self._end)})
        self._end = first + count
        leaves = {f"leaf{i}": leaf for i, leaf in enumerate(state)}
        about = {"done": np.array(first + count), "restarts": np.array(self.restarts)}
        write_file(self.folder / STATE, {**about, **leaves})

    def read(self) -> tuple[int, list[np.ndarray], list[tuple[int, dict[str, np.ndarray]]]]:
        """Steps done, leaves of the state, and the blocks up to there with their first steps.

        Nothing is done if there is no state. `InputError` if a file is damaged or missing.
        """
        self.restarts = self._read_restarts()
        path = self.folder / STATE
        if not path.exists():
            return 0, [], []
        arrays = read_arrays(path)
        if "done" not in arrays:
            raise DamagedError(f"{path}: the file is damaged (it does not say how far the chain is)")
        done = int(arrays.pop("done"))
        self.restarts = int(arrays.pop("restarts", 0))
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays))]
        blocks, at = [], 0
        for block in sorted(self.folder.glob(BLOCKS)):
            first = int(block.stem)
            if first >= done:
                break  # written, but its state was not; it is made again
            found = read_arrays(block)
            if not {"count", "follows"} <= set(found):
                raise DamagedError(f"{block}: the file is damaged (it does not say which steps it has)")
            if int(found["follows"]) != at:
                raise DamagedError(f"{self._block(at)}: the file is missing")
            blocks.append((first, found))
            at = first + int(found["count"])
        if at != done:
            raise DamagedError(f"{path}: the state is at step {done}, the blocks at {at}")
        self._end = at
        return done, leaves, blocks

    def _read_restarts(self) -> int:
        """What is known where there is no state; if it is lost too, it is found again how often to begin anew."""
        try:
            return int(read_arrays(self.folder / RESTARTS)["restarts"])
        except (InputError, *UNREADABLE):
            return 0

    def rows(self, first: int, last: int) -> Iterator[np.ndarray]:
        """``z`` of the steps from ``first`` to before ``last``, block by block."""
        for block in sorted(self.folder.glob(BLOCKS)):
            begin = int(block.stem)
            if begin >= last:
                return
            with np.load(block, allow_pickle=False) as file:
                if begin + int(file["count"]) > first:
                    yield file["z"][max(0, first - begin) : last - begin]

    def clear(self) -> None:
        """Forget what is there, so that the chain is made again, from the start that it had."""
        (self.folder / STATE).unlink(missing_ok=True)  # before its blocks
        for path in self.folder.glob(BLOCKS):
            path.unlink()
        self._end = 0

    def begin_anew(self) -> None:
        """Forget what is there, for another start."""
        self.clear()
        self.restarts += 1
        write_file(self.folder / RESTARTS, {"restarts": np.array(self.restarts)})


class Checkpoint:
    """The folders of all chains of a run."""

    def __init__(self, folder: Path, warn: Any = None):
        self.folder, self.warn = folder, warn or (lambda message: None)
        self._chains: dict[tuple[int, int], ChainFolder] = {}

    def chain(self, stage: int, chain: int) -> ChainFolder:
        folder = self.folder / f"stage-{stage}" / f"chain-{chain}"
        return self._chains.setdefault((stage, chain), ChainFolder(folder))

    def collect(self, stage: int, spans: Sequence[tuple[int, int]], dim: int, dtype: np.dtype) -> np.ndarray:
        """``z`` of all chains, each from its first step to before its last, as one array that stays on the disk.

        It is written block by block, so that memory does not grow with the number of draws.
        """
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

        write_file(self.folder / DRAWS, pieces())
        return map_draws(self.folder)

    def forget(self, stage: int, chain: int, why: DamagedError) -> None:
        """Of a chain that is damaged; it is said, and made again, with the same draws."""
        self.warn(f"{why}; chain {chain} is drawn again from its start, which gives the same draws")
        self.chain(stage, chain).clear()
