"""The same problem at other values of its parameters: from its last optimum, in a few products."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.backends.cvxpy_backend import infeasible, work_of
from optfair.backends.linear_program import solve_form
from optfair.backends.registry import profile
from optfair.compile.conic_proof import ConicProof
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import BEYOND, PROVED
from optfair.core.problem import Problem
from optfair.core.solution import LazyValues, Solution, Status
from optfair.errors import Infeasible
from optfair.proofs.kept_bound import KeptBound
from optfair.proofs.rounding import coordinates, equilibrated
from optfair.solution.conic_form import scale_of

if TYPE_CHECKING:
    from optfair.backends.request import Request, SolverProfile
    from optfair.compile.assembly import Moving
    from optfair.numbers import Floats
    from optfair.solution.conic_form import ConicForm

# What keeps the equations of a degenerate set solvable; steps are repeated until it is gone.
REGULAR = 1e-9
# The place of a row that is not in the set.
AWAY = 1e14
# Sets that are tried, and steps with one of them.
SETS, STEPS = 12, 6
# A slack or a multiplier of this share of the largest is one of 0; so is what a step leaves.
NIL, LEFT = 1e-11, 1e-14


class ActiveSet:
    r"""Optima of one quadratic program with other right-hand sides and costs.

    With W the equations and the inequalities that hold with equality,

    .. math::
        \begin{pmatrix} P + \delta I & A_W^T \\ A_W & -\delta I \end{pmatrix}
        \begin{pmatrix} \Delta x \\ \Delta z_W \end{pmatrix}
        = \begin{pmatrix} -q - P x - A_W^T z_W \\ b_W - A_W x \end{pmatrix}

    is solved until nothing is left, with one factorisation for as long as W, P and A stay. Where
    a row outside of W is then violated, or a multiplier has the wrong sign, W changes by these rows
    (the primal-dual active set method), a few times. Whoever calls checks what comes out.

    Parameters
    ----------
    form : ConicForm
        Points and half-lines only, with curvature.

    References
    ----------
    M. Hintermüller, K. Ito, K. Kunisch, The primal-dual active set strategy as a semismooth
    Newton method, SIAM J. Optim. 13 (2002).
    """

    def __init__(self, form: ConicForm) -> None:
        n, m = form.q.size, form.b.size
        # costs in a unit in which the largest curvature is near 1, as everything that comes out
        self._cost = scale_of(np.abs(form.P.data).max())
        blocks = [[self._cost * form.P, form.rows.T], [form.rows, None]]
        K = sp.csc_array(sp.block_array(blocks, format="csc"))
        K.eliminate_zeros()
        self._units = equilibrated(*coordinates(abs(K)), K.shape)[0]  # as of its columns
        self._matrix = sp.csr_array(K)
        D = sp.diags_array(self._units)
        # with a place for every entry of the diagonal
        filled = sp.csc_array(D @ K @ D + sp.diags_array(np.full(n + m, 1e-300)))
        filled.sort_indices()
        column = np.repeat(np.arange(n + m), np.diff(filled.indptr))
        self._diagonal = np.flatnonzero(filled.indices == column)
        self._scaled = filled
        self._own = filled.data[self._diagonal].copy()
        self._regular = np.repeat([REGULAR, -REGULAR], [n, m])
        self._inequality = np.concatenate([np.zeros(n, dtype=bool), ~form.equal])
        self._solved: tuple[bytes, spla.SuperLU] | None = None
        self._point, self._out = np.zeros(n + m), self._inequality.copy()

    def start(self, form: ConicForm, x: Floats, z: Floats) -> None:
        """Start from an optimum of the program with some numbers."""
        rows = self._units[x.size :]
        self._point, self._out = np.concatenate([x, self._cost * z]), self._inequality.copy()
        self._out[x.size :] &= self._cost * z / rows <= form.slack(x) * rows

    def solve(self, form: ConicForm) -> tuple[Floats, Floats] | None:
        """Return an optimum of the program with other numbers, None where no set was right."""
        n, units = form.q.size, self._units
        rhs = np.concatenate([-self._cost * form.q, form.b])
        point, out, met = self._point.copy(), self._out.copy(), set[bytes]()
        for _ in range(SETS):
            key = out.tobytes()
            if key in met:
                return None
            met.add(key)
            factors = self._factors(key, out)
            if factors is None:
                return None
            point[out] = 0.0
            limit = LEFT * (1.0 + float(np.abs(units * rhs).max(initial=0.0)))
            for _ in range(STEPS):
                left = rhs - self._matrix @ point
                step = units * left
                step[out] = 0.0
                if np.abs(step).max(initial=0.0) <= limit:
                    break
                point += units * factors.solve(step)
                point[out] = 0.0
            if not np.abs(step).max(initial=0.0) <= NIL / LEFT * limit:  # they exclude each other
                return None
            scaled = point / units
            slack = (units * left)[n:]
            size = 1.0 + float(np.abs(scaled[:n]).max(initial=0.0))
            violated = out[n:] & (slack < -NIL * size)
            prices = scaled[n:]
            wrong = self._inequality[n:] & ~out[n:]
            wrong &= prices < -NIL * float(np.abs(prices).max(initial=0.0))
            if not (violated.any() or wrong.any()):
                self._point, self._out = point, out
                z = point[n:] / self._cost
                np.maximum(z, 0.0, out=z, where=self._inequality[n:])
                return point[:n].copy(), z
            out = out.copy()
            out[n:] = (out[n:] & ~violated) | wrong
        return None

    def _factors(self, key: bytes, out: NDArray[np.bool_]) -> spla.SuperLU | None:
        """Return the factorised equations of a set."""
        if self._solved is not None and self._solved[0] == key:
            return self._solved[1]
        place = np.where(out, -AWAY, self._regular)
        self._scaled.data[self._diagonal] = self._own + place
        try:
            with warnings.catch_warnings(action="ignore"):
                factors = spla.splu(
                    self._scaled,
                    permc_spec="MMD_AT_PLUS_A",
                    diag_pivot_thresh=0.0,
                    options={"SymmetricMode": True},
                )
        except RuntimeError:  # singular to the last digit
            return None
        self._solved = (key, factors)
        return factors


# What a route finds: x, z, and what goes on record.
Near = tuple["Floats", "Floats", dict[str, Any]]

# Entries of the matrices of a quadratic program that is solved again this way, its columns and rows.
ENTRIES, SIZE = 50_000, 2_000
# What rows may be violated by, all together, as a share of the tolerance.
SHARE = 0.5
# Values that are not solved this way before it is left, unless more than half are.
MISSES = 8
# Values after which it is worth to prepare the bound, and times that it is prepared.
WORTH, BUILDS = 3, 3
KEPT = "the active set of the last solution"
MODEL = "conic:highspy"  # the adapter whose solver keeps its model
OPTIMAL = Status("optimal", "feasible", "feasible", PROVED)


def _by_model(
    problem: Problem, compiled: Compiled, profile: SolverProfile, request: Request
) -> Near | None:
    """Solve a linear program by the model that its solver keeps, from where it ended."""
    form = compiled.form
    largest = max(float(np.abs(v).max(initial=0.0)) for v in (form.b, form.q))
    kept = compiled.ended.pop(profile.name, None)
    if not largest < BEYOND or kept is None:
        return None
    raw, kept = solve_form(
        form,
        compiled.integer,
        form.cost_scale(profile.objective_scale),
        request.solver_options(profile),
        False,
        kept=kept,
        solver_name=profile.name,
    )
    if kept is not None:
        compiled.ended[profile.name] = kept
    if raw.status == "infeasible":
        error = infeasible(problem, profile, compiled, raw)
        if isinstance(error, Infeasible):
            raise problem.explained(error)
    if raw.status != "optimal" or raw.x is None or raw.z is None:
        return None
    work = work_of(compiled, profile, raw)
    z = np.where(form.nonnegative, np.maximum(raw.z, 0.0), raw.z)
    return raw.x, z, {**work.get("iterations", {}), "kept": raw.kept}


@dataclass(eq=False)
class Last:
    """What is kept of the optimum of a linear or convex quadratic program, for other values.

    An optimum is taken on the same terms as one of a solver: the bound is proved, and what has
    moved of the problem is evaluated as it was declared. What has not moved was evaluated when the
    first was solved, and its rows are the same.

    Attributes
    ----------
    solution : Solution
        The last that a solver found.
    key : tuple of (str, bool)
        What it was compiled for.
    form : ConicForm
        Its cone program.
    moving : array (m,) of bool
        Rows whose right-hand sides were met at several values.
    """

    solution: Solution
    key: tuple[str, bool]
    form: ConicForm
    moving: NDArray[np.bool_]
    route: ActiveSet | SolverProfile
    bound: KeptBound | None = None
    builds: int = 0
    tries: int = 0
    misses: int = 0

    def again(self, problem: Problem, request: Request) -> Solution | None:
        """Return the optimum of the problem at its values, None where another way has to find it."""
        begin = time.perf_counter()
        if self.misses > MISSES + self.tries // 2:
            return None
        compiled = compile_problem(problem, self.key[0], quadratic=self.key[1])
        form = compiled.form
        if form.A is not self.form.A or form.P is not self.form.P:
            return None
        self.tries += 1
        compiled_at = time.perf_counter()
        near: Near | None = None
        if not isinstance(self.route, ActiveSet):
            near = _by_model(problem, compiled, self.route, request)
        elif (pair := self.route.solve(form)) is not None:
            near = *pair, {"kept": KEPT}
        solved_at = time.perf_counter()
        self.misses += 1
        if near is None:
            return None
        x, z, record = near
        verified = self._verified(problem, compiled, x, z, request)
        if verified is None:
            return None
        self.misses -= 1
        values, objective, unit = verified
        proof, before = ConicProof(problem, compiled, x, z), self.solution
        prices: dict[str, Any] = {}

        def price(name: str) -> Any:
            if not prices:
                prices.update(compiled.multipliers(z))
            return prices[name]

        def bound() -> float:
            return proof.check(values, LazyValues(late)).bound

        late = {name: lambda name=name: price(name) for name in before.multipliers}
        seconds = {"choose": begin - request.started, "compile": compiled_at - begin}
        seconds |= {"solve": solved_at - compiled_at, "verify": time.perf_counter() - solved_at}
        return Solution.deferred(
            bound,
            problem=problem,
            solver=before.solver,
            version=before.version,
            status=OPTIMAL,
            objective=objective,
            values=problem.labelled(values, "values"),
            multipliers=problem.labelled(LazyValues(late), "multipliers"),
            proof=proof,
            seconds=seconds,
            options={**request.to_dict(), **record},
            unit=unit,
        )

    def _verified(
        self, problem: Problem, compiled: Compiled, x: Floats, z: Floats, request: Request
    ) -> tuple[dict[str, Floats], float, float] | None:
        """Return values, objective and its unit, None where something is not proved."""
        form, tolerance = compiled.form, request.tolerance
        slack = form.slack(x)
        outside = np.where(form.equal, np.abs(slack), np.maximum(-slack, 0.0))
        sides = np.abs(form.b)
        unit = min(1.0, float(sides.max(initial=0.0))) or 1.0
        if not (outside / (unit + sides)).sum() <= SHARE * tolerance:
            return None
        terms = form.sizes @ np.abs(x)
        if not (outside <= tolerance * np.maximum(terms, sides)).all():
            # a column counts for one number in it at least
            terms = form.sizes @ np.maximum(np.abs(x), self.form.column_units)
            if not (outside <= tolerance * np.maximum(terms, sides)).all():
                return None
        objective = form.objective(x)
        unit = problem.objective_unit
        if problem.unit_from_data:
            unit = min(unit, form.unit)
        declared = form.sign * objective
        allowed = tolerance * max(unit, abs(declared - problem.objective_constant))
        if not any(abs(objective - proved) <= allowed for proved in self._bounds(form, x, z)):
            return None
        values = compiled.values(x)
        moved = [t for t in problem.constraints.values() if t.parameters]
        size_of_data = problem.data_unit
        if not all(t.violations(values, size_of_data)[1] <= tolerance for t in moved):
            return None
        if any(t.parameters for t in problem.objective.values()):
            stated = problem.objective_at(values)
            if not abs(stated - declared) <= allowed:
                return None
            declared = stated
        return values, declared, unit

    def _bounds(self, form: ConicForm, x: Floats, z: Floats) -> Iterator[float]:
        """Yield what the pair proves: cheaply where it was prepared, then with all means."""
        known = -np.inf if self.bound is None else self.bound(form, x, z)
        if not np.isfinite(known) and self.tries >= WORTH and self.builds < BUILDS:
            self.builds += 1
            self.moving |= form.b != self.form.b
            with contextlib.suppress(ValueError):
                self.bound = KeptBound(self.form, self.moving)
                known = self.bound(form, x, z)
        if np.isfinite(known):
            yield known
        proved = form.lower_bound(x, z)
        if proved.unpaid is None:
            yield proved.value


def again(problem: Problem, request: Request) -> Solution | None:
    """Return the optimum of a problem from that at other values of its parameters.

    None where there is none, or another way has to find it.
    """
    for ended in _kept(problem).values():
        last: Last | None = ended.pop(KEPT, None)  # nobody else may use it meanwhile
        if last is not None:
            try:
                return last.again(problem, request)
            finally:
                ended[KEPT] = last
    return None


def remember(problem: Problem, solution: Solution) -> None:
    """Keep an optimum that a solver found, where others are likely to be near it."""
    proof, known = solution.proof, _kept(problem)
    if not known or type(proof) is not ConicProof or solution.grade != PROVED:
        return
    compiled, form = proof.compiled, proof.compiled.form
    if (
        solution.status != OPTIMAL
        or solution.problem is not problem
        or type(problem).solved_by is not Problem.solved_by
        or any(c.kind not in ("zero", "nonneg") for c in form.cones)
    ):
        return
    last: Last | None = compiled.ended.pop(KEPT, None)
    if last is not None and (form.A is not last.form.A or form.P is not last.form.P):
        compiled.ended[KEPT] = last
        return
    route: ActiveSet | SolverProfile
    if last is None:
        if form.P.nnz and form.P.nnz + form.A.nnz <= ENTRIES and sum(form.A.shape) <= SIZE:
            route = ActiveSet(form)
        elif not form.P.nnz and profile(solution.solver).via == MODEL:
            route = profile(solution.solver)
        else:
            return
        own = [key for key, ended in known.items() if ended is compiled.ended]
        if not own:
            return
        last = Last(solution, own[0], form, np.zeros(form.b.size, dtype=bool), route)
    last.solution = solution
    if isinstance(last.route, ActiveSet):
        last.route.start(form, proof.x, proof.z)
    compiled.ended[KEPT] = last


def _kept(problem: Problem) -> dict[tuple[str, bool], dict[str, Any]]:
    """Return where solves of the problem at other values ended, by what it was compiled for."""
    forms: dict[tuple[str, bool], Moving] = problem.__dict__.get("_family") or {}
    return {key: form.first.ended for key, form in forms.items()}
