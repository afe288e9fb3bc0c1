"""Formulas as trees, and their output: plain text, LaTeX, and MathML for self-contained HTML pages."""

from dataclasses import dataclass
from html import escape
from html.entities import html5
from typing import Any

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "**": 4}
GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi",
    "Sigma", "Upsilon", "Phi", "Psi", "Omega",
}  # fmt: skip
LATEX_FUNCTIONS = {
    "sin": r"\sin", "cos": r"\cos", "tan": r"\tan", "asin": r"\arcsin", "acos": r"\arccos", "atan": r"\arctan",
    "sinh": r"\sinh", "cosh": r"\cosh", "tanh": r"\tanh", "exp": r"\exp", "log": r"\log", "log10": r"\log_{10}",
    "sign": r"\mathrm{sign}", "erf": r"\mathrm{erf}", "sigmoid": r"\mathrm{sigmoid}",
    "min": r"\min", "max": r"\max", "atan2": r"\mathrm{atan2}",
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """``kind`` is "number", "name", "constant", "neg", an operator or "call"; ``value`` is the number or the name."""

    kind: str
    value: Any = None
    parts: tuple["Node", ...] = ()


def _number(value: float | int) -> str:
    return f"{value:.10g}"


def _wrapped(node: Node, text: str, inside: int, strict: bool) -> str:
    """``text`` of ``node``, in parentheses if its precedence is below that of the enclosing operator."""
    own = PRECEDENCE.get(node.kind, 9)
    return f"({text})" if own < inside or (strict and own == inside) else text


def plain(node: Node) -> str:
    if node.kind == "number":
        return _number(node.value)
    if node.kind in ("name", "constant"):
        return str(node.value)
    if node.kind == "call":
        return f"{node.value}({', '.join(plain(part) for part in node.parts)})"
    own = PRECEDENCE[node.kind]
    if node.kind == "neg":
        return "-" + _wrapped(node.parts[0], plain(node.parts[0]), own, False)
    left, right = node.parts
    power = node.kind == "**"
    spaced = f" {node.kind} " if own == 1 else node.kind
    first = _wrapped(left, plain(left), own, power)
    # "2**-x" needs no parentheses; otherwise the right operand does if it has the same precedence.
    second = plain(right) if power and right.kind == "neg" else _wrapped(right, plain(right), own, not power)
    return first + spaced + second


def _are_letters(index: str) -> bool:
    """Whether a subscript is a sequence of coordinates, such as ``xxt``, rather than a word."""
    return len(set(index)) <= 3 and len(index) <= 4 and index.isalpha()


def _latex_name(name: str) -> str:
    stem, _, index = name.partition("_")

    def word(text: str) -> str:
        if text in GREEK:
            return "\\" + text
        return text if len(text) == 1 else rf"\mathrm{{{text}}}"

    if name == "pi":
        return r"\pi"
    index = index.replace("_", "")
    if not stem:
        return word(index)
    plain = index if index.isdigit() or _are_letters(index) else rf"\mathrm{{{index}}}"
    return word(stem) + (f"_{{{plain}}}" if index else "")


def latex(node: Node) -> str:
    if node.kind == "number":
        text = _number(node.value)
        if "e" in text:
            mantissa, exponent = text.split("e")
            power = f"10^{{{int(exponent)}}}"
            return power if mantissa == "1" else rf"{mantissa} \times {power}"
        return text
    if node.kind in ("name", "constant"):
        return _latex_name(node.value)
    if node.kind == "call":
        parts = ", ".join(latex(part) for part in node.parts)
        if node.value == "sqrt":
            return rf"\sqrt{{{parts}}}"
        if node.value == "abs":
            return rf"\left|{parts}\right|"
        return rf"{LATEX_FUNCTIONS[node.value]}\left({parts}\right)"
    own = PRECEDENCE[node.kind]
    if node.kind == "neg":
        return "-" + _bracketed(node.parts[0], own, False)
    left, right = node.parts
    if node.kind == "/":
        return rf"\frac{{{latex(left)}}}{{{latex(right)}}}"
    if node.kind == "**":
        return f"{_bracketed(left, own, True)}^{{{latex(right)}}}"
    if node.kind == "*":
        between = r" \cdot " if right.kind == "number" or _begins_with_digit(right) else r" \, "
        return _bracketed(left, own, False) + between + _bracketed(right, own, False)
    return f"{_bracketed(left, own, False)} {node.kind} {_bracketed(right, own, node.kind == '-')}"


def _begins_with_digit(node: Node) -> bool:
    while node.kind in ("*", "**", "+", "-"):
        node = node.parts[0]
    return node.kind == "number"


def _needs_brackets(node: Node, inside: int, strict: bool) -> bool:
    own = 9 if node.kind == "/" else PRECEDENCE.get(node.kind, 9)  # a fraction needs brackets only under a power
    own = 2 if node.kind == "/" and inside == PRECEDENCE["**"] else own
    if node.kind == "number" and node.value < 0:
        own = 3
    return own < inside or (strict and own == inside) or node.kind == "neg"


def _bracketed(node: Node, inside: int, strict: bool) -> str:
    text = latex(node)
    return rf"\left({text}\right)" if _needs_brackets(node, inside, strict) else text


# --- MathML ---


def mathml_name(name: str) -> str:
    """A name, with the part after its first underscore as a subscript: ``u_xx``, ``k_0``, ``conductivity``."""
    stem, _, index = name.partition("_")
    if not stem or not index:
        return _identifier(name)
    below = _identifier(index)
    if _are_letters(index) and len(index) > 1:  # one identifier per coordinate
        below = f"<mrow>{''.join(_identifier(letter) for letter in index)}</mrow>"
    return f"<msub>{_identifier(stem)}{below}</msub>"


def _identifier(text: str) -> str:
    if text in GREEK or text == "pi":
        return f"<mi>{html5[text + ';']}</mi>"
    return f"<mn>{text}</mn>" if text.isdigit() else f"<mi>{escape(text)}</mi>"


def mathml_number(value: float | int) -> str:
    mantissa, _, exponent = _number(abs(value)).partition("e")
    sign = "<mo>−</mo>" if value < 0 else ""
    if not exponent:
        return f"<mrow>{sign}<mn>{mantissa}</mn></mrow>" if sign else f"<mn>{mantissa}</mn>"
    power = f"<msup><mn>10</mn><mn>{int(exponent)}</mn></msup>".replace("<mn>-", "<mn>−")
    factor = "" if mantissa == "1" else f"<mn>{mantissa}</mn><mo>×</mo>"
    return f"<mrow>{sign}{factor}{power}</mrow>"


def mathml(node: Node) -> str:
    """One element."""
    if node.kind == "number":
        return mathml_number(node.value)
    if node.kind in ("name", "constant"):
        return mathml_name(node.value)
    if node.kind == "call":
        return _mathml_call(node)
    own = PRECEDENCE[node.kind]
    if node.kind == "neg":
        return f"<mrow><mo>−</mo>{_enclosed(node.parts[0], own, False)}</mrow>"
    left, right = node.parts
    if node.kind == "/":
        return f"<mfrac>{mathml(left)}{mathml(right)}</mfrac>"
    if node.kind == "**":
        return f"<msup>{_enclosed(left, own, True)}{mathml(right)}</msup>"
    if node.kind == "*":
        dot = right.kind == "number" or _begins_with_digit(right)
        between = "<mo>⋅</mo>" if dot else '<mspace width="0.17em"/>'
        return f"<mrow>{_enclosed(left, own, False)}{between}{_enclosed(right, own, False)}</mrow>"
    sign = "−" if node.kind == "-" else "+"
    return f"<mrow>{_enclosed(left, own, False)}<mo>{sign}</mo>{_enclosed(right, own, node.kind == '-')}</mrow>"


def _mathml_call(node: Node) -> str:
    parts = "<mo>,</mo>".join(mathml(part) for part in node.parts)
    if node.value == "sqrt":
        return f"<msqrt>{parts}</msqrt>"
    if node.value == "abs":
        return f'<mrow><mo stretchy="true">|</mo>{parts}<mo stretchy="true">|</mo></mrow>'
    name = "<msub><mi>log</mi><mn>10</mn></msub>" if node.value == "log10" else f"<mi>{node.value}</mi>"
    return f"<mrow>{name}{_fenced(parts)}</mrow>"


def _fenced(inner: str) -> str:
    """In parentheses, stretchy only around tall content: without a math font, browsers oversize them."""
    tall = any(tag in inner for tag in ("<mfrac", "<msup", "<msqrt"))
    stretchy = "" if tall else ' stretchy="false"'
    return f"<mrow><mo{stretchy}>(</mo>{inner}<mo{stretchy}>)</mo></mrow>"


def _enclosed(node: Node, inside: int, strict: bool) -> str:
    return _fenced(mathml(node)) if _needs_brackets(node, inside, strict) else mathml(node)
