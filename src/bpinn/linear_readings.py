"""Readings linearised in the streams of the fields: a linear system for the linear parameters of the fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.conditional import Layout, conditional
from bpinn.evaluation import Evaluation
from bpinn.fields.base import Field, Streams
from bpinn.likelihoods import Likelihood

RawStreams = dict[str, list[Streams]]  # before the link, for each field and each task that uses it


@dataclass(frozen=True)
class Group:
    """Static properties of one group of readings."""

    likelihood: Likelihood
    noise_name: str | None
    neutral: bool = False  # see `Sensors`
    leads: bool = False  # while the likelihood is annealed, see `Coordinates`


class System(NamedTuple):
    """Linearised readings in units of their noise; what they stand for is in `bpinn.conditional`.

    ``offsets`` are the parts of the fields that do not depend on the linear parameters; ``roots`` are one over the
    noise of each reading, or zero where a reading is not finite.
    """

    layout: Layout
    features: list[Array]
    slopes: Array
    targets: Array
    offsets: dict[str, list[Streams] | None]
    roots: Array

    @property
    def arrays(self) -> tuple[Layout, list[Array], Array, Array]:
        """What `conditional` takes."""
        return self[:4]

    def pinned(self, pins: "Pins") -> "System":
        """With the pins as further readings, after all others."""
        layout, count = self.layout, len(pins.values)
        ends = np.cumsum(layout.columns)
        features, slopes = [], []
        for own, of_field, last in zip(self.features, jnp.split(self.slopes, ends[:-1]), ends, strict=True):
            at = pins.columns - (int(last) - own.shape[1])
            inside = (at >= 0) & (at < own.shape[1])
            columns = jnp.where(inside, own[:, jnp.clip(at, 0, own.shape[1] - 1)], 0.0)
            features.append(jnp.concatenate([own, columns], axis=1))
            slopes += [of_field, pins.tightness]
        blocks = tuple((*of_field, (count, layout.rows, 1)) for of_field in layout.blocks)
        return self._replace(
            layout=Layout(layout.sizes, blocks, layout.rows + count),
            features=features,
            slopes=jnp.concatenate(slopes),
            targets=jnp.concatenate([self.targets, pins.tightness * pins.values]),
            roots=jnp.concatenate([self.roots, pins.tightness]),
        )

    def log_evidence(self, precision: Array, native: bool) -> tuple[Array, Array]:
        """Log density of the readings with the linear parameters integrated over their prior, in two terms.

        The second is the misfit that is left where parameters are most probable. For normal noise, and up to one over
        the root of 2 pi for each reading.
        """
        nothing = jnp.zeros_like(precision)
        a, streams, log_determinant = conditional(*self.arrays, nothing, precision, native)
        off = _row_sums(self.layout, self.slopes * streams) - self.targets
        logs = jnp.sum(jnp.log(jnp.where(self.roots > 0, self.roots, 1.0)))
        volume = log_determinant + 0.5 * jnp.sum(jnp.log(precision)) - 0.5 * precision @ a**2 + logs
        return volume, -0.5 * jnp.vdot(off, off)


class Pins(NamedTuple):
    """Streams at single points that a linear system holds near values, as if they were read there.

    ``columns`` numbers the streams of all fields, field after field; ``tightness`` is one over the sd of such a
    reading, or zero for none. Streams are those of the linear parameters, without offsets.
    """

    columns: Array
    values: Array
    tightness: Array


class _Term(NamedTuple):
    """Where the values of a task go: value i is added to reading ``first_row + i // width``."""

    first_row: int
    width: int
    sign: float


@lru_cache(maxsize=64)
def _terms(evaluation: Evaluation, chosen: tuple[bool, ...]) -> tuple[dict[int, _Term], int]:
    """The place of each task among the readings of the chosen groups, and the number of these readings."""
    terms, first, task = {}, 0, 0
    for parts, is_chosen in zip(evaluation.sums, chosen, strict=True):
        rows = 0
        for sign, width in parts:
            if is_chosen:
                terms[task] = _Term(first, width, sign)
                rows = evaluation.tasks[task].count // width
            task += 1
        first += rows
    return terms, first


