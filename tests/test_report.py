"""The report: what stands in it, what it needs, and how a browser takes it."""

import base64
import csv
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.run_folder import runs
from bpinn.templates import TEMPLATES, write_template

QUICK = ["inference.num_warmup=30", "inference.num_draws=30", "inference.num_leapfrog=4", "inference.chains=2"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Page(HTMLParser):
    """What a page links to and shows; every element must be closed."""

    EMPTY = ("meta", "link", "img", "mspace", "br")

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
        if self.open and self.open[-1] != "style":
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
        for width in (1100, 500):
            check_in_a_browser(run, width, tmp_path)


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
    counts = {r.name: len(r.values) for r in problem.readings}
    for name, count in counts.items():
        assert len((run.folder / "tables" / f"readings-{name}.csv").read_text().splitlines()) == count + 1


def check_slices(run):
    has_time = "t" in run.problem_file.problem.domain and len(run.problem_file.problem.domain) > 1
    assert bool(list((run.folder / "figures").glob("u-slice-*.png"))) == has_time


def check_in_a_browser(run, width, tmp_path):
    """No errors, nothing asked of the network, every figure drawn, and nothing wider than the window."""
    probe = tmp_path / "probe.html"
    page = (run.folder / "report.html").read_text()
    page = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    script = """<script>window.onload = () => { document.title = JSON.stringify({
        drawn: [...document.images].filter(i => i.complete && i.naturalWidth > 0).length,
        wide: document.documentElement.scrollWidth, window: window.innerWidth,
        asked: performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:')),
        formulas: [...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().width) }) }</script>"""
    probe.write_text(page.replace("</body>", script + "</body>"))
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={tmp_path / f'profile-{width}'}", f"--window-size={width},900", "--dump-dom",
         probe.as_uri()],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    told = json.loads(re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1].replace("&quot;", '"'))
    assert told["drawn"] == len(page_of(run.folder).images)
    assert told["asked"] == []
    assert told["wide"] <= told["window"]
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
    assert "<script" not in text
    assert "onerror=alert" not in text.replace("&lt;img src=x onerror=alert", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
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
    # each field, the unknown, the check of the readings, and two traces
    assert len(page.images) == len(set(page.images)) == 7 == len(list((tmp_path / "figures").glob("*.svg")))
    assert (tmp_path / "tables" / "unknowns.csv").read_text().startswith("x,mean")
