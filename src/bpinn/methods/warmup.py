"""The policy of HMC and NUTS: when chains pause, and what is decided from all of them together.

Warm-up has three parts: the likelihood is annealed to its full weight; pilot runs set the trajectory length; rounds
follow until step sizes have settled. Then come rounds of draws until there are enough. All of this is host code on
arrays, so it can be tested without a sampler.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bpinn import convergence
from bpinn.methods.base import Decision, Pause, Policy
from bpinn.run_output import SamplerStats


@dataclass(frozen=True)
class WarmupSettings:
    """The constants of the policy. Steps are transitions of a chain; lengths are leapfrog steps of a trajectory."""

    # Annealing
    annealed_share: float = 0.6  # share of the tuning steps in which the likelihood is annealed
    held_share: float = 0.8  # share of the rest of tuning in which inferred noise levels are still held at small values
    step_size_memory: int = 30  # steps over which dual averaging looks back during annealing
    fewest_for_variances: int = 20  # positions needed to estimate a mass matrix
    # A chain is lost if at the end of annealing its log density is below another's by more than both of these, the
    # second for each parameter: its region is then so improbable that no volume makes up for it.
    lost_by: float = 100.0
    lost_by_parameter: float = 2.0
    # The same at the last pause before inferred noise levels are released: chains that do not fit by then would explain
    # the readings by noise.
    lost_later_by_parameter: float = 0.5
    most_restarts: int = 3  # of a lost chain
    # The trajectory length
    pilots: int = 3  # pilot runs at the end of tuning; each sets the length
    fewest_in_pilot: int = 20
    first_length: int = 200
    shortest: int = 25
    longest: int = 16000
    most_grown: float = 4.0  # largest factor by which the length changes at once
    most_shrunk: float = 0.5  # and the smallest
    far_too_short: float = 1.5  # after the pilot runs, the length is changed only by more than this factor
    # End of warm-up, if num_warmup is not given: when step sizes no longer shrink from the first to the second half of
    # a round, neither on average over chains (of the logarithm) nor strongly in any single chain.
    least_warmup: int = 300
    warmup_round: int = 50
    most_warmup: int = 600
    shrinking: float = 0.05
    shrinking_any: float = 0.2
    # Draws, if num_draws is not given
    least_draws: int = 200
    draws_round: int = 50
    # Corrections after warm-up, at this interval in draws: longer trajectories if they are still far too short, and
    # shorter steps if more than this share of the transitions diverge.
    correction_every: int = 200
    most_divergent: float = 0.005
    fewest_divergent: int = 3
    step_shortening: float = 0.75
    corrected_cost: float = 1.25  # gradients per draw relative to the first draws: more than jitter can cause
    least_cost: float = 0.0  # if the first draws took fewer gradients than this, the limit is that many for each


# By coordinates: in whitened ones steps are many times longer, and trajectories shorter.
SETTINGS = {"plain": WarmupSettings(), "whitened": WarmupSettings(first_length=12, shortest=6, least_cost=300.0)}


class Adjustment(NamedTuple):
    """How chains change: factors on the trajectory length and the step size, and an upper limit of the step size."""

    length_factor: float
    largest_step: float | None
    step_factor: float = 1.0


@dataclass(frozen=True)
class HamiltonianPolicy(Policy):
    """Reviews of HMC and NUTS.

    ``anneals``, ``finds_length``, ``adapts_warmup`` and ``adapts_draws`` say what the policy decides. Warm-up then
    takes at most ``num_warmup`` steps, and the whole run at most ``num_steps``.
    """

    settings: WarmupSettings
    num_warmup: int
    num_steps: int
    anneals: bool
    finds_length: bool
    adapts_warmup: bool
    adapts_draws: bool

    @property
    def tuning(self) -> int:
        """Steps in which the likelihood is annealed and the length tuned: all of warm-up, if its length is given."""
        return self.settings.least_warmup if self.adapts_warmup else self.num_warmup

    @property
    def last_annealed(self) -> int:
        """The step at which the likelihood reaches its full weight."""
        return max(int(self.settings.annealed_share * self.tuning), 1)

    @property
    def last_held(self) -> int:
        """The step at which inferred noise levels are free: fields have had time to fit by then.

        If warm-up does not go on after tuning, part of it is left for the noise.
        """
        share = self.settings.held_share if self.adapts_warmup else 0.5
        return max(self.last_annealed + int(share * (self.tuning - self.last_annealed)), self.last_look)

    @property
    def pilot(self) -> int:
        """Steps in each pilot run; 0 if they would be too few to be informative."""
        begin = self.last_annealed if self.anneals else self.tuning // 2
        size = (self.tuning - begin) // self.settings.pilots
        return size if self.finds_length and size >= self.settings.fewest_in_pilot else 0

    @property
    def first_look(self) -> int:
        """The step at which lost chains are detected: the likelihood then has its full weight."""
        full = self.last_annealed + 1
        return max(self.tuning - self.settings.pilots * self.pilot, full) if self.pilot else full

    @property
    def last_look(self) -> int:
        """The last pause at which noise levels are still held; the first look if there is none after it."""
        return max(self.tuning - self.pilot, self.first_look) if self.pilot else self.first_look

    def next_pause(self, done: int) -> int:
        if self.anneals and done < self.first_look:
            return self.first_look
        if done < self.tuning and (self.pilot or self.adapts_warmup):
            left = min(self.settings.pilots, (self.tuning - done - 1) // self.pilot) if self.pilot else 0
            return self.tuning - left * self.pilot
        if done < self.num_warmup and self.adapts_warmup:
            return min(done + self.settings.warmup_round, self.num_warmup)
        if self.adapts_draws:
            least = self.num_warmup + self.settings.least_draws
            return min(max(done + self.settings.draws_round, least), self.num_steps)
        return self.num_steps

    def review(self, pause: Pause) -> Decision:
        """Which chains are lost; how trajectories and steps change; whether warm-up or the run can end."""
        if pause.done > self.num_warmup:
            return self._review_draws(pause)
        if self.anneals and pause.done == self.first_look:
            return Decision(lost=self._lost(pause, self.settings.lost_by_parameter))
        if self.anneals and pause.done == self.last_look:
            lost = self._lost(pause, self.settings.lost_later_by_parameter)
            if lost:
                return Decision(lost=lost)
        steps = _step_sizes(pause.stats)
        # If readings do not fit at all, no time is spent on more warm-up, longer trajectories or more draws.
        settled = self._settled(steps) or convergence.is_hopeless(pause.stats.misfit)
        warm = pause.done == self.num_warmup or (pause.done > self.tuning and settled)
        # No chain keeps a larger step size than the others: it would get stuck where steps have to be small.
        largest = _geometric_mean(steps) if warm and self.adapts_warmup else None
        return Decision(Adjustment(self._length_factor(pause), largest), warm)

    def _lost(self, pause: Pause, by_parameter: float) -> tuple[int, ...]:
        """The chains whose log density is far below the best, or not finite.

        In the coordinates that they move in: with inferred lengths, the plain density of an expansion's coefficients
        differs by hundreds between chains that fit equally well, because shorter lengths have smaller coefficients.
        """
        log_densities = pause.stats.sampler_log_density[:, -1]
        known = np.where(np.isfinite(log_densities), log_densities, -np.inf)
        below = known < known.max() - max(self.settings.lost_by, by_parameter * pause.dim)
        return tuple(int(i) for i in np.flatnonzero(below))

    def _length_factor(self, pause: Pause) -> float:
        """The factor by which trajectories should be longer, from those since the last pause."""
        pilots = self.settings.pilots * self.pilot
        if not pilots or pause.done <= self.tuning - pilots or convergence.is_hopeless(pause.stats.misfit):
            return 1.0
        # Below the optimal length the ESS of a draw grows with the square of the length, so this factor would give the
        # ESS per draw that is aimed for.
        factor = np.sqrt(convergence.shortfall(pause.functionals, pause.is_secondary))
        factor = np.clip(factor, self.settings.most_shrunk, self.settings.most_grown)
        return 1.0 if pause.done > self.tuning and factor < self.settings.far_too_short else float(factor)

    def _settled(self, step_sizes: np.ndarray) -> bool:
        """Whether the step sizes of a round of warm-up, (chains, steps), have stopped shrinking.

        Chains that are still moving into stiffer regions of the posterior need ever smaller steps.
        """
        logs = _logs(step_sizes)
        half = logs.shape[1] // 2
        grown = logs[:, half:].mean(axis=1) - logs[:, :half].mean(axis=1)
        return bool(grown.mean() > -self.settings.shrinking and grown.min() > -self.settings.shrinking_any)

    def _review_draws(self, pause: Pause) -> Decision:
        """Decide whether there are enough draws, and correct the sampler if there are still not enough after many:
        trajectories may be too short for slow quantities, or steps too long for a region of the posterior that warm-up
        did not reach. A correction does not make a run longer: draws end when as many gradients have been spent as the
        maximum number of draws would have cost without it.
        """
        functionals, stats, s = pause.functionals, pause.stats, self.settings
        if convergence.is_hopeless(pause.stats.misfit) or convergence.enough(functionals, pause.is_secondary):
            return Decision(enough=True)
        if not self.finds_length or stats.gradients is None or stats.divergent is None:
            return Decision()
        spent = stats.gradients.mean(axis=0)
        at_first, now = spent[: s.correction_every].mean(), spent[-s.draws_round :].mean()
        left = (self.num_steps - self.num_warmup) * max(at_first, s.least_cost) - spent.sum()
        over = bool(now > s.corrected_cost * at_first and left <= 0)
        draws = pause.done - self.num_warmup
        if over or draws % s.correction_every or not np.all(np.isfinite(functionals)):
            return Decision(enough=over)
        recent = slice(-s.correction_every, None)
        diverged = stats.divergent[:, recent]
        too_many = diverged.sum() > max(s.most_divergent * diverged.size, s.fewest_divergent)
        shorter = s.step_shortening if too_many else 1.0
        factor = np.sqrt(convergence.shortfall(functionals[:, recent], pause.is_secondary))
        longer = (factor if factor > s.far_too_short else 1.0) / shorter
        longer = min(longer, s.most_grown * at_first / now, left / (s.draws_round * now))
        return Decision(Adjustment(float(longer), None, shorter) if longer > 1.0 else None)


def _step_sizes(stats: SamplerStats) -> np.ndarray:
    assert stats.step_size is not None
    return stats.step_size


def _geometric_mean(step_sizes: np.ndarray) -> float:
    """Over all chains in the second half of a round, (chains, steps)."""
    return float(np.exp(_logs(step_sizes)[:, step_sizes.shape[1] // 2 :].mean()))


def _logs(step_sizes: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(step_sizes, np.finfo(float).tiny))
