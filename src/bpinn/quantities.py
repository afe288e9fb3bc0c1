"""From names to mathematics: fields, derivatives, unknowns and coordinates.

An equation declares its inputs by the names of its arguments. `Names` knows every name of a problem and
resolves an argument to a `Partial` (a field or one of its derivatives), an `Unknown` or a
`Coordinate`; `Names.equation` does so for a whole function.
"""

import difflib
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bpinn.errors import InputError
from bpinn.fields.activations import MultiIndex

# Added to the message of an equation whose arrays do not fit together.
POINTS = (
    " Fields and coordinates are arrays with one value for each point: write x[:, None] to combine x with a vector, "
    "and sum over the last axis."
)


@dataclass(frozen=True)
class Partial:
    """A field, or a derivative of it: ``orders`` counts the derivatives in each of its inputs."""

    field: str
    orders: MultiIndex


@dataclass(frozen=True)
class Unknown:
    name: str


@dataclass(frozen=True)
class Coordinate:
    name: str


Reference = Partial | Unknown | Coordinate


@dataclass(frozen=True)
class Equation:
    """A function whose argument names are resolved: the references to pass, and a label for messages."""

    label: str
    function: Callable[..., Any]
    arguments: tuple[Reference, ...]
    keywords: tuple[tuple[str, Reference], ...] = ()

    @property
    def references(self) -> tuple[Reference, ...]:
        return self.arguments + tuple(reference for _, reference in self.keywords)

    def call(self, values: Sequence[Any]) -> Any:
        split = len(self.arguments)
        names = (name for name, _ in self.keywords)
        return self.function(*values[:split], **dict(zip(names, values[split:], strict=True)))


class StoredFunction:
    """An equation loaded from a file: its name, arguments and source are known, but it cannot be called."""

    def __init__(self, name: str, arguments: tuple[str, ...], source: str | None):
        self.__name__, self.arguments, self.source = name, arguments, source
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(a, kinds) for a in arguments])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise InputError(
            f"the equation {self.__name__}({', '.join(self.arguments)}) was stored as text; pass the function: "
            f"bp.load(path, functions={{'{self.__name__}': {self.__name__}}})"
        )


def label_of(quantity: str | Callable[..., Any]) -> str:
    """The label of a name or a function in tables and messages."""
    return quantity if isinstance(quantity, str) else getattr(quantity, "__name__", type(quantity).__name__)


def identity(value: Any) -> Any:
    """The equation of a plain field or derivative; a named function, so that it can be pickled."""
    return value


