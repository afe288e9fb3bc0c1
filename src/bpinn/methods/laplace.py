"""Laplace's approximation: a Gaussian at the posterior mode, with the curvature of the linearised model."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.approximate import diagnose_approximation, judge_end, judge_rank
from bpinn.coordinates import Coordinates, RawStreams, Reference, unit_scalars
from bpinn.diagnostics import Diagnosis
from bpinn.methods.base import Method, Stage, check_choice, check_count
from bpinn.methods.descent import Descent, Member, begun, random_start
from bpinn.methods.linearised import linearised, prior_pull, projected
from bpinn.methods.members import check_size
from bpinn.methods.pinn import PINN, Polish, first_fit
from bpinn.methods.spaces import SPACES
from bpinn.methods.start import prior_units
from bpinn.methods.training import Sample
from bpinn.model import Model
from bpinn.problem import Problem
from bpinn.registry import register
from bpinn.run_output import RunOutput, SamplerStats


class Fitted(NamedTuple):
    """The Gaussian that draws are made from, around the mode ``v``, in units of the prior.

    Its precision is ``1 + directions' sizes^2 directions``, in coordinates in which the prior has unit curvature:
    ``factor`` takes their scalars to units of the prior; ``omitted`` is the largest size that is left out. In whitened
    coordinates output weights and coefficients are not part of it, and ``streams`` are those of the mode, around which
    their conditional Gaussian is linearised.
    """

    v: Array
    directions: Array
    sizes: Array
    omitted: Array
    factor: Array | None
    streams: RawStreams | None


@register("laplace")
@dataclass(frozen=True, kw_only=True)
class Laplace(Method):
    """Laplace's approximation: a Gaussian at the posterior mode, from the generalised Gauss-Newton curvature there.

    Exact for linear equations with normal noise and priors. For networks the mode is smoother than typical draws, and
    the curvature there says little about weights that no reading determines: see docs/methods.md for how far off it is.
    Covers all parameters: unknowns, inferred noise levels and scales of fields are on the real line.

    Arguments:
        num_steps: most Levenberg-Marquardt steps to the mode, from a draw of the prior; a converged fit ends earlier.
            With ``rank`` they are steps of L-BFGS.
        init_steps: steps of Adam before these, with ``rank``.
        coordinates: "whitened" draws output weights and coefficients from their Gaussian given everything else, so that
            the linearised model need not hold for them while hidden weights move; "plain" draws all parameters from one
            Gaussian. Both are the same for linear problems.
        rank: number of directions in which the data are taken to determine the parameters, found by random projections,
            for problems too large for a matrix of all derivatives; the prior is kept in all others. By default all
            directions are used.
        num_draws: independent draws of the Gaussian.
        chains: number of fits from different starts.

    Example:
        >>> import bpinn as bp
        >>> surrogate = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1))
        >>> problem = bp.paper.inverse_reaction_1d(noise=0.1, surrogate=surrogate).problem
        >>> result = bp.infer(problem, bp.Laplace(num_draws=50), seed=0, progress=False)
        >>> result.draws("k").shape
        (2, 50)
    """

    unit: ClassVar[str] = "fit"
    is_markov: ClassVar[bool] = False
    takes_statistics: ClassVar[bool] = True
    recorded: ClassVar[frozenset[str]] = frozenset({"log_density", "log_q", "omitted"})

    num_steps: int = 200
    init_steps: int = 5000
    coordinates: str = "whitened"
    rank: int | None = None
    num_draws: int = 1000
    chains: int = 2

    def __post_init__(self) -> None:
        check_count("Laplace", "num_steps", self.num_steps)
        check_count("Laplace", "init_steps", self.init_steps)
        check_choice("Laplace", "coordinates", self.coordinates, tuple(SPACES))
        if self.rank is not None:
            check_count("Laplace", "rank", self.rank)
        check_count("Laplace", "num_draws", self.num_draws, 4)
        check_count("Laplace", "chains", self.chains)

    def check(self, problem: Problem) -> None:
        if self.rank is None:
            check_size("Laplace", problem, "give rank=200, which finds the best determined directions, or use bp.HMC()")

    @property
    def group(self) -> int:
        """Each chain is one fit."""
        return 1

    def stages(self) -> tuple[Stage, ...]:
        draws = Sample(self.num_draws, 0, self)
        if self.rank is None:
            return Descent(self.num_steps, self.num_steps, self), draws
        polish = Polish(self.num_steps, self.num_steps, PINN(loss="posterior"))
        return first_fit(self.init_steps, "posterior"), polish, draws

    def member(self, model: Model, data: Any, key: Array, previous: Any) -> Member:
        """From a draw of the prior: from small weights networks reach modes that are too smooth to fit."""
        return begun(random_start(model, data, key)[0], None)

    def judge(self, run: RunOutput) -> Diagnosis:
        health = diagnose_approximation(run)
        judge_end(health, run.history, run.functionals.shape[0])
        judge_rank(health, run.stats)
        return health

    def weights(self, visits: np.ndarray, stats: SamplerStats) -> np.ndarray | None:
        return None

    # --- draws ---

    def _is_white(self, model: Model) -> bool:
        return self.coordinates == "whitened" and len(model.linear) > 0

    def _which(self, model: Model) -> np.ndarray:
        """The parameters that the Gaussian is over; scalars come last."""
        return np.setdiff1d(np.arange(model.dim), model.linear if self._is_white(model) else [])

    def prepared(self, model: Model, data: Any, key: Array, previous: Any) -> tuple[Fitted, Any]:
        v = previous.v[0] if isinstance(previous, Member) else previous[0]
        centre, scale = prior_units(model)
        z, pull, which = centre + scale * v, prior_pull(model, v), self._which(model)
        if self.rank is None:
            rows, omitted = linearised(model, data, z).rows, jnp.zeros((), v.dtype)
        else:
            rows, omitted = projected(model, data, z, key, self.rank)
        rows = pull.apart(rows)
        streams = None
        if self._is_white(model):
            rows = _without(rows, model.linear)[:, which]
            streams = model.streams(z, data)
        _, sizes, directions = jnp.linalg.svd(rows, full_matrices=False)
        return Fitted(v, directions, sizes, omitted, pull.factor, streams), ()

    def draw(
        self, model: Model, data: Any, params: Fitted, memory: Any, key: Array, number: Array
    ) -> tuple[Array, dict[str, Array]]:
        centre, scale = prior_units(model)
        which, dtype = self._which(model), params.v.dtype
        key, key_linear = jax.random.split(key)
        eps = jax.random.normal(key, (len(which),), dtype)
        shrink = 1.0 - 1.0 / jnp.sqrt(1.0 + params.sizes**2)
        moved = eps - params.directions.T @ (shrink * (params.directions @ eps))
        log_q = _log_normal(eps) + 0.5 * jnp.sum(jnp.log1p(params.sizes**2)) - jnp.sum(jnp.log(scale[which]))
        if params.factor is not None:
            first = len(which) - len(params.factor)
            moved = moved.at[first:].set(params.factor @ moved[first:])
            log_q -= jnp.sum(jnp.log(jnp.diag(params.factor)))
        z = centre + scale * params.v.at[which].add(moved)
        if params.streams is not None:
            residual = jax.random.normal(key_linear, (len(model.linear),), dtype)
            one = unit_scalars(model)
            white = Coordinates(model, data, Reference(params.streams, one, one))
            z, growth = white.to_plain(z.at[model.linear].set(residual))
            log_q += _log_normal(residual) - growth
        return z, {"log_q": log_q, "omitted": params.omitted}


def _without(rows: Array, linear: np.ndarray) -> Array:
    """Rows in units of the noise that remains if the linear parameters, with unit prior, are integrated out."""
    count = len(rows)
    root = jnp.linalg.qr(jnp.concatenate([rows[:, linear].T, jnp.eye(count, dtype=rows.dtype)]), mode="r")
    return solve_triangular(root, rows, trans=1)


def _log_normal(eps: Array) -> Array:
    return -0.5 * jnp.vdot(eps, eps) - 0.5 * len(eps) * jnp.log(2 * jnp.pi)
