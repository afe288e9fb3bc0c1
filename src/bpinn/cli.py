"""The command line: bpinn new | check | prior | run | resume | report | forward | next |
compare | reproduce | calibrate | sweep | studio.

This module has the arguments, and `bpinn.commands` the rest: help does not need JAX, which takes a second to import.

Exit codes: 0 the run finished and its verdict is "good" or "usable with care"; 3 it finished and the verdict is "do not
trust"; 2 the input is invalid; 130 it was stopped with Ctrl-C.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import bpinn as bp
from bpinn import portable
from bpinn.errors import BpinnWarning, InputError
from bpinn.templates import TEMPLATES, write_template

WRONG, STOPPED = 2, 130
# The methods of bpinn itself, so that help does not have to import them; a test compares.
METHODS = (
    "hmc", "collapsed", "nuts", "smc", "sghmc", "last-layer", "laplace", "ensemble", "svgd", "ensemble-kalman", "vi",
    "flow", "dropout", "pinn",
)  # fmt: skip

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


def _methods(incomplete: str) -> list[str]:
    return _completed(bp.Method.registry)(incomplete)  # also those of other packages


MethodName = Annotated[
    str | None, typer.Option(help=f"One of {', '.join(METHODS)}, or one of another package.", autocompletion=_methods)
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write the report.")]
Within = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Stop after this time, with the best answer so far.")
]
ProgressTo = Annotated[
    Path | None, typer.Option("--progress", metavar="FILE", help="Write progress to this file, as JSON.")
]
Cores = Annotated[int | None, typer.Option(help="Number of cores to use; all by default.", min=1)]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on Dask workers: an address, a scheduler file, or local:2 for 2 processes here."
    ),
]


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
        print(f"bpinn {bp.__version__}")
        raise typer.Exit


class Command(TyperCommand):
    """A command that computes something: if asked to, JAX keeps what it compiles for it."""

    def invoke(self, ctx: Any) -> Any:  # after the arguments are read, so that --help does not come here
        if ctx.obj:
            from bpinn import commands

            commands.keep_compiled()
        return super().invoke(ctx)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version.")] = False,
    cache: Annotated[bool, typer.Option(help="Keep compiled programs in the user's cache folder.")] = True,
    portably: Annotated[
        bool, typer.Option("--portable", help="Use only instructions that all processors with AVX2 have.")
    ] = False,
) -> None:
    if portably and not portable.is_on():  # settings that JAX reads when its process starts
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-m", "bpinn", *sys.argv[1:]], portable.environment(os.environ))
    context.obj = cache


def _changed(changes: list[str] | None, method: str | None) -> list[str]:
    """Keys that --set and --method override."""
    return [*(changes or ()), *([f"inference.method={method}"] if method else ())]


@app.command()
def new(
    name: Annotated[Path | None, typer.Argument(help="The folder to create.")] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(TEMPLATES)}; inverse-1d by default.", autocompletion=_completed(TEMPLATES)
        ),
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", metavar="FILE", help="Data file for a draft.")] = None,
    dates: Annotated[
        str | None, typer.Option(help="day-first or month-first, if the dates of --from are ambiguous.")
    ] = None,
) -> None:
    """Create a problem: an example, or a draft for your own data. The folder gets a problem file and its data."""
    if source is None:
        if name is None:
            raise InputError("new: give the folder to create, such as `bpinn new demo`")
        for path in write_template(template or "inverse-1d", name):
            print(path)
        print(f"Next: bpinn run {name / 'problem.toml'}")
        return
    if template is not None:
        raise InputError("new: --template and --from cannot be combined; remove one of them")
    from bpinn import commands

    commands.draft(source, Path(source.stem) if name is None else name, dates)


@app.command(cls=Command)
def check(
    file: File,
    changes: Changes = None,
    allow_outside: Outside = False,
    as_json: Json = False,
) -> None:
    """Check a problem file and show what would run. Prints sensors, unknowns, parameters and the estimated time."""
    from bpinn import commands

    commands.check(file, changes or [], allow_outside, as_json)


@app.command(cls=Command)
def prior(
    file: File,
    out: Annotated[Path | None, typer.Option(help="Figure to write: readings over prior draws.")] = None,
    changes: Changes = None,
    allow_outside: Outside = False,
    as_json: Json = False,
) -> None:
    """Check whether the prior could have produced the readings."""
    from bpinn import commands

    commands.prior(file, out, changes or [], allow_outside, as_json)


@app.command(cls=Command)
def run(
    file: File,
    out: Annotated[Path | None, typer.Option(help="The run folder; default: run, run-2, ... next to the file.")] = None,
    method: MethodName = None,
    changes: Changes = None,
    cores: Cores = None,
    cluster: Cluster = None,
    within: Within = None,
    allow_outside: Outside = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: Json = False,
    progress: ProgressTo = None,
) -> None:
    """Run a problem file. `bpinn resume` continues the run after Ctrl-C, a crash or --within."""
    from bpinn import commands

    commands.run(
        file, out, _changed(changes, method), cores, cluster, within, allow_outside, no_report, quiet, as_json, progress
    )  # fmt: skip


@app.command(cls=Command)
def resume(
    folder: Annotated[Path, typer.Argument(help="The run folder.")],
    cores: Cores = None,
    cluster: Cluster = None,
    within: Within = None,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: Json = False,
    progress: ProgressTo = None,
) -> None:
    """Resume a run that was stopped or killed. The draws are identical to those of an uninterrupted run."""
    from bpinn import commands

    commands.resume(folder, cores, cluster, within, no_report, quiet, as_json, progress)


@app.command(cls=Command)
def report(
    folder: Annotated[Path, typer.Argument(help="The run folder; the report of an unfinished run says so.")],
    as_json: Json = False,
) -> None:
    """Write the report of a run again. It is report.html, with figures and tables next to it."""
    from bpinn import commands

    commands.report(folder, as_json)


@app.command(cls=Command)
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    as_json: Json = False,
) -> None:
    """Show the unknowns of several runs side by side."""
    from bpinn import commands

    commands.compare(folders, as_json)


@app.command(cls=Command)
def forward(
    folder: Annotated[Path, typer.Argument(help="The run folder.")],
    draws: Annotated[int, typer.Option(help="Number of draws to solve for.", min=1)] = 20,
    kind: Annotated[str | None, typer.Option(help="initial or boundary, for equations in one coordinate.")] = None,
    as_json: Json = False,
) -> None:
    """Solve the equations with the inferred unknowns. Do the solutions reproduce fields and readings?"""
    from bpinn import commands

    commands.forward(folder, draws, kind, as_json)


@app.command("next", cls=Command)
def next_(
    run: Annotated[Path, typer.Argument(help="A run folder, a result.npz, or a problem file that has a run.")],
    for_: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="NAME", help="An unknown, a field, or a field at a place: u@x=0.5,t=1."),
    ] = None,
    count: Annotated[int, typer.Option(help="Number of readings to name.", min=1)] = 1,
    noise: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SD", help="Noise of the new reading; default: that of the others."),
    ] = None,
    of: Annotated[list[str] | None, typer.Option(metavar="NAME", help="What can be read; repeat for several.")] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Use simulated readings instead of a regression.")] = False,
    out: Annotated[Path | None, typer.Option(help="Figure to write, such as next.png.")] = None,
    as_json: Json = False,
) -> None:
    """Find the reading that would lower an uncertainty most. With several solutions, the one that tells them apart."""
    from bpinn import commands

    commands.next_reading(run, for_ or [], count, noise or [], of, exact, out, as_json)


@app.command(cls=Command)
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
    cluster: Cluster = None,
    quiet: Quiet = False,
) -> None:
    """Reproduce the experiments of the paper. After Ctrl-C, the same command continues."""
    from bpinn.paper import reproduction as package  # imported here because matplotlib takes a second to import

    if show:
        for name, experiment in package.EXPERIMENTS.items():
            print(f"{name:18s}{experiment.about}")
        return
    from bpinn import commands

    with commands.stopping():
        package.reproduce(
            names or [], preset=preset, seed=seed, seeds=seeds, out=out, progress=not quiet, cluster=cluster
        )


@app.command(cls=Command)
def calibrate(
    file: File,
    simulations: Annotated[int, typer.Option(help="Number of data sets to simulate.", min=10)] = 200,
    out: Annotated[Path | None, typer.Option(help="Output folder; by default calibration, next to the file.")] = None,
    method: MethodName = None,
    changes: Changes = None,
    allow_outside: Outside = False,
    cluster: Cluster = None,
    quiet: Quiet = False,
) -> None:
    """Check on simulated data whether the error bars are correct. After Ctrl-C, rerun to continue."""
    from bpinn import commands

    commands.calibrate(file, simulations, out, _changed(changes, method), allow_outside, cluster, quiet)


@app.command(cls=Command)
def sweep(
    file: File,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUES", help='What varies: "data=*.csv", or a key of the file with its values.'),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each combination.", min=1)] = 1,
    out: Annotated[Path | None, typer.Option(help="Output folder; by default sweep, next to the file.")] = None,
    method: MethodName = None,
    changes: Changes = None,
    cores: Cores = None,
    cluster: Cluster = None,
    allow_outside: Outside = False,
    quiet: Quiet = False,
) -> None:
    """Run a problem file over data sets, settings and seeds. After Ctrl-C, rerun to continue."""
    from bpinn import commands

    commands.sweep(file, over or [], seeds, out, _changed(changes, method), cores, cluster, allow_outside, quiet)


@app.command()
def studio(
    folder: Annotated[Path, typer.Argument(help="Folder of your problems; the current one by default.")] = Path("."),
    port: Annotated[int, typer.Option(help="The port to use; a free one by default.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
) -> None:
    """State, run and compare problems on a page in your browser. Only this machine can open it."""
    from bpinn.studio import serve

    serve(folder, port, browser)
