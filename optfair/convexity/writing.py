"""CVXPY expressions written from formulas as text, in a safe grammar, and from normal forms, by atoms."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.elementwise.hyperbolic import asinh, sinh, tanh
from cvxpy.atoms.elementwise.trig import cos, sin, tan

from optfair.convexity.algebra import ONE, Algebra, terms_of
from optfair.convexity.domain import Domain
from optfair.convexity.expression import (
    Call,
    Factor,
    Node,
    Opaque,
    Product,
    Sum,
    constant_value,
    select,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.reading import Unread, demanded
from optfair.core.composition import RELATIONS
from optfair.core.expressions import dense
from optfair.core.problem_class import known_symmetric
from optfair.errors import DataError, DeclarationError, nearest, shortened

#: What stands in formulas on paper, and how it is written.
SPELLINGS = {"|": "write abs(x) for |x|", "'": "write x @ P @ x for x'Px"}
#: Powers with whole exponents up to this one are products.
PRODUCTS = 24


def _power(x: Any, p: Any) -> Any:
    return cp.power(x, float(p))


def _of_entries(name: str) -> Callable[..., Any]:
    """Return a function of a vector, which may be written with its entries as arguments."""
    function, entrywise = getattr(cp, name), {"max": cp.maximum, "min": cp.minimum}.get(name)

    def call(first: Any, *more: Any) -> Any:
        if not more:
            return function(first)
        if entrywise is not None:
            return entrywise(first, *more)
        if any(
            np.ndim(a) if isinstance(a, np.ndarray) else getattr(a, "ndim", 0)
            for a in (first, *more)
        ):
            if name == "geo_mean":  # and its weights
                return function(first, *more)
            raise ValueError(f"{name} takes one vector, or numbers")
        return function(cp.hstack([first, *more]))

    return call


# Functions of CVXPY that go by its own names, and those of them that are of a vector.
_ATOMS = (
    *("exp", "log", "sqrt", "square", "abs", "maximum", "minimum"),
    *("norm", "entr", "logistic", "trace", "lambda_max"),
)
_OF_VECTORS = ("sum", "max", "min", "log_sum_exp", "geo_mean")
#: What may be called, by name.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(cp, name) for name in _ATOMS},
    **{name: _of_entries(name) for name in _OF_VECTORS},
    **{f.__name__: f for f in (sin, cos, tan, sinh, tanh, asinh)},
    "power": _power,
}
_COMPARE = {ast.LtE: "<=", ast.GtE: ">=", ast.Eq: "==", ast.Lt: "<=", ast.Gt: ">="}


class _Writer:
    def __init__(self, text: str, variables: dict[str, Any]) -> None:
        self.text, self.variables = text, variables

    def refuse(self, node: ast.AST, why: str, remedy: str = "") -> DataError:
        part = ast.get_source_segment(self.text, node) or self.text
        part = part if len(part) <= 80 else f"{part[:77]}..."
        return DataError(f"{part!r} is not in the grammar of formulas", why, remedy)

    def write(self, node: ast.AST) -> Any:
        """Return what a part says; what is no finite real number is refused where it stands."""
        try:
            with np.errstate(all="ignore"):
                out = self._written(node)
                constant = isinstance(out, cp.Expression) and out.is_constant()
                value = out.value if constant else out
        except DataError:
            raise
        except (ArithmeticError, TypeError, ValueError, RecursionError) as e:
            raise self.refuse(node, str(e) or type(e).__name__) from None
        if not isinstance(value, cp.Expression) and not (
            np.isrealobj(value) and np.isfinite(dense(value)).all()
        ):
            raise self.refuse(node, "it is no finite real number")
        return out

    def _written(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(str(node.value))
        if isinstance(node, ast.Name):
            if node.id in FUNCTIONS:
                raise self.refuse(node, "it is a function", f"write {node.id}(...)")
            return self.variables.setdefault(node.id, cp.Variable(name=node.id))
        if isinstance(node, (ast.List, ast.Tuple)):
            return self.matrix(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.write(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return self.binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.call(node)
        if isinstance(node, ast.Subscript):
            return self.entry(node)
        remedy = "write the function: left - right" if isinstance(node, ast.Compare) else ""
        known = "known are numbers, names, + - * / @ **, lists and functions"
        raise self.refuse(node, known, remedy)

    def matrix(self, node: Any) -> Any:
        rows = [self.write(e) for e in node.elts]
        try:
            return np.asarray(rows, dtype=float)
        except (TypeError, ValueError):
            pass
        if all(getattr(r, "shape", ()) == () for r in rows):
            return cp.hstack(rows)
        raise self.refuse(node, "a matrix has rows of numbers, a list has numbers or scalars")

    def binary(self, node: ast.BinOp) -> Any:
        left, right = self.write(node.left), self.write(node.right)
        if isinstance(node.op, ast.Pow):
            return self.power(node, left, right)
        try:
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.MatMult):
                return left @ right
            if isinstance(node.op, ast.Mult):
                if np.shape(left) and np.shape(right):
                    return cp.multiply(left, right)
                return left * right
            if isinstance(node.op, ast.Div):
                return left / right
        except (ValueError, ZeroDivisionError) as e:
            raise self.refuse(node, str(e), "bring both sides to one shape") from None
        power = "write ** for a power" if isinstance(node.op, ast.BitXor) else ""
        raise self.refuse(node, "the operators are + - * / @ **", power)

    def power(self, node: ast.BinOp, base: Any, p: Any) -> Any:
        if not isinstance(p, float):
            raise self.refuse(node, "an exponent is a number", "write exp(y*log(x)) for x**y")
        if not isinstance(base, cp.Expression):
            return base**p
        if p.is_integer() and 1 <= abs(p) <= PRODUCTS:
            # x**3 is x*x*x, which has no domain
            out = base
            for _ in range(int(abs(p)) - 1):
                out = cp.multiply(out, base) if base.shape else out * base
            return out if p > 0 else 1.0 / out
        return cp.power(base, p)

    def call(self, node: ast.Call) -> Any:
        name = node.func.id  # type: ignore[attr-defined]
        if name not in FUNCTIONS:
            raise self.refuse(node, f"there is no function {name!r}", nearest(name, FUNCTIONS))
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.refuse(node, "functions take expressions only")
        args = [self.write(a) for a in node.args]
        try:
            return FUNCTIONS[name](*args)
        except (TypeError, ValueError) as e:
            raise self.refuse(node, " ".join(str(e).split())) from None

    def entry(self, node: ast.Subscript) -> Any:
        base, index = self.write(node.value), node.slice
        places = index.elts if isinstance(index, ast.Tuple) else [index]
        numbers = [self.write(p) for p in places]
        if not all(isinstance(n, float) and n.is_integer() for n in numbers):
            raise self.refuse(node, "an index is a whole number")
        try:
            return base[tuple(int(n) for n in numbers)]
        except (IndexError, TypeError, ValueError) as e:
            raise self.refuse(node, str(e)) from None


def _tree(text: str, shape: str = "{}") -> Any:
    if len(text) > 5000:
        raise DataError("the formula is longer than 5,000 characters")
    try:
        return ast.parse(shape.format(text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        what, example = ("formula", "sqrt(1 + x**2) + x*y")
        if shape != "{}":
            what, example = "list of bounds", "x >= 0, x <= 4, y == 1"
        remedy = next((v for k, v in SPELLINGS.items() if k in text), f"write e.g. {example}")
        raise DataError(f"{text!r} is no {what}", getattr(e, "msg", str(e)), remedy) from None


def parse(text: str, variables: dict[str, Any] | None = None) -> Any:
    """Return the CVXPY expression of a formula; unknown names become scalar variables.

    Parameters
    ----------
    text : str
        Numbers, names, ``+ - * / @ **``, lists and functions. Nothing is evaluated as code;
        ``x**3`` is ``x*x*x``, for any sign of x.
    variables : dict, optional
        Name -> variable; new ones are added.

    Examples
    --------
    >>> variables = {}
    >>> parse("sqrt(1 + x**2) + x*y", variables).is_dcp(), sorted(variables)
    (False, ['x', 'y'])
    """
    known = {} if variables is None else variables
    written = _Writer(text, known).write(_tree(text).body)
    return written if isinstance(written, cp.Expression) else cp.Constant(written)


def formula(text: str, where: Any) -> tuple[Any, dict[str, Any]]:
    """Return a formula and its bounds, of one text or several; names in both are the same variables."""
    each = [where] if isinstance(where, str) else where
    if isinstance(each, (Mapping, cp.Constraint)) or not all(isinstance(t, str) for t in each):
        raise DeclarationError(
            "a formula that is a text has bounds that are texts", remedy="write e.g. 'y >= 1'"
        )
    return formula_on(text, ", ".join(each), {})


def formula_on(
    text: str, where: str, variables: dict[str, Any]
) -> tuple[cp.Expression, dict[str, Any]]:
    """Return a formula and its bounds; a bound must have to do with a variable of the formula.

    Examples
    --------
    >>> formula_on("x*x/y", "z >= 1", {})
    Traceback (most recent call last):
    optfair.errors.DataError: 'z >= 1' bounds nothing in 'x*x/y'
      why: 'z' is no variable of it
      do:  known names: x, y
    """
    expression = parse(text, variables)
    own, bounds = expression.variables(), parse_bounds(where, variables)
    reached, left = {v.id for v in own}, dict(bounds)
    while linked := [k for k, c in left.items() if reached & {v.id for v in c.variables()}]:
        reached |= {v.id for k in linked for v in left.pop(k).variables()}
    for bound, constraint in left.items():
        for stranger in constraint.variables()[:1]:
            raise DataError(
                f"{bound!r} bounds nothing in {shortened(text)!r}",
                f"{stranger.name()!r} is no variable of it",
                nearest(stranger.name(), [v.name() for v in own]),
            )
    return expression, bounds


def parse_bounds(text: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Return constraints by their own text: comparisons, separated by commas.

    Examples
    --------
    >>> variables = {}
    >>> list(parse_bounds("y >= 1, 0 <= x <= 4", variables))
    ['y >= 1', '0 <= x', 'x <= 4']
    """
    if not text.strip():
        return {}
    source, body = f"({text},)", _tree(text, "({},)").body
    out: dict[str, Any] = {}
    writer = _Writer(source, variables)
    if not isinstance(body, ast.Tuple):
        raise writer.refuse(body, "bounds are separated by commas", "write e.g. x >= 0, x <= 4")
    for node in body.elts:
        if not isinstance(node, ast.Compare):
            raise writer.refuse(node, "a bound is a comparison", "write e.g. x >= 0, x <= 4")
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            word = _COMPARE.get(type(op))
            if word is None:
                raise writer.refuse(node, "comparisons are <=, >= and ==")
            names = [ast.get_source_segment(source, s) or "" for s in (left, right)]
            a, b = cp.Constant(0.0) + writer.write(left), writer.write(right)
            try:
                made = RELATIONS[word](a, b)
            except ValueError as e:
                raise writer.refuse(node, str(e), "bring both sides to one shape") from None
            out[f"{names[0]} {word} {names[1]}"] = made
    return out


