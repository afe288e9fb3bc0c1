"""Are the error bars right? Simulation-based calibration, coverage, and scores of predictions.

Truths are drawn from the prior, readings from the truths, and each data set is inferred as if it were real. If the
posterior is right, a truth is like any of its draws: its rank among them is uniform, a central interval of
probability p holds it with probability p, for every unknown, every field at every point, and the log likelihood
(Talts et al. 2018; Modrák et al. 2023).
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv

from bpinn.checks import is_whole
from bpinn.engine import available_cores
from bpinn.errors import DamagedError, InputError
from bpinn.inference import infer
from bpinn.methods import HMC, Method
from bpinn.monitor import Monitor
from bpinn.posterior import Model, Posterior
from bpinn.problem import Problem
from bpinn.result import Result
from bpinn.run_folder.files import only_one, read_arrays, write_file
from bpinn.run_folder.manifest import claim

LIKELIHOOD = "log likelihood"
GRID = 50  # points at which the distribution of ranks is compared with the uniform one
SIMULATED = 4000  # sets of uniform ranks, from which the width of simultaneous bands is found
Infer = Callable[[Problem, int], Result]
One = Callable[[int], dict[str, np.ndarray]]  # a simulation, by its seed


@dataclass(frozen=True)
class Coverage:
    """How often central intervals hold the truth: the share, with its own 95% interval from the number of trials."""

    p: float
    share: float
    low: float
    high: float

    @property
    def is_right(self) -> bool:
        return self.low <= self.p <= self.high


@dataclass(frozen=True)
class Calibration:
    """What came of simulations. Rows are simulations, columns the quantities in ``names``.

    ``truths`` has shape (simulations, quantities); ``draws`` (simulations, draws, quantities), some of the posterior's,
    evenly taken from all of them; ``verdicts`` are those of `Result.diagnose`.
    """

    names: tuple[str, ...]
    truths: np.ndarray
    draws: np.ndarray
    verdicts: tuple[str, ...]

    @property
    def simulations(self) -> int:
        return len(self.truths)

    @cached_property
    def ranks(self) -> np.ndarray:
        """How many draws are below the truth, (simulations, quantities); ties are broken at random, always alike."""
        below = np.sum(self.draws < self.truths[:, None], axis=1)
        ties = np.sum(self.draws == self.truths[:, None], axis=1)
        return below + np.random.default_rng(0).integers(0, ties + 1)

    @cached_property
    def pit(self) -> np.ndarray:
        """Ranks as numbers between 0 and 1, spread evenly within each rank: uniform where the posterior is right."""
        spread = np.random.default_rng(1).uniform(size=self.ranks.shape)
        return (self.ranks + spread) / (self.draws.shape[1] + 1)

    def column(self, name: str) -> int:
        if name not in self.names:
            raise InputError(f"calibration: {name!r} is not among {', '.join(self.names)}")
        return self.names.index(name)

    def evidence(self, name: str) -> float:
        """The probability that uniform ranks would stray from uniformity as far as these at any point."""
        ecdf = _counts(self.pit[:, [self.column(name)]])[:, 0]
        least = _tail(ecdf, self.simulations).min()
        return float(np.mean(_least_tails(self.simulations) <= least))

    def is_uniform(self, name: str, level: float = 0.05) -> bool:
        """Whether the ranks are inside of the simultaneous band of probability ``1 - level``."""
        return self.evidence(name) >= level

    def band(self, level: float = 0.05) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points between 0 and 1, and the ends between which the distribution of all ranks lies with ``1 - level``."""
        from scipy.stats import binom  # here, because importing it takes half a second that only this needs

        points = np.arange(1, GRID) / GRID
        inner = np.quantile(_least_tails(self.simulations), level)
        low, high = (binom.ppf(q, self.simulations, points) / self.simulations for q in (inner / 2, 1 - inner / 2))
        return points, low, high

    def coverage(self, p: float, names: Iterable[str] | None = None) -> Coverage:
        """Of central intervals of probability ``p``; over several quantities, whose trials are not independent, the
        interval of the share is that of one of them."""
        _check_probability(p)
        columns = [self.column(name) for name in names] if names is not None else range(len(self.names))
        inside = np.abs(self.pit[:, list(columns)] - 0.5) <= p / 2
        held = inside.mean(axis=1).sum()
        low = betaincinv(held, self.simulations - held + 1, 0.025) if held > 0 else 0.0
        high = betaincinv(held + 1, self.simulations - held, 0.975) if held < self.simulations else 1.0
        return Coverage(p, float(inside.mean()), float(low), float(high))

    def crps(self) -> np.ndarray:
        """The continuous ranked probability score of each quantity, in the mean over simulations: smaller is better."""
        return np.array([crps(self.draws[:, :, i], self.truths[:, i]).mean() for i in range(len(self.names))])

    def sharpness(self, p: float = 0.95) -> np.ndarray:
        """The width of central intervals of probability ``p`` of each quantity, in the mean over simulations."""
        low, high = self._intervals(p)
        return (high - low).mean(axis=0)

    def interval_score(self, p: float = 0.95) -> np.ndarray:
        """The score of central intervals of probability ``p``, in the mean over simulations: smaller is better."""
        return interval_score(*self._intervals(p), self.truths, p).mean(axis=0)

    def _intervals(self, p: float) -> tuple[np.ndarray, np.ndarray]:
        _check_probability(p)
        low, high = np.quantile(self.draws, [0.5 - p / 2, 0.5 + p / 2], axis=1)
        return low, high

    @property
    def contraction(self) -> np.ndarray:
        """One minus the posterior's variance over the truths': how much each quantity was learned from the readings."""
        return 1 - self.draws.var(axis=1, ddof=1).mean(axis=0) / self.truths.var(axis=0, ddof=1)

    @property
    def bias(self) -> np.ndarray:
        """Means of truth minus posterior mean, in posterior sds."""
        return ((self.truths - self.draws.mean(axis=1)) / self.draws.std(axis=1, ddof=1)).mean(axis=0)

    def __str__(self) -> str:
        bad = sum(verdict == "bad" for verdict in self.verdicts)
        lines = [f"{self.simulations} simulations, {bad} of them with the verdict 'do not trust'"]
        width = max(len(name) for name in self.names)
        # In brackets the 95% interval of each share, in percent.
        columns = "  ".join(f"{p:>14}" for p in ("in 50%", "in 80%", "in 95%"))
        lines.append(f"{'':{width}}  p of ranks  {columns}  bias, sd")
        for i, name in enumerate(self.names):
            shares = "  ".join(f"{_shown(self.coverage(p, [name])):>14}" for p in (0.5, 0.8, 0.95))
            mark = "" if self.is_uniform(name) else "  off"
            lines.append(f"{name:{width}}  {self.evidence(name):10.3f}  {shares}  {self.bias[i]:+8.2f}{mark}")
        off = sum(not self.is_uniform(name) for name in self.names)
        if off:
            lines.append(f"{off} of {len(self.names)} are off, where 1 in 20 is by chance")
        return "\n".join(lines)

    __repr__ = __str__


