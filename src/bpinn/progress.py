"""The progress display: live lines in a terminal, one output that is updated in a notebook, plain lines elsewhere."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any, TextIO

import numpy as np

from bpinn.convergence import GOOD_ESS, ess_of, rhat_of
from bpinn.engine import Progress
from bpinn.monitor import Monitor

EVERY_SECONDS, EVERY_UPDATE = 5.0, 0.5  # between plain lines, and between updates of a notebook
JUDGED_SECONDS = 1.0  # between evaluations of R-hat, ESS and the unknowns
FEWEST_JUDGED = 20  # draws of a chain
MOST_SHOWN = 4  # unknowns
BACK = "\x1b[{}F\x1b[J"  # move up this many lines, and clear from there


def notebook() -> Callable[..., Any] | None:
    """The function `display` of the notebook in which we run; None elsewhere. Does not import IPython by itself."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return None if module is None or not hasattr(shell, "kernel") else module.display.display


class Cell:
    """An output of a notebook with one text, which is updated until it is finished; the next text gets a new one."""

    def __init__(self, display: Callable[..., Any]):
        self.display, self._shown = display, None

    def write(self, text: str, finished: bool) -> None:
        style = "margin: 0; padding: 0; background: none; white-space: pre-wrap"
        content = {"text/plain": text, "text/html": f'<pre style="{style}">{escape(text)}</pre>'}
        if self._shown is None:
            self._shown = self.display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)
        if finished:
            self._shown = None


class Watcher:
    """What someone who watches a run wants to know: R-hat and ESS of the worst field value or unknown, time left."""

    def __init__(self) -> None:
        self.rhat, self.ess = float("nan"), 0.0
        self.draws: np.ndarray | None = None  # the monitored quantities that they were last judged by
        self.preview: Callable[[], list[str]] = list  # estimates to show during warm-up
        self._judged = time.perf_counter()
        self._of: Progress | None = None  # the stage whose draws are watched
        self._since, self._before = 0.0, 0  # when its draws were first seen, and how many there were

    def __call__(self, progress: Progress) -> None:
        raise NotImplementedError

    def judge(self, progress: Progress, now: float, finished: bool) -> None:
        """Update R-hat, ESS and the draws, but not at every call: with many draws they take a while."""
        if self._of is not progress:
            self._of, self._since = progress, now
            self._before = min(chain.done for chain in progress.chains) - progress.running.num_warmup
        if now - self._judged <= JUDGED_SECONDS and not finished:
            return
        self._judged = now
        draws = progress.functionals()
        if draws is None or draws.shape[1] < FEWEST_JUDGED:
            return
        watched = draws[..., ~progress.monitor.is_secondary]
        self.rhat, self.ess = float(np.max(rhat_of(watched))), float(np.min(ess_of(watched)))
        self.draws = draws

    def seconds_left(self, progress: Progress, now: float) -> float | None:
        """Seconds until the end of the stage; None if that cannot be estimated yet."""
        stage, slowest = progress.running, progress.slowest
        draws, warming = slowest - stage.num_warmup, slowest < stage.num_warmup
        if progress.done >= progress.total:
            return 0.0
        if stage.until_good and not warming and self.ess > 0 and draws > 0:
            # ESS grows in proportion to the draws
            wanted = min(draws * max(GOOD_ESS / self.ess, 1.0), stage.num_steps - stage.num_warmup)
            return (now - self._since) / max(draws - self._before, 1) * (wanted - draws)
        if stage.until_good or (warming and stage.until_warm):
            return None
        return (now - progress.started) / max(progress.done, 1) * (progress.total - progress.done)


