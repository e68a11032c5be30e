r"""Ranges: how far one number of a linear or quadratic program may move before its price changes.

Along one entry of the right-hand sides or costs the optimal value v is piecewise linear (LP) or
piecewise quadratic (QP). On its active rows N an optimum solves

.. math::
    \begin{pmatrix} P & A_N^T \\ A_N & 0 \end{pmatrix} \begin{pmatrix} x \\ z_N \end{pmatrix}
    = \begin{pmatrix} -q \\ b_N \end{pmatrix},

which moves linearly with the entry, until an inactive row becomes active or a multiplier 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, onenormest, splu

from optfair import errors
from optfair.backends.linear_program import Kept, solve_form
from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import ConicProof
from optfair.compile.form import Compiled, compile_problem
from optfair.core import display
from optfair.core.expressions import dense
from optfair.core.labels import entry_indices
from optfair.core.solution import Solution, check_solution
from optfair.errors import ClassError, NoSuchName, UnsupportedProblem, data_frame, nearest
from optfair.numbers import Floats, checked
from optfair.solution.residuals import shadow_price_sign
from optfair.solution.units import equilibrium
from optfair.sweeps.along import open_entries

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm


# Slacks and multipliers below this, of the size of their data, are 0.
ZERO = 1e-9
# First step to a side, of the size of the entry, the least, and pieces that may join on.
STEP, LEAST, PIECES = 1e-5, 1e-10, 25
# What ends a piece: there is no optimum any more.
OUTSIDE = ("infeasible", "unbounded", "infeasible_or_unbounded")
# Condition of the system beyond which the optimum may not be unique, and its derivative no number.
WORST = 1e12
# Columns beyond which the inverse of a basis is too large.
LARGEST = 5_000


@dataclass(frozen=True)
class Range:
    """One number of a problem, and how the optimum depends on it.

    Attributes
    ----------
    kind : {"right-hand side", "cost"}
        What it is.
    name : str
        Constraint or variable.
    entry : tuple of int
        Which entry of it.
    value : float
        What it is now.
    lower, upper : float
        Between these the optimum is linear on either side of the value (LP), or the active rows
        stay (QP).
    below, above : float
        d(optimum)/d(number) to the left and to the right; they differ where it is degenerate.
        Infinite where a step makes the problem infeasible or unbounded.
    label : str
        What the entry is called, by the labels of its axes.
    """

    kind: str
    name: str
    entry: tuple[int, ...]
    value: float
    lower: float
    upper: float
    below: float
    above: float
    label: str = ""

    @property
    def called(self) -> str:
        """Its name, with that of the entry where there are several."""
        return f"{self.name}[{self.label}]" if self.entry else self.name

    @property
    def degenerate(self) -> bool:
        """Whether the two prices differ."""
        size = 1.0 + min(abs(self.above), abs(self.below))
        return self.above != self.below and not abs(self.above - self.below) <= 1e-7 * size < np.inf


@dataclass(frozen=True, eq=False, repr=False)
class Ranges(errors.Tabled):
    """The ranges of a problem's right-hand sides and costs.

    Attributes
    ----------
    rows : tuple of Range
        One an entry.
    degenerate : bool
        Whether the optimum has ties: prices are then two-sided.
    """

    rows: tuple[Range, ...]
    degenerate: bool

    def __getitem__(self, name: str) -> tuple[Range, ...]:
        label = str(name).replace(", ", ",")
        own = [r for r in self.rows if name == r.name or label == r.called.replace(", ", ",")]
        if not own:
            known = dict.fromkeys(r.name for r in self.rows)
            raise NoSuchName(f"no range of {name!r}", remedy=nearest(label, known))
        return tuple(own)

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row an entry.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        columns = ("kind", "name", "entry", "label", "value", "lower", "upper", "below", "above")
        return data_frame([{k: getattr(r, k) for k in columns} for r in self.rows])

    def __repr__(self) -> str:
        lines = [f"Ranges of {len(self.rows)} numbers{', degenerate' if self.degenerate else ''}"]
        for r in self.rows[:20]:
            price = f"{r.below:.6g}" if not r.degenerate else f"{r.below:.6g} | {r.above:.6g}"
            where = f"{r.value:.6g} in [{r.lower:.6g}, {r.upper:.6g}]"
            lines.append(f"  {r.kind} {r.called}: {where}, price {price}")
        if len(self.rows) > 20:
            lines.append(f"  ... {len(self.rows) - 20} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return display.html_lines(repr(self))


@checked(solution=check_solution)
def sensitivity(solution: Solution) -> Ranges:
    """Return how far each right-hand side and cost may move, and what the optimum does.

    Linear programs are ranged on a basis; where that is degenerate, each side of each entry is
    followed by solving again until its price changes. Quadratic programs are ranged along
    their active rows, which must be strict.

    Parameters
    ----------
    solution : Solution
        Of a continuous linear or convex quadratic program.

    Returns
    -------
    Ranges
        Terms of rows that are written as they are, and all variables; ``frame()`` is a table.

    Raises
    ------
    ClassError
        Another class, or integers.
    UnsupportedProblem
        No basis is found, or the active rows of a quadratic program are not strict.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> rows = [x[0] + x[1] <= 4, x[0] + 3 * x[1] <= 6, x >= 0]
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(3 * x[0] + 5 * x[1]), rows), ["wood", "steel", "sign"])
    >>> r = of.sensitivity(p.solve())
    >>> [(round(v.lower, 6), round(v.upper, 6), round(v.above, 6)) for v in r["wood"]]
    [(2.0, 6.0, 2.0)]

    References
    ----------
    Bertsimas, Tsitsiklis, Introduction to Linear Optimization, chapter 5.
    """
    problem = solution.problem
    compiled = linear_rows(solution, "ranges")
    units = Units.of(compiled.form)
    basis, vertex = optimal_vertex(compiled, solution, units)
    ranger = _Ranger(units, vertex, basis)
    rows = [*_sides(problem, compiled, ranger), *_costs(problem, compiled, ranger)]
    return Ranges(tuple(rows), vertex.degenerate)


def linear_rows(solution: Solution, called: str) -> Compiled:
    """Return the compiled form of a linear or convex quadratic program.

    Raises
    ------
    ClassError
        Another class, or integers.
    UnsupportedProblem
        It has too many columns.
    """
    problem, remedy = solution.problem, "solve again at other values: optfair.sweep"
    if problem.integers or problem.problem_class.name not in ("LP", "QP"):
        raise ClassError(
            f"{called} are of linear and quadratic programs, this one is {problem.problem_class}",
            remedy=remedy,
        )
    compiled = _compiled(solution)
    if any(c.kind not in ("zero", "nonneg") for c in compiled.form.cones):
        raise ClassError(f"{called} are of linear rows", remedy=remedy)
    return check_columns(compiled, called)


def check_columns(compiled: Compiled, called: str) -> Compiled:
    """Return a compiled form that is not too large."""
    if compiled.form.q.size > LARGEST:
        raise UnsupportedProblem(
            f"{compiled.form.q.size} columns are too many for {called}",
            remedy="solve again at other values: optfair.sweep",
        )
    return compiled


def optimal_vertex(
    compiled: Compiled, solution: Solution, units: Units
) -> tuple[Basis | None, Vertex]:
    """Return the active rows at an optimum; of a linear program with the basis they are of."""
    basis = None if compiled.form.P.nnz else Basis(compiled)
    vertex = Vertex.of_qp(units, solution) if basis is None else basis.vertex(units.form)
    if vertex is None:
        raise UnsupportedProblem("there is no optimum to start from")
    return basis, vertex


def _compiled(solution: Solution) -> Compiled:
    if isinstance(solution.proof, ConicProof) and type(solution.proof) is ConicProof:
        return solution.proof.compiled
    return compile_problem(solution.problem, conic_interface())


@dataclass(frozen=True, eq=False)
class Units:
    """A form with its numbers near 1, and the powers of two that made it: what is 0 is clear there.

    Row i is that of the declaration times ``rows[i]``, column j times ``columns[j]``, the
    objective times ``cost``.
    """

    form: ConicForm
    rows: Floats
    columns: Floats
    cost: float

    def taken(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        """Return a point and multipliers of the declaration as those of the form."""
        return x / self.columns, z / self.rows * self.cost

    def back(self, x: Floats, z: Floats) -> tuple[Floats, Floats]:
        """Return a point and multipliers of the form as those of the declaration."""
        return self.columns * x, self.rows * z / self.cost

    def moved(self, optimum: Any, side: Floats, cost: Floats) -> tuple[Floats, Floats]:
        """Return how x and z of the declaration move when its sides and costs do."""
        return self.back(*optimum.moved(self.rows * side, self.cost * self.columns * cost))

    @classmethod
    def of(cls, form: ConicForm) -> Units:
        """Return it in units in which rows, right-hand sides and costs are near 1."""
        rows, columns = equilibrium(form)
        far = _power(form.b * rows)
        rows, columns = rows / far, columns * far
        made = form.in_units(rows, columns)
        cost = 1.0 / _power(np.append(made.q, made.P.data))
        if cost != 1.0:
            made = made.moved({"q": made.q * cost, "P": made.P * cost})
        return cls(made, rows, columns, cost)


def _power(numbers: Floats) -> float:
    """Return the power of two nearest the size of most of the numbers that are not 0."""
    sizes = np.abs(numbers[numbers != 0.0])
    return float(2.0 ** np.round(np.log2(np.median(sizes)))) if sizes.size else 1.0


@dataclass(frozen=True, eq=False)
class Vertex:
    """Active rows, the optimum on them, and how it moves."""

    form: ConicForm
    active: NDArray[np.bool_]
    fixed: NDArray[np.intp]  # free columns that a basis holds at 0
    x: Floats
    z: Floats
    matrix: Any
    factor: Any

    @classmethod
    def on(cls, form: ConicForm, active: NDArray[np.bool_], fixed: NDArray[np.intp]) -> Vertex:
        """Return the optimum with those rows active.

        Raises
        ------
        UnsupportedProblem
            They do not determine it.
        """
        n, k = form.q.size, int(active.sum()) + fixed.size
        held = sp.csr_array((np.ones(fixed.size), (np.arange(fixed.size), fixed)), (fixed.size, n))
        rows = sp.csc_array(sp.vstack([sp.csr_array(form.A)[np.flatnonzero(active)], held]))
        matrix = sp.csc_array(sp.block_array([[form.P, rows.T], [rows, sp.csc_array((k, k))]]))
        try:
            factor = splu(matrix)
        except RuntimeError as e:
            raise UnsupportedProblem(
                "the active rows do not determine the optimum",
                str(e),
                "sweep the parameter instead",
            ) from None
        side = np.concatenate([-form.q, form.b[active], np.zeros(fixed.size)])
        solved = factor.solve(side)
        z = np.zeros(form.b.size)
        z[active] = solved[n : n + int(active.sum())]
        return cls(form, active, fixed, solved[:n], z, matrix, factor)

    @classmethod
    def of_qp(cls, units: Units, solution: Solution) -> Vertex:
        """Return the active rows of a solution of a quadratic program.

        Raises
        ------
        UnsupportedProblem
            Complementarity is not strict.
        """
        proof = solution.proof
        if not isinstance(proof, ConicProof):
            raise UnsupportedProblem(
                "no compiled pair", remedy="solve with a solver of compiled programs"
            )
        form = units.form
        x, z = units.taken(proof.x, proof.z)
        slack = form.slack(x)
        equal = form.equal
        sizes = 1.0 + np.abs(form.b)
        active = equal | (z / (1.0 + np.abs(z).max(initial=0.0)) > slack / sizes)
        made = cls.on(form, active, np.zeros(0, dtype=np.intp))
        if made.degenerate or not made.optimal or condition(made) > WORST:
            raise UnsupportedProblem(
                "the active rows are not strict: a price may differ to the left and to the right",
                "a row is active with multiplier 0, or the solution is not accurate enough to tell",
                "solve at a smaller tolerance, or use optfair.sweep",
            )
        return made

    @property
    def _slack(self) -> Floats:
        return self.form.slack(self.x)

    @property
    def optimal(self) -> bool:
        """Whether rows and multipliers have the right signs."""
        sizes = 1.0 + np.abs(self.form.b)
        inside = (self._slack >= -1e-7 * sizes) | self.active
        top = 1.0 + float(np.abs(self.z).max(initial=0.0))
        return bool(inside.all() and (self.z[~self.form.equal] >= -1e-7 * top).all())

    @property
    def degenerate(self) -> bool:
        """Whether a basic row is active, or an active inequality has no multiplier."""
        equal = self.form.equal
        sizes = 1.0 + np.abs(self.form.b)
        ties = (np.abs(self._slack) <= ZERO * sizes) & ~self.active
        top = 1.0 + float(np.abs(self.z).max(initial=0.0))
        free = self.active & ~equal & (np.abs(self.z) <= ZERO * top)
        return bool(ties.any() or free.any() or self.fixed.size)

    def moved(self, side: Floats, cost: Floats) -> tuple[Floats, Floats]:
        """Return how x and z move when the sides and the costs do."""
        n, k = self.form.q.size, int(self.active.sum())
        solved = self.factor.solve(
            np.concatenate([-cost, side[self.active], np.zeros(self.fixed.size)])
        )
        z = np.zeros(side.size)
        z[self.active] = solved[n : n + k]
        return solved[:n], z

    def interval(self, side: Floats, cost: Floats) -> tuple[float, float]:
        """Return the steps between which the active rows stay the same."""
        dx, dz = self.moved(side, cost)
        slack, change = self._slack, side - self.form.A @ dx
        out = ~self.active
        inner = self.active & ~self.form.equal
        return _ratios(
            np.concatenate([np.maximum(slack[out], 0.0), np.maximum(self.z[inner], 0.0)]),
            np.concatenate([change[out], dz[inner]]),
        )

    def slope(self, side: Floats, cost: Floats) -> float:
        """Return the derivative of the optimal value of the minimisation."""
        return float(cost @ self.x - side @ self.z)


def condition(vertex: Any) -> float:
    """Return an estimate of the condition of the system, in the 1-norm.

    Its rows and its curvature are each taken in a unit of their own: whether it has one solution does
    not depend on them.
    """
    factor, matrix, n = vertex.factor, vertex.matrix, vertex.form.q.size
    size = matrix.shape[0]
    bent = abs(matrix[:n, :n]).max() if n else 0.0
    units = np.full(size, bent**-0.5 if bent > 0.0 else 1.0)
    held = abs(matrix[n:, :n]).max(axis=1).toarray().ravel()
    units[n:] = 1.0 / np.where(held > 0.0, held * units[0], 1.0)

    def solve(y: Floats, trans: str = "N") -> Floats:
        return np.asarray(factor.solve(np.ravel(y) / units, trans=trans) / units)

    inverse = LinearOperator(
        (size, size), matvec=solve, rmatvec=lambda y: solve(y, "T"), dtype=float
    )
    scaled = sp.diags_array(units) @ abs(matrix) @ sp.diags_array(units)
    return float(onenormest(inverse) * scaled.sum(axis=0).max()) if size else 1.0


def _ratios(room: Floats, change: Floats) -> tuple[float, float]:
    """Return the largest steps to both sides that keep ``room + step * change`` nonnegative."""
    small = 1e-11 * (1.0 + float(np.abs(change).max(initial=0.0)))
    falls, grows = change < -small, change > small
    with np.errstate(divide="ignore"):
        up = float((room[falls] / -change[falls]).min(initial=np.inf))
        down = float((room[grows] / change[grows]).min(initial=np.inf))
    return -down, up


class Basis:
    """Optimal bases of a linear form at other numbers, each from the last one."""

    def __init__(self, compiled: Compiled) -> None:
        ended = compiled.ended.values()
        # a basis of its own: the model of the last solve belongs to whoever solves next
        known = next((k for k in ended if isinstance(k, Kept)), None)
        self.kept = None if known is None else replace(known, rows=None)

    def vertex(self, form: ConicForm) -> Vertex | None:
        """Return an optimal vertex, None where there is no optimum.

        Raises
        ------
        UnsupportedProblem
            There is an optimum and no basis.
        """
        nothing = np.zeros(form.q.size, dtype=bool)
        scale = form.cost_scale("typical")
        # among ties the simplex method may lose its way: anew, by the primal one, it finds it
        for start, strategy in ((self.kept, 1), (None, 4)):
            options = {"solver": "simplex", "threads": 1, "presolve": "off"} | dict.fromkeys(
                ("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10
            )
            options["simplex_strategy"] = strategy
            raw, last = solve_form(form, nothing, scale, options, False, kept=start)
            if last is not None:
                break
            if raw.status in OUTSIDE:
                return None
        else:
            raise UnsupportedProblem(
                "no optimal basis was found", f"the solver ended {raw.status}", "sweep instead"
            )
        self.kept = last
        columns, rows = last.nonbasic()
        return Vertex.on(form, rows, np.flatnonzero(columns))


class _Ranger:
    """Ranges along one entry at a time."""

    def __init__(self, units: Units, vertex: Vertex, basis: Basis | None) -> None:
        self.units, self.form, self.vertex, self.basis = units, units.form, vertex, basis
        self.follow = basis is not None and vertex.degenerate

    def along(self, side: Floats, cost: Floats, value: float) -> tuple[float, float, float, float]:
        """Return (step down, step up, slope to the left, slope to the right)."""
        units = self.units
        side, cost = units.rows * side, units.cost * units.columns * cost
        step = float(max(np.abs(side).max(initial=0.0), np.abs(cost).max(initial=0.0)))
        side, cost = side / step, cost / step  # a step of 1 is one of the unit here
        if self.follow:
            size = 1.0 + step * abs(value)
            high, right = self._piece(side, cost, size)
            low, left = self._piece(-side, -cost, size)
            low, left = -low, -left
        else:
            low, high = self.vertex.interval(side, cost)
            left = right = self.vertex.slope(side, cost)
        rate = step / units.cost
        return low / step, high / step, left * rate, right * rate

    def _piece(self, side: Floats, cost: Floats, size: float) -> tuple[float, float]:
        """Return how far the optimal value is linear in a direction, and its slope."""
        step, end, slope = STEP * size, 0.0, np.inf
        while step >= LEAST * size:
            here = self._at(step, side, cost)
            if here is None:
                step /= 100.0
                continue
            low, high = here.interval(side, cost)
            if step + low <= 1e-7 * step + 1e-13 * size:
                slope, end = here.slope(side, cost), step + high
                break
            step /= 100.0
        else:
            return 0.0, float(np.inf if side.any() else -np.inf)
        for _ in range(PIECES):
            if not np.isfinite(end):
                break
            further = end + STEP * max(size, end)
            here = self._at(further, side, cost)
            if here is None or abs(here.slope(side, cost) - slope) > 1e-8 * (1.0 + abs(slope)):
                break
            end = further + here.interval(side, cost)[1]
        return end, slope

    def _at(self, step: float, side: Floats, cost: Floats) -> Vertex | None:
        if self.basis is None:
            return None
        numbers = {"b": self.form.b + step * side} if side.any() else {}
        numbers |= {"q": self.form.q + step * cost} if cost.any() else {}
        return self.basis.vertex(self.form.moved(numbers))


def _sides(problem: Problem, compiled: Compiled, ranger: _Ranger) -> list[Range]:
    """Return the ranges of right-hand sides, in the orientation of shadow prices."""
    form, ranges = compiled.form, []
    nothing = np.zeros(form.q.size)
    for name, term in problem.constraints.items():
        plain = compiled.plain_rows(name)
        if plain is None:
            continue
        constraint = term.build()
        turn = -shadow_price_sign(constraint)
        stated = np.ravel(np.broadcast_to(_stated(constraint, turn), term.shape), order="F")
        rows = np.arange(plain.start, plain.stop)
        values = turn * form.b[rows] if stated.size != rows.size else stated
        entries = entry_indices(term.shape)[: rows.size]
        idle = open_entries(constraint) if stated.size == rows.size else np.zeros(term.shape, bool)
        for entry, i, value in zip(entries, rows.tolist(), values.tolist(), strict=True):
            if idle[entry]:
                continue
            side = np.zeros(form.b.size)
            side[i] = turn
            moved = ranger.along(side, nothing, value)
            ranges.append(_range(problem, "right-hand side", name, entry, value, form.sign, moved))
    return ranges


def _stated(constraint: Any, turn: float) -> Any:
    """Return the constant side of a constraint, else what is subtracted from its rows."""
    if len(constraint.args) == 2:
        side = constraint.args[0 if turn < 0.0 else 1]
        if side.is_constant():
            return dense(side.value)
    return np.zeros(constraint.shape)


def _costs(problem: Problem, compiled: Compiled, ranger: _Ranger) -> list[Range]:
    """Return the ranges of the linear costs of the variables."""
    form, ranges = compiled.form, []
    nothing = np.zeros(form.b.size)
    for name, places in compiled.places().items():
        for entry in entry_indices(places.shape):
            j = places[entry]
            if j < 0:
                continue
            cost = np.zeros(form.q.size)
            cost[j] = form.sign
            value = form.sign * float(form.q[j])
            moved = ranger.along(nothing, cost, value)
            ranges.append(_range(problem, "cost", name, entry, value, form.sign, moved))
    return ranges


def _range(
    problem: Problem,
    kind: str,
    name: str,
    entry: tuple[int, ...],
    value: float,
    sign: float,
    moved: tuple[float, float, float, float],
) -> Range:
    """Return the range of a number from how far it may move and the slopes to both sides."""
    low, high, left, right = moved
    prices = sign * left + 0.0, sign * right + 0.0
    label = problem.entry_label(name, entry)
    return Range(kind, name, entry, value, value + low, value + high, *prices, label)