# --- normal forms by atoms ----------------------------------------------------------------------


class InFloats(Algebra):
    """Has exponents as the floats that were declared, or next to a sum of these, as atoms take them.

    Only then the logarithm of a product is a sum that floats hold.
    """

    def product(self, factors: Iterable[Factor]) -> Node:
        """Return the entrywise product of powers of nodes of one size."""
        return super().product([(n, Fraction(float(a))) for n, a in factors])


class Atoms:
    """Writes normal forms by atoms whose curvature CVXPY knows, where some have the same values.

    Parameters
    ----------
    known : mapping
        Flat variables of leaves; expressions of other nodes, which are taken as they are.
    algebra : Algebra
        Knows what is not negative: only then the logarithm of a product is a sum.
    """

    def __init__(self, known: Mapping[Node, Any], algebra: Algebra) -> None:
        self.known, self.algebra = known, algebra

    def write(self, node: Node, low: bool | None = None) -> Any:
        """Return the vector that a node is.

        Parameters
        ----------
        node : Node
            What is written.
        low : bool, optional
            Whether it may be below the node by a rounding, or above it; exact otherwise. Only
            then logarithms are taken of coefficients, which floats do not hold.

        Raises
        ------
        Unread
            No atom has the values of a part.
        """
        if node in self.known:
            return self.known[node]
        value = constant_value(node)
        if value is not None:
            return cp.Constant(value)
        if isinstance(node, Sum):
            parts = [(M, self._vector(n, _towards(low, M.data))) for M, n in node.parts]
            total: Any = sum(M @ e for M, e in parts)
            return total + node.constant if node.constant.any() else total
        if isinstance(node, Product):
            return self._product(node)
        if isinstance(node, Call):
            return self._call(node, low)
        if isinstance(node, Opaque) and node.leaves <= self.known.keys():
            return cp.vec(node.expression, order="F")
        raise Unread(f"{node!r} is not written again")

    def _vector(self, node: Node, low: bool | None) -> Any:
        e = self.write(node, low)
        return e if e.ndim else cp.reshape(e, (1,), order="F")

    def _call(self, node: Call, low: bool | None) -> Any:
        name = node.function
        if name == "log":
            e = self._logarithm(node.args[0], low) if node.size == 1 else None
            return cp.log(self.write(node.args[0], low)) if e is None else e
        if name not in _CALLS:
            raise Unread(f"{node!r} is not written again")
        inside = low if name in _INCREASING else None
        args = [self.write(n, inside) for n in node.args]
        if name in _EXTREMES and node.size > 1:
            return _EXTREMES[name](*args)
        return _CALLS[name](cp.hstack(args))

    def _product(self, node: Product) -> Any:
        exps = [f for f in node.factors if _exponential(f[0]) and Fraction(float(f[1])) == f[1]]
        above = [cp.exp(sum(float(p) * self.write(n.below[0]) for n, p in exps))] if exps else []
        below: list[Any] = []
        for n, p in node.factors:
            if (n, p) not in exps:
                (above if p > 0 else below).append(self._power(n, abs(p)))
        top: Any = above[0] if above else 1.0
        for e in above[1:]:
            top = cp.multiply(top, e)
        for e in below:
            top = top / e
        return top

    def _power(self, n: Node, p: Fraction) -> Any:
        """Return a positive power as it is defined for numbers of any sign: an odd one is a product."""
        base = self.write(n)
        if p.denominator > 1:
            return cp.power(base, float(p), approx=False)
        odd, even = int(p) % 2, None if p == 1 else cp.power(base, float(p - p % 2))
        return even if not odd else base if even is None else cp.multiply(base, even)

    def _logarithm(self, node: Node, low: bool | None) -> Any:
        """Return the logarithm of a function of one entry by those of its parts, None where it has none."""
        a = self.algebra
        if isinstance(node, Call) and node.function == "exp":
            return self.write(node.args[0], low)
        if isinstance(node, Product) and all(
            a.nonnegative(n) and Fraction(float(p)) == p for n, p in node.factors
        ):
            logs = [self._log(n, None if low is None else low == (p > 0)) for n, p in node.factors]
            return sum(float(p) * e for e, (_, p) in zip(logs, node.factors, strict=True))
        if isinstance(node, Sum):
            return self._logarithm_of_sum(node, low)
        return None

    def _log(self, node: Node, low: bool | None) -> Any:
        return self.write(self.algebra.call("log", [node], 1), low)

    def _logarithm_of_sum(self, node: Sum, low: bool | None) -> Any:
        """Return the logarithm of a sum of exponentials and products with some."""
        own = node.constant[node.constant != 0.0]
        parts, numbers = [], [(own, Interval.exactly(own))]
        for M, n in node.parts:
            value = constant_value(n)
            if value is None:
                parts.append((M, n))
            else:  # numbers that were added up elsewhere
                product = Interval.exactly(M.data) * Interval.exactly(value[M.indices])
                numbers.append((M.data * value[M.indices], product))
        count = sum(c.size for c, _ in numbers)
        numbers += [(M.data, Interval.exactly(M.data)) for M, _ in parts]
        c = np.concatenate([each for each, _ in numbers])
        if not c.size or (c <= 0.0).any():  # no terms, or one without a logarithm
            return None
        logs_of = [enclosed.call("log") for _, enclosed in numbers]
        shift = np.concatenate([e.high if low is False else e.low for e in logs_of])
        if low is None and (len(numbers) > 1 + len(parts) or (c != 1.0).any()):
            return None
        if not all(_with_exponentials(n) for _, n in parts):
            return None
        logs = [0.0] * count
        for M, n in parts:
            if isinstance(n, Call):
                logs.append(self._vector(n.args[0], low)[M.indices])
            else:
                logs += [self._log(select(n, [j]), low) for j in M.indices.tolist()]
        each = cp.hstack(logs) + shift
        return cp.reshape(each if c.size == 1 else cp.log_sum_exp(each), (1,), order="F")


