"""One gradient of the log density against nested jax.grad, and all cores against one.

    python benchmarks/gradient.py [--repeats 9]

Both sides evaluate the same posterior (checked) in the same kind of compiled leapfrog loop, interleaved;
the minimum over repeats is reported.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import bpinn as bp
from bpinn.sampling import COMPILER_OPTIONS


def plain_network(layers):
    """The network at one point, as a tutorial writes it."""

    def field(*point):
        h = jnp.stack(point)
        for w, b in layers[:-1]:
            h = jnp.tanh(h @ w + b)
        w, b = layers[-1]
        return (h @ w + b)[0]

    return field


def nested_log_density(problem: bp.Problem, equation):
    """The log density with nested jax.grad, vmapped over points. ``equation(field, at, k)`` is that of sensors f."""
    posterior = bp.Posterior(problem)

    def log_density(z):
        parts = posterior.unflatten(z)
        field = plain_network(parts["u"])
        total = -0.5 * jnp.vdot(z, z) - 0.5 * z.size * jnp.log(2 * jnp.pi)
        for r in problem.readings:
            at = [jnp.asarray(r.at[c], float) for c in problem.domain]
            mean = equation(field, at, parts.get("k")) if r.name == "f" else jax.vmap(field)(*at)
            total += jnp.sum(jax.scipy.stats.norm.logpdf(jnp.asarray(r.values), mean, jnp.asarray(r.noise)))
        return total

    return log_density


def second(field, i):
    return jax.vmap(jax.grad(jax.grad(field, i), i))


def reaction(field, at, k):
    return 0.01 * second(field, 0)(*at) + k * jnp.tanh(jax.vmap(field)(*at))


def phase(field, at, k):
    u = jax.vmap(field)(*at)
    return 0.01 * (second(field, 0)(*at) + second(field, 1)(*at)) + u * (u**2 - 1)


def leapfrog(log_density, steps):
    """A compiled loop of leapfrog steps, as every sampler runs it."""
    gradient = jax.value_and_grad(log_density)

    def body(_, carry):
        z, p, g, _ = carry
        p = p + 0.5e-4 * g
        z = z + 1e-4 * p
        value, g = gradient(z)
        return z, p + 0.5e-4 * g, g, value

    @partial(jax.jit, compiler_options=COMPILER_OPTIONS)
    def run(z):
        value, g = gradient(z)
        return jax.lax.fori_loop(0, steps, body, (z, jnp.ones_like(z), g, value))

    return run


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name: str, problem: bp.Problem, nested, steps: int, repeats: int):
    posterior = bp.Posterior(problem)
    z = 0.3 * posterior.sample_prior(jax.random.key(0), 1)[0]
    (value, slope), (their_value, their_slope) = (jax.value_and_grad(f)(z) for f in (posterior.log_density, nested))
    scale = float(jnp.max(jnp.abs(their_slope)))
    np.testing.assert_allclose(value, their_value, rtol=1e-4)
    np.testing.assert_allclose(slope / scale, their_slope / scale, atol=1e-4)
    runs = {"ours": leapfrog(posterior.log_density, steps), "nested": leapfrog(nested, steps)}
    for run in runs.values():
        jax.block_until_ready(run(z))
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, run in runs.items():
            times[key].append(seconds(lambda run=run: jax.block_until_ready(run(z))))
    ours, theirs = (1e6 * min(times[key]) / steps for key in ("ours", "nested"))
    print(f"{name:20s} ours {ours:7.1f} µs   nested jax.grad {theirs:7.1f} µs   ratio {ours / theirs:.2f}")
    return runs["ours"], z


def scaling(run, z, steps: int, repeats: int) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        print("one core: scaling over cores not measured")
        return
    tasks = 2 * cores
    times: dict[int, list[float]] = {1: [], cores: []}
    for _ in range(repeats):
        for workers in times:
            with ThreadPoolExecutor(workers) as pool:
                work = partial(pool.map, lambda _: jax.block_until_ready(run(z)), range(tasks))
                times[workers].append(seconds(lambda work=work: list(work())))
    one, all_cores = (tasks * steps / min(times[workers]) for workers in (1, cores))
    print(f"gradients a second   one core {one:,.0f}   {cores} cores {all_cores:,.0f}   ratio {all_cores / one:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    one = bp.paper.inverse_reaction_1d().problem
    run, z = compare("inverse_reaction_1d", one, nested_log_density(one, reaction), 1000, repeats)
    two = bp.paper.allen_cahn_2d().problem
    compare("allen_cahn_2d", two, nested_log_density(two, phase), 100, repeats)
    scaling(run, z, 1000, repeats)
