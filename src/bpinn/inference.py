"""`infer`, the main entry point."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError

from bpinn import cluster as clusters
from bpinn import engine, native
from bpinn.checks import is_whole
from bpinn.choosing import default_method
from bpinn.engine import interrupts
from bpinn.errors import InputError
from bpinn.methods import HMC, Method
from bpinn.model import MOST_LINEAR, Model
from bpinn.monitor import Monitor
from bpinn.portable import require
from bpinn.posterior import Posterior
from bpinn.preview import answer
from bpinn.problem import Problem
from bpinn.progress import Display
from bpinn.result import Result
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_folder.files import only_one
from bpinn.run_folder.manifest import RESULT, claim, versions
from bpinn.run_folder.results import finished
from bpinn.run_output import SamplerStats
from bpinn.storage import describe_problem, describe_settings, save

GIB = 2**30
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")


def infer(
    problem: Problem,
    method: Method | None = None,
    *,
    seed: int,
    chains: int | None = None,
    progress: bool | Callable[[engine.Progress], None] = True,
    out: str | Path | None = None,
    cores: int | None = None,
    within: float | None = None,
    preview: bool = True,
    start: Result | None = None,
    cluster: Any = None,
    portable: bool = False,
) -> Result:
    """Draw from the posterior of a problem.

    Arguments:
        problem: the domain, fields, unknowns and sensors.
        method: how to estimate the posterior; by default `Collapsed` where it is efficient, otherwise `HMC`.
        seed: a whole number; the same seed gives the same draws, on any number of cores.
        chains: number of independent chains; by default the method's own.
        progress: True shows progress on the terminal; a function is called with it between blocks.
        out: where to store the run: a file (``"result.npz"``), to which the result is saved when the run ends or is
            stopped; or a folder (``"run"``), to which every block of draws is written. The same call with the same
            folder resumes a run that was stopped or killed, and the draws are identical to those of an uninterrupted
            run; for a finished run it returns the result. `bpinn.load` reads both.
        cores: number of cores to use; all by default.
        within: seconds after which the best answer so far is returned, draws or a preview, with its verdict. Fitting a
            preview takes some seconds, and a step that has started is finished.
        preview: whether an approximate answer, a `LastLayer` fit that says so in its verdict, takes the place of draws
            if a run is stopped in warm-up; it is also displayed during a long warm-up. It does not change the draws.
        start: for `SMC`, a result of the same problem whose chains are on several solutions: the verdict says which of
            them the populations have found. It does not change the draws, so that probabilities do not depend on how
            many chains were on each solution.
        cluster: where chains run, if not in threads of this process: the address of a scheduler of
            `dask.distributed` (``"tcp://node1:8786"``), its scheduler file, a ``Client``, or ``"local:2"``, which
            starts two worker processes here. The draws are the same. See docs/clusters.md.
        portable: refuse to run unless this process computes with instructions that all processors with AVX2 have, so
            that draws do not depend on which one it is. See docs/clusters.md.

    Ctrl-C stops a run and returns the draws so far; a fit is stopped where it is, and draws are made from it. During
    warm-up there are no draws yet, and the preview is returned; without one, before the first step, or with a second
    Ctrl-C, `KeyboardInterrupt` is raised.

    Example:
        ``result = bp.infer(problem, bp.HMC(), seed=0)``
    """
    _check(problem, HMC() if method is None else method, seed, chains, cores, within)
    if method is None:
        with _stopping(in_folder=False):
            method = default_method(problem)
    if start is not None:
        _check_start_result(problem, method, start)
    if portable:
        require("infer")
    if cluster is not None:
        clusters.check(cluster)
        if cores is not None:
            raise InputError("infer: cores= counts threads of this process; with cluster= remove it")
    method = method.plain()
    chains = method.chains if chains is None else int(chains)
    folder = None if out is None or Path(out).suffix == ".npz" else Path(out)
    if out is not None and folder is None and (Path(out).is_dir() or not Path(out).parent.is_dir()):
        raise InputError(f"infer: out={str(out)!r} must be a file in an existing folder; create the folder first")
    with _stopping(folder is not None):
        method.check(problem)
        model = Posterior(problem).model
        size = memory_of(method, model, chains)
        if out is not None:  # what cannot be stored is reported before the run, not after it
            json.dumps([describe_problem(problem, {}), describe_settings(method)])
        if folder is not None:
            method = claim(folder, "infer", problem, method, seed=int(seed), chains=chains)
        interrupts.raise_if_noted()
    for notice in _notices(method, model, 0 if folder else size):  # with a folder draws stay on disk
        _say(notice)
    report: Callable[[engine.Progress], None] = lambda _: None  # noqa: E731
    if progress is True:
        report = Display()
    elif callable(progress):
        report = progress
    settings: dict[str, Any] = {
        "seed": int(seed), "chains": chains, "cores": cores, "report": report,
        "within": within, "previewed": preview, "say": _say, "cluster": cluster,
    }  # fmt: skip
    with interrupts.listening():  # after the last draw, Ctrl-C waits until everything is saved
        if folder is not None:
            result = _in_folder(folder, problem, method, settings, start)
        else:
            result = _compared(answer(draw, problem, method, **settings), start)
            if out is not None:
                result.save(out)
        if interrupts.was_noted() and not result.interrupted:
            if out is not None:
                raise KeyboardInterrupt(f"the run was already finished; it is saved in {out}")
            result.interrupted = True
    return result


def _notices(method: Method, model: Model, size: int) -> Iterator[str]:
    """What makes a run slow or large, and what to do about it."""
    if size > GIB:
        yield f"the draws will take {size / GIB:.1f} GiB of memory; use {method.fewer} to store fewer draws"
    if model.num_linear > MOST_LINEAR and getattr(method, "coordinates", None) == "whitened":
        yield (
            f"{model.num_linear:,} output weights and coefficients are too many to whiten (at most {MOST_LINEAR}); "
            "plain coordinates are used, which are slower"
        )
    if jnp.result_type(float) == jnp.float64 and native.library() is not None:
        yield (
            "JAX computes in double precision (jax_enable_x64), without the native kernel, which takes up to "
            "ten times as long; single precision is enough: use `with jax.enable_x64(False):` around infer"
        )


def _say(message: str) -> None:
    print(f"infer: {message}", file=sys.stderr)


def _compared(result: Result, start: Result | None) -> Result:
    """The result with findings about the solutions of ``start``, unless it is a preview."""
    if start is not None and result.method.takes_start:
        from bpinn.design.several import compared  # imported here because it comes after this module

        return replace(result, start_noted=compared(result, start))
    return result


def _in_folder(
    folder: Path, problem: Problem, method: Method, settings: dict[str, Any], start: Result | None
) -> Result:
    """Start a run in a folder, or resume it."""
    with only_one(folder):
        result = finished(folder, {}, _say)
        if result is not None:
            result.problem = problem  # its equations can be evaluated
            return _compared(result, start)
        result = _compared(answer(draw, problem, method, **settings, checkpoint=Checkpoint(folder, _say)), start)
        if not result.interrupted:
            save(result, folder / RESULT, draws_beside=True)
    return result


@contextmanager
def _stopping(in_folder: bool) -> Iterator[None]:
    """Give a message to a Ctrl-C that comes before the first step."""
    with interrupts.listening():
        try:
            yield
        except KeyboardInterrupt as stop:
            kept = "files in the folder are kept" if in_folder else "nothing to keep"
            raise type(stop)(str(stop) or f"stopped before the first step; {kept}") from None


def draw(
    problem: Problem,
    method: Method,
    *,
    seed: int,
    chains: int | None,
    cores: int | None,
    report: Callable[[engine.Progress], None],
    checkpoint: Checkpoint | None = None,
    cluster: Any = None,
) -> Result:
    """`infer` for validated arguments; with a checkpoint, blocks are written to disk."""
    chains = method.chains if chains is None else chains
    settings: dict[str, Any] = {"seed": seed, "chains": chains, "cores": cores, "report": report}
    try:
        with _stopping(checkpoint is not None), ExitStack() as stack:
            posterior = Posterior(problem)
            interrupts.raise_if_noted()
            if cluster is not None:
                settings["scheduler"] = clusters.Workers(stack.enter_context(clusters.opened(cluster, _say)))
            draws = engine.run(posterior, method, **settings, checkpoint=checkpoint)
    except (MemoryError, JaxRuntimeError) as error:
        if isinstance(error, JaxRuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        kept = "finished blocks are stored" if checkpoint else "with out='folder' draws stay on disk"
        raise InputError(
            f"infer: out of memory; use {method.fewer} to store fewer draws, or cores= to run fewer chains at once "
            f"({kept})"
        ) from None
    _check_start(problem, draws)
    return Result(
        problem,
        method,
        seed,
        draws.z,
        draws.functionals,
        SamplerStats(draws.stats),
        draws.seconds,
        versions(),
        draws.interrupted,
        draws.history,
    )


def memory_of(method: Method, model: Model, chains: int) -> int:
    """Bytes that the stored draws will take."""
    last = method.stages()[-1]
    draws = last.num_steps - last.num_warmup
    kept = draws if method.kept is None else min(draws, method.kept)
    return kept * chains * model.dim * jnp.dtype(jnp.result_type(float)).itemsize


def _check_start(problem: Problem, draws: engine.Draws) -> None:
    """Fail if every draw is non-finite."""
    if not np.any(np.isfinite(draws.stats["log_density"])):
        positive = next((r for r in problem.readings if r.likelihood.positive), None)
        advice = "check the equations for division by zero, logarithms or roots of negative numbers"
        if positive is not None:
            advice = (
                f"{type(positive.likelihood).__name__} readings of {positive.name!r} need positive predictions: use a "
                f"field with positive=True, or {advice}"
            )
        raise InputError(f"infer: the log density is not finite at any draw; {advice}")


def _check_start_result(problem: Problem, method: Method, start: Any) -> None:
    if not isinstance(start, Result):
        raise InputError(f"infer: start must be a result of bp.infer, got {type(start).__name__}")
    if not method.takes_start:
        raise InputError(
            f"infer: start= is for bp.SMC(), which looks for the solutions of another result; "
            f"{type(method).__name__} chooses its own start"
        )
    if start.functional_names != list(Monitor(problem).names):
        raise InputError(
            "infer: start is a result of another problem; give one of the same fields, unknowns and sensors"
        )


def _check(problem: Any, method: Any, seed: Any, chains: Any, cores: Any, within: Any) -> None:
    if not isinstance(problem, Problem):
        raise InputError(f"infer: expected a bp.Problem first, got {type(problem).__name__}")
    if not isinstance(method, Method):
        hint = f"; call it: bp.{method.__name__}()" if isinstance(method, type) else ""
        raise InputError(f"infer: expected a method such as bp.HMC(), got {method!r}{hint}")
    if not problem.sensors:
        raise InputError("infer: the problem has no sensors, so there is nothing to learn from; add sensors=")
    problem.check_used()
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InputError(f"infer: seed must be a whole number from 0 to 2**32 - 1, got {seed!r}")
    for name, value in (("chains", chains), ("cores", cores)):
        if value is not None and not is_whole(value, 1):
            raise InputError(f"infer: {name} must be a positive whole number, got {value!r}")
    if within is not None:
        check_within("infer: within", within)


def check_within(where: str, seconds: Any) -> None:
    number = isinstance(seconds, int | float | np.integer | np.floating) and not isinstance(seconds, bool)
    if not number or not 0 < seconds < np.inf:
        raise InputError(f"{where} must be a positive number of seconds, got {seconds!r}")
