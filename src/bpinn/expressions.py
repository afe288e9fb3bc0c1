"""Formula strings: parsed into a small tree of allowed nodes, and interpreted; no code is executed.

Python's parser reads the text, so precedence and number syntax are Python's; its tree is then
translated node by node. Anything but a number, a declared name, an arithmetic operator or a function in the table
is rejected, with its column.
"""

import ast
import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bpinn import notation
from bpinn.errors import InputError
from bpinn.habits import rewritten
from bpinn.notation import Node

LONGEST, DEEPEST, MOST_NODES, LARGEST_EXPONENT, LARGEST_NUMBER = 1000, 40, 400, 20, 1e30

PLACEHOLDER = "FILL IN"  # where a draft of a problem file has no formula yet
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {  # name: number of arguments, function
    "sin": (1, jnp.sin), "cos": (1, jnp.cos), "tan": (1, jnp.tan),
    "asin": (1, jnp.arcsin), "acos": (1, jnp.arccos), "atan": (1, jnp.arctan),
    "sinh": (1, jnp.sinh), "cosh": (1, jnp.cosh), "tanh": (1, jnp.tanh),
    "exp": (1, jnp.exp), "log": (1, jnp.log), "log10": (1, jnp.log10),
    "sqrt": (1, jnp.sqrt), "abs": (1, jnp.abs), "sign": (1, jnp.sign),
    "erf": (1, jax.scipy.special.erf), "sigmoid": (1, jax.nn.sigmoid),
    "min": (2, jnp.minimum), "max": (2, jnp.maximum), "atan2": (2, jnp.arctan2),
}  # fmt: skip
CONSTANTS = {"pi": float(np.pi)}
OPERATORS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
MISTAKES = {
    ast.BitXor: "^ is not supported; write ** for a power", ast.FloorDiv: "// is not supported; write /",
    ast.MatMult: "@ is not supported; write *", ast.Mod: "% is not supported",
    ast.Compare: "comparisons are not supported; use min, max or sign", ast.BoolOp: "and, or are not supported",
    ast.IfExp: "if is not supported; use min, max or sign", ast.Attribute: "a name cannot contain a dot",
    ast.Subscript: "brackets [ ] are not supported; use parentheses",
    ast.Tuple: "a comma is allowed only between function arguments; decimals have a point",
}  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """A formula. ``text`` is the input, ``str(expression)`` its plain form, ``latex`` and ``mathml`` its typeset forms.

    Example:
        >>> from bpinn.expressions import parse
        >>> law = parse("0.01*u_xx + k*tanh(u)", ["u", "u_xx", "k"])
        >>> law.names
        ('u_xx', 'k', 'u')
        >>> print(law)
        0.01*u_xx + k*tanh(u)
        >>> print(law.latex)
        0.01 \\, u_{xx} + k \\, \\tanh\\left(u\\right)
        >>> round(float(law.evaluate({"u": 0.0, "u_xx": 2.0, "k": 1.0})), 3)
        0.02
    """

    text: str
    tree: Node

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in the formula, in order of appearance."""
        found: dict[str, None] = {}

        def visit(node: Node) -> None:
            if node.kind == "name":
                found[node.value] = None
            for part in node.parts:
                visit(part)

        visit(self.tree)
        return tuple(found)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value for numbers or NumPy or JAX arrays, by name."""
        return _evaluate(self.tree, values)

    def function(self, name: str, arguments: Sequence[str] | None = None) -> Callable[..., Any]:
        """An equation for `Sensors`: a function whose arguments are ``arguments``, by default all names."""
        arguments = self.names if arguments is None else arguments

        def equation(*values: Any, **named: Any) -> Any:
            return self.evaluate(dict(zip(arguments, values, strict=False)) | named)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        equation.__name__ = equation.__qualname__ = name
        equation.__doc__ = str(self)
        equation.expression = self  # type: ignore[attr-defined]
        equation.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in arguments])  # type: ignore[attr-defined]
        return equation

    def __str__(self) -> str:
        return notation.plain(self.tree)

    @property
    def latex(self) -> str:
        return notation.latex(self.tree)

    @property
    def mathml(self) -> str:
        """For HTML: the content of a ``math`` element."""
        return notation.mathml(self.tree)


