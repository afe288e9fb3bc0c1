"""Many runs of one problem file: over data sets, settings and seeds, in one folder, with a table and a report.

sweep.json    what is swept over
runs/         a run folder for each
table.csv     one row for each run
table.md      the same by data set, over all seeds
report.html   unknowns with error bars by data set, and the verdicts
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from bpinn import cluster as clusters
from bpinn.engine import Progress
from bpinn.errors import InputError
from bpinn.inference import draw
from bpinn.progress import Display
from bpinn.result import Result
from bpinn.run_folder import runs
from bpinn.run_folder.files import only_one, write_file
from bpinn.run_folder.manifest import MANIFEST
from bpinn.sweep.plan import Member, Plan, plan
from bpinn.sweep.table import Row, row_of, write_tables

ABOUT, RUNS, ROW = "sweep.json", "runs", "row.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Swept:
    """The outcome of a sweep: its rows, and the page that shows them."""

    rows: list[Row]
    page: Path


def sweep(
    path: str | Path,
    over: Sequence[str],
    *,
    out: str | Path,
    seeds: int = 1,
    changes: Sequence[str] = (),
    cluster: Any = None,
    cores: int | None = None,
    allow_outside: bool = False,
    progress: bool = True,
) -> Swept:
    """Run a problem file for every combination of what varies and every seed; finished runs are not repeated.

    Arguments:
        path: the problem file.
        over: what varies, each as KEY=VALUES: ``"data=*.csv"`` for data files, or any key of the file with its values,
            ``"sensors.0.noise=0.1,0.2"``.
        out: the folder; the same call continues there.
        seeds: number of seeds for each; the first is that of the file.
        changes: keys to set in all runs, such as ``"inference.chains=2"``.
        cluster: where runs go, as in `bpinn.infer`: one at a time on each worker. By default they run here, one
            after another.
        cores: number of cores that a run here uses; all by default.
        allow_outside: allow data outside the folder of the problem file.
        progress: print progress.

    Example:
        ``sweep("cooling/problem.toml", ["data=*.csv"], seeds=3, out="cooling/sweep")``
    """
    if cluster is not None:
        clusters.check(cluster, "sweep: cluster")
        if cores is not None:
            raise InputError("sweep: --cores counts threads of this process; with --cluster remove it")
    planned = plan(Path(path), over, seeds, changes, allow_outside)
    folder = Path(out)
    _claim(folder, planned, over, changes)
    with only_one(folder), ExitStack() as stack:
        found = [_run_of(folder, planned, member, allow_outside) for member in planned.members]
        rows: dict[str, Row] = {}
        for member, run in zip(planned.members, found, strict=True):
            if run.is_done:  # its row is read: the verdict of a result takes a second or more
                row = Row.read(member, run.folder / ROW)
                rows[member.name] = row_of(member, run.load()) if row is None else row
        left = [(member, run) for member, run in zip(planned.members, found, strict=True) if not run.is_done]
        if rows and progress:
            _say(f"{len(rows)} of {len(found)} runs are already finished")
        going = _here(left, cores, progress)
        if cluster is not None and left:
            going = _there(stack.enter_context(clusters.opened(cluster, _say, "sweep: cluster")), left)
        try:
            for member, run, result in going:
                rows[member.name] = row = row_of(member, result)
                row.write(run.folder / ROW)
                if progress:
                    _say(f"{len(rows)} of {len(found)}: {member.name}: {row.said}")
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped; {len(rows)} of {len(found)} runs are finished and kept; the same command continues"
            ) from None
        ordered = [rows[member.name] for member in planned.members]
        page = write_tables(folder, planned, ordered, found[0].truth)
    return Swept(ordered, page)


def _say(message: str) -> None:
    print(f"sweep: {message}", file=sys.stderr, flush=True)


def _claim(folder: Path, planned: Plan, over: Sequence[str], changes: Sequence[str]) -> None:
    """Create the folder; an existing one must be of the same problem and the same keys. Values may be added."""
    wanted = {
        "problem": planned.path.name,
        "hash": hashlib.sha256(planned.path.read_bytes()).hexdigest(),
        "keys": list(planned.keys),
        "changes": [*changes],
    }
    about = folder / ABOUT
    if not about.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: exists, and is not a sweep; give another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be created: {error.strerror or error}") from None
        write_file(about, json.dumps({**wanted, "over": [*over]}, indent=1).encode())
        return
    try:
        there = json.loads(about.read_bytes())
        differ = [name for name in wanted if there[name] != wanted[name]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{about}: the file is damaged; give another --out, or remove the folder") from None
    if differ:
        what = {"problem": "problem", "hash": "problem file", "keys": "--over", "changes": "--set"}[differ[0]]
        raise InputError(f"{folder}: holds a different sweep (its {what} differs); give another --out, or remove it")


def _run_of(folder: Path, planned: Plan, member: Member, allow_outside: bool) -> runs.FileRun:
    """The folder of a run, which is made if there is none."""
    inside = folder / RUNS / member.name
    if not (inside / MANIFEST).is_file():
        return runs.start(planned.path, inside, member.changes, allow_outside=allow_outside)
    run = runs.open_run(inside)
    if run.manifest["changes"] != list(member.changes):
        raise InputError(f"{inside}: holds a different run; remove it, or give another --out")
    return run


def _here(left: Sequence[tuple[Member, runs.FileRun]], cores: int | None, progress: bool) -> Iterator[Any]:
    """One after another in this process; every block is on disk."""
    for member, run in left:
        report: Callable[[Progress], None] = Display() if progress else lambda _: None
        result = run.go(report, _say, cores)
        if result.interrupted:
            raise KeyboardInterrupt
        yield member, run, result


def _there(cluster: clusters.Cluster, left: Sequence[tuple[Member, runs.FileRun]]) -> Iterator[Any]:
    """On the workers of a cluster; the result of each run is stored here."""
    files = [run.problem_file for _, run in left]
    items = [(file.problem, file.method, file.seed, file.chains) for file in files]
    for number, found in clusters.each(cluster, _on_worker, items):
        member, run = left[number]
        result = Result(problem=files[number].problem, **found)
        run.keep(result)
        yield member, run, result


def _on_worker(item: tuple[Any, Any, int, int | None]) -> dict[str, Any]:
    """A run on a worker; everything of its result but the problem, which is known."""
    problem, method, seed, chains = item
    heed = partial(_heed, clusters.worker.Cancelled())
    result = draw(problem, method, seed=seed, chains=chains, cores=clusters.worker.cores(), report=heed)
    return {f.name: getattr(result, f.name) for f in fields(result) if f.name != "problem"}


def _heed(stop: Any, _: Progress) -> None:
    if stop.is_set():
        raise KeyboardInterrupt
