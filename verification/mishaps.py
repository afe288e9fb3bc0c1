"""Fault injection for runs in a folder: kill them, stop them, exhaust memory or disk, damage their files.

Each fault is injected into a real process that runs in a folder, at a random time, in several trials. We count the
trials in which the process reported it in one sentence (where it survives to report it), and those in which the resumed
run ended with bit for bit the draws of an uninterrupted run. Used by run.py.
"""

import contextlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import bpinn as bp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from results import load, save

X = np.linspace(0.0, 1.0, 12)
PROBLEM = bp.Problem(
    {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(16, 16))}, {"u": bp.Sensors("u", {"x": X}, np.sin(5 * X), 0.1)}
)
METHOD = bp.HMC(num_warmup=200, num_draws=2000, num_leapfrog=30)
FULL = 600  # KiB; least size of a disk that fills up soon


class CannotBeTried(Exception):
    """A fault that cannot be injected here; mounting a small disk, for example, needs root."""


def run(folder: Path) -> bp.Result:
    return bp.infer(PROBLEM, METHOD, seed=0, progress=False, out=folder)


def child(folder: Path, before: str = "") -> subprocess.Popen:
    program = f"import sys; sys.path.insert(0, {str(HERE)!r}); import mishaps\n{before}\n"
    program += f"mishaps.main_of_child({str(folder)!r})"
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main_of_child(folder: str) -> None:
    """What a user's script would do; an error from bpinn ends it with its message."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore SIGINT by default
    try:
        print("ready", flush=True)
        result = run(Path(folder))
    except bp.InputError as error:
        sys.exit(f"InputError: {error}")
    except KeyboardInterrupt as stop:
        sys.exit(f"KeyboardInterrupt: {stop}")
    print("stopped early" if result.interrupted else "ended")


def blocks(folder: Path) -> list[Path]:
    return sorted(folder.glob("stage-*/chain-*/0*.npz"))


def wait_for_blocks(process: subprocess.Popen, folder: Path, more: int = 1) -> None:
    before = len(blocks(folder))
    while process.poll() is None and len(blocks(folder)) < before + more:
        time.sleep(0.01)


# --- the faults: each returns what the process printed, or None if it cannot print anything ---


def killed(folder: Path, rng: random.Random) -> None:
    process = child(folder)
    if rng.random() < 0.8:  # while it samples; otherwise while it starts
        wait_for_blocks(process, folder)
    time.sleep(rng.uniform(0.0, 0.5))
    process.kill()
    process.communicate()


def killed_again_and_again(folder: Path, rng: random.Random) -> None:
    for _ in range(4):
        killed(folder, rng)


def stopped(folder: Path, rng: random.Random) -> str:
    process = child(folder)
    wait_for_blocks(process, folder, rng.randint(1, 30))
    process.send_signal(signal.SIGINT)
    return " ".join(process.communicate())  # stderr too: before the first draw, the message goes there


def stopped_at_once(folder: Path, rng: random.Random) -> str:
    process = child(folder)
    assert process.stdout is not None
    process.stdout.readline()  # wait until it is ready
    time.sleep(rng.uniform(0.0, 2.0))  # while it compiles, or finds its start
    process.send_signal(signal.SIGINT)
    return " ".join(process.communicate())


def out_of_memory(folder: Path, rng: random.Random) -> str:
    """From a random block on, the process gets no additional memory."""
    process = child(folder)
    wait_for_blocks(process, folder, rng.randint(1, 30))
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (1, resource.RLIM_INFINITY))
    return " ".join(process.communicate())


BACKWARDS = """
import datetime, itertools, time, types
import bpinn.run_folder.manifest, bpinn.run_folder.runs
now = itertools.count(1_900_000_000, -86_400)
class Past(datetime.datetime):
    now = classmethod(lambda cls, tz=None: cls.fromtimestamp(next(now), tz))
