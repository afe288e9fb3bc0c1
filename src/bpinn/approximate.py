"""Verdicts on draws that are approximate and have no density: ensembles of fits and moved particles."""

import numpy as np

from bpinn.convergence import rhat_of
from bpinn.diagnostics import EXACT, FIT_BAD_RHAT, FIT_RHAT, STEPS, Diagnosis, judge_finite
from bpinn.run_output import RunOutput, SamplerStats

CHANCE = 20.0  # R-hat**2 - 1 of few independent draws exceeds this over their number only rarely, among many quantities
OUTLYING = 5.0  # misfit a reading, in units of the median, above which a member does not fit
MOST_OUTLYING = 0.2  # share of such members above which the draws are not to be trusted
LEFT_OUT = 0.2  # precision of the data, in units of the prior's, below which a direction may be left out
CARE_VIRIAL, BAD_VIRIAL = 1.5, 4.0  # ratio to the posterior's, or its inverse


def diagnose_group(run: RunOutput, unit: str, approximate: str) -> Diagnosis:
    """Judge groups of members, (groups, members, ...): approximate at best, for the reason that the method gives."""
    health = Diagnosis("good", [], [])
    judge_finite(health, run.functionals)
    judge_end(health, run.history, run.functionals.shape[0] * run.functionals.shape[1])
    _judge_outliers(health, run.stats["misfit"])
    _judge_agreement(health, run, unit)
    _judge_spread(health, run.stats["virial"])
    health.worsen("care", approximate, EXACT)
    return health


def judge_end(health: Diagnosis, history: dict[str, np.ndarray], fits: int) -> None:
    """Whether descents converged and tempering reached the posterior, for methods that do either."""
    if "unsettled" in history:
        left = round(float(np.mean(_last(history["unsettled"]))) * fits)
        if left:
            health.worsen("care", f"{left} of {fits} fits have not converged", STEPS)
    if "weight" in history:
        reached = float(np.nanmin(_last(history["weight"])))
        if reached < 1.0:
            reason = f"the posterior was not reached: tempering ended at likelihood weight {reached:.2g} (should be 1)"
            health.worsen("bad", reason, "more steps (most_steps)")


def judge_rank(health: Diagnosis, stats: SamplerStats) -> None:
    """Whether directions were left out that the data determine, for Gaussians of low rank."""
    share = float(np.max(stats["omitted"])) ** 2
    if share > LEFT_OUT:
        reason = f"directions were left out in which the data have {share:.2g} times the prior's precision"
        health.worsen("care", reason, "a higher rank")


def judge_stochastic(health: Diagnosis, stats: SamplerStats) -> None:
    """How far chains on batches of readings may be off: they have no acceptance step that would correct them."""
    _judge_spread(health, stats["virial"])
    known = float(np.mean(stats["virial_known"]))
    if not np.isfinite(known) or known <= 0:
        health.worsen(
            "bad", f"the chains have not settled: virial {known:.3g} (should be 1)", "more num_warmup, or more steps"
        )
        known = np.nan
    excess = float(np.max(stats["excess"]))
    if excess > 1.0:
        reason = f"the gradient of a batch has {excess:.2g} times the noise that the friction can absorb"
        health.worsen("care", reason, "a larger batch, a smaller step_size, or more friction")
    health.worsen(
        "care",
        "batches of readings without an acceptance step: where the readings decide, standard deviations are off by a "
        f"factor of about {np.sqrt(known):.2f} (1 is exact)",
        EXACT,
    )


def _last(records: np.ndarray) -> np.ndarray:
    """The last finite record of each group."""
    return np.array([row[np.isfinite(row)][-1] if np.any(np.isfinite(row)) else np.nan for row in records])


def _judge_outliers(health: Diagnosis, misfit: np.ndarray) -> None:
    middle = float(np.nanmedian(misfit))
    far = ~(misfit <= OUTLYING * max(middle, 1.0))
    if np.any(far):
        share = float(np.mean(far))
        reason = (
            f"{int(far.sum())} of {far.size} members do not fit the readings: mean squared residual up to "
            f"{float(np.nanmax(misfit)):.3g} in units of the noise, where the median member has {middle:.3g}"
        )
        health.worsen("bad" if share > MOST_OUTLYING else "care", reason, STEPS)


def _judge_agreement(health: Diagnosis, run: RunOutput, unit: str) -> None:
    groups, members = run.functionals.shape[:2]
    if groups == 1 or members < 4 or not np.all(np.isfinite(run.functionals)):
        return
    read = ~run.is_equation
    rhat = rhat_of(run.functionals[..., read])
    i, chance = int(np.argmax(rhat)), float(np.sqrt(1 + CHANCE / (members // 2)))
    if rhat[i] > max(FIT_RHAT, chance):
        name = np.array(run.names)[read][i]
        verdict = "bad" if rhat[i] > max(FIT_BAD_RHAT, chance) else "care"
        reason = f"{unit}s disagree: R-hat of {name} is {rhat[i]:.2f} (chance alone explains up to {chance:.2f})"
        health.worsen(verdict, reason, "more members, or more steps")


def _judge_spread(health: Diagnosis, virial: np.ndarray) -> None:
    """The mean of the virial is one for draws of the posterior."""
    if virial.size < 4 or not np.all(np.isfinite(virial)):
        return
    mean, error = float(virial.mean()), float(virial.std(ddof=1) / np.sqrt(virial.size))
    lowest, highest = mean - 2 * error, mean + 2 * error
    for limit, verdict in ((BAD_VIRIAL, "bad"), (CARE_VIRIAL, "care")):
        if lowest > limit:
            reason = f"draws are further from each other than those of the posterior: virial {mean:.3g} (should be 1)"
        elif highest < 1 / limit:
            reason = f"draws are closer to each other than those of the posterior: virial {mean:.3g} (should be 1)"
        else:
            continue
        health.worsen(verdict, reason, EXACT)
        return
