"""Lynx and hare: the equations of Lotka and Volterra."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery import classical
from gallery.shared import Entry

YEARS = np.arange(21.0)


def solve(values):
    alpha, beta, gamma, delta = (values[name] for name in ("alpha", "beta", "gamma", "delta"))

    def slope(t, y):  # of the logarithms
        return np.stack([alpha - beta * np.exp(y[1]), -gamma + delta * np.exp(y[0])])

    found = np.exp(classical.runge_kutta(slope, np.log([values["hare0"], values["lynx0"]]), YEARS, 6))
    return {"hare": found[:, 0].T, "lynx": found[:, 1].T}


ENTRY = Entry(
    __file__,
    solve,
    starts={"hare0": dist.LogNormal(2.3, 1.0), "lynx0": dist.LogNormal(2.3, 1.0)},
    published={"alpha": 0.55, "beta": 0.028, "gamma": 0.80, "delta": 0.024, "noise_hare": 0.25, "noise_lynx": 0.25},
    source="Carpenter (2018), posterior means with Stan",
    show=("hare", "lynx"),
)

if __name__ == "__main__":
    ENTRY.main()
