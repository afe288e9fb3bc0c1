"""Rank-normalised R-hat and effective sample sizes of many quantities at once (Vehtari et al. 2021).

The definitions are ArviZ's, and a test checks that they agree. ArviZ loops over quantities, which took nearly half of
the time of small runs: chains are reviewed every 50 draws, at 40 quantities or more.

All draws are (chains, draws, quantities), finite, with at least four draws per chain.
"""

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

RESOLUTION = np.finfo(float).resolution  # a smaller range counts as constant


def rhat(draws: np.ndarray) -> np.ndarray:
    """Spread of all chains together relative to each chain, the larger for values and distances from the median."""
    parts = _halves(draws)
    distances = np.abs(parts - np.median(parts, axis=(0, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.fmax(_split_rhat(_normal_scores(parts)), _split_rhat(_normal_scores(distances)))


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the bulk of the distribution."""
    return _ess(_normal_scores(_halves(draws)))


def tail_ess(draws: np.ndarray) -> np.ndarray:
    """Effective sample size for the 5% and 95% quantiles, the smaller."""
    limits = np.quantile(draws, [0.05, 0.95], axis=(0, 1))
    return np.minimum(*(_ess(_halves(draws <= limit).astype(float)) for limit in limits))


def _halves(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Normal scores of the rank of each draw among all draws of its quantity; ties share the average rank."""
    flat = draws.reshape(-1, draws.shape[2]).T
    count = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ordered = np.take_along_axis(flat, order, axis=1)
    starts = np.ones(flat.shape, bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    places = np.arange(count)
    ranks = np.broadcast_to(places + 1.0, flat.shape)
    if not starts.all():
        ends = np.ones(flat.shape, bool)
        ends[:, :-1] = starts[:, 1:]
        first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
        last = np.minimum.accumulate(np.where(ends, places, count)[:, ::-1], axis=1)[:, ::-1]
        ranks = (first + last) / 2 + 1
    scores = np.empty(flat.shape)
    np.put_along_axis(scores, order, ndtri((ranks - 3 / 8) / (count + 1 / 4)), axis=1)
    return scores.T.reshape(draws.shape)


def _split_rhat(parts: np.ndarray) -> np.ndarray:
    count = parts.shape[1]
    between = count * parts.mean(axis=1).var(axis=0, ddof=1)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt((between / within + count - 1) / count)


def _ess(parts: np.ndarray) -> np.ndarray:
    """Geyer's initial monotone sequence: sum autocorrelations in pairs as long as the pairs are positive."""
    chains, count, _ = parts.shape
    total = chains * count
    means = parts.mean(axis=1)
    size = next_fast_len(2 * count, real=True)
    power = np.mean(np.abs(rfft(parts - means[:, None], n=size, axis=1)) ** 2, axis=0)
    covariance = irfft(power, n=size, axis=0)[:count] / count
    within = covariance[0] * count / (count - 1)
    variance = covariance[0] + (means.var(axis=0, ddof=1) if chains > 1 else 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1 - (within - covariance) / variance
    rho[0] = 1.0
    even, odd = rho[: count - count % 2 : 2], rho[1::2]
    pairs = even + odd
    last = max((count - 3) // 2, 0)
    ends = pairs[: last + 1] <= 0
    ends[last] = True  # no further pairs
    stop = np.argmax(ends, axis=0)
    adding = np.arange(len(pairs))[:, None] < stop
    added = np.sum(np.where(adding, np.minimum.accumulate(pairs, axis=0), 0.0), axis=0)
    at_stop, pair_at_stop = (np.take_along_axis(a, stop[None], axis=0)[0] for a in (even, pairs))
    rest = np.where((at_stop > 0) | (pair_at_stop >= 0), at_stop, 0.0)
    effective = total / np.maximum(2 * added - 1 + rest, 1 / np.log10(total))
    still = np.ptp(parts, axis=(0, 1)) < RESOLUTION
    return np.where(still, float(total), effective)
