"""The gallery: its problem files are valid, its data are the published ones, its pages say what its runs found."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import curve_fit

import bpinn as bp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.suite import SUITE  # noqa: E402
from gallery import build, classical, figures, pages  # noqa: E402
from gallery.figures import MOST_BYTES  # noqa: E402
from gallery.shared import entries, load, run, shown, stored  # noqa: E402

NAMES = entries()
DOCS = ROOT / "docs" / "gallery"
QUICK = [f"inference.{key}" for key in ("num_warmup=20", "num_draws=10", "num_leapfrog=5", "chains=2")]


@pytest.fixture(scope="module")
def gallery():
    return {name: load(name) for name in NAMES}


def test_there_are_enough(gallery):
    assert len(NAMES) >= 15
    assert sum(not entry.truth for entry in gallery.values()) >= 7
    assert sum(len(entry.coordinates) > 1 for entry in gallery.values()) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_problem_file_is_valid(gallery, name):
    file = gallery[name].read()
    assert file.title
    assert bp.Posterior(file.problem).dim > 0
    assert gallery[name].published.keys() <= {*file.problem.unknowns, *(f"noise_{s}" for s in file.problem.sensors)}
    assert len(gallery[name].published) == 0 or gallery[name].source


@pytest.mark.parametrize("name", [name for name in NAMES if name in SUITE])
def test_problem_of_the_suite_is_the_same(gallery, name):
    ours, theirs = gallery[name].read().problem, SUITE[name](seed=0).problem
    assert ours.domain == theirs.domain
    priors = [
        {n: (type(p).__name__, round(float(p.loc), 6), round(float(p.scale), 6)) for n, p in problem.unknowns.items()}
        for problem in (ours, theirs)
    ]
    assert priors[0] == priors[1]
    if len(ours.domain) == 1:
        assert ours.fields == theirs.fields
    of_name = {r.name: r for r in ours.readings}
    rng = np.random.default_rng(0)
    for r in theirs.readings:
        own = of_name.pop(r.name)
        assert all(np.allclose(own.at[c], r.at[c], rtol=1e-5, atol=1e-6) for c in r.at)
        assert np.allclose(own.values, r.values, rtol=1e-5, atol=1e-6)
        assert np.allclose(own.noise, r.noise, rtol=1e-6)
        values = {str(reference): rng.standard_normal(5) for reference in r.equation.references}
        found = [e.call([values[str(reference)] for reference in e.references]) for e in (own.equation, r.equation)]
        assert np.allclose(*found, rtol=1e-5)
    assert not of_name


LAWS = {
    "adsorption": ("V", "p", lambda p, Vmax, k: Vmax * (1 - np.exp(-k * p)), (200.0, 5e-4)),
    "oxygen_demand": ("y", "t", lambda t, L, k: L * (1 - np.exp(-k * t)), (20.0, 0.4)),
    "puromycin": ("v", "s", lambda s, Vmax, Km: Vmax * s**2 / (Km + s**2), (200.0, 0.1)),
}


@pytest.mark.parametrize("name", LAWS)
def test_data_have_the_published_estimates(gallery, name):
    """Least squares on our files gives what others have published for the data: no digit was lost on the way."""
    sensors, along, law, guess = LAWS[name]
    problem, published = gallery[name].read().problem, gallery[name].published
    (r,) = (r for r in problem.readings if r.name == sensors)
    found, covariance = curve_fit(
        law, r.at[along], r.values, p0=guess, x_scale=guess, method="trf", xtol=1e-14, ftol=1e-14
    )
    wanted = [published[n] for n in problem.unknowns]
    assert np.allclose(found, wanted, rtol=1e-7 if name == "adsorption" else 1e-3)
    assert np.all(np.isfinite(covariance))


def test_hubbles_table_has_its_known_regression(gallery):
    """The line through Hubble's table that textbooks give: 454.16 km/s/Mpc and -40.78 km/s."""
    (r,) = (r for r in gallery["hubble"].read().problem.readings if r.name == "v")
    assert len(r.values) == 24
    assert np.allclose(np.polyfit(r.at["r"], r.values, 1), (454.158, -40.784), atol=5e-3)


def test_solutions_obey_their_equations(gallery):
    """The closed forms that answers are compared with meet the equations of the problem files."""
    t = np.linspace(0, 4, 401)
    k10, k12, k21, c0 = 1.1, 0.7, 0.6, 2.3

    def slope(_, y):
        return np.stack([-(k10 + k12) * y[0] + k21 * y[1], k12 * y[0] - k21 * y[1]])

    found = classical.runge_kutta(slope, np.array([c0, 0.0]), t, 4)[:, 0]
    values = {n: np.array([v]) for n, v in {"k10": k10, "k12": k12, "k21": k21, "c0": c0}.items()}
    hours = gallery["indomethacin"].read().problem.readings[0].at["s"] ** 2
    early = hours <= 4
    assert np.allclose(
        gallery["indomethacin"].solve(values)["c"][0][early], np.interp(hours[early], t, found), atol=1e-4
    )


