"""Write docs/performance.md and its figures from stored results. This measures nothing.

python benchmarks/write_page.py [--results benchmarks/results.json] [--page docs/performance.md]
"""

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import results
from matplotlib.axes import Axes

from bpinn.plot import drawing

TWO_DIMENSIONS = """
`benchmarks/two_dimensions.py` takes these numbers from the runs of [reproduction.md](reproduction.md): default
settings, four chains from independent starts, at most 600 draws per chain (150 at noise 0.01). Other experiments ran
at the same time, so these runs had about half of the machine. With the machine to itself, and before trajectories
were shortened, the run at noise 0.1 took 540 s.
"""
SETUPS = {
    "one": "One process, as a user would start it",
    "all": "One process per core",
    "trust": "From a cold start to an answer that can be trusted",
}


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def prose(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)


def number(value: float | None, digits: int = 3) -> str:
    """Rounded to significant digits, without an exponent where possible."""
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2g}"
    return f"{float(f'{value:.{digits}g}'):,.{max(digits - 1 - int(np.floor(np.log10(abs(value)))), 0)}f}"


class Runs:
    """The runs of one peer in one setup, over repeats."""

    def __init__(self, found: dict[str, Any], setup: str, peer: str):
        prefix = f"{setup}/{peer}/"
        rows = [row for key, row in found.get("runs", {}).items() if key.startswith(prefix)]
        self.rows = [row for row in rows if "error" not in row]
        self.errors = [row["error"] for row in rows if "error" in row]

    def values(self, *path: str) -> list[float]:
        found = []
        for row in self.rows:
            value: Any = row
            for name in path:
                value = (value or {}).get(name)
            if value is not None:
                found.append(float(value))
        return found

    def median(self, *path: str) -> float | None:
        values = self.values(*path)
        return float(np.median(values)) if values else None

    def spread(self, *path: str) -> str:
        """The median, with the minimum and maximum if there are several runs."""
        values = self.values(*path)
        if len(values) < 2:
            return number(self.median(*path))
        return f"{number(self.median(*path))} ({number(min(values))}–{number(max(values))})"


def k_of(runs: Runs) -> str:
    mean, sd = runs.median("k_mean"), runs.median("k_sd")
    return "–" if mean is None else f"{mean:.3f}" if sd is None else f"{mean:.3f} ± {sd:.3f}"


def rhat_of(runs: Runs) -> str:
    rhat = runs.median("rhat")
    return "–" if rhat is None else f"{rhat:.3f}"


def peers_with(found: dict[str, Any], setup: str) -> list[tuple[str, dict[str, Any], Runs]]:
    rows = [(name, peer, Runs(found, setup, name)) for name, peer in found.get("peers", {}).items()]
    return [row for row in rows if row[2].rows or row[2].errors]


def compared(found: dict[str, Any], setup: str) -> str:
    columns = ["library", "chains", "warm-up + draws", "s to answer", "compile, s", "warm-up, s", "sampling, s"]
    columns += [
        "gradients",
        "µs per gradient",
        "worst R-hat",
        "lowest ESS",
        "ESS/s after warm-up",
        "ESS/s overall",
        "MiB",
        "k",
    ]
    rows = []
    for _, peer, runs in peers_with(found, setup):
        if not runs.rows:
            rows.append([peer["label"], *["–"] * (len(columns) - 2), runs.errors[0]])
            continue
        warmup, draws = peer["sizes"]
        chains = runs.median("chains")
        all_gradients = [sum(row["gradients"].values()) for row in runs.rows]
        rows.append(
            [
                peer["label"],
                "–" if chains is None else int(chains),
                f"{warmup} + {draws}" if draws else "its own",
                runs.spread("seconds"),
                *(number(runs.median("phases", name)) for name in ("compile", "warmup", "sampling")),
                number(float(np.median(all_gradients))),
                runs.spread("microseconds_a_gradient"),
                rhat_of(runs),
                number(runs.median("ess")),
                number(runs.median("ess_a_second_after_warmup")),
                runs.spread("ess_a_second"),
                number(runs.median("peak_mib")),
                k_of(runs),
            ]
        )
    return table(columns, rows)


