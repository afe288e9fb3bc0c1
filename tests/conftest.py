import signal

import jax
import numpy as np
import pytest

import bpinn as bp


@pytest.fixture
def x64():
    """Double precision, for tests of exactness."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def prior_result():
    """A result whose draws are the prior's: quick to make, for tests of what is done with a result."""

    def make(problem, draws=4):
        posterior = bp.Posterior(problem)
        z = np.asarray(posterior.sample_prior(jax.random.key(0), draws))[None]
        functionals = np.stack([posterior.model.functionals(row, posterior.data) for row in z[0]])[None]
        return bp.Result(problem, bp.HMC(), 0, z, functionals, {"log_density": np.zeros((1, draws))})

    return make


@pytest.fixture(autouse=True, scope="module")
def _quick_compilation(request):
    """Most runs are so short that compiling is nearly all of their time; modules with long ones are ``OPTIMIZED``."""
    quick = not getattr(request.module, "OPTIMIZED", False)
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard():
    """A shell that starts the tests in the background makes them deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
