"""Blocks of a chain's records: concatenating and slicing them, and converting them to arrays for a file."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bpinn.methods.base import Record


def arrays_of(record: Record, count: int) -> dict[str, np.ndarray]:
    """A block's records as arrays by name, for a file."""
    arrays = {"count": np.array(count)} | {f"stats/{name}": values for name, values in record.stats.items()}
    for name in ("z", "functionals"):
        value = getattr(record, name)
        if value is not None:
            arrays[name] = value
    return arrays


def record_of(arrays: dict[str, np.ndarray]) -> Record:
    stats = {name.removeprefix("stats/"): values for name, values in arrays.items() if name.startswith("stats/")}
    return Record(arrays.get("z"), arrays.get("functionals"), stats)


def joined(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The concatenated history of two stages with the same objective; step numbers continue in the second."""
    if not before or not after:
        return before or after
    after = after | {"step": after["step"] + before["step"][-1]}
    return {name: np.concatenate([before[name], after[name]], axis=-1) for name in before}


def side_by_side(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Histories of several chains stacked, (chains, records), padded with NaN to the longest."""
    steps = max((row["step"] for row in rows), key=len)

    def fill(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.full(len(steps) - len(values), np.nan)])

    return {"step": steps} | {name: np.stack([fill(row[name]) for row in rows]) for name in rows[0] if name != "step"}


def alike(records: Sequence[Record]) -> list[Record]:
    """Records with the statistics that all of them have: those of older versions have fewer."""
    names = set.intersection(*(set(record.stats) for record in records))
    return [record._replace(stats={n: x for n, x in record.stats.items() if n in names}) for record in records]


def concatenated(blocks: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *a: np.concatenate(a), *blocks)


Reviewed = tuple[int, np.ndarray, dict[str, np.ndarray]]  # the step after a block, its functionals, its statistics


def between(blocks: Sequence[Reviewed], first: int, last: int) -> Record:
    """Functionals and statistics of the steps ``first`` to ``last`` (exclusive), across block boundaries."""
    parts = []
    for end, functionals, stats in blocks:
        begin = end - len(functionals)
        rows = slice(max(first - begin, 0), max(last - begin, 0))
        parts.append(Record(None, functionals[rows], {name: values[rows] for name, values in stats.items()}))
    return concatenated(alike(parts))