def _check_probability(p: float) -> None:
    if not 0 < p < 1:
        raise InputError(f"calibration: p must lie between 0 and 1, such as 0.95, got {p!r}")


def _shown(found: Coverage) -> str:
    return f"{found.share:.0%} ({100 * found.low:.0f}–{100 * found.high:.0f})"


def crps(draws: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of draws, (forecasts, draws), for truths, (forecasts,)."""
    ordered = np.sort(np.asarray(draws, float), axis=1)
    count = ordered.shape[1]
    weights = 2 * np.arange(1, count + 1) - count - 1
    between = ordered @ weights / (count * (count - 1))  # half the mean distance of two draws
    return np.abs(ordered - np.asarray(truths, float)[:, None]).mean(axis=1) - between


def interval_score(low: np.ndarray, high: np.ndarray, truths: np.ndarray, p: float) -> np.ndarray:
    """Width of central intervals, and what they miss the truth by times 2 / (1 - p): smaller is better."""
    missed = np.maximum(low - truths, 0) + np.maximum(truths - high, 0)
    return (high - low) + 2 / (1 - p) * missed


def _counts(pit: np.ndarray) -> np.ndarray:
    """How many of each column are at most each point of the grid, (points, columns)."""
    points = np.arange(1, GRID) / GRID
    return np.sum(pit[None] <= points[:, None, None], axis=1)


def _tail(counts: np.ndarray, simulations: int) -> np.ndarray:
    """Two-sided probability of so many, at each point, for uniform ranks."""
    points = (np.arange(1, GRID) / GRID).reshape(-1, *(1 for _ in counts.shape[1:]))
    below = bdtr(counts, simulations, points)
    above = bdtrc(counts - 1, simulations, points)
    return np.minimum(2 * np.minimum(below, above), 1.0)


@cache
def _least_tails(simulations: int) -> np.ndarray:
    """The smallest of these probabilities over the grid, for sets of uniform ranks (Säilynoja et al. 2022)."""
    uniform = np.random.default_rng(2).uniform(size=(simulations, SIMULATED))
    return _tail(_counts(uniform), simulations).min(axis=0)


# --- simulations ---


def simulate(problem: Problem, seed: int) -> tuple[Problem, np.ndarray]:
    """The problem with readings of a truth drawn from its prior; and that truth, as a flat vector."""
    posterior = Posterior(problem)
    z = posterior.sample_prior(jax.random.key(seed), 1)[0]
    rng = np.random.default_rng([seed, 1])
    values = np.asarray(posterior.model.functionals(z, posterior.data)).astype(float)
    scalars = dict(zip(posterior.monitor.number_names, posterior.monitor.numbers_of(values), strict=True))
    sensors = {}
    for readings, exact in zip(problem.readings, posterior.model.predicted(z, posterior.data), strict=True):
        scale: Any = scalars[readings.noise_name] if readings.noise_name else readings.noise
        mean = np.asarray(exact, float)
        if readings.likelihood.positive and not np.all(mean > 0):
            raise InputError(
                f"sensors {readings.name!r}: the prior predicts {mean.min():.3g}, but "
                f"{type(readings.likelihood).__name__} readings need positive predictions; use a field with "
                "positive=True, or an equation that cannot be negative"
            )
        values = readings.likelihood.sample(rng, mean, scale)
        stated = problem.sensors[readings.name]
        noise = stated.noise if readings.noise is None else readings.noise
        sensors[readings.name] = replace(stated, at=dict(readings.at), values=values, noise=noise)
    return Problem(problem.domain, problem.fields, sensors, problem.unknowns), np.asarray(z)


def sbc(
    problem: Problem,
    method: Method | Infer | None = None,
    *,
    simulations: int = 200,
    seed: int = 0,
    draws: int = 99,
    out: str | Path | None = None,
    progress: bool = True,
) -> Calibration:
    """Simulation-based calibration of a method on problems like this one; its own readings are not used.

    Arguments:
        problem: its prior, sensors and noise are what is simulated.
        method: as in `bpinn.infer`, or a function of a problem and a seed that gives a `Result`.
        simulations: how many data sets.
        seed: of the first one; the others follow.
        draws: how many of each posterior's draws ranks are counted among, evenly taken.
        out: a folder to which each simulation is written when it is done; the same call goes on from there.
        progress: say how far it is.

    Example:
        ``print(bp.calibration.sbc(problem, bp.HMC(), simulations=200, out="sbc"))``
    """
    method = HMC() if method is None else method
    if not isinstance(problem, Problem) or not problem.sensors:
        raise InputError("sbc: expected a bp.Problem with sensors, whose readings can be simulated")
    for name, value, least in (("simulations", simulations, 10), ("draws", draws, 9), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise InputError(f"sbc: {name} must be a whole number of at least {least}, got {value!r}")
    simulations, draws, seed = int(simulations), int(draws), int(seed)
    if isinstance(method, Method):
        method = method.plain()
        if not method.has_spread:
            raise InputError("sbc: a single solution has no error bars to be judged; use another method")
        method.check(problem)
    elif not callable(method):
        raise InputError(f"sbc: expected a method such as bp.HMC(), got {method!r}")
    seeds = range(seed, seed + simulations)
    stop = threading.Event()
    one = partial(_one, problem, method, draws, stop)
    if out is None:
        done = _done(one, seeds, method, stop, progress, simulations)
        rows = sorted(done, key=lambda row: int(row["seed"]))
    else:
        rows = _kept(Path(out), problem, method, one, seeds, draws, stop, progress)
    return Calibration(
        _names(problem), np.stack([r["truth"] for r in rows]), np.stack([r["draws"] for r in rows]),
        tuple(str(r["verdict"]) for r in rows),
    )  # fmt: skip


def _names(problem: Problem) -> tuple[str, ...]:
    return (*Monitor(problem).names, LIKELIHOOD)


def _read(path: Path, draws: int, width: int) -> dict[str, np.ndarray] | None:
    """A simulation that is done; one whose file is damaged is said, and made again."""
    if not path.exists():
        return None
    try:
        row = read_arrays(path)
        if row["truth"].shape == (width,) and row["draws"].shape == (draws, width) and {"verdict", "seed"} <= set(row):
            return row
        why = f"{path}: the file is damaged"
    except (DamagedError, KeyError) as error:
        why = str(error) if isinstance(error, DamagedError) else f"{path}: the file is damaged (it lacks {error})"
    print(f"sbc: {why}; it is simulated again", file=sys.stderr)
    return None


def _kept(
    folder: Path, problem: Problem, method: Method | Infer, one: One, seeds: range, draws: int, stop: threading.Event,
    progress: bool,
) -> list[dict[str, np.ndarray]]:  # fmt: skip
    """Simulations with a file each: those that are there are read."""
    if not isinstance(method, Method):
        raise InputError("sbc: out= needs a method such as bp.HMC(), whose settings can be compared with those there")
    claim(folder, "sbc", problem, method, draws=draws)
    paths = {seed: folder / f"simulation-{seed}.npz" for seed in seeds}
    with only_one(folder):
        width = len(_names(problem))
        rows = {seed: row for seed, path in paths.items() if (row := _read(path, draws, width)) is not None}
        missing = [seed for seed in seeds if seed not in rows]

        def kept(seed: int) -> dict[str, np.ndarray]:
            row = one(seed)
            write_file(paths[seed], row)  # where it is made, so that it is there whatever happens to others
            return row

        rows |= {int(row["seed"]): row for row in _done(kept, missing, method, stop, progress, len(seeds))}
    return [rows[seed] for seed in seeds]


def _done(
    one: One, seeds: Sequence[int], method: Method | Infer, stop: threading.Event, progress: bool, of: int
) -> Iterator[dict[str, np.ndarray]]:
    """Simulations as they end. Where a method has fewer chains than there are cores, several are made at once."""
    cores = available_cores()
    at_once = max(1, cores // method.chains) if isinstance(method, Method) else 1
    double = jnp.result_type(float) == jnp.float64  # this thread's own; see `engine.run`

    def precisely(seed: int) -> dict[str, np.ndarray]:
        with jax.enable_x64(double):
            return one(seed)

    def told(row: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        if progress:
            print(f"simulation {of - len(seeds) + number} of {of}: {row['verdict']}", file=sys.stderr, flush=True)
        return row

    alone = seeds[:1] if at_once > 1 else seeds  # the first compiles for all
    for number, seed in enumerate(alone, 1):
        yield told(one(seed), number)
    with ThreadPoolExecutor(at_once) as pool:
        ends = [pool.submit(precisely, seed) for seed in seeds[len(alone) :]]
        try:
            for number, end in enumerate(as_completed(ends), len(alone) + 1):
                yield told(end.result(), number)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _one(
    problem: Problem, method: Method | Infer, draws: int, stop: threading.Event, seed: int
) -> dict[str, np.ndarray]:
    simulated, truth = simulate(problem, seed)
    if isinstance(method, Method):
        result = infer(simulated, method, seed=seed, progress=partial(_heed, stop))
    else:
        result = method(simulated, seed)
    if result.interrupted:
        raise KeyboardInterrupt("what is done is kept, if there is a folder for it")
    flat = result.z.reshape(-1, result.z.shape[-1])
    if len(flat) < draws:
        raise InputError(
            f"sbc: the method gives {len(flat)} draws, but ranks are to be among {draws}; give fewer draws="
        )
    rows = np.linspace(0, len(flat) - 1, draws).round().astype(int)
    posterior = Posterior(simulated)
    watched = np.asarray(_watched(posterior.model, np.stack([truth, *flat[rows]]), posterior.data), float)
    verdict = result.diagnose().verdict
    return {"truth": watched[0], "draws": watched[1:], "verdict": np.array(verdict), "seed": np.array(seed)}


def _heed(stop: threading.Event, _: Any) -> None:
    """Between blocks: Ctrl-C is heard by the main thread alone, which tells the others so."""
    if stop.is_set():
        raise KeyboardInterrupt


@partial(jax.jit, static_argnames="model")
def _watched(model: Model, z: Any, data: Any) -> Any:
    """Fields, equations, unknowns and noises, then the log likelihood, for each row of ``z``."""

    def one(z: Any) -> Any:
        return jnp.concatenate([model.functionals(z, data), model.log_likelihood(z, data)[None]])

    return jax.vmap(one)(z)
