"""Likelihoods: the distribution of readings around the model's predictions."""

from typing import Any

from bpinn.errors import InputError
from bpinn.likelihoods.base import Likelihood as Likelihood
from bpinn.likelihoods.base import LocationScale as LocationScale
from bpinn.likelihoods.base import namespace as namespace
from bpinn.likelihoods.base import special as special
from bpinn.likelihoods.censored import Censored as Censored
from bpinn.likelihoods.log_normal import LogNormal as LogNormal
from bpinn.likelihoods.negative_binomial import NegativeBinomial as NegativeBinomial
from bpinn.likelihoods.normal import Normal as Normal
from bpinn.likelihoods.poisson import Poisson as Poisson
from bpinn.likelihoods.student_t import StudentT as StudentT

__all__ = ["Censored", "Likelihood", "LocationScale", "LogNormal", "NegativeBinomial", "Normal", "Poisson", "StudentT"]


def likelihood_of(given: Any, dof: Any, where: str) -> Likelihood:
    """The likelihood given to sensors, as an object or by name; ``dof`` is for "student_t"."""
    if isinstance(given, Likelihood):
        return given
    if isinstance(given, type) and issubclass(given, Likelihood):
        raise InputError(f"{where}: likelihood is a class; give an object, such as bp.likelihoods.{given.__name__}()")
    kind = Likelihood.registry.named(given) if isinstance(given, str) else None
    if kind is None:
        known = ", ".join(repr(name) for name in Likelihood.registry)
        raise InputError(
            f"{where}: likelihood {given!r} is not known; use one of {known}, or an object such as "
            "bp.likelihoods.StudentT(dof=4)"
        )
    try:
        return kind(dof=dof) if kind is StudentT else kind()
    except TypeError:
        raise InputError(
            f"{where}: likelihood {given!r} has parameters; give an object, bp.likelihoods.{kind.__name__}(...)"
        ) from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
