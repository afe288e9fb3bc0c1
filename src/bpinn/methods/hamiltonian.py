"""The stage of warm-up and draws that HMC and NUTS share, on blackjax's kernels and adaptation."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.mcmc import hmc
from jax import Array

from bpinn import convergence
from bpinn.methods.base import Method, Record, Review, Stage, check_choice, check_count, check_number
from bpinn.methods.pinn import first_fit
from bpinn.methods.start import draw_start, prior_units, start_at
from bpinn.posterior import Model

MASSES = ("identity", "diagonal")
STARTS = ("anneal", "map", "prior")
ANNEALED = 0.6  # of warm-up, when the start is annealed; the rest finds the step size
FEWEST = 20  # positions from which variances are estimated
MEMORY = 30  # steps over which dual averaging looks back while the noise is annealed
PILOTS, FEWEST_IN_PILOT = 3, 20  # the end of warm-up, in so many parts after each of which the length is set anew
FIRST_LENGTH, SHORTEST, LONGEST = 200, 25, 16000  # leapfrog steps, where their number is not given
MOST_GROWN, MOST_SHRUNK = 4.0, 0.5
FAR_TOO_SHORT = 1.5  # by which factor trajectories must be too short, for their length to be changed after the pilots
LEAST_DRAWS, ROUND = 200, 50  # where the number of draws is not given
# After so many draws, trajectories that are still far too short are lengthened, and steps are shortened where more than
# this share of them diverge.
LONG_ROUND, TOO_MANY_DIVERGE, FEWEST_DIVERGE, SHORTENED = 200, 0.005, 3, 0.75
MENDED = 1.25  # times as many gradients a draw as at first, which no jitter makes of them
# Where the length of warm-up is not given: it goes on in rounds until step sizes no longer shrink, on average over
# chains or much in any.
LEAST_WARMUP, WARMUP_ROUND, MOST_WARMUP = 300, 50, 600
SHRINKING, SHRINKING_ANY = 0.05, 0.2
# A chain is lost whose log density, when the likelihood has its full strength, is below another's by this much, and by
# this much a parameter: what it holds is then so improbable that no volume makes up for it.
LOST, LOST_A_PARAMETER = 100.0, 2.0


class _State(NamedTuple):
    hmc: hmc.HMCState
    step_size: Any
    mass: Any
    weight: Array  # of the log likelihood, below one while the noise is annealed
    first_weight: Array
    length: Array  # leapfrog steps of a trajectory


class _News(NamedTuple):
    """What chains are told: how many times longer their trajectories are to be, the longest step to take, and by which
    factor to shorten their own."""

    longer: float
    step_size: float | None
    shorter: float = 1.0


@dataclass(frozen=True)
class Hamiltonian(Stage):
    """Warm-up and draws of HMC or NUTS; one compiled step serves both, adaptation being masked."""

    name: ClassVar[str] = "draws"
    most_restarts: ClassVar[int] = 3
    settings: "Sampler"

    def _adapters(self) -> tuple[Any, Any]:
        return (
            dual_averaging_adaptation(self.settings.target_accept),
            mass_matrix_adaptation(is_diagonal_matrix=True),
        )

    def init(self, model: Model, data: Any, key: Array, previous: Array | None) -> _State:
        centre, scale = prior_units(model)
        if previous is None:
            begin = draw_start(model, data, key, 1.0)
        else:
            begin = start_at(model, data, centre + scale * previous[0])
        (init_step_size, *_), (init_mass, *_) = self._adapters()
        # Unit mass in units of the prior's scale; literally the identity for the paper's priors.
        mass = init_mass(model.dim)._replace(inverse_mass_matrix=scale**2)
        start = jax.tree.map(
            lambda a: jnp.asarray(a, dtype=jnp.int32 if isinstance(a, int) else float),
            init_step_size(self.settings.step_size),
        )
        weight = jnp.ones((), begin.z.dtype)
        if self.settings.init == "anneal":
            # So much that the likelihood starts about as strong as the prior of all parameters together.
            # The constants of the noise are left out, so that it does not depend on units.
            misfit = model.saturated_log_likelihood(data) - begin.log_likelihood
            weight = jnp.nan_to_num(model.dim / (model.dim + jnp.maximum(misfit, 0.0)), nan=1e-12)
            weight = jnp.clip(weight, 1e-12, 1.0)
        prior, slope = jax.value_and_grad(model.log_prior)(begin.z)
        state = hmc.HMCState(begin.z, prior + weight * begin.log_likelihood, slope + weight * begin.gradient)
        return _State(state, start, mass, weight, weight, jnp.int32(self.settings.first_length))

    @staticmethod
    def _log_density(model: Model, data: Any, weight: Array) -> Callable[[Array], Array]:
        return lambda z: model.log_prior(z) + weight * model.log_likelihood(z, data)

    def step(self, model: Model, data: Any, state: _State, key: Array, step: Array) -> tuple[_State, Record]:
        thin = self.settings.thin
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
        functionals = model.functionals(state.hmc.position, data)
        return state, Record(state.hmc.position, functionals, info | {"log_density": state.hmc.logdensity})

    def _transition(
        self, model: Model, data: Any, state: _State, key: Array, step: Array
    ) -> tuple[_State, dict[str, Array]]:
        (_, update_step_size, _), _ = self._adapters()
        warming = step < self.num_warmup
        if self.settings.init == "anneal":
            state = self._anneal(model, state, step)
        log_step_size = jnp.where(warming, state.step_size.log_step_size, state.step_size.log_step_size_avg)
        step_size = jnp.exp(log_step_size)
        log_density = self._log_density(model, data, state.weight)
        mass = state.mass.inverse_mass_matrix
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

    # --- what is decided between blocks, from all chains together ---

    @property
    def until_good(self) -> bool:
        return self.settings.num_draws is None

    @property
    def until_warm(self) -> bool:
        return self.settings.num_warmup is None

    @property
    def _tuning(self) -> int:
        """Steps in which the likelihood is annealed and the length found: all of warm-up, where that is given."""
        return LEAST_WARMUP if self.until_warm else self.num_warmup

    def _pilot(self) -> int:
        """Steps in each of the pilots that tuning ends with; none if they would be too few to say anything."""
        begin = self._last_annealed if self.settings.init == "anneal" else self._tuning // 2
        size = (self._tuning - begin) // PILOTS
        return size if self.settings.finds_length and size >= FEWEST_IN_PILOT else 0

    @property
    def _first_look(self) -> int:
        """Where chains that lost their way are found: when the likelihood has its full strength."""
        full = self._last_annealed + 1
        return max(self._tuning - PILOTS * self._pilot(), full) if self._pilot() else full

    def pause_after(self, done: int) -> int:
        pilot, tuning = self._pilot(), self._tuning
        if self.settings.init == "anneal" and done < self._first_look:
            return self._first_look
        if done < tuning and (pilot or self.until_warm):
            pilots_left = min(PILOTS, (tuning - done - 1) // pilot) if pilot else 0
            return tuning - pilots_left * pilot
        if done < self.num_warmup and self.until_warm:
            return min(done + WARMUP_ROUND, self.num_warmup)
        if self.until_good:
            return min(max(done + ROUND, self.num_warmup + LEAST_DRAWS), self.num_steps)
        return self.num_steps

    def review(
        self, done: int, functionals: np.ndarray, stats: dict[str, np.ndarray], equations: np.ndarray, dim: int
    ) -> Review:
        """Which chains are lost; how many times longer trajectories should be; whether warm-up can end; whether there
        are draws enough.
        """
        if done > self.num_warmup:
            return self._review_draws(done - self.num_warmup, functionals, stats, equations)
        if self.settings.init == "anneal" and done == self._first_look:
            return Review(lost=_lost(stats["log_density"][:, -1], dim))
        longer = self._longer(done, functionals, equations)
        warm = done == self.num_warmup or (done > self._tuning and _settled(stats["step_size"]))
        # No steps longer than others': a chain that has not yet been where they must be small would be stuck there.
        limit = _usual(stats["step_size"]) if warm and self.until_warm else None
        return Review(_News(longer, limit), warm)

    def _review_draws(
        self, draws: int, functionals: np.ndarray, stats: dict[str, np.ndarray], equations: np.ndarray
    ) -> Review:
        """Whether there are enough. If after many there are not, trajectories may be too short for slow quantities, or
        steps too long for some part of the posterior, which warm-up was too short to see. Mending that makes no run
        longer: draws end when as many gradients are spent as the most draws would have cost before.
        """
        if convergence.enough(functionals, equations):
            return Review(enough=True)
        if not self.settings.finds_length:
            return Review()
        spent = stats["gradients"].mean(axis=0)
        at_first, now = spent[:LONG_ROUND].mean(), spent[-ROUND:].mean()
        left = (self.num_steps - self.num_warmup) * at_first - spent.sum()
        over = bool(now > MENDED * at_first and left <= 0)
        if over or draws % LONG_ROUND or not np.all(np.isfinite(functionals)):
            return Review(enough=over)
        recent = slice(-LONG_ROUND, None)
        diverged = stats["divergent"][:, recent]
        shorter = SHORTENED if diverged.sum() > max(TOO_MANY_DIVERGE * diverged.size, FEWEST_DIVERGE) else 1.0
        factor = np.sqrt(convergence.shortfall(functionals[:, recent], equations))
        longer = (factor if factor > FAR_TOO_SHORT else 1.0) / shorter
        longer = min(longer, MOST_GROWN * at_first / now, left / (ROUND * now))
        return Review(_News(float(longer), None, shorter) if longer > 1.0 else None)

    def _longer(self, done: int, functionals: np.ndarray, equations: np.ndarray) -> float:
        """How many times longer trajectories should be, from those since the last pause."""
        pilots = PILOTS * self._pilot()
        if not pilots or done <= self._tuning - pilots:
            return 1.0
        # Below the best length a trajectory's effect grows as its square, so this is what would make a draw worth
        # as much as is wanted of it.
        factor = np.clip(np.sqrt(convergence.shortfall(functionals, equations)), MOST_SHRUNK, MOST_GROWN)
        return 1.0 if done > self._tuning and factor < FAR_TOO_SHORT else float(factor)

    def hear(self, state: _State, news: _News) -> _State:
        if news.longer != 1.0:
            length = np.clip(round(int(state.length) * news.longer), SHORTEST, LONGEST)
            state = state._replace(length=jnp.int32(length))
        if news.shorter != 1.0:
            own = state.step_size.log_step_size_avg
            shorter = own + jnp.asarray(np.log(news.shorter), own.dtype)
            state = state._replace(step_size=state.step_size._replace(log_step_size_avg=shorter))
        if news.step_size is not None:
            own = state.step_size.log_step_size_avg
            smaller = jnp.minimum(own, jnp.asarray(np.log(news.step_size), own.dtype))
            state = state._replace(step_size=state.step_size._replace(log_step_size_avg=smaller))
        return state

    @property
    def _last_annealed(self) -> int:
        """The warm-up step at which the likelihood reaches its full weight."""
        return max(int(ANNEALED * self._tuning), 1)

    def _anneal(self, model: Model, state: _State, step: Array) -> _State:
        """Strengthen the likelihood a little, geometrically, from its first weight to one."""
        last = self._last_annealed
        weight = state.first_weight ** jnp.clip(1.0 - step / last, 0.0, 1.0)
        prior, slope = jax.value_and_grad(model.log_prior)(state.hmc.position)
        ratio = jnp.where(step <= last, weight / state.weight, 1.0)
        rescaled = hmc.HMCState(
            state.hmc.position,
            prior + ratio * (state.hmc.logdensity - prior),
            slope + ratio * (state.hmc.logdensity_grad - slope),
        )
        chosen = jax.tree.map(lambda new, old: jnp.where(ratio == 1.0, old, new), rescaled, state.hmc)
        # While the target moves the step size must follow it; then its average starts anew.
        s = state.step_size
        follow = s._replace(step=jnp.minimum(s.step, MEMORY))
        anew = s._replace(
            step=jnp.ones_like(s.step),
            avg_error=jnp.zeros_like(s.avg_error),
            log_step_size_avg=s.log_step_size,
            mu=s.log_step_size,
        )
        followed = jax.tree.map(lambda a, b: jnp.where(step < last, a, b), follow, s)
        step_size = jax.tree.map(lambda a, b: jnp.where(step == last, a, b), anew, followed)
        return state._replace(hmc=chosen, step_size=step_size, weight=weight)

    def _adapt_mass(self, state: _State, step: Array) -> _State:
        """Stan's windows: variances are collected in growing windows, the step size starts anew after each."""
        (restart_step_size, _, final_step_size), (_, update_mass, final_mass) = self._adapters()
        with jax.ensure_compile_time_eval():
            schedule = np.asarray(build_schedule(self._tuning)).astype(int)
        collecting, closing = (jnp.asarray(schedule[:, i], bool) for i in (0, 1))
        warming = step < self._tuning
        at = jnp.minimum(step, self._tuning - 1)
        # While the likelihood is still being strengthened, variances are not yet the posterior's.
        settled = warming & (step >= (self._last_annealed if self.settings.init == "anneal" else 0))
        collect, close = settled & collecting[at], settled & closing[at]

        def choose(flag: Array, new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)

        mass = choose(collect, update_mass(state.mass, state.hmc.position), state.mass)
        close &= mass.wc_state.sample_size >= FEWEST
        step_size = choose(close, restart_step_size(final_step_size(state.step_size)), state.step_size)
        return state._replace(step_size=step_size, mass=choose(close, final_mass(mass), mass))

    def position(self, state: _State) -> Array:
        return state.hmc.position


