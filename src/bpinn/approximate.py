"""Verdicts on approximations: fits and their densities, ensembles of fits, and moved particles."""

from collections.abc import Sequence

import numpy as np

from bpinn.convergence import rhat_of, statistics
from bpinn.diagnostics import Diagnosis, judge_finite
from bpinn.run_output import RunOutput, SamplerStats

GOOD_KHAT, CARE_KHAT = 0.7, 1.0
SAME_WEIGHT = 1e-3  # range of log weights that are all the same but for rounding, which has no tail to fit
EFFICIENT = 0.9  # above this share of effective draws after weighting, the tail of the weights is rounding error
FIT_RHAT, FIT_BAD_RHAT = 1.05, 1.3  # between fits from different starts
STILL_MOVING = 1.0  # increase of the evidence lower bound over the last tenth of the steps
FOLDED = 0.01  # share of draws
FEWEST_DRAWS = 25  # needed to judge a tail
FEW_USED = 0.5  # share of steps with a finite gradient below which a fit is suspect
STEPS = "more steps (num_steps)"
EXACT = "HMC for error bars that can be trusted"
# The figures are the extremes of the table that benchmarks/last_layer.py prints.
FIXED = (
    "an approximation, with hidden weights that only follow the unknowns: on six problems means of unknowns were up to "
    "0.4 sd from HMC's and their sds 0.9 to 1.1 of HMC's, but sds of fields 0.45 to 1.1"
)
RICHER = "HMC, which draws from the posterior itself, or a richer family (full-rank, or a flow)"
CHANCE = 20.0  # R-hat**2 - 1 of few independent draws exceeds this over their number only rarely, among many quantities
OUTLYING = 5.0  # misfit a reading, in units of the median, above which a member does not fit
MOST_OUTLYING = 0.2  # share of such members above which the draws are not to be trusted
LEFT_OUT = 0.2  # precision of the data, in units of the prior's, below which a direction may be left out
CARE_VIRIAL, BAD_VIRIAL = 1.5, 4.0  # ratio to the posterior's, or its inverse


def khat_of(log_weights: np.ndarray) -> tuple[float, float]:
    """Pareto k-hat of importance weights, and the share of draws that are effective after weighting."""
    flat = np.ravel(log_weights).astype(float)
    if len(flat) < FEWEST_DRAWS or not np.all(np.isfinite(flat)):
        return np.inf, 0.0
    weights = np.exp(flat - flat.max())
    if np.ptp(flat) < SAME_WEIGHT:
        return 0.0, 1.0
    share = float(weights.sum() ** 2 / (weights @ weights) / len(flat))
    try:
        with np.errstate(invalid="raise", divide="raise"):
            khat = float(statistics().psislw(-flat)[1])  # psislw negates its argument, for leave-one-out likelihoods
    except FloatingPointError:  # the tail underflows: one draw has all the weight
        khat = np.inf
    return khat if np.isfinite(khat) else np.inf, share


def diagnose_fit(run: RunOutput) -> Diagnosis:
    """Judge a fit by its training, and by the agreement of fits from different starts."""
    health = Diagnosis("good", [], [])
    judge_finite(health, run.functionals)
    _judge_starts(health, run.names, run.functionals)
    if "used" in run.history:
        _judge_steps(health, run.history["used"])
    if "elbo" in run.history:
        _judge_settled(health, run.history["elbo"], "ELBO")
    return health


def diagnose_last_layer(run: RunOutput) -> Diagnosis:
    """Judge fits with a Gaussian output layer: approximate at best."""
    health = Diagnosis("good", [], [])
    judge_finite(health, run.functionals)
    read = ~run.is_secondary
    _judge_starts(health, [name for name, one in zip(run.names, read, strict=True) if one], run.functionals[..., read])
    _judge_steps(health, run.history["used"])
    _judge_settled(health, run.history["log_marginal"], "log marginal density")
    log_weights = run.stats["log_weight"]
    if log_weights.shape[1] >= FEWEST_DRAWS:
        judged = [khat_of(row) for row in log_weights]
        for i, (khat, share) in enumerate(judged):
            if share <= EFFICIENT and khat > GOOD_KHAT:
                reason = (
                    f"the unknowns of fit {i} are far from the Gaussian they were drawn from: only {share:.0%} of "
                    f"their draws are effective after weighting (Pareto k-hat {khat:.2f}, should be below {GOOD_KHAT})"
                )
                health.worsen("care" if khat <= CARE_KHAT else "bad", reason, EXACT)
    health.worsen("care", FIXED, EXACT)
    return health


