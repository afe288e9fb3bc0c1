"""Whether an equation is linear in its fields, by the operations that it is made of.

Numbers would show it only where they are tried: r N (1 - N / K) looks linear for N of order one if K is a million.
"""

from collections.abc import Mapping, Sequence

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.numpy import floating, issubdtype

from bpinn.errors import InputError
from bpinn.quantities import Equation, Partial, trace_equation

_LINEAR = {"add", "add_any", "sub", "neg", "copy"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


def is_affine(equation: Equation, count: int, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether an equation at ``count`` points is linear in its fields, up to a constant, given everything else.

    ``shapes`` are those of the unknowns. What cannot be told is not linear.
    """
    try:
        traced = trace_equation(equation, count, shapes, "sensors")
    except InputError:  # it holds arrays with one entry per reading
        return False
    return _affine(traced.jaxpr, [isinstance(r, Partial) for r in equation.references]) is not None


def _affine(jaxpr: Jaxpr, moving: Sequence[bool]) -> list[bool] | None:
    """Which results depend on arguments that move; None if one may do so in another way than linearly, by element."""
    known = {var for var, moves in zip(jaxpr.invars, moving, strict=True) if moves}
    for equation in jaxpr.eqns:
        moves = [not isinstance(var, Literal) and var in known for var in equation.invars]
        if not any(moves):
            continue
        name = equation.primitive.name
        if name in _CALLS:
            inner = _inner(equation.params)
            found = _affine(inner, moves) if inner is not None and len(inner.invars) == len(moves) else None
            if found is None:
                return None
            known |= {var for var, own in zip(equation.outvars, found, strict=True) if own}
            continue
        product = name == "mul" and sum(moves) == 1
        quotient = name == "div" and not moves[1]
        choice = name == "select_n" and not moves[0]
        same = name == "convert_element_type" and issubdtype(equation.params["new_dtype"], floating)
        if not (name in _LINEAR or product or quotient or choice or same):
            return None
        known |= set(equation.outvars)
    return [not isinstance(var, Literal) and var in known for var in jaxpr.outvars]


def _inner(params: Mapping[str, object]) -> Jaxpr | None:
    """What a call of another function does."""
    for name in ("jaxpr", "call_jaxpr"):
        inner = params.get(name)
        if isinstance(inner, ClosedJaxpr):
            return inner.jaxpr
    return None
