"""A primal-dual pair of the compiled form, checked by its residuals, and the line it puts under the optimal value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.form import Compiled, compile_problem
from optfair.compile.sums import Sums
from optfair.core.canonical import built
from optfair.core.certificate import UNKNOWN, Certificate, DualCheck, DualProof, Verdict, drift
from optfair.core.expressions import Values
from optfair.errors import UnsupportedProblem
from optfair.numbers import Floats, check_number
from optfair.proofs import check_proof
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.cones import Cone, largest_entry
from optfair.proofs.portable import form_record, ratio
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import CLEAR

if TYPE_CHECKING:
    from optfair.core.problem import Problem


# A line under the optimal value along a segment of right-hand sides, from one pair of multipliers.
#
# For :math:`v(t) = \min_x \{f(x) + c t : b_0 + t b_1 - A x \in K\}` put t among the columns:
#
# .. math:: v(t) \ge s t + \min_{x, t} \{f(x) + (c - s) t : b_0 + t b_1 - A x \in K,\; l \le t \le u\}.
#
# The minimum is bounded like that of any cone program, so the line holds on the whole segment.

# What a right-hand side on the segment may be off the line between its ends, of their size: it
# is rounded twice at every t.
ROUNDED = 64.0 * np.finfo(float).eps


@dataclass(frozen=True)
class ValueLine:
    """``value + slope * (t - start)`` bounds the optimal value of the minimisation from below.

    Attributes
    ----------
    start, value, slope : float
        The line.
    sound : bool
        Whether it is proved, not only near the origin.
    """

    start: float
    value: float
    slope: float
    sound: bool

    def __call__(self, t: float) -> float:
        """Return the line at t, rounded down."""
        step = self.slope * (t - self.start)
        off = 4.0 * np.finfo(float).eps * (abs(step) + abs(self.value))
        return float(self.value + step - off)


def same_rows(one: ConicForm, other: ConicForm) -> bool:
    """Whether two forms differ in right-hand sides and constants at most."""
    return (
        one.cones == other.cones
        and np.array_equal(one.q, other.q)
        and all(_equal(getattr(one, k), getattr(other, k)) for k in ("A", "P"))
    )


def _equal(one: Any, other: Any) -> bool:
    return one is other or (one.shape == other.shape and abs(one - other).max() == 0.0)


def value_line(
    ends: tuple[ConicForm, ConicForm],
    low: float,
    high: float,
    z: Floats,
    bound: Callable[[ConicForm, Floats, Floats], LowerBound],
) -> ValueLine | None:
    """Return the line that multipliers prove between two right-hand sides.

    Parameters
    ----------
    ends : tuple of ConicForm
        The program at both ends of the segment; their rows are the same.
    low, high : float
        The parameter there.
    z : array (m,)
        Multipliers at some point of the segment.
    bound : callable
        (form, columns, rows) -> what is proved of a form with further columns behind those of the
        program and further rows behind its rows: zeros, one for each.

    Returns
    -------
    ValueLine or None
        None where nothing is proved, or the rows differ.
    """
    first, last = ends
    if not same_rows(first, last) or not high > low:
        return None
    m = first.A.shape[0]
    move = (last.b - first.b) / (high - low)
    rate = (last.offset - first.offset) / (high - low)
    reach = max(abs(low), abs(high))
    size = np.abs(first.b) + np.abs(last.b) + np.abs(move) * reach
    moved = np.flatnonzero(move)
    slack = ROUNDED * size[moved]
    k = moved.size
    up = sp.csr_array((np.ones(k), (moved, np.arange(k))), shape=(m, k))
    t_column = sp.csr_array((-move[moved], (moved, np.zeros(k, dtype=int))), shape=(m, 1))
    unit, eye = sp.csr_array([[1.0]]), sp.eye_array(k, format="csr")
    A = sp.csc_array(
        sp.block_array(
            [
                [first.A, t_column, up],
                [None, unit, None],
                [None, -unit, None],
                [None, None, eye],
                [None, None, -eye],
            ]
        )
        if k
        else sp.block_array([[first.A, t_column], [None, unit], [None, -unit]])
    )
    b = np.concatenate([first.b, [high - low, 0.0], slack, slack])
    slope = rate - float(move @ z)
    form = replace(
        first,
        A=A,
        b=b,
        P=sp.csc_array(sp.block_diag([first.P, sp.csc_array((1 + k, 1 + k))])),
        q=np.concatenate([first.q, [rate - slope], np.zeros(k)]),
        cones=(*first.cones, Cone("nonneg", m, m + 2 + 2 * k)),
    )
    proved = bound(form, np.zeros(1 + k), np.zeros(2 + 2 * k))
    if not np.isfinite(proved.value):
        return None
    off = ROUNDED * (abs(first.offset) + abs(last.offset) + abs(rate) * reach)
    return ValueLine(low, float(proved.value - off), slope, proved.unpaid is None)


# A primal-dual pair of the compiled form, checked by its residuals.


@dataclass(frozen=True, eq=False)
class ConicProof:
    """A primal-dual pair of the compiled cone program, checked by its residuals.

    The named values and multipliers must be the image of (x, z); stationarity,
    feasibility and complementarity of (x, z) are recomputed from the compiled data. The bound is
    the best there is for a tolerance of 0, else one that `is_enough`.
    """

    problem: Problem
    compiled: Compiled
    x: Floats
    z: Floats
    source: str = "duality"
    tolerance: float = 0.0

    def __repr__(self) -> str:
        sizes = f"{self.x.size} columns, {self.z.size} rows of {self.compiled.interface.name()}"
        return f"ConicProof of {self.problem.title} by {self.source}: {sizes}"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound from the compiled data."""
        ours, duals = self.compiled.by_name(self.x, self.z)
        apart = max(drift(values, ours), drift(multipliers, duals))
        form = self.compiled.form
        enough = is_enough(self.problem, form, self.x, self.tolerance)
        check = form_check(form, self.x, self.z, apart, enough)
        if check.unit >= SUMMED:
            return check
        return replace(check, unit=max(check.unit, SUMMED * largest_terms(self.problem, self.x)))

    def entry_sizes(self, name: str, values: Values, stated: Any = None) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        return self.compiled.entry_sizes(name, values, stated)

    def line(self, ends: tuple[Problem, Problem], low: float, high: float) -> ValueLine | None:
        """Return the line under the optimal value between two values of a parameter."""
        name, quadratic = self.compiled.interface.name(), self.compiled.quadratic
        first, last = (compile_problem(p, name, quadratic=quadratic).form for p in ends)
        if first.A.shape != self.compiled.form.A.shape:
            return None

        def bound(form: ConicForm, columns: Floats, rows: Floats) -> LowerBound:
            x, z = np.concatenate([self.x, columns]), np.concatenate([self.z, rows])
            return lower_bound(form, x, z)

        return value_line((first, last), low, high, self.z, bound)

    def __reduce__(self) -> Any:
        facts, arrays = self.stored()
        return conic_proof, (self.problem, facts, arrays["x"], arrays["z"])

    def stored(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return what `conic_proof` makes this proof of again: facts for JSON, and arrays."""
        facts = {"interface": self.compiled.interface.name(), "quadratic": self.compiled.quadratic}
        return facts | {"tolerance": self.tolerance}, {"x": self.x, "z": self.z}


@dataclass(frozen=True, eq=False, repr=False)
class ExactOptimum(ConicProof, Certificate):
    r"""An optimal basis of a linear program, solved in fractions.

    For :math:`\min q^T x` subject to :math:`b - A x \in K`, K a product of points and half-lines:
    x is feasible, z is in the dual cone, :math:`A^T z + q = 0` and :math:`q^T x = -b^T z`, all of
    it exactly, for the declared floats.

    Parameters
    ----------
    problem : Problem
        What was solved.
    compiled : Compiled
        Its cone program.
    x, z : array
        The pair, rounded.
    point, prices : tuple of Fraction
        The pair itself, in the columns and rows of the program.

    Attributes
    ----------
    objective : Fraction
        The optimum of the problem as declared.
    bound : float
        The same, rounded to the side on which nothing lies.
    values : mapping
        Arrays of fractions by variable.
    """

    point: tuple[Fraction, ...] = ()
    prices: tuple[Fraction, ...] = ()

    @cached_property
    def objective(self) -> Fraction:
        """The optimum, in the sense of the problem."""
        form = self.compiled.form
        costs = (Fraction(float(c)) * v for c, v in zip(form.q, self.point, strict=True) if c)
        return Fraction(form.sign) * (sum(costs, Fraction(0)) + Fraction(float(form.offset)))

    @property
    def bound(self) -> float:
        """The optimum as a float that is not better."""
        near, sign = float(self.objective), self.compiled.form.sign
        off = (Fraction(near) - self.objective) * Fraction(sign)
        return float(np.nextafter(near, -sign * np.inf)) if off > 0 else near

    @cached_property
    def values(self) -> dict[str, NDArray[Any]]:
        """Values of the variables, arrays of fractions; 0 where no term uses an entry."""
        known = np.array([*self.point, Fraction(0)], dtype=object)
        return {name: known[place] for name, place in self.compiled.places().items()}

    @property
    def record(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The program and its proof, ready for JSON."""
        form = self.compiled.form
        optimum = ratio(self.objective * Fraction(form.sign))
        multipliers, point = ([ratio(v) for v in part] for part in (self.prices, self.point))
        leaf = {"against": "objective", "multipliers": multipliers, "steps": []}
        claim = {
            "bound": optimum,
            "objective": optimum,
            "cut": None,
            "radius": None,
            "tolerance": 0,
            "violation": 0,
        }
        return form_record(form), {"tree": leaf, "claim": claim, "point": point}

    def verify(self) -> Verdict:
        """Recompute everything in exact arithmetic; there is no tolerance."""
        record, proof = self.record
        try:
            check_proof.bound(check_proof.Form(record), proof)
        except check_proof.Rejected as e:
            return Verdict(False, (str(e),), UNKNOWN)
        return Verdict(True)

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound in fractions, and compare what is given with the pair."""
        ours, duals = self.compiled.by_name(self.x, self.z)
        given = {"point": self.x, "prices": self.z}
        pair = {"point": np.array(self.point, float), "prices": np.array(self.prices, float)}
        apart = max(drift(given, pair), drift(values, ours), drift(multipliers, duals))
        unit, sign = self.compiled.form.unit, self.compiled.form.sign
        bound = self.bound if self.verify() else -sign * np.inf
        return DualCheck(bound, 0.0, consistency=apart, unit=unit, estimate=bound, apart=True)

    def stored(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """Return the facts with the fractions, and the rounded pair."""
        facts, arrays = super().stored()
        fractions = {"point": [str(v) for v in self.point], "prices": [str(v) for v in self.prices]}
        return facts | {"fractions": fractions}, arrays

    def __str__(self) -> str:
        digits = max(v.denominator.bit_length() for v in (*self.point, Fraction(0)))
        return f"optimum {float(self.objective):.17g}, in fractions of up to {digits} bits"

    __repr__ = __str__


def conic_proof(problem: Problem, facts: Mapping[str, Any], x: Floats, z: Floats) -> ConicProof:
    """Return the proof that a primal-dual pair is of a problem, which is compiled for it.

    Parameters
    ----------
    problem : Problem
        What the bound is of.
    facts : mapping
        What `ConicProof.stored` says: the interface it was compiled for.
    x, z : array
        The pair, in the columns and rows of the compiled program.

    Raises
    ------
    UnsupportedProblem
        The problem does not compile for this interface, or to another size.
    """
    quadratic = bool(facts.get("quadratic", True))
    compiled = compile_problem(problem, str(facts.get("interface")), quadratic=quadratic)
    sizes = (compiled.form.q.size, compiled.form.b.size)
    if (x.shape, z.shape) != ((sizes[0],), (sizes[1],)):
        raise UnsupportedProblem(
            "this proof is about a program of another size",
            f"{x.size} columns and {z.size} rows, not {sizes[0]} and {sizes[1]}",
            "take the problem that was solved",
        )
    fractions = facts.get("fractions")
    if fractions is None:
        tolerance = check_number(facts.get("tolerance", 0.0), "the tolerance of a proof", least=0.0)
        return ConicProof(problem, compiled, x, z, tolerance=tolerance)
    try:
        point, prices = (tuple(map(Fraction, fractions[part])) for part in ("point", "prices"))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as e:
        raise UnsupportedProblem("the fractions of this proof cannot be read", repr(e)) from None
    if (len(point), len(prices)) != sizes:
        raise UnsupportedProblem("the fractions of this proof are of a program of another size")
    return ExactOptimum(problem, compiled, x, z, point=point, prices=prices)


def form_of(record: dict[str, Any]) -> ConicForm:
    """Return the cone program that `portable.form_record` wrote, by the same floats.

    Raises
    ------
    Rejected
        The record is no program, or a number in it is no float.
    """
    check_proof.Form(record)  # entries are in range, cones fit the rows

    def floats(values: Any) -> Any:
        exact = [check_proof.number(v) for v in values]
        check_proof.require(
            all(float(v) == v for v in exact), "a number of the program is no float"
        )
        return np.array(list(map(float, exact)), dtype=float)

    b, q = floats(record["b"]), floats(record["q"])
    (i, j, a), (k, j2, p) = record["A"], record["P"]
    cones, at = [], 0
    for kind, size, more in record["cones"]:
        details: dict[str, Any] = {}
        if kind == "psd":
            details = {"order": more[0], "upper": bool(more[1]), "root": 2.0}
        elif kind == "pow":
            details = {"power": float(check_proof.number(more))}
        cones.append(Cone(kind, at, at + size, **details))
        at += size
    return ConicForm(
        sp.csc_array((floats(p), (k, j2)), shape=(q.size, q.size)),
        q,
        float(floats([record["offset"]])[0]),
        sp.csc_array((floats(a), (i, j)), shape=(b.size, q.size)),
        b,
        tuple(cones),
        sign=float(record["sign"]),
    )


@dataclass(frozen=True, eq=False)
class RescaledProof:
    """A proof for the objective divided by a unit: bound and multipliers are the unit times it.

    Residuals are those of the divided problem, so they mean the same in any units.
    """

    problem: Problem
    divided: DualProof
    unit: float

    @property
    def source(self) -> str:
        """Who vouches for the bound."""
        return self.divided.source

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound on the divided problem."""
        inner = self.divided.check(values, times(multipliers, 1.0 / self.unit))
        unpaid = None if inner.unpaid is None else inner.unpaid.times(self.unit)
        return replace(
            inner,
            bound=inner.bound * self.unit,
            unpaid=unpaid,
            unit=inner.unit * self.unit,
            estimate=None if inner.estimate is None else inner.estimate * self.unit,
            penalty=inner.penalty * self.unit,
        )

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return what the proof is made of again, in the units of the problem itself."""
        stored = getattr(self.divided, "stored", None)
        parts = None if stored is None else stored()
        if parts is None:
            return None
        facts, arrays = parts
        return facts, arrays | {"z": arrays["z"] * self.unit}


def times(multipliers: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return named multipliers times a factor, read-only."""
    scaled = {}
    for name, y in multipliers.items():
        scaled[name] = np.asarray(np.asarray(y, dtype=float) * factor)
        scaled[name].flags.writeable = False
    return scaled


# Share of what an objective adds up, below which its evaluation at a point is rounding.
SUMMED = 1e-9


def largest_terms(problem: Problem, x: Floats) -> float:
    """Return what the terms of an affine objective add up to in size at a point, 0 where that is not known.

    Costs that cancel are an objective that is no better known than these.
    """
    total = 0.0
    for term in problem.objective.values():
        e = built(term)
        if not e.is_affine() or e.parameters() or not e.variables():
            return 0.0
        try:
            sizes = Sums(e).made(e, sizes=True)[:, :-1]
        except (ArithmeticError, TypeError, ValueError):  # no sum of products, like x / 3
            return 0.0
        total += float(sizes.sum()) * largest_entry(x)
    return total if np.isfinite(total) else 0.0


# Share of a tolerance that a bound may take of it; the rest is for what else is measured.
SHARE = 0.45


def is_enough(problem: Problem, form: ConicForm, x: Floats, tolerance: float) -> float:
    """Return the bound of which nobody asks for more who allows this gap at a point."""
    if not tolerance:
        return np.inf
    objective, unit = form.objective(x), min(form.unit, problem.objective_unit)
    varying = form.sign * objective - problem.objective_constant, objective - form.offset
    return objective - SHARE * tolerance * max(unit, min(map(abs, varying)))


def shortfall(
    problem: Problem, form: ConicForm, x: Floats, z: Floats, tolerance: float, share: float = 0.5
) -> float:
    """Return by what a pair misses a share of the tolerance, 0 where it is proved.

    The rest of the tolerance is for what is measured by named terms.
    """
    r, most = form.residuals(x, z, is_enough(problem, form, x, tolerance)), share * tolerance
    size = max(form.unit, abs(r.objective - form.offset))
    gap = abs(r.objective - r.bound) / size
    if not all(missed <= most for missed in (gap, r.primal, r.rows)):  # NaN is no share
        return np.inf
    if r.unpaid is None:
        return 0.0
    far = CLEAR * max(1.0, r.unpaid.size, r.unpaid.natural)
    if r.unpaid.radius((most - gap) * size) >= far:
        return 0.0
    loose = r.relative > 0.05 * tolerance**0.5
    return max(gap, r.primal, r.rows) + r.unpaid.here / size + (r.relative if loose else 0.0)


def form_check(
    form: ConicForm, x: Floats, z: Floats, consistency: float, enough: float = np.inf
) -> DualCheck:
    """Return what a primal-dual pair of a cone program proves about the declared problem."""
    r = form.residuals(x, z, enough)
    return DualCheck(
        bound=form.sign * r.bound,
        dual=max(r.dual, r.primal),
        complementarity=r.complementarity,
        consistency=consistency,
        unpaid=r.unpaid,
        free=() if r.unpaid is None else form.column_names(r.unpaid.columns),
        unit=form.unit,
        estimate=None if r.fault else form.sign * r.estimate,
        rows=r.rows,
        apart=True,
        face=r.face,
        relative=r.relative,
        penalty=r.penalty,
    )


def unpriced(form: ConicForm, z: Floats) -> Floats:
    r"""Return multipliers that are 0 on inequalities without variables that hold.

    .. math:: 0^T x \le b_i,\; b_i \ge 0

    Such a row changes no stationarity and adds :math:`-b_i z_i \le 0` to the bound: what an
    interior-point method leaves there is its distance from the optimum, not a price.
    """
    if z.size != form.b.size:
        return z
    idle = form.nonnegative & (form.b >= 0.0)
    idle[form.A.indices[form.A.data != 0.0]] = False  # of a matrix by columns
    return np.where(idle, 0.0, z) if idle.any() else z
