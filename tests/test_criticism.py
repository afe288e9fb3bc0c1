"""Model criticism: wrong models are found by what they leave in residuals, noise and fields; right ones are not."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import diagnostics
from bpinn.criticism import equations, own_weight, parameters
from bpinn.criticism.residuals import Group, compared, structure
from bpinn.likelihoods import Normal

X = np.linspace(0, 1, 40)


def group(values, mean, error=0.02, noise=0.1, draws=400, at=None, seed=0):
    """Readings, and draws of a posterior whose predictions are off from ``mean`` by a common, smooth error."""
    rng = np.random.default_rng(seed)
    at = {"x": X} if at is None else at
    tilt = next(iter(at.values()))
    expected = mean + error * (rng.standard_normal((draws, 1)) + rng.standard_normal((draws, 1)) * tilt)
    readings = SimpleNamespace(
        name="u", values=values, noise=np.full(len(values), noise), noise_name=None, likelihood=Normal(), at=at
    )
    return Group.of(
        SimpleNamespace(noise_of=lambda readings, shape: np.broadcast_to(readings.noise, shape)), readings, expected
    )


def alarms(of_group):
    return {kind for kind, finding, *_ in structure(of_group) if finding.is_alarm}


@pytest.mark.parametrize("sets", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_right_models_are_hardly_ever_alarmed(sets):
    """At most 2% of the data sets, by a margin of three standard errors."""
    rng = np.random.default_rng(0)
    count = sum(bool(alarms(group(0.1 * rng.standard_normal(40), np.zeros(40), seed=i))) for i in range(sets))
    assert count <= 0.02 * sets + 3 * np.sqrt(0.02 * sets)


WRONG = {
    "offset": (lambda rng: 0.1 * rng.standard_normal(40) + 0.12, "offset"),
    "drift": (lambda rng: 0.1 * rng.standard_normal(40) + 0.3 * (X - 0.5), "drift"),
    "wave": (lambda rng: 0.1 * rng.standard_normal(40) + 0.2 * np.sin(12 * X), "correlation"),
    "scatter": (lambda rng: (0.01 + 0.25 * X**2) * rng.standard_normal(40), "scatter"),
}


@pytest.mark.parametrize(("make", "kind"), WRONG.values(), ids=WRONG)
def test_structure_in_residuals_is_found(make, kind):
    """In at least 17 of 20 data sets."""
    rng = np.random.default_rng(1)
    assert sum(kind in alarms(group(make(rng), np.zeros(40), seed=i)) for i in range(20)) >= 17


def test_neighbours_in_two_dimensions():
    rng = np.random.default_rng(2)
    at = {"x": rng.random(80), "y": rng.random(80)}
    wrong = 0.1 * rng.standard_normal(80) + 0.25 * np.sin(9 * at["x"]) * np.sin(9 * at["y"])
    assert "correlation" in alarms(group(wrong, np.zeros(80), at=at))
    assert not alarms(group(0.1 * rng.standard_normal(80), np.zeros(80), at=at))


def test_a_statistic_is_compared_with_its_replicas():
    rng = np.random.default_rng(0)
    same = compared(rng.standard_normal(1000), rng.standard_normal(1000))
    assert abs(same.size) < 0.2
    assert 0.4 < same.p < 0.6
    assert compared(np.full(1000, 5.0), rng.standard_normal(1000)).is_alarm


# --- whole problems: fields that are linear, whose runs take a second ---


def curve(field, noise, values, unknowns=None):
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": field},
        sensors={"u": bp.Sensors("u", {"x": X}, values, noise=noise)},
        unknowns=unknowns,
    )


def diagnosed(problem, **more):
    return bp.infer(problem, seed=0, progress=False, **more).diagnose()


def test_a_kernel_that_is_too_long_is_found_even_if_noise_takes_it():
    values = np.sin(14 * X) + 0.1 * np.random.default_rng(0).standard_normal(40)
    stiff = bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=4)
    found = diagnosed(curve(stiff, dist.HalfNormal(1.0), values))
    assert found.verdict != "good"
    assert "neighbouring residuals of u are correlated" in str(found)
    right = bp.KarhunenLoeve(bp.SquaredExponential(length=0.15), terms=20)
    assert diagnosed(curve(right, dist.HalfNormal(1.0), values)).verdict == "good"


def test_noise_that_has_swallowed_the_signal_is_said():
    values = np.sin(60 * X) + 0.1 * np.random.default_rng(0).standard_normal(40)
    found = diagnosed(curve(bp.MLP(hidden=()), dist.HalfNormal(1.0), values))
    assert found.verdict != "good"
    assert "noise_u, which is inferred, takes the rest" in str(found)


def test_noise_far_from_its_prior_is_said():
    values = np.random.default_rng(0).standard_normal(40)
    found = diagnosed(curve(bp.MLP(hidden=()), dist.LogNormal(np.log(0.01), 0.5), values))
    assert "far above what its prior expects" in str(found)


def test_coefficients_far_in_the_tail_of_their_prior_are_said():
    values = 30 * np.sin(6 * X) + 0.1 * np.random.default_rng(0).standard_normal(40)
    found = diagnosed(curve(bp.KarhunenLoeve(bp.SquaredExponential(length=0.3), terms=12), 0.1, values))
    assert "times as large as its prior expects" in str(found)


def slope(u_x, k):
    return u_x - k


def law(points, tolerance, values, prior, field):
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": field},
        unknowns={"k": prior},
        sensors={
            "law": bp.Sensors(slope, {"x": np.linspace(0, 1, points)}, 0.0, noise=tolerance),
            "u": bp.Sensors("u", {"x": X}, values, noise=0.05),
        },
    )


EXPANSION = bp.KarhunenLoeve(bp.SquaredExponential(length=0.25, sd=2.0), terms=14)


def test_an_equation_that_the_data_contradict_is_off_zero():
    noise = 0.05 * np.random.default_rng(0).standard_normal(40)
    wrong = law(20, 0.3, 1.5 * X + 0.6 * X**2 + noise, dist.Normal(0, 3), EXPANSION)
    assert "law is not met" in str(diagnosed(wrong))
    right = law(20, 0.3, 1.5 * X + noise, dist.Normal(0, 3), EXPANSION)
    assert diagnosed(right).verdict == "good"


def test_an_equation_with_too_few_points_does_not_hold_between_them():
    noise = 0.05 * np.random.default_rng(0).standard_normal(40)
    found = diagnosed(law(4, 0.01, 1.5 * X + noise, dist.Normal(0, 3), EXPANSION))
    assert "law holds at its 4 points but not between them" in str(found)


def test_an_unknown_at_the_edge_of_its_prior_is_said():
    noise = 0.05 * np.random.default_rng(0).standard_normal(40)
    found = diagnosed(law(20, 0.3, 1.5 * X + noise, dist.Uniform(0.0, 1.2), EXPANSION))
    assert "k is at the edge of its prior" in str(found)
    assert "next to 1.2" in str(found)


def test_findings_are_stored_with_the_result(tmp_path):
    problem = law(4, 0.01, 1.5 * X, dist.Normal(0, 3), EXPANSION)
    result = bp.infer(problem, seed=0, progress=False)
    result.save(tmp_path / "result.npz")
    assert "but not between them" in str(bp.load(tmp_path / "result.npz").diagnose())


def test_sensitivity_is_that_of_another_run():
    """Importance weights against a run with half the tolerance, within Monte Carlo error."""
    rng = np.random.default_rng(0)
    values = 1.5 * X + 0.05 * rng.standard_normal(40)
    method = bp.HMC(num_draws=1500)
    results = [
        bp.infer(law(10, t, values, dist.Normal(0, 0.3), EXPANSION), method, seed=1, progress=False)
        for t in (1.5, 1.125)
    ]
    told = bp.sensitivity(results[0], "law", 0.75)
    assert told.khat < 0.7
    k = [r.draws("k") for r in results]
    right = (k[1].mean() - k[0].mean()) / k[0].std()
    assert right > 0.6  # so that a wrong power of the factor would be seen
    assert abs(told.shift["k"] - right) < 0.15
    assert "0.75 times the noise of law moves k by" in str(told)


def test_sensitivity_refuses_what_it_cannot_do(prior_result):
    result = prior_result(law(4, 0.1, X, dist.Normal(0, 3), EXPANSION))
    for given, words in ((("lw",), "no sensors called 'lw'"), (("law", -1), "factor must be a positive number")):
        with pytest.raises(bp.InputError, match=words):
            bp.sensitivity(result, *given)


def test_slow_chains_in_several_coordinates_are_advised_to_use_an_expansion(prior_result):
    """Even if the last layer is as wide as would be advised."""
    at = {"x": np.linspace(0, 1, 300), "t": np.linspace(0, 1, 300)}
    stated = bp.Problem(
        {"x": (0, 1), "t": (0, 1)}, {"u": bp.MLP(hidden=(2, 150))}, {"law": bp.Sensors("u_x", at, 0.0, 0.1)}
    )
    health = diagnostics.Diagnosis("care", [], [diagnostics.MORE])
    parameters.judge_width(health, prior_result(stated))
    assert "for u a Karhunen-Loève expansion" in health.advice[-1]
    assert "a wider last layer" not in health.advice[-1]


def test_moved_points_need_no_compilation():
    """The model is the same one, so that the compiled function is."""
    problem = law(4, 0.1, X, dist.Normal(0, 3), EXPANSION)
    other = equations.moved_to(problem, {"law": {"x": np.linspace(0.1, 0.9, 4)}})
    assert bp.Posterior(problem).model == bp.Posterior(other).model


def test_slow_chains_of_a_narrow_network_are_advised_to_widen_it(prior_result):
    made = law(200, 0.1, X, dist.Normal(0, 3), bp.MLP(hidden=(10, 20)))
    for unconverged in (True, False):
        health = diagnostics.Diagnosis("good", [], [])
        if unconverged:
            health.worsen("care", "chains nearly agree", diagnostics.MORE)
        parameters.judge_width(health, prior_result(made))
        assert ("240 readings and points for 21 output weights: chains are slow" in health.reasons) == unconverged
        assert any("MLP(hidden=(10, 150), ...) with 0.37 times" in one for one in health.advice) == unconverged
        assert not any("KarhunenLoeve" in one for one in health.advice)  # that is for several coordinates
    health = diagnostics.Diagnosis("care", [], [diagnostics.MORE])
    parameters.judge_width(health, prior_result(law(10, 0.1, X, dist.Normal(0, 3), bp.MLP(hidden=(10, 40)))))
    assert not health.reasons


@pytest.mark.parametrize(
    ("unconverged", "least", "said"), [(True, 1e-4, True), (True, 0.1, False), (False, 1e-4, False)]
)
def test_slow_chains_of_a_positive_field_that_reaches_zero_are_advised_to_drop_the_link(
    prior_result, unconverged, least, said
):
    result = prior_result(stated_decay(bp.GaussianProcess(positive=True)))
    at = [i for i, label in enumerate(result.functional_names) if label.startswith("u at ")]
    result.functionals[..., at] = np.geomspace(1.0, least, len(at))
    health = diagnostics.Diagnosis("care", [], [diagnostics.MORE] if unconverged else [])
    parameters.judge_links(health, result)
    assert ("the field u without positive=True" in health.advice) == said
    assert ("u at t=4 is 0.0001" in " ".join(health.reasons)) == said


def slow_decay(u, u_t, rate):
    return u_t + rate * u


def stated_decay(field, neutral=False, law=slow_decay):
    readings = bp.Sensors("u", {"t": [0.0, 2.0]}, [1.0, 0.3], noise=0.1)
    return bp.Problem(
        domain={"t": (0.0, 4.0)},
        fields={"u": field},
        unknowns={"rate": dist.LogNormal(0.0, 1.0)},
        sensors={"law": bp.Physics(law, 12, 0.05, neutral=neutral), "u": readings},
    )


def spread(result, sd):
    """The same with draws of the unknown, which is the last parameter, that have this sd around one on the real line."""
    z = result.z.copy()
    number = np.linspace(-1.0, 1.0, z.shape[1])
    z[0, :, -1] = sd * number / number.std()
    functionals = result.functionals.copy()
    functionals[0, :, -1] = np.exp(z[0, :, -1])
    return replace(result, z=z, functionals=functionals)


def test_what_the_points_of_an_equation_say_by_themselves(prior_result):
    """For a linear field and equation against the evidence in closed form, with a covariance of all points."""
    field = bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=12)
    problem = stated_decay(field)
    result = spread(prior_result(problem, 40), 0.2)
    posterior = bp.Posterior(problem)
    size = posterior.model.parameters.num_weights

    def log_evidence(rate):
        def law(a):
            return posterior.model.predicted(jnp.append(a, rate), posterior.data)[0]

        rows = np.asarray(jax.jacobian(law)(jnp.zeros(size)), float)
        covariance = rows @ rows.T + 0.05**2 * np.eye(12)
        return -0.5 * np.linalg.slogdet(covariance)[1]

    rates = result.z[0, :, -1].astype(float)
    rates = rates[np.linspace(0, 39, own_weight.DRAWS).astype(int)]
    slopes = [(log_evidence(rate + 0.05) - log_evidence(rate - 0.05)) / 0.1 for rate in rates]
    expected = -(result.z[0, :, -1].std(ddof=1) * np.mean(slopes))
    laws = [r for r in problem.readings if r.is_exact]
    assert own_weight.shifts(result, laws) == {"rate": pytest.approx(expected, rel=0.02)}
    assert expected > 0.25  # the points favour small rates


@pytest.mark.parametrize(
    ("field", "neutral", "sd", "is_said"),
    [
        (bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=12), False, 0.2, True),
        (bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=12), False, 0.02, False),  # readings determine it
        (bp.KarhunenLoeve(bp.SquaredExponential(length=1.0), terms=12), True, 0.2, False),
        (bp.GaussianProcess(), False, 0.4, True),
        (bp.MLP(hidden=(8,)), None, 0.4, True),
    ],
)
def test_readings_that_do_not_outweigh_the_points_of_an_equation(field, neutral, sd, is_said, prior_result):
    health = diagnostics.Diagnosis("good", [], [])
    own_weight.judge_weight(health, spread(prior_result(stated_decay(field, neutral), 40), sd))
    assert health.verdict == ("care" if is_said else "good")
    if is_said:
        assert "the points of law favour some values of rate by themselves" in health.reasons[0]
        assert ("GaussianProcess" in health.advice[0]) is isinstance(field, bp.MLP)


def test_without_an_unknown_or_with_a_tolerance_that_is_inferred_nothing_is_said(prior_result):
    health = diagnostics.Diagnosis("good", [], [])
    inferred = stated_decay(bp.MLP(hidden=(4,)))
    sensors = inferred.sensors | {"law": replace(inferred.sensors["law"], noise=dist.HalfNormal(0.1))}
    own_weight.judge_weight(
        health, prior_result(bp.Problem(inferred.domain, inferred.fields, sensors, inferred.unknowns))
    )
    assert health.verdict == "good"
