"""Scales of a field that are numbers, or are inferred: a length, an amplitude, the sd of weights."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bpinn.checks import check_positive, check_prior
from bpinn.errors import InputError

TAIL = 1e-3  # probability that a scale's prior gives to larger values than its posterior's median


class Inferred:
    """A scale that is inferred, with its prior; equal to another one with an equal prior."""

    def __init__(self, prior: dist.Distribution):
        self.prior = prior
        leaves, tree = jax.tree.flatten(prior)
        self.key = type(prior), str(tree), tuple(np.asarray(leaf).tobytes() for leaf in leaves)

    def __repr__(self) -> str:
        return type(self.prior).__name__

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inferred) and self.key == other.key

    def quantile(self, q: float) -> np.ndarray:
        """Of each component; estimated from draws where there is no closed form."""
        with jax.ensure_compile_time_eval():
            try:
                found = np.asarray(self.prior.icdf(jnp.asarray(q)), float)
            except NotImplementedError:
                draws = np.asarray(self.prior.sample(jax.random.key(0), (10_000,)), float)
                found = np.quantile(draws, q, axis=0)
        return np.broadcast_to(found, self.prior.shape())


def scale_of(value: Any, where: str) -> Any:
    """None, a positive number, or a prior on positive numbers."""
    if value is None or isinstance(value, Inferred):
        return value
    if isinstance(value, dist.Distribution):
        check_prior(value, where)
        check_positive(value, where, scalar=False)
        return Inferred(value)
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not 0 < value < np.inf:
        raise InputError(f"{where} must be a positive number or a positive prior, got {value!r}")
    return float(value)


def far_above(scales: Mapping[str, np.ndarray], priors: Mapping[str, dist.Distribution]) -> list[tuple[str, str]]:
    """Scales whose posterior is far above their prior, from draws by name: reasons, each with advice.

    A scale far below its prior makes a flat field, which is harmless.
    """
    found = []
    for name, draws in scales.items():
        expected = np.asarray(priors[name].sample(jax.random.key(0), (4000,)), float).reshape(4000, -1)
        middle = np.median(np.asarray(draws, float).reshape(-1, expected.shape[1]), axis=0)
        for large, typical in zip(middle, expected.T, strict=True):
            if np.mean(typical > large) < TAIL:
                reason = f"its {name} is {large:.2g}, far above what its prior expects ({np.median(typical):.2g})"
                found.append((reason, "check units and boundary data, then a prior with room for this value"))
    return found
