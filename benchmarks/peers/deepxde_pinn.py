"""DeepXDE: a deterministic PINN with the JAX backend, 20,000 steps of Adam; one value of k and no error bars."""

from report import Report

report = Report()

import os

os.environ["DDE_BACKEND"] = "jax"
import deepxde as dde
import jax.numpy as jnp

d = report.data
dde.config.set_random_seed(report.given.seed)
k = dde.Variable(0.0)


def pde(x, y, unknowns=None):
    (k,) = unknowns
    u, _ = y
    u_xx, _ = dde.grad.hessian(y, x)
    return 0.01 * u_xx + k * jnp.tanh(u) - jnp.interp(x, d.x_f, d.f)


data = dde.data.PDE(
    dde.geometry.Interval(-0.7, 0.7),
    pde,
    [dde.icbc.PointSetBC(d.x_u[:, None], d.u[:, None])],
    anchors=d.x_f[:, None],
    num_test=None,
)
model = dde.Model(data, dde.nn.FNN([1, 50, 50, 1], "tanh", "Glorot uniform"))
model.compile("adam", lr=1e-3, external_trainable_variables=[k])
report.phase("sampling")
model.train(iterations=report.given.draws, display_every=report.given.draws)
report.phase("")
report.done(k=model.params[1][0], gradients={"sampling": report.given.draws})
