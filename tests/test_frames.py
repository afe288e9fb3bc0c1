"""Chains in whitened coordinates draw from the same posterior: exact answers, a frame that stays, and bits that do."""

from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from blackjax.mcmc.hmc import HMCState
from scipy.integrate import solve_ivp

import bpinn as bp
from bpinn.convergence import ess_of
from bpinn.coordinates import Coordinates
from bpinn.engine.advance import Program, Request
from bpinn.methods import warmup
from bpinn.methods.frames import WhitenedMoves, triangular_root
from bpinn.methods.hamiltonian import COORDINATES, Hamiltonian
from bpinn.methods.moves import Phase
from bpinn.methods.start import start_at
from bpinn.posterior import Posterior

X = np.linspace(0.0, 1.0, 6)
QUICK = bp.HMC(num_warmup=60, num_draws=40, num_leapfrog=5)
LONG = bp.HMC(num_warmup=120, num_draws=1500, num_leapfrog=8)
BOTH = pytest.mark.parametrize("coordinates", ["whitened", "plain"])


def expansion(noise=0.2):
    """Linear readings of a Karhunen-Loève field: a Gaussian posterior, given the noise."""
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.KarhunenLoeve(bp.Matern52(length=0.4), terms=4)},
        sensors={"u": bp.Sensors("u", {"x": X}, np.cos(3 * X) + 0.1 * (-1.0) ** np.arange(6), noise)},
    )


def reaction(u, u_xx, k):
    return 0.1 * u_xx + k * jnp.tanh(u)


def network():
    """A nonlinear equation with an unknown, and an inferred noise."""
    sensors = {
        "f": bp.Sensors(reaction, {"x": X}, 0.5 * np.cos(2 * X), 0.1),
        "u": bp.Sensors("u", {"x": X}, np.cos(2 * X), dist.LogNormal(-2.0, 0.5)),
    }
    return bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, sensors, {"k": dist.Normal(0.0, 1.0)})


@dataclass(frozen=True)
class Bend(bp.Field):
    """u = tanh(theta x): it is linear in nothing."""

    def size(self, bounds):
        return 1

    def prior_sd(self, bounds):
        return np.ones(1)

    def unflatten(self, theta, bounds):
        return theta

    def prepare(self, points, requests, bounds):
        return [jnp.asarray(x[:, 0], dtype=float) for x in points]

    def raw(self, theta, prepared, wanted):
        return [{(0,): jnp.tanh(theta[0] * x)} for x in prepared]

    def describe(self):
        return "tanh(theta x)"


def bend(unknown):
    """Nothing to whiten; with an unknown, or without."""
    sensors = {"u": bp.Sensors("u", {"x": X}, np.tanh(1.5 * X), 0.3)}
    if unknown:
        sensors["f"] = bp.Sensors(lambda u, k: k * u, {"x": X}, 0.7 * np.tanh(1.5 * X), 0.3)
    unknowns = {"k": dist.Normal(0.0, 1.0)} if unknown else None
    return bp.Problem({"x": (0.0, 1.0)}, {"u": Bend()}, sensors, unknowns)


def draw(problem, method, **options):
    return bp.infer(problem, method, **{"seed": 2, "progress": False, **options})


def allow(monkeypatch, name, moves):
    """Coordinates of another name, so that a run in them is compiled anew."""
    monkeypatch.setitem(COORDINATES, name, moves)
    monkeypatch.setitem(warmup.SETTINGS, name, warmup.SETTINGS["whitened"])


def quantities(result):
    """Unknowns, noise levels and the field at three points: (chains, draws, quantities)."""
    scalars = [result.draws(name)[..., None] for name in result.names]
    return np.concatenate([*scalars, result.predict("u", {"x": X[::2]}).draws], axis=-1).astype(float)


def errors_from(draws, mean, sd):
    """How many Monte-Carlo errors first and second moments are from exact ones, the most over all quantities."""
    scaled = (draws - mean) / sd
    return max(_errors(scaled, 0.0), _errors(scaled**2, 1.0))


def errors_between(one, other):
    """The same for the moments of two runs."""
    mean, sd = other.mean(axis=(0, 1)), other.std(axis=(0, 1))
    pairs = [[((draws - mean) / sd) ** power for draws in (one, other)] for power in (1, 2)]
    return max(_errors(a, b.mean(axis=(0, 1)), b.var(axis=(0, 1)) / ess_of(b)) for a, b in pairs)


