"""The engine: blocks, keys, cores, thinning, stopping, and no compilation twice."""

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.engine import advance
from bpinn.engine.records import between
from bpinn.inference import memory_of
from bpinn.methods import warmup
from bpinn.run_folder import files

QUICK = bp.HMC(num_warmup=40, num_draws=30, num_leapfrog=8)
THINNED = bp.HMC(num_warmup=40, num_draws=10, num_leapfrog=8, jitter=0.0, thin=5)


def law(u, u_xx, k):
    return 0.1 * u_xx + k * u


def make_problem(seed=0, hidden=(8, 8), readings=12):
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, readings)
    return bp.Problem(
        domain={"x": (-1.0, 1.0)},
        fields={"u": bp.MLP(hidden=hidden)},
        unknowns={"k": dist.LogNormal(0.0, 1.0)},
        sensors={
            "f": bp.Sensors(law, {"x": x}, np.sin(x) + 0.1 * rng.standard_normal(readings), noise=0.1),
            "u": bp.Sensors("u", {"x": x[::3]}, np.cos(x[::3]), noise=0.1),
        },
    )


@pytest.fixture(scope="module")
def problem():
    return make_problem()


def draw(problem, method=QUICK, seed=0, **options):
    return bp.infer(problem, method, seed=seed, progress=False, **options)


def test_draws_do_not_depend_on_cores(problem):
    one, two = draw(problem, chains=4, cores=1), draw(problem, chains=4, cores=2)
    np.testing.assert_array_equal(one.z, two.z)


def test_draws_do_not_depend_on_the_number_of_devices():
    """The same four chains here, with one host device, and in a process with two."""
    program = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import hashlib, jax, bpinn as bp\n"
        "from test_sampling import draw, make_problem\n"
        "result = draw(make_problem(), chains=4)\n"
        "print(jax.device_count(), hashlib.sha256(result.z.tobytes()).hexdigest())\n"
    )

    def run(devices):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
        env = os.environ | {"XLA_FLAGS": flags}
        out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        count, digest = out.stdout.split()
        assert int(count) == devices
        return digest

    assert run(2) == hashlib.sha256(draw(make_problem(), chains=4).z.tobytes()).hexdigest()


def test_a_chain_is_the_same_among_more_chains(problem):
    np.testing.assert_array_equal(draw(problem, chains=1).z[0], draw(problem, chains=3).z[0])


def test_draws_do_not_depend_on_the_size_of_blocks(problem, blocks_of):
    blocks_of(100)
    expected = draw(problem, chains=2)
    blocks_of(1)
    np.testing.assert_array_equal(draw(problem, chains=2).z, expected.z)


def test_seeds_give_other_draws(problem):
    assert not np.array_equal(draw(problem, chains=1).z, draw(problem, chains=1, seed=1).z)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(QUICK, id="anneal"),
        pytest.param(bp.HMC(num_warmup=40, num_draws=30, init="map", init_steps=50), marks=pytest.mark.slow, id="map"),
    ],
)
def test_nothing_is_traced_again_for_new_data_or_seeds(method, programs_stay):
    draw(make_problem(seed=0), method, chains=2)
    before = advance.traces
    other = draw(make_problem(seed=1), method, seed=7, chains=3)
    assert advance.traces == before
    draw(make_problem(seed=1, readings=13), method, chains=2)
    assert advance.traces > before  # other shapes are another program
    assert other.z.shape[0] == 3


@pytest.mark.parametrize("method", [bp.HMC, bp.NUTS])
def test_another_number_of_draws_is_not_another_program(method):
    """How many draws there are, and which are kept, is decided between blocks; what a step does is compiled."""
    program = lambda **settings: method(**settings).stages()[-1].compiled()
    for same in ({"num_draws": 25}, {"most_draws": 220}, {"keep": 5}, {"chains": 1}, {"init_steps": 7}):
        assert program(**same) == program()
    for other in ({"num_warmup": 30}, {"thin": 2}, {"step_size": 0.2}, {"mass": "diagonal"}, {"init": "prior"}):
        assert program(**other) != program()


