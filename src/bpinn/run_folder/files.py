"""Files of runs: atomic writes, checked reads, and a lock for the folder."""

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

MANIFEST, RESULT, DRAWS, LOCK = "manifest.json", "result.npz", "draws.npy", "lock"
# Temporary files left by a process that was killed while writing; all are written by the process that holds the lock.
UNFINISHED = (
    ".manifest.json.*.part", ".problem.npz.*.part", ".result.npz.*.part", ".draws.npy.*.part",
    ".simulation-*.npz.*.part", "stage-*/chain-*/.*.part",
)  # fmt: skip
# Exceptions that reading a damaged or malicious file can raise.
UNREADABLE = (
    OSError, EOFError, ArithmeticError, LookupError, ValueError, TypeError, RuntimeError, MemoryError, SyntaxError,
    AttributeError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
# System errors that say nothing about the content of a file.
ELSEWHERE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM, errno.ESTALE)
LARGE, MOST_PACKED = 2**28, 100  # an archive may unpack to this many bytes in any case, or to this multiple of its size


def write_file(path: Path, content: bytes | Mapping[str, np.ndarray] | Iterable[bytes]) -> None:
    """Write a file atomically: completely or not at all. A full disk raises `InputError`.

    The content is bytes, in one piece or several, or arrays by name for a NumPy archive.
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
        if os.name != "nt":  # Windows cannot open folders
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # syncs the file's name
            finally:
                os.close(folder)
    except OSError as error:
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror or error)
        raise InputError(f"{path}: cannot be written: {why}; earlier files are intact") from None


def map_draws(folder: Path, checksum: int | None = None) -> np.ndarray:
    """Memory-map the draws that `Checkpoint.collect` wrote; ``checksum`` is the expected one, if known."""
    path = folder / DRAWS
    try:
        if checksum is not None and draws_checksum(folder) != checksum:
            raise DamagedError(f"{path}: the file is damaged (its checksum is wrong)")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except InputError:
        raise
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError from None  # the caller reports it
        raise DamagedError(f"{path}: the file is missing or damaged ({error})") from None


def draws_checksum(folder: Path) -> int:
    """CRC-32, the checksum that archives store for each of their arrays."""
    total = 0
    with (folder / DRAWS).open("rb") as file:
        while piece := file.read(2**20):
            total = zlib.crc32(piece, total)
    return total


def read_arrays(path: Path, shown: str | None = None, largest: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of a NumPy archive; `InputError` if it is damaged, or holds anything but plain arrays.

    ``shown`` is its name in messages, ``largest`` how many bytes it may unpack to. Nothing in the file is ever
    executed.
    """
    shown, unpacked = shown or str(path), 0
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > LARGE and unpacked > MOST_PACKED * path.stat().st_size:
            raise InputError(
                f"{shown}: would unpack to {unpacked / 2**30:.1f} GiB, more than {MOST_PACKED} times its size; such "
                "archives are refused"
            )
        if largest is not None and unpacked > largest:
            most = f"the limit of {largest / 2**20:.0f} MiB"
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
        raise DamagedError(f"{shown}: the file is damaged, or not a NumPy archive of plain arrays ({error})") from None


def _is_lie(error: MemoryError, unpacked: int) -> bool:
    """Whether memory ran out because a header claims more data than the file holds."""
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
    return dtype is not None and math.prod(shape) * dtype.itemsize > unpacked


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; other processes are refused. The system releases it when the process ends."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{folder}: another process is running in this folder; wait for it or stop it") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    try:
        for path in (path for pattern in UNFINISHED for path in folder.glob(pattern)):
            path.unlink(missing_ok=True)
        yield
    finally:
        lock.release()