def _exponential(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "exp"


def _with_exponentials(node: Node) -> bool:
    """Whether exponentials take part in every term: its logarithm is simpler than it."""
    if isinstance(node, Sum):
        return bool(node.parts) and all(_with_exponentials(n) for n in node.below)
    return any(map(_exponential, node.below if isinstance(node, Product) else (node,)))


def _towards(low: bool | None, coefficients: Any) -> bool | None:
    """Return which way a part may be rounded that is multiplied by these."""
    above = bool((coefficients >= 0.0).all())
    if low is None or not (above or (coefficients <= 0.0).all()):
        return None
    return low == above


_EXTREMES: Mapping[str, Any] = {"of all: maximum": cp.maximum, "of all: minimum": cp.minimum}
_CALLS: Mapping[str, Any] = {
    "exp": cp.exp,
    "abs": cp.abs,
    "xlogx": lambda e: -cp.entr(e),
    "of all: maximum": lambda e: cp.reshape(cp.max(e), (1,), order="F"),
    "of all: minimum": lambda e: cp.reshape(cp.min(e), (1,), order="F"),
}
# Those that grow with their arguments.
_INCREASING = {"exp", *_EXTREMES}


# --- sublevel sets --------------------------------------------------------------------------------


# The least values of quasiconvex atoms.
_LEAST = {"sign": -1.0, "length": 0.0, "dist_ratio": 0.0, "condition_number": 1.0}


def sublevel(e: Any, level: float) -> Any:
    """Return a convex expression that is at most 0 where a quasiconvex atom is at most a level.

    None of other atoms.
    """
    name, args = type(e).__name__, e.args
    if name == "gen_lambda_max":
        return cp.lambda_max(args[0] - level * args[1])
    if level < _LEAST.get(name, -np.inf):
        return cp.Constant(1.0)
    if name == "condition_number":
        return cp.lambda_max(args[0]) - level * cp.lambda_min(args[0])
    if name == "sign":
        return args[0] if level < 1.0 else cp.Constant(0.0)
    if name == "length":
        beyond = int(min(np.floor(level), args[0].size))
        return cp.norm1(args[0][beyond:]) if beyond < args[0].size else cp.Constant(0.0)
    if name != "dist_ratio":
        return None
    s = float(Interval.exactly(np.array(level)).power(Fraction(2)).high)
    return cp.sum_squares(args[0] - e.a) - s * cp.sum_squares(args[0] - e.b)


def sublevel_of(node: Node, level: float) -> Any:
    """Return what is at most 0 where c f + d is at most a level, of a quasiconvex atom f; None else."""
    parts = [t for t in terms_of(node) if t[1] is not ONE]
    if len(parts) != 1 or parts[0][0] <= 0.0 or not isinstance(n := parts[0][1], Opaque):
        return None
    rest = Interval.exactly(np.array(level))
    for d in (d for d, one in terms_of(node) if one is ONE):
        rest = rest - Interval.exactly(np.array(d))
    return sublevel(n.expression, float((rest / Interval.exactly(np.array(parts[0][0]))).high))


def domains(expressions: Iterable[Any]) -> list[Any]:
    """Return what quasiconvex atoms demand that their sublevel sets do not say: of a condition number, its matrix."""
    due, seen, rows = list(expressions), set[int](), list[Any]()
    while due:
        node = due.pop()
        if id(node) in seen:  # a part may stand in many places
            continue
        seen.add(id(node))
        due += getattr(node, "args", ())
        if type(node).__name__ == "condition_number":
            A = node.args[0]
            rows += [] if known_symmetric(A) else [A.T == A]
            rows += [] if A.is_psd() else [A >> 0]
    return rows


def asked(terms: Iterable[Any], domain: Domain) -> list[Node]:
    """Return what functions in terms ask for, each at most 0: x/y - 1 of one_minus_pos(x/y)."""
    sides = (e for t in terms for e in (t.args if isinstance(t, cp.Constraint) else [t]))
    return list(dict.fromkeys(f.node for e in sides for f in demanded(e, domain)))
