"""Whether noise, fields and unknowns are where their priors expect them, and how many readings inform them."""

import jax
import numpy as np
from numpyro.distributions import constraints
from scipy.special import chdtrc

from bpinn.advice import CULPRITS, EXPANSION, PRIOR
from bpinn.diagnostics import MORE, Diagnosis
from bpinn.fields import MLP
from bpinn.result import Result

FEWEST = 8  # terms of an expansion of which the last are judged apart
CONFLICT = 1e-6  # probability of a field's parameters under their prior
LAST_TERMS = 0.25  # share of the terms of an expansion
EDGE, PILED = 0.02, 0.25  # share of the support next to its edge, and of the draws there
NOISE_TAIL = 1e-3
NEAR_ZERO = 0.01  # of its largest value, at which a positive field is close to zero
WIDTHS = (1.5, 150)  # readings and points per output weight from which chains are slow; the width to advise, at most


def judge_noise(health: Diagnosis, result: Result) -> None:
    for name in result.problem.noise_priors:
        prior = result.problem.noise_priors[name]
        draws = np.asarray(prior.sample(jax.random.key(0), (4000,)), float).ravel()
        middle = float(np.median(result.draws(name)))
        above = float(np.mean(draws > middle))
        if min(above, 1 - above) < NOISE_TAIL:
            far = "above" if above < 0.5 else "below"
            health.note(
                "care",
                f"{name} is {middle:.2g}, far {far} what its prior expects ({np.median(draws):.2g})",
                f"if the prior is right: {CULPRITS}" if far == "above" else "a wider prior for this noise",
            )


def judge_fields(health: Diagnosis, result: Result) -> None:
    """Parameters of fields far in the tail of their prior, all of them or the last terms of an expansion."""
    parameters = result.posterior.model.parameters
    for name, field, bounds in parameters.fields:
        scales = {scale: result.draws(f"{scale}_{name}") for scale in field.scale_priors(bounds)}
        for reason, advice in field.criticism(scales, bounds):
            health.note("care", f"field {name}: {reason}", advice)
        standard = result.z[..., parameters.slices[name]].astype(float) / field.prior_sd(bounds)
        flat = standard.reshape(-1, standard.shape[-1])
        terms = flat.shape[1]
        parts = {"parameters": slice(0, terms)}
        if field.linear(bounds) == slice(0, terms) and terms >= FEWEST:
            parts["last terms"] = slice(terms - max(int(LAST_TERMS * terms), 2), terms)
        for called, part in parts.items():
            squares = np.sum(flat[:, part] ** 2, axis=1)
            p = float(np.median(chdtrc(part.stop - part.start, squares)))
            if p < CONFLICT:
                size = np.sqrt(np.median(squares) / (part.stop - part.start))
                what = f"the {called} of {name} are {size:.1f} times as large as its prior expects"
                health.note("care", f"{what} (p = {p:.1g}): prior and readings conflict", PRIOR)
                break


def judge_edges(health: Diagnosis, result: Result) -> None:
    for name, prior in result.problem.scalars.items():
        support = prior.support
        if not isinstance(support, type(constraints.interval(0.0, 1.0))) or prior.shape() != ():
            continue
        low, high = float(np.asarray(support.lower_bound)), float(np.asarray(support.upper_bound))
        share = (result.draws(name) - low) / (high - low)
        for edge, there in ((low, np.mean(share < EDGE)), (high, np.mean(share > 1 - EDGE))):
            if there > PILED:
                health.note(
                    "care",
                    f"{name} is at the edge of its prior: {there:.0%} of its draws are next to {edge:g}",
                    f"a wider prior; or, if {edge:g} is a hard limit, {CULPRITS}",
                )


def judge_width(health: Diagnosis, result: Result) -> None:
    """Whether chains that do not agree are slow because the equations have more points than fields have output weights.

    Whitened coordinates take care of as many readings as there are output weights (docs/sampling.md).
    """
    most, widest = WIDTHS
    rows = sum(readings.sampled_from or len(readings.values) for readings in result.problem.readings)
    networks = {name: f for name, f in result.problem.fields.items() if isinstance(f, MLP) and f.hidden}
    outputs = sum(1 + f.hidden[-1] for f in networks.values())
    if MORE not in health.advice or not networks or rows <= most * outputs:
        return
    name, field = min(networks.items(), key=lambda one: one[1].hidden[-1])
    last = min(widest, 10 * -(-rows // (10 * len(networks))))
    several = len(result.problem.inputs(name)) > 1
    ways = [f"for {name} {EXPANSION}"] if several else []
    if last > field.hidden[-1]:
        share = (field.hidden[-1] / last) ** 0.5
        ways.append(
            f"a wider last layer for {name}: MLP(hidden={(*field.hidden[:-1], last)}, ...) with {share:.2g} times the "
            "weight_sd in the output layer, which keeps the spread of the prior"
        )
    if ways:
        reason = f"{rows} readings and points for {outputs} output weights: chains are slow"
        health.note("care", reason, "; or ".join([*ways, "bp.GaussianProcess()"]))


def judge_links(health: Diagnosis, result: Result) -> None:
    """Whether chains that do not agree are slow because a positive field reaches zero.

    There its logarithm falls without limit, and faster than the field's prior expects.
    """
    if MORE not in health.advice:
        return
    for name, field in result.problem.fields.items():
        if not field.positive:
            continue
        columns = [i for i, label in enumerate(result.functional_names) if label.startswith(f"{name} at ")]
        middle = np.median(result.functionals[..., columns], axis=(0, 1))
        least = int(np.argmin(middle))
        if middle[least] < NEAR_ZERO * middle.max():
            health.note(
                "care",
                f"the positive field {name} is close to zero ({result.functional_names[columns[least]]} is "
                f"{middle[least]:.2g}): chains are slow there",
                f"the field {name} without positive=True",
            )
