"""What the core needs of CVXPY expressions: substitution, evaluation, values of parameters, no NaN."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import BinaryOperator, DivExpression
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.upper_tri import upper_tri
from cvxpy.atoms.atom import Atom
from cvxpy.atoms.gmatmul import gmatmul
from cvxpy.atoms.suppfunc import SuppFuncAtom
from cvxpy.constraints import Equality, ExpCone, Inequality, NonNeg, NonPos, PowCone3D, Zero
from cvxpy.constraints.constraint import Constraint
from cvxpy.expressions.leaf import Leaf
from numpy.typing import NDArray

from optfair.core.problem_class import numeric_of, parts_of
from optfair.errors import DataError, DeclarationError, UnsupportedProblem
from optfair.numbers import Floats, floats

if TYPE_CHECKING:
    from optfair.core.term import Term

Values = Mapping[str, Any]
# Binary digits between numbers from which on sums of them are looked at, and numbers in a term that
# is evaluated by its coefficients, which takes matrices of them.
APART, SUMMED = 24.0, 4_000


def substitute(expression: Any, replacements: Mapping[int, Any]) -> Any:
    """Return a copy of an expression or constraint with leaves replaced, by ``id(leaf)``."""
    if _parametric(expression):
        return rebuilt(expression, dict(replacements))
    try:
        return expression.tree_copy(id_objects=dict(replacements))
    except TypeError:  # a support function is copied by CVXPY without its set
        if not (supports := dict(_supports(expression, replacements))):
            raise
        return expression.tree_copy(id_objects={**replacements, **supports})
    except AssertionError as e:  # CVXPY copies a perspective with its function left out
        raise UnsupportedProblem(
            "a perspective of CVXPY cannot be written in other variables",
            " ".join(str(expression).split())[:200],
            "write s*f(x/s) as it is in cones, such as quad_over_lin(x, s) or rel_entr(s, x)",
        ) from e


def _parametric(node: Any) -> bool:
    """Whether an atom in it has a parameter that is none of its arguments, as huber(x, M) has."""
    data = (node.get_data() or ()) if node.args and isinstance(node, Atom) else ()
    own = any(isinstance(d, cp.Expression) and d.parameters() for d in data)
    return own or isinstance(node, gmatmul) or any(map(_parametric, node.args))


def rebuilt(node: Any, made: dict[int, Any]) -> Any:
    """Return a copy with these leaves replaced, in what atoms have beside their arguments too."""
    if id(node) not in made:
        args = [rebuilt(arg, made) for arg in node.args]
        data = (node.get_data() or ()) if isinstance(node, Atom) else ()
        if isinstance(node, gmatmul):  # which CVXPY cannot copy
            made[id(node)] = cp.exp(node.A @ cp.log(*args))
        elif any(isinstance(d, cp.Expression) for d in data):
            own = (rebuilt(d, made) if isinstance(d, cp.Expression) else d for d in data)
            made[id(node)] = type(node)(*args, *own)
        else:
            made[id(node)] = node.copy(args) if args else node
    return made[id(node)]


def _shaped(e: Any) -> Any:
    """Return what is evaluated in the shapes it declares: CVXPY's upper_tri leaves an axis out."""
    short = [n for n in parts_of(e) if isinstance(n, upper_tri)]
    return substitute(e, {id(n): cp.reshape(n, n.shape, order="F") for n in short}) if short else e


