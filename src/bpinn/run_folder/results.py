"""The result in a run folder, handled the same way for finished, unfinished and damaged runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bpinn import engine, storage
from bpinn.errors import DamagedError, InputError
from bpinn.methods import Method
from bpinn.problem import Problem
from bpinn.result import Result
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_folder.manifest import PROBLEM, RESULT, has_begun, read_manifest

Functions = Mapping[str, Callable[..., Any]]


def finished(folder: Path, functions: Functions, warn: Callable[[str], None]) -> Result | None:
    """The result of a finished run; None if the run is unfinished.

    If the result is damaged but its blocks of draws exist, this calls ``warn`` and treats the run as unfinished:
    resuming the run rebuilds the result, with the same draws.
    """
    if not (folder / RESULT).is_file():
        return None
    try:
        return storage.load(folder / RESULT, functions)
    except DamagedError as error:
        if not has_begun(folder):
            raise
        warn(f"{error}; it is rebuilt from the blocks of draws")
        return None


def opened(
    folder: Path,
    problem: Problem | None,
    method: Method,
    *,
    seed: int,
    chains: int,
    resume: str,
    functions: Functions,
    warn: Callable[[str], None],
    dtype: Any = np.float32,
) -> Result:
    """The result of a run; for an unfinished run the draws so far, with a warning. ``resume`` says how to resume it.

    Nothing in the folder is changed.
    """

    def refuse(message: str) -> None:
        raise DamagedError(message.replace("it is rebuilt", f"{resume}, which rebuilds it"))

    result = finished(folder, functions, refuse)
    if result is not None:
        return result
    if problem is None:
        raise InputError(
            f"load: the run in {folder} is unfinished and was started by version 0.1; {resume} to finish it"
        )
    found = engine.stored(problem, method, chains, Checkpoint(folder, warn, read_only=True), np.dtype(dtype))
    if found is None:
        raise InputError(f"load: the run in {folder} is unfinished and has no draws yet; {resume} to resume it")
    made_by = read_manifest(folder).get("versions", {})
    warn(f"the run in {folder} is unfinished: {found.z.shape[1]} draws of each chain so far; {resume} to finish it")
    return Result(
        problem, method, seed, found.z, found.functionals, found.stats, {}, made_by, True, found.history
    )  # fmt: skip


def opened_from_python(folder: Path, functions: Functions, warn: Callable[[str], None]) -> Result:
    """The result of a run that `bpinn.infer` stores in a folder."""
    stated = read_manifest(folder)["inference"]
    try:
        method = storage.rebuild_settings(stated["method"], functions, Method.registry)
        if not isinstance(method, Method):
            raise ValueError(method)
        seed, chains, precision = int(stated["seed"]), int(stated["chains"]), str(stated["precision"])
        if precision not in ("float32", "float64"):
            raise ValueError(precision)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder / 'manifest.json'}: the file is damaged ({error!r})") from None
    path = folder / PROBLEM
    problem = storage.load_problem(path, functions) if path.is_file() else None
    with jax.enable_x64(precision == "float64"):
        return opened(
            folder, problem, method, seed=seed, chains=chains, resume="call bp.infer(..., out=) again",
            functions=functions, warn=warn, dtype=precision,
        )  # fmt: skip
