"""Problem and Sensors: physics and data. All user input is validated here, once."""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpyro.distributions as dist

from bpinn.checks import (
    blocks,
    check_domain,
    check_fields,
    check_positive,
    check_prior,
    check_unknowns,
    count,
    numbers,
    some,
    warn_precision,
)
from bpinn.errors import BpinnWarning, InputError
from bpinn.fields import Field
from bpinn.fields.base import Bounds
from bpinn.likelihoods import Likelihood, likelihood_of
from bpinn.measurements import Measurement, Placed, Quantity, label, set_coordinates, terms_of
from bpinn.neutral import check_neutral, neutral_ones
from bpinn.physics import SHARE, Arbitrary, Physics
from bpinn.quantities import Names, Partial, StoredFunction, Unknown, trace_equation
from bpinn.readings import Readings, is_exact
from bpinn.shown import Shown


@dataclass(frozen=True)
class Sensors:
    """Readings of one quantity.

    Arguments:
        quantity: what is measured: a field or derivative by name ("u", "u_x"), an equation (a
            function whose arguments are names), or an `Average`, `Integral`, `Difference` or `Periodic` of one.
        at: positions, an array for each coordinate; single numbers are broadcast.
        values: the readings, one per point; a single number is broadcast (0.0 for the residual of an equation
            at collocation points).
        noise: standard deviation of a reading: a number, one number per reading, a positive
            ``numpyro.distributions`` prior to infer it, or the name of an unknown. Likelihoods without
            a scale, such as counts, take none.
        likelihood: the noise model: "normal", "student_t" if there may be outliers, or an object from
            `bpinn.likelihoods`, which documents what ``noise`` means for it.
        dof: degrees of freedom of "student_t".
        neutral: for points of an exact equation: whether the equation ties its fields to its unknowns without making
            some values of the unknowns more probable by itself. Otherwise its points count like readings of zero, and
            favour unknowns for which the prior's fields meet the equation more easily.

    Example:
        >>> import bpinn as bp
        >>> bp.Sensors("u", at={"x": [0.0, 1.0]}, values=[0.1, 0.9], noise=0.05)
        Sensors('u', at=['x'], 2 readings, noise=0.05)
    """

    quantity: Quantity
    at: Mapping[str, Any] = field(default_factory=dict)
    values: Any = 0.0
    noise: Any = None
    likelihood: str | Likelihood = "normal"
    dof: float = 4.0
    neutral: bool = False

    def __repr__(self) -> str:
        noise = self.noise if isinstance(self.noise, int | float | str) else type(self.noise).__name__
        count = max((np.size(a) for a in (self.values, *self.at.values())), default=1)
        what = "points" if is_exact(self.values, count, self.noise, self.likelihood) else "readings"
        return f"Sensors({label(self.quantity)!r}, at={list(self.at)}, {count} {what}, noise={noise})"


