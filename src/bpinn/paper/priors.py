"""Experiments on the prior of a network, without data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn import paper, plot, prior
from bpinn.fields import MLP
from bpinn.paper import figures
from bpinn.paper.comparison import Experiment, Found, Run
from bpinn.plot import drawing


@dataclass(frozen=True)
class PriorDensity(Experiment):
    """Prior densities of u and its derivatives at three points, compared with normal densities."""

    def run(self, how: Run) -> Found:
        draws = 2000 if how.preset == "tiny" else 100_000
        problem, at = paper.regression().problem, {"x": [0.0, 0.5, 1.0]}
        seed = how.seeds[0]
        kurtosis = {}
        for name in ("u", "u_x", "u_xx"):
            values = prior.predict(problem, name, at, draws=draws, seed=seed).draws.reshape(draws, -1).astype(float)
            kurtosis[name] = [float(k) for k in (values**4).mean(0) / (values**2).mean(0) ** 2 - 3]
        claims = [
            _one_claim("u-normal", "The prior of u at a point is close to normal (excess kurtosis below 0.5).",
                       max(kurtosis["u"]) < 0.5, kurtosis["u"]),
            _one_claim("derivatives-not-normal", "Those of u' and u'' are not (excess kurtosis above 0.5).",
                       min(kurtosis["u_x"] + kurtosis["u_xx"]) > 0.5, kurtosis["u_x"] + kurtosis["u_xx"]),
        ]  # fmt: skip
        rows = [[name, *(f"{k:.2f}" for k in found)] for name, found in kurtosis.items()]
        figure = plot.prior_density(problem, at=at, draws=draws, seed=seed)
        columns = ["excess kurtosis of", "x = 0", "x = 0.5", "x = 1"]
        return Found(columns, rows, claims, {"draws": draws, "excess_kurtosis": kurtosis}, figure)


def _one_claim(name: str, says: str, holds: bool, values: Sequence[float]) -> dict[str, Any]:
    told = ", ".join(f"{v:.2f}" for v in values)
    return {"name": name, "says": says, "holds_in": int(holds), "of": 1, "numbers": {"0": told}}


ROOT = float(np.sqrt(2.5)), float(np.sqrt(0.5))
PRIORS = {
    "(a) 20, √(5/2)": MLP(hidden=(20, 20), weight_sd=(1.0, ROOT[0], ROOT[0])),
    "(b) 50, 1": MLP(hidden=(50, 50)),
    "(c) 100, √(1/2)": MLP(hidden=(100, 100), weight_sd=(1.0, ROOT[1], ROOT[1])),
    "(d) 20, 1": MLP(hidden=(20, 20)),
    "(e) 100, 1": MLP(hidden=(100, 100)),
}


@dataclass(frozen=True)
class PriorCovariance(Experiment):
    """Covariance functions of five priors, compared by the largest difference from (b), relative to its maximum."""

    def run(self, how: Run) -> Found:
        draws = 500 if how.preset == "tiny" else 100_000
        x = np.linspace(-1, 1, 11 if how.preset == "tiny" else 51)
        found = {
            name: prior.covariance(paper.regression(surrogate=s).problem, "u", {"x": x}, draws=draws, seed=how.seeds[0])
            for name, s in PRIORS.items()
        }
        reference = found["(b) 50, 1"]
        apart = {name: float(np.max(np.abs(k - reference)) / reference.max()) for name, k in found.items()}
        like, unlike = ("(a) 20, √(5/2)", "(c) 100, √(1/2)"), ("(d) 20, 1", "(e) 100, 1")
        claims = [
            _one_claim("abc-alike", "Priors (a), (b) and (c) have similar covariances (within 10% of the largest).",
                       all(apart[n] < 0.1 for n in like), [apart[n] for n in like]),
            _one_claim("de-not", "Those of (d) and (e) are different (by more than 30%).",
                       all(apart[n] > 0.3 for n in unlike), [apart[n] for n in unlike]),
        ]  # fmt: skip
        rows = [[name, f"{k.max():.1f}", f"{apart[name]:.1%}"] for name, k in found.items()]

        limits = min(k.min() for k in found.values()), max(k.max() for k in found.values())

        def panel(name: str) -> Any:
            return lambda ax: drawing.draw_covariance(ax, x, found[name], "x", figures.in_words(name), limits)

        figure = drawing.figure([panel(name) for name in PRIORS], 3, drawing.BESIDE, one_x=True, one_y="all")
        columns = ["prior", "largest covariance", "largest difference from (b)"]
        return Found(columns, rows, claims, {"draws": draws, "apart": apart}, figure)
