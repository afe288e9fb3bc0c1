"""Can a run be trusted? A verdict with reasons and advice, for chains."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bpinn.advice import CULPRITS
from bpinn.convergence import (
    CARE_ESS,
    CARE_ESS_SECONDARY,
    CARE_RHAT,
    CARE_RHAT_SECONDARY,
    GOOD_ESS,
    GOOD_ESS_SECONDARY,
    GOOD_RHAT,
    GOOD_RHAT_SECONDARY,
    Convergence,
    branches,
    convergence,
    is_hopeless,
)
from bpinn.run_output import RunOutput, SamplerStats
from bpinn.shown import Shown

GOOD_DIVERGENT, CARE_DIVERGENT = 0.02, 0.1  # some are expected: step sizes go up to the limit of stability

LOG_DENSITY = (
    "The log density sums over all parameters of the fields, including those that no reading determines, which move "
    "slowly: its R-hat may be far from 1 although fields, equations and unknowns agree, and the verdict does not use it"
)
VERDICTS = {"good": "good", "care": "usable with care", "bad": "do not trust"}  # as people read them


@dataclass
class Diagnosis(Shown):
    """The health of a run: a verdict, the reasons for it, and what to try.

    ``verdict`` is "good", "care" (usable with care) or "bad" (do not trust). ``convergence`` is that of Markov chains;
    ``branches`` groups the chains that are on the same solution, if there is more than one solution;
    ``khat`` is the Pareto shape of an approximation's importance weights: below 0.7 it is close to the posterior.
    ``is_hopeless`` says that readings do not fit at all in any chain, so that the run was ended early.
    ``check`` compares the readings with the posterior's predictions (see `bpinn.predictive`); ``noted`` holds the
    findings about readings, each as verdict, reason and advice.
    """

    verdict: str
    reasons: list[str]
    advice: list[str]
    convergence: Convergence | None = None
    log_density: Convergence | None = None
    khat: float | None = None
    branches: tuple[tuple[int, ...], ...] = ()
    is_hopeless: bool = False
    check: Any = None
    noted: list[tuple[str, str, str | None]] = field(default_factory=list, repr=False)
    _order: tuple[str, ...] = field(default=("good", "care", "bad"), repr=False)

    def __str__(self) -> str:
        lines = [f"Health: {VERDICTS[self.verdict]}"]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  try: {advice}" for advice in self.advice]
        return "\n".join(lines)

    def note(self, verdict: str, reason: str, advice: str | None = None) -> None:
        """Worsen the verdict for a finding about the readings rather than the draws."""
        self.noted.append((verdict, reason, advice))
        self.worsen(verdict, reason, advice)

    def worsen(self, verdict: str, reason: str, advice: str | None = None) -> None:
        if self._order.index(verdict) > self._order.index(self.verdict):
            self.verdict = verdict
        self.reasons.append(reason)
        if advice and advice not in self.advice:
            self.advice.append(advice)


MORE = "more draws (num_draws, most_draws), a longer warm-up (num_warmup) or longer trajectories (num_leapfrog)"
WARM = "a longer warm-up (num_warmup)"
WEIGH = "bp.SMC(), which estimates their probabilities; or sensors that distinguish them"  # in full in `design.several`
SMALLER = "a higher target_accept (0.9), which takes smaller steps"


def diagnose_chains(run: RunOutput) -> Diagnosis:
    """Judge Markov chains from their functionals and their sampler's statistics."""
    names, functionals, stats, secondary = run.names, run.functionals, run.stats, run.is_secondary
    found = convergence(names, functionals)
    density = convergence(["log density"], stats.log_density[..., None])
    health = Diagnosis("good", [], [], found, density)
    judge_finite(health, functionals)
    if stats.misfit is not None and is_hopeless(stats.misfit):
        _tell_hopeless(health, stats.misfit)
        return health
    _judge_moves(health, functionals)
    groups = branches(functionals, secondary)
    if len(groups) > 1:
        _tell_branches(health, groups, names, functionals, secondary, stats.log_density)
    for group in groups:
        part = convergence(names, functionals[list(group)]) if len(groups) > 1 else found
        where = f" among {_chains(group)}" if len(groups) > 1 else ""
        _judge_convergence(health, part.only(~secondary), (GOOD_RHAT, CARE_RHAT), (GOOD_ESS, CARE_ESS), where)
        if np.any(secondary):
            limits = (GOOD_RHAT_SECONDARY, CARE_RHAT_SECONDARY), (GOOD_ESS_SECONDARY, CARE_ESS_SECONDARY)
            _judge_convergence(health, part.only(secondary), *limits, where)
    _judge_sampler(health, stats)
    if not health.reasons:
        _, rhat, ess = found.only(~secondary).worst()
        agree = f"{functionals.shape[0]} chains agree (worst R-hat {rhat:.3f}, smallest ESS {ess:.0f})"
        divergences = "" if stats.divergent is None else f"; {int(stats.divergent.sum()) or 'no'} divergences"
        health.reasons.append(agree + divergences)
    restarted = [] if stats.restarts is None else [i for i, row in enumerate(stats.restarts) if np.any(row)]
    if restarted:
        health.reasons.append(
            f"{_chains(restarted)} restarted during warm-up: lost in a region where almost nothing fits"
        )
    return health


