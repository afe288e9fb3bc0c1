"""Claims that the paper makes from its figures and tables, each as a computed check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bpinn.paper.cases import Outcome, Outcomes

Checked = tuple[bool, str]  # whether the claim holds for one data set, and the numbers behind it


@dataclass(frozen=True)
class Claim:
    """``says`` is the claim in our words; ``check`` tests it on one data set."""

    name: str
    says: str
    check: Callable[[Outcomes, int], Checked]

    def judge(self, outcomes: Outcomes) -> dict[str, Any]:
        """For how many data sets the claim holds, with the numbers."""
        found = {seed: self.check(outcomes, seed) for seed in outcomes.seeds}
        return {
            "name": self.name,
            "says": self.says,
            "holds_in": sum(bool(holds) for holds, _ in found.values()),
            "of": len(found),
            "numbers": {str(seed): numbers for seed, (_, numbers) in found.items()},
        }


LOW, HIGH = 0.01, 0.1
MOST = 0.9  # of the domain, where the paper says "mostly"
ALIKE = 2.0  # sds within this factor are "not significantly different"


def _ratio(a: float, b: float) -> float:
    """a / b, also for methods without spread: 1 if both are zero, infinite if only ``b`` is."""
    return a / b if b else 1.0 if not a else float("inf")


def _sds(outcomes: Outcomes, label: str, quantity: str, seed: int) -> tuple[float, float]:
    """The mean sd at the low and at the high noise."""
    low, high = (outcomes.get(label, noise, seed).sd(quantity) for noise in (LOW, HIGH))
    return low, high


def sd_grows(label: str, quantity: str = "u") -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        low, high = _sds(outcomes, label, quantity, seed)
        return high > low, f"mean sd {low:.3g} and {high:.3g}"

    return Claim(f"{label}-sd-grows", f"The standard deviation of {quantity} by {label} grows with the noise.", check)


def sd_does_not_grow(label: str, quantity: str = "u") -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        low, high = _sds(outcomes, label, quantity, seed)
        return 1 / ALIKE < _ratio(high, low) < ALIKE, f"mean sd {low:.3g} and {high:.3g}"

    says = f"By {label} the noise has little influence on the sd of {quantity} (less than a factor of 2)."
    return Claim(f"{label}-sd-does-not-grow", says, check)


def within(label: str, noise: float, quantity: str = "u", mostly: bool = True) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        share = outcomes.get(label, noise, seed).numbers["quantities"][quantity]["within_two_sd"]
        return (share >= MOST) == mostly, f"{share:.0%} within"

    says = f"At noise {noise:g} the error of {quantity} by {label} is within two sd over most of the domain (90%)."
    if not mostly:
        says = f"At noise {noise:g} a part of the exact {quantity} lies outside of two sd by {label} (more than 10%)."
    return Claim(f"{label}-{'' if mostly else 'not-'}within-{noise:g}", says, check)


def not_within(label: str, noise: float, quantity: str = "u") -> Claim:
    return within(label, noise, quantity, mostly=False)


def error_above(label: str, noise: float, limit: float, quantity: str = "u") -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        error = outcomes.get(label, noise, seed).numbers["quantities"][quantity]["largest_error"]
        return error > limit, f"{error:.2f}"

    says = f"At noise {noise:g} the error of {quantity} by {label} exceeds {limit:g} in part of the domain."
    return Claim(f"{label}-error-above-{noise:g}", says, check)


def worse_than(label: str, other: str, noise: float, quantity: str = "u") -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        errors = [outcomes.get(m, noise, seed).numbers["quantities"][quantity]["error"] for m in (label, other)]
        return errors[0] > errors[1], f"{errors[0]:.1%} against {errors[1]:.1%}"

    says = f"At noise {noise:g} the error of {quantity} by {label} is larger than by {other}."
    return Claim(f"{label}-worse-than-{other}-{noise:g}-{quantity}", says, check)


# --- unknowns ---


def _off(outcome: Outcome, truth: float) -> float:
    return abs(outcome.k[0] - truth)


def k_within(label: str, noise: float, truth: float, sds: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        outcome = outcomes.get(label, noise, seed)
        apart = _ratio(_off(outcome, truth), outcome.k[1])
        return apart < sds, f"{apart:.2f} sd"

    says = f"At noise {noise:g} the mean of k by {label} is within {sds:g} sd of the truth."
    return Claim(f"{label}-k-within-{sds:g}-{noise:g}", says, check)


def k_error_below(label: str, noise: float, truth: float, limit: float, below: bool = True) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        error = _off(outcomes.get(label, noise, seed), truth) / abs(truth)
        return (error < limit) == below, f"{error:.1%}"

    side = "less" if below else "more"
    says = f"At noise {noise:g} the mean of k by {label} is off by {side} than {limit:.0%}."
    return Claim(f"{label}-k-{side}-than-{limit:g}-{noise:g}", says, check)


def k_sd_grows(label: str, grows: bool = True) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        low, high = (outcomes.get(label, noise, seed).k[1] for noise in (LOW, HIGH))
        return high > low if grows else high < low, f"{low:.2g} and {high:.2g}"

    what = "grows with the noise" if grows else "falls as the noise grows, which is not reasonable"
    return Claim(f"{label}-k-sd-{'grows' if grows else 'falls'}", f"The sd of k by {label} {what}.", check)


def k_worse_than(label: str, other: str, noise: float, truth: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        errors = [_off(outcomes.get(m, noise, seed), truth) for m in (label, other)]
        return errors[0] > errors[1], f"{errors[0]:.3f} against {errors[1]:.3f}"

    says = f"At noise {noise:g} the error of k by {label} is larger than by {other}."
    return Claim(f"{label}-k-worse-than-{other}-{noise:g}", says, check)


def k_agrees(label: str, other: str, noise: float, means: float = 0.25, sds: float = 0.25) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        (a, sd_a), (b, sd_b) = (outcomes.get(m, noise, seed).k for m in (label, other))
        apart, ratio = _ratio(abs(a - b), sd_b), _ratio(sd_a, sd_b)
        return apart < means and abs(ratio - 1) < sds, f"means {apart:.2f} sd apart, ratio of sds {ratio:.2f}"

    says = f"At noise {noise:g} {label} and {other} agree on k (means within {means:g} sd, sds within {sds:.0%})."
    return Claim(f"{label}-agrees-with-{other}-{noise:g}", says, check)


def bands_agree(label: str, other: str, noise: float, agree: bool = True) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        a, b = (outcomes.get(m, noise, seed).arrays for m in (label, other))
        apart = float(np.median(np.abs(a["u/mean"] - b["u/mean"]) / b["u/sd"]))
        ratio = float(np.median(a["u/sd"] / b["u/sd"]))
        alike = apart < 0.5 and abs(ratio - 1) < 0.3
        return alike == agree, f"means {apart:.2f} sd apart, ratio of sds {ratio:.2f} (medians)"

    same, limits = "similar", "means within half an sd, sds within 30%"
    if not agree:
        same, limits = "different", "means more than half an sd apart, or sds by more than 30%"
    says = f"At noise {noise:g} u by {label} and by {other} is {same} ({limits})."
    return Claim(f"{label}-{'like' if agree else 'unlike'}-{other}-{noise:g}", says, check)


def both_noises(make: Callable[..., Claim], label: str, *rest: Any) -> list[Claim]:
    return [make(label, noise, *rest) for noise in (LOW, HIGH)]


# --- where readings are missing (function regression) ---

GAPS: Sequence[tuple[float, float]] = ((-1.0, -0.8), (-0.2, 0.2), (0.8, 1.0))


def _inside(intervals: Sequence[tuple[float, float]], x: np.ndarray) -> np.ndarray:
    return np.any([(low <= x) & (x <= high) for low, high in intervals], axis=0)


def regions(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Masks on the mesh of the regression: the gaps without readings, and the rest."""
    x = np.linspace(-1, 1, outcome.arrays["u/mean"].size)
    gaps = _inside(GAPS, x)
    return gaps, ~gaps


