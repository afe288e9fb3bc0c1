"""Model criticism: what a wrong model leaves in its residuals, its equations, its noise and its fields.

Chains of a wrong model agree as well as those of a right one, so that the model itself is judged here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bpinn.criticism.equations import judge_between, judge_off_zero
from bpinn.criticism.own_weight import judge_weight
from bpinn.criticism.parameters import judge_edges, judge_fields, judge_links, judge_noise, judge_width
from bpinn.criticism.residuals import Group, judge_explained, judge_scatter, judge_structure
from bpinn.diagnostics import Diagnosis
from bpinn.result import Result


def judge(health: Diagnosis, result: Result, expected: Sequence[np.ndarray], between: Any) -> None:
    """Add what speaks against the model to a diagnosis.

    ``expected`` are the noise-free predictions of each group of readings, (draws, readings); ``between(points)``
    evaluates the same groups at other points, given by name.
    """
    groups = [Group.of(result, r, values) for r, values in zip(result.problem.readings, expected, strict=True)]
    for group in groups:
        judge_scatter(health, group)
        if group.is_telling:
            judge_structure(health, group)
            judge_explained(health, group)
    exact = [group for group in groups if group.readings.is_exact]
    for group in exact:
        judge_off_zero(health, group)
    judge_between(health, result, exact, between)
    judge_noise(health, result)
    judge_fields(health, result)
    judge_edges(health, result)
    judge_width(health, result)
    judge_links(health, result)
    judge_weight(health, result)
