"""The method that `infer` takes if it is given none."""

from weakref import WeakKeyDictionary

import numpy as np

from bpinn.engine.advance import Program, suited
from bpinn.methods import HMC, Method
from bpinn.methods.collapsed import Collapsed, why_not_collapsed
from bpinn.posterior import Posterior
from bpinn.problem import Problem

# With which collapsed chains are the default. Of amplitudes of a source with log-normal priors, which readings inform
# little, eight were sampled well, and twelve not with as many draws as there may be.
MOST_SCALARS, MOST_UNKNOWNS = 15, 8
MOST_BENT = 4.0  # see `bpinn.methods.marginal.Mode`

_chosen: WeakKeyDictionary[Problem, Method] = WeakKeyDictionary()


def default_method(problem: Problem) -> Method:
    """What `infer` does if it is given no method.

    Where readings are not linear, how much their solutions are curved decides, which takes some seconds the first time.
    """
    if problem not in _chosen:
        _chosen[problem] = _choice(problem)
    return _chosen[problem]


def _choice(problem: Problem) -> Method:
    scalars, unknowns = (
        sum(int(np.prod(prior.shape())) for prior in priors.values()) for priors in (problem.scalars, problem.unknowns)
    )
    if scalars > MOST_SCALARS or unknowns > MOST_UNKNOWNS or why_not_collapsed(problem):
        return HMC()
    method = Collapsed()
    posterior = suited(Posterior(problem), method)
    if posterior.model.is_affine:
        return method
    state = Program(posterior, method, 0, seed=0).start(0, 0, None)
    return method if float(state.bent) < MOST_BENT and np.isfinite(state.marginal) else HMC()
