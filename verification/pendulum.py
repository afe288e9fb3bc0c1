"""Seven ways to state a pendulum with 30 readings of its angle: is what is called good right?

    python verification/pendulum.py [--sets 10] [--out FILE]

A network, a squared exponential of length 0.8 with 20 terms and a Matérn 5/2 kernel with 40 terms, each with the noise
stated and inferred; and a Gaussian process with everything inferred, tolerance and points by default. For each: how
many runs are good, care and bad, how many of the good ones have a truth outside of its 99.9% interval, the largest
distance of a truth in standard deviations, and the median of seconds and of processor seconds.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import bpinn as bp

sys.path.insert(0, str(Path(__file__).parent))
from model_list import INFERRED, SWING, swing, swung

FIELDS = {
    "network": lambda: bp.MLP(hidden=(30, 30), scale_inputs=True),
    "squared exponential, 20 terms": lambda: bp.KarhunenLoeve(bp.SquaredExponential(length=0.8), terms=20),
    "Matérn 5/2, 40 terms": lambda: bp.KarhunenLoeve(bp.Matern52(length=0.8), terms=40),
}
EVERYTHING = "GaussianProcess(), everything inferred"
WAYS = [(field, noise) for field in FIELDS for noise in ("stated", "inferred")] + [(EVERYTHING, "inferred")]


def problem(field: str, noise: str, number: int) -> bp.Problem:
    rng = np.random.default_rng([number, 30])
    if field != EVERYTHING:
        return swung(rng, field=FIELDS[field](), stated=INFERRED if noise == "inferred" else None)
    stated = swung(rng, stated=INFERRED)
    sensors = {"law": bp.Physics(swing), "u": stated.sensors["u"]}
    return bp.Problem(stated.domain, {"u": bp.GaussianProcess()}, sensors, stated.unknowns)


def measured(field: str, noise: str, number: int) -> dict[str, Any]:
    of, begun, busy = problem(field, noise, number), time.perf_counter(), time.process_time()
    result = bp.infer(of, seed=number, progress=False)
    health = result.diagnose()
    seconds, processor = time.perf_counter() - begun, time.process_time() - busy
    off = {name: float((result.draws(name).mean() - true) / result.draws(name).std()) for name, true in SWING.items()}
    return {
        "way": f"{field}, noise {noise}", "set": number, "verdict": health.verdict, "reasons": health.reasons,
        "off": off, "seconds": seconds, "processor": processor,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| field | good | care | bad | good, truth outside | largest distance of the good | seconds | processor |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        good = [max(abs(z) for z in row["off"].values()) for row in own if row["verdict"] == "good"]
        counts = " | ".join(str(sum(row["verdict"] == v for row in own)) for v in ("good", "care", "bad"))
        times = " | ".join(f"{np.median([row[what] for row in own]):.0f}" for what in ("seconds", "processor"))
        outside = sum(z > 3.29 for z in good)
        lines.append(f"| {way} | {counts} | {outside} | {max(good):.1f} sd | {times} |" if good else
                     f"| {way} | {counts} | 0 | – | {times} |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "work" / "pendulum.json")
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.is_file() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for number in range(given.sets):
        for field, noise in WAYS:
            if not any(row["way"] == f"{field}, noise {noise}" and row["set"] == number for row in rows):
                rows.append(measured(field, noise, number))
                given.out.write_text(json.dumps(rows, indent=1))
                found = {name: round(z, 1) for name, z in rows[-1]["off"].items()}
                print(
                    f"{rows[-1]['way']}, {number}: {rows[-1]['verdict']}, {rows[-1]['processor']:.0f} s",
                    found,
                    flush=True,
                )
    print(table(rows))


if __name__ == "__main__":
    main()
