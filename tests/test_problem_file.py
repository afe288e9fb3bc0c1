"""Problem files: what can be said in one is the problem one would write in Python; what is wrong is named."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn.problem_file import read_problem

GOOD = """
title = "Reaction rate"
[domain]
x = [-0.7, 0.7]
[fields.u]
surrogate = "mlp"
hidden = [6, 6]
[unknowns]
k = { prior = "normal", mean = 0.0, sd = 1.0 }
[equations]
f = "0.01*u_xx + k*tanh(u)"
[[sensors]]
quantity = "f"
data = "source.csv"
noise = 0.1
[[sensors]]
quantity = "u"
data = "probes.csv"
[inference]
method = "hmc"
chains = 4
seed = 0
"""
SOURCE = "x [m],value\n-0.5,0.1\n0.0,0.2\n0.5,0.3\n"
PROBES = "x;value;noise\n-0,7;0,5;0,1\n0,7;-0,5;0,2\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "problem.toml").write_text(GOOD)
    (tmp_path / "source.csv").write_text(SOURCE)
    (tmp_path / "probes.csv").write_text(PROBES)
    return tmp_path


def read(folder, old="", new="", changes=(), **options):
    assert old in GOOD
    (folder / "problem.toml").write_text(GOOD.replace(old, new, 1))
    return read_problem(folder / "problem.toml", changes, **options)


def same(one, other):
    """Two problems with the same posterior."""
    one, other = bp.Posterior(one), bp.Posterior(other)
    z = one.sample_prior(jax.random.key(0), 3)
    for row in z:
        np.testing.assert_allclose(one.log_density(row), other.log_density(row), rtol=1e-5)


def test_a_file_is_the_problem_in_python(folder):
    found = read(folder)

    def f(u_xx, k, u):
        return 0.01 * u_xx + k * jnp.tanh(u)

    sensors = {
        "f": bp.Sensors(f, {"x": [-0.5, 0.0, 0.5]}, [0.1, 0.2, 0.3], 0.1),
        "u": bp.Sensors("u", {"x": [-0.7, 0.7]}, [0.5, -0.5], [0.1, 0.2]),
    }
    same(
        found.problem,
        bp.Problem({"x": (-0.7, 0.7)}, {"u": bp.MLP((6, 6))}, sensors, {"k": dist.Normal(0.0, 1.0)}),
    )
    assert found.method == bp.HMC()
    assert (found.title, found.seed, found.chains) == ("Reaction rate", 0, 4)
    assert found.sources == ("source.csv", "probes.csv")
    assert found.equations["f"].names == ("u_xx", "k", "u")


def test_everything_that_can_be_said(tmp_path):
    (tmp_path / "problem.toml").write_text("""
