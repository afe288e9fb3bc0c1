"""The program, as a person or a machine runs it: commands, exit codes, folders, killing and resuming."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import typer

import bpinn as bp
from bpinn.cli import app
from bpinn.problem_file import read_problem
from bpinn.run_folder import runs
from bpinn.run_folder.files import only_one
from bpinn.templates import TEMPLATES, write_template

QUICK = ["inference.num_warmup=30", "inference.num_draws=20", "inference.num_leapfrog=4", "inference.chains=2"]
SETTINGS = [part for change in QUICK for part in ("--set", change)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program") / "demo"
    write_template("inverse-1d", folder)
    return folder


@pytest.fixture(scope="module")
def ended(demo):
    """A run that has ended, without a process of its own."""
    run = runs.start(demo / "problem.toml", demo / "ended", [*QUICK, "fields.u.hidden=[6]"])
    result = run.go(lambda _: None, print, None)
    return run, result


QUICK_TEMPLATES = ("inverse-1d", "heat-1d")  # the others by make verify


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK_TEMPLATES else pytest.mark.slow) for n in TEMPLATES]
)
def test_every_template_runs(name, tmp_path):
    write_template(name, tmp_path / name)
    found = read_problem(tmp_path / name / "problem.toml", QUICK)
    result = bp.infer(found.problem, found.method, seed=0, chains=1, progress=False)
    assert np.all(np.isfinite(result.z))
    for truth in found.truth:
        assert truth in [*found.problem.fields, *found.problem.unknowns]


def test_points_are_counted_apart_from_readings(tmp_path):
    from typer.testing import CliRunner

    from bpinn.cli import app

    write_template("ode-system", tmp_path / "demo")
    file = [str(tmp_path / "demo" / "problem.toml"), "--set", "inference.method=vi"]  # whose time is not estimated
    assert "parameters, 42 readings and 120 points" in CliRunner().invoke(app, ["check", *file]).output
    facts = json.loads(CliRunner().invoke(app, ["check", *file, "--json"]).output)
    assert (facts["readings"], facts["points"]) == (42, 120)


def test_a_first_time_user(program):
    made = program("new", "demo")
    assert made.returncode == 0
    assert "bpinn run demo/problem.toml" in made.stdout
    checked = program("check", "demo/problem.toml")
    assert checked.returncode == 0
    assert "2702 parameters, 40 readings" in checked.stdout
    ran = program("run", "demo/problem.toml", *SETTINGS)
    assert ran.returncode in (0, 3), ran.stderr
    assert "Health: " in ran.stdout
    assert "Report: demo/run/report.html" in ran.stdout
    assert "2 chains  draws 20/20" in ran.stderr
    again = program("run", "demo/problem.toml", *SETTINGS, "--quiet", "--json")
    told = json.loads(again.stdout)
    assert told["folder"] == "demo/run-2"
    assert again.stderr == ""
    assert set(told["unknowns"]["k"]) >= {"mean", "sd", "rhat", "ess"}
    compared = program("compare", "demo/run", "demo/run-2")
    assert compared.stdout.splitlines()[0].split() == ["run", "k", "verdict", "seconds"]
    assert len(compared.stdout.splitlines()) == 3
    shown = program("resume", "demo/run")  # nothing left to do
    assert "Health: " in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "none.toml"], "none.toml: there is no such file; `bpinn new NAME`"),
        (["resume", "."], "not a run folder"),
        (["compare", "."], "not a run folder"),
        (["report", "."], "not a run folder"),
        (["forward", "."], "not a run folder"),
        (["reproduce", "fig-1"], "'fig-1' is not an experiment"),
        (["calibrate", "none.toml"], "there is no such file"),
        (["new", ".", "--template", "inverse-1d"], "exists; give another name"),
        (["new", "x", "--template", "inverse"], "not known; known templates are inverse-1d"),
    ],
)
def test_wrong_input_is_a_sentence_and_exit_code_2(arguments, words, program):
    done = program(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help(program):
    assert program("--version").stdout.startswith("bpinn 0.")
    helped = program("--help").stdout
    for command in ("new", "check", "run", "resume", "report", "forward", "compare", "reproduce", "calibrate"):
        assert command in helped


def test_the_report_can_be_written_anew(ended, program):
    run, _ = ended
    done = program("report", run.folder)
    assert done.stdout.strip() == str(run.folder / "report.html")
    assert (
        "k = " in (run.folder / "report.html").read_text() or "<mi>k</mi>" in (run.folder / "report.html").read_text()
    )
    told = json.loads(program("report", run.folder, "--json").stdout)
    assert told == {"report": str(run.folder / "report.html")}


def test_equations_whose_right_hand_side_is_measured_are_not_solved(ended, program):
    refused = program("forward", ended[0].folder)
    assert refused.returncode == 2
    assert "known only by its readings" in refused.stderr


LOOSE = """
[domain]
t = [0, 5]
[fields.u]
surrogate = "kl"
kernel = { kind = "squared_exponential", length = 1.0 }
terms = 12
[unknowns]
k = { prior = "lognormal", log_mean = -0.5, log_sd = 0.7 }
[equations]
law = "u_t + k*u"
[[sensors]]
quantity = "law"
at = { t = { from = 0, to = 5, count = 20 } }
values = 0.0
noise = 0.5
[[sensors]]
quantity = "u"
data = "u.csv"
noise = 0.03
"""


def test_unknowns_that_do_not_reproduce_the_readings_are_said(tmp_path, program):
    """A source is missing in the law, and the field makes up for it by the tolerance."""
    t = np.linspace(0, 5, 25)
    u = 0.5 + 1.5 * np.exp(-0.8 * t) + 0.03 * np.random.default_rng(0).standard_normal(25)
    np.savetxt(tmp_path / "u.csv", np.stack([t, u], 1), delimiter=",", header="t,value", comments="")
    (tmp_path / "problem.toml").write_text(LOOSE)
    ended = program("run", tmp_path / "problem.toml", "--quiet")
    assert "Forward check: the equations, solved with these unknowns, disagree:" in ended.stdout
    assert "do not reproduce the readings" in ended.stdout


@pytest.mark.slow
def test_the_equations_of_a_run_are_solved(tmp_path, program):
    write_template("ode-system", tmp_path / "system")
    run = runs.start(tmp_path / "system" / "problem.toml", None, QUICK)
    result = run.go(lambda _: None, print, None)
    told = json.loads(program("forward", run.folder, "--draws", 4, "--json").stdout)
    assert told["verdict"] == bp.forward_check(result, 4).verdict
    assert told["draws"] == 4
    assert set(told["fields"]) == set(result.problem.fields)


def test_a_run_without_a_report(demo, tmp_path, program):
    small = [*SETTINGS, "--set", "fields.u.hidden=[6]", "--no-report"]
    done = program("run", demo / "problem.toml", "--out", tmp_path / "run", *small)
    assert "write it with: bpinn report" in done.stdout
    assert not (tmp_path / "run" / "report.html").exists()
    assert isinstance(bp.load(tmp_path / "run"), bp.Result)  # a folder is read as well as a file


def test_experiments_are_listed(program):
    lines = program("reproduce", "--list").stdout.splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("prior-density")


def test_calibration_from_a_file(demo, tmp_path, program):
    small = [*SETTINGS, "--set", "fields.u.hidden=[3]", "--set", "inference.num_draws=60"]
    done = program("calibrate", demo / "problem.toml", "--simulations", 10, "--out", tmp_path / "c", "--quiet", *small)
    assert "10 simulations" in done.stdout
    assert "log likelihood" in done.stdout
    assert (tmp_path / "c" / "ranks.png").exists()


def test_calibration_has_as_many_chains_as_the_run(demo, tmp_path, program, monkeypatch):
    seen = []

    def sbc(problem, method, **settings):
        seen.append(method.chains)
        raise bp.InputError("enough")

    monkeypatch.setattr(bp.calibration, "sbc", sbc)
    program("calibrate", demo / "problem.toml", "--out", tmp_path / "c", "--set", "inference.chains=3")
    program("calibrate", demo / "problem.toml", "--out", tmp_path / "c")
    assert seen == [3, 4]


def test_a_damaged_result_is_made_again(ended, tmp_path, program):
    run, result = ended
    folder = Path(shutil.copytree(run.folder, tmp_path / "damaged"))
    draws = bytearray((folder / "draws.npy").read_bytes())
    draws[-1] ^= 1
    (folder / "draws.npy").write_bytes(draws)
    asked = program("report", folder)
    assert asked.returncode == 2
    assert f"its checksum is wrong); call `bpinn resume {folder}`, which rebuilds it" in asked.stderr
    (folder / "log.txt").unlink()
    (folder / "log.txt").mkdir()  # which cannot be written, and is no reason to stop
    assert program("resume", folder, "--no-report").returncode in (0, 3)
    np.testing.assert_array_equal(bp.load(folder).z, result.z)


def test_a_disk_that_does_not_take_a_file_is_a_sentence(program, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device", "demo/problem.toml")

    monkeypatch.setattr("bpinn.cli.write_template", fail)
    done = program("new", "demo")
    assert done.returncode == 2
    assert done.stderr == "bpinn: demo/problem.toml: cannot be read or written: No space left on device\n"


def test_a_folder_holds_what_was_run(ended, demo):
    run, result = ended
    assert (run.folder / "problem" / "source.csv").read_text() == (demo / "source.csv").read_text()
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert manifest["versions"]["bpinn"]
    assert set(manifest["hashes"]) == {"problem.toml", "source.csv", "probes.csv"}
    again = runs.open_run(run.folder).load()
    np.testing.assert_array_equal(again.z, result.z)
    assert again.predict("f", {"x": [0.0, 0.1]}).mean.shape == (2,)  # the equation is in the file
    assert "ended" in (run.folder / "log.txt").read_text()
    assert not list(run.folder.rglob("*.part"))


def test_a_folder_is_used_once(ended, demo):
    run, _ = ended
    with pytest.raises(bp.InputError, match="not empty; give another --out, or resume it with `bpinn resume"):
        runs.start(demo / "problem.toml", run.folder)


def test_a_changed_file_is_refused(demo):
    run = runs.start(demo / "problem.toml", demo / "changed", QUICK)
    (run.folder / "problem" / "source.csv").write_text("x,value\n0,0\n")
    with pytest.raises(bp.InputError, match=r"source\.csv: has changed since the run was started"):
        runs.open_run(run.folder)
    (run.folder / "manifest.json").write_text("{")
    with pytest.raises(bp.InputError, match="the file is damaged"):
        runs.open_run(run.folder)


def test_data_from_outside_goes_with_the_run(demo, tmp_path):
    text = (demo / "problem.toml").read_text().replace('"source.csv"', f'"{demo / "source.csv"}"')
    (tmp_path / "problem.toml").write_text(text.replace('"probes.csv"', '"../probes.csv"'))
    (tmp_path.parent / "probes.csv").write_text((demo / "probes.csv").read_text())
    with pytest.raises(bp.InputError, match="outside the folder of the problem file"):
        runs.start(tmp_path / "problem.toml", tmp_path / "run")
    run = runs.start(tmp_path / "problem.toml", tmp_path / "run", QUICK, allow_outside=True)
    (tmp_path.parent / "probes.csv").unlink()
    assert runs.open_run(run.folder).problem_file.problem.readings[1].name == "u"


def test_a_second_process_is_refused(demo, program):
    run = runs.start(demo / "problem.toml", demo / "held", QUICK)
    with only_one(run.folder):
        done = program("resume", run.folder)
    assert done.returncode == 2
    assert "another process is running in this folder" in done.stderr


def kill_and_resume(demo, folder, expected, kills):
    """Start a run that kills itself with SIGKILL at each of some writes, let it end, and compare bit for bit."""
    command = ["run", demo / "problem.toml", "--out", folder, "--quiet", *LONGER]
    for fatal in kills:
        child = subprocess.run(list(map(str, [sys.executable, KILLED, fatal, *command])), stdout=subprocess.DEVNULL)
        assert child.returncode == -signal.SIGKILL
        if (folder / "manifest.json").exists():
            command = ["resume", folder, "--quiet"]
        else:  # killed before the folder was made
            shutil.rmtree(folder)
    ended = subprocess.run([sys.executable, "-m", "bpinn", *map(str, command)], stdout=subprocess.DEVNULL)
    assert ended.returncode in (0, 3)
    np.testing.assert_array_equal(runs.open_run(folder).load().z, expected)


KILLED = Path(__file__).with_name("killed_program.py")


LONGER = [part for change in ("inference.num_warmup=120", "inference.num_draws=150", "inference.num_leapfrog=30",
                              "inference.chains=3") for part in ("--set", change)]  # fmt: skip


@pytest.mark.slow
def test_runs_killed_at_random_writes_end_the_same(demo, tmp_path):
    found = read_problem(demo / "problem.toml", LONGER[1::2])
    expected = bp.infer(found.problem, found.method, seed=0, chains=3, progress=False).z
    rng = random.Random(0)
    for i in range(5):  # many more are counted by verification/mishaps.py
        first = i + 1 if i < 2 else rng.randrange(3, 80)  # the manifest is the first file
        # Three times 80 are fewer than all: 27 blocks of 10 steps in each of 3 chains, with 2 files each, synced twice.
        kill_and_resume(demo, tmp_path / f"killed-{i}", expected, [first, rng.randrange(1, 80), rng.randrange(1, 80)])


def has_draws(chain, warmup):
    """Whether a block of a chain is there that is named after a step behind its warm-up."""
    return any(int(block.stem) >= warmup for block in chain.glob("0*.npz"))


def test_ctrl_c_and_resume(demo, tmp_path):
    folder = tmp_path / "stopped"
    many = [*SETTINGS, "--set", "inference.num_draws=1000000"]
    child = subprocess.Popen(
        list(map(str, [sys.executable, "-m", "bpinn", "run", demo / "problem.toml", "--out", folder, *many])),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 600
        while not all(has_draws(folder / "stage-0" / f"chain-{i}", warmup=30) for i in range(2)):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=600)
    finally:
        child.kill()
    assert child.returncode == 130, said
    assert f"resume with: bpinn resume {folder}" in said
    assert "stopped early" in out


def test_folders_of_problems_and_of_runs(ended, demo, program):
    """A folder is as good as its problem file; one of a run is told from it."""
    run, _ = ended
    assert "2702 parameters" in program("check", demo).stdout
    for command in ("run", "check", "prior"):
        done = program(command, run.folder)
        assert done.returncode == 2
        assert f"the folder of a run, not of a problem; `bpinn resume {run.folder}` continues it" in done.stderr
    done = program("resume", demo)
    assert done.returncode == 2
    assert "not a run folder" in done.stderr
    assert str(run.folder) in done.stderr.partition("its runs are ")[2]
    assert "`bpinn new NAME --from" in program("run", demo / "source.csv").stderr


def test_folders_without_a_problem_or_with_several(program, tmp_path):
    (tmp_path / "two").mkdir()
    assert "two: a folder, and it has no .toml file" in program("run", "two").stderr
    for name in ("a.toml", "b.toml"):
        (tmp_path / "two" / name).write_text("")
    assert "it has a.toml, b.toml; name one of them" in program("run", "two").stderr


def test_warnings_are_sentences(demo, program, monkeypatch):
    """Without the place in the code; restored afterwards, as they are in a process of their own."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(
            "bpinn.commands.facts_of", lambda found: warnings.warn("far away", bp.BpinnWarning, stacklevel=1)
        )
        monkeypatch.setattr("bpinn.commands.json.dumps", lambda facts: "{}")
        done = program("check", demo, "--json")
    assert done.stderr == "bpinn: far away\n"


