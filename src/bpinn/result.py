"""Result: draws from the posterior, with summaries, diagnostics and predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bpinn import diagnostics
from bpinn.checks import is_whole
from bpinn.errors import InputError
from bpinn.measurements import Quantity, label
from bpinn.methods import Method
from bpinn.monitor import Monitor
from bpinn.posterior import Posterior
from bpinn.prediction import Prediction
from bpinn.problem import Problem
from bpinn.quantity_at import QuantityAt, measured
from bpinn.readings import Readings
from bpinn.run_output import RunOutput, SamplerStats
from bpinn.shown import Shown
from bpinn.solutions import Mode, described, mixture_of, solutions_of
from bpinn.summary import NOT_TRUSTED, Summary, table_of

if TYPE_CHECKING:
    import xarray as xr

    from bpinn.design import Separation


@dataclass
class Result(Shown):
    """Draws from the posterior of a problem.

    ``z`` has shape (chains, draws, dim); ``stats`` holds the sampler's statistics of each draw; ``history`` what was
    recorded during a fit, such as the ``elbo`` (chains, records), with the ``step`` of each record.
    ``readings_noted`` holds the findings about the readings, for a result from a file; ``start_noted`` those about the
    solutions of the result that the run was started with.

    Example:
        ``result = bp.infer(problem, seed=0); print(result.summary()); result.draws("k").mean()``
    """

    problem: Problem
    method: Method
    seed: int
    z: np.ndarray
    functionals: np.ndarray
    stats: SamplerStats
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    history: dict[str, np.ndarray] = field(default_factory=dict)
    readings_noted: list[tuple[str, str, str | None]] = field(default_factory=list, repr=False)
    start_noted: list[tuple[str, str, str | None]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.stats = SamplerStats(self.stats)

    def __repr__(self) -> str:
        return f"Result({type(self.method).__name__}, {self.extent}, {self.problem})"

    @cached_property
    def posterior(self) -> Posterior:
        return Posterior(self.problem)

    @property
    def names(self) -> list[str]:
        """The unknowns and inferred noises."""
        return list(self.problem.scalars)

    @cached_property
    def mixture(self) -> "Result":
        """The result whose draws have the proportions of the posterior; itself, unless chains have different weights.

        Populations of `SMC` are weighted by their evidence. `summary` and `predict` are those of the mixture, while
        ``z`` and `draws` have the draws of each population.
        """
        return mixture_of(self)

    def draws(self, name: str) -> np.ndarray:
        """Draws of an unknown or an inferred noise, in its own units, shape (chains, draws, ...)."""
        if not isinstance(name, str) or name not in self.names:
            known = ", ".join(self.names) or "none"
            is_field = isinstance(name, str) and name in self.problem.fields
            hint = f"; use predict({name!r}, at) for a field" if is_field else ""
            raise InputError(f"draws: {name!r} is neither an unknown nor an inferred noise (known: {known}){hint}")
        flat = self.functionals[..., self.monitor.columns(name)]
        return flat.reshape(*flat.shape[:2], *self.problem.scalars[name].shape())

    @cached_property
    def monitor(self) -> Monitor:
        """Describes the columns of ``functionals``."""
        return Monitor(self.problem)

    @property
    def functional_names(self) -> list[str]:
        """Names of the columns of ``functionals``: 'u at x=0.5', ..., 'k'."""
        return list(self.monitor.names)

    def summary(self, p: float = 0.95) -> Summary:
        """Mean, sd and central interval of each unknown and noise, R-hat and ESS of chains, and the health verdict.

        If `bpinn.forward_check` was called before and disagrees, its reasons are below the verdict.
        """
        if not isinstance(p, int | float) or not 0 < p < 1:
            raise InputError(f"summary: p must lie between 0 and 1, such as 0.95, got {p!r}")
        health = self.diagnose()
        return Summary(
            table_of(self.monitor, self.mixture.functionals, self.method, p),
            self.about,
            health,
            NOT_TRUSTED if health.verdict == "bad" else "",
            described(self.modes()) if self.method.has_spread else "",
            self.forward_noted,
        )

    @cached_property
    def forward_noted(self) -> list[str]:
        """What the last `bpinn.forward_check` of this result found to disagree; nothing if none was made."""
        return []

    @property
    def extent(self) -> str:
        """The number of chains and draws, in words."""
        return self.method.extent(*self.z.shape[:2])

    @property
    def about(self) -> str:
        """The method, the number of chains and draws, and the seconds, in words."""
        stopped = ", stopped early" if self.interrupted else ""
        return f"{type(self.method).__name__}, {self.extent}{stopped}, {sum(self.seconds.values()):.1f} s"

    def only(self, *chains: int) -> "Result":
        """The result with a subset of its chains, such as those on one of several solutions.

        Example:
            ``for group in result.diagnose().branches: print(result.only(*group).summary())``
        """
        count = self.z.shape[0]
        right = all(isinstance(c, int | np.integer) and not isinstance(c, bool) and 0 <= c < count for c in chains)
        if not chains or not right or len(set(chains)) < len(chains):
            raise InputError(f"only: expected distinct chain numbers from 0 to {count - 1}, got {chains}")
        rows = list(chains)
        return replace(
            self,
            z=self.z[rows],
            functionals=self.functionals[rows],
            stats=self.stats.select(lambda values: values[rows]),
            history={name: values if name == "step" else values[rows] for name, values in self.history.items()},
        )

    def modes(self) -> list[Mode]:
        """The solutions found, each with its draws; a list of one if there is only one.

        Chains on the same solution are grouped. Probabilities of solutions are known only if the method can move
        between them, such as `SMC`, or if every chain has visited every solution.

        Example:
            ``for mode in result.modes(): print(mode); print(mode.result.summary())``
        """
        health = self.diagnose()
        return [Mode(self, 1.0, None, None, "")] if health.is_hopeless else solutions_of(self, health.branches)

    def tell_apart(self, candidates: Any = None, noise: Any = None, of: Any = None) -> "Separation":
        """Which single reading would tell the solutions apart best, for draws on several solutions.

        Arguments are those of `bp.next_sensor`: places, noise, and what can be read.

        Example:
            ``print(result.tell_apart()); result.tell_apart().plot().savefig("apart.png")``
        """
        from bpinn.design.separation import tell_apart  # imported here because design imports this module

        return tell_apart(self, candidates, noise, of)

    def thinned(self, most: int) -> "Result":
        """The result with at most about ``most`` draws in total, evenly spaced in every chain."""
        if not is_whole(most, 1):
            raise InputError(f"thinned: expected a whole number of draws of at least 1, got {most!r}")
        chains, draws = self.z.shape[:2]
        wanted = max(1, most // chains)
        if wanted >= draws:
            return self
        rows = np.linspace(0, draws - 1, wanted).round().astype(int)
        return replace(
            self,
            z=self.z[:, rows],
            functionals=self.functionals[:, rows],
            stats=self.stats.select(lambda values: values[:, rows]),
        )

    def diagnose(self) -> diagnostics.Diagnosis:
        """Can the draws be trusted? A verdict, the reasons, and what to try."""
        return self._diagnosis

    @cached_property
    def _diagnosis(self) -> diagnostics.Diagnosis:
        monitor = self.monitor
        run = RunOutput(monitor.names, monitor.is_secondary, self.functionals, self.stats, self.history)
        health = self.method.judge(run)
        if self.method.is_posterior:
            from bpinn.predictive import judge  # imported here because predictive imports this module

            judge(self, health)
        for told in self.start_noted:
            health.worsen(*told)
        if health.branches:
            from bpinn.design.several import advise  # imported here because design imports this module

            advise(self, solutions_of(self, health.branches), health)
        return health

    def predict(
        self,
        quantity: Quantity,
        at: Mapping[str, Any] | None = None,
        *,
        noise: bool | str | float = False,
        seed: int = 0,
        solution: int | None = None,
    ) -> Prediction:
        """The posterior of a quantity at points.

        Arguments:
            quantity: a field ("u"), a derivative ("u_x"), the name of sensors ("f"), or any function of names.
            at: an array for each coordinate, of any shapes that broadcast (see `Problem.grid` for a mesh).
            noise: True predicts new readings, with the noise of the sensors of this quantity; the name of
                sensors, or a standard deviation, selects another noise.
            seed: seed of the noise.
            solution: the number, from 1, of one of several solutions (see `modes`); by default all draws together.

        Example:
            ``band = result.predict("u", {"x": grid}); low, high = band.interval(0.95)``
        """
        where = f"predict {label(quantity)!r}"
        if solution is not None:
            modes = self.modes()
            if not is_whole(solution, 1) or solution > len(modes):
                raise InputError(f"{where}: solution must be a whole number from 1 to {len(modes)}, got {solution!r}")
            return modes[solution - 1].result.predict(quantity, at, noise=noise, seed=seed)
        if self.mixture is not self:
            return self.mixture.predict(quantity, at, noise=noise, seed=seed)
        itself = measured(self.problem, quantity, where)
        if itself is not quantity and noise is True:
            noise = str(quantity)  # the quantity was given as sensors, so use their noise
        quantity = itself
        located = QuantityAt.of(self.problem, quantity, at, where)
        scatter = self._scatter(quantity, noise, where)
        chains, draws, _ = self.z.shape
        flat = self.z.reshape(chains * draws, -1)

        def evaluate(part: slice) -> np.ndarray:
            values = located.evaluate(flat, part).reshape(chains, draws, -1)
            return values if scatter is None else scatter(values, np.random.default_rng([seed, part.start]))

        itemsize = self.z.dtype.itemsize
        return Prediction(
            evaluate,
            located.chunk,
            located.shape,
            chains,
            draws,
            itemsize,
            located.at,
            located.label,
            self.method.has_spread,
        )

    def _scatter(self, quantity: Quantity, noise: bool | str | float, where: str) -> Any:
        """A function that adds the noise of new readings to draws, or None."""
        if noise is False:
            return None
        if isinstance(noise, int | float) and noise is not True:
            if not 0 < noise < np.inf:
                raise InputError(f"{where}: noise must be positive, got {noise!r}")
            return lambda values, rng: (values + noise * rng.standard_normal(values.shape)).astype(values.dtype)
        readings = self._readings_for(quantity, noise, where)
        if readings.noise is not None and np.ptp(readings.noise) > 0:
            raise InputError(
                f"{where}: the readings of sensors {readings.name!r} have different noise; "
                "give the standard deviation of a new reading, such as noise=0.1"
            )

        def scatter(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            scale: Any = None if readings.noise is None else readings.noise[0]
            if readings.noise_name is not None:
                scale = self.draws(readings.noise_name)[..., None]
            return readings.likelihood.sample(rng, values, scale).astype(values.dtype)

        return scatter

    def _readings_for(self, quantity: Quantity, noise: bool | str | float, where: str) -> Readings:
        readings = {r.name: r for r in self.problem.readings}
        if isinstance(noise, str):
            if noise not in readings:
                raise InputError(f"{where}: no sensors called {noise!r}; known sensors: {', '.join(readings)}")
            return readings[noise]
        matching = [n for n, s in self.problem.sensors.items() if self.problem.names.same(s.quantity, quantity)]
        if len(matching) != 1:
            which = "no sensors measure it" if not matching else f"sensors {', '.join(matching)} all measure it"
            raise InputError(f"{where}: {which}; give noise='NAME' with the name of sensors, or a standard deviation")
        return readings[matching[0]]

    def noise_of(self, readings: Readings, shape: tuple[int, ...]) -> np.ndarray | None:
        """The noise of readings at each draw, (draws, readings); None if their likelihood has no scale."""
        if readings.noise_name is not None:
            return np.broadcast_to(self.draws(readings.noise_name).reshape(-1, 1).astype(float), shape)
        return None if readings.noise is None else np.broadcast_to(np.asarray(readings.noise, float), shape)

    def to_arviz(
        self, at: Mapping[str, Any] | None = None, *, quantities: Sequence[Quantity] | None = None, seed: int = 0
    ) -> "xr.DataTree":
        """The result as ArviZ's DataTree, for its plots and statistics.

        The groups are posterior (unknowns, inferred noises, and fields at points), posterior_predictive (new readings
        at the places of the readings), log_likelihood, sample_stats, observed_data, and constant_data (the places).
        A name that is already taken gets a suffix, such as ``chain_unknown`` for an unknown called ``chain``.

        Arguments:
            at: the points of fields, as in `predict`; by default a coarse grid over the domain.
            quantities: what to hold at these points, as in `predict`; all fields by default, ``[]`` for none.
            seed: seed of the new readings.

        Example:
            ``arviz_stats.summary(result.to_arviz(), var_names=["k"])``
        """
        from bpinn.arviz_tree import to_arviz

        return to_arviz(self, at, quantities, seed)

    def save(self, path: str | Path) -> Path:
        """Write everything to one file, without pickle; `bpinn.load` reads it."""
        from bpinn.storage import save

        return save(self, path)
