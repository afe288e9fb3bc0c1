"""Portable arithmetic: settings of a process, which it starts with or not."""

import json
import os
import subprocess
import sys

import pytest

import bpinn as bp
from bpinn import portable


def test_other_settings_are_kept():
    made = portable.environment({"XLA_FLAGS": "--xla_dump_to=x --xla_cpu_max_isa=SSE4_2", "HOME": "h"})
    assert made["XLA_FLAGS"] == "--xla_dump_to=x --xla_cpu_max_isa=AVX2"
    assert (made["HOME"], made["BPINN_PORTABLE"], made["OPENBLAS_CORETYPE"]) == ("h", "1", "Haswell")
    assert portable.environment(made) == made


def test_a_process_that_has_started_otherwise_is_refused():
    problem = bp.paper.regression().problem
    with pytest.raises(
        bp.InputError, match="BPINN_PORTABLE=1 OPENBLAS_CORETYPE=Haswell XLA_FLAGS=--xla_cpu_max_isa=AVX2"
    ):
        bp.infer(problem, seed=0, portable=True)


def test_the_program_starts_again_with_the_settings(program, monkeypatch):
    started = []

    def execve(path, command, environment):
        started.append((command, environment))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    program("--portable", "check", "none.toml")
    ((command, environment),) = started
    assert command[1:] == ["-m", "bpinn", "--portable", "check", "none.toml"]
    assert environment == portable.environment(os.environ)


@pytest.mark.slow
def test_a_portable_process_describes_itself_so():
    """Its kernel is another file than that for this processor, and it gives draws."""
    code = (
        "import json, bpinn as bp\n"
        "from bpinn.cluster import arithmetic\n"
        "method = bp.HMC(num_warmup=30, num_draws=5, num_leapfrog=3)\n"
        "r = bp.infer(bp.paper.regression().problem, method, seed=0, chains=1, progress=False, portable=True)\n"
        "print(json.dumps([arithmetic.description(), float(r.z.sum())]))\n"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env=portable.environment(os.environ), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found, total = json.loads(done.stdout)
    assert found["processor"].endswith("portable")
    assert "Haswell" in found["BLAS"]
    assert abs(total) < float("inf")
