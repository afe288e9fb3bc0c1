"""One case of an experiment: a method on one of the paper's problems with one data set, and its outcome."""

import dataclasses
import hashlib
import json
import re
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.engine import Progress
from bpinn.errors import InputError
from bpinn.fields import Field
from bpinn.inference import infer
from bpinn.methods import Method
from bpinn.monitor import Monitor
from bpinn.paper import PaperProblem
from bpinn.reference import gp
from bpinn.result import Result
from bpinn.run_folder.files import read_arrays, write_file

Say = Callable[[Progress], None] | bool


@dataclass(frozen=True)
class GPR:
    """Gaussian process regression with the covariance of the network's prior: the paper's BNN-GPR."""

    draws: int = 100_000


@dataclass(frozen=True)
class Case:
    """``make`` is a function of `bp.paper`; ``surrogate`` replaces its network."""

    label: str
    make: Callable[..., PaperProblem]
    noise: float
    seed: int
    method: Method | GPR
    surrogate: Field | None = None

    def problem(self) -> PaperProblem:
        return self.make(noise=self.noise, seed=self.seed, surrogate=self.surrogate)

    @property
    def key(self) -> str:
        """File name of the case; it changes with any of the case's settings."""
        told = f"{self.make.__name__} {self.method!r} {self.surrogate!r}"
        plain = re.sub(r"[^\w.]+", "-", self.label)
        return f"{plain}-noise-{self.noise:g}-seed-{self.seed}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: numbers for result.json, and arrays for figures.

    ``arrays`` holds the ``mean``, ``sd`` and ``truth`` of each quantity on a mesh, under names such as "u/mean".
    """

    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def k(self) -> tuple[float, float]:
        """Mean and sd of the unknown k; the sd is NaN if the method has none."""
        found = self.numbers["unknowns"]["k"]
        return found["mean"], float("nan") if found["sd"] is None else found["sd"]

    def sd(self, name: str, where: np.ndarray | None = None) -> float:
        """The sd of a quantity, averaged over the domain or a part of it."""
        values = self.arrays[f"{name}/sd"]
        return float(np.mean(values if where is None else values[where]))


def run_case(case: Case, folder: Path, progress: Say, cluster: Any = None) -> Outcome:
    """Run a case, or read its files if it is finished; an interrupted run is resumed."""
    numbers, arrays = folder / f"{case.key}.json", folder / f"{case.key}.npz"
    if numbers.is_file() and arrays.is_file():
        return Outcome(json.loads(numbers.read_text()), read_arrays(arrays))
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    paper = case.problem()
    if isinstance(case.method, GPR):
        outcome = _regressed(case, paper, case.method)
    else:
        unfinished = folder / f"{case.key}.run"
        how: dict[str, Any] = {"progress": progress, "preview": False, "cluster": cluster}
        result = infer(paper.problem, case.method, seed=case.seed, out=unfinished, **how)
        if result.interrupted:
            raise KeyboardInterrupt("stopped; finished work is kept, and the same command resumes")
        outcome = summarised(case, paper, result)
    outcome.numbers["seconds"] = time.perf_counter() - started
    outcome.numbers["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    write_file(arrays, outcome.arrays)
    told = json.dumps(outcome.numbers, indent=1)
    write_file(numbers, told.encode())
    if not isinstance(case.method, GPR):
        _remove(folder / f"{case.key}.run")
    return Outcome(json.loads(told), outcome.arrays)  # as read back from the file


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()


def _told(case: Case) -> dict[str, Any]:
    settings = {f.name: getattr(case.method, f.name) for f in dataclasses.fields(case.method)}
    return {
        "label": case.label,
        "problem": case.make.__name__,
        "noise": case.noise,
        "seed": case.seed,
        "method": type(case.method).__name__,
        "settings": {name: value for name, value in settings.items() if not callable(value)},
        "surrogate": repr(case.surrogate) if case.surrogate else "the paper's network",
    }


def _quantities(paper: PaperProblem) -> list[str]:
    """Names of the quantities with a truth: the field, and the equation if there is one."""
    return [name for name in paper.truth.functions if name == "u" or name in paper.problem.sensors]


def _compare(paper: PaperProblem, name: str, mean: np.ndarray, sd: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Errors, as numbers, and arrays of one quantity on the mesh."""
    at = paper.problem.grid()
    truth = np.asarray(paper.truth.functions[name](**at), float)
    error = float(np.linalg.norm(mean - truth) / np.linalg.norm(truth))
    spread = bool(np.all(np.isfinite(sd)))
    numbers = {
        "error": error,
        "largest_error": float(np.max(np.abs(mean - truth))),
        "within_two_sd": float(np.mean(np.abs(mean - truth) <= 2 * sd)) if spread else None,
        "mean_sd": float(np.mean(sd)) if spread else None,
    }
    return numbers, {f"{name}/mean": mean, f"{name}/sd": sd, f"{name}/truth": truth}


