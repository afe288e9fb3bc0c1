"""The output of a run that is judged: draws of the monitored quantities, and the method's statistics."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


class SamplerStats(dict[str, np.ndarray]):
    """What a method recorded with each draw: arrays (chains, draws) by name.

    The known ones are also attributes, None if a method does not record them. Others, from methods of other packages,
    are found by name as in any dictionary.
    """

    @property
    def log_density(self) -> np.ndarray:
        """Log density of the posterior at each draw, up to the log evidence."""
        return self["log_density"]

    @property
    def sampler_log_density(self) -> np.ndarray:
        """The same in the coordinates that a chain moves in, with the volume of the change of variables."""
        return self.get("sampler_log_density", self.log_density)

    @property
    def misfit(self) -> np.ndarray | None:
        """How badly readings fit at each draw, see `Model.misfit`."""
        return self.get("misfit")

    @property
    def acceptance(self) -> np.ndarray | None:
        """Acceptance probability of each transition."""
        return self.get("acceptance")

    @property
    def divergent(self) -> np.ndarray | None:
        """Whether the trajectory of a transition diverged."""
        return self.get("divergent")

    @property
    def step_size(self) -> np.ndarray | None:
        return self.get("step_size")

    @property
    def gradients(self) -> np.ndarray | None:
        """Gradient evaluations of each transition."""
        return self.get("gradients")

    @property
    def restarts(self) -> np.ndarray | None:
        """How often the chain was restarted during warm-up."""
        return self.get("restarts")

    @property
    def log_q(self) -> np.ndarray | None:
        """Log density of an approximation at its draws."""
        return self.get("log_q")

    @property
    def folded(self) -> np.ndarray | None:
        """Whether a flow is not invertible at a draw."""
        return self.get("folded")

    @property
    def log_evidence(self) -> np.ndarray | None:
        """Log evidence of a population of particles, the same for each particle."""
        return self.get("log_evidence")

    @property
    def ancestor(self) -> np.ndarray | None:
        """The prior draw that a particle descends from."""
        return self.get("ancestor")

    def select(self, choose: Callable[[np.ndarray], np.ndarray]) -> "SamplerStats":
        """Apply a function to every array, such as selecting the rows of some chains."""
        return SamplerStats({name: choose(values) for name, values in self.items()})


@dataclass(frozen=True)
class RunOutput:
    """``functionals`` are (chains, draws, functionals); ``names`` and ``is_secondary`` describe their columns.

    ``history`` holds what was recorded during a fit, (chains, records), and the ``step`` of each record.
    """

    names: tuple[str, ...]
    is_secondary: np.ndarray
    functionals: np.ndarray
    stats: SamplerStats
    history: dict[str, np.ndarray]
