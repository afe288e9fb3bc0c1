"""Adsorption in one layer: the volume approaches a maximum as the pressure rises."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

HERE = Path(__file__).parent
PRESSURES = np.loadtxt(HERE / "volume.csv", delimiter=",", skiprows=1)[:, 0]


def solve(values):
    Vmax, k = (values[name][:, None] for name in ("Vmax", "k"))
    return {"V": Vmax * (1 - np.exp(-k * PRESSURES))}


ENTRY = Entry(
    __file__,
    solve,
    published={"Vmax": 238.94212918, "k": 5.5015643181e-4, "noise_V": 0.10187876330},
    source="NIST, certified values of Misra1a (least squares)",
)

if __name__ == "__main__":
    ENTRY.main()
