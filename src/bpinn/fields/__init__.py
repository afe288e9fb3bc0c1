"""Surrogates: the prior of a field and its fast derivatives."""

from bpinn.fields.base import Field
from bpinn.fields.mlp import MLP

__all__ = ["MLP", "Field"]
