"""Collects the records of chains into rectangular arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from bpinn.engine.records import alike, concatenated, side_by_side
from bpinn.engine.store import Chain
from bpinn.run_output import SamplerStats

# ``z`` of all chains, each over its span of steps, from where it is stored; None if records have it.
Collect = Callable[[Sequence[tuple[int, int]]], np.ndarray | None]


@dataclass
class Draws:
    """The engine's output: rectangular arrays (chains, draws, ...).

    ``history`` holds what fits recorded during their steps, (chains, records), NaN after the end of a chain that ended
    before the others.
    """

    z: np.ndarray
    functionals: np.ndarray
    stats: SamplerStats
    history: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False


def complete(chains: Sequence[Chain]) -> int:
    """Number of draws that every chain has."""
    return max(0, min(chain.done for chain in chains) - chains[0].stage.num_warmup)


def functionals_of(chains: Sequence[Chain]) -> np.ndarray | None:
    """Monitored quantities of the draws that every chain has, (chains, draws, functionals); None if there are none."""
    parts = [[np.asarray(r.functionals) for r in list(chain.records)] for chain in chains]
    if not all(parts):
        return None
    rows = [np.concatenate(p) for p in parts]
    shortest = min(len(row) for row in rows)
    return np.stack([row[:shortest] for row in rows])


def draws_of(chains: Sequence[Chain], dim: int, collect: Collect) -> Draws:
    """Equally many draws of every chain, as many as the shortest has: the first ones, or with ``keep`` the last."""
    stage, keep = chains[0].stage, chains[0].keep
    if not all(chain.records for chain in chains):
        return Draws(np.zeros((len(chains), 0, dim)), np.zeros(0), SamplerStats())
    rows = alike([concatenated(alike(list(chain.records))) for chain in chains])
    count = min(len(row.functionals) for row in rows)
    if keep is not None:
        count = min(count, keep)
    chosen = slice(0, count) if keep is None else slice(-count, None)
    record = jax.tree.map(lambda *a: np.stack([x[chosen] for x in a]), *rows)
    ends = [stage.num_warmup + count if keep is None else chain.done for chain in chains]
    elsewhere = collect([(end - count, end) for end in ends])
    z = record.z if elsewhere is None else elsewhere
    stats = SamplerStats(record.stats)
    if stage.most_restarts:
        restarts = np.array([[chain.restarts] for chain in chains], np.int8)
        stats["restarts"] = np.repeat(restarts, count, axis=1)
    return Draws(z, record.functionals, stats)


def history_of(chains: Sequence[Chain]) -> dict[str, np.ndarray]:
    """The records of the steps before the draws, (chains, records), and the step number of each record."""
    rows = [concatenated(chain.before) for chain in chains if chain.before]
    return side_by_side(rows) if rows else {}
