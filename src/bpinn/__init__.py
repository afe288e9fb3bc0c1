"""Bayesian physics-informed neural networks: differential equations from noisy data, with error bars."""

from bpinn import paper, plot, prior, reference
from bpinn.errors import BpinnWarning, InputError
from bpinn.fields import MLP, Exponential, KarhunenLoeve, Matern32, Matern52, SquaredExponential
from bpinn.inference import infer
from bpinn.methods import HMC, NUTS, PINN, VI, Dropout, Flow, Method
from bpinn.posterior import Posterior
from bpinn.prediction import Prediction
from bpinn.problem import Problem, Sensors
from bpinn.quantities import Periodic
from bpinn.result import Result
from bpinn.storage import load

__all__ = [
    "HMC",
    "MLP",
    "NUTS",
    "PINN",
    "VI",
    "BpinnWarning",
    "Dropout",
    "Exponential",
    "Flow",
    "InputError",
    "KarhunenLoeve",
    "Matern32",
    "Matern52",
    "Method",
    "Periodic",
    "Posterior",
    "Prediction",
    "Problem",
    "Result",
    "Sensors",
    "SquaredExponential",
    "infer",
    "load",
    "paper",
    "plot",
    "prior",
    "reference",
]
