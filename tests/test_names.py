"""Names resolve to the mathematics they look like."""

import pytest

from bpinn.errors import InputError
from bpinn.measurements import Periodic, terms_of
from bpinn.quantities import Coordinate, Names, Partial, Unknown

UNIT = (0.0, 1.0)


@pytest.fixture
def names():
    return Names({"x": UNIT, "t": UNIT}, {"u": ("x", "t"), "v": ("x", "t"), "k": ("x",)}, ("lam", "c_1"))


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("u", Partial("u", (0, 0))),
        ("u_x", Partial("u", (1, 0))),
        ("u_xx", Partial("u", (2, 0))),
        ("u_xt", Partial("u", (1, 1))),
        ("u_tx", Partial("u", (1, 1))),
        ("u_ttx", Partial("u", (1, 2))),
        ("v_tttt", Partial("v", (0, 4))),
        ("k", Partial("k", (0,))),
        ("k_xx", Partial("k", (2,))),
        ("lam", Unknown("lam")),
        ("c_1", Unknown("c_1")),
        ("t", Coordinate("t")),
    ],
)
def test_resolution(names, name, meaning):
    assert names.resolve(name, "here") == meaning


def test_coordinates_of_several_letters():
    names = Names({"lat": UNIT, "lon": UNIT, "time": UNIT}, {"temp": ("lat", "lon", "time")}, ())
    assert names.resolve("temp_latlon", "here") == Partial("temp", (1, 1, 0))
    assert names.resolve("temp_timetime", "here") == Partial("temp", (0, 0, 2))


def test_field_names_with_underscores():
    names = Names({"x": UNIT}, {"u_in": ("x",), "u": ("x",)}, ())
    assert names.resolve("u_in_x", "here") == Partial("u_in", (1,))


def test_the_same_derivative_read_twice_is_not_ambiguous():
    names = Names({"x": UNIT, "xx": UNIT}, {"u": ("x", "xx")}, ())
    assert names.resolve("u_x", "here") == Partial("u", (1, 0))
    with pytest.raises(InputError, match=r"'u_xx' is ambiguous, it can mean .* or .*; rename"):
        names.resolve("u_xx", "here")
    # xxx can be x+xx or xx+x, the same derivative, but also x+x+x
    with pytest.raises(InputError, match="ambiguous"):
        names.resolve("u_xxx", "here")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("w", r"here: 'w' is not known.*fields u, v, k; derivatives such as u_x.*unknowns lam, c_1; coordinates x, t"),
        ("lamb", r"did you mean 'lam'"),
        ("k_t", r"field 'k' depends on x only, not on t"),
        ("u_", "not known"),
        ("u_xz", "not known"),
    ],
)
def test_unknown_names_say_what_is_known(names, name, words):
    with pytest.raises(InputError, match=words):
        names.resolve(name, "here")


def test_long_suffixes_are_quick():
    names = Names({"x": UNIT, "xx": UNIT}, {"u": ("x", "xx")}, ())
    with pytest.raises(InputError, match="ambiguous"):
        names.resolve("u_" + "x" * 60, "here")


def test_equations_and_their_coordinates(names):
    equation = names.equation(lambda u_x, lam, k: u_x * lam * k, "here")
    assert equation.references == (Partial("u", (1, 0)), Unknown("lam"), Partial("k", (0,)))
    assert names.coordinates_of(equation) == ("x", "t")
    assert names.coordinates_of(names.equation("k", "here")) == ("x",)
    assert names.coordinates_of(names.equation(lambda lam: lam, "here")) == ()


def test_periodic_has_two_terms(names):
    high, low = terms_of(Periodic("u_x", along="x"), names, "here")
    assert (high.sign, high.fixed) == (1.0, (("x", 1.0),))
    assert (low.sign, low.fixed) == (-1.0, (("x", 0.0),))