def summarised(case: Case, paper: PaperProblem, result: Result) -> Outcome:
    """The outcome of a result; with several solutions, from the chains on the one closest to the truth."""
    groups = result.diagnose().branches or (tuple(range(result.z.shape[0])),)
    at, truth = paper.problem.grid(), paper.truth.functions["u"]
    target = np.asarray(truth(**at), float)

    def distance(group: tuple[int, ...]) -> float:
        return float(np.linalg.norm(result.only(*group).predict("u", at).mean - target) / np.linalg.norm(target))

    apart = {group: distance(group) for group in groups} if len(groups) > 1 else {groups[0]: 0.0}
    chosen = min(apart, key=lambda group: apart[group])
    part = result.only(*chosen) if len(groups) > 1 else result
    health, table = part.diagnose(), part.summary().table
    numbers = _told(case)
    arrays: dict[str, np.ndarray] = {}
    numbers["unknowns"] = {
        name: {column: None if not np.isfinite(v) else float(v) for column, v in row.items()}
        for name, row in table.to_dict("index").items()
    }
    numbers["quantities"] = {}
    for name in _quantities(paper):
        band = part.predict(name, at)
        numbers["quantities"][name], more = _compare(paper, name, band.mean, band.sd)
        arrays |= more
    residuals = {r.name: part.predict(r.name, dict(r.at)).mean - r.values for r in paper.problem.readings}
    numbers["residual"] = {name: float(np.sqrt(np.mean(values**2))) for name, values in residuals.items()}
    numbers |= {"verdict": health.verdict, "reasons": health.reasons, "chains": result.z.shape[0]}
    numbers |= {"draws": result.z.shape[1], "sampling_seconds": result.seconds}
    if health.convergence is not None:
        secondary = Monitor(part.problem).is_secondary
        _, rhat, ess = health.convergence.only(~secondary).worst()
        numbers |= {"rhat": rhat, "ess": ess, "leapfrog": float(np.median(part.stats["gradients"]))}
        if np.any(secondary):
            numbers["rhat_equations"] = health.convergence.only(secondary).worst()[1]
    densities = result.stats["log_density"]
    branches = [
        {"chains": list(group), "error": apart[group], "log_density": float(densities[list(group)].mean())}
        for group in groups
    ]
    numbers["branches"] = branches if len(groups) > 1 else []
    numbers["chains_on_truth"] = list(chosen)
    return Outcome(numbers, arrays)


def _regressed(case: Case, paper: PaperProblem, method: GPR) -> Outcome:
    band = gp(paper.problem, "u", paper.problem.grid(), draws=method.draws, seed=case.seed)
    numbers, arrays = _compare(paper, "u", band.mean, band.sd)
    return Outcome(_told(case) | {"unknowns": {}, "quantities": {"u": numbers}, "verdict": "good"}, arrays)


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of an experiment, looked up by label, noise and data set."""

    all: list[Outcome]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(o.numbers["label"] for o in self.all))

    @property
    def noises(self) -> list[float]:
        return sorted({o.numbers["noise"] for o in self.all})

    @property
    def seeds(self) -> list[int]:
        return sorted({o.numbers["seed"] for o in self.all})

    def get(self, label: str, noise: float, seed: int) -> Outcome:
        for outcome in self.all:
            told = outcome.numbers
            if (told["label"], told["noise"], told["seed"]) == (label, noise, seed):
                return outcome
        raise InputError(f"reproduce: no outcome of {label} at noise {noise:g} for data set {seed}")
