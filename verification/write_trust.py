"""Write docs/trust.md and its figure from verification/results.json and the simulations that run.py stored.

This runs no inference.

python verification/write_trust.py [--results verification/results.json] [--page docs/trust.md]
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

HERE = Path(__file__).parent
TWO_STORED = HERE / "two_solutions.json"
sys.path.insert(0, str(HERE.parent / "benchmarks"))
import references
from problems import PROBLEMS
from results import load
from run import CASES, LEVEL, PAPER_SD, PARTS, false_alarms, is_wrong, sources
from scipy import stats
from write_page import prose, table

from bpinn.calibration import Calibration
from bpinn.plot import drawing, views
from bpinn.run_folder.files import read_arrays

INTRODUCTION = """
Error bars are a claim; this page is the evidence for ours. It is written from `verification/results.json`, which
`make verify` regenerates. That command fails if a sampler's posterior is wrong.
"""
CALIBRATION = """
We draw truths from the prior, draw readings from the truths, and infer each data set as if it were real. If the
posterior is correct, the truth is distributed like its draws: its rank among them is uniform, and a central interval
of probability p contains it with probability p. We rank every field and equation at points across the domain, every
unknown, inferred noise and inferred scale, and the log likelihood, which is the most sensitive to an error in its
scale. A quantity is "outside" if its ranks leave the band that contains the whole curve of uniform ranks with a
probability of 95%; of twenty quantities, about one does so by chance. A wider band contains the curves of all
quantities together with that probability, and "all inside" says whether it does. "p" belongs to the worst quantity,
corrected for the number of quantities. Problem (b) has twice as many simulations. We decided that after 200
simulations, with an earlier version of the sampler, had 5 of 24 quantities outside.
"""
FAULTS = """
Would calibration find an error? We injected two: noise assumed 10% larger than it is, and a missing Jacobian of
constrained unknowns. The same simulations must then report that the posterior is wrong.
"""
HEALTH = """
We injected each fault into runs on data sets of a small inverse problem (`verification/faults.py`) and read the
verdict. "Named" counts the runs in which the verdict gave this reason and this advice. The first row has no fault;
there "named" counts the runs with the verdict good. [health.md](health.md) lists what each check looks at.
"""
MISHAPS = """
Each fault was injected into a real process that ran in a folder (`infer(out=...)`), at a random time
(`verification/mishaps.py`). "Reported" counts the trials in which the process reported it in one sentence; a killed
process cannot. "Identical" counts the trials in which the resumed run ended with bit for bit the draws of an
uninterrupted run. A flipped bit is not reported where it changes nothing, such as the date of a file. The tests
inject further errors: memory that runs out between any two blocks, a clock that goes backwards, Ctrl-C in every phase
from compiling to saving. These runs use threads; [clusters.md](clusters.md) says what happens if a worker process
dies.
"""
SOLUTIONS = """
Where an equation has several solutions that fit, each chain stays on the one it found, and `diagnose()` says so.
`bp.SMC` estimates their probabilities with independent populations, whose disagreement gives the error; populations
are added until it is small. A solution that no population found is not in it. This table has the paper's nonlinear
problems (`python verification/solutions.py`) with few particles, only moved (`waste_free=False`), and no populations
added. Four other settings, with 16 populations each, gave the first solution of nonlinear-1d-0.01 63% ± 25%, 82% ±
8%, 90% ± 8% and 99% ± 1% ([journal.md](journal.md)): a population that finds another solution is rare, and then has a
large weight, so that an error is too small where none did. No independent method has decided between them. Where the
populations disagree, the verdict says so, and the probabilities are only a rough estimate. At noise 0.1 the nonlinear
Poisson problem has one wide solution. For Allen-Cahn all populations find the true solution and nothing else, yet one
of four HMC chains was on another: all particles of a population eventually descend from one draw of the prior, and a
rare solution is lost on the way. With three times as many particles (120, after 40 at first) and trajectories longer
by a third, the populations agree in u (R-hat 1.11 after 1.43), but not in the evidence.
"""
TWO = """
On a problem with two solutions, whose probabilities and evidence quadrature knows, `bp.SMC()` was repeated with other
seeds (`python verification/two_solutions.py`). At least 90 of 100 runs must have the probability within two stated
standard deviations, which must be at most 0.03. The error of the evidence has no such limit: the tempering steps are
chosen from the same particles that they weigh, which makes the evidence a little too large.
"""
COVERAGE = """
The paper has one truth, so calibration guarantees nothing here; we report coverage for information. For the 1D
inverse problem the table has the number of data sets in which central intervals of k contain the true 0.7 (with the
range expected by chance), and the mean share of the domain on which bands contain the true u. The standard deviation
of k is the mean over runs (smallest to largest), next to the paper's for its own data. We require R-hat below 1.01
and ESS above 400 for u at 11 points and k in every run, each standard deviation within 30% of the paper's, and the
truth within two of them in eight of ten runs.
"""
REFERENCES = """
These are long runs of two samplers on the paper's one-dimensional problems (`verification/references.json`): our HMC,
and adjusted microcanonical Hamiltonian dynamics (blackjax's MCLMC), which has different dynamics and is not our code.
Each runs until R-hat is below 1.005 and ESS above 4,000. Distances are the largest over u at 11 points and k: for
means in standard deviations, for standard deviations relative, and in brackets, where measured, for half the central
68% interval. Where tails are heavy, with a kurtosis above 10 (a normal distribution has 3), thousands of draws do not
determine a standard deviation to 7%, and runs of the same sampler differ by more. There we compare intervals instead,
also to 7%; we decided this after seeing that the standard deviations differed. The nonlinear Poisson problem has no
reference, because neither sampler explores all of its posterior; see below.
"""
DEFAULTS = """
The next table has samplers with default settings, each run by itself and all runs together. Together they must be
within 0.1 sd and 7% (of the intervals where tails are heavy). An estimate from n effective samples is off by 1/√n of
a standard deviation by chance alone: by 0.05 for the required 400, and the worst of twelve by twice that. `SMC()`,
which is meant for weighing solutions, is about ten times slower. Its rows come from `python verification/run.py
--only references --samplers SMC`, which applies the same limits; `make verify` does not repeat them. With one run of
800 particles it was beyond 7% on two of the five problems, as single runs of the others are. We decided to take two
runs together after seeing that.
"""


def what_it_took(found: dict[str, Any], changed: str) -> str:
    """How long each part took, and which parts older sources produced, with a sentence on what has changed."""
    seconds, made_by = found.get("seconds", {}), found.get("sources", {})
    parts = ", ".join(f"{name} {value / 60:.0f}" for name, value in seconds.items())
    there = [name for name in PARTS if name in found or name in made_by] + list(found.get("faults", {}))
    old = [name for name in there if made_by.get(name) != sources()]
    shorts = {label: short for row in found.get("references", []) for label, short in row["default"].items()}
    if "references" not in old:
        old += [f"references of {label}()" for label, short in shorts.items() if short.get("sources") != sources()]
    told = f"Minutes on two cores: {sum(seconds.values()) / 60:.0f}, of which {parts}." if seconds else ""
    return f"{told} Measured before the last change of the sources: {', '.join(old)}. {changed}" if old else told


def letters() -> list[str]:
    """A list of the problems, from their docstrings."""
    return [f"- {' '.join((make.__doc__ or '').split())}" for make in PROBLEMS.values()]


def calibration_rows(found: dict[str, Any]) -> list[list[str]]:
    rows, order = [], [case.name for case in CASES]
    for row in (found[name] for name in order if name in found):
        shares = [f"{row['coverage']['all'][p][0]:.0%}" for p in ("0.5", "0.8", "0.95")]
        verdicts = row["verdicts"]
        worst = max(row["bias"], key=lambda name: abs(row["bias"][name]))
        rows.append([
            f"({row['problem']})", row["label"], str(row["simulations"]), f"{row['outside']} of {len(row['evidence'])}",
            "yes" if row["corrected"] >= LEVEL else "no", f"{row['corrected']:.3f}", row["worst"], *shares,
            f"{row['bias'][worst]:+.2f} sd ({worst})",
            f"{verdicts['good']} / {verdicts['care']} / {verdicts['bad']}", f"{row['seconds']:.0f}",
        ])  # fmt: skip
    return rows


CALIBRATION_COLUMNS = [
    "problem", "method", "simulations", "outside", "all inside", "p", "worst", "in 50%", "in 80%", "in 95%",
    "largest bias", "good / care / bad", "seconds",
]  # fmt: skip


def coverage_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in found:
        for p, held in row["k"].items():
            low, high = stats.binom.ppf([0.025, 0.975], row["seeds"], float(p))
            expected = f"{low:.0f} to {high:.0f}"
            sds = f"{np.mean(row['sds']):.4f} ({min(row['sds']):.4f}–{max(row['sds']):.4f}), {PAPER_SD[row['noise']]}"
            rows.append([
                f"{row['noise']:g}", f"{float(p):.0%}", f"{held} of {row['seeds']}", expected, f"{row['u'][p]:.0%}",
                " / ".join(str(n) for n in row["verdicts"].values()), f"{row['rhat']:.4f}", f"{row['ess']:.0f}", sds,
            ])  # fmt: skip
    return rows


REFERENCE_COLUMNS = ["problem and noise", "HMC, ESS (R-hat)", "MCLMC, ESS (R-hat)", "largest kurtosis", "apart"]
DEFAULT_COLUMNS = ["problem and noise", "method", "runs", "ESS", "verdicts", "seconds", "off", "together"]


def off(apart: dict[str, float]) -> str:
    spread = f" ({apart['spread']:.1%})" if "spread" in apart else ""
    return f"{apart['mean']:.3f} sd, {apart['sd']:.1%}{spread}"


def reference_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in found:
        long = [f"{r['ess']:.0f} ({r['rhat']:.4f})" for r in row["long"].values()]
        kurtosis = [f"{r['kurtosis']:.0f}" for r in row["long"].values() if "kurtosis" in r]
        rows.append([row["name"], *long, ", ".join(kurtosis) or "not measured", off(row["samplers_apart"])])
    return rows


def default_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for label in ("HMC", "NUTS", "SMC"):
        for row in found:
            if label in row["default"]:
                short = row["default"][label]
                each = [[f"{r['ess']:.0f}", r["verdict"], f"{r['seconds']:.0f}"] for r in short["runs"]]
                told = [", ".join(cells) for cells in zip(*each, strict=True)]
                apart = "; ".join(off(r["apart"]) for r in short["runs"])
                rows.append([row["name"], f"`{label}()`", str(len(each)), *told, apart, off(short["together"])])
    return rows


def figure(found: dict[str, Any], work: Path, path: Path) -> bool:
    """The rank curves of all quantities minus the uniform one, for HMC on each problem."""
    shown = [row for row in found.values() if row["exact"] and (work / f"{row['problem']}-hmc").is_dir()]
    if not shown:
        return False
    panels = [partial(draw_ranks, row=row, folder=work / f"{row['problem']}-hmc") for row in shown]
    canvas = drawing.figure(panels, len(panels), (2.7, 2.7), one_x=True, one_y="all")
    canvas.savefig(path, dpi=110)
    return True


def draw_ranks(ax: Axes, row: dict[str, Any], folder: Path) -> None:
    parts = [read_arrays(folder / f"simulation-{i}.npz") for i in range(row["simulations"])]
    names = tuple(row["evidence"])
    kept = Calibration(
        names, np.stack([p["truth"] for p in parts]), np.stack([p["draws"] for p in parts]), ("good",) * len(parts)
    )
    for level, shade, label in ((LEVEL / len(names), "0.92", "95% of all curves"), (LEVEL, "0.84", "95% of each")):
        points, low, high = kept.band(level)
        ax.fill_between(points, low - points, high - points, color=shade, lw=0, label=label)
    colours = {"k": drawing.ORANGE, "log likelihood": drawing.BLACK}
    for i, name in enumerate(names):
        curve = np.mean(kept.pit[:, [i]] <= points, axis=0) - points
        if name in colours or name.startswith(("noise_", "length_", "amplitude_", "weight_sd_")):
            label = views.math(name) if name in colours else "noise or scale"
            ax.plot(points, curve, color=colours.get(name, drawing.SOLUTIONS), lw=1.4, label=label, zorder=3)
        else:
            ax.plot(points, curve, color=drawing.BLUE, lw=0.6, alpha=0.5, label="fields and equations")
    drawing.name_ranks(ax)
    ax.set_title(f"({row['problem']}) {row['simulations']} simulations")


def page(found: dict[str, Any], solutions: dict[str, Any], work: Path, folder: Path, changed: str = "") -> str:
    lines = ["# Can the error bars be trusted?", "", prose(f"{INTRODUCTION} {what_it_took(found, changed)}"), ""]
    if "sbc" in found:
        lines += ["## Calibration", "", prose(CALIBRATION), "", "The problems:", "", *letters(), ""]
        lines += [table(CALIBRATION_COLUMNS, calibration_rows(found["sbc"])), ""]
        # Without the simulations on this machine, the stored figure stays.
        if figure(found["sbc"], work, folder / "trust.png") or (folder / "trust.png").exists():
            lines += ["![Ranks of the truth among draws of HMC](trust.png)", ""]
        alarms, total = false_alarms(found["sbc"])
        told = f"is a false alarm or a run that has not converged: {alarms} of {total}."
        lines += [
            prose(f"All these data sets match their models, so a verdict other than good {told}"),
            "",
        ]
    if "faults" in found:
        lines += ["## Fault injection", "", prose(FAULTS), ""]
        rows = [[name, f"({row['problem']})", str(row["simulations"]), f"{row['outside']} of {len(row['evidence'])}",
                 row["worst"], f"{row['corrected']:.4f}", "yes" if is_wrong(row) else "no"]
                for name, row in found["faults"].items()]  # fmt: skip
        lines += [table(["injected error", "problem", "simulations", "outside", "worst", "p", "found"], rows), ""]
    if "health" in found:
        lines += ["## Faults that the verdict names", "", prose(HEALTH), ""]
        rows = [[row["fault"], f"{row['named']} of {row['of']}", *(str(n) for n in row["verdicts"].values()),
                 row["advice"]] for row in found["health"]]  # fmt: skip
        lines += [table(["fault", "named", "good", "care", "bad", "advice"], rows), ""]
    if found.get("mishaps"):
        lines += ["## Interruptions and damaged files", "", prose(MISHAPS), ""]
        rows = [[row["about"], "–" if row["told"] is None else f"{row['told']} of {row['trials']}",
                 f"{row['same']} of {row['trials']}", row["example"].strip()] for row in found["mishaps"]]  # fmt: skip
        lines += [table(["fault", "reported", "identical", "message"], rows), ""]
    if "coverage" in found:
        lines += ["## The paper's truth", "", prose(COVERAGE), ""]
        columns = [
            "noise",
            "interval",
            "k inside",
            "by chance",
            "share of u inside",
            "good / care / bad",
            "largest R-hat",
            "least ESS",
            "sd of k, the paper's",
        ]
        lines += [table(columns, coverage_rows(found["coverage"])), ""]
    if found.get("references"):
        lines += ["## Long runs", "", prose(REFERENCES), ""]
        lines += [table(REFERENCE_COLUMNS, reference_rows(found["references"])), ""]
        lines += [prose(DEFAULTS), "", table(DEFAULT_COLUMNS, default_rows(found["references"])), ""]
        there = {row["name"] for row in found["references"]}
        missing = [name for name, _ in references.cases() if name not in there]
        if missing:
            lines += [prose(f"Not run yet (`python verification/references.py`): {', '.join(missing)}."), ""]
    if solutions:
        lines += ["## Several solutions", "", prose(SOLUTIONS), ""]
        columns = ["problem and noise", "solution", "probability", "error of u", "u within 2 sd", "where it differs"]
        lines += [table(columns, solution_rows(solutions)), ""]
        for name, row in solutions.items():
            evidence = np.array(row["log_evidence"])
            told = f"log evidence {evidence.mean():.1f} ± {evidence.std(ddof=1) / len(evidence) ** 0.5:.1f}"
            cost = f"{row['seconds']:.0f} s, {row['strengthenings']} tempering steps"
            lines += [f"- {name}: {cost}, {told}; verdict: {row['verdict']}."]
        lines += [""]
    if TWO_STORED.exists():
        rows = [
            [name, f"{row['probability']:.3f}", f"{row['mean_probability']:.3f} ± {row['mean_probability_error']:.3f}",
             f"{row['within_two_sd']} of {row['runs']}", f"{row['largest_sd']:.3f}", f"{row['rms_error']:.3f}",
             f"{row['evidence_ratio']:.3f} ± {row['evidence_ratio_error']:.3f}",
             f"{row['evidence_within_two_sd']} of {row['runs']}", f"{row['populations']:.1f}"]
            for name, row in load(TWO_STORED).items()
        ]  # fmt: skip
        columns = ["readings", "probability", "mean of the runs", "within two sds", "largest sd", "true error, rms",
                   "evidence over exact", "evidence within two sds", "populations"]  # fmt: skip
        lines += [prose(TWO), "", table(columns, rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def solution_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, row in found.items():
        for number, mode in enumerate(row["modes"], 1):
            weight = f"{mode['probability']:.0%} ± {mode['error'] or 0.0:.0%}"
            where = mode["told"].split("differs most in ")[1] if "differs" in mode["told"] else ""
            rows.append([name, str(number), weight, f"{mode['error_of_u']:.1%}", f"{mode['within_two_sd']:.0%}", where])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument("--work", type=Path, default=HERE / "work" / sources())
    parser.add_argument("--changed", default="", help="a sentence on what has changed in the sources since then")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "trust.md")
    given = parser.parse_args()
    text = page(load(given.results), load(HERE / "solutions.json"), given.work, given.page.parent, given.changed)
    given.page.write_text(text)
    print(f"wrote {given.page}")


if __name__ == "__main__":
    main()
