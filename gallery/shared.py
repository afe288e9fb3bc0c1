"""What the problems of the gallery have in common: how one is run, what is measured, and its figure."""

import hashlib
import importlib.util
import json
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import bpinn as bp
from bpinn.forward import attempted
from bpinn.problem_file import ProblemFile, read_problem
from gallery import classical, figures

HERE = Path(__file__).parent
NUMBERS, PROBLEM, TEXT, RUN, AXES = "numbers.json", "problem.toml", "text.md", "run.py", "axes.json"
SCALES = ("length_", "amplitude_", "weight_sd_", "bias_sd_")  # of fields: not what one asks for


@dataclass(frozen=True)
class Entry:
    """A problem of the gallery: the file ``problem.toml`` in its folder, and what its answer is compared with.

    Arguments:
        file: the ``run.py`` in its folder.
        solve, starts: the solution of the equation, for `classical.posterior`.
        published: values of unknowns that someone else has published; ``source`` says who.
        truth: of synthetic data: values of unknowns and functions for fields.
        show: quantities in the figure, all fields by default.
        unknown: functions that are inferred without readings, or with few, such as ``s(x)``, for the list of entries.
        later: readings that were not used, to be compared with: the name of a data file with columns t and value.
    """

    file: str
    solve: classical.Solve | None = None
    starts: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    truth: Mapping[str, Any] = field(default_factory=dict)
    show: Sequence[str] = ()
    unknown: Sequence[str] = ()
    later: str = ""

    @property
    def folder(self) -> Path:
        return Path(self.file).resolve().parent

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def coordinates(self) -> list[str]:
        """Of the domain, which tell ordinary from partial differential equations."""
        return [*tomllib.loads((self.folder / PROBLEM).read_text(encoding="utf-8"))["domain"]]

    @property
    def axes(self) -> dict[str, str]:
        """Names of axes with their units, by quantity, where they are known."""
        path = self.folder / AXES
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @classmethod
    def of_suite(cls, file: str, name: str, **others: Any) -> "Entry":
        """A problem of benchmarks/suite, whose truth is known."""
        from benchmarks.suite import SUITE

        case = SUITE[name](seed=0)
        return cls(file, truth={**case.truth_fields, **case.truth_unknowns}, **others)

    def read(self, changes: Sequence[str] = ()) -> ProblemFile:
        return read_problem(self.folder / PROBLEM, changes)

    def fingerprint(self) -> str:
        """Of the files that decide the numbers."""
        found = hashlib.sha256()
        for path in sorted(self.folder.iterdir()):
            if path.suffix in (".toml", ".csv", ".py"):
                found.update(path.name.encode() + b"\0" + path.read_bytes())
        return found.hexdigest()[:16]

    def main(self) -> None:
        """What `python gallery/NAME/run.py` does: run the problem, print the answer, and save the figure."""
        numbers, figure, _ = run(self)
        for line in rows_of(numbers) if numbers["rows"] else []:
            print("  ".join(cell.ljust(22) for cell in line).rstrip())
        print(f"{numbers['verdict']}: " + "; ".join(numbers["reasons"]))
        (self.folder / "figure.png").write_bytes(figure)


def entries() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob(f"*/{RUN}"))


def load(name: str) -> Entry:
    """The entry of a folder."""
    if str(HERE.parent) not in sys.path:
        sys.path.insert(0, str(HERE.parent))
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", HERE / name / RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ENTRY


def stored(entry: Entry) -> dict[str, Any] | None:
    """The numbers of the last run, if it was of the same files."""
    path = entry.folder / NUMBERS
    numbers = json.loads(path.read_text()) if path.is_file() else {}
    return numbers if numbers.get("fingerprint") == entry.fingerprint() else None


# --- a run and its numbers ---


def run(entry: Entry, changes: Sequence[str] = ()) -> tuple[dict[str, Any], bytes, bytes]:
    """Run an entry: its numbers, its figure and its thumbnail as PNG."""
    file, fingerprint = entry.read(changes), entry.fingerprint()
    begun = time.perf_counter()
    result = bp.infer(file.problem, file.method, seed=file.seed, chains=file.chains, progress=False)
    seconds = time.perf_counter() - begun
    exact = classical.posterior(file.problem, entry.solve, entry.starts) if entry.solve else {}
    numbers = {"fingerprint": fingerprint, **numbers_of(entry, file, result, exact), "seconds": round(seconds)}
    return (
        numbers,
        figures.png(figures.figure_of(entry, result, exact)),
        figures.png(figures.thumbnail_of(entry, result), 80),
    )


