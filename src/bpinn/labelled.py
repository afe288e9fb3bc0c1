"""Predictions as tables and arrays with named coordinates, for pandas and xarray."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

CHAIN, DRAW, POINT = "chain", "draw", "point"  # dimensions: ArviZ's names of the first two, and one of ours


class Band(Protocol):
    """What the tables are made of: points, and a quantity's statistics at them."""

    at: dict[str, np.ndarray]
    label: str

    @property
    def mean(self) -> np.ndarray: ...
    @property
    def sd(self) -> np.ndarray: ...
    @property
    def draws(self) -> np.ndarray: ...
    def interval(self, p: float = 0.95) -> tuple[np.ndarray, np.ndarray]: ...


class Labelled:
    """Gives a prediction the methods that return it as a table."""

    def to_pandas(self: Band, p: float = 0.95) -> "pd.DataFrame":
        """A table with one row per point: its coordinates, then mean, sd and both ends of the central interval.

        Example:
            >>> import numpy as np
            >>> from bpinn.prediction import GaussianPrediction
            >>> band = GaussianPrediction(np.zeros(2), np.eye(2), {"x": np.array([0.0, 1.0])}, "u")
            >>> band.to_pandas().round(2)
                 x  mean   sd  2.5%  97.5%
            0  0.0   0.0  1.0 -1.96   1.96
            1  1.0   0.0  1.0 -1.96   1.96
        """
        import pandas as pd  # imported here because it takes a third of a second

        statistics = columns(self, p)
        places = _renamed(self.at, [*statistics, CHAIN, DRAW])
        return pd.DataFrame({name: np.ravel(values) for name, values in (places | statistics).items()})

    def to_xarray(self: Band, p: float = 0.95, *, draws: bool = False) -> "xr.Dataset":
        """Mean, sd and both ends of the central interval, with the coordinates of the points.

        The axes of a grid, such as one of `Problem.grid`, become dimensions with the names of the coordinates.
        Scattered points have one dimension, ``point``, along which their coordinates are given. With ``draws`` there
        is also a variable ``draws``, with the dimensions ``chain`` and ``draw`` in front.

        Example:
            >>> import numpy as np
            >>> from bpinn.prediction import GaussianPrediction
            >>> band = GaussianPrediction(np.zeros(2), np.eye(2), {"x": np.array([0.0, 1.0])}, "u")
            >>> band.to_xarray()["mean"].sel(x=1.0).item()
            0.0
        """
        import xarray as xr  # imported here because it takes half a second

        statistics = columns(self, p)
        dimensions, coordinates = axes_of(self.at, np.shape(self.mean), [*statistics, "draws"])
        found: dict[str, Any] = {name: (dimensions, values) for name, values in statistics.items()}
        if draws:
            found["draws"] = ((CHAIN, DRAW, *dimensions), self.draws)
        return xr.Dataset(found, coordinates, {"quantity": self.label})


def ends_of(p: float) -> tuple[str, str]:
    """What the ends of a central interval are called in tables: '2.5%' and '97.5%'."""
    return f"{100 * (0.5 - p / 2):g}%", f"{100 * (0.5 + p / 2):g}%"


def columns(prediction: Band, p: float = 0.95) -> dict[str, np.ndarray]:
    """The mean, and if there are error bars the sd and the ends of the interval, by their names in tables."""
    low, high = prediction.interval(p)
    found = {"mean": prediction.mean}
    if np.isfinite(prediction.sd).any():
        found |= {"sd": prediction.sd} | dict(zip(ends_of(p), (low, high), strict=True))
    return found


def axes_of(
    at: Mapping[str, np.ndarray], shape: tuple[int, ...], taken: Sequence[str] = ()
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the dimensions of points, and their coordinates as xarray takes them.

    An axis along which one coordinate alone varies is called like it; other axes are called ``point``, numbered if
    there are several. Names that are ``taken`` get a suffix.
    """
    places = _renamed(at, [*taken, CHAIN, DRAW])
    varying = {c: tuple(i for i in range(len(shape)) if np.any(a != a.take([0], axis=i))) for c, a in places.items()}
    owners: list[list[str]] = [[c for c, along in varying.items() if along == (i,)] for i in range(len(shape))]
    mixed = {i for along in varying.values() if len(along) > 1 for i in along}
    single = [i for i, names in enumerate(owners) if not names and i not in mixed and shape[i] == 1]
    constant = [c for c, along in varying.items() if not along]
    if len(single) == len(constant):  # a grid with a single point along these axes
        for i, name in zip(single, constant, strict=True):
            owners[i], varying[name] = [name], (i,)
    unnamed = [i for i, names in enumerate(owners) if len(names) != 1]
    dimensions = [names[0] if len(names) == 1 else "" for names in owners]
    for number, i in enumerate(unnamed):
        dimensions[i] = distinct(POINT if len(unnamed) == 1 else f"{POINT}_{number}", [*places, *taken, CHAIN, DRAW])
    coordinates = {}
    for name, values in places.items():
        rest = tuple(slice(None) if i in varying[name] else 0 for i in range(len(shape)))
        coordinates[name] = (tuple(dimensions[i] for i in varying[name]), values[rest])
    return tuple(dimensions), coordinates


def _renamed(at: Mapping[str, np.ndarray], taken: Sequence[str]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, values in at.items():
        others = [other for other in at if other != name]
        found[distinct(name, [*taken, *others, *found], "coordinate")] = values
    return found


def distinct(name: str, taken: Iterable[str], suffix: str = "") -> str:
    """A name that is not taken: itself, with a suffix, or with underscores behind it."""
    known = set(taken)
    if name in known and suffix:
        name = f"{name}_{suffix}"
    while name in known:
        name += "_"
    return name
