"""Darcy flow with an unknown permeability: synthetic readings of benchmarks/suite, whose truth is known."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from gallery.shared import Entry

ENTRY = Entry.of_suite(__file__, "darcy_flow", unknown=("k(x, y)",))

if __name__ == "__main__":
    ENTRY.main()
