"""Files of runs: written whole or not at all, checked when read, and a lock for the folder."""

import errno
import math
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from bpinn.errors import DamagedError, InputError

DRAWS, LOCK = "draws.npy", "lock"
# Files that a process leaves which is killed while it writes them, of those that are written by who holds the folder.
UNFINISHED = (
    ".manifest.json.*.part", ".problem.npz.*.part", ".result.npz.*.part", ".draws.npy.*.part",
    ".simulation-*.npz.*.part", "stage-*/chain-*/.*.part",
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
        if os.name != "nt":  # Windows does not open folders
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
    """Hold a folder for this process; another one is refused. The system releases it when the process ends."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{folder}: another process is running in this folder; wait for it, or stop it") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    try:
        for path in (path for pattern in UNFINISHED for path in folder.glob(pattern)):
            path.unlink(missing_ok=True)
        yield
    finally:
        lock.release()
