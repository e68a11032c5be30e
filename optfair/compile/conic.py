"""Compile a declared problem through CVXPY's reductions, and read results back by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.solution import Solution as RawSolution
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver
from cvxpy.settings import OPTIMAL
from numpy.typing import NDArray

from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.errors import DeclarationError, UnsupportedProblem
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]

__all__ = ["Compiled", "ConicProof", "compile_problem", "form_check", "unpriced"]


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem in the form one solver interface of CVXPY reads, with the way back.

    Attributes
    ----------
    form : ConicForm
        The cone program, before the solver sees it.
    data, chain, inverse
        What CVXPY needs to call the solver and to invert its result.
    variables, constraints : dict
        Name -> CVXPY object in the compiled problem.
    """

    form: ConicForm
    cvxpy_problem: Any
    data: Any
    chain: Any
    inverse: Any
    variables: Mapping[str, Any]
    constraints: Mapping[str, Any]

    @property
    def _order(self) -> list[Any]:
        inverse = self.inverse[-1]
        return [*inverse[ConicSolver.EQ_CONSTR], *inverse[ConicSolver.NEQ_CONSTR]]

    def dual_vector(self, raw: Any) -> Floats | None:
        """Return z in row order from a solution at the level of the solver interface."""
        if not raw.dual_vars:
            return None
        blocks = [
            np.ravel(raw.dual_vars[c.id], order="F") for c in self._order if c.id in raw.dual_vars
        ]
        z = np.concatenate(blocks) if blocks else np.zeros(0)
        return np.asarray(z, dtype=float) if z.size == self.form.b.size else None

    def places(self) -> dict[str, NDArray[np.int64]]:
        """Return the column each entry of a variable is read from, -1 where there is none.

        Both triangles of a symmetric variable are read from the same columns; an entry
        outside the pattern of a sparse one, or of a variable no term uses, has no column.
        """
        tags, _ = self.by_name(np.arange(1.0, self.form.q.size + 1.0), None)
        return {name: np.rint(tag).astype(np.int64) - 1 for name, tag in tags.items()}

    def by_name(self, x: Floats, z: Floats | None) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values and multipliers by name from a point of the cone program."""
        duals: dict[Any, Any] = {}
        if z is not None:
            at = 0
            for c in self._order:
                size = sum(arg.size for arg in c.args)
                block = z[at : at + size]
                duals[c.id] = float(block[0]) if size == 1 else block
                at += size
        x_id = self.data["param_prob"].x.id
        solution = RawSolution(OPTIMAL, self.form.objective(x), {x_id: x}, duals, {})
        for reduction, inverse in zip(
            reversed(self.chain.reductions[:-1]), reversed(self.inverse[:-1]), strict=True
        ):
            solution = reduction.invert(solution, inverse)
        values = {
            name: _dense(solution.primal_vars[v.id]).reshape(v.shape, order="F")
            if v.id in solution.primal_vars
            else np.zeros(v.shape)  # a variable that no term uses
            for name, v in self.variables.items()
        }
        multipliers = {
            name: _stacked(solution.dual_vars[c.id])
            for name, c in self.constraints.items()
            if c.id in solution.dual_vars
        }
        return values, multipliers


def _dense(value: Any) -> Floats:
    dense: Any = value.toarray() if hasattr(value, "toarray") else value
    return np.asarray(dense, dtype=float)


def _stacked(value: Any) -> Floats:
    """Return one array; the parts of a cone constraint one after the other."""
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in value])
    return np.asarray(value, dtype=float)


def compile_problem(problem: Problem, interface: str, solver_options: dict[str, Any]) -> Compiled:
    """Return the cone program of a problem as CVXPY's named solver interface gets it.

    Parameters
    ----------
    problem : Problem
        What to compile; it is not changed.
    interface : str
        CVXPY's name of the solver.
    solver_options : dict
        Options that CVXPY reads at this stage.
    """
    built, variables, constraints = problem.built(fresh=False)
    if not built.variables():
        raise DeclarationError(
            "no term uses a variable, there is nothing to solve",
            remedy="add an objective or a constraint",
        )
    try:
        with _quiet(variables):
            data, chain, inverse = built.get_problem_data(
                interface, solver_opts=dict(solver_options)
            )
    except (cp.error.DCPError, cp.error.SolverError) as e:
        culprits = [name for name, c in constraints.items() if not c.is_dcp()]
        culprits += [
            n for n, t in problem.objective.items() if not _composes(t.build(), problem.sense)
        ]
        raise UnsupportedProblem(
            f"CVXPY cannot compile {', '.join(map(repr, culprits)) or 'this problem'} for {interface}",
            " ".join(str(e).split())[:200],
            "write it by the rules of disciplined convex programming, e.g. a convex quadratic"
            " as quad_form(x, Q) or sum_squares(A @ x)",
        ) from e
    program = data["param_prob"]
    sign = 1.0 if problem.sense == "minimize" else -1.0
    A, b = data["A"], data["b"]
    if "F" in data:  # interfaces for quadratic programs keep equalities and inequalities apart
        A, b = sp.vstack([data["A"], data["F"]]), np.concatenate([data["b"], data["G"]])
    q = np.asarray(data["c"] if "c" in data else data["q"], dtype=float)
    P = data.get("P")
    form = ConicForm(
        P=sp.csc_array((q.size, q.size)) if P is None else sp.csc_array(P),
        q=q,
        offset=float(inverse[-1].get("offset", 0.0)),
        A=sp.csc_array(A),
        b=np.asarray(b, dtype=float),
        cones=_cones(data["dims"], chain.reductions[-1]),
        columns=_columns(variables, program, chain, inverse),
        sign=sign,
    )
    return Compiled(form, built, data, chain, inverse, variables, constraints)


def _quiet(variables: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Silence what CVXPY says to itself while it reads sparse variables."""
    if any(v.attributes.get("sparsity") for v in variables.values()):
        return warnings.catch_warnings(action="ignore", category=RuntimeWarning)
    return nullcontext()


