"""The process that reads problem files for the studio: requests come as lines of JSON, answers go out as such.

It is started in the studio's folder, and paths in requests are relative to it, so that messages are those that the
program prints there.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bpinn import prior
from bpinn.data_files import read_table
from bpinn.data_files.table import name_of
from bpinn.draft import write_draft
from bpinn.errors import InputError
from bpinn.expressions import parse
from bpinn.fields import Field
from bpinn.likelihoods import Likelihood
from bpinn.measurements import label
from bpinn.methods import Method
from bpinn.problem import Problem
from bpinn.problem_file import ProblemFile, parse_toml, read_problem
from bpinn.problem_file.settings import OPTIONAL, PRIORS
from bpinn.progress_file import plain
from bpinn.readings import Readings, extent
from bpinn.report import formatting
from bpinn.run_folder import runs
from bpinn.studio import text_edits

MOST_READINGS = 2000  # of a group of sensors, sent to the page
MOST_DRAWS = 24  # of the prior, sent to the page
MOST_COLUMNS = 200


def check(path: str, text: str) -> dict[str, Any]:
    """What `bpinn check` says of a text, and what a page shows of it: formulas, readings, tables for the form."""
    content: dict[str, Any] = {}
    formulas: list[dict[str, Any]] = []
    try:
        content = parse_toml(text, Path(path))
        formulas = _formulas(content)
        found = read_problem(path, text=text)
    except InputError as error:
        line = text_edits.line_of(text, str(error))
        return {"message": str(error), "line": line, "content": _exact(content), "formulas": formulas}
    return {"message": None, "content": _exact(content), "formulas": formulas, **plain(_described(found))}


def _exact(content: Any) -> Any:
    """The tables of a file as JSON can hold them, with all digits of numbers."""
    if isinstance(content, dict):
        return {key: _exact(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_exact(value) for value in content]
    plainly = isinstance(content, bool | int | str) or (isinstance(content, float) and np.isfinite(content))
    return content if plainly else str(content)


def _formulas(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Each equation on its own, so that it is rendered while other parts of the file are still wrong."""
    equations = content.get("equations", {})
    found = []
    for name, text in equations.items() if isinstance(equations, dict) else ():
        try:
            formula = parse(str(text), lambda name: True, f"equations.{name}")
            found.append({"name": name, "math": formatting.equation(str(name), formula)})
        except InputError as error:
            found.append({"name": name, "message": str(error)})
    return found


def _described(found: ProblemFile) -> dict[str, Any]:
    problem = found.problem
    equations = formatting.equations(problem, found.equations)
    return {
        "title": found.title,
        "about": f"{problem}; {extent(problem.readings)}",
        "method": f"{_method(found)}, seed {found.seed}",
        "equations": [{**e, "stated": [[said, where] for said, where in e["stated"]]} for e in equations],
        "fields": [[formatting.name(f), [*problem.inputs(f)], formatting.field(s)] for f, s in problem.fields.items()],
        "priors": [[formatting.name(u), formatting.prior(p)] for u, p in problem.scalars.items()],
        "domain": {c: [*bounds] for c, bounds in problem.domain.items()},
        "sensors": formatting.sensors(problem, found.origins),
        "notes": [*found.notes],
        "readings": [_readings(problem, readings) for readings in problem.readings],
    }


def _method(found: ProblemFile) -> str:
    """In words; which one a run chooses is not found out here, because that can take some seconds."""
    if found.stated is None:
        return f"method chosen by the run{f', {found.chains} chains' if found.chains else ''}"
    return f"{type(found.stated).__name__}, {found.chains or found.stated.chains} chains"


def _readings(problem: Problem, readings: Readings) -> dict[str, Any]:
    count = len(readings.values)
    rows = np.unique(np.linspace(0, count - 1, min(count, MOST_READINGS)).round().astype(int))
    sd = np.zeros(count)
    if readings.noise is not None:
        sd = np.broadcast_to(readings.likelihood.error_bar(readings.values, readings.noise), count)
    return {
        "name": readings.name,
        "quantity": label(problem.sensors[readings.name].quantity),
        "size": readings.size,
        "exact": readings.is_exact,
        "shown": len(rows) if len(rows) < count else None,
        "at": {c: np.broadcast_to(a, count)[rows] for c, a in readings.at.items()},
        "values": readings.values[rows],
        "sd": sd[rows],
    }


