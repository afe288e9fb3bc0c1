"""Estimators of the posterior: small frozen settings objects."""

from bpinn.methods.base import Method
from bpinn.methods.hmc import HMC
from bpinn.methods.nuts import NUTS

__all__ = ["HMC", "NUTS", "Method"]