def _lost(log_densities: np.ndarray, dim: int) -> tuple[int, ...]:
    """The chains whose log density is hopelessly far below the best, or is not a number."""
    known = np.where(np.isfinite(log_densities), log_densities, -np.inf)
    below = known < known.max() - max(LOST, LOST_A_PARAMETER * dim)
    return tuple(int(i) for i in np.flatnonzero(below))


def _usual(step_sizes: np.ndarray) -> float:
    """The geometric mean over all chains in the second half of a round, (chains, steps)."""
    return float(np.exp(_logs(step_sizes)[:, step_sizes.shape[1] // 2 :].mean()))


def _logs(step_sizes: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(step_sizes, np.finfo(float).tiny))


def _settled(step_sizes: np.ndarray) -> bool:
    """Whether the step sizes of a round of warm-up, (chains, steps), have stopped shrinking.

    Chains that are still on their way into stiffer parts of the posterior need ever smaller steps.
    """
    logs = _logs(step_sizes)
    half = logs.shape[1] // 2
    grown = logs[:, half:].mean(axis=1) - logs[:, :half].mean(axis=1)
    return bool(grown.mean() > -SHRINKING and grown.min() > -SHRINKING_ANY)


@dataclass(frozen=True, kw_only=True)
class Sampler(Method):
    """What HMC and NUTS share."""

    fewer: ClassVar[str] = "thin= or keep="

    step_size: float = 0.1
    target_accept: float = 0.8
    mass: str = "identity"
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
        """Whether the length of trajectories is found in warm-up."""
        return False

    @property
    def first_length(self) -> int:
        """Leapfrog steps of the first trajectory, for a method that goes by them."""
        return 0

    @abstractmethod
    def move(
        self, key: Array, state: hmc.HMCState, log_density: Any, step_size: Array, mass: Array, length: Array
    ) -> Any:
        """One transition: the next state and blackjax's information about it."""

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
        if self.keep is not None:
            check_count(name, "keep", self.keep, 4)

    @property
    def kept(self) -> int | None:
        return self.keep

    def stages(self) -> tuple[Stage, ...]:
        most = self.most_draws if self.num_draws is None else self.num_draws
        warmup = MOST_WARMUP if self.num_warmup is None else self.num_warmup
        draws = Hamiltonian(warmup + most, warmup, self)
        return (first_fit(self.init_steps, "posterior"), draws) if self.init == "map" else (draws,)
