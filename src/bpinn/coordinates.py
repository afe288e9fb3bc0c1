"""Whitened coordinates: an exact change of variables in which linear parameters are nearly standard normal.

A field is linear in its output weights or coefficients a: given everything else, linearised readings make a Gaussian
posterior of a in closed form, with mean mu and precision R'R. Its standardised residual v, with a = mu + R^-1 v, takes
the place of a. The map is exact whatever the linearisation is taken around, because neither mu nor R depends on a; only
the shape of the density in the new coordinates depends on it. Where readings are linear in the fields, v is standard
normal and independent of everything else.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from bpinn.evaluation import Evaluation
from bpinn.fields.base import Streams, Wanted
from bpinn.posterior import Model

Reference = dict[str, list[Streams]]  # streams before the link, for each field and each term that uses it
ITERATIONS = 5  # of Gauss and Newton, for a reference that is not given


class Linearised(NamedTuple):
    """A quantity as ``rows @ a + constant``, and its value at the reference."""

    rows: Array
    constant: Array
    value: Array


def streams_of(evaluation: Evaluation, theta: Any, scalars: Any, prepared: Any) -> Reference:
    """The streams of each field before its link, wherever the evaluation needs them."""
    return {
        name: field.raw(theta[name], prepared["fields"][name], _wanted(evaluation, name, scalars))
        for name, field, *_ in evaluation.fields
        if name in evaluation.requests
    }


def _wanted(evaluation: Evaluation, name: str, scalars: Any) -> Wanted:
    field, bounds = next((f, b) for n, f, b, _ in evaluation.fields if n == name)
    users, requests = evaluation.requests[name]
    sizes = tuple(evaluation.tasks[i].count for i in users)
    scales = {scale: scalars[f"{scale}_{name}"] for scale in field.scale_priors(bounds)}
    return Wanted(field.needed(requests), sizes, bounds, False, scales)


def linearised(
    evaluation: Evaluation, theta: Any, scalars: Any, prepared: Any, reference: Reference
) -> list[Linearised]:
    """Each quantity of an evaluation as a linear function of the linear parameters of all fields, one after another.

    Fields without linear parameters keep their own streams. ``theta`` is not looked at where it is linear.
    """
    fields = {name: (field, bounds, field.linear(bounds)) for name, field, bounds, _ in evaluation.fields}
    sizes = {name: part.stop - part.start for name, (_, _, part) in fields.items()}
    own = streams_of(evaluation, theta, scalars, prepared)
    features = {
        name: fields[name][0].features(theta[name], prepared["fields"][name], _wanted(evaluation, name, scalars))
        for name in own
        if sizes[name]
    }
    terms = []
    for i, task in enumerate(evaluation.tasks):
        places = {name: users.index(i) for name, (users, _) in evaluation.requests.items() if i in users}
        moving = {name: reference[name][at] for name, at in places.items() if sizes[name]}
        still = {name: own[name][at] for name, at in places.items() if not sizes[name]}

        def value_of(moving: dict[str, Streams], i: int = i, still: Any = still) -> Array:
            return evaluation.term(i, moving | still, scalars, prepared)

        value, push = jax.linearize(value_of, moving)
        rows = {name: jnp.zeros((task.count, size), value.dtype) for name, size in sizes.items()}
        constant = value
        for name, streams in moving.items():
            for index, stream in streams.items():
                nothing = jax.tree.map(jnp.zeros_like, moving)
                nothing[name][index] = jnp.ones_like(stream)
                slope = push(nothing)
                columns, offset = (part[places[name]][index] for part in features[name])
                rows[name] = rows[name] + slope[:, None] * columns
                constant = constant + slope * (offset - stream)
        terms.append(Linearised(jnp.concatenate(list(rows.values()), axis=1), constant, value))
    parts = [evaluation.summed(list(part), prepared["weights"]) for part in zip(*terms, strict=True)]
    return [Linearised(*of_one) for of_one in zip(*parts, strict=True)]


class Coordinates:
    """The map between plain vectors ``z`` and whitened ones ``w`` of the same length; see `Posterior.coordinates`.

    ``w`` has the residuals v where ``z`` has the linear parameters, and is the same elsewhere. ``weight`` multiplies
    the likelihood, as in annealing.
    """

    def __init__(self, model: Model, data: Any, reference: Reference):
        self.model, self.data, self.reference = model.compiled(native=False), data, reference
        parameters = model.parameters
        parts, sds = [], []
        for name, field, bounds in parameters.fields:
            linear, first = field.linear(bounds), parameters.slices[name].start
            parts.append(np.arange(first + linear.start, first + linear.stop))
            sds.append(np.asarray(field.prior_sd(bounds))[linear])
        self.where = np.concatenate(parts).astype(int)  # the linear parameters in z
        self.prior_sd = np.concatenate(sds)

    def to_plain(self, w: Array, weight: Array | float = 1.0) -> tuple[Array, Array]:
        """The plain vector, and the log determinant of its derivative by ``w``."""
        if not self.where.size:
            return w, jnp.zeros((), w.dtype)
        factor, shift = self._conditional(w, weight)
        a = solve_triangular(factor, shift + w[self.where])
        return w.at[self.where].set(a), -jnp.sum(jnp.log(jnp.diag(factor)))

    def to_white(self, z: Array, weight: Array | float = 1.0) -> Array:
        """The whitened vector of a plain one."""
        if not self.where.size:
            return z
        factor, shift = self._conditional(z, weight)
        return z.at[self.where].set(factor @ z[self.where] - shift)

    def log_density(self, w: Array, weight: Array | float = 1.0) -> Array:
        """Log density of the posterior in whitened coordinates, the determinant included."""
        z, log_determinant = self.to_plain(w, weight)
        return self.model.log_prior(z) + weight * self.model.log_likelihood(z, self.data) + log_determinant

    def _conditional(self, z: Array, weight: Array | float) -> tuple[Array, Array]:
        """R, upper triangular with a positive diagonal, and R mu of the linear parameters given all others.

        By QR of the stacked, scaled rows: the precision spans many orders of magnitude, and its square root half as
        many, which single precision can hold.
        """
        z = z.at[self.where].set(0.0)  # neither may depend on the linear parameters
        theta, scalars = self.model.parameters.split(z)
        quantities = linearised(self.model.sensors, theta, scalars, self.data["sensors"], self.reference)
        rows, targets = [jnp.diag(1.0 / jnp.asarray(self.prior_sd, z.dtype))], [jnp.zeros(len(self.where), z.dtype)]
        readings = zip(self.model.groups, quantities, self.data["values"], self.data["noise"], strict=True)
        for group, found, values, noise in readings:
            scale = noise if group.noise_name is None else scalars[group.noise_name]
            # What is not finite is replaced before it is used, or its derivative would not be finite either.
            known = jnp.isfinite(found.value) & jnp.isfinite(found.constant) & jnp.all(jnp.isfinite(found.rows), axis=1)
            known &= (found.value > 0) | (not group.likelihood.positive)
            value = jnp.where(known, found.value, 1.0)
            information = weight * group.likelihood.information(value, scale)
            residual = group.likelihood.response(values, value, scale) - jnp.where(known, found.constant, 0.0)
            usable = known & jnp.isfinite(information) & (information > 0) & jnp.isfinite(residual)
            root = jnp.sqrt(jnp.where(usable, information, 0.0))  # a row that is not finite at the reference has none
            rows.append(root[:, None] * jnp.where(usable[:, None], found.rows, 0.0))
            targets.append(root * jnp.where(usable, residual, 0.0))
        orthogonal, factor = jnp.linalg.qr(jnp.concatenate(rows))
        sign = jax.lax.stop_gradient(jnp.sign(jnp.diag(factor)))
        return sign[:, None] * factor, sign * (orthogonal.T @ jnp.concatenate(targets))


@partial(jax.jit, static_argnames="model")
def found_reference(model: Model, data: Any, key: Array) -> Reference:
    """The streams of a solution: hidden weights from the prior, linear parameters by Gauss-Newton iterations."""

    def one(_: Any, z: Array) -> Array:
        coordinates = Coordinates(model, data, reference_at(model, data, z))
        return coordinates.to_plain(z.at[coordinates.where].set(0.0))[0]

    return reference_at(model, data, jax.lax.fori_loop(0, ITERATIONS, one, model.parameters.sample_prior(key)))


@partial(jax.jit, static_argnames="model")
def reference_at(model: Model, data: Any, z: Array) -> Reference:
    """The streams of a plain vector at the sensors."""
    return streams_of(model.sensors, *model.parameters.split(z), data["sensors"])
