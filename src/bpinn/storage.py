"""Results on disk: one self-describing .npz file, without pickle.

Arrays are stored as arrays; the problem, the settings, the seed and the versions as JSON. Equations
are Python functions and are not stored as code: the file has their names, arguments and source text
for a reader, and `load` accepts the functions if they are needed again.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpyro.distributions as dist

from bpinn.errors import DamagedError, InputError
from bpinn.fields import Field
from bpinn.fields.kernels import Stationary
from bpinn.fields.scales import Inferred
from bpinn.likelihoods import Likelihood
from bpinn.measurements import MEASUREMENTS, Measurement, Quantity
from bpinn.methods import Method
from bpinn.parameters import Parameters
from bpinn.problem import Problem, Sensors
from bpinn.quantities import StoredFunction
from bpinn.registry import Registry
from bpinn.run_folder.files import draws_checksum, map_draws, read_arrays, write_file
from bpinn.run_output import SamplerStats

if TYPE_CHECKING:
    from bpinn.result import Result

FORMAT, READABLE = 2, (1, 2)  # the format that is written, and those that can be read; 1 is version 0.1's


def save(result: "Result", path: str | Path, *, draws_beside: bool = False) -> Path:
    """Write a result; the file appears under its name only when it is complete.

    With ``draws_beside`` the draws are already in a separate file next to it, and stay there.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {"functionals": result.functionals}
    if not draws_beside:
        arrays["z"] = result.z
    arrays |= {f"stats/{name}": values for name, values in result.stats.items()}
    arrays |= {f"history/{name}": values for name, values in result.history.items()}
    about = {
        "format": FORMAT,
        "problem": describe_problem(result.problem, arrays),
        "method": describe_settings(result.method),
        "seed": result.seed,
        "seconds": result.seconds,
        "versions": result.versions,
        "interrupted": result.interrupted,
        "functionals": result.functional_names,
        "draws_beside": draws_beside,
        "draws_checksum": draws_checksum(path.parent) if draws_beside else None,
        "readings": result.diagnose().noted,  # cannot be recomputed without the equations
        "start": result.start_noted,
    }
    arrays["about"] = np.array(json.dumps(about))
    if not path.parent.is_dir():
        raise InputError(f"save: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"save: {path} is a folder; give the name of a file in it")
    write_file(path, arrays)
    return path


def load(path: str | Path, functions: Mapping[str, Callable[..., Any]] | None = None) -> "Result":
    """Read a file written by `save`; see `bpinn.load`."""
    arrays = _read(Path(path))
    try:
        about = json.loads(str(arrays["about"]))
        known = about.get("format")
    except (ValueError, AttributeError, RecursionError):
        raise DamagedError(f"load: {path} is not a bpinn result, or is damaged") from None
    if known not in READABLE:
        raise InputError(f"load: {path} has format {known}, but this version reads up to {FORMAT}; upgrade bpinn")
    if about.get("draws_beside"):
        arrays["z"] = map_draws(Path(path).parent, about.get("draws_checksum"))
    elif "z" not in arrays:
        raise InputError(f"load: {path} is not a bpinn result: it lacks z")
    try:
        result = _rebuilt(about, arrays, functions or {})
        agree = result.functionals.shape == (*result.z.shape[:2], len(result.functional_names))
        agree &= _is_whole(result)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedError(f"load: {path} is damaged ({type(error).__name__}: {error})") from None
    if not agree or result.z.ndim != 3 or result.z.shape[2] != Parameters(result.problem).dim:
        raise DamagedError(f"load: {path} is damaged: its draws do not match its problem")
    return result


def _rebuilt(
    about: dict[str, Any], arrays: dict[str, np.ndarray], functions: Mapping[str, Callable[..., Any]]
) -> "Result":
    from bpinn.result import Result

    problem = _rebuild_problem(about["problem"], arrays, functions)
    stats, history = (
        {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        for prefix in ("stats/", "history/")
    )
    return Result(
        problem,
        rebuild_settings(about["method"], functions, Method.registry),
        about["seed"],
        arrays["z"],
        arrays["functionals"],
        SamplerStats(stats),
        about["seconds"],
        about["versions"],
        about["interrupted"],
        history,
        [tuple(told) for told in about.get("readings", [])],
        [tuple(told) for told in about.get("start", [])],
    )


def _is_whole(result: "Result") -> bool:
    """Whether everything that a result needs is present and has the right type and shape."""
    stats, history = result.stats, result.history
    chains = result.z.shape[0]
    numbers = [result.z, result.functionals, *stats.values(), *history.values()]
    noted = [*result.readings_noted, *result.start_noted]
    told = [(verdict, reason, advice or "") for verdict, reason, advice in noted]
    return (
        result.method.recorded <= set(stats)
        and result.method.fitted <= set(history)
        and all(values.dtype.kind in "fiub" for values in numbers)
        and all(values.shape == result.z.shape[:2] for values in stats.values())
        and all(values.ndim == 2 and len(values) == chains for name, values in history.items() if name != "step")
        and isinstance(result.interrupted, bool)
        and isinstance(result.seed, int)
        and all(isinstance(value, int | float) for value in result.seconds.values())
        and ("step" in history or not history)
        and all(isinstance(value, str) for value in result.versions.values())
        and all(isinstance(word, str) for row in told for word in row)
        and all(verdict in ("good", "care", "bad") for verdict, *_ in told)
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        raise InputError(f"load: {path} is a folder, but not a run folder; give the file that Result.save wrote")
    if not path.is_file():
        raise InputError(f"load: there is no file {path}")
    arrays = read_arrays(path)
    missing = {"about", "functionals"} - set(arrays)
    if missing:
        raise InputError(f"load: {path} is not a bpinn result: it lacks {', '.join(sorted(missing))}")
    return arrays


def save_problem(problem: Problem, path: Path) -> None:
    """Write a problem with its data, equations as text."""
    arrays: dict[str, np.ndarray] = {}
    about = {"format": FORMAT, "problem": describe_problem(problem, arrays)}
    write_file(path, {**arrays, "about": np.array(json.dumps(about))})


def load_problem(path: Path, functions: Mapping[str, Callable[..., Any]]) -> Problem:
    """Read what `save_problem` wrote."""
    arrays = read_arrays(path)
    try:
        return _rebuild_problem(json.loads(str(arrays["about"]))["problem"], arrays, functions)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedError(f"load: {path} is damaged ({type(error).__name__}: {error})") from None


# --- the problem as JSON ---


def describe_problem(problem: Problem, arrays: dict[str, np.ndarray], format_: int = FORMAT) -> dict[str, Any]:
    """A problem as JSON data; its arrays are added to ``arrays``. Format 1 is what version 0.1 wrote."""
    sensors = {}
    for readings in problem.readings:
        stated = problem.sensors[readings.name]
        prefix = f"sensors/{readings.name}/"
        arrays[prefix + "values"] = readings.values
        arrays |= {f"{prefix}at/{c}": a for c, a in readings.at.items()}
        if readings.noise is not None:
            arrays[prefix + "noise"] = readings.noise
        sensors[readings.name] = {
            "quantity": describe_quantity(stated.quantity),
            "at": list(readings.at),
            "noise": None if readings.noise is not None else _describe_noise(stated.noise),
            **({"likelihood": describe_settings(readings.likelihood)} if format_ > 1 else _old_likelihood(stated)),
            **({"neutral": True} if readings.neutral else {}),
        }
    return {
        "domain": problem.domain,
        "fields": {name: describe_settings(field) for name, field in problem.fields.items()},
        "unknowns": {name: _describe_prior(prior, name) for name, prior in problem.unknowns.items()},
        "sensors": sensors,
    }


def _old_likelihood(stated: Sensors) -> dict[str, Any]:
    name = stated.likelihood if isinstance(stated.likelihood, str) else type(stated.likelihood).__name__
    return {"likelihood": name, "dof": float(stated.dof)}


def _rebuild_problem(
    about: dict[str, Any], arrays: dict[str, np.ndarray], functions: Mapping[str, Callable[..., Any]]
) -> Problem:
    sensors = {}
    for name, s in about["sensors"].items():
        prefix = f"sensors/{name}/"
        noise: Any = arrays.get(prefix + "noise")
        if noise is None:
            noise = _rebuild_prior(s["noise"]) if isinstance(s["noise"], dict) else s["noise"]
        old = isinstance(s["likelihood"], str)  # format 1
        sensors[name] = Sensors(
            _rebuild_quantity(s["quantity"], functions),
            {c: arrays[f"{prefix}at/{c}"] for c in s["at"]},
            arrays[prefix + "values"],
            noise,
            s["likelihood"] if old else rebuild_settings(s["likelihood"], functions, Likelihood.registry),
            s["dof"] if old else 4.0,
            s.get("neutral", False),
        )
    return Problem(
        domain={name: tuple(bounds) for name, bounds in about["domain"].items()},
        fields={
            name: rebuild_settings(settings, functions, Field.registry, Stationary.registry)
            for name, settings in about["fields"].items()
        },
        unknowns={name: _rebuild_prior(prior) for name, prior in about["unknowns"].items()},
        sensors=sensors,
    )


def describe_settings(settings: Any) -> Any:
    """A frozen settings object as its type and fields, recursively; functions as text."""
    if is_dataclass(settings) and not isinstance(settings, type):
        registry = getattr(settings, "registry", None)
        if isinstance(registry, Registry) and registry.stored(type(settings).__name__) is not type(settings):
            raise InputError(
                f"save: {type(settings).__name__} is not registered, so a file with it could not be read back; "
                f"decorate the class with @bp.register('name')"
            )
        inside = {f.name: describe_settings(getattr(settings, f.name)) for f in dataclass_fields(settings)}
        return {"type": type(settings).__name__, **inside}
    if isinstance(settings, Inferred):
        return {"prior": _describe_prior(settings.prior, "a scale")}
    if isinstance(settings, np.generic):
        return settings.item()
    if isinstance(settings, tuple):
        return [describe_settings(part) for part in settings]
    return describe_quantity(settings) if callable(settings) else settings


def rebuild_settings(about: Any, functions: Mapping[str, Callable[..., Any]], *registries: Registry) -> Any:
    """Rebuild what `describe_settings` described, with classes from the registries."""
    if isinstance(about, list):
        return tuple(rebuild_settings(part, functions, *registries) for part in about)
    if not isinstance(about, dict):
        return about
    if "function" in about:
        return _rebuild_quantity(about, functions)
    if "prior" in about:
        return _rebuild_prior(about["prior"])
    arguments = {
        name: rebuild_settings(value, functions, *registries) for name, value in about.items() if name != "type"
    }
    for registry in registries:
        kind = registry.stored(about["type"])
        if kind is not None:
            return kind(**(getattr(kind, "before", {}) | arguments))
    raise InputError(
        f"load: {about['type']!r} is not a known {registries[0].kind}; import the package that "
        "defines it, or upgrade bpinn"
    )


def describe_quantity(quantity: Quantity) -> Any:
    if isinstance(quantity, str):
        return quantity
    if isinstance(quantity, Measurement):
        settings: Any = {f.name: getattr(quantity, f.name) for f in dataclass_fields(quantity)}
        return {quantity.file_name: describe_quantity(settings.pop("quantity")), **settings}
    if isinstance(quantity, StoredFunction):
        return {"function": quantity.__name__, "arguments": list(quantity.arguments), "source": quantity.source}
    try:
        source = inspect.getsource(quantity)
    except (OSError, TypeError):
        source = None
    arguments = list(inspect.signature(quantity).parameters)
    return {"function": getattr(quantity, "__name__", "equation"), "arguments": arguments, "source": source}


def _rebuild_quantity(about: Any, functions: Mapping[str, Callable[..., Any]]) -> Any:
    if isinstance(about, str):
        return about
    for name, kind in MEASUREMENTS.items():
        if name in about:
            settings = {key: _as_tuples(value) for key, value in about.items() if key != name}
            return kind(quantity=_rebuild_quantity(about[name], functions), **settings)
    if about["function"] in functions:
        return functions[about["function"]]
    return StoredFunction(about["function"], tuple(about["arguments"]), about["source"])


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(part) for part in value) if isinstance(value, list) else value


def _describe_noise(noise: Any) -> Any:
    return noise if noise is None or isinstance(noise, str) else _describe_prior(noise, "noise")


def _describe_prior(prior: dist.Distribution, name: str) -> dict[str, Any]:
    """A prior as its type and constructor arguments; checked by rebuilding it."""
    kind = type(prior).__name__
    described: dict[str, Any] = {"type": kind}
    if isinstance(prior, dist.Independent):
        described |= {"base_dist": _describe_prior(prior.base_dist, name), "dims": prior.reinterpreted_batch_ndims}
    elif isinstance(prior, dist.ExpandedDistribution):
        described |= {"base_dist": _describe_prior(prior.base_dist, name), "shape": list(prior.batch_shape)}
    else:
        described["parameters"] = _parameters_of(prior, name)
    try:
        rebuilt, value = _rebuild_prior(described), prior.sample(jax.random.key(0))
        same = rebuilt.shape() == prior.shape() and np.allclose(rebuilt.log_prob(value), prior.log_prob(value))
    except (AttributeError, TypeError, ValueError):
        same = False
    if not same:
        raise InputError(
            f"save: the prior {kind} of {name!r} cannot be described by its parameters; "
            "use one of numpyro.distributions, or save the draws with to_arviz()"
        )
    return described


def _parameters_of(prior: dist.Distribution, name: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for argument in inspect.signature(type(prior).__init__).parameters:
        value = getattr(prior, argument, None)
        if isinstance(value, dist.Distribution):
            parameters[argument] = _describe_prior(value, name)
        elif value is not None and argument in prior.arg_constraints:
            parameters[argument] = np.asarray(value).tolist()
    if "scale_tril" in parameters:  # the other forms of a multivariate normal's scale follow from it
        parameters = {n: v for n, v in parameters.items() if n not in ("covariance_matrix", "precision_matrix")}
    return parameters


def _rebuild_prior(about: dict[str, Any]) -> dist.Distribution:
    if about["type"] == "Independent":
        return _rebuild_prior(about["base_dist"]).to_event(about["dims"])
    if about["type"] == "ExpandedDistribution":
        return _rebuild_prior(about["base_dist"]).expand(about["shape"])
    parameters: dict[str, Any] = {}
    for name, value in about["parameters"].items():
        if isinstance(value, dict):
            parameters[name] = _rebuild_prior(value)
        else:
            parameters[name] = np.asarray(value) if isinstance(value, list) else value
    kind = getattr(dist, about["type"], None) or getattr(dist.truncated, about["type"])
    if not (isinstance(kind, type) and issubclass(kind, dist.Distribution)):
        raise InputError(f"load: {about['type']!r} is not a numpyro distribution")
    return kind(**parameters)
