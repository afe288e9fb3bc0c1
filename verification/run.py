"""Are the posteriors correct? Evidence from simulations and long reference runs, for docs/trust.md.

    python verification/run.py [--only sbc health mishaps coverage references tests] [--fault likelihood]

Finished simulations and runs are stored in verification/work under the fingerprint of the sources that produced them;
the same command resumes from there. It fails if a sampler's posterior is wrong. With --fault it first injects an error,
which the simulations must find: "likelihood" assumes noise 10% larger than it is, "jacobian" omits the Jacobian of
constrained unknowns.
"""

import argparse
import ast
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import mishaps
import numpy as np
import references
from faults import FAULTS as ILLNESSES
from faults import HEALTHY
from problems import PROBLEMS
from results import load, save

import bpinn as bp
from bpinn.calibration import Calibration
from bpinn.likelihoods import LocationScale
from bpinn.parameters import Scalar

HERE = Path(__file__).parent
WRONG = 3  # exit code
LEVEL = 0.05
CERTAIN = 1e-3  # probability, after correction for the number of quantities, below which a posterior is called wrong
ALARMS = 0.02  # largest share of runs, on data sets that match their models, with a verdict other than good


def code(path: Path) -> bytes:
    """The code that runs: Python without comments and docstrings, so that editing those keeps all results valid."""
    if path.suffix != ".py":
        return path.read_bytes()
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.unparse(tree).encode()


def fingerprint(*places: str) -> str:
    """A hash of these files of the project; folders include everything in them."""
    root = HERE.parent
    found = [path for place in places for path in [root / place, *(root / place).rglob("*")]]
    digest = hashlib.sha256()
    for path in sorted(path for path in found if path.suffix in (".py", ".c", ".h", ".txt")):
        digest.update(path.relative_to(root).as_posix().encode() + code(path))
    return digest.hexdigest()[:12]


def sources() -> str:
    """A hash of everything that results depend on, so that results of other sources are not reused."""
    parts = ("run", "problems", "faults", "mishaps", "references")
    return fingerprint("src/bpinn", "constraints.txt", *(f"verification/{name}.py" for name in parts))


@dataclass(frozen=True)
class Case:
    """A method on one of the problems; ``exact`` ones must be calibrated, others are only reported."""

    problem: str
    label: str
    method: bp.Method
    exact: bool = False
    times: int = 1  # multiplies the number of simulations

    @property
    def name(self) -> str:
        return f"{self.problem}-{self.label.lower().replace(' ', '-')}"


CASES = [
    # Twice as many for networks: ranks at neighbouring points are correlated, so chance affects several at once.
    *(Case(letter, "HMC", bp.HMC(), True, 2 if letter == "b" else 1) for letter in PROBLEMS),
    Case("a", "VI full-rank", bp.VI(family="full-rank", init_steps=5000, num_steps=5000)),
    Case("a", "VI mean-field", bp.VI(init_steps=5000, num_steps=5000)),
    Case("b", "VI mean-field", bp.VI(init_steps=5000, num_steps=5000)),
    Case("c", "VI full-rank", bp.VI(family="full-rank", init_steps=5000, num_steps=5000)),
    Case("d", "VI full-rank", bp.VI(family="full-rank", init_steps=5000, num_steps=5000)),
    *(Case(letter, "flow", bp.Flow(num_steps=3000)) for letter in "abcd"),
    Case("b", "dropout 5%", bp.Dropout(rate=0.05, num_steps=10_000, num_draws=500, last=500)),
]


# --- fault injection: errors that calibration must find ---


def break_likelihood() -> None:
    right = LocationScale.prepare

    def wrong(self: LocationScale, values: np.ndarray, scale: np.ndarray | None) -> dict[str, np.ndarray]:
        prepared = right(self, values, scale)
        return prepared | ({"precision": prepared["precision"] / 1.1} if scale is not None else {})

    LocationScale.prepare = wrong  # type: ignore[method-assign]