def _errors(draws, expected, variance=0.0):
    apart = draws.mean(axis=(0, 1)) - expected
    return float(np.max(np.abs(apart) / np.sqrt(draws.var(axis=(0, 1)) / ess_of(draws) + variance)))


# --- the root of a precision ---


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_the_root_of_a_precision(size, x64):
    matrix = np.random.default_rng(size).standard_normal((size, size + 2))
    precision = matrix @ matrix.T + 0.1 * np.eye(size)
    factor, inverse = (np.asarray(part) for part in triangular_root(jnp.asarray(precision), jnp.full(size, 1e-3)))
    np.testing.assert_allclose(factor @ factor.T @ precision, np.eye(size), atol=1e-9)
    np.testing.assert_allclose(factor @ inverse, np.eye(size), atol=1e-12)
    np.testing.assert_array_equal(factor, np.triu(factor))
    assert np.all(np.diag(factor) > 0)


@pytest.mark.parametrize(
    "precision",
    [[[-1.0]], [[0.0]], [[1.0, 3.0], [3.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[-2.0, 1.0, 0.0], [1.0, 0.0, 5.0], [0.0, 5.0, -1.0]]],
)  # fmt: skip
def test_the_root_of_a_matrix_that_is_no_precision(precision, x64):
    least = jnp.full(len(precision), 0.5)
    factor, inverse = triangular_root(jnp.asarray(precision), least)
    assert np.all(np.isfinite(factor))
    assert np.all(np.diag(factor) > 0)
    np.testing.assert_allclose(factor @ inverse, np.eye(len(precision)), atol=1e-12)


# --- the posterior ---


@BOTH
def test_a_linear_problem_has_its_exact_posterior(coordinates):
    result, exact = draw(expansion(), replace(LONG, coordinates=coordinates)), bp.reference.exact(expansion())
    sd = np.sqrt(np.diag(exact.covariance))
    assert errors_from(result.z.astype(float), exact.mean, sd) < 4.5
    band = exact.predict("u", {"x": X[::2]})
    assert errors_from(quantities(result), band.mean, band.sd) < 4.5


PRIOR_OF_NOISE = dist.HalfNormal(0.5)


@cache
def exact_noise():
    """Mean and sd of the noise of `expansion`, by quadrature over the exact evidence."""
    noise = np.exp(np.linspace(np.log(0.004), np.log(3.0), 60))
    log_density = np.array([bp.reference.exact(expansion(float(s))).log_evidence for s in noise])
    log_density += np.asarray(PRIOR_OF_NOISE.log_prob(noise)) + np.log(noise)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ noise
    return mean, np.sqrt(weights @ (noise - mean) ** 2)


@BOTH
def test_an_inferred_noise_has_its_exact_posterior(coordinates):
    result = draw(expansion(PRIOR_OF_NOISE), replace(LONG, coordinates=coordinates))
    assert errors_from(result.draws("noise_u")[..., None].astype(float), *exact_noise()) < 4.5


def test_without_the_determinant_the_noise_is_wrong(monkeypatch):
    """Proof that the tests above would see it."""

    def mistaken(self, w, weight=1.0):
        return self.log_density_of(self.solve(w, weight), weight)

    monkeypatch.setattr(Coordinates, "log_density", mistaken)
    allow(monkeypatch, "mistaken", WhitenedMoves(freeze=False))  # that of a frozen map is a constant
    result = draw(expansion(PRIOR_OF_NOISE), replace(LONG, coordinates="mistaken"))
    assert errors_from(result.draws("noise_u")[..., None].astype(float), *exact_noise()) > 20


def test_a_network_has_the_same_posterior_in_both_coordinates():
    whitened = draw(network(), bp.HMC(num_leapfrog=10, num_warmup=200, num_draws=1000))
    plain = draw(network(), bp.HMC(num_leapfrog=60, num_warmup=300, num_draws=1500, coordinates="plain"))
    assert errors_between(quantities(whitened), quantities(plain)) < 4.5


def permeable(k, k_x, u_x, u_xx):
    return k * u_xx + k_x * u_x + 1.0


def seepage():
    """A coefficient that is a field: u is whitened given k, which is not whitened itself."""
    smooth = bp.SquaredExponential(length=0.5)
    sensors = {
        "f": bp.Sensors(permeable, {"x": X}, 0.0, 0.1),
        "u": bp.Sensors("u", {"x": X}, 0.5 * X * (1 - X), 0.05),
        "k": bp.Sensors("k", {"x": X[:2]}, 1.0, 0.2),
    }
    fields = {"u": bp.KarhunenLoeve(smooth, terms=4), "k": bp.KarhunenLoeve(smooth, terms=2, positive=True)}
    return bp.Problem({"x": (0.0, 1.0)}, fields, sensors)


def exact_coefficient():
    """Mean and sd of the parameters of k, by quadrature: given them the log density is quadratic in those of u."""
    with jax.enable_x64(True):
        posterior = bp.Posterior(seepage())
        axis = np.linspace(-6.0, 6.0, 101)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)

        def log_marginal(k):
            def log_density(u):
                return posterior.log_density(jnp.concatenate([u, k]))

            zero = jnp.zeros(4)
            slope, precision = jax.grad(log_density)(zero), -jax.hessian(log_density)(zero)
            gain = 0.5 * slope @ jnp.linalg.solve(precision, slope)
            return log_density(zero) + gain - 0.5 * jnp.linalg.slogdet(precision)[1]

        logs = np.asarray(jax.jit(jax.vmap(log_marginal))(jnp.asarray(grid)))
    share = np.exp(logs - logs.max()) / np.sum(np.exp(logs - logs.max()))
    mean = share @ grid
    return mean, np.sqrt(share @ (grid - mean) ** 2)