def trusted(found: dict[str, Any]) -> str:
    columns = ["library", "s from process start", "warm-up + draws per chain", "lowest ESS", "worst R-hat"]
    columns += ["met in", "k"]
    rows = []
    for _, peer, runs in peers_with(found, "trust"):
        met = Runs({}, "", "")
        met.rows = [row for row in runs.rows if row.get("trustworthy")]
        shown = met if met.rows else runs
        sizes = "its own"
        if shown.rows and "warmup" in shown.rows[0]:
            sizes = f"{shown.median('warmup'):,.0f} + {shown.median('draws'):,.0f}"
        seconds = met.spread("seconds") if met.rows else f"not within {number(runs.median('seconds'))}"
        count = f"{len(met.rows)} of {len(runs.rows)}"
        cells = [number(shown.median("ess")), rhat_of(shown), count, k_of(shown)]
        rows.append([peer["label"], seconds, sizes, *cells])
    return table(columns, rows)


def checked(found: dict[str, Any]) -> str:
    rows = []
    for name, peer in found.get("peers", {}).items():
        every = [value for setup in SETUPS for value in Runs(found, setup, name).values("log_density_difference")]
        env = found.get("environments", {}).get(peer["environment"], {})
        versions = ", ".join(f"{p} {v}" for p, v in env.get("versions", {}).items() if p != "numpy")
        apart = number(max(every)) if every else "a loss, not a density" if name == "deepxde_pinn" else "not run"
        rows.append([peer["label"], peer["lines"], apart, env.get("error", versions)])
    return table(["library", "lines of user code", "relative difference of log density from ours", "versions"], rows)


def headline(found: dict[str, Any]) -> list[str]:
    """One sentence per result, computed from the tables."""
    lines = []
    ours = Runs(found, "one", "bpinn").median("ess_a_second")
    others = {
        peer["label"]: runs.median("ess_a_second")
        for name, peer, runs in peers_with(found, "all")
        if not name.startswith("bpinn") and runs.median("ess_a_second")
    }
    if ours and others:
        best = max(others, key=lambda label: others[label])
        ratio = number(ours / others[best])
        lines.append(f"- ESS per second, start to answer, all cores: {ratio} times the best peer's ({best}).")
    for setup, words in (("one", "one process"), ("all", "one process per core")):
        same = Runs(found, setup, "bpinn_hmc50").median("microseconds_a_gradient")
        rest = {
            peer["label"]: runs.median("microseconds_a_gradient")
            for name, peer, runs in peers_with(found, setup)
            if not name.startswith(("bpinn", "deepxde")) and runs.rows
        }
        if same and rest:
            best = min(rest, key=lambda label: rest[label])
            lines.append(
                f"- One gradient, same settings, {words}: {number(same)} µs against {number(rest[best])} µs "
                f"for the fastest peer ({best})."
            )
    seconds = {
        name: float(np.median([r["seconds"] for r in runs.rows if r.get("trustworthy")]))
        for name, _, runs in peers_with(found, "trust")
        if any(r.get("trustworthy") for r in runs.rows)
    }
    if "bpinn" in seconds and len(seconds) > 1:
        label, best = min(((n, s) for n, s in seconds.items() if n != "bpinn"), key=lambda item: item[1])
        lines.append(
            f"- From a cold start to an answer that can be trusted: {number(seconds['bpinn'])} s against "
            f"{number(best)} s for the fastest peer ({found['peers'][label]['label']})."
        )
    return lines


# Targets: the peer, and the required ratio of our effective samples per second to its own.
WANTED_TIMES = {
    "tfp_xla": 6, "tfp_graph": 20, "torch_hmc": 100, "numpyro_hmc": 15, "numpyro_nuts": 200, "blackjax_hmc": 6,
    "jno": 100,
}  # fmt: skip
WANTED_SECONDS, WANTED_SHARE = 15, 0.5
WANTED_STEPS = {"inverse_reaction_1d": 1.5, "allen_cahn_2d": 1.3}


