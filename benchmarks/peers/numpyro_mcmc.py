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
    kernel, num_warmup=num_warmup, num_samples=num_draws // 2, num_chains=num_chains,
    chain_method="sequential", progress_bar=False,
)  # fmt: skip
report.phase("warmup")
mcmc.warmup(jax.random.key(report.given.seed), collect_warmup=True, extra_fields=("num_steps",))
warmup_steps = jax.block_until_ready(mcmc.get_extra_fields()["num_steps"]).sum()  # report
halves, times, steps = [], [], 0  # the first half compiles, the second does not: report
for _ in range(2):  # report
    report.phase("sampling")
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=("num_steps",))
    halves.append(jax.block_until_ready(mcmc.get_samples(group_by_chain=True)))
    report.phase("")
    times.append(report.seconds["sampling"])  # report
    steps += mcmc.get_extra_fields()["num_steps"].sum()  # report
    mcmc.post_warmup_state = mcmc.last_state
report.seconds |= {"compile": 2 * times[0] - times[1], "sampling": 2 * (times[1] - times[0])}  # report
draws = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *halves)
over_draws = jax.vmap(jax.vmap(jax.vmap(network, (None, 0)), (0, None)), (0, None))
u = jax.jit(over_draws)(draws, d.x_test)


def log_density(**p):  # report
    return numpyro.infer.util.log_density(model, (), {}, p)[0]  # report


report.done(
    k=draws["k"], u=u, log_density=log_density, gradients={"warmup": warmup_steps, "sampling": steps},  # report
)  # fmt: skip  # report
