"""Hamiltonian Monte Carlo with a fixed trajectory length: the paper's Algorithm 1, and the default method."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from blackjax.mcmc import hmc
from jax import Array

from bpinn.methods import warmup
from bpinn.methods.base import check_count, check_number
from bpinn.methods.hamiltonian import Sampler
from bpinn.registry import register


@register("hmc")
@dataclass(frozen=True)
class HMC(Sampler):
    """Hamiltonian Monte Carlo.

    Arguments:
        num_leapfrog: leapfrog steps in a trajectory; by default tuned during warm-up from how well the chains mix, and
            corrected later if necessary.
        jitter: the number of steps of each trajectory is drawn from ``num_leapfrog * (1 ± jitter)``, so that
            no quantity returns to its starting value in every trajectory; 0 keeps the number fixed.
        step_jitter: the step size of each trajectory is drawn from ``(1 - step_jitter, 1)`` times the tuned one, so
            that a chain gets through regions where the tuned one is too large; 0 keeps the step size fixed.
        num_warmup: transitions that tune the step size and are discarded; by default as many as step sizes need to
            settle, at least 350 and at most 600.
        num_draws: draws of each chain after warm-up; by default as many as the run needs to be judged good, at least
            200 and at most ``most_draws``.
        most_draws: upper limit of draws of each chain if ``num_draws`` is not given. If trajectories turn out to be
            too short after warm-up, they are lengthened, and the limit falls accordingly.
        step_size: the initial step size, which dual averaging then adapts.
        target_accept: the acceptance rate that dual averaging aims for.
        mass: "identity" (in units of the prior's standard deviations), or "diagonal", which
            estimates the posterior's variances during warm-up.
        coordinates: "whitened" moves output weights and coefficients as standardised residuals of their conditional
            posterior, an exact change of variables in which chains move much faster; "plain" moves them as they are.
        init: "anneal" starts at a draw from the prior and raises the weight of the likelihood step by step in the
            first part of warm-up (in whitened coordinates, with readings and exact equations: only the weight of the
            equations, from fields that follow the readings); "map" climbs to the mode from small weights; "prior"
            starts at a draw from the prior with the full likelihood.
        init_steps: Adam steps of the climb, for ``init="map"``.
        thin: keep every n-th draw.
        keep: keep only the last n draws of each chain.
        chains: number of chains, if `infer` is not given one.

    Example:
        >>> import bpinn as bp
        >>> bp.HMC.paper().num_leapfrog
        50
    """

    num_leapfrog: int | None = None
    jitter: float = 0.5
    step_jitter: float = 0.4

    def __post_init__(self) -> None:
        if self.num_leapfrog is not None:
            check_count("HMC", "num_leapfrog", self.num_leapfrog)
        check_number("HMC", "jitter", self.jitter, -1e-9, 1.0)
        check_number("HMC", "step_jitter", self.step_jitter, -1e-9, 1.0)
        self._check()

    @classmethod
    def paper(cls, **changes: Any) -> "HMC":
        """The paper's settings: one chain from the prior, 2,000 burn-in steps, the last 10,000 of 15,000 kept."""
        settings = cls(
            num_leapfrog=50, jitter=0.0, step_jitter=0.0, num_warmup=2000, num_draws=15000, keep=10000, init="prior",
            chains=1, coordinates="plain",
        )  # fmt: skip
        return replace(settings, **changes)

    @property
    def finds_length(self) -> bool:
        return self.num_leapfrog is None

    @property
    def first_length(self) -> int:
        return warmup.SETTINGS[self.coordinates].first_length if self.num_leapfrog is None else self.num_leapfrog

    def move(
        self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array, length: Array
    ) -> Any:
        if self.step_jitter:
            key, key_step = jax.random.split(key)
            step_size *= jax.random.uniform(key_step, (), step_size.dtype, 1.0 - self.step_jitter, 1.0)
        if self.jitter:
            key, key_length = jax.random.split(key)
            low, high = (jnp.round(length * (1.0 + sign * self.jitter)).astype(int) for sign in (-1, 1))
            length = jax.random.randint(key_length, (), jnp.maximum(low, 1), high + 1)
        return hmc.build_kernel()(key, state, log_density, step_size, mass, length)
