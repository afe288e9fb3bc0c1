"""What independent populations of particles say together: probabilities of solutions, the evidence, and their errors.

Each population estimates the evidence Z and the share of each solution. Z, and Z times a share, are right on average:
the probability of a solution is the mean of the shares weighted by Z, and the spread of populations is its error.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from bpinn.diagnostics import Diagnosis, judge_finite
from bpinn.modes import groups_of
from bpinn.run_output import RunOutput

GOOD_PROBABILITY = 0.03  # sd of the probability of a solution
GOOD_MEAN, CARE_MEAN = 0.15, 0.4  # error of a mean, in posterior sds
GOOD_EVIDENCE, CARE_EVIDENCE = 0.25, 1.0  # relative error of the evidence
HOPELESS = 2.0  # sd of log evidences from which one or two populations have all the weight
FEWEST_ANCESTORS = 5
LARGER = "more particles, or more moves of each (num_moves)"


def weights_of(log_evidence: np.ndarray) -> np.ndarray:
    """The weight of each population, from its log evidence."""
    weights = np.exp(np.asarray(log_evidence, float) - np.max(log_evidence))
    return weights / weights.sum()


def log_mean(logs: np.ndarray) -> float:
    """The log of the mean of numbers given by their logs."""
    top = np.max(logs)
    return float(top + np.log(np.mean(np.exp(np.asarray(logs, float) - top))))


def mean_and_error(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean over populations, of values (populations, ...), and its standard error."""
    weights = weights / weights.sum()
    mean = np.tensordot(weights, values, 1)
    count = len(weights)
    squares = np.tensordot(weights**2, (values - mean) ** 2, 1)
    return mean, np.sqrt(squares * count / max(count - 1, 1))


def rows_of(weights: np.ndarray, count: int) -> np.ndarray:
    """``count`` row numbers, in order, each as often as its weight says, to within one."""
    ends = np.cumsum(np.asarray(weights, float))
    places = (np.arange(count) + 0.5) / count * ends[-1]
    return np.minimum(np.searchsorted(ends, places), len(ends) - 1)


def probabilities(inside: np.ndarray, weights: np.ndarray) -> list[tuple[float, float]]:
    """Probabilities of solutions, and their standard deviations; ``inside`` is (solutions, populations, draws).

    The error of a few populations is itself uncertain. Standard deviations are larger by the ratio of Student's t to
    the normal, so that two of them on either side are an interval of 95%.
    """
    mean, error = mean_and_error(inside.mean(axis=2).T, weights)
    effective = weights.sum() ** 2 / np.sum(weights**2)
    wider = stdtrit(max(effective - 1.0, 1.0), 0.975) / 1.96
    return [(float(p), float(min(wider * e, 0.5))) for p, e in zip(mean, error, strict=True)]


@dataclass(frozen=True)
class Agreement:
    """How well populations agree.

    ``evidence_error`` is relative; ``spread`` the sd of log evidences; ``mean_error`` the error of the worst mean of a
    field or unknown in posterior standard deviations, and ``worst`` its name; ``probability_error`` the largest sd of
    the probability of a solution.
    """

    log_evidence: float
    evidence_error: float
    spread: float
    mean_error: float
    worst: str
    probability_error: float

    @property
    def is_good(self) -> bool:
        return (
            self.probability_error <= GOOD_PROBABILITY
            and self.mean_error <= GOOD_MEAN
            and self.evidence_error <= GOOD_EVIDENCE
        )


def agreement(run: RunOutput) -> Agreement | None:
    """None for a single population, or with draws that are not finite."""
    assert run.stats.log_evidence is not None
    logs = run.stats.log_evidence[:, 0].astype(float)
    count = len(logs)
    read = ~run.is_secondary
    values = run.functionals[..., read].astype(float)
    if count == 1 or not np.all(np.isfinite(values)) or not np.all(np.isfinite(logs)):
        return None
    weights = weights_of(logs)
    relative = np.exp(logs - logs.max())
    center, error = mean_and_error(relative, np.ones(count))
    flat = values.reshape(-1, values.shape[-1])
    means, errors = mean_and_error(values.mean(axis=1), weights)
    each = np.repeat(weights / values.shape[1], values.shape[1])
    sd = np.sqrt(np.maximum(each @ (flat - means) ** 2, 0.0))
    scaled = errors / np.where(sd > 0, sd, 1.0)
    at = int(np.argmax(scaled)) if len(scaled) else 0
    labels = groups_of(flat).reshape(values.shape[:2])
    inside = np.stack([labels == i for i in range(labels.max() + 1)])
    return Agreement(
        log_mean(logs),
        float(error / center),
        float(np.std(logs, ddof=1)),
        float(scaled[at]) if len(scaled) else 0.0,
        str(np.array(run.names)[read][at]) if len(scaled) else "",
        max(sd for _, sd in probabilities(inside, weights)),
    )


def is_reached(run: RunOutput) -> bool:
    """Whether the likelihood has its full weight in all populations."""
    return bool(np.all(np.nanmax(run.history["weight"], axis=1) >= 1.0))


def diagnose_particles(run: RunOutput) -> Diagnosis:
    """Judge populations of sequential Monte Carlo, (populations, particles, ...), by their agreement."""
    assert run.stats.ancestor is not None
    health = Diagnosis("good", [], [])
    judge_finite(health, run.functionals)
    populations = run.functionals.shape[0]
    if not is_reached(run):
        reached = np.nanmax(run.history["weight"], axis=1).min()
        health.worsen(
            "bad",
            f"the posterior was not reached: tempering ended at likelihood weight {reached:.2g} (should be 1)",
            "more steps (most_steps), or a lower share",
        )  # fmt: skip
    if populations == 1:
        health.worsen("care", "a single population cannot show the error of its probabilities", "chains=4")
        return health
    ancestors = min(len(np.unique(row)) for row in run.stats.ancestor)
    if ancestors < FEWEST_ANCESTORS:
        health.worsen("care", f"all particles of a population descend from {ancestors} prior draws", LARGER)
    found = agreement(run)
    if found is None:
        return health
    if found.spread > HOPELESS or found.evidence_error > GOOD_EVIDENCE:
        verdict = "bad" if found.spread > HOPELESS or found.evidence_error > CARE_EVIDENCE else "care"
        said = f"populations disagree on the evidence: its log has an sd of {found.spread:.1f}"
        health.worsen(verdict, f"{said}, and its mean an error of {found.evidence_error:.0%}", LARGER)
    if found.mean_error > GOOD_MEAN:
        verdict = "bad" if found.mean_error > CARE_MEAN else "care"
        where = f"the mean of {found.worst} has an error of {found.mean_error:.2f} sd (should be below {GOOD_MEAN})"
        health.worsen(verdict, f"populations disagree: {where}", LARGER)
    if found.probability_error > GOOD_PROBABILITY:
        verdict = "bad" if found.probability_error > 0.1 else "care"
        worst = f"an sd of {found.probability_error:.0%} (should be below {GOOD_PROBABILITY:.0%})"
        health.worsen(verdict, f"populations disagree on the probabilities of solutions: {worst}", LARGER)
    if not health.reasons:
        evidence = f"log evidence {found.log_evidence:.1f} ± {found.evidence_error:.2g}"
        health.reasons.append(f"{populations} populations agree; {evidence}")
    return health
