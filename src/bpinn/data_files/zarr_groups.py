"""Zarr groups: folders with an array for each column."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.data_files.binary import dates_of
from bpinn.data_files.limits import check_numbers
from bpinn.data_files.table import Cells, DataTable, Places
from bpinn.errors import InputError

# Codecs that only pack numbers. Others can run code that is stored in the file, such as pickle.
CODECS = {"bytes", "blosc", "gzip", "zstd", "crc32c", "zlib", "lz4", "bz2", "lzma"}
ABOUT = ("zarr.json", ".zarray")  # what describes an array, in formats 3 and 2


def read_zarr(path: Path, shown: str) -> DataTable:
    """The 1-D arrays of a Zarr group on disk."""
    try:
        import zarr
    except ImportError:
        raise InputError(f"{shown}: reading Zarr needs zarr; pip install 'bpinn[zarr]', or save as Parquet") from None
    try:
        about = {part.name: found for part in sorted(path.iterdir()) if (found := _about(part)) is not None}
        for name, own in about.items():
            _check(f"{shown}: {name!r}", own)
        if not about:
            raise InputError(f"{shown}: there are no arrays in it; expected a Zarr group with an array for each column")
        check_numbers(sum(own["shape"][0] for own in about.values()), shown)
        arrays = {name: np.asarray(zarr.open_array(str(path / name), mode="r")[:]) for name in about}
    except InputError:
        raise
    except Exception as error:  # zarr and its codecs raise whatever they do
        raise InputError(f"{shown}: cannot be read as Zarr: {error or type(error).__name__}") from None
    cells: list[Cells] = [dates_of(a) if a.dtype.kind == "M" else a.astype(float) for a in arrays.values()]
    return DataTable(shown, tuple(arrays), tuple(cells), Places(range(1, 1 + max(map(len, cells))), "row"))


def _about(folder: Path) -> dict[str, Any] | None:
    """What a folder says of its array; None if it is not one."""
    for name in ABOUT:
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text(encoding="utf-8"))
            return found if name == ".zarray" or found.get("node_type") == "array" else None
    return None


def _check(where: str, about: dict[str, Any]) -> None:
    """Raise `InputError` unless an array is a column of numbers or times in one of the usual codecs."""
    new = about["zarr_format"] == 3
    shape, kind = about["shape"], about["data_type"] if new else about["dtype"]
    if not isinstance(kind, str) or len(shape) != 1 or np.dtype(kind).kind not in "fiuM":
        raise InputError(f"{where} has shape {tuple(shape)} and type {kind}; expected a 1-D array of real numbers")
    old = [codec for codec in (about.get("compressor"), *(about.get("filters") or ())) if codec]
    codecs = [codec["name"] for codec in about["codecs"]] if new else [codec["id"] for codec in old]
    unknown = sorted(set(codecs) - CODECS)
    if unknown:
        raise InputError(f"{where} is packed with {unknown[0]!r}; save it with one of {', '.join(sorted(CODECS))}")
    piece = about["chunk_grid"]["configuration"]["chunk_shape"] if new else about["chunks"]
    check_numbers(math.prod(piece), where)
