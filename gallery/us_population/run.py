"""Population of the United States until 1910: the logistic equation of Pearl and Reed."""

import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

YEARS = np.arange(13) * 10.0


def solve(values):
    r, K, start = (values[name][:, None] for name in ("r", "K", "P0"))
    return {"P": K / (1 + (K / start - 1) * np.exp(-r * YEARS))}


ENTRY = Entry(
    __file__,
    solve,
    starts={"P0": dist.LogNormal(1.5, 1.0)},
    published={"r": 0.0313395, "K": 197.273},
    source="Pearl and Reed (1920)",
    later="later.csv",
)

if __name__ == "__main__":
    ENTRY.main()
