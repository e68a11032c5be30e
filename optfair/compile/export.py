"""A problem handed on: as a cone program in arrays with names, or as a model of Pyomo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.form import PLAIN, Compiled, compile_problem
from optfair.compile.program import Block, Program, program
from optfair.core.canonical import built
from optfair.core.labels import entry_names
from optfair.core.problem import check_problem
from optfair.errors import DataError, needed
from optfair.numbers import Floats, Indices, check_flag, check_path, check_vector, checked
from optfair.proofs.cones import Cone
from optfair.storage import write_archive

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm


# A problem as a cone program in arrays, with names of rows and columns.

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class ConeProgram:
    r"""A cone program in arrays.

    .. math::
        \min_x\; \tfrac12 x^T P x + q^T x + r
        \quad\text{s.t.}\quad A x + s = b,\; s \in \mathcal{K}_1 \times \dots \times \mathcal{K}_p

    A maximisation is written as the minimisation of the negative objective.

    Attributes
    ----------
    P, q, offset, A, b
        Data; P and A are sparse.
    cones : tuple of Cone
        Blocks of rows: zero, nonneg, soc (t, x), psd (triangle column by column, off-diagonal
        entries times its ``root``: √2, or 1 as they are), exp (x, y, z with y exp(x/y) <= z), pow.
    columns, rows : tuple of str
        Name of each column and row, ``x[0]`` and ``budget`` as in the problem; ``auxiliary[k]``
        and ``cone k[i]`` for what the reduction to cones added.
    maximize : bool
        Whether the declared objective is minus the compiled one.
    integer : array (n,) of bool
        Columns that are integer.
    """

    P: Any
    q: Floats
    offset: float
    A: Any
    b: Floats
    cones: tuple[Cone, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    maximize: bool
    integer: NDArray[np.bool_]
    owners: tuple[tuple[str, int, int], ...]
    compiled: Compiled

    def __repr__(self) -> str:
        rows = {c.kind: 0 for c in self.cones}
        for c in self.cones:
            rows[c.kind] += c.stop - c.start
        cones = ", ".join(f"{kind} {count}" for kind, count in rows.items()) or "none"
        return (
            f"ConeProgram: {self.q.size} columns, {self.b.size} rows, {self.A.nnz} entries in A\n"
            f"  integer      {np.count_nonzero(self.integer)} columns\n"
            f"  cones        {cones}"
        )

    def by_name(
        self, x: Floats, z: Floats | None = None
    ) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return values by variable and multipliers by constraint from a point (x, z).

        z are the multipliers of A x + s = b with z in the dual cones.
        """
        return self.compiled.by_name(
            check_vector(x, "x", self.q.size),
            None if z is None else check_vector(z, "z", self.b.size),
        )

    @checked(path=check_path, overwrite=check_flag)
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write ``path.npz``: the arrays, and cones, names and sense in its ``record.json``.

        Raises
        ------
        DataError
            A file of that name exists, without ``overwrite=True``, or it cannot be written.
        """
        arrays: dict[str, Any] = {"q": self.q, "b": self.b, "integer": self.integer}
        for letter, matrix in (("P", self.P), ("A", self.A)):
            m = sp.csc_array(matrix)
            arrays |= {
                f"{letter}_data": m.data,
                f"{letter}_indices": m.indices,
                f"{letter}_indptr": m.indptr,
                f"{letter}_shape": np.array(m.shape),
            }
        record = {
            "schema": SCHEMA,
            "maximize": self.maximize,
            "offset": self.offset,
            "columns": list(self.columns),
            "rows": list(self.rows),
            "cones": [
                {"kind": c.kind, "start": c.start, "stop": c.stop}
                | ({"order": c.order, "upper": c.upper, "root": c.root} if c.kind == "psd" else {})
                | ({"power": c.power} if c.kind == "pow" else {})
                for c in self.cones
            ],
        }
        write_archive(path, record, arrays, overwrite)


@checked(problem=check_problem, quadratic=check_flag, scaled=check_flag)
def cone_program(problem: Problem, *, quadratic: bool = True, scaled: bool = True) -> ConeProgram:
    """Return the cone program of a convex problem, with the way back to its names.

    Parameters
    ----------
    problem : Problem
        Convex; integer variables are marked, not relaxed.
    quadratic : bool
        Keep a quadratic objective in P; otherwise it becomes a second-order cone.
    scaled : bool
        Whether rows of semidefinite blocks have √2 beside the diagonal, as solvers take them.

    Raises
    ------
    UnsupportedProblem
        The problem is not known to be convex.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.sum(x) == 1, x >= 0]), ["budget", "sign"])
    >>> c = cone_program(p)
    >>> c
    ConeProgram: 2 columns, 3 rows, 4 entries in A
      integer      0 columns
      cones        zero 1, nonneg 2
    >>> c.columns, c.rows, c.maximize
    (('x[0]', 'x[1]'), ('budget', 'sign[0]', 'sign[1]'), True)
    >>> c.by_name([1.0, 0.0])[0]["x"].tolist()
    [1.0, 0.0]
    """
    # CVXPY's reductions know cones or integers, rarely both: reduce the relaxation, mark columns
    relaxed = problem._child(integers=frozenset())
    compiled = compile_problem(
        relaxed, cp.CLARABEL if scaled else PLAIN + cp.CLARABEL, quadratic=quadratic
    )
    form = compiled.form
    n = form.q.size
    integer = np.zeros(n, dtype=bool)
    columns = [""] * n
    for name, place in compiled.places().items():
        labels = problem.entry_labels(name) or _entries(name, place.shape, place.size)
        for column, label in zip(np.ravel(place, order="F"), labels, strict=True):
            if column >= 0 and not columns[column]:
                columns[column], integer[column] = label, name in problem.integers
    extra = [j for j, c in enumerate(columns) if not c]
    for k, j in enumerate(extra):
        columns[j] = f"auxiliary[{k}]"
    owners = _owners(compiled)
    rows = [""] * form.b.size
    for name, start, stop in owners:
        shape = built(compiled.constraints[name]).shape if name in compiled.constraints else ()
        term = problem.constraints.get(name)
        own = term.labels() if term is not None and term.labels is not None else ()
        plain = len(own) != stop - start
        rows[start:stop] = _entries(name, tuple(shape), stop - start) if plain else own
    return ConeProgram(
        P=form.P,
        q=form.q,
        offset=form.offset,
        A=form.A,
        b=form.b,
        cones=form.cones,
        columns=tuple(columns),
        rows=tuple(rows),
        maximize=form.sign < 0,
        integer=integer,
        owners=owners,
        compiled=compiled,
    )


def _entries(name: str, shape: tuple[int, ...], size: int) -> list[str]:
    """Return ``name`` or ``name[i,j]`` column by column; a plain count if the shape is another."""
    if int(np.prod(shape)) != size:  # the scaled triangle of a matrix, the parts of a cone
        shape = (size,)
    return entry_names(name, (), shape) if shape else [name]


def _owners(compiled: Compiled) -> tuple[tuple[str, int, int], ...]:
    """Return (name of the term, first row, one past the last) for each block of rows.

    Rows that define epigraphs are named for themselves: they carry no multiplier of a term.
    """
    count = 0
    named = []
    for o in compiled.owners:
        count += not o.main
        named.append((o.term if o.main else f"cone {count}", o.start, o.stop))
    return tuple(named)


# Hand a problem to Pyomo, and read its values back by name.


PYOMO = 'install it: pip install "optfair[pyomo]"'


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
    pyo = needed("pyomo.environ", PYOMO)
    rows = program(problem)
    model = pyo.ConcreteModel(problem.title)
    scalars: list[Any] = []
    for b in rows.columns:
        domain = pyo.Integers if rows.integer[b.start : b.stop].any() else pyo.Reals
        where = [None] if not b.shape else _keys(b)
        variable = pyo.Var(within=domain) if not b.shape else pyo.Var(where, within=domain)
        model.add_component(b.name, variable)
        scalars += [variable[k] for k in where]
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

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.Variable(2, name="x")[0])))
    >>> model = p.to_pyomo()
    >>> model.x.set_values({0: 1.5, 1: 2.0})
    >>> pyomo_values(p, model)["x"].tolist()
    [1.5, 2.0]
    """
    pyo = needed("pyomo.environ", PYOMO)
    values: dict[str, Floats] = {}
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
        values[name] = np.array(numbers, dtype=float).reshape(v.shape, order="F")
    return values


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


