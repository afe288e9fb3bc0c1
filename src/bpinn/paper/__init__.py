"""The problems of the B-PINNs paper."""

from bpinn.paper.problems import (
    PaperProblem,
    Truth,
    allen_cahn_2d,
    inverse_reaction_1d,
    inverse_reaction_2d,
    nonlinear_1d,
    poisson_1d,
    regression,
)

__all__ = [
    "PaperProblem",
    "Truth",
    "allen_cahn_2d",
    "inverse_reaction_1d",
    "inverse_reaction_2d",
    "nonlinear_1d",
    "poisson_1d",
    "regression",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