def test_a_block_traces_its_step_once(monkeypatch):
    """For the shapes of what it records, and as the body of its loop."""
    move, moves = bp.HMC.move, []
    monkeypatch.setattr(bp.HMC, "move", lambda *arguments: moves.append(1) or move(*arguments))
    program = advance.Program(bp.Posterior(make_problem(hidden=(5,))), QUICK, 0, 0)
    numbers = jnp.int32(0), jnp.int32(1)
    given = program.compiled_stage, program.model, program.data, program.shapes(None), program.key(0, 0)
    advance._block.eval_shape(*given, *numbers, size=3)
    assert len(moves) == 1


def test_an_equation_defined_anew_is_not_traced_again(programs_stay):
    def make(offset):
        def local_law(u, u_x):
            return u_x + 2.0 * u

        x = np.linspace(0, 1, 5)
        return bp.Problem(
            domain={"x": (0.0, 1.0)},
            fields={"u": bp.MLP(hidden=(4,))},
            sensors={"f": bp.Sensors(local_law, {"x": x}, offset + x, noise=0.1)},
        )

    before = advance.traces
    draw(make(0.0), QUICK, chains=1)
    assert advance.traces == before + 1
    draw(make(1.0), QUICK, chains=1)
    assert advance.traces == before + 1


def test_thinning_keeps_every_so_many_transitions(problem):
    thinned = draw(problem, THINNED, chains=2)
    assert thinned.z.shape[:2] == (2, 10)
    assert np.all(np.ptp(thinned.z, axis=1) > 0)


def test_keep_holds_the_last_draws(programs_stay):
    """And compiles nothing again."""
    problem = make_problem(hidden=(3,), readings=4)
    settings = {"num_warmup": 40, "num_draws": 250, "num_leapfrog": 3}
    everything = draw(problem, bp.HMC(**settings), chains=2)
    before = advance.traces
    for keep in (4, 17, 200, 500):
        some = draw(problem, bp.HMC(**settings, keep=keep), chains=2)
        np.testing.assert_array_equal(some.z, everything.z[:, -keep:])
        np.testing.assert_array_equal(some.stats["log_density"], everything.stats["log_density"][:, -keep:])
    assert advance.traces == before


def test_records_belong_together(problem):
    """Log density, functionals and position of a draw are of the same draw."""
    result = draw(problem, chains=2)
    posterior = bp.Posterior(problem)
    functionals = jax.jit(posterior.model.functionals)
    for chain, step in [(0, 0), (1, 17), (0, 29)]:
        z = jnp.asarray(result.z[chain, step])
        np.testing.assert_allclose(posterior.log_density(z), result.stats["log_density"][chain, step], rtol=1e-4)
        np.testing.assert_allclose(
            functionals(z, posterior.data), result.functionals[chain, step], rtol=1e-4, atol=1e-5
        )
    np.testing.assert_allclose(np.exp(result.z[..., -1]), result.draws("k"), rtol=1e-5)


def test_progress_is_told_between_blocks(problem, one_step_blocks):
    seen = []
    bp.infer(problem, QUICK, seed=0, chains=2, progress=lambda p: seen.append([c.done for c in p.chains]))
    assert len(seen) >= 70
    assert seen[-1] == [70, 70]


@pytest.mark.parametrize("tty", [True, False])
def test_the_display_shows_draws_acceptance_and_rhat(problem, tty):
    import io

    from bpinn.progress import Display

    stream = io.StringIO()
    stream.isatty = lambda: tty
    method = bp.HMC(num_warmup=40, num_draws=60, num_leapfrog=8)
    bp.infer(problem, method, seed=0, chains=2, progress=Display(stream))
    told = stream.getvalue()
    last = told.rpartition("\x1b[J")[2] if tty else told.strip().splitlines()[-1]
    for words in ("2 chains", "draws 60/60", "accepted", "step", "worst R-hat", "ESS", "k ", " ± ", " s"):
        assert words in last
    assert ("\x1b[J" in told) == tty