def test_classical_posterior_of_a_normal_mean(monkeypatch):
    """Readings of a constant with a log-normal prior against quadrature."""
    import numpyro.distributions as dist

    monkeypatch.setattr(classical, "WARMUP", 300)
    monkeypatch.setattr(classical, "STEPS", 1500)
    problem = bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=())},
        unknowns={"a": dist.LogNormal(0.0, 0.5)},
        sensors={
            "law": bp.Sensors(lambda u, a: u - a, at={"x": [0.5, 0.6]}, values=0.0, noise=0.1),
            "u": bp.Sensors("u", at={"x": [0.1, 0.5, 0.9]}, values=[1.5, 2.0, 2.2], noise=0.5),
        },
    )
    found = classical.posterior(problem, lambda v: {"u": np.repeat(v["a"][:, None], 3, axis=1)}, {})["a"]
    a = np.linspace(0.01, 6, 6000)
    log = -0.5 * (np.log(a) / 0.5) ** 2 - np.log(a) - sum((y - a) ** 2 for y in (1.5, 2.0, 2.2)) / (2 * 0.25)
    weight = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    mean = float(weight @ a)
    sd = float(np.sqrt(weight @ (a - mean) ** 2))
    assert found.mean() == pytest.approx(mean, abs=0.06 * sd)
    assert found.std() == pytest.approx(sd, rel=0.06)


# --- pages ---


@pytest.mark.parametrize("name", NAMES)
def test_page_is_of_the_stored_run(gallery, name):
    assert stored(gallery[name]), "the files have changed since the last run: make gallery"
    assert (DOCS / f"{name}.md").read_text() == pages.page(gallery[name]), "make gallery"
    assert "TODO" not in (DOCS / f"{name}.md").read_text()
    for picture in (DOCS / f"{name}.png", DOCS / "thumbs" / f"{name}.png"):
        assert 500 < picture.stat().st_size < MOST_BYTES


def test_index_and_links(gallery):
    assert (DOCS / pages.INDEX).read_text() == pages.index(list(gallery.values())), "make gallery"
    for path in DOCS.glob("*.md"):
        for alt, target in re.findall(r"(!?\[[^\]]*)\]\(([^)#]+)\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"
            assert len(alt) > 2, f"{path.name}: {target} has no text"


def test_numbers_are_shown_with_three_digits():
    assert [shown(x) for x in (0.000550156, 0.5311, 19.143, 238.942, 1234.5, None)] == [
        "0.00055", "0.531", "19.1", "239", "1234", "–"
    ]  # fmt: skip


def test_pages_of_several_coordinates(gallery):
    text = pages.page(gallery["heat_source"])
    assert "maps of posterior means, sd and errors" in text
    assert "| unknown |" not in text  # it has unknown functions only
    rows = [line for line in pages.index(list(gallery.values())).splitlines() if "(heat_source.md)" in line]
    assert "| s(x) | good |" in rows[0]


@pytest.mark.parametrize(("name", "panels"), [("fisher_kpp", 6), ("heat_source", 4), ("darcy_flow", 6)])
def test_maps(gallery, name, panels):
    """Each field over two coordinates has a map with its error; the unknowns are beside them."""
    file = gallery[name].read(QUICK)
    result = bp.infer(file.problem, file.method, seed=0, chains=2, progress=False)
    drawn = figures.figure_of(gallery[name], result, {})
    titles = [ax.get_title() for ax in drawn.axes]
    assert len(titles) == panels
    planes = [f for f in file.problem.fields if len(file.problem.inputs(f)) > 1]
    assert drawn.axes[0].get_aspect() == (1.0 if name == "darcy_flow" else "auto")
    assert sum("|mean − truth|" in title for title in titles) == len(planes)
    assert figures.png(figures.thumbnail_of(gallery[name], result), 80)[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["michaelis_menten", "oxygen_demand"])
def test_quick_run(gallery, name, monkeypatch):
    monkeypatch.setattr(classical, "WARMUP", 20)
    monkeypatch.setattr(classical, "STEPS", 20)
    numbers, figure, thumbnail = run(gallery[name], QUICK)
    assert figure[:4] == thumbnail[:4] == b"\x89PNG"
    assert len(thumbnail) < len(figure) < MOST_BYTES
    assert numbers["verdict"] == "bad"  # 20 draws are no answer
    assert (numbers["chains"], numbers["draws"]) == (2, 10)
    assert json.loads(json.dumps(numbers)) == numbers
    unknowns = list(gallery[name].read().problem.unknowns)
    assert [row["name"] for row in numbers["rows"]][: len(unknowns)] == unknowns
    assert all(("exact_mean" in row) == (gallery[name].solve is not None) for row in numbers["rows"])


def test_unknown_name_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["build", "yeest"])
    with pytest.raises(SystemExit):
        build.main()
    assert "yeest: not in the gallery; it has adsorption, " in capsys.readouterr().err
