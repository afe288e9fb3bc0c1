"""Is a run to be trusted? R-hat and ESS on what the user reads, and a verdict in words.

Weights of a network have symmetries, so their R-hat says nothing. What must agree between chains
are functionals: unknowns, noise, every field and equation at points across the domain, and the
log density.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from arviz_stats.base import array_stats

GOOD_RHAT, CARE_RHAT = 1.01, 1.05
GOOD_ESS, CARE_ESS = 400, 100
# Equations hold derivatives, which move slowly, and are read as bands: a tenth of an sd is enough there.
GOOD_RHAT_EQUATION, CARE_RHAT_EQUATION = 1.05, 1.3
GOOD_ESS_EQUATION, CARE_ESS_EQUATION = 100, 10


@dataclass(frozen=True)
class Convergence:
    """R-hat (rank-normalised, the worse of split and folded) and ESS (the worse of bulk and tail)."""

    names: tuple[str, ...]
    rhat: np.ndarray
    ess: np.ndarray

    def only(self, chosen: np.ndarray) -> "Convergence":
        """The same for some of the functionals."""
        names = tuple(name for name, c in zip(self.names, chosen, strict=True) if c)
        return Convergence(names, self.rhat[chosen], self.ess[chosen])

    def worst(self) -> tuple[str, float, float]:
        """Name and R-hat of the worst functional, and the smallest ESS."""
        i = int(np.argmax(self.rhat))
        return self.names[i], float(self.rhat[i]), float(np.min(self.ess))


def convergence(names: Sequence[str], draws: np.ndarray) -> Convergence:
    """For draws of shape (chains, draws, functionals). A functional that never moves has R-hat infinity."""
    rhat, ess = rhat_of(draws), ess_of(draws)
    return Convergence(tuple(names), rhat, ess)


def rhat_of(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised R-hat along (chains, draws, ...); infinite where chains are frozen."""
    draws = np.asarray(draws, float)
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.inf)
    if draws.shape[0] == 1:  # one chain is compared with itself, first half with second
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, -half:]])
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat = np.asarray(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
    return np.where(np.isfinite(rhat), rhat, np.inf)


def ess_of(draws: np.ndarray) -> np.ndarray:
    """Effective draws for means and tails, the smaller; zero where chains are frozen."""
    draws = np.asarray(draws, float)
    if draws.shape[1] < 4:
        return np.zeros(draws.shape[2:])
    bulk = np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="bulk"))
    tail = np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95)))
    frozen = np.ptp(draws, axis=1).max(axis=0) == 0
    return np.where(frozen, 0.0, np.nan_to_num(np.minimum(bulk, tail)))


@dataclass
class Diagnosis:
    """The health of a run: a verdict, its reasons, and what to try.

    ``verdict`` is "good", "care" (usable with care) or "bad" (do not trust).
    """

    verdict: str
    reasons: list[str]
    advice: list[str]
    convergence: Convergence
    log_density: Convergence
    _order: tuple[str, ...] = field(default=("good", "care", "bad"), repr=False)

    def __str__(self) -> str:
        words = {"good": "good", "care": "usable with care", "bad": "do not trust"}[self.verdict]
        lines = [f"Health: {words}"]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  try: {advice}" for advice in self.advice]
        return "\n".join(lines)

    def worsen(self, verdict: str, reason: str, advice: str | None = None) -> None:
        if self._order.index(verdict) > self._order.index(self.verdict):
            self.verdict = verdict
        self.reasons.append(reason)
        if advice and advice not in self.advice:
            self.advice.append(advice)


MORE = "more draws (num_draws) or longer trajectories (num_leapfrog)"
WARM = "a longer warm-up (num_warmup)"
SMALLER = "a higher target_accept (0.9), which takes smaller steps"