def _supports(node: Any, replacements: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
    """Yield (id, copy) of the support functions in an expression; their arguments are affine."""
    if isinstance(node, SuppFuncAtom):
        yield id(node), SuppFuncAtom(substitute(node.args[0], replacements), node._parent)
    for arg in node.args:
        yield from _supports(arg, replacements)


class Evaluator:
    """Evaluates one expression or constraint at many points, from any thread.

    Expressions, equalities and inequalities are read node by node from arrays; cones on a copy
    with variables of its own, so those of the problem never hold a value. Names are by variable id.
    """

    def __init__(self, expression: Any, names: Mapping[int, str]) -> None:
        self.stated, self.names = _shaped(expression), names
        self._lock = threading.Lock()
        self._copy: Any = None
        self._leaves: dict[Any, str] = {}
        self._parameters: dict[Any, int] = {}
        self._held: Mapping[int, Any] = {}
        self._compares = isinstance(expression, (Equality, Inequality))

    @cached_property
    def _exact(self) -> Any:
        """What is evaluated: as it is stated, but for sums that lose numbers in floats."""
        from optfair.core.coefficients import factors, largest_exponent

        parts = self.stated.args if isinstance(self.stated, Constraint) else [self.stated]
        numbers = sum(c.size for e in parts for c in (e, *e.constants()))
        if numbers > SUMMED or any(e.parameters() for e in parts):
            return self.stated
        if max(map(factors, parts)) * max(map(largest_exponent, parts)) <= APART:
            return self.stated
        from optfair.convexity.powers import exact_sums

        return exact_sums(self.stated)

    @cached_property
    def _steps(self) -> _Steps | None:
        e = self._exact
        roots = e.args if self._compares else () if isinstance(e, Constraint) else (e,)
        steps = _Steps(roots, self.names)
        return steps if roots and steps.known and not any(map(_parametric, roots)) else None

    def holding(self, held: Mapping[int, Any]) -> Evaluator:
        """Return one at values of its parameters by id: of the same nodes, unless sums may lose some."""
        given = {p: np.abs(dense(held[p.id])) for p in self.stated.parameters()}
        sizes = np.concatenate([[1.0], *(v[(v > 0.0) & (v < np.inf)] for v in given.values())])
        if max(sizes.max(), 1.0 / sizes.min()) > 2.0**APART:
            constants = {id(p): cp.Constant(held[p.id]) for p in given}
            return Evaluator(substitute(self.stated, constants), self.names)
        with self._lock:
            if self._steps is None and self._copy is None:
                self._prepare()
        other = copy.copy(self)
        other._held = held
        return other

    def read(self, values: Values, what: Callable[[Any], Any]) -> Any:
        """Return ``what(copy)`` while the variables of the copy hold the values."""
        # outside a domain the value is infinite or NaN, no accident
        with self._lock, np.errstate(all="ignore"):
            if self._copy is None:
                self._prepare()
            try:
                for leaf, i in self._parameters.items():
                    leaf.save_value(self._held[i])
                for leaf, name in self._leaves.items():
                    # unlike ``.value =`` this takes NaN: a broken point must evaluate, not raise
                    leaf.save_value(fitted(values, name, leaf))
                return what(self._copy)
            finally:
                for leaf in (*self._leaves, *self._parameters):
                    leaf.save_value(None)

    def _prepare(self) -> None:
        e, swaps = self._exact, {}
        for variable in e.variables():
            leaf = swaps[id(variable)] = cp.Variable(variable.shape, name=variable.name())
            self._leaves[leaf] = self.names[variable.id]
        for parameter in e.parameters():
            like: Any = {"name": parameter.name(), "nonneg": bool(parameter.is_nonneg())}
            own = swaps[id(parameter)] = cp.Parameter(parameter.shape, **like)
            self._parameters[own] = parameter.id
        self._copy = substitute(e, swaps)

    def sides(self, values: Values) -> tuple[Floats, Floats] | None:
        """Return both sides of an equality or inequality, None of anything else."""
        if not self._compares:
            return None
        if self._steps is None:
            read = self.read(values, lambda e: [side.value for side in e.args])
        else:
            read = self._steps.at(values, self._held)
        return dense(read[0]), dense(read[1])

    def value(self, values: Values) -> Floats:
        """Return the value of an expression: NaN where it has none, as at a singular matrix."""
        try:
            if self._steps is None:
                return np.asarray(self.read(values, lambda e: e.value), dtype=float)
            return dense(self._steps.at(values, self._held)[0])
        except np.linalg.LinAlgError:
            return np.full(self.stated.shape, np.nan)

    def _undefined(self, sides: tuple[Floats, Floats]) -> NDArray[np.bool_]:
        """Return where a side has no finite value that is not affine: a constant may be infinite."""
        lost = np.zeros((), dtype=bool)
        for side, e in zip(sides, self.stated.args, strict=True):
            lost = lost if np.isfinite(side).all() or e.is_affine() else lost | ~np.isfinite(side)
        return lost

    def violation(self, values: Values) -> Floats:
        """Return how far a constraint is violated, elementwise."""
        with np.errstate(all="ignore"):  # as in `read`; and infinity less infinity
            try:
                sides = self.sides(values)
                if sides is None:
                    return np.asarray(np.abs(self.read(values, _violation)), dtype=float)
            except np.linalg.LinAlgError:
                return np.full(self.stated.shape, np.nan)
            over, lost = sides[0] - sides[1], self._undefined(sides)
            over = np.where(lost, np.nan, over) if lost.any() else over
        return np.abs(over) if isinstance(self.stated, Equality) else np.maximum(over, 0.0)


class _Steps:
    """Expressions as a list of steps, every node after its arguments; leaves are only read."""

    def __init__(self, roots: Sequence[Any], names: Mapping[int, str]) -> None:
        self.known = True
        self._cells: list[Any] = []
        self._leaves: list[tuple[int, str, Any]] = []
        self._parameters: list[tuple[int, int]] = []
        self._steps: list[tuple[int, Callable[[list[Any]], Any], tuple[int, ...]]] = []
        self._names = names
        at: dict[int, int] = {}
        self._roots = [self._placed(root, at) for root in roots]

    def _placed(self, node: Any, at: dict[int, int]) -> int:
        """Return the cell of a node, after those of its arguments."""
        if id(node) in at:
            return at[id(node)]
        inner = [] if isinstance(node, Leaf) else [self._placed(arg, at) for arg in node.args]
        cell = at[id(node)] = len(self._cells)
        self._cells.append(None)
        kind = type(node)
        if isinstance(node, cp.Variable):
            self._leaves.append((cell, self._names[node.id], node))
        elif isinstance(node, Leaf) and node.parameters():
            self._parameters.append((cell, node.id))
        elif isinstance(node, Leaf):
            self._cells[cell] = node.value
        elif 0 in node.shape:
            self._cells[cell] = np.array([])
        elif kind.value is Atom.value and kind._value_impl is Atom._value_impl:
            self._steps.append((cell, numeric_of(node), tuple(inner)))
        else:  # one that is evaluated in a way of its own
            self.known = False
        return cell

    def at(self, values: Values, held: Mapping[int, Any]) -> list[Any]:
        """Return the numbers of the roots at values by name, and of parameters by id."""
        cells = self._cells.copy()
        for cell, name, leaf in self._leaves:
            cells[cell] = fitted(values, name, leaf)
        for cell, i in self._parameters:
            cells[cell] = held[i]
        if self._steps:
            with np.errstate(all="ignore"):  # as in `Evaluator.read`
                for cell, numeric, inner in self._steps:
                    try:
                        cells[cell] = numeric([cells[i] for i in inner])
                    except np.linalg.LinAlgError:  # generalized eigenvalues of no definite pair
                        cells[cell] = np.array(np.nan)
        return [cells[i] for i in self._roots]


def fitted(values: Values, name: str, leaf: Any) -> Floats:
    """Return the values of a variable as an array of its shape."""
    given = values[name]
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "fiu" or isinstance(given, np.ma.MaskedArray):
            array = floats(given, f"the value of {name!r}", infinite=True, flags=False)
        return np.asarray(array, dtype=float).reshape(leaf.shape)
    except DataError:
        raise
    except (TypeError, ValueError) as e:
        raise DataError(f"the value of {name!r} does not fit", str(e)) from None


def dense(value: Any, kind: Any = float) -> NDArray[Any]:
    """Return a value of CVXPY, which may be sparse, as an array; of its own kind for None."""
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=kind)


