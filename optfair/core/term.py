"""A named piece of a problem, and the promises about terms that special algorithms rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
from cvxpy.atoms.elementwise.power import Power, PowerApprox
from cvxpy.atoms.geo_mean import GeoMeanApprox
from cvxpy.atoms.pnorm import PnormApprox
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.constraints import Equality, Inequality
from numpy.typing import NDArray

from optfair.core.expressions import Evaluator, Values, dense, fitted
from optfair.core.problem_class import Evidence
from optfair.errors import DeclarationError, kind_of
from optfair.numbers import Floats, check_mapping

if TYPE_CHECKING:
    from optfair.core.expressions import FrozenParameter, Written

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

    def violations(self, values: Values, unit: Any = 1.0) -> tuple[float, float]:
        """Return the largest violation, measured in two ways.

        Parameters
        ----------
        values : mapping
            Values by variable name.
        unit : float or array
            Size of a number in the data of the problem, at most 1; or of each entry.

        Returns
        -------
        tuple of float
            Relative to 1 + the largest right-hand side of the term; and each entry relative to
            the unit + its own right-hand side.
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
        own = np.asarray(self.scale, dtype=float)
        if own.ndim and own.shape != outside.shape:
            own = np.asarray(own.max(initial=0.0))
        unit = np.asarray(unit, dtype=float)
        if unit.ndim and unit.shape != outside.shape:
            unit = np.asarray(unit.max(initial=0.0))
        each = outside / (unit + own)
        return worst / (1.0 + self.largest_side), float(each.max())


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
    return tuple(name for name in names if label in (name, family(name)))


def family(name: str) -> str:
    """Return the name a user gave: a rule that makes several terms calls them ``name.part``."""
    return name.partition(".")[0]


# A structure is a promise about a problem's terms that a special algorithm relies on.


@dataclass(frozen=True)
class Structure:
    """Which terms a special algorithm needs and which it tolerates.

    Parameters
    ----------
    name : str
        Name that solver profiles refer to.
    needs : tuple of str
        Model terms that must be present.
    tolerates : frozenset of str or None
        Variables that further convex terms may use; none when empty, any for None.
    stranger : str
        How a term outside is described: "'share' is not a marginal".
    rows : bool
        Whether some term must be one that can be built row by row.
    proof : bool
        Whether some term must be one that is proved beyond composition rules; with integers, one
        of exponential or power cones does as well.
    integers : bool
        Whether variables may be integer.
    """

    name: str
    needs: tuple[str, ...]
    tolerates: frozenset[str] | None
    stranger: str
    rows: bool = False
    proof: bool = False
    integers: bool = False

    def refusal(
        self,
        objective: Iterable[ObjectiveTerm],
        constraints: Iterable[ConstraintTerm],
        integers: Iterable[str],
    ) -> str:
        """Return why the structure is lost, or an empty string while it stands."""
        terms = [*objective, *constraints]
        present = {t.name for t in terms if t.origin == "model"}
        missing = [name for name in self.needs if name not in present]
        if missing:
            return f"{missing[0]!r} was removed"
        if self.rows and not any(getattr(t, "rows", None) for t in terms):
            return "no term of it is built row by row"
        whole = sorted(integers)
        if self.proof and not any(t.evidence.proof is not None for t in terms):
            cones = frozenset[str]().union(*(t.evidence.problem_class.cones for t in terms))
            if not (whole and self.integers and cones & {"exp", "pow"}):
                return "composition rules decide every term of it"
        if whole and not self.integers:
            return f"{whole[0]!r} is integer"
        for term in terms:
            if term.name in self.needs:
                continue
            if self.tolerates is not None and not term.scope <= self.tolerates:
                return f"{term.name!r} is not {self.stranger}"
            if not term.evidence.problem_class.convex:
                return f"{term.name!r} is not known to be convex"
        return ""


#: Terms proved convex beyond composition rules, beside any other convex terms.
PROVED_TERMS = Structure("proved-terms", (), None, "", proof=True, integers=True)

#: Terms of many rows that are generated as they are needed, beside any other convex terms.
LAZY_ROWS = Structure("many-rows", (), None, "", rows=True)


# Rows of one number each, every one a constraint of its own: measured together.

# Rows on one variable from which on they are one product.
SEVERAL = 8


@dataclass(frozen=True, eq=False)
class _Row:
    """Coefficients times a vector of variables is at most, or equal to, a constant."""

    variable: str
    leaf: Any
    coefficients: Floats
    constant: float
    equal: bool


def _row(t: ConstraintTerm) -> _Row | None:
    """Return the numbers of a row that is written ``a @ x <= b``, None of anything else."""
    evaluator = getattr(t.violation, "__self__", None)
    if not isinstance(evaluator, Evaluator) or np.ndim(t.scale):
        return None
    if "row" not in evaluator.__dict__:  # problems share their terms
        evaluator.__dict__["row"] = _read(evaluator.stated, evaluator.names)
    row: _Row | None = evaluator.__dict__["row"]
    return row


def _read(e: Any, names: Mapping[int, str]) -> _Row | None:
    row = scalar_row(e) if isinstance(e, (Equality, Inequality)) and not e.shape else None
    return row and _Row(names[row[0].id], *row, isinstance(e, Equality))


def scalar_row(e: Any) -> tuple[Any, Floats, float] | None:
    """Return x, a and b of a row that is written ``a @ x <= b``, as most are, else None."""
    for body, side, sign in zip(e.args, e.args[::-1], (1.0, -1.0), strict=True):
        if type(body) is MulExpression and isinstance(side, cp.Constant):
            a, x = body.args
            plain = isinstance(a, cp.Constant) and isinstance(x, cp.Variable) and a.shape == x.shape
            if plain and not (a.is_complex() or side.is_complex()):
                return x, sign * dense(a.value), sign * float(dense(side.value).item())
    return None


