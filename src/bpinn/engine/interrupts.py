"""Reliable Ctrl-C.

Python raises `KeyboardInterrupt` wherever the main thread happens to be. In a callback, such as JAX's garbage
collection hook, the exception is printed at most, then dropped, and the run continues. So each Ctrl-C is also recorded
here, and the record is checked between blocks of steps.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FORGETFUL = ("_xla_gc_callback", "__del__")  # callbacks that swallow exceptions
_noted = threading.Event()
_before: list[Any] = []  # previous signal handlers
_held = threading.Event()  # whether the next Ctrl-C is only recorded
_here = threading.local()  # ``stop`` says whether what this thread runs must stop


class Stopped(KeyboardInterrupt):
    """A run was stopped, or is out of time, before there was a draw to return."""


@contextmanager
def until(stop: Callable[[], bool]) -> Iterator[None]:
    """Treat the moment at which ``stop`` is first true, in this thread, as a Ctrl-C."""
    before, _here.stop = getattr(_here, "stop", None), stop
    try:
        yield
    finally:
        _here.stop = before


@contextmanager
def listening() -> Iterator[None]:
    """Record Ctrl-C while this context is active; only in the main thread, and only if SIGINT is not ignored."""
    before: Any = None
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(signal.SIGINT)
    if not callable(before) or before is _note:
        yield
        return
    _before.append(before)
    _noted.clear()
    _held.clear()
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _before.pop()
        _held.clear()


def _note(number: int, frame: Any) -> None:
    is_first = not _noted.is_set()
    _noted.set()
    if not (_held.is_set() and is_first) and not _is_forgetful(frame):
        _before[-1](number, frame)


def _is_forgetful(frame: Any) -> bool:
    """Whether an exception raised in this frame would be swallowed."""
    while frame is not None and frame.f_code.co_name not in FORGETFUL:
        frame = frame.f_back
    return frame is not None


def hold() -> None:
    """From now on only record the first Ctrl-C, during short work that must not be interrupted, such as saving."""
    if threading.current_thread() is threading.main_thread():
        _held.set()


def was_noted() -> bool:
    """Whether there was a Ctrl-C, or another reason to stop, that has not been handled yet."""
    return _has_to_stop() or (_noted.is_set() and threading.current_thread() is threading.main_thread())


def _has_to_stop() -> bool:
    stop = getattr(_here, "stop", None)
    return stop is not None and stop()


def raise_if_noted() -> None:
    """Raise `KeyboardInterrupt` if a Ctrl-C has not been handled yet."""
    if was_noted():
        raise Stopped if _has_to_stop() else KeyboardInterrupt


def answered() -> None:
    """Mark what was noted as handled."""
    if _has_to_stop():
        _here.stop = None
    if threading.current_thread() is threading.main_thread():
        _noted.clear()
