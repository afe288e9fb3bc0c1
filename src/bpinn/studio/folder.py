"""The studio's folder: problems, their data files and runs. No path from a request leads out of it, nor does a link."""

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpinn.errors import InputError
from bpinn.run_folder.files import LOCK, MANIFEST, RESULT, write_file

PROBLEM, PROGRESS, LOG, REPORT = "problem.toml", "progress.json", "log.txt", "report.html"
DATA = (".csv", ".tsv", ".txt", ".dat", ".xlsx", ".xlsm", ".npz", ".parquet")
NAME = re.compile(r"\w[\w .-]{0,59}")
LARGEST_TEXT = 2**20  # bytes of a problem file, as for the program
LARGEST_PROGRESS = 2**23
LOCKS = Path("/proc/locks")
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names that Windows keeps to itself


class MissingError(InputError):
    """There is no such problem, run or file."""


def check_name(name: Any, what: str) -> str:
    """A name of one file or folder; never a path."""
    whole = isinstance(name, str) and NAME.fullmatch(name) and not name.endswith((".", " "))
    if not whole or ".." in name or RESERVED.fullmatch(name):
        raise InputError(f"{what} {name!r:.80}: expected letters, digits, spaces, _, . and -, at most 60 of them")
    return str(name)


def has_links(folder: Path) -> bool:
    """Whether a folder is a symbolic link or holds one, at any depth."""
    if folder.is_symlink():
        return True
    for place, folders, files in os.walk(folder):
        if any(Path(place, name).is_symlink() for name in (*folders, *files)):
            return True
    return False


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Folder:
    """Everything the studio may read and write: the folder itself, if it has a problem file, and folders in it."""

    root: Path

    def problems(self) -> dict[str, Path]:
        """Folders with a problem file, by name."""
        found = {self.root.name: self.root} if _is_file(self.root / PROBLEM) and NAME.fullmatch(self.root.name) else {}
        for path in sorted(self.root.iterdir(), key=lambda path: path.name.lower()):
            if NAME.fullmatch(path.name) and not path.is_symlink() and _is_file(path / PROBLEM):
                found.setdefault(path.name, path)
        return found

    def problem(self, name: str) -> Path:
        found = self.problems().get(name)
        if found is None:
            raise MissingError(f"there is no problem {name!r:.80} in this studio")
        return found

    def free(self, name: Any) -> Path:
        """The path of a new problem."""
        path = self.root / check_name(name, "name")
        if path.exists() or path.is_symlink() or name in self.problems():
            raise InputError(f"{name}: already exists; give another name")
        return path

    # --- a problem ---

    def text(self, name: str) -> str:
        path = self.problem(name) / PROBLEM
        if path.stat().st_size > LARGEST_TEXT:
            raise InputError(f"{path.name}: larger than {LARGEST_TEXT // 2**20} MiB; move the readings to data files")
        try:
            return path.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{path.name}: byte {error.start + 1} is not UTF-8 text") from None

    def save(self, name: str, text: str, before: str) -> str:
        """Write a problem file, unless it has changed since its revision ``before``; returns the new revision."""
        if len(text.encode()) > LARGEST_TEXT:
            raise InputError(f"{PROBLEM}: larger than {LARGEST_TEXT // 2**20} MiB; move the readings to data files")
        if revision(self.text(name)) != before:
            raise InputError(
                f"{PROBLEM}: another program has changed the file since this page read it; reload the page to see it"
            )
        write_file(self.problem(name) / PROBLEM, text.encode())
        return revision(text)

    def data(self, name: str) -> list[dict[str, Any]]:
        """The data files of a problem."""
        files = sorted(path for path in self.problem(name).iterdir() if path.suffix.lower() in DATA and _is_file(path))
        return [{"name": path.name, "bytes": path.stat().st_size} for path in files]

    def new_data(self, name: str, file: Any) -> Path:
        """Where an uploaded file will be; existing files are not replaced."""
        path = self.problem(name) / check_name(file, "file")
        if path.suffix.lower() not in DATA:
            raise InputError(f"{file}: not a data file; expected one of {', '.join(DATA)}")
        if path.exists() or path.is_symlink():
            raise InputError(f"{file}: already exists in this problem; rename the file that you upload")
        return path

    def scratch(self) -> Path:
        """A new hidden folder for an upload that is still to be checked."""
        path = self.root / f".upload-{secrets.token_hex(6)}"
        path.mkdir(mode=0o700)
        return path

    # --- runs ---

    def runs(self, name: str) -> dict[str, Path]:
        """The runs of a problem, the latest first."""
        folders = [path for path in self.problem(name).iterdir() if NAME.fullmatch(path.name) and not path.is_symlink()]
        found = [(path / MANIFEST, path) for path in folders if _is_file(path / MANIFEST)]
        newest = sorted(found, key=lambda pair: (pair[0].stat().st_mtime, pair[1].name), reverse=True)
        return {path.name: path for _, path in newest}

    def run(self, name: str, run: str) -> Path:
        found = self.runs(name).get(run)
        if found is None:
            raise MissingError(f"{name}: there is no run {run!r:.80}")
        return found

    def writable_run(self, name: str, run: str) -> Path:
        """A run into which the program may write: without links, which could lead elsewhere."""
        found = self.run(name, run)
        if has_links(found):
            raise InputError(f"{run}: holds symbolic links, which bpinn never makes; remove them")
        return found

    def free_run(self, name: str, taken: set[str]) -> str:
        """The first free name of run, run-2, ..., as the program chooses it."""
        folder, number = self.problem(name), 1
        while True:
            candidate = "run" if number == 1 else f"run-{number}"
            if not (folder / candidate).exists() and not (folder / candidate).is_symlink() and candidate not in taken:
                return candidate
            number += 1

    def inside(self, folder: Path, relative: str) -> Path:
        """A file below a folder of the studio, for reading."""
        parts = relative.split("/")
        if not all(part and part not in (".", "..") and "\\" not in part and "\0" not in part for part in parts):
            raise MissingError(f"there is no file {relative!r:.80}")
        path = folder.joinpath(*parts)
        try:
            inside = path.resolve(strict=True) == folder.resolve(strict=True).joinpath(*parts) and path.is_file()
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise MissingError(f"there is no file {relative!r:.80}")
        return path


def is_finished(run: Path) -> bool:
    return _is_file(run / RESULT)


def is_locked(run: Path) -> bool:
    """Whether a process has locked a run. It is looked up: trying the lock could get in the way of one that starts."""
    try:
        inode, locks = (run / LOCK).stat().st_ino, LOCKS.read_text()
    except OSError:  # no lock, or not Linux; a run that is resumed finds out by itself
        return False
    return any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())


def has_report(run: Path) -> bool:
    return _is_file(run / REPORT)


def last_words(run: Path, most: int = 6) -> list[str]:
    """The end of a run's log."""
    path = run / LOG
    if not _is_file(path):
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    return lines[-most:]