def grows_in_gaps(label: str, noise: float, grows: bool = True) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        outcome = outcomes.get(label, noise, seed)
        gaps, read = regions(outcome)
        ratio = _ratio(outcome.sd("u", gaps), outcome.sd("u", read))
        return (ratio > ALIKE) == grows, f"{ratio:.1f} times"

    says = f"By {label} the sd is larger where readings are missing (at least twice, in the mean)."
    if not grows:
        says = f"By {label} the sd is about uniform: where readings are missing it is less than twice as large."
    return Claim(f"{label}-{'grows-in-gaps' if grows else 'uniform'}", says, check)


def uniform_in_gaps(label: str, noise: float) -> Claim:
    return grows_in_gaps(label, noise, grows=False)


def wrong_in_gaps(label: str, noise: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        outcome = outcomes.get(label, noise, seed)
        gaps, _ = regions(outcome)
        arrays = outcome.arrays
        apart = np.abs(arrays["u/mean"] - arrays["u/truth"])[gaps] / np.maximum(arrays["u/sd"][gaps], 1e-12)
        return float(apart.max()) > 2, f"up to {apart.max():.1f} sd"

    says = f"By {label} the mean is far beyond two sd from the truth somewhere where readings are missing."
    return Claim(f"{label}-wrong-in-gaps", says, check)


def sd_ratio_in(label: str, other: str, noise: float, intervals: Sequence[tuple[float, float]], larger: bool) -> Claim:
    where = " and ".join(f"[{low:g}, {high:g}]" for low, high in intervals)

    def check(outcomes: Outcomes, seed: int) -> Checked:
        a, b = (outcomes.get(m, noise, seed) for m in (label, other))
        part = _inside(intervals, np.linspace(-1, 1, a.arrays["u/mean"].size))
        ratio = _ratio(a.sd("u", part), b.sd("u", part))
        return (ratio > 1) == larger, f"{ratio:.2f} times"

    side = "larger" if larger else "smaller"
    return Claim(f"{label}-{side}-in-{where}", f"By {label} the sd on {where} is {side} than by {other}.", check)


def sd_at_ends(label: str, other: str, noise: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        a, b = (outcomes.get(m, noise, seed).arrays["u/sd"][[0, -1]].mean() for m in (label, other))
        return a > 2 * b, f"{a:.3g} against {b:.3g}"

    says = f"At noise {noise:g} the sd at the ends, where u is read, is large by {label} (twice that of {other})."
    return Claim(f"{label}-sd-at-ends-{noise:g}", says, check)


def overfits(label: str, other: str, noise: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        a, b = (outcomes.get(m, noise, seed).numbers for m in (label, other))
        fit, error = a["residual"]["u"] / noise, a["quantities"]["u"]["error"] / b["quantities"]["u"]["error"]
        return (
            fit < 0.5 and error > 1,
            f"readings of u fitted to {fit:.2f} of the noise, error {error:.1f} times {other}'s",
        )

    says = (
        f"At noise {noise:g} {label} overfits: it goes through the readings of u (to half their noise), "
        f"with a larger error than {other}."
    )
    return Claim(f"{label}-overfits-{noise:g}", says, check)


def fits_readings(label: str, noise: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        found = outcomes.get(label, noise, seed).numbers["residual"]
        worst = max(value / (0.01 if name == "b" else noise) for name, value in found.items())
        return worst < 1.5, f"residuals of at most {worst:.2f} times the noise"

    return Claim(f"{label}-fits-{noise:g}", f"At noise {noise:g} {label} fits all readings.", check)


def slower_than(label: str, other: str, noise: float) -> Claim:
    def check(outcomes: Outcomes, seed: int) -> Checked:
        a, b = (outcomes.get(m, noise, seed).numbers["seconds"] for m in (label, other))
        return a > b, f"{a:.1f} s against {b:.1f} s"

    return Claim(f"{label}-slower-than-{other}", f"{label} takes longer than {other}.", check)
