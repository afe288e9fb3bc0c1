"""Ensembles of fits: randomised maximum a posteriori estimates, or modes from random starts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from bpinn.errors import InputError
from bpinn.methods.base import Stage, check_count
from bpinn.methods.descent import Descent, Member, Randomised, begun, random_start
from bpinn.methods.frames import noise_levels
from bpinn.methods.members import Grouped, Members, check_size
from bpinn.methods.start import prior_units
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.registry import register

ANCHORED = (
    "an ensemble of randomised fits: exact for linear equations and normal noise, approximate otherwise, and as coarse "
    "as its members are few"
)
MODES = "an ensemble of modes: its spread shows different solutions of the fit, and not the noise of the readings"


@register("ensemble")
@dataclass(frozen=True, kw_only=True)
class Ensemble(Grouped):
    """An ensemble of fits, each of which is one draw.

    An anchored member has its prior centred at a draw of the prior, and its readings perturbed by their noise. Its fit
    is a draw of the posterior if equations are linear and noise and priors normal; otherwise it is an approximation
    that needs no sampler. (Scores take the place of readings where noise is not normal.) Fits are Levenberg-Marquardt
    minimisations, in units of noise and prior.

    Arguments:
        members: number of fits in an ensemble.
        anchored: False fits modes of the posterior from random starts instead, a plain deep ensemble, whose spread is
            not a posterior.
        num_steps: most steps of each fit; converged fits end earlier.
        chains: number of independent ensembles, whose disagreement shows the error of their means.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=surrogate).problem
        >>> result = bp.infer(problem, bp.Ensemble(members=10), seed=0, progress=False)
        >>> result.draws("k").shape, result.diagnose().verdict != "good"
        ((2, 10), True)
    """

    fitted: ClassVar[frozenset[str]] = frozenset({"unsettled"})

    members: int = 20
    anchored: bool = True
    num_steps: int = 200
    chains: int = 2

    def __post_init__(self) -> None:
        check_count("Ensemble", "members", self.members, 2)
        if not isinstance(self.anchored, bool):
            raise InputError(f"Ensemble: anchored must be True or False, got {self.anchored!r}")
        check_count("Ensemble", "num_steps", self.num_steps)
        check_count("Ensemble", "chains", self.chains)

    def check(self, problem: Problem) -> None:
        check_size("Ensemble", problem, "use fewer points for the equations, or bp.HMC()")

    @property
    def group(self) -> int:
        """Number of fits that descend together."""
        return self.members

    @property
    def approximate(self) -> str:
        return ANCHORED if self.anchored else MODES

    def stages(self) -> tuple[Stage, ...]:
        return Descent(self.num_steps, self.num_steps, self), Members(self.members, 0, self)

    def member(self, model: Model, data: Any, key: Array, previous: Any) -> Member:
        key_start, key_shifts = jax.random.split(key)
        start, anchor = random_start(model, data, key_start)
        if not self.anchored:
            return begun(start, None)
        count = sum(len(values) for values in data["values"]) + len(noise_levels(model))
        return begun(start, Randomised(anchor, jax.random.normal(key_shifts, (count,), start.dtype)))

    def plain_vectors(self, model: Model, data: Any, previous: Member) -> Array:
        centre, scale = prior_units(model)
        return centre + scale * jnp.asarray(previous.v)