def numbers_of(entry: Entry, file: ProblemFile, result: bp.Result, exact: Mapping[str, np.ndarray]) -> dict[str, Any]:
    table, health, forward = result.summary().table, result.diagnose(), attempted(result)
    rows = []
    for name, row in table.iterrows():
        if str(name).startswith(SCALES):
            continue
        found = {"name": name, "mean": row["mean"], "sd": row["sd"], "low": row["2.5%"], "high": row["97.5%"]}
        if name in exact:
            found |= {"exact_mean": exact[name].mean(), "exact_sd": exact[name].std()}
        for what, values in (("published", entry.published), ("truth", entry.truth)):
            if name in values:
                found[what] = values[name]
        rows.append({key: value if isinstance(value, str) else float(f"{value:.5g}") for key, value in found.items()})
    solved = isinstance(forward, bp.ForwardCheck)
    return {
        "title": file.title,
        "rows": rows,
        "fields": {name: errors_of(result, name, truth) for name, truth in entry.truth.items() if callable(truth)},
        "verdict": health.verdict,
        "reasons": list(health.reasons),
        "advice": list(health.advice),
        "forward": {"verdict": forward.verdict, "reasons": list(forward.reasons)} if solved else {"refused": forward},
        "later": later_of(entry, result),
        "parameters": result.posterior.dim,
        "readings": sum(len(r.values) for r in file.problem.readings if not r.is_exact),
        "chains": int(result.z.shape[0]),
        "draws": int(result.z.shape[1]),
    }


def errors_of(result: bp.Result, name: str, truth: Any) -> dict[str, float]:
    """Relative error of the posterior mean, and the share of the domain where the truth is within 3 sd."""
    names = result.problem.inputs(name)
    axes = [np.linspace(*result.problem.domain[c], 101 if len(names) == 1 else 31) for c in names]
    at = dict(zip(names, np.meshgrid(*axes, indexing="ij"), strict=True))
    found, exact = result.predict(name, at), truth(**at)
    error = np.sqrt(np.mean((found.mean - exact) ** 2) / np.mean(exact**2))
    return {
        "error": round(float(error), 4),
        "within": round(float(np.mean(np.abs(found.mean - exact) < 3 * found.sd)), 3),
    }


def later_of(entry: Entry, result: bp.Result) -> list[dict[str, float]]:
    """Readings that were not used, with what the model predicts for them."""
    if not entry.later:
        return []
    rows = np.genfromtxt(entry.folder / entry.later, delimiter=",", names=True)
    (name,) = (s for s in result.problem.sensors if s in result.problem.fields)
    found = result.predict(name, {"t": rows["t"]}, noise=True)
    low, high = found.interval(0.95)
    return [
        {"year": float(y), "value": float(v), "low": float(f"{a:.4g}"), "high": float(f"{b:.4g}")}
        for y, v, a, b in zip(rows["year"], rows["value"], low, high, strict=True)
    ]


def shown(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if not 100 <= abs(value) < 1e5 else f"{value:.{max(0, digits - 3)}f}"


def rows_of(numbers: Mapping[str, Any]) -> list[list[str]]:
    """The table of unknowns, its first line the names of the columns; columns that are empty are left out."""
    lines = [["unknown", "mean ± sd", "95% interval", "equation solved exactly", "published", "truth"]]
    for row in numbers["rows"]:
        exact = f"{shown(row['exact_mean'])} ± {shown(row['exact_sd'], 2)}" if "exact_mean" in row else "–"
        lines.append(
            [
                row["name"],
                f"{shown(row['mean'])} ± {shown(row['sd'], 2)}",
                f"{shown(row['low'])} to {shown(row['high'])}",
                exact,
                shown(row.get("published")),
                shown(row.get("truth")),
            ]
        )
    kept = [i for i in range(len(lines[0])) if i < 3 or any(line[i] != "–" for line in lines[1:])]
    return [[line[i] for i in kept] for line in lines]
