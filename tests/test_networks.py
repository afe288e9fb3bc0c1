"""Plain networks and dropout: exact least squares, and draws that are masked networks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.methods.network import mask

X = np.linspace(-1, 1, 9)


def fit(problem, method, seed=0, **options):
    return bp.infer(problem, method, seed=seed, progress=False, **options)


def law(u, u_x, k):
    return u_x + k * u


def problem(hidden=(6, 5), noise=0.1, **options):
    rng = np.random.default_rng(0)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=hidden, **options)},
        unknowns={"k": dist.Normal(0.0, 1.0)},
        sensors={
            "s": bp.Sensors(law, {"x": X}, np.cos(X) + 0.1 * rng.normal(size=9), noise),
            "u": bp.Sensors("u", {"x": X[::2]}, np.sin(X[::2]), 0.2),
        },
    )


def line(noise=0.3):
    """u = w x + b, with two groups of readings of different noise and size."""
    rng = np.random.default_rng(1)
    near, far = rng.uniform(-1, 1, 12), rng.uniform(-1, 1, 5)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={
            "near": bp.Sensors("u", {"x": near}, 2 * near - 1 + noise * rng.normal(size=12), noise),
            "far": bp.Sensors("u", {"x": far}, far + rng.normal(size=5), 1.0),
        },
    )


def least_squares(weights):
    """Weight and bias that minimise the weighted squares of the line's residuals; ``weights`` of each group."""
    groups = line().readings
    x, y = (np.concatenate([g.at["x"] for g in groups]), np.concatenate([g.values for g in groups]))
    w = np.sqrt(np.concatenate([np.full(len(g.values), weight) for g, weight in zip(groups, weights, strict=True)]))
    return np.linalg.lstsq(np.stack([x, np.ones_like(x)], 1) * w[:, None], y * w, rcond=None)[0]


@pytest.mark.parametrize("polish", [0, 30])
def test_losses_have_their_exact_minimum(polish):
    def z(loss):
        return fit(line(), bp.PINN(num_steps=8000, learning_rate=1e-2, polish=polish, loss=loss)).z[0, 0]

    np.testing.assert_allclose(z("mse"), least_squares([1 / 12, 1 / 5]), atol=2e-4)
    np.testing.assert_allclose(z("likelihood"), least_squares([1 / 0.09, 1.0]), atol=2e-4)
    np.testing.assert_allclose(z("posterior"), bp.reference.exact(line()).mean, atol=2e-4)


def test_every_step_of_polishing_counts():
    z = [fit(line(), bp.PINN(num_steps=100, polish=n)).z[0, 0] for n in (0, 1, 2)]
    assert not np.array_equal(z[0], z[1])
    assert not np.array_equal(z[1], z[2])


def test_polishing_lowers_the_loss():
    rough = fit(problem(), bp.PINN(num_steps=300))
    fine = fit(problem(), bp.PINN(num_steps=300, polish=200))
    assert fine.history["loss"][0, -1] < 0.5 * rough.history["loss"][0, -1]


def test_a_plain_network_claims_no_error_bars():
    result = fit(problem(), bp.PINN(num_steps=300))
    band = result.predict("u", {"x": X})
    assert result.z.shape[:2] == (1, 1)
    assert np.all(np.isfinite(band.mean))
    assert np.all(np.isnan(band.sd))
    assert np.all(np.isnan(band.interval(0.95)))
    text = str(result.summary())
    assert "no error bars" in text
    assert "R-hat" not in text
    assert result.diagnose().verdict == "care"
    assert np.isnan(result.summary().loc["k", "sd"])


def test_several_solutions_are_no_error_bars_either():
    result = fit(problem(), bp.PINN(num_steps=300), chains=3)
    assert np.all(np.isnan(result.predict("u", {"x": X}).sd))
    assert "3 solutions, no error bars" in str(result.summary())


def test_dropout_with_rate_zero_is_the_plain_network():
    plain = fit(problem(), bp.PINN(num_steps=500, schedule="constant"))
    dropped = fit(problem(), bp.Dropout(rate=0.0, num_steps=500, num_draws=10))
    weights = bp.Posterior(problem()).model.parameters.num_weights
    for draw in dropped.z[0]:
        np.testing.assert_array_equal(draw[:weights], plain.z[0, 0, :weights])
    np.testing.assert_array_equal(dropped.history["loss"], plain.history["loss"])


