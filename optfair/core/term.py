"""A named piece of a problem, and the promises about terms that special algorithms rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression, multiply
from cvxpy.atoms.affine.broadcast_to import broadcast_to
from cvxpy.atoms.affine.diag import diag_mat, diag_vec
from cvxpy.atoms.affine.hstack import Hstack
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.promote import Promote
from cvxpy.atoms.affine.reshape import reshape
from cvxpy.atoms.affine.sum import Sum
from cvxpy.atoms.affine.transpose import transpose
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.upper_tri import upper_tri
from cvxpy.atoms.affine.vstack import Vstack
from cvxpy.atoms.elementwise.power import Power
from cvxpy.atoms.quad_form import QuadForm, SymbolicQuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from numpy.typing import NDArray

from optfair.core.expressions import FrozenParameter, Values, Written, dense
from optfair.core.problem_class import Evidence
from optfair.errors import DeclarationError, kind_of
from optfair.numbers import Floats, Indices, check_mapping

# A named piece of a problem: an objective term or a constraint term.


# stands where a function must be given: fields behind those with a default need one
_UNSTATED: Any = None


@dataclass(frozen=True, eq=False)
class Term:
    """What objective and constraint terms share.

    Parameters
    ----------
    name : str
        Unique name within the problem.
    scope : frozenset of str
        Names of the variables it depends on.
    evidence : Evidence
        Its class and why.
    build : callable
        Returns the CVXPY expression or constraint; called only when something compiles.
    latex : str or callable
        The term as printed in notebooks, or a function that writes it: printing an expression
        takes longer than analysing it, and few are printed.
    origin : {"model", "user"}
        Whether the model declared it or somebody added it.
    parameters : tuple of FrozenParameter
        The CVXPY parameters it was written with, and their values at declaration.
    written : Written, optional
        What it was written as on these, for other values of them; none for a term that was
        made of such a one.
    """

    name: str
    scope: frozenset[str]
    evidence: Evidence
    build: Callable[[], Any]
    latex: str | Callable[[], str] = ""
    origin: Literal["model", "user"] = "model"
    parameters: tuple[FrozenParameter, ...] = ()
    written: Written | None = None

    # the field that evaluates the term, and what it looks like
    _evaluation: ClassVar[tuple[str, str]]

    def __post_init__(self) -> None:
        """Refuse a term that cannot be evaluated: it would hold, or cost nothing, everywhere."""
        word, shape = self._evaluation
        if not callable(getattr(self, word)):
            raise DeclarationError(
                f"{self.name!r} has no {word}: no point could be checked on it",
                f"{kind_of(self)} is evaluated in NumPy by what stands in {word!r}",
                f"give {word}=lambda values: {shape}, or let it be derived:"
                " optfair.core.composition has constraint_term and objective_term",
            )

    @property
    def formula(self) -> str:
        """The term in LaTeX: as it was given, else its name."""
        written = self.latex if isinstance(self.latex, str) else self.latex()
        return written or rf"\text{{{self.name}}}"

    def __repr__(self) -> str:
        return str(self.evidence)


@dataclass(frozen=True, eq=False, repr=False)
class ObjectiveTerm(Term):
    """A summand of the objective; ``value(values)`` evaluates it in NumPy, and must be given."""

    _evaluation = "value", "float(...)"

    value: Callable[[Values], float] = _UNSTATED

    def number(self, values: Values) -> float:
        """Return the value as a float, whatever shape of one entry the model returns."""
        array = np.asarray(_evaluated(self.value, values), dtype=float)
        if array.size != 1:
            raise DeclarationError(
                f"value of {self.name!r} has the shape {array.shape}, not one number",
                remedy="add its entries up",
            )
        return float(array.item())


@dataclass(frozen=True, eq=False, repr=False)
class ConstraintTerm(Term):
    """A constraint; ``violation(values)`` evaluates it in NumPy.

    Parameters
    ----------
    violation : callable
        Returns how far values are outside, elementwise (0 when satisfied); must be given.
    shape : tuple of int
        Shape of the multiplier.
    scale : float or array
        Size of the right-hand side, of each entry where they differ.
    rows : callable, optional
        Builds the CVXPY constraint of some rows only, given by their indices, for a term of so
        many rows that few of them are ever active. ``violation`` then returns one number per
        row; a row is an entry of an equality or inequality, or a second-order cone.
    labels : callable, optional
        Returns the names of the entries, column by column, where they have names of their own.
    numbers : callable, optional
        Returns what it builds, where that is linear: whether its rows b - A x are 0, or at least 0,
        then (variable, rows, positions in it, entries) of A by variable, and b.
    limit : object, optional
        A number that a rule had to guess to write the term, which must not decide the answer:
        the model that reads it asks again with a larger one (`Problem.solved_by`).
    """

    _evaluation = "violation", "numpy.maximum(..., 0.0)"

    violation: Callable[[Values], Floats] = _UNSTATED
    shape: tuple[int, ...] = ()
    scale: Any = 0.0
    rows: Callable[[NDArray[np.intp]], Any] | None = None
    labels: Callable[[], Sequence[str]] | None = None
    numbers: Callable[[], tuple[bool, Sequence[Any], Floats]] | None = None
    limit: Any = None

    @cached_property
    def largest_side(self) -> float:
        """Size of the largest finite right-hand side."""
        sizes = np.asarray(self.scale, dtype=float)
        return float(sizes[np.isfinite(sizes)].max(initial=0.0))

    def row_violations(self, values: Values) -> Floats:
        """Return how far every row is outside, relative to its own right-hand side where it is known."""
        outside = np.ravel(np.asarray(_evaluated(self.violation, values), dtype=float))
        sides, most = np.ravel(np.asarray(self.scale, dtype=float)), 1.0 + self.largest_side
        own = np.where(sides > 0.0, sides, most) if sides.size == outside.size else most
        return np.asarray(outside / own)

    def relative_violation(self, values: Values) -> float:
        """Return the largest violation relative to 1 + the size of the right-hand side."""
        return self.violations(values)[0]

    def violations(self, values: Values, unit: Any = 1.0, side: Any = None) -> tuple[float, float]:
        """Return the largest violation, measured in two ways.

        Parameters
        ----------
        values : mapping
            Values by variable name.
        unit : float or array
            Size of a number in the data of the problem, at most 1; or of each entry.
        side : float or array, optional
            Size of the right-hand side, where it is not the one that was declared.

        Returns
        -------
        tuple of float
            Relative to the (least) unit + the largest right-hand side of the term; and each entry
            relative to the unit + its own right-hand side.
        """
        outside = np.asarray(_evaluated(self.violation, values), dtype=float)
        if not outside.size and 0 not in self.shape:
            raise DeclarationError(
                f"violation of {self.name!r} returned no number",
                f"the term has the shape {self.shape}: nothing says whether it holds",
                "return one number an entry, 0 where it holds",
            )
        worst = float(outside.max(initial=0.0))
        if not np.isfinite(worst):
            return np.inf, np.inf
        if worst == 0.0:
            return 0.0, 0.0
        own = np.asarray(self.scale if side is None else side, dtype=float)
        most = self.largest_side if side is None else float(own.max(initial=0.0))
        if own.ndim and own.shape != outside.shape:
            own = np.asarray(own.max(initial=0.0))
        unit = np.asarray(unit, dtype=float)
        if unit.ndim and unit.shape != outside.shape:
            unit = np.asarray(unit.max(initial=0.0))
        each = outside / (unit + own)
        return worst / (float(unit.min(initial=1.0)) + most), float(each.max())


def _evaluated(function: Callable[[Values], Any], values: Values) -> Any:
    """Return what a term says at values by name."""
    try:
        return function(check_mapping(values, "values"))
    except KeyError as e:
        raise DeclarationError(
            f"there is no value of {e.args[0]!r}", remedy="give one of every variable"
        ) from None


def of_family(names: Iterable[str], label: str) -> tuple[str, ...]:
    """Return the names that are this one, or stand for a part of it."""
    return tuple(name for name in names if within(name, label))


def within(name: str, label: str) -> bool:
    """Whether a name is this one, or stands for a part of it.

    Examples
    --------
    >>> within("fairness.1.lower", "fairness.1"), within("fairness.10", "fairness.1")
    (True, False)
    """
    return f"{name}.".startswith(f"{label}.")


def by_part(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, item) of what a list holds, of lists within it too, or of the one item given.

    Examples
    --------
    >>> dict(by_part("a", ["x", ["y", "z"]])), dict(by_part("a", ["x"]))
    ({'a.0': 'x', 'a.1.0': 'y', 'a.1.1': 'z'}, {'a': 'x'})
    """
    if not isinstance(item, (list, tuple)) or not item:
        yield name, item
        return
    for i, each in enumerate(item):
        yield from by_part(f"{name}.{i}" if len(item) > 1 else name, each)


