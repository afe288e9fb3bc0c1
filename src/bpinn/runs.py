"""Run folders: a problem file with its data, what was done, and where to go on.

problem/        the problem file and its data, copied
manifest.json   what was asked for, hashes of all of it, versions, seed
stage-*/        blocks of draws and states of chains
result.npz      the result, when the run has ended
log.txt         what happened when
"""

import datetime
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpinn import sampling
from bpinn.checkpoint import Checkpoint, only_one, write_file
from bpinn.errors import InputError
from bpinn.inference import draw, versions
from bpinn.problem_file import ProblemFile, read_problem
from bpinn.result import Result
from bpinn.storage import load

FORMAT = 1
MANIFEST, RESULT, LOG, PROBLEM = "manifest.json", "result.npz", "log.txt", "problem"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Run:
    """A run in a folder."""

    folder: Path
    problem_file: ProblemFile
    manifest: dict[str, Any]

    @property
    def is_done(self) -> bool:
        return (self.folder / RESULT).exists()

    def log(self, message: str) -> None:
        now = datetime.datetime.now().isoformat(timespec="seconds")
        with (self.folder / LOG).open("a") as file:
            file.write(f"{now} {message}\n")

    def load(self) -> Result:
        """The result, with the equations of the problem file, so that everything can be asked of it."""
        if not self.is_done:
            raise InputError(f"{self.folder}: the run has not ended; go on with `bpinn resume {self.folder}`")
        functions = {name: formula.function(name) for name, formula in self.problem_file.equations.items()}
        result = load(self.folder / RESULT, functions)
        result.problem = self.problem_file.problem
        return result

    def go(self, report: Callable[[sampling.Progress], None], warn: Callable[[str], None], cores: int | None) -> Result:
        """Run, or go on, to the end; what is done is on disk all the while."""
        with only_one(self.folder):
            self._check_versions(warn)
            self.log("taken up" if self._has_begun() else "started")

            def say(message: str) -> None:
                self.log(message)
                warn(message)

            file = self.problem_file
            try:
                result = draw(
                    file.problem, file.method, seed=file.seed, chains=file.chains, cores=cores, report=report,
                    checkpoint=Checkpoint(self.folder, say),
                )  # fmt: skip
            except BaseException as error:
                self.log(f"stopped: {type(error).__name__}: {error}")
                raise
            if result.interrupted:
                self.log("stopped by the user; the draws so far are kept")
            else:
                result.save(self.folder / RESULT)
                self.log(f"ended: {result.diagnose().verdict}")
            return result

    def _has_begun(self) -> bool:
        return any(self.folder.glob("stage-*"))

    def _check_versions(self, warn: Callable[[str], None]) -> None:
        now, then = versions(), self.manifest["versions"]
        changed = [f"{name} {then.get(name)} to {now[name]}" for name in now if then.get(name) != now[name]]
        if changed and self._has_begun():
            warn(
                f"since the run began versions have changed ({', '.join(changed)}); draws may differ in their last bits"
            )


def start(
    path: str | Path, out: str | Path | None = None, changes: Sequence[str] = (), *, allow_outside: bool = False
) -> Run:
    """Make the folder of a new run: ``out``, or the first of run, run-2, ... beside the problem file."""
    file = read_problem(path, changes, allow_outside=allow_outside)
    folder = _free(file.path.parent) if out is None else Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = f"; go on with `bpinn resume {folder}`" if (folder / MANIFEST).exists() else ""
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
    manifest = {
        "format": FORMAT,
        "problem": file.path.name,
        "changes": [*changes],
        "renamed": renamed,
        "seed": file.seed,
        "hashes": {name: _hash(inside / name) for name in copied},
        "versions": versions(),
        "made": datetime.datetime.now().isoformat(timespec="seconds"),
    }
    write_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    return open_run(folder)


def _free(folder: Path) -> Path:
    number = 1
    while True:
        candidate = folder / ("run" if number == 1 else f"run-{number}")
        if not candidate.exists():
            return candidate
        number += 1


def _inside_name(source: str) -> str:
    """Where a data file goes in the run's folder; from outside of the problem's folder, under a name of its own."""
    path = Path(source)
    if path.is_absolute() or ".." in path.parts:
        return f"outside/{hashlib.sha256(source.encode()).hexdigest()[:8]}-{path.name}"
    return source


def open_run(folder: str | Path) -> Run:
    """A run that was started, its files checked against what they were."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: not a run folder: it has no {MANIFEST}; `bpinn run FILE` makes one")
    try:
        manifest = json.loads(path.read_bytes())
        hashes, name, changes = manifest["hashes"], manifest["problem"], manifest["changes"]
        renamed, known = manifest["renamed"], manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: the file is damaged") from None
    if known != FORMAT:
        raise InputError(f"{path}: has format {known}, this version reads {FORMAT}; upgrade bpinn")
    for file, expected in hashes.items():
        inside = folder / PROBLEM / file
        if not inside.is_file() or _hash(inside) != expected:
            raise InputError(f"{inside}: has changed since the run was started; put it back, or start a new run")
    return Run(folder, read_problem(folder / PROBLEM / name, changes, renamed=renamed), manifest)
