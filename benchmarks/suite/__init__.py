"""Problems that are not the paper's, each with noisy readings, exact physics and an independent truth.

    from benchmarks.suite import SUITE
    case = SUITE["pendulum"](seed=0)  # case.problem, case.truth_fields, case.truth_unknowns

The seed changes the noise of the readings and nothing else.
"""

from collections.abc import Callable

from benchmarks.suite.case import Case
from benchmarks.suite.odes import beam, fitzhugh_nagumo, lorenz, michaelis_menten, pendulum, seir
from benchmarks.suite.space import darcy_flow, helmholtz, kovasznay, poisson_4d
from benchmarks.suite.space_time import advection_diffusion, fisher_kpp, heat_source, wave

SUITE: dict[str, Callable[..., Case]] = {
    make.__name__: make
    for make in (
        pendulum, fitzhugh_nagumo, seir, lorenz, michaelis_menten, beam,
        advection_diffusion, wave, fisher_kpp, heat_source,
        darcy_flow, helmholtz, kovasznay, poisson_4d,
    )
}  # fmt: skip

__all__ = ["SUITE", "Case", *SUITE]
