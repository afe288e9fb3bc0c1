"""The No-U-Turn sampler."""

from dataclasses import dataclass, field
from typing import Any

from blackjax.mcmc import hmc, nuts
from jax import Array

from bpinn.methods.base import check_count
from bpinn.methods.hamiltonian import Sampler


@dataclass(frozen=True)
class NUTS(Sampler):
    """The No-U-Turn sampler. On these posteriors its trees saturate; `HMC` is many times faster.

    Arguments are those of `HMC`, with ``max_tree_depth`` (at most 2 to that power leapfrog steps)
    in the place of ``num_leapfrog``.
    """

    max_tree_depth: int = 10
    num_warmup: int | None = field(default=500, kw_only=True)
    mass: str = field(default="diagonal", kw_only=True)

    def __post_init__(self) -> None:
        check_count("NUTS", "max_tree_depth", self.max_tree_depth)
        self._check()

    def move(
        self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array, length: Array
    ) -> Any:
        return nuts.build_kernel()(key, state, log_density, step_size, mass, self.max_tree_depth)
