"""NumPyro: HMC of 50 steps or NUTS with its own adaptation; derivatives by nested jax.grad."""

from report import Report

report = Report("hmc", "nuts")

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import HMC, MCMC, NUTS, init_to_sample

d = report.data
num_warmup, num_draws, num_chains = report.given.warmup, report.given.draws, report.given.chains
SHAPES = {"w1": (1, 50), "b1": (50,), "w2": (50, 50), "b2": (50,), "w3": (50, 1), "b3": (1,), "k": ()}


def network(p, x):
    h = jnp.tanh(x * p["w1"][0] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return (h @ p["w3"] + p["b3"])[0]


def model():
    p = {name: numpyro.sample(name, dist.Normal(jnp.zeros(s), 1.0).to_event(len(s))) for name, s in SHAPES.items()}
    u = jax.vmap(network, (None, 0))
    u_xx = jax.vmap(jax.grad(jax.grad(network, 1), 1), (None, 0))
    f = 0.01 * u_xx(p, d.x_f) + p["k"] * jnp.tanh(u(p, d.x_f))
    numpyro.sample("f", dist.Normal(f, d.noise_f), obs=d.f)
    numpyro.sample("u", dist.Normal(u(p, d.x_u), d.noise_u), obs=d.u)


if report.given.variant == "hmc":
    kernel = HMC(model, trajectory_length=None, num_steps=50, init_strategy=init_to_sample)
else:
    kernel = NUTS(model, init_strategy=init_to_sample)
mcmc = MCMC(
    kernel, num_warmup=num_warmup, num_samples=num_draws, num_chains=num_chains,
    chain_method="sequential", progress_bar=False,
)  # fmt: skip
start = report.start()  # report
extra = ("num_steps",)  # report
report.watch_jax()
if report.given.variant == "nuts":  # only a separate call returns the tree sizes of warm-up: report
    report.phase("warmup")
    mcmc.warmup(jax.random.key(report.given.seed), collect_warmup=True, extra_fields=extra, init_params=start)  # report
    warmup_steps = float(mcmc.get_extra_fields()["num_steps"].sum())  # report
report.phase("sampling")
mcmc.run(jax.random.key(report.given.seed), extra_fields=("num_steps",), init_params=start)
draws = jax.block_until_ready(mcmc.get_samples(group_by_chain=True))
report.phase("")
if report.given.variant == "hmc":  # every transition has 50 steps, so split the time by their number: report
    warmup_steps, both = 50 * num_warmup * num_chains, report.seconds["sampling"]  # report
    report.seconds["warmup"] = both * num_warmup / (num_warmup + num_draws)  # report
    report.seconds["sampling"] = both - report.seconds["warmup"]  # report
over_draws = jax.vmap(jax.vmap(jax.vmap(network, (None, 0)), (0, None)), (0, None))
u = jax.jit(over_draws)(draws, d.x_test)


def log_density(**p):  # report
    return numpyro.infer.util.log_density(model, (), {}, p)[0]  # report


steps = mcmc.get_extra_fields()["num_steps"].sum()  # report
report.done(
    k=draws["k"], u=u, log_density=log_density, gradients={"warmup": warmup_steps, "sampling": steps},  # report
)  # fmt: skip  # report
