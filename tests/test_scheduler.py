"""Blocks can run anywhere: programs and requests are pickled, and another scheduler gives the same draws."""

import subprocess
import sys

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp
from bpinn import engine
from bpinn.engine.advance import Program, Request
from bpinn.engine.scheduler import Scheduler


def rich_problem():
    """What is hard to send: functions defined here, lambdas, an activation, measurements, likelihoods."""
    gain = 2.0

    def law(u, u_xx, k):
        return u_xx + gain * k * jnp.sin(u)

    x = np.linspace(0.0, 1.0, 6)
    return bp.Problem(
        domain={"x": (0.0, 1.0)},
        fields={"u": bp.MLP(hidden=(4,), activation=lambda a: jnp.tanh(a)), "v": bp.KarhunenLoeve(bp.Matern52(0.3), 3)},
        unknowns={"k": dist.Normal(0.0, 1.0), "c": dist.Dirichlet(jnp.ones(3))},
        sensors={
            "law": bp.Sensors(law, {"x": x}, 0.0, 0.1),
            "u": bp.Sensors("u", {"x": x}, x, dist.HalfNormal(0.3), likelihood=bp.likelihoods.StudentT(dof=3.0)),
            "wide": bp.Sensors(bp.Average("v", over={"x": (0.8 * x, 0.8 * x + 0.1)}), values=x, noise=0.2),
            "ring": bp.Sensors(bp.Periodic("u", along="x"), values=0.0, noise=0.5),
        },
    )  # fmt: skip


METHODS = {
    "hmc": bp.HMC(num_warmup=30, num_draws=12, num_leapfrog=3),
    "smc": bp.SMC(particles=20, num_moves=1, num_leapfrog=3, most_chains=1),
    "vi": bp.VI(num_steps=200, num_draws=10, init_steps=100),
    "flow": bp.Flow(layers=2, hidden=(8,), num_steps=40, num_draws=10, init="small"),
    "last-layer": bp.LastLayer(num_steps=200, num_draws=10),
    "laplace": bp.Laplace(num_steps=3, init_steps=100, num_draws=10),
    "ensemble": bp.Ensemble(members=3, num_steps=3),
    "svgd": bp.SVGD(particles=4, num_steps=20, init_steps=50),
    "ensemble-kalman": bp.EnsembleKalman(members=20, most_steps=5),
    "sghmc": bp.SGHMC(batch=7, steps=3, num_warmup=5, num_draws=10, init_steps=50),
}


class Elsewhere(Scheduler):
    """Every block goes through pickle, both ways, in another order than it was submitted: what a cluster does."""

    def __init__(self, blocks=1):
        self.waiting, self.programs, self.blocks, self.counts = [], {}, blocks, []

    def at_once(self, seconds, left):
        return self.blocks

    def submit(self, program, request, deliver):
        self.counts.append(request.count)
        self.waiting.append((cloudpickle.dumps((program, _host(request))), deliver, request.chain))

    def wait(self):
        sent, deliver, chain = self.waiting.pop()
        program, request = cloudpickle.loads(sent)
        key = (program.number, program.seed)
        program = self.programs.setdefault(key, program)  # as a worker would keep it
        deliver(cloudpickle.loads(cloudpickle.dumps(_host(program.advance(request)))))
        return [chain]

    @property
    def is_busy(self):
        return bool(self.waiting)

    def prepare(self, program, request):
        return None

    def close(self):
        pass


def _host(tree):
    """States as NumPy arrays, as they would be sent."""
    return type(tree)(**{f: jax.tree.map(np.asarray, getattr(tree, f)) if f in ("state", "position", "record")
                         else getattr(tree, f) for f in tree.__dataclass_fields__})  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "hmc" else pytest.mark.slow) for n in METHODS])
def test_blocks_run_elsewhere_give_the_same_draws(name, blocks_of):
    blocks_of(7)
    posterior, method = bp.Posterior(rich_problem()), METHODS[name]
    here = engine.run(posterior, method, seed=4, chains=2)
    there = engine.run(posterior, method, seed=4, chains=2, scheduler=Elsewhere())
    np.testing.assert_array_equal(there.z, here.z)
    np.testing.assert_array_equal(there.functionals, here.functionals)
    assert list(there.stats) == list(here.stats)
    assert list(there.history) == list(here.history)


def test_requests_of_several_blocks_give_the_same_draws(blocks_of):
    """Also where warm-up or the run ends within the blocks that are asked for."""
    blocks_of(4)
    posterior, method = bp.Posterior(rich_problem()), METHODS["hmc"]
    here = engine.run(posterior, method, seed=4, chains=2)
    scheduler = Elsewhere(blocks=3)
    there = engine.run(posterior, method, seed=4, chains=2, scheduler=scheduler)
    assert max(scheduler.counts) == 12
    np.testing.assert_array_equal(there.z, here.z)
    np.testing.assert_array_equal(there.functionals, here.functionals)
    for name in here.stats:
        np.testing.assert_array_equal(there.stats[name], here.stats[name])


def test_another_process_rebuilds_a_program(tmp_path):
    """In a process that knows nothing of this one; the block is the same bit for bit."""
    program = Program(bp.Posterior(rich_problem()), METHODS["hmc"], 0, seed=1)
    request = Request(1, 0, None, None, 0, 5)
    (tmp_path / "sent").write_bytes(cloudpickle.dumps((program, request)))
    code = (
        "import sys, cloudpickle, jax, numpy as np\n"
        f"jax.config.update('jax_disable_most_optimizations', {jax.config.read('jax_disable_most_optimizations')})\n"
        "program, request = cloudpickle.loads(open(sys.argv[1], 'rb').read())\n"
        "block = program.advance(request)\n"
        "np.savez(sys.argv[2], f=block.record.functionals, d=block.record.stats['log_density'])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "sent"), str(tmp_path / "block.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    here = program.advance(request).record
    with np.load(tmp_path / "block.npz") as there:
        np.testing.assert_array_equal(there["f"], here.functionals)
        np.testing.assert_array_equal(there["d"], here.stats["log_density"])


def test_precision_travels_with_a_program():
    with jax.enable_x64(True):
        program = Program(bp.Posterior(rich_problem()), METHODS["hmc"], 0, seed=1)
        sent = cloudpickle.dumps(program)
    block = cloudpickle.loads(sent).advance(Request(0, 0, None, None, 0, 2))
    assert block.record.functionals.dtype == np.float64