def test_a_field_that_is_a_coefficient_has_the_exact_posterior():
    model = bp.Posterior(seepage()).model
    assert [name for name, *_ in model.given_coefficients().linear_fields] == ["u"]
    assert model.given_coefficients() != model
    result = draw(seepage(), bp.HMC(num_leapfrog=10, num_warmup=200, num_draws=1000))
    assert errors_from(result.z[..., 4:].astype(float), *exact_coefficient()) < 4.5


@pytest.mark.parametrize(
    ("equation", "coefficients"),
    [
        (permeable, {"k"}),
        (lambda k, u_x: jnp.exp(k) * u_x, {"k"}),
        (lambda u_xx, k: u_xx - k, set()),  # a source, in which the equation is linear
        (lambda k, u: k * u, set()),  # of the same order: either may be the other's coefficient
        (lambda k, u, u_x: u_x - k * u + k, set()),
    ],
)
def test_which_fields_are_coefficients(equation, coefficients):
    fields = {"u": bp.MLP(hidden=(2,)), "k": bp.MLP(hidden=(2,))}
    sensors = {"f": bp.Sensors(equation, {"x": X}, 0.0, 0.1), "k": bp.Sensors("k", {"x": X}, 1.0, 0.2)}
    assert bp.Posterior(bp.Problem({"x": (0.0, 1.0)}, fields, sensors)).model.sensors.coefficients == coefficients
    sensors["alone"] = bp.Sensors("k_x", {"x": X}, 0.0, 0.1)  # an equation of its own makes it stiff
    assert not bp.Posterior(bp.Problem({"x": (0.0, 1.0)}, fields, sensors)).model.sensors.coefficients


@pytest.mark.parametrize("unknown", [True, False])
def test_nothing_to_whiten(unknown):
    """A field without linear parameters, against quadrature over theta and k."""
    result = draw(bend(unknown), bp.HMC(num_leapfrog=5, num_warmup=150, num_draws=2000))
    theta, k = np.meshgrid(np.linspace(-6, 6, 401), np.linspace(-4, 4, 401) if unknown else [0.0], indexing="ij")
    u, truth = np.tanh(theta[..., None] * X), np.tanh(1.5 * X)
    log_density = -0.5 * (theta**2 + k**2) - 0.5 * np.sum(((u - truth) / 0.3) ** 2, axis=-1)
    if unknown:
        log_density -= 0.5 * np.sum(((k[..., None] * u - 0.7 * truth) / 0.3) ** 2, axis=-1)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    exact = np.concatenate([k[..., None][..., :unknown], u[..., ::2]], axis=-1)
    exact, found = (np.delete(values, int(unknown), axis=-1) for values in (exact, quantities(result)))  # u(0) is 0
    mean = np.einsum("ij,ijq->q", weights, exact)
    sd = np.sqrt(np.einsum("ij,ijq->q", weights, (exact - mean) ** 2))
    assert errors_from(found, mean, sd) < 4.5