def _violation(constraint: Any) -> Any:
    if isinstance(constraint, (PowCone3D, ExpCone)):
        x, y, z = (np.asarray(arg.value, dtype=float) for arg in constraint.args)
    if isinstance(constraint, PowCone3D):
        # 0 on the cone, a bound on the distance outside: CVXPY solves a program for it, to 1e-9
        power = np.asarray(constraint.alpha.value, dtype=float)
        base = np.maximum(x, 0.0) ** power * np.maximum(y, 0.0) ** (1.0 - power)
        return np.maximum(np.maximum(np.abs(z) - base, 0.0), np.maximum(-x, -y))
    if isinstance(constraint, ExpCone):  # the same for y exp(x / y) <= z
        tiny = np.finfo(float).tiny
        with np.errstate(over="ignore"):
            above = y * np.exp(x / np.maximum(y, tiny)) - z
        return np.maximum(np.where(y > tiny, above, np.maximum(-y, np.maximum(x, -z))), 0.0)
    by_entry = isinstance(constraint, (cp.NonNeg, cp.NonPos, cp.Zero))
    return constraint.residual if by_entry else constraint.violation()


# NaN and infinity in what somebody wrote: refused by name, or a bound that is none.


def refuse_nonfinite(name: str, expression: Any) -> None:
    """Refuse an expression or constraint whose data are not all finite.

    Raises
    ------
    DeclarationError
        Names the term and the first entry that is not finite.
    """
    for _, value in _broken(expression):
        raise _refusal(name, value)


