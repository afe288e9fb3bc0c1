"""Every method on one problem: the paper's 1D inverse problem, a reaction rate k from 40 noisy readings.

    0.01 u'' + k tanh(u) = f,    x in [-0.7, 0.7],    the true k is 0.7

A network is inferred with HMC, variational inference and dropout, and fitted as a plain PINN; a Karhunen-Loève field is
inferred with HMC, a full-rank Gaussian and two flows. The table has the distance of each from the truth, and the share
of the domain on which its 95% band contains the truth.

    python examples/compare_methods.py [--noise 0.1] [--out FOLDER]     (about three minutes; --out saves the figure)
"""

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

import bpinn as bp
from bpinn.plot import drawing

NETWORK = bp.MLP(hidden=(50, 50))
KL = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
METHODS = {
    "HMC": (NETWORK, bp.HMC()),
    "VI, mean-field": (NETWORK, bp.VI(num_steps=30_000)),
    "VI, low-rank": (NETWORK, bp.VI(family="low-rank", num_steps=30_000)),
    "dropout 1%": (NETWORK, bp.Dropout(rate=0.01, num_steps=100_000)),
    "dropout 5%": (NETWORK, bp.Dropout(rate=0.05, num_steps=100_000)),
    "PINN": (NETWORK, bp.PINN(num_steps=20_000, polish=500)),
    "KL-HMC": (KL, bp.HMC()),
    "KL-VI, full-rank": (KL, bp.VI(family="full-rank")),
    "KL-flow, coupling": (KL, bp.Flow()),
    "KL-flow, potential": (KL, bp.Flow(kind="potential", hidden=(32, 32), num_steps=3000)),
}


def quicker(method: bp.Method, like: bp.HMC) -> bp.Method:
    """The same method with very few steps, to check only that it runs."""
    if isinstance(method, bp.HMC):
        return like
    few = {"num_steps": 200} | ({} if isinstance(method, bp.PINN) else {"num_draws": 30})
    return replace(method, **few, **({"init_steps": 200} if hasattr(method, "init_steps") else {}))


def panel(ax: Axes, name: str, result: bp.Result, truth: bp.paper.Truth) -> None:
    """The posterior of u, with k in the title."""
    bp.plot.band(result, "u", truth=truth, ax=ax)
    ax.get_legend().remove()  # the figure has one for all panels
    k = result.summary().table.loc["k"]
    spread = "(no error bars)" if np.isnan(k["sd"]) else f"± {k['sd']:.3f}"
    ax.set_title(f"{name}\n$k$ = {k['mean']:.3f} {spread}")


def main(method: bp.HMC | None = None, noise: float = 0.1, out: Path | None = None) -> bp.Result:
    print(f"{'method':20s} {'k':>7s} {'sd':>8s} {'error of u':>11s} {'truth in band':>15s} {'seconds':>8s}  verdict")
    results = {}
    for name, (surrogate, settings) in METHODS.items():
        paper = bp.paper.inverse_reaction_1d(noise=noise, seed=0, surrogate=surrogate)
        chosen = settings if method is None else quicker(settings, method)
        result = results[name] = bp.infer(paper.problem, chosen, seed=0, progress=method is None)
        at = paper.problem.grid()
        band, truth = result.predict("u", at), paper.truth["u"](at["x"])
        low, high = band.interval(0.95)
        error = np.linalg.norm(band.mean - truth) / np.linalg.norm(truth)
        held = "no band" if np.isnan(low).all() else f"{np.mean((low <= truth) & (truth <= high)):.0%}"
        k = result.summary().table.loc["k"]
        print(
            f"{name:20s} {k['mean']:7.3f} {k['sd']:8.4f} {error:11.1%} {held:>15s} "
            f"{sum(result.seconds.values()):8.1f}  {result.diagnose().verdict}"
        )
    print(results["HMC"].summary())
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        panels = [partial(panel, name=name, result=result, truth=paper.truth) for name, result in results.items()]
        figure = drawing.figure(panels, 5, (2.2, 2.1), one_x=True, one_y="all")
        figure.savefig(out / "methods.png", dpi=110)
        print(f"figure: {out / 'methods.png'}")
    return results["HMC"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    main(noise=given.noise, out=given.out)
