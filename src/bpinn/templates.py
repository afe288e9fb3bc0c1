"""Template problem files with synthetic data: `bpinn new NAME --template ...`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bpinn.errors import InputError

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Template:
    """A problem file, and a function that generates its data by file name."""

    about: str
    text: str
    data: Callable[[np.random.Generator], dict[str, Columns]]


def _inverse_1d(rng: np.random.Generator) -> dict[str, Columns]:
    x_f, x_u = np.linspace(-0.7, 0.7, 32), np.linspace(-0.7, 0.7, 8)
    s, c = np.sin(6 * x_f), np.cos(6 * x_f)
    f = 1.08 * (2 * s * c**2 - s**3) + 0.7 * np.tanh(s**3)
    noise = np.where(np.abs(x_u) < 0.69, 0.1, 0.01)
    return {
        "source.csv": {"x": x_f, "value": f + 0.1 * rng.standard_normal(32)},
        "probes.csv": {"x": x_u, "value": np.sin(6 * x_u) ** 3 + noise * rng.standard_normal(8), "noise": noise},
    }


def _forward_2d(rng: np.random.Generator) -> dict[str, Columns]:
    x, y = rng.uniform(-1, 1, (2, 100))
    f = -2 * np.pi**2 * np.sin(np.pi * x) * np.sin(np.pi * y)
    return {"source.csv": {"x": x, "y": y, "value": f + 0.5 * rng.standard_normal(100)}}


def _predators(rng: np.random.Generator) -> dict[str, Columns]:
    """Lotka-Volterra, integrated with small Runge-Kutta steps."""

    def slope(s: np.ndarray) -> np.ndarray:
        return np.array([1.2 * s[0] - 1.0 * s[0] * s[1], 0.8 * s[0] * s[1] - 1.0 * s[1]])

    state, path, dt = np.array([1.5, 0.8]), [], 0.001
    for _ in range(5001):
        path.append(state)
        a = slope(state)
        b = slope(state + dt / 2 * a)
        c = slope(state + dt / 2 * b)
        state = state + dt / 6 * (a + 2 * b + 2 * c + slope(state + dt * c))
    rows = np.array(path)[::250]
    t = np.linspace(0, 5, len(rows))
    noisy = rows + 0.05 * rng.standard_normal(rows.shape)
    return {"prey.csv": {"t": t, "value": noisy[:, 0]}, "predators.csv": {"t": t, "value": noisy[:, 1]}}


def _field(rng: np.random.Generator) -> dict[str, Columns]:
    x = np.linspace(0, 1, 17)
    return {"temperature.csv": {"x": x, "value": np.sin(np.pi * x) + 0.01 * rng.standard_normal(17)}}


def _heat(rng: np.random.Generator) -> dict[str, Columns]:
    x, t = rng.uniform(0, 1, 40), rng.uniform(0, 1, 40)
    u = np.exp(-0.1 * np.pi**2 * t) * np.sin(np.pi * x)
    return {"probes.csv": {"x": x, "t": t, "value": u + 0.03 * rng.standard_normal(40)}}


def _curve(rng: np.random.Generator) -> dict[str, Columns]:
    x = np.sort(rng.uniform(-1, 1, 30))
    return {"readings.csv": {"x": x, "value": np.sin(3 * x) + 0.1 * rng.standard_normal(30)}}


TEMPLATES = {
    "inverse-1d": Template(
        "an unknown reaction rate from readings of the source and the solution",
        """title = "Reaction rate from noisy probes"

[domain]
x = [-0.7, 0.7]

[fields.u]
surrogate = "mlp"
hidden = [50, 50]

[unknowns]
k = { prior = "normal", mean = 0.0, sd = 1.0 }

[equations]
f = "0.01*u_xx + k*tanh(u)"

[[sensors]]
quantity = "f"
data = "source.csv"      # columns: x and value
noise = 0.1

[[sensors]]
quantity = "u"
data = "probes.csv"      # columns: x, value and the noise of each reading

[truth]                  # optional, known here because the data are synthetic: the report shows the errors
u = "sin(6*x)**3"
k = 0.7

[inference]
method = "hmc"
chains = 4
seed = 0
""",
        _inverse_1d,
    ),
    "forward-2d": Template(
        "a Poisson equation in two dimensions with a noisy source",
        """title = "Potential of a noisy source"

[domain]
x = [-1, 1]
y = [-1, 1]

[fields.u]               # a smooth field: the length is the distance over which it changes
surrogate = "kl"
kernel = { kind = "squared_exponential", length = 0.7, amplitude = 2.0 }
terms = 100

[equations]
f = "u_xx + u_yy"

[[sensors]]
quantity = "f"
data = "source.csv"
noise = 0.5

[[sensors]]
name = "left_right"
quantity = "u"
at = { x = [-1, 1], y = { from = -1, to = 1, count = 11 } }
mesh = true
values = 0.0
noise = 0.01

