"""Problems that are not the paper's, each with noisy readings, exact physics and an independent truth.

    from benchmarks.suite import SUITE
    case = SUITE["pendulum"](seed=0)  # case.problem, case.truth_fields, case.truth_unknowns

The seed changes the noise of the readings and nothing else.
"""

from benchmarks.suite.case import Case
from benchmarks.suite.odes import beam, fitzhugh_nagumo, lorenz, michaelis_menten, pendulum, seir

SUITE = {f.__name__: f for f in (pendulum, fitzhugh_nagumo, seir, lorenz, michaelis_menten, beam)}

__all__ = ["SUITE", "Case", *SUITE]