def bounded_rows(name: str, constraint: Any, names: Mapping[int, str]) -> Any:
    r"""Return a constraint with finite data: rows with an infinite bound bound nothing.

    .. math:: f_i(x) \le \infty \;\to\; 0 \cdot f_i(x) \le 1

    Such rows stay, without variables, so that multipliers keep their shape; theirs is 0.

    Parameters
    ----------
    name : str
        Name of the term.
    constraint : cvxpy.Constraint
        What somebody wrote.
    names : mapping
        CVXPY variable id -> name in the problem.

    Raises
    ------
    DeclarationError
        NaN, an infinite coefficient, or a row that can never hold.
    """
    broken = list(_broken(constraint))
    if not broken:
        return constraint
    for _, value in broken:
        if np.isnan(_numbers(value)).any():
            raise _refusal(name, value)
    if not isinstance(constraint, (Equality, Inequality, Zero, NonNeg, NonPos)):
        raise _refusal(name, broken[0][1])
    side = _side(name, constraint, names, broken)
    lasting = constraint.args[0] if isinstance(constraint, (NonNeg, NonPos)) else constraint.expr
    side = np.broadcast_to(side, lasting.shape)
    equality = isinstance(constraint, (Equality, Zero))
    # the side of f <= 0 on which the row always holds
    open_side = np.inf if isinstance(constraint, NonNeg) else -np.inf
    never = np.isinf(side) if equality else side == -open_side
    if never.any():
        place = entry(np.argwhere(never)[0])
        raise DeclarationError(
            f"constraint {name!r} can never hold" + (f" at {place}" if place else ""),
            "its bound there is infinite, on the side no number reaches",
            "give a finite bound, or leave that entry out",
        )
    swaps = {
        id(node): cp.Constant(np.where(np.isfinite(known := dense(value, None)), known, 0.0))
        for node, value in broken  # what is left of a row that stays is finite
    }
    held = np.isfinite(side).astype(float)
    slack = 1.0 - held
    finite = [swaps.get(id(arg)) or substitute(arg, swaps) for arg in constraint.args]
    parts = [cp.multiply(held, arg) for arg in finite]
    if isinstance(constraint, Inequality):
        left, right = parts  # the left one is constant where it was written as >=
        return left - slack <= right if left.is_constant() else left <= right + slack
    if isinstance(constraint, NonNeg):
        return NonNeg(parts[0] + slack)
    return parts[0] <= slack


