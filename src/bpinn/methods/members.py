"""The members of a group as draws, with the statistics that show how far their spread is the posterior's."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.approximate import diagnose_group
from bpinn.diagnostics import Diagnosis
from bpinn.errors import InputError
from bpinn.methods.base import Method, Record, Stage
from bpinn.methods.linearised import standardised
from bpinn.model import Model
from bpinn.parameters import Parameters
from bpinn.problem import Problem
from bpinn.run_output import RunOutput, SamplerStats

MOST_ENTRIES = 50_000_000  # of the matrix of derivatives, 200 MB in single precision
MOST_SIDE = 4000  # its smaller side: factors cost its square times the larger one


class Group(NamedTuple):
    """Plain vectors, (members, dim), and their mean."""

    members: Array
    centre: Array


@dataclass(frozen=True)
class Members(Stage):
    """Returns the members of a group, one after another, as draws.

    For draws z of a density p, the mean of ``-(z - c)' grad log p(z)`` is the number of parameters, whatever c is. The
    share of it at each draw, with the group's mean as c, is recorded as ``virial``: its mean is one for draws of the
    posterior, and for normal ones it is the ratio of variances.
    """

    name: ClassVar[str] = "draws"
    settings: "Grouped"

    def init(self, model: Model, data: Any, key: Array, previous: Any) -> Group:
        members = self.settings.plain_vectors(model, data, previous)
        return Group(members, jnp.mean(members, axis=0))

    def step(self, model: Model, data: Any, state: Group, key: Array, step: Array) -> tuple[Group, Record]:
        z = state.members[step]
        log_density, slope = jax.value_and_grad(model.log_density)(z, data)
        found = standardised(model, data, z, model.predicted(z, data))
        stats = {
            "log_density": log_density,
            "virial": -jnp.vdot(z - state.centre, slope) / model.dim,
            "misfit": jnp.mean(found.scores[: len(found.roots)] ** 2),
        }
        return state, Record(z, model.functionals(z, data), stats)

    def position(self, state: Group) -> Group:
        return state


@dataclass(frozen=True, kw_only=True)
class Grouped(Method):
    """A method whose draws are the members of a group; ``chains`` is the number of independent groups."""

    fewer: ClassVar[str] = "fewer members"
    unit: ClassVar[str] = "ensemble"
    is_markov: ClassVar[bool] = False
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "virial", "misfit"})

    @abstractmethod
    def plain_vectors(self, model: Model, data: Any, previous: Any) -> Array:
        """The members, (members, dim), from where the stage before the draws ended."""

    @property
    @abstractmethod
    def approximate(self) -> str:
        """Why the draws are not those of the posterior, for the verdict."""

    def judge(self, run: RunOutput) -> Diagnosis:
        return diagnose_group(run, self.unit, self.approximate)

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        return None


def check_size(method: str, problem: Problem, instead: str) -> None:
    """Raise `InputError` if the derivatives of all readings by all parameters are too many for a matrix."""
    count, dim = sum(len(readings.values) for readings in problem.readings), Parameters(problem).dim
    if count * dim > MOST_ENTRIES or min(count, dim) > MOST_SIDE:
        raise InputError(
            f"{method}: the problem has {count:,} readings and points and {dim:,} parameters, too many for a matrix of "
            f"their derivatives (at most {MOST_ENTRIES:,} entries, and {MOST_SIDE:,} on the smaller side); {instead}"
        )
