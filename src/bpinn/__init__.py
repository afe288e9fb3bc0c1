"""Bayesian physics-informed neural networks: differential equations from noisy data, with error bars."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bpinn import calibration, likelihoods, paper, predictive, prior, reference
from bpinn.errors import BpinnWarning, InputError
from bpinn.fields import (
    MLP,
    Exponential,
    Field,
    GaussianProcess,
    KarhunenLoeve,
    Matern32,
    Matern52,
    SquaredExponential,
)
from bpinn.forward import ForwardCheck, forward_check
from bpinn.inference import infer
from bpinn.likelihoods import Likelihood
from bpinn.measurements import Average, Difference, Integral, Periodic
from bpinn.methods import HMC, NUTS, PINN, SMC, VI, Dropout, Flow, LastLayer, Method
from bpinn.methods.base import Record, Stage
from bpinn.physics import Physics
from bpinn.posterior import Posterior
from bpinn.prediction import Prediction
from bpinn.problem import Problem, Sensors
from bpinn.registry import register
from bpinn.result import Result
from bpinn.reweighting import sensitivity
from bpinn.run_folder.runs import load

if TYPE_CHECKING:
    from bpinn import plot, report

__version__ = version("bpinn")
__all__ = [
    "HMC",
    "MLP",
    "NUTS",
    "PINN",
    "SMC",
    "VI",
    "Average",
    "BpinnWarning",
    "Difference",
    "Dropout",
    "Exponential",
    "Field",
    "Flow",
    "ForwardCheck",
    "GaussianProcess",
    "InputError",
    "Integral",
    "KarhunenLoeve",
    "LastLayer",
    "Likelihood",
    "Matern32",
    "Matern52",
    "Method",
    "Periodic",
    "Physics",
    "Posterior",
    "Prediction",
    "Problem",
    "Record",
    "Result",
    "Sensors",
    "SquaredExponential",
    "Stage",
    "__version__",
    "calibration",
    "forward_check",
    "infer",
    "likelihoods",
    "load",
    "paper",
    "plot",
    "predictive",
    "prior",
    "reference",
    "register",
    "report",
    "sensitivity",
]


def __getattr__(name: str) -> Any:
    """Import `bpinn.plot` and `bpinn.report` at first use: importing matplotlib takes more than a second."""
    if name in ("plot", "report"):
        return import_module(f"bpinn.{name}")
    raise AttributeError(f"module 'bpinn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
