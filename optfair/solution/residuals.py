"""Residuals of a solution, recomputed on the declared problem, and its shadow prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy.constraints import (
    PSD,
    SOC,
    Equality,
    ExpCone,
    Inequality,
    NonNeg,
    NonPos,
    PowCone3D,
    Zero,
)
from numpy.typing import NDArray

from optfair.core import display
from optfair.core.certificate import BEYOND, PROVED, DualCheck, DualProof, Grade, reported, within
from optfair.core.composition import right_hand_side
from optfair.core.expressions import Evaluator, Values, check_parameters
from optfair.core.solution import LazyValues, Solution, check_solution
from optfair.errors import say_names
from optfair.numbers import Floats, checked
from optfair.proofs.effort import until
from optfair.proofs.unpaid import Unpaid
from optfair.solution.column_units import LEAST

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.term import ConstraintTerm


# Residuals of a solution, recomputed on the declared problem.

# A radius is worth telling when it is so many times the size of the solution, and of a number
# in each of these columns.
CLEAR = 1e3
# Violation that is none in any unit: sizes of entries are not asked for.
ROUNDING = 1e-12
# Share of both sides below which their difference is rounding.
CANCELLED = 16.0 * float(np.finfo(float).eps)

EntrySizes = Callable[[str, Values, Any], Floats]


@dataclass(frozen=True)
class Residuals:
    """How far a solution is from being optimal; all relative, all 0 at an optimum.

    Attributes
    ----------
    primal : dict
        Largest violation of each constraint, every entry relative to its own right-hand side
        (where integers share it with others: what they leave of it) and the unit of the data (at
        most 1; of an entry without a right-hand side, at least the size of its terms), and the
        distance of integer variables from integers.
    objective : float
        Stated minus declared objective at the values / max(unit, varying part).
    dual : float
        Stationarity and sign of the multipliers / (1 + size of the objective's gradient).
    gap : float
        (objective - bound) / max(unit, varying part), the bound recomputed; the varying part is
        the objective without the constants that are added to it, the unit that of the data.
    complementarity : float
        Products of slacks and multipliers / max(1, abs(objective)); on curved cones also relative
        to the root of the sizes of what is multiplied, where these are far above that.
    consistency : float
        Difference between the named numbers and those that prove the bound.
    source : str
        Who stands behind the bound: "duality" when it was recomputed here.
    reported : str
        Who says so, when the bound is somebody's word.
    unpaid : Unpaid or None
        Why the bound holds near the origin only.
    free : tuple of str
        Variables that no bound holds and whose multipliers do not cancel exactly.
    size : float
        What the gap is relative to.
    largest : float
        Larger of the objective and the bound in size.
    rows : float
        Largest violation of a compiled row or cone, relative to its own terms.
    apart : bool
        Whether the bound stands without the named multipliers.
    extent : float
        Largest entry of the values.
    face : float
        Largest entry of a semidefinite block that is 0 at every feasible point, of its terms: the
        block may be violated by as little as one likes there.
    penalty : float
        Exact penalty of the violations, their sum times the multipliers / max(unit, varying part):
        by as much may points within the tolerance be better than every feasible one.
    """

    primal: Mapping[str, float]
    objective: float
    dual: float
    gap: float
    complementarity: float
    consistency: float
    source: str
    reported: str = ""
    unpaid: Unpaid | None = None
    free: tuple[str, ...] = ()
    size: float = 1.0
    largest: float = 0.0
    rows: float = 0.0
    apart: bool = False
    extent: float = 0.0
    face: float = 0.0
    penalty: float = 0.0

    def __post_init__(self) -> None:
        say_names(self, primal="constraint")

    @property
    def feasibility(self) -> float:
        """Largest entry of ``primal``."""
        return max(self.primal.values(), default=0.0)

    def _repr_html_(self) -> str:
        whole = ("objective", "dual", "gap", "complementarity", "consistency")
        rows = [(word, f"{getattr(self, word):.1e}") for word in whole]
        worst = sorted(self.primal.items(), key=lambda item: -item[1])
        bound = f"bound by {self.source}" if self.source else "no bound is known"
        return (
            display.html_lines(f"Residuals, relative; {bound}")
            + display.html_table(("whole", "residual"), rows)
            + display.html_table(("constraint", "violation"), [(n, f"{v:.1e}") for n, v in worst])
        )

    def grade(self, tolerance: float) -> Grade:
        """Return what the bound rests on, when the gap may be as large as the tolerance.

        Within the radius no feasible point is better by more than the tolerance. A radius that
        is not clear of the solution itself, in units of columns and then in those of the
        declaration as well, is no proof: the bound is then on its solver's word.
        """
        if self.reported or not self.source:
            return reported(self.reported)
        if self.gap == np.inf:
            return reported("", "no bound is known")
        if self.unpaid is None:
            return PROVED
        radius = self.unpaid.radius((tolerance - self.gap) * self.size)
        because = f"not rigorous: free column {', '.join(map(repr, self.free))}"
        unit = self.unpaid.unit
        clear = radius >= CLEAR * max(1.0, self.unpaid.size, self.unpaid.natural)
        if unit != 1.0:  # measured in other units: it is held to the declared ones as well
            clear = clear and radius * unit >= CLEAR * max(1.0, self.extent)
        if clear:
            return within(radius * unit, because)
        if radius * unit >= 1.0:  # a size that says something, and too near to be a proof
            because += f", proved {within(radius * unit).limits} where |x| is {self.extent:.1e}"
        return reported("", because)

    def bent(self, tolerance: float) -> bool:
        """Whether curvature that is not proved keeps any multipliers from a proof."""
        if self.unpaid is None or not self.unpaid.curve:
            return False
        best = replace(self, gap=0.0, unpaid=replace(self.unpaid, slope=0.0))
        return not best.grade(tolerance).sound

    def above(self, tolerance: float) -> tuple[str, ...]:
        """Return what exceeds the tolerance, in words.

        Where a sound bound proves the objective, multipliers may be loose: prices have an
        accuracy of their own. Elsewhere they are held to the tolerance, and products of slacks
        and multipliers, which go with the square root of the gap on curved cones, to its root.
        """
        violated = {name: v for name, v in self.primal.items() if not v <= tolerance}
        reasons = [f"{name!r} is violated by {v:.1e}" for name, v in violated.items()]
        # a column that nothing bounds is charged for its size here, which is no proof
        loss = 0.0 if self.unpaid is None else self.unpaid.here / self.size
        proved = self.apart and self.gap + loss <= tolerance and self.grade(tolerance).sound
        checks = {
            "stated and declared objective differ by": (self.objective, tolerance),
            "a row is violated, of its own terms, by": (self.rows, tolerance),
            "what is 0 at every feasible point is, of its terms,": (self.face, tolerance**0.5),
            "dual residual": (self.dual, np.inf if proved else tolerance),
            "gap": (self.gap + loss, tolerance),
            "violations are worth, at the multipliers,": (self.penalty, tolerance),
            "complementarity": (
                self.complementarity,
                np.inf if proved else max(tolerance, 0.1 * tolerance**0.5),
            ),
            # the same numbers by the same arithmetic: there is nothing to tolerate
            "named values differ from the proof by": (self.consistency, 1e-12),
        }
        reasons += [f"{k} {v:.1e}" for k, (v, limit) in checks.items() if not v <= limit]
        for size, what in ((self.largest, "no optimum"), (self.extent, "no coordinate of one")):
            if size >= BEYOND and np.isfinite(size):
                why = f"numbers from {BEYOND:.0e} on count as none"
                reasons.append(f"a value of {size:.1e} is {what}: {why}")
        return tuple(reasons)

    def __repr__(self) -> str:
        rows = [f"{name:<24} {v:.1e}" for name, v in self.primal.items()]
        rows += [
            f"{'objective mismatch':<24} {self.objective:.1e}",
            f"{'dual':<24} {self.dual:.1e}",
            f"{'gap':<24} {self.gap:.1e}   bound by {self.source or 'nobody'}",
            f"{'penalty of violations':<24} {self.penalty:.1e}",
            f"{'complementarity':<24} {self.complementarity:.1e}",
            f"{'consistency':<24} {self.consistency:.1e}",
        ]
        return "\n".join(rows)


@dataclass(frozen=True)
class Measurement:
    """What is recomputed from values and multipliers, before it is held against a claim.

    Attributes
    ----------
    primal : dict
        Largest violation by constraint name, each entry relative to its own size, and distance
        from integers and symmetry.
    loose : dict
        The same, relative to the unit + the largest right-hand side of the constraint.
    objective : float
        Declared objective at the values.
    check : DualCheck or None
        Bound and dual residuals, None without a proof.
    unit : float
        Least size an objective with these data is measured by.
    constant : float
        Part of the objective that no variable changes.
    extent : float
        Largest entry of the values.
    """

    primal: Mapping[str, float]
    loose: Mapping[str, float]
    objective: float
    check: DualCheck | None
    sign: float
    source: str
    unit: float = 1.0
    constant: float = 0.0
    extent: float = 0.0

    @property
    def bound(self) -> float:
        """The bound that was recomputed, without one infinite."""
        return -self.sign * np.inf if self.check is None else self.check.bound

    @property
    def word(self) -> float:
        """The bound of those who take the multipliers at their word."""
        estimate = None if self.check is None else self.check.estimate
        return self.bound if estimate is None else estimate

    def against(self, objective: float, bound: float, *, loose: bool = False) -> Residuals:
        """Return the residuals of a solution that claims this objective and bound.

        Parameters
        ----------
        objective, bound : float
            What is claimed.
        loose : bool
            Measure as a solver is measured: relative to the unit + the largest right-hand side of
            a constraint, and to the objective with its constant.
        """
        primal = self.loose if loose else self.primal
        size = max(self.unit, abs(self.objective - self.constant))
        if loose:
            size = max(self.unit, LEAST, abs(self.objective))
        mismatch = abs(self.objective - objective) / size
        if self.check is None:
            return Residuals(primal, mismatch, np.inf, np.inf, np.inf, np.inf, "")
        check = self.check
        # a bound beyond the objective is as wrong as one before it
        limit = self.word if loose else check.bound
        gap = abs(self.sign * (self.objective - limit)) / size
        drift = abs(limit - bound) / size if np.isfinite(limit) else 0.0
        return Residuals(
            primal,
            mismatch,
            check.dual,
            gap,
            check.complementarity if loose or check.relative is None else check.relative,
            max(check.consistency, drift),
            self.source,
            check.reported,
            None if loose and check.estimate is not None else check.unpaid,
            check.free,
            size,
            max(abs(self.objective), abs(check.bound)),
            0.0 if loose else check.rows,
            check.apart and not loose,
            self.extent,
            check.face,
            0.0 if loose else float(check.penalty / size),
        )


def measure(
    problem: Problem,
    values: Mapping[str, Any],
    multipliers: Mapping[str, Any],
    proof: DualProof | None,
    deadline: float = np.inf,
) -> Measurement:
    """Evaluate values on the declared terms, and the bound on data and multipliers.

    Numbers that are missing, misshapen or not finite count as infinitely far off. No further
    moves of the multipliers are tried after the deadline.
    """
    check_parameters(problem.terms)
    with until(deadline), np.errstate(invalid="ignore", over="ignore"):
        return _measured(problem, values, multipliers, proof)


def _measured(
    problem: Problem,
    values: Mapping[str, Any],
    multipliers: Mapping[str, Any],
    proof: DualProof | None,
) -> Measurement:
    sign = 1.0 if problem.sense == "minimize" else -1.0
    faults = [f"{name} missing" for name in problem.variables if name not in values]
    faults += [
        f"{name} of shape {np.shape(values[name])}"
        for name, variable in problem.variables.items()
        if name in values and np.shape(values[name]) != variable.shape
    ]
    if faults or not values:
        nothing = dict.fromkeys(problem.constraints, np.inf) | dict.fromkeys(faults, np.inf)
        return Measurement(nothing, nothing, np.inf, None, sign, "")
    if proof is not None and proof.problem is not problem:
        proof = None  # a bound on another problem proves nothing here
    primal, loose = violations(problem, values, getattr(proof, "entry_sizes", None))
    extent = 0.0
    for name, variable in problem.variables.items():
        x = np.asarray(values[name], dtype=float)
        extent = max(extent, float(np.abs(x).max(initial=0.0)))
        more = {}
        if name in problem.integers:
            more[f"{name} integer"] = float(np.abs(x - np.round(x)).max(initial=0.0))
        if variable.attributes.get("symmetric"):
            more[f"{name} symmetric"] = float(np.abs(x - np.swapaxes(x, -1, -2)).max(initial=0.0))
        if not np.isfinite(x).all():
            more[f"{name} finite"] = np.inf
        for key, size in more.items():  # a constraint may be called so
            primal[key] = max(size, primal.get(key, 0.0))
            loose[key] = max(size, loose.get(key, 0.0))
    check = None if proof is None else _check(proof, values, multipliers)
    source = "" if proof is None else proof.source
    own = problem.objective_unit
    if check is not None and problem.unit_from_data:
        own = min(own, check.unit)
    return Measurement(
        primal,
        loose,
        problem.objective_at(values),
        check,
        sign,
        source,
        own,
        problem.objective_constant,
        extent,
    )


def violations(
    problem: Problem, values: Values, sizes: EntrySizes | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the largest violation of each constraint, measured in two ways.

    Where integers share a constraint with others, its right-hand side is what the integers leave
    of it: beside a large number times a binary nearly everything would be small. Integers alone
    leave what they break it by, unless that is rounding.

    Parameters
    ----------
    problem : Problem
        What was declared.
    values : mapping
        Values by variable name.
    sizes : callable, optional
        Constraint, values and whether entries have a right-hand side -> what the terms of each
        entry without one add up to, as `Compiled.entry_sizes`.

    Returns
    -------
    tuple of dict
        As `ConstraintTerm.violations`, the second way first.
    """
    unit = max(problem.data_unit, LEAST)
    primal, loose = {}, {}
    together = problem.scalar_rows.violations(values, unit)
    for name, t in problem.constraints.items():
        loose[name], primal[name] = together.get(name) or t.violations(values, unit)
        if not 0.0 < primal[name] < np.inf:
            continue
        left = _left(t, values, problem.integers)
        at, stated = values, None
        if left is not None:
            stated = np.asarray(left) > 0.0
            if not t.scope <= problem.integers:
                at = {n: v if n not in problem.integers else 0.0 * v for n, v in values.items()}
            primal[name] = t.violations(values, unit, left)[1]
            loose[name] = t.violations(values, unit, _widest(t, left))[1]
        if sizes is not None and primal[name] > ROUNDING:
            own = np.maximum(unit, sizes(name, at, stated))
            if (own > unit).any():
                primal[name] = t.violations(values, own, left)[1]
    return primal, loose


def _left(term: ConstraintTerm, values: Values, integers: frozenset[str]) -> Any:
    """Return what integers leave of right-hand sides, None where there are none."""
    whole = term.scope & integers
    owner: Any = getattr(term.violation, "__self__", None)
    if not whole or not hasattr(owner, "sides"):
        return None
    held = {n: np.round(values[n]) if n in whole else values[n] for n in term.scope}
    point = {n: v if n in whole else np.zeros(np.shape(v)) for n, v in held.items()}
    left, sides = right_hand_side(owner, point), owner.sides(point)
    if sides is None:
        return None if whole == term.scope else left
    with np.errstate(invalid="ignore"):
        lost = ~np.isfinite(sides[1] - sides[0])
        if lost.any():  # a function without a value at 0: what integers add where it has one
            sides = [np.where(lost, b, a) for a, b in zip(sides, owner.sides(held), strict=True)]
            left = np.where(lost, _added(owner, held, whole), left)
        size = np.fmax(*map(np.abs, sides))
    rounding = left <= CANCELLED * np.where(np.isfinite(size), size, 0.0)
    return np.where(rounding, term.scale if whole == term.scope else 0.0, left)


def _widest(term: ConstraintTerm, left: Any) -> Floats:
    """Return right-hand sides of which the largest stands for all that integers leave as declared."""
    kept = left == term.scale
    most = np.where(kept & np.isfinite(left), left, 0.0).max(initial=0.0)
    return np.asarray(np.where(kept, most, left))


def _added(owner: Any, held: Values, whole: frozenset[str]) -> Floats:
    """Return the size of what is finite of the right-hand sides and what integers add to them."""
    moved = {n: 0.0 * v if n in whole else v for n, v in held.items()}
    ends = owner.sides({n: np.zeros(np.shape(v)) for n, v in held.items()})
    left, right = (np.where(np.isfinite(side), side, 0.0) for side in ends)
    (a, b), (c, d) = owner.sides(held), owner.sides(moved)
    more = (b - a) - (d - c)
    return np.asarray(np.abs(right - left + np.where(np.isfinite(more), more, 0.0)))


def _check(
    proof: DualProof, values: Mapping[str, Any], multipliers: Mapping[str, Any]
) -> DualCheck | None:
    """Return what a proof says, None of numbers that it cannot be recomputed from."""
    try:
        return proof.check(values, multipliers)
    except (LookupError, TypeError, ValueError):  # missing or misshapen
        return None


@checked(solution=check_solution)
def residuals(solution: Solution) -> Residuals:
    """Evaluate a solution on the declared terms, and its bound on data and multipliers.

    Parameters
    ----------
    solution : Solution
        What a solver returned.

    Returns
    -------
    Residuals
        Infinite entries where there are no values, or no bound.

    Examples
    --------
    >>> import optfair as of
    >>> of.residuals(of.library.load("diet").problem().solve(tolerance=1e-8)).feasibility <= 1e-8
    True
    """
    measured = measure(solution.problem, solution.values, solution.multipliers, solution.proof)
    return measured.against(solution.objective, solution.bound)


# Shadow prices: the one place where the sign of multipliers is converted.


@checked(solution=check_solution)
def shadow_prices(solution: Solution) -> Mapping[str, Any]:
    r"""Return d(optimum)/d(right-hand side) by constraint name.

    The right-hand side is the constant side of ``left <= right``, ``left >= right`` and
    ``left == right``; when both sides vary, it is the right one as printed. For a cone
    constraint ``args in K`` it is what is subtracted from the arguments.

    With multipliers y of the minimisation of f + Σ⟨y, left - right⟩, raising the right-hand
    side by δ changes the optimum by -⟨y, δ⟩; under ``maximize`` the optimum is that of -f,
    so its sign turns once more.

    Parameters
    ----------
    solution : Solution
        With multipliers.

    Returns
    -------
    mapping
        A number or an array in the shape of each constraint.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(name="x")
    >>> s = of.from_cvxpy(cp.Problem(cp.Minimize(x**2), [x >= 3]), ["least"]).solve()
    >>> round(float(of.shadow_prices(s)["least"]), 4)  # of the optimum least² by least
    6.0
    """
    p = solution.problem

    def price(name: str) -> NDArray[Any]:
        y = np.asarray(solution.multipliers[name], dtype=float)
        sign = shadow_price_sign(p.constraints[name].build())
        return y * sign * (1.0 if p.sense == "minimize" else -1.0)

    known = set(solution.multipliers)
    none = (
        f"{solution.solver} leaves no multipliers of this problem",
        "prices are of convex programs: solve optfair.transforms.relax_integrality(p).problem, with"
        " the integers fixed by a constraint where they are to stay"
        if p.integers
        else "ask a solver that returns multipliers; optfair.solvers() lists them",
    )
    lacking = [n for n in p.constraints if n not in known]
    prices = LazyValues({n: partial(price, n) for n in p.constraints if n in known}, none, lacking)
    return p.labelled(prices, "prices")


def shadow_price_sign(constraint: Any) -> float:
    """Return the factor from CVXPY's multiplier to d(minimum)/d(right-hand side)."""
    if isinstance(constraint, (Inequality, Equality)):
        left, right = constraint.args
        # CVXPY writes a >= b as b <= a; when the constant stands on the left it is the
        # right-hand side, and raising it moves the constraint function the other way
        flipped = left.is_constant() and not right.is_constant()
        return 1.0 if flipped else -1.0
    if isinstance(constraint, (Zero, NonPos)):
        return -1.0
    return 1.0


# What is left of each constraint at a point.


def slacks(solution: Solution) -> Mapping[str, Any]:
    r"""Return by constraint name how far the values are inside, below 0 where they are outside.

    Of ``left <= right`` and ``left >= right`` that is the larger side less the smaller one, of
    ``left == right`` the right side less the left. Of a second-order cone it is
    :math:`t - \lVert x \rVert`, of a semidefinite block its least eigenvalue, of an exponential
    cone :math:`z - y e^{x/y}`, of a power cone :math:`x^a y^{1-a} - |z|`.
    """
    p = solution.problem

    def left(name: str) -> NDArray[Any]:
        constraint = p.constraints[name].build()
        evaluator = Evaluator(constraint, p.names)
        sides = evaluator.sides(solution.values)
        if sides is not None:
            return np.asarray(sides[1] - sides[0], dtype=float) + 0.0
        return np.asarray(evaluator.read(solution.values, _inside), dtype=float) + 0.0

    return p.labelled(LazyValues({n: partial(left, n) for n in p.constraints}), "multipliers")


def _inside(constraint: Any) -> Any:
    """Return how far the arguments of a cone that hold values are inside it."""
    each = [np.asarray(a.value) for a in constraint.args]
    if isinstance(constraint, SOC):
        return each[0].ravel() - np.linalg.norm(each[1], axis=constraint.axis)
    if isinstance(constraint, PSD):
        return np.linalg.eigvalsh((each[0] + each[0].swapaxes(-1, -2).conj()) / 2).min(axis=-1)
    if isinstance(constraint, ExpCone):
        x, y, z = each
        return np.where(y > 0.0, z - y * np.exp(x / np.where(y > 0.0, y, 1.0)), np.minimum(z, -x))
    if isinstance(constraint, PowCone3D):
        x, y, z = each
        power = np.asarray(constraint.alpha.value, dtype=float)
        return np.maximum(x, 0.0) ** power * np.maximum(y, 0.0) ** (1.0 - power) - np.abs(z)
    if isinstance(constraint, (NonNeg, NonPos, Zero)):
        return each[0] if isinstance(constraint, NonNeg) else -each[0]
    return -np.asarray(constraint.violation())
