"""Figures as files and as images in the page, in light and dark colours."""

import base64
import io

import matplotlib
from matplotlib.figure import Figure

from bpinn.plot import drawing


def image(figure: Figure, kind: str, dpi: int = 150) -> bytes:
    """A figure as PNG or SVG, byte-identical for identical figures."""
    buffer = io.BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "bpinn", "svg.fonttype": "path"}):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=nothing)
    return buffer.getvalue()


def embedded(svg: bytes) -> str:
    """The address of an image that is in the page itself, and follows the page into dark colours."""
    return "data:image/svg+xml;base64," + base64.b64encode(in_both_themes(svg)).decode()


def in_both_themes(svg: bytes) -> bytes:
    """An SVG of matplotlib with a style sheet for dark pages: it exchanges colours, and leaves maps as they are."""
    pairs = [(kind, *colours) for colours in drawing.DARK.items() for kind in ("fill", "stroke")]
    rules = [
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important; }}'
        for kind, light, dark in pairs
        if (kind, light) != ("stroke", "#ffffff")  # white edges of markers are on maps
    ]
    rules.append(f"svg {{ fill: {drawing.DARK['#000000']}; }}")  # black is the default, and not written
    style = f"<style>@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    start = svg.index(b">", svg.index(b"<svg")) + 1
    return svg[:start] + style.encode() + svg[start:]
