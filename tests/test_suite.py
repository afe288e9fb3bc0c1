"""The problems of the benchmarks' suite: their truths solve their equations, and their readings are of the truths.

Derivatives of the truths are finite differences of high order, so neither bpinn's derivatives nor the solvers' enter.
"""

import inspect
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import bpinn as bp
from bpinn.diagnostics import Diagnosis
from bpinn.monitor import Monitor
from bpinn.quantities import Coordinate, Partial, Unknown

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.suite import SUITE, Case  # noqa: E402

NAMES = list(SUITE)
STENCIL = 11  # points along a coordinate
SPACING = {1: 3e-3, 2: 1e-2, 3: 3e-2, 4: 5e-2}  # relative to the domain, by the order: rounding against truncation


@pytest.fixture(scope="module")
def cases():
    return {name: make(seed=0) for name, make in SUITE.items()}


def weights(offsets, order):
    """Weights of values at ``offsets`` that give a derivative at 0, exact for polynomials; offsets are (n, points)."""
    powers = np.arange(STENCIL)
    vandermonde = np.swapaxes(offsets[..., None] ** powers, -1, -2)
    moments = np.zeros(STENCIL)
    moments[order] = float(np.prod(np.arange(1, order + 1)))
    return np.linalg.solve(vandermonde, np.broadcast_to(moments, offsets.shape)[..., None])[..., 0]


def derivative(case, partial, at):
    """A derivative of a true field at points; the stencil stays within the domain."""
    names, problem = case.problem.inputs(partial.field), case.problem
    sites, factors = [], []
    for name, order in zip(names, partial.orders, strict=True):
        x, (low, high) = at[name][:, None], problem.domain[name]
        if order == 0:
            sites.append(x)
            factors.append(np.ones_like(x))
            continue
        h = SPACING[order] * (high - low)
        reach = h * (STENCIL - 1) / 2
        centre = np.clip(x, low + reach, high - reach)
        points = centre + h * (np.arange(STENCIL) - (STENCIL - 1) / 2)
        sites.append(points)
        factors.append(weights((points - x) / h, order) / h**order)
    total = np.zeros(len(at[names[0]]))
    for columns in itertools.product(*(range(s.shape[1]) for s in sites)):
        value = case.truth_fields[partial.field](*(s[:, i] for s, i in zip(sites, columns, strict=True)))
        total += value * np.prod([f[:, i] for f, i in zip(factors, columns, strict=True)], axis=0)
    return total


def on_truth(case, readings):
    """Arguments of the readings' equation on the truth, by name."""
    found = {}
    for name, reference in named(readings).items():
        if isinstance(reference, Unknown):
            found[name] = case.truth_unknowns[reference.name]
        elif isinstance(reference, Coordinate):
            found[name] = readings.at[reference.name]
        else:
            found[name] = derivative(case, reference, readings.at)
    return found


def named(readings):
    names = inspect.signature(readings.equation.function).parameters
    return dict(zip(names, readings.equation.references, strict=True))


def physics(case):
    return [r for r in case.problem.readings if not isinstance(case.problem.sensors[r.name].quantity, str)]


def measured(case):
    return [r for r in case.problem.readings if isinstance(case.problem.sensors[r.name].quantity, str)]


def largest_term(readings, values):
    """The size of an equation's largest term, for an equation that is zero on the truth.

    With one field or derivative left out, what remains has the size of the terms that it is in; with all left out, of
    the source.
    """
    partials = [n for n, r in named(readings).items() if isinstance(r, Partial)]
    zero = np.zeros(len(readings.values))
    absent = [{n: zero} for n in partials] + [dict.fromkeys(partials, zero)]
    return max(np.abs(readings.equation.function(**values | zeros)).max() for zeros in absent)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("x64")
def test_the_truth_solves_the_equations_and_tolerances_are_small(cases, name):
    case = cases[name]
    assert physics(case)
    for readings in physics(case):
        values = on_truth(case, readings)
        residual = np.asarray(readings.equation.function(**values))
        assert np.abs(residual).max() < 0.1 * readings.noise.min(), readings.name
        assert np.all(readings.values == 0)
        assert readings.noise.max() <= 0.01 * largest_term(readings, values), readings.name


@pytest.mark.parametrize("name", NAMES)
def test_readings_are_of_the_truth(cases, name):
    case = cases[name]
    scores = []
    for readings in measured(case):
        (reference,) = readings.equation.references
        score = (readings.values - derivative(case, reference, readings.at)) / readings.noise
        assert np.abs(score).max() < 4.5, readings.name
        if sum(reference.orders) == 0:
            truth = case.truth_fields[reference.field]
            axes = [np.linspace(*case.problem.domain[c], 15) for c in case.problem.inputs(reference.field)]
            span = np.ptp(truth(*np.meshgrid(*axes, indexing="ij")))
            if readings.name in case.problem.fields:
                assert 0.01 * span <= readings.noise.min() <= readings.noise.max() <= 0.05 * span, readings.name
                scores.append(score)
    scores = np.concatenate(scores)
    assert abs(scores.mean()) < 4.5 / np.sqrt(scores.size)
    assert abs(scores.std() - 1) < 4.5 / np.sqrt(2 * scores.size)


