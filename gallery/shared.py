"""What the problems of the gallery have in common: how one is run, what is measured, and its figure."""

import hashlib
import importlib.util
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import bpinn as bp
from bpinn.forward import attempted
from bpinn.plot import drawing, views
from bpinn.problem_file import ProblemFile, read_problem
from gallery import classical

HERE = Path(__file__).parent
NUMBERS, PROBLEM, TEXT, RUN, AXES = "numbers.json", "problem.toml", "text.md", "run.py", "axes.json"
MOST_BYTES = 80_000
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
        later: readings that were not used, to be compared with: the name of a data file with columns t and value.
    """

    file: str
    solve: classical.Solve | None = None
    starts: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    truth: Mapping[str, Any] = field(default_factory=dict)
    show: Sequence[str] = ()
    later: str = ""

    @property
    def folder(self) -> Path:
        return Path(self.file).resolve().parent

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def axes(self) -> dict[str, str]:
        """Names of axes with their units, by quantity, where they are known."""
        path = self.folder / AXES
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    @classmethod
    def of_suite(cls, file: str, name: str) -> "Entry":
        """A problem of benchmarks/suite, whose truth is known."""
        from benchmarks.suite import SUITE

        case = SUITE[name](seed=0)
        return cls(file, truth={**case.truth_fields, **case.truth_unknowns})

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
        for line in rows_of(numbers):
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
    return numbers, png(figure_of(entry, result, exact)), png(thumbnail_of(entry, result), 80)


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


# --- figures ---


def figure_of(entry: Entry, result: bp.Result, exact: Mapping[str, np.ndarray]) -> Figure:
    """Fields with their bands and readings, and the posteriors of the unknowns."""
    quantities = list(entry.show or result.problem.fields)
    unknowns = list(result.problem.unknowns)
    flat = [q for q in quantities if q not in result.problem.fields or len(result.problem.inputs(q)) == 1]
    if not flat:  # a field over two coordinates
        return bp.plot.maps(result, quantities[0], truth=entry.truth[quantities[0]])
    panels: list[drawing.Draw] = [partial(band, entry=entry, result=result, quantity=quantity) for quantity in flat]
    panels += [partial(posterior, entry=entry, result=result, name=n, exact=exact.get(n)) for n in unknowns]
    return drawing.figure(panels, 2 if len(panels) in (2, 4) else 3, drawing.BESIDE)


def band(ax: Axes, entry: Entry, result: bp.Result, quantity: str) -> None:
    view = views.view(result, quantity, None, entry.truth.get(quantity), f"gallery {entry.name}")
    drawing.draw_band(ax, view, 0.95)
    if entry.later:
        rows = np.genfromtxt(entry.folder / entry.later, delimiter=",", names=True)
        ax.plot(rows["t"], rows["value"], "x", color=drawing.BLACK, ms=4, label="not used")
    (along,) = view.varying
    ax.set(xlabel=entry.axes.get(along, views.math(along)), ylabel=entry.axes.get(quantity, views.math(quantity)))


def posterior(ax: Axes, entry: Entry, result: bp.Result, name: str, exact: np.ndarray | None) -> None:
    """The posterior of an unknown, over that of a least-squares likelihood with the equation solved exactly."""
    draws = result.draws(name)
    drawing.draw_posterior(ax, views.NumberDraws(name, draws))
    ranges = [np.quantile(part, [0.003, 0.997]) for part in (draws, exact) if part is not None]
    low, high = np.min(ranges), np.max(ranges)
    if exact is not None:
        heights, edges = np.histogram(exact, np.linspace(low, high, 31), density=True)
        ax.stairs(heights, edges, color=drawing.SOLUTIONS, lw=1.4, label="equation solved exactly")
        ax.set_ylim(top=max(ax.get_ylim()[1], 1.05 * heights.max()))
    known = [(what, values[name]) for what in ("published", "truth") if name in (values := getattr(entry, what))]
    for what, value in known:
        ax.axvline(value, color=drawing.BLACK, ls="--", lw=1.2, label=what)
    ends = [low, high, *(value for _, value in known)]
    room = 0.04 * (max(ends) - min(ends))
    ax.set(xlim=(min(ends) - room, max(ends) + room), xlabel=entry.axes.get(name, views.math(name)))
    ax.locator_params(axis="x", nbins=5)


def thumbnail_of(entry: Entry, result: bp.Result) -> Figure:
    """The first quantity, without labels."""
    quantity = next(iter(entry.show or result.problem.fields))
    with matplotlib.rc_context(drawing.STYLE):
        figure = Figure(figsize=(2.8, 1.7), layout="constrained")
        ax = figure.add_subplot()
        if quantity in result.problem.fields and len(result.problem.inputs(quantity)) > 1:
            names = result.problem.inputs(quantity)
            axes = [np.linspace(*result.problem.domain[c], 60) for c in names]
            at = dict(zip(names, np.meshgrid(*axes, indexing="ij"), strict=True))
            values = result.predict(quantity, at).mean.T
            ax.pcolormesh(axes[0], axes[1], values, cmap=drawing.VALUES, shading="gouraud")
        else:
            band(ax, entry, result, quantity)
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    return figure


def png(figure: Figure, dots: int = 110) -> bytes:
    """As PNG with few colours, and fewer dots if the file would be too large."""
    while True:
        drawn, few = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dots)
        Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(few, "png", optimize=True)
        if few.tell() < MOST_BYTES or dots < 40:
            return few.getvalue()
        dots = int(0.8 * dots)
