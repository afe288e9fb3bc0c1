"""What a person sees while chains run: some live lines in a terminal, plain lines elsewhere."""

import os
import shutil
import sys
import time
from typing import TextIO

import numpy as np

from bpinn.convergence import GOOD_ESS, ess_of, rhat_of
from bpinn.engine import Progress

EVERY_SECONDS = 5.0  # between plain lines
# What each stage before the draws is made of, and what it does.
PREPARING = {
    "start": ("chain", "looking for a start"),
    "fit": ("fit", "step"),
    "polish": ("fit", "polishing"),
    "tempering": ("population", "strengthening the likelihood"),
}
JUDGED_SECONDS = 1.0  # between evaluations of R-hat, ESS and the unknowns
FEWEST_JUDGED = 20  # draws of a chain
MOST_SHOWN = 4  # unknowns
BACK = "\x1b[{}F\x1b[J"  # to the beginning of so many lines above, and clear from there


class Display:
    """Prints progress to stderr; R-hat and ESS are those of the worst field value or unknown so far."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._printed = self._judged = time.perf_counter()
        self._mixing: list[str] = []
        self._estimates: list[str] = []
        self._ess = 0.0
        self._of: Progress | None = None  # the stage whose draws are seen
        self._since, self._before = 0.0, 0  # when the first of them were, and how many there were
        self._lines = 0  # that are on the screen and will be written over

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        finished = all(chain.finished for chain in progress.chains)
        if not self.live and not finished and now - self._printed < EVERY_SECONDS:
            return
        self._printed = now
        self._write(self._told(progress, now), finished)

    def _told(self, progress: Progress, now: float) -> list[list[str]]:
        """Lines of parts: how far it is, how the sampler does, what is known so far."""
        done = sum(progress.num_steps if chain.finished else chain.done for chain in progress.chains)
        total = progress.num_steps * len(progress.chains)
        slowest = min(chain.done for chain in progress.chains)
        warming = slowest < progress.num_warmup
        count = len(progress.chains)
        below: list[list[str]] = []
        if progress.stage in PREPARING:
            unit, what = PREPARING[progress.stage]
            scale = progress.steps_per_record
            what = _counted(what, slowest * scale, progress.num_steps * scale, progress.until_warm)
            below.append(self._objective(progress))
        else:
            unit = "chain" if _is_sampler(progress) else "fit"
            what = _counted("warm-up", slowest, progress.num_warmup, progress.until_warm)
            if not warming:
                most = progress.num_steps - progress.num_warmup
                what = _counted("draws", slowest - progress.num_warmup, most, progress.until_good)
                if _is_sampler(progress):
                    self._judge(progress, now, done >= total)
                    below += [self._sampler(progress) + self._mixing, self._estimates]
        anew = sum(chain.restarts > 0 for chain in progress.chains)
        what += f" ({anew} begun anew)" if anew and warming else ""
        first = [f"{count} {unit}{'s' if count > 1 else ''}", what, self._time(progress, now, done, total, warming)]
        return [first, *(line for line in below if line)]

    def _time(self, progress: Progress, now: float, done: int, total: int, warming: bool) -> str:
        """Seconds left, where that can be known; otherwise those that have passed."""
        passed = now - progress.started
        draws = min(chain.done for chain in progress.chains) - progress.num_warmup
        if done >= total:
            return f"{passed:.1f} s"
        if progress.until_good and not warming and self._ess > 0 and draws > 0:
            # ESS grows in proportion to the draws
            wanted = min(draws * max(GOOD_ESS / self._ess, 1.0), progress.num_steps - progress.num_warmup)
            left = (now - self._since) / max(draws - self._before, 1) * (wanted - draws)
            return f"{passed:.0f} s, about {left:.0f} s left" if left >= 1 else f"{passed:.0f} s, nearly there"
        if progress.until_good or (warming and progress.until_warm):
            return f"{passed:.1f} s"
        return f"{passed / max(done, 1) * (total - done):.0f} s left"

    def _objective(self, progress: Progress) -> list[str]:
        """The objective of the fit so far, of the chain that is worst off."""
        latest = [chain.latest for chain in progress.chains if chain.latest]
        if not latest:
            return []
        if "elbo" in latest[0]:
            return [f"elbo {min(float(s['elbo'][-1]) for s in latest):.5g}"]
        if "weight" in latest[0]:
            accepted = np.mean([s["acceptance"][-1] for s in latest])
            return [f"its weight {min(float(s['weight'][-1]) for s in latest):.2g}", f"accepted {accepted:.0%}"]
        return [f"{name} {max(float(s[name][-1]) for s in latest):.5g}" for name in ("loss",) if name in latest[0]]

    def _sampler(self, progress: Progress) -> list[str]:
        latest = [chain.records[-1].stats for chain in progress.chains if chain.records]
        if not latest:
            return []
        acceptance = np.mean([np.mean(s["acceptance"]) for s in latest])
        step_size = np.median([s["step_size"][-1] for s in latest])
        return [f"accepted {acceptance:.0%}", f"step {step_size:.1e}"]

    def _judge(self, progress: Progress, now: float, finished: bool) -> None:
        """R-hat, ESS and the unknowns, now and then: they take a while where there are many draws."""
        if self._of is not progress:
            self._of, self._since = progress, now
            self._before = min(chain.done for chain in progress.chains) - progress.num_warmup
        if now - self._judged <= JUDGED_SECONDS and not finished:
            return
        self._judged = now
        draws = progress.functionals()
        if draws is None or draws.shape[1] < FEWEST_JUDGED:
            return
        watched = draws[..., ~progress.equations]
        self._ess = float(np.min(ess_of(watched)))
        self._mixing = [f"worst R-hat {np.max(rhat_of(watched)):.3f}"]
        self._mixing += [f"ESS {self._ess:.0f} of {GOOD_ESS}"] if progress.until_good else [f"ESS {self._ess:.0f}"]
        first = draws.shape[-1] - len(progress.unknowns)
        self._estimates = [
            f"{name} {draws[..., first + i].mean():.3g} ± {draws[..., first + i].std():.1g}"
            for i, name in enumerate(progress.unknowns[:MOST_SHOWN])
        ]

    def _write(self, lines: list[list[str]], finished: bool) -> None:
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            shown = [line[:width] for line in ("  ".join(parts) for parts in lines)]
            back = BACK.format(self._lines) if self._lines else ""
            self.stream.write(back + "\n".join(shown) + "\n")
            self._lines = 0 if finished else len(shown)
        else:
            self.stream.write("  ".join(part for parts in lines for part in parts) + "\n")
        self.stream.flush()


def _counted(what: str, done: int, most: int, may_be_fewer: bool) -> str:
    return f"{what} {done}{' of at most ' if may_be_fewer else '/'}{most}"


def _is_sampler(progress: Progress) -> bool:
    """Whether the draws are Markov chains, whose acceptance and R-hat mean something."""
    return any("divergent" in chain.latest for chain in progress.chains)