def parse(
    text: str,
    names: Iterable[str] | Callable[[str], bool],
    where: str = "expression",
    near: Sequence[str] = (),
    known: str | None = None,
) -> Expression:
    """Parse a formula that may use ``names``: a list, or a function that returns whether a name is allowed.

    Raises `InputError` with ``where``, the column, what is wrong and how to fix it. It suggests a name of ``near`` for
    one that is not allowed, or says what is ``known``.
    """
    if not isinstance(text, str):
        raise InputError(f"{where}: expected a formula as text, got {text!r}")
    if len(text) > LONGEST:
        raise InputError(f"{where}: the formula has {len(text)} characters; at most {LONGEST} are allowed")
    if not text.strip():
        raise InputError(f"{where}: the formula is empty")
    listed = [] if callable(names) else list(names)
    is_name = names if callable(names) else listed.__contains__
    near = [*listed, *near]
    known = ", ".join(listed) or "none" if known is None else known
    try:
        return Expression(text, _Parser(text, is_name, where, near, known).read())
    except InputError as error:
        better, why = rewritten(text, is_name, FUNCTIONS)
        if not why:
            raise
        try:
            _Parser(better, is_name, where, near, known).read()
        except InputError:
            raise error from None
        first, line, marked = str(error).partition("\n")
        raise InputError(f"{first.partition(';')[0]}; {why}: {better}{line}{marked}") from None


