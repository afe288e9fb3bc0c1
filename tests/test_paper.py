"""The paper's problems: data, truths and equations belong together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bpinn as bp
from bpinn.quantities import Coordinate, Partial

PROBLEMS = {
    "regression": {"u": 32},
    "poisson_1d": {"f": 16, "b": 2},
    "nonlinear_1d": {"f": 32, "b": 2},
    "allen_cahn_2d": {"f": 500, "b": 100},
    "inverse_reaction_1d": {"f": 32, "u": 6, "b": 2},
    "inverse_reaction_2d": {"f": 100, "u": 100, "b": 100},
}


@pytest.mark.parametrize(("name", "counts"), PROBLEMS.items())
def test_counts_dimensions_and_priors(name, counts):
    problem = getattr(bp.paper, name)().problem
    assert {r.name: len(r.values) for r in problem.readings} == counts
    inverse = "inverse" in name
    assert list(problem.unknowns) == (["k"] if inverse else [])
    weights = 2701 if len(problem.domain) == 1 else 2751
    assert bp.Posterior(problem).dim == weights + inverse


@pytest.mark.parametrize("name", PROBLEMS)
def test_readings_are_the_truth_with_the_stated_noise(name):
    """Standardised residuals of many data draws are standard normal, each sensor's equation applied to the true u."""
    scores = []
    for seed in range(40):
        paper = getattr(bp.paper, name)(noise=0.1, seed=seed)
        scores += [(r.values - exact(paper, r)) / r.noise for r in paper.problem.readings]
    scores = np.concatenate(scores)
    assert abs(scores.mean()) < 4 / np.sqrt(scores.size)
    assert abs(scores.std() - 1) < 4 / np.sqrt(2 * scores.size)


def exact(paper, readings):
    """The equation of some readings at the true solution, whose derivatives come from autodiff."""
    names = list(paper.problem.domain)
    u = {1: lambda x: jnp.sin(6 * x) ** 3, 2: lambda x, y: jnp.sin(jnp.pi * x) * jnp.sin(jnp.pi * y)}[len(names)]
    points = [jnp.asarray(readings.at[c]) for c in names]

    def value(reference):
        if isinstance(reference, Partial):
            function = u
            for i, order in enumerate(reference.orders):
                for _ in range(order):
                    function = jax.grad(function, i)
            return jax.vmap(function)(*points)
        if isinstance(reference, Coordinate):
            return points[names.index(reference.name)]
        return paper.truth.unknowns[reference.name]

    return np.asarray(readings.equation.call([value(r) for r in readings.equation.references]))


def test_boundary_noise_of_the_inverse_problems_stays_small():
    for name in ("inverse_reaction_1d", "inverse_reaction_2d"):
        noise = {r.name: r.noise[0] for r in getattr(bp.paper, name)(noise=0.1).problem.readings}
        assert noise == {"f": 0.1, "u": 0.1, "b": 0.01}


def test_seeds_change_the_data_and_nothing_else():
    first, second, again = (bp.paper.inverse_reaction_1d(seed=s).problem for s in (0, 1, 0))
    assert not np.array_equal(first.readings[0].values, second.readings[0].values)
    np.testing.assert_array_equal(first.readings[0].values, again.readings[0].values)
    assert bp.Posterior(first).model == bp.Posterior(second).model


def test_paper_settings():
    method = bp.HMC.paper()
    assert (method.num_leapfrog, method.jitter, method.num_warmup, method.num_draws) == (50, 0.0, 2000, 15000)
    assert (method.keep, method.step_size, method.mass, method.init, method.chains) == (
        10000,
        0.1,
        "identity",
        "prior",
        1,
    )
    assert bp.HMC.paper(chains=4).chains == 4
