"""Predictions: a quantity at points, as draws (in chunks that fit in memory) or in closed form."""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from bpinn.errors import InputError
from bpinn.labelled import Labelled
from bpinn.shown import Shown

KEEP_BYTES = 512 * 2**20  # predictions up to this size are cached, larger ones are recomputed as needed
GAUSSIAN_DRAWS = 1000


class Prediction(Labelled, Shown):
    """The posterior of a quantity at points.

    ``mean``, ``sd`` and each end of ``interval(p)`` have the shape of the points; ``draws`` has shape
    ``(chains, draws, *points)``. `to_pandas` and `to_xarray` give them along with their coordinates. Evaluation
    is lazy, and predictions too large for memory are evaluated one chunk of points at a time. A method that gives
    single solutions has no error bars: without ``spread`` the sd and the intervals are NaN.

    Example:
        >>> import bpinn as bp
        >>> problem = bp.Problem(domain={"x": (0.0, 1.0)}, fields={"u": bp.MLP(hidden=())})
        >>> band = bp.prior.predict(problem, "u", {"x": [0.0, 0.5, 1.0]}, draws=100)
        >>> band
        Prediction('u', 1 chains, 100 draws, points (3,))
        >>> low, high = band.interval(0.95)
        >>> bool((low < band.mean).all() and (band.mean < high).all())
        True
    """

    def __init__(
        self,
        evaluate: Callable[[slice], np.ndarray],
        chunk: int,
        shape: tuple[int, ...],
        chains: int,
        draws: int,
        itemsize: int,
        at: dict[str, np.ndarray],
        label: str,
        spread: bool = True,
    ):
        self._spread = spread and chains * draws > 1
        self._evaluate, self._chunk = evaluate, chunk
        self._shape, self._size = shape, int(np.prod(shape))
        self._nbytes = chains * draws * self._size * itemsize
        self._chains, self._draws = chains, draws
        self._held: np.ndarray | None = None
        self._quantiles: dict[float, np.ndarray] = {}
        self.at, self.label = at, label

    def __repr__(self) -> str:
        return f"Prediction({self.label!r}, {self._chains} chains, {self._draws} draws, points {self._shape})"

    def is_quick(self, most: int) -> bool:
        """Whether it has been evaluated, or has at most so many bytes of draws."""
        return "_moments" in vars(self) or self._held is not None or self._nbytes <= most

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """(points, draws at these points) over all points; the draws are cached if they are small enough."""
        if self._held is None and self._nbytes <= KEEP_BYTES:
            self._held = np.concatenate([self._evaluate(s) for s in self._slices()], axis=-1)
        for part in self._slices():
            yield part, self._evaluate(part) if self._held is None else self._held[..., part]

    def _slices(self) -> list[slice]:
        return [slice(i, min(i + self._chunk, self._size)) for i in range(0, self._size, self._chunk)]

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = np.empty(self._size), np.empty(self._size)
        for part, draws in self._chunks():
            flat = draws.reshape(-1, draws.shape[-1]).astype(float)
            mean[part] = flat.mean(axis=0)
            sd[part] = flat.std(axis=0, ddof=1) if self._spread else np.nan
        return mean.reshape(self._shape), sd.reshape(self._shape)

    @property
    def mean(self) -> np.ndarray:
        """The mean over all draws, at each point."""
        return self._moments[0]

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation over all draws, at each point."""
        return self._moments[1]

    def quantile(self, p: float) -> np.ndarray:
        """The value below which the quantity lies with probability ``p``."""
        if not 0 <= p <= 1:
            raise InputError(f"quantile: p must lie between 0 and 1, got {p!r}")
        if not self._spread and p != 0.5:
            return np.full(self._shape, np.nan)
        return self._compute_quantiles([float(p)])[0]

    def interval(self, p: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the central interval that contains the quantity with probability ``p``."""
        if not isinstance(p, int | float) or not 0 < p < 1:
            raise InputError(f"interval: p must lie between 0 and 1, such as 0.95, got {p!r}")
        if not self._spread:
            return np.full(self._shape, np.nan), np.full(self._shape, np.nan)
        low, high = self._compute_quantiles([0.5 - p / 2, 0.5 + p / 2])
        return low, high

    def _compute_quantiles(self, wanted: list[float]) -> list[np.ndarray]:
        missing = [p for p in wanted if p not in self._quantiles]
        if missing:
            found = np.empty((len(missing), self._size))
            for part, draws in self._chunks():
                found[:, part] = np.quantile(draws.reshape(-1, draws.shape[-1]), missing, axis=0)
            for p, values in zip(missing, found, strict=True):
                self._quantiles[p] = values.reshape(self._shape)
        return [self._quantiles[p] for p in wanted]

    @property
    def draws(self) -> np.ndarray:
        """All draws, shape ``(chains, draws, *points)``."""
        parts = [draws for _, draws in self._chunks()]
        whole = self._held if self._held is not None else np.concatenate(parts, axis=-1)
        return whole.reshape(*whole.shape[:2], *self._shape)


class GaussianPrediction(Prediction):
    """A quantity that is jointly normal at all points: ``mean``, ``sd``, quantiles and intervals are exact.

    ``covariance`` has shape (points, points); ``draws``, of shape ``(1, 1000, *points)``, are computed on demand with a
    fixed seed.

    Example:
        >>> import numpy as np
        >>> from bpinn.prediction import GaussianPrediction
        >>> band = GaussianPrediction(np.zeros(2), np.eye(2), {"x": np.array([0.0, 1.0])}, "u")
        >>> band.quantile(0.975).round(2).tolist(), band.draws.shape
        ([1.96, 1.96], (1, 1000, 2))
    """

    def __init__(self, mean: np.ndarray, covariance: np.ndarray, at: dict[str, np.ndarray], label: str):
        size = int(np.prod(mean.shape))
        super().__init__(self._sample, max(size, 1), mean.shape, 1, GAUSSIAN_DRAWS, 8, at, label)
        self._mean, self.covariance = mean, covariance

    def __repr__(self) -> str:
        return f"GaussianPrediction({self.label!r}, points {self._shape})"

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        variance = np.maximum(np.diag(self.covariance), 0.0)  # rounding may make a zero variance negative
        return self._mean, np.sqrt(variance).reshape(self._shape)

    def _compute_quantiles(self, wanted: list[float]) -> list[np.ndarray]:
        return [self.mean + ndtri(p) * self.sd for p in wanted]

    def _sample(self, part: slice) -> np.ndarray:
        variances, directions = np.linalg.eigh(self.covariance)
        unit = np.random.default_rng(0).standard_normal((GAUSSIAN_DRAWS, self._size))
        draws = self._mean.ravel() + (unit * np.sqrt(np.maximum(variances, 0.0))) @ directions.T
        return draws[None, :, part]
