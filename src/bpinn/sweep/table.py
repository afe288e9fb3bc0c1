"""The tables of a sweep, and its page."""

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, PackageLoader

from bpinn.diagnostics import VERDICTS
from bpinn.report import environment
from bpinn.report.formatting import COLOURS
from bpinn.result import Result
from bpinn.run_folder.files import write_file
from bpinn.sweep.plan import Member, Plan

TABLE, SUMMARY, PAGE, FIGURE = "table.csv", "table.md", "report.html", "unknowns.png"
MOST_PANELS = 12


@dataclass(frozen=True)
class Row:
    """A run: what it is, its verdict, and mean, sd and so on of each unknown and inferred noise."""

    member: Member
    verdict: str
    reasons: tuple[str, ...]
    numbers: dict[str, dict[str, float]]
    seconds: float

    def write(self, path: Path) -> None:
        kept = {"verdict": self.verdict, "reasons": self.reasons, "numbers": self.numbers, "seconds": self.seconds}
        write_file(path, json.dumps(kept).encode())

    @classmethod
    def read(cls, member: Member, path: Path) -> "Row | None":
        """A row that was written before; None if there is none, or it is damaged."""
        try:
            kept = json.loads(path.read_bytes())
            numbers = {name: {c: float(v) for c, v in row.items()} for name, row in kept["numbers"].items()}
            verdict = str(kept["verdict"])
            return (
                cls(member, verdict, tuple(kept["reasons"]), numbers, kept["seconds"]) if verdict in VERDICTS else None
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    @property
    def said(self) -> str:
        parts = [f"{name} {_stated(n['mean'], n['sd'])}" for name, n in list(self.numbers.items())[:4]]
        return ", ".join([VERDICTS[self.verdict], *parts])


@dataclass(frozen=True)
class DataSet:
    """The runs of one combination of what varies, over seeds."""

    values: tuple[str, ...]
    rows: list[Row]

    @property
    def verdicts(self) -> str:
        counts = {v: sum(row.verdict == v for row in self.rows) for v in VERDICTS}
        if len(self.rows) == 1:
            return VERDICTS[self.rows[0].verdict]
        return ", ".join(f"{count} {VERDICTS[v]}" for v, count in counts.items() if count)

    def estimate(self, name: str) -> str:
        """Mean and sd of the runs that can be trusted, over all seeds; and in sds how far seeds differ, if they do."""
        trusted = [row.numbers[name] for row in self.rows if row.verdict != "bad"]
        if not trusted:
            return "–"
        means, sds = (np.array([n[what] for n in trusted]) for what in ("mean", "sd"))
        spread = float(np.std(means) / np.mean(sds)) if len(trusted) > 1 and np.mean(sds) > 0 else 0.0
        apart = f" (seeds differ by {spread:.1f} sd)" if spread > 0.25 else ""
        return f"{_stated(means.mean(), np.sqrt(np.mean(sds**2)))}{apart}"


def _stated(mean: float, sd: float) -> str:
    return f"{mean:.4g} ± {sd:.2g}" if np.isfinite(sd) else f"{mean:.4g}"  # a single solution has no sd


def row_of(member: Member, result: Result) -> Row:
    health, table = result.diagnose(), result.summary().table
    numbers = {name: {column: float(v) for column, v in row.items()} for name, row in table.to_dict("index").items()}
    return Row(member, health.verdict, tuple(health.reasons), numbers, float(sum(result.seconds.values())))


def write_tables(folder: Path, planned: Plan, rows: Sequence[Row], truth: Mapping[str, Any]) -> Path:
    """Write the tables and the page; return the path of the page."""
    names = list(dict.fromkeys(name for row in rows for name in row.numbers))
    sets = [
        DataSet(values, [row for row in rows if row.member.values == values])
        for values in dict.fromkeys(row.member.values for row in rows)
    ]
    heading = [*(planned.keys or ["run"]), *names, "verdict"]
    lines = [[*(one.values or ("all",)), *(one.estimate(name) for name in names), one.verdicts] for one in sets]
    write_file(folder / TABLE, _csv(planned, rows, names).encode())
    write_file(folder / SUMMARY, _markdown(planned.title, heading, lines).encode())
    figure = _figure(sets, names, truth)
    if figure is not None:
        write_file(folder / FIGURE, figure)
    write_file(folder / PAGE, _page(planned, rows, heading, lines, figure).encode())
    return folder / PAGE


def _csv(planned: Plan, rows: Sequence[Row], names: Sequence[str]) -> str:
    columns = list(dict.fromkeys(column for row in rows for n in row.numbers.values() for column in n))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *planned.keys,
            "seed",
            *(f"{n} {c}" for n in names for c in columns),
            "verdict",
            "reasons",
            "seconds",
            "folder",
        ]
    )
    for row in rows:
        numbers = [row.numbers.get(name, {}).get(column, float("nan")) for name in names for column in columns]
        cells = ["" if np.isnan(number) else repr(number) for number in numbers]
        about = [row.verdict, " ".join(row.reasons), f"{row.seconds:.1f}", f"runs/{row.member.name}"]
        writer.writerow([*row.member.values, row.member.seed, *cells, *about])
    return text.getvalue()


