"""jNO: its Bayesian models, which run BlackJAX's HMC of 50 steps and window adaptation inside its own solver.

The unknown k is one more weight of the module, so that all parameters move together. As a separate parameter, jNO would
sample it alternately with the network (Gibbs), with twice the gradients.
"""

from report import Report

report = Report()

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jno

d = report.data
num_warmup, num_draws = report.given.warmup, report.given.draws
SHAPES = {"w1": (1, 50), "b1": (50,), "w2": (50, 50), "b2": (50,), "w3": (50, 1), "b3": (1,), "k": ()}


class Surrogate(eqx.Module):
    w1: jax.Array
    b1: jax.Array
    w2: jax.Array
    b2: jax.Array
    w3: jax.Array
    b3: jax.Array
    k: jax.Array

    def __init__(self, key):
        for name, k in zip(SHAPES, jax.random.split(key, len(SHAPES)), strict=True):
            setattr(self, name, jax.random.normal(k, SHAPES[name]))

    def __call__(self, x):
        h = jnp.tanh(x @ self.w1 + self.b1)
        h = jnp.tanh(h @ self.w2 + self.b2)
        u = h @ self.w3 + self.b3
        return jnp.concatenate([u, jnp.broadcast_to(self.k, u.shape)], axis=-1)


domain = jno.domain.from_array({"f": d.x_f[:, None], "u": d.x_u[:, None]})
(x_f, _), (x_u, _) = domain.variable("f"), domain.variable("u")


def misfits(net):
    """jNO's loss is the mean over constraints of the mean over points; these make it half the sum of squares."""
    out = net(x_f)
    u, k = out[..., 0:1], out[..., 1:2]
    f = 0.01 * u.d2(x_f) + k * jno.np.tanh(u)
    misfit_f = (f - d.f[:, None]) / d.noise_f[:, None] * len(d.f) ** 0.5
    misfit_u = (net(x_u)[..., 0:1] - d.u[:, None]) / d.noise_u[:, None] * len(d.u) ** 0.5
    return [misfit_f.mse, misfit_u.mse]


surrogate = Surrogate(jax.random.key(report.given.seed))
if report.start():  # report
    parts = [jnp.asarray(part) for part in report.start().values()]  # report
    surrogate = eqx.tree_at(lambda m: [getattr(m, n) for n in SHAPES], surrogate, parts)  # report
net = jno.nn(surrogate)
net.bayesian(
    blackjax.hmc, num_integration_steps=50, prior=jno.bayesian.priors.gaussian(sigma=1.0),
    warmup=num_warmup, keep=num_draws, adapt=True,
)  # fmt: skip
solver = jno.core(misfits(net), domain=domain)
report.watch_jax()
report.phase("sampling")
solver.solve(num_draws)
draws = jax.block_until_ready(net.posterior_samples)
report.phase("")
both = report.seconds["sampling"]  # its solver runs warm-up and draws in one call; split by their number: report
report.seconds["warmup"] = both * num_warmup / (num_warmup + num_draws)  # report
report.seconds["sampling"] = both - report.seconds["warmup"]  # report
predict = jax.vmap(jax.vmap(lambda module: module(d.x_test[:, None])[:, 0]))
u = jax.jit(predict)(draws)


def log_density(**p):  # report: jNO drops the constants, so they are added here
    there = eqx.tree_at(
        lambda m: [getattr(m, n) for n in SHAPES], Surrogate(jax.random.key(0)), [*p.values()]
    )  # report
    parts = misfits(jno.nn(there))  # report
    loss = sum(float(jnp.squeeze(v)) for v in jno.core(parts, domain=domain).eval(parts)) / 2  # report
    scales = jnp.concatenate([d.noise_f, d.noise_u])  # report
    constant = -0.5 * (len(scales) + 2702) * jnp.log(2 * jnp.pi) - jnp.sum(jnp.log(scales))  # report
    return constant - loss - 0.5 * sum(jnp.sum(v**2) for v in p.values())  # report


report.done(
    k=draws.k, u=u, log_density=log_density,  # report
    gradients={"warmup": 50 * num_warmup, "sampling": 50 * num_draws},  # report
)  # fmt: skip  # report