class ScalarRows:
    r"""Constraints :math:`a_i^T x \le b_i`, :math:`\ge` or :math:`=` that somebody wrote one by one.

    Parameters
    ----------
    terms : mapping
        Constraints by name; those that are written in another way are left out.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> rows = [np.array([1.0, i]) @ x <= i for i in range(9)]
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    >>> found = ScalarRows(p.constraints).violations({"x": np.array([1.0, 2.0])})
    >>> len(found), [float(v) for v in found["c1"]]
    (9, [1.0, 1.0])
    """

    def __init__(self, terms: Mapping[str, ConstraintTerm]) -> None:
        groups: dict[Any, list[tuple[str, Any, float]]] = {}
        for name, t in terms.items() if len(terms) >= SEVERAL else ():
            row = _row(t)
            if row is not None:
                groups.setdefault((row.variable, row.leaf.shape), []).append((name, row, t.scale))
        self._groups = [
            (
                rows[0][1],
                [name for name, _, _ in rows],
                np.array([row.coefficients for _, row, _ in rows]),
                np.array([row.constant for _, row, _ in rows]),
                np.array([row.equal for _, row, _ in rows]),
                np.array([scale for _, _, scale in rows], dtype=float),
            )
            for rows in groups.values()
            if len(rows) >= SEVERAL
        ]

    def violations(self, values: Values, unit: float = 1.0) -> dict[str, tuple[float, float]]:
        """Return what `ConstraintTerm.violations` does, by name."""
        by_name: dict[str, tuple[float, float]] = {}
        for first, names, A, b, equal, scale in self._groups:
            if first.variable not in values:
                continue
            x = fitted(values, first.variable, first.leaf)
            with np.errstate(all="ignore"):
                over = A @ x - b
                outside = np.where(equal, np.abs(over), np.maximum(over, 0.0))
                finite = np.isfinite(outside)
                side = np.where(np.isfinite(scale), scale, 0.0)
                loose = np.where(finite, outside / (1.0 + side), np.inf)
                own = np.where(outside > 0.0, outside / (unit + scale), 0.0)
            own = np.where(finite, own, np.inf)
            by_name |= zip(names, zip(loose.tolist(), own.tolist(), strict=True), strict=True)
        return by_name


# The functions of an expression, and its degree as a polynomial in its variables.


def exact_functions(written: Any) -> Any:
    """Return an expression or constraint with the exponents, weights and logarithms it was given.

    CVXPY takes fractions near exponents and weights, and quadratures: bounds would be of these.

    Examples
    --------
    >>> import cvxpy as cp
    >>> norm = cp.pnorm(cp.Variable(2), 3.0004883)
    >>> print(norm.p, exact_functions(norm).p)
    3 3.0004883
    """
    args = [exact_functions(arg) for arg in written.args]
    if isinstance(written, PowerApprox) and written.p_used is not None and written.approx_error:
        return cp.power(args[0], written.p.value, approx=False)
    if isinstance(written, (PnormApprox, GeoMeanApprox)):
        shape = {"axis": written.axis, "keepdims": written.keepdims, "approx": False}
        if isinstance(written, PnormApprox) and _apart(written.p, written.original_p):
            return cp.pnorm(args[0], written.original_p, **shape)
        if isinstance(written, GeoMeanApprox):
            weights = np.zeros(written._keep.size)
            weights[written._keep] = written.p
            if _apart(written.w, weights[written._keep] / weights.sum()):
                return cp.geo_mean(args[0], weights, **shape)
    if isinstance(written, cp.von_neumann_entr) and written.quad_approx:
        return cp.von_neumann_entr(args[0])
    same = all(new is old for new, old in zip(args, written.args, strict=True))
    return written if same else written.copy(args)


def _apart(used: Any, given: Any) -> bool:
    """Whether numbers differ from given ones by more than these were rounded."""
    used, given = np.asarray(used, dtype=float), np.asarray(given, dtype=float)
    return bool((np.abs(used - given) > 4.0 * np.finfo(float).eps * np.abs(given)).any())


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
    return degree(expression) <= 2


def degree(expression: Any) -> float:
    """Return a bound on the degree of a polynomial, infinity for anything else.

    What cancels is counted: x³ - x³ has degree 3.

    Parameters
    ----------
    expression : cvxpy.Expression
        Any expression.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(3)
    >>> [degree(e) for e in (cp.sum(x) + 1, x @ x, (x @ x) * x[0], cp.norm(x))]
    [1, 2, 3, inf]
    """
    return _degree(expression, {})


def _degree(e: Any, known: dict[int, float]) -> float:
    if id(e) not in known:
        known[id(e)] = _of(e, known)
    return known[id(e)]


def _of(e: Any, known: dict[int, float]) -> float:
    if e.is_constant():
        return 0
    if e.is_affine():
        return 1

    def arg(i: int) -> float:
        return _degree(e.args[i], known)

    if isinstance(e, DivExpression):
        return arg(0) if e.args[1].is_constant() else math.inf
    if isinstance(e, MulExpression):  # elementwise products among them
        return arg(0) + arg(1)
    if isinstance(e, AffAtom):
        return max(_degree(a, known) for a in e.args)
    if isinstance(e, Power):
        p = float(getattr(e.p, "value", e.p))
        return p * arg(0) if p >= 0 and p.is_integer() else math.inf
    if isinstance(e, (quad_over_lin, QuadForm)):
        return 2 * arg(0) if e.args[1].is_constant() else math.inf
    return math.inf
