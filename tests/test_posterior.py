"""The log density against an independent evaluation with numpy and scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bpinn as bp
from bpinn import quantity_at
from bpinn.parameters import Scalar

pytestmark = pytest.mark.usefixtures("x64")


def law(u, u_xx, k, c, x, power=2):
    return 0.1 * u_xx + k * u**power + c[0] * x + c[1]


def make_problem(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, 7)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={
            "u": bp.MLP(hidden=(6,), weight_sd=(1.5, 0.4), bias_sd=(0.7, 2.0)),
            "q": bp.MLP(hidden=(3, 4), positive=True),
        },
        unknowns={
            "k": dist.LogNormal(0.2, 0.5),
            "c": dist.Normal(jnp.array([0.0, 1.0]), 2.0),
            "r": dist.Uniform(-1.0, 3.0),
        },
        sensors={
            "f": bp.Sensors(law, {"x": x}, rng.standard_normal(7), noise=np.linspace(0.1, 0.4, 7)),
            "u": bp.Sensors("u", {"x": x[:4]}, rng.standard_normal(4), noise=dist.HalfNormal(0.3)),
            "q": bp.Sensors("q", {"x": x[:5]}, rng.standard_normal(5), noise=0.2, likelihood="student_t", dof=3.0),
            "r": bp.Sensors(lambda u_x, r: r * u_x, {"x": x[2:4]}, [0.3, 0.1], noise="k"),
            "ring": bp.Sensors(bp.Periodic("u", along="x"), values=0.0, noise=0.05),
        },
    )


def by_hand(problem, z):
    """Everything again, from the vector z alone."""
    w1, b1, w2, b2 = np.split(z[:19], [6, 12, 18])
    total = stats.norm.logpdf(w1, 0, 1.5).sum() + stats.norm.logpdf(b1, 0, 0.7).sum()
    total += stats.norm.logpdf(w2, 0, 0.4).sum() + stats.norm.logpdf(b2, 0, 2.0).sum()
    q_theta, rest = z[19 : 19 + 27], z[19 + 27 :]
    total += stats.norm.logpdf(q_theta).sum()
    log_k, c, real_r, log_noise = rest[0], rest[1:3], rest[3], rest[4]
    k, noise = np.exp(log_k), np.exp(log_noise)
    r = -1 + 4 / (1 + np.exp(-real_r))
    total += stats.lognorm.logpdf(k, 0.5, scale=np.exp(0.2)) + log_k
    total += stats.norm.logpdf(c, [0, 1], 2).sum()
    total += np.log(1 / 4) + np.log(4 * stats.logistic.pdf(real_r))
    total += stats.halfnorm.logpdf(noise, scale=0.3) + log_noise

    def u(x):
        y = np.tanh(np.outer(x, w1) + b1)
        return y @ w2 + b2, (1 - y**2) @ (w1 * w2), (-2 * y * (1 - y**2)) @ (w1**2 * w2)

    def q(x):
        a1, c1, a2, c2, a3, c3 = np.split(q_theta, np.cumsum([3, 3, 12, 4, 4]))
        h = np.tanh(np.outer(x, a1) + c1)
        h = np.tanh(h @ a2.reshape(3, 4) + c2)
        return np.logaddexp(0, h @ a3 + c3)

    data = {s.name: s for s in problem.readings}
    x = data["f"].at["x"]
    value, _, second = u(x)
    total += stats.norm.logpdf(
        data["f"].values, 0.1 * second + k * value**2 + c[0] * x + c[1], np.linspace(0.1, 0.4, 7)
    ).sum()
    total += stats.norm.logpdf(data["u"].values, u(x[:4])[0], noise).sum()
    total += stats.t.logpdf(data["q"].values, 3, q(x[:5]), 0.2).sum()
    total += stats.norm.logpdf(data["r"].values, r * u(x[2:4])[1], k).sum()
    total += stats.norm.logpdf(0.0, u(np.array([1.0]))[0] - u(np.array([-1.0]))[0], 0.05).sum()
    return total


@pytest.mark.parametrize("seed", range(5))
def test_log_density_equals_an_independent_evaluation(seed):
    problem = make_problem(seed)
    posterior = bp.Posterior(problem)
    z = np.asarray(posterior.sample_prior(jax.random.key(seed), 3))
    for row in z:
        np.testing.assert_allclose(posterior.log_density(row), by_hand(problem, row), rtol=1e-11)


def test_it_is_the_sum_of_prior_and_likelihood():
    posterior = bp.Posterior(make_problem())
    z = posterior.sample_prior(jax.random.key(1), 1)[0]
    assert posterior.log_density(z) == posterior.log_prior(z) + posterior.log_likelihood(z)
    pointwise = jax.jit(posterior.model.pointwise_log_likelihood)(z, posterior.data)
    assert [len(p) for p in pointwise] == [7, 4, 5, 2, 1]
    np.testing.assert_allclose(sum(p.sum() for p in pointwise), posterior.log_likelihood(z), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_misfit_is_that_of_the_worst_group_with_stated_noise(seed):
    problem = make_problem(seed)
    posterior = bp.Posterior(problem)
    z = np.random.default_rng(seed).standard_normal(posterior.dim)
    f, _, q, _, ring = (
        (r.values - np.asarray(mean)) / (1.0 if r.noise is None else r.noise)
        for r, mean in zip(problem.readings, posterior.model.predicted(jnp.asarray(z), posterior.data), strict=True)
    )
    deviance = -2 * (stats.t.logpdf(q, 3.0) - stats.t.logpdf(0.0, 3.0))
    expected = max(np.mean(f**2), np.mean(deviance), np.mean(ring**2))
    found = posterior.model.misfit(jnp.asarray(z), posterior.data)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_unflatten_gives_shapes_and_own_spaces():
    posterior = bp.Posterior(make_problem())
    z = posterior.sample_prior(jax.random.key(1), 1)[0]
    parts = posterior.unflatten(z)
    assert posterior.dim == z.size == 19 + 27 + 5
    assert [w.shape for w, _ in parts["u"]] == [(1, 6), (6, 1)]
    assert parts["k"] > 0
    assert parts["noise_u"] > 0
    assert -1 < parts["r"] < 3
    assert parts["c"].shape == (2,)


def test_prior_draws_have_the_stated_scales():
    posterior = bp.Posterior(make_problem())
    z = np.asarray(posterior.sample_prior(jax.random.key(2), 20_000))
    expected = np.repeat([1.5, 0.7, 0.4, 2.0], [6, 6, 6, 1])
    np.testing.assert_allclose(z[:, :19].std(0), expected, rtol=4 / np.sqrt(2 * 20_000))
    np.testing.assert_allclose(z[:, 46].mean(), 0.2, atol=4 * 0.5 / np.sqrt(20_000))


@pytest.mark.parametrize(
    "prior",
    [
        dist.LogNormal(0.0, 1.0),
        dist.Uniform(-1.0, 2.0),
        dist.HalfNormal(2.0),
        dist.Gamma(2.0, 3.0),
        dist.Beta(2.0, 5.0),
        dist.TruncatedNormal(0.0, 1.0, low=0.5),
        dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
        dist.StudentT(3.0, 0.0, 1.0),
        dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.5], [0.5, 2.0]])),
    ],
    ids=lambda p: type(p).__name__,
)
def test_the_density_of_an_unknown_integrates_to_one_on_the_real_line(prior):
    """Only with the right Jacobian does the density of z integrate to one (Monte Carlo with a wide t proposal)."""
    from bpinn.parameters import Scalar

    scalar = Scalar.of("k", prior)
    rng = np.random.default_rng(0)
    proposal = stats.multivariate_t(loc=np.zeros(scalar.size), shape=4 * np.eye(scalar.size), df=2)
    z = np.asarray(proposal.rvs(200_000, random_state=rng)).reshape(-1, scalar.size)
    z = z[np.abs(z).max(axis=1) < 300]  # beyond, exp() overflows; the density there is nothing
    log_weight = np.asarray(jax.vmap(scalar.log_prior)(jnp.asarray(z))) - proposal.logpdf(z)
    weight = np.exp(log_weight)
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(len(weight))


@pytest.mark.parametrize(
    ("prior", "centre", "spread"),
    [
        (dist.Normal(1.0, 0.3), [1.0], [0.3]),
        (dist.Normal(np.array([1.0, 2.0]), 0.5), [1.0, 2.0], [0.5, 0.5]),
        (dist.LogNormal(-0.5, 0.7), [-0.5], [0.7]),  # its logarithm is normal
        (dist.Normal(1.0, 0.3).expand([2]), [1.0, 1.0], [0.3, 0.3]),  # from draws
        (dist.HalfNormal(0.4), [np.log(0.4 * stats.halfnorm.median())], None),
    ],
)
def test_the_centre_and_spread_of_an_unknown_are_those_on_the_real_line(prior, centre, spread):
    """By draws within four standard errors of a median of 4,000, and of quantiles at one sd."""
    found = Scalar.of("k", prior).location_scale()
    np.testing.assert_allclose(found[0], centre, atol=4 * 1.25 * 1.0 / np.sqrt(4000))
    if spread is not None:
        np.testing.assert_allclose(found[1], spread, rtol=0.08)
    if type(prior) in (dist.Normal, dist.LogNormal):
        np.testing.assert_allclose(found, [centre, spread], rtol=1e-6)


def test_constants_with_defaults_and_keyword_only_arguments():
    def scaled(u, *, x, factor=3.0):
        return factor * u + x

    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"s": bp.Sensors(scaled, {"x": [0.5]}, [1.0], noise=1.0)},
    )
    posterior = bp.Posterior(problem)
    z = jnp.array([2.0, 1.0])  # u = 2 x + 1
    np.testing.assert_allclose(posterior.log_likelihood(z), stats.norm.logpdf(1.0, 3 * 2.0 + 0.5, 1.0))


def test_globals_changed_later_do_not_reach_a_posterior():
    """An equation is frozen when the posterior is made; a posterior made afterwards sees the change."""
    scale = {"value": jnp.float64(1.0)}

    def equation(u):
        return scale["value"] * u

    def make():
        return bp.Posterior(
            bp.Problem(
                domain={"x": (0.0, 1.0)},
                fields={"u": bp.MLP(hidden=())},
                sensors={"s": bp.Sensors(equation, {"x": [1.0]}, [0.0], noise=1.0)},
            )
        )

    first, z = make(), jnp.array([1.0, 0.0])
    scale["value"] = jnp.float64(2.0)
    second = make()
    assert first.model != second.model
    assert first.log_likelihood(z) > second.log_likelihood(z)


def one_sensor(equation):
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"s": bp.Sensors(equation, {"x": [0.2, 0.4, 1.0]}, np.zeros(3), noise=1.0)},
    )


def test_constants_inside_a_compiled_function_tell_models_apart():
    """Text of the two programs is the same; what they multiply with is not."""

    def make(table):
        @jax.jit
        def inner(u):
            return jnp.asarray(table) * u

        return bp.Posterior(one_sensor(lambda u: inner(u)))

    z, one, five = jnp.array([1.0, 0.0]), make(np.ones(3)), make(5 * np.ones(3))
    assert one.model != five.model
    constant = -1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(one.log_likelihood(z) - constant, -0.5 * (0.04 + 0.16 + 1.0))
    np.testing.assert_allclose(five.log_likelihood(z) - constant, -12.5 * (0.04 + 0.16 + 1.0))
    assert make(np.ones(3)).model == one.model


def test_custom_derivatives_tell_models_apart():
    def make(slope):
        @jax.custom_jvp
        def twice(u):
            return 2.0 * u

        twice.defjvp(lambda primals, tangents: (2.0 * primals[0], slope * tangents[0]))
        return bp.Posterior(one_sensor(lambda u: twice(u)))

    z = jnp.array([1.0, 0.0])
    right, wrong = (jax.grad(make(slope).log_likelihood)(z) for slope in (2.0, 20.0))
    np.testing.assert_allclose(wrong, 10 * right)


def test_evaluate_gives_fields_derivatives_and_equations_of_any_draws():
    """Against nested forward derivatives of the network written out, on a mesh, for one z and for many."""
    problem = bp.Problem(
        domain={"x": (-1.0, 1.0), "t": (0.0, 2.0)},
        fields={"u": bp.MLP(hidden=(7, 5))},
        unknowns={"k": dist.LogNormal(0.0, 1.0)},
        sensors={"f": bp.Sensors(lambda u, u_xt, k: u_xt + k * u, {"x": [0.0], "t": [0.0]}, 0.0, 0.1)},
    )
    posterior = bp.Posterior(problem)
    z, at = posterior.sample_prior(jax.random.key(3), 35), problem.grid(x=4, t=3)

    def by_hand(z, x, t):
        parts = posterior.unflatten(z)

        def u(x, t):
            h = jnp.stack([x, t])
            for i, (weights, biases) in enumerate(parts["u"]):
                h = (h if i == 0 else jnp.tanh(h)) @ weights + biases
            return h[0]

        one = jnp.ones(())
        u_xt = jax.jvp(lambda t: jax.jvp(lambda x: u(x, t), (x,), (one,))[1], (t,), (one,))[1]
        return u(x, t), u_xt, u_xt + parts["k"] * u(x, t)

    over_points = jax.vmap(by_hand, (None, 0, 0))
    wanted = jax.vmap(over_points, (0, None, None))(z, at["x"].ravel(), at["t"].ravel())
    for quantity, expected in zip(("u", "u_tx", "f"), wanted, strict=True):
        found = posterior.evaluate(z, quantity, at)
        assert found.shape == (35, 4, 3)
        np.testing.assert_allclose(found.reshape(35, 12), expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(posterior.evaluate(z[34], quantity, at), found[34], rtol=1e-10, atol=1e-10)


def test_evaluate_in_chunks_is_the_same(monkeypatch):
    posterior = bp.Posterior(bp.Problem(domain={"x": (-1.0, 1.0)}, fields={"u": bp.MLP(hidden=(7,))}))
    z, at = posterior.sample_prior(jax.random.key(0), 40), {"x": np.linspace(-1, 1, 50)}
    whole = posterior.evaluate(z, "u_x", at)
    monkeypatch.setattr(quantity_at, "CHUNK_BYTES", 8 * 4 * 7 * 4 * 32)
    np.testing.assert_allclose(posterior.evaluate(z, "u_x", at), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 22)])
def test_evaluate_refuses_other_shapes(shape):
    posterior = bp.Posterior(bp.Problem(domain={"x": (-1.0, 1.0)}, fields={"u": bp.MLP(hidden=(7,))}))
    with pytest.raises(bp.InputError, match=r"evaluate 'u': z has shape .* expected \(22,\) or \(n, 22\)"):
        posterior.evaluate(np.zeros(shape), "u", {"x": [0.0]})