[[sensors]]
name = "below_above"
quantity = "u"
at = { x = { from = -1, to = 1, count = 11 }, y = [-1, 1] }
mesh = true
values = 0.0
noise = 0.01

[truth]
u = "sin(pi*x)*sin(pi*y)"

[inference]
seed = 0
""",
        _forward_2d,
    ),
    "ode-system": Template(
        "birth and death rates of two species (Lotka-Volterra) from readings of both",
        """title = "Predators and prey"

[domain]
t = [0, 5]

[fields.prey]
surrogate = "gp"         # a Gaussian process that learns its length and its amplitude

[fields.predators]
surrogate = "gp"

[unknowns]
birth = { prior = "lognormal", log_mean = 0.0, log_sd = 0.5 }
death = { prior = "lognormal", log_mean = 0.0, log_sd = 0.5 }

[equations]
growth = "prey_t - birth*prey + prey*predators"
decline = "predators_t - 0.8*prey*predators + death*predators"

[[physics]]              # an equation that holds everywhere; points and tolerance are chosen for it
equation = "growth"

[[physics]]
equation = "decline"

[[sensors]]
quantity = "prey"
data = "prey.csv"
noise = 0.05

[[sensors]]
quantity = "predators"
data = "predators.csv"
noise = 0.05

[truth]
birth = 1.2
death = 1.0

[inference]
seed = 0
""",
        _predators,
    ),
    "field": Template(
        "a conductivity that varies along a rod, from temperatures",
        """title = "Conductivity along a rod"

[domain]
x = [0, 1]

[fields.u]
hidden = [30, 30]

[fields.c]              # an unknown function, positive
hidden = [20]
positive = true

[equations]
heat = "c*u_xx + c_x*u_x + pi**2*sin(pi*x)*(1 + 0.5*x) - 0.5*pi*cos(pi*x)"

[[sensors]]
quantity = "heat"
at = { x = { from = 0, to = 1, count = 40 } }
values = 0.0
noise = 0.05

[[sensors]]
quantity = "u"
data = "temperature.csv"
noise = 0.01

[[sensors]]
name = "known_end"
quantity = "c"
at = { x = 0.0 }
values = 1.0
noise = 0.01

[truth]
u = "sin(pi*x)"
c = "1 + 0.5*x"

[inference]
method = "hmc"
seed = 0
""",
        _field,
    ),
    "heat-1d": Template(
        "an unknown diffusivity from probes in space and time",
        """title = "Diffusivity of a rod"

[domain]
x = [0, 1]
t = [0, 1]

[fields.u]               # a smooth field: the length is the distance over which it changes
surrogate = "kl"
kernel = { kind = "squared_exponential", length = 0.35, amplitude = 2.0 }
terms = 100

[unknowns]
nu = { prior = "lognormal", log_mean = -2.0, log_sd = 1.0 }

[equations]
heat = "u_t - nu*u_xx"

[[physics]]              # an equation that holds everywhere; points and tolerance are chosen for it
equation = "heat"

[[sensors]]
name = "start"
quantity = "u - sin(pi*x)"   # zero: equal values with a stated noise are an exact condition and its tolerance
at = { x = { from = 0, to = 1, count = 15 }, t = 0.0 }
values = 0.0
noise = 0.01

[[sensors]]
name = "ends"
quantity = "u"
at = { x = [0, 1], t = { from = 0, to = 1, count = 9 } }
mesh = true
values = 0.0
noise = 0.01

[[sensors]]
name = "probes"
quantity = "u"
data = "probes.csv"
noise = { prior = "half_normal", sd = 0.1 }   # to be inferred

[truth]
u = "exp(-0.1*pi**2*t)*sin(pi*x)"
nu = 0.1

[inference]
seed = 0
""",
        _heat,
    ),
    "curve": Template(
        "a curve through noisy readings, without an equation",
        """title = "A curve through noisy readings"

[domain]
x = [-1, 1]

[fields.u]
surrogate = "gp"         # a Gaussian process that learns its length and its amplitude

[[sensors]]
quantity = "u"
data = "readings.csv"
noise = { prior = "half_normal", sd = 0.3 }

[truth]
u = "sin(3*x)"

[inference]
seed = 0
""",
        _curve,
    ),
}


def write_template(name: str, folder: Path) -> list[Path]:
    """Write a template's problem file and data into a new folder."""
    if name not in TEMPLATES:
        raise InputError(f"--template {name}: not known; known templates are {', '.join(TEMPLATES)}")
    if folder.exists():
        raise InputError(f"{folder}: already exists; give another name")
    template = TEMPLATES[name]
    try:
        folder.mkdir(parents=True)
        (folder / "problem.toml").write_text(template.text)
        written = [folder / "problem.toml"]
        for file, columns in template.data(np.random.default_rng(0)).items():
            rows = np.stack(list(columns.values()), axis=1)
            lines = [",".join(columns), *(",".join(f"{v:.6g}" for v in row) for row in rows)]
            (folder / file).write_text("\n".join(lines) + "\n")
            written.append(folder / file)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return written
