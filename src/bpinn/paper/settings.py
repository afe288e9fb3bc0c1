"""Settings of each method by preset.

The paper runs one chain and does not say how it is initialised. We run four, because a single chain cannot show whether
it has converged, and initialise them by annealing.
"""

from collections.abc import Callable, Mapping

from bpinn.methods import HMC, PINN, VI, Dropout, Flow, Method

Settings = Mapping[str, Mapping[str, Method | Callable[[float], Method]]]  # by method and preset, maybe of the noise


def dropout(rate: float, quick: int, draws: int, full: int) -> Mapping[str, Method]:
    """``quick`` and ``full`` are numbers of training steps."""
    return {
        "tiny": Dropout(rate=rate, num_steps=20, num_draws=12, last=10, chains=1),
        "quick": Dropout.paper(rate, num_steps=quick, num_draws=draws, last=draws, chains=1),
        "paper": Dropout.paper(rate, num_steps=full, chains=1),
    }


def flow(euler_steps: int) -> Mapping[str, Method]:
    """The paper trains for 100,000 steps, about a day; we train for 3,000 in the "paper" preset."""
    return {
        "tiny": Flow(num_steps=10, num_draws=12, chains=1, coordinates="plain"),
        "quick": Flow(chains=1, coordinates="plain"),
        "paper": Flow.paper(steps=euler_steps, num_steps=3000, chains=1),
    }


_HMC: Mapping[str, Method] = {
    "tiny": HMC(num_warmup=30, num_draws=12, num_leapfrog=3, chains=2),
    "quick": HMC(),
    "paper": HMC.paper(chains=4, init="anneal"),
}
_VI: Mapping[str, Method] = {
    "tiny": VI(num_steps=20, num_draws=12, chains=1, coordinates="plain"),
    "quick": VI.paper(num_steps=20_000, num_draws=2000, chains=1),
    "paper": VI.paper(chains=1),
}
_PINN: Mapping[str, Method] = {
    "tiny": PINN(num_steps=20, chains=1),
    "quick": PINN.paper(num_steps=20_000, chains=1),
    "paper": PINN.paper(chains=1),
}
ONE_DIMENSION: Settings = {
    "HMC": _HMC,
    "KL-HMC": _HMC,
    "VI": _VI,
    "PINN": _PINN,
    "KL-DNF": flow(10),
    "dropout 1%": dropout(0.01, 20_000, 2000, 200_000),
    "dropout 5%": dropout(0.05, 20_000, 2000, 200_000),
    "dropout 20%": dropout(0.2, 20_000, 2000, 200_000),
}
FORWARD_FLOW: Settings = {**ONE_DIMENSION, "KL-DNF": flow(50)}


def hmc_in_two_dimensions(noise: float) -> HMC:
    """At the smaller noise trajectories have thousands of steps, and more draws would take hours."""
    return HMC(most_draws=600 if noise > 0.05 else 150)


TWO_DIMENSIONS: Settings = {
    "HMC": {**_HMC, "quick": HMC(num_leapfrog=150, num_warmup=300, num_draws=100), "paper": hmc_in_two_dimensions},
    "VI": {
        **_VI,
        "quick": VI.paper(num_steps=5000, num_draws=1000, chains=1),
        "paper": VI.paper(num_steps=20_000, chains=1),
    },
    "dropout 1%": dropout(0.01, 10_000, 1000, 40_000),
    "dropout 5%": dropout(0.05, 10_000, 1000, 40_000),
}
TOLD_IN_TWO = {
    "quick": ("300 + 100 transitions of 150 steps by HMC, 5,000 training steps by VI, 10,000 by dropout",),
    "paper": (
        "HMC finds its trajectories, and draws until it is good, or has 600 of each chain (150 at noise 0.01)",
        "20,000 training steps by VI, 40,000 by dropout",
    ),
}
