import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NamedTuple

# What tests themselves compile takes as long as what they test: compile it as `bpinn.compiling` does. Compiling is most
# of their work, and as many tests as cores run at once, so a program is not cut into parts for several cores: that
# would take a seventh more of processor time.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
# Nor has NumPy's linear algebra several threads: on cores that are busy they wait for each other, and the singular
# values of small matrices took up to eighty times their processor time.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import jax
import numpy as np
import pytest
import threadpoolctl

import bpinn as bp
from bpinn.cli import main
from bpinn.cluster import chains
from bpinn.engine import advance, make_room, stage_run

threadpoolctl.threadpool_limits(1, "blas")  # a plugin of pytest may have loaded NumPy before this file

# Tracing makes millions of small objects, few of them garbage: with Python's thresholds, looking through them takes
# some 7% of the processor time of tests.
gc.freeze()
gc.set_threshold(50_000, 20, 20)


# Files that take long, the longest first. Workers take them in this order, so that none is left with one at the end.
LONG = (
    "cluster", "cluster_faults", "docs_code", "sampling", "studio", "coordinates", "scheduler", "fit_runs", "site", "neutral",
    "report_page", "exact", "extending", "inferred_sds", "health", "frames", "reference", "notebooks", "conditional",
    "program", "likelihoods", "fits", "doctests", "approximate", "examples", "own_data", "next_sensor", "networks",
    "derivatives", "smc", "chunks", "native", "report", "sufficient", "gallery", "folders", "collapsed", "checkpoint",
    "criticism", "preview", "calibration", "forward", "gaussian_process", "bad_input", "faults", "fields",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def set_block_size(steps, setattr=setattr):
    """Make the engine run blocks of ``steps`` steps, however fast the machine is.

    With more than one step a block, blocks that start before the first one of a stage has ended still have one step:
    the engine measures its speed by it. Blocks also end where warm-up ends and where chains wait for each other.
    """
    if steps == 1:
        setattr(stage_run, "BLOCK_SECONDS", 1e-9)
    else:
        setattr(stage_run, "BLOCK_SECONDS", 1e9)
        setattr(stage_run, "BLOCK_STEPS", steps)
        setattr(advance, "BLOCK_STEPS", steps)
    setattr(chains, "TASK_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _alone():
    """Wait for fits that a test has cancelled: their blocks would run in the hooks and clocks of the next test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "preview":
            thread.join()


MOST_MEMORY = 2.5e9  # bytes of a worker from which on it drops what it has compiled


@pytest.fixture(autouse=True, scope="module")
def _few_mappings():
    """Drop compiled programs once there are many, also of tests that compile without `infer`, which does so itself.

    Nor may a worker grow to six gigabytes, which all programs of all tests would take.
    """
    yield
    make_room()
    if resident_memory() > MOST_MEMORY:
        jax.clear_caches()
        gc.collect()


def resident_memory():
    """Bytes of this process, or zero where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture
def programs_stay(monkeypatch):
    """The engine drops no compiled programs between the runs of a test that counts what is compiled."""
    monkeypatch.setattr("bpinn.engine.make_room", lambda: None)


@pytest.fixture
def blocks_of(monkeypatch):
    """A function that sets the number of steps in a block, from then on."""
    return lambda steps: set_block_size(steps, monkeypatch.setattr)


@pytest.fixture
def one_step_blocks(blocks_of):
    """Every step is a block: progress is reported after every step of a chain, and a run can be stopped at any."""
    blocks_of(1)


@pytest.fixture
def before_each_block(monkeypatch):
    """A context in which ``hook(number, first)`` is called before each block, in the thread that runs the block.

    ``number`` counts the blocks of all chains, from 1: the block without steps that compiles. ``first`` is the block's
    first step.
    """

    @contextlib.contextmanager
    def hooked(hook):
        run_block, numbers = advance._block, itertools.count(1)

        def block(stage, model, data, state, key, first, *args, **kwargs):
            hook(next(numbers), int(first))
            return run_block(stage, model, data, state, key, first, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(advance, "_block", block)
            yield

    return hooked


@pytest.fixture
def calls_in():
    """A function that counts the calls, of Python and of C functions, that another function makes.

    They measure its work as seconds do, but are the same on every machine. More than ``most`` of them are not waited
    for: the test fails there.
    """

    def count(function, most=float("inf")):
        calls, before = 0, sys.getprofile()

        def profile(frame, event, arg):
            nonlocal calls
            calls += event in ("call", "c_call")
            if calls > most:
                raise AssertionError(f"more than {most} calls")

        sys.setprofile(profile)
        try:
            function()
        finally:
            sys.setprofile(before)
        return calls

    return count


@pytest.fixture
def x64():
    """Double precision, for tests of exactness."""
    with jax.enable_x64(True):
        yield


functionals_of = jax.jit(lambda model, z, data: model.functionals(z, data), static_argnames="model")


@pytest.fixture
def prior_result():
    """A result whose draws are the prior's: quick to make, for tests of what is done with a result."""

    def make(problem, draws=4):
        posterior = bp.Posterior(problem)
        z = np.asarray(posterior.sample_prior(jax.random.key(0), draws))[None]
        functionals = np.stack([functionals_of(posterior.model, row, posterior.data) for row in z[0]])[None]
        return bp.Result(problem, bp.HMC(), 0, z, functionals, {"log_density": np.zeros((1, draws))})

    return make


@contextlib.contextmanager
def compiling(quickly):
    """Compile without most optimizations, or with them: here, and in processes that are started from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(quickly)))
        before = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", quickly)
        yield
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True, scope="module")
def _quick_compilation(request):
    """Most runs are so short that compiling is nearly all of their time; modules with long ones are ``OPTIMIZED``."""
    with compiling(not getattr(request.module, "OPTIMIZED", False)):
        yield


@pytest.fixture
def optimized():
    """A test whose runs take longer than compiling them with all optimizations, among others that do not."""
    with compiling(False):
        yield


@pytest.fixture(autouse=True, scope="session")
def _compile_once(tmp_path_factory):
    """Keep what is compiled for later tests, and for the processes that tests start: much of it is the same.

    The folder is new for every session, and all its workers share it: its files are checked as they are read.
    """
    base = tmp_path_factory.getbasetemp()
    folder = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled")
    settings = {"compilation_cache_dir": folder, "persistent_cache_min_compile_time_secs": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            jax.config.update(f"jax_{name}", value)
            patch.setenv(f"JAX_{name.upper()}", str(value))
        yield


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard():
    """A shell that starts the tests in the background makes them deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    """The program as called from a shell, in this process, so that nothing is compiled twice."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bpinn", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code or 0, *capsys.readouterr())

    return call