def bars(found: dict[str, Any]) -> list[list[str]]:
    """Each target, the measured value, and whether the target is met."""
    rows = []

    def row(what: str, wanted: str, value: float | None, shown: str, met: bool) -> None:
        rows.append([what, wanted, "–" if value is None else shown, "–" if value is None else "yes" if met else "no"])

    ours = Runs(found, "one", "bpinn").median("ess_a_second_after_warmup")
    for name, times in WANTED_TIMES.items():
        theirs = Runs(found, "all", name).median("ess_a_second_after_warmup")
        ratio = ours / theirs if ours and theirs else None
        label = found.get("peers", {}).get(name, {}).get("label", name)
        what = f"ESS per second after warm-up, relative to {label} on all cores"
        row(what, f"{times}", ratio, number(ratio), bool(ratio and ratio >= times))
    ours = Runs(found, "trust", "bpinn").median("seconds")
    row(
        "cold start to a trustworthy answer, s",
        f"at most {WANTED_SECONDS}",
        ours,
        number(ours),
        bool(ours and ours <= WANTED_SECONDS),
    )
    fastest = min(
        (float(np.median(met)) for name, _, runs in peers_with(found, "trust") if name != "bpinn"
         for met in [[r["seconds"] for r in runs.rows if r.get("trustworthy")]] if met),
        default=None,
    )  # fmt: skip
    share = ours / fastest if ours and fastest else None
    row(
        "the same, relative to the fastest peer",
        f"at most {WANTED_SHARE}",
        share,
        number(share),
        bool(share and share <= WANTED_SHARE),
    )
    for part in found.get("floor", []):
        step = part["microseconds"]["ours"] / part["microseconds"]["c"]
        wanted = WANTED_STEPS.get(part["problem"], np.inf)
        row(f"leapfrog step relative to C, {part['problem']}", f"at most {wanted}", step, f"{step:.2f}", step <= wanted)
    for cells in found.get("kl", {}).get("rows", []):
        if cells[1] == "HMC.paper()":
            row(f"KL-HMC, the paper's settings, noise {cells[0]}, s", "under 20", 1.0, cells[6], float(cells[6]) < 20)
    for cells in found.get("two_dimensions", {}).get("rows", []):
        named = dict(zip(found["two_dimensions"]["columns"], cells, strict=True))
        if "," not in named["chains"]:
            continue  # a single chain on its solution: there is no other to agree with
        met = float(named["R-hat"]) < 1.01 and float(named["ESS"]) > 400 and float(named["seconds"]) < 900
        shown = f"{named['R-hat']}, {named['ESS']}, {named['seconds']} s"
        what = f"{named['problem']}, noise {named['noise']}, chains {named['chains']}: R-hat, ESS, seconds"
        row(what, "1.01, 400, 900 s", 1.0, shown, met)
    return rows


def floor_table(found: dict[str, Any]) -> str:
    rows = []
    for row in found["floor"]:
        c, products, ours = (row["microseconds"][key] for key in ("c", "products", "ours"))
        cells = [number(c), number(products), number(ours), f"{ours / c:.2f}", f"{ours / products:.2f}"]
        rows.append([row["problem"], *cells, number(row["relative_difference"]["gradient"])])
    columns = ["problem", "C, µs per step", "products and tanh in C, µs", "ours, µs", "ours / C", "ours / products"]
    return table([*columns, "difference of gradients"], rows)


def scaling_tables(found: dict[str, Any]) -> str:
    parts = []
    for name, part in found["scaling"]["gradients"].items():
        columns = [name, *part["sizes"], "slope"]
        parts.append(table(columns, [["µs", *map(number, part["microseconds"]), f"{part['slope']:.2f}"]]))
    rows = [
        [
            r["chains"], r["cores"], r["draws"], "all, on disk" if r.get("disk") else r["keep"] or "all",
            number(r["seconds"]),
            f"{r['gradients'] / r['seconds']:,.0f}", number(r["peak_mib"]),
        ]
        for r in found["scaling"]["sampling"]
    ]  # fmt: skip
    columns = ["chains", "cores", "draws", "kept", "s", "gradients per second", "peak MiB"]
    return "\n\n".join([*parts, table(columns, rows)])


def memory_of(found: dict[str, Any]) -> str:
    """How peak memory grows from the fewest to the most draws: all in memory, on disk, and with `keep=`."""
    said = []
    kinds = (((False, False), "all draws held"), ((False, True), "draws on disk (`out=`)"), ((True, False), "`keep=`"))
    for kind, words in kinds:
        rows = [
            r
            for r in found["scaling"]["sampling"]
            if r["num_leapfrog"] == 2 and (bool(r["keep"]), bool(r.get("disk"))) == kind
        ]
        if len(rows) > 1:
            grown = rows[-1]["peak_mib"] - rows[0]["peak_mib"]
            said.append(f"{grown:+.0f} MiB with {words}")
    if not said:
        return ""
    return f"From {rows[0]['draws']:,} to {rows[-1]['draws']:,} draws peak memory changed by {', '.join(said)}."


