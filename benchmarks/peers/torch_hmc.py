"""PyTorch: HMC of 50 leapfrog steps in plain code, as in hamiltorch; derivatives by torch.autograd.

The step size is fixed at 6e-4, about what dual averaging finds for this posterior at an acceptance of 0.8.
"""

from report import Report

report = Report()

import math

import torch

d = report.data
num_warmup, num_draws, num_chains = report.given.warmup, report.given.draws, report.given.chains
STEP_SIZE, NUM_LEAPFROG = 6e-4, 50
SIZES = [(1, 50), (50,), (50, 50), (50,), (50, 1), (1,), ()]
f, noise_f, u, noise_u = (torch.from_numpy(a) for a in (d.f, d.noise_f, d.u, d.noise_u))
x_f, x_u, x_test = (torch.from_numpy(x)[:, None] for x in (d.x_f, d.x_u, d.x_test))
x_f.requires_grad_()


def unflatten(z):
    parts = torch.split(z, [math.prod(shape) for shape in SIZES])
    return [part.reshape(shape) for part, shape in zip(parts, SIZES, strict=True)]


def network(x, w1, b1, w2, b2, w3, b3):
    h = torch.tanh(x @ w1 + b1)
    h = torch.tanh(h @ w2 + b2)
    return h @ w3 + b3


def normal(value, mean, sd):
    return torch.distributions.Normal(mean, sd, validate_args=False).log_prob(value).sum()


def log_density(z):
    *weights, k = unflatten(z)
    v = network(x_f, *weights)
    v_x = torch.autograd.grad(v.sum(), x_f, create_graph=True)[0]
    v_xx = torch.autograd.grad(v_x.sum(), x_f, create_graph=True)[0]
    predicted = 0.01 * v_xx + k * torch.tanh(v)
    likelihood = normal(f, predicted[:, 0], noise_f) + normal(u, network(x_u, *weights)[:, 0], noise_u)
    return normal(z, 0.0, 1.0) + likelihood


def gradient(z):
    z = z.detach().requires_grad_()
    value = log_density(z)
    return value.detach(), torch.autograd.grad(value, z)[0]


def transition(z, value, slope):
    p = torch.randn_like(z)
    new, new_value, new_slope, q = z, value, slope, p
    for _ in range(NUM_LEAPFROG):
        q = q + 0.5 * STEP_SIZE * new_slope
        new = new + STEP_SIZE * q
        new_value, new_slope = gradient(new)
        q = q + 0.5 * STEP_SIZE * new_slope
    log_ratio = new_value - value + 0.5 * (p @ p - q @ q)
    return (new, new_value, new_slope) if torch.rand(()).log() < log_ratio else (z, value, slope)


chains = []
for chain in range(num_chains):
    torch.manual_seed(1000 * report.given.seed + chain)
    z = torch.randn(sum(math.prod(shape) for shape in SIZES))
    if report.start():  # report
        z = torch.cat([torch.from_numpy(part).reshape(-1) for part in report.start().values()])  # report
    report.phase("warmup")
    state = (z, *gradient(z))
    for _ in range(num_warmup):
        state = transition(*state)
    report.phase("sampling")
    draws = []
    for _ in range(num_draws):
        state = transition(*state)
        draws.append(state[0])
    chains.append(torch.stack(draws))
    report.phase("")

with torch.no_grad():
    predict = torch.vmap(lambda z: network(x_test, *unflatten(z)[:-1])[:, 0])
    u_draws = torch.stack([predict(chain) for chain in chains])
report.done(
    k=torch.stack(chains)[..., -1], u=u_draws,  # report
    log_density=lambda **p: log_density(torch.cat([torch.as_tensor(v).ravel() for v in p.values()])).item(),  # report
    gradients={"warmup": 50 * num_warmup * num_chains, "sampling": 50 * num_draws * num_chains},  # report
)  # fmt: skip  # report
