"""Surrogates: priors of fields, with fast derivatives."""

from bpinn.fields.base import Field
from bpinn.fields.gaussian_process import GaussianProcess
from bpinn.fields.karhunen_loeve import KarhunenLoeve
from bpinn.fields.kernels import Exponential, Matern32, Matern52, RationalQuadratic, SquaredExponential
from bpinn.fields.mlp import MLP

__all__ = [
    "MLP",
    "Exponential",
    "Field",
    "GaussianProcess",
    "KarhunenLoeve",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "SquaredExponential",
]
