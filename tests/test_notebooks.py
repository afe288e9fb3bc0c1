"""What notebooks show: objects as HTML, progress in one output; and the tutorials in notebooks/, which run as written."""

import html
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import progress
from bpinn.diagnostics import Diagnosis
from bpinn.prediction import GaussianPrediction, Prediction
from bpinn.report import formatting

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUICK = "bp.HMC(num_warmup=40, num_draws=40, num_leapfrog=4, chains=2)"
SCRIPT = "<script>alert('a & b')</script>"


def law(u, u_xx, k):
    return u_xx + k * u


def problem(**more):
    x = np.linspace(0.0, 1.0, 5)
    sensors = {
        "f": bp.Sensors(law, {"x": x}, 0.0, noise=0.1),
        SCRIPT: bp.Sensors("u", {"x": x}, np.sin(x), noise=dist.HalfNormal(1.0)),
    }
    unknowns = {"k": dist.Normal(0.0, 1.0), **more}
    return bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}, sensors, unknowns)


@pytest.fixture(scope="module")
def result():
    method = bp.HMC(num_warmup=30, num_draws=30, num_leapfrog=4)
    return bp.infer(problem(), method, seed=0, chains=2, progress=False)


def shown(what):
    """The HTML of an object, after checks that hold for all: escaped, balanced, without fixed text colours."""
    page = what._repr_html_()
    assert "<script>" not in page
    assert not re.search(r'[";\s]color:', page)  # text has the theme's colour
    for tag in ("div", "table", "tr", "td", "th", "ul", "li", "p", "pre"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag
    return page


@pytest.mark.parametrize("verdict", ["good", "care", "bad"])
def test_a_verdict_has_its_colour_reasons_and_advice(verdict):
    page = shown(Diagnosis(verdict, [f"because {SCRIPT}"], ["more draws"]))
    assert formatting.COLOURS[verdict] in page
    assert "Try: more draws" in page
    assert html.escape("because <script>", quote=False) in page


def test_a_summary_is_its_table_and_its_verdict(result):
    summary = result.summary()
    page = shown(summary)
    for number in (f"{summary.loc['k', 'mean']:.4g}", f"{summary.loc['k', 'rhat']:.3f}", "R-hat", "97.5%"):
        assert f">{number}<" in page
    assert summary.about in page
    assert ("line-through" in page) == (summary.health.verdict == "bad")


def test_a_result_has_table_verdict_and_figure(result):
    page = shown(result)
    assert page.count("data:image/png;base64,") == 1
    assert "2 chains" in page
    assert formatting.COLOURS[result.diagnose().verdict] in page


def test_a_result_with_many_readings_is_not_judged_for_its_html(result, monkeypatch):
    from bpinn.report import cells

    fresh = replace(result)
    monkeypatch.setattr(cells, "MOST_JUDGED", 100)
    monkeypatch.setattr(bp.Result, "diagnose", lambda self: pytest.fail("judged"))
    assert "Not judged yet" in shown(fresh)


def test_a_problem_has_its_priors_equations_and_sensors():
    page = shown(problem())
    for words in ("Normal, mean 0, sd 1", "u_xx + k * u", "5 points", "inferred (noise_", "tolerance 0.1", "<math>"):
        assert words in page
    assert shown(bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(3,))}))  # without sensors


def gaussian(at, label="u"):
    shape = np.broadcast_shapes(*(a.shape for a in at.values()))
    return GaussianPrediction(np.zeros(shape), np.eye(int(np.prod(shape))), at, label)


@pytest.mark.parametrize(
    ("at", "is_figure"),
    [
        ({"x": np.linspace(0, 1, 9)}, True),
        (dict(zip("xt", np.meshgrid(np.linspace(0, 1, 4), np.arange(3.0), indexing="ij"), strict=True)), True),
        ({"x": np.linspace(0, 1, 9), "t": np.linspace(0, 1, 9) ** 2}, False),
        ({"x": np.array(0.5)}, False),
    ],
)
def test_a_prediction_is_a_figure_or_a_table(at, is_figure):
    page = shown(gaussian(at))
    assert ("<img" in page) == is_figure
    assert ("97.5%" in page) != is_figure