def known() -> dict[str, Any]:
    """What a form offers."""
    return {
        "priors": {name: [*parameters] for name, (_, parameters) in PRIORS.items()},
        "usual": {"mean": 0.0, "log_mean": 0.0, "centre": 0.0, "low": 0.0},
        "optional": sorted(set().union(*OPTIONAL.values())),
        "surrogates": [*Field.registry],
        "called": {"mlp": "network", "gp": "Gaussian process", "kl": "Karhunen-Loève expansion"},
        "likelihoods": [*Likelihood.registry],
        "methods": [*Method.registry],
    }


def edit(path: str, text: str, edits: list[dict[str, Any]]) -> dict[str, Any]:
    """A text with some of its keys changed, and what `check` says of it."""
    changed = text_edits.edited(text, edits)
    return {"text": changed, **check(path, changed)}


def estimate(path: str, text: str) -> dict[str, Any]:
    """The size of a run and roughly its time."""
    from bpinn.run_time import facts_of

    facts = facts_of(read_problem(path, text=text))
    shown = ("parameters", "readings", "points", "chains", "mebibytes", "seconds", "between")
    return {key: plain(facts[key]) for key in shown}


def prior_draws(path: str, text: str) -> dict[str, Any]:
    """What the prior expects of the readings, in words and as draws."""
    from bpinn.plot import views  # imported here because matplotlib takes a second to import

    found = prior.check(read_problem(path, text=text).problem)
    groups = []
    for view in views.prior_views(found):
        rows = np.linspace(0, len(view.draws) - 1, MOST_DRAWS).astype(int)
        low, high = np.quantile(view.draws, [0.025, 0.975], axis=0)
        kept = np.unique(np.linspace(0, len(view.values) - 1, MOST_READINGS).astype(int))
        groups.append(
            {
                "name": view.expected.name, "said": str(view.expected), "possible": view.expected.p >= prior.UNEXPECTED,
                "label": view.label, "along": view.along, "fixed": view.fixed, "x": view.x, "draws": view.draws[rows],
                "low": low, "high": high, "at": view.at[kept], "values": view.values[kept], "sd": view.noise[kept],
            }
        )  # fmt: skip
    return {"groups": plain(groups), "possible": found.is_possible, "said": str(found)}


def look(path: str) -> dict[str, Any]:
    """The columns of a data file."""
    table = read_table(Path(path), Path(path).name)
    columns = [{"name": name_of(h), "header": h} for h in table.headers[:MOST_COLUMNS] if name_of(h)]
    return {"columns": columns, "rows": len(table.cells[0]), "notes": [*table.notes]}


def draft(source: str, folder: str) -> dict[str, Any]:
    """A new problem from a data file."""
    _, said = write_draft(Path(source), Path(folder))
    return {"said": said}


def about(run: str) -> dict[str, Any]:
    """The keys of a run's problem file by their whole name, to compare with those of other runs, and its readings."""
    found = runs.open_run(run)
    path = found.folder / runs.PROBLEM / found.manifest["problem"]
    settings = _exact(text_edits.flattened(parse_toml(path.read_text(encoding="utf-8"), path)))
    settings |= dict(change.split("=", 1) for change in found.manifest["changes"])
    problem = found.problem_file.problem
    return {"settings": settings, "readings": plain([_readings(problem, readings) for readings in problem.readings])}


def outcome_of(run: str) -> dict[str, Any]:
    """The outcome of a run that another program made."""
    from bpinn import commands

    found = runs.open_run(run)
    return plain({"state": "ended", **commands.outcome(found.load(), found)})


ANSWERS: dict[str, Callable[..., Any]] = {
    "check": check, "edit": edit, "estimate": estimate, "prior": prior_draws, "look": look, "draft": draft,
    "about": about, "outcome": outcome_of, "known": known,
}  # fmt: skip


def main() -> None:
    """Answer until the studio closes the pipe."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            answer = {"answer": ANSWERS[request.pop("what")](**request)}
        except InputError as error:
            answer = {"refused": str(error)}
        except (ArithmeticError, LookupError, MemoryError, OSError, RecursionError, TypeError, ValueError) as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:500]}
        out.write(json.dumps(answer, allow_nan=False).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
