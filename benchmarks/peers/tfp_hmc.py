"""TensorFlow Probability: HMC of 50 steps with dual averaging, as a compiled XLA program or as a plain graph."""

from report import Report

report = Report("xla", "graph")

import tensorflow as tf
import tensorflow_probability as tfp

tfd = tfp.distributions
d = report.data
num_warmup, num_draws, num_chains = report.given.warmup, report.given.draws, report.given.chains
SHAPES = {"w1": (1, 50), "b1": (50,), "w2": (50, 50), "b2": (50,), "w3": (50, 1), "b3": (1,), "k": ()}
x_f, x_u, x_test = (tf.constant(x[:, None]) for x in (d.x_f, d.x_u, d.x_test))


def network(x, w1, b1, w2, b2, w3, b3):
    h = tf.tanh(x @ w1 + b1)
    h = tf.tanh(h @ w2 + b2)
    return h @ w3 + b3


def log_density(*parts):
    *weights, k = parts
    with tf.GradientTape() as outer:
        outer.watch(x_f)
        with tf.GradientTape() as inner:
            inner.watch(x_f)
            u = network(x_f, *weights)
        u_x = inner.gradient(u, x_f)
    u_xx = outer.gradient(u_x, x_f)
    f = 0.01 * u_xx + k * tf.tanh(u)
    prior = sum(tf.reduce_sum(tfd.Normal(0.0, 1.0).log_prob(part)) for part in parts)
    return (
        prior
        + tf.reduce_sum(tfd.Normal(f[:, 0], d.noise_f).log_prob(d.f))
        + tf.reduce_sum(tfd.Normal(network(x_u, *weights)[:, 0], d.noise_u).log_prob(d.u))
    )


hmc = tfp.mcmc.HamiltonianMonteCarlo(log_density, step_size=0.01, num_leapfrog_steps=50)
kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(hmc, num_adaptation_steps=num_warmup, target_accept_prob=0.8)
block = min(500, num_warmup, num_draws)  # one program serves warm-up and sampling


@tf.function(jit_compile=report.given.variant == "xla", autograph=False)  # a user would name one: report
def run_block(state, results, seed):
    return tfp.mcmc.sample_chain(
        block, state, previous_kernel_results=results, kernel=kernel, trace_fn=None,
        return_final_kernel_results=True, seed=seed,
    )  # fmt: skip


def run(state, results, steps, seed):
    blocks = []
    for i in range(steps // block):
        out = run_block(state, results, tf.constant([seed, i]))
        state, results = [part[-1] for part in out.all_states], out.final_kernel_results
        blocks.append(out.all_states)
    return [tf.concat(parts, 0) for parts in zip(*blocks, strict=True)], state, results


chains = []
for chain in range(num_chains):
    seed = 1000 * report.given.seed + chain
    tf.random.set_seed(seed)
    state = [tf.random.normal(shape) for shape in SHAPES.values()]
    if report.start():  # report
        state = [tf.constant(part) for part in report.start().values()]  # report
    report.phase("warmup")
    _, state, results = run(state, kernel.bootstrap_results(state), num_warmup, 2 * seed)
    report.phase("sampling")
    chains.append(run(state, results, num_draws, 2 * seed + 1)[0])
    chains[-1][-1].numpy()  # wait: report
    report.phase("")

k = tf.stack([parts[-1] for parts in chains])
u = tf.stack([tf.vectorized_map(lambda p: network(x_test, *p)[:, 0], parts[:-1]) for parts in chains])
report.done(
    k=k, u=u, log_density=lambda **p: log_density(*map(tf.constant, p.values())),  # report
    gradients={"warmup": 50 * num_warmup * num_chains, "sampling": 50 * num_draws * num_chains},  # report
)  # fmt: skip  # report
