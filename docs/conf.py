"""The documentation site: `make docs` writes it into site/. It needs no network, neither to build nor to read."""

import os
import posixpath
import re
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "bpinn"
author = "the bpinn authors"
version = release = version_of("bpinn")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# A name in single backticks is a link where the reference has the name. Types are in the text of docstrings.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "bpinn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2a4b8d", "color-brand-content": "#2a4b8d"},
    "dark_css_variables": {"color-brand-primary": "#9db7f5", "color-brand-content": "#9db7f5"},
}
exclude_patterns = ["_static"]

# Pages whose text is a file outside of docs/, where people look for it in the source.
OUTSIDE = {
    "about/changelog": "CHANGELOG.md",
    "about/contributing": "CONTRIBUTING.md",
    "about/security": "SECURITY.md",
    "howto/examples": "examples/README.md",
}
PAGES = {file: f"{page}.md" for page, file in OUTSIDE.items()} | {
    "README.md": "index.md",
    "examples": "howto/examples.md",
}
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Fetch a page from outside of docs/, and let links that leave docs/ lead to such pages.

    Links to other files, such as examples/cooling.csv, become downloads; a link to nothing fails in strict mode.
    """
    here = f"docs/{page}.md"
    if page in OUTSIDE:
        here = OUTSIDE[page]
        app.env.note_dependency(str(ROOT / here))
        source[0] = (ROOT / here).read_text(encoding="utf-8")

    def replaced(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        in_docs = PAGES.get(target) or os.path.relpath(target, "docs").replace(os.sep, "/")
        return match[1] + os.path.relpath(in_docs, posixpath.dirname(page) or ".").replace(os.sep, "/")

    if (Path(app.srcdir) / f"{page}.md").exists():
        source[0] = LINK.sub(replaced, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