@dataclass(frozen=True)
class LinearReadings:
    """The readings of chosen groups as functions of the linear parameters of some fields.

    ``fields`` are those with linear parameters; all others are evaluated as they are. ``data`` is the model's.
    """

    evaluation: Evaluation
    groups: tuple[Group, ...]
    fields: tuple[tuple[str, Field], ...]
    chosen: tuple[bool, ...]
    native: bool
    data: Any

    def fixed(self, theta: Mapping[str, Array], scalars: Mapping[str, Array]) -> RawStreams:
        """The streams of all other fields."""
        sensors, prepared = self.evaluation, self.data["sensors"]["fields"]
        linear = {name for name, _ in self.fields}
        return {
            name: field.raw(theta[name], prepared[name], sensors.wanted(name, scalars, self.native))
            for name, field, *_ in sensors.fields
            if name in sensors.requests and name not in linear
        }

    def flat(self, dtype: Any) -> RawStreams:
        """Streams of fields that are zero everywhere."""
        sensors, found = self.evaluation, RawStreams()
        for name, field in self.fields:
            users, requests = sensors.requests[name]
            needed = zip(users, field.needed(requests), strict=True)
            found[name] = [{i: jnp.zeros(sensors.tasks[task].count, dtype) for i in own} for task, own in needed]
        return found

    def system(
        self,
        theta: Mapping[str, Array],
        scalars: Mapping[str, Array],
        reference: RawStreams,
        fixed: RawStreams,
        weight: Array | float = 1.0,
    ) -> System:
        """The readings linearised around streams; ``weight`` multiplies their information: one, or one per group.

        Features and offsets do not look at the linear parameters in ``theta``.
        """
        sensors = self.evaluation
        terms, num_rows = _terms(sensors, self.chosen)
        features, offsets, blocks, columns = [], {}, [], []
        for name, field in self.fields:
            wanted = sensors.wanted(name, scalars, self.native)
            prepared = self.data["sensors"]["fields"][name]
            stacked = field.stacked(theta[name], prepared, wanted)
            offsets[name] = field.offset(theta[name], prepared, wanted)
            users = sensors.requests[name][0]
            order = [(users[member], index, wanted.sizes[member]) for member, index in field.layout(wanted)]
            own = [(task, index, size) for task, index, size in order if task in terms]
            if len(own) < len(order):
                parts = jax.lax.split(stacked, [size for *_, size in order], axis=1)
                kept = [part for part, (task, *_) in zip(parts, order, strict=True) if task in terms]
                stacked = jnp.concatenate(kept, axis=1)
            features.append(stacked)
            blocks.append(tuple((size, terms[task].first_row, terms[task].width) for task, _, size in own))
            columns += [(name, task, index) for task, index, _ in own]
        slopes, values, constants = self._linearised(scalars, reference, fixed, offsets)
        roots, targets = self._weighted(values, constants, scalars, weight)
        flat = []
        for name, task, index in columns:
            term = terms[task]
            root = roots[term.first_row : term.first_row + sensors.tasks[task].count // term.width]
            if term.width > 1:
                root = jnp.repeat(root, term.width)
            flat.append(root * jnp.where(root > 0, slopes[task][name][index], 0.0))
        layout = Layout(tuple(len(f) for f in features), tuple(blocks), num_rows)
        return System(layout, features, jnp.concatenate(flat), targets, offsets, roots)

    def _linearised(
        self,
        scalars: Mapping[str, Array],
        reference: RawStreams,
        fixed: RawStreams,
        offsets: Mapping[str, list[Streams] | None],
    ) -> tuple[dict[int, dict[str, Streams]], list[Array], list[Array]]:
        """For each task its slopes by the streams; for each quantity its value at the reference, and the constant.

        Slopes include the sign and the weight of the term in its sum.
        """
        sensors, prepared = self.evaluation, self.data["sensors"]
        terms = _terms(sensors, self.chosen)[0]
        slopes: dict[int, dict[str, Streams]] = {}
        values, constants = [], []
        for i, weights in enumerate(prepared["weights"]):
            if i not in terms:
                continue
            places = {name: users.index(i) for name, (users, _) in sensors.requests.items() if i in users}
            moving = {name: reference[name][at] for name, at in places.items() if name not in fixed}
            still = {name: fixed[name][at] for name, at in places.items() if name in fixed}

            def value_of(moving: dict[str, Streams], i: int = i, still: Any = still) -> Array:
                return sensors.term(i, moving | still, scalars, prepared)

            value, push = jax.linearize(value_of, moving)
            constant, own = value, dict[str, Streams]()
            sign = terms[i].sign
            factor = sign if weights is None else sign * jnp.ravel(weights)
            for name, streams in moving.items():
                own[name] = {}
                offset = offsets[name]
                for index, stream in streams.items():
                    nothing = jax.tree.map(jnp.zeros_like, moving)
                    nothing[name][index] = jnp.ones_like(stream)
                    slope = push(nothing)
                    shift = -stream if offset is None else offset[places[name]][index] - stream
                    constant = constant + slope * shift
                    own[name][index] = slope if isinstance(factor, float) and factor == 1.0 else factor * slope
            slopes[i] = own
            values.append(value)
            constants.append(constant)
        weights = [w for i, w in enumerate(prepared["weights"]) if i in terms]
        return slopes, sensors.summed(values, weights, self.chosen), sensors.summed(constants, weights, self.chosen)

    def _weighted(
        self,
        values: Sequence[Array],
        constants: Sequence[Array],
        scalars: Mapping[str, Array],
        weight: Array | float,
    ) -> tuple[Array, Array]:
        """For each reading the root of its weight, and its target in these units; 0 where it is not finite."""
        roots, targets = [], []
        each = self.data.get("counted") or [True] * len(self.groups)
        own = jnp.broadcast_to(jnp.asarray(weight), (len(self.groups),))
        groups = zip(self.groups, self.data["values"], self.data["noise"], each, own, self.chosen, strict=True)
        chosen = [group[:5] for group in groups if group[5]]
        for (group, reading, noise, counted, weight), value, constant in zip(chosen, values, constants, strict=True):
            scale = noise if group.noise_name is None else scalars[group.noise_name]
            # What is not finite is replaced before it is used, or its derivative would not be finite either.
            known = jnp.isfinite(value) & jnp.isfinite(constant)
            known &= (value > 0) | (not group.likelihood.positive)
            value = jnp.where(known, value, 1.0)
            information = weight * group.likelihood.information(value, scale)
            off = group.likelihood.response(reading, value, scale) - jnp.where(known, constant, 0.0)
            usable = known & jnp.isfinite(information) & (information > 0) & jnp.isfinite(off) & counted
            root = jnp.sqrt(jnp.where(usable, information, 0.0))
            roots.append(jnp.broadcast_to(root, value.shape))
            targets.append(jnp.broadcast_to(root * jnp.where(usable, off, 0.0), value.shape))
        return jnp.concatenate(roots), jnp.concatenate(targets)


def _row_sums(layout: Layout, columns: Array) -> Array:
    """The columns of all fields added up by the readings they belong to."""
    total = jnp.zeros(layout.rows, columns.dtype)
    blocks = [block for of_field in layout.blocks for block in of_field]
    for part, (count, row, width) in zip(jax.lax.split(columns, [b[0] for b in blocks]), blocks, strict=True):
        sums = part if width == 1 else part.reshape(-1, width).sum(axis=1)
        total = total + jnp.pad(sums, (row, layout.rows - row - count // width))
    return total


def precisions(fields: Sequence[tuple[Field, Any, slice]]) -> np.ndarray:
    """The prior precision of the linear parameters of fields, each given with its bounds and its linear part."""
    sds = [np.asarray(field.prior_sd(bounds))[part] for field, bounds, part in fields]
    return np.concatenate([np.zeros(0), *sds]) ** -2.0