def test_a_run_that_is_stopped_before_its_first_draw_says_what_is_kept(demo, program, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt(
            "stopped during warm-up, before the first draw; a run in a folder (out=) can be resumed"
        )

    monkeypatch.setattr(runs.FileRun, "go", stopped)
    done = program("run", demo, "--out", "early")
    assert done.returncode == 130
    assert (
        "bpinn: stopped during warm-up, before the first draw; what the chains have done so far is kept; "
        "resume with: bpinn resume early\n" in done.stderr
    )


@pytest.mark.parametrize(
    ("command", "option", "begun", "offered"),
    [
        ("new", "template", "in", ["inverse-1d"]),
        ("run", "method", "last", ["last-layer"]),
        ("run", "method", "ens", ["ensemble", "ensemble-kalman"]),
        ("calibrate", "method", "n", ["nuts"]),
        ("reproduce", "names", "inverse-1", ["inverse-1d"]),
        ("reproduce", "preset", "", ["quick", "paper"]),
    ],
)
def test_shells_complete_templates_methods_and_experiments(command, option, begun, offered):
    called = typer.main.get_command(app).commands[command]
    (parameter,) = [one for one in called.params if one.name == option]
    context = called.context_class(called)
    assert [item.value for item in parameter.shell_complete(context, begun)] == offered
