"""A problem as quadratics that branch and bound takes well, with further variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from cvxpy.constraints import SOC, Equality, Inequality, NonNeg, NonPos, Zero

from optfair.compile.quadratic import QuadraticForms, quadratic_terms
from optfair.core.canonical import Draft
from optfair.core.classify import evaluated_constraint, evaluated_objective
from optfair.core.expressions import substitute
from optfair.core.problem import Declaration, Problem
from optfair.core.quadratics import NotQuadratic, is_quadratic, quadratic_map
from optfair.errors import UnsupportedProblem

if TYPE_CHECKING:
    from optfair.core.term import ObjectiveTerm, Term

_PLAIN = (Equality, Inequality, Zero, NonNeg, NonPos)
# a term of the problem, and what it says or a part of it
Goal = tuple["ObjectiveTerm", Any]
Row = tuple["Term", Any]


def quadratic_form(problem: Problem) -> QuadraticForms:
    r"""Return a problem as quadratics, its second-order cones written as quadratics.

    .. math:: \|u\|_2 \le t \iff \|u\|_2^2 \le t^2,\; t \ge 0

    A convex term that is not quadratic is reduced to cones by CVXPY. A sum of squares of
    combinations, :math:`\|Ax - b\|^2` or :math:`x^T P x` with P positive definite, gets a
    variable per square: the relaxations of a sum of separate squares are far tighter (a
    dense least-squares problem in 100 variables: optimal after 2 s, not a gap of 0.14 after 10).
    The variables that are added stand behind the problem's own.

    Raises
    ------
    UnsupportedProblem
        A term that this does not express; it is named.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [cp.norm(x) <= 1]), ["ball"])
    >>> [term.name for term in quadratic_form(p).constraints]
    ['ball side 0', 'ball cone 0', 'ball 1']
    """
    objective: dict[str, Goal] = {}
    constraints: dict[str, Row] = {}
    offsets, at = {}, 0
    for v in problem.variables.values():
        offsets[v.id] = at
        at += v.size
    for term in problem.objective.values():
        built = term.build()
        if not _plain(built) and _follows(built, problem.sense):
            top = cp.Variable()
            side = built <= top if problem.sense == "minimize" else built >= top
            constraints |= _conic_parts(term, side)
            objective[term.name] = term, top
            continue
        lifted, squares = _separate_squares(built, offsets, at)
        constraints |= {n: (term, c) for n, c in _named(term, squares)}
        objective[term.name] = term, lifted
    for constraint in problem.constraints.values():
        built = constraint.build()
        if not _plain(built) and built.is_dcp():
            constraints |= _conic_parts(constraint, built)
            continue
        lifted, squares = _separate_squares(built, offsets, at)
        constraints |= {n: (constraint, c) for n, c in _named(constraint, squares)}
        constraints[constraint.name] = constraint, lifted
    return quadratic_terms(_Lifted(problem, objective, constraints))


def _named(term: Term, squares: list[Any]) -> Iterator[tuple[str, Any]]:
    for i, c in enumerate(squares):
        yield f"{term.name} squares {i}", c


def _separate_squares(built: Any, offsets: Mapping[int, int], size: int) -> tuple[Any, list[Any]]:
    """Return an expression or constraint whose sums of squares are of plain variables.

    Also returns the equalities that define these variables.
    """
    swaps: dict[int, Any] = {}
    equalities: list[Any] = []
    for node in _nodes(built):
        if id(node) in swaps:
            continue
        if isinstance(node, quad_over_lin) and node.args[1].is_constant():
            if _combines(node.args[0], offsets, size):
                part = cp.Variable(node.args[0].shape)
                more = {"axis": node.axis, "keepdims": node.keepdims}
                swaps[id(node)] = quad_over_lin(part, node.args[1], **more)
                equalities.append(part == node.args[0])
        elif isinstance(node, QuadForm) and node.args[1].is_constant():
            factor = _factor(node.args[1].value)
            if factor is not None and node.args[0].is_affine():
                part = cp.Variable(factor.shape[1])
                swaps[id(node)] = cp.sum_squares(part)
                equalities.append(part == factor.T @ cp.vec(node.args[0], order="F"))
    return (substitute(built, swaps), equalities) if swaps else (built, [])


def _nodes(e: Any) -> Iterator[Any]:
    yield e
    for a in e.args:
        yield from _nodes(a)


def _combines(expression: Any, offsets: Mapping[int, int], size: int) -> bool:
    """Whether an entry of an affine expression depends on more than one scalar."""
    if isinstance(expression, cp.Variable) or not expression.is_affine():
        return False
    try:
        A = quadratic_map(expression, offsets, size).A
    except NotQuadratic:
        return False
    return bool((np.diff(A.indptr) > 1).any())


def _factor(P: Any) -> Any:
    """Return L with P = L Lᵀ, None unless P is positive definite and not diagonal."""
    dense = np.asarray(P.toarray() if hasattr(P, "toarray") else P, dtype=float)
    if not np.count_nonzero(dense - np.diag(np.diag(dense))):
        return None
    try:
        return np.linalg.cholesky((dense + dense.T) / 2)
    except np.linalg.LinAlgError:
        return None


class _Lifted(Problem):
    """A problem with further variables behind its own."""

    def __init__(
        self,
        problem: Problem,
        objective: Mapping[str, Goal],
        constraints: Mapping[str, Row],
    ) -> None:
        variables = dict(problem.variables)
        names = dict(problem.names)
        for v in (
            v for _, e in (*objective.values(), *constraints.values()) for v in e.variables()
        ):
            if v.id not in names:
                name = f"added {len(variables)}"
                while name in variables:
                    name += " more"
                variables[name], names[v.id] = v, name
        goals = tuple(
            evaluated_objective(name, e, names, term.evidence)
            for name, (term, e) in objective.items()
        )
        rows = tuple(
            evaluated_constraint(name, c, names, term.evidence)
            for name, (term, c) in constraints.items()
        )
        super().__init__(
            {"declaration": Declaration(variables, problem.sense, goals, rows, problem.integers)}
        )

    def declare(self) -> Declaration:
        declared: Declaration = self.data["declaration"]
        return declared


def _plain(built: Any) -> bool:
    """Whether a built term is quadratic as it stands."""
    if isinstance(built, _PLAIN):
        return all(is_quadratic(arg) for arg in built.args)
    return not isinstance(built, cp.Constraint) and is_quadratic(built)


def _follows(expression: Any, sense: str) -> bool:
    return bool(expression.is_convex() if sense == "minimize" else expression.is_concave())


def _conic_parts(term: Term, constraint: Any) -> dict[str, Row]:
    """Reduce a convex constraint to linear and second-order cones, these to quadratics."""
    parts: dict[str, Any] = {}
    for i, part in enumerate(Draft(term.name, constraint).constraints):
        if isinstance(part, _PLAIN):
            parts[f"{term.name} {i}"] = part
        elif isinstance(part, SOC):
            side, inside = part.args
            parts[f"{term.name} side {i}"] = side >= 0
            axis = part.axis if inside.ndim > 1 else None
            parts[f"{term.name} cone {i}"] = cp.sum_squares(inside, axis=axis) <= cp.square(side)
        else:
            raise UnsupportedProblem(
                f"{term.name!r} is not quadratic",
                f"it needs the cone {type(part).__name__}; quadratics express linear and"
                " second-order cones only",
                f"remove {term.name!r}, or choose a solver that has this cone",
            )
    return {name: (term, part) for name, part in parts.items()}