def _markdown(title: str, heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (heading, ["---"] * len(heading), *lines)]
    return f"# {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def _figure(sets: Sequence[DataSet], names: Sequence[str], truth: Mapping[str, Any]) -> bytes | None:
    """Each unknown by data set: a bar of 95% for every seed, coloured by its verdict."""
    if not names:
        return None
    from matplotlib.figure import Figure  # imported here because it takes a second

    shown = names[:MOST_PANELS]
    figure = Figure((7.5, 0.6 + len(shown) * (0.7 + 0.26 * len(sets))), layout="constrained")
    axes = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for name, ax in zip(shown, axes, strict=True):
        for at, one in enumerate(sets):
            for number, row in enumerate(one.rows):
                found = row.numbers[name]
                low, high = (found.get(end, found["mean"]) for end in ("2.5%", "97.5%"))
                y = at + 0.5 * ((number + 0.5) / len(one.rows) - 0.5)
                ax.plot([low, high], [y, y], color=COLOURS[row.verdict], linewidth=1.5, solid_capstyle="butt")
                ax.plot(found["mean"], y, "o", color=COLOURS[row.verdict], markersize=3.5)
        if isinstance(truth.get(name), float):
            ax.axvline(truth[name], color="#5f6368", linewidth=1, linestyle="--", label="truth")
            ax.legend(frameon=False, fontsize=8)
        ax.set_yticks(range(len(sets)), [", ".join(one.values) or "all" for one in sets], fontsize=8)
        ax.set_ylim(len(sets) - 0.4, -0.6)
        ax.set_xlabel(name)
        ax.spines[["top", "right"]].set_visible(False)
    with io.BytesIO() as picture:
        figure.savefig(picture, format="png", dpi=130)
        return picture.getvalue()


def _page(
    planned: Plan,
    rows: Sequence[Row],
    heading: Sequence[str],
    lines: Sequence[Sequence[str]],
    figure: bytes | None,
) -> str:
    templates = environment().overlay(
        loader=ChoiceLoader([PackageLoader("bpinn", "sweep"), PackageLoader("bpinn", "report")])
    )
    counts = [(v, VERDICTS[v], sum(row.verdict == v for row in rows)) for v in VERDICTS]
    worst = next(v for v in ("bad", "care", "good") if any(row.verdict == v for row in rows))
    doubted = [(row.member.name, " ".join(row.reasons)) for row in rows if row.verdict != "good"]
    return templates.get_template("sweep.html").render(
        title=planned.title, runs=len(rows), counts=[c for c in counts if c[2]], worst=worst,
        heading=heading, lines=lines, doubted=doubted, script="",
        figure=None if figure is None else base64.b64encode(figure).decode(),
    )  # fmt: skip
