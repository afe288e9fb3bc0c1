"""Groups of draws separated by gaps, one for each solution of the equations."""

import numpy as np

FEWEST, LEAST_SHARE = 20, 0.01  # smallest number and share of draws in a group
WIDE = 1.0  # smallest gap, in standard deviations of the wider of the two adjacent groups
DIRECTIONS = 3  # principal directions searched for gaps, in addition to the quantities themselves


def groups_of(draws: np.ndarray) -> np.ndarray:
    """The group index of each draw, with 0 for the largest group; ``draws`` is (draws, quantities).

    Two groups are separate if some quantity, or a principal direction of all quantities, has a gap between them that is
    wider than the standard deviation of either group. A draw that is repeated counts once: what resampling by collapsed
    weights leaves is a few draws far from each other, not as many solutions.
    """
    draws = np.asarray(draws, float)
    labels = np.zeros(len(draws), int)
    if not len(draws) or not np.all(np.isfinite(draws)):
        return labels
    distinct, place, repeats = np.unique(draws, axis=0, return_inverse=True, return_counts=True)
    fewest = max(FEWEST, int(np.ceil(LEAST_SHARE * len(distinct))))
    found: list[np.ndarray] = []
    waiting = [np.arange(len(distinct))]
    while waiting:
        rows = waiting.pop()
        cut = _cut(distinct[rows], fewest)
        if cut is None:
            found.append(rows)
        else:
            waiting += [rows[cut], rows[~cut]]
    of_distinct = np.zeros(len(distinct), int)
    for number, rows in enumerate(sorted(found, key=lambda rows: -repeats[rows].sum())):
        of_distinct[rows] = number
    return of_distinct[place]


def _cut(draws: np.ndarray, fewest: int) -> np.ndarray | None:
    """Which draws are below the widest gap, if there is one."""
    count = len(draws)
    scale = draws.std(axis=0)
    moving = scale > 1e-6 * np.abs(draws).max(axis=0, initial=1e-300)
    if count < 2 * fewest or not np.any(moving):
        return None
    units = (draws[:, moving] - draws[:, moving].mean(axis=0)) / scale[moving]
    directions = np.linalg.svd(units.T @ units)[0][:, :DIRECTIONS]
    units = np.concatenate([units, units @ directions], axis=1)
    ordered = np.sort(units, axis=0)
    sizes = np.arange(fewest, count - fewest + 1)  # of the group below
    below, above = (_spreads(part)[sizes - 1] for part in (ordered, -ordered[::-1]))
    wider = np.maximum(below, above[::-1])
    ratio = (ordered[sizes] - ordered[sizes - 1]) / wider
    row, column = np.unravel_index(np.argmax(ratio), ratio.shape)
    if not ratio[row, column] > WIDE:
        return None
    middle = 0.5 * (ordered[sizes[row] - 1, column] + ordered[sizes[row], column])
    return units[:, column] < middle


def _spreads(ordered: np.ndarray) -> np.ndarray:
    """Standard deviations of the first one, two, ... values of each column."""
    counts = np.arange(1, len(ordered) + 1)[:, None]
    shifted = ordered - ordered[0]
    means = np.cumsum(shifted, axis=0) / counts
    return np.sqrt(np.maximum(np.cumsum(shifted**2, axis=0) / counts - means**2, 1e-30))