class Display(Watcher):
    """Shows progress on stderr or in a notebook."""

    def __init__(self, stream: TextIO | None = None):
        super().__init__()
        display = notebook() if stream is None else None
        self.cell = None if display is None else Cell(display)
        self.stream = stream or sys.stderr
        self.live = self.cell is None and self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._printed = time.perf_counter()
        self._lines = 0  # lines on the screen that will be overwritten

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        finished = all(chain.finished for chain in progress.chains)
        between = 0.0 if self.live else EVERY_SECONDS if self.cell is None else EVERY_UPDATE
        if not finished and now - self._printed < between:
            return
        self._printed = now
        self._write(self._lines_of(progress, now), finished)

    def _lines_of(self, progress: Progress, now: float) -> list[list[str]]:
        """Lines of parts: the progress, the sampler's statistics, the estimates so far."""
        stage, chains = progress.running, progress.chains
        warming = progress.slowest < stage.num_warmup
        below: list[list[str]] = []
        if stage.num_warmup == stage.num_steps:  # a stage before the draws
            below.append(progress.figures)
        elif warming:
            below.append(self.preview())
        elif progress.is_markov:
            self.judge(progress, now, progress.done >= progress.total)
            below += [progress.figures + self._mixing(stage.until_good), []]
            if self.draws is not None:
                below[-1] = estimates(progress.monitor, self.draws)
        restarted = sum(chain.restarts > 0 for chain in chains)
        what = counted(progress) + (f" ({restarted} restarted)" if restarted and warming else "")
        count = f"{len(chains)} {progress.unit}{'s' if len(chains) > 1 else ''}"
        places = {chain.place for chain in chains} - {""}
        count += f" on {len(places)} worker{'s' if len(places) > 1 else ''}" if places else ""
        first = [count, what, self._time(progress, now)]
        return [first, *(line for line in below if line)]

    def _mixing(self, until_good: bool) -> list[str]:
        if self.draws is None:
            return []
        return [f"worst R-hat {self.rhat:.3f}", f"ESS {self.ess:.0f}{f' of {GOOD_ESS}' if until_good else ''}"]

    def _time(self, progress: Progress, now: float) -> str:
        """Seconds left, if that can be estimated; otherwise the elapsed seconds."""
        passed, left = now - progress.started, self.seconds_left(progress, now)
        if progress.done >= progress.total or left is None:
            return f"{passed:.1f} s"
        if progress.running.until_good:
            return f"{passed:.0f} s, about {left:.0f} s left" if left >= 1 else f"{passed:.0f} s, almost done"
        return f"{left:.0f} s left"

    def _write(self, lines: list[list[str]], finished: bool) -> None:
        if self.cell is not None:
            self.cell.write("\n".join("  ".join(parts) for parts in lines), finished)
            return
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            shown = [line[:width] for line in ("  ".join(parts) for parts in lines)]
            back = BACK.format(self._lines) if self._lines else ""
            self.stream.write(back + "\n".join(shown) + "\n")
            self._lines = 0 if finished else len(shown)
        else:
            self.stream.write("  ".join(part for parts in lines for part in parts) + "\n")
        self.stream.flush()


def estimates(monitor: Monitor, functionals: np.ndarray) -> list[str]:
    """The first few unknowns, each with its standard deviation."""
    names, values = monitor.number_names[:MOST_SHOWN], monitor.numbers_of(functionals)
    return [f"{name} {values[..., i].mean():.3g} ± {values[..., i].std():.1g}" for i, name in enumerate(names)]


def counted(progress: Progress) -> str:
    """How far the slowest chain is, such as 'warm-up 120 of at most 500'."""
    stage, slowest = progress.running, progress.slowest
    if stage.num_warmup == stage.num_steps:  # a stage before the draws
        scale = stage.steps_per_record
        return _counted(stage.verb, slowest * scale, stage.num_steps * scale, stage.until_warm)
    if slowest < stage.num_warmup:
        return _counted("warm-up", slowest, stage.num_warmup, stage.until_warm)
    return _counted(stage.verb, slowest - stage.num_warmup, stage.num_steps - stage.num_warmup, stage.until_good)


def _counted(what: str, done: int, most: int, may_be_fewer: bool) -> str:
    return f"{what} {done}{' of at most ' if may_be_fewer else '/'}{most}"
