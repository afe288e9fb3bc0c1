"""Population of the United States until 2020: the logistic equation no longer fits."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

YEARS = np.arange(24) * 10.0


def solve(values):
    r, K, start = (values[name][:, None] for name in ("r", "K", "P0"))
    return {"P": K / (1 + (K / start - 1) * np.exp(-r * YEARS))}


ENTRY = Entry(
    __file__,
    solve,
    starts={"P0": dist.LogNormal(1.5, 1.0)},
)

if __name__ == "__main__":
    ENTRY.main()