def arranged(
    first: ConicForm, data: Mapping[str, Any], form: ConicForm, turned: Indices | None
) -> dict[str, Any] | None:
    """Return what an interface was handed of one form with the numbers of another.

    None where it arranges them in a way of its own.
    """
    before, now = ({**_arrays(f, data, turned)} for f in (first, form))
    if any(not _same(data[k], v) for k, v in before.items()):
        return None
    unmoved = {"A": first.A is form.A, "F": first.A is form.A, "P": first.P is form.P}
    return {**data, **{k: data[k] if unmoved.get(k) else v for k, v in now.items()}}


def _arrays(form: ConicForm, data: Mapping[str, Any], turned: Indices | None) -> dict[str, Any]:
    """Return the arrays of a form by the names that interfaces of CVXPY give them."""
    A, b = form.A, form.b
    if turned is not None:
        A, b = sp.csc_array(sp.csr_array(A)[turned]), b[turned]
    costs = {"P": form.P} if data.get("P") is not None else {}
    if "F" not in data:
        return {"A": A, "b": b, "c": form.q, **costs}
    zeros = sum(c.stop - c.start for c in form.cones if c.kind == "zero")
    rows = sp.csr_array(A)
    upper, lower = sp.csc_array(rows[:zeros]), sp.csc_array(rows[zeros:])
    return {"A": upper, "b": b[:zeros], "F": lower, "G": b[zeros:], "q": form.q, **costs}


def _same(one: Any, other: Any) -> bool:
    if np.shape(one) != np.shape(other):
        return False
    if not hasattr(other, "toarray"):
        return np.array_equal(one, other)
    ours, theirs = sp.csc_array(one), sp.csc_array(other)
    return all(
        np.array_equal(getattr(ours, k), getattr(theirs, k)) for k in ("indptr", "indices", "data")
    )
