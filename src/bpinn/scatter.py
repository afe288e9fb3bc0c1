"""The noise of readings, guessed from how far each is from a plane through its neighbours."""

import numpy as np

MOST_READINGS = 1000  # looked at
MEDIAN = 0.6745  # of the size of a standard normal number


def scatter(at: np.ndarray, values: np.ndarray) -> float:
    """The standard deviation of readings about a smooth function; zero if there are too few of them.

    Arguments:
        at: positions, of shape (coordinates, readings).
        values: the readings.

    The median of the residuals is used, so that a few outliers do not matter. It is too large where the function bends
    between neighbours.

    Example:
        >>> import numpy as np
        >>> from bpinn.scatter import scatter
        >>> x = np.linspace(0, 1, 400)
        >>> noise = 0.1 * np.random.default_rng(0).standard_normal(400)
        >>> round(scatter(x[None], np.sin(3 * x) + noise), 2)
        0.1
    """
    count = 2 * len(at) + 2  # neighbours: twice as many as a plane has parameters
    if len(values) <= count + 1:
        return 0.0
    size = np.ptp(at, axis=1, keepdims=True)
    scaled = at / np.where(size > 0, size, 1.0)
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_READINGS)).astype(int))
    residuals = np.array([_residual(scaled, values, i, count) for i in chosen])
    return float(np.median(np.abs(residuals)) / MEDIAN)


def _residual(at: np.ndarray, values: np.ndarray, i: int, count: int) -> float:
    """How far a reading is from the plane through its neighbours, over the noise that this difference has."""
    distance = np.sum((at - at[:, i : i + 1]) ** 2, axis=0)
    distance[i] = np.inf
    near = np.argpartition(distance, count)[:count]
    planes = np.vstack([np.ones(count), at[:, near] - at[:, i : i + 1]])
    weights = np.linalg.pinv(planes.T)[0]  # the value of the plane at the point, from its neighbours
    return float((values[i] - weights @ values[near]) / np.sqrt(1 + np.sum(weights**2)))
