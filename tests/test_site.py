"""The documentation site: it builds without a warning, its links lead somewhere, and it asks nothing of the network."""

import json
import re
import shutil
import subprocess
import types
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from sphinx.cmd.build import build_main

import bpinn as bp

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)
PARTS = ("calibration", "likelihoods", "paper", "plot", "predictive", "prior", "reference", "report")


class Page(HTMLParser):
    """What a page links to, loads and names."""

    LOADED = (("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"))

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.loaded, self.ids, self.unnamed = path, [], [], set(), []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        self.loaded += [found[name] for of, name in self.LOADED if of == tag and found.get(name)]
        if tag == "img" and not (found.get("alt") or "").strip():
            self.unnamed.append(found.get("src"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    arguments = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "trees"), str(ROOT / "docs")]
    assert build_main([*arguments, str(folder / "html")]) == 0
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_public_name_is_in_the_reference(pages, site):
    named = set().union(*(page.ids for path, page in pages.items() if path.parent == site / "reference"))
    expected = {f"bpinn.{name}" for name in set(bp.__all__) | set(dir(bp)) if name not in PARTS}
    expected |= {f"module-bpinn.{part}" for part in PARTS}
    for part in (bp.calibration, bp.paper):
        expected |= {f"{part.__name__}.{name}" for name in part.__all__}
    expected |= {f"bpinn.plot.{name}" for name, f in vars(bp.plot).items() if _is_own(f, "bpinn.plot", name)}
    assert expected - named == set()


def _is_own(found, module, name):
    return isinstance(found, types.FunctionType) and found.__module__ == module and not name.startswith("_")


def test_every_public_name_has_an_example():
    for name in dir(bp):
        found = getattr(bp, name)
        if not isinstance(found, types.ModuleType | str):
            assert "Example:" in found.__doc__, name


def test_links_lead_to_pages_and_places(pages, site):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, place = unquote(link).partition("#")
            there = (path.parent / target).resolve() if target else path
            if there.is_dir():
                there /= "index.html"
            missing = not there.is_file() or (place and there in pages and place not in pages[there].ids)
            broken += [f"{path.relative_to(site)}: {link}"] if missing else []
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages, site):
    for path, page in pages.items():
        assert [name for name in page.loaded if re.match(r"(?:https?:)?//", name)] == [], path
        assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", page.text), path
    for path in site.rglob("*.css"):
        assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", path.read_text(encoding="utf-8")), path


def test_every_image_has_words(pages):
    assert {path: page.unnamed for path, page in pages.items() if page.unnamed} == {}
    assert sum(name.endswith(".png") for page in pages.values() for name in page.loaded) > 10


def test_links_of_the_readme_and_its_neighbours():
    """Of files that are read where the source is, and not in the site."""
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "examples/README.md",
        "benchmarks/README.md",
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, place = target.partition("#")
            path = (ROOT / name).parent / file if file else ROOT / name
            assert path.exists(), f"{name}: {target}"
            assert not place or place in _places(path), f"{name}: {target}"


def _places(path):
    """The anchors of a Markdown file's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.skipif(CHROMIUM is None, reason="no browser")
@pytest.mark.parametrize(
    ("name", "width"),
    [("index", 1280), ("tutorial", 390), ("sampling", 390), ("reference/problem", 390)],
)
def test_a_browser_takes_a_page(name, width, site, tmp_path):
    """No errors, nothing asked of the network, every image drawn, and nothing wider than the window.

    A headless window is at least 500 pixels wide, so that a narrow page is shown in a frame.
    """
    page = site / f"{name}.html"
    probe, frame = page.with_name(f"probe-{width}-{page.name}"), page.with_name(f"frame-{width}-{page.name}")
    script = """<script>window.addEventListener("load", () => setTimeout(() => parent.postMessage(JSON.stringify({
        drawn: [...document.images].every(image => image.complete && image.naturalWidth > 0),
        wide: document.documentElement.scrollWidth, window: window.innerWidth,
        asked: performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("file:")
            && !n.startsWith("data:")) }), "*"), 300))</script>"""
    probe.write_text(page.read_text(encoding="utf-8").replace("</body>", script + "</body>"), encoding="utf-8")
    frame.write_text(
        f'<!doctype html><title>waiting</title><iframe src="{probe.name}" width={width} height=900></iframe>'
        "<script>window.onmessage = message => { document.title = message.data }</script>",
        encoding="utf-8",
    )
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000", "--virtual-time-budget=5000",
         "--dump-dom", frame.as_uri()],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    probe.unlink(), frame.unlink()
    assert "CONSOLE" not in done.stderr
    told = json.loads(re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[1].replace("&quot;", '"'))
    assert told["window"] == width
    assert told["wide"] <= width
    assert told["drawn"]
    assert told["asked"] == []


def test_the_citation_has_the_version():
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version = {{{version}}}" in (ROOT / "docs" / "about" / "cite.md").read_text(encoding="utf-8")
