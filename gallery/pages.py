"""The pages of docs/gallery, written from the numbers of the runs and the texts of the entries."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gallery.shared import NUMBERS, PROBLEM, RUN, TEXT, Entry, rows_of

VERDICTS = {"good": "good", "care": "usable with care", "bad": "do not trust"}
INDEX = "index.md"


def table(lines: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = lines
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rest]]


def numbers_in(entry: Entry) -> dict[str, Any]:
    return json.loads((entry.folder / NUMBERS).read_text())


def page(entry: Entry) -> str:
    """The page of an entry as Markdown."""
    numbers = numbers_in(entry)
    intro, _, rest = (entry.folder / TEXT).read_text().strip().partition("\n## ")
    folder = f"gallery/{entry.name}"
    lines = [f"# {numbers['title']}", "", intro.strip(), ""]
    lines += [f"![{numbers['title']}: {shown_in(entry)}, posteriors of unknowns]({entry.name}.png)", ""]
    lines += ["## The answer", "", *answer(numbers, entry), "", f"## {rest.strip()}", "", "## The problem file", ""]
    lines += [f"`bpinn run {folder}` runs it and writes a report.", "", "```toml"]
    lines += [(entry.folder / PROBLEM).read_text().strip(), "```", "", "## In Python", "", "```python"]
    lines += ["import bpinn as bp", "from bpinn.problem_file import read_problem", ""]
    lines += [
        f'file = read_problem("{folder}/{PROBLEM}")',
        "result = bp.infer(file.problem, file.method, seed=file.seed)",
    ]
    lines += ["print(result.summary())", 'bp.plot.overview(result).savefig("overview.png")', "```", ""]
    lines += [f"`python {folder}/{RUN}` compares the answer as above:", "", "```python"]
    lines += [(entry.folder / RUN).read_text().strip(), "```"]
    return "\n".join(lines) + "\n"


def shown_in(entry: Entry) -> str:
    several = len(entry.coordinates) > 1
    return "maps of posterior means, sd and errors, and readings" if several else "fields with 95% bands and readings"


def answer(numbers: Mapping[str, Any], entry: Entry) -> list[str]:
    lines = [*table(rows_of(numbers)), ""] if numbers["rows"] else []
    if entry.solve is not None:
        lines += [
            '"Equation solved exactly" is the posterior with the same priors and noise if the unknowns are put into the'
            " solution of the equation, without a field ([classical.py](../../gallery/classical.py)).",
            "",
        ]
    if entry.source:
        lines += [f"Published: {entry.source}.", ""]
    if numbers["fields"]:
        told = [f"{n} {100 * e['error']:.1f}% ({100 * e['within']:.0f}%)" for n, e in numbers["fields"].items()]
        lines += [
            "Relative error of the fields, and in brackets the share of the domain where the truth is within 3 sd: "
            + ", ".join(told)
            + ".",
            "",
        ]
    lines += [
        f"Verdict: **{VERDICTS[numbers['verdict']]}**.",
        "",
        *(f"- {reason}" for reason in numbers["reasons"]),
        "",
    ]
    forward = numbers["forward"]
    if "refused" in forward:
        lines += [f"Forward check: not done ({forward['refused']}).", ""]
    else:
        lines += [f"Forward check with a classical solver: {forward['verdict']}."]
        lines += ["", *(f"- {reason}" for reason in forward["reasons"]), ""] if forward["reasons"] else [""]
    if numbers["later"]:
        head = ["year", "census, millions", "95% interval of the prediction"]
        rows = [
            [f"{r['year']:.0f}", f"{r['value']:.1f}", f"{r['low']:.0f} to {r['high']:.0f}"] for r in numbers["later"]
        ]
        lines += ["Readings that were not used:", "", *table([head, *rows]), ""]
    lines += [
        f"{numbers['readings']} readings, {numbers['parameters']} parameters, {numbers['chains']} chains of "
        f"{numbers['draws']} draws, {numbers['seconds']} s on two busy cores."
    ]
    return lines


def index(entries: Sequence[Entry]) -> str:
    """The page that lists all others."""
    real, made = ([e for e in entries if bool(e.truth) == synthetic] for synthetic in (False, True))
    ordinary, partial = ([e for e in made if (len(e.coordinates) > 1) == several] for several in (False, True))
    lines = [
        "# Gallery",
        "",
        "Problems with their data, problem files and answers. `make gallery` runs those whose files have changed and",
        "writes these pages; no number in them is typed by hand. Where a verdict is not good, the page says why.",
        "",
    ]
    groups = {
        "Real data": real,
        "Partial differential equations, with synthetic data whose truth is known": partial,
        "Ordinary differential equations, with synthetic data whose truth is known": ordinary,
    }
    for title, group in groups.items():
        rows = [["", "problem", "unknowns", "verdict", "seconds"]]
        for entry in group:
            n = numbers_in(entry)
            names = [r["name"] for r in n["rows"] if not r["name"].startswith("noise_")]
            unknowns = ", ".join([*names, *entry.unknown])
            fit = "field" if len(entry.coordinates) > 1 else "curve"
            small = f"![{n['title']}, the fitted {fit}](thumbs/{entry.name}.png)"
            cells = [small, f"[{n['title']}]({entry.name}.md)", unknowns, VERDICTS[n["verdict"]], str(n["seconds"])]
            rows.append(cells)
        lines += [f"## {title}", "", *table(rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def write(entries: Sequence[Entry], docs: Path) -> None:
    done = [entry for entry in entries if (entry.folder / NUMBERS).is_file()]
    docs.mkdir(parents=True, exist_ok=True)
    for entry in done:
        (docs / f"{entry.name}.md").write_text(page(entry))
    (docs / INDEX).write_text(index(done))
