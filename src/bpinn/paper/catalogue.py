"""Every experiment of the paper, with the paper's claims about it and the settings of its methods."""

from collections.abc import Callable
from typing import Any

from bpinn import paper
from bpinn.fields import MLP, Exponential, KarhunenLoeve
from bpinn.paper import PaperProblem
from bpinn.paper import claims as c
from bpinn.paper.comparison import Comparison, Cost, Experiment, Pair, UnknownComparison
from bpinn.paper.priors import PRIORS, PriorCovariance, PriorDensity
from bpinn.paper.settings import FORWARD_FLOW, ONE_DIMENSION, TOLD_IN_TWO, TWO_DIMENSIONS, Settings

LOW, HIGH = c.LOW, c.HIGH
OTHERS = ("VI", "dropout 1%", "dropout 5%")
KL = KarhunenLoeve(Exponential(length=0.25), terms=20, interval=(-1, 1))


def _forward(
    name: str, about: str, make: Callable[..., PaperProblem], settings: Settings, *more: c.Claim, **rest: Any
) -> Comparison:
    """A forward problem with HMC, VI and dropout at both noise levels, and the paper's claims about each method."""
    usual = [
        c.sd_grows("HMC"), *c.both_noises(c.within, "HMC"), c.sd_does_not_grow("dropout 1%"),
        c.sd_does_not_grow("dropout 5%"), *c.both_noises(c.not_within, "dropout 1%"),
        *c.both_noises(c.not_within, "dropout 5%"),
    ]  # fmt: skip
    methods = ("HMC", "VI", "dropout 1%", "dropout 5%")
    return Comparison(name, about, make, methods, settings, (LOW, HIGH), (*usual, *more), **rest)


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        PriorDensity("prior-density", "densities of u, u' and u'' at three points against normal ones (Sec. 2.1)"),
        Comparison(
            "regression", "function regression with readings missing in between (Sec. 3.1)", paper.regression,
            ("GPR", "HMC", "VI", "dropout 1%", "dropout 5%", "dropout 20%"), ONE_DIMENSION, (HIGH,),
            (
                c.bands_agree("HMC", "GPR", HIGH), c.grows_in_gaps("HMC", HIGH), c.grows_in_gaps("GPR", HIGH),
                c.sd_ratio_in("VI", "HMC", HIGH, ((-0.2, 0.2),), larger=True),
                c.sd_ratio_in("VI", "HMC", HIGH, ((-1.0, -0.8), (0.8, 1.0)), larger=False),
                *(check(f"dropout {rate}", HIGH) for rate in ("1%", "5%", "20%")
                  for check in (c.uniform_in_gaps, c.wrong_in_gaps)),
            ),
            surrogates={"dropout 20%": MLP(hidden=(100, 100, 100, 100))},
        ),
        _forward(
            "poisson-1d", "linear Poisson equation (Sec. 3.2.1)", paper.poisson_1d, ONE_DIMENSION,
            *c.both_noises(c.error_above, "VI", 0.5),
        ),
        _forward(
            "nonlinear-1d", "nonlinear Poisson equation (Sec. 3.2.2)", paper.nonlinear_1d, ONE_DIMENSION,
            c.sd_at_ends("VI", "HMC", HIGH),
        ),
        _forward(
            "allen-cahn-2d", "Allen-Cahn equation in two dimensions (Sec. 3.2.3)", paper.allen_cahn_2d, TWO_DIMENSIONS,
            *(c.error_above(label, noise, 0.5) for label in OTHERS for noise in (LOW, HIGH)),
            *c.both_noises(c.not_within, "VI"), flat=False, told=TOLD_IN_TWO,
        ),
        Comparison(
            "inverse-1d", "an unknown reaction rate in one dimension: Table 1 (Sec. 3.3.1)", paper.inverse_reaction_1d,
            ("HMC", "VI", "dropout 1%", "dropout 5%"), ONE_DIMENSION, (LOW, HIGH),
            (
                *(c.k_within("HMC", noise, 0.7, 1.0) for noise in (LOW, HIGH)), c.k_sd_grows("HMC"),
                *(c.k_worse_than(label, "HMC", noise, 0.7) for label in ("VI", "dropout 1%", "dropout 5%")
                  for noise in (LOW, HIGH)),
                *(c.k_within("VI", noise, 0.7, 2.0) for noise in (LOW, HIGH)),
                *(c.k_worse_than("dropout 5%", "dropout 1%", noise, 0.7) for noise in (LOW, HIGH)),
                c.k_sd_grows("dropout 5%", False),
                *(c.worse_than(label, "HMC", HIGH, q) for label in OTHERS for q in ("u", "f")),
            ),
            truth=0.7,
        ),
        UnknownComparison(
            "inverse-2d", "an unknown reaction rate in two dimensions: Table 2 (Sec. 3.3.2)", paper.inverse_reaction_2d,
            ("HMC", "VI", "dropout 1%", "dropout 5%"), TWO_DIMENSIONS, (LOW, HIGH),
            (
                *(c.k_error_below("HMC", noise, 1.0, 0.05) for noise in (LOW, HIGH)), c.k_sd_grows("HMC"),
                *(c.k_error_below("VI", noise, 1.0, 0.1, below=False) for noise in (LOW, HIGH)),
                *(c.k_error_below("dropout 1%", noise, 1.0, 0.06) for noise in (LOW, HIGH)),
                *(c.k_error_below("dropout 5%", noise, 1.0, 0.1, below=False) for noise in (LOW, HIGH)),
            ),
            truth=1.0, flat=False, told=TOLD_IN_TWO,
        ),
        Comparison(
            "pinn", "a plain PINN against HMC on the inverse problem (Sec. 4)", paper.inverse_reaction_1d,
            ("HMC", "PINN"), ONE_DIMENSION, (LOW, HIGH),
            (
                *c.both_noises(c.fits_readings, "PINN"), c.overfits("PINN", "HMC", HIGH),
                c.k_worse_than("PINN", "HMC", HIGH, 0.7),
            ),
            truth=0.7,
        ),
        Pair(
            "kl", "a Karhunen-Loève field by HMC and a flow, forward and inverse: Table 3 (Sec. 5)",
            Comparison(
                "kl", "forward", paper.nonlinear_1d, ("KL-HMC", "KL-DNF"), FORWARD_FLOW, (LOW, HIGH),
                (*(c.bands_agree("KL-DNF", "KL-HMC", noise) for noise in (LOW, HIGH)), c.sd_grows("KL-HMC")),
                surrogates={"KL-HMC": KL, "KL-DNF": KL},
            ),
            Comparison(
                "kl", "inverse", paper.inverse_reaction_1d, ("KL-HMC", "KL-DNF"), ONE_DIMENSION, (LOW, HIGH),
                (
                    *(c.k_agrees("KL-DNF", "KL-HMC", noise) for noise in (LOW, HIGH)),
                    *(c.bands_agree("KL-DNF", "KL-HMC", noise) for noise in (LOW, HIGH)), c.k_sd_grows("KL-HMC"),
                    *(c.k_within(label, noise, 0.7, 2.0) for label in ("KL-HMC", "KL-DNF") for noise in (LOW, HIGH)),
                ),
                truth=0.7, surrogates={"KL-HMC": KL, "KL-DNF": KL},
            ),
        ),
        PriorCovariance("prior-covariance", "covariance functions of five priors (Appendix A)"),
        Comparison(
            "prior-study", "the regression by HMC with four priors (Appendix A)", paper.regression,
            tuple(PRIORS), dict.fromkeys(PRIORS, ONE_DIMENSION["HMC"]), (HIGH,),
            (
                *(c.bands_agree(label, "(b) 50, 1", HIGH) for label in ("(a) 20, √(5/2)", "(c) 100, √(1/2)")),
                *(c.bands_agree(label, "(b) 50, 1", HIGH, False) for label in ("(d) 20, 1", "(e) 100, 1")),
            ),
            surrogates=PRIORS,
        ),
        Cost(
            "cost", "seconds of PINN, HMC, KL-HMC and KL-DNF on the inverse problem", paper.inverse_reaction_1d,
            ("PINN", "HMC", "KL-HMC", "KL-DNF"), ONE_DIMENSION, (HIGH,),
            (
                c.slower_than("HMC", "PINN", HIGH), c.slower_than("HMC", "KL-HMC", HIGH),
                c.slower_than("KL-DNF", "KL-HMC", HIGH),
            ),
            truth=0.7, surrogates={"KL-HMC": KL, "KL-DNF": KL},
        ),
    )
}  # fmt: skip