def family(name: str) -> str:
    """Return the name a user gave: a rule that makes several terms calls them ``name.part``."""
    return name.partition(".")[0]


# Whether an expression is a quadratic polynomial in its variables.


def is_quadratic(expression: Any) -> bool:
    """Return whether an expression is a polynomial of degree at most 2.

    CVXPY's own word does not do: it calls ``sum_squares(x) * t``, a cubic, quadratic, and
    ``huber(x)``, which is quadratic in the middle only.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x, t = cp.Variable(2), cp.Variable()
    >>> expression = cp.sum_squares(x) * t
    >>> expression.is_quadratic(), is_quadratic(expression)
    (True, False)
    """
    return degree(expression, {}) <= 2


def degree(e: Any, known: dict[int, float]) -> float:
    """Return a bound on the degree of a polynomial, infinity for anything else.

    What cancels is counted: x³ - x³ has degree 3. What is ``known`` is of nodes by id.
    """
    if id(e) not in known:
        known[id(e)] = _of(e, known)
    return known[id(e)]


def _of(e: Any, known: dict[int, float]) -> float:
    if e.is_constant():
        return 0
    if isinstance(e, cp.Variable):
        return 1

    def arg(i: int) -> float:
        return degree(e.args[i], known)

    if isinstance(e, DivExpression):
        return arg(0) if e.args[1].is_constant() else math.inf
    if isinstance(e, MulExpression):  # elementwise products among them
        return arg(0) + arg(1)
    if isinstance(e, AffAtom):
        return max(degree(a, known) for a in e.args)
    if isinstance(e, Power):
        p = float(getattr(e.p, "value", e.p))
        return p * arg(0) if p >= 0 and p.is_integer() else math.inf
    if isinstance(e, (quad_over_lin, QuadForm)):
        return 2 * arg(0) if e.args[1].is_constant() else math.inf
    return 1 if e.is_affine() else math.inf  # last: CVXPY searches eigenvalues of forms


