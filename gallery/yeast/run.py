"""Growth of yeast: the logistic equation."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HOURS = np.arange(19.0)


def solve(values):
    r, K, start = (values[name][:, None] for name in ("r", "K", "u0"))
    return {"u": K / (1 + (K / start - 1) * np.exp(-r * HOURS))}


ENTRY = Entry(__file__, solve, starts={"u0": dist.LogNormal(2.0, 1.5)})

if __name__ == "__main__":
    ENTRY.main()
