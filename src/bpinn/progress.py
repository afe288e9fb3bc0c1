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


class Display:
    """Shows progress on stderr or in a notebook; R-hat and ESS are those of the worst field value or unknown so far."""

    def __init__(self, stream: TextIO | None = None):
        display = notebook() if stream is None else None
        self.cell = None if display is None else Cell(display)
        self.stream = stream or sys.stderr
        self.live = self.cell is None and self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._printed = self._judged = time.perf_counter()
        self._mixing: list[str] = []
        self._estimates: list[str] = []
        self._ess = 0.0
        self._of: Progress | None = None  # the stage whose draws are displayed
        self._since, self._before = 0.0, 0  # when its draws were first seen, and how many there were
        self._lines = 0  # lines on the screen that will be overwritten
        self.preview: Callable[[], list[str]] = list  # estimates to show during warm-up

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
        done = sum(stage.num_steps if chain.finished else chain.done for chain in chains)
        total = stage.num_steps * len(chains)
        slowest = min(chain.done for chain in chains)
        warming = slowest < stage.num_warmup
        below: list[list[str]] = []
        latest = [chain.latest for chain in chains if chain.latest]
        if stage.num_warmup == stage.num_steps:  # a stage before the draws
            scale = stage.steps_per_record
            what = _counted(stage.verb, slowest * scale, stage.num_steps * scale, stage.until_warm)
            below.append(stage.figures(latest) if latest else [])
        elif warming:
            what = _counted("warm-up", slowest, stage.num_warmup, stage.until_warm)
            below.append(self.preview())
        else:
            what = _counted(
                stage.verb, slowest - stage.num_warmup, stage.num_steps - stage.num_warmup, stage.until_good
            )
            if progress.is_markov:
                self._judge(progress, now, done >= total)
                below += [(stage.figures(latest) if latest else []) + self._mixing, self._estimates]
        restarted = sum(chain.restarts > 0 for chain in chains)
        what += f" ({restarted} restarted)" if restarted and warming else ""
        count = f"{len(chains)} {progress.unit}{'s' if len(chains) > 1 else ''}"
        places = {chain.place for chain in chains} - {""}
        count += f" on {len(places)} worker{'s' if len(places) > 1 else ''}" if places else ""
        first = [count, what, self._time(progress, now, done, total, warming)]
        return [first, *(line for line in below if line)]

    def _time(self, progress: Progress, now: float, done: int, total: int, warming: bool) -> str:
        """Seconds left, if that can be estimated; otherwise the elapsed seconds."""
        stage, passed = progress.running, now - progress.started
        draws = min(chain.done for chain in progress.chains) - stage.num_warmup
        if done >= total:
            return f"{passed:.1f} s"
        if stage.until_good and not warming and self._ess > 0 and draws > 0:
            # ESS grows in proportion to the draws
            wanted = min(draws * max(GOOD_ESS / self._ess, 1.0), stage.num_steps - stage.num_warmup)
            left = (now - self._since) / max(draws - self._before, 1) * (wanted - draws)
            return f"{passed:.0f} s, about {left:.0f} s left" if left >= 1 else f"{passed:.0f} s, almost done"
        if stage.until_good or (warming and stage.until_warm):
            return f"{passed:.1f} s"
        return f"{passed / max(done, 1) * (total - done):.0f} s left"

    def _judge(self, progress: Progress, now: float, finished: bool) -> None:
        """Update R-hat, ESS and the unknowns, but not at every call: with many draws they take a while."""
        if self._of is not progress:
            self._of, self._since = progress, now
            self._before = min(chain.done for chain in progress.chains) - progress.running.num_warmup
        if now - self._judged <= JUDGED_SECONDS and not finished:
            return
        self._judged = now
        draws = progress.functionals()
        if draws is None or draws.shape[1] < FEWEST_JUDGED:
            return
        watched = draws[..., ~progress.monitor.is_equation]
        self._ess = float(np.min(ess_of(watched)))
        self._mixing = [f"worst R-hat {np.max(rhat_of(watched)):.3f}"]
        self._mixing += (
            [f"ESS {self._ess:.0f} of {GOOD_ESS}"] if progress.running.until_good else [f"ESS {self._ess:.0f}"]
        )
        self._estimates = estimates(progress.monitor, draws)

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


def _counted(what: str, done: int, most: int, may_be_fewer: bool) -> str:
    return f"{what} {done}{' of at most ' if may_be_fewer else '/'}{most}"
