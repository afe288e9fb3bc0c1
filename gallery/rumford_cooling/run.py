"""Rumford's cannon: Newton's law of cooling does not fit."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HERE = Path(__file__).parent
MINUTES = np.loadtxt(HERE / "temperature.csv", delimiter=",", skiprows=1)[:, 0]


def solve(values):
    k, start = (values[name][:, None] for name in ("k", "T0"))
    return {"T": 60 + (start - 60) * np.exp(-k * MINUTES), "start": start}


ENTRY = Entry(__file__, solve, starts={"T0": dist.LogNormal(4.8, 0.2)})

if __name__ == "__main__":
    ENTRY.main()