def _columns(
    variables: Mapping[str, Any], program: Any, chain: Any, inverse: Any
) -> dict[str, slice]:
    """Return the columns of each variable; one that no term uses has none.

    A symmetric, diagonal or sparse variable is replaced on the way by one of its free
    entries, and has the columns of that.
    """
    sizes = {v.id: v.size for v in program.variables}
    found = {}
    for name, v in variables.items():
        last = v.id
        for reduction, data in zip(chain.reductions, inverse, strict=True):
            if isinstance(reduction, CvxAttr2Constr) and data:
                replaced, _, _ = data
                last = replaced[last].id if last in replaced else last
        if last in sizes:
            start = program.var_id_to_col[last]
            found[name] = slice(start, start + sizes[last])
    return found


def _composes(expression: Any, sense: str) -> bool:
    return bool(expression.is_convex() if sense == "minimize" else expression.is_concave())


def _cones(dims: Any, interface: Any) -> tuple[Cone, ...]:
    cones: list[Cone] = []
    at = 0

    def add(kind: Any, size: int, **more: Any) -> None:
        nonlocal at
        if size:
            cones.append(Cone(kind, at, at + size, **more))
            at += size

    upper = getattr(getattr(interface, "PSD_TRIANGLE_KIND", None), "name", "UPPER") == "UPPER"
    add("zero", dims.zero)
    add("nonneg", dims.nonneg)
    for size in dims.soc:
        add("soc", size)
    for order in dims.psd:
        add("psd", order * (order + 1) // 2, order=order, upper=upper)
    for _ in range(dims.exp):
        add("exp", 3)
    for power in dims.p3d:
        add("pow", 3, power=float(power))
    return tuple(cones)


@dataclass(frozen=True, eq=False)
class ConicProof:
    """A primal-dual pair of the compiled cone program, checked by its residuals.

    The named values and multipliers must be the image of (x, z); stationarity,
    feasibility and complementarity of (x, z) are recomputed from the compiled data.
    """

    problem: Problem
    compiled: Compiled
    x: Floats
    z: Floats
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound from the compiled data."""
        ours, duals = self.compiled.by_name(self.x, self.z)
        apart = [_difference(values.get(k), v) for k, v in ours.items()]
        apart += [_difference(multipliers.get(k), v) for k, v in duals.items()]
        return form_check(self.compiled.form, self.x, self.z, float(np.max(apart, initial=0.0)))


def form_check(form: ConicForm, x: Floats, z: Floats, consistency: float) -> DualCheck:
    """Return what a primal-dual pair of a cone program proves about the declared problem."""
    r = form.residuals(x, z)
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
    )


def _difference(given: Any, expected: Floats) -> float:
    """Return the largest relative difference; infinite for missing or non-finite numbers."""
    if given is None or np.shape(given) != expected.shape:
        return np.inf
    apart = np.abs(np.asarray(given, dtype=float) - expected) / (1.0 + np.abs(expected))
    worst = float(apart.max(initial=0.0))
    return worst if np.isfinite(worst) else np.inf


def unpriced(form: ConicForm, z: Floats) -> Floats:
    r"""Return multipliers that are 0 on inequalities without variables that hold.

    .. math:: 0^T x \le b_i,\; b_i \ge 0

    Such a row changes no stationarity and adds :math:`-b_i z_i \le 0` to the bound: what an
    interior-point method leaves there is its distance from the optimum, not a price.
    """
    if z.size != form.b.size:
        return z
    idle = form.b >= 0.0
    idle[form.A.indices[form.A.data != 0.0]] = False  # of a matrix by columns
    nonneg = np.zeros(z.size, dtype=bool)
    for cone in form.cones:
        if cone.kind == "nonneg":
            nonneg[cone.start : cone.stop] = True
    idle &= nonneg
    return np.where(idle, 0.0, z) if idle.any() else z