# Where an expression adds up several numbers.

# Atoms that put every entry of their arguments into one place, with another factor maybe.
PLACED: tuple[type, ...] = (
    *(AddExpression, NegExpression, index, special_index, reshape, multiply, DivExpression),
    *(Hstack, Vstack, transpose, diag_vec, diag_mat, upper_tri),
)


def adds(e: Any, seen: dict[Any, Any], *, inside: bool = False) -> bool:
    """Whether an entry of a quadratic may be a sum of several numbers of one column, or product.

    It is where something is met twice, or what puts one number into several entries is inside what
    adds entries up.
    """
    if e.is_constant():
        value: Any = e.value
        some = bool((value != 0).sum())
        again = some and CONSTANT_ID in seen
        seen |= {CONSTANT_ID: True} if some else {}
        return again
    if (known := shown(e)) is not None:
        x, at = known
        met = seen.setdefault(x, np.zeros(e.variables()[0].size, dtype=bool))
        again = bool(met[at].any())
        met[at] = True
        return again
    if inside and not (type(e) in PLACED or type(e) is Sum):
        return True
    if triangle(e) is not None:  # it adds up the halves of entries that are the same
        return adds(e.args[1], seen)
    moved = e.args if isinstance(e, AddExpression) else [a for a in e.args if not a.is_constant()]
    multiplied = len(moved) > 1 and isinstance(e, (MulExpression, DivExpression))
    if not e.is_affine() and (multiplied or type(e) not in PLACED):
        pair = _different_products(e, moved)
        again, seen[pair] = not pair or pair in seen, True
        return again
    inside = inside or type(e) not in (*PLACED, Promote, broadcast_to)
    return any(adds(arg, seen, inside=inside) for arg in moved)


def _different_products(e: Any, args: list[Any]) -> tuple[int, ...]:
    """Return the variables of a square or product all of whose products differ; of others none."""
    places = [p for a in args if a.ndim < 2 and (p := shown(a)) is not None]
    alike = len(places) == len(args) < 3 and len({p[1].tobytes() for p in places}) == 1
    if not alike or not isinstance(e, (Power, quad_over_lin, MulExpression)):
        return ()
    return min(p[0] for p in places), max(p[0] for p in places)


def triangle(e: Any) -> Any:
    """Return the matrix that takes a triangle as CVXPY does, half of each half; None of others."""
    if type(e) is not MulExpression or type(e.args[1]) is not reshape:
        return None
    M: Any = e.args[0].value if e.args[0].is_constant() else None
    n = e.args[1].args[0].shape[-1:]
    if getattr(M, "format", "") != "csc" or e.args[1].args[0].shape != 2 * n or not n:
        return None
    known = M.shape[0] == n[0] * (n[0] + 1) // 2 and (np.diff(M.indptr) == 1).all()
    return M if known and (M.data > 0.0).all() else None


def shown(e: Any) -> tuple[int, Indices] | None:
    """Return a variable and the positions in it that an expression shows, column by column."""
    if isinstance(e, cp.Variable):
        return e.id, np.arange(e.size)
    if type(e) in (index, special_index) and (seen := _selected(e.args[0])) is not None:
        variable, inside = seen
        shape = e.args[0].shape
        place = np.ravel(e.numeric([inside.reshape(shape, order="F")]), order="F")
        plain = type(e) is index and isinstance(e.args[0], cp.Variable)
        return (variable, place) if plain or np.unique(place).size == place.size else None
    return None


