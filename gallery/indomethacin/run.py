"""Indomethacin: an injection that spreads from blood to tissue and back."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HERE = Path(__file__).parent
HOURS = np.loadtxt(HERE / "subject1.csv", delimiter=",", skiprows=1)[:, 0]


def solve(values):
    k10, k12, k21, start = (values[name][:, None] for name in ("k10", "k12", "k21", "c0"))
    total = k10 + k12 + k21
    root = np.sqrt(total**2 - 4 * k10 * k21)
    fast, slow = (total + root) / 2, (total - root) / 2
    return {"c": start / root * ((fast - k21) * np.exp(-fast * HOURS) + (k21 - slow) * np.exp(-slow * HOURS))}


ENTRY = Entry(__file__, solve, starts={"c0": dist.LogNormal(1.0, 1.0)})

if __name__ == "__main__":
    ENTRY.main()
