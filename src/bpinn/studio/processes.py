"""Runs as processes of their own, so that neither a crash nor a stop of a run reaches the studio."""

import asyncio
import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bpinn.errors import InputError
from bpinn.studio.folder import PROBLEM, PROGRESS
from bpinn.studio.helper import python

MOST_RUNNING = 4
KEPT_LINES, LONGEST_LINE = 20, 2**16
DONE = (0, 3)  # exit codes of the program: finished, whatever the verdict
STOPPED = 130
POLL, MOST_BEHIND = 0.2, 0.02  # seconds; the clock of files lags behind by some milliseconds
GRACE = (4.0, 4.0)  # seconds that a run has to end after the first and the second Ctrl-C, when the studio is closed


@dataclass
class Child:
    """A process of the program that works on a run: ``does`` is run, resume or report."""

    does: str
    process: asyncio.subprocess.Process
    progress: Path | None  # the file to which a run writes its progress, once it is ready to be stopped
    started: float = field(default_factory=time.time)
    stops: int = 0  # how often it was asked to stop
    said: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    reading: "asyncio.Task[None] | None" = None

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    @property
    def failed(self) -> bool:
        return not self.is_alive and self.process.returncode not in (*DONE, STOPPED)

    @property
    def message(self) -> str:
        """The last thing it said, without the name of the program; how it ended, if it said nothing."""
        if self.said:
            return self.said[-1].removeprefix("bpinn: ")
        return f"the process ended with code {self.process.returncode}" if self.failed else ""

    @property
    def is_ready(self) -> bool:
        """Whether it listens to Ctrl-C: while Python imports modules, an interrupt can get lost."""
        try:
            return self.progress is None or self.progress.stat().st_mtime > self.started - MOST_BEHIND
        except OSError:
            return False

    async def stop(self) -> None:
        """As Ctrl-C in a terminal; the third time, and where there is no such signal, it is killed: blocks are safe."""
        self.stops += 1
        kill = self.stops > 2 or sys.platform == "win32"
        while self.stops == 1 and self.is_alive and not self.is_ready and not kill:
            await asyncio.sleep(POLL)
        with contextlib.suppress(ProcessLookupError):
            if self.is_alive:
                self.process.kill() if kill else self.process.send_signal(signal.SIGINT)

    async def read(self) -> None:
        """Keep the last lines that it prints to stderr."""
        assert self.process.stderr is not None
        while True:
            try:
                line = await self.process.stderr.readline()
            except ValueError:  # longer than a line may be
                continue
            if not line:
                break
            text = line.decode(errors="replace").strip()
            if text:
                self.said.append(text[:1000])
        await self.process.wait()


class Processes:
    """The processes of runs, by problem and run, for as long as the studio is open."""

    def __init__(self, root: Path):
        self.root = root
        self.children: dict[tuple[str, str], Child] = {}
        self._stopping: list[asyncio.Task[None]] = []

    def of(self, name: str) -> dict[str, Child]:
        return {run: child for (problem, run), child in self.children.items() if problem == name}

    def alive(self) -> Iterator[tuple[tuple[str, str], Child]]:
        return ((key, child) for key, child in [*self.children.items()] if child.is_alive)

    async def start(self, name: str, folder: Path, run: str) -> None:
        file, inside = self._shown(folder / PROBLEM), self._shown(folder / run)
        await self._start(name, run, "run", folder / run / PROGRESS, file, "--out", inside)

    async def resume(self, name: str, folder: Path, run: str) -> None:
        await self._start(name, run, "resume", folder / run / PROGRESS, self._shown(folder / run))

    async def report(self, name: str, folder: Path, run: str) -> None:
        await self._start(name, run, "report", None, self._shown(folder / run))

    def stop(self, name: str, run: str) -> None:
        child = self.children.get((name, run))
        if child is None or not child.is_alive:
            raise InputError(f"{run}: is not running in this studio")
        self._stopping.append(asyncio.create_task(child.stop()))

    def _shown(self, path: Path) -> str:
        """As a person in the studio's folder would write it."""
        return f"./{path.relative_to(self.root).as_posix()}"

    async def _start(self, name: str, run: str, does: str, progress: Path | None, *arguments: str) -> None:
        alive = dict(self.alive())
        if (name, run) in alive:
            raise InputError(f"{run}: is already running; wait for it or stop it")
        if len(alive) >= MOST_RUNNING:
            raise InputError(f"{MOST_RUNNING} runs are active, which is the limit; wait for one or stop it")
        following = () if progress is None else ("--progress", self._shown(progress))
        program = python("-m", "bpinn", does, *arguments, "--json", *following)
        process = await asyncio.create_subprocess_exec(
            *program, cwd=self.root, limit=LONGEST_LINE, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        child = Child(does, process, progress)
        child.reading = asyncio.create_task(child.read())
        self.children[name, run] = child

    async def close(self) -> list[str]:
        """Stop everything that runs; returns the folders of the runs that were stopped."""
        alive = dict(self.alive())
        for seconds in (*GRACE, 1.0):
            waiting = [child.reading for _, child in self.alive() if child.reading is not None]
            if not waiting:
                break
            for _, child in self.alive():
                self._stopping.append(asyncio.create_task(child.stop()))
            await asyncio.wait(waiting, timeout=seconds)
        return [run if name == self.root.name else f"{name}/{run}" for name, run in alive]