def test_ctrl_c_keeps_the_draws_that_are_done():
    problem = make_problem()
    long = bp.HMC(num_warmup=40, num_draws=1_000_000, num_leapfrog=8, keep=500)

    def interrupt(progress):
        if min(chain.done for chain in progress.chains) > 100:
            signal.raise_signal(signal.SIGINT)

    result = bp.infer(problem, long, seed=0, chains=2, progress=interrupt)
    assert result.interrupted
    assert 4 <= result.z.shape[1] <= 500
    assert np.all(np.isfinite(result.z))
    assert "stopped early" in str(result.summary())


def test_ctrl_c_before_the_first_draw_is_passed_on():
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        bp.infer(make_problem(), QUICK, seed=0, chains=1, progress=interrupt, preview=False)


def test_memory_is_said_beforehand(problem, capsys, monkeypatch):
    from bpinn import inference

    monkeypatch.setattr(inference, "GIB", 1000)
    draw(problem, chains=1)
    assert "the draws will take" in capsys.readouterr().err


def test_memory_estimate(problem):
    model = bp.Posterior(problem).model
    assert memory_of(bp.HMC(num_draws=100, keep=10), model, 3) == 10 * 3 * model.dim * 4


@pytest.mark.parametrize("init", ["anneal", "map", "prior"])
def test_every_start_reaches_the_posterior(init):
    """A well-determined linear problem: every start ends at the same answer."""
    x = np.linspace(0, 1, 20)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"u": bp.Sensors("u", {"x": x}, 2 * x - 1, noise=0.05)},
    )
    method = bp.HMC(num_warmup=400, num_draws=400, num_leapfrog=15, init=init, init_steps=300)
    result = draw(problem, method, chains=2)
    np.testing.assert_allclose(result.z.mean((0, 1)), [2.0, -1.0], atol=0.03)


def test_nan_regions_are_survived_and_counted():
    """A log density that is NaN for negative slopes: proposals there are rejected, draws stay finite."""

    def root(u_x):
        return jnp.sqrt(u_x)

    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"s": bp.Sensors(root, {"x": [0.5]}, [0.5], noise=0.3)},
    )
    result = draw(problem, bp.HMC(num_warmup=300, num_draws=500, num_leapfrog=10), chains=2)
    assert np.all(np.isfinite(result.z))
    assert np.all(result.z[..., 0] > 0)


def test_nuts_runs_with_both_masses(problem):
    for mass in ("identity", "diagonal"):
        result = draw(problem, bp.NUTS(num_warmup=60, num_draws=20, max_tree_depth=4, mass=mass), chains=1)
        assert result.z.shape[:2] == (1, 20)
        assert result.stats["gradients"].max() <= 2**4


