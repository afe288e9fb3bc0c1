"""The posterior of an equation that is solved exactly, to compare with: the same priors and noise, without a field.

This is what one would do without a neural network, wherever the solution is known or quickly computed: the unknowns are
sampled, and the readings are compared with the solution. It shares no code with bpinn but the priors.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bpinn as bp

Values = Mapping[str, np.ndarray]
Solve = Callable[[Values], Mapping[str, np.ndarray]]
WALKERS, WARMUP, STEPS = 48, 1500, 2500


def runge_kutta(slope: Callable[..., np.ndarray], start: np.ndarray, times: np.ndarray, steps: int) -> np.ndarray:
    """Solutions of ``y' = slope(t, y)`` with ``start`` at ``times[0]``: shape (times, *start), ``steps`` steps each."""
    state, found = np.asarray(start, float), []
    for i, end in enumerate(times):
        if i:
            h = (end - times[i - 1]) / steps
            for j in range(steps):
                t = times[i - 1] + j * h
                a = slope(t, state)
                b = slope(t + h / 2, state + h / 2 * a)
                c = slope(t + h / 2, state + h / 2 * b)
                state = state + h / 6 * (a + 2 * b + 2 * c + slope(t + h, state + h * c))
        found.append(state)
    return np.array(found)


def log_likelihood(readings: Any, mean: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Of all readings of a group together, up to a constant; ``mean`` has the shape (walkers, readings)."""
    values, scale = readings.values, noise[:, None]
    with np.errstate(all="ignore"):
        if isinstance(readings.likelihood, bp.likelihoods.LogNormal):
            values, mean = np.log(values), np.log(mean)
        total = np.sum(-np.log(scale) - ((values - mean) / scale) ** 2 / 2, axis=1)
    return np.where(np.isfinite(total), total, -np.inf)


def posterior(problem: bp.Problem, solve: Solve, starts: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Draws of the unknowns and of inferred noises by the ensemble sampler of Goodman and Weare (2010).

    Arguments:
        problem: unknowns, priors, noises and readings are its own; its fields and equations are not used.
        solve: from values of the unknowns and of ``starts``, one for each walker, to what the sensors of a name would
            read without noise, (walkers, readings). Sensors that it leaves out have to be built into the solution.
        starts: priors of initial values that the solution needs.
    """
    rng = np.random.default_rng(seed)
    priors = {**problem.unknowns, **starts}
    first = solve({name: np.ones(2) for name in priors})
    readings = [r for r in problem.readings if r.name in first]
    for r in readings:
        if not isinstance(problem.sensors[r.name].noise, int | float):
            priors[f"noise_{r.name}"] = problem.sensors[r.name].noise
    names = list(priors)  # all of them are positive; the walkers move in logarithms

    @jax.jit
    def log_prior(z: Any) -> Any:
        return z.sum(axis=1) + sum(prior.log_prob(jnp.exp(z[:, i])) for i, prior in enumerate(priors.values()))

    def log_density(z: np.ndarray) -> np.ndarray:
        value = dict(zip(names, np.exp(z).T, strict=True))
        total = np.asarray(log_prior(z), float)
        with np.errstate(all="ignore"):
            means = solve(value)
        for r in readings:
            noise = value.get(f"noise_{r.name}")
            noise = np.full(len(z), float(problem.sensors[r.name].noise)) if noise is None else noise
            total = total + log_likelihood(r, means[r.name], noise)
        return np.where(np.isfinite(total), total, -np.inf)

    z = best_of_prior(log_density, priors, rng)
    kept = ensemble(log_density, z, rng)
    return {name: np.exp(kept[:, i]) for i, name in enumerate(names)}


def best_of_prior(log_density: Callable[..., np.ndarray], priors: Mapping[str, Any], rng: Any) -> np.ndarray:
    """Walkers around the best of many draws from the prior."""
    keys = jax.random.split(jax.random.key(0), len(priors))
    draws = [np.asarray(prior.sample(key, (20_000,)), float) for prior, key in zip(priors.values(), keys, strict=True)]
    z = np.log(np.maximum(np.stack(draws, axis=1), 1e-12))
    best = z[np.argsort(log_density(z))[-WALKERS // 4 :]]
    return np.concatenate([best] * 4) + 0.01 * rng.standard_normal((4 * len(best), len(priors)))


def ensemble(log_density: Callable[..., np.ndarray], z: np.ndarray, rng: Any) -> np.ndarray:
    """Stretch moves of one half of the walkers along lines to the other half."""
    density, kept = log_density(z), []
    half = len(z) // 2
    for step in range(WARMUP + STEPS):
        if step == WARMUP // 2:  # walkers that are lost start again beside those that are not
            best = np.argsort(density)[-len(z) // 4 :]
            z = np.concatenate([z[best]] * 4) + 0.001 * rng.standard_normal(z.shape)
            density = log_density(z)
        for own in (slice(0, half), slice(half, 2 * half)):
            others = z[half:] if own.start == 0 else z[:half]
            stretch = (1 + rng.uniform(size=half)) ** 2 / 2
            towards = others[rng.integers(half, size=half)]
            proposed = towards + stretch[:, None] * (z[own] - towards)
            new = log_density(proposed)
            with np.errstate(invalid="ignore"):
                accept = np.log(rng.uniform(size=half)) < (z.shape[1] - 1) * np.log(stretch) + new - density[own]
            z[own] = np.where(accept[:, None], proposed, z[own])
            density[own] = np.where(accept, new, density[own])
        if step >= WARMUP:
            kept.append(z.copy())
    return np.concatenate(kept)
