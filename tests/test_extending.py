"""A package outside of bpinn adds a field, a sampler and a likelihood; its code is what docs/extending.md shows."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

import bpinn as bp
from bpinn.problem_file import read_problem
from bpinn.registry import Registry

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "outside_package"))
import bpinn_outside as outside  # noqa: E402

X = np.linspace(0.0, 2.0, 9)
FILE = """
title = "From outside"
[domain]
x = [0.0, 2.0]
[fields.u]
surrogate = "cosine"
terms = 4
[[sensors]]
quantity = "u"
at = { x = { from = 0.0, to = 2.0, count = 9 } }
values = "0.8*cos(0.5*pi*x)"
noise = 0.1
likelihood = "logistic"
[inference]
method = "random_walk"
num_warmup = 300
num_draws = 400
chains = 2
"""


def problem(noise=0.1, terms=4):
    sensors = bp.Sensors("u", {"x": X}, 0.8 * np.cos(np.pi * X / 2), noise, likelihood=outside.Logistic())
    return bp.Problem(domain={"x": (0.0, 2.0)}, fields={"u": outside.Cosine(terms=terms)}, sensors={"u": sensors})


def test_the_likelihood_is_a_density():
    law = outside.Logistic()
    value, prediction, scale = np.linspace(-3, 3, 7), np.full(7, 0.4), np.full(7, 0.7)
    np.testing.assert_allclose(law.log_prob(value, prediction, scale), stats.logistic(0.4, 0.7).logpdf(value))
    np.testing.assert_allclose(law.cdf(value, prediction, scale), stats.logistic(0.4, 0.7).cdf(value))


def test_derivatives_of_the_field(x64):
    posterior = bp.Posterior(problem())
    z = posterior.sample_prior(jax.random.key(0), 2)
    step = 1e-5
    inside = X[1:-1]
    below, above = (posterior.evaluate(z, "u", {"x": inside + d}) for d in (-step, step))
    np.testing.assert_allclose(posterior.evaluate(z, "u_x", {"x": inside}), (above - below) / (2 * step), rtol=1e-6)


def test_an_inferred_scale_is_an_unknown_of_the_problem():
    """The posterior of amplitude and one coefficient against quadrature."""
    result = bp.infer(
        problem(noise=0.5, terms=1), outside.RandomWalk(num_draws=4000, every=20), seed=0, progress=False
    )  # fmt: skip
    assert result.names == ["amplitude_u"]
    amplitude, theta = np.meshgrid(np.linspace(0.005, 5, 600), np.linspace(-5, 5, 601), indexing="ij")
    log_density = stats.halfnorm.logpdf(amplitude) + stats.norm.logpdf(theta)
    for x, value in zip(X, 0.8 * np.cos(np.pi * X / 2), strict=True):
        log_density += stats.logistic.logpdf(value, amplitude * theta * np.cos(np.pi * x / 2), 0.5)
    weights = np.exp(log_density - log_density.max())
    mean = np.sum(weights * amplitude) / weights.sum()
    sd = np.sqrt(np.sum(weights * (amplitude - mean) ** 2) / weights.sum())
    row = result.summary().loc["amplitude_u"]
    assert abs(row["mean"] - mean) < 4 * sd / np.sqrt(row["ess"])
    assert abs(row["sd"] / sd - 1) < 6 / np.sqrt(row["ess"])
    assert result.diagnose().verdict in ("good", "care")
    assert "divergences" not in str(result.diagnose())  # it records none


@pytest.mark.parametrize("method", [bp.HMC(num_warmup=200, num_draws=200), bp.VI(num_steps=500, num_draws=50)])
def test_our_methods_take_the_field(method):
    result = bp.infer(problem(), method, seed=0, progress=False)
    assert np.all(np.isfinite(result.z))
    assert result.draws("amplitude_u").min() > 0


def test_it_saves_loads_and_reports(tmp_path):
    result = bp.infer(problem(), outside.RandomWalk(num_draws=200), seed=0, chains=2, progress=False)
    loaded = bp.load(result.save(tmp_path / "result.npz"))
    assert loaded.method == result.method
    assert loaded.problem.fields == result.problem.fields
    assert loaded.problem.readings[0].likelihood == outside.Logistic()
    np.testing.assert_array_equal(loaded.z, result.z)
    page = bp.report.write(result, tmp_path / "report").read_text()
    for words in ("cosine series with 4 terms", "logistic noise", "RandomWalk", "amplitude"):
        assert words in page


def test_it_resumes(tmp_path, blocks_of):
    blocks_of(20)
    method = outside.RandomWalk(num_warmup=50, num_draws=60)
    whole = bp.infer(problem(), method, seed=1, chains=2, progress=False)

    def stop(progress):
        if min(chain.done for chain in progress.chains) >= 70:
            raise KeyboardInterrupt

    assert bp.infer(problem(), method, seed=1, chains=2, progress=stop, out=tmp_path / "run").interrupted
    resumed = bp.infer(problem(), method, seed=1, chains=2, progress=False, out=tmp_path / "run")
    np.testing.assert_array_equal(resumed.z, whole.z)


def test_problem_files_have_it(tmp_path):
    (tmp_path / "problem.toml").write_text(FILE)
    found = read_problem(tmp_path / "problem.toml")
    assert found.problem.fields["u"] == outside.Cosine(terms=4)
    assert found.problem.readings[0].likelihood == outside.Logistic()
    assert found.method == outside.RandomWalk(num_warmup=300, num_draws=400)


def test_the_program_finds_it_by_its_entry_point(tmp_path):
    """Installed as packages are, with an entry point and nothing else: the program imports it by itself."""
    site = tmp_path / "site"
    about = site / "bpinn_outside-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bpinn-outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[bpinn]\noutside = bpinn_outside\n")
    (site / "bpinn_outside.py").write_text((HERE / "outside_package" / "bpinn_outside.py").read_text())
    (tmp_path / "problem.toml").write_text(FILE)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); sys.argv[0] = 'bpinn'; from bpinn.cli import main; main()"
    run = [sys.executable, "-c", code, "run", str(tmp_path / "problem.toml"), "--quiet"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 3), done.stderr
    assert "amplitude_u" in done.stdout
    assert "cosine series" in (tmp_path / "run" / "report.html").read_text()


def test_what_is_not_registered_cannot_be_saved(tmp_path, prior_result):
    class Secret(bp.likelihoods.Normal):
        pass

    sensors = {"u": bp.Sensors("u", {"x": X}, 0.0, 0.1, likelihood=Secret())}
    result = prior_result(bp.Problem({"x": (0.0, 2.0)}, {"u": bp.MLP(hidden=(3,))}, sensors))
    with pytest.raises(bp.InputError, match=r"Secret is not registered.*@bp\.register\('name'\)"):
        result.save(tmp_path / "result.npz")


def test_names_are_not_taken_twice():
    with pytest.raises(bp.InputError, match="the likelihood 'normal' already exists"):

        @bp.register("normal")
        class Other(bp.likelihoods.Normal):
            pass

    with pytest.raises(bp.InputError, match=r"is not a bp\.Field, bp\.Method, bp\.Likelihood or kernel"):

        @bp.register("nothing")
        class Nothing:
            pass


def test_a_file_from_a_package_that_is_not_there_says_so(tmp_path, monkeypatch):
    result = bp.infer(problem(), outside.RandomWalk(num_draws=20, num_warmup=20), seed=0, chains=2, progress=False)
    path = result.save(tmp_path / "result.npz")
    monkeypatch.setattr(bp.Field.registry, "_by_class", {"MLP": bp.MLP})
    with pytest.raises(bp.InputError, match="'Cosine' is not a known field; import the package"):
        bp.load(path)


def test_a_broken_package_does_not_take_bpinn_down(monkeypatch):
    class Broken:
        name, value = "broken", "no_such_module"

        def load(self):
            raise ImportError("no_such_module")

    monkeypatch.setattr(Registry, "_asked", False)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [Broken()])
    with pytest.warns(bp.BpinnWarning, match="the package of the entry point 'broken' cannot be imported"):
        assert bp.Field.registry.named("mlpp") is None


def test_the_page_shows_this_code():
    """Every block of code of docs/extending.md stands in the package that is tested here, or runs by itself."""
    page = (HERE.parent / "docs" / "extending.md").read_text()
    source = (HERE / "outside_package" / "bpinn_outside.py").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) >= 5
    shown = [block for block in blocks if "# run" not in block]
    for block in shown:
        for part in block.strip().split("\n\n\n"):
            assert part.strip() in source, part
    for block in blocks:
        if "# run" in block:
            exec(block, {"np": np})
