"""The report: what stands in it, what it needs, and how a browser takes it."""

import base64
import csv
import re
from html.parser import HTMLParser

import numpy as np
import numpyro.distributions as dist
import pytest
from browser import CHROMIUM, Browser

import bpinn as bp
from bpinn.diagnostics import LOG_DENSITY
from bpinn.expressions import parse
from bpinn.plot import views
from bpinn.report import formatting
from bpinn.run_folder import runs
from bpinn.templates import TEMPLATES, write_template

QUICK = ["inference.num_warmup=30", "inference.num_draws=30", "inference.num_leapfrog=4", "inference.chains=2"]


class Page(HTMLParser):
    """What a page links to and shows; every element must be closed."""

    EMPTY = ("meta", "link", "img", "source", "mspace", "br")
    CODE = ("style", "script")

    def __init__(self, text):
        super().__init__()
        self.links, self.images, self.ids, self.open, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        named = [attributes[a] for a in ("href", "src") if a in attributes]
        self.links += [target for target in named if not target.startswith("data:")]
        if tag == "img":
            assert attributes["alt"]
            self.images.append(attributes["src"])

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in self.CODE:
            self.text += data


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_has_a_whole_report(name, tmp_path):
    """One test for all, so that each template runs once, on whatever worker it is."""
    folder = tmp_path / name
    write_template(name, folder)
    run = runs.start(folder / "problem.toml", None, QUICK)
    result = run.go(lambda _: None, print, None)
    run.report(result)
    check_page(run)
    check_tables(run)
    check_slices(run)
    check_images(run)
    if CHROMIUM is not None:
        with Browser() as browser:
            for width in (1100, 390):
                check_in_a_browser(browser, run.folder / "report.html", width)


def page_of(folder):
    return Page((folder / "report.html").read_text())


