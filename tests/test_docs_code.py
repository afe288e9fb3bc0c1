"""What the pages of docs/ show runs as written, with fewer draws. test_extending and test_own_data run their own pages."""

import re
import shlex
import shutil
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import numpyro.distributions as dist
import pytest
import typer.main

import bpinn as bp
from bpinn.cli import app
from bpinn.problem_file import read_problem
from bpinn.templates import write_template

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TEXTS = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
# Clusters need workers, and advice draws of a whole run: their own tests have the same calls. So has that of the gallery.
# test_doctests runs that on notebooks.
ELSEWHERE = ("extending.md", "clusters.md", "next_sensor.md", "gallery/", "notebooks.md")
PAGES = [name for name, text in TEXTS.items() if "```python" in text and not name.startswith(ELSEWHERE)]
FEWER = {
    "num_warmup": 40, "num_draws": 20, "num_leapfrog": 4, "particles": 20, "num_moves": 1, "most_steps": 4,
    "num_steps": 40,
}  # fmt: skip
X = np.linspace(0.0, 1.0, 5)
# What a page takes for granted.
BEFORE = {
    "likelihoods.md": {"bp": bp, "x": X, "u": X},
    "health.md": {
        "bp": bp,
        "problem": bp.Problem(
            domain={"x": (0.0, 1.0)},
            fields={"u": bp.MLP(hidden=())},
            unknowns={"k": dist.Normal(0.0, 1.0)},
            sensors={"u": bp.Sensors(lambda u, k: u + k, at={"x": X}, values=X, noise=0.1)},
        ),
    },
}


