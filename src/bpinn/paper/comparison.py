"""Experiments: methods on one of the paper's problems, compared with each other, the truth and the paper."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bpinn.fields import MLP, Field, KarhunenLoeve
from bpinn.methods import Method
from bpinn.paper import PaperProblem, figures, numbers
from bpinn.paper import claims as c
from bpinn.paper.cases import GPR, Case, Outcome, Outcomes, Say, run_case
from bpinn.paper.settings import Settings
from bpinn.plot import drawing

PRESETS = ("tiny", "quick", "paper")
CUT = {
    "HMC": "HMC finds the length of its trajectories and the number of its draws (the paper: 17,000 of 50 steps)",
    "VI": "VI takes 20,000 training steps instead of 200,000",
    "PINN": "the PINN takes 20,000 training steps instead of 200,000",
    "dropout": "dropout takes 20,000 training steps instead of 200,000",
    "KL-DNF": "the flow is a coupling flow instead of the potential flow",
}


@dataclass(frozen=True)
class Run:
    """The options of one run of an experiment."""

    preset: str
    seeds: Sequence[int]
    folder: Path
    progress: Say
    cluster: Any = None


@dataclass(frozen=True)
class Found:
    """The results of an experiment: a table, claims, all numbers for result.json, and a figure."""

    columns: list[str]
    rows: list[list[str]]
    claims: list[dict[str, Any]]
    numbers: dict[str, Any]
    figure: Figure


@dataclass(frozen=True)
class Experiment(ABC):
    name: str
    about: str

    @abstractmethod
    def run(self, how: Run) -> Found:
        """Run the experiment; finished cases are not run again."""

    def cut(self, preset: str) -> list[str]:
        """How a preset differs from the paper's settings, one sentence each."""
        return []

    def redrawn(self, cases: Sequence[dict[str, Any]]) -> Figure | None:
        """The figure from the numbers of result.json; None if it also needs arrays, which are not kept there."""
        return None


@dataclass(frozen=True)
class Comparison(Experiment):
    """Methods on one of the paper's problems, at one or two noise levels."""

    make: Callable[..., PaperProblem]
    methods: tuple[str, ...]
    settings: Settings
    noises: tuple[float, ...]
    claims: tuple[c.Claim, ...]
    truth: float | None = None  # of k
    surrogates: Mapping[str, Field] = field(default_factory=dict)
    flat: bool = True  # whether there is only one coordinate
    told: dict[str, tuple[str, ...]] = field(default_factory=dict)  # further differences of a preset from the paper

    def method(self, label: str, preset: str, noise: float) -> Method | GPR:
        if label == "GPR":
            return GPR(2000 if preset == "tiny" else 100_000)
        chosen = self.settings[label][preset]
        return chosen if isinstance(chosen, Method) else chosen(noise)

    def surrogate(self, label: str, preset: str) -> Field | None:
        chosen = self.surrogates.get(label)
        return MLP(hidden=(4,)) if preset == "tiny" and not isinstance(chosen, KarhunenLoeve) else chosen

    def cases(self, preset: str, seeds: Sequence[int]) -> list[Case]:
        return [
            Case(label, self.make, noise, seed, self.method(label, preset, noise), self.surrogate(label, preset))
            for seed in seeds
            for noise in self.noises
            for label in self.methods
        ]

    def cut(self, preset: str) -> list[str]:
        if preset == "paper":
            usual = (
                ["four chains instead of one, started by annealing"] if any("HMC" in m for m in self.methods) else []
            )
            if "KL-DNF" in self.methods:
                usual.append("the potential flow takes 3,000 training steps instead of 100,000")
        else:
            usual = [
                text for name, text in CUT.items() if any(m.endswith(name) or m.startswith(name) for m in self.methods)
            ]
        return [*usual, *self.told.get(preset, ())]

    def outcomes(self, how: Run) -> Outcomes:
        cases = self.cases(how.preset, how.seeds)
        return Outcomes([run_case(case, how.folder / "cases", how.progress, how.cluster) for case in cases])

    def problems(self, seed: int) -> dict[float, PaperProblem]:
        """The problem of one data set at each noise."""
        return {noise: self.make(noise=noise, seed=seed) for noise in self.noises}

    def run(self, how: Run) -> Found:
        outcomes, problems = self.outcomes(how), self.problems(how.seeds[0])
        columns, rows = self.table(outcomes)
        return Found(
            columns, rows, [claim.judge(outcomes) for claim in self.claims],
            {"cases": [outcome.numbers for outcome in outcomes.all]}, self.figure(outcomes, problems),
        )  # fmt: skip

    def table(self, outcomes: Outcomes) -> tuple[list[str], list[list[str]]]:
        """One row per noise and method, averaged over data sets (R-hat and ESS: the worst)."""
        columns = ["noise", "method"]
        columns += ["k", "the paper's k", "sd / the paper's", "truth within 2 sd"] if self.truth is not None else []
        columns += ["error of u", "u within 2 sd", "mean sd of u", "R-hat", "ESS", "seconds"]
        rows = []
        for noise in outcomes.noises:
            for label in outcomes.labels:
                found = [outcomes.get(label, noise, seed) for seed in outcomes.seeds]
                row = [f"{noise:g}", label]
                if self.truth is not None:
                    row += self._of_k(found, label, noise)
                u = [o.numbers["quantities"]["u"] for o in found]
                row += [_mean([q["error"] for q in u], "{:.1%}"), _mean([q["within_two_sd"] for q in u], "{:.0%}")]
                row += [_mean([q["mean_sd"] for q in u], "{:.3g}")]
                row += [_worst([o.numbers.get("rhat") for o in found], max, "{:.3f}")]
                row += [_worst([o.numbers.get("ess") for o in found], min, "{:.0f}")]
                row += [_mean([o.numbers["seconds"] for o in found], "{:.1f}")]
                rows.append(row)
        return columns, rows

    def _of_k(self, found: Sequence[Any], label: str, noise: float) -> list[str]:
        means, sds = np.array([o.k for o in found]).T
        shown = f"{means.mean():.4f}" + (f" ± {sds.mean():.2g}" if np.all(np.isfinite(sds)) else "")
        theirs = numbers.K.get((self.make.__name__, noise), {}).get(label)
        paper_k = "–" if theirs is None else f"{theirs[0]:.3f}" + (f" ± {theirs[1]:.2g}" if theirs[1] else "")
        ratio = f"{sds.mean() / theirs[1]:.2f}" if theirs and theirs[1] and np.all(np.isfinite(sds)) else "–"
        assert self.truth is not None
        within = int(np.sum(np.abs(means - self.truth) <= 2 * sds)) if np.all(np.isfinite(sds)) else None
        return [shown, paper_k, ratio, "–" if within is None else f"{within} of {len(found)}"]

    def figure(self, outcomes: Outcomes, problems: dict[float, PaperProblem]) -> Figure:
        if not self.flat:
            return figures.maps(outcomes, problems)
        return figures.of_bands(self.panels(outcomes, problems))

    def panels(self, outcomes: Outcomes, problems: dict[float, PaperProblem], heading: str = "") -> list[list[Any]]:
        """Panels of bands, by row."""
        quantities = [name for name in ("u", "f") if name in problems[self.noises[0]].truth.functions]
        return figures.bands(outcomes, problems, quantities, heading)


