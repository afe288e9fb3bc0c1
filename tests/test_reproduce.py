"""Every experiment of the paper runs, in a tiny setting, and its claims say what their numbers say."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bpinn as bp
from bpinn.paper import cases, claims
from bpinn.paper.cases import Outcome, Outcomes
from bpinn.paper.reproduction import EXPERIMENTS, redraw, reproduce

NAMES = [
    "prior-density", "regression", "poisson-1d", "nonlinear-1d", "allen-cahn-2d", "inverse-1d", "inverse-2d", "pinn",
    "kl",    "prior-covariance", "prior-study", "cost",
]  # fmt: skip


def run(name, out, **options):
    said = []
    found = reproduce([name], preset="tiny", out=out, progress=False, say=said.append, **options)
    return found[name], said


def test_the_experiments_are_the_papers():
    assert list(EXPERIMENTS) == NAMES


QUICK = ("pinn",)  # the others are for `make verify`
CHOSEN = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", CHOSEN)
def test_every_experiment_runs_and_is_not_run_twice(name, tmp_path, monkeypatch):
    found, said = run(name, tmp_path)
    folder = tmp_path / name
    assert json.loads((folder / "result.json").read_text()) == found
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "figure.svg").read_bytes()
    assert found["claims"]
    for claim in found["claims"]:
        assert 0 <= claim["holds_in"] <= claim["of"] == len(claim["numbers"])
    names = [claim["name"] for claim in found["claims"]]
    assert len(set(names)) == len(names) or name == "kl"  # forward and inverse say some of the same
    assert all(len(row) == len(found["table"]["columns"]) for row in found["table"]["rows"])
    for case in found.get("cases", []):
        assert case["quantities"]["u"]["error"] > 0
        assert case["seconds"] > 0
    assert not list(folder.rglob("*.run"))  # draws of cases that have ended are not kept
    monkeypatch.setattr(cases, "infer", None)
    monkeypatch.setattr(cases, "gp", None)
    assert run(name, tmp_path)[0] == found
    assert said[0].startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["inverse-2d", "cost", "pinn"])
def test_figures_of_numbers_are_redrawn_from_them(name, tmp_path):
    """From the results in the documentation; those of fields keep the figure they have."""
    kept = Path(__file__).parent.parent / "docs" / "reproduction" / name / "result.json"
    shutil.copy(kept, tmp_path)
    assert redraw(tmp_path) == (name != "pinn")
    assert (tmp_path / "figure.png").exists() == (name != "pinn")


def test_data_sets_are_added_to_those_that_are_there(tmp_path):
    first, _ = run("pinn", tmp_path)
    both, _ = run("pinn", tmp_path, seeds=2)
    assert both["cases"][: len(first["cases"])] == first["cases"]
    assert {case["seed"] for case in both["cases"]} == {0, 1}
    assert all(claim["of"] == 2 for claim in both["claims"])


def test_wrong_input(tmp_path):
    with pytest.raises(bp.InputError, match="'fig-1' is not an experiment; choose from prior-density, regression"):
        reproduce(["fig-1"], out=tmp_path)
    with pytest.raises(bp.InputError, match="preset must be 'quick' or 'paper'"):
        reproduce(["pinn"], preset="fast", out=tmp_path)
    with pytest.raises(bp.InputError, match="seeds of at least 1"):
        reproduce(["pinn"], seeds=0, out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(bp.InputError, match="cannot be created"):
        reproduce(["pinn"], out=tmp_path / "file")


# --- claims, on made-up outcomes ---


def made_up(label, noise, seed=0, error=0.1, sd=0.1, k=(0.7, 0.01), within=1.0, mean=0.0, gap=5.0):
    x = np.linspace(-1, 1, 101)
    numbers = {
        "label": label, "noise": noise, "seed": seed, "unknowns": {"k": {"mean": k[0], "sd": k[1]}}, "seconds": sd,
        "quantities": {"u": {"error": error, "within_two_sd": within, "largest_error": error, "mean_sd": sd}},
        "residual": {"u": 0.01},
    }  # fmt: skip
    spread = sd * np.where(claims._inside(claims.GAPS, x), gap, 1.0)
    return Outcome(numbers, {"u/mean": np.full(101, mean), "u/sd": spread, "u/truth": np.zeros(101)})


def holds(claim, *outcomes):
    found = claim.judge(Outcomes(list(outcomes)))
    return found["holds_in"] == found["of"]


def both(label, low, high):
    """The same method at both noises."""
    return made_up(label, 0.01, **low), made_up(label, 0.1, **high)


@pytest.mark.parametrize(
    ("claim", "true", "false"),
    [
        (claims.sd_grows("A"), both("A", {"sd": 0.1}, {"sd": 0.2}), both("A", {"sd": 0.2}, {"sd": 0.1})),
        (claims.sd_does_not_grow("A"), both("A", {"sd": 0.1}, {"sd": 0.11}), both("A", {"sd": 0.1}, {"sd": 0.3})),
        (claims.within("A", 0.1), [made_up("A", 0.1, within=0.95)], [made_up("A", 0.1, within=0.8)]),
        (claims.not_within("A", 0.1), [made_up("A", 0.1, within=0.8)], [made_up("A", 0.1, within=0.95)]),
        (claims.error_above("A", 0.1, 0.5), [made_up("A", 0.1, error=0.6)], [made_up("A", 0.1, error=0.4)]),
        (claims.k_within("A", 0.1, 0.7, 2.0), [made_up("A", 0.1, k=(0.71, 0.01))], [made_up("A", 0.1, k=(0.73, 0.01))]),
        (claims.k_error_below("A", 0.1, 1.0, 0.05), [made_up("A", 0.1, k=(1.04, 1))], [made_up("A", 0.1, k=(0.9, 1))]),
        (
            claims.k_sd_grows("A"),
            both("A", {"k": (1, 0.1)}, {"k": (1, 0.2)}),
            both("A", {"k": (1, 0.2)}, {"k": (1, 0.1)}),
        ),
        (
            claims.k_sd_grows("A", False),
            both("A", {"k": (1, 0.2)}, {"k": (1, 0.1)}),
            both("A", {"k": (1, 0.1)}, {"k": (1, 0.2)}),
        ),
        (
            claims.k_worse_than("A", "B", 0.1, 0.7),
            [made_up("A", 0.1, k=(0.9, 1)), made_up("B", 0.1)],
            [made_up("A", 0.1), made_up("B", 0.1, k=(0.5, 1))],
        ),
        (
            claims.k_agrees("A", "B", 0.1),
            [made_up("A", 0.1, k=(0.702, 0.011)), made_up("B", 0.1)],
            [made_up("A", 0.1, k=(0.702, 0.02)), made_up("B", 0.1)],
        ),
        (
            claims.bands_agree("A", "B", 0.1),
            [made_up("A", 0.1, sd=0.11), made_up("B", 0.1)],
            [made_up("A", 0.1, mean=0.3), made_up("B", 0.1)],
        ),
        (
            claims.bands_agree("A", "B", 0.1, False),
            [made_up("A", 0.1, sd=0.2), made_up("B", 0.1)],
            [made_up("A", 0.1), made_up("B", 0.1)],
        ),
        (claims.grows_in_gaps("A", 0.1), [made_up("A", 0.1)], [made_up("A", 0.1, gap=1.5)]),
        (claims.uniform_in_gaps("A", 0.1), [made_up("A", 0.1, gap=1.5)], [made_up("A", 0.1)]),
        (claims.wrong_in_gaps("A", 0.1), [made_up("A", 0.1, mean=2.0)], [made_up("A", 0.1)]),
        (
            claims.overfits("A", "B", 0.1),
            [made_up("A", 0.1, error=0.2), made_up("B", 0.1)],
            [made_up("A", 0.1, error=0.05), made_up("B", 0.1)],
        ),
        (
            claims.slower_than("A", "B", 0.1),
            [made_up("A", 0.1, sd=2.0), made_up("B", 0.1)],
            [made_up("A", 0.1, sd=0.05), made_up("B", 0.1)],
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_claim_holds_or_does_not(claim, true, false):
    assert holds(claim, *true)
    assert not holds(claim, *false)


def test_claims_are_counted_over_data_sets():
    outcomes = [made_up("A", 0.1, seed, within=share) for seed, share in enumerate((1.0, 0.5, 0.95))]
    found = claims.within("A", 0.1).judge(Outcomes(outcomes))
    assert (found["holds_in"], found["of"]) == (2, 3)
    assert found["numbers"] == {"0": "100% within", "1": "50% within", "2": "95% within"}
