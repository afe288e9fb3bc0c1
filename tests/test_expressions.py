"""Formula strings: the value is Python's, the printed forms say the same, and nothing but arithmetic gets in."""

import contextlib
import inspect
import re
import string
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.mathtext import MathTextParser
from scipy.special import erf

import bpinn as bp
from bpinn.expressions import FUNCTIONS, LONGEST, parse

NAMES = ("u", "u_x", "u_xx", "k", "x", "nu", "k_rate", "u_2")
VALUES = {"u": 0.7, "u_x": 0.3, "u_xx": -0.4, "k": 1.3, "x": 0.6, "nu": 0.2, "k_rate": 2.0, "u_2": -1.1}
# What the functions are, from another library; eval is the test's oracle, never the program's.
ORACLE = {
    name: getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}.get(name, name), None)
    for name in FUNCTIONS
} | {"erf": erf, "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "min": np.minimum, "max": np.maximum, "pi": np.pi}

numbers = st.one_of(st.integers(0, 9).map(str), st.floats(0.01, 50).map(lambda v: f"{v:.4g}"))
leaves = st.one_of(numbers, st.sampled_from((*NAMES, "pi")))


def grow(inner):
    one, two = [f for f, (n, *_) in FUNCTIONS.items() if n == 1], [f for f, (n, *_) in FUNCTIONS.items() if n == 2]
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", " + ", " - "]), inner).map("".join),
        st.tuples(inner, st.integers(-3, 4)).map(lambda t: f"({t[0]})**{t[1]}"),
        inner.map(lambda t: f"({t})"),
        inner.map(lambda t: f"-{t}"),
        st.tuples(st.sampled_from(one), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(st.sampled_from(two), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    )


formulas = st.recursive(leaves, grow, max_leaves=12).filter(lambda t: len(t) < LONGEST)


def same(a, b):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-9, atol=1e-12)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(formulas)
def test_the_value_is_pythons_and_the_printed_forms_mean_the_same(text):
    try:
        found = parse(text, NAMES)
    except bp.InputError as error:  # the caps, nothing else
        said = str(error)
        found = None
    if found is None:
        assert any(words in said for words in ("nested", "parts", "exponent"))
        return
    values = {name: np.float64(v) for name, v in VALUES.items()}
    with np.errstate(all="ignore"), jax.enable_x64(True):
        try:
            floats = re.sub(r"(?<![\w.])\d+(?![\w.])", r"\g<0>.0", text)  # -0 is another number than -0.0
            expected = eval(floats, {"__builtins__": {}}, ORACLE | values)
        except (ZeroDivisionError, OverflowError, ValueError):
            expected = None  # of whole numbers, which we do not have
        value = found.evaluate(values)
        if expected is not None and np.isfinite(expected):
            same(value, expected)
        again = parse(str(found), NAMES)
        assert str(again) == str(found)
        if np.isfinite(value) and all(len(f"{float(n):.10g}") < 10 for n in VALUES.values()):
            same(again.evaluate(values), value)
    MathTextParser("path").parse(f"${found.latex}$")


@pytest.mark.slow
def test_a_hundred_thousand_texts_are_read_or_refused(calls_in):
    for text in _texts(100_000):
        _refuse_or_read(text, calls_in)


def test_any_text_is_read_or_refused(calls_in):
    for text in _texts(3000):
        _refuse_or_read(text, calls_in)


@pytest.mark.parametrize("times", [5, 19, 38, 75, 150, 300])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("-", ""), ("sin(", ")"), ("max(u, ", ")"), ("(u**", ")"), ("(u/", ")"), ("u*(k-", ")"),
     ("u+", ""), ("(", ""), ("[", ""), ("not ", ""), ("u if ", ""), ("f'{", ""), ("lambda: ", "")],
)  # fmt: skip
def test_work_grows_no_faster_than_the_text(opening, closing, times, calls_in):
    _refuse_or_read(opening * times + "u" + closing * times, calls_in)


def _refuse_or_read(text, calls_in):
    """Our own error or an expression, with work in proportion to the length of the text, whatever is in it."""

    def read():
        with contextlib.suppress(bp.InputError):
            found = parse(text, NAMES)
            str(found), found.latex, found.names
            ElementTree.fromstring(f"<math>{found.mathml}</math>")  # well-formed

    calls_in(read, most=2000 + 50 * len(text))


