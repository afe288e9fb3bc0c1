"""The priors, surrogates, likelihoods and methods of a problem file."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpyro.distributions as dist

from bpinn import fields as surrogates
from bpinn.choosing import default_method
from bpinn.errors import InputError
from bpinn.expressions import parse
from bpinn.fields import Field
from bpinn.fields.kernels import Stationary
from bpinn.likelihoods import Likelihood
from bpinn.methods import HMC, Method
from bpinn.problem import Problem
from bpinn.problem_file.toml_table import NEEDED, Table, finite, made, number, shown

MOST_LAYERS, WIDEST = 50, 10_000
# Name of a prior: its distribution, and for each parameter its name in files and its name in numpyro.
PRIORS: dict[str, tuple[Any, dict[str, str]]] = {
    "normal": (dist.Normal, {"mean": "loc", "sd": "scale"}),
    "lognormal": (dist.LogNormal, {"log_mean": "loc", "log_sd": "scale"}),
    "uniform": (dist.Uniform, {"low": "low", "high": "high"}),
    "half_normal": (dist.HalfNormal, {"sd": "scale"}),
    "exponential": (dist.Exponential, {"rate": "rate"}),
    "gamma": (dist.Gamma, {"shape": "concentration", "rate": "rate"}),
    "inverse_gamma": (dist.InverseGamma, {"shape": "concentration", "scale": "rate"}),
    "beta": (dist.Beta, {"a": "concentration1", "b": "concentration0"}),
    "student_t": (dist.StudentT, {"dof": "df", "mean": "loc", "sd": "scale"}),
    "cauchy": (dist.Cauchy, {"centre": "loc", "scale": "scale"}),
    "half_cauchy": (dist.HalfCauchy, {"scale": "scale"}),
    "truncated_normal": (dist.TruncatedNormal, {"mean": "loc", "sd": "scale", "low": "low", "high": "high"}),
}
POSITIVE = {"sd", "log_sd", "rate", "shape", "scale", "a", "b", "dof"}
KERNEL = "a table such as { kind = 'exponential', length = 0.25 }"
OPTIONAL = {"truncated_normal": {"low", "high"}}


def read_prior(table: Table) -> dist.Distribution:
    """A prior from its name and parameters."""
    kind = table.choice("prior", PRIORS)
    make, parameters = PRIORS[kind]
    values = {}
    for name, called in parameters.items():
        value = table.number(name, None if name in OPTIONAL.get(kind, ()) else NEEDED)
        if value is None:
            continue
        if name in POSITIVE and not value > 0:
            raise InputError(f"{table.at(name)}: must be positive, got {value!r}")
        values[called] = float(value)
    if "low" in values and "high" in values and not values["low"] < values["high"]:
        raise InputError(f"{table.at('low')}: must be below high, got {values['low']:g} and {values['high']:g}")
    return make(**values)


def read_field(table: Table, domain: Mapping[str, Any]) -> Field:
    """A surrogate from its name and settings."""
    kind = table.choice("surrogate", Field.registry, "mlp")
    common = {"positive": table.take("positive", (bool,), "true or false", False)}
    inputs = table.take("inputs", (list,), "a list of coordinates", None)
    if inputs is not None:
        for name in inputs:
            if name not in domain:
                raise InputError(f"{table.at('inputs')}: {shown(name)} is not a coordinate")
        common["inputs"] = tuple(inputs)
    if kind == "kl":
        return _read_kl(table, common, domain)
    if kind == "gp":
        return _read_gp(table, common, domain)
    if kind != "mlp":
        return read_settings(table, Field.registry.named(kind), common)
    settings: dict[str, Any] = {}
    for key, kinds, wanted in (
        ("hidden", (list,), "a list of widths, such as [50, 50]"),
        ("activation", (str,), "a name, such as 'tanh'"),
        ("weight_sd", (int, float, list, dict), "a number, one per layer, or a prior"),
        ("bias_sd", (int, float, list, dict), "a number, one per layer, or a prior"),
        ("scale_inputs", (bool,), "true or false"),
    ):
        value = _read_scale(table.take(key, kinds, wanted, None), table.at(key))
        if value is not None:
            settings[key] = value
    widths = settings.get("hidden", ())
    if len(widths) > MOST_LAYERS or any(isinstance(w, int) and w > WIDEST for w in widths):
        raise InputError(f"{table.at('hidden')}: at most {MOST_LAYERS} layers of {WIDEST}, got {shown(widths)}")
    return made(surrogates.MLP, table.where, **common, **settings)


def _read_kl(table: Table, common: dict[str, Any], domain: Mapping[str, Any]) -> Field:
    given = table.take("kernel", (dict, list), KERNEL)
    several = isinstance(given, list)
    kernels = [
        _read_kernel(inner, table.at("kernel") + (f".{i}" if several else ""))
        for i, inner in enumerate(given if several else [given])
    ]
    settings: dict[str, Any] = {"terms": table.take("terms", (int,), "a whole number", 20)}
    interval = table.take("interval", (list,), "two numbers [low, high], or one such pair per input", None)
    if interval is not None:
        pairs = interval if interval and isinstance(interval[0], list) else [interval]
        settings["interval"] = tuple(
            tuple(number(b, table.at("interval")) for b in pair) if isinstance(pair, list) else (pair,)
            for pair in pairs
        )
    settings["mean"] = _read_mean(table, common, domain, 0.0)
    kernel = tuple(kernels) if several else kernels[0]
    return made(surrogates.KarhunenLoeve, table.where, kernel=kernel, **common, **settings)


def _read_gp(table: Table, common: dict[str, Any], domain: Mapping[str, Any]) -> Field:
    settings: dict[str, Any] = {}
    given = table.take("kernel", (dict, str), KERNEL, None)
    if given is not None:
        settings["kernel"] = _read_kernel({"kind": given} if isinstance(given, str) else given, table.at("kernel"))
    for key, kinds, wanted in (
        ("terms", (int,), "a whole number"),
        ("factor", (int, float, list), "a number, or one per input"),
        ("unit", (int, float), "a number"),
        ("periodic", (list,), "a list of inputs"),
    ):
        value = table.take(key, kinds, wanted, None)
        if value is not None:
            settings[key] = tuple(value) if isinstance(value, list) else value
    if settings.get("periodic"):
        common.setdefault("inputs", tuple(domain))
    settings["mean"] = _read_mean(table, common, domain, None)
    return made(surrogates.GaussianProcess, table.where, **common, **settings)


def _read_kernel(given: Any, where: str) -> Stationary:
    """A kernel from its kind, and scales that are numbers, lists of them, or priors."""
    if not isinstance(given, dict):
        raise InputError(f"{where}: expected {KERNEL}, got {shown(given)}")
    table = Table(given, where)
    kind: Any = Stationary.registry.named(table.choice("kind", Stationary.registry))
    settings: dict[str, Any] = {}
    for key in ("length", "sd", "amplitude", *(f.name for f in fields(kind) if f.name not in ("length", "sd"))):
        value = _read_scale(table.take(key, (int, float, list, dict), "a number, or a prior", None), table.at(key))
        if value is not None:
            settings[key] = value
    table.end()
    return made(kind, where, **settings)


def _read_scale(value: Any, where: str) -> Any:
    """A setting in which tables are priors: a value, a prior, or several of them."""
    if isinstance(value, list):
        return tuple(_read_scale(one, f"{where}.{i}") for i, one in enumerate(value))
    if not isinstance(value, dict):
        return value
    inner = Table(value, where)
    prior = read_prior(inner)
    inner.end()
    return prior


def _read_mean(table: Table, common: dict[str, Any], domain: Mapping[str, Any], default: float | None) -> Any:
    mean = table.take("mean", (int, float, str), "a number, or a formula in the coordinates", default)
    if isinstance(mean, str):
        order = common.get("inputs", tuple(domain))
        formula = parse(mean, order, table.at("mean"))
        return lambda *x: formula.evaluate(dict(zip(order, x, strict=True)))
    return None if mean is None else finite(mean, table.at("mean"))


def read_settings(table: Table, kind: Any, given: dict[str, Any]) -> Any:
    """An object of a registered class: the keys are its dataclass fields, except those in ``given``."""
    settings = dict(given)
    for f in fields(kind):
        if not f.init or f.name in given:
            continue
        needed = f.default is MISSING and f.default_factory is MISSING
        value = table.take(f.name, (int, float, str, bool, list, dict), "a setting", NEEDED if needed else None)
        if isinstance(f.default, Likelihood) and value is not None:
            value = read_likelihood(value, table.at(f.name))
        if value is not None:
            settings[f.name] = tuple(value) if isinstance(value, list) else value
    return made(kind, table.where, **settings)


def read_likelihood(value: Any, where: str) -> Likelihood:
    """A likelihood from its name, or from a table with its ``kind`` and parameters."""
    if isinstance(value, str):
        name = Table({where: value}, "").choice(where, Likelihood.registry)
        return read_settings(Table({}, where), Likelihood.registry.named(name), {})
    table = Table(value, where)
    found = read_settings(table, Likelihood.registry.named(table.choice("kind", Likelihood.registry)), {})
    table.end()
    return found


def read_inference(table: Table, problem: Problem) -> tuple[Method | None, int, int | None]:
    """The method with its settings, the seed and the number of chains.

    Without a method it is that of `infer`, unless there are settings that only HMC has. If there are none, it is not
    chosen yet, because that can take some seconds.
    """
    default: type[Method] = HMC
    is_open = not table.content.keys() - {"seed", "chains"}
    if not is_open and "method" not in table.content:
        chosen = type(default_method(problem))
        if not table.content.keys() - {"seed", "chains", *(f.name for f in fields(chosen))}:
            default = chosen
    name = table.choice("method", Method.registry, Method.registry.name_of(default))
    kind: Any = Method.registry.named(name)
    seed = table.take("seed", (int,), "a whole number", 0)
    if not 0 <= seed < 2**32:
        raise InputError(f"{table.at('seed')}: expected a whole number from 0 to 2**32 - 1, got {seed}")
    chains = table.take("chains", (int,), "a whole number", None)
    if chains is not None and not 1 <= chains <= 1000:
        raise InputError(f"{table.at('chains')}: expected 1 to 1000, got {chains}")
    paper = table.take("paper", (bool,), "true or false", False)
    known = [f.name for f in fields(kind) if f.init and f.name != "chains"]
    settings = {}
    for key in known:
        value = table.take(key, (int, float, str, bool, list), "a setting", None)
        if value is not None:
            settings[key] = tuple(value) if isinstance(value, list) else value
    table.end()
    if paper and not hasattr(kind, "paper"):
        raise InputError(f"{table.at('paper')}: the paper has no settings for {kind.__name__}; remove it")
    return None if is_open else made(kind.paper if paper else kind, table.where, **settings), seed, chains
