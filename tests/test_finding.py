"""Solutions found by fits from random starts: all that there are, each once, and where they are in closed form."""

import numpy as np
import pytest

import bpinn as bp
from bpinn.finding import grouped

FIELD = bp.KarhunenLoeve(bp.SquaredExponential(0.5), terms=3)
X = np.linspace(0.1, 0.9, 5)


def square(u):
    return u * u


def two(edge=0.2):
    sensors = {
        "f": bp.Sensors(square, {"x": X}, (0.8 + 0.3 * np.sin(3 * X)) ** 2, 0.05),
        "b": bp.Sensors("u", {"x": [0.0]}, [edge], 0.6),
    }
    return bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, sensors)


def test_both_signs_are_found_and_mirror_each_other():
    found = bp.find_solutions(two(edge=0.0), 20)
    assert len(found) == 2
    assert sum(one.share for one in found) + found.failed == pytest.approx(1.0)
    assert all(one.share > 0.05 for one in found)
    one, other = (solution.result.predict("u", {"x": X}).mean for solution in found)
    np.testing.assert_allclose(one, -other, atol=2e-3)
    np.testing.assert_allclose(np.abs(one), 0.8 + 0.3 * np.sin(3 * X), atol=0.1)
    assert found[0].log_density == pytest.approx(found[1].log_density, abs=0.01)
    assert "differs most in u at x=" in str(found[1])
    assert "from 20 starts; bp.infer(problem, bp.SMC(), seed=0) estimates how probable each is" in str(found)
    assert f"{found[0].share:.0%} of the starts" in str(found)


def test_the_preferred_sign_comes_first():
    found = bp.find_solutions(two(edge=1.0), 20)
    assert found[0].result.predict("u", {"x": [0.5]}).mean[0] > 0
    assert found[0].log_density > found[1].log_density + 1


def test_a_linear_problem_has_one_solution_and_it_is_the_exact_mean():
    sensors = {"u": bp.Sensors("u", {"x": X}, np.sin(3 * X), 0.1)}
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": FIELD}, sensors)
    found = bp.find_solutions(problem, 6)
    (one,) = found
    assert one.share == 1.0
    assert one.differs == ""
    np.testing.assert_allclose(one.result.z[0, 0], bp.reference.exact(problem).mean, atol=1e-3)
    assert "SMC" not in str(found)


def test_networks_with_other_weights_and_the_same_function_are_one_solution():
    sensors = {"u": bp.Sensors("u", {"x": np.linspace(0, 1, 12)}, np.linspace(0.5, 1.0, 12), 0.02)}
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(8,))}, sensors)
    found = bp.find_solutions(problem, 8)
    assert len(found) == 1
    assert found[0].share + found.failed == pytest.approx(1.0)


def test_seeds_and_starts():
    again = [bp.find_solutions(two(), 6, seed=seed) for seed in (0, 0, 1)]
    density = [[one.log_density for one in found] for found in again]
    assert density[0] == density[1]
    assert [one.share for one in again[0]] == [one.share for one in again[1]]
    for starts in (1, 2.5, True):
        with pytest.raises(bp.InputError, match="find_solutions: starts must be a whole number of at least 2"):
            bp.find_solutions(two(), starts)


def test_fits_that_do_not_meet_the_readings_are_counted_apart():
    result = bp.infer(two(), bp.Ensemble(members=10, anchored=False), seed=0, progress=False)
    bad = grouped(result, 20).failed
    result.stats["misfit"][0, :4] = 400.0
    already = int(np.sum(bp.infer(two(), bp.Ensemble(members=10, anchored=False), seed=0, progress=False)
                         .stats.misfit[0, :4] > 5))  # fmt: skip
    assert grouped(result, 20).failed == pytest.approx(bad + (4 - already) / 20)
