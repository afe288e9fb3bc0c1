"""Reproduction of the paper's evaluation: every figure and table, and a check of every claim based on them."""

import io
import json
import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from bpinn import cluster as clusters
from bpinn.engine import available_cores
from bpinn.errors import InputError
from bpinn.paper.cases import Say
from bpinn.paper.catalogue import EXPERIMENTS
from bpinn.paper.comparison import PRESETS, Found, Run
from bpinn.report import image
from bpinn.run_folder.files import only_one, write_file
from bpinn.run_folder.manifest import versions

RESULT = "result.json"
COLOURS = 200
DOTS_PER_INCH, MOST_BYTES = (110, 95, 80), 190 * 1024


def reproduce(
    names: Sequence[str],
    *,
    preset: str = "quick",
    seed: int = 0,
    seeds: int = 1,
    out: str | Path = "reproduction",
    progress: Say = True,
    say: Callable[[str], None] = print,
    cluster: Any = None,
) -> dict[str, dict[str, Any]]:
    """Run experiments of the paper; each writes result.json and its figure into its own folder.

    Arguments:
        names: names of experiments, from `EXPERIMENTS`; all of them if empty.
        preset: "quick", or "paper" for the paper's own settings.
        seed: the seed of the first data set.
        seeds: the number of data sets.
        out: the output folder. Cases that it already holds with the same settings are not run again.
        progress: as in `bpinn.infer`.
        say: called with each line of output: the table and the claims of each experiment.
        cluster: where chains run, as in `bpinn.infer`.
    """
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise InputError(f"reproduce: {unknown[0]!r} is not an experiment; choose from {', '.join(EXPERIMENTS)}")
    if preset not in PRESETS:
        raise InputError(f"reproduce: preset must be 'quick' or 'paper', got {preset!r}")
    if not isinstance(seeds, int) or seeds < 1 or not isinstance(seed, int) or seed < 0:
        raise InputError(
            f"reproduce: seed must be an integer of at least 0 and seeds of at least 1, got {seed!r} and {seeds!r}"
        )
    with ExitStack() as stack:
        if cluster is not None:
            cluster = stack.enter_context(clusters.opened(cluster, say, "reproduce: cluster"))
        return {
            name: _one(name, Run(preset, range(seed, seed + seeds), Path(out) / name, progress, cluster), say)
            for name in names or EXPERIMENTS
        }


def _one(name: str, how: Run, say: Callable[[str], None]) -> dict[str, Any]:
    experiment, folder = EXPERIMENTS[name], how.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"reproduce: {folder} cannot be created: {error.strerror or error}") from None
    cut = experiment.cut(how.preset)
    say(f"{name}: {experiment.about}")
    with only_one(folder):
        outcome = experiment.run(how)
        found = _written(name, experiment.about, how.preset, cut, outcome, folder)
    _tell(outcome, cut, say)
    return found


def _written(name: str, about: str, preset: str, cut: list[str], outcome: Found, folder: Path) -> dict[str, Any]:
    write_file(folder / "figure.svg", image(outcome.figure, "svg"))
    write_file(folder / "figure.png", _small_png(outcome.figure))
    content = {
        "experiment": name,
        "about": about,
        "preset": preset,
        "cut": cut,
        "table": {"columns": outcome.columns, "rows": outcome.rows},
        "claims": outcome.claims,
        **outcome.numbers,
        "versions": versions(),
        "machine": {"cores": available_cores(), "system": platform.system(), "machine": platform.machine()},
    }
    told = json.dumps(content, indent=1)
    write_file(folder / RESULT, told.encode())
    return json.loads(told)


def redraw(folder: Path) -> bool:
    """Draw the figure beside a result.json anew, where its numbers are enough; nothing is run."""
    found = json.loads((folder / RESULT).read_text())
    figure = EXPERIMENTS[found["experiment"]].redrawn(found.get("cases", []))
    if figure is not None:
        write_file(folder / "figure.png", _small_png(figure))
    return figure is not None


def _small_png(figure: Figure) -> bytes:
    """As PNG below the size limit: first with fewer colours, then with fewer dots per inch."""
    for dots in DOTS_PER_INCH:
        drawn = image(figure, "png", dots)
        if len(drawn) < MOST_BYTES:
            return drawn
        few = io.BytesIO()
        Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(few, "png")
        if few.tell() < MOST_BYTES:
            return few.getvalue()
    return few.getvalue()


def _tell(outcome: Found, cut: list[str], say: Callable[[str], None]) -> None:
    lines = [outcome.columns, *outcome.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(outcome.columns))]
    for line in lines:
        say("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for claim in outcome.claims:
        holds = "holds" if claim["holds_in"] == claim["of"] else f"holds in {claim['holds_in']} of {claim['of']}"
        holds = "does not hold" if not claim["holds_in"] else holds
        first = next(iter(claim["numbers"].values()))
        say(f"  {holds}: {claim['says']} ({first}{', ...' if claim['of'] > 1 else ''})")
    for text in cut:
        say(f"  differs from the paper: {text}")
