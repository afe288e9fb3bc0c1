"""The command line: bpinn new | check | prior | run | resume | report | forward | compare | reproduce | calibrate.

Exit codes: 0 the run finished and its verdict is "good" or "usable with care"; 3 it finished and the verdict is "do not
trust"; 2 the input is invalid; 130 it was stopped with Ctrl-C.
"""

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import bpinn as bp
from bpinn import preview
from bpinn.draft import write_draft
from bpinn.engine import Progress
from bpinn.errors import BpinnWarning, InputError
from bpinn.expressions import PLACEHOLDER
from bpinn.forward import ForwardCheck, attempted
from bpinn.inference import check_within
from bpinn.native import compilation_cache
from bpinn.problem import extent
from bpinn.problem_file import METHOD_NAMES, read_problem
from bpinn.progress import Display
from bpinn.result import Result
from bpinn.run_folder import runs
from bpinn.run_folder.files import write_file
from bpinn.run_folder.manifest import versions
from bpinn.run_time import facts_of
from bpinn.templates import TEMPLATES, write_template

WRONG, DISTRUST, STOPPED = 2, 3, 130
MOST_CACHED = 2**28  # bytes of compiled programs; the oldest are removed

app = typer.Typer(
    help="Solve differential equations from noisy data, with reliable error bars.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
File = Annotated[Path, typer.Argument(help="The problem file, or its folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Outside = Annotated[bool, typer.Option("--allow-outside", help="Allow the file to use data outside its folder.")]


def _completed(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell offers for the beginning of a name."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _experiments(incomplete: str) -> list[str]:
    from bpinn.paper import reproduction  # imported here because matplotlib takes a second to import

    return _completed(reproduction.EXPERIMENTS)(incomplete)


MethodName = Annotated[
    str | None, typer.Option(help=f"One of {', '.join(METHOD_NAMES)}.", autocompletion=_completed(METHOD_NAMES))
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write the report.")]
Within = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Stop after so many seconds, with the best answer so far.")
]
Cores = Annotated[int | None, typer.Option(help="Number of cores to use; all by default.", min=1)]


def main() -> None:
    """Run the command line; invalid input gives one sentence, never a traceback."""
    warnings.showwarning = _show_warning
    try:
        app()
    except InputError as error:
        print(f"bpinn: {error}", file=sys.stderr)
        sys.exit(WRONG)
    except OSError as error:
        print(
            f"bpinn: {error.filename or 'a file'}: cannot be read or written: {error.strerror or error}",
            file=sys.stderr,
        )
        sys.exit(WRONG)
    except KeyboardInterrupt as stopped:
        print(f"bpinn: {str(stopped) or 'stopped'}", file=sys.stderr)
        sys.exit(STOPPED)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning is a sentence for the person at the terminal, without the place in the code that raised it."""
    of_others = "" if issubclass(category, BpinnWarning) else f"{category.__name__}: "
    print(f"bpinn: {of_others}{message}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        print(f"bpinn {versions()['bpinn']}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version.")] = False,
    cache: Annotated[bool, typer.Option(help="Keep compiled programs in the user's cache folder.")] = True,
) -> None:
    if cache and jax.config.values["jax_compilation_cache_dir"] is None:
        _keep_compiled()


def _keep_compiled() -> None:
    """Let JAX keep what it compiles, so that the next run of the same kind of problem starts sooner."""
    folder = compilation_cache()
    # A damaged entry is compiled again; JAX would warn of it in every run.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
    with contextlib.suppress(OSError):  # a home that cannot be written to
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_compilation_cache_max_size", MOST_CACHED)


@app.command()
def new(
    name: Annotated[Path | None, typer.Argument(help="The folder to create.")] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(TEMPLATES)}; inverse-1d by default.", autocompletion=_completed(TEMPLATES)
        ),
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Your readings, for a draft.")] = None,
    dates: Annotated[
        str | None, typer.Option(help="day-first or month-first, if the dates of --from are unclear.")
    ] = None,
) -> None:
    """Create a folder with an example problem file and its data, or with a draft for your own readings."""
    if source is None:
        if name is None:
            raise InputError("new: give the folder to create, such as `bpinn new demo`")
        for path in write_template(template or "inverse-1d", name):
            print(path)
        print(f"Next: bpinn run {name / 'problem.toml'}")
        return
    if template is not None:
        raise InputError("new: --template and --from cannot be combined; remove one of them")
    folder = Path(source.stem) if name is None else name
    paths, said = write_draft(source, folder, dates)
    for path in paths:
        print(path)
    for line in said:
        print(f"  {line}")
    print(f"Next: write the equation where {paths[0]} says {PLACEHOLDER}, then: bpinn check {paths[0]}")


@app.command()
def check(
    file: File,
    changes: Changes = None,
    allow_outside: Outside = False,
    as_json: Json = False,
) -> None:
    """Check a problem file and show what would run: sensors, unknowns, parameters, and the approximate run time."""
    found = read_problem(file, changes or (), allow_outside=allow_outside)
    facts = facts_of(found)
    if as_json:
        print(json.dumps(facts))
        return
    print(found.title)
    print(f"  {found.problem}")
    for name, formula in found.equations.items():
        print(f"  {name} = {formula}")
    for note in found.notes:
        print(f"  {note}")
    print(f"  {facts['parameters']} parameters, {extent(found.problem.readings)}")
    print(f"  {found.method}, {facts['chains']} chains, seed {found.seed}")
    print(f"  one gradient {facts['microseconds']:.0f} µs; draws at most {facts['mebibytes']:.0f} MiB", end="")
    print(f"; about {facts['seconds']:.0f} s, longer if chains mix slowly" if facts["seconds"] else "")


@app.command()
def prior(
    file: File,
    out: Annotated[Path | None, typer.Option(help="A figure to write, prior.png: readings over prior draws.")] = None,
    changes: Changes = None,
    allow_outside: Outside = False,
    as_json: Json = False,
) -> None:
    """Say whether the prior could have produced the readings, before anything is run."""
    found = bp.prior.check(read_problem(file, changes or (), allow_outside=allow_outside).problem)
    print(json.dumps([asdict(group) for group in found.groups]) if as_json else found)
    if out is not None:
        _write_figure(out, found.plot())
    if not found.is_possible:
        raise typer.Exit(DISTRUST)


@app.command()
def run(
    file: File,
    out: Annotated[Path | None, typer.Option(help="The run folder; default: run, run-2, ... next to the file.")] = None,
    method: MethodName = None,
    changes: Changes = None,
    cores: Cores = None,
    within: Within = None,
    allow_outside: Outside = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a problem file. After Ctrl-C, or when time is over, `bpinn resume` continues the run."""
    if within is not None:
        check_within("--within", within)
    said = [*(changes or ()), *([f"inference.method={method}"] if method else ())]
    started = runs.start(file, out, said, allow_outside=allow_outside)
    if not (quiet or as_json):
        found = started.problem_file
        for line in (
            found.title,
            f"  {found.problem}",
            *(f"  {note}" for note in found.notes),
            f"  in {started.folder}",
        ):
            print(line, file=sys.stderr)
    _go(started, cores, within, quiet, as_json, no_report)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder.")],
    cores: Cores = None,
    within: Within = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Resume a run that was stopped or killed; the draws are identical to those of an uninterrupted run."""
    if within is not None:
        check_within("--within", within)
    found = runs.open_run(folder)
    _go(found, cores, within, quiet, as_json, no_report)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run; an unfinished one is reported as such.")],
    as_json: Json = False,
) -> None:
    """Write the report of a run again: report.html, with figures and tables next to it."""
    found = runs.open_run(folder)
    page = found.report(found.load(_warn))
    print(json.dumps({"report": str(page)}) if as_json else page)


def _warn(message: str) -> None:
    print(f"bpinn: {message}", file=sys.stderr)


def _go(
    started: runs.FileRun, cores: int | None, within: float | None, quiet: bool, as_json: bool, no_report: bool
) -> None:
    report: Callable[[Progress], None] = (lambda _: None) if quiet or as_json else Display()
    has_report = started.is_done and started.page.exists()
    begun = preview.clock()
    kept = f"what the chains have done so far is kept; resume with: bpinn resume {started.folder}"
    try:
        result = started.go(report, _warn, cores, within)
    except KeyboardInterrupt as interrupt:
        _warn(f"{str(interrupt).partition(';')[0] or 'stopped'}; {kept}")
        raise typer.Exit(STOPPED) from None  # typer ends the program without a word at a KeyboardInterrupt
    stopped = result.interrupted and (within is None or preview.clock() - begun < within)
    if result.interrupted:
        why = "stopped" if stopped else f"{within:g} s are over"
        _warn(f"{why}; {kept}")
    forward: ForwardCheck | str = ""
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
        if isinstance(forward, ForwardCheck) and forward.verdict == "disagrees":
            print("Forward check: the equations, solved with these unknowns, disagree:")
            print("\n".join(f"  - {reason}" for reason in forward.reasons))
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
        "preview": bool(getattr(result.method, "instead_of", "")),
    }


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    as_json: Json = False,
) -> None:
    """Show the unknowns of several runs side by side."""
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


@app.command()
def forward(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    draws: Annotated[int, typer.Option(help="Number of draws to solve for.", min=1)] = 20,
    kind: Annotated[str | None, typer.Option(help="initial or boundary, for equations in one coordinate.")] = None,
    as_json: Json = False,
) -> None:
    """Solve the equations with the inferred unknowns, and say whether the solutions reproduce fields and readings."""
    found = bp.forward_check(runs.open_run(folder).load(_warn), draws, kind=kind)
    print(json.dumps(found.as_dict()) if as_json else found)
    if found.verdict == "disagrees":
        raise typer.Exit(DISTRUST)


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments of the paper; all of them by default.", autocompletion=_experiments),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(help="quick, or paper for the paper's settings.", autocompletion=_completed(("quick", "paper"))),
    ] = "quick",
    seed: Annotated[int, typer.Option(help="Seed of the first data set.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="Number of data sets.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="The folder for results and figures.")] = Path("reproduction"),
    show: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the experiments of the paper. After Ctrl-C, the same command continues."""
    from bpinn.paper import reproduction as package  # imported here because matplotlib takes a second to import

    if show:
        for name, experiment in package.EXPERIMENTS.items():
            print(f"{name:18s}{experiment.about}")
        return
    package.reproduce(names or [], preset=preset, seed=seed, seeds=seeds, out=out, progress=not quiet)


@app.command()
def calibrate(
    file: File,
    simulations: Annotated[int, typer.Option(help="Number of data sets to simulate.", min=10)] = 200,
    out: Annotated[Path | None, typer.Option(help="The folder; by default calibration next to the file.")] = None,
    method: MethodName = None,
    changes: Changes = None,
    allow_outside: Outside = False,
    quiet: Quiet = False,
) -> None:
    """Check, on data simulated from the prior, whether the error bars are correct. Ctrl-C and rerun to resume."""
    said = [*(changes or ()), *([f"inference.method={method}"] if method else ())]
    found = read_problem(file, said, allow_outside=allow_outside)
    folder = found.path.parent / "calibration" if out is None else out
    method_used: Any = found.method
    if found.chains is not None:
        method_used = replace(method_used, chains=found.chains)
    answer = bp.calibration.sbc(
        found.problem, method_used, simulations=simulations, seed=found.seed, out=folder, progress=not quiet
    )
    print(answer)
    figure = folder / "ranks.png"
    _write_figure(figure, bp.plot.calibration(answer))
    print(f"Ranks: {figure}")


def _write_figure(path: Path, figure: Any) -> None:
    kind = path.suffix.removeprefix(".").lower()
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise InputError(f"--out {path}: expected the name of a figure, such as {path.stem or 'prior'}.png")
    with io.BytesIO() as picture:
        figure.savefig(picture, format=kind)
        write_file(path, picture.getvalue())
