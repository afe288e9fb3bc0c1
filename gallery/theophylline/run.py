"""Theophylline: absorption from the stomach and elimination from the blood."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HERE = Path(__file__).parent
HOURS = np.loadtxt(HERE / "subject2.csv", delimiter=",", skiprows=1)[:, 0]


def solve(values):
    ka, ke, A = (values[name][:, None] for name in ("ka", "ke", "A"))
    return {"c": A * ka / (ka - ke + 1e-9) * (np.exp(-ke * HOURS) - np.exp(-ka * HOURS))}


ENTRY = Entry(__file__, solve)

if __name__ == "__main__":
    ENTRY.main()
