"""Ctrl-C that is not lost.

Python raises `KeyboardInterrupt` wherever the main thread happens to be. If that is a callback, such as JAX's of the
garbage collector, it is printed, if at all, and forgotten, and the run goes on: so it is noted, too, and asked for
between blocks of steps.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FORGETFUL = ("_xla_gc_callback", "__del__")  # functions that are called back
_noted = threading.Event()
_before: list[Any] = []  # what was done about it before
_held = threading.Event()  # whether the first is to be noted only


@contextmanager
def listening() -> Iterator[None]:
    """Note Ctrl-C while this lasts; in the main thread, which alone is told, and where it is not ignored."""
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
    """Whether an error that is raised here would be printed as ignored, and no more."""
    while frame is not None and frame.f_code.co_name not in FORGETFUL:
        frame = frame.f_back
    return frame is not None


def hold() -> None:
    """From now on only note the first Ctrl-C, for short work that would lose what is done if it were cut off."""
    if threading.current_thread() is threading.main_thread():
        _held.set()


def was_noted() -> bool:
    """Whether there was one that nothing was done about yet."""
    return _noted.is_set() and threading.current_thread() is threading.main_thread()


def raise_if_noted() -> None:
    """Raise what Python raised before, if nothing was done about it yet."""
    if was_noted():
        raise KeyboardInterrupt


def answered() -> None:
    """Something was done about it: another is needed to be heard again."""
    _noted.clear()
