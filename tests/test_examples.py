"""Every example runs, and the feature it shows does what the example says."""

import contextlib
import importlib.util
import io
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

import bpinn as bp

FOLDER = Path(__file__).parents[1] / "examples"
LONG = ("compare_methods", "high_order", "inverse_vector", "noise", "pde_system")
RUNS = [
    pytest.param(path.stem, "", marks=pytest.mark.slow if path.stem in LONG else ())
    for path in sorted(FOLDER.glob("*.py"))
]
RUNS += [pytest.param("field_unknown", "with_k", marks=pytest.mark.slow), ("high_order", "mixed")]
CHAINS, DRAWS = 2, 30
POINTS = 7  # in every prediction, so that few programs are compiled
QUICK = bp.HMC(num_warmup=60, num_draws=DRAWS, num_leapfrog=20, chains=CHAINS)


@cache
def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def run(name: str, flag: str = "") -> tuple[bp.Result, str, list[Path]]:
    """The result, what was printed, and the files that were left behind."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = load(name).main(QUICK, **({flag: True} if flag else {}))
        return result, printed.getvalue(), list(Path(folder).iterdir())


def slope(result: bp.Result, quantity, at: dict, along: str, h: float = 0.01) -> np.ndarray:
    """The derivative of every draw by central differences, which know nothing of the library's own."""
    ahead, behind = ({**at, along: np.asarray(at[along]) + step} for step in (h, -h))
    return (result.predict(quantity, ahead).draws - result.predict(quantity, behind).draws) / (2 * h)


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return np.shape(found) == np.shape(wanted) and bool(np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max())


@pytest.mark.parametrize(("name", "flag"), RUNS)
def test_example_runs(name, flag):
    result, printed, files = run(name, flag)
    assert "Health:" in printed
    assert len(printed[printed.index("Health:") :].strip().splitlines()) > 1
    assert files == []
    assert result.z.shape == (CHAINS, DRAWS, result.posterior.dim)
    assert np.all(np.isfinite(result.z))
    for unknown in result.names:
        assert result.draws(unknown).shape[:2] == (CHAINS, DRAWS)
        assert np.all(np.isfinite(result.draws(unknown)))
    at = {c: np.linspace(*bounds, POINTS) for c, bounds in result.problem.domain.items()}
    for field in result.problem.fields:
        assert result.predict(field, at).draws.shape == (CHAINS, DRAWS, POINTS)
        assert np.all(np.isfinite(result.predict(field, at).draws))


def test_regression_band_opens_in_the_gap():
    result, printed, _ = run("regression")
    assert result.names == []
    assert result.summary().table.empty
    assert "contains the truth" in printed
    sd = result.predict("u", {"x": [0.0, 0.05, 0.1, 0.5, 0.6, 0.7, 0.8]}).sd
    assert sd[:3].min() > 2 * sd[3:].max()


def test_forward_predicts_slope_and_equation():
    result, _, _ = run("forward_poisson")
    at = {"x": np.linspace(-0.9, 0.9, POINTS)}
    assert close(result.predict("u_x", at).draws, slope(result, "u", at, "x"))
    equation = result.predict(load("forward_poisson").poisson, at).draws
    assert close(equation, -0.2 * slope(result, "u_x", at, "x"))
    assert np.array_equal(equation, result.predict("f", at).draws)


@pytest.mark.slow
def test_inverse_draws_lie_in_the_support_of_their_priors():
    result, _, _ = run("inverse_vector")
    assert result.names == ["D", "V", "r", "sigma"]
    assert result.draws("r").shape == (CHAINS, DRAWS, 2)
    assert result.draws("r").min() < 0 < result.draws("r").max()
    assert np.all(result.draws("D") > 0)
    assert np.all(result.draws("sigma") > 0)
    assert np.all((result.draws("V") > 0) & (result.draws("V") < 1))
    assert list(result.summary().table.index) == ["D", "V", "r[0]", "r[1]", "sigma"]
    far = result.posterior.unflatten(np.full(result.posterior.dim, -3.0, result.z.dtype))  # where data would not go
    assert far["D"] > 0
    assert far["sigma"] > 0
    assert 0 < far["V"] < 1
    assert np.all(far["r"] < 0)


@pytest.mark.parametrize("flag", ["", pytest.param("with_k", marks=pytest.mark.slow)])
def test_unknown_field_is_positive_and_obeys_the_equation(flag):
    result, _, _ = run("field_unknown", flag)
    assert ("k" in result.problem.sensors) == bool(flag)
    at = {"x": np.linspace(-0.9, 0.9, POINTS)}
    prior = replace(result, z=np.asarray(result.posterior.sample_prior(jax.random.key(0), DRAWS))[None])
    assert np.all(prior.predict("k", at).draws > 0)  # the data alone would keep k positive in the posterior
    assert np.any(prior.predict("u", at).draws < 0)
    flux = slope(result, lambda k, u_x: k * u_x, at, "x")
    assert close(result.predict("f", at).draws, -flux)