# --- figures ---


def figure_of_peers(found: dict[str, Any], path: Path) -> bool:
    rates = [("bpinn, default", Runs(found, "one", "bpinn").median("ess_a_second"), True)]
    rates += [
        (peer["label"], runs.median("ess_a_second"), name.startswith("bpinn"))
        for name, peer, runs in peers_with(found, "all")
    ]
    seconds = [
        (peer["label"], runs.median("seconds"), name.startswith("bpinn"))
        for name, peer, runs in peers_with(found, "trust")
        if any(row.get("trustworthy") for row in runs.rows)
    ]
    panels = [("effective samples per second, from start to answer", rates)]
    panels += [("seconds from a cold start to R-hat < 1.01, ESS > 400", seconds)]
    panels = [(title, [bar for bar in bars if bar[1]]) for title, bars in panels]
    if not any(bars for _, bars in panels):
        return False
    drawn = [partial(draw_bars, title=title, bars=bars) for title, bars in panels]
    drawing.figure(drawn, 2, (5.0, 3.2)).savefig(path, dpi=110)
    return True


def draw_bars(ax: Axes, title: str, bars: Sequence[tuple[str, float, bool]]) -> None:
    labels, values, ours = zip(*reversed(bars), strict=True) if bars else ((), (), ())
    drawn = ax.barh(labels, values, color=[drawing.OURS if own else drawing.THEIRS for own in ours])
    ax.bar_label(drawn, [number(v) for v in values], padding=3, fontsize=9)
    ax.set_xlabel(title, fontsize=10)
    if bars:
        drawing.scale_bars(ax, values)


def figure_of_scaling(found: dict[str, Any], path: Path) -> None:
    studies = found["scaling"]["gradients"]
    panels = [partial(draw_scaling, name=name, part=part) for name, part in studies.items()]
    drawing.figure(panels, len(panels), (2.3, 2.6), one_y="all").savefig(path, dpi=110)


def draw_scaling(ax: Axes, name: str, part: dict[str, Any]) -> None:
    ax.loglog(part["sizes"], part["microseconds"], "o-", color=drawing.OURS, markersize=4)
    ax.set_xticks(part["sizes"], [str(size) for size in part["sizes"]], fontsize=8)
    ax.minorticks_off()
    ax.set(xlabel=name, ylabel="µs per gradient", title=f"slope {part['slope']:.2f}")


# --- the page ---


