"""A preview beside a run: an approximate answer while chains are in warm-up, and in their place if they are stopped.

The preview is a `LastLayer` fit. It does not influence the chains, so draws are the same with and without it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from bpinn.engine import Progress, interrupts
from bpinn.errors import InputError
from bpinn.methods import LastLayer, Method
from bpinn.problem import Problem
from bpinn.progress import Watcher, estimates
from bpinn.result import Result

STEPS = 4000  # of the fit
AFTER_SECONDS = 15.0  # of warm-up, before a fit starts beside it; most runs are done by then
EARLIEST = 0.25  # the same as a share of the time that a run is given

clock = time.monotonic
Draw = Callable[..., Result]


class Preview:
    """A fit that is made at most once: beside the run, in a thread, or when it is asked for."""

    def __init__(self, draw: Draw, problem: Problem, method: Method, seed: int):
        self.fit = LastLayer(num_steps=STEPS, instead_of=type(method).__name__)
        self.settings: dict[str, Any] = {"seed": seed, "chains": None, "cores": 1, "report": lambda _: None}
        self.draw, self.problem = draw, problem
        self.thread: threading.Thread | None = None
        self.cancelled = threading.Event()
        self.found: Result | None = None

    def start(self) -> None:
        """Begin the fit in a thread."""
        if self.thread is None:
            precise = jnp.result_type(float) == jnp.float64  # contexts of JAX's settings end at threads
            self.thread = threading.Thread(target=self._run, args=(precise,), name="preview")
            self.thread.start()

    def _run(self, precise: bool) -> None:
        try:
            with jax.enable_x64(precise), interrupts.until(self.cancelled.is_set):
                self.found = self.draw(self.problem, self.fit, **self.settings)
        except (Exception, KeyboardInterrupt):  # without a preview the run is what it would have been
            self.found = None

    def cancel(self) -> None:
        """End a fit that nobody needs any more; what is being compiled is not waited for."""
        self.cancelled.set()

    def result(self) -> Result | None:
        """The fit, waited for; None if there is none. Ctrl-C raises `KeyboardInterrupt`."""
        self.start()
        assert self.thread is not None
        try:
            while self.thread.is_alive():
                interrupts.raise_if_noted()
                self.thread.join(0.1)
        except KeyboardInterrupt:
            self.cancel()
            raise
        return None if self.found is None else replace(self.found, interrupted=True)

    def estimates(self) -> list[str]:
        """The unknowns, for the display, once they are known."""
        if self.found is None:
            return []
        shown = estimates(self.found.monitor, self.found.functionals)
        return ["preview:", *shown] if shown else []


def answer(
    draw: Draw,
    problem: Problem,
    method: Method,
    *,
    seed: int,
    report: Callable[[Progress], None],
    within: float | None,
    previewed: bool = True,
    say: Callable[[str], None],
    **settings: Any,
) -> Result:
    """The draws of a method, or a preview if it was stopped, by Ctrl-C or after ``within`` seconds, without any.

    A run that is out of time returns the better of both by their verdicts.
    """
    started = clock()

    def over() -> bool:
        return within is not None and clock() - started >= within

    preview = Preview(draw, problem, method, seed)
    is_possible = previewed and _is_possible(preview, method)
    beside = is_possible and (isinstance(report, Watcher) or within is not None)
    if isinstance(report, Watcher):
        report.preview = preview.estimates
    after = AFTER_SECONDS if within is None else min(AFTER_SECONDS, EARLIEST * within)

    def watch(progress: Progress) -> None:
        warming = min(chain.done for chain in progress.chains) < progress.running.num_warmup
        if beside and warming and clock() - started >= after:
            preview.start()
        report(progress)

    try:
        with interrupts.until(over):
            result = draw(problem, method, seed=seed, report=watch, **settings)
    except interrupts.Stopped as stopped:
        if is_possible:
            why = "out of time" if over() else "stopped"
            say(f"{why} in warm-up; a preview is returned instead (Ctrl-C stops without it)")
            interrupts.answered()
            found = _or_stop(preview, stopped)
            if found is not None:
                return found
        if over():
            raise InputError(f"infer: no draws yet after {within:g} s; give a larger within=") from None
        raise
    if over() and is_possible and _has_nothing_early(method) and result.diagnose().verdict == "bad":
        found = preview.result()
        if found is not None and found.diagnose().verdict != "bad":
            return found
    preview.cancel()
    return result


def _is_possible(preview: Preview, method: Method) -> bool:
    if not method.is_posterior or isinstance(method, LastLayer):
        return False
    try:
        preview.fit.check(preview.problem)
    except InputError:
        return False
    return True


def _has_nothing_early(method: Method) -> bool:
    """Whether its first draws come after a warm-up, rather than from a fit that can be drawn from at any time."""
    return not any(stage.may_stop for stage in method.stages())


def _or_stop(preview: Preview, stopped: KeyboardInterrupt) -> Result | None:
    try:
        return preview.result()
    except KeyboardInterrupt:
        raise stopped from None
