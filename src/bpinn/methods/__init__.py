"""Inference methods, as frozen settings objects."""

from bpinn.methods.base import Method
from bpinn.methods.collapsed import Collapsed
from bpinn.methods.dropout import Dropout
from bpinn.methods.ensemble import Ensemble
from bpinn.methods.ensemble_kalman import EnsembleKalman
from bpinn.methods.flow import Flow
from bpinn.methods.hmc import HMC
from bpinn.methods.laplace import Laplace
from bpinn.methods.last_layer import LastLayer
from bpinn.methods.nuts import NUTS
from bpinn.methods.pinn import PINN
from bpinn.methods.sghmc import SGHMC
from bpinn.methods.smc import SMC
from bpinn.methods.svgd import SVGD
from bpinn.methods.vi import VI

__all__ = [
    "HMC", "NUTS", "PINN", "SGHMC", "SMC", "SVGD", "VI", "Collapsed", "Dropout", "Ensemble", "EnsembleKalman", "Flow",
    "Laplace", "LastLayer", "Method",
]  # fmt: skip