def page(found: dict[str, Any], folder: Path) -> str:
    m = found.get("machine", {})
    lines = ["# Performance", ""]
    lines += [
        prose(
            f"Measured on {found.get('date', 'an unknown day')} on {m.get('cores', '?')} cores of "
            f"{m.get('processor', 'an unknown processor')} with {m.get('memory_gib', '?')} GiB, {m.get('system', '')}, "
            f"Python {m.get('python', '?')}; the load before the run was "
            f"{m.get('load_before', '?')}. Absolute "
            "numbers differ between machines, and between days on one machine: compare ratios within one run. "
            "`make bench` repeats all measurements and writes this page from `benchmarks/results.json`."
        ),
        "",
    ]
    if found.get("quick"):
        lines += ["**This is a smoke test with few transitions; its numbers mean nothing.**", ""]
    if found.get("runs"):
        lines += peers_section(found)
        if figure_of_peers(found, folder / "performance.png"):
            lines += ["![bpinn and its peers](performance.png)", ""]
    aims = bars(found)
    if aims:
        lines += ["## Targets", "", table(["what", "target", "measured", "met"], aims), ""]
        lines += [
            prose(
                "bpinn runs with default settings in one process, which uses all cores; peers run one process per "
                "core. [journal.md](journal.md) has what was tried where a target is not met. The cold start was "
                "shortened after these runs; [sampling.md](sampling.md) has its times on another machine."
            ),
            "",
        ]
    if "two_dimensions" in found:
        part = found["two_dimensions"]
        lines += ["## Two dimensions", "", prose(TWO_DIMENSIONS), ""]
        lines += [table(part["columns"], part["rows"]), ""]
    if "kl" in found:
        lines += ["## A Karhunen-Loève field", "", "From `benchmarks/kl.py`; the paper's authors needed 4 minutes:", ""]
        lines += [table(found["kl"]["columns"], found["kl"]["rows"]), ""]
    if "floor" in found:
        lines += ["## Distance from the machine's limit", ""]
        lines += [
            prose(
                "`benchmarks/floor.c` is one gradient and leapfrog step in hand-written C, checked against ours, on "
                "one core. Its matrix products and tanh are also timed alone."
            ),
            "",
            floor_table(found),
            "",
        ]
    if "gradient" in found:
        lines += ["## Compared with nested jax.grad", "", "`benchmarks/gradient.py`, in the same leapfrog loop:", ""]
        lines += [table(found["gradient"]["columns"], found["gradient"]["rows"]), ""]
    if "scaling" in found:
        figure_of_scaling(found, folder / "scaling.png")
        lines += ["## How the cost grows", ""]
        lines += [
            prose(
                "One gradient on one core, varying one parameter at a time from width 50, two hidden layers, 128 "
                "sensors, one coordinate and second order. Slopes are of log cost against log size, over the larger "
                "half of the sizes."
            ),
            "",
            "![Cost of a gradient](scaling.png)",
            "",
            f"Sampling the 1D inverse problem, without compilation. {memory_of(found)}",
            "",
            scaling_tables(found),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def peers_section(found: dict[str, Any]) -> list[str]:
    failures = [
        f"- {peer['label']} ({setup}): {error}"
        for setup in SETUPS
        for _, peer, runs in peers_with(found, setup)
        for error in runs.errors
    ]
    lines = ["## Compared with other libraries", ""]
    lines += [
        prose(
            "The paper's 1D inverse problem at noise 0.1: 40 readings, 2,702 parameters, the same posterior for all "
            "libraries in float32 (log densities at three vectors are compared below). Each library has one script in "
            "`benchmarks/peers`, as a user would write it, with 50 leapfrog steps where it offers HMC. In the first "
            "two tables peers start at draws from the posterior, so that the tables compare how fast they sample it. "
            "In the third they start at draws from the prior. bpinn's chains always start from the prior and anneal "
            "the likelihood during warm-up."
        ),
        "",
        prose(
            "ESS is the smaller of bulk and tail, the minimum over k and u at 11 points. Values are medians over "
            "repeats, with minimum and maximum in brackets; runs are interleaved. Seconds count from the start of the "
            "process and include imports and compilation (for TensorFlow compilation is part of the warm-up, for "
            "DeepXDE of the training). bpinn's default is four chains on all cores, with the trajectory length that "
            "warm-up finds; the row with 50 steps has the same settings as the peers. PyTorch's fixed step size of "
            "6e-4 was found beforehand, and that search is not included. The DeepXDE row is a deterministic PINN with "
            "a single value of k and no error bars."
        ),
        "",
        *headline(found),
        "",
    ]
    for setup in ("one", "all"):
        if peers_with(found, setup):
            lines += [f"### {SETUPS[setup]}", "", compared(found, setup), ""]
    if peers_with(found, "trust"):
        lines += [
            f"### {SETUPS['trust']}",
            "",
            prose(
                "Four chains, until R-hat < 1.01 and ESS > 400 for k and u at 11 points. Peers distribute their chains "
                "over the cores and try 500 + 1000 transitions, then twice as many, and so on. Only the try that meets "
                "the criterion counts."
            ),
            "",
            trusted(found),
            "",
        ]
    lines += ["### Scripts and checks", "", checked(found), ""]
    if failures:
        lines += ["Runs that failed:", "", *failures, ""]
    return lines


def write(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(results.load(path), target.parent))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=results.DEFAULT)
    parser.add_argument("--page", type=Path, default=results.HERE.parent / "docs" / "performance.md")
    given = parser.parse_args()
    if not given.results.exists():
        raise SystemExit(f"write_page: {given.results} does not exist; run `make bench` first")
    write(given.results, given.page)
    print(f"wrote {given.page}")
