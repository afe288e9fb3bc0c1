"""Progress as a file of JSON, for programs that watch a run: ``bpinn run FILE --progress progress.json``."""

import json
import math
import os
import secrets
import time
from pathlib import Path
from typing import Any

import numpy as np

from bpinn.convergence import GOOD_ESS, GOOD_RHAT, rhat_of
from bpinn.engine import Progress
from bpinn.monitor import Monitor
from bpinn.progress import FEWEST_JUDGED, Watcher, counted

EVERY_SECONDS = 0.5  # between versions of the file
MOST_TRACED = 80  # draws of each chain in a trace
INTERVAL = (0.025, 0.975)


def portrait(monitor: Monitor, draws: np.ndarray) -> dict[str, Any]:
    """Unknowns with their traces, and fields at the monitored points, from draws (chains, draws, functionals)."""
    flat = draws.reshape(-1, draws.shape[-1])
    mean, sd = flat.mean(axis=0), flat.std(axis=0)
    low, high = np.quantile(flat, INTERVAL, axis=0)
    judged = draws.shape[0] > 1 and draws.shape[1] >= FEWEST_JUDGED
    rhat = rhat_of(draws) if judged else np.full(len(mean), np.nan)
    rows = np.unique(np.linspace(0, draws.shape[1] - 1, MOST_TRACED).round().astype(int))
    first = len(mean) - len(monitor.numbers)
    unknowns = [
        {
            "name": number.label, "mean": mean[i], "sd": sd[i], "low": low[i], "high": high[i], "rhat": rhat[i],
            "trace": draws[:, rows, i],
        }
        for i, number in enumerate(monitor.numbers, first)
    ]  # fmt: skip
    bands, start = [], 0
    for quantity in monitor.quantities:
        part = slice(start, start + quantity.placed.count)
        start = part.stop
        if not quantity.is_equation:
            at = {c: np.asarray(a) for c, a in quantity.placed.at.items()}
            band = {"mean": mean[part], "low": low[part], "high": high[part]}
            bands.append({"name": quantity.name, "at": at, **band})
    return {"unknowns": unknowns, "bands": bands}


def plain(value: Any) -> Any:
    """What JSON can hold: lists instead of arrays, numbers of four or so digits, null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


class ProgressFile(Watcher):
    """Writes the progress of a run to a file, at most twice a second; a reader never sees half of it."""

    def __init__(self, path: Path):
        super().__init__()
        self.path, self._written, self._begun = path, -math.inf, time.perf_counter()
        self._portrait: dict[str, Any] = {}
        self.write({"state": "starting"})

    def __call__(self, progress: Progress) -> None:
        now, finished = time.perf_counter(), progress.done >= progress.total
        if now - self._written < EVERY_SECONDS and not finished:
            return
        self._written = now
        stage = progress.running
        before_draws = stage.num_warmup == stage.num_steps
        warming = progress.slowest < stage.num_warmup
        if not before_draws and not warming and progress.is_markov:
            before = self.draws
            self.judge(progress, now, finished)
            if self.draws is not None and self.draws is not before:
                self._portrait = portrait(progress.monitor, self.draws)
        self.write(
            {
                "state": "running",
                "stage": stage.verb if before_draws else "warm-up" if warming else stage.verb,
                "counted": counted(progress),
                "done": progress.slowest if before_draws or warming else progress.slowest - stage.num_warmup,
                "most": stage.num_warmup if before_draws or warming else stage.num_steps - stage.num_warmup,
                "unit": progress.unit,
                "chains": [{"done": chain.done, "restarts": chain.restarts} for chain in progress.chains],
                "seconds": now - self._begun,
                "left": self.seconds_left(progress, now),
                "rhat": self.rhat,
                "ess": self.ess if self.draws is not None else None,
                "wanted": {"rhat": GOOD_RHAT, "ess": GOOD_ESS} if progress.is_markov and stage.until_good else None,
                "figures": progress.figures,
                "preview": self.preview() if warming else [],
                **self._portrait,
            }
        )

    def write(self, content: dict[str, Any]) -> None:
        """Replace the file; unlike a run's own files it is not synced to disk."""
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.part")
        try:
            temporary.write_text(json.dumps(plain(content)))
            os.replace(temporary, self.path)
        except OSError:  # a full disk is reported by the run itself
            temporary.unlink(missing_ok=True)
