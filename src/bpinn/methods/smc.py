"""Tempered sequential Monte Carlo: a population moves from the prior to the posterior, and weights its solutions.

A Markov chain on one of several solutions rarely finds another, and several chains cannot tell how probable each
solution is. Here particles are drawn from the prior, and the weight of the likelihood is raised in tempering steps: at
each step, particles are weighted by the increase of the likelihood, resampled, and moved by Hamiltonian Monte Carlo.
The share of particles on a solution is its probability, and the weights give the evidence (Del Moral et al. 2006). All
states on the way of a moved particle are particles (Dau and Chopin 2022), so that no gradient is wasted.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jax import Array

from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.methods.base import Method, Record, Stage, check_choice, check_count, check_number
from bpinn.methods.tempering import COORDINATES, Population, Tempering
from bpinn.model import Model
from bpinn.populations import HOPELESS, agreement, diagnose_particles, is_reached, weights_of
from bpinn.registry import register
from bpinn.run_output import RunOutput, SamplerStats

MOST_LEAPFROG = {"whitened": 20, "plain": 100}  # steps in a trajectory, unless given: steps are longer if whitened


@dataclass(frozen=True)
class Particles(Stage):
    """Returns the particles, one after another, as draws."""

    name: ClassVar[str] = "draws"
    settings: "SMC"

    def init(self, model: Model, data: Any, key: Array, previous: Population) -> Population:
        return previous

    def step(self, model: Model, data: Any, state: Population, key: Array, step: Array) -> tuple[Population, Record]:
        z = state.particles[step]
        stats = {
            "log_density": model.log_density(z, data),
            "log_evidence": state.log_evidence,
            "ancestor": state.ancestors[step],
        }
        return state, Record(z, model.functionals(z, data), stats)

    def position(self, state: Population) -> Population:
        return state


@register("smc")
@dataclass(frozen=True, kw_only=True)
class SMC(Method):
    """Tempered sequential Monte Carlo, for equations with several solutions: it estimates how probable each one is.

    About ten times slower than `HMC`, without advantage if there is only one solution. ``result.modes()`` gives the
    solutions with their probabilities, ``result.stats["log_evidence"]`` the log evidence of each population.

    Several populations run independently, and are weighted by their evidence. Their disagreement gives the standard
    deviations of the probabilities, and populations are added until these are at most 0.03, the means of fields and
    unknowns known to 0.15 posterior sds, and the evidence to a quarter. A solution that no population has found is not
    in these errors.

    With ``infer(..., start=result)`` the verdict says which solutions of another result the populations have found.
    Particles are always drawn from the prior: on the way from a mixture of the prior and of known solutions to the
    posterior, a solution that is not known would lose nearly all its particles, whatever its probability, because
    known ones fit from the beginning.

    Arguments:
        particles: number of particles in a population; each becomes a draw.
        num_moves: trajectories of Hamiltonian Monte Carlo after each tempering step.
        waste_free: whether every state on the way is a particle, so that ``particles / num_moves`` of them are moved;
            False moves all of them, and keeps the last states only.
        num_leapfrog: most leapfrog steps in a trajectory; with large step sizes fewer are used. By default 20, or 100
            in plain coordinates, where steps are shorter.
        coordinates: "whitened" moves output weights and coefficients as standardised residuals of their conditional
            posterior, as in `HMC`; "plain" moves them as they are.
        share: share of the particles that must stay effective in a tempering step; values near one lead to many small
            steps.
        target_accept: the acceptance rate that step sizes aim for.
        most_steps: most tempering steps; the run ends there even if the posterior is not reached.
        chains: number of independent populations to begin with.
        most_chains: as many are added as there are, until they agree, up to this number.

    Example:
        ``for mode in bp.infer(problem, bp.SMC(), seed=0).modes(): print(mode)``
    """

    fewer: ClassVar[str] = "fewer particles"
    unit: ClassVar[str] = "population"
    is_markov: ClassVar[bool] = False
    takes_statistics: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "log_evidence", "ancestor"})
    fitted: ClassVar[frozenset[str]] = frozenset({"weight"})
    before: ClassVar[dict[str, Any]] = {"coordinates": "plain", "waste_free": False, "most_chains": 1}

    particles: int = 600
    num_moves: int = 6
    waste_free: bool = True
    num_leapfrog: int | None = None
    coordinates: str = "whitened"
    share: float = 0.5
    target_accept: float = 0.8
    most_steps: int = 2000
    chains: int = 8
    most_chains: int = 32

    def __post_init__(self) -> None:
        check_count("SMC", "particles", self.particles, 20)
        for name in ("num_moves", "most_steps", "chains", "most_chains"):
            check_count("SMC", name, getattr(self, name))
        if self.num_leapfrog is not None:
            check_count("SMC", "num_leapfrog", self.num_leapfrog)
        if not isinstance(self.waste_free, bool):
            raise InputError(f"SMC: waste_free must be True or False, got {self.waste_free!r}")
        check_choice("SMC", "coordinates", self.coordinates, tuple(COORDINATES))
        check_number("SMC", "share", self.share, 0.0, 1.0)
        check_number("SMC", "target_accept", self.target_accept, 0.0, 1.0)

    @property
    def most_leapfrog(self) -> int:
        """``num_leapfrog``, or its default in these coordinates."""
        return MOST_LEAPFROG[self.coordinates] if self.num_leapfrog is None else self.num_leapfrog

    @property
    def starts(self) -> int:
        """How many particles are moved in a tempering step."""
        return -(-self.particles // self.num_moves) if self.waste_free else self.particles

    def stages(self) -> tuple[Stage, ...]:
        return Tempering(self.most_steps, self.most_steps, self), Particles(self.particles, 0, self)

    def judge(self, run: RunOutput) -> Diagnosis:
        return diagnose_particles(run)

    def more_chains(self, run: RunOutput) -> int:
        """As many populations again, until they agree; none if even many would not help."""
        count = run.functionals.shape[0]
        found = agreement(run) if self.most_chains > count and is_reached(run) else None
        if found is None or found.is_good or found.spread > HOPELESS:
            return 0
        return min(count, self.most_chains - count)

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        """Populations are weighted by their evidence."""
        assert stats.log_evidence is not None
        return weights_of(stats.log_evidence[:, 0])

    def weights_in_mixture(self, stats: SamplerStats) -> np.ndarray | None:
        assert stats.log_evidence is not None
        return weights_of(stats.log_evidence[:, 0])