class Problem(Shown):
    """A differential equation, its unknowns, and the readings.

    Arguments:
        domain: the coordinates, space and time alike, by name with their bounds.
        fields: unknown functions, each with its surrogate (`MLP`, `GaussianProcess`, `KarhunenLoeve`).
        sensors: readings (`Sensors`) and exact equations (`Physics`) by name; omit to study the prior alone.
        unknowns: unknown coefficients, each with a ``numpyro.distributions`` prior.

    Example:
        >>> import bpinn as bp, numpyro.distributions as dist
        >>> def decay(u, u_t, rate):
        ...     return u_t + rate * u
        >>> problem = bp.Problem(
        ...     domain={"t": (0.0, 2.0)},
        ...     fields={"u": bp.MLP(hidden=(20,))},
        ...     unknowns={"rate": dist.LogNormal(0.0, 1.0)},
        ...     sensors={
        ...         "law": bp.Sensors(decay, at={"t": [0.0, 0.5, 1.0, 1.5, 2.0]}, values=0.0, noise=0.01),
        ...         "u": bp.Sensors("u", at={"t": [0.0, 1.0]}, values=[1.0, 0.4], noise=0.05),
        ...     },
        ... )
        >>> problem
        Problem(coordinates t; fields u; unknowns rate; sensors law (5), u (2))
    """

    def __init__(
        self,
        domain: Mapping[str, tuple[float, float]],
        fields: Mapping[str, Field],
        sensors: Mapping[str, Sensors | Physics] | None = None,
        unknowns: Mapping[str, dist.Distribution] | None = None,
    ):
        self.domain = check_domain(domain)
        self.fields = check_fields(fields, self.domain)
        self.unknowns = {} if unknowns is None else check_unknowns(unknowns)
        for name, surrogate in self.fields.items():
            try:
                surrogate.check(self.bounds(name))
            except InputError as error:
                raise InputError(f"field {name!r}: {error}") from None
        inputs = {name: self.inputs(name) for name in self.fields}
        self.names = Names(self.domain, inputs, tuple(self.unknowns))
        if sensors is not None and not isinstance(sensors, Mapping):
            raise InputError(f"sensors: expected a dictionary of bp.Sensors by name, got {type(sensors).__name__}")
        if sensors is not None and not sensors:
            raise InputError("sensors: none given; give at least one (omit sensors to study the prior alone)")
        self.noise_priors: dict[str, dist.Distribution] = {}
        read = {name: self._read(name, s) for name, s in (sensors or {}).items() if not isinstance(s, Physics)}
        self.sensors: dict[str, Any] = {}
        for name, stated in (sensors or {}).items():
            exact = isinstance(stated, Physics)
            self.sensors[name] = self._stated(name, stated, read, sensors or {}) if exact else stated
        self.readings = tuple(read.get(name) or self._read(name, s) for name, s in self.sensors.items())
        self.fields = {name: self._completed(name, surrogate) for name, surrogate in self.fields.items()}
        self.scale_priors = self._scales()
        open_ = [name for name, s in (sensors or {}).items() if isinstance(s, Physics) and s.neutral is None]
        for name in neutral_ones(open_, self.readings, self.fields, self.names):
            self.sensors[name] = replace(self.sensors[name], neutral=True)
            self.readings = tuple(replace(r, neutral=True) if r.name == name else r for r in self.readings)

    def __repr__(self) -> str:
        sensors = ", ".join(f"{r.name} ({len(r.values)})" for r in self.readings)
        return (
            f"Problem(coordinates {', '.join(self.domain)}; fields {', '.join(self.fields)}; "
            f"unknowns {', '.join(self.unknowns) or 'none'}; sensors {sensors or 'none'})"
        )

    @property
    def scalars(self) -> dict[str, dist.Distribution]:
        """Priors of everything inferred that is not a field (unknowns, noise levels, then scales of fields)."""
        return {**self.unknowns, **self.noise_priors, **self.scale_priors}

    def _stated(self, name: str, physics: Any, read: Mapping[str, Readings], given: Mapping[str, Any]) -> Sensors:
        """Exact physics as sensors, with points and tolerance."""
        where = f"sensors {name!r}"
        equation = physics.check(self.names, where)
        at = physics.place(equation, self.names, where)
        tolerance = physics.tolerance
        if tolerance is None:
            shapes = {n: p.shape() for n, p in self.unknowns.items()}
            trace_equation(equation, 2, shapes, where)  # which says what is wrong with it
            values = {f: [r.values for n, r in read.items() if given[n].quantity == f] for f in self.fields}
            found = {f: np.concatenate([*map(some, parts)]) for f, parts in values.items() if parts}
            spreads, centres = ({f: float(of(v)) for f, v in found.items()} for of in (np.std, np.mean))
            size = Arbitrary(equation, self.names, self.unknowns, spreads, centres).typical_size()
            if not 0 < size < np.inf:
                raise InputError(f"{where}: the size of the equation cannot be estimated; give tolerance=")
            tolerance = float(f"{SHARE * size:.2g}")
        return Sensors(physics.equation, at, 0.0, noise=tolerance, neutral=bool(physics.neutral))

    def sampled(self, most: int) -> "Problem":
        """The problem with at most ``most`` readings of each group, for statistics that cost too much for all.

        Its ``sensors`` still hold all of them.
        """
        if all(len(readings.values) <= most for readings in self.readings):
            return self
        other = copy(self)
        other.readings = tuple(readings.sampled(most) for readings in self.readings)
        return other

    def check_used(self) -> None:
        """Raise `InputError` if an unknown is in no equation and is not the noise of sensors."""
        references = {r for readings in self.readings for t in readings.quantity.terms for r in t.equation.references}
        used = {r.name for r in references if isinstance(r, Unknown)} | {r.noise_name for r in self.readings}
        unused = [name for name in self.unknowns if name not in used]
        if self.readings and unused:
            raise InputError(
                f"unknowns: {unused[0]!r} is in no equation of the sensors, so nothing can be learnt about it; remove "
                "it, or add it to an equation"
            )

    def _completed(self, name: str, surrogate: Field) -> Field:
        """The surrogate with what it chooses from the problem, and with the derivatives that the sensors need."""
        of_itself = [r.values for r in self.readings if self.sensors[r.name].quantity == name]
        references = {r for readings in self.readings for t in readings.quantity.terms for r in t.equation.references}
        orders = tuple(r.orders for r in references if isinstance(r, Partial) and r.field == name)
        try:
            surrogate.check_derivatives([orders])
            return surrogate.completed(np.concatenate([np.zeros(0), *map(some, of_itself)]), self.bounds(name))
        except InputError as error:
            raise InputError(f"field {name!r}: {error}") from None

    def _scales(self) -> dict[str, dist.Distribution]:
        found: dict[str, dist.Distribution] = {}
        for name, surrogate in self.fields.items():
            for scale, prior in surrogate.scale_priors(self.bounds(name)).items():
                called = f"{scale}_{name}"
                check_prior(prior, f"field {name!r}: scale {scale!r}")
                if called in (*self.unknowns, *self.noise_priors, *self.fields, *self.domain):
                    raise InputError(
                        f"field {name!r}: its inferred {scale} gets the name {called!r}, which is already taken; "
                        "rename the field or the other one"
                    )
                found[called] = prior
        return found

    def inputs(self, name: str) -> tuple[str, ...]:
        """The coordinates that a field depends on."""
        return self.fields[name].inputs or tuple(self.domain)

    def bounds(self, name: str) -> Bounds:
        """Bounds of the coordinates that a field depends on."""
        return tuple(self.domain[c] for c in self.inputs(name))

    def grid(self, **points: int) -> dict[str, np.ndarray]:
        """A mesh over the domain for ``predict``: ``problem.grid(x=50, t=20)``.

        Coordinates not listed get 101 points in a 1-D domain, 41 otherwise.
        """
        for name in points:
            if name not in self.domain:
                raise InputError(f"grid: {name!r} is not a coordinate; coordinates are {', '.join(self.domain)}")
        default = 101 if len(self.domain) == 1 else 41
        axes = [np.linspace(*self.domain[c], points.get(c, default)) for c in self.domain]
        return dict(zip(self.domain, np.meshgrid(*axes, indexing="ij"), strict=True))

    def place(
        self, at: Mapping[str, Any], needed: Sequence[str], where: str
    ) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
        """Positions as flat float64 arrays of equal length, and their original shape."""
        if not isinstance(at, Mapping):
            raise InputError(
                f"{where}: at must be a dictionary with an array for each coordinate, "
                f"such as {{'{next(iter(self.domain))}': ...}}, got {type(at).__name__}"
            )
        for name in at:
            if name not in self.domain:
                raise InputError(f"{where}: {name!r} is not a coordinate; coordinates are {', '.join(self.domain)}")
        missing = [c for c in needed if c not in at]
        if missing:
            raise InputError(f"{where}: no positions for {', '.join(missing)}; add them to at")
        arrays = {c: numbers(at[c], f"{where}: positions of {c}") for c in self.domain if c in at}
        try:
            shape = np.broadcast_shapes(*(a.shape for a in arrays.values()))
        except ValueError:
            sizes = ", ".join(f"{c} has {a.shape}" for c, a in arrays.items())
            raise InputError(
                f"{where}: positions differ in shape ({sizes}); give arrays of equal length, or a mesh (Problem.grid)"
            ) from None
        self._warn_outside(list(arrays.items()), where)
        return {c: np.broadcast_to(a, shape).ravel() for c, a in arrays.items()}, shape

    def place_quantity(self, quantity: Quantity, at: Mapping[str, Any], where: str) -> tuple[Placed, tuple[int, ...]]:
        """A quantity at points, and their original shape; ``at`` excludes the coordinates that the quantity fixes."""
        if not isinstance(at, Mapping):
            self.place(at, (), where)  # which says what is wrong
        terms = terms_of(quantity, self.names, where)
        itself = set_coordinates(terms)
        needed = [c for c in self.names.coordinates_of(terms[0].equation) if c not in itself]
        both = [c for c in self.domain if c in itself and c in at]
        if both:
            kind = type(quantity).__name__ if isinstance(quantity, Measurement) else "it"
            raise InputError(f"{where}: {kind} fixes {both[0]}; remove it from at")
        points, shape = self.place(at, needed, where)
        lengths = {n for term in terms for n in term.lengths()}
        if len(lengths) > 1:
            raise InputError(
                f"{where}: positions for {' and '.join(map(str, sorted(lengths)))} readings; give one length for all"
            )
        if lengths:
            (count_,) = lengths
            if shape not in ((), (count_,)):
                raise InputError(
                    f"{where}: {label(quantity)} has positions for {count_} readings, but at has {count(shape)} points"
                )
            points, shape = {c: np.broadcast_to(a, (count_,)) for c, a in points.items()}, (count_,)
        size = int(np.prod(shape))
        placed = Placed(terms, points, size)
        if itself:
            self._warn_outside(
                [(c, a) for part in placed.points(placed.rows) for c, a in part.items() if c in itself], where
            )
        return placed, shape

    def _warn_outside(self, positions: Sequence[tuple[str, np.ndarray]], where: str) -> None:
        for c, a in positions:
            low, high = self.domain[c]
            slack = 1e-9 * (high - low)
            parts = (np.ravel(a)[part] for part in blocks(a.size))
            outside = sum(int(np.sum((part < low - slack) | (part > high + slack))) for part in parts)
            if outside:
                warnings.warn(
                    f"{where}: {outside} of {a.size} positions of {c} lie outside the domain [{low:g}, {high:g}]",
                    BpinnWarning,
                    stacklevel=5,
                )

    def _read(self, name: str, sensors: Sensors) -> Readings:
        where = f"sensors {name!r}"
        if not isinstance(name, str) or not name:
            raise InputError(f"sensors: a name must be a string, got {name!r}")
        if not isinstance(sensors, Sensors):
            raise InputError(f"{where}: expected bp.Sensors(...), got {type(sensors).__name__}")
        quantity, shape = self.place_quantity(sensors.quantity, sensors.at, where)
        values = numbers(sensors.values, f"{where}: values")
        if not quantity.at and not quantity.is_by_reading:
            shape = values.shape
        if values.ndim and values.shape != shape:
            raise InputError(
                f"{where}: {count(shape)} points but {count(values.shape)} values; give one value per point"
            )
        values = np.broadcast_to(values, shape or (1,)).ravel()
        if values.size == 0:
            raise InputError(f"{where}: no readings; remove these sensors, or give at least one point")
        at = {c: np.broadcast_to(a, values.shape) for c, a in quantity.at.items()}
        quantity = Placed(quantity.terms, at, len(values))
        likelihood = likelihood_of(sensors.likelihood, sensors.dof, where)
        likelihood.check(values, where)
        noise, noise_name = self._noise(sensors.noise, values.shape, shape, name, likelihood)
        if noise is not None:
            for part in blocks(len(values)):
                with np.errstate(all="ignore"):
                    spread = np.asarray(likelihood.sd(values[part], noise[part]), float)
                if warn_precision(values[part], np.broadcast_to(spread, values[part].shape), where):
                    break
        readings = Readings(name, quantity, values, noise, noise_name, likelihood, sensors.neutral)
        if not isinstance(readings.equation.function, StoredFunction):  # calling a stored one raises a clear error
            shapes = {n: p.shape() for n, p in self.unknowns.items()}
            trace_equation(readings.equation, len(values), shapes, where)
            if sensors.neutral:
                check_neutral(readings, self.fields, self.names, where)
        return readings

    def _noise(
        self, noise: Any, flat: tuple[int, ...], shape: tuple[int, ...], name: str, likelihood: Likelihood
    ) -> tuple[np.ndarray | None, str | None]:
        where = f"sensors {name!r}: noise"
        if not likelihood.has_scale:
            if noise is not None:
                raise InputError(f"{where}: {type(likelihood).__name__} readings take no noise; remove noise=")
            return None, None
        if noise is None:
            raise InputError(
                f"{where} is missing; give the standard deviation of a reading, or a prior such as "
                "dist.HalfNormal(1.0) to infer it"
            )
        if isinstance(noise, str):
            prior = self.unknowns.get(noise)
            if prior is None:
                raise InputError(
                    f"{where} names {noise!r}, which is not an unknown; unknowns are "
                    f"{', '.join(self.unknowns) or 'none'}"
                )
            check_positive(prior, f"{where}: unknown {noise!r}")
            return None, noise
        if isinstance(noise, dist.Distribution):
            check_prior(noise, where)
            check_positive(noise, where)
            called = f"noise_{name}"
            if called in (*self.unknowns, *self.noise_priors, *self.fields, *self.domain):
                raise InputError(
                    f"{where}: the inferred noise gets the name {called!r}, which is already taken; rename the sensors"
                )
            self.noise_priors[called] = noise
            return None, called
        levels = numbers(noise, where)
        if levels.ndim and levels.shape != shape:
            raise InputError(
                f"{where}: {count(shape)} points but {count(levels.shape)} noise levels; "
                "give one number, or one per point"
            )
        if np.any(levels <= 0):
            raise InputError(
                f"{where} must be positive, got {levels.min():g}; for exact physics give a small tolerance, "
                "such as 1e-3"
            )
        return np.broadcast_to(levels.ravel() if levels.ndim else levels, flat), None