bpinn.run_folder.manifest.datetime = bpinn.run_folder.runs.datetime = types.SimpleNamespace(datetime=Past)
time.time = lambda: float(next(now))
"""


def backwards(folder: Path, rng: random.Random) -> None:
    """Kill the run, and resume it in a process whose clock goes back a day with every call."""
    killed(folder, rng)
    child(folder, BACKWARDS).communicate()
    if not (folder / "result.npz").exists():  # otherwise the run would be finished later, with a correct clock
        raise RuntimeError("the run with a clock that goes backwards did not finish")


def _damaged(folder: Path, rng: random.Random, damage: Callable[[bytes], bytes]) -> str:
    run(folder)
    block = rng.choice(blocks(folder))
    block.write_bytes(damage(block.read_bytes()))
    (folder / "result.npz").unlink()  # otherwise the blocks would not be read
    return child(folder).communicate()[1]


def truncated(folder: Path, rng: random.Random) -> str:
    return _damaged(folder, rng, lambda content: content[: rng.randrange(len(content))])


def flipped(folder: Path, rng: random.Random) -> str:
    def flip(content: bytes) -> bytes:
        at = rng.randrange(len(content))
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]

    return _damaged(folder, rng, flip)


def two_at_once(folder: Path, rng: random.Random) -> str:
    first = child(folder)
    wait_for_blocks(first, folder)
    first.send_signal(signal.SIGSTOP)  # otherwise it might finish before the second starts
    said = child(folder).communicate()[1]
    first.send_signal(signal.SIGCONT)
    first.communicate()
    return said


def full_disk(folder: Path, rng: random.Random) -> str:
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL + rng.randrange(FULL)}k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise CannotBeTried(str(error)) from None
    try:
        said = child(folder / "run").communicate()[1]
        kept = folder.with_name(folder.name + "-kept")
        shutil.copytree(folder / "run", kept)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    kept.rename(folder)
    return said


MISHAPS: dict[str, tuple[str, Callable, str | None]] = {
    "killed": ("killed (SIGKILL) at a random time", killed, None),
    "killed-again": ("killed four times in a row", killed_again_and_again, None),
    "stopped": ("Ctrl-C at a random time", stopped, "stopped"),
    "stopped-at-once": ("Ctrl-C while it compiles or starts", stopped_at_once, "before the first"),
    "out-of-memory": ("no more memory, from some time on", out_of_memory, "out of memory"),
    "backwards": ("a clock that goes backwards, and SIGKILL", backwards, None),
    "truncated": ("a file of the run cut short", truncated, "damaged"),
    "flipped": ("one bit of a file flipped", flipped, "damaged"),  # reported where it matters: not in a date
    "two-at-once": ("a second process in the same folder", two_at_once, "another process"),
    "full-disk": ("a disk that is full", full_disk, "the disk is full"),
}


def attempt(name: str, folder: Path, expected: np.ndarray) -> tuple[str, bool]:
    """What the process printed, and whether the resumed run has the draws of an uninterrupted one."""
    shutil.rmtree(folder, ignore_errors=True)
    said = MISHAPS[name][1](folder, random.Random(folder.name))
    try:
        same = np.array_equal(run(folder).z, expected)
    except bp.InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        same = False
    shutil.rmtree(folder)
    return (said or "").replace(str(folder), "RUN"), same


def count(names: Iterable[str], trials: int, work: Path) -> Iterator[dict[str, Any]]:
    """For each fault, how often it was reported and how often the resumed run was identical; each row is stored."""
    for name in names:
        path = work / f"{name}-{trials}.json"
        if not path.exists():
            try:
                save(path, tried(name, trials, work))
            except CannotBeTried as error:
                print(f"{MISHAPS[name][0]}: cannot be injected here ({error})", file=sys.stderr)
                continue
        yield load(path)


def tried(name: str, trials: int, work: Path) -> dict[str, Any]:
    about, _, wanted = MISHAPS[name]
    folders = [work / f"{name}-{trial}" for trial in range(trials)]
    with ThreadPoolExecutor(2) as pool:  # processes compute little: they spend most of their time starting
        found = list(pool.map(partial(attempt, name, expected=undisturbed()), folders))
    told = [said for said, _ in found if wanted is not None and wanted in said and "Traceback" not in said]
    words = [line.strip() for said in told[-1:] for line in said.splitlines() if str(wanted) in line]
    same = sum(same for _, same in found)
    silent = wanted is not None and len(told) < trials and name != "flipped"
    return {
        "about": about, "trials": trials, "told": None if wanted is None else len(told), "same": same,
        "example": words[0] if words else "", "wrong": silent or same < trials,
    }  # fmt: skip


@cache
def undisturbed() -> np.ndarray:
    """The draws of an uninterrupted run."""
    return bp.infer(PROBLEM, METHOD, seed=0, progress=False).z
