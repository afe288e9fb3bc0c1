"""bpinn: the default sampler, or that of the peers: 50 fixed leapfrog steps, plain coordinates and one chain."""

from report import Report

report = Report("default", "hmc50")

import jax.numpy as jnp
import numpyro.distributions as dist

import bpinn as bp

d = report.data


def reaction(u, u_xx, k):
    return 0.01 * u_xx + k * jnp.tanh(u)


problem = bp.Problem(
    domain={"x": (-0.7, 0.7)},
    fields={"u": bp.MLP(hidden=(50, 50))},
    unknowns={"k": dist.Normal(0.0, 1.0)},
    sensors={
        "f": bp.Sensors(reaction, at={"x": d.x_f}, values=d.f, noise=d.noise_f),
        "u": bp.Sensors("u", at={"x": d.x_u}, values=d.u, noise=d.noise_u),
    },
)
method = bp.HMC()
sizes = dict(num_warmup=report.given.warmup, num_draws=report.given.draws)  # report
if report.given.variant == "hmc50":  # report
    like = dict(num_leapfrog=50, jitter=0, coordinates="plain", chains=report.given.chains)  # report
    method = bp.HMC(**like, **sizes)  # report
elif report.given.draws:  # a smoke test: report
    method = bp.HMC(**sizes)  # report
result = bp.infer(problem, method, seed=report.given.seed, progress=False)
u = result.predict("u", {"x": d.x_test}).draws

import numpy as np  # report

report.seconds["compile"] = result.seconds["draws (compile)"]  # report
report.seconds["warmup"] = result.seconds["warm-up"]  # report
report.seconds["sampling"] = result.seconds["draws"]  # report
report.done(
    k=result.draws("k"), u=u,  # report
    gradients={"sampling": float(np.sum(result.stats["gradients"]))},  # report
    log_density=lambda **p: result.posterior.log_density(np.concatenate([v.ravel() for v in p.values()])),  # report
)  # fmt: skip  # report
