"""Own readings: the draft of a problem file, and the way that docs/own_data.md shows, from a file to a report."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import bpinn as bp
from bpinn.draft import write_draft
from bpinn.problem_file import read_problem
from bpinn.recognition import look
from bpinn.scatter import scatter
from bpinn.sweep.plan import plan

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own_data.md").read_text(encoding="utf-8")


def test_a_person_who_has_only_the_page_gets_a_right_report(program, tmp_path):
    """Its commands and its equation, as written, with fewer draws."""
    shutil.copy(ROOT / "examples" / "cooling.csv", tmp_path)
    assert (
        (ROOT / "examples" / "cooling.csv")
        .read_text(encoding="utf-8")
        .startswith(re.search(r"```\n(# Logger.*?)\.\.\.", PAGE, flags=re.DOTALL)[1])
    )
    commands = re.findall(r"^bpinn .*$", PAGE, flags=re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["new", "check", "run"]
    new, check, run = (command.split()[1:] for command in commands)
    made = program(*new)
    assert made.returncode == 0
    assert "Temp has 38 readings in 'Temp', without 2 rows in which a cell is missing" in made.stdout
    assert "not used: Sample, Operator, Remark" in made.stdout
    unfinished = program(*check)
    assert unfinished.returncode == 2
    assert "equations.law: the equation is not filled in yet" in unfinished.stderr
    problem = tmp_path / "cup" / "problem.toml"
    (equation,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    text = problem.read_text(encoding="utf-8")
    problem.write_text(
        re.sub(r"\[unknowns\].*?(?=\[\[physics)", lambda _: equation, text, flags=re.DOTALL), encoding="utf-8"
    )
    checked = program(*check)
    assert checked.returncode == 0, checked.stderr
    assert "cooling.csv: line 3 has units (°C) and is skipped" in checked.stdout
    assert "timestamps: hours since 2024-03-14 08:00:00" in checked.stdout
    assert "2 missing cells, in lines 11 and 12; 2 of 40 rows dropped" in checked.stdout
    few = [f"inference.{key}" for key in ("num_warmup=150", "num_draws=150", "num_leapfrog=8", "chains=2")]
    ran = program(*run, "--json", *(part for change in few for part in ("--set", change)))
    assert ran.returncode in (0, 3), ran.stderr
    found = json.loads(ran.stdout)["unknowns"]
    for name, truth in {"k": 0.85, "room": 21.0, "noise_Temp": 0.4}.items():
        assert abs(found[name]["mean"] - truth) < 4 * found[name]["sd"], name
    assert found["k"]["sd"] < 0.03
    report = (tmp_path / "cup" / "run" / "report.html").read_text(encoding="utf-8")
    assert "2 of 40 rows dropped" in report
    assert "hours since 2024-03-14 08:00:00" in report


# --- drafts ---


def drafted(tmp_path, text, name="readings.csv", encoding="utf-8", **options):
    (tmp_path / name).write_text(text, encoding=encoding)
    paths, said = write_draft(tmp_path / name, tmp_path / "draft", **options)
    return paths[0].read_text(encoding="utf-8"), said


def filled(tmp_path, **laws):
    path = tmp_path / "draft" / "problem.toml"
    text = path.read_text(encoding="utf-8")
    for law, formula in laws.items():
        text = text.replace(f'{law} = "FILL IN"', f'{law} = "{formula}"')
    path.write_text(text, encoding="utf-8")
    return read_problem(path).problem


def table(**columns):
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))])


X = np.linspace(0, 1, 12).round(4)


@pytest.mark.parametrize(
    ("columns", "coordinates", "fields", "noise"),
    [
        ({"x": X, "u": X**2}, {"x": ["x"]}, {"u": "u"}, None),
        ({"no": range(12), "Position [m]": X, "value": X**2, "sigma": 0 * X + 0.1}, {"x": ["Position [m]"]}, {"u": "value"}, "sigma"),
        ({"load (N)": X, "strain": X**2, "set": 0 * X}, {"load": ["load (N)"]}, {"strain": "strain"}, None),
        ({"b": X[::-1] ** 2 - X, "load": X}, {"load": ["load"]}, {"b": "b"}, None),  # the column that is sorted
        ({"depth": X, "time": X, "T": X**2, "p": X**3}, {"z": ["depth"], "t": ["time"]}, {"T": "T", "p": "p"}, None),
        ({"x": X, "θ [rad]": X**2}, {"x": ["x"]}, {"theta": "θ [rad]"}, None),
        ({"x": X, "u": X**2, "u_x": 2 * X}, {"x": ["x"]}, {"u": "u", "u2": "u_x"}, None),  # u_x would be a derivative
        ({"": range(12), "date": ["2024-03-01"] * 12, "hour": [f"{h}:00" for h in range(12)], "1st": X, "who": ["A"] * 12},
         {"t": ["date", "hour"]}, {"u": "1st"}, None),
        ({"x": X, "y": X**2}, {"x": ["x"]}, {"y": "y"}, None),  # every column has the name of a coordinate
        ({"t": X, "x": X**2, "y": X**3}, {"t": ["t"]}, {"x": "x", "y": "y"}, None),  # a trajectory
        ({"x": [*X[:6], *X[:6]], "y": X, "z": X**3}, {"x": ["x"], "y": ["y"]}, {"z": "z"}, None),  # a surface
        ({"age": X, "height": X**2}, {"t": ["age"]}, {"height": "height"}, None),
        ({"date": [f"2024-03-{d:02d}" for d in range(1, 13)], "height": X}, {"t": ["date"]}, {"height": "height"}, None),
        ({"lab": [1] * 6 + [2] * 6, "load": X, "b": [*X[1:7], *X[:6]]}, {"load": ["load"]}, {"b": "b"}, None),  # one curve
        ({"x": [0] * 6 + [1] * 6, "t": [*X[:6], *X[:6]], "T": X}, {"x": ["x"], "t": ["t"]}, {"T": "T"}, None),  # a mesh
    ],
)  # fmt: skip
def test_what_is_seen(columns, coordinates, fields, noise, tmp_path):
    (tmp_path / "readings.csv").write_text(table(**columns))
    seen = look(tmp_path / "readings.csv")
    assert (seen.coordinates, seen.values, seen.noise) == (coordinates, fields, noise)
    write_draft(tmp_path / "readings.csv", tmp_path / "draft")
    laws = {"law" if len(fields) == 1 else f"law_{f}": f"{f}_{next(iter(coordinates))}" for f in fields}
    problem = filled(tmp_path, **laws)
    assert set(problem.domain) == set(coordinates)
    assert {len(r.values) for r in problem.readings if r.name in fields} == {12}


T = [0, 1, 2, 3, 5, 8]
NOISY = np.round(np.random.default_rng(0).normal(size=(20, 6)), 2)


def long(groups, t=T, **others):
    """A row for each group and time: the columns of groups, times and readings."""
    rows = [(g, s, NOISY[i, j]) for i, g in enumerate(groups) for j, s in enumerate(t)]
    columns = dict(zip(("group", "time", "reading"), map(list, zip(*rows, strict=True)), strict=True))
    return columns | {name: [value(g) for g, _, _ in rows] for name, value in others.items()}


@pytest.mark.parametrize(
    ("columns", "coordinate", "fields", "column", "groups"),
    [
        ("reading:height,time:age,group:Seed", "t", ["height"], "Seed", [301, 303, 305]),  # readings first
        ("group:Subject,weight:Wt,time:Time,reading:conc", "t", ["conc"], "Subject", [301, 303, 305]),
        ("text:Plant,kind:Type,time:dose,reading:uptake", "dose", ["uptake"], "Plant", ["P301", "P303", "P305"]),
        ("group:clone,time:load,reading:b", "load", ["b"], "clone", [301, 303, 305]),  # only the positions say so
        ("number:rownames,text:Platte,time:hour,reading:OD", "t", ["OD"], "Platte", ["P301", "P303", "P305"]),
        ("group:id,time:x,reading:u", "x", ["u"], "id", [301, 303, 305]),
        ("time:t,reading:T,flag:valve", "t", ["T"], None, []),
        ("time:x,group:t,reading:T", "x", ["T"], None, []),  # a mesh
        ("group:x,text:sensor,time:t,reading:T", "x", ["T"], None, []),  # its column numbers places
    ],
)
def test_groups_are_seen(columns, coordinate, fields, column, groups, tmp_path):
    made = long([301, 303, 305], text=lambda g: f"P{g}", kind=lambda g: "Q" if g < 304 else "M", weight=lambda g: g / 4)
    made |= {"number": range(1, 19), "flag": [0, 1] * 9}
    if column is None and "flag" in columns:
        made["time"] = range(18)
    pairs = [pair.split(":") for pair in columns.split(",")]
    (tmp_path / "readings.csv").write_text(table(**{name: made[kind] for kind, name in pairs}))
    seen = look(tmp_path / "readings.csv")
    assert next(iter(seen.coordinates)) == coordinate
    assert list(seen.values) == fields
    assert (seen.groups.column if seen.groups else None) == column
    _, said = write_draft(tmp_path / "readings.csv", tmp_path / "draft")
    problem = filled(tmp_path, law=f"{fields[0]}_{coordinate}")
    if column is None:
        assert len(problem.sensors[fields[0]].values) == 18
        return
    assert seen.groups.values == tuple(map(str, groups))
    np.testing.assert_array_equal(problem.sensors[fields[0]].values, NOISY[0])
    np.testing.assert_array_equal(problem.sensors[fields[0]].at[coordinate], T)
    assert any(line.startswith(f"3 groups in {column!r}") for line in said)
    over = re.search(r'--over "(.*)"', said[-1])[1]
    swept = plan(tmp_path / "draft" / "problem.toml", [over], 1, [], False)
    assert [member.values for member in swept.members] == [(str(group),) for group in groups]
    last = read_problem(tmp_path / "draft" / "problem.toml", swept.members[-1].changes).problem
    np.testing.assert_array_equal(last.sensors[fields[0]].values, NOISY[2])


def test_quantities_in_one_column_are_fields_each(tmp_path):
    rows = [f"{s},{v},{t},{i + j + t}" for i, s in enumerate("ab") for j, v in enumerate(("hare", "lynx")) for t in T]
    _, said = drafted(tmp_path, "subject,species,year,count\n" + "\n".join(rows))
    problem = filled(tmp_path, law_hare="hare_t", law_lynx="lynx_t")
    np.testing.assert_array_equal(problem.sensors["hare"].values, T)
    np.testing.assert_array_equal(problem.sensors["lynx"].values, np.add(T, 1))
    assert said[1].startswith("hare has 6 readings in 'count' where subject is a and species is hare")


def test_runs_of_different_days_begin_at_zero(tmp_path):
    """Cells that are missing in another run are left out there, too."""
    rows = [f"R{d},2024-03-{d} 0{d}:{5 * t:02d},{'' if (d, t) == (3, 2) else 20 + t}" for d in (1, 2, 3) for t in T]
    text, said = drafted(tmp_path, "Run ID,Timestamp,Temp\n" + "\n".join(rows).replace("-03-", "-03-0"))
    assert said[0] == "t is the coordinate in 'Timestamp': minutes since the first reading of each group"
    assert "start" not in text.split("[time]")[1].split("#")[0]
    assert 'missing = "drop"         # cells are missing in 1 of 18 rows' in text
    filled(tmp_path, law="Temp_t")
    path = tmp_path / "draft" / "problem.toml"
    members = plan(path, ["where.Run ID=*"], 1, [], False).members
    problems = [read_problem(path, member.changes).problem for member in members]
    assert [len(p.sensors["Temp"].values) for p in problems] == [6, 6, 5]
    assert all(p.sensors["Temp"].at["t"][0] == 0 for p in problems)
    assert problems[0].domain["t"] == (0.0, 40.0)


def test_a_draft_reads_what_it_was_made_from(tmp_path):
    """Other encodings, dates that need an order, missing cells."""
    text = "Datum;Größe (µm)\n" + "".join(f"{d:02d}/02/2024;{d},5\n" for d in range(1, 11)) + "11/02/2024;\n"
    with pytest.raises(bp.InputError, match="could be 1 February 2024 or 2 January 2024; pass --dates day-first or"):
        drafted(tmp_path, text, encoding="cp1252")
    draft, said = drafted(tmp_path, text, encoding="cp1252", order="day-first")
    assert 'encoding = "cp1252"' in draft
    assert "t = [0, 10]" in draft
    assert "Grosse has 10 readings in 'Größe', without 1 row in which a cell is missing" in said[1]
    problem = filled(tmp_path, law="Grosse_t")
    np.testing.assert_array_equal(problem.sensors["Grosse"].at["t"], np.arange(10.0))
    np.testing.assert_array_equal(problem.readings[0].values, np.arange(1.5, 11))


def test_codes_for_missing_readings_are_left_out(tmp_path):
    """-999 is an error until the file says what it is; a draft says that it is missing."""
    text = "t,T\n" + "".join(f"{i},{-999 if i in (3, 7) else 20 + 0.5 * i}\n" for i in range(12)) + "12,\n"
    draft, said = drafted(tmp_path, text)
    assert "missing = [-999]" in draft
    assert "T has 10 readings in 'T', without 3 rows in which a cell is missing or holds -999" in said[1]
    assert filled(tmp_path, law="T_t").readings[0].values.tolist() == [
        20 + 0.5 * i for i in range(12) if i not in (3, 7)
    ]
    path = tmp_path / "draft" / "problem.toml"
    stated = path.read_text(encoding="utf-8")
    path.write_text(stated.replace("missing = [-999]", 'missing = "drop"'), encoding="utf-8")
    with pytest.raises(
        bp.InputError, match=r"holds -999 in lines 5 and 9, far from all other .* write missing = \[-999\]"
    ):
        read_problem(path)
    path.write_text(stated.replace("missing = [-999]", "missing = ['-999']"), encoding="utf-8")
    with pytest.raises(bp.InputError, match=r"sensors.0.missing: expected 'error', 'drop', or a list of the numbers"):
        read_problem(path)


def test_a_draft_without_an_equation_is_a_curve(tmp_path):
    draft, _ = drafted(tmp_path, table(x=X, u=X**2))
    with pytest.raises(
        bp.InputError, match=r"equations.law: the equation is not filled in yet; .*derivatives such as u_x"
    ):
        filled(tmp_path)
    path = tmp_path / "draft" / "problem.toml"
    path.write_text(draft.replace('law = "FILL IN"', "").replace('[[physics]]\nequation = "law"', ""))
    assert list(read_problem(path).problem.sensors) == ["u"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "a,b\nx,y\nz,w\n",
            "expected a column of positions or times and a column of readings, with numbers; it has a, b",
        ),
        ("x,u\n0,1\n1,1\n", "expected a column of positions"),  # readings that never change
        ("x,u\n0,1\n1,a\n2,3\n", "line 3, column 'u': 'a' is not a number"),
        ("", "the file is empty"),
    ],
)
def test_files_without_readings_make_no_draft(text, words, tmp_path):
    with pytest.raises(bp.InputError, match=re.escape(words)):
        drafted(tmp_path, text)
    assert not (tmp_path / "draft").exists()


def test_calls_that_are_not_complete(program, tmp_path):
    (tmp_path / "data.csv").write_text(table(x=X, u=X**2))
    assert "give the folder to create" in program("new").stderr
    assert "cannot be combined" in program("new", "a", "--from", "data.csv", "--template", "curve").stderr
    assert "there is no such file" in program("new", "a", "--from", "none.csv").stderr
    assert "known orders are day-first" in program("new", "a", "--from", "data.csv", "--dates", "us").stderr
    assert "data/problem.toml" in program("new", "--from", "data.csv").stdout  # called after the file
    assert "already exists" in program("new", "--from", "data.csv").stderr


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_scatter_is_that_of_a_plane_with_noise(dimension):
    """On a plane there is no bias, and the median of 900 residuals has a standard error of some 5%."""
    rng = np.random.default_rng(dimension)
    at = rng.uniform(-1, 1, (dimension, 900))
    values = 5 + np.arange(1, dimension + 1) @ at + 0.2 * rng.standard_normal(900)
    assert scatter(at, values) == pytest.approx(0.2, rel=0.15)
    assert scatter(at, values + 50.0 * (np.arange(900) < 9)) < 1.2 * scatter(at, values)  # outliers
    assert scatter(1000 * at, values) == pytest.approx(scatter(at, values))
    assert scatter(at, np.arange(1, dimension + 1) @ at) < 1e-12
    assert scatter(at[:, :3], values[:3]) == 0.0
