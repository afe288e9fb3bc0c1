"""Proposals of the chains of `bpinn.methods.collapsed`: random walks and independent draws, in two sets of coordinates.

Equations are mostly linear in their unknowns, so that what readings determine together, such as the sum of two
coefficients, is a straight ridge in the unknowns themselves. On the real line, where a positive unknown is its
logarithm, the ridge is curved, and no normal distribution follows it. An unknown that is known to an order of magnitude
only is nearly normal on the real line instead. So proposals are made in both coordinates, in turn at random.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform, Transform

from bpinn.methods.frames import triangular_root
from bpinn.methods.start import prior_units
from bpinn.model import Model

TARGET = 0.3  # acceptance of the random walk
SHORT = 0.02  # weight of an independent proposal in the share of those that are accepted
# Share of proposals that do not depend on where the chain is: at most this, and less if few of them are accepted.
INDEPENDENT, FEWEST, PER_ACCEPTED = 0.75, 0.15, 2.5
EASY = 0.7  # share of independent proposals that are accepted, from which they are all that is needed
FREEDOM = 10.0  # degrees of freedom of their Student-t distribution, with tails wider than those of most posteriors
RIDGE = 100.0  # draws that mode and curvature count for
QUICK_RIDGE, KEPT = 50.0, 0.5  # the same where draws move far, and the share of earlier draws that an update keeps
LEAST_SHARE = 0.2  # of the proposals, for the coordinates in which fewer independent ones are accepted


class Views:
    """Coordinates of the scalars: the real line, and the unknowns themselves where that is something else.

    The latter are in units of their priors' sds, from their centres. ``scale`` is the prior's spread in each. After the
    scalars there may be other numbers, in units of their own, which are the same in both.
    """

    def __init__(self, model: Model, others: int = 0):
        first = model.parameters.num_weights
        noise = {group.noise_name for group in model.groups}
        self._curved: list[tuple[Transform, slice]] = []
        for scalar in model.parameters.unknowns:
            at, transform = model.parameters.slices[scalar.name], scalar.transform
            while isinstance(transform, IndependentTransform):
                transform = transform.base_transform
            by_component = transform.domain.event_dim == 0 and len(scalar.real_shape) < 2
            if by_component and not isinstance(transform, IdentityTransform) and scalar.name not in noise:
                self._curved.append((transform, slice(at.start - first, at.stop - first)))
        self.count = 2 if self._curved else 1
        centre, scale = (part[first:] for part in prior_units(model))
        scale = jnp.concatenate([scale, jnp.ones(others)]) if len(scale) + others else jnp.ones(1, float)
        self._units = []
        own = scale
        for transform, at in self._curved:
            slope = jnp.exp(_log_slope(transform, centre[at]))
            self._units.append((transform(centre[at]), slope * scale[at]))
            own = own.at[at].set(1.0)
        self.scale = jnp.stack([scale, own][: self.count])

    def of(self, scalars: Array) -> Array:
        """The scalars on the real line in all coordinates, (coordinates, scalars)."""
        own = scalars
        for (transform, at), (centre, unit) in zip(self._curved, self._units, strict=True):
            own = own.at[at].set((transform(scalars[at]) - centre) / unit)
        return jnp.stack([scalars, own][: self.count])

    def real(self, number: Array, at_view: Array) -> Array:
        """The scalars on the real line; not finite outside of the unknowns' support."""
        own = at_view
        for (transform, at), (centre, unit) in zip(self._curved, self._units, strict=True):
            own = own.at[at].set(transform.inv(centre + unit * at_view[at]))
        return jnp.where(number == 0, at_view, own)

    def log_slopes(self, scalars: Array) -> Array:
        """The log determinant of the derivative of `of`, in all coordinates."""
        total = jnp.zeros((), scalars.dtype)
        for (transform, at), (_, unit) in zip(self._curved, self._units, strict=True):
            total += jnp.sum(_log_slope(transform, scalars[at]) - jnp.log(unit))
        return jnp.stack([jnp.zeros_like(total), total][: self.count])

    def slopes(self, scalars: Array) -> Array:
        """The derivative of each component of `of`, in all coordinates."""
        own = jnp.ones_like(scalars)
        for (transform, at), (_, unit) in zip(self._curved, self._units, strict=True):
            own = own.at[at].set(jnp.exp(_log_slope(transform, scalars[at])) / unit)
        return jnp.stack([jnp.ones_like(scalars), own][: self.count])


def _log_slope(transform: Transform, real: Array) -> Array:
    return transform.log_abs_det_jacobian(real, transform(real))


class Proposed(NamedTuple):
    """A proposal: the scalars on the real line, and the log ratio of the densities of proposing there and back."""

    scalars: Array
    correction: Array
    view: Array
    independent: Array