def test_importing_sets_no_global_flags():
    program = (
        "import jax; before = dict(jax.config.values)\n"
        "import os; env = os.environ.get('XLA_FLAGS')\n"
        "import bpinn\n"
        "assert dict(jax.config.values) == before and os.environ.get('XLA_FLAGS') == env\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_ctrl_c_with_keep_holds_the_last_draws_of_each_chain(one_step_blocks, before_each_block):
    """Chains are at different steps when they are stopped; none of their last draws is lost for it."""
    method = bp.HMC(num_leapfrog=3, num_warmup=40, num_draws=100_000, keep=10)
    for seed in range(5):
        done, turn, stopped = [], threading.Lock(), threading.Event()

        def wait(number, first, turn=turn, stopped=stopped):
            """Hold the chain that comes first to its fifth draw there, until the run is stopped."""
            if first == 44 and turn.acquire(blocking=False):
                assert stopped.wait(600)

        def interrupt(progress, done=done, stopped=stopped):
            done[:] = [chain.done for chain in progress.chains]
            if max(done) > 150 and min(done) > 40:  # every chain has a draw
                stopped.set()
                raise KeyboardInterrupt

        with before_each_block(wait):
            result = bp.infer(make_problem(hidden=(3,)), method, seed=seed, chains=3, progress=interrupt, cores=2)
        assert min(done) == 45
        assert max(done) > 150
        assert result.z.shape[1] == 5
        assert np.all(np.isfinite(result.stats["log_density"]))


def test_thinned_statistics_are_of_all_transitions(problem):
    result = draw(problem, THINNED, chains=1)
    assert np.all(result.stats["gradients"] == 40)


def test_variances_are_not_estimated_from_the_annealed_likelihood():
    """A prior a hundred times wider than the posterior: tempered variances would be far too large."""
    x = np.linspace(0, 1, 30)
    values = 2 * x - 1 + 0.05 * np.random.default_rng(0).standard_normal(30)
    given = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(), weight_sd=10.0, bias_sd=10.0)},
        sensors={"u": bp.Sensors("u", {"x": x}, values, noise=0.05)},
    )
    method = bp.HMC(num_leapfrog=10, num_warmup=400, num_draws=500, mass="diagonal")
    result = draw(given, method, chains=4)
    design = np.stack([x, np.ones(30)], axis=1) / 0.05
    exact = np.sqrt(np.diag(np.linalg.inv(design.T @ design + np.eye(2) / 100)))
    np.testing.assert_allclose(result.z.std((0, 1)), exact, rtol=0.15)
    assert result.diagnose().verdict == "good"


# --- what the default decides by itself ---

EASY = bp.HMC(num_warmup=150)


def straight_line():
    x = np.linspace(0, 1, 6)
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        sensors={"u": bp.Sensors("u", {"x": x}, 2 * x - 1, noise=0.3)},
    )


def test_draws_go_on_until_the_run_is_good_and_no_further():
    result = draw(straight_line(), EASY)
    assert result.diagnose().verdict == "good"
    assert 200 <= result.z.shape[1] <= 400


def test_draws_end_at_the_most_where_chains_never_agree(monkeypatch):
    monkeypatch.setattr("bpinn.convergence.enough", lambda *_: False)
    assert draw(straight_line(), replace(EASY, most_draws=330), chains=2).z.shape[1] == 330


def test_what_is_decided_does_not_depend_on_cores_or_blocks(blocks_of):
    blocks_of(100)
    expected = draw(straight_line(), EASY, cores=2)
    np.testing.assert_array_equal(draw(straight_line(), EASY, cores=1).z, expected.z)
    for steps in (7, 1):
        blocks_of(steps)
        np.testing.assert_array_equal(draw(straight_line(), EASY, cores=2).z, expected.z)


def test_trajectories_are_as_long_as_the_posterior_needs():
    """A straight line needs few steps. Two unknowns of which only the product is known need more in plain coordinates:
    chains creep along a narrow ridge."""

    def product(u, a, b):
        return 0.0 * u + a * b

    hard = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        unknowns={"a": dist.LogNormal(0.0, 2.0), "b": dist.LogNormal(0.0, 2.0)},
        sensors={"p": bp.Sensors(product, {"x": [0.5]}, [1.0], noise=0.001)},
    )
    method = bp.HMC(num_draws=20, coordinates="plain")
    lengths = [draw(problem, method).stats["gradients"].mean() for problem in (straight_line(), hard)]
    assert lengths[0] < 150
    assert lengths[1] > 300


def test_all_chains_have_trajectories_of_one_length():
    stats = draw(straight_line(), bp.HMC(num_draws=200, jitter=0.0)).stats
    assert len(np.unique(stats["gradients"])) == 1


