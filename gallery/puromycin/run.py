"""Puromycin: the law of Michaelis and Menten for the velocity of a reaction."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HERE = Path(__file__).parent
CONCENTRATIONS = np.loadtxt(HERE / "treated.csv", delimiter=",", skiprows=1)[:, 0]


def solve(values):
    Vmax, Km = (values[name][:, None] for name in ("Vmax", "Km"))
    return {"v": Vmax * CONCENTRATIONS / (Km + CONCENTRATIONS)}


ENTRY = Entry(
    __file__,
    solve,
    published={"Vmax": 212.7, "Km": 0.06412},
    source="Bates and Watts (1988), least squares",
)

if __name__ == "__main__":
    ENTRY.main()
