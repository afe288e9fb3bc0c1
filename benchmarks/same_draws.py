"""Check that every method still gives the same draws, bit for bit: this working tree against another revision.

    python benchmarks/same_draws.py --against REVISION [--only NAME ...] [--keep]

The small cases of `same_cases.py` run with both sources side by side, in one process each, and all their arrays are
compared: draws, statistics, summaries, predictions, tables of reports, verdicts. Words (reasons, advice, messages) may
change and are not compared, nor are cases of settings that only one of them has. Exits with 0 if everything is the
same, with 1 otherwise.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
HERE = Path(__file__).resolve().parent
NAMES = "names.json"  # what a worker writes first: the cases it will run
MOST_NAMED = 4  # arrays that differ, of one case


class Worker:
    """A process that runs the cases with one version of the sources, and writes their arrays to a folder."""

    def __init__(self, source: Path, folder: Path, only: list[str]):
        self.folder, self.log = folder, folder.with_suffix(".log")
        folder.mkdir()
        environment = os.environ | {"PYTHONPATH": str(source / "src")}
        command = [sys.executable, str(HERE / "same_cases.py"), str(folder), *only]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder.parent)

    def wait_for(self, *names: str) -> Path | None:
        """The first of these files that exists; None if the process ends without any."""
        while True:
            running = self.process.poll() is None  # checked before the files, so that the last file is not missed
            for name in names:
                if (self.folder / name).exists():
                    return self.folder / name
            if not running:
                return None
            time.sleep(0.05)

    def names(self) -> list[str]:
        path = self.wait_for(NAMES)
        if path is None:
            sys.exit(f"same_draws: the {self.folder.name} sources do not run: {last_line(self.log)}")
        return json.loads(path.read_text())

    def case(self, name: str) -> Arrays | str:
        """The arrays of a case, or why there are none."""
        path = self.wait_for(f"{name}.npz", f"{name}.txt")
        if path is None:
            return f"the process ended: {last_line(self.log)}"
        return last_line(path) if path.suffix == ".txt" else read(path)


def read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def last_line(path: Path) -> str:
    return (path.read_text().strip().splitlines() or ["no message"])[-1]


def differences(old: Arrays, new: Arrays) -> list[str]:
    """How two sets of arrays differ, by name: one line in words for each array that does."""
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            found.append(f"{name} exists only in the {'new' if name in new else 'old'} results")
            continue
        how = difference(old[name], new[name])
        if how:
            found.append(f"{name} {how}")
    return found


def difference(old: np.ndarray, new: np.ndarray) -> str:
    """How an array differs from another in type, shape or any bit; empty if it does not. All NaN are equal."""
    kinds = [(a.dtype.kind if a.dtype.kind == "U" else a.dtype.str, a.shape) for a in (old, new)]
    if kinds[0] != kinds[1]:
        return f"was {old.dtype}{list(old.shape)}, is {new.dtype}{list(new.shape)}"
    differ = old != new
    if old.dtype.kind == "f":
        bits = [np.ascontiguousarray(a).view(f"u{a.itemsize}").reshape(a.shape) for a in (old, new)]
        differ = (bits[0] != bits[1]) & ~(np.isnan(old) & np.isnan(new))
    if not np.any(differ):
        return ""
    first = tuple(int(i) for i in np.argwhere(differ)[0])
    where = f"first at {first}: was {old[first]}, is {new[first]}"
    if old.dtype.kind not in "fiu":
        return f"differs in {np.sum(differ)} of {differ.size}, {where}"
    with np.errstate(invalid="ignore"):  # a number may have become infinite
        apart = np.abs(old[differ].astype(float) - new[differ].astype(float)).max()
    return f"differs by up to {apart:.3g} in {np.sum(differ)} of {differ.size}, {where}"


def verdict(old: Arrays | str, new: Arrays | str) -> tuple[bool, str]:
    """Whether a case gives the same arrays, and the line to print."""
    failed = [f"{side} raised {what}" for side, what in (("old", old), ("new", new)) if isinstance(what, str)]
    if isinstance(old, str) or isinstance(new, str):
        return False, "; ".join(failed)
    found = differences(old, new)
    if not found:
        return True, f"same ({len(new)} arrays)"
    more = f"; and {len(found) - MOST_NAMED} more arrays" if len(found) > MOST_NAMED else ""
    return False, "DIFFERS: " + "; ".join(found[:MOST_NAMED]) + more


def export(revision: str, folder: Path) -> Path:
    """Export the sources of a revision; unlike a worktree, this leaves nothing to clean up in the repository."""
    command = ["git", "-C", str(HERE.parent), "archive", f"{revision}^{{commit}}", "src"]
    made = subprocess.run(command, capture_output=True)
    if made.returncode:
        sys.exit(f"same_draws: {revision!r} cannot be exported: {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextlib.contextmanager
def work_folder(keep: bool) -> Iterator[Path]:
    if keep:
        folder = Path(tempfile.mkdtemp(prefix="same-draws-"))
        print(f"sources, arrays and logs: {folder}")
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="same-draws-") as name:
        yield Path(name)


def compare(revision: str, only: list[str], folder: Path) -> int:
    """Run and compare all cases; return the number of those that differ."""
    sources = {"old": export(revision, folder / "sources"), "new": HERE.parent}
    workers = {side: Worker(source, folder / side, only) for side, source in sources.items()}
    began, wrong = time.perf_counter(), 0
    try:
        known = set(workers["old"].names())
        names = [name for name in workers["new"].names() if name in known]
        for number, name in enumerate(names, 1):
            same, line = verdict(*(worker.case(name) for worker in workers.values()))
            wrong += not same
            passed = time.perf_counter() - began
            print(f"[{number:2d}/{len(names)}] {passed:4.0f} s  {name:22s} {line}", flush=True)
    finally:
        for worker in workers.values():
            worker.process.terminate()
            worker.process.wait()
    print(f"{len(names) - wrong} of {len(names)} cases are the same as in {revision}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REVISION", required=True)
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="run only these cases")
    parser.add_argument("--keep", action="store_true", help="keep the arrays and logs of both sides")
    given = parser.parse_args()
    with work_folder(given.keep) as folder:
        wrong = compare(given.against, given.only, folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