def _judge_moves(health: Diagnosis, functionals: np.ndarray) -> None:
    chains, draws = functionals.shape[:2]
    still = np.ptp(functionals, axis=1).max(axis=-1) == 0 if draws > 1 else np.zeros(chains, bool)
    if np.any(still):
        health.worsen("bad", f"{_chains(np.flatnonzero(still).tolist())} never moved", WARM)
    if chains == 1:
        health.worsen("care", "a single chain cannot show other solutions", "chains=4")


def _tell_hopeless(health: Diagnosis, misfit: np.ndarray) -> None:
    """Where readings do not fit at all, chains hardly move or are far from each other; the model comes first."""
    health.is_hopeless = True
    typical = float(np.sqrt(np.min(np.median(misfit, axis=1))))
    health.worsen(
        "bad",
        f"nothing fits, in none of the chains: readings or equations are typically {typical:.0f} times their noise or "
        "tolerance off, so sampling ended early, before chains agree",
        CULPRITS,
    )


def _chains(group: Sequence[int]) -> str:
    return f"chain{'s' if len(group) > 1 else ''} {', '.join(str(i) for i in group)}"


def _tell_branches(
    health: Diagnosis,
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    functionals: np.ndarray,
    secondary: np.ndarray,
    log_density: np.ndarray,
) -> None:
    health.branches = tuple(tuple(group) for group in groups)
    total = sum(len(group) for group in groups)
    first = functionals[list(groups[0])]
    *others, last = [f"{len(group) / total:.0%}" for group in groups]
    shares = f"{', '.join(others)} and {last}"
    health.worsen("bad", f"the chains are on {len(groups)} solutions, {shares} of them on each")
    for group in groups[1:]:
        where = difference(names, functionals[list(group)], first, secondary)
        densities = " against ".join(f"{log_density[list(g)].mean():.0f}" for g in (group, groups[0]))
        health.worsen(
            "bad",
            f"{len(group)} of {total} chains found another solution ({_chains(group)}): they differ most in {where}; "
            f"mean log density {densities}; the number of chains does not say how probable each is",
            WEIGH,
        )


def difference(names: Sequence[str], one: np.ndarray, other: np.ndarray, secondary: np.ndarray) -> str:
    """Where two groups of draws, (..., draws, functionals), differ most, such as 'u at x=0.5 (1.2 against -0.3)'.

    All points of a field share one scale, so that the point is the one where the field differs most.
    """
    means = [np.asarray(part, float).reshape(-1, len(names)).mean(axis=0) for part in (one, other)]
    apart = np.abs(means[0] - means[1])
    owners = np.array([name.split(" at ")[0] for name in names])
    spread = [np.asarray(part, float).reshape(-1, len(names)).std(axis=0) for part in (one, other)]
    size = np.max([*np.abs(means), *spread], axis=0)
    scale = np.array([size[owners == owner].max() for owner in owners])
    i = int(np.argmax(np.where(secondary, -1.0, apart / np.maximum(scale, np.finfo(float).tiny))))
    return f"{names[i]} ({means[0][i]:.3g} against {means[1][i]:.3g})"


def _judge_convergence(
    health: Diagnosis, found: Convergence, rhats: tuple[float, float], esses: tuple[int, int], where: str
) -> None:
    name, rhat, ess = found.worst()
    poorest = found.names[int(np.argmin(found.ess))]
    if rhat > rhats[1]:
        health.worsen(
            "bad", f"chains disagree{where}: R-hat of {name} is {rhat:.2f} (should be below {rhats[0]})", MORE
        )
    elif rhat > rhats[0]:
        reason = f"chains nearly agree{where}: R-hat of {name} is {rhat:.3f} (should be below {rhats[0]})"
        health.worsen("care", reason, MORE)
    if ess < esses[1]:
        health.worsen(
            "bad", f"only {ess:.0f} effective draws{where} of {poorest} (should be at least {esses[0]})", MORE
        )
    elif ess < esses[0]:
        health.worsen("care", f"{ess:.0f} effective draws{where} of {poorest} (should be at least {esses[0]})", MORE)


def _judge_sampler(health: Diagnosis, stats: SamplerStats) -> None:
    """Judge the sampler's own statistics, as far as it records any."""
    if stats.acceptance is not None:
        acceptance = stats.acceptance.mean(axis=1)
        chain = int(np.argmin(acceptance))
        if acceptance[chain] < 0.1:
            health.worsen("bad", f"chain {chain} accepts only {acceptance[chain]:.0%} of its proposals", WARM)
        elif acceptance[chain] < 0.4:
            health.worsen("care", f"chain {chain} accepts {acceptance[chain]:.0%} of its proposals", WARM)
    if stats.divergent is not None:
        divergent, count = stats.divergent.mean(), int(stats.divergent.sum())
        if divergent > CARE_DIVERGENT:
            health.worsen("bad", f"{count} divergent transitions ({divergent:.1%})", SMALLER)
        elif divergent > GOOD_DIVERGENT:
            health.worsen("care", f"{count} divergent transitions ({divergent:.1%})", SMALLER)
    if stats.step_size is not None:
        steps = stats.step_size[:, -1]
        if np.any(steps < 0.02 * np.median(steps)):
            chain = int(np.argmin(steps))
            health.worsen("bad", f"the step size of chain {chain} collapsed to {steps[chain]:.1e}", WARM)


def judge_finite(health: Diagnosis, functionals: np.ndarray) -> None:
    broken = int(np.sum(~np.all(np.isfinite(functionals), axis=(0, 1))))
    if broken:
        health.worsen("bad", f"{broken} monitored quantities have NaN or infinite draws", "check the equations")
