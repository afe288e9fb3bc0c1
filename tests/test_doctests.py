"""The examples in docstrings, in the README and in docs/notebooks.md run as written."""

import doctest
import importlib
import re
from pathlib import Path

import matplotlib as mpl
import pytest

import bpinn

ROOT = Path(bpinn.__file__).parent
DOCS = Path(__file__).parent.parent / "docs"
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


def test_the_page_on_notebooks_runs_as_written():
    page = (DOCS / "notebooks.md").read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(compile(code, "notebooks.md", "exec"), names)
    assert list(names["rows"]) == ["x", "t", "mean", "sd", "2.5%", "97.5%"]
    assert names["middle"].dims == ("t",)
    assert names["above"].dims == ("x", "t")
    assert names["some"]["posterior"]["u_x"].dims == ("chain", "draw", "point")


def test_the_readme_runs_as_written(tmp_path, monkeypatch, capsys):
    """With fewer draws, which is the only change."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    quick = code.replace("bp.HMC()", "bp.HMC(num_leapfrog=20, num_warmup=40, num_draws=20)")
    assert quick != code
    exec(compile(quick, "README.md", "exec"), {})
    assert "Health:" in capsys.readouterr().out
    assert (tmp_path / "overview.png").stat().st_size > 10_000
