"""What a person sees while chains run: a live line in a terminal, plain lines elsewhere."""

import sys
import time
from typing import TextIO

import numpy as np

from bpinn.diagnostics import GOOD_ESS, ess_of, rhat_of
from bpinn.sampling import Progress

EVERY_SECONDS = 5.0  # between plain lines
# What each stage before the draws is made of, and what it does.
PREPARING = {"start": ("chain", "looking for a start"), "fit": ("fit", "step"), "polish": ("fit", "polishing")}
RHAT_SECONDS = 1.0  # between evaluations of R-hat and ESS


class Display:
    """Prints progress to stderr; R-hat and ESS are those of the worst field value or unknown so far."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._printed = self._judged = time.perf_counter()
        self._mixing: list[str] = []
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        finished = all(chain.finished for chain in progress.chains)
        if not self.live and not finished and now - self._printed < EVERY_SECONDS:
            return
        self._printed = now
        self._write(self._line(progress, now), finished)

    def _line(self, progress: Progress, now: float) -> str:
        done = sum(progress.num_steps if chain.finished else chain.done for chain in progress.chains)
        total = progress.num_steps * len(progress.chains)
        left = (now - progress.started) / max(done, 1) * (total - done)
        slowest = min(chain.done for chain in progress.chains)
        warming = slowest < progress.num_warmup
        many = len(progress.chains) > 1
        if progress.stage in PREPARING:
            of, what = PREPARING[progress.stage]
            scale = progress.steps_per_record
            parts = [f"{len(progress.chains)} {of}s" if many else f"1 {of}"]
            parts.append(f"{what} {slowest * scale}/{progress.num_steps * scale}")
            parts += self._objective(progress)
        else:
            what = f"warm-up {slowest}/{progress.num_warmup}"
            if not warming:
                most = progress.num_steps - progress.num_warmup
                what = f"draws {slowest - progress.num_warmup}{' of at most ' if progress.until_good else '/'}{most}"
            unit = "chain" if _is_sampler(progress) else "fit"
            parts = [f"{len(progress.chains)} {unit}s" if many else f"1 {unit}", what]
            parts += [] if warming else self._sampler(progress, now, done >= total)
        known = done < total and not progress.until_good
        parts.append(f"{left:.0f} s left" if known else f"{now - progress.started:.1f} s")
        return "  ".join(parts)

    def _objective(self, progress: Progress) -> list[str]:
        """The objective of the fit so far, of the chain that is worst off."""
        latest = [chain.latest for chain in progress.chains if chain.latest]
        if not latest:
            return []
        if "elbo" in latest[0]:
            return [f"elbo {min(float(s['elbo'][-1]) for s in latest):.5g}"]
        return [f"{name} {max(float(s[name][-1]) for s in latest):.5g}" for name in ("loss",) if name in latest[0]]

    def _sampler(self, progress: Progress, now: float, finished: bool) -> list[str]:
        latest = [chain.records[-1].stats for chain in progress.chains if chain.records]
        parts: list[str] = []
        if not _is_sampler(progress):
            return parts
        if latest:
            acceptance = np.mean([np.mean(s["acceptance"]) for s in latest])
            step_size = np.median([s["step_size"][-1] for s in latest])
            parts += [f"accepted {acceptance:.0%}", f"step {step_size:.1e}"]
        if now - self._judged > RHAT_SECONDS or finished:
            draws = progress.functionals()
            if draws is not None and draws.shape[1] >= 20:
                draws = draws[..., ~progress.equations]
                self._mixing = [f"worst R-hat {np.max(rhat_of(draws)):.3f}"]
                self._mixing += [f"ESS {np.min(ess_of(draws)):.0f} of {GOOD_ESS}"] if progress.until_good else []
            self._judged = now
        return parts + self._mixing

    def _write(self, line: str, finished: bool) -> None:
        if self.live:
            padding = " " * max(0, self._width - len(line))
            self.stream.write("\r" + line + padding + ("\n" if finished else ""))
            self._width = 0 if finished else len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()


def _is_sampler(progress: Progress) -> bool:
    """Whether the draws are Markov chains, whose acceptance and R-hat mean something."""
    return any("acceptance" in chain.latest for chain in progress.chains)