def entry(place: Any) -> str:
    """Return an index as it is typed, nothing for a scalar."""
    return f"[{', '.join(str(int(i)) for i in place)}]" if len(place) else ""


def _broken(expression: Any) -> Iterator[tuple[Any, Any]]:
    """Iterate over the largest constant parts that are not finite, with their values."""
    seen, stack = set[int](), [expression]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, cp.Constraint) or not node.is_constant():
            stack.extend(reversed(node.args))
            continue
        value = _evaluated(node)
        if value is not None and not np.isfinite(_numbers(value)).all():
            yield node, value


def _evaluated(node: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return node.value
        except (ValueError, ArithmeticError):  # CVXPY says later what is wrong with it
            return None


def _numbers(value: Any) -> Any:
    """Return the stored numbers of an array, dense or sparse."""
    return value.data if hasattr(value, "toarray") else np.asarray(value)


def _refusal(name: str, value: Any) -> DeclarationError:
    if hasattr(value, "toarray"):
        entries = value.tocoo()
        i = int(np.flatnonzero(~np.isfinite(entries.data))[0])
        place, number = [c[i] for c in entries.coords], entries.data[i]
    else:
        dense = np.asarray(value)
        place = np.argwhere(~np.isfinite(dense))[0]
        number = dense[tuple(place)]
    where = f" at {entry(place)}" if len(place) else ""
    word = "NaN" if np.isnan(number) else str(number)
    shape = "x".join(map(str, np.shape(value)))
    return DeclarationError(
        f"{name!r} has {word} in its data",
        f"an array of shape {shape} holds it{where}" if shape else "it stands there as a number",
        "replace or leave out what is missing; infinity is understood as a bound only, as in"
        " x <= numpy.inf",
    )


def _side(
    name: str, constraint: Any, names: Mapping[int, str], broken: list[tuple[Any, Any]]
) -> Any:
    """Return the constant part of f in f <= 0, f >= 0 or f == 0, infinite where it has no bound."""
    first = {id(node): value for node, value in broken}
    signs = (1.0, -1.0) if isinstance(constraint, (Equality, Inequality)) else (1.0,)
    total: Any = 0.0
    for sign, arg in zip(signs, constraint.args, strict=True):
        for turn, summand in _summands(arg):
            inside = [v for node, v in _broken(summand) if id(node) in first]
            if not inside:
                continue
            if not _linear(summand, first):
                raise _refusal(name, inside[0])
            zeros = {names[v.id]: np.zeros(v.shape) for v in summand.variables()}
            value = dense(Evaluator(summand, names).read(zeros, lambda e: e.value), None)
            if np.isnan(value).any():  # infinity times zero: it is a coefficient
                raise _refusal(name, inside[0])
            with np.errstate(invalid="ignore"):
                total = total + sign * turn * value
    if np.isnan(total).any():
        raise _refusal(name, broken[0][1])
    return total


def _linear(e: Any, broken: Mapping[int, Any]) -> bool:
    """Whether an expression is affine as it is written: CVXPY's word takes numbers to be finite."""
    if e.is_constant() or isinstance(e, cp.Variable):
        return True
    if isinstance(e, DivExpression) and id(e.args[1]) in broken:
        return False
    several = isinstance(e, BinaryOperator) and not any(a.is_constant() for a in e.args)
    return isinstance(e, AffAtom) and not several and all(_linear(a, broken) for a in e.args)


def _summands(expression: Any, turn: float = 1.0) -> Iterator[tuple[float, Any]]:
    if isinstance(expression, AddExpression) and not expression.is_constant():
        for arg in expression.args:
            yield from _summands(arg, turn)
    elif isinstance(expression, NegExpression) and not expression.is_constant():
        yield from _summands(expression.args[0], -turn)
    else:
        yield turn, expression


# CVXPY parameters whose values were taken when a term was declared.

# an array with more entries is shown by the one that changed
_SHOWN = 6


@dataclass(frozen=True, eq=False)
class FrozenParameter:
    """A parameter and its value when the term was declared.

    Parameters
    ----------
    parameter : cvxpy.Parameter
        What the user may set to another value afterwards.
    value : array or sparse array
        A copy of what it was.
    given : bool
        Whether the problem was given this value by name: what the parameter holds is then
        nothing to it.
    """

    parameter: Any
    value: Any
    given: bool = False

    @property
    def changed(self) -> bool:
        """Whether the parameter has another value now, or none."""
        if self.given:
            return False
        if (now := _value(self.parameter)) is None or np.shape(now) != np.shape(self.value):
            return True
        if hasattr(now, "toarray") and hasattr(self.value, "toarray"):
            return bool((now != self.value).nnz)
        return not np.array_equal(dense(now, None), dense(self.value, None))

    def difference(self) -> tuple[str, str]:
        """Return the declared and the present value in words, of one entry if there are many."""
        then, now = dense(self.value, None), _value(self.parameter)
        if now is None:
            return _text(then), "nothing"
        now = dense(now, None)
        if then.size <= _SHOWN or now.shape != then.shape:
            return _text(then), _text(now)
        place = tuple(int(i) for i in np.argwhere(now != then)[0])
        return f"{then[place]} at {entry(place)}", f"{now[place]} at {entry(place)}"


@dataclass(eq=False)
class Written:
    """What a term was written as, on parameters, and whether no bound in it was infinite.

    All values of the parameters share it, and its family, once somebody has asked for that.
    """

    expression: Any
    finite: bool
    family: Any = None
    asked: bool = False


def _value(parameter: Any) -> Any:
    """Return the value of a parameter; that of a sparse one without spreading it out."""
    return parameter.value_sparse if parameter.attributes.get("sparsity") else parameter.value


def _text(value: Any) -> str:
    return " ".join(str(value.item() if value.size == 1 else value).split())


def freeze_parameters(
    expression: Any, name: str, given: Mapping[int, Any] | None = None
) -> tuple[Any, tuple[FrozenParameter, ...]]:
    """Return an expression on the values of its parameters, and what these were taken from.

    Parameters
    ----------
    expression : cvxpy.Expression or cvxpy.Constraint
        What somebody wrote.
    name : str
        Name of the term.
    given : dict, optional
        Values by parameter id that the problem was given.

    Raises
    ------
    DeclarationError
        A parameter has no value.
    """
    swaps, frozen = {}, []
    for parameter in expression.parameters():
        own = given is not None and parameter.id in given
        value = given[parameter.id] if given and own else _value(parameter)
        if value is None:
            raise DeclarationError(
                f"parameter {parameter.name()!r} in {name!r} has no value",
                remedy="set its value before the term is declared",
            )
        # a copy: the array may be filled with other numbers afterwards
        value = value.copy() if hasattr(value, "toarray") else np.array(value)
        frozen.append(FrozenParameter(parameter, value, own))
        swaps[id(parameter)] = cp.Constant(value)
    return (substitute(expression, swaps) if swaps else expression), tuple(frozen)


def check_parameters(terms: Iterable[Term]) -> None:
    """Refuse terms whose parameters have other values now than when they were declared.

    Raises
    ------
    DeclarationError
        Names the parameter, the term, and both values.
    """
    seen: set[FrozenParameter] = set()
    for term in terms:
        for frozen in term.parameters:
            if frozen not in seen and frozen.changed:
                name, (then, now) = frozen.parameter.name(), frozen.difference()
                raise DeclarationError(
                    f"parameter {name!r} in {term.name!r} was {then} when the problem was"
                    f" declared, and is {now} now",
                    "a declared problem does not change: it holds the values of its declaration",
                    f"give it the value, p.at({{{name!r}: ...}}), or declare it again with"
                    f" optfair.from_cvxpy(problem), or set {name!r} back",
                )
            seen.add(frozen)
