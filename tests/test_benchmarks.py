"""The page of benchmarks is written from results alone; no test asserts a time."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import bpinn as bp

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the benchmarks' folder, and forget it afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(seconds, **changes):
    row = {
        "seconds": seconds, "phases": {"compile": 1.0, "warmup": 2.0, "sampling": 4.0},
        "gradients": {"warmup": 5e4, "sampling": 1e5}, "microseconds_a_gradient": 40.0, "peak_mib": 500.0,
        "log_density_difference": 1e-7, "k_mean": 0.7, "k_sd": 0.05, "chains": 4, "draws": 800, "ess": 900.0,
        "rhat": 1.004, "ess_a_second": 900.0 / seconds, "ess_a_second_after_warmup": 225.0, "trustworthy": True,
    }  # fmt: skip
    return row | changes


def made_up():
    sampling = [
        {"chains": 2, "cores": 2, "draws": n, "keep": keep, "num_leapfrog": 2, "seconds": 1.0, "gradients": 100,
         "peak_mib": peak, "disk": disk}
        for n, keep, peak, disk in (
            (100, None, 500.0, False), (100, 10, 500.0, False), (100, None, 500.0, True),
            (900, None, 700.0, False), (900, 10, 501.0, False), (900, None, 502.0, True),
        )
    ]  # fmt: skip
    return {
        "date": "2001-02-03",
        "machine": {"processor": "Abacus", "cores": 2, "memory_gib": 4.0, "python": "3.11", "system": "Linux"},
        "environments": {"bpinn": {"versions": {"jax": "1.2.3"}}, "tfp": {"error": "could not be installed: no wheel"}},
        "peers": {
            "bpinn": {"label": "bpinn, default", "environment": "bpinn", "lines": 16, "sizes": [0, 0]},
            "other": {"label": "Other HMC", "environment": "bpinn", "lines": 60, "sizes": [1000, 2000]},
            "tfp_xla": {"label": "TFP", "environment": "tfp", "lines": 50, "sizes": [1000, 2000]},
        },
        "runs": {
            "one/bpinn/0": run(10.0),
            "one/bpinn/1": run(14.0),
            "one/bpinn/2": run(12.0),
            "all/other/0": run(90.0),
            "one/other/0": {"error": "failed (1): out of luck"},
            "trust/bpinn/0": run(15.0),
            "trust/other/0": run(60.0, doublings=2, warmup=2000, draws=4000),
            "trust/other/1": run(30.0, doublings=1, warmup=1000, draws=2000, trustworthy=False),
        },
        "floor": [
            {
                "problem": "one", "microseconds": {"c": 20.0, "products": 10.0, "ours": 30.0},
                "relative_difference": {"gradient": 1e-6},
            }
        ],
        "gradient": {"columns": ["problem", "ours, µs"], "rows": [["one", "36.6"]]},
        "scaling": {
            "gradients": {"width": {"sizes": [8, 64], "microseconds": [10.0, 80.0], "slope": 1.0}},
            "sampling": sampling,
        },
    }  # fmt: skip


def test_page_says_what_the_results_say(bench, tmp_path):
    source, target = tmp_path / "results.json", tmp_path / "docs" / "performance.md"
    source.write_text(json.dumps(made_up()))
    bench("write_page").write(source, target)
    text = target.read_text()
    assert "2001-02-03" in text
    assert "Abacus" in text
    assert "12.0 (10.0–14.0)" in text  # median, least and most of three repeats
    assert "7.50 times the best peer" in text  # (900 / 12) / (900 / 90) times the other's effective draws a second
    assert "15.0 s against 60.0 s" in text
    assert "2,000 + 4,000" in text
    assert "1 of 2" in text  # the doubling that did not meet it is not counted
    assert "failed (1): out of luck" in text
    assert "could not be installed: no wheel" in text
    assert "| one | 20.0 | 10.0 | 30.0 | 1.50 | 3.00 | 1e-06 |" in text
    assert "+200 MiB with all draws held, +2 MiB with draws on disk (`out=`), +1 MiB with `keep=`" in text
    for figure in ("performance.png", "scaling.png"):
        assert f"({figure})" in text
        assert 0 < (target.parent / figure).stat().st_size < 200 * 1024


@pytest.mark.parametrize("part", ["runs", "floor", "gradient", "scaling"])
def test_page_does_without_a_part(bench, tmp_path, part):
    found = made_up()
    del found[part]
    assert bench("write_page").page(found, tmp_path).startswith("# Performance")


def test_interrupted_results_leave_the_old_ones_whole(bench, tmp_path, monkeypatch):
    results = bench("results")
    path = tmp_path / "results.json"
    results.merge(path, floor=[1])
    results.merge(path, scaling={"a": 2})
    assert results.load(path) == {"floor": [1], "scaling": {"a": 2}}
    monkeypatch.setattr(results.json, "dumps", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        results.merge(path, floor=[3])
    monkeypatch.undo()
    assert results.load(path) == {"floor": [1], "scaling": {"a": 2}}


def test_every_peer_has_its_script_and_its_requirements(bench):
    compare = bench("compare")
    assert len(set(compare.NAMES)) == len(compare.PEERS)
    for peer in compare.PEERS:
        assert compare.lines_of(FOLDER / "peers" / peer.script) > 10
        assert peer.env == "bpinn" or "==" in (FOLDER / "peers" / f"{peer.env}.txt").read_text()
    keys = [task[0] for task in compare.tasks_of(compare.NAMES, 2)]
    assert len(set(keys)) == len(keys)
    assert len(compare.tasks_of(["bpinn"], 2)) == 4


def test_lines_of_user_code(bench, tmp_path):
    script = tmp_path / "script.py"
    text = ['"""A docstring', 'of two lines."""', "", "import report", "# a comment", "x = 1", "def f():"]
    script.write_text("\n".join([*text, '    """D."""', "    return x", ""]))
    assert bench("compare").lines_of(script) == 3


@pytest.mark.skipif(shutil.which("gcc") is None, reason="floor.c needs gcc")
def test_floor_in_c_is_the_same_log_density(bench, tmp_path):
    floor = bench("floor")
    library = floor.compile_c(tmp_path)
    cases = [("inverse_reaction_1d", (50, 50)), ("inverse_reaction_1d", (9,)), ("allen_cahn_2d", (7, 33, 20))]
    for name, hidden in cases:
        problem = getattr(bp.paper, name)(surrogate=bp.MLP(hidden=hidden)).problem
        posterior, native = bp.Posterior(problem), floor.Native(library, problem, floor.PROBLEMS[name][0])
        z = np.asarray(0.5 * posterior.sample_prior(jax.random.key(2), 1)[0])
        value, slope = jax.jit(jax.value_and_grad(posterior.log_density))(z)
        found, found_slope = native.log_density(z)
        np.testing.assert_allclose(found, value, rtol=1e-4)
        np.testing.assert_allclose(found_slope, slope, atol=1e-4 * float(np.abs(slope).max()))


def test_peers_share_the_order_of_parameters(bench, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER / "peers"))
    problem = bp.paper.inverse_reaction_1d().problem
    posterior = bp.Posterior(problem)
    z = np.arange(posterior.dim, dtype=np.float32)
    ours, theirs = posterior.unflatten(z), bench("report").unflatten(z)
    for i, (weights, biases) in enumerate(ours["u"], 1):
        np.testing.assert_array_equal(weights, theirs[f"w{i}"])
        np.testing.assert_array_equal(biases, theirs[f"b{i}"])
    assert ours["k"] == theirs["k"]