def check_page(run):
    page, problem = page_of(run.folder), run.problem_file.problem
    assert run.problem_file.title in page.text
    for section in ("problem", "fields", "health", "readings", "settings", "python"):
        assert section in page.ids
    for target in page.links:
        if target.startswith("#"):
            assert target[1:] in page.ids
        else:
            assert (run.folder / target).is_file(), target
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", (run.folder / "report.html").read_text())
    figures = {path.name for path in (run.folder / "figures").iterdir()}
    assert len(page.images) == len(figures) / 2  # each as PNG and SVG
    for name in problem.fields:
        assert any(f.startswith(name) and f.endswith(".svg") for f in figures)
    for name in problem.unknowns:
        assert f"unknown-{name}.png" in figures
        assert f"trace-{name}.png" in figures
    for path in (run.folder / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 3000


def check_tables(run):
    problem, result = run.problem_file.problem, run.load()
    for name in problem.fields:
        with (run.folder / "tables" / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert set(rows[0]) >= {*problem.inputs(name), "mean", "sd", "2.5%", "97.5%"}
        at = {c: np.array([float(row[c]) for row in rows]) for c in problem.inputs(name)}
        expected = result.predict(name, at)
        for column, values in (("mean", expected.mean), ("sd", expected.sd)):
            np.testing.assert_allclose([float(row[column]) for row in rows], values, rtol=1e-3, atol=1e-5)
    for readings in problem.readings:
        file = f"{'points' if readings.is_exact else 'readings'}-{readings.name}.csv"
        assert len((run.folder / "tables" / file).read_text().splitlines()) == len(readings.values) + 1


def check_slices(run):
    has_time = "t" in run.problem_file.problem.domain and len(run.problem_file.problem.domain) > 1
    assert bool(list((run.folder / "figures").glob("u-slice-*.png"))) == has_time


def check_in_a_browser(browser, page, width):
    """No errors, nothing asked of the network, every figure drawn, and nothing wider than the window."""
    tab = browser.open(page.as_uri(), width=width)
    told = tab.evaluate(
        """({ drawn: [...document.images].every(i => i.complete && i.naturalWidth > 0),
        wide: document.documentElement.scrollWidth, window: window.innerWidth,
        formulas: [...document.querySelectorAll('math')].filter(m => m.checkVisibility())
            .map(m => m.getBoundingClientRect().width) })"""
    )
    assert tab.messages == []
    assert [asked for asked in tab.requests if not asked.startswith("data:")] == [page.as_uri()]
    assert told["drawn"]
    assert told["wide"] <= told["window"] == width
    assert told["formulas"]
    assert min(told["formulas"]) > 3


def test_what_is_written_is_escaped(tmp_path, prior_result):
    problem = bp.Problem(
        {"x": (0.0, 1.0)},
        {"u": bp.MLP(hidden=(3,))},
        {"<img src=x onerror=alert(1)>": bp.Sensors("u", {"x": [0.1, 0.2]}, [0.0, 0.1], 0.1)},
    )
    result = prior_result(problem, 30)
    bp.report.write(result, tmp_path, title="<script>alert(1)</script>", sources={"a": "<b>"}, load_from='"<i>')
    text = (tmp_path / "report.html").read_text()
    assert text.count("<script") == 2  # the page's own: its numbers, and what shows them
    page, _, numbers = text.partition('<script type="application/json" id="data">')
    assert "<" not in numbers.partition("</script>")[0]
    assert "onerror=alert" not in page.replace("&lt;img src=x onerror=alert", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    Page(text)
    assert not list(tmp_path.rglob("*<*"))


def test_of_a_python_problem(tmp_path, prior_result):
    """Equations are shown as they are written; a vector of unknowns has a row for each component."""

    def law(u_x, c, x):
        return u_x + c[0] - c[1] * x

    problem = bp.Problem(
        {"x": (0.0, 1.0)},
        {"u": bp.MLP(hidden=(3,))},
        {
            "law": bp.Sensors(law, {"x": [0.1, 0.5]}, 0.0, 0.1),
            "b": bp.Sensors("u", {"x": 0.0}, 1.0, dist.HalfNormal(1.0)),
        },
        {"c": dist.Normal(0.0, 1.0).expand([2]).to_event(1)},
    )
    path = bp.report.write(prior_result(problem, 40), tmp_path / "out", truth={"c": [1.0, 2.0], "u": lambda x: x})
    page = Page(path.read_text())
    assert "return u_x + c[0] - c[1] * x" in page.text
    assert "Normal, mean 0, sd 1 (each of 2)" in page.text
    assert {"unknown-c_0_.png", "unknown-c_1_.png", "unknown-noise_b.png"} <= {
        p.name for p in (tmp_path / "out" / "figures").iterdir()
    }
    assert "sd away" in page.text


@pytest.mark.parametrize(
    "method", [bp.VI(num_steps=100, num_draws=40), bp.PINN(num_steps=100), bp.Dropout(num_steps=100, num_draws=40)]
)
def test_of_methods_that_fit(method, tmp_path):
    x = np.linspace(0, 1, 5)
    problem = bp.Problem(
        {"x": (0.0, 1.0)}, {"u": bp.MLP(hidden=(4,))}, {"u": bp.Sensors("u", {"x": x}, x, 0.1)},
    )  # fmt: skip
    result = bp.infer(problem, method, seed=0, chains=1, progress=False)
    page = Page(bp.report.write(result, tmp_path).read_text())
    assert "training history" in (tmp_path / "report.html").read_text()
    point = isinstance(method, bp.PINN)
    assert ("A single solution has no predictive distribution" in page.text) == point
    assert (tmp_path / "tables" / "u.csv").read_text().startswith("x,mean\n" if point else "x,mean,sd")


def test_wrong_input(tmp_path, prior_result):
    with pytest.raises(bp.InputError, match=r"report: expected a Result from bp.infer"):
        bp.report.write(None, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(bp.InputError, match="is a file; give a folder"):
        bp.report.write(prior_result(bp.paper.regression().problem), tmp_path / "file")


def check_images(run):
    for image in page_of(run.folder).images:
        kind, data = image.split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(data)


def test_quantities_may_be_called_like_parts_of_the_report(tmp_path, prior_result):
    fields = {name: bp.MLP(hidden=(3,)) for name in ("readings", "health", "unknowns")}
    sensors = {name: bp.Sensors(name, {"x": [0.1, 0.2]}, [0.0, 0.1], 0.1) for name in fields}
    problem = bp.Problem({"x": (0.0, 1.0)}, fields, sensors, {"k": dist.Normal(0.0, 1.0)})
    page = Page(bp.report.write(prior_result(problem, 30), tmp_path).read_text())
    # each field, the prior of its readings, the unknown, the check of the readings, and two traces
    assert len(page.images) == len(set(page.images)) == 10 == len(list((tmp_path / "figures").glob("*.svg")))
    assert (tmp_path / "tables" / "unknowns.csv").read_text().startswith("x,mean")


def residual(u_x, k):
    return u_x - k


def exact_and_noisy(**more):
    x = np.linspace(0, 1, 6)
    return bp.Problem(
        {"x": (0.0, 1.0)},
        {"u": bp.MLP(hidden=(3,))},
        {
            "law": bp.Physics(residual, points=7, tolerance=0.05),
            "u": bp.Sensors("u", {"x": x}, np.sin(x), 0.1),
            "slope": bp.Sensors("u_x", {"x": [0.0, 1.0]}, 0.0, 0.02),
            **more,
        },
        {"k": dist.Normal(0.0, 1.0)},
    )


def test_points_of_exact_conditions_are_not_called_readings(tmp_path, prior_result):
    text = bp.report.write(prior_result(exact_and_noisy(), 40), tmp_path).read_text()
    shown = Page(text).text
    assert {p.name for p in (tmp_path / "tables").iterdir()} >= {"points-law.csv", "readings-u.csv", "points-slope.csv"}
    for words in ("7 points", "2 points", "6 readings", "tolerance 0.05", "points of law and their leave-one-out"):
        assert words in shown
    for wrong in ("7 readings", "2 readings", "readings of law", "readings of slope"):
        assert wrong not in shown
    assert "law: posterior mean and 95% interval, with points" in text


def mathml(markup):
    return re.sub(r"<[^>]+>|\n", "", str(markup))


def test_equations_are_shown_with_what_they_are_read_to_be():
    """With their value and tolerance, or with data and noise; averages, and several groups of sensors, below."""
    law = parse("u_x - k", ["u_x", "k"]).function("law")
    x = np.linspace(0, 1, 6)
    one = exact_and_noisy(law=bp.Sensors(law, {"x": x}, 2.0, 0.05)).sensors
    two = {
        "law": bp.Sensors(law, {"x": x}, x, dist.HalfNormal(1.0)),
        "counts": bp.Sensors(law, {"x": x}, x, 0.1, likelihood="student_t"),
        "mean": bp.Sensors(bp.Average(law, over={"x": (0.0, 1.0)}), values=1.0, noise=0.1),
    }
    found = []
    for sensors in (one, two):
        problem = exact_and_noisy(**sensors)
        (shown,) = formatting.equations(problem, {})
        found.append((mathml(shown["math"]), [(mathml(said), where) for said, where in shown["stated"]]))
    assert found[0] == ("law=ux−k=2±0.05", [])
    assert found[1][0] == "law=ux−k"
    assert found[1][1] == [
        ("law=data±noiselaw", "law, 6 readings"),
        ("law=data±0.1\u2002Student t with 4 degrees of freedom", "counts, 6 readings"),
        ("mean=data±0.1", "mean, 1 reading"),
    ]
    (python,) = formatting.equations(exact_and_noisy(), {})
    assert "return u_x - k" in python["code"]
    assert [(mathml(said), where) for said, where in python["stated"]] == [("residual=0±0.05", "law, 7 points")]


def test_the_prior_is_shown_with_the_readings(tmp_path, prior_result):
    page = Page(bp.report.write(prior_result(exact_and_noisy(), 40), tmp_path).read_text())
    assert "Prior against readings" in page.text
    assert "u: the prior expects readings that spread by" in page.text
    assert [p.stem for p in (tmp_path / "figures").glob("prior-*.png")] == ["prior-u"]


def test_estimates_under_a_bad_verdict_are_struck_out(tmp_path, prior_result):
    result = prior_result(exact_and_noisy(), 40)
    for verdict in ("bad", "care"):
        result._diagnosis.verdict = verdict
        text = bp.report.write(result, tmp_path).read_text()
        assert ("not to be trusted" in Page(text).text) == (verdict == "bad")
        assert ('class="answers distrusted"' in text) == (verdict == "bad")


def test_unknowns_and_traces_are_those_of_all_draws(tmp_path, prior_result, monkeypatch):
    """R-hat and interval in figures are those of the table, and traces go on to the last draw."""
    shown = {}

    def keep(picture, folder):
        shown[picture.name] = picture
        return {"caption": picture.caption, "stem": "", "data": "", "narrow": ""}

    monkeypatch.setattr(bp.report, "_save_picture", keep)
    monkeypatch.setattr(bp.report, "MOST_DRAWS", 50)
    result = prior_result(exact_and_noisy(), 120)
    bp.report.write(result, tmp_path)
    table = result.summary().table
    (trace,) = shown["trace-k"].figure.axes
    assert len(trace.lines[0].get_xdata()) == 120
    assert trace.get_xlim() == (0, 119)
    assert f"{table.loc['k', 'rhat']:.3f}" in trace.get_title()
    (histogram,) = shown["unknown-k"].figure.axes
    interval = f"[{views.number(table.loc['k', '2.5%'])}, {views.number(table.loc['k', '97.5%'])}]"
    assert interval in histogram.get_title()
    assert LOG_DENSITY in shown["trace-log-density"].caption
    assert shown["u"].narrow is not None  # for phones
    assert shown["trace-k"].narrow is None
