"""The examples in docstrings, and the one in the README, run as written."""

import doctest
import importlib
import re
from pathlib import Path

import matplotlib as mpl
import pytest

import bpinn

ROOT = Path(bpinn.__file__).parent
MODULES = [
    "bpinn." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def test_the_readme_runs_as_written(tmp_path, monkeypatch, capsys):
    """With fewer draws, which is the only change."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    quick = code.replace("bp.HMC()", "bp.HMC(num_leapfrog=20, num_warmup=40, num_draws=20)")
    assert quick != code
    exec(compile(quick, "README.md", "exec"), {})
    assert "Health:" in capsys.readouterr().out
    assert (tmp_path / "overview.png").stat().st_size > 10_000
