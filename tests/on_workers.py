"""A small problem and what tests of clusters do with it: runs on workers, and workers that are killed."""

import os
import signal
import time

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bpinn as bp

METHOD = bp.HMC(num_warmup=30, num_draws=24, num_leapfrog=3)


def problem_of(rate=2.0):
    """Functions defined in a function, which cannot be imported elsewhere."""

    def law(u, u_xx, k):
        return u_xx + rate * k * jnp.sin(u)

    x = np.linspace(0.0, 1.0, 6)
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(4,))},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={
            "law": bp.Sensors(law, {"x": x}, 0.0, 0.1),
            "u": bp.Sensors("u", {"x": x}, x, dist.HalfNormal(0.3)),
        },
    )


PROBLEM = problem_of()


def same(there, here):
    np.testing.assert_array_equal(there.z, here.z)
    np.testing.assert_array_equal(there.functionals, here.functionals)
    for name, values in here.stats.items():
        np.testing.assert_array_equal(there.stats[name], values)


def infer(cluster, **options):
    return bp.infer(PROBLEM, METHOD, **{"seed": 3, "chains": 3, "progress": False, "cluster": cluster, **options})


def pids(cluster):
    return cluster.client.run(os.getpid)


def kill_one(cluster, number=0):
    os.kill(list(pids(cluster).values())[number], signal.SIGKILL)


def until_two(cluster):
    deadline = time.monotonic() + 600
    while len(cluster.workers) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
