"""What several populations say together: weighted means, their errors, and draws in the right proportions."""

import numpy as np
import pytest

import bpinn as bp
from bpinn.populations import agreement, log_mean, mean_and_error, probabilities, rows_of, weights_of
from bpinn.run_output import RunOutput, SamplerStats


def test_weights_are_the_evidences():
    np.testing.assert_allclose(weights_of(np.log([1.0, 3.0]) - 4000.0), [0.25, 0.75])
    assert log_mean(np.log([1.0, 3.0]) - 4000.0) == pytest.approx(np.log(2.0) - 4000.0)


def test_mean_and_error_of_equal_weights_are_those_of_a_sample():
    values = np.random.default_rng(0).standard_normal((6, 3))
    mean, error = mean_and_error(values, np.full(6, 2.0))
    np.testing.assert_allclose(mean, values.mean(axis=0))
    np.testing.assert_allclose(error, values.std(axis=0, ddof=1) / np.sqrt(6))


@pytest.mark.parametrize("count", [4, 8, 16])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_two_standard_deviations_hold_the_probability_as_often_as_they_should(count, spread):
    """Evidences differ between populations, independently of the shares; 95% is stated."""
    rng, runs = np.random.default_rng(0), 2000
    held = 0
    for _ in range(runs):
        shares = np.clip(0.7 + 0.05 * rng.standard_normal(count), 0, 1)
        inside = np.arange(1000)[None] < 1000 * shares[:, None]
        weights = weights_of(spread * rng.standard_normal(count))
        (probability, sd), (other, same) = probabilities(np.stack([inside, ~inside]), weights)
        assert probability + other == pytest.approx(1.0)
        assert sd == pytest.approx(same)
        held += abs(probability - 0.7) <= 2 * sd
    assert abs(held / runs - 0.95) < 4 * np.sqrt(0.95 * 0.05 / runs) + 0.01


def test_rows_are_repeated_in_proportion_and_in_order():
    weights = np.array([0.0, 1.0, 2.5, 0.5])
    rows = rows_of(weights, 400)
    assert np.all(np.diff(rows) >= 0)
    counts = np.bincount(rows, minlength=4)
    assert np.all(np.abs(counts - 400 * weights / weights.sum()) <= 1)
    np.testing.assert_array_equal(rows_of(np.ones(7), 7), np.arange(7))


def output(values, log_evidence):
    count, draws = values.shape[:2]
    stats = SamplerStats(log_evidence=np.repeat(np.asarray(log_evidence)[:, None], draws, axis=1))
    return RunOutput(("k",), np.array([False]), values, stats, {"weight": np.ones((count, 2))})


def test_what_is_not_good_is_told_apart():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((8, 400, 1))
    good = agreement(output(values, np.zeros(8)))
    assert good.is_good
    assert good.log_evidence == 0.0
    assert good.mean_error < 0.1
    assert good.probability_error == 0.0
    shifted = agreement(output(values + rng.standard_normal((8, 1, 1)), np.zeros(8)))
    assert shifted.mean_error > 0.15
    assert not shifted.is_good
    apart = agreement(output(values, np.array([3.0, 0, 0, 0, 0, 0, 0, 0])))
    assert apart.evidence_error > 0.5
    assert not apart.is_good
    sides = np.where(np.arange(400)[None] < 400 * rng.uniform(0.2, 0.8, (8, 1)), -20.0, 20.0)
    split = agreement(output(values + sides[..., None], np.zeros(8)))
    assert split.probability_error > 0.03
    assert not split.is_good
    assert agreement(output(values[:1], np.zeros(1))) is None


def unequal():
    """A result of two populations whose evidences are as one to three."""
    sensors = {"u": bp.Sensors("u", {"x": [0.0]}, [0.3], 0.1)}
    field = bp.KarhunenLoeve(bp.SquaredExponential(0.4), terms=2)
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": field}, sensors)
    result = bp.infer(problem, bp.SMC(particles=40, most_chains=1), seed=0, chains=2, progress=False)
    result.stats["log_evidence"] = np.repeat(np.log([[1.0], [3.0]]), 40, axis=1)
    return result


def test_the_mixture_has_each_population_by_its_evidence():
    result = unequal()
    assert result.mixture.z.shape == result.z.shape
    rows = result.mixture.z.reshape(-1, result.z.shape[-1])
    assert np.all(np.isin(rows[:, 0], result.z[..., 0]))
    from_first = np.isin(rows[:, 0], result.z[0, :, 0]).mean()
    assert from_first == pytest.approx(0.25, abs=0.02)
    draws = result.predict("u", {"x": [0.5]}).draws
    np.testing.assert_array_equal(draws, result.mixture.predict("u", {"x": [0.5]}).draws)
    assert np.any(draws != result.only(0).predict("u", {"x": [0.5]}).draws)
    assert result.mixture.mixture is result.mixture
    assert result.mixture.stats.log_evidence[0, 0] == pytest.approx(np.log(2.0))
