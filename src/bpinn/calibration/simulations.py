"""True values drawn from the prior, readings simulated from them, and the posterior of each data set."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bpinn import cluster as clusters
from bpinn.calibration.ranks import Calibration
from bpinn.checks import is_whole
from bpinn.choosing import default_method
from bpinn.compiling import FUSED
from bpinn.engine import available_cores
from bpinn.errors import DamagedError, InputError
from bpinn.inference import infer
from bpinn.methods import Method
from bpinn.model import Model
from bpinn.monitor import Monitor
from bpinn.posterior import Posterior
from bpinn.problem import Problem
from bpinn.result import Result
from bpinn.run_folder.files import only_one, read_arrays, write_file
from bpinn.run_folder.manifest import claim

LIKELIHOOD = "log likelihood"
KEPT = "stopped; finished simulations are kept if there is a folder (out=), and the same call continues"
Infer = Callable[[Problem, int], Result]
Row = dict[str, np.ndarray]  # the outcome of a simulation
One = Callable[[Any, int | None, int], Row]  # runs a simulation, given an event that stops it, cores and seed
Keep = Callable[[Row], None]  # stores an outcome
Run = Callable[[One, Sequence[int], Method | Infer, Keep], Iterator[Row]]

TRIES = 200  # draws of the prior, for one with which fields meet neutral equations


def simulate(problem: Problem, seed: int) -> tuple[Problem, np.ndarray]:
    """Draw true values from the prior; return the problem with readings simulated from them, and them as a vector.

    Fields of neutral equations are drawn from their prior given the equations, and these points keep their values. For
    equations that are not linear there is no such draw: their points are simulated like readings (``neutral=False``).

    Example:
        >>> import bpinn as bp
        >>> problem, z = bp.calibration.simulate(bp.paper.poisson_1d().problem, seed=3)
        >>> z.shape == (bp.Posterior(problem).dim,)
        True
    """
    posterior = Posterior(problem).by_reading
    if not posterior.model.neutral_linear:
        problem = _as_readings(problem)
        posterior = Posterior(problem).by_reading
    rng = np.random.default_rng([seed, 1])
    z = _drawn(posterior, seed, rng)
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
        values = readings.values if readings.neutral else readings.likelihood.sample(rng, mean, scale)
        stated = problem.sensors[readings.name]
        noise = stated.noise if readings.noise is None else readings.noise
        sensors[readings.name] = replace(stated, at=dict(readings.at), values=values, noise=noise)
    return Problem(problem.domain, problem.fields, sensors, problem.unknowns), np.asarray(z)


def _drawn(posterior: Posterior, seed: int, rng: np.random.Generator) -> Any:
    """A draw of the prior given neutral equations, if there are any: by rejection of what no field meets."""
    model, data = posterior.model, posterior.data
    if not model.neutral_fields:
        return posterior.sample_prior(jax.random.key(seed), 1)[0]
    draws = posterior.sample_prior(jax.random.key(seed), TRIES)
    misfits = np.asarray(jax.jit(lambda z: jax.lax.map(lambda row: model.log_misfit(row, data), z))(draws))
    met = np.flatnonzero(np.log(rng.uniform(size=TRIES)) < misfits)
    if not len(met):
        raise InputError(
            f"simulate: in {TRIES} draws of the prior no field meets the equations; use a field with a shorter length "
            "or more terms, a larger tolerance, or narrower priors"
        )
    return model.given_neutral(draws[met[0]], data)


def _as_readings(problem: Problem) -> Problem:
    """The problem with points that count like readings in all its equations."""
    sensors = {
        name: replace(s, neutral=False) if getattr(s, "neutral", False) else s for name, s in problem.sensors.items()
    }
    return Problem(problem.domain, problem.fields, sensors, problem.unknowns)


def sbc(
    problem: Problem,
    method: Method | Infer | None = None,
    *,
    simulations: int = 200,
    seed: int = 0,
    draws: int = 99,
    out: str | Path | None = None,
    progress: bool = True,
    cluster: Any = None,
) -> Calibration:
    """Simulation-based calibration of a method on problems like this one; its own readings are not used.

    Arguments:
        problem: the problem whose prior, sensors and noise are simulated.
        method: as in `bpinn.infer`, or a function of a problem and a seed that returns a `Result`.
        simulations: number of simulated data sets.
        seed: seed of the first simulation; the others use the seeds that follow.
        draws: number of evenly spaced draws of each posterior among which ranks are counted.
        out: a folder to which each finished simulation is written; the same call resumes from there.
        progress: print progress.
        cluster: where simulations run, as in `bpinn.infer`: one at a time on each worker.

    Example:
        ``print(bp.calibration.sbc(problem, bp.HMC(), simulations=200, out="sbc"))``
    """
    if not isinstance(problem, Problem) or not problem.sensors:
        raise InputError("sbc: expected a bp.Problem with sensors, to simulate their readings")
    method = default_method(problem) if method is None else method
    for name, value, least in (("simulations", simulations, 10), ("draws", draws, 9), ("seed", seed, 0)):
        if not is_whole(value, least):
            raise InputError(f"sbc: {name} must be a whole number of at least {least}, got {value!r}")
    simulations, draws, seed = int(simulations), int(draws), int(seed)
    if isinstance(method, Method):
        method = method.plain()
        if not method.has_spread:
            raise InputError("sbc: a single solution has no error bars to check; use another method, such as bp.HMC()")
        method.check(problem)
    elif not callable(method):
        raise InputError(f"sbc: expected a method such as bp.HMC(), got {method!r}")
    seeds = range(seed, seed + simulations)
    with ExitStack() as stack:
        run: Run = _run_here
        if cluster is not None:
            run = partial(_run_on, stack.enter_context(clusters.opened(cluster, _say, "sbc: cluster")))
        runner = _Runner(problem, method, draws, progress, simulations, run)
        if out is None:
            rows = sorted(runner.done(seeds, lambda row: None), key=lambda row: int(row["seed"]))
        else:
            rows = _kept(Path(out), runner, seeds)
    return Calibration(
        _names(problem), np.stack([r["truth"] for r in rows]), np.stack([r["draws"] for r in rows]),
        tuple(str(r["verdict"]) for r in rows),
    )  # fmt: skip


def _names(problem: Problem) -> tuple[str, ...]:
    return (*Monitor(problem).names, LIKELIHOOD)


def _read(path: Path, draws: int, width: int) -> Row | None:
    """Read a finished simulation; None, with a message, if its file is damaged."""
    if not path.exists():
        return None
    try:
        row = read_arrays(path)
        if row["truth"].shape == (width,) and row["draws"].shape == (draws, width) and {"verdict", "seed"} <= set(row):
            return row
        why = f"{path}: the file is damaged"
    except (DamagedError, KeyError) as error:
        why = str(error) if isinstance(error, DamagedError) else f"{path}: the file is damaged (it lacks {error})"
    print(f"sbc: {why}; the simulation is repeated", file=sys.stderr)
    return None


@dataclass(frozen=True)
class _Runner:
    """What all simulations share, and ``run``, which runs them."""

    problem: Problem
    method: Method | Infer
    draws: int
    progress: bool
    of: int  # number of simulations, with those that were done before
    run: Run

    def done(self, seeds: Sequence[int], keep: Keep) -> Iterator[Row]:
        """Simulations as they finish."""
        one = partial(_one, self.problem, self.method, self.draws)
        for number, row in enumerate(self.run(one, seeds, self.method, keep), self.of - len(seeds) + 1):
            if self.progress:
                print(f"simulation {number} of {self.of}: {row['verdict']}", file=sys.stderr, flush=True)
            yield row


def _kept(folder: Path, runner: _Runner, seeds: range) -> list[Row]:
    """Simulations with one file each; existing files are read."""
    problem, method, draws = runner.problem, runner.method, runner.draws
    if not isinstance(method, Method):
        raise InputError(
            "sbc: out= needs a method such as bp.HMC(), whose settings can be compared with those in the folder"
        )
    claim(folder, "sbc", problem, method, draws=draws)
    paths = {seed: folder / f"simulation-{seed}.npz" for seed in seeds}
    with only_one(folder):
        width = len(_names(problem))
        rows = {seed: row for seed, path in paths.items() if (row := _read(path, draws, width)) is not None}
        missing = [seed for seed in seeds if seed not in rows]
        done = runner.done(missing, lambda row: write_file(paths[int(row["seed"])], row))
        rows |= {int(row["seed"]): row for row in done}
    return [rows[seed] for seed in seeds]


def _run_here(one: One, seeds: Sequence[int], method: Method | Infer, keep: Keep) -> Iterator[Row]:
    """In this process. If a method has fewer chains than there are cores, several run at once."""
    cores = available_cores()
    at_once = max(1, cores // method.chains) if isinstance(method, Method) else 1
    double = jnp.result_type(float) == jnp.float64  # local to this thread; see `engine.advance.Program`
    stop = threading.Event()

    def kept(seed: int) -> Row:
        with jax.enable_x64(double):
            row = one(stop, None, seed)
        keep(row)  # in its own thread, so that it is stored whatever happens to others
        return row

    alone = seeds[:1] if at_once > 1 else seeds  # the first one compiles for all
    for seed in alone:
        yield kept(seed)
    with ThreadPoolExecutor(at_once) as pool:
        ends = [pool.submit(kept, seed) for seed in seeds[len(alone) :]]
        try:
            for end in as_completed(ends):
                yield end.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _run_on(
    cluster: clusters.Cluster, one: One, seeds: Sequence[int], method: Method | Infer, keep: Keep
) -> Iterator[Row]:
    """On the workers of a cluster."""
    try:
        for _, row in clusters.each(cluster, partial(_on_worker, one), seeds):
            keep(row)
            yield row
    except KeyboardInterrupt:
        raise KeyboardInterrupt(KEPT) from None


def _on_worker(one: One, seed: int) -> Row:
    return one(clusters.worker.Cancelled(), clusters.worker.cores(), seed)


def _one(problem: Problem, method: Method | Infer, draws: int, stop: Any, cores: int | None, seed: int) -> Row:
    simulated, truth = simulate(problem, seed)
    if isinstance(method, Method):
        heed = partial(_heed, stop)
        result = infer(simulated, method, seed=seed, progress=heed, preview=False, cores=cores)
    else:
        result = method(simulated, seed)
    if result.interrupted:
        raise KeyboardInterrupt(KEPT)
    flat = result.z.reshape(-1, result.z.shape[-1])
    if len(flat) < draws:
        raise InputError(
            f"sbc: the method gives {len(flat)} draws, but ranks among {draws} were requested; reduce draws="
        )
    rows = np.linspace(0, len(flat) - 1, draws).round().astype(int)
    posterior = Posterior(simulated)
    watched = np.asarray(_watched(posterior.model, np.stack([truth, *flat[rows]]), posterior.data), float)
    verdict = result.diagnose().verdict
    return {"truth": watched[0], "draws": watched[1:], "verdict": np.array(verdict), "seed": np.array(seed)}


def _say(message: str) -> None:
    print(f"sbc: {message}", file=sys.stderr)


def _heed(stop: Any, _: Any) -> None:
    """Called between blocks: only the main thread receives Ctrl-C, and stops the others through the event ``stop``."""
    if stop.is_set():
        raise KeyboardInterrupt


@partial(jax.jit, static_argnames="model", compiler_options=FUSED)
def _watched(model: Model, z: Any, data: Any) -> Any:
    """Fields, equations, unknowns and noises, then the log likelihood, for each row of ``z``."""

    def one(z: Any) -> Any:
        return jnp.concatenate([model.functionals(z, data), model.log_likelihood(z, data)[None]])

    return jax.vmap(one)(z)
