"""The stage of warm-up and draws that HMC and NUTS share, on blackjax's kernels and adaptation."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.mcmc import hmc
from jax import Array

from bpinn.methods import warmup
from bpinn.methods.base import Method, Record, Stage, check_choice, check_count, check_number
from bpinn.methods.frames import WhitenedMoves
from bpinn.methods.moves import Moves, Phase, PlainMoves
from bpinn.methods.pinn import first_fit
from bpinn.methods.start import draw_start, prior_units, start_at
from bpinn.methods.warmup import Adjustment, HamiltonianPolicy, WarmupSettings
from bpinn.model import Model

MASSES = ("identity", "diagonal")
STARTS = ("anneal", "map", "prior")
LEAD = 0.0  # power of the likelihood's weight for readings of fields, while it is annealed
COORDINATES: dict[str, Moves] = {"whitened": WhitenedMoves(lead=LEAD), "plain": PlainMoves()}


class _State(NamedTuple):
    hmc: hmc.HMCState
    step_size: Any
    mass: Any
    weight: Array  # of the log likelihood, below one during annealing
    first_weight: Array
    length: Array  # leapfrog steps of a trajectory
    frame: Any = ()  # what it knows about its coordinates


@dataclass(frozen=True)
class Hamiltonian(Stage):
    """Warm-up and draws of HMC or NUTS; one compiled step does both, with adaptation masked after warm-up."""

    name: ClassVar[str] = "draws"
    settings: "Sampler"
    adaptation: WarmupSettings

    @property
    def most_restarts(self) -> int:
        return self.adaptation.most_restarts

    def policy(self) -> HamiltonianPolicy:
        s = self.settings
        return HamiltonianPolicy(
            self.adaptation, self.num_warmup, self.num_steps, anneals=s.init == "anneal", finds_length=s.finds_length,
            adapts_warmup=s.num_warmup is None, adapts_draws=s.num_draws is None,
        )  # fmt: skip

    def compiled(self) -> "Hamiltonian":
        """How many draws there are, and which of them are kept, is decided between blocks."""
        usual = {name: getattr(Sampler, name) for name in ("num_draws", "most_draws", "keep", "chains", "init_steps")}
        return replace(self, num_steps=self.num_warmup, settings=replace(self.settings, **usual))

    @property
    def moves(self) -> Moves:
        return COORDINATES[self.settings.coordinates]

    def _adapters(self) -> tuple[Any, Any]:
        return (
            dual_averaging_adaptation(self.settings.target_accept),
            mass_matrix_adaptation(is_diagonal_matrix=True),
        )

    def init(self, model: Model, data: Any, key: Array, previous: Array | None) -> _State:
        model = model.given_coefficients()
        centre, scale = prior_units(model)
        if previous is None:
            anneals = self.settings.init == "anneal"
            begin = draw_start(model, data, key, 1.0, partial(self.moves.first, model, data) if anneals else None)
        else:
            begin = start_at(model, data, centre + scale * previous[0])
        (init_step_size, *_), (init_mass, *_) = self._adapters()
        # Unit mass in units of the prior's scale; literally the identity for the paper's priors.
        mass = init_mass(model.dim)._replace(inverse_mass_matrix=self.moves.units(model) ** 2)
        start = jax.tree.map(
            lambda a: jnp.asarray(a, dtype=jnp.int32 if isinstance(a, int) else float),
            init_step_size(self.settings.step_size),
        )
        weight = jnp.ones((), begin.z.dtype)
        if self.settings.init == "anneal":
            # Choose the weight so that the likelihood starts about as strong as the prior of all parameters together.
            # The constants of the noise are omitted, so that the weight does not depend on units.
            misfit = model.saturated_log_likelihood(data) - begin.log_likelihood
            weight = jnp.nan_to_num(model.dim / (model.dim + jnp.maximum(misfit, 0.0)), nan=1e-12)
            weight = jnp.clip(weight, 1e-12, 1.0)
        frame, state = self.moves.begin(model, data, begin, weight)
        return _State(state, start, mass, weight, weight, jnp.int32(self.settings.first_length), frame)

    def step(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Record]:
        model, thin = model.given_coefficients(), self.settings.thin
        if thin == 1:
            state, info = self._transition(model, data, state, key, step)
        else:
            repeats = jnp.where(step < self.num_warmup, 1, thin)
            state, info = self._transition(model, data, state, jax.random.fold_in(key, 0), step)

            def again(i: Array, carry: tuple[_State, dict[str, Array]]) -> tuple[_State, dict[str, Array]]:
                state, new = self._transition(model, data, carry[0], jax.random.fold_in(key, i), step)
                old = carry[1]
                return state, {
                    "acceptance": old["acceptance"] + (new["acceptance"] - old["acceptance"]) / (i + 1),
                    "divergent": old["divergent"] | new["divergent"],
                    "step_size": new["step_size"],
                    "gradients": old["gradients"] + new["gradients"],
                }

            state, info = jax.lax.fori_loop(1, repeats, again, (state, info))
        z, log_density = self.moves.plain(model, data, state.frame, state.hmc, state.weight)
        stats = info | {"log_density": log_density, "misfit": model.misfit(z, data)}
        if self.settings.coordinates != "plain":
            stats["sampler_log_density"] = state.hmc.logdensity
        return state, Record(z, model.functionals(z, data), stats)

    def _transition(
        self, model: Model, data: Any, state: _State, key: Array, step: Array
    ) -> tuple[_State, dict[str, Array]]:
        (_, update_step_size, _), _ = self._adapters()
        warming = step < self.num_warmup
        weight, step_size = self._annealed(state, step)
        policy = self.policy()
        phase = Phase(weight, state.weight, step, -1, -1)
        if policy.anneals:
            phase = phase._replace(last_annealed=policy.last_annealed, last_held=policy.last_held)
        frame, moved = jax.lax.cond(
            warming,
            lambda: self.moves.renewed(model, data, state.frame, state.hmc, phase),
            lambda: (state.frame, state.hmc),
        )
        state = state._replace(hmc=moved, step_size=step_size, weight=weight, frame=frame)
        log_step_size = jnp.where(warming, state.step_size.log_step_size, state.step_size.log_step_size_avg)
        step_size = jnp.exp(log_step_size)
        log_density = self.moves.log_density(model, data, state.frame, state.weight)
        mass = state.mass.inverse_mass_matrix * self.moves.quickening(model, state.frame) ** 2
        moved, info = self.settings.move(key, state.hmc, log_density, step_size, mass, state.length)
        accepted = jnp.nan_to_num(info.acceptance_rate)
        adapted = update_step_size(state.step_size, accepted)
        adapted = jax.tree.map(lambda new, old: jnp.where(warming, new, old), adapted, state.step_size)
        state = state._replace(hmc=moved, step_size=adapted)
        if self.settings.mass == "diagonal":
            state = self._adapt_mass(state, step)
        return state, {
            "acceptance": accepted,
            "divergent": info.is_divergent,
            "step_size": step_size,
            "gradients": jnp.asarray(info.num_integration_steps),
        }

    def figures(self, latest: Sequence[dict[str, np.ndarray]]) -> list[str]:
        acceptance = np.mean([np.mean(stats["acceptance"]) for stats in latest])
        step_size = np.median([stats["step_size"][-1] for stats in latest])
        return [f"accepted {acceptance:.0%}", f"step {step_size:.1e}"]

    @property
    def until_good(self) -> bool:
        return self.settings.num_draws is None

    @property
    def until_warm(self) -> bool:
        return self.settings.num_warmup is None

    def apply(self, state: _State, adjustment: Adjustment) -> _State:
        if adjustment.length_factor != 1.0:
            length = round(int(state.length) * adjustment.length_factor)
            length = np.clip(length, self.adaptation.shortest, self.adaptation.longest)
            state = state._replace(length=jnp.int32(length))
        own = state.step_size.log_step_size_avg
        if adjustment.step_factor != 1.0:
            own = own + jnp.asarray(np.log(adjustment.step_factor), own.dtype)
        if adjustment.largest_step is not None:
            own = jnp.minimum(own, jnp.asarray(np.log(adjustment.largest_step), own.dtype))
        return state._replace(step_size=state.step_size._replace(log_step_size_avg=own))

    def _annealed(self, state: _State, step: Array) -> tuple[Array, Any]:
        """The weight of the likelihood, which rises geometrically to one, and the step size that follows it."""
        s, last = state.step_size, self.policy().last_annealed
        if self.settings.init != "anneal":
            return state.weight, s
        weight = state.first_weight ** jnp.clip(1.0 - step / last, 0.0, 1.0)
        # While the target changes the step size must follow it; afterwards its average is reset.
        follow = s._replace(step=jnp.minimum(s.step, self.adaptation.step_size_memory))
        reset = s._replace(
            step=jnp.ones_like(s.step),
            avg_error=jnp.zeros_like(s.avg_error),
            log_step_size_avg=s.log_step_size,
            mu=s.log_step_size,
        )
        followed = jax.tree.map(lambda a, b: jnp.where(step < last, a, b), follow, s)
        step_size = jax.tree.map(lambda a, b: jnp.where(step == last, a, b), reset, followed)
        return weight, step_size

    def _adapt_mass(self, state: _State, step: Array) -> _State:
        """Stan's windows: variances are estimated in growing windows, and the step size restarts after each."""
        (restart_step_size, _, final_step_size), (_, update_mass, final_mass) = self._adapters()
        policy = self.policy()
        with jax.ensure_compile_time_eval():
            schedule = np.asarray(build_schedule(policy.tuning)).astype(int)
        collecting, closing = (jnp.asarray(schedule[:, i], bool) for i in (0, 1))
        warming = step < policy.tuning
        at = jnp.minimum(step, policy.tuning - 1)
        # While the likelihood is still being annealed, variances are not yet the posterior's.
        settled = warming & (step >= (policy.last_annealed if policy.anneals else 0))
        collect, close = settled & collecting[at], settled & closing[at]

        def choose(flag: Array, new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)

        mass = choose(collect, update_mass(state.mass, state.hmc.position), state.mass)
        close &= mass.wc_state.sample_size >= self.adaptation.fewest_for_variances
        step_size = choose(close, restart_step_size(final_step_size(state.step_size)), state.step_size)
        return state._replace(step_size=step_size, mass=choose(close, final_mass(mass), mass))

    def position(self, state: _State) -> Array:
        return state.hmc.position


