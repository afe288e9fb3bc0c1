"""How improbable the smooth part of residuals is under a model that was fitted to the same readings.

Let s be the posterior mean of the standardised residuals. If the model is right, and linear with normal noise, s has
the covariance I - C over repeated experiments, where C is the posterior covariance of the standardised predictions:
what the fit can follow is missing from the residuals. So s is compared with exactly what is left to see, which has more
power than a comparison with replicated readings, whose residuals no fit has reduced. The statistic is the energy of s
under smooth kernels; its distribution is that of a sum of chi-squares.
"""

import numpy as np
from scipy.special import chdtrc

LENGTHS = (0.1, 0.2, 0.4)  # of the kernels, as shares of the range of each coordinate
MOST_SITES = 100  # places at which the kernels are centred
MOST_READINGS = 2000  # more are sampled, which keeps the cost of a verdict low
FOLLOWED = 0.5  # posterior variance of a direction, in units of the noise's
JITTER = 1e-6


def smooth_misfit(scores: np.ndarray, at: np.ndarray) -> float:
    """The probability of smooth residuals as large as these.

    ``scores`` are standardised residuals, (draws, readings); ``at`` are places, (readings, coordinates).

    Example:
        >>> import numpy as np
        >>> x, rng = np.linspace(0, 1, 40)[:, None], np.random.default_rng(0)
        >>> draws = 0.1 * rng.standard_normal((500, 40))
        >>> smooth_misfit(draws + rng.standard_normal(40), x) > 0.01
        True
        >>> smooth_misfit(draws + rng.standard_normal(40) + 1.5 * np.sin(9 * x[:, 0]), x) < 0.01
        True
    """
    if len(at) > MOST_READINGS:
        some = np.random.default_rng(0).choice(len(at), MOST_READINGS, replace=False)
        scores, at = scores[:, some], at[some]
    # Directions that the fit follows are left out: little is left to see there, less than the draws tell how much.
    followed = np.linalg.svd(scores - scores.mean(axis=0), full_matrices=False)
    variance = followed.S**2 / (len(scores) - 1)
    directions = followed.Vh[variance > FOLLOWED]
    features = _features(at)
    features = features - directions.T @ (directions @ features)
    seen = scores @ features
    mean = seen.mean(axis=0)
    left = features.T @ features - np.atleast_2d(np.cov(seen, rowvar=False))
    weights = np.maximum(np.linalg.eigvalsh(left), 0.0)
    return tail(float(mean @ mean), weights)


def tail(value: float, weights: np.ndarray) -> float:
    """P(sum of weights times chi-squares of one degree of freedom > value), by its first three moments.

    Example:
        >>> round(tail(9.488, np.ones(4)), 3)
        0.05
    """
    first, second, third = (float(np.sum(weights**power)) for power in (1, 2, 3))
    if third <= 0.0:
        return 1.0
    freedom = second**3 / third**2
    return float(chdtrc(freedom, max(freedom + (value - first) * np.sqrt(freedom / second), 0.0)))


def _features(at: np.ndarray) -> np.ndarray:
    """Features whose squared length is the energy under the mean of the kernels, centred at some of the places."""
    unit = (at - at.min(axis=0)) / np.maximum(np.ptp(at, axis=0), np.finfo(float).tiny)
    order = np.lexsort(unit.T[::-1])
    chosen = unit[order[np.linspace(0, len(unit) - 1, min(MOST_SITES, len(unit))).round().astype(int)]]

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        squared = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
        return np.asarray(np.mean([np.exp(-0.5 * np.maximum(squared, 0.0) / length**2) for length in LENGTHS], axis=0))

    factor = np.linalg.cholesky(kernel(chosen, chosen) + JITTER * np.eye(len(chosen)))
    return np.asarray(np.linalg.solve(factor, kernel(chosen, unit)).T)