@pytest.mark.parametrize(("coordinates", "length"), [("whitened", 12), ("plain", 200)])
def test_a_warm_up_too_short_to_judge_leaves_the_length(coordinates, length):
    method = bp.HMC(num_warmup=40, num_draws=10, jitter=0.0, coordinates=coordinates)
    assert np.all(draw(straight_line(), method).stats["gradients"] == length)


def test_ctrl_c_keeps_draws_when_their_number_is_open(one_step_blocks):
    def interrupt(progress):
        if min(chain.done for chain in progress.chains) > 160:
            raise KeyboardInterrupt

    result = bp.infer(make_problem(), EASY, seed=0, chains=2, progress=interrupt)
    assert result.interrupted
    assert result.z.shape[1] >= 10


def test_the_display_says_how_far_an_open_run_is():
    import io

    from bpinn.progress import Display

    stream = io.StringIO()
    bp.infer(straight_line(), EASY, seed=0, progress=Display(stream))
    last = stream.getvalue().strip().splitlines()[-1]
    for words in ("of at most 2000", "worst R-hat 1.0", "of 400", " s"):
        assert words in last
    assert "left" not in last


def test_some_chains_of_a_result(problem):
    result = draw(problem, chains=3)
    part = result.only(0, 2)
    np.testing.assert_array_equal(part.z, result.z[[0, 2]])
    np.testing.assert_array_equal(part.draws("k"), result.draws("k")[[0, 2]])
    assert part.predict("u", {"x": [0.0]}).draws.shape[:2] == (2, 30)
    for wrong in ((), (3,), (0, 0), (-1,)):
        with pytest.raises(bp.InputError, match="from 0 to 2"):
            result.only(*wrong)


def test_settings_may_be_numpys(problem, tmp_path):
    counts = np.array([40, 20, 8, 3])
    method = bp.HMC(num_warmup=counts[0], num_draws=counts[1], num_leapfrog=counts[2], jitter=np.float32(0.5))
    plain = bp.HMC(num_warmup=40, num_draws=20, num_leapfrog=8, jitter=0.5)
    result = draw(problem, method, seed=np.int64(0), chains=counts[3], cores=counts[3])
    np.testing.assert_array_equal(result.z, draw(problem, plain, chains=3).z)
    assert result.method == plain
    assert type(result.method.jitter) is float
    assert bp.load(result.save(tmp_path / "result.npz")).method == plain
    assert bp.Flow(hidden=(np.int64(8),)).plain().hidden == (8,)
    assert bp.KarhunenLoeve(bp.Matern32(length=0.2), terms=counts[3], interval=(0, 1)).terms == 3


# --- a warm-up that ends when it has done its work ---


def test_a_short_warm_up_is_followed_by_draws():
    method = bp.HMC(num_draws=20, num_leapfrog=3)
    seen = []
    result = bp.infer(straight_line(), method, seed=0, chains=2, progress=lambda p: seen.append(p.chains[0].done))
    assert result.z.shape[1] == 20
    assert seen[-1] == 620  # counted from where warm-up would have ended at the latest
    steps = result.stats["step_size"]
    assert np.all(steps == steps[:, :1])  # adaptation has stopped


def test_the_step_size_is_jittered_and_the_posterior_is_the_same():
    problem = straight_line()
    exact = bp.reference.exact(problem).predict("u", {"x": [0.5]})
    for jitter in (0.0, 0.9):
        method = bp.HMC(step_jitter=jitter, num_leapfrog=12, num_warmup=300, num_draws=1500)
        band = bp.infer(problem, method, seed=1, progress=False).predict("u", {"x": [0.5]})
        error = exact.sd / np.sqrt(1000)
        assert abs(band.mean - exact.mean) < 5 * error
        assert abs(band.sd / exact.sd - 1) < 0.1


# --- what is corrected after warm-up ---


