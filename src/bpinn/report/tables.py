"""Tables of a report as CSV files, which the page also holds: it may be sent alone."""

import base64
import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.predictive import Check
from bpinn.report.figures import Portrait
from bpinn.result import Result
from bpinn.run_folder.files import write_file

MOST_BYTES = 3 * 2**20  # of a table in the page
UNKNOWNS = "all-unknowns"


@dataclass(frozen=True)
class Table:
    """A table in the folder; ``data`` is its address in the page, None if it is too large for that."""

    stem: str
    about: str
    data: str | None

    @property
    def file(self) -> str:
        return f"tables/{self.stem}.csv"


def stem(name: str) -> str:
    """A name, made safe for use as a file name."""
    return re.sub(r"[^\w-]+", "_", name)[:80] or "_"


def save(result: Result, found: list[Portrait], check: Check | None, folder: Path) -> list[Table]:
    """Write the tables."""
    tables = []
    for name, (content, about) in _contents(result, found, check).items():
        write_file(folder / f"{name}.csv", content)
        data = "data:text/csv;base64," + base64.b64encode(content).decode() if len(content) <= MOST_BYTES else None
        tables.append(Table(name, about, data))
    return tables


def _contents(result: Result, found: list[Portrait], check: Check | None) -> dict[str, tuple[bytes, str]]:
    """The bytes of each table and what it is about, by the stem of its file."""
    contents = {}
    for portrait in found:
        contents[stem(portrait.name)] = _csv(_rounded(portrait.table())), f"{portrait.name} across the domain"
    table = result.summary().table
    if len(table):
        columns = {"name": [*table.index]} | _rounded({c: table[c].to_numpy() for c in table.columns})
        contents[UNKNOWNS] = _csv(columns), "unknowns and inferred noises"
    for group in () if check is None else check.groups:
        numbers = {**group.at, "value": group.values, "expected": group.mean, "sd": group.sd, "p": group.p}
        what = f"{group.unit}s"
        about = f"{what} of {group.name} and their leave-one-out prediction"
        contents[f"{what}-{stem(group.name)}"] = _csv(_rounded(numbers)), about
    return contents


def _csv(columns: Mapping[str, Any]) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _rounded(columns: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    return {name: [f"{v:.6g}" for v in values] for name, values in columns.items()}