class _Parser:
    def __init__(self, text: str, is_name: Callable[[str], bool], where: str, near: Sequence[str], known: str):
        self.text, self.where, self.nodes = text, where, 0
        self.is_name, self.near, self.known = is_name, near, known

    def fail(self, node: Any, problem: str, offset: int | None = None) -> InputError:
        offset = getattr(node, "col_offset", 0) if offset is None else offset  # in bytes
        column = len(self.line.encode()[:offset].decode(errors="ignore"))
        return self._error(column, problem)

    def _error(self, column: int, problem: str) -> InputError:
        shown = self.line if len(self.line) <= 100 else None
        marked = f"\n  {shown}\n  {' ' * column}^" if shown is not None else ""
        return InputError(f"{self.where}, column {column + 1}: {problem}{marked}")

    def read(self) -> Node:
        # A formula may span several lines in a file; columns then refer to the joined line.
        self.line = " ".join(self.text.split())
        if not self.line.isprintable():
            raise InputError(f"{self.where}: the formula has non-printable characters; remove them")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as Python's SyntaxWarning about "1if x"
                tree = ast.parse(self.line, mode="eval").body
        except SyntaxError as error:
            column = error.offset - 1 if error.offset else len(self.line)  # no offset if the formula ends too early
            open_one = "never closed" in str(error.msg) or "unmatched" in str(error.msg)
            hint = (
                "; a parenthesis has no partner" if open_one else "; write ** for a power" if "^" in self.line else ""
            )
            raise self._error(min(column, len(self.line)), f"not a valid formula{hint}") from None
        except (ValueError, RecursionError, MemoryError):
            raise InputError(f"{self.where}: the formula is nested too deeply or has invalid characters") from None
        return self.translate(tree, 0)

    def translate(self, node: ast.AST, depth: int) -> Node:
        self.nodes += 1
        if depth > DEEPEST:
            raise self.fail(node, f"the formula is nested more than {DEEPEST} levels deep; simplify it")
        if self.nodes > MOST_NODES:
            raise self.fail(node, f"the formula has more than {MOST_NODES} parts; simplify it")
        if isinstance(node, ast.Constant):
            return Node("number", self.number(node))
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self.translate(node.operand, depth + 1)
            return Node("neg", parts=(inner,)) if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self.chain(node, depth)
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        kind = type(node.op) if isinstance(node, ast.BinOp | ast.UnaryOp) else type(node)
        problem = MISTAKES.get(kind, f"{kind.__name__.lower()} is not allowed in a formula")
        raise self.fail(node, problem, node.left.end_col_offset if isinstance(node, ast.BinOp) else None)

    def chain(self, node: ast.BinOp, depth: int) -> Node:
        """A left-associative chain of operators, such as a long sum: its tree is deep, but it is not nested."""
        spine = [node]
        while isinstance(spine[-1].left, ast.BinOp) and type(spine[-1].left.op) in OPERATORS:
            spine.append(spine[-1].left)
            self.nodes += 1
        result = self.translate(spine[-1].left, depth + 1)
        for binary in reversed(spine):
            operator = OPERATORS[type(binary.op)]
            right = self.translate(binary.right, depth + 1)
            if operator == "**":
                self.check_exponent(binary.right, right)
            result = Node(operator, parts=(result, right))
        return result

    def number(self, node: ast.Constant) -> float | int:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(node, f"{type(value).__name__} {str(value)[:20]!r} is not a number")
        if not abs(value) <= LARGEST_NUMBER:
            raise self.fail(node, f"a number may be at most {LARGEST_NUMBER:g}")
        return value if isinstance(value, int) and abs(value) <= 2**31 else float(value)

    def name(self, node: ast.Name) -> Node:
        if self.is_name(node.id):
            return Node("name", node.id)
        if node.id in CONSTANTS:
            return Node("constant", node.id)
        if node.id in FUNCTIONS:
            raise self.fail(node, f"{node.id} is a function; write {node.id}(...)")
        stem, _, along = node.id.rpartition("_")
        close: Sequence[str] = ()
        if not stem:
            close = difflib.get_close_matches(node.id, [*self.near, *FUNCTIONS, *CONSTANTS], 1)
        elif not self.is_name(stem):  # a derivative of a misspelt field, or a misspelt name
            derivatives = [f"{name}_{along}" for name in self.near if self.is_name(f"{name}_{along}")]
            close = difflib.get_close_matches(node.id, [*self.near, *derivatives], 1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known names are {self.known}"
        hint = "; powers of e are written exp(...)" if node.id == "e" else hint
        raise self.fail(node, f"the name {node.id[:40]!r} is not declared{hint}")

    def call(self, node: ast.Call, depth: int) -> Node:
        if not isinstance(node.func, ast.Name):
            raise self.fail(node, "only the built-in functions can be called")
        name = node.func.id
        if name not in FUNCTIONS:
            close = difflib.get_close_matches(name, FUNCTIONS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known functions are {', '.join(FUNCTIONS)}"
            what = "a name, not a function; write * to multiply" if self.is_name(name) else f"not a function; {hint}"
            raise self.fail(node, f"{name[:40]!r} is {what}")
        wanted = FUNCTIONS[name][0]
        starred = any(isinstance(a, ast.Starred) for a in node.args)
        if node.keywords or starred or len(node.args) != wanted:
            raise self.fail(node, f"{name} takes {wanted} argument{'s' if wanted > 1 else ''}, got {len(node.args)}")
        return Node("call", name, tuple(self.translate(a, depth + 1) for a in node.args))

    def check_exponent(self, at: ast.AST, exponent: Node) -> None:
        inner = exponent.parts[0] if exponent.kind == "neg" else exponent
        if inner.kind == "number" and abs(inner.value) > LARGEST_EXPONENT:
            raise self.fail(at, f"an exponent may be at most {LARGEST_EXPONENT}")


def _evaluate(node: Node, values: Mapping[str, Any]) -> Any:
    if node.kind == "number":
        return float(node.value)
    if node.kind == "name":
        return values[node.value]
    if node.kind == "constant":
        return CONSTANTS[node.value]
    parts = [_evaluate(part, values) for part in node.parts]
    if node.kind == "call":
        return FUNCTIONS[node.value][1](*parts)
    if node.kind == "neg":
        return -parts[0]
    a, b = parts
    if isinstance(a, float) and isinstance(b, float):
        a = np.float64(a)  # two constants: NumPy gives inf or nan where Python would raise
    if node.kind == "**":
        b = _whole(node.parts[1], b)
    with np.errstate(all="ignore"):
        if node.kind == "+":
            return a + b
        if node.kind == "-":
            return a - b
        if node.kind == "*":
            return a * b
        if node.kind == "/":
            return a / b
        return a**b


def _whole(exponent: Node, value: Any) -> Any:
    """An integer exponent as int: its power is differentiable at zero and defined for negative bases."""
    inner = exponent.parts[0] if exponent.kind == "neg" else exponent
    return int(value) if inner.kind == "number" and isinstance(inner.value, int) else value
