"""Run folders: a problem file with its data, the blocks of the run, and its result.

problem/        copies of the problem file and its data
manifest.json   the settings, hashes of the copied files, versions, seed
stage-*/        blocks of draws and states of chains
result.npz      the result, once the run is finished
report.html     the report, with figures/ and tables/
log.txt         a log with times
"""

import contextlib
import datetime
import hashlib
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from bpinn import storage
from bpinn.engine import Progress
from bpinn.errors import BpinnWarning, InputError
from bpinn.forward import ForwardCheck
from bpinn.inference import draw
from bpinn.measurements import label
from bpinn.methods import HMC, Method
from bpinn.preview import answer
from bpinn.problem_file import ProblemFile, read_problem
from bpinn.result import Result
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_folder.files import only_one
from bpinn.run_folder.manifest import MANIFEST, RESULT, has_begun, read_manifest, versions, write_manifest
from bpinn.run_folder.results import finished, opened, opened_from_python

LOG, PROBLEM = "log.txt", "problem"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class FileRun:
    """A run of a problem file, in its folder."""

    folder: Path
    problem_file: ProblemFile
    manifest: dict[str, Any]

    @property
    def is_done(self) -> bool:
        return (self.folder / RESULT).exists()

    @property
    def page(self) -> Path:
        return self.folder / "report.html"

    def log(self, message: str) -> None:
        now = datetime.datetime.now().isoformat(timespec="seconds")
        with contextlib.suppress(OSError), (self.folder / LOG).open("a") as file:  # a full disk is reported elsewhere
            file.write(f"{now} {message}\n")

    def load(self, warn: Callable[[str], None] = lambda message: None) -> Result:
        """The result, with the equations of the problem file; of an unfinished run the draws so far, with a warning."""
        file = self.problem_file
        functions = {name: formula.function(name) for name, formula in file.equations.items()}
        result = opened(
            self.folder, file.problem, file.method, seed=file.seed, chains=file.chains or file.method.chains,
            resume=f"call `bpinn resume {self.folder}`", functions=functions, warn=warn,
            dtype=jnp.result_type(float),
        )  # fmt: skip
        result.problem = file.problem
        return result

    def go(
        self,
        report: Callable[[Progress], None],
        warn: Callable[[str], None],
        cores: int | None,
        within: float | None = None,
        cluster: Any = None,
    ) -> Result:
        """Run or resume, to the end or for so many seconds; every finished block is on disk."""
        with only_one(self.folder):

            def say(message: str) -> None:
                self.log(message)
                warn(message)

            file = self.problem_file
            functions = {name: formula.function(name) for name, formula in file.equations.items()}
            result = finished(self.folder, functions, say)
            if result is not None:
                result.problem = file.problem
                return result
            self._check_versions(warn)
            self.log("resumed" if has_begun(self.folder) else "started")
            try:
                result = answer(
                    draw, file.problem, file.method, seed=file.seed, chains=file.chains, cores=cores, report=report,
                    checkpoint=Checkpoint(self.folder, say), within=within, say=warn, cluster=cluster,
                )  # fmt: skip
            except BaseException as error:
                self.log(f"stopped: {type(error).__name__}: {error}")
                raise
            if result.interrupted:
                self.log("stopped; the draws so far are stored")
            else:
                storage.save(result, self.folder / RESULT, draws_beside=True)
                self.log(f"ended: {result.diagnose().verdict}")
            return result

    def keep(self, result: Result) -> None:
        """Store the result of a run that took place elsewhere."""
        with only_one(self.folder):
            storage.save(result, self.folder / RESULT)
            self.log(f"ended, on another machine: {result.diagnose().verdict}")

    @property
    def truth(self) -> dict[str, Any]:
        """The true values given in the file, by field, sensors or unknown: functions of the coordinates, or numbers."""
        file = self.problem_file
        found: dict[str, Any] = {}
        coordinates = tuple(file.problem.domain)
        for name, formula in file.truth.items():
            if name in file.problem.unknowns:
                found[name] = float(formula.evaluate({}))
                continue
            function = formula.function(name, coordinates)
            sensors = [n for n, s in file.problem.sensors.items() if label(s.quantity) == name]
            found |= dict.fromkeys([name] if name in file.problem.fields else sensors, function)
        return found

    def report(self, result: Result, forward: ForwardCheck | str | None = None) -> Path:
        """Write the report of the result; return the path of the page."""
        from bpinn import report  # imported here because matplotlib takes a second to import

        file = self.problem_file
        return report.write(
            result, self.folder, title=file.title, formulas=file.equations, truth=self.truth,
            sources=file.origins, notes=file.notes, forward=forward, load_from=str(self.folder),
        )  # fmt: skip

    def _check_versions(self, warn: Callable[[str], None]) -> None:
        now, then = versions(), self.manifest.get("versions", {})
        changed = [f"{name} {then.get(name)} to {now[name]}" for name in now if then.get(name) != now[name]]
        if changed and has_begun(self.folder):
            warn(
                f"versions have changed since the run started ({', '.join(changed)}); draws may differ in the last bits"
            )