def diagnose(
    names: Sequence[str], functionals: np.ndarray, stats: dict[str, np.ndarray], equations: np.ndarray
) -> Diagnosis:
    """Judge a run of a Markov chain method from its functionals and its sampler's statistics.

    ``equations`` marks the functionals that are equations, of which less is asked.
    """
    found = convergence(names, functionals)
    density = convergence(["log density"], stats["log_density"][..., None])
    health = Diagnosis("good", [], [], found, density)
    _judge_draws(health, functionals)
    _judge_convergence(health, found.only(~equations), (GOOD_RHAT, CARE_RHAT), (GOOD_ESS, CARE_ESS))
    if np.any(equations):
        limits = (GOOD_RHAT_EQUATION, CARE_RHAT_EQUATION), (GOOD_ESS_EQUATION, CARE_ESS_EQUATION)
        _judge_convergence(health, found.only(equations), *limits)
    if "acceptance" in stats:
        _judge_sampler(health, stats)
    if not health.reasons:
        _, rhat, ess = found.only(~equations).worst()
        divergences = int(stats["divergent"].sum()) if "divergent" in stats else 0
        health.reasons.append(
            f"{functionals.shape[0]} chains agree (worst R-hat {rhat:.3f}, smallest ESS {ess:.0f}); "
            f"{divergences or 'no'} divergences"
        )
    return health


def _judge_draws(health: Diagnosis, functionals: np.ndarray) -> None:
    broken = int(np.sum(~np.all(np.isfinite(functionals), axis=(0, 1))))
    if broken:
        health.worsen("bad", f"{broken} monitored quantities have NaN or infinite draws", "check the equations")
    chains, draws = functionals.shape[:2]
    still = np.ptp(functionals, axis=1).max(axis=-1) == 0 if draws > 1 else np.zeros(chains, bool)
    if np.any(still):
        stuck = ", ".join(str(i) for i in np.flatnonzero(still))
        health.worsen("bad", f"chain {stuck} never moved", WARM)
    if chains == 1:
        health.worsen("care", "a single chain cannot show other solutions", "chains=4")


def _judge_convergence(
    health: Diagnosis, found: Convergence, rhats: tuple[float, float], esses: tuple[int, int]
) -> None:
    name, rhat, ess = found.worst()
    poorest = found.names[int(np.argmin(found.ess))]
    if rhat > rhats[1]:
        health.worsen("bad", f"chains disagree: R-hat of {name} is {rhat:.2f} (wanted below {rhats[0]})", MORE)
    elif rhat > rhats[0]:
        health.worsen("care", f"chains nearly agree: R-hat of {name} is {rhat:.3f} (wanted below {rhats[0]})", MORE)
    if ess < esses[1]:
        health.worsen("bad", f"only {ess:.0f} effective draws of {poorest} (wanted {esses[0]})", MORE)
    elif ess < esses[0]:
        health.worsen("care", f"{ess:.0f} effective draws of {poorest} (wanted {esses[0]})", MORE)


def _judge_sampler(health: Diagnosis, stats: dict[str, np.ndarray]) -> None:
    acceptance = stats["acceptance"].mean(axis=1)
    divergent = stats["divergent"].mean()
    if np.any(acceptance < 0.1):
        chain = int(np.argmin(acceptance))
        health.worsen("bad", f"chain {chain} accepts only {acceptance[chain]:.0%} of its proposals", WARM)
    elif np.any(acceptance < 0.4):
        chain = int(np.argmin(acceptance))
        health.worsen("care", f"chain {chain} accepts {acceptance[chain]:.0%} of its proposals", WARM)
    count = int(stats["divergent"].sum())
    if divergent > 0.02:
        health.worsen("bad", f"{count} divergent transitions ({divergent:.1%})", SMALLER)
    elif divergent > 0.005:
        health.worsen("care", f"{count} divergent transitions ({divergent:.1%})", SMALLER)
    steps = stats["step_size"][:, -1]
    typical = np.median(steps)
    collapsed = steps < 0.02 * typical
    if np.any(collapsed):
        chain = int(np.argmin(steps))
        health.worsen("bad", f"the step size of chain {chain} collapsed to {steps[chain]:.1e}", WARM)
