"""A run whose chains are on several solutions: what to do about it, and whether another run has found them too."""

from collections.abc import Sequence

import numpy as np

from bpinn.design.separation import separation
from bpinn.diagnostics import WEIGH, Diagnosis
from bpinn.engine import available_cores
from bpinn.errors import InputError
from bpinn.methods import SMC
from bpinn.modes import groups_of
from bpinn.result import Result
from bpinn.solutions import Mode

DRAWS = 200  # of each solution
STEPS = 35  # tempering steps; 37 on the paper's nonlinear problem at noise 0.01


def advise(result: Result, modes: Sequence[Mode], health: Diagnosis) -> None:
    """Replace the general advice on several solutions by what to call, its cost, and the reading that decides."""
    if WEIGH not in health.advice:
        return
    seconds = seconds_of(SMC(), result)
    cost = f", roughly {seconds:.0f} s" if seconds else ""
    said = [
        "bp.SMC(), which estimates their probabilities: bp.infer(problem, bp.SMC(), seed=0, start=result)" + cost,
        "result.modes(), for each solution separately",
    ]
    try:
        found = separation(result, modes, None, None, None, DRAWS)
    except InputError:
        said.append("sensors that distinguish them")
    else:
        how = f"where they are {found.difference:.2g} units of noise apart"
        said.append(f"a reading of {found.reading}, {how} (result.tell_apart())")
    at = health.advice.index(WEIGH)
    health.advice[at : at + 1] = said


def seconds_of(method: SMC, result: Result) -> float | None:
    """Roughly how long the first populations would take, by the gradients of this run; None if it recorded none."""
    gradients, drawing = result.stats.gradients, result.seconds.get("draws")
    if gradients is None or not drawing or not np.sum(gradients):
        return None
    cores, chains = available_cores(), len(gradients)
    one = drawing * min(chains, cores) / float(np.sum(gradients))
    number = method.starts * method.num_moves * method.most_leapfrog * STEPS
    return one * number * np.ceil(method.chains / min(method.chains, cores))


def compared(result: Result, start: Result) -> list[tuple[str, str, str | None]]:
    """Findings about the solutions of ``start`` among particles: each as verdict, reason and advice.

    Solutions are compared by fields and unknowns. Without a particle on it, a solution is improbable, or was lost.
    """
    read = ~result.monitor.is_secondary
    own = result.functionals[..., read].reshape(-1, int(read.sum())).astype(float)
    modes = start.modes()
    parts = [m.result.thinned(DRAWS).functionals[..., read].reshape(-1, own.shape[1]).astype(float) for m in modes]
    labels = groups_of(np.concatenate([own, *parts]))
    found: list[tuple[str, str, str | None]] = []
    ends = len(own) + np.cumsum([0, *(len(part) for part in parts)])
    ancestors = result.stats.ancestor
    independent = sum(len(np.unique(row)) for row in ancestors) if ancestors is not None else len(own)
    for number, mode in enumerate(modes, 1):
        theirs = np.bincount(labels[ends[number - 1] : ends[number]]).argmax()
        if np.any(labels[: len(own)] == theirs):
            continue
        which = f"solution {number} of start ({mode.differs or 'its first'})"
        bound = min(1.0, 3.0 / independent)  # the probability of none among so many is 5%
        found.append(
            (
                "care",
                f"{which} has no particle: its probability is below about {bound:.0%}, unless populations lost it",
                "more particles, to find narrow solutions",
            )
        )
    if not found and len(modes) > 1:
        found.append(("good", f"all {len(modes)} solutions of start have particles", None))
    return found
