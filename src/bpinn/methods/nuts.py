"""The No-U-Turn sampler."""

from dataclasses import dataclass
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
    num_warmup: int = 500
    num_draws: int = 500
    step_size: float = 0.1
    target_accept: float = 0.8
    mass: str = "diagonal"
    init: str = "anneal"
    init_steps: int = 3000
    thin: int = 1
    keep: int | None = None
    chains: int = 4

    def __post_init__(self) -> None:
        check_count("NUTS", "max_tree_depth", self.max_tree_depth)
        self._check()

    def move(self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array) -> Any:
        return nuts.build_kernel()(key, state, log_density, step_size, mass, self.max_tree_depth)