def _texts(count):
    """Pieces of formulas and of Python, put together at random."""
    rng = np.random.default_rng(0)
    python = (
        "lambda|import os|__import__('os')|__class__|if|else|for|in|not|and|None|True|1j|'a'|f'{x}'|yield|await|:=|..."
    )
    odd = [
        "(((",
        ")))",
        "---",
        "**",
        "//",
        "**9",
        "e9",
        "1e999",
        "0x",
        "1_000",
        "é",
        "\u202e",
        "\x00",
        "\ud800",
        "𝑥",
        "∞",
    ]
    pieces = [*NAMES, *FUNCTIONS, *string.printable, *python.split("|"), *odd]
    for _ in range(count):
        yield "".join(rng.choice(pieces, rng.integers(1, 30)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("u^2", "column 2: ^ is not supported; write ** for a power"),
        ("u**2.5**", "column 9: not a valid formula"),
        ("(u + k", "column 1: not a valid formula"),
        ("", "the formula is empty"),
        ("f(u)", "column 1: 'f' is not a function; known functions are sin"),
        ("tanhh(u)", "'tanhh' is not a function; did you mean 'tanh'?"),
        ("u(2)", "'u' is a name, not a function; write * to multiply"),
        ("2*tanh", "column 3: tanh is a function; write tanh(...)"),
        ("k*ux", "column 3: the name 'ux' is not declared; derivatives are written u_x: k*u_x"),
        ("zz", "the name 'zz' is not declared; known names are u, u_x"),
        ("u.real", "a name cannot contain a dot"),
        ("u[0]", "brackets [ ] are not supported"),
        ("__import__('os').system('true')", "only the built-in functions can be called"),
        ("(lambda: u)()", "only the built-in functions can be called"),
        ("lambda: u", "lambda is not allowed in a formula"),
        ("u if x else k", "if is not supported"),
        ("u < 1", "comparisons are not supported"),
        ("not u", "not is not allowed"),
        ("u and k", "and, or are not supported"),
        ("1j*u", "complex '1j' is not a number"),
        ("'a'", "str 'a' is not a number"),
        ("True", "bool 'True' is not a number"),
        ("u**21", "column 4: an exponent may be at most 20"),
        ("u**-21", "an exponent may be at most 20"),
        ("1e31", "a number may be at most 1e+30"),
        ("9" * 400, "a number may be at most 1e+30"),
        ("sin(u, x)", "sin takes 1 argument, got 2"),
        ("max(u)", "max takes 2 arguments, got 1"),
        ("sin(*u)", "sin takes 1 argument"),
        ("sin(u, x=1)", "sin takes 1 argument"),
        ("u, x", "a comma is allowed only between function arguments"),
        ("[u]", "list is not allowed"),
        ("u = 1", "not a valid formula"),
        ("u; k", "not a valid formula"),
        ("u//2", "// is not supported; write /"),
        ("u @ k", "@ is not supported"),
        ("~u", "invert is not allowed"),
        ("u\x07", "non-printable characters"),
        ("x" * 1001, "1001 characters; at most 1000"),
        ("u" + "+u" * 300, "more than 400 parts"),
        ("-" * 60 + "u", "nested more than 40 levels deep"),
        ("sin(" * 45 + "u" + ")" * 45, "nested more than 40 levels deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_column(text, words):
    with pytest.raises(bp.InputError) as caught:
        parse(text, NAMES, "equations.f")
    assert words in str(caught.value)
    assert str(caught.value).startswith("equations.f")


def test_the_mark_stands_under_the_fault():
    with pytest.raises(bp.InputError) as caught:
        parse("é + u_t", ["é", "u"], "equations.f")  # é is two bytes
    lines = str(caught.value).splitlines()
    assert lines[1].index("u_t") == lines[2].index("^")


def test_a_formula_may_go_over_lines():
    assert str(parse("u\n  + k", NAMES)) == "u + k"


def test_pi_is_no_name_unless_it_is_declared():
    assert parse("2*pi*x", ["x"]).names == ("x",)
    assert float(parse("2*pi", []).evaluate({})) == pytest.approx(2 * np.pi)
    assert float(parse("2*pi", ["pi"]).evaluate({"pi": 3.0})) == 6.0


def test_text_only():
    with pytest.raises(bp.InputError, match="expected a formula as text, got 3"):
        parse(3, NAMES)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("0.01*u_xx + k*tanh(u)", r"0.01 \, u_{xx} + k \, \tanh\left(u\right)"),
        ("-(u + 1)**2/nu", r"\frac{-\left(u + 1\right)^{2}}{\nu}"),
        ("1e-12*k_rate", r"10^{-12} \, k_{\mathrm{rate}}"),
        ("2.5e12*u_2", r"2.5 \times 10^{12} \, u_{2}"),
        ("sqrt(abs(u))", r"\sqrt{\left|u\right|}"),
        ("u - (k - x)", r"u - \left(k - x\right)"),
    ],
)
def test_mathematics_for_print(text, latex):
    assert parse(text, NAMES).latex == latex


def test_an_expression_is_an_equation():
    """The same posterior as with the function written in Python, its gradient too."""

    def law(u, u_xx, k):
        return 0.01 * u_xx + k * jnp.tanh(u) ** 3

    text = parse("0.01*u_xx + k*tanh(u)**3", ["u", "u_xx", "k"]).function("f")
    assert list(inspect.signature(text).parameters) == ["u_xx", "k", "u"]
    x = np.linspace(-1, 1, 7)

    def posterior(equation):
        return bp.Posterior(
            bp.Problem(
                domain={"x": (-1.0, 1.0)},
                fields={"u": bp.MLP(hidden=(5,))},
                unknowns={"k": dist.Normal(0.0, 1.0)},
                sensors={"f": bp.Sensors(equation, {"x": x}, np.sin(x), noise=0.1)},
            )
        )

    ours, theirs = posterior(text), posterior(law)
    z = ours.sample_prior(jax.random.key(0), 1)[0]
    np.testing.assert_allclose(ours.log_density(z), theirs.log_density(z), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(ours.log_density)(z), jax.grad(theirs.log_density)(z), rtol=1e-4, atol=1e-4)


def test_whole_powers_have_derivatives_at_zero():
    square = parse("u**2", ["u"]).function("square")
    assert float(jax.grad(square)(0.0)) == 0.0
    assert float(jax.grad(jax.grad(square))(0.0)) == 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u_xx", "<msub><mi>u</mi><mrow><mi>x</mi><mi>x</mi></mrow></msub>"),
        ("k", "<mi>k</mi>"),
        ("2*u", '<mrow><mn>2</mn><mspace width="0.17em"/><mi>u</mi></mrow>'),
        ("u*2", "<mrow><mi>u</mi><mo>⋅</mo><mn>2</mn></mrow>"),
        ("u - (k - 1)", "<mrow><mi>u</mi><mo>−</mo><mrow><mo stretchy=\"false\">(</mo><mrow><mi>k</mi><mo>−</mo><mn>1</mn></mrow><mo stretchy=\"false\">)</mo></mrow></mrow>"),
        ("(u + k)**2", "<msup><mrow><mo stretchy=\"false\">(</mo><mrow><mi>u</mi><mo>+</mo><mi>k</mi></mrow><mo stretchy=\"false\">)</mo></mrow><mn>2</mn></msup>"),
        ("u/k", "<mfrac><mi>u</mi><mi>k</mi></mfrac>"),
        ("-u", "<mrow><mo>−</mo><mi>u</mi></mrow>"),
        ("sqrt(u)", "<msqrt><mi>u</mi></msqrt>"),
        ("log10(u)", "<mrow><msub><mi>log</mi><mn>10</mn></msub><mrow><mo stretchy=\"false\">(</mo><mi>u</mi><mo stretchy=\"false\">)</mo></mrow></mrow>"),
        ("2e-12*pi", '<mrow><mrow><mn>2</mn><mo>×</mo><msup><mn>10</mn><mn>−12</mn></msup></mrow><mspace width="0.17em"/><mi>π</mi></mrow>'),
    ],
)  # fmt: skip
def test_formulas_in_mathml(text, expected):
    assert parse(text, ["u", "u_xx", "k"]).mathml == expected


