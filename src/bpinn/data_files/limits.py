"""How much a data file may hold."""

from bpinn.errors import InputError

LARGEST = 200 * 2**20  # bytes
MOST_CELLS = 2**22  # far more readings than inference can handle


def check_cells(count: int, shown: str) -> None:
    if count > MOST_CELLS:
        raise InputError(f"{shown}: more than {MOST_CELLS:,} cells, which is the limit; thin or average the readings")
