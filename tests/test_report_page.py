"""The report in a browser: what its script adds, what it shows, and what it must not do."""

import base64
import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from browser import CHROMIUM, Browser

import bpinn as bp
from bpinn.plot import views
from bpinn.report import MOST_DRAWS, embedded
from bpinn.sweep.table import _page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser")
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
X = np.linspace(0.0, 1.0, 6)


def drawn(problem, chains=2, draws=40):
    """A result with draws of the prior, on several chains."""
    posterior = bp.Posterior(problem)
    z = np.asarray(posterior.sample_prior(jax.random.key(0), chains * draws)).reshape(chains, draws, -1)
    functionals = np.stack([[posterior.model.functionals(row, posterior.data) for row in chain] for chain in z])
    return bp.Result(problem, bp.HMC(), 0, z, functionals, {"log_density": np.zeros((chains, draws))})


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def along_one():
    """A field along one coordinate, with readings whose name is hostile, and an unknown."""
    return drawn(
        bp.Problem(
            {"x": (0.0, 1.0)},
            {"u": bp.MLP(hidden=())},
            {HOSTILE: bp.Sensors("u", {"x": X}, np.sin(X), 0.1)},
            {"k": dist.Normal(0.0, 1.0)},
        )
    )


@pytest.fixture(scope="module")
def line(along_one, tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    return bp.report.write(along_one, folder, title=HOSTILE, notes=[HOSTILE], truth={"u": lambda x: x})


@pytest.fixture(scope="module")
def over_three():
    places = {c: np.tile(X, 2) for c in ("x", "y", "t")}
    return drawn(
        bp.Problem(
            {"x": (0.0, 1.0), "y": (0.0, 2.0), "t": (0.0, 1.0)},
            {"u": bp.MLP(hidden=()), "v": bp.MLP(hidden=(), inputs=("x", "t"))},
            {"u": bp.Sensors("u", places, 0.5, 0.1)},
        )
    )


@pytest.fixture(scope="module")
def maps(over_three, tmp_path_factory):
    return bp.report.write(over_three, tmp_path_factory.mktemp("maps"))


def numbers_in(text):
    return [float(n) for n in re.findall(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text.replace("−", "-"))]


def said(tab, selector):
    return tab.evaluate(f"document.querySelector({json.dumps(selector + ' .said')}).textContent")


def point_at(tab, selector, across, down):
    """Move the pointer to a part of a figure's width and height."""
    box = tab.evaluate(
        f"(e => {{ e.scrollIntoView({{ behavior: 'instant', block: 'center' }}); const r = e.getBoundingClientRect(); "
        f"return [r.left, r.top, r.width, r.height]; }})(document.querySelector({json.dumps(selector + ' .chart')}))"
    )
    tab.point(box[0] + across * box[2], box[1] + down * box[3])
    return said(tab, selector)


@pytest.mark.parametrize("page", ["line", "maps"])
def test_pages_are_quiet_and_ask_for_nothing(page, browser, request):
    """No errors on the console, no request but the page itself, its policy keeps its own script and no other."""
    path = request.getfixturevalue(page)
    tab = browser.open(path.as_uri())
    assert tab.evaluate("document.querySelectorAll('.chart').length") > 2
    assert tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert tab.messages == []
    assert [asked for asked in tab.requests if not asked.startswith("data:")] == [path.as_uri()]
    policy = tab.evaluate("document.querySelector('meta[http-equiv]').content")
    assert "unsafe" not in policy
    assert re.search(r"script-src 'sha256-[\w+/]+=*';", policy)
    changed = path.with_name("changed.html")
    changed.write_text(path.read_text().replace('"use strict";', '"use strict"; window.changed = true;'))
    other = browser.open(changed.as_uri())
    assert other.evaluate("window.changed === undefined && document.querySelectorAll('.chart').length === 0")
    assert any("Content Security Policy" in json.dumps(message) for message in other.messages)


def test_nothing_that_is_given_becomes_markup(line, browser):
    tab = browser.open(line.as_uri())
    assert tab.evaluate("document.title") == HOSTILE
    assert tab.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert tab.evaluate("document.scripts.length") == 2
    assert tab.evaluate("[...document.images].every(image => image.src.startsWith('data:image/svg'))")
    assert tab.evaluate("document.querySelector('#readings .controls').textContent").endswith(HOSTILE)
    assert tab.messages == []


def test_values_of_a_band_are_those_of_the_prediction(line, along_one, browser):
    tab = browser.open(line.as_uri())
    text = point_at(tab, "#fields", 0.4, 0.05)
    x, mean, level, low, high, truth = numbers_in(text)
    (near,) = (p for p in np.linspace(0, 1, 101) if abs(p - x) < 1e-6)
    expected = along_one.thinned(MOST_DRAWS).predict("u", {"x": [near]})
    got = np.array([mean, low, high])
    np.testing.assert_allclose(got, np.ravel([expected.mean, *expected.interval(0.95)]), atol=0.01 * expected.sd[0])
    assert (level, truth) == (95, pytest.approx(x))
    assert text.startswith("x = ")


def test_readings_can_be_walked_through_with_keys(line, along_one, browser):
    tab = browser.open(line.as_uri())
    tab.evaluate("document.querySelector('#fields .chart').focus()")
    group = bp.predictive.check(along_one).groups[0]
    for i in range(2):
        tab.press("ArrowUp")
        text = said(tab, "#fields")
        assert text.startswith(f"{HOSTILE}, reading {i + 1} at x = ")
        at, value, noise, score = numbers_in(text.removeprefix(HOSTILE).split(" at ")[1])
        assert (at, value, noise) == pytest.approx((X[i], np.sin(X[i]), 0.1), abs=0.006)
        assert score == pytest.approx(abs(group.score[i]), abs=0.06)
    tab.press("ArrowRight")
    assert said(tab, "#fields").startswith("x = 0.2")
    tab.press("End")
    assert said(tab, "#fields").startswith("x = 1")
    tab.press("Escape")
    assert said(tab, "#fields").startswith("Point at the figure")


def test_a_chain_can_be_chosen(line, along_one, browser):
    tab = browser.open(line.as_uri())
    whole = point_at(tab, "#fields", 0.5, 0.05)
    tab.evaluate("document.querySelectorAll('#fields .choices input')[2].click()")
    x, mean, *_ = numbers_in(point_at(tab, "#fields", 0.5, 0.05))
    expected = along_one.only(1).predict("u", {"x": [x]})
    assert mean == pytest.approx(expected.mean[0], abs=0.01 * expected.sd[0])
    assert mean != numbers_in(whole)[1]
    assert tab.evaluate("document.querySelectorAll('#health .choices input')[2].checked")
    assert tab.evaluate("document.querySelectorAll('#health .line.pale').length") == 2  # chain 0, of k and log density


def test_traces_have_the_table_s_rhat_and_every_draw(line, along_one, browser):
    tab = browser.open(line.as_uri())
    legend = tab.evaluate("document.querySelector('#health .pair .legend').textContent")
    assert legend.endswith(f"R-hat {along_one.summary().table.loc['k', 'rhat']:.3f}")
    tab.evaluate("document.querySelector('#health .chart').focus()")
    tab.press("End")
    draw, *values = numbers_in(said(tab, "#health").replace("chain 0 ", "").replace("chain 1 ", ""))
    assert draw == 39
    np.testing.assert_allclose(values, along_one.draws("k")[:, -1], atol=0.006)


def test_residuals_against_a_coordinate_and_the_prediction(line, along_one, browser):
    tab = browser.open(line.as_uri())
    group = bp.predictive.check(along_one).groups[0]

    def places():
        return tab.evaluate(
            "[...document.querySelectorAll('#readings circle.dot')].map(dot => +dot.getAttribute('cx'))"
        )

    def follow(values):
        return np.corrcoef(places(), values)[0, 1]

    assert follow(group.at["x"]) == pytest.approx(1, abs=1e-6)
    select = (
        "const s = document.querySelector('#readings select'); s.value = '{}'; s.dispatchEvent(new Event('change'))"
    )
    tab.evaluate(f"(() => {{ {select.format('expected')} }})()")
    assert follow(group.mean) == pytest.approx(1, abs=1e-4)
    tab.evaluate("document.querySelector('#readings .chart').focus()")
    tab.press("Home")
    first = int(np.argmin(group.mean))
    text = said(tab, "#readings").removeprefix(HOSTILE)
    assert text.startswith(f", reading {first + 1} at x = ")
    assert numbers_in(text)[-1] == pytest.approx(group.score[first], abs=0.06)


@pytest.mark.parametrize(("name", "coordinates"), [("u", "xyt"), ("v", "xt")])
def test_the_slider_moves_through_a_map(name, coordinates, maps, over_three, browser):
    tab = browser.open(maps.as_uri())
    number = "uv".index(name)
    tab.evaluate(f"document.querySelectorAll('#fields details[data-quantity]')[{number}].previousSibling.id = 'map'")
    seen = []
    for part in (0.0, 1.0):
        slider = "document.querySelector('#map input[type=range]')"
        tab.evaluate(f"(s => {{ s.value = {part} * s.max; s.dispatchEvent(new Event('input')) }})({slider})")
        text = point_at(tab, "#map", 0.6, 0.4)
        values = numbers_in(text)
        at = dict(zip(coordinates, values, strict=False))
        if len(at) == 3:
            assert at["t"] == part
        picture = tab.evaluate("document.querySelector('#map .stage canvas').toDataURL()")
        seen.append((tab.evaluate("document.querySelector('#map .slider output').textContent"), text, picture))
        got = dict(zip(("mean", "sd"), values[len(at) :], strict=False))
        near = dict(zip(coordinates, [np.linspace(*over_three.problem.domain[c], 201) for c in at], strict=True))
        at = {c: near[c][np.argmin(np.abs(near[c] - v))] if c != "t" else v for c, v in at.items()}
        expected = over_three.predict(name, {c: [v] for c, v in at.items()})
        assert got["mean"] == pytest.approx(expected.mean[0], abs=0.05 * expected.sd[0])
        assert got["sd"] == pytest.approx(expected.sd[0], rel=0.05)
    assert seen[0][0] != seen[1][0]
    if name == "u":
        assert seen[0][2] != seen[1][2]
    else:  # the map stays, and the slice through it moves
        assert seen[0][2] == seen[1][2]
        assert tab.evaluate("document.querySelectorAll('#map .chart').length") == 2


def test_the_table_of_unknowns_can_be_copied_and_saved(line, along_one, browser):
    tab = browser.open(line.as_uri())
    told = """new Promise(done => { Object.defineProperty(navigator, "clipboard", { value: { writeText: async text => done(text) } });
        document.querySelector("[data-copy]").click(); })"""
    rows = [row.split("\t") for row in tab.evaluate(told).split("\n")]
    assert rows[0][:3] == ["name", "mean", "sd"]
    assert rows[1][0] == "k"
    assert float(rows[1][1]) == pytest.approx(along_one.draws("k").mean(), rel=0.01)
    for link, file in (("#unknowns a[download]", "all-unknowns"), ("#settings a[download='u.csv']", "u")):
        address = tab.evaluate(f"document.querySelector({json.dumps(link)}).href")
        kind, content = address.split(",")
        assert kind == "data:text/csv;base64"
        assert base64.b64decode(content) == (line.parent / "tables" / f"{file}.csv").read_bytes()
    saved = tab.evaluate("[...document.querySelectorAll('figcaption a')].map(a => [a.download, a.href.slice(0, 18)])")
    assert len(saved) == len(list((line.parent / "figures").glob("*.svg")))
    assert {kind for _, kind in saved} == {"data:image/svg+xml"}


def test_without_script_everything_is_there(line, browser):
    tab = browser.open(line.as_uri(), script=False)
    assert tab.evaluate("document.querySelectorAll('.chart').length") == 0
    images = "[...document.images].map(i => i.complete && i.naturalWidth > 0 && i.getBoundingClientRect().height > 50)"
    shown = tab.evaluate(images)
    assert all(shown)
    assert len(shown) == len(list((line.parent / "figures").glob("*.svg")))
    assert tab.evaluate("[...document.querySelectorAll('button, input, select')].every(e => e.hidden)")
    assert tab.messages == []


def test_on_paper_every_figure_is_there(maps, browser):
    tab = browser.open(maps.as_uri())
    assert tab.evaluate("[...document.querySelectorAll('details')].every(d => !d.open)")
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("[...document.images].every(image => image.getBoundingClientRect().height > 50)")
    assert tab.evaluate("[...document.querySelectorAll('.chart, .choices, button')].every(e => !e.checkVisibility())")
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("[...document.querySelectorAll('details')].every(d => !d.open)")


def contrast(a, b):
    def luminance(colour):
        channels = np.array(numbers_in(colour)[:3]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_lines_stand_out(dark, line, browser):
    """WCAG AA: 4.5 for text, 3 for lines; figures follow the page into dark colours."""
    tab = browser.open(line.as_uri(), dark=dark, width=390)
    page = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    texts = "[...document.querySelectorAll('h1, p, a, .note, .said, summary, legend, td, label, .legend')]"
    for colour in set(tab.evaluate(f"{texts}.map(e => getComputedStyle(e).color)")):
        assert contrast(colour, page) >= 4.5, colour
    for colour in set(tab.evaluate("[...document.querySelectorAll('.chart text')].map(e => getComputedStyle(e).fill)")):
        assert contrast(colour, page) >= 4.5, colour
    lines = (
        "[...document.querySelectorAll('.line.chosen, .line.truth, .axes path')].map(e => getComputedStyle(e).stroke)"
    )
    for colour in set(tab.evaluate(lines)):
        assert contrast(colour, page) >= 3, colour
    corner = """(image => { const c = new OffscreenCanvas(4, 4).getContext("2d");
        c.drawImage(image, 0, 0, 40, 40); return [...c.getImageData(0, 0, 1, 1).data] })(document.images[0])"""
    assert (np.mean(tab.evaluate(corner)[:3]) < 60) == dark
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    assert tab.evaluate("[...document.querySelectorAll('.chart')].every(c => c.tabIndex === 0 && c.ariaLabel)")


def test_the_page_of_a_sweep_keeps_its_policy_and_style(browser, tmp_path):
    row = SimpleNamespace(verdict="care", member=SimpleNamespace(name=HOSTILE), reasons=["slow"])
    page = tmp_path / "sweep.html"
    page.write_text(_page(SimpleNamespace(title=HOSTILE), [row], ["run", "k"], [["1", HOSTILE]], None))
    tab = browser.open(page.as_uri())
    assert tab.messages == []
    assert tab.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert tab.evaluate("document.scripts.length") == 0
    assert tab.evaluate("getComputedStyle(document.querySelector('.verdict')).borderLeftStyle") == "solid"


def test_what_is_embedded_stays_small(along_one, monkeypatch):
    """Chains are left out first, then quantities; many readings are thinned, with those farthest off; and it is said."""
    found = bp.report.portraits(along_one, {})
    check = bp.predictive.check(along_one)
    whole = embedded.gather(along_one, found, check, [], [])
    assert [one["name"] for one in whole.choices] == ["all draws", "chain 0", "chain 1"]
    assert (len(whole.quantities[0]["shown"]), whole.left_out) == (3, [])
    monkeypatch.setattr(embedded, "MOST_READINGS", 4)
    thin = embedded.gather(along_one, found, check, [], [])
    assert len(thin.readings[0]["value"]) < 6
    assert thin.left_out == [f"{HOSTILE}: 3 of 6 readings can be pointed at, with those farthest off."]
    for most, shown, words in ((1200, 1, "only all draws together"), (100, 0, "too many points")):
        monkeypatch.setattr(embedded, "MOST_NUMBERS", most)
        less = embedded.gather(along_one, found, check, [], [])
        assert len(less.quantities[0]["shown"]) == shown
        assert words in less.left_out[-1]
    monkeypatch.setattr(embedded, "MOST_CHAINS", 1)
    assert "too many chains (2)" in embedded.gather(along_one, found, check, [], []).left_out[0]


def test_of_many_readings_the_farthest_are_kept():
    score = np.zeros(5000)
    score[[17, 1234]] = (9.0, -8.0)
    kept = embedded._some(np.arange(5000), score)
    assert {0, 17, 1234, 4999} <= set(kept.tolist())
    assert 1800 <= len(kept) <= embedded.MOST_READINGS


def test_numbers_keep_three_digits_of_the_sd():
    mean, sd = np.array([100.0, 101.0]), np.array([0.01, 0.02])
    assert embedded._decimals({"mean": mean, "sd": sd}) == 4
    assert embedded._decimals({"mean": 1e7 * mean, "sd": 1e7 * sd}) == -3
    assert embedded._decimals({"mean": np.zeros(2)}) == 3
    assert embedded._rounded([1.23456, np.nan, -1e-9], 3) == [1.235, None, 0.0]
    assert views.symbol("u_xx") == ("u", "xx")
    assert views.symbol("words") == ("words", "")
