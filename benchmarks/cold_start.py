"""Seconds from a cold start to an answer: this checkout against another revision.

    python benchmarks/cold_start.py [--against REVISION] [--repeats 5]

Each run is a separate process: import, the 1D inverse problem at noise 0.1 with default settings, bands, verdict. The
two revisions run alternately. Nothing comes from a compilation cache except the native kernel. The table has medians
over repeats; each repeat has its own seed, the same for both revisions.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from results import HERE

PROGRAM = """
import json, sys, time
began = time.perf_counter()
import bpinn as bp
imported = time.perf_counter()
problem = bp.paper.inverse_reaction_1d(noise=0.1, seed=0).problem
inferring = time.perf_counter()
result = bp.infer(problem, seed=int(sys.argv[1]), progress=False)
inferred = time.perf_counter()
result.predict("u", problem.grid())
verdict = result.diagnose().verdict
ended = time.perf_counter()
sampling = result.seconds["warm-up"] + result.seconds["draws"]
print(json.dumps({"import": imported - began, "until the first step": inferred - inferring - sampling,
    "warm-up": result.seconds["warm-up"], "draws": result.seconds["draws"], "bands and verdict": ended - inferred,
    "in all": ended - began, "draws a chain": result.z.shape[1], "good": verdict == "good"}))
"""


def run(source: Path, seed: int) -> dict[str, float]:
    env = os.environ | {"PYTHONPATH": str(source / "src")}
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)], env=env, capture_output=True, text=True, check=True, cwd=source
    )
    return json.loads(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.against and subprocess.run(["git", "-C", HERE.parent, "rev-parse", "-q", "--verify",
                                         f"{given.against}^{{commit}}"], capture_output=True).returncode:  # fmt: skip
        sys.exit(f"cold_start: {given.against!r} is not a revision of this repository")
    sources = {"this": HERE.parent}
    with tempfile.TemporaryDirectory() as folder:
        if given.against:
            sources[given.against] = Path(folder) / "other"
            subprocess.run(["git", "-C", HERE.parent, "worktree", "add", "-q", "--detach", sources[given.against],
                            given.against], check=True)  # fmt: skip
        try:
            runs = {name: [] for name in sources}
            for seed in range(given.repeats):
                for name, source in sources.items():
                    runs[name].append(run(source, seed))
        finally:
            if given.against:
                remove = ["git", "-C", HERE.parent, "worktree", "remove", "--force", sources[given.against]]
                subprocess.run(remove, check=True)
    columns = list(runs["this"][0])
    print("| revision | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for name, found in runs.items():
        medians = [np.median([float(r[c]) for r in found]) for c in columns[:-2]]
        counts = (
            f"{np.median([r['draws a chain'] for r in found]):.0f} | {sum(r['good'] for r in found)} of {len(found)}"
        )
        print(f"| {name} | " + " | ".join(f"{m:.2f}" for m in medians) + f" | {counts} |")


if __name__ == "__main__":
    main()