def test_a_large_prediction_is_not_evaluated_for_its_html():
    large = Prediction(lambda part: pytest.fail("evaluated"), 10, (10**6,), 4, 1000, 4, {"x": np.zeros(10**6)}, "u")
    assert "Not evaluated yet" in shown(large)


def test_other_checks_have_html(result):
    assert "largest z-score" in shown(bp.predictive.check(result))
    assert "prior" in shown(bp.prior.check(problem()))
    (mode, *_) = result.modes()
    assert "of the draws" in shown(mode) or "probability" in shown(mode)
    check = SimpleNamespace(verdict="disagrees", reasons=[SCRIPT], notes=[], advice=["b"])
    from bpinn.report.cells import parts_of

    (part,) = parts_of.dispatch(bp.ForwardCheck)(check)
    assert (part["verdict"], part["words"]) == ("bad", "forward check: disagrees")


def test_figures_show_themselves(result):
    assert bp.plot.unknowns(result)._repr_png_().startswith(b"\x89PNG")


# --- progress ---


@pytest.fixture
def cell(monkeypatch):
    """A notebook that keeps what is displayed: (display number, content) for each display and update."""
    seen = []

    def display(content, raw, display_id):
        assert raw
        assert display_id
        number = len({n for n, _ in seen})
        seen.append((number, content))
        return SimpleNamespace(update=lambda content, raw: seen.append((number, content)))

    shell = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setattr(progress, "EVERY_UPDATE", 0.0)
    return SimpleNamespace(seen=seen, shell=shell)


def test_progress_updates_one_output_of_a_notebook(cell, capsys):
    method = bp.HMC(num_warmup=30, num_draws=30, num_leapfrog=4)
    bp.infer(problem(), method, seed=0, chains=2)
    assert capsys.readouterr() == ("", "")
    assert {number for number, _ in cell.seen} == {0}
    assert len(cell.seen) > 1
    last = cell.seen[-1][1]
    assert "draws 30/30" in last["text/plain"]
    assert html.escape(last["text/plain"]) in last["text/html"]
    assert "\x1b" not in str(cell.seen)


def test_ipython_in_a_terminal_is_a_terminal(cell):
    del cell.shell.kernel
    assert progress.Display().cell is None
    assert progress.notebook() is None


def test_a_stream_that_is_given_is_used(cell):
    assert progress.Display(sys.stderr).cell is None


# --- the tutorials ---


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorials_are_valid_and_have_no_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    for one in book.cells:
        if one.cell_type == "code":
            assert one.outputs == []
            assert one.execution_count is None


def test_there_are_three_tutorials_and_their_links_lead_somewhere():
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (FOLDER / link).exists(), link


@pytest.fixture(scope="module")
def executed():
    """The tutorials after a run in a kernel, as they are but for fewer draws.

    One kernel runs them all, which forgets the names of one before the next: to start it and to import takes long.
    """
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("xarray_einstats")
    books = {path.stem: nbformat.read(path, as_version=4) for path in NOTEBOOKS}
    forget = nbformat.v4.new_code_cell("%reset -f")
    whole = nbformat.v4.new_notebook(metadata=next(iter(books.values())).metadata)
    for name, book in books.items():
        runs = [one for one in book.cells if "bp.HMC()" in one.source]
        assert runs, name
        for one in runs:
            one.source = one.source.replace("bp.HMC()", QUICK)
        whole.cells += [forget.copy(), *book.cells]
    options = {"resources": {"metadata": {"path": str(FOLDER)}}, "allow_errors": True}
    nbclient.NotebookClient(whole, timeout=300, **options).execute()
    return books


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_tutorials_run(name, executed):
    outputs = [output for one in executed[name].cells if one.cell_type == "code" for output in one.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert "\x1b" not in str(outputs)
    said = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    # of tqdm without ipywidgets, and of ArviZ with so few draws
    assert not [text for text in said if "IProgress" not in text and "non-robust model" not in text]
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any("draws 40/40" in page for page in pages)
    assert any('class="bpinn"' in page for page in pages)
    assert any("image/png" in output.get("data", {}) for output in outputs)
