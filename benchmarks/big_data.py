"""Many readings: time and memory of a gradient against their number, and SGHMC against HMC.

``python benchmarks/big_data.py`` prints processor time and peak memory of one gradient, in plain and whitened
coordinates, for 10^4 to 10^6 readings, and compares SGHMC with a long HMC run on the 2D inverse problem with 20,000
readings. For readings of a field that is linear in its coefficients it compares a gradient by their sufficient
statistics with one by the sum over all, and times HMC with 10^5 of them. ``--quick`` stops at 10^5 readings and
shortens the runs.

Each size runs in a process of its own, because the peak of a process never falls. Seconds are those of the processor,
so that other programs on the machine do not count.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import jax
import numpy as np
import numpyro.distributions as dist

import bpinn as bp
from bpinn.coordinates import Coordinates, reference_at
from bpinn.paper.problems import reaction_2d

NOISE = 0.1
LEAST_SECONDS = 0.5  # for which gradients are repeated
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
EXPANSION = bp.KarhunenLoeve(bp.SquaredExponential(length=0.5), terms=60)


def inverse_2d(count, surrogate):
    """The 2D inverse problem of bp.paper with ``count`` readings, half of u and half of f, at random places."""
    rng = np.random.default_rng(0)
    at = {c: rng.uniform(-1, 1, count // 2) for c in "xy"}
    u = np.sin(np.pi * at["x"]) * np.sin(np.pi * at["y"])
    f = -0.02 * np.pi**2 * u + u**2
    noise = NOISE * rng.standard_normal((2, count // 2))
    return bp.Problem(
        domain={"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        fields={"u": surrogate},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={"f": bp.Sensors(reaction_2d, at, f + noise[0], NOISE), "u": bp.Sensors("u", at, u + noise[1], NOISE)},
    )


def peak():
    """Bytes of memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def heat(u_t, u_xx, a):
    return u_t - a * u_xx


def heat_1d(count):
    """Readings of u at random places, in an expansion of 60 terms, and the heat equation with an unknown."""
    rng = np.random.default_rng(0)
    at = {c: rng.uniform(0, 1, count) for c in "xt"}
    u = np.exp(-0.1 * np.pi**2 * at["t"]) * np.sin(np.pi * at["x"]) + NOISE * rng.standard_normal(count)
    return bp.Problem(
        domain={"x": (0.0, 1.0), "t": (0.0, 1.0)},
        fields={"u": EXPANSION},
        unknowns={"a": dist.LogNormal(-2.0, 1.0)},
        sensors={"law": bp.Physics(heat, neutral=False), "u": bp.Sensors("u", at, u, NOISE)},
    )


def gradient(posterior, count):
    """Seconds of one gradient in plain and in whitened coordinates, and memory: of the data, and beyond it."""
    model, data = posterior.model, posterior.data
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(data))
    z = 0.2 * posterior.sample_prior(jax.random.key(0), 1)[0]
    before, seconds = peak(), {}
    reference = reference_at(model, data, z)
    white = Coordinates(model, data, reference)
    densities = {"plain": lambda z: model.log_density(z, data), "whitened": white.log_density}
    for name, density in densities.items():
        compiled = jax.jit(jax.value_and_grad(density))
        jax.block_until_ready(compiled(z))
        began, repeats = time.process_time(), 0
        while time.process_time() - began < LEAST_SECONDS:
            jax.block_until_ready(compiled(z))
            repeats += 1
        seconds[name] = (time.process_time() - began) / repeats
    return {
        "readings": count,
        "chunks": model.chunks,
        "data": held,
        "beyond": peak() - before,
        "peak": peak(),
        **seconds,
    }


def figures(kind, count):
    """Those of one number of readings: of a network, of an expansion, or of an expansion by all its readings."""
    began = time.process_time()
    posterior = bp.Posterior(inverse_2d(count, bp.MLP()) if kind == "network" else heat_1d(count), native=True)
    made = time.process_time() - began
    return gradient(posterior.by_reading if kind == "each" else posterior, count) | {"made": made}