def test_unknowns_are_those_of_the_last_steps():
    """All of the last ten steps, in order; the last is where training ended."""
    every = fit(problem(), bp.Dropout(rate=0.0, num_steps=507, num_draws=10, last=10))
    plain = fit(problem(), bp.PINN(num_steps=507, schedule="constant"))
    assert every.draws("k")[0, -1] == plain.draws("k")[0, 0]
    before = fit(problem(), bp.PINN(num_steps=506, schedule="constant"))
    assert every.draws("k")[0, -2] == before.draws("k")[0, 0]
    assert len(np.unique(every.draws("k"))) == 10


def masked_network(layers, masks, x):
    """A network with neurons left out, as one would write it."""
    h = x[:, None]
    for i, (w, b) in enumerate(layers):
        h = h @ w + b
        if i < len(layers) - 1:
            h = np.tanh(h) * masks[i]
    return h[:, 0]


def test_a_masked_draw_predicts_what_the_masked_network_predicts(x64):
    posterior = bp.Posterior(problem())
    z = posterior.sample_prior(jax.random.key(0), 1)[0]
    factors = np.asarray(mask(posterior.model, jax.random.key(1), 0.4))
    rows = [np.asarray(w)[:, 0] for w, _ in posterior.unflatten(jnp.asarray(factors))["u"]]
    assert set(np.unique(np.concatenate(rows[1:]))) == {0.0, 1 / 0.6}
    assert np.all(rows[0] == 1)
    expected = masked_network(posterior.unflatten(z)["u"], rows[1:], X)
    result = bp.Result(problem(), bp.Dropout(), 0, np.asarray(factors * z)[None, None], np.zeros((1, 1, 1)), {})
    np.testing.assert_allclose(result.predict("u", {"x": X}).draws[0, 0], expected, atol=1e-12)


def test_every_draw_is_a_masked_network():
    rate = 0.3
    trained = fit(problem(), bp.Dropout(rate=rate, num_steps=200, num_draws=400))
    layers = [bp.Posterior(problem()).unflatten(z)["u"] for z in trained.z[0]]
    second = np.stack([np.asarray(w) for w, _ in (each[1] for each in layers)])
    out = second == 0
    whole_rows = out.all(axis=2)
    np.testing.assert_array_equal(out.any(axis=2), whole_rows)  # a neuron drops out with all that leads from it
    assert whole_rows.mean() == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / whole_rows.size))
    kept = second[~whole_rows]
    assert len(np.unique(np.abs(kept).round(6), axis=0)) == 6  # the six neurons' weights, always the same


def test_the_mask_has_mean_one(x64):
    model = bp.Posterior(problem()).model
    masks = jax.vmap(lambda key: mask(model, key, 0.2))(jax.random.split(jax.random.key(0), 20_000))
    assert np.abs(np.asarray(masks).mean(axis=0) - 1).max() < 5 * np.sqrt(0.25 / 20_000)


def test_dropout_takes_deep_networks_and_says_what_it_is():
    result = fit(problem(hidden=(12, 12, 12, 12)), bp.Dropout(rate=0.2, num_steps=200, num_draws=50))
    assert np.all(result.predict("u", {"x": X}).sd > 0)
    assert result.diagnose().verdict == "care"
    assert "not a posterior" in str(result.summary())
    assert "R-hat" not in str(result.summary())


def test_papers_settings():
    assert bp.PINN.paper() == bp.PINN(num_steps=200_000, learning_rate=1e-3, schedule="constant", loss="mse")
    dropout = bp.Dropout.paper(0.05, num_steps=10)
    assert (dropout.rate, dropout.num_steps, dropout.num_draws, dropout.last) == (0.05, 10, 10_000, 10_000)
    vi = bp.VI.paper()
    assert (vi.num_steps, vi.num_samples, vi.learning_rate, vi.family) == (200_000, 5, 1e-3, "mean-field")
    flow = bp.Flow.paper(steps=10)
    assert (flow.steps, flow.hidden, flow.num_samples, flow.num_steps, flow.learning_rate) == (
        10, (128, 128, 128), 16, 100_000, 1e-4,
    )  # fmt: skip
    assert (flow.kind, flow.affine, flow.density) == ("potential", False, "laplacian")