# --- habits of other notations ---

ELSEWHERE = ["u", "u_x", "u_xx", "u_t", "u_tt", "u_xt", "v", "v_t", "theta", "theta_t", "theta_tt", "k", "x", "t"]


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("u_t - k*u = 0", "u_t - k*u"),
        ("u_t = k*u", "u_t - k*u"),
        ("u_t == k*u - 1", "u_t - (k*u - 1)"),
        ("u_t = -k*(u - 1)", "u_t + k*(u - 1)"),
        ("theta'' + k*sin(theta)", "theta_tt + k*sin(theta)"),
        ("theta_dot + u", "theta_t + u"),
        ("du/dt - k*u", "u_t - k*u"),
        ("d2u/dx2 - k*dv/dt", "u_xx - k*v_t"),
        ("d^2u/dx^2 + u", "u_xx + u"),
        ("d2u/dxdt + d2u/(dx dt)", "u_xt + u_xt"),
        ("∂²u/∂x² − k·u", "u_xx - k*u"),
        ("θ_t + |u|", "theta_t + abs(u)"),
        ("sin x + cos(t)", "sin(x) + cos(t)"),
        ("u^2", "u**2"),
        ("2u + 1.5 k (u + 1)(u - 1)", "2*u + 1.5*k*(u + 1)*(u - 1)"),
        ("k u", "k*u"),
        ("k(u + 1)", "k*(u + 1)"),
        ("ut + uxx", "u_t + u_xx"),
        ("ln(u)", "log(u)"),
        ("d2theta/dt2 = -k sin theta", "theta_tt + k*sin(theta)"),
    ],
)
def test_formulas_of_other_notations_are_refused_with_the_one_that_was_meant(text, suggested):
    with pytest.raises(bp.InputError) as caught:
        parse(text, ELSEWHERE, "equations.f")
    assert str(caught.value).splitlines()[0].endswith(f": {suggested}")
    parse(suggested, ELSEWHERE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("u_t + thet_t", "'thet_t' is not declared; did you mean 'theta_t'?"),
        ("u_t + exp(-u", "a parenthesis has no partner"),
        ("u_t + 1,5*u", "decimals have a point"),
        ("e**u", "powers of e are written exp(...)"),
        ("u(0)", "'u' is a name, not a function"),
        ("u_xy", "'u_xy' is not declared; known names are"),
        ("q = q", "not a valid formula\n"),
    ],
)
def test_what_was_meant_is_only_said_if_it_is_a_formula(text, words):
    with pytest.raises(bp.InputError) as caught:
        parse(text, ELSEWHERE, "equations.f")
    assert words in str(caught.value)