def in_process(kind, count):
    command = [sys.executable, __file__, "--one", kind, str(count)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def table(sizes):
    print("| readings | data (MB) | peak beyond it (MB) | peak of the process (GB) | plain (s) | whitened (s) |")
    print("|---|---|---|---|---|---|")
    found = [in_process("network", count) for count in sizes]
    for one in found:
        print(
            f"| {one['readings']:,} | {one['data'] / 1e6:.1f} | {one['beyond'] / 1e6:.0f} | {one['peak'] / 1e9:.2f} | "
            f"{one['plain']:.3g} | {one['whitened']:.3g} |"
        )
    for name in ("plain", "whitened"):
        slope = np.polyfit(np.log([f["readings"] for f in found]), np.log([f[name] for f in found]), 1)[0]
        print(f"slope of log seconds against log readings, {name}: {slope:.2f}")


def statistics(sizes):
    print("\n| readings | statistics (s) | plain (us) | whitened (us) | plain, all readings | whitened, all readings |")
    print("|---|---|---|---|---|---|")
    for count in sizes:
        own, each = in_process("statistics", count), in_process("each", count)
        seconds = [1e6 * one[name] for one in (own, each) for name in ("plain", "whitened")]
        print(f"| {count:,} | {own['made']:.2g} | " + " | ".join(f"{s:,.3g}" for s in seconds) + " |")
    problem = heat_1d(100_000)
    began = time.perf_counter()
    result = bp.infer(problem, bp.HMC(), seed=0, progress=False)
    verdict = result.diagnose().verdict
    print(f"HMC() with 100,000 readings: {time.perf_counter() - began:.0f} s, verdict {verdict!r}")


def compared(count, quick):
    """SGHMC, with batches of several sizes, against HMC on all readings: bias of means in sd, and ratio of sds."""
    problem = inverse_2d(count, EXPANSION)
    grid = problem.grid(x=7, y=7)
    draws = 150 if quick else 1000

    def run(name, method):
        began = time.process_time()
        result = bp.infer(problem, method, seed=0, progress=False)
        seconds = time.process_time() - began
        u, k = result.predict("u", grid), result.draws("k")
        health = result.diagnose()
        line = [r for r in health.reasons if "agree" in r or "off by" in r]
        return (
            name,
            np.append(u.mean.ravel(), k.mean()),
            np.append(u.sd.ravel(), k.std()),
            seconds,
            health.verdict,
            line,
        )

    hmc = run("HMC", bp.HMC(num_draws=draws, num_leapfrog=8, num_warmup=100 if quick else 350))
    runs = [hmc]
    for batch in (200, 1000):
        method = bp.SGHMC(batch=batch, num_draws=draws, num_warmup=50 if quick else 200, init_steps=3000)
        runs.append(run(f"SGHMC(batch={batch})", method))
    print(f"\n{count:,} readings, a Karhunen-Loève field with 60 terms; u at 49 points and k\n")
    print("| method | bias in sd, rms (largest) | sd over HMC's | k | processor seconds | verdict |")
    print("|---|---|---|---|---|---|")
    for name, mean, sd, seconds, verdict, _ in runs:
        bias, ratio = np.abs(mean - hmc[1]) / hmc[2], sd / hmc[2]
        shown = f"{np.sqrt(np.mean(bias**2)):.2f} ({bias.max():.2f}) | {ratio.min():.2f} to {ratio.max():.2f}"
        print(f"| {name} | {shown} | {mean[-1]:.4f} ± {sd[-1]:.4f} | {seconds:.0f} | {verdict} |")
    for name, *_, line in runs:
        print(f"{name}: " + "; ".join(line))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, help="figures of one kind and number of readings, as JSON")
    parser.add_argument("--only", choices=("gradient", "statistics", "sghmc"))
    given = parser.parse_args()
    if given.one:
        print(json.dumps(figures(given.one[0], int(given.one[1]))))
    else:
        if given.only in (None, "gradient"):
            table(SIZES[:3] if given.quick else SIZES)
        if given.only in (None, "statistics"):
            statistics((10_000, 100_000) if given.quick else (10_000, 100_000, 1_000_000))
        if given.only in (None, "sghmc"):
            compared(20_000, given.quick)
