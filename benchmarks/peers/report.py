"""Shared by all peer scripts, and not user code: arguments, clocks, and one line of JSON at the end.

Lines of a script that mention ``report`` are not counted as user code.
"""

import argparse
import json
import os
import resource
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

SHAPES = {"w1": (1, 50), "b1": (50,), "w2": (50, 50), "b2": (50,), "w3": (50, 1), "b3": (1,), "k": ()}


def since_process_start() -> float:
    """Seconds, including the start of Python itself (Linux; to a hundredth)."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def unflatten(z: np.ndarray) -> dict[str, np.ndarray]:
    """Weights, biases and k of one flat vector, in bpinn's order."""
    ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])
    parts = np.split(z, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}


class Report:
    def __init__(self, *variants: str):
        self._offset = since_process_start() - time.perf_counter()
        parser = argparse.ArgumentParser()
        parser.add_argument("--data", required=True)
        parser.add_argument("--out", required=True, help="draws of k and u go here")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--chains", type=int, default=1, help="one after another in this process")
        parser.add_argument("--warmup", type=int, default=1000)
        parser.add_argument("--draws", type=int, default=2000)
        parser.add_argument("--start", choices=("prior", "posterior"), default="prior")
        if variants:
            parser.add_argument("--variant", choices=variants, required=True)
        self.given = parser.parse_args()
        with np.load(self.given.data) as file:
            self.data = SimpleNamespace(**{name: file[name] for name in file.files})
        self.seconds = {"compile": 0.0, "warmup": 0.0, "sampling": 0.0}
        self._phase, self._began = "", 0.0
        self._compiled = 0.0

    def start(self) -> dict[str, np.ndarray] | None:
        """Where to start: a draw from the posterior, different for each seed; None for a draw from the prior."""
        starts = self.data.starts
        return unflatten(starts[self.given.seed % len(starts)]) if self.given.start == "posterior" else None

    def watch_jax(self) -> None:
        """Subtract the time that JAX reports for compiling from the phase in which it happens."""
        import jax

        def listen(event: str, seconds: float, **_) -> None:
            if event.endswith(("backend_compile_duration", "jaxpr_to_mlir_module_duration")):
                self._compiled += seconds

        jax.monitoring.register_event_duration_secs_listener(listen)

    def phase(self, name: str) -> None:
        """From now on, count time as "compile", "warmup" or "sampling"; "" ends the last phase."""
        now = time.perf_counter()
        if self._phase:
            self.seconds[self._phase] += now - self._began - self._compiled
            self.seconds["compile"] += self._compiled
        self._phase, self._began, self._compiled = name, now, 0.0

    def done(self, k, u=None, gradients=None, log_density=None, **notes) -> None:
        """``k`` is (chains, draws), ``u`` (chains, draws, 11); ``log_density`` takes the parts of `unflatten`."""
        self.phase("")
        total = time.perf_counter() + self._offset
        k = np.asarray(k, float)
        if u is not None:
            np.savez(self.given.out, watched=np.concatenate([k[..., None], np.asarray(u, float)], axis=-1))
        found = None
        if log_density is not None:
            found = [float(log_density(**unflatten(z))) for z in self.data.z]
        line = {
            "seconds": total,
            "phases": self.seconds,
            "gradients": {name: float(count) for name, count in (gradients or {}).items()},
            "log_density": found,
            "k_mean": float(k.mean()),
            "k_sd": float(k.std()) if k.size > 1 else None,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            **notes,
        }
        print(json.dumps(line), flush=True)