@dataclass(frozen=True)
class Pair(Experiment):
    """Two comparisons of the same methods as one experiment; the second has an unknown."""

    first: Comparison
    second: Comparison

    def cut(self, preset: str) -> list[str]:
        return self.second.cut(preset)

    def run(self, how: Run) -> Found:
        both = self.first, self.second
        outcomes = [part.outcomes(how) for part in both]
        (few, above), (columns, below) = (part.table(o) for part, o in zip(both, outcomes, strict=True))
        rows = []
        for part, names, found in ((self.first, few, above), (self.second, columns, below)):
            for row in found:
                cells = dict(zip(names, row, strict=True))
                rows.append([part.make.__name__, *(cells.get(column, "–") for column in columns)])
        claims = [claim.judge(o) for part, o in zip(both, outcomes, strict=True) for claim in part.claims]
        left, right = (
            part.panels(o, part.problems(how.seeds[0]), f"{part.about}, ")
            for part, o in zip(both, outcomes, strict=True)
        )
        cases = [outcome.numbers for o in outcomes for outcome in o.all]
        figure = figures.of_bands([a + b for a, b in zip(left, right, strict=True)])
        return Found(["problem", *columns], rows, claims, {"cases": cases}, figure)


@dataclass(frozen=True)
class OfNumbers(Comparison):
    """A comparison whose figure shows numbers only, no fields."""

    def redrawn(self, cases: Sequence[dict[str, Any]]) -> Figure | None:
        outcomes = Outcomes([Outcome(numbers, {}) for numbers in cases])
        return self.figure(outcomes, self.problems(outcomes.seeds[0]))


@dataclass(frozen=True)
class UnknownComparison(OfNumbers):
    """A comparison whose figure shows k and the positions of the readings."""

    def figure(self, outcomes: Outcomes, problems: dict[float, PaperProblem]) -> Figure:
        assert self.truth is not None
        papers = {noise: numbers.K.get((self.make.__name__, noise), {}) for noise in self.noises}
        panels = figures.unknowns(outcomes, self.truth, papers)
        return drawing.figure([*figures.sensors(problems), *panels], 2, figures.WIDE)


@dataclass(frozen=True)
class Cost(OfNumbers):
    """A comparison of run times."""

    def figure(self, outcomes: Outcomes, problems: dict[float, PaperProblem]) -> Figure:
        return figures.bars(outcomes, numbers.MINUTES)


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [v for v in values if v is not None]
    return form.format(np.mean(known)) if known else "–"


def _worst(values: Sequence[float | None], which: Callable, form: str) -> str:
    known = [v for v in values if v is not None]
    return form.format(which(known)) if known else "–"
