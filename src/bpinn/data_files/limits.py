"""How much a data file may hold."""

import os
from pathlib import Path

from bpinn.errors import InputError

LARGEST = 200 * 2**20  # bytes of text tables and workbooks
MOST_CELLS = 2**22  # of these, which become Python strings
MOST_NUMBERS = 2**27  # cells of archives and column files, which are arrays: a gigabyte
BYTES_FOR_EACH = 32  # of memory, for copies of a number in table, problem and run
COLUMN_FILES = (".npz", ".parquet")


def check_cells(count: int, shown: str) -> None:
    if count > MOST_CELLS:
        raise InputError(f"{shown}: more than {MOST_CELLS:,} cells, which is the limit; thin or average the readings")


def most_numbers() -> int:
    """How many numbers a file may hold, given the memory of this machine."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # other systems than Linux and macOS
        return MOST_NUMBERS
    return max(MOST_CELLS, min(MOST_NUMBERS, memory // BYTES_FOR_EACH))


def check_numbers(count: int, shown: str) -> None:
    most = most_numbers()
    if count > most:
        raise InputError(
            f"{shown}: {count:,} numbers, more than the limit of {most:,} on this machine; thin or average the "
            "readings, or give memory-mapped arrays to bp.Sensors in Python"
        )


def check_bytes(path: Path, shown: str) -> None:
    size = path.stat().st_size
    largest = 8 * most_numbers() if path.suffix.lower() in COLUMN_FILES else LARGEST
    if size > largest:
        raise InputError(f"{shown}: {size / 2**20:.0f} MiB exceed the limit of {largest / 2**20:.0f} MiB")
