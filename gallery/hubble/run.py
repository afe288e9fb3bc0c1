"""Hubble's nebulae: their velocity grows in proportion to their distance."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

DISTANCES = np.genfromtxt(Path(__file__).with_name("nebulae.csv"), delimiter=",", skip_header=1, usecols=1)


def solve(values):
    velocities = values["H"][:, None] * DISTANCES
    return {"v": velocities, "here": np.zeros((len(velocities), 1))}


ENTRY = Entry(
    __file__,
    solve,
    published={"H": 465.0},
    source="465 ± 50 by Hubble, who also solved for the motion of the sun",
)

if __name__ == "__main__":
    ENTRY.main()
