"""`infer`: the front door."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError

from bpinn import engine
from bpinn.checks import is_whole
from bpinn.engine import interrupts
from bpinn.errors import InputError
from bpinn.methods import HMC, Method
from bpinn.posterior import Model, Posterior
from bpinn.problem import Problem
from bpinn.progress import Display
from bpinn.result import Result
from bpinn.run_folder.chains import Checkpoint
from bpinn.run_folder.files import only_one
from bpinn.run_folder.manifest import RESULT, claim, versions
from bpinn.run_folder.results import finished
from bpinn.run_output import SamplerStats
from bpinn.storage import save

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
) -> Result:
    """Draw from the posterior of a problem.

    Arguments:
        problem: what is known.
        method: how to estimate the posterior; `HMC` unless given.
        seed: a whole number; the same seed gives the same draws, on any number of cores.
        chains: number of independent chains; the method's own unless given.
        progress: show progress on the terminal, or a function that is told of it.
        out: where to keep it: a file (``"result.npz"``), to which the result is saved when the run ends or is
            stopped; or a folder (``"run"``), to which every block of draws goes. The same call with the same folder
            goes on where a run was stopped or killed, with the draws of a run that never was, and returns the result
            of one that has ended; `bpinn.load` reads it.
        cores: how many cores to use; all unless given.

    Ctrl-C stops a run and returns the draws that are done; a fit is stopped where it is, and draws are made of it.
    Before there is a draw or a fit, while chains warm up or a start is looked for, there is nothing to keep.

    Example:
        ``result = bp.infer(problem, bp.HMC(), seed=0)``
    """
    method = HMC() if method is None else method
    _check(problem, method, seed, chains, cores)
    method = method.plain()
    chains = method.chains if chains is None else int(chains)
    folder = None if out is None or Path(out).suffix == ".npz" else Path(out)
    if out is not None and folder is None and (Path(out).is_dir() or not Path(out).parent.is_dir()):
        raise InputError(f"infer: out={str(out)!r} must be a file in a folder that exists; make the folder first")
    with _stopping(folder is not None):
        method.check(problem)
        size = memory_of(method, Posterior(problem).model, chains)
        if folder is not None:
            claim(folder, "infer", problem, method, seed=int(seed), chains=chains)
        interrupts.raise_if_noted()
    if size > GIB and folder is None:  # in a folder they stay on the disk
        print(
            f"infer: the draws will take {size / GIB:.1f} GiB of memory; {method.fewer} hold fewer",
            file=sys.stderr,
        )
    report: Callable[[engine.Progress], None] = lambda _: None  # noqa: E731
    if progress is True:
        report = Display()
    elif callable(progress):
        report = progress
    settings: dict[str, Any] = {"seed": int(seed), "chains": chains, "cores": cores, "report": report}
    with interrupts.listening():  # after the last draw it waits until all is saved
        if folder is not None:
            result = _in_folder(folder, problem, method, settings)
        else:
            result = draw(problem, method, **settings)
            if out is not None:
                result.save(out)
        if interrupts.was_noted() and not result.interrupted:
            if out is not None:
                raise KeyboardInterrupt(f"the run had ended; it is saved in {out}")
            result.interrupted = True
    return result


def _in_folder(folder: Path, problem: Problem, method: Method, settings: dict[str, Any]) -> Result:
    """Go on with the run in a folder, or start it."""
    with only_one(folder):

        def warn(message: str) -> None:
            print(f"infer: {message}", file=sys.stderr)

        result = finished(folder, {}, warn)
        if result is not None:
            result.problem = problem  # whose equations can be evaluated
            return result
        result = draw(problem, method, **settings, checkpoint=Checkpoint(folder, warn))
        if not result.interrupted:
            save(result, folder / RESULT, draws_beside=True)
    return result


@contextmanager
def _stopping(in_folder: bool) -> Iterator[None]:
    """Ctrl-C before anything is done, in words."""
    with interrupts.listening():
        try:
            yield
        except KeyboardInterrupt as stop:
            kept = "what is in the folder stays there" if in_folder else "nothing to keep"
            raise KeyboardInterrupt(str(stop) or f"stopped before the first step; {kept}") from None


def draw(
    problem: Problem,
    method: Method,
    *,
    seed: int,
    chains: int | None,
    cores: int | None,
    report: Callable[[engine.Progress], None],
    checkpoint: Checkpoint | None = None,
) -> Result:
    """`infer` for arguments that have been checked, with the blocks on disk if there is a checkpoint."""
    chains = method.chains if chains is None else chains
    settings: dict[str, Any] = {"seed": seed, "chains": chains, "cores": cores, "report": report}
    try:
        with _stopping(checkpoint is not None):
            posterior = Posterior(problem)
            interrupts.raise_if_noted()
            draws = engine.run(posterior, method, **settings, checkpoint=checkpoint)
    except (MemoryError, JaxRuntimeError) as error:
        if isinstance(error, JaxRuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        kept = "the blocks that are done are kept" if checkpoint else "with out='folder' draws stay on the disk"
        raise InputError(
            f"infer: out of memory; {method.fewer} need less of it, and so do fewer cores at once ({kept})"
        ) from None
    _check_start(draws)
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
    """Bytes that the kept draws will take."""
    last = method.stages()[-1]
    draws = last.num_steps - last.num_warmup
    kept = draws if method.kept is None else min(draws, method.kept)
    return kept * chains * model.dim * jnp.dtype(jnp.result_type(float)).itemsize


def _check_start(draws: engine.Draws) -> None:
    """A run whose every draw is non-finite has nothing to say."""
    if not np.any(np.isfinite(draws.stats["log_density"])):
        raise InputError(
            "infer: the log density is not finite anywhere the chains went; check the equations for "
            "division by zero, logarithms or roots of negative numbers"
        )


def _check(problem: Any, method: Any, seed: Any, chains: Any, cores: Any) -> None:
    if not isinstance(problem, Problem):
        raise InputError(f"infer: expected a bp.Problem first, got {type(problem).__name__}")
    if not isinstance(method, Method):
        hint = f"; call it: bp.{method.__name__}()" if isinstance(method, type) else ""
        raise InputError(f"infer: expected a method such as bp.HMC(), got {method!r}{hint}")
    if not problem.sensors:
        raise InputError("infer: the problem has no sensors, so there is nothing to learn from; add sensors=")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InputError(f"infer: seed must be a whole number from 0 to 2**32 - 1, got {seed!r}")
    for name, value in (("chains", chains), ("cores", cores)):
        if value is not None and not is_whole(value, 1):
            raise InputError(f"infer: {name} must be a positive whole number, got {value!r}")
