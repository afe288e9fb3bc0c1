"""Influenza in a boarding school: the SIR model."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery import classical
from gallery.shared import Entry

DAYS = np.arange(14.0)
BOYS = 7.63  # in hundreds


def solve(values):
    beta, gamma = values["beta"], values["gamma"]

    def slope(t, y):
        new = beta * y[0] * y[1] / BOYS
        return np.stack([-new, new - gamma * y[1]])

    found = classical.runge_kutta(slope, np.stack([BOYS - values["I0"], values["I0"]]), DAYS, 6)
    return {"I": found[:, 1].T}


ENTRY = Entry(__file__, solve, starts={"I0": dist.LogNormal(-4.0, 1.5)}, show=("I", "S"))

if __name__ == "__main__":
    ENTRY.main()
