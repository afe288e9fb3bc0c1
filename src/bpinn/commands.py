"""What the commands of the program `bpinn` do; `bpinn.cli` has their arguments."""

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import typer

import bpinn as bp
from bpinn import cluster as clusters
from bpinn import preview
from bpinn.design import words
from bpinn.draft import write_draft
from bpinn.engine import Progress
from bpinn.errors import InputError
from bpinn.expressions import PLACEHOLDER
from bpinn.forward import ForwardCheck, attempted
from bpinn.inference import check_within
from bpinn.native import compilation_cache
from bpinn.problem_file import read_problem
from bpinn.progress import Display
from bpinn.progress_file import ProgressFile, portrait
from bpinn.readings import extent
from bpinn.result import Result
from bpinn.run_folder import runs
from bpinn.run_folder.files import write_file
from bpinn.run_time import facts_of, in_words
from bpinn.sweep import sweep as run_all

DISTRUST, STOPPED = 3, 130  # exit codes; invalid input is `bpinn.cli.WRONG`
ACROSS, MOST_DRAWS = {1: 101, 2: 21}, 1000  # points of each coordinate, and draws, for fields as a page shows them
MOST_CACHED = 2**28  # bytes of compiled programs; the oldest are removed


def keep_compiled() -> None:
    """Let JAX keep what it compiles, so that the next run of the same kind of problem starts sooner."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = compilation_cache()
    # A damaged entry is compiled again; JAX would warn of it in every run.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
    with contextlib.suppress(OSError):  # a home that cannot be written to
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_compilation_cache_max_size", MOST_CACHED)


class Where(NamedTuple):
    """Where a run takes place, on cores of this machine or on a cluster, and how long it may take."""

    cores: int | None
    cluster: str | None
    within: float | None

    def check(self) -> None:
        if self.within is not None:
            check_within("--within", self.within)
        if self.cluster is not None:
            clusters.check(self.cluster, "--cluster")
            if self.cores is not None:
                raise InputError("--cores counts threads of this process; with --cluster remove it")


def draft(source: Path, folder: Path, dates: str | None) -> None:
    paths, said = write_draft(source, folder, dates)
    for path in paths:
        print(path)
    for line in said:
        print(f"  {line}")
    print(f"Next: write the equation where {paths[0]} says {PLACEHOLDER}, then: bpinn check {paths[0]}")


def check(file: Path, changes: list[str], allow_outside: bool, as_json: bool) -> None:
    found = read_problem(file, changes, allow_outside=allow_outside)
    if as_json:
        print(json.dumps(facts_of(found)))
        return
    print(found.title)
    print(f"  {found.problem}")
    for name, formula in found.equations.items():
        print(f"  {name} = {formula}")
    sys.stdout.flush()  # measuring takes some seconds
    facts = facts_of(found)
    for note in facts["notes"]:
        print(f"  {note}")
    print(f"  {facts['parameters']} parameters, {extent(found.problem.readings)}")
    print(f"  {found.method}, {facts['chains']} chains, seed {found.seed}")
    print(f"  one gradient {facts['microseconds']:.0f} µs; draws at most {facts['mebibytes']:.0f} MiB")
    if facts["between"]:
        print(f"  a run takes about {in_words(facts['between'])} on an idle machine, without the report")


def prior(file: Path, out: Path | None, changes: list[str], allow_outside: bool, as_json: bool) -> None:
    found = bp.prior.check(read_problem(file, changes, allow_outside=allow_outside).problem)
    print(json.dumps([asdict(group) for group in found.groups]) if as_json else found)
    if out is not None:
        _write_figure(out, found.plot())
    if not found.is_possible:
        raise typer.Exit(DISTRUST)


def run(
    file: Path,
    out: Path | None,
    changes: list[str],
    cores: int | None,
    cluster: str | None,
    within: float | None,
    allow_outside: bool,
    no_report: bool,
    quiet: bool,
    as_json: bool,
    progress: Path | None,
) -> None:
    where = Where(cores, cluster, within)
    where.check()
    started = runs.start(file, out, changes, allow_outside=allow_outside)
    if not (quiet or as_json):
        found = started.problem_file
        for line in (
            found.title,
            f"  {found.problem}",
            *(f"  {note}" for note in found.notes),
            f"  in {started.folder}",
        ):
            print(line, file=sys.stderr)
    _go(started, where, quiet, as_json, no_report, progress)


def resume(
    folder: Path,
    cores: int | None,
    cluster: str | None,
    within: float | None,
    no_report: bool,
    quiet: bool,
    as_json: bool,
    progress: Path | None,
) -> None:
    where = Where(cores, cluster, within)
    where.check()
    found = runs.open_run(folder)
    _go(found, where, quiet, as_json, no_report, progress)


def report(folder: Path, as_json: bool) -> None:
    found = runs.open_run(folder)
    page = found.report(found.load(_warn))
    print(json.dumps({"report": str(page)}) if as_json else page)


def _warn(message: str) -> None:
    print(f"bpinn: {message}", file=sys.stderr)


def _go(
    started: runs.FileRun, where: Where, quiet: bool, as_json: bool, no_report: bool, progress: Path | None
) -> None:
    report: Callable[[Progress], None] = (lambda _: None) if quiet or as_json else Display()
    if progress is not None:
        report = ProgressFile(progress)
    has_report = started.is_done and started.page.exists()
    begun, within = preview.clock(), where.within
    kept = f"what the chains have done so far is kept; resume with: bpinn resume {started.folder}"
    try:
        result = started.go(report, _warn, where.cores, within, where.cluster)
    except KeyboardInterrupt as interrupt:
        _warn(f"{str(interrupt).partition(';')[0] or 'stopped'}; {kept}")
        raise typer.Exit(STOPPED) from None  # typer ends the program without a word at a KeyboardInterrupt
    stopped = result.interrupted and (within is None or preview.clock() - begun < within)
    if result.interrupted:
        why = "stopped" if stopped else f"stopped after {within:g} s"
        _warn(f"{why}; {kept}")
    forward: ForwardCheck | str = ""
    if isinstance(report, ProgressFile):
        report.write({"state": "ended", **outcome(result, started)})
    if not (stopped or no_report or has_report):
        forward = attempted(result)
        started.report(result, forward)
    _tell(result, started, stopped, as_json, forward)
    if stopped:
        raise typer.Exit(STOPPED)


def _tell(result: Result, started: runs.FileRun, stopped: bool, as_json: bool, forward: ForwardCheck | str) -> None:
    health = result.diagnose()
    if as_json:
        solved = {"forward": forward.verdict if isinstance(forward, ForwardCheck) else None}
        print(json.dumps(_as_json(result, started) | solved))
    else:
        print(result.summary())
        page = started.page
        if not stopped:
            print(f"Report: {page}" if page.exists() else f"No report; write it with: bpinn report {started.folder}")
    if health.verdict == "bad" and not stopped:
        raise typer.Exit(DISTRUST)


def _as_json(result: Result, started: runs.FileRun) -> dict[str, Any]:
    health, table = result.diagnose(), result.summary().table
    numbers = {
        name: {column: float(v) if np.isfinite(v) else None for column, v in row.items()}
        for name, row in table.to_dict("index").items()
    }
    return {
        "folder": str(started.folder),
        "verdict": health.verdict,
        "reasons": health.reasons,
        "unknowns": numbers,
        "chains": result.z.shape[0],
        "draws": result.z.shape[1],
        "seconds": result.seconds,
        "interrupted": result.interrupted,
        "solutions": [
            {"share": m.share, "probability": m.probability, "error": m.error, "differs": m.differs}
            for m in result.modes()
        ],
        "preview": bool(getattr(result.method, "instead_of", "")),
    }


def outcome(result: Result, started: runs.FileRun) -> dict[str, Any]:
    """What `--json` prints of a run, with traces of unknowns and fields across the domain: what a page shows of it."""
    found = {"result": _as_json(result, started), **portrait(result.monitor, result.mixture.functionals)}
    return found | {"bands": [_across(result, band) for band in found["bands"]]}


def _across(result: Result, band: dict[str, Any]) -> dict[str, Any]:
    """The band of a field of one or two coordinates on a mesh, instead of at some points."""
    inputs = [*band["at"]]
    if len(inputs) > 2:
        return band
    axes = [np.linspace(*result.problem.domain[c], ACROSS[len(inputs)]) for c in inputs]
    at = {c: mesh.ravel() for c, mesh in zip(inputs, np.meshgrid(*axes, indexing="ij"), strict=True)}
    found = result.thinned(MOST_DRAWS).predict(band["name"], at)
    low, high = found.interval(0.95)
    return {**band, "at": at, "mean": found.mean, "low": low, "high": high}


def compare(folders: list[Path], as_json: bool) -> None:
    found = [runs.open_run(folder) for folder in folders]
    rows = [_as_json(one.load(_warn), one) for one in found]
    if as_json:
        print(json.dumps(rows))
        return
    names = list(dict.fromkeys(name for row in rows for name in row["unknowns"]))
    header = ["run", *names, "verdict", "seconds"]
    cells = []
    for row in rows:
        values = []
        for name in names:
            value = row["unknowns"].get(name)
            sd = "" if not value or value["sd"] is None else f" ± {value['sd']:.2g}"
            values.append(f"{value['mean']:.4g}{sd}" if value else "-")
        cells.append([row["folder"], *values, row["verdict"], f"{sum(row['seconds'].values()):.1f}"])
    widths = [max(len(line[i]) for line in [header, *cells]) for i in range(len(header))]
    for line in [header, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def forward(folder: Path, draws: int, kind: str | None, as_json: bool) -> None:
    found = bp.forward_check(runs.open_run(folder).load(_warn), draws, kind=kind)
    print(json.dumps(found.as_dict()) if as_json else found)
    if found.verdict == "disagrees":
        raise typer.Exit(DISTRUST)


def next_reading(
    run: Path,
    for_: list[str],
    count: int,
    noise: list[str],
    of: list[str] | None,
    exact: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    result = runs.open_result(run, _warn)
    noises = words.noises(noise)
    found: bp.NextSensor | bp.Separation
    if len(result.modes()) > 1:
        found = result.tell_apart(noise=noises, of=of)
    else:
        found = bp.next_sensor(result, words.target(for_), noise=noises, of=of, count=count, exact=exact)
    print(json.dumps(found.as_dict()) if as_json else found)
    if out is not None:
        _write_figure(out, found.plot())


def calibrate(
    file: Path,
    simulations: int,
    out: Path | None,
    changes: list[str],
    allow_outside: bool,
    cluster: str | None,
    quiet: bool,
) -> None:
    found = read_problem(file, changes, allow_outside=allow_outside)
    folder = found.path.parent / "calibration" if out is None else out
    method_used: Any = found.method
    if found.chains is not None:
        method_used = replace(method_used, chains=found.chains)
    how: dict[str, Any] = {"progress": not quiet, "cluster": cluster}
    with stopping():
        answer = bp.calibration.sbc(
            found.problem, method_used, simulations=simulations, seed=found.seed, out=folder, **how
        )
    print(answer)
    figure = folder / "ranks.png"
    _write_figure(figure, bp.plot.calibration(answer))
    print(f"Ranks: {figure}")


def sweep(
    file: Path,
    over: list[str],
    seeds: int,
    out: Path | None,
    changes: list[str],
    cores: int | None,
    cluster: str | None,
    allow_outside: bool,
    quiet: bool,
) -> None:
    folder = (file if file.is_dir() else file.parent) / "sweep" if out is None else out
    with stopping():
        found = run_all(
            file, over, seeds=seeds, out=folder, changes=changes, cluster=cluster, cores=cores,
            allow_outside=allow_outside, progress=not quiet,
        )  # fmt: skip
    print((folder / "table.md").read_text(), end="")
    print(f"Report: {found.page}")


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Say what Ctrl-C has left: typer would end the program without a word."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        kept = "stopped; what is finished is kept, and the same command continues"
        _warn(str(stopped) or kept)
        raise typer.Exit(STOPPED) from None


def _write_figure(path: Path, figure: Any) -> None:
    kind = path.suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise InputError(f"--out {path}: expected the name of a figure, such as {path.stem or 'prior'}.png")
    with io.BytesIO() as picture:
        figure.savefig(picture, format=kind)
        write_file(path, picture.getvalue())