@BOTH
def test_the_recorded_density_is_that_of_the_plain_vector(coordinates):
    result = draw(network(), replace(QUICK, coordinates=coordinates), chains=2)
    expected = jax.vmap(jax.vmap(Posterior(network()).log_density))(result.z)
    np.testing.assert_allclose(result.stats["log_density"], expected, rtol=1e-4)


# --- the frame ---


def frames(method=QUICK, steps=5):
    """The frames of a chain at the end of warm-up and after each of some draws."""
    program = Program(Posterior(network()), method, 0, seed=0)
    state = program.advance(Request(0, 0, None, None, 0, method.num_warmup)).state
    found = [state.frame]
    for step in range(method.num_warmup, method.num_warmup + steps):
        state = program.advance(Request(0, 0, state, None, step, 1)).state
        found.append(state.frame)
    return found


def stays(found):
    first, *later = [b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(frame)) for frame in found]
    return all(frame == first for frame in later)


def test_the_frame_stays_while_draws_are_made():
    assert stays(frames())


def test_a_frame_that_does_not_stay_is_seen(monkeypatch):
    step = Hamiltonian.step

    def restless(self, model, data, state, key, number):
        phase = Phase(state.weight, state.weight, number, -1)
        frame, moved = self.moves.renewed(model, data, state.frame, state.hmc, phase)
        return step(self, model, data, state._replace(frame=frame, hmc=moved), key, number)

    monkeypatch.setattr(Hamiltonian, "step", restless)
    allow(monkeypatch, "restless", WhitenedMoves(renewals=tuple(range(200))))
    found = frames(replace(QUICK, coordinates="restless"))
    assert not stays([frame.reference for frame in found])


def test_a_renewed_frame_keeps_the_position(x64):
    """In warm-up: the frame changes, the plain vector and its density do not, and density and gradient are those of the
    new coordinates."""
    posterior, moves = Posterior(network()), WhitenedMoves()
    model, data, one, last = posterior.model, posterior.data, jnp.ones(()), 10

    @jax.jit
    def renewed(z):
        frame, state = moves.begin(model, data, start_at(model, data, z), one)
        found = []
        for step in (last, last + 4):  # while the likelihood is annealed, and at the first renewal after it
            w = state.position + 0.1
            state = HMCState(w, *jax.value_and_grad(moves.log_density(model, data, frame, one))(w))
            before = frame, moves.plain(model, data, frame, state, one)
            age = jnp.int32(moves.renewals[0] - 1)
            phase = Phase(one, one, jnp.int32(step), last)
            frame, state = moves.renewed(model, data, frame._replace(age=age), state, phase)
            again = jax.value_and_grad(moves.log_density(model, data, frame, one))(state.position)
            found.append((before, (frame, moves.plain(model, data, frame, state, one)), state, again))
        return found

    for before, after, state, (density, gradient) in renewed(posterior.sample_prior(jax.random.key(0), 1)[0]):
        assert not stays([before[0].reference.streams, after[0].reference.streams])
        assert not stays([before[0].reference.scalars, after[0].reference.scalars])
        np.testing.assert_allclose(after[1][0], before[1][0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(after[1][1], before[1][1], rtol=1e-8)
        np.testing.assert_allclose(state.logdensity, density, rtol=1e-8)
        np.testing.assert_allclose(state.logdensity_grad, gradient, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


# --- bits ---


def test_draws_do_not_depend_on_cores():
    one, two = (draw(network(), QUICK, chains=2, cores=cores) for cores in (1, 2))
    np.testing.assert_array_equal(one.z, two.z)


@pytest.mark.parametrize("steps", [30, 90])
def test_a_resumed_run_has_the_same_draws(steps, tmp_path, blocks_of):
    """Stopped in warm-up, and while draws are made."""
    blocks_of(7)

    def stop(progress):
        if min((getattr(chain, "done", 0) for chain in getattr(progress, "chains", ())), default=0) > steps:
            raise KeyboardInterrupt

    try:
        stopped = draw(network(), QUICK, chains=2, out=tmp_path / "run", progress=stop, preview=False).interrupted
    except KeyboardInterrupt:  # there are no draws yet
        stopped = True
    assert stopped
    resumed, whole = draw(network(), QUICK, chains=2, out=tmp_path / "run"), draw(network(), QUICK, chains=2)
    np.testing.assert_array_equal(resumed.z, whole.z)
    for name, values in whole.stats.items():
        np.testing.assert_array_equal(resumed.stats[name], values)


def test_too_many_output_weights_are_left_plain(capsys):
    """The cost of the map grows with their cube; a run says that it does without."""
    x = np.linspace(0.0, 1.0, 4)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(600,))},
        sensors={"u": bp.Sensors("u", {"x": x}, x, noise=0.1)},
    )
    assert bp.Posterior(problem).model.linear_fields == ()
    method = bp.HMC(num_warmup=20, num_draws=4, num_leapfrog=2, chains=1)
    result = bp.infer(problem, method, seed=0, progress=False)
    assert "601 output weights and coefficients are too many to whiten (at most 500)" in capsys.readouterr().err
    assert np.all(np.isfinite(result.z))


