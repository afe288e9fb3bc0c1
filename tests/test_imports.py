"""`import bpinn` is quick: names are imported when they are first used, and type checkers see them all the same."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bpinn as bp
from bpinn import cli

HEAVY = ("jax", "numpyro", "scipy", "pandas", "matplotlib", "xarray", "IPython")


def imported_after(code):
    """The heavy libraries that a new process has imported after some code."""
    code += "\nimport sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.splitlines()[-1].split()) & set(HEAVY)


def test_names_are_the_same_for_type_checkers():
    """The imports for type checkers give each public name the home that it has at run time."""
    tree = ast.parse(Path(bp.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    homes = {name: f"bpinn.{home}" for name, home in bp._HOMES.items()}
    assert homes == {name: module for name, module in seen.items() if module != "bpinn"}
    assert {*seen, "__version__"} == set(bp.__all__)
    for name, home in homes.items():
        assert getattr(bp, name) is getattr(sys.modules[home], name)
    for name in set(seen) - set(homes):
        assert getattr(bp, name) is sys.modules[f"bpinn.{name}"]


def test_other_names_are_modules_or_errors():
    assert bp.rhat_ess is sys.modules["bpinn.rhat_ess"]
    with pytest.raises(AttributeError, match="module 'bpinn' has no attribute 'infere'"):
        _ = bp.infere
    assert not hasattr(bp, "_repr_html_")


@pytest.mark.parametrize("arguments", ["--help", "--version", "run --help", "new demo"])
def test_help_imports_no_heavy_library(arguments, tmp_path):
    code = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.argv = ['bpinn', *{arguments.split()!r}]\n"
    code += "from bpinn.cli import main\ntry: main()\nexcept SystemExit as end: assert not end.code"
    assert imported_after(code) == set()


def test_a_run_needs_neither_pandas_nor_matplotlib():
    code = "import bpinn as bp; bp.Problem, bp.infer, bp.HMC, bp.load, bp.forward_check\n"
    assert imported_after(code) == {"jax", "numpyro", "scipy"}


def test_help_lists_the_methods():
    assert set(cli.METHODS) <= set(bp.Method.registry)
    public = {getattr(bp, name) for name in bp.__all__ if isinstance(getattr(bp, name), type)}
    public = {kind for kind in public if issubclass(kind, bp.Method) and kind is not bp.Method}
    assert {bp.Method.registry.named(name) for name in cli.METHODS} == public