class Proposals(NamedTuple):
    """How a chain proposes scalars, for each of the coordinates of `Views` (first axis). It is adapted in warm-up.

    ``number``, ``mean`` and ``covariance`` are the moments of the chain so far; ``log_scale`` is that of the random
    walk, and ``accepted`` the share of independent proposals that are accepted. These are made around ``centre`` with
    the covariance R R', R being the ``root``, with its ``inverse``.
    """

    number: Array
    mean: Array
    covariance: Array
    log_scale: Array
    accepted: Array
    centre: Array
    root: Array
    inverse: Array

    @classmethod
    def around(cls, views: Views, mode: Array, root: Array, inverse: Array) -> Self:
        """From a mode on the real line and a root of the inverse of the curvature there."""
        slopes = views.slopes(mode)
        roots, centres = slopes[:, :, None] * root, views.of(mode)
        ones = jnp.ones(views.count, mode.dtype)
        return cls(
            0.0 * ones, centres, roots @ jnp.swapaxes(roots, 1, 2), jnp.log(2.38 / np.sqrt(len(mode)) * ones),
            ones * EASY, centres, roots, inverse / slopes[:, None, :],
        )  # fmt: skip

    @property
    def suffice(self) -> Array:
        """Whether so many independent proposals are accepted that nothing else is needed."""
        return jnp.max(self.accepted) >= EASY

    def propose(self, views: Views, scalars: Array, key: Array) -> Proposed:
        keys = jax.random.split(key, 3)
        dtype = scalars.dtype
        which, kind = jax.random.uniform(keys[0], (2,), dtype)
        number = jnp.int32(0)
        if views.count > 1:
            of_own = self.accepted[1] / jnp.sum(self.accepted)
            number = (which < jnp.clip(of_own, LEAST_SHARE, 1.0 - LEAST_SHARE)).astype(jnp.int32)
        own = jax.tree.map(lambda part: part[number], self)
        away = own.root @ jax.random.normal(keys[1], scalars.shape, dtype)
        tails = jnp.sum(jax.random.normal(keys[2], (int(FREEDOM),), dtype) ** 2) / FREEDOM
        independent = kind < jnp.clip(PER_ACCEPTED * own.accepted, FEWEST, INDEPENDENT)
        here = views.of(scalars)[number]
        there = jnp.where(independent, own.centre + away / jnp.sqrt(tails), here + jnp.exp(own.log_scale) * away)
        found = views.real(number, there)
        found = jnp.where(jnp.all(jnp.isfinite(found)), found, jnp.nan)
        correction = jnp.where(independent, own._log_density(here) - own._log_density(there), 0.0)
        slopes = views.log_slopes(scalars)[number] - views.log_slopes(found)[number]
        return Proposed(found, correction + slopes, number, independent)

    def _log_density(self, at: Array) -> Array:
        """Of independent proposals, for one of the coordinates."""
        standard = self.inverse @ (at - self.centre)
        return -0.5 * (FREEDOM + len(at)) * jnp.log1p(jnp.vdot(standard, standard) / FREEDOM)

    def adapted(
        self, views: Views, scalars: Array, proposed: Proposed, probability: Array, closes: Array, quick: bool
    ) -> Self:
        """Moments follow the chain, which is at ``scalars`` now; where ``closes``, proposals follow the moments.

        A ``quick`` chain has few draws from each update to the next, but nearly independent ones.
        """
        count = self.number + 1.0
        gain = 1.0 / (count + (QUICK_RIDGE if quick else RIDGE))
        off = views.of(scalars) - self.mean
        mean = self.mean + gain[:, None] * off
        covariance = self.covariance + gain[:, None, None] * (off[:, :, None] * off[:, None, :])
        covariance = (1.0 - gain[:, None, None]) * covariance
        made = jnp.arange(views.count) == proposed.view
        rate = jnp.where(made & ~proposed.independent, (1.0 + 0.1 * count) ** -0.6, 0.0)
        learnt = jnp.where(made & proposed.independent, SHORT, 0.0)
        least = (1e-6 * views.scale) ** 2
        factors = [triangular_root(part, own) for part, own in zip(covariance, least, strict=True)]
        factor, inverse = (jnp.stack(parts) for parts in zip(*factors, strict=True))  # of the covariance's inverse
        return self._replace(
            number=jnp.where(closes, KEPT * count, count) if quick else count,
            mean=mean,
            covariance=covariance,
            log_scale=self.log_scale + rate * (probability - TARGET),
            accepted=self.accepted + learnt * (probability - self.accepted),
            root=jnp.where(closes, jnp.swapaxes(inverse, 1, 2), self.root),
            inverse=jnp.where(closes, jnp.swapaxes(factor, 1, 2), self.inverse),
            centre=jnp.where(closes, mean, self.centre),
        )