def test_a_run_in_double_precision_says_that_it_is_slow(x64, capsys, monkeypatch):
    x = np.linspace(0.0, 1.0, 4)
    problem = bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": bp.Sensors("u", {"x": x}, x, noise=0.1)})
    method = bp.HMC(num_warmup=20, num_draws=4, num_leapfrog=2, chains=1)
    notice = "double precision"
    monkeypatch.setattr("bpinn.native.library", lambda: object())  # a kernel, on any machine
    bp.infer(problem, method, seed=0, progress=False)
    assert notice in capsys.readouterr().err
    monkeypatch.undo()
    with jax.enable_x64(False):  # what the notice advises
        result = bp.infer(problem, method, seed=0, progress=False)
    assert notice not in capsys.readouterr().err
    assert result.z.dtype == np.float32


def test_chains_start_with_fields_that_follow_the_readings(x64):
    """Where an equation is singular, fields that start elsewhere would be caught on the wrong side of it."""

    def uptake(s, s_t, V, K):
        return s_t + V * s / (K + s)

    t = np.linspace(0.0, 4.0, 12)
    values = 2.0 * np.exp(-t)
    problem = bp.Problem(
        domain={"t": (0.0, 4.0)},
        fields={"s": bp.GaussianProcess()},
        unknowns={"V": dist.LogNormal(0.0, 0.7), "K": dist.LogNormal(0.0, 0.7)},
        sensors={"law": bp.Physics(uptake), "s": bp.Sensors("s", {"t": t}, values, dist.LogNormal(np.log(0.05), 0.5))},
    )
    posterior = Posterior(problem)
    moves = COORDINATES["whitened"]
    scalars = slice(posterior.model.parameters.num_weights, None)
    for z in posterior.sample_prior(jax.random.key(0), 3):
        first = moves.first(posterior.model, posterior.data, z)
        followed = posterior.evaluate(first, "s", {"t": t})
        assert np.sqrt(np.mean((followed - values) ** 2)) < 0.1
        unknowns = list(problem.unknowns)
        both = [posterior.unflatten(row) for row in (z, first)]
        assert all(both[0][name] == both[1][name] for name in unknowns)
        assert np.all(np.isfinite(first[scalars]))


@pytest.mark.slow
def test_chains_do_not_end_on_a_flat_solution():
    """If equation and readings are annealed together, all chains end with k near 0: flat fields meet the equation."""

    def spring(u, u_t, u_tt, k, hard):
        return u_tt + 0.1 * u_t + k * u + hard * u**3

    def slope(t, y):
        return [y[1], -0.1 * y[1] - y[0] - 2.0 * y[0] ** 3]

    t = np.linspace(0.0, 6.0, 16)
    u = solve_ivp(slope, (0.0, 6.0), [1.2, 0.0], t_eval=t, rtol=1e-8).y[0]
    problem = bp.Problem(
        domain={"t": (0.0, 6.0)},
        fields={"u": bp.GaussianProcess()},
        unknowns={"k": dist.LogNormal(0.0, 0.7), "hard": dist.LogNormal(0.0, 0.7)},
        sensors={
            "law": bp.Physics(spring),
            "u": bp.Sensors("u", {"t": t}, u + 0.08 * np.random.default_rng(0).standard_normal(16), noise=0.08),
        },
    )
    result = bp.infer(problem, bp.HMC(), seed=0, progress=False)
    assert result.diagnose().verdict == "good"
    for name, truth in (("k", 1.0), ("hard", 2.0)):
        draws = result.draws(name)
        assert abs(draws.mean() - truth) < 2.5 * draws.std()
