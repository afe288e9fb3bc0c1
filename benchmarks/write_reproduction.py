"""Write docs/reproduction.md from the result.json files of `bpinn reproduce`; runs nothing.

python benchmarks/write_reproduction.py [--results docs/reproduction] [--page docs/reproduction.md]
"""

import argparse
import json
import os
from pathlib import Path

from results import HERE
from write_page import prose, table

from bpinn.reproduce import EXPERIMENTS

INTRODUCTION = """
What `bpinn reproduce` finds when it runs the evaluation of the B-PINNs paper (Yang, Meng, Karniadakis 2020)
anew. A table of means depends on one draw of the noise, so what is compared are claims: every sentence that the
paper draws from a figure or a table is a computed check, over as many data sets as were run. Each experiment
has its numbers in `result.json` beside its figure, from which this page is written (`python
benchmarks/write_reproduction.py`).
"""


def section(name: str, folder: Path, page: Path) -> list[str]:
    path = folder / name / "result.json"
    about = EXPERIMENTS[name].about
    if not path.exists():
        return [f"## {name}", "", f"{about}: not run.", ""]
    found = json.loads(path.read_text())
    seeds = sorted({case["seed"] for case in found.get("cases", [])}) or [0]
    beside = os.path.relpath(folder / name, page.parent)
    sets = f"{len(seeds)} data set{'s' if len(seeds) > 1 else ''}"
    lines = [
        f"## {name}",
        "",
        prose(f"{about}. Preset `{found['preset']}`, {sets}; [numbers]({beside}/result.json)."),
        "",
    ]
    if found["cut"]:
        lines += [prose(f"Not as in the paper: {'; '.join(found['cut'])}."), ""]
    lines += [f"![{about}]({beside}/figure.png)", "", table(found["table"]["columns"], found["table"]["rows"]), ""]
    several = [case for case in found.get("cases", []) if case.get("branches")]
    for case in several:
        told = ", ".join(f"chains {b['chains']} with an error of u of {b['error']:.1%}" for b in case["branches"])
        lines += [prose(f"- {case['label']}, noise {case['noise']:g}: chains are on several solutions: {told}.")]
    lines += [""] if several else []
    rows = [
        [claim["says"], f"{claim['holds_in']} of {claim['of']}", "; ".join(list(claim["numbers"].values())[:3])]
        for claim in found["claims"]
    ]
    return [*lines, table(["what the paper says", "holds in", "numbers"], rows), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE.parent / "docs" / "reproduction")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "reproduction.md")
    given = parser.parse_args()
    lines = ["# The paper, run anew", "", prose(INTRODUCTION), ""]
    for name in EXPERIMENTS:
        lines += section(name, given.results, given.page)
    given.page.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {given.page}")


if __name__ == "__main__":
    main()
