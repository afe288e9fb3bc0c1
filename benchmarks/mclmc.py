"""Adjusted microcanonical Langevin Monte Carlo (blackjax) against our HMC, on the 1D inverse problem.

    python benchmarks/mclmc.py [--noise 0.1 0.01] [--gradients 200000]

Both start from the same four draws of a long reference run, tune their step size in 150 transitions, and then spend the
same number of gradients per chain, with our log density and one chain per core. The table has the smallest ESS of k and
u at 11 points, per million gradients and per second, and the distance of means and sds from the reference. To beat HMC,
a method must have means within 0.1 sd and sds within 5%.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc import hmc
from blackjax.mcmc.adjusted_mclmc import adjusted_mclmc_proposal
from blackjax.mcmc.integrators import IntegratorState, isokinetic_mclachlan, isokinetic_velocity_verlet
from blackjax.util import generate_unit_vector

import bpinn as bp
from bpinn.convergence import ess_of
from bpinn.compiling import BLOCK

WARMUP = 150


def mclmc(integrator, target):
    """A transition of adjusted MCLMC: (key, position, step size, mean length) to (position, acceptance, steps).

    Momentum is drawn once per transition, which is blackjax's default. Its own kernel would still draw noise for every
    step without using it, which takes longer than the gradient.
    """

    def transition(log_density, key, z, step_size, length):
        key, key_steps, key_momentum = jax.random.split(key, 3)
        steps = steps_around(key_steps, length)
        flow = integrator(log_density, inverse_mass_matrix=jnp.ones_like(z))
        propose = adjusted_mclmc_proposal(lambda state, size, *_: flow(state, size), step_size, jnp.inf, steps)
        density, gradient = jax.value_and_grad(log_density)(z)
        state, info, _ = propose(key, IntegratorState(z, generate_unit_vector(key_momentum, z), density, gradient))
        return state.position, jnp.nan_to_num(info.acceptance_rate), steps

    return transition, target


def steps_around(key, length):
    return jax.random.randint(key, (), jnp.int32(length / 2), jnp.int32(1.5 * length) + 1)


def ours(target):
    def transition(log_density, key, z, step_size, length):
        key, key_length = jax.random.split(key)
        steps = steps_around(key_length, length)
        state, info = hmc.build_kernel()(key, hmc.init(z, log_density), log_density, step_size, jnp.ones_like(z), steps)
        return state.position, jnp.nan_to_num(info.acceptance_rate), steps

    return transition, target


METHODS = {
    "HMC": (ours(0.8), 1),
    "MCLMC, velocity Verlet, 0.8": (mclmc(isokinetic_velocity_verlet, 0.8), 1),
    "MCLMC, velocity Verlet, 0.9": (mclmc(isokinetic_velocity_verlet, 0.9), 1),
    "MCLMC, McLachlan, 0.9": (mclmc(isokinetic_mclachlan, 0.9), 2),
}


def run(posterior, starts, method, length, draws, first_step):
    """(chains, draws, functionals), seconds of the draws, gradients, acceptance."""
    (transition, target), gradients_a_step = method
    model, data = posterior.model, posterior.data
    init, update, final = dual_averaging_adaptation(target)

    @partial(jax.jit, compiler_options=BLOCK, static_argnames="count")
    def chain(key, z, step_size, count):
        def step(carry, key):
            z, adaptation = carry
            size = jnp.exp(adaptation.log_step_size) if step_size is None else step_size
            z, accepted, steps = transition(posterior.log_density, key, z, size, length)
            return (z, update(adaptation, accepted)), (model.functionals(z, data), accepted, steps)

        (z, adaptation), records = jax.lax.scan(step, (z, init(first_step)), jax.random.split(key, count))
        return z, final(adaptation), records

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        keys = jax.random.split(jax.random.key(1), len(starts))

        def go(keys, zs, sizes, count):
            return jax.block_until_ready(list(pool.map(partial(chain, count=count), keys, zs, sizes)))

        warm = go(keys, starts, [None] * len(starts), WARMUP)
        zs, sizes = [w[0] for w in warm], [w[1] for w in warm]
        keys = [jax.random.fold_in(key, 1) for key in keys]
        chain.lower(keys[0], zs[0], sizes[0], count=draws).compile()
        started = time.perf_counter()
        runs = go(keys, zs, sizes, draws)
        seconds = time.perf_counter() - started
    functionals, accepted, steps = (np.stack([r[2][i] for r in runs]) for i in range(3))
    return functionals, seconds, gradients_a_step * float(np.sum(steps)), float(np.mean(accepted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", nargs="+", type=float, default=[0.1, 0.01])
    parser.add_argument("--gradients", type=int, default=200_000, help="gradients per chain after warm-up")
    parser.add_argument("--lengths", nargs="+", type=int, default=[50, 200, 400])
    parser.add_argument("--reference", type=int, default=5000, help="draws of the reference, for each of four chains")
    given = parser.parse_args()
    columns = "noise", "method", "steps", "acceptance", "ESS", "ESS per million gradients", "ESS per second"
    columns += "means off, sd", "sds off"
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for noise in given.noise:
        problem = bp.paper.inverse_reaction_1d(noise=noise, seed=0).problem
        posterior = bp.Posterior(problem, native=True)
        reference = bp.infer(problem, bp.HMC(num_draws=given.reference), seed=9, progress=False)
        watched = [*range(11), reference.functionals.shape[-1] - 1]
        flat = reference.functionals[..., watched].reshape(-1, 12).astype(float)
        for name, method in METHODS.items():
            for length in given.lengths:
                draws = given.gradients // (length * method[1])
                found, seconds, gradients, accepted = run(
                    posterior, jnp.asarray(reference.z[:, -1]), method, length, draws, 1e-3
                )
                found = found[..., watched].astype(float)
                ess = float(ess_of(found).min())
                mean, sd = found.mean((0, 1)), found.std((0, 1))
                off = np.max(np.abs(mean - flat.mean(0)) / flat.std(0)), np.max(np.abs(sd / flat.std(0) - 1))
                print(
                    f"| {noise} | {name} | {length} | {accepted:.2f} | {ess:.0f} | {1e6 * ess / gradients:.0f} "
                    f"| {ess / seconds:.0f} | {off[0]:.2f} | {off[1]:.0%} |",
                    flush=True,
                )
