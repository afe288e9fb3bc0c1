"""Variational inference with a Gaussian: the paper's Algorithm 2, and Gaussians with correlations."""

from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import Array

from bpinn.methods import gaussian
from bpinn.methods.approximation import Approximation
from bpinn.methods.base import check_choice, check_count
from bpinn.methods.gaussian import Gaussian, Shape
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.registry import register

FAMILIES = ("mean-field", "low-rank", "full-rank")
GRADIENTS = ("path", "total")


@register("vi")
@dataclass(frozen=True, kw_only=True)
class VI(Approximation):
    """Variational inference: the Gaussian that maximises the evidence lower bound.

    Fast, but an approximation: a Gaussian without correlations ("mean-field", as in the paper) underestimates the
    standard deviations, often considerably. `Result.diagnose` estimates how far the Gaussian is from the posterior.

    Arguments:
        family: "mean-field", "low-rank" (a diagonal and ``rank`` directions) or "full-rank".
        rank: number of directions of the low-rank family.
        num_samples: draws from the Gaussian in each step.
        num_steps: steps of Adam.
        learning_rate: learning rate of Adam, in units of the prior's standard deviations.
        schedule: "cosine" decreases the learning rate to a hundredth; "constant" keeps it.
        gradient: "path" omits the part of the gradient that is noise with mean zero ("sticking the landing");
            "total" uses the full gradient, as in the paper.
        init: where to start. "fit" is a narrow Gaussian around a network that fits the data; "small" is one around
            small weights, from which networks often end in a poor solution; "laplace" uses the curvature at the
            posterior mode. "auto" is "laplace" for the full-rank family, which otherwise learns its correlations
            slowly, and "fit" for the others.
        coordinates: "whitened" fits the Gaussian to standardised residuals of output weights and coefficients instead
            of these themselves, an exact change of variables: correlations that linearised readings explain are then
            in the change of variables, and even "mean-field" has them; "plain" fits it to the parameters, as in the
            paper.
        init_steps: Adam steps of the fit that finds the starting point.
        patience: window, in steps; stop when the mean evidence lower bound over a window is no better than over the
            previous one. By default there is no early stopping.
        batch: number of readings in each step of Adam, a random sample; by default all of them. Whitened coordinates
            then are those of the starting point, and do not follow the hidden weights.
        num_draws: independent draws from the fitted Gaussian.
        chains: number of fits from different starts.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1).problem
        >>> result = bp.infer(problem, bp.VI(num_steps=200, num_draws=50), seed=0, progress=False)
        >>> result.history["elbo"].shape, result.draws("k").shape
        ((1, 2), (1, 50))
    """

    family: str = "mean-field"
    rank: int = 10
    gradient: str = "path"
    batch: int | None = None

    def __post_init__(self) -> None:
        self._check()
        if self.batch is not None:
            check_count("VI", "batch", self.batch)
        check_choice("VI", "family", self.family, FAMILIES)
        check_choice("VI", "gradient", self.gradient, GRADIENTS)
        check_count("VI", "rank", self.rank)

    @classmethod
    def paper(cls, **changes: Any) -> "VI":
        """The paper's settings: 200,000 steps of 5 samples at a learning rate of 0.001, 10,000 draws."""
        settings = cls(
            num_steps=200_000, learning_rate=1e-3, schedule="constant", gradient="total", num_samples=5,
            num_draws=10_000, coordinates="plain",
        )  # fmt: skip
        return replace(settings, **changes)

    @property
    def readings_at_once(self) -> int | None:
        return self.batch

    @property
    def _start(self) -> str:
        automatic = "laplace" if self.family == "full-rank" else "fit"
        return automatic if self.init == "auto" else self.init

    def begin(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Gaussian, Any]:
        space, start, key = self.space(model, data, key, previous)
        first = gaussian.first(space, start, key, self._start == "laplace", self.family, self.rank)
        return first, space.anchor

    def check(self, problem: Problem) -> None:
        if self.family == "full-rank":
            self._check_size(problem, "family='low-rank'")

    def noise_size(self, dim: int) -> int:
        return dim + (self.rank if self.family == "low-rank" else 0)

    def ready(self, params: Gaussian) -> Shape:
        return gaussian.shape_of(params, self.family)

    def carry(self, ready: Shape, eps: Array) -> tuple[Array, Array]:
        v = ready.carry(eps, self.family)
        fixed = ready if self.gradient == "total" else jax.lax.stop_gradient(ready)
        return v, fixed.log_prob(v, self.family)