def blocks(page, language):
    """The fenced blocks of a language; those without one are output and commands."""
    found = re.findall(r"^```(\S*)\n(.*?)^```$", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


@pytest.fixture
def fewer(monkeypatch):
    """Runs of few draws, whatever a page asks for."""
    infer, sbc = bp.infer, bp.calibration.sbc

    def quick(method):
        method = bp.HMC() if method is None else method
        return replace(method, **{f.name: FEWER[f.name] for f in fields(method) if f.name in FEWER})

    def few_draws(problem, method=None, **settings):
        return infer(problem, quick(method), **{"progress": False, "chains": 2} | settings)

    def few_simulations(problem, method, simulations, **settings):
        return sbc(problem, quick(method), simulations=10, draws=19, **settings)

    monkeypatch.setattr(bp, "infer", few_draws)
    monkeypatch.setattr(bp.calibration, "sbc", few_simulations)


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(page, fewer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    shutil.copy(ROOT / "examples" / "spring.csv", tmp_path)
    shown = dict(BEFORE.get(page, {}))
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page}, block {number}", "exec"), shown)


def test_the_readings_of_the_tutorial_are_of_the_spring_it_names():
    rng, c, k = np.random.default_rng(0), 0.4, 4.0
    t = np.sort(rng.uniform(0.0, 6.0, 25)).round(3)
    w = np.sqrt(k - c**2 / 4)
    u = np.exp(-c * t / 2) * (np.cos(w * t) + c / (2 * w) * np.sin(w * t)) + 0.05 * rng.standard_normal(25)
    stored = np.loadtxt(ROOT / "examples" / "spring.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(stored, np.column_stack([t, u]), atol=0.0005001)


def test_the_tutorial_without_python(program, tmp_path):
    """Its commands, as written, with fewer draws and no report, which other tests write."""
    (tmp_path / "spring").mkdir()
    shutil.copy(ROOT / "examples" / "spring.csv", tmp_path / "spring")
    (text,) = blocks("tutorial.md", "toml")
    (tmp_path / "spring" / "problem.toml").write_text(text, encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in re.findall(r"^bpinn .*$", TEXTS["tutorial.md"], flags=re.MULTILINE)]
    assert [command[0] for command in commands] == ["check", "prior", "run", "forward", "report"]
    few = [f"inference.{key}" for key in ("num_warmup=100", "num_draws=50", "num_leapfrog=8", "chains=2")]
    for command in commands[:-1]:
        more = ["--no-report", *(part for change in few for part in ("--set", change))] if command[0] == "run" else []
        done = program(*command, *more)
        assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "prior.png").stat().st_size > 10_000


def test_both_ways_of_the_tutorial_state_the_same_problem(fewer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("spring.csv", "spring/spring.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples" / "spring.csv", tmp_path / name)
    (text,) = blocks("tutorial.md", "toml")
    (tmp_path / "spring" / "problem.toml").write_text(text, encoding="utf-8")
    shown: dict = {}
    exec(blocks("tutorial.md", "python")[0], shown)
    both = shown["problem"], read_problem(tmp_path / "spring" / "problem.toml").problem
    z = jnp.linspace(-1.0, 1.0, bp.Posterior(both[0]).dim)
    one, other = (bp.Posterior(p) for p in both)
    np.testing.assert_allclose(one.log_prior(z), other.log_prior(z), rtol=1e-5)
    at = {"t": shown["t"]}
    np.testing.assert_allclose(one.evaluate(z, "u", at), other.evaluate(z, "u", at), rtol=1e-5)
    law = [p.sensors["law"] for p in both]
    np.testing.assert_array_equal(law[0].at["t"], law[1].at["t"])
    assert law[0].noise == pytest.approx(law[1].noise, rel=0.3)  # the default follows from random fields
    np.testing.assert_array_equal(both[0].sensors["u"].values, both[1].sensors["u"].values)


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tmp_path, monkeypatch):
    """Estimates within their Monte-Carlo errors, and the verdicts."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "spring.csv", tmp_path)
    shown: dict = {}
    for block in blocks("tutorial.md", "python")[:6]:
        exec(block, shown)
    result, page = shown["result"], TEXTS["tutorial.md"]
    for name in result.names:
        mean, sd = map(float, re.search(rf"^{name} +([\d.]+) +([\d.]+)", page, flags=re.MULTILINE).groups())
        assert abs(result.draws(name).mean() - mean) < 0.3 * sd, name  # six standard errors with an ESS of 400
        assert abs(np.log(result.draws(name).std() / sd)) < 0.3, name
    assert result.diagnose().verdict == "good"
    assert bp.forward_check(result).verdict == "agrees"
    assert shown["wrong_result"].diagnose().verdict == "bad"


def test_files_that_pages_show_are_read(tmp_path):
    write_template("inverse-1d", tmp_path / "new")
    problem = tmp_path / "new" / "problem.toml"
    problem.write_text(blocks("program.md", "toml")[0], encoding="utf-8")
    assert list(read_problem(problem).problem.sensors) == ["f"]
    head = '[domain]\nx = [0, 1]\nt = [0, 1]\n[fields.u]\nsurrogate = "gp"\n'
    (conditions,) = blocks("howto/boundaries.md", "toml")
    problem.write_text(head + conditions, encoding="utf-8")
    found = read_problem(problem).problem
    assert {r.name: len(r.values) for r in found.readings} == {"insulated": 11, "ring": 11}
    for page in TEXTS:
        for block in blocks(page, "toml"):
            tomllib.loads(block)


def test_commands_that_pages_show_exist():
    """Every command and option; the placeholders of arguments are not called."""
    known = typer.main.get_command(app)
    lines = [
        (page, line)
        for page in TEXTS
        for block in blocks(page, "")
        for line in re.findall(r"^bpinn (.*)$", block, flags=re.MULTILINE)
    ]
    assert len(lines) > 20
    for page, line in lines:
        command, words = known, shlex.split(line, comments=True)
        for word in words:
            if word.startswith("-"):
                options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
                assert word in options | {"--help"}, (page, line)
            elif command is known:
                assert word in known.commands, (page, line)
                command = known.commands[word]
