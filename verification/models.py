"""Right and wrong models of the same data: does the verdict tell them apart?

    python verification/models.py [--sets 5] [--only decay] [--right] [--follow] [--out FILE] [--page FILE]

Each model is a problem with readings made from another, true one by an independent solver. A wrong model is caught if
its verdict is not "good". Models marked as hidden cannot be told from their readings, whatever the method: a sensor
that is late by a constant in an autonomous equation, say, or an equation whose best fit differs from the truth by so
little that a likelihood-ratio test against the truth has a power below 0.99 (noncentrality below 18.4: the linearised
pendulum has 2.9, quadratic friction 9.7, the harvest 14.8, the offset of growth 9.3). They are counted apart. With
``--follow`` the first advice of a verdict that is not good is followed mechanically, and the outcome judged again.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

import bpinn as bp

sys.path.insert(0, str(Path(__file__).parent))
from advice import followed
from model_list import MODELS, Model


def tails(result: bp.Result, truth: dict[str, float]) -> dict[str, float]:
    """How far truths are from their posteriors, as tail probabilities."""
    found = {}
    for name, true in truth.items():
        draws = result.draws(name)
        found[name] = float(2 * ndtr(-abs(draws.mean() - true) / draws.std()))
    return found


def judged(which: Model, number: int, follow: bool = False) -> dict[str, Any]:
    """The verdict on one data set, and what it is after its first advice was followed."""
    problem = which.make(np.random.default_rng([number, *which.name.encode()]))
    started, busy = time.perf_counter(), time.process_time()
    result = bp.infer(problem, seed=number, progress=False)
    health = result.diagnose()
    row = {
        "model": which.name, "set": number, "verdict": health.verdict, "reasons": health.reasons,
        "advice": health.advice, "tails": tails(result, which.truth),
        "seconds": round(time.perf_counter() - started, 1), "processor": round(time.process_time() - busy, 1),
    }  # fmt: skip
    if follow and health.verdict != "good" and health.advice:
        changed, method = followed(problem, result, health.advice[0])
        if changed is not problem or method is not None:
            result = bp.infer(changed, method, seed=number, progress=False)
            row["then"] = {"verdict": result.diagnose().verdict, "tails": tails(result, which.truth)}
    return row


def told(rows: list[dict[str, Any]]) -> str:
    by_name = {which.name: which for which in MODELS}
    kinds: dict[str, list] = {"right": [], "wrong": [], "hidden": []}
    for row in rows:
        which = by_name[row["model"]]
        kinds["right" if which.is_right else "hidden" if which.is_hidden else "wrong"].append(row)
    lines = []
    for kind, of_kind in kinds.items():
        good = [row for row in of_kind if row["verdict"] == "good"]
        off = [row for row in good if any(p < 1e-3 for p in row["tails"].values())]
        lines.append(
            f"{kind}: {len({r['model'] for r in of_kind})} models, {len(of_kind)} runs, {len(good)} called good, "
            f"{len(off)} of them with a truth outside of its 99.9% interval"
        )
        then = [row["then"] for row in of_kind if "then" in row]
        good = [row for row in then if row["verdict"] == "good"]
        off = [row for row in good if any(p < 1e-3 for p in row["tails"].values())]
        if then:
            lines.append(
                f"{kind}, first advice followed in {len(then)} runs that were not good: {len(good)} are then called "
                f"good, {len(off)} of them with a truth outside"
            )
    return "\n".join(lines)


PAGE = """# Wrong models

Chains of a wrong model agree as well as those of a right one, so the verdict also criticises the model
([health.md](health.md)). This page, written by `python verification/models.py`, counts how often it tells wrong models
from right ones. Readings are made from a true problem by an independent solver, and the posterior of each model is
judged with default settings. "Outside" are truths outside of their 99.9% interval. Following the first advice
mechanically (`verification/advice.py`) means, for "check units and boundary data, then the equations, then the field's
prior", a more flexible field, since a machine does not know better.

Models marked *hidden* cannot be told from their readings, whatever the method: the best fit of the wrong equation
differs from the truth by so little that a likelihood-ratio test against the truth has a power below 0.99 (noncentrality
below 18.4; the linearised pendulum has 2.9, quadratic friction 9.7, the harvest 14.8, the offset of growth 9.3), or
nothing in the problem says what is wrong, as for a sensor that is late in an autonomous equation. Gompertz growth
stated as logistic has 20, close to what the likelihood-ratio test itself can tell.
"""


def page(rows: list[dict[str, Any]]) -> str:
    """The table of all models, with the first reason of those that are not good."""
    kinds = {m.name: "right" if m.is_right else "hidden" if m.is_hidden else "wrong" for m in MODELS}
    sets = 1 + max(row["set"] for row in rows)
    missing = [m.name for m in MODELS if m.name not in {row["model"] for row in rows}]
    lines = [
        PAGE,
        f"Up to {sets} data set{'s' if sets > 1 else ''} each."
        + (f" Not run: {'; '.join(missing)}." if missing else ""),
    ]
    lines += ["", *(f"- {line}" for line in told(rows).splitlines()), ""]
    lines += ["| model | is | verdicts | outside | first reason |", "| --- | --- | --- | --- | --- |"]
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        verdicts = [f"{sum(r['verdict'] == v for r in own)} {v}" for v in ("good", "care", "bad")]
        outside = sum(any(p < 1e-3 for p in row["tails"].values()) for row in own)
        reasons = [reason for row in own if row["verdict"] != "good" for reason in row["reasons"]]
        reasons = [r for r in reasons if "chains agree" not in r and "restarted" not in r]
        verdict = ", ".join(v for v in verdicts if v[0] != "0")
        lines.append(f"| {name} | {kinds[name]} | {verdict} | {outside or ''} | {reasons[0] if reasons else ''} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--page", type=Path, default=None)
    parser.add_argument("--right", action="store_true", help="right models only")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    done = {(row["model"], row["set"]) for row in rows}
    chosen = [
        m for m in MODELS if any(m.name.startswith(part) for part in given.only) and (m.is_right or not given.right)
    ]
    for number in range(given.sets):  # sets outside, so that a run that is stopped has seen all models
        for which in chosen:
            if (which.name, number) in done:
                continue
            row = judged(which, number, given.follow)
            rows.append(row)
            right = "right" if which.is_right else "hidden" if which.is_hidden else "wrong"
            wrong = (row["verdict"] == "good") != which.is_right and not which.is_hidden
            far = {name: f"{p:.1g}" for name, p in row["tails"].items() if p < 1e-2}
            why = [] if which.is_right == (row["verdict"] == "good") else row["reasons"][1:3]
            print(
                f"{'!' if wrong else ' '} {right:6s} {which.name}, {number}: {row['verdict']}, {row['seconds']} s",
                far,
                why,
                row.get("then", ""),
            )
            sys.stdout.flush()
            if given.out is not None:
                given.out.write_text(json.dumps(rows, indent=1))
    print(told(rows))
    if given.page is not None:
        given.page.write_text(page(rows))


if __name__ == "__main__":
    main()
