"""Biochemical oxygen demand: six readings of a first-order reaction."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

DAYS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0])


def solve(values):
    L, k = (values[name][:, None] for name in ("L", "k"))
    return {"y": L * (1 - np.exp(-k * DAYS))}


ENTRY = Entry(
    __file__,
    solve,
    published={"L": 19.143, "k": 0.5311},
    source="Bates and Watts (1988), least squares",
)

if __name__ == "__main__":
    ENTRY.main()
