"""Runs of variational inference, flows and networks: repeatable, interruptible, judged; and laws of bijections."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from test_fits import compare, fit, poisson

import bpinn as bp
from bpinn.approximate import diagnose_approximation, khat_of
from bpinn.engine import advance
from bpinn.engine.stage_run import StageRun
from bpinn.methods import potential
from bpinn.run_output import RunOutput, SamplerStats

# --- laws of flows ---


def random_flow(kind, affine, dim=4):
    method = bp.Flow(kind=kind, layers=3, hidden=(8, 8), steps=4, affine=affine, init="small")
    posterior = bp.Posterior(
        bp.Problem(
            domain={"x": (0.0, 1.0)},
            fields={"u": bp.KarhunenLoeve(bp.Matern52(length=0.3), terms=dim, interval=(0, 1))},
            sensors={"u": bp.Sensors("u", {"x": [0.5]}, [0.0], noise=1.0)},
        )
    )
    params = jax.jit(lambda key: method.begin(posterior.model, posterior.data, key, None)[0])(jax.random.key(1))

    @jax.jit
    def noisy(params):
        leaves, tree = jax.tree.flatten(params)
        keys = jax.random.split(jax.random.key(2), len(leaves))
        moved = [a + 0.3 * jax.random.normal(k, a.shape, a.dtype) for a, k in zip(leaves, keys, strict=True)]
        return jax.tree.unflatten(tree, moved)

    return method, noisy(params)


@pytest.mark.parametrize("affine", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["coupling", "spline", "potential"])
def test_flows_are_bijections_with_exact_determinants(kind, affine, x64):
    method, params = random_flow(kind, affine)
    forward, inverse = jax.jit(method.forward), jax.jit(method.inverse)
    jacobian = jax.jit(jax.jacfwd(lambda e: method.forward(params, e)[0]))
    for key in jax.random.split(jax.random.key(3), 5):
        eps = 1.5 * jax.random.normal(key, (4,))
        v, growth = forward(params, eps)
        back, shrinkage = inverse(params, v)
        assert np.abs(v - eps).max() > 0.01
        np.testing.assert_allclose(back, eps, atol=1e-6)
        assert shrinkage == pytest.approx(-float(growth), abs=1e-6)
        determinant = np.linalg.slogdet(jacobian(eps))[1]
        assert growth == pytest.approx(float(determinant), abs=1e-6)


@pytest.mark.parametrize("hidden", [(5,), (6, 7), (4, 5, 6)])
def test_the_potentials_derivatives_are_exact(hidden, x64):
    layers = potential.first_layers(jax.random.key(0), 3, hidden)
    layers = (*layers[:-1], (100 * layers[-1][0], layers[-1][1]))
    u = jnp.array([0.3, -1.2, 0.5])

    @jax.jit
    def found(layers, u):
        slope = potential.slope(layers, u, 0.4)
        return slope.gradient, slope.hessian(), slope.laplacian()

    gradient = jax.jit(jax.grad(potential.potential, 1))(layers, u, 0.4)
    hessian = jax.jit(jax.hessian(potential.potential, 1))(layers, u, 0.4)
    for one, exact in zip(found(layers, u), (gradient, hessian, jnp.trace(hessian)), strict=True):
        np.testing.assert_allclose(one, exact, atol=1e-12)


def test_the_papers_density_is_of_first_order(x64):
    _, (_, layers) = random_flow("potential", False)
    eps = jnp.array([0.5, -0.3, 1.0, 0.2])
    errors = []
    for steps in (100, 200):
        exact, paper = (potential.forward(layers, eps, steps, laplacian=flag)[1] for flag in (False, True))
        errors.append(float(paper - exact))
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)


# --- runs ---

QUICK = [
    bp.VI(num_steps=300, num_draws=20),
    bp.Flow(layers=2, init="small", num_steps=300, num_draws=20),
    bp.Dropout(num_steps=300, num_draws=20),
    bp.PINN(num_steps=300, polish=10),
    bp.LastLayer(num_steps=300, num_draws=20, chains=1),
    bp.Laplace(num_steps=5, init_steps=200, num_draws=20),
    bp.Ensemble(members=4, num_steps=5),
    bp.SVGD(particles=5, num_steps=30, init_steps=100),
    bp.EnsembleKalman(members=20, most_steps=10),
]
NAMES = [type(m).__name__ for m in QUICK]


def small(noise=0.1, seed=0):
    x = np.linspace(-1, 1, 9)
    rng = np.random.default_rng(seed)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=(6,))},
        unknowns={"k": dist.LogNormal(0.0, 1.0)},
        sensors={
            "s": bp.Sensors(lambda u, u_x, k: u_x + k * u, {"x": x}, np.cos(x) + noise * rng.normal(size=9), noise)
        },
    )


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=() if n in ("VI", "PINN") else pytest.mark.slow, id=n)
        for m, n in zip(QUICK, NAMES, strict=True)
    ],
)
def test_seeds_repeat_and_differ(method):
    first, again, other = (fit(small(), method, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.z, again.z)
    assert not np.array_equal(first.z, other.z)


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=pytest.mark.slow if n == "Flow" else (), id=n) for m, n in zip(QUICK, NAMES, strict=True)],
)
def test_fits_do_not_depend_on_blocks_or_cores(method, blocks_of):
    blocks_of(100)
    expected = fit(small(), method, chains=2, cores=2)
    blocks_of(1)
    found = fit(small(), method, chains=2, cores=1)
    np.testing.assert_array_equal(found.z, expected.z)
    for name in expected.history:
        np.testing.assert_array_equal(found.history[name], expected.history[name])


@pytest.mark.parametrize("method", QUICK, ids=NAMES)
def test_a_new_data_set_compiles_nothing(method, programs_stay):
    fit(small(seed=0), method)
    before = advance.traces
    fit(small(seed=1), method)
    assert advance.traces == before


@pytest.mark.parametrize("method", QUICK, ids=NAMES)
def test_results_survive_the_disk(method, tmp_path):
    result = fit(small(), method)
    loaded = bp.load(result.save(tmp_path / "r.npz"))
    assert loaded.method == method
    np.testing.assert_array_equal(loaded.z, result.z)
    np.testing.assert_array_equal(loaded.history["step"], result.history["step"])
    assert str(loaded.summary()) == str(result.summary())


@pytest.mark.parametrize("method", QUICK[:5], ids=NAMES[:5])
def test_ctrl_c_while_fitting_draws_from_what_is_there(method, one_step_blocks):
    from dataclasses import replace

    def interrupt(progress):
        if progress.stage == "fit" and progress.chains[0].done >= 2:
            raise KeyboardInterrupt

    long = replace(method, num_steps=10_000_000)
    result = bp.infer(small(), long, seed=0, progress=interrupt)
    assert result.interrupted
    assert result.z.shape[1] == (1 if isinstance(method, bp.PINN) else 20)
    assert np.all(np.isfinite(result.z))
    assert 2 <= result.history["step"].shape[0] < 5000
    assert "stopped early" in str(result.summary())


def test_history_covers_all_steps_when_they_do_not_fill_the_last_record():
    history = fit(small(), bp.PINN(num_steps=250, polish=5)).history
    assert history["loss"].shape == (1, 8)
    assert history["step"][[1, 2, 3, 7]].tolist() == [200, 250, 251, 255]


@pytest.mark.slow
def test_patience_stops_early_only_if_asked():
    problem = poisson(0.1)
    whole = fit(problem, bp.VI(family="full-rank", num_steps=20_000))
    early = fit(problem, bp.VI(family="full-rank", num_steps=20_000, patience=1000))
    assert whole.history["step"][-1] == 20_000
    assert 2000 <= early.history["step"][-1] < 20_000
    assert np.all(np.isfinite(early.history["elbo"]))
    assert not early.interrupted
    distance, ratios = compare(early, bp.reference.exact(problem))
    assert distance < 0.2
    assert np.all(np.abs(ratios - 1) < 0.1)


def test_early_stopping_does_not_depend_on_blocks(blocks_of):
    method = bp.VI(num_steps=50_000, patience=500, init="small", num_draws=10)
    blocks_of(100)
    expected = fit(small(), method, chains=2)
    blocks_of(1)
    found = fit(small(), method, chains=2)
    np.testing.assert_array_equal(found.z, expected.z)
    for name in expected.history:
        np.testing.assert_array_equal(found.history[name], expected.history[name])


@pytest.mark.parametrize("level", [0.0, 1e3, 1e5])
def test_patience_keeps_its_precision(level):
    """A loss that falls by half an sd a window never stops, however far from zero it lies."""
    from bpinn.methods.training import Trace, _watch

    zero = jnp.zeros(())
    trace = Trace(zero, zero, zero, jnp.int32(0), jnp.full((), -jnp.inf), zero, jnp.bool_(False))
    losses = level + np.random.default_rng(0).normal(size=20_000) - 0.5e-3 * np.arange(20_000)
    watch = jax.jit(lambda t, x: jax.lax.scan(lambda t, x: (_watch(t, x, 1000), None), t, x)[0])
    assert not watch(trace, jnp.asarray(losses, jnp.float32)).stopped
    assert watch(trace, jnp.asarray(losses + 0.5e-3 * np.arange(20_000), jnp.float32)).stopped


@pytest.mark.parametrize(
    "method", [QUICK[0], QUICK[3], bp.HMC(num_warmup=30, num_draws=5, num_leapfrog=4)], ids=["VI", "PINN", "HMC"]
)
def test_double_precision_reaches_the_chains(method, x64):
    result = fit(small(), method, chains=2)
    assert result.z.dtype == np.float64
    assert np.all(np.isfinite(result.z))


@pytest.mark.parametrize("method", QUICK[2:4], ids=NAMES[2:4])
def test_a_fit_that_never_moved_is_bad(method):
    """Finite, but with a gradient that is NaN everywhere."""
    x = np.linspace(0, 1, 5)
    equation = lambda u: jnp.where(u > 100, jnp.sqrt(u - 100), u)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors={"s": bp.Sensors(equation, {"x": x}, 5 + x, 0.1)}
    )
    health = fit(problem, method).diagnose()
    assert health.verdict == "bad"
    assert "no step had a finite gradient" in str(health)


def test_ctrl_c_in_the_fit_skips_the_polish():
    def interrupt(progress):
        if progress.stage == "fit":
            raise KeyboardInterrupt

    result = bp.infer(small(), bp.PINN(num_steps=10_000_000, polish=5000), seed=0, progress=interrupt)
    assert result.interrupted
    assert "polish" not in result.seconds


def test_ctrl_c_while_the_next_stage_compiles_keeps_the_fit(monkeypatch):
    compiles, original = [], StageRun.compile

    def compile(self):
        compiles.append(self.stage.name)
        if compiles.count("draws") == 1 and compiles[-1] == "draws":
            raise KeyboardInterrupt
        original(self)

    monkeypatch.setattr(StageRun, "compile", compile)
    result = fit(small(), bp.Dropout(num_steps=200, num_draws=20))
    assert result.interrupted
    assert result.z.shape[1] == 20


def test_few_draws_are_no_reason_for_a_bad_verdict():
    health = fit(poisson(0.1), bp.VI(family="full-rank", num_draws=10)).diagnose()
    assert health.verdict == "care"
    assert "10 draws are too few to judge" in str(health)


def judged(names, functionals, stats, history):
    equations = np.zeros(len(names), bool)
    return diagnose_approximation(RunOutput(tuple(names), equations, functionals, SamplerStats(stats), history))


def test_one_bad_fit_among_good_ones_is_named():
    rng = np.random.default_rng(0)
    log_density = np.stack([0.01 * rng.normal(size=2000), 5.0 * rng.normal(size=2000)])
    stats = {"log_density": log_density, "log_q": np.zeros((2, 2000))}
    health = judged(["k"], rng.normal(size=(2, 2000, 1)), stats, {})
    assert health.verdict == "bad"
    assert "fit 1 is far from the posterior" in str(health)


def test_steps_with_gradients_that_are_not_finite_are_left_out():
    """The square root of a negative field has no gradient; the fit goes on where there is one."""
    x = np.linspace(0, 1, 5)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={
            "u": bp.Sensors("u", {"x": x}, np.ones(5), noise=0.5),
            "s": bp.Sensors(lambda u: jnp.sqrt(u), {"x": x}, np.ones(5), noise=0.5),
        },
    )
    result = fit(problem, bp.VI(num_steps=4000, num_samples=1))
    assert np.all(np.isfinite(result.z))
    assert np.abs(result.predict("u", {"x": x}).mean - 1).max() < 0.3


def test_several_fits_are_compared():
    result = fit(small(), bp.VI(num_steps=300, num_draws=200), chains=3)
    assert result.z.shape[:2] == (3, 200)
    rng = np.random.default_rng(0)
    functionals = rng.normal(size=(3, 200, 2)) + np.array([0.0, 0.0, 5.0])[:, None, None]
    stats = {"log_density": 0.1 * rng.normal(size=(3, 200)), "log_q": np.zeros((3, 200))}
    health = judged(["u at x=0", "k"], functionals, stats, {})
    assert health.verdict == "bad"
    assert "different starts disagree" in str(health)


def test_an_unfinished_fit_is_said_to_be():
    rising = np.linspace(-500, -100, 200)[None]
    rng = np.random.default_rng(0)
    stats = {"log_density": 0.1 * rng.normal(size=(1, 200)), "log_q": np.zeros((1, 200))}
    health = judged(["k"], rng.normal(size=(1, 200, 1)), stats, {"elbo": rising})
    assert health.verdict == "care"
    assert "has not converged" in str(health)


@pytest.mark.parametrize("scale", [1.5, 2.0, 3.0])
def test_khat_is_that_of_the_weights(scale):
    """Weights of a normal over one that is ``scale`` times too narrow have the Pareto shape 1 - 1 / scale²."""
    v = np.random.default_rng(0).normal(size=200_000) / scale
    khat, share = khat_of(-0.5 * v**2 + 0.5 * (scale * v) ** 2 - np.log(scale))
    assert khat == pytest.approx(1 - 1 / scale**2, abs=0.15)
    assert share < 0.5


def test_khat_of_hopeless_weights_is_infinite_or_large():
    rng = np.random.default_rng(0)
    assert khat_of(1000.0 * rng.normal(size=4000))[0] > 1
    assert khat_of(np.full(4000, np.nan))[0] == np.inf
    assert khat_of(np.zeros(4000)) == (0.0, 1.0)  # an approximation that is exact
