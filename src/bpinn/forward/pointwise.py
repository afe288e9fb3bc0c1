"""Solving the equations for the highest derivative of every field, by Newton's method at each point on its own."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bpinn.compiling import QUICKLY
from bpinn.forward.system import System
from bpinn.quantities import Coordinate, Partial

ITERATIONS, CONVERGED = 25, 1e-9  # of Newton's method; the last relative step
SINGULAR = 1e-10  # determinant over its largest value along the draw's own field


class Unsolved(Exception):
    """The equations could not be solved for one draw; the message says why, and where."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Inner:
    """What an equation has at one point, or at many, besides the highest derivatives."""

    below: Any
    known: Any
    right: Any
    at: Any
    unknowns: Any


INNER: Any = Inner(below=1, known=1, right=1, at=0, unknowns=None)  # the axes of the points


@dataclass(frozen=True, eq=False)
class Pointwise:
    """The equations of a system at points."""

    system: System

    def residual(self, top: Array, inner: "Inner") -> Array:
        """The residuals of the equations at one point, given the highest derivatives."""
        values: dict[Any, Array] = dict(zip(self.system.highest, top, strict=True))
        values |= dict(zip(self.system.below, inner.below, strict=True)) | dict(
            zip(self.system.known, inner.known, strict=True)
        )

        def look_up(reference: Any) -> Array:
            if isinstance(reference, Partial):
                return values[reference][None]
            if isinstance(reference, Coordinate):
                return inner.at[reference.name][None]
            return inner.unknowns[reference.name]

        found = [
            jnp.ravel(law.equation.call([look_up(r) for r in law.equation.references]))[0] for law in self.system.laws
        ]
        return jnp.stack(found) - inner.right

    def _newton(self, start: Array, inner: "Inner") -> tuple[Array, Array, Array]:
        """The highest derivatives, the determinant there, and the last relative step.

        An equation that is linear in them takes one step, and another one that confirms it.
        """
        residual = partial(self.residual, inner=inner)

        def step(carry: Any) -> Any:
            top, _, _, count = carry
            slopes, value = jax.jacfwd(residual)(top), residual(top)
            change, size = jnp.linalg.solve(slopes, value), jnp.linalg.det(slopes)
            return top - change, size, jnp.max(jnp.abs(change) / (1e-8 + jnp.abs(top))), count + 1

        first = (start, jnp.ones(()), jnp.full((), jnp.inf), 0)
        top, size, moved, _ = jax.lax.while_loop(lambda c: (c[2] > CONVERGED) & (c[3] < ITERATIONS), step, first)
        return top, size, moved

    def _by_below(self, top: Array, inner: "Inner") -> Array:
        """How the highest derivatives change with the lower ones, (fields, lower), by the implicit function theorem."""

        def residual(top: Array, below: Array) -> Array:
            return self.residual(top, replace(inner, below=below))

        by_top, by_below = jax.jacfwd(residual, (0, 1))(top, inner.below)
        return -jnp.linalg.solve(by_top, by_below)

    # --- at many points: arrays have the points last ---

    @cached_property
    def newton(self) -> Any:
        return jax.jit(jax.vmap(self._newton, in_axes=(1, INNER), out_axes=(1, 0, 0)), compiler_options=QUICKLY)

    @cached_property
    def by_below(self) -> Any:
        return jax.jit(jax.vmap(self._by_below, in_axes=(1, INNER), out_axes=2), compiler_options=QUICKLY)

    def solved(self, start: np.ndarray, inner: "Inner", typical: float | None) -> tuple[np.ndarray, np.ndarray]:
        """The highest derivatives at points by Newton's method, and the determinants; raises `Unsolved`.

        ``typical`` is the largest determinant that has been seen, None at first.
        """
        top, size, moved = (np.asarray(part) for part in self.newton(start, inner))
        tops = ", ".join(self.system.spelled(p) for p in self.system.highest)
        most = np.max(np.abs(size), initial=0.0) if typical is None else typical
        for failed, why in (
            (~np.isfinite(size), "are not finite"),
            (np.abs(size) <= SINGULAR * most, f"are singular: they do not determine {tops}"),
            (~np.isfinite(moved), "are not finite"),
            (moved > 1e-4, f"have no solution for {tops} that Newton's method finds"),
        ):
            if np.any(failed):
                i = int(np.argmax(failed))
                raise Unsolved(
                    f"the equations {why}, at {self.system.place({c: np.asarray(a)[i] for c, a in inner.at.items()})}"
                )
        return top, size
