"""Bayesian physics-informed neural networks: differential equations from noisy data, with error bars."""

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; at run time `__getattr__` imports a name when it is first used
    from bpinn import calibration, likelihoods, paper, plot, predictive, prior, reference, report
    from bpinn.design import NextSensor, Separation, next_sensor
    from bpinn.errors import BpinnWarning, InputError
    from bpinn.fields import (
        MLP,
        Exponential,
        Field,
        GaussianProcess,
        KarhunenLoeve,
        Matern32,
        Matern52,
        RationalQuadratic,
        SquaredExponential,
    )
    from bpinn.finding import FoundSolution, FoundSolutions, find_solutions
    from bpinn.forward import ForwardCheck, forward_check
    from bpinn.inference import infer
    from bpinn.likelihoods import Likelihood
    from bpinn.measurements import Average, Difference, Integral, Periodic
    from bpinn.methods import (
        HMC,
        NUTS,
        PINN,
        SGHMC,
        SMC,
        SVGD,
        VI,
        Collapsed,
        Dropout,
        Ensemble,
        EnsembleKalman,
        Flow,
        Laplace,
        LastLayer,
        Method,
    )
    from bpinn.methods.base import Record, Stage
    from bpinn.physics import Physics
    from bpinn.posterior import Posterior
    from bpinn.prediction import Prediction
    from bpinn.problem import Problem, Sensors
    from bpinn.registry import register
    from bpinn.result import Result
    from bpinn.reweighting import sensitivity
    from bpinn.run_folder.runs import load

    __version__: str

# The module of each public name that is not a module itself; a test compares it with the imports above.
_HOMES = {
    name: module
    for module, names in {
        "design": "NextSensor Separation next_sensor",
        "errors": "BpinnWarning InputError",
        "fields": "MLP Exponential Field GaussianProcess KarhunenLoeve Matern32 Matern52 "
        "RationalQuadratic SquaredExponential",
        "finding": "FoundSolution FoundSolutions find_solutions",
        "forward": "ForwardCheck forward_check",
        "inference": "infer",
        "likelihoods": "Likelihood",
        "measurements": "Average Difference Integral Periodic",
        "methods": "HMC NUTS PINN SGHMC SMC SVGD VI Collapsed Dropout Ensemble EnsembleKalman Flow Laplace LastLayer "
        "Method",
        "methods.base": "Record Stage",
        "physics": "Physics",
        "posterior": "Posterior",
        "prediction": "Prediction",
        "problem": "Problem Sensors",
        "registry": "register",
        "result": "Result",
        "reweighting": "sensitivity",
        "run_folder.runs": "load",
    }.items()
    for name in names.split()
}
__all__ = [
    "HMC",
    "MLP",
    "NUTS",
    "PINN",
    "SGHMC",
    "SMC",
    "SVGD",
    "VI",
    "Average",
    "BpinnWarning",
    "Collapsed",
    "Difference",
    "Dropout",
    "Ensemble",
    "EnsembleKalman",
    "Exponential",
    "Field",
    "Flow",
    "ForwardCheck",
    "FoundSolution",
    "FoundSolutions",
    "GaussianProcess",
    "InputError",
    "Integral",
    "KarhunenLoeve",
    "Laplace",
    "LastLayer",
    "Likelihood",
    "Matern32",
    "Matern52",
    "Method",
    "NextSensor",
    "Periodic",
    "Physics",
    "Posterior",
    "Prediction",
    "Problem",
    "RationalQuadratic",
    "Record",
    "Result",
    "Sensors",
    "Separation",
    "SquaredExponential",
    "Stage",
    "__version__",
    "calibration",
    "find_solutions",
    "forward_check",
    "infer",
    "likelihoods",
    "load",
    "next_sensor",
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
    """Import a name at its first use: JAX takes a second or two, and `bpinn --help` does not need it."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("bpinn")
    elif name in _HOMES:
        value = getattr(import_module(f"bpinn.{_HOMES[name]}"), name)
    elif name.startswith("_") or util.find_spec(f"bpinn.{name}") is None:
        raise AttributeError(f"module 'bpinn' has no attribute {name!r}")
    else:
        value = import_module(f"bpinn.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
