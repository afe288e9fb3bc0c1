"""The No-U-Turn sampler."""

from dataclasses import dataclass
from typing import Any

from blackjax.mcmc import hmc, nuts
from jax import Array

from bpinn.methods.base import check_count
from bpinn.methods.hamiltonian import Sampler
from bpinn.registry import register


@register("nuts")
@dataclass(frozen=True)
class NUTS(Sampler):
    """The No-U-Turn sampler. On neural networks its trees reach the maximum depth, and `HMC` is several times faster.

    Arguments are those of `HMC`, with ``max_tree_depth`` (at most 2 to that power leapfrog steps)
    instead of ``num_leapfrog``, ``jitter`` and ``step_jitter``. ``mass="diagonal"`` gives shorter trees for problems
    with few parameters; a warm-up is too short to estimate the variances of a thousand weights.

    Example:
        >>> import bpinn as bp
        >>> bp.NUTS(max_tree_depth=8).max_tree_depth
        8
    """

    max_tree_depth: int = 10

    def __post_init__(self) -> None:
        check_count("NUTS", "max_tree_depth", self.max_tree_depth)
        self._check()

    def move(
        self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array, length: Array
    ) -> Any:
        return nuts.build_kernel()(key, state, log_density, step_size, mass, self.max_tree_depth)
