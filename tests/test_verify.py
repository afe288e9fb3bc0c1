"""Longer statistical checks, run by `make verify`."""

import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "sd"), [(0.1, 0.057), (0.01, 0.0057)])
def test_the_1d_inverse_problem_over_ten_data_sets(noise, sd, capsys):
    module = benchmark("inverse_1d")
    rows = [module.run(noise, seed) for seed in range(10)]
    with capsys.disabled():
        print("\n" + module.report(noise, rows))
    assert sum(r.distance < 2 for r in rows) >= 8
    assert all(abs(r.sd / sd - 1) < 0.3 for r in rows)
    assert max(r.rhat for r in rows) < 1.01
    assert min(r.ess for r in rows) > 400
