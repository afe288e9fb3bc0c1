"""The coordinates that an approximation lives in: units of the prior, or whitened ones around a starting point.

An approximation is a density of a standardised vector ``v``. A space says what ``v`` means: the plain vector ``z`` that
it stands for, and the log determinant by which densities of the two differ. Its anchor is fixed before training and is
stored with the fitted parameters.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.coordinates import Coordinates, Reference
from bpinn.methods.frames import WhitenedMoves, white
from bpinn.methods.start import prior_units
from bpinn.model import Model

FIRST_SD = 0.03  # in prior sds; under wider Gaussians the gradient of the likelihood is mostly noise
# A frozen map is cheaper, but would leave it to the approximation how coefficients depend on unknowns.
MOVES = WhitenedMoves(freeze=False)


class Space(ABC):
    """The density of a posterior in the coordinates ``v`` of an approximation."""

    def __init__(self, model: Model, data: Any, anchor: Any):
        self.model, self.data, self.anchor = model, data, anchor

    @classmethod
    @abstractmethod
    def around(cls, model: Model, data: Any, start: Array) -> Self:
        """The space of an approximation that starts at this vector, which is in units of the prior."""

    @abstractmethod
    def first(self, start: Array) -> tuple[Array, Array]:
        """Mean and standard deviations of ``v`` to start with, around the same vector."""

    @abstractmethod
    def to_plain(self, v: Array) -> tuple[Array, Array]:
        """The plain vector, and the log determinant of its derivative by ``v``."""

    @abstractmethod
    def log_density(self, v: Array) -> tuple[Array, Array]:
        """The log density of the plain vector, and the log determinant; their sum is the log density of ``v``."""

    def estimated(self, v: Array, batch: Any) -> tuple[Array, Array]:
        """`log_density` from a batch of the readings: its mean over batches is that of all of them."""
        z, log_determinant = self.to_plain(v)
        likelihood = self.model.batches * self.model.batch.log_likelihood(z, batch)
        return self.model.log_prior(z) + likelihood, log_determinant

    def smooth(self) -> Self:
        """The same without the native kernel, which has no second derivatives."""
        return type(self)(self.model.compiled(native=False), self.data, self.anchor)


class PriorUnits(Space):
    """``z = centre + scale * v``, with centre and scale of the prior; there is nothing to store."""

    @classmethod
    def around(cls, model: Model, data: Any, start: Array) -> Self:
        return cls(model, data, ())

    def first(self, start: Array) -> tuple[Array, Array]:
        return start, jnp.full_like(start, FIRST_SD)

    def to_plain(self, v: Array) -> tuple[Array, Array]:
        centre, scale = prior_units(self.model)
        return centre + scale * v, jnp.sum(jnp.log(scale))

    def log_density(self, v: Array) -> tuple[Array, Array]:
        z, log_determinant = self.to_plain(v)
        return self.model.log_density(z, self.data), log_determinant


class Anchor(NamedTuple):
    """The reference of the whitened coordinates, and the whitened vector ``w`` at which ``v`` is zero."""

    reference: Reference
    centre: Array


class Whitened(Space):
    """``v`` is the difference to the start: of residuals and scalars in sds, of hidden weights in units of the prior.

    Residuals of linear parameters are zero at the start, whatever the linear parameters there: given the hidden
    weights and the scalars they are standard normal, exactly or nearly, so that is where they start.
    """

    @classmethod
    def around(cls, model: Model, data: Any, start: Array) -> Self:
        centre, scale = prior_units(model)
        z = centre + scale * start
        reference = MOVES.frame_at(model, data, z).reference
        w = Coordinates(model, data, reference).to_white(z)
        return cls(model, data, Anchor(reference, w.at[model.linear].set(0.0)))

    def first(self, start: Array) -> tuple[Array, Array]:
        sd = np.full(self.model.dim, FIRST_SD)
        sd[white(self.model)] = 1.0
        return jnp.zeros_like(start), jnp.asarray(sd, start.dtype)

    def _white(self, v: Array) -> tuple[Coordinates, Array, Array]:
        """The whitened coordinates, the vector in them, and the log determinant of its derivative by ``v``."""
        unit = MOVES.units(self.model)
        coordinates = Coordinates(self.model, self.data, self.anchor.reference)
        return coordinates, self.anchor.centre + unit * v, jnp.sum(jnp.log(unit))

    def to_plain(self, v: Array) -> tuple[Array, Array]:
        coordinates, w, growth = self._white(v)
        z, log_determinant = coordinates.to_plain(w)
        return z, log_determinant + growth

    def log_density(self, v: Array) -> tuple[Array, Array]:
        coordinates, w, growth = self._white(v)
        solved = coordinates.solve(w)
        return coordinates.log_density_of(solved), solved.log_determinant + growth


class Frozen(Whitened):
    """Whitened with one map, that at the start: it follows neither hidden weights nor scalars, but costs nothing."""

    @classmethod
    def around(cls, model: Model, data: Any, start: Array) -> Self:
        reference, w = super().around(model, data, start).anchor
        centre, scale = prior_units(model)
        frozen = Coordinates(model, data, reference).frozen(centre + scale * start)
        return cls(model, data, Anchor(reference._replace(frozen=frozen), w))


SPACES: dict[str, type[Space]] = {"whitened": Whitened, "plain": PriorUnits}