[domain]
x = [0, 1]
t = [0.0, 2.0]
[fields.u]
hidden = [5]
activation = "sin"
weight_sd = [1.0, 0.5]
scale_inputs = true
[fields.v]
surrogate = "kl"
kernel = [{ kind = "exponential", length = 0.3 }, { kind = "matern52", length = 1.0, sd = 2.0 }]
terms = 7
mean = "x*(1 - t)"
[fields.c]
inputs = ["x"]
positive = true
hidden = [3]
[unknowns]
k = { prior = "lognormal", log_mean = 0.0, log_sd = 1.0 }
s = { prior = "half_normal", sd = 0.5 }
a = { prior = "truncated_normal", mean = 0, sd = 1, low = 0 }
[equations]
heat = "u_t - c*u_xx - k*v + a"
wave = "v_tt - v_xx"
[truth]
u = "sin(pi*x)*exp(-t)"
k = 2
[[sensors]]
quantity = "heat"
random = 12
values = 0.0
noise = 0.01
[[sensors]]
quantity = "wave"
at = { x = { from = 0, to = 1, count = 3 }, t = [0.0, 1.0] }
mesh = true
noise = 0.1
[[sensors]]
name = "start"
quantity = "u"
at = { x = [0.1, 0.5, 0.9], t = 0.0 }
values = "sin(pi*x)"
noise = { prior = "half_normal", sd = 0.1 }
likelihood = "student_t"
dof = 5
[[sensors]]
quantity = "u"
periodic = "x"
at = { t = [0.5, 1.0] }
noise = "s"
[[sensors]]
quantity = "u_x - 2*u"
at = { x = 1.0, t = [0.5, 1.0] }
values = [0.1, 0.2]
noise = [0.1, 0.3]
[inference]
method = "vi"
num_steps = 50
family = "full-rank"
""")
    found = read_problem(tmp_path / "problem.toml")
    problem = found.problem
    assert {r.name: len(r.values) for r in problem.readings} == {
        "heat": 12, "wave": 6, "start": 3, "u_periodic": 2, "sensors_4": 2,
    }  # fmt: skip
    np.testing.assert_allclose(problem.readings[2].values, np.sin(np.pi * np.array([0.1, 0.5, 0.9])), rtol=1e-6)
    assert problem.readings[2].likelihood == bp.likelihoods.StudentT(dof=5.0)
    assert list(problem.noise_priors) == ["noise_start"]
    assert isinstance(problem.fields["v"], bp.KarhunenLoeve)
    assert problem.fields["c"].positive
    assert found.method == bp.VI(num_steps=50, family="full-rank")
    assert np.isfinite(float(bp.Posterior(problem).log_density(jnp.zeros(bp.Posterior(problem).dim))))


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ('"normal", mean = 1, sd = 2', dist.Normal(1.0, 2.0)),
        ('"lognormal", log_mean = 1, log_sd = 2', dist.LogNormal(1.0, 2.0)),
        ('"uniform", low = -1, high = 2', dist.Uniform(-1.0, 2.0)),
        ('"half_normal", sd = 2', dist.HalfNormal(2.0)),
        ('"exponential", rate = 3', dist.Exponential(3.0)),
        ('"gamma", shape = 2, rate = 3', dist.Gamma(2.0, 3.0)),
        ('"inverse_gamma", shape = 2, scale = 3', dist.InverseGamma(2.0, 3.0)),
        ('"beta", a = 2, b = 3', dist.Beta(2.0, 3.0)),
        ('"student_t", dof = 4, mean = 1, sd = 2', dist.StudentT(4.0, 1.0, 2.0)),
        ('"cauchy", centre = 1, scale = 2', dist.Cauchy(1.0, 2.0)),
        ('"half_cauchy", scale = 2', dist.HalfCauchy(2.0)),
        ('"truncated_normal", mean = 1, sd = 2, low = 0, high = 3', dist.TruncatedNormal(1.0, 2.0, low=0.0, high=3.0)),
    ],
)
def test_priors(folder, prior, expected):
    found = read(folder, '"normal", mean = 0.0, sd = 1.0', prior).problem.unknowns["k"]
    value = expected.sample(jax.random.key(0))
    np.testing.assert_allclose(found.log_prob(value), expected.log_prob(value), rtol=1e-6)


def test_keys_are_set_from_outside(folder):
    changes = ["inference.method=nuts", "inference.seed=7", "sensors.0.noise=0.3", "title=Another title"]
    found = read(folder, changes=changes)
    assert isinstance(found.method, bp.NUTS)
    assert (found.seed, found.title) == (7, "Another title")
    assert found.problem.readings[0].noise[0] == pytest.approx(0.3)


def test_the_papers_settings(folder):
    assert read(folder, 'method = "hmc"', "paper = true\nnum_draws = 20").method == bp.HMC.paper(num_draws=20)


def test_data_elsewhere_needs_leave(folder):
    outside = folder.parent / "outside.csv"
    outside.write_text(SOURCE)
    for name in ("../outside.csv", str(outside)):
        with pytest.raises(bp.InputError, match="outside the folder of the problem file"):
            read(folder, '"source.csv"', f'"{name}"')
        assert read(folder, '"source.csv"', f'"{name}"', allow_outside=True).problem.readings[0].values[0] == 0.1
    (folder / "link.csv").symlink_to(outside)
    with pytest.raises(bp.InputError, match="outside the folder of the problem file"):
        read(folder, '"source.csv"', '"link.csv"')


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[domain]", "[domain", "not valid TOML: "),
        ("[domain]", "[domian]", "domian: this key is not known; did you mean 'domain'?"),
        ("x = [-0.7, 0.7]", "", "domain: no coordinates"),
        ("x = [-0.7, 0.7]", "x = 1", "domain.x: expected two numbers [low, high], got 1"),
        ("x = [-0.7, 0.7]", "x = [1, 2, 3]", "domain.x: expected two numbers"),
        ("x = [-0.7, 0.7]", "x = [1, 0]", "domain.x: the low bound 1 is not below the high one 0"),
        ("x = [-0.7, 0.7]", 'x = ["a", 0]', "domain.x: expected a number, got 'a'"),
        ("x = [-0.7, 0.7]", "x = [nan, 0]", "domain.x: expected a finite number"),
        ('surrogate = "mlp"', 'surrogate = "mlq"', "fields.u.surrogate: 'mlq' is not known; did you mean 'mlp'?"),
        ('surrogate = "mlp"', 'surrogate = "kl"', "fields.u.kernel: is missing"),
        ("hidden = [6, 6]", "hiden = [6, 6]", "fields.u.hiden: this key is not known; did you mean 'hidden'?"),
        ("hidden = [6, 6]", "hidden = [6, -1]", "fields.u: MLP: hidden widths must be positive"),
        ("hidden = [6, 6]", "hidden = 6", "fields.u.hidden: expected a list of widths"),
        ("hidden = [6, 6]", "hidden = [1000000]", "fields.u.hidden: at most 50 layers of 10000"),
        ("hidden = [6, 6]", 'activation = "relux"', "fields.u: MLP: activation 'relux' is not known"),
        ("hidden = [6, 6]", 'inputs = ["y"]', "fields.u.inputs: 'y' is not a coordinate"),
        ("hidden = [6, 6]", "positive = 1", "fields.u.positive: expected true or false, got 1"),
        ("hidden = [6, 6]", "weight_sd = true", "fields.u.weight_sd: expected a number"),
        ('k = { prior = "normal", mean = 0.0, sd = 1.0 }', "k = 3", "unknowns.k: expected a table"),
        ('"normal", mean = 0.0', '"norml", mean = 0.0', "unknowns.k.prior: 'norml' is not known; did you mean"),
        ("mean = 0.0, sd = 1.0", "mean = 0.0", "unknowns.k.sd: is missing; expected a number"),
        ("sd = 1.0", "sd = -1.0", "unknowns.k.sd: must be positive, got -1.0"),
        ("sd = 1.0", "sd = 1.0, low = 0", "unknowns.k.low: this key is not known"),
        ('"normal", mean = 0.0, sd = 1.0', '"uniform", low = 1, high = 0', "unknowns.k.low: must be below high"),
        ('"0.01*u_xx + k*tanh(u)"', "3", "equations.f: expected text, got 3"),
        ('"0.01*u_xx + k*tanh(u)"', '"u_xx + q"', "equations.f, column 8: the name 'q' is not declared; known names are"),
        ('"0.01*u_xx + k*tanh(u)"', '"u_yy"', "the name 'u_yy' is not declared"),
        ('"0.01*u_xx + k*tanh(u)"', '"u_xxxxxxxxx"', "the name 'u_xxxxxxxxx' is not declared"),
        ('"0.01*u_xx + k*tanh(u)"', '"u^2"', "equations.f, column 2: ^ is not supported; write ** for a power"),
        ("f = ", "u = ", "equations.u: this name is already taken; rename the equation"),
        ('quantity = "f"\n', "", "sensors.0.quantity: is missing"),
        ('quantity = "f"', 'quantity = "g"', "sensors.0.quantity, column 1: the name 'g' is not declared"),
        ('quantity = "f"', 'quantity = "f"\nperiodic = "y"', "sensors.0.periodic: 'y' is not a coordinate"),
        ('data = "source.csv"', 'data = "sorce.csv"', "sorce.csv: there is no such file"),
        ('data = "source.csv"', 'data = "../source.csv"', "sensors.0.data: '../source.csv' is outside"),
        ('data = "source.csv"', 'data = "source.csv"\nvalues = 0', "sensors.0.values: cannot be combined with data"),
        ('data = "source.csv"', 'data = "a\\u0000b"', "sensors.0.data"),
        ('data = "source.csv"', "random = 0", "sensors.0.random: expected 1 to 1000000 points"),
        ('data = "source.csv"', "at = { y = 1 }", "sensors.0.at.y: not a coordinate"),
        ('data = "source.csv"', 'at = { x = "a" }', "sensors.0.at.x: expected a number, a list"),
        ('data = "source.csv"', "at = { x = [] }", "sensors.0.at.x: the list is empty"),
        ('data = "source.csv"', "at = { x = { from = 0, to = 1 } }", "sensors.0.at.x.count: is missing"),
        ('data = "source.csv"', 'at = { x = 0 }\nvalues = "u"', "sensors.0.values, column 1: the name 'u' is not"),
        ('data = "source.csv"', 'at = { x = [0, 0.5] }\nvalues = [1]', "2 points but 1 values"),
        ("noise = 0.1", "", "sensors.0.noise: is missing; give the standard deviation of a reading, or a column"),
        ("noise = 0.1", "noise = -0.1", "noise"),
        ("noise = 0.1", 'noise = "q"', "noise"),
        ("noise = 0.1", 'noise = { prior = "normal", mean = 0, sd = 1 }', "noise"),
        ("noise = 0.1", 'noise = 0.1\nlikelihood = "cauchy"', "sensors.0.likelihood: 'cauchy' is not known"),
        ("noise = 0.1", "noise = 0.1\ncolumns = { value = 'u' }", "source.csv has no column 'u'; it has x, value"),
        ("noise = 0.1", 'noise = 0.1\nname = "a b"', "sensors.0.name: expected letters"),
        ("noise = 0.1", 'noise = 0.1\nname = "u"\n[[sensors]]\nname="u"\nquantity="u"\nat={x=0}\nnoise=1', "is already taken"),
        ("noise = 0.1", "nois = 0.1", "sensors.0.noise: is missing"),
        ("noise = 0.1", "noise = 0.1\nfoo = 1", "sensors.0.foo: this key is not known"),
        ('method = "hmc"', 'method = "hcm"', "inference.method: 'hcm' is not known; did you mean 'hmc'?"),
        ('method = "hmc"', "num_draws = -3", "inference: HMC: num_draws must be a whole number"),
        ('method = "hmc"', 'num_draws = "many"', "inference: HMC: num_draws must be a whole number"),
        ('method = "hmc"', "num_steps = 3", "inference.num_steps: this key is not known"),
        ("chains = 4", "chains = 0", "inference.chains: expected 1 to 1000, got 0"),
        ("seed = 0", "seed = -1", "inference.seed: expected a whole number from 0"),
        ("seed = 0", "seed = 0.5", "inference.seed: expected a whole number, got 0.5"),
        ("[inference]", "[truth]\nw = 1\n[inference]", "truth.w: not a field, an equation or an unknown"),
        ("[inference]", "[inferense]\n[inference]", "inferense: this key is not known; did you mean 'inference'?"),
        ('title = "Reaction rate"', "title = 3", "title: expected text, got 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(folder, old, new, words):
    with pytest.raises(bp.InputError) as caught:
        read(folder, old, new)
    assert words in str(caught.value)
    assert "problem.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("chains", "expected key=value"),
        ("=3", "expected key=value"),
        ("sensors.5.noise=1", "'5' is not a number from 0 to 1"),
        ("sensors.noise=1", "name a key in one of its 2 tables"),
        ("title.x=1", "'title' is a value, not a table"),
    ],
)
def test_what_is_wrong_with_a_change(folder, change, words):
    with pytest.raises(bp.InputError) as caught:
        read(folder, changes=[change])
    assert words in str(caught.value)


def mutations(count, seed=0):
    """Files with pieces cut out, doubled, swapped or replaced."""
    rng = np.random.default_rng(seed)
    junk = [
        "",
        "\n",
        "=",
        "[",
        "]",
        '"',
        "{",
        "}",
        "-1",
        "nan",
        "inf",
        "1e400",
        "true",
        "[[",
        "x",
        "u",
        "'",
        ",",
        "9" * 30,
    ]
    for _ in range(count):
        text = GOOD
        for _ in range(rng.integers(1, 4)):
            i, j = sorted(rng.integers(0, len(text), 2))
            j = min(j, i + int(rng.integers(1, 40)))
            piece = [str(rng.choice(junk)), text[i:j] * 2, text[i:j][::-1], chr(int(rng.integers(1, 3000)))]
            text = text[:i] + piece[rng.integers(len(piece))] + text[j:]
        yield text


def survive(folder, count, calls_in):
    """Our own error or a problem, with no more work than a few times that of reading the good file."""

    def read_or_refuse():
        with contextlib.suppress(bp.InputError):
            read_problem(folder / "problem.toml")

    read_or_refuse()  # what is imported or compiled at first
    usual = calls_in(read_or_refuse)
    for text in mutations(count):
        (folder / "problem.toml").write_text(text, encoding="utf-8", errors="replace")
        calls_in(read_or_refuse, most=5 * usual)


def test_mutated_files_are_read_or_refused(folder, calls_in):
    survive(folder, 300, calls_in)


@pytest.mark.slow
def test_five_thousand_mutated_files_are_read_or_refused(folder, calls_in):
    survive(folder, 5000, calls_in)


# --- files as they come from a laboratory ---

COOLING = """
[domain]
t = [0, 3]
[fields.T]
hidden = [6]
[[sensors]]
quantity = "T"
data = "log.csv"
noise = 0.5
"""
LOG = """Logger 7
Time;Operator;T (degC);noise
;;degC;
01.03.2024 08:00;Anna;60,5;a
01.03.2024 08:30;Anna;NA;b
01.03.2024 09:30;Bo, Anna;40,25;c
01.03.2024 10:00;;-;d
01.03.2024 11:00;Bo;31;e
"""
WHOLE = 'columns = { t = "Time", value = "T (degC)" }\nmissing = "drop"\n[time]\nunit = "hours"\n'


def from_logger(folder, more="", log=LOG, **options):
    (folder / "problem.toml").write_text(COOLING + more)
    (folder / "log.csv").write_text(log)
    return read_problem(folder / "problem.toml", **options)


def test_readings_of_a_logger(tmp_path):
    found = from_logger(tmp_path, WHOLE)
    (readings,) = found.problem.readings
    np.testing.assert_array_equal(readings.values, [60.5, 40.25, 31.0])
    np.testing.assert_array_equal(found.problem.sensors["T"].at["t"], [0.0, 1.5, 3.0])
    assert found.notes == (
        "log.csv: 1 line above the column names in line 2 skipped",
        "log.csv: line 3 has units (degC) and is skipped",
        "timestamps: hours since 2024-03-01 08:00:00",
        "log.csv: column 'T (degC)' has 2 missing cells, in lines 5 and 7; 2 of 5 rows dropped",
    )


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ('unit = "hours"', [0.0, 1.5, 3.0]),
        ('unit = "h"\nstart = "2024-03-01 07:30"', [0.5, 2.0, 3.5]),
        ('unit = "minute"\nstart = 2024-03-01T09:00:00', [-60.0, 30.0, 120.0]),
        ("start = 2024-03-01", [28800.0, 34200.0, 39600.0]),
    ],
)
@pytest.mark.filterwarnings("ignore::bpinn.BpinnWarning")  # outside the domain
def test_the_clock(time, expected, tmp_path):
    found = from_logger(tmp_path, WHOLE.replace('unit = "hours"', time))
    np.testing.assert_array_equal(found.problem.sensors["T"].at["t"], expected)


def test_sensors_share_a_clock(tmp_path):
    """It starts at the earliest timestamp of all files, not of each."""
    (tmp_path / "late.csv").write_text("date,hour,value,noise\n2024-03-01,10:30,30,0.1\n2024-03-01,NA,29,0.2\n")
    late = '[[sensors]]\nname = "late"\nquantity = "T"\ndata = "late.csv"\ncolumns = { t = ["date", "hour"] }\nmissing = "drop"\n'
    found = from_logger(tmp_path, WHOLE.replace("[time]", late + "[time]"))
    np.testing.assert_array_equal(found.problem.sensors["late"].at["t"], [2.5])
    np.testing.assert_array_equal(found.problem.sensors["late"].noise, [0.1])


def test_windows_of_an_average_may_be_timestamps(tmp_path):
    log = "from;to;value\n2024-03-01 08:00;2024-03-01 08:30;5\n2024-03-01 09:00;2024-03-01 09:30;NA\n2024-03-01 09:00;;6\n"
    more = 'average = { t = ["from", "to"] }\nmissing = "drop"\n[time]\nunit = "hours"\nstart = "2024-03-01 08:00"\n'
    ((_, low, high),) = from_logger(tmp_path, more, log).problem.sensors["T_average"].quantity.over
    np.testing.assert_array_equal([low, high], [[0.0], [0.5]])
    with pytest.raises(bp.InputError, match="time: no coordinate column holds dates"):
        from_logger(tmp_path, 'missing = "drop"\n[time]\nunit = "hours"\n', "t,value\n0,1\n")


@pytest.mark.parametrize(
    ("more", "log", "words"),
    [
        ("", LOG, "log.csv: there is no column 't' for the coordinate t; it has Time, Operator, T, noise; if it is "
         '"Time", write columns = { t = "Time", value = "T (degC)" } in sensors.0'),
        ("", "t,theta (rad),note\n0,1,a\n", 'no column \'value\' for the readings; it has t, theta, note; if it is "theta (rad)", write columns = { value = "theta (rad)" } in'),
        ("", "t,a,b\n0,1,2\n", "no column 'value' for the readings; it has t, a, b"),
        ('columns = { t = "Tyme" }', LOG, "columns.t: log.csv has no column 'Tyme'; did you mean 'Time'?"),
        (WHOLE.replace('missing = "drop"', ""), LOG, "log.csv: column 'T (degC)' has 2 missing cells, in lines 5 and 7; "
         'fill them, or write missing = "drop" in sensors.0 to leave these rows out'),
        ('missing = "drop"', "t,value\n0,\n", "column 'value' has 1 missing cell, in line 2; no reading is left"),
        ('missing = "skip"', LOG, "sensors.0.missing: expected 'error', 'drop', or a list of the numbers"),
        (WHOLE.replace("hours", "fortnights"), LOG, "time.unit: 'fortnights' is not known"),
        (WHOLE + 'start = "yesterday"', LOG, "time.start: 'yesterday' is not a date or time of day; expected a date"),
        (WHOLE + 'start = "2024-03-01T08:00Z"', LOG, "'Time' has dates without a time zone, but time starts at 2024-03-01 08:00:00Z, among dates with a time zone"),
        (WHOLE + "begin = 0", LOG, "time.begin: this key is not known"),
        (WHOLE, LOG.replace("01.03.", "01/03/"), "line 4, column 'Time': '01/03/2024 08:00' could be 1 March 2024 or 3 January 2024"),
        ('sheet = "a"', LOG, "log.csv: only Excel workbooks have sheets"),
        ('encoding = "utf"', LOG, "sensors.0.encoding: 'utf' is not known; did you mean"),
        ('columns = { value = ["a", "b"] }', LOG, "columns.value: only a coordinate can have several columns"),
        ('columns = { t = ["t", "value"] }', "t,value\n0,1\n", "line 2, column 't value': '0 1' is not a date"),
    ],
)  # fmt: skip
def test_what_a_logger_left_open_is_said(more, log, words, tmp_path):
    with pytest.raises(bp.InputError) as caught:
        from_logger(tmp_path, more, log)
    assert words in str(caught.value)


def test_keys_of_files_need_a_file(tmp_path):
    (tmp_path / "problem.toml").write_text(COOLING.replace('data = "log.csv"', 'at = { t = 0 }\nmissing = "drop"'))
    with pytest.raises(bp.InputError, match=r"sensors.0.missing: only valid with data"):
        read_problem(tmp_path / "problem.toml")


# --- groups in one file ---

TREES = "Seed,plate,t,value\n301,A,0,1\n301,A,1,2\n303,B,0,3\n303,B,1,NA\n305.0, A ,2,5\n"


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("{ Seed = 301 }", [1, 2]),
        ("{ Seed = 301.0 }", [1, 2]),
        ('{ Seed = "301" }', [1, 2]),
        ("{ Seed = [301, 305] }", [1, 2, 5]),
        ('{ plate = "A" }', [1, 2, 5]),
        ('{ plate = "A", Seed = 305 }', [5]),
        ('{ plate = "A", Seed = [303, 305] }', [5]),
    ],
)
def test_sensors_read_some_of_the_rows(where, values, tmp_path):
    found = from_logger(tmp_path, f"where = {where}", TREES)
    np.testing.assert_array_equal(found.problem.sensors["T"].values, values)
    assert found.notes[0].startswith(f"log.csv: {len(values)} rows have ")
    changed = from_logger(tmp_path, f"where = {where}", TREES, changes=["sensors.0.where={ Seed = 305 }"])
    np.testing.assert_array_equal(changed.problem.sensors["T"].values, [5])


def test_rows_keep_their_lines_and_their_clock(tmp_path):
    """Messages name lines of the file; other groups neither lack readings nor start the clock."""
    with pytest.raises(bp.InputError, match=r"column 'value' has 1 missing cell, in line 5; fill it|in line 5"):
        from_logger(tmp_path, "where = { Seed = 303 }", TREES)
    log = "who,Time,T\na,2024-03-01 08:00,1\nb,2024-03-01 09:00,2\nb,2024-03-01 09:30,3\n"
    more = 'where = { who = "b" }\ncolumns = { t = "Time", value = "T" }\n[time]\nunit = "hours"'
    found = from_logger(tmp_path, more, log)
    np.testing.assert_array_equal(found.problem.sensors["T"].at["t"], [0.0, 0.5])


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{ Sed = 301 }", "sensors.0.where: log.csv has no column 'Sed'; did you mean 'Seed'?"),
        ("{ tree = 301 }", "sensors.0.where: log.csv has no column 'tree'; it has Seed, plate, t, value"),
        ("{ Seed = 302 }", "sensors.0.where: no row of log.csv has Seed = 302; it has 301, 303, 305"),
        ('{ plate = "A", Seed = 303 }', "no row of log.csv has Seed = 303; it has 301, 305"),
        ('{ plate = ["C", "D"] }', "no row of log.csv has plate = C or D; it has A, B"),
        ("{ Seed = true }", "sensors.0.where.Seed: expected a number, a text, or a list of them, got True"),
        ("{ Seed = [] }", "sensors.0.where.Seed: expected a number, a text, or a list of them, got []"),
        ("{}", "sensors.0.where: expected a table of columns and their values"),
        ("301", "sensors.0.where: expected a table of columns and their values"),
    ],
)
def test_rows_that_are_not_there_are_said(where, words, tmp_path):
    with pytest.raises(bp.InputError) as caught:
        from_logger(tmp_path, f"where = {where}", TREES)
    assert words in str(caught.value)


def test_labels_of_rows_are_the_same_only_for_the_same_value():
    from bpinn.problem_file.rows import label

    for same in ((301, 301.0, "301", " 301.0 "), ("2e3", 2000), ("0.5", 0.5, ".50"), ("-7", -7)):
        assert len({label(value) for value in same}) == 1
    for different in (("1_1", 11), ("20240101120001", "20240101120002"), ("1e400", "inf"), ("0.1", "0.10000000000001")):
        assert len({label(value) for value in different}) == 2