@pytest.fixture
def mended(monkeypatch):
    """Runs that never are enough, and are mended after 200 draws and every 100 more."""
    monkeypatch.setattr("bpinn.convergence.enough", lambda *_: False)
    corrected = replace(warmup.SETTINGS["whitened"], correction_every=100, most_divergent=-1.0, fewest_divergent=-1)
    monkeypatch.setitem(warmup.SETTINGS, "whitened", corrected)


def test_a_run_that_is_mended_can_be_taken_up(mended, tmp_path, blocks_of):
    blocks_of(10)
    method = replace(EASY, most_draws=800)
    expected = draw(straight_line(), method, chains=2)
    steps = expected.stats["step_size"][0]
    assert steps[0] > steps[250] > steps[350]
    for stop in (370, 460):  # soon after each mending

        def interrupt(progress, stop=stop):
            if max(chain.done for chain in progress.chains) > stop:
                raise KeyboardInterrupt

        stopped = bp.infer(straight_line(), method, seed=0, chains=2, progress=interrupt, out=tmp_path / "run", cores=1)
        assert stopped.interrupted
        assert stopped.z.shape[1] <= stop + 20 - EASY.num_warmup
    taken_up = bp.infer(straight_line(), method, seed=0, chains=2, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(taken_up.z, expected.z)


def test_a_run_that_is_mended_has_the_same_posterior(mended):
    problem = straight_line()
    exact = bp.reference.exact(problem).predict("u", {"x": [0.5]})
    band = draw(problem, replace(EASY, most_draws=1500)).predict("u", {"x": [0.5]})
    assert abs(band.mean - exact.mean) < 5 * exact.sd / np.sqrt(1000)
    assert abs(band.sd / exact.sd - 1) < 0.1


# --- chains that lose their way in warm-up ---


@pytest.fixture
def hard_to_please(monkeypatch):
    """Every chain but the best is lost, as often as it may be."""
    settings = replace(warmup.SETTINGS["whitened"], lost_by=0.0, lost_by_parameter=0.0)
    monkeypatch.setitem(warmup.SETTINGS, "whitened", settings)


def test_lost_chains_are_restarted(hard_to_please):
    problem = straight_line()
    method = replace(EASY, num_warmup=100, num_draws=2000)
    lines = []
    result = bp.infer(problem, method, seed=0, progress=lambda p: lines.extend([c.restarts for c in p.chains]))
    restarts = result.stats["restarts"]
    assert restarts.shape == result.z.shape[:2]
    assert np.all(restarts == restarts[:, :1])
    assert sorted(restarts[:, 0])[1:] == [3, 3, 3]  # all but the one that others never beat, or that beat them last
    assert max(lines) == 3
    anew = np.flatnonzero(restarts[:, 0])
    named = ", ".join(str(i) for i in anew)
    assert f"chains {named} restarted during warm-up" in str(result.diagnose())
    assert len({row.tobytes() for row in result.z[:, 0]}) == 4
    exact = bp.reference.exact(problem).predict("u", {"x": [0.5]})
    band = result.predict("u", {"x": [0.5]})
    assert abs(band.mean - exact.mean) < 5 * exact.sd / np.sqrt(1000)
    assert abs(band.sd / exact.sd - 1) < 0.1


def test_a_healthy_run_begins_nothing_anew():
    result = draw(straight_line())
    assert not result.stats["restarts"].any()
    assert "anew" not in str(result.diagnose())


def test_a_run_with_lost_chains_can_be_taken_up_anywhere(hard_to_please, tmp_path, blocks_of):
    blocks_of(7)
    method = replace(EASY, num_warmup=50, num_draws=30)
    expected = draw(straight_line(), method, chains=3)
    assert expected.stats["restarts"].max() == 3
    for calls in itertools.count(1):
        assert calls < 200
        left = [3]

        def interrupt(progress, left=left):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        try:
            taken_up = bp.infer(
                straight_line(), method, seed=0, chains=3, progress=interrupt, out=tmp_path / "run", preview=False
            )
        except KeyboardInterrupt:
            continue
        if not taken_up.interrupted:
            break
    assert calls > 3
    np.testing.assert_array_equal(taken_up.z, expected.z)
    np.testing.assert_array_equal(taken_up.stats["restarts"], expected.stats["restarts"])


DAMAGED = {
    "state": (("state.npz",), True),
    "restarts": (("restarts.npz",), False),  # which the state knows
    "both": (("state.npz", "restarts.npz"), True),
}


@pytest.mark.parametrize(("names", "told"), DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("gone", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lost_chain_whose_files_are_damaged_is_made_again(
    names, told, gone, hard_to_please, tmp_path, capsys, blocks_of
):
    blocks_of(7)
    method = replace(EASY, num_warmup=50, num_draws=30)
    expected = draw(straight_line(), method, chains=2)

    def interrupt(progress):
        if min(chain.done for chain in progress.chains) > 60:
            raise KeyboardInterrupt

    stopped = bp.infer(straight_line(), method, seed=0, chains=2, progress=interrupt, out=tmp_path / "run")
    assert stopped.interrupted
    assert stopped.z.shape[1] < 30
    anew = int(np.argmax(expected.stats["restarts"][:, 0]))
    for name in names:
        (file,) = (tmp_path / "run").glob(f"**/stage-0/chain-{anew}/{name}")
        file.unlink() if gone else file.write_bytes(file.read_bytes()[:100])
    taken_up = bp.infer(straight_line(), method, seed=0, chains=2, progress=False, out=tmp_path / "run")
    assert (f"chain {anew} is rerun" in capsys.readouterr().err) == (told and not gone)
    np.testing.assert_array_equal(taken_up.z, expected.z)
    np.testing.assert_array_equal(taken_up.stats["restarts"], expected.stats["restarts"])


def test_a_run_killed_while_chains_begin_anew_can_be_taken_up(hard_to_please, tmp_path, monkeypatch, blocks_of):
    """Killed after any file that is written or removed."""
    blocks_of(100)
    method = replace(EASY, num_warmup=50, num_draws=10)
    expected = draw(straight_line(), method, chains=3)

    class Killed(BaseException):
        pass

    right_write, right_unlink = files.write_file, Path.unlink
    left, killed_at = 0, []

    def count_down(doing, path):
        nonlocal left
        left -= 1
        if left < 0:
            killed_at.append((doing, path.name if path.stem.isalpha() else "block"))
            raise Killed

    def write(path, content):
        count_down("write", path)
        right_write(path, content)

    def unlink(path, missing_ok=False):
        if path.suffix == ".npz":
            count_down("remove", path)
        right_unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(files, "write_file", write)
    monkeypatch.setattr(Path, "unlink", unlink)
    for more in itertools.cycle((1, 3, 6, 4, 9, 14)):  # those of more than six get beyond the first steps of all chains
        left = more
        try:
            taken_up = bp.infer(
                straight_line(), method, seed=0, chains=3, progress=False, cores=1, out=tmp_path / "run"
            )
            break
        except Killed:
            assert len(killed_at) < 200
    assert {("write", "block"), ("write", "state.npz"), ("write", "restarts.npz"), ("remove", "state.npz")} <= set(
        killed_at
    )
    np.testing.assert_array_equal(taken_up.z, expected.z)
    np.testing.assert_array_equal(taken_up.stats["restarts"], expected.stats["restarts"])


def test_blocks_need_not_end_where_chains_are_looked_at():
    blocks = [(3, np.arange(3), {"a": np.arange(3)}), (8, np.arange(3, 8), {"a": np.arange(3, 8)})]
    for first, last in ((0, 8), (2, 4), (3, 8), (5, 6), (0, 3)):
        record = between(blocks, first, last)
        np.testing.assert_array_equal(record.functionals, np.arange(first, last))
        np.testing.assert_array_equal(record.stats["a"], np.arange(first, last))
