"""Read data files: text tables, NumPy archives, Parquet, Zarr, Excel. Every message names file, line and column."""

from pathlib import Path

from bpinn.data_files.binary import read_npz, read_parquet, read_workbook
from bpinn.data_files.delimited import read_text
from bpinn.data_files.limits import check_bytes
from bpinn.data_files.table import DataTable
from bpinn.data_files.zarr_groups import read_zarr
from bpinn.errors import InputError

WORKBOOKS = (".xlsx", ".xlsm")


def read_table(
    path: Path, shown: str | None = None, *, sheet: str | int | None = None, encoding: str | None = None
) -> DataTable:
    """The table in a file; its cells are converted when they are used.

    Arguments:
        path: the file: ``.npz``, ``.parquet``, ``.zarr``, ``.xlsx``, or text with columns under any other name.
        shown: the name of the file in messages.
        sheet: the sheet of a workbook, by name or number.
        encoding: of a text file; UTF-8 by default.
    """
    shown = str(path) if shown is None else shown
    kind = path.suffix.lower()
    if sheet is not None and kind not in WORKBOOKS:
        raise InputError(f"{shown}: only Excel workbooks have sheets; remove sheet")
    if encoding is not None and kind in (*WORKBOOKS, ".npz", ".parquet", ".zarr"):
        raise InputError(f"{shown}: only text files have an encoding; remove encoding")
    try:
        if kind == ".zarr" and path.is_dir():
            return read_zarr(path, shown)
        if not path.is_file():
            raise InputError(f"{shown}: there is no such file")
        check_bytes(path, shown)
        if kind == ".npz":
            return read_npz(path, shown)
        if kind == ".parquet":
            return read_parquet(path, shown)
        return read_workbook(path, shown, sheet) if kind in WORKBOOKS else read_text(path, shown, encoding)
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
