"""BlackJAX: HMC with its window adaptation, as its quickstart shows; derivatives by nested jax.grad."""

from report import Report

report = Report()

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

d = report.data
seed, num_warmup, num_draws = report.given.seed, report.given.warmup, report.given.draws
SHAPES = {"w1": (1, 50), "b1": (50,), "w2": (50, 50), "b2": (50,), "w3": (50, 1), "b3": (1,), "k": ()}


def network(p, x):
    h = jnp.tanh(x * p["w1"][0] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return (h @ p["w3"] + p["b3"])[0]


def log_density(p):
    u = jax.vmap(network, (None, 0))
    u_xx = jax.vmap(jax.grad(jax.grad(network, 1), 1), (None, 0))
    f = 0.01 * u_xx(p, d.x_f) + p["k"] * jnp.tanh(u(p, d.x_f))
    prior = sum(jnp.sum(norm.logpdf(part)) for part in p.values())
    return prior + jnp.sum(norm.logpdf(d.f, f, d.noise_f)) + jnp.sum(norm.logpdf(d.u, u(p, d.x_u), d.noise_u))


def prior_draw(key):
    keys = jax.random.split(key, len(SHAPES))
    return {name: jax.random.normal(k, shape) for k, (name, shape) in zip(keys, SHAPES.items(), strict=True)}


@jax.jit
def warm_up(key, position):
    adaptation = blackjax.window_adaptation(blackjax.hmc, log_density, num_integration_steps=50)
    (state, parameters), _ = adaptation.run(key, position, num_steps=num_warmup)
    return state, {name: parameters[name] for name in ("step_size", "inverse_mass_matrix")}


@jax.jit
def sample(key, state, parameters):
    kernel = blackjax.hmc(log_density, num_integration_steps=50, **parameters).step

    def one_step(state, key):
        state, _ = kernel(key, state)
        return state, state.position

    return jax.lax.scan(one_step, state, jax.random.split(key, num_draws))[1]


report.watch_jax()
chains = []
for chain in range(report.given.chains):
    key_init, key_warmup, key_sample = jax.random.split(jax.random.key(1000 * seed + chain), 3)
    report.phase("warmup")
    position = report.start() or prior_draw(key_init)
    state, parameters = jax.block_until_ready(warm_up(key_warmup, position))
    report.phase("sampling")
    chains.append(jax.block_until_ready(sample(key_sample, state, parameters)))
    report.phase("")

draws = jax.tree.map(lambda *parts: jnp.stack(parts), *chains)
over_draws = jax.vmap(jax.vmap(jax.vmap(network, (None, 0)), (0, None)), (0, None))
u = jax.jit(over_draws)(draws, d.x_test)
report.done(
    k=draws["k"], u=u, log_density=lambda **p: log_density(p),  # report
    gradients={"warmup": 50 * num_warmup * len(chains), "sampling": 50 * num_draws * len(chains)},  # report
)  # fmt: skip  # report
