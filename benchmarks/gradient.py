"""One gradient of the log density against nested jax.grad, on one core and on all of them.

    python benchmarks/gradient.py [--repeats 15] [--results FILE]

Both sides evaluate the same posterior (checked) in the same kind of compiled leapfrog loop, one loop per core,
interleaved; the table has medians over repeats. Each number of cores runs in a separate process, because XLA sizes its
thread pools when it starts.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

if "--cores" in sys.argv:  # before JAX starts
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[sys.argv.index("--cores") + 1])])

import jax
import jax.numpy as jnp
import numpy as np
import results

import bpinn as bp
from bpinn.compiling import BLOCK


def plain_network(layers):
    """The network at one point, as in a tutorial."""

    def field(*point):
        h = jnp.stack(point)
        for w, b in layers[:-1]:
            h = jnp.tanh(h @ w + b)
        w, b = layers[-1]
        return (h @ w + b)[0]

    return field


def nested_log_density(problem: bp.Problem, equation):
    """The log density with nested jax.grad, vmapped over points. ``equation(field, at, k)`` is for the sensors f."""
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


def reaction_2d(field, at, k):
    return 0.01 * (second(field, 0)(*at) + second(field, 1)(*at)) + k * jax.vmap(field)(*at) ** 2


def leapfrog(log_density, steps):
    """A compiled loop of leapfrog steps, as every sampler runs it."""
    gradient = jax.value_and_grad(log_density)

    def body(_, carry):
        z, p, g, _ = carry
        p = p + 0.5e-4 * g
        z = z + 1e-4 * p
        value, g = gradient(z)
        return z, p + 0.5e-4 * g, g, value

    @partial(jax.jit, compiler_options=BLOCK)
    def run(z):
        value, g = gradient(z)
        return jax.lax.fori_loop(0, steps, body, (z, jnp.ones_like(z), g, value))

    return run


def microseconds(problem: bp.Problem, nested, steps: int, repeats: int) -> dict[int, tuple[float, float]]:
    """Ours and theirs, per gradient, with one chain and with one chain per core, as `bp.infer` runs them."""
    posterior = bp.Posterior(problem, native=True)
    z = 0.3 * posterior.sample_prior(jax.random.key(0), 1)[0]
    (value, slope), (their_value, their_slope) = (jax.value_and_grad(f)(z) for f in (posterior.log_density, nested))
    scale = float(jnp.max(jnp.abs(their_slope)))
    np.testing.assert_allclose(value, their_value, rtol=1e-4)
    np.testing.assert_allclose(slope / scale, their_slope / scale, atol=1e-4)
    runs = {"ours": leapfrog(posterior.log_density, steps), "nested": leapfrog(nested, steps)}
    found = {}
    for chains in sorted({1, len(os.sched_getaffinity(0))}):
        times: dict[str, list[float]] = {key: [] for key in runs}
        with ThreadPoolExecutor(chains) as pool:
            for _ in range(repeats + 1):
                for key, run in runs.items():
                    start = time.perf_counter()
                    list(pool.map(lambda _, run=run: jax.block_until_ready(run(z)), range(chains)))
                    times[key].append((time.perf_counter() - start) / (chains * steps))
        found[chains] = tuple(1e6 * float(np.median(times[key][1:])) for key in runs)  # the first compiles
    return found


def compare(name: str, problem: bp.Problem, nested, steps: int, repeats: int) -> None:
    cores = len(os.sched_getaffinity(0))
    for chains, (ours, theirs) in microseconds(problem, nested, steps, repeats).items():
        row = [name, cores, chains, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}", f"{1e6 / ours:,.0f}"]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--results", type=Path, help="add the numbers to this file")
    parser.add_argument("--cores", type=int, default=None, help="measure in this process, on this many cores")
    given = parser.parse_args()
    if given.cores is None:
        columns = [
            "problem",
            "cores",
            "chains at once",
            "ours, µs",
            "nested jax.grad, µs",
            "ratio",
            "our gradients per second",
        ]
        print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
        rows = []
        for cores in (1, os.cpu_count() or 1):
            command = [sys.executable, __file__, "--cores", str(cores), "--repeats", str(given.repeats)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                for line in child.stdout or ():
                    print(line, end="", flush=True)
                    rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            if child.returncode:
                sys.exit(child.returncode)
        if given.results:
            results.merge(given.results, gradient={"columns": columns, "rows": rows})
    else:
        one, two = bp.paper.inverse_reaction_1d().problem, bp.paper.allen_cahn_2d().problem
        compare("inverse_reaction_1d", one, nested_log_density(one, reaction), 1000, given.repeats)
        compare("allen_cahn_2d", two, nested_log_density(two, phase), 100, given.repeats)
