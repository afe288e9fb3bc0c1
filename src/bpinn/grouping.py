"""Groups of rows: repeated measurements of several subjects or runs, and several quantities in one column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bpinn.data_files.table import DataTable, loose_name_of
from bpinn.problem_file.rows import groups, label

SUBJECTS = (  # the names that columns of subjects often have
    "subject", "subj", "id", "group", "seed", "run", "batch", "patient", "plate", "dish", "tree", "rep", "replicate",
    "animal", "mouse", "rat", "chick", "plant", "participant", "person", "individual", "specimen", "sample",
    "experiment", "trial", "series", "set", "well", "tube", "cell", "cup", "site", "station", "sensor", "probe",
    "logger", "channel", "device", "case", "unit", "lot", "cohort", "colony", "culture", "name", "label",
)  # fmt: skip
QUANTITIES = ("variable", "quantity", "parameter", "measurement", "measurand", "signal", "species", "analyte", "what")
NUMBERED = (" id", "_id", " no", "_no", " nr", "_nr", " number", "_number")
FEWEST = 3  # rows of a group on average; with fewer there is no curve to fit
ALIKE = 0.6  # the share of rows with different positions, below which groups are measured at the same positions


@dataclass(frozen=True)
class Grouping:
    """A column that says to which group a row belongs, and the groups in the order of their first rows."""

    column: str
    values: tuple[str, ...]

    def rows(self, table: DataTable, value: str) -> np.ndarray:
        return np.array([label(cell) == value for cell in table.column(self.column)])

    def parts(self, table: DataTable) -> list[np.ndarray]:
        """The rows of each group."""
        return [self.rows(table, value) for value in self.values]


def kind_of(column: str) -> str:
    """What the name of a column says: that it holds "subjects", "quantities", or nothing."""
    word = loose_name_of(column).casefold().rstrip(".")
    for ending in NUMBERED:
        word = word.removesuffix(ending)
    return "subjects" if word in SUBJECTS else "quantities" if word in QUANTITIES else ""


def find(
    table: DataTable, candidates: Sequence[str], along: Mapping[str, np.ndarray], places: Sequence[np.ndarray]
) -> Grouping | None:
    """The finest column that splits the rows into curves along the same or similar positions.

    Arguments:
        candidates: columns that may hold groups.
        along: columns that may be the coordinate of the curves.
        places: positions in space; a column that numbers places is no group.
    """
    found = []
    for column in candidates:
        values, kind = groups(table.column(column)), kind_of(column)
        if not 2 <= len(values) <= len(table.column(column)) / FEWEST:
            continue
        grouping = Grouping(column, tuple(values))
        parts = grouping.parts(table)
        others = [at for c, at in along.items() if c != column]
        split = [at for at in others if _sorted_within(at, parts)]
        if any(_numbers(at, parts) for at in places):
            continue
        # without a telling name only the coordinate of the curves counts: the first column that rises in each group
        if any(_repeats(at, parts) for at in split[:1]) or (
            kind and (split or any(_repeats(at, parts) for at in others))
        ):
            is_text = not table.looks_numeric(column)
            found.append((kind != "", is_text, _in_blocks(parts), len(values), grouping))
    return max(found, key=lambda f: f[:4])[-1] if found else None


def _in_blocks(parts: Sequence[np.ndarray]) -> bool:
    """Whether the rows of each group follow each other: of two columns of whole numbers, that is the one of groups."""
    return all(np.all(np.diff(np.flatnonzero(part)) == 1) for part in parts)


def _repeats(at: np.ndarray, parts: Sequence[np.ndarray]) -> bool:
    """Whether most groups have most of the positions."""
    rows = np.isfinite(at) & np.any(parts, axis=0)
    distinct = np.unique(at[rows])
    if not FEWEST <= len(distinct) <= ALIKE * rows.sum():
        return False
    return float(np.median([len(np.unique(at[rows & part])) for part in parts])) >= ALIKE * len(distinct)


def _sorted_within(at: np.ndarray, parts: Sequence[np.ndarray]) -> bool:
    """Whether positions do not fall in most groups, and rise in some."""
    steps = [np.diff(at[part & np.isfinite(at)]) for part in parts]
    return float(np.mean([np.all(s >= 0) for s in steps])) > ALIKE and any(np.any(s > 0) for s in steps)


def _numbers(at: np.ndarray, parts: Sequence[np.ndarray]) -> bool:
    """Whether each group is at one place, and not all at the same."""
    inside = [at[part & np.isfinite(at)] for part in parts]
    return all(np.ptp(a) == 0 for a in inside if a.size) and len({a[0] for a in inside if a.size}) > 1
