"""Long reference posteriors of the paper's one-dimensional problems, from two samplers; stored in references.json.

    python verification/references.py [--only inverse-1d-0.1 ...]

One sampler is our HMC, the other adjusted microcanonical Langevin (blackjax), which has different dynamics and is not
our code. Both run until R-hat is below 1.005 and ESS above 4,000 for every field at 11 points and every unknown.
Existing references are not computed again. run.py compares the samplers' default settings with them.

The nonlinear Poisson problem is left out: neither sampler explores all of its posterior (R-hat of HMC is 1.5 after
8,000 draws at noise 0.1). solutions.py treats it with SMC.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import bpinn as bp
from bpinn.compiling import BLOCK
from bpinn.convergence import ess_of, rhat_of
from bpinn.monitor import Monitor

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc.integrators import isokinetic_velocity_verlet
from mclmc import mclmc
from results import load, save

PROBLEMS = {
    "regression": (bp.paper.regression, (0.1,)),
    "poisson-1d": (bp.paper.poisson_1d, (0.01, 0.1)),
    "inverse-1d": (bp.paper.inverse_reaction_1d, (0.01, 0.1)),
}
STORED = HERE / "references.json"
RHAT, ESS = 1.005, 4000
WARMUP, ROUND, MOST_ROUNDS = 200, 500, 40
SEED = 100


def cases() -> Iterator[tuple[str, bp.Problem]]:
    for name, (make, noises) in PROBLEMS.items():
        for noise in noises:
            yield f"{name}-{noise:g}", make(noise=noise, seed=0).problem


def fingerprint(problem: bp.Problem) -> float:
    """A fingerprint of the posterior, so that a changed one is not compared with an old reference."""
    posterior = bp.Posterior(problem)
    return float(posterior.log_density(0.3 * posterior.sample_prior(jax.random.key(0), 1)[0]))


def watched(problem: bp.Problem) -> np.ndarray:
    return ~Monitor(problem).is_secondary


def moments(draws: np.ndarray) -> dict[str, Any]:
    """Means, sds and their accuracy, from draws of shape (chains, draws, quantities).

    The spread is half of the central 68% interval. It equals the sd for a normal distribution, and its estimate is
    accurate even if tails are heavy.
    """
    draws = draws.astype(float)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    low, high = np.quantile(draws, [norm.cdf(-1), norm.cdf(1)], axis=(0, 1))
    return {
        "mean": mean.tolist(),
        "sd": sd.tolist(),
        "spread": ((high - low) / 2).tolist(),
        "kurtosis": float(np.max(np.mean((draws - mean) ** 4, axis=(0, 1)) / sd**4)),
        "ess": float(ess_of(draws).min()),
        "rhat": float(rhat_of(draws).max()),
        "draws": draws.shape[0] * draws.shape[1],
    }


def is_known(row: dict[str, Any]) -> bool:
    print(f"  {row['draws']} draws: R-hat {row['rhat']:.4f}, ESS {row['ess']:.0f}", flush=True)
    return row["rhat"] < RHAT and row["ess"] > ESS


def by_hmc(problem: bp.Problem, _: bp.Result) -> dict[str, Any]:
    parts: list[np.ndarray] = []
    row: dict[str, Any] = {}
    for number in range(MOST_ROUNDS):  # independent runs, because a finished run cannot be continued
        result = bp.infer(problem, bp.HMC(num_draws=4 * ROUND), seed=SEED + number, progress=False)
        parts.append(result.functionals[..., watched(problem)])
        row = moments(np.concatenate(parts))  # each run adds its own chains
        if is_known(row):
            break
    return row


def by_mclmc(problem: bp.Problem, first: bp.Result) -> dict[str, Any]:
    """Start from the last draws of a short run, with trajectories as long as HMC's."""
    posterior = bp.Posterior(problem, native=True)
    transition, target = mclmc(isokinetic_velocity_verlet, 0.8)
    length = float(np.mean(first.stats["gradients"]))
    init, update, final = dual_averaging_adaptation(target)

    @partial(jax.jit, compiler_options=BLOCK, static_argnames="count")
    def chain(key: Any, z: Any, step_size: Any, count: int) -> Any:
        def step(carry: Any, key: Any) -> Any:
            z, adaptation = carry
            size = jnp.exp(adaptation.log_step_size) if step_size is None else step_size
            z, accepted, _ = transition(posterior.log_density, key, z, size, length)
            return (z, update(adaptation, accepted)), posterior.model.functionals(z, posterior.data)

        (z, adaptation), found = jax.lax.scan(step, (z, init(1e-3)), jax.random.split(key, count))
        return z, final(adaptation), found

    keys = jax.random.split(jax.random.key(SEED), len(first.z))
    parts: list[np.ndarray] = []
    row: dict[str, Any] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:

        def go(number: int, zs: Any, sizes: Any, count: int) -> Any:
            keys_now = [jax.random.fold_in(key, number) for key in keys]
            return jax.block_until_ready(list(pool.map(partial(chain, count=count), keys_now, zs, sizes)))

        states = go(0, list(jnp.asarray(first.z[:, -1])), [None] * len(keys), WARMUP)
        sizes = [min(s[1] for s in states)] * len(keys)  # a chain with a larger step could get stuck
        for number in range(1, MOST_ROUNDS + 1):
            states = go(number, [s[0] for s in states], sizes, ROUND)
            parts.append(np.stack([s[2] for s in states])[..., watched(problem)])
            row = moments(np.concatenate(parts, axis=1))
            if is_known(row):
                break
    return row


SAMPLERS = {"HMC": by_hmc, "MCLMC": by_mclmc}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, _ in cases()]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    given = parser.parse_args()
    stored = load(STORED)
    for name, problem in cases():
        row = stored.get(name)
        if name not in given.only or (row is not None and np.isclose(row["fingerprint"], fingerprint(problem))):
            continue
        first = bp.infer(problem, seed=SEED - 1, progress=False)
        labels = [n for n, w in zip(first.functional_names, watched(problem), strict=True) if w]
        row = {"fingerprint": fingerprint(problem), "names": labels}
        for label, sampler in SAMPLERS.items():
            began = time.perf_counter()
            r = row[label] = sampler(problem, first)
            seconds = time.perf_counter() - began
            print(f"{name} {label}: R-hat {r['rhat']:.4f}, ESS {r['ess']:.0f}, {seconds:.0f} s", flush=True)
        stored[name] = row
        save(STORED, stored)


if __name__ == "__main__":
    main()
