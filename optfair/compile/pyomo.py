"""Hand a problem to Pyomo, and read its values back by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import Block, Program, program
from optfair.core.problem import check_problem
from optfair.errors import DataError, NotInstalled
from optfair.numbers import Floats, checked

if TYPE_CHECKING:
    from optfair.core.problem import Problem


def _pyomo() -> Any:
    try:
        import pyomo.environ as pyo
    except ImportError as e:
        raise NotInstalled(
            "Pyomo is not installed", str(e), 'install it: pip install "optfair[pyomo]"'
        ) from e
    return pyo


@checked(problem=check_problem)
def to_pyomo(problem: Problem) -> Any:
    r"""Return a Pyomo model of a problem, with the names of its variables and constraints.

    .. math::
        \min_x \text{ or } \max_x\; \tfrac12 x^T P x + q^T x + r
        \quad\text{s.t. the rows of each term, by name}

    LP, QP, QCQP (convex or not) and the same with integer variables; piecewise linear terms
    become rows in further columns. Entry ``p["x"][1, 2]`` is ``model.component("x")[1, 2]``,
    a scalar variable is ``model.component("t")``. A constraint whose name is also that of a
    variable is called ``NAME constraint``; the objective is ``objective``.

    Parameters
    ----------
    problem : Problem
        What to write.

    Returns
    -------
    pyomo.environ.ConcreteModel

    Raises
    ------
    UnsupportedProblem
        A term needs a cone; it is named.
    NotInstalled
        Pyomo is missing.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), [cp.sum_squares(x) <= 2]), ["disk"])
    >>> model = to_pyomo(p)
    >>> print(model.component("disk").expr)
    x[0]**2 + x[1]**2  <=  2.0
    """
    pyo = _pyomo()
    rows = program(problem)
    model = pyo.ConcreteModel(problem.title or type(problem).__name__)
    scalars: list[Any] = []
    for b in rows.columns:
        domain = pyo.Integers if rows.integer[b.start : b.stop].any() else pyo.Reals
        where = [None] if not b.shape else _keys(b)
        variable = pyo.Var(within=domain) if not b.shape else pyo.Var(where, within=domain)
        model.add_component(b.name, variable)
        scalars += [variable[k] for k in where]
    for column, low, high in zip(scalars, rows.lower, rows.upper, strict=True):
        column.setlb(None if np.isneginf(low) else float(low))
        column.setub(None if np.isposinf(high) else float(high))
    _add_objective(pyo, model, rows, scalars)
    _add_rows(pyo, model, rows, scalars)
    return model


@checked(problem=check_problem)
def pyomo_values(problem: Problem, model: Any) -> dict[str, Floats]:
    """Return the values of a solved Pyomo model by variable name, as `Solution.values` has them.

    Parameters
    ----------
    problem : Problem
        What the model was made from.
    model : pyomo.environ.ConcreteModel
        From `to_pyomo`, solved.

    Raises
    ------
    DataError
        The model lacks a variable, or a value.
    """
    pyo = _pyomo()
    found: dict[str, Floats] = {}
    for name, v in problem.variables.items():
        component = model.component(name) if hasattr(model, "component") else None
        if component is None:
            raise DataError(
                f"the model has no variable {name!r}",
                remedy="give the model that to_pyomo(problem) returned",
            )
        b = Block(name, 0, tuple(v.shape))
        keys = _keys(b) if b.shape else [None]
        numbers = [pyo.value(component[k], exception=False) for k in keys]
        if any(x is None for x in numbers):
            raise DataError(
                f"{name!r} has no value in the model",
                f"{sum(x is None for x in numbers)} of {len(numbers)} entries",
                "solve the model first",
            )
        found[name] = np.array(numbers, dtype=float).reshape(v.shape, order="F")
    return found


def _keys(block: Block) -> list[Any]:
    """Return Pyomo's index of each entry: a number for vectors, else a tuple."""
    return [i[0] if len(i) == 1 else i for i in block.indices()]


def _add_objective(pyo: Any, model: Any, rows: Program, x: list[Any]) -> None:
    lower = sp.coo_array(sp.tril(rows.P))
    weight = np.where(lower.row == lower.col, 0.5, 1.0) * lower.data
    at = np.flatnonzero(rows.q)
    expression = _expression(pyo, x, at, rows.q[at], lower.col, lower.row, weight) + rows.offset
    sense = pyo.maximize if rows.sense == "maximize" else pyo.minimize
    name = _free(model, "objective")
    model.add_component(name, pyo.Objective(expr=expression, sense=sense))


def _add_rows(pyo: Any, model: Any, rows: Program, x: list[Any]) -> None:
    A = sp.csr_array(rows.A)
    for b in rows.rows:
        keys = _keys(b) if b.shape else [None]
        component = pyo.Constraint(keys) if b.shape else pyo.Constraint()
        model.add_component(_free(model, b.name), component)
        for i, key in zip(range(b.start, b.stop), keys, strict=True):
            at = slice(A.indptr[i], A.indptr[i + 1])
            products = rows.row_products(i)
            low, high = float(rows.row_lower[i]), float(rows.row_upper[i])
            if at.start == at.stop and not products[2].size:
                # Pyomo refuses rows without variables; a false one must stay false
                value = pyo.Constraint.Feasible if low <= 0.0 <= high else pyo.Constraint.Infeasible
                if value is pyo.Constraint.Feasible:
                    continue
                products = (np.zeros(1, int), np.zeros(1, int), np.zeros(1))
            body = _expression(pyo, x, A.indices[at], A.data[at], *products)
            if low == high:
                component.add(key, body == high)
            elif np.isneginf(low):
                component.add(key, body <= high)
            else:
                component.add(key, (low, body, None if np.isposinf(high) else high))


def _expression(pyo: Any, x: list[Any], at: Any, values: Any, i: Any, j: Any, weights: Any) -> Any:
    linear = [float(v) * x[k] for k, v in zip(at, values, strict=True)]
    square = [
        float(w) * (x[a] ** 2 if a == b else x[a] * x[b])
        for a, b, w in zip(i, j, weights, strict=True)
    ]
    return pyo.quicksum(square + linear)


def _free(model: Any, name: str) -> str:
    candidate = name
    while model.component(candidate) is not None:
        candidate += " constraint" if candidate == name else "_"
    return candidate