class Names:
    """Every name of a problem, and what it refers to.

    Arguments:
        domain: coordinate names with bounds.
        fields: for each field, the coordinates it depends on.
        unknowns: the names of the unknowns.
    """

    def __init__(
        self,
        domain: Mapping[str, tuple[float, float]],
        fields: Mapping[str, tuple[str, ...]],
        unknowns: Sequence[str],
    ):
        self.domain = dict(domain)
        self.fields = dict(fields)
        self.unknowns = tuple(unknowns)
        kinds: dict[str, str] = {}
        groups = (("coordinate", domain), ("field", fields), ("unknown", unknowns))
        for kind, names in groups:
            for name in names:
                if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
                    raise InputError(f"{kind} {name!r}: a name must be a Python identifier, such as 'u' or 'k_1'")
                if name in kinds:
                    raise InputError(f"name {name!r} is both {_a(kinds[name])} and {_a(kind)}; rename one of them")
                kinds[name] = kind
        self._kinds = kinds
        for name, kind in kinds.items():
            readings = self._derivatives(name)
            if readings:
                raise InputError(
                    f"{kind} {name!r} could also be a derivative of field {readings[0].field!r}; rename one of them"
                )

    def known(self) -> str:
        """All names as text, for messages."""
        derivatives = []
        for field, inputs in self.fields.items():
            derivatives += [f"{field}_{c}" for c in inputs]
        parts = [
            f"fields {', '.join(self.fields) or 'none'}",
            f"derivatives such as {', '.join(derivatives[:3])}" if derivatives else "no derivatives",
            f"unknowns {', '.join(self.unknowns) or 'none'}",
            f"coordinates {', '.join(self.domain)}",
        ]
        return "; ".join(parts)

    def _derivatives(self, name: str) -> list[Partial]:
        """Every way to read a name as a derivative."""
        return [
            Partial(field, orders)
            for field, inputs in self.fields.items()
            if name.startswith(field + "_")
            for orders in sorted(_readings(name[len(field) + 1 :], inputs))
        ]

    def resolve(self, name: str, where: str) -> Reference:
        """What a name refers to; ``where`` starts the error message if it is unknown."""
        kind = self._kinds.get(name)
        if kind == "coordinate":
            return Coordinate(name)
        if kind == "unknown":
            return Unknown(name)
        if kind == "field":
            return Partial(name, (0,) * len(self.fields[name]))
        readings = self._derivatives(name)
        if len(readings) == 1:
            return readings[0]
        if readings:
            ways = " or ".join(self._spell(reading) for reading in readings)
            raise InputError(f"{where}: {name!r} is ambiguous, it can mean {ways}; rename a coordinate or a field")
        raise InputError(f"{where}: {name!r} is not known{self._hint(name)}. Known names are {self.known()}")

    def _spell(self, partial: Partial) -> str:
        inputs = self.fields[partial.field]
        suffix = [c for c, n in zip(inputs, partial.orders, strict=True) for _ in range(n)]
        return f"d^{len(suffix)} {partial.field} / d {' d '.join(suffix)}"

    def _hint(self, name: str) -> str:
        for field, inputs in self.fields.items():
            missing = [c for c in self.domain if c not in inputs]
            if name.startswith(field + "_") and _readings(name[len(field) + 1 :], tuple(self.domain)):
                return f" (field {field!r} depends on {', '.join(inputs)} only, not on {', '.join(missing)})"
        close = difflib.get_close_matches(name, self._kinds, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""

    def equation(self, function: str | Callable[..., Any], where: str) -> Equation:
        """Resolve a field name, a derivative or a function of names."""
        if isinstance(function, str):
            return Equation(function, identity, (self.resolve(function, where),))
        if not callable(function):
            raise InputError(
                f"{where}: expected a name such as 'u', or a function whose arguments are names, "
                f"got {type(function).__name__}"
            )
        called = label_of(function)
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            raise InputError(f"{where}: {called} has no readable signature; wrap it in a def") from None
        arguments: list[Reference] = []
        keywords: list[tuple[str, Reference]] = []
        for p in parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise InputError(
                    f"{where}: {called} has the argument *{p.name}; list each field, derivative, "
                    "unknown or coordinate it needs by name"
                )
            if p.default is not p.empty and not self._stands_for_something(p.name):
                continue  # a constant, kept at its default
            reference = self.resolve(p.name, f"{where}: argument of {called}")
            if p.kind is p.POSITIONAL_ONLY:
                arguments.append(reference)
            else:
                keywords.append((p.name, reference))
        if not arguments and not keywords:
            raise InputError(
                f"{where}: {called} has no arguments; name the quantities it depends on. Known names are {self.known()}"
            )
        return Equation(called, function, tuple(arguments), tuple(keywords))

    def _stands_for_something(self, name: str) -> bool:
        return name in self._kinds or bool(self._derivatives(name))

    def same(self, one: Any, other: Any) -> bool:
        """Whether two quantities are the same: u_xt is u_tx."""
        if isinstance(one, str) and isinstance(other, str):
            return self.resolve(one, "") == self.resolve(other, "")
        return one == other

    def coordinates_of(self, equation: Equation) -> tuple[str, ...]:
        """The coordinates an equation's value depends on, in the domain's order."""
        used: set[str] = set()
        for reference in equation.references:
            if isinstance(reference, Coordinate):
                used.add(reference.name)
            elif isinstance(reference, Partial):
                used.update(self.fields[reference.field])
        return tuple(c for c in self.domain if c in used)


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "unknown" else f"a {kind}"


def _readings(suffix: str, coordinates: tuple[str, ...]) -> set[MultiIndex]:
    """Every derivative that a suffix can mean, read as a sequence of coordinate names."""
    reached: list[set[MultiIndex]] = [{(0,) * len(coordinates)}] + [set() for _ in suffix]
    for end in range(1, len(suffix) + 1):
        for i, c in enumerate(coordinates):
            if suffix.endswith(c, 0, end):
                for orders in reached[end - len(c)]:
                    reached[end].add((*orders[:i], orders[i] + 1, *orders[i + 1 :]))
    return reached[-1] if suffix else set()


def trace_equation(equation: Equation, count: int, shapes: Mapping[str, tuple[int, ...]], where: str) -> Any:
    """The equation as a closed jaxpr over ``count`` points."""
    pointwise = [not isinstance(r, Unknown) for r in equation.references]
    arguments = [
        jax.ShapeDtypeStruct(shapes[r.name] if isinstance(r, Unknown) else (count,), jnp.result_type(float))
        for r in equation.references
    ]
    try:
        jaxpr, out = jax.make_jaxpr(lambda *a: equation.call(a), return_shape=True)(*arguments)
    except InputError:
        raise
    except Exception as error:
        untraceable = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)
        words = ("truth value of an array", "Only scalar arrays can be converted", "can be converted to Python scalars")
        if not isinstance(error, untraceable) and not any(w in str(error) for w in words):
            shapes_clash = any(word in str(error) for word in ("shape", "broadcast"))
            raise InputError(
                f"{where}: {equation.label} failed: {type(error).__name__}: {error}{POINTS if shapes_clash else ''}"
            ) from error
        raise InputError(
            f"{where}: JAX cannot trace {equation.label}; use jax.numpy instead of "
            f"numpy or math, and jnp.where instead of if ({str(error).splitlines()[0]})"
        ) from error
    shape, wanted = getattr(out, "shape", None), (count,)
    if shape == () and not any(pointwise):
        shape = wanted
    if shape != wanted:
        came = f"shape {shape}" if shape is not None else type(out).__name__
        raise InputError(
            f"{where}: {equation.label} returned {came} for {count} points; it must return one number "
            f"per point, an array of shape {wanted}"
        )
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise InputError(f"{where}: {equation.label} returned {out.dtype} numbers; it must return real floats")
    return jaxpr