@pytest.mark.parametrize("name", NAMES)
def test_shapes(cases, name):
    case = cases[name]
    assert isinstance(case, Case)
    assert case.name == name
    assert case.about
    assert set(case.truth_fields) == set(case.problem.fields)
    assert set(case.truth_unknowns) == set(case.problem.unknowns)
    assert case.in_one_variable == (len(case.problem.domain) == 1)
    for field, truth in case.truth_fields.items():
        names = case.problem.inputs(field)
        assert tuple(inspect.signature(truth).parameters) == names
        mesh = np.meshgrid(*(np.linspace(*case.problem.domain[c], 3 + i) for i, c in enumerate(names)), indexing="ij")
        assert truth(*mesh).shape == mesh[0].shape
        assert np.all(np.isfinite(truth(*mesh)))
    low, high = (30, 200) if case.in_one_variable else (80, 400)
    assert all(low <= len(r.values) <= high for r in physics(case))
    for field in case.problem.fields:
        count = sum(len(r.values) for r in measured(case) if case.problem.sensors[r.name].quantity == field)
        assert 10 <= count <= 60 or (name, field) == ("heat_source", "s")  # the source is not read


@pytest.mark.parametrize("name", NAMES)
def test_priors_are_not_centred_on_the_truth(cases, name):
    for unknown, value in cases[name].truth_unknowns.items():
        at = float(cases[name].problem.unknowns[unknown].cdf(value))
        assert 0.03 < at < 0.97, unknown
        assert abs(at - 0.5) > 0.05, unknown


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_changes_only_the_noise(cases, name):
    one, again, other = cases[name].problem, SUITE[name](seed=0).problem, SUITE[name](seed=1).problem
    assert one.domain == other.domain
    if name != "michaelis_menten":  # its Gaussian process takes its scales from the readings
        assert one.fields == other.fields
    for a, b, c in zip(one.readings, again.readings, other.readings, strict=True):
        assert a.at.keys() == c.at.keys()
        assert all(np.array_equal(a.at[axis], c.at[axis]) for axis in a.at)
        assert np.array_equal(a.noise, c.noise)
        assert np.array_equal(a.values, b.values)
        assert np.array_equal(a.values, c.values) == bool(np.all(a.values == 0))


@pytest.mark.parametrize(("name", "equation"), [("pendulum", "swing"), ("heat_source", "conduction")])
def test_a_tolerance_can_be_chosen(name, equation):
    for tolerance in (0.1, 1e-3):
        problem = SUITE[name](tolerance=tolerance).problem
        assert problem.sensors[equation].noise == tolerance


def made_up(problem, draws=3):
    """A result whose fields are the prior's and whose unknowns are all 1, made without a run."""
    posterior = bp.Posterior(problem)
    z = np.asarray(posterior.sample_prior(jax.random.key(0), draws))[None]
    functionals = np.ones((1, draws, len(Monitor(problem).names)))
    return bp.Result(problem, bp.HMC(), 0, z, functionals, {"log_density": np.zeros((1, draws))})


def test_a_run_is_judged_against_the_truth(cases, monkeypatch, tmp_path, capsys):
    from benchmarks.suite import run

    monkeypatch.setattr(bp, "infer", lambda problem, *_, **__: made_up(problem))
    monkeypatch.setattr(bp.Result, "diagnose", lambda _: Diagnosis("bad", ["it was made up"], []))
    stored = tmp_path / "suite.json"
    monkeypatch.setattr(
        sys, "argv", ["run", "--only", "heat_source", "michaelis_menten", "--in-this-process", "--results", str(stored)]
    )
    run.main()
    heat, enzyme = json.loads(stored.read_text())
    assert set(heat["fields"]) == {"u", "s"}
    assert heat["unknowns"] == {}
    assert enzyme["unknowns"]["Km"] == {"mean": 1.0, "sd": 0.0, "truth": 0.5, "within": False}
    assert enzyme["unknowns"]["Vmax"]["within"]
    assert enzyme["parameters"] == bp.Posterior(cases["michaelis_menten"].problem).dim
    shown = capsys.readouterr().out
    assert "| michaelis_menten | 0 | 92 |" in shown
    assert "Vmax 1 ± 0 (1), Km 1 ± 0 (0.5) *" in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_itself_has_no_error(cases, name):
    from benchmarks.suite import run

    case = cases[name]

    class Truthful:
        @staticmethod
        def predict(field, at):
            exact = case.truth_fields[field](**at)
            return SimpleNamespace(mean=exact, sd=np.full(exact.shape, 0.1))

    for field in case.truth_fields:
        found = run.judge_field(case, Truthful, field)
        size = np.sqrt(np.mean(case.truth_fields[field](**run.grid(case.problem, field)) ** 2))
        assert found == {
            "error": 0.0,
            "expected": pytest.approx(0.1 / size),
            "mean_sd": pytest.approx(0.1),
            "within": 1.0,
        }


def test_a_run_that_takes_too_long_is_reported():
    from benchmarks.suite import run

    found = run.run_apart("beam", 0, "hmc", None, quick=True, most_seconds=0.01)
    assert found["verdict"] == "too slow"
    cells = run.row({"problem": "beam", "seed": 0, "parameters": 482} | found)
    assert cells[3:9] == ["> 0", "-", "-", "too slow", "-", "-"]
    found = run.run_apart("beam", 0, "hmc", None, quick=True, most_seconds=600.0, most_processor_seconds=1)
    cells = run.row({"problem": "beam", "seed": 0, "parameters": 482} | found)
    assert cells[3:7] == ["-", "> 1.0", "-", "too slow"]