def diagnose_approximation(run: RunOutput) -> Diagnosis:
    """Judge a fitted density, by its training and by its importance weights."""
    health = diagnose_fit(run)
    _judge_weights(health, run.stats)
    return health


def _judge_starts(health: Diagnosis, names: Sequence[str], functionals: np.ndarray) -> None:
    fits, draws = functionals.shape[:2]
    if fits == 1 or draws < 4 or not np.all(np.isfinite(functionals)):
        return
    rhat = rhat_of(functionals)
    i = int(np.argmax(rhat))
    if rhat[i] > FIT_RHAT:
        verdict = "bad" if rhat[i] > FIT_BAD_RHAT else "care"
        health.worsen(verdict, f"fits from different starts disagree: R-hat of {names[i]} is {rhat[i]:.2f}", STEPS)


def _judge_steps(health: Diagnosis, used: np.ndarray) -> None:
    share = float(np.min(np.nanmean(used, axis=1)))
    advice = "check the equations for division by zero, logarithms or roots of negative numbers"
    if share == 0:
        health.worsen("bad", "nothing was fitted: no step had a finite gradient", advice)
    elif share < FEW_USED:
        health.worsen("care", f"only {share:.0%} of the steps had a finite gradient", advice)


def _judge_settled(health: Diagnosis, objective: np.ndarray, called: str) -> None:
    for i, row in enumerate(objective):
        row = row[np.isfinite(row)]
        tenth = len(row) // 10
        if tenth < 5:
            continue
        before, after = row[-2 * tenth : -tenth], row[-tenth:]
        error = np.sqrt((before.var() + after.var()) / tenth)
        gained = after.mean() - before.mean()
        if gained > max(STILL_MOVING, 4 * error):
            health.worsen(
                "care",
                f"fit {i} has not converged: its {called} rose by {gained:.1f} in the last tenth of steps",
                STEPS,
            )


def _judge_weights(health: Diagnosis, stats: SamplerStats) -> None:
    """Importance weights posterior / approximation show how far the approximation is off (Yao et al. 2018)."""
    folded = 0.0 if stats.folded is None else float(np.mean(stats.folded))
    if folded > 0:
        verdict = "bad" if folded > FOLDED else "care"
        health.worsen(verdict, f"the flow is not invertible at {folded:.1%} of the draws", "more Euler steps (steps)")
    assert stats.log_q is not None
    log_weights = stats.log_density - stats.log_q
    fits, draws = log_weights.shape
    if draws < FEWEST_DRAWS:
        health.worsen("care", f"{draws} draws are too few to judge the approximation", "more draws (num_draws)")
        return
    judged = [khat_of(row) for row in log_weights]
    health.khat = max(khat for khat, _ in judged)
    far = {i: khat for i, (khat, share) in enumerate(judged) if share <= EFFICIENT and khat > GOOD_KHAT}
    for i, khat in far.items():
        which = "the approximation" if fits == 1 else f"fit {i}"
        reason = f"{which} is far from the posterior: Pareto k-hat {khat:.2f} (should be below {GOOD_KHAT})"
        health.worsen("care" if khat <= CARE_KHAT else "bad", reason, RICHER)
    if not far:
        share = min(share for _, share in judged)
        health.reasons.append(
            f"the approximation is close to the posterior (Pareto k-hat {health.khat:.2f}; at least {share:.0%} of its "
            "draws are effective)"
        )


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
    read = ~run.is_secondary
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