def start(
    path: str | Path, out: str | Path | None = None, changes: Sequence[str] = (), *, allow_outside: bool = False
) -> FileRun:
    """Create the folder of a new run: ``out``, or the first free one of run, run-2, ... next to the problem file."""
    file = read_problem(path, changes, allow_outside=allow_outside)
    folder = _free(file.path.parent) if out is None else Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = f", or resume it with `bpinn resume {folder}`" if (folder / MANIFEST).exists() else ""
        raise InputError(f"{folder}: exists and is not empty; give another --out{what}")
    inside = folder / PROBLEM
    try:
        inside.mkdir(parents=True)
        copied = {file.path.name: file.path}
        for source in file.sources:
            target = _inside_name(source)
            copied[target] = (file.path.parent / source).resolve()
        for target, origin in copied.items():
            (inside / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, inside / target)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    renamed = {source: _inside_name(source) for source in file.sources if _inside_name(source) != source}
    if file.stated is None:  # a resumed run must not choose again
        changes = [*changes, f"inference.method={Method.registry.name_of(type(file.method))}"]
    write_manifest(
        folder,
        {
            "problem": file.path.name,
            "changes": [*changes],
            "renamed": renamed,
            "seed": file.seed,
            "hashes": {name: _hash(inside / name) for name in copied},
        },
    )
    return open_run(folder)


def _free(folder: Path) -> Path:
    number = 1
    while True:
        candidate = folder / ("run" if number == 1 else f"run-{number}")
        if not candidate.exists():
            return candidate
        number += 1


def _inside_name(source: str) -> str:
    """Where a data file is copied to in the run folder; files from outside the problem's folder get a unique name."""
    path = Path(source)
    if path.is_absolute() or ".." in path.parts:
        return f"outside/{hashlib.sha256(source.encode()).hexdigest()[:8]}-{path.name}"
    return source


def open_run(folder: str | Path) -> FileRun:
    """Open an existing run, after checking its files against their hashes."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        beside = sorted(str(one.parent) for one in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        hint = f"its runs are {', '.join(beside)}" if beside else "`bpinn run FILE` creates one"
        raise InputError(f"{folder}: not a run folder: it has no {MANIFEST}; {hint}")
    manifest = read_manifest(folder)
    if "inference" in manifest:
        raise InputError(f"{folder}: a run from Python, without a problem file; call bp.infer(..., out=) again there")
    try:
        hashes, name, changes, renamed = (manifest[key] for key in ("hashes", "problem", "changes", "renamed"))
        names = [name, *hashes, *renamed.values()]
        changes = ["".join(change) for change in changes]
        inside = all(Path(n).name and not Path(n).is_absolute() and ".." not in Path(n).parts for n in names)
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{folder / MANIFEST}: the file is damaged") from None
    if not inside:
        raise InputError(f"{folder / MANIFEST}: names files outside its folder, which bpinn never writes; not opened")
    for file, expected in hashes.items():
        copy = folder / PROBLEM / file
        if not copy.is_file() or _hash(copy) != expected:
            raise InputError(f"{copy}: has changed since the run was started; restore it, or start a new run")
    file = read_problem(folder / PROBLEM / name, changes, renamed=renamed)
    if manifest["format"] == 1:  # it goes on as version 0.1 would
        method = file.stated or HMC()
        file = replace(file, stated=replace(method, **method.before))
    return FileRun(folder, file, manifest)


def open_result(path: str | Path, warn: Callable[[str], None]) -> Result:
    """The result of a run folder, of a result file, or of the latest run of a problem file."""
    given = Path(path)
    if given.suffix == ".npz":
        return load(given)
    if (given / MANIFEST).is_file():
        return load(given) if "inference" in read_manifest(given) else open_run(given).load(warn)
    folder = given if given.is_dir() else given.parent
    if not given.exists():
        raise InputError(f"{given}: does not exist; give the folder of a run, a result.npz or a problem file")
    found = sorted(folder.glob(f"*/{MANIFEST}"), key=lambda manifest: manifest.stat().st_mtime)
    if not found:
        raise InputError(f"{given}: has no run yet; start one with `bpinn run {given}`")
    if len(found) > 1:
        warn(f"{given} has {len(found)} runs; the latest is used, {found[-1].parent}")
    return open_result(found[-1].parent, warn)


def load(path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None) -> Result:
    """Read a result: a file written by `Result.save`, or a run folder.

    Arguments:
        path: the file or the folder.
        functions: equations and activations by name, needed only to evaluate the log density of a result from a file;
            the folder of a problem file's run has its own. Without them `draws`, `summary`, `diagnose` and `predict`
            still work, `predict` for fields and for equations passed to it.

    Example:
        ``result = bp.load("demo/run")``
    """
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        return storage.load(path, functions)

    def warn(message: str) -> None:
        warnings.warn(f"load: {message}", BpinnWarning, stacklevel=4)

    if "inference" in read_manifest(folder):
        return opened_from_python(folder, functions or {}, warn)
    return open_run(folder).load(warn)