@pytest.mark.slow
def test_readings_of_an_unknown_field_are_used():
    result, _, _ = run("field_unknown", "with_k")
    sensors = result.problem.sensors["k"]
    assert np.abs(result.predict("k", sensors.at).mean - sensors.values).max() < 5 * sensors.noise


def test_ode_system_follows_both_fields():
    result, _, _ = run("ode_system")
    assert result.names == ["a", "b", "c", "d"]
    assert all(np.all(result.draws(name) > 0) for name in result.names)
    t = np.linspace(0.1, 4.9, POINTS)
    for field, true in zip(("u", "v"), load("ode_system").solve(t), strict=True):
        assert np.sqrt(np.mean((result.predict(field, {"t": t}).mean - true) ** 2)) < 0.25 * np.ptp(true)
    u, v, rate = (result.predict(name, {"t": t}).draws for name in ("u", "v", "u_t"))
    a, b = (result.draws(name)[..., None] for name in ("a", "b"))
    assert close(result.predict("prey", {"t": t}).draws, rate - u * (a - b * v))
    assert close(rate, slope(result, "u", {"t": t}, "t"))


@pytest.mark.slow
def test_pde_system_has_a_field_of_x_only():
    result, _, _ = run("pde_system")
    x = np.linspace(0, 1, POINTS)
    source = result.predict("s", {"x": x}).draws
    assert np.array_equal(source, result.predict("s", {"x": x, "t": 0.5}).draws)
    with pytest.raises(bp.InputError, match="depends on x only"):
        result.predict("s_t", {"x": x, "t": 0.5})
    with pytest.raises(bp.InputError, match="no positions for t"):
        result.predict("u", {"x": x})


def test_boundary_conditions_are_obeyed():
    result, _, _ = run("boundaries")
    t = np.linspace(0.1, 0.9, POINTS)
    h, tip = result.draws("h")[..., None], {"x": 1.0, "t": t}
    assert np.all(h > 0)
    u, u_x = (result.predict(name, tip).draws for name in ("u", "u_x"))
    cooling = result.predict("tip", tip).draws
    assert np.allclose(cooling, u_x + h * u, atol=1e-4)
    assert np.abs(cooling).mean() < 0.2 * np.abs(u_x).mean()
    assert np.abs(result.predict("u", {"x": 0.0, "t": t}).mean).max() < 0.1
    assert np.abs(result.predict("u_x", {"x": 0.0, "t": t}).mean - 2 * np.exp(-t)).max() < 0.3


def test_periodic_seam_closes():
    result, _, _ = run("periodic")
    t = np.linspace(0, 1, POINTS)
    for name in ("u", "u_x"):
        right, left = (result.predict(name, {"x": end, "t": t}).draws for end in (1.0, -1.0))
        seam = result.predict(bp.Periodic(name, along="x"), {"t": t}).draws
        assert np.allclose(seam, right - left, atol=1e-4)
        assert np.abs(seam).mean() < 0.2 * np.abs(right).mean()


@pytest.mark.slow
def test_noise_is_inferred_and_a_student_t_lets_outliers_go():
    result, printed, _ = run("noise")
    assert result.names == ["noise_u"]
    assert "student_t: noise" in printed
    assert np.all(result.draws("noise_u") > 0)
    normal = bp.infer(load("noise").problem_with("normal"), QUICK, seed=0, progress=False)
    assert normal.draws("noise_u").mean() > 3 * result.draws("noise_u").mean()
    at = {"x": np.linspace(-1, 1, POINTS)}
    assert np.all(result.predict("u", at, noise="u").sd > result.predict("u", at).sd)
    with pytest.raises(bp.InputError, match="different noise"):
        result.predict("u", at, noise="good")


def test_fourth_derivative():
    result, _, _ = run("high_order")
    at = {"x": np.linspace(0.1, 0.9, POINTS)}
    fourth = result.predict("u_xxxx", at).draws
    assert close(fourth, slope(result, "u_xxx", at, "x"))
    assert np.allclose(result.predict("load", at).draws, result.draws("E")[..., None] * fourth, rtol=1e-3, atol=1e-4)


def test_mixed_derivative():
    result, _, _ = run("high_order", "mixed")
    at = {"x": np.linspace(-0.9, 0.9, POINTS), "y": np.linspace(0.7, -0.8, POINTS)}
    mixed = result.predict("u_xy", at).draws
    assert close(mixed, slope(result, "u_x", at, "y"))
    assert np.array_equal(mixed, result.predict("u_yx", at).draws)