def break_jacobian() -> None:
    Scalar.log_prior = lambda self, z: jnp.sum(self.prior.log_prob(self.constrain(z)))  # type: ignore[method-assign]


FAULTS = {"likelihood": ("a", break_likelihood), "jacobian": ("c", break_jacobian)}


# --- calibration ---


def calibrate(case: Case, simulations: int, folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    found = bp.calibration.sbc(
        PROBLEMS[case.problem](), case.method, simulations=simulations, out=folder, progress=False
    )
    return judged(case, found) | {"seconds": time.perf_counter() - began}


def judged(case: Case, found: Calibration) -> dict[str, Any]:
    """The outcome: evidence against uniform ranks of each quantity, coverage, and verdicts."""
    evidence = {name: found.evidence(name) for name in found.names}
    worst = min(evidence, key=lambda name: evidence[name])
    return {
        "problem": case.problem,
        "label": case.label,
        "exact": case.exact,
        "simulations": found.simulations,
        "evidence": evidence,
        "outside": sum(p < LEVEL for p in evidence.values()),
        "worst": worst,
        "corrected": min(1.0, evidence[worst] * len(evidence)),
        "coverage": {
            name: {str(p): list(vars(found.coverage(p, columns)).values())[1:] for p in (0.5, 0.8, 0.95)}
            for name, columns in {"all": None, **{n: [n] for n in found.names}}.items()
        },
        "bias": dict(zip(found.names, found.bias.tolist(), strict=True)),
        "contraction": dict(zip(found.names, found.contraction.tolist(), strict=True)),
        "verdicts": {v: found.verdicts.count(v) for v in ("good", "care", "bad")},
    }


def is_wrong(row: dict[str, Any]) -> bool:
    """A simulated probability cannot resolve less than one over the number of simulations; zero means that."""
    return row["corrected"] < CERTAIN


def false_alarms(found: dict[str, Any]) -> tuple[int, int]:
    """How many runs of exact methods have a verdict other than good, although their data sets match their models."""
    exact = [row for row in found.values() if row["exact"]]
    return sum(row["simulations"] - row["verdicts"]["good"] for row in exact), sum(row["simulations"] for row in exact)


def told(row: dict[str, Any]) -> str:
    shares = ", ".join(f"{p}: {row['coverage']['all'][p][0]:.0%}" for p in ("0.5", "0.8", "0.95"))
    return (
        f"({row['problem']}) {row['label']}: {row['outside']} of {len(row['evidence'])} quantities outside their "
        f"95% bands, worst {row['worst']} (p = {row['corrected']:.3f} after correction); coverage {shares}; "
        f"verdicts {row['verdicts']}; {row['seconds']:.0f} s"
    )


# --- health ---


def count_named(seeds: int, folder: Path) -> list[dict[str, Any]]:
    """In how many data sets each fault is named, and in how many runs without a fault the verdict is good."""
    rows = []
    for fault in [HEALTHY, *ILLNESSES]:
        path = folder / f"{fault.name.replace(' ', '-')}-{seeds}.json"
        if not path.exists():
            found = [fault.health(seed) for seed in range(seeds)]
            named = sum(h.verdict == "good" if fault is HEALTHY else fault.is_named(h) for h in found)
            verdicts = [h.verdict for h in found]
            save(path, {"fault": fault.name, "named": named, "of": seeds, "verdicts": {v: verdicts.count(v) for v in
                         ("good", "care", "bad")}, "advice": fault.advice})  # fmt: skip
        rows.append(load(path))
    return rows


# --- the paper's truths ---


def cover(noise: float, seeds: int, folder: Path) -> dict[str, Any]:
    """How often intervals of k, and bands of u, contain the paper's own truth over data sets."""
    rows = []
    for seed in range(seeds):
        path = folder / f"inverse-1d-{noise:g}-{seed}.json"
        if not path.exists():
            paper = bp.paper.inverse_reaction_1d(noise=noise, seed=seed)
            result = bp.infer(paper.problem, seed=seed, progress=False)
            k, at = result.draws("k"), paper.problem.grid()
            known = references.moments(result.functionals[..., references.watched(paper.problem)])
            band, truth = result.predict("u", at), paper.truth.functions["u"](**at)
            held = {}
            for p in (0.5, 0.8, 0.95):
                low, high = np.quantile(k, [0.5 - p / 2, 0.5 + p / 2])
                low_u, high_u = band.interval(p)
                held[str(p)] = [bool(low <= 0.7 <= high), float(np.mean((low_u <= truth) & (truth <= high_u)))]
            row = {"held": held, "mean": float(k.mean()), "sd": float(k.std()), "verdict": result.diagnose().verdict}
            save(path, row | {key: known[key] for key in ("rhat", "ess")})
        rows.append(load(path))
    return {
        "noise": noise,
        "seeds": seeds,
        "k": {p: sum(row["held"][p][0] for row in rows) for p in rows[0]["held"]},
        "u": {p: float(np.mean([row["held"][p][1] for row in rows])) for p in rows[0]["held"]},
        "sds": [row["sd"] for row in rows],
        "near": sum(abs(row["mean"] - 0.7) < 2 * row["sd"] for row in rows),
        "rhat": max(row["rhat"] for row in rows),
        "ess": min(row["ess"] for row in rows),
        "verdicts": {v: sum(row["verdict"] == v for row in rows) for v in ("good", "care", "bad")},
    }


PAPER_SD = {0.01: 0.00575, 0.1: 0.0563}  # of k


def is_unlike_the_papers(row: dict[str, Any]) -> bool:
    """Coverage of a single truth is not guaranteed; convergence of all runs, to about the paper's spread, is."""
    spreads = np.abs(np.divide(row["sds"], PAPER_SD[row["noise"]]) - 1)
    return row["near"] < 0.8 * row["seeds"] or max(spreads) > 0.3 or row["rhat"] > 1.01 or row["ess"] < 400


# --- long runs ---

SAMPLERS = {"HMC": (bp.HMC(), 3), "NUTS": (bp.NUTS(), 2), "SMC": (bp.SMC(), 2)}  # by default settings; how many runs
ALWAYS = ("HMC", "NUTS")  # compared by default; SMC takes half an hour more, and runs on request


def short_runs(name: str, problem: bp.Problem, label: str, folder: Path) -> list[dict[str, Any]]:
    method, count = SAMPLERS[label]
    rows = []
    for seed in range(count):
        path = folder / f"{name}-{label}-{seed}.json"
        if not path.exists():
            began = time.perf_counter()
            result = bp.infer(problem, method, seed=seed, progress=False)
            row = references.moments(result.functionals[..., references.watched(problem)])
            save(path, row | {"verdict": result.diagnose().verdict, "seconds": time.perf_counter() - began})
        rows.append(load(path))
    return rows


def apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Largest distance of means in sds of the second, and of the ratios of sds (and spreads, if known) from one."""
    means = np.subtract(one["mean"], other["mean"])
    found = {"mean": float(np.max(np.abs(means / other["sd"])))}
    widths = [key for key in ("sd", "spread") if key in one and key in other]
    return found | {key: float(np.max(np.abs(np.divide(one[key], other[key]) - 1))) for key in widths}


LONG = tuple(references.SAMPLERS)


def missing_references() -> list[str]:
    stored = load(references.STORED)
    return [
        name
        for name, problem in references.cases()
        if name not in stored or not np.isclose(stored[name]["fingerprint"], references.fingerprint(problem))
    ]


def refer(labels: Iterable[str], folder: Path) -> Iterator[dict[str, Any]]:
    """Default settings against the stored references, for each run and for all runs together."""
    stored, missing = load(references.STORED), missing_references()
    for name, problem in references.cases():
        if name in missing:
            print(f"no current reference of {name}: run python verification/references.py --only {name}")
            continue
        kept = stored[name]
        row: dict[str, Any] = {"name": name, "samplers_apart": apart(kept["MCLMC"], kept["HMC"]), "default": {}}
        row["long"] = {s: {k: kept[s][k] for k in ("ess", "rhat", "kurtosis") if k in kept[s]} for s in LONG}
        for label in labels:
            runs = short_runs(name, problem, label, folder)
            means, sds = (np.array([run[key] for run in runs]) for key in ("mean", "sd"))
            together = {"mean": means.mean(axis=0), "sd": np.sqrt(np.mean(sds**2, axis=0) + means.var(axis=0))}
            if all("spread" in run for run in runs):
                together["spread"] = np.mean([run["spread"] for run in runs], axis=0)
            row["default"][label] = {
                "together": apart(together, kept["HMC"]),
                "ess": sum(run["ess"] for run in runs),
                "runs": [
                    {key: run[key] for key in ("ess", "rhat", "verdict", "seconds")}
                    | {"apart": apart(run, kept["HMC"])}
                    for run in runs
                ],
            }
        yield row


MEAN, SD = 0.1, 0.07  # tolerances for default settings
HEAVY = 10.0  # kurtosis above which thousands of draws do not determine an sd to 7%; then compare spreads instead


def is_heavy(row: dict[str, Any]) -> bool:
    return max(long.get("kurtosis", 3.0) for long in row["long"].values()) > HEAVY


def is_off(row: dict[str, Any]) -> list[str]:
    """What is wrong: samplers that differ by more than five standard errors, or all runs together out of tolerance."""
    error = np.sqrt(sum(1 / long["ess"] for long in row["long"].values()))
    wrong = [f"{row['name']}: long runs of two samplers disagree"] if row["samplers_apart"]["mean"] > 5 * error else []
    for label, short in row["default"].items():
        off, width = short["together"], "spread" if is_heavy(row) else "sd"
        if off["mean"] > MEAN or off[width] > SD:
            wrong.append(f"{row['name']}: {label}() is off by {off['mean']:.2f} sd, its {width}s by {off[width]:.0%}")
    return wrong


# --- all of it ---


class Verification:
    """The parts; each adds to the results file and returns what is wrong."""

    def __init__(self, given: argparse.Namespace):
        self.given = given
        self.sources = sources()  # as imported now, even if files change during the run
        self.results = load(given.results)
        if not given.work.exists():
            self.results.pop("seconds", None)  # from an earlier run

    def keep(self, name: str, part: Any) -> None:
        self.results[name] = part
        save(self.given.results, self.results)

    def sbc(self) -> list[str]:
        chosen = [case for case in CASES if self.given.cases is None or case.name in self.given.cases]
        wrong = [wrong for case in chosen for wrong in self._simulate(case, "sbc", case.name, case.name)]
        alarms, total = false_alarms({case.name: self.results["sbc"][case.name] for case in chosen})
        if alarms > ALARMS * total:
            wrong.append(f"{alarms} of {total} runs of HMC without a fault have a verdict other than good")
        return wrong

    def mistake(self, fault: str) -> list[str]:
        letter, make = FAULTS[fault]
        make()
        case = Case(letter, "HMC", bp.HMC(), True)
        return self._simulate(case, "faults", fault, f"{case.name}-{fault}")

    def _simulate(self, case: Case, kind: str, name: str, folder: str) -> list[str]:
        row = calibrate(case, case.times * self.given.simulations, self.given.work / folder)
        self.keep(kind, self.results.get(kind, {}) | {name: row})
        print(told(row), flush=True)
        return [f"({case.problem}) {case.label}"] if case.exact and is_wrong(row) else []

    def health(self) -> list[str]:
        rows = count_named(self.given.seeds, self.given.work / "health")
        self.keep("health", rows)
        for row in rows:
            print(f"{row['fault']}: named in {row['named']} of {row['of']}, {row['verdicts']}", flush=True)
        return [f"{row['fault']} is not named" for row in rows if row["named"] < 0.9 * row["of"]]

    def mishaps(self) -> list[str]:
        rows = []
        for row in mishaps.count(mishaps.MISHAPS, self.given.trials, self.given.work / "mishaps"):
            rows.append(row)
            self.keep("mishaps", rows)
            print(f"{row['about']}: reported {row['told']}, identical {row['same']} of {row['trials']}", flush=True)
        return [f"after {row['about']}, something is lost or not reported" for row in rows if row["wrong"]]

    def coverage(self) -> list[str]:
        self.keep("coverage", [cover(n, self.given.data_sets, self.given.work / "coverage") for n in (0.01, 0.1)])
        wrong = []
        for row in self.results["coverage"]:
            told = (
                f"inverse-1d at noise {row['noise']}: R-hat at most {row['rhat']:.4f}, ESS at least {row['ess']:.0f}; "
                f"sd of k {np.mean(row['sds']):.4f}, the paper's {PAPER_SD[row['noise']]}; within 2 sd {row['near']}"
            )
            print(f"{told}; intervals contain k in {row['k']} of {row['seeds']}, u on {row['u']}", flush=True)
            if is_unlike_the_papers(row):
                wrong.append(told)
        return wrong

    def references(self) -> list[str]:
        """Earlier results of samplers that are not requested now are kept."""
        rows = {row["name"]: row for row in self.results.get("references", [])}
        wrong = [f"there is no current reference of {name}" for name in missing_references()]
        for row in refer(self.given.samplers, self.given.work / "references"):
            for label, short in row["default"].items():
                short["sources"] = self.sources
                off = ", ".join(f"{key}s {value:.3f}" for key, value in short["together"].items())
                print(f"{row['name']}, {label}(), off by: {off}", flush=True)
            wrong += is_off(row)
            before = rows.get(row["name"], {"default": {}})["default"]
            rows[row["name"]] = row | {"default": before | row["default"]}
            self.keep("references", list(rows.values()))
        return wrong

    def tests(self) -> list[str]:
        """The slow tests, unless they have passed before."""
        passed = self.given.work / f"tests-passed-{fingerprint('tests', 'examples', 'benchmarks')}"
        if not passed.exists():
            command = ["-m", "pytest", "-m", "slow", "-n", "2", "--dist", "loadfile", "--durations", "30"]
            if subprocess.run([sys.executable, *command], cwd=HERE.parent).returncode:
                return ["slow tests fail"]
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()
        return []


PARTS = ("sbc", "health", "mishaps", "coverage", "references", "tests")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES], help="cases for sbc; default: all")
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=20, help="data sets for health")
    parser.add_argument("--data-sets", type=int, default=10, help="data sets with the paper's truth, for coverage")
    parser.add_argument("--trials", type=int, default=10, help="trials of each fault in mishaps")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=ALWAYS, help="compared with references")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--work", type=Path, default=HERE / "work" / sources())
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    verification = Verification(parser.parse_args())
    fault = verification.given.fault
    parts = {fault: partial(verification.mistake, fault)} if fault else {
        name: getattr(verification, name) for name in verification.given.only
    }  # fmt: skip
    wrong: list[str] = []
    for name, part in parts.items():
        began = time.perf_counter()
        wrong += part()
        # A resumed part is quicker, so the longest time counts. Samplers on request are not part of the total.
        if name != "references" or set(verification.given.samplers) == set(ALWAYS):
            seconds = verification.results.get("seconds", {})
            verification.keep("seconds", seconds | {name: max(seconds.get(name, 0.0), time.perf_counter() - began)})
        if name != "sbc" or verification.given.cases is None:  # a few cases do not make all of them current
            verification.keep("sources", verification.results.get("sources", {}) | {name: verification.sources})
    if wrong:
        print(f"wrong: {'; '.join(wrong)}", file=sys.stderr)
        sys.exit(WRONG)


if __name__ == "__main__":
    main()