@dataclass(frozen=True, kw_only=True)
class Sampler(Method):
    """Settings and stages that HMC and NUTS share."""

    fewer: ClassVar[str] = "thin= or keep="
    takes_statistics: ClassVar[bool] = True
    before: ClassVar[dict[str, Any]] = {"coordinates": "plain"}

    step_size: float = 0.1
    target_accept: float = 0.8
    mass: str = "identity"
    coordinates: str = "whitened"
    init: str = "anneal"
    init_steps: int = 3000
    thin: int = 1
    keep: int | None = None
    chains: int = 4
    num_warmup: int | None = None
    num_draws: int | None = None
    most_draws: int = 2000

    @property
    def finds_length(self) -> bool:
        """Whether the trajectory length is tuned during warm-up."""
        return False

    @property
    def first_length(self) -> int:
        """Leapfrog steps of the first trajectory, for a method with a trajectory length."""
        return 0

    @abstractmethod
    def move(
        self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array, length: Array
    ) -> Any:
        """One transition: the next state and blackjax's info about it."""

    def _check(self) -> None:
        name = type(self).__name__
        if self.num_warmup is not None:
            check_count(name, "num_warmup", self.num_warmup, 20)
        if self.num_draws is not None:
            check_count(name, "num_draws", self.num_draws, 4)
        check_count(name, "most_draws", self.most_draws, 4)
        check_count(name, "thin", self.thin)
        check_count(name, "chains", self.chains)
        check_count(name, "init_steps", self.init_steps)
        check_number(name, "step_size", self.step_size, 0.0, np.inf)
        check_number(name, "target_accept", self.target_accept, 0.0, 1.0)
        check_choice(name, "mass", self.mass, MASSES)
        check_choice(name, "init", self.init, STARTS)
        check_choice(name, "coordinates", self.coordinates, tuple(COORDINATES))
        if self.keep is not None:
            check_count(name, "keep", self.keep, 4)

    @property
    def kept(self) -> int | None:
        return self.keep

    def stages(self) -> tuple[Stage, ...]:
        most = self.most_draws if self.num_draws is None else self.num_draws
        adaptation = warmup.SETTINGS[self.coordinates]
        steps = adaptation.most_warmup if self.num_warmup is None else self.num_warmup
        draws = Hamiltonian(steps + most, steps, self, adaptation)
        return (first_fit(self.init_steps, "posterior"), draws) if self.init == "map" else (draws,)
