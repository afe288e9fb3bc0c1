"""Eigenpairs, basis and prior of the Karhunen-Loève field against exact answers."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import legendre

import bpinn as bp
from bpinn.fields import karhunen_loeve
from bpinn.fields.kernels import eigenpairs, exponential_eigenpairs, numerical_eigenpairs

KERNELS = [
    bp.Exponential(0.25),
    bp.Matern32(0.4),
    bp.Matern52(0.4, sd=2.0),
    bp.SquaredExponential(0.3),
    bp.RationalQuadratic(0.3),
]
PAPER = bp.KarhunenLoeve(bp.Exponential(length=0.25), terms=20, interval=(-1, 1), mean=0)


def gauss(interval, count=400):
    nodes, weights = legendre.leggauss(count)
    half = 0.5 * (interval[1] - interval[0])
    return sum(interval) / 2 + half * nodes, half * weights


def test_the_papers_case_keeps_the_stated_energy():
    assert PAPER.energy_kept() == pytest.approx(0.91758, abs=5e-6)
    assert PAPER.size(((-0.7, 0.7),)) == 20


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_eigenfunctions_are_orthonormal(kernel):
    pairs = eigenpairs(kernel, (-0.5, 2.0), 15)
    x, w = gauss((-0.5, 2.0))
    psi = pairs.functions(x, 0)
    np.testing.assert_allclose((psi * w[:, None]).T @ psi, np.eye(15), atol=1e-9)
    assert np.all(np.diff(pairs.values) < 0)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
@pytest.mark.usefixtures("x64")
def test_they_solve_the_integral_equation(kernel):
    """The integral of k(x, y) psi(y) over y is alpha psi(x), each side of the kink integrated apart."""
    pairs = eigenpairs(kernel, (-1.0, 1.0), 12)
    for x in (-0.9, -0.2, 0.55):
        total = np.zeros(12)
        for part in ((-1.0, x), (x, 1.0)):
            y, w = gauss(part, 200)
            total += (np.asarray(kernel(x, jnp.asarray(y))) * w) @ pairs.functions(y, 0)
        expected = pairs.values * pairs.functions(np.array([x]), 0)[0]
        np.testing.assert_allclose(total, expected, atol=1e-10 * pairs.values[0])


def test_closed_form_and_numerical_pairs_agree():
    kernel, interval = bp.Exponential(0.25), (-1.0, 1.0)
    exact, found = exponential_eigenpairs(kernel, interval, 20), numerical_eigenpairs(kernel, interval, 20)
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-6)
    assert found.energy == pytest.approx(exact.energy, rel=1e-12)
    x = np.linspace(-1, 1, 101)
    for order in (0, 1, 2):
        ours, theirs = exact.functions(x, order), found.functions(x, order)
        signs = np.sign(np.sum(exact.functions(x, 0) * found.functions(x, 0), axis=0))
        np.testing.assert_allclose(theirs * signs, ours, atol=1e-6 * np.abs(ours).max())


def test_roots_are_found_to_rounding():
    pairs, c = exponential_eigenpairs(bp.Exponential(0.25), (-1.0, 1.0), 20), 4.0
    w = np.sqrt(2 * c / pairs.values - c**2)
    even = np.arange(20) % 2 == 0
    residual = np.where(even, c * np.cos(w) - w * np.sin(w), w * np.cos(w) + c * np.sin(w))
    np.testing.assert_allclose(residual / w, 0.0, atol=1e-12)
    assert np.all((w > np.arange(20) * np.pi / 2) & (w < np.arange(1, 21) * np.pi / 2))


@pytest.mark.parametrize("kernel", [bp.Exponential(0.3), bp.Matern52(0.5)], ids=lambda k: type(k).__name__)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.usefixtures("x64")
def test_derivatives_of_the_field_agree_with_autodiff(kernel, positive):
    bounds = ((-1.0, 1.0), (0.0, 2.0))
    field = bp.KarhunenLoeve(kernel, terms=15, mean=lambda x, y: jnp.sin(x) * y**2, positive=positive)
    rng = np.random.default_rng(0)
    theta = jnp.asarray(rng.standard_normal(15))
    points = rng.uniform([-1, 0], [1, 2], (5, 2))
    wanted = ((0, 0), (1, 0), (0, 2), (1, 1), (2, 1))
    prepared = field.prepare([points], [wanted], bounds)
    (streams,) = field.evaluate(theta, prepared, [wanted], [5], bounds)

    def value(shift, index):
        moved = points + shift
        prepared = field.prepare([moved], [(index,)], bounds)
        return np.asarray(field.evaluate(theta, prepared, [(index,)], [5], bounds)[0][index])

    h = 1e-5
    for index, lower, axis in [((1, 0), (0, 0), 0), ((0, 2), (0, 1), 1), ((1, 1), (1, 0), 1), ((2, 1), (1, 1), 0)]:
        step = h * np.eye(2)[axis]
        numeric = (value(step, lower) - value(-step, lower)) / (2 * h)
        np.testing.assert_allclose(streams[index], numeric, rtol=1e-5, atol=1e-5 * np.abs(numeric).max())


@pytest.mark.usefixtures("x64")
def test_prior_covariance_is_the_kernel_where_all_energy_is_kept():
    field = bp.KarhunenLoeve(bp.SquaredExponential(0.8, sd=1.5), terms=8, interval=(0.0, 1.0))
    assert field.energy_kept() > 1 - 1e-9
    x = np.linspace(0, 1, 7)
    basis = np.asarray(field.prepare([x[:, None]], [((0,),)], ((0.0, 1.0),))["basis"])
    np.testing.assert_allclose(basis @ basis.T, field.kernel(x[:, None], x[None]), atol=1e-8)


def test_tensor_products_keep_the_strongest():
    field = bp.KarhunenLoeve((bp.Exponential(0.5), bp.Exponential(2.0)), terms=30)
    bounds = ((0.0, 1.0), (-1.0, 1.0))
    one, two = (eigenpairs(k, b, 30).values for k, b in zip(field.kernel, bounds, strict=True))
    everything = np.sort(np.outer(one, two).ravel())[::-1][:30]
    x = np.random.default_rng(0).uniform([0, -1], [1, 1], (20_000, 2))
    basis = np.asarray(field.prepare([x], [((0, 0),)], bounds)["basis"])
    variances = np.mean(basis**2, axis=0) * 2  # times the area: the eigenvalues
    np.testing.assert_allclose(variances, everything, rtol=0.1)
    assert field.energy_kept(bounds) == pytest.approx(everything.sum() / 2.0)


@pytest.mark.parametrize("few", [2, 5])
def test_few_eigenpairs_of_each_input_are_enough(monkeypatch, few):
    """Terms of a product are the same as with as many eigenpairs of each input as there are terms."""
    bounds, x = ((0.0, 1.0), (-1.0, 2.0)), np.random.default_rng(0).uniform(0, 1, (7, 2))
    field = bp.KarhunenLoeve((bp.Matern52(length=0.2), bp.SquaredExponential(length=1.5)), terms=30)
    found = []
    for count in (30, few):
        monkeypatch.setattr(karhunen_loeve, "FEW", count)
        karhunen_loeve._basis.cache_clear()
        found.append(karhunen_loeve._basis(field, bounds))
    np.testing.assert_array_equal(found[0].chosen, found[1].chosen)
    np.testing.assert_allclose(found[0].values, found[1].values, rtol=1e-7)
    np.testing.assert_allclose(found[0].at(x, (1, 0)), found[1].at(x, (1, 0)), atol=1e-5)


def test_as_a_field_valued_unknown():
    x = np.linspace(0, 1, 9)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={
            "u": bp.KarhunenLoeve(bp.Matern52(0.5), terms=12),
            "k": bp.KarhunenLoeve(bp.SquaredExponential(0.5), terms=5, positive=True),
        },
        sensors={
            "f": bp.Sensors(lambda u, u_x, k: u_x + k * u, {"x": x}, np.zeros(9), noise=0.05),
            "u": bp.Sensors("u", {"x": x}, np.exp(-x), noise=0.05),
        },
    )
    method = bp.HMC(num_leapfrog=80, num_warmup=400, num_draws=500)
    result = bp.infer(problem, method, seed=0, progress=False)
    band = result.predict("k", {"x": x})
    assert np.all(band.draws > 0)
    assert np.all(np.abs(band.mean - 1.0) < 3 * band.sd)
    assert result.diagnose().verdict != "bad"


def test_files_keep_the_field(tmp_path, prior_result):
    problem = bp.Problem(
        domain={"x": (-0.7, 0.7)},
        fields={"u": PAPER},
        sensors={"u": bp.Sensors("u", {"x": [0.0]}, [0.0], noise=1.0)},
    )
    loaded = bp.load(prior_result(problem).save(tmp_path / "r.npz"))
    assert loaded.problem.fields["u"] == PAPER


FIELDS = {
    "kernel is a class": (lambda: bp.KarhunenLoeve(bp.Exponential), r"kernel must be an object such as bp.Exponential\(length=0.25\)"),
    "length": (lambda: bp.Exponential(length=-1.0), r"Exponential: length must be a positive number or a positive prior, got -1.0"),
    "sd": (lambda: bp.Matern32(1.0, sd=0.0), r"Matern32: sd must be a positive number"),
    "terms": (lambda: bp.KarhunenLoeve(bp.Exponential(1.0), terms=0), r"terms must be a whole number from 1 to 2000, got 0"),
    "interval": (lambda: bp.KarhunenLoeve(bp.Exponential(1.0), interval=(1, 0)), r"interval must be \(low, high\) with low < high"),
    "mean": (lambda: bp.KarhunenLoeve(bp.Exponential(1.0), mean="zero"), r"mean must be a number or a function"),
    "domain beyond": (lambda: on_domain(bp.KarhunenLoeve(bp.Exponential(1.0), interval=(0, 0.5))), r"field 'u': the domain \[0, 1\] extends beyond the interval \[0, 0.5\]"),
    "too many terms": (lambda: on_domain(bp.KarhunenLoeve(bp.SquaredExponential(2.0), terms=60)), r"field 'u': the kernel has only \d+ eigenvalues above rounding error, but 60 terms"),
    "kernels": (lambda: on_domain(bp.KarhunenLoeve((bp.Exponential(1.0),) * 3)), r"field 'u': 3 kernels for 1 inputs"),
    "kernel of vectors": (lambda: on_domain(bp.KarhunenLoeve(lambda x, y: jnp.zeros(3))), r"must return one finite number per pair of points"),
    "failing kernel": (lambda: on_domain(bp.KarhunenLoeve(lambda x: x)), r"calling the kernel with two numbers failed"),
}  # fmt: skip


def on_domain(field):
    return bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": field})


@pytest.mark.parametrize(("call", "words"), FIELDS.values(), ids=FIELDS.keys())
def test_wrong_fields_get_a_clear_sentence(call, words):
    with pytest.raises(bp.InputError, match=words):
        call()
