"""Advice on models, with what is most often wrong first."""

CULPRITS = (
    "check units and boundary data, then the equations (a missing term, a wrong coefficient), then the field's prior "
    "(length, width, terms); a larger noise would only hide the problem"
)
PRIOR = (
    "a field that infers its scales: bp.GaussianProcess(), or bp.MLP(weight_sd=dist.HalfNormal(2.0)); a shorter "
    "length, more terms"
)
UNEVEN = "a noise for each reading, or groups of sensors with a noise each; LogNormal for relative errors"
SWALLOWED = "state the noise of the readings, or give it a narrower prior: the chains may be on a flat solution"
SMALLER = "a smaller noise: with the stated noise, error bars are wider than necessary"
DENSER = "more points for the equation"
EXPANSION = (
    "a Karhunen-Loève expansion, bp.KarhunenLoeve(bp.SquaredExponential(length=...), terms=120) with a length of about "
    "a quarter of the domain"
)
