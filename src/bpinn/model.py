"""A model: the log density of a problem on a flat vector, as a function of its data."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn import chunks
from bpinn.arrays import on_device, stacked
from bpinn.conditional import conditional
from bpinn.errors import InputError
from bpinn.evaluation import Evaluation
from bpinn.likelihoods import Normal
from bpinn.linear_readings import Group, LinearReadings, RawStreams, System, precisions
from bpinn.monitor import Monitor
from bpinn.neutral import is_linear
from bpinn.parameters import Parameters
from bpinn.problem import Problem

MOST_LINEAR = 500  # linear parameters that are whitened; the cost grows with their cube


class Model:
    """The static half of a posterior, shared by problems that differ only in their data.

    Methods take the data as an argument, so that one compiled function serves any data. Two models
    are equal if they compute the same thing, even when their functions have different names.
    """

    def __init__(self, problem: Problem, monitor: Monitor, batch: int | None = None):
        self.parameters = Parameters(problem)
        self.dim = self.parameters.dim
        leading = [r.leads for r in problem.readings]
        self.leads = any(leading) and not all(leading)  # whether some readings lead others while annealing
        self.groups = tuple(
            Group(r.likelihood, r.noise_name, r.neutral, self.leads and leads)
            for r, leads in zip(problem.readings, leading, strict=True)
        )
        self.counts = tuple(len(readings.values) for readings in problem.readings)
        self.chunks, self.sensors = _in_chunks(problem)
        self.batches = 0 if batch is None else -(-sum(self.counts) // batch)
        self.of_batch = _cut(problem, self.batches) if self.batches else None
        self.monitor = Evaluation.of(problem, [(q.placed, q.placed.count) for q in monitor.quantities], "monitor")
        neutral = {field for r in problem.readings if r.neutral for field in r.fields}
        self.neutral_fields = tuple(name for name, *_ in self.parameters.fields if name in neutral)
        self.neutral_linear = all(
            is_linear(r, problem.fields, problem.names, problem.unknowns) for r in problem.readings if r.neutral
        )
        # Whether the coefficients of all fields are Gaussian given everything else.
        self.is_affine = all(
            isinstance(r.likelihood, Normal) and is_linear(r, problem.fields, problem.names, problem.unknowns)
            for r in problem.readings
        )
        if batch is not None and self.neutral_fields:
            raise InputError(
                "batches of readings: neutral equations need all their points in every step; give them neutral=False, "
                "or use bp.HMC()"
            )
        self._whiten(frozenset())
        cut = (self.of_batch, self.chunks, self.counts)
        self.key = (self.sensors.key, self.monitor.key, self.parameters.key, self.groups, *cut)
        self.native = False
        self._hash = hash(self.key)

    def _whiten(self, left_out: frozenset[str]) -> None:
        """Choose the linear parameters that are whitened: those of all measured fields but these."""
        measured = [of_field for of_field in self.parameters.fields if of_field[0] in self.sensors.requests]
        linear = tuple(
            (name, f, f.linear(bounds))
            for name, f, bounds in measured
            if f.linear(bounds) != slice(0, 0) and name not in left_out
        )
        self.num_linear = sum(part.stop - part.start for *_, part in linear)
        self.linear_fields = linear if self.num_linear <= MOST_LINEAR else ()
        self.is_linear = not left_out and all(  # whether fields have no other parameters
            f.linear(bounds) == slice(0, f.size(bounds)) and not f.scale_priors(bounds) for _, f, bounds in measured
        )
        firsts = [self.parameters.slices[name].start for name, *_ in self.linear_fields]
        parts = [np.arange(f + p.start, f + p.stop) for f, (*_, p) in zip(firsts, self.linear_fields, strict=True)]
        self.linear = np.concatenate([np.zeros(0, int), *parts])  # where z has the linear parameters of measured fields

    def given_coefficients(self) -> "Model":
        """The same, with fields that are coefficients of others not whitened, but the others whitened given them.

        Only for fields whose parameters are all linear: readings and prior alone leave them without stiff directions.
        """
        linear = {name for name, f, bounds in self.parameters.fields if f.linear(bounds) == slice(0, f.size(bounds))}
        left_out = self.sensors.coefficients & linear
        if not left_out:
            return self
        other = copy(self)
        other._whiten(left_out)
        return other

    def compiled(self, native: bool = True) -> "Model":
        """The same, evaluated by the native kernel if available, which supports gradients but no other derivatives."""
        other = copy(self)
        other.native = native
        return other

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return False
        return (self.native, self.num_linear, self.key) == (other.native, other.num_linear, other.key)

    @property
    def part(self) -> "Model":
        """The model of the readings in one chunk; the data of all chunks are ``data["chunks"]``, stacked."""
        return self._part(self.sensors, self.chunks)

    @property
    def batch(self) -> "Model":
        """The same for one of the batches, random samples of the readings; their data are ``data["batches"]``.

        The sum over all readings is on average ``batches`` times that over a batch chosen at random.
        """
        assert self.of_batch is not None
        return self._part(self.of_batch, self.batches)

    def _part(self, sensors: Evaluation, number: int) -> "Model":
        other = copy(self)
        other.sensors, other.chunks, other.batches, other.of_batch = sensors, 1, 0, None
        other.counts = tuple(chunks.size_in_chunk(count, number) for count in self.counts)
        other.key = (sensors.key, *self.key[1:-3], None, 1, other.counts)
        other._hash = hash(other.key)
        return other

    def random_batch(self, data: Any, key: Array) -> Any:
        """The data of a batch chosen at random."""
        chosen = jax.random.randint(key, (), 0, self.batches)
        return jax.tree.map(lambda stacked: stacked[chosen], data["batches"])

    def data_of(self, problem: Problem, monitor: Monitor) -> dict[str, Any]:
        """Everything that may change without recompilation."""
        data: dict[str, Any] = {
            "monitor": self.monitor.prepare([q.placed for q in monitor.quantities]),
            "values": [on_device(r.values) for r in problem.readings],
            "noise": [None if r.noise is None else on_device(r.noise) for r in problem.readings],
            "readings": [jax.tree.map(on_device, r.prepared()) for r in problem.readings],
        }
        if self.chunks > 1:
            return data | {"chunks": self._stacked(self.sensors, problem, self.chunks)}
        return {"sensors": self.sensors.prepare([r.quantity for r in problem.readings])} | data

    def batches_of(self, problem: Problem) -> dict[str, Any]:
        """The data of all batches, stacked."""
        assert self.of_batch is not None
        return self._stacked(self.of_batch, problem, self.batches, shuffled=True)

    def _stacked(self, sensors: Evaluation, problem: Problem, number: int, shuffled: bool = False) -> dict[str, Any]:
        """The data cut into ``number`` parts, stacked; ``counted`` marks what is not padding."""
        cut = [chunks.rows_of_chunks(count, number, shuffled) for count in self.counts]
        quantities, dtype = [r.quantity for r in problem.readings], np.dtype(jnp.result_type(float))
        own = [{"values": r.values, "noise": r.noise, "readings": r.prepared()} for r in problem.readings]

        def part(i: int) -> dict[str, Any]:
            rows = [rows[i] for rows, _ in cut]
            taken = [jax.tree.map(lambda a, r=r: np.asarray(a[r], dtype), o) for r, o in zip(rows, own, strict=True)]
            by_kind = {kind: [of_group[kind] for of_group in taken] for kind in ("values", "noise", "readings")}
            sensed = sensors.prepare(quantities, rows)
            return {"sensors": sensed, **by_kind, "counted": [counted[i] for _, counted in cut]}

        return stacked(part, number)

    def log_prior(self, z: Array) -> Array:
        return self.parameters.log_prior(z)

    def log_likelihood(self, z: Array, data: Any) -> Array:
        if self.chunks > 1:
            return chunks.total(self.part.log_likelihood, z, data["chunks"], once=self.native)
        return self.log_likelihood_at(z, self.streams(z, data), data)

    def log_likelihood_at(
        self, z: Array, streams: RawStreams, data: Any, weights: tuple[Array, Array] | None = None
    ) -> Array:
        """The log likelihood from the streams of the fields at the sensors.

        The first of ``weights`` multiplies readings that are not annealed, the second all others.
        """
        scalars = self.parameters.split(z)[1]
        predicted = self.sensors.of_streams(streams, scalars, data["sensors"])
        found = self.log_likelihood_of(predicted, scalars, data, weights)
        if not self.neutral_fields:
            return found
        evidence = self._evidence_and_misfit(z, data, streams)[0]
        return found - (evidence if weights is None else weights[1] * evidence)

    def log_evidence(self, z: Array, data: Any) -> Array:
        """Log density of the points of neutral equations, given unknowns and scales; zero if there are none.

        The coefficients of the fields are integrated out. The likelihood is divided by it, so that unknowns and scales
        are not more probable just because more of the prior's fields meet the equations with them. The misfit
        of the best field is left out, so that unknowns with which no field meets the equations stay improbable.
        """
        return self._evidence_and_misfit(z, data, self.streams(z, data))[0]

    def log_misfit(self, z: Array, data: Any) -> Array:
        """Log density of what the best fields leave of neutral equations, relative to no residual at all."""
        return self._evidence_and_misfit(z, data, self.streams(z, data))[1]

    def _evidence_and_misfit(self, z: Array, data: Any, streams: RawStreams) -> tuple[Array, Array]:
        if not self.neutral_fields:
            return jnp.zeros((), z.dtype), jnp.zeros((), z.dtype)
        system, precision = self._neutral_system(z, data, streams)
        points = sum(len(values) for values, group in zip(data["values"], self.groups, strict=True) if group.neutral)
        volume, misfit = system.log_evidence(precision, self.native)
        return volume - 0.5 * points * float(np.log(2 * np.pi)), misfit

    def given_neutral(self, z: Array, data: Any) -> Array:
        """A draw of the prior turned into one of the prior given neutral equations; unknowns and scales stay."""
        if not self.neutral_fields:
            return z
        system, precision = self._neutral_system(z, data, self.streams(z, data))
        own = [
            self.parameters.slices[name].start + np.arange(f.size(bounds))[f.linear(bounds)]
            for name, f, bounds in self.parameters.fields
            if name in self.neutral_fields
        ]
        at = np.concatenate(own)
        return z.at[at].set(conditional(*system.arrays, jnp.sqrt(precision) * z[at], precision, self.native)[0])

    def _neutral_system(self, z: Array, data: Any, streams: RawStreams) -> tuple[System, Array]:
        """Neutral equations as a linear system for the coefficients of their fields, with the prior's precisions.

        They are linearised around streams of the fields; those that are linear need not be around any.
        """
        theta, scalars = self.parameters.split(z)
        own = [(name, f, b) for name, f, b in self.parameters.fields if name in self.neutral_fields]
        fields = tuple((name, f) for name, f, _ in own)
        chosen = tuple(group.neutral for group in self.groups)
        readings = LinearReadings(self.sensors, self.groups, fields, chosen, self.native, data)
        precision = jnp.asarray(precisions([(f, b, f.linear(b)) for _, f, b in own]), z.dtype)
        around = readings.flat(z.dtype) if self.neutral_linear else {name: streams[name] for name, *_ in own}
        return readings.system(theta, scalars, around, {}), precision

    def log_likelihood_of(
        self,
        predicted: Sequence[Array],
        scalars: Mapping[str, Array],
        data: Any,
        weights: tuple[Array, Array] | None = None,
    ) -> Array:
        """The log likelihood from the prediction of each reading, and the noise levels among the scalars."""
        total = jnp.zeros((), float)
        for group, part in zip(self.groups, self._pointwise(predicted, scalars, data), strict=True):
            own = jnp.sum(part)
            total += own if weights is None else weights[0 if group.leads else 1] * own
        return total

    def predicted(self, z: Array, data: Any) -> list[Array]:
        """The noise-free prediction of each reading, one array per group of sensors."""
        if self.chunks > 1:
            parts = chunks.mapped(lambda chunk: self.part.predicted(z, chunk), data["chunks"])
            return chunks.joined(parts, self.counts)
        return self.sensors(*self.parameters.split(z), data["sensors"], self.native)

    def streams(self, z: Array, data: Any) -> RawStreams:
        """The streams of each field before its link at the sensors; those of each chunk, stacked, if there are any."""
        if self.chunks > 1:
            return chunks.mapped(lambda chunk: self.part.streams(z, chunk), data["chunks"])
        return self.sensors.raw(*self.parameters.split(z), data["sensors"], self.native)

    def pointwise_log_likelihood(self, z: Array, data: Any) -> list[Array]:
        """The log density of each reading, one array per group of sensors."""
        return self._pointwise(self.predicted(z, data), self.parameters.split(z)[1], data)

    def _pointwise(self, predicted: Sequence[Array], scalars: Mapping[str, Array], data: Any) -> list[Array]:
        parts = []
        for group, prepared, mean in zip(self.groups, data["readings"], predicted, strict=True):
            inferred = None if group.noise_name is None else scalars[group.noise_name]
            parts.append(group.likelihood.log_prob_of(prepared, mean, inferred))
        counted = data.get("counted")
        return parts if counted is None else [jnp.where(c, part, 0.0) for c, part in zip(counted, parts, strict=True)]

    def saturated_log_likelihood(self, data: Any) -> Array:
        """The log likelihood of readings that are predicted exactly, without the terms of inferred noise levels."""
        return sum((jnp.sum(prepared["constant"]) for prepared in data["readings"]), start=jnp.zeros((), float))

    def misfit(self, z: Array, data: Any) -> Array:
        """How badly readings fit: the mean of their squared residuals in units of noise, of the worst group of sensors.

        For other likelihoods the deviance takes its place. Groups whose noise is inferred are left out.
        """
        found = [jnp.zeros((), float)]
        for group, prepared, own in zip(
            self.groups, data["readings"], self.pointwise_log_likelihood(z, data), strict=True
        ):
            if group.noise_name is None:
                off, count = prepared["constant"] - own, prepared.get("count")
                found.append(2.0 * (jnp.mean(off) if count is None else jnp.sum(off) / jnp.sum(count)))
        return jnp.max(jnp.stack(found))

    def log_density(self, z: Array, data: Any) -> Array:
        return self.log_prior(z) + self.log_likelihood(z, data)

    def functionals(self, z: Array, data: Any) -> Array:
        """The functionals that convergence is judged on: fields and equations at points, then unknowns and noise."""
        theta, scalars = self.parameters.split(z)
        values = self.monitor(theta, scalars, data["monitor"], self.native)
        return jnp.concatenate([*values, *(jnp.ravel(scalars[s.name]) for s in self.parameters.scalars)])


def _in_chunks(problem: Problem) -> tuple[int, Evaluation]:
    """How many chunks readings are evaluated in, and the evaluation of one of them."""
    number = chunks.number_of_chunks(problem)
    if number > 1 and not any(readings.neutral for readings in problem.readings):  # whose evidence needs all points
        with suppress(InputError):  # an equation that holds arrays with one entry per reading cannot be cut
            return number, _cut(problem, number)
    return 1, _cut(problem, 1)


def _cut(problem: Problem, number: int) -> Evaluation:
    """The evaluation of one of ``number`` parts of the readings."""
    parts = [(r.quantity, chunks.size_in_chunk(len(r.values), number)) for r in problem.readings]
    return Evaluation.of(problem, parts, "sensors")