def _selected(e: Any) -> tuple[int, Indices] | None:
    """Return a variable and what places of it an expression has, also more than once.

    That is how a symmetric matrix has the entries of its triangle.
    """
    if isinstance(e, cp.Variable):
        return e.id, np.arange(e.size)
    if type(e) is reshape and e.order == "F":
        return _selected(e.args[0])
    if type(e) is MulExpression and isinstance(e.args[1], cp.Variable) and e.args[0].is_constant():
        M: Any = e.args[0].value
        sparse = not isinstance(M, np.ndarray) and hasattr(M, "nnz")
        if sparse and (M.nnz, M.shape[1]) == (M.shape[0], e.args[1].size):
            rows: Any = sp.csr_array(M)
            if (rows.data == 1.0).all() and (np.diff(rows.indptr) == 1).all():
                return e.args[1].id, rows.indices.astype(np.intp)
    return None


# Entry of the result, of the left and the right factor, weight; and what all is divided by.
Factors = tuple[Any, Any, Any, Any, float]


def products_of(e: Any) -> Factors | None:
    """Return the products that the entries of a product, a square or a quadratic form add up.

    The factors are entries of the first argument, the right one of the second where that varies.
    """

    def entries(i: int) -> Indices:
        return count_of(e.args[i].shape)

    out = count_of(e.shape)
    if isinstance(e, MulExpression):
        if any(a.is_constant() for a in e.args):
            return None
        if isinstance(e, multiply):
            left, right = (np.broadcast_to(entries(i), e.shape) for i in (0, 1))
            return out, left, right, 1.0, 1.0
        return *matrix_product(out, entries(0), entries(1)), 1.0, 1.0
    if isinstance(e, Power):
        return (out, out, out, 1.0, 1.0) if power_of(e) == 2.0 else None
    if isinstance(e, quad_over_lin) and e.args[1].is_constant():
        inside = entries(0)
        total = out if e.axis is None or e.keepdims else np.expand_dims(out, e.axis)
        below = float(np.squeeze(dense(e.args[1].value)))
        return np.broadcast_to(total, inside.shape), inside, inside, 1.0, below
    if isinstance(e, QuadForm) and e.args[1].is_constant():
        form = sp.coo_array(e.args[1].value)
        return np.zeros(form.nnz, dtype=np.int64), form.row, form.col, form.data, 1.0
    if isinstance(e, SymbolicQuadForm) and e.args[1].is_constant():
        form = sp.coo_array(e.args[1].value)
        return _output_of(e, form)[form.row], form.row, form.col, form.data, 1.0
    return None


def _output_of(e: Any, form: Any) -> Indices:
    """Return which entry of a reduced square, or sum of squares, each row of its matrix adds to."""
    if e.block_indices is None:  # one number, or entry by entry
        each: Indices = count_of((form.shape[0],)) * (e.size > 1)
        return each
    entry = np.zeros(form.shape[0], dtype=np.int64)
    for k, inside in enumerate(e.block_indices):
        entry[inside] = k
    return entry


def power_of(e: Any) -> float:
    """Return the exponent of a power."""
    return float(getattr(e.p, "value", e.p))


def count_of(shape: tuple[int, ...]) -> Indices:
    """Return the position of each entry, column by column."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape, order="F")


def matrix_product(out: Indices, left: Indices, right: Indices) -> tuple[Indices, Indices, Indices]:
    """Return for every scalar product in left @ right (entry of the result, left, right)."""
    a = left[None, :] if left.ndim == 1 else left
    b = right[:, None] if right.ndim == 1 else right
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], a.shape[-1], b.shape[-1])
    # out has the axes of the result only: put back those a vector does not have
    full = out.reshape((*batch, a.shape[-2], 1, b.shape[-1])) if out.ndim != 2 else out[:, None, :]
    return (
        np.broadcast_to(full, shape),
        np.broadcast_to(a[..., None], shape),
        np.broadcast_to(b[..., None, :, :], shape),
    )


def constant_numbers(e: Any) -> NDArray[Any]:
    """Return the numbers of a constant."""
    value: Any = e.value
    return np.asarray(value.data if hasattr(value, "toarray") else value)


def is_whole(e: Any) -> bool:
    """Whether all numbers of an expression are whole: sums below 2**53 are exact in floats."""
    if isinstance(e, cp.Variable):
        return True
    if e.is_constant():
        data = constant_numbers(e)
        return bool(np.isrealobj(data) and (np.rint(data) == data).all())
    divided = isinstance(e, (DivExpression, quad_over_lin))
    return all(map(is_whole, e.args)) and not (divided and (dense(e.args[1].value) != 1.0).any())
