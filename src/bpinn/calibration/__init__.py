"""Are the error bars right? Simulation-based calibration, coverage, and scores of predictions.

Truths are drawn from the prior, readings from the truths, and each data set is inferred as if it were real. If the
posterior is right, a truth is like any of its draws: its rank among them is uniform, a central interval of
probability p holds it with probability p, for every unknown, every field at every point, and the log likelihood
(Talts et al. 2018; Modrák et al. 2023).
"""

from bpinn.calibration.ranks import Calibration as Calibration
from bpinn.calibration.ranks import Coverage as Coverage
from bpinn.calibration.ranks import crps as crps
from bpinn.calibration.ranks import interval_score as interval_score
from bpinn.calibration.simulations import sbc as sbc
from bpinn.calibration.simulations import simulate as simulate

__all__ = ["Calibration", "Coverage", "crps", "interval_score", "sbc", "simulate"]
