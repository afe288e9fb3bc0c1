"""What every run folder contains: a manifest that describes the run, and the result once it is finished."""

import datetime
import hashlib
import json
import sys
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from bpinn.errors import InputError
from bpinn.methods import Method
from bpinn.problem import Problem
from bpinn.run_folder.files import LOCK, MANIFEST, UNFINISHED, only_one, write_file
from bpinn.run_folder.files import RESULT as RESULT
from bpinn.storage import describe_problem, describe_settings, rebuild_settings, save_problem

FORMAT, READABLE = 2, (1, 2)  # the format that is written, and those that can be read; 1 is version 0.1's
PROBLEM = "problem.npz"


def versions() -> dict[str, str]:
    """Versions of the packages that a result depends on, stored with it for reproducibility."""
    packages = ("bpinn", "jax", "jaxlib", "blackjax", "numpyro", "optax", "flowjax", "numpy")
    return {"python": sys.version.split()[0]} | {p: _version(p) for p in packages}


@cache
def _version(package: str) -> str:
    return metadata.version(package)  # it reads files, which took a seventh of a short run that was compiled before


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    made = datetime.datetime.now().isoformat(timespec="seconds")
    whole = {"format": FORMAT, **content, "versions": versions(), "made": made}
    write_file(folder / MANIFEST, json.dumps(whole, indent=1).encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        known = manifest["format"]
        parts = [manifest, manifest.get("versions", {}), manifest.get("inference", {})]
        right = all(isinstance(part, dict) for part in parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        right, known = False, None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not right:
        raise InputError(f"{path}: the file is damaged; restore it, or start again in another folder")
    if known not in READABLE:
        raise InputError(f"{path}: has format {known}, but this version reads up to {FORMAT}; upgrade bpinn")
    return manifest


def claim(folder: Path, where: str, problem: Problem, method: Method, **rest: Any) -> Method:
    """Create the folder of a run from Python; an existing folder must belong to the same run, which is then resumed.

    ``where`` names the caller in messages; ``rest`` is what else must be the same, by name. Returns the method to run:
    a run of an older version goes on as that version would.
    """
    wanted = {
        "problem": _fingerprint(problem),
        "method": json.loads(json.dumps(describe_settings(method))),
        **rest,
        "precision": str(jnp.result_type(float)),
    }
    if not (folder / MANIFEST).is_file():
        if folder.exists() and not is_free(folder):
            raise InputError(f"{where}: out={str(folder)!r} is not a run folder; give a new folder, or a file.npz")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{where}: out={str(folder)!r} cannot be created: {error.strerror or error}") from None
        with only_one(folder):
            if not (folder / MANIFEST).is_file():  # another process may have been faster
                save_problem(problem, folder / PROBLEM)  # so that an unfinished run can be opened
                write_manifest(folder, {"inference": wanted})
    manifest = read_manifest(folder)
    there = manifest.get("inference")
    if manifest["format"] == 1:
        wanted["problem"] = _fingerprint(problem, 1)
    if there is None:
        raise InputError(
            f"{where}: out={str(folder)!r} is a run of the command line; continue it with `bpinn resume {folder}`"
        )
    stored = _stored_method(there.get("method"), method)
    if stored is not None:
        wanted["method"] = there["method"]
    differ = [name for name in wanted if there.get(name) != wanted[name]]
    if differ:
        which = f"its {' and '.join(differ)} {'differ' if len(differ) > 1 else 'differs'}"
        raise InputError(
            f"{where}: out={str(folder)!r} holds a different run ({which}); give another folder, or remove it"
        )
    return method if stored is None else stored


def _stored_method(described: Any, method: Method) -> Method | None:
    """The settings that are described, if they are these; settings that an older version did not have may differ."""
    try:
        stored = rebuild_settings(described, {}, Method.registry)
        missing = {name: value for name, value in method.before.items() if name not in described}
        return stored if stored in (method, replace(method, **missing)) else None
    except (InputError, AttributeError, LookupError, TypeError, ValueError):
        return None


def has_begun(folder: Path) -> bool:
    """Whether the folder contains blocks of a run."""
    return any(folder.glob("stage-*"))


def is_free(folder: Path) -> bool:
    """Whether the folder contains at most what a process leaves if it is killed before its first block."""
    return folder.is_dir() and all(
        p.name in (LOCK, PROBLEM) or any(p.match(pattern) for pattern in UNFINISHED[:2]) for p in folder.iterdir()
    )


def _fingerprint(problem: Problem, format_: int = FORMAT) -> str:
    """Hash of the problem with its data; equations enter by their names, arguments and source text."""
    arrays: dict[str, np.ndarray] = {}
    digest = hashlib.sha256(json.dumps(describe_problem(problem, arrays, format_), sort_keys=True).encode())
    for name, values in sorted(arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
