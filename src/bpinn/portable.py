"""Portable arithmetic: the instructions that every x86-64 processor with AVX2 has, and no others.

Compilers otherwise use what the processor at hand has to offer, and the last bits of draws depend on it. XLA and the
BLAS library read these settings when their process starts, so they are settings of a process: the program sets them
(``bpinn --portable run``), and worker processes that it starts inherit them.
"""

import os
from collections.abc import Mapping

from bpinn.errors import InputError

LEVEL = "x86-64-v3"  # for the C compiler
XLA = "--xla_cpu_max_isa=AVX2"
SETTINGS = {"BPINN_PORTABLE": "1", "OPENBLAS_CORETYPE": "Haswell"}
_started = dict(os.environ)  # what was set when the process started, roughly


def environment(now: Mapping[str, str]) -> dict[str, str]:
    """An environment in which processes compute portably, and otherwise the same.

    Example:
        >>> environment({"XLA_FLAGS": "--xla_dump_to=here"})["XLA_FLAGS"]
        '--xla_dump_to=here --xla_cpu_max_isa=AVX2'
    """
    others = [flag for flag in now.get("XLA_FLAGS", "").split() if not flag.startswith("--xla_cpu_max_isa")]
    return {**now, **SETTINGS, "XLA_FLAGS": " ".join([*others, XLA])}


def is_on() -> bool:
    """Whether this process computes portably: it was started with all settings."""
    return (
        all(_started.get(name) == value for name, value in SETTINGS.items())
        and XLA in _started.get("XLA_FLAGS", "").split()
    )


def require(where: str) -> None:
    """Refuse to go on in a process that does not compute portably."""
    if not is_on():
        said = " ".join(f"{name}={value}" for name, value in {**SETTINGS, "XLA_FLAGS": XLA}.items())
        raise InputError(
            f"{where}: portable=True, but JAX has started with other instructions; start Python with them, as in "
            f"`{said} python script.py`, or use `bpinn --portable run`"
        )
