"""Are the error bars correct? Simulation-based calibration, coverage, and scores of predictions.

True values are drawn from the prior, readings are simulated from them, and the posterior of each data set is inferred
as if the data were real. If the posterior is correct, the true value is distributed like a posterior draw: its rank
among the draws is uniform, and a central interval of probability p contains it with probability p. This holds for every
unknown, every field at every point, and the log likelihood (Talts et al. 2018; Modrák et al. 2023).
"""

from bpinn.calibration.ranks import Calibration as Calibration
from bpinn.calibration.ranks import Coverage as Coverage
from bpinn.calibration.ranks import crps as crps
from bpinn.calibration.ranks import interval_score as interval_score
from bpinn.calibration.simulations import sbc as sbc
from bpinn.calibration.simulations import simulate as simulate

__all__ = ["Calibration", "Coverage", "crps", "interval_score", "sbc", "simulate"]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
