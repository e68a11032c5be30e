"""A problem from arrays or a file: one vector of columns, few terms, every entry with its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.classify import objective_term
from optfair.core.composition import named_term
from optfair.core.labels import Labelled
from optfair.core.problem import Declaration, Problem
from optfair.core.term import ConstraintTerm
from optfair.errors import DeclarationError, Infeasible, nearest
from optfair.formats.elastic import carrying_entries
from optfair.formats.entry_names import Families, suffixed
from optfair.formats.file_objective import objective
from optfair.formats.file_terms import constraints
from optfair.formats.layout import Layout
from optfair.formats.rows import Rows, unique_names

__all__ = ["FileProblem"]


class FileProblem(Problem):
    r"""What a file or arrays state.

    .. math::
        \min_x \text{ or } \max_x\; \tfrac12 x^T P x + c^T x + r
        \quad\text{s.t.}\quad
        l_k \le \tfrac12 x^T P_k x + a_k^T x \le u_k,\;
        l \le x \le u,\; x_j \in \mathbb{Z}\; (j \in J)

    All continuous columns are one variable and all integer columns another. ``p["x"]`` is the
    array of the columns ``x[0]``, ``x[1]``, ... (or ``x1``, ``x2``, ...) as an expression, and
    ``p["COL1"]`` a single column; `row` is the left side of a row. Solutions are read the same
    way: ``s["x"]``, ``s["COL1"]``, ``s.shadow_price["ROW1"]``.

    Rows with the same stem are one term of that name, and bounds are terms ``x lower``, ``x upper`` and
    ``x fixed``. A file of more than 32 such arrays has one term per sense instead: ``rows ==``,
    ``rows <=``, ``rows >=``, ``ranges lower`` and ``ranges upper``; and bounds by side.

    Parameters
    ----------
    rows : Rows
        The data.
    title : str
        What it is called in prints.

    Examples
    --------
    >>> import optfair as of
    >>> p = of.from_arrays(q=[1.0, 2.0], A=[[1.0, 1.0]], l=3.0, ub=2.0, rows=["demand"])
    >>> s = p.solve()
    >>> s["x"].tolist(), float(s["x[0]"]), float(s.shadow_price["demand"])
    ([2.0, 1.0], 2.0, 2.0)
    """

    unit_from_data = True

    def __init__(self, rows: Rows, title: str = "") -> None:
        super().__init__({"rows": rows})
        self._set(title=title)

    @property
    def rows(self) -> Rows:
        """The data as the file states them."""
        rows: Rows = self.data["rows"]
        return rows

    @property
    def arrays(self) -> Families:
        """Names of the arrays that columns form, with their shapes."""
        return self._layout.families

    @property
    def _layout(self) -> Layout:
        if "_columns" not in self.__dict__:
            self._set(_columns=Layout(self.rows))
        layout: Layout = self.__dict__["_columns"]
        return layout

    def declare(self) -> Declaration:
        """Return the two vectors and the terms of rows and bounds."""
        layout = self._layout
        return Declaration(
            layout.variables,
            "maximize" if self.rows.maximize else "minimize",
            (objective(self.rows, layout),),
            tuple(constraints(self.rows, layout)),
            layout.integers,
        )

    # --- columns and rows by label -----------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        if name in self.variables:
            return self.variables[name]
        at = self._layout.find(name)
        if at is None:
            known = [*self.variables, *self.arrays]
            raise DeclarationError(
                f"no variable or column {name!r} in {self._called}",
                remedy=nearest(str(name), known),
            )
        return self._layout.expression(at)

    def row(self, label: str) -> Any:
        """Return the left side of a row as an expression, to state further constraints on it.

        Raises
        ------
        DeclarationError
            There is no row of that label.
        """
        i = self._layout.row_index.get(label)
        if i is None:
            raise DeclarationError(
                f"no row {label!r} in {self._called}",
                remedy=nearest(str(label), list(self._layout.row_index)),
            )
        body = self._layout.times(self.rows.A[[i], :])[0]
        return body + self._layout.quadratic(self.rows.row_P[i]) if i in self.rows.row_P else body

    def times(self, matrix: Any) -> Any:
        """Return matrix @ columns as an expression, for a matrix with a column per column."""
        return self._layout.times(sp.csr_array(matrix))

    def point(self, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the values of all columns in the order of the file."""
        return self._layout.vector(values)

    def entry_labels(self, variable: str) -> Sequence[str]:
        """Return the labels of the columns that a vector holds."""
        members = self._layout.members.get(variable)
        return () if members is None else [self.rows.columns[j] for j in members]

    def labelled(self, numbers: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return numbers by variable or constraint that are also found by label."""
        if isinstance(numbers, Labelled):
            return numbers
        find = {"values": self._value, "prices": self._price}.get(what, self._multiplier)
        return Labelled(numbers, find)

    def _value(self, values: Mapping[str, Any], name: str) -> Any:
        at = self._layout.find(name)
        if at is None or not self._layout.variables.keys() <= set(values):
            return None
        return self._layout.vector(values)[at.members].reshape(at.shape, order="F")

    def _multiplier(self, multipliers: Mapping[str, Any], label: str) -> Any:
        for name, at in self._terms_of(label):
            if name in multipliers and label == self._label(name, at):
                return _entry(multipliers[name], at)
        return None

    def _price(self, prices: Mapping[str, Any], label: str) -> Any:
        parts = [(name, at) for name, at in self._terms_of(label) if name in prices]
        # of a row with two sides one is idle
        return np.sum([_entry(prices[name], at) for name, at in parts]) if parts else None

    def _label(self, name: str, at: int) -> str:
        labels = self.constraints[name].labels
        return labels()[at] if labels else name

    def _terms_of(self, label: str) -> list[tuple[str, int]]:
        """Return (term, entry) of a label: both sides of a row with two."""
        if "_places" not in self.__dict__:
            places: dict[str, list[tuple[str, int]]] = {}
            for name, term in self.constraints.items():
                for at, entry in enumerate(term.labels() if term.labels else ()):
                    places.setdefault(entry, []).append((name, at))
            self._set(_places=places)
        places = self.__dict__["_places"]
        sides = [label, suffixed(label, "lower"), suffixed(label, "upper")]
        return [part for side in sides for part in places.get(side, ())]

    def _child(self, **fields: Any) -> Any:
        child = super()._child(**fields)
        child.__dict__.pop("_places", None)
        return child

    def objective_value(self, values: Mapping[str, Any]) -> float:
        """Return the objective at values by vector, or by array of columns."""
        return super().objective_value(self._layout.complete(values))

    def extended(
        self, variables: Mapping[str, Any], parts: Sequence[tuple[str, Any]], goal: Any = None
    ) -> FileProblem:
        """Return this problem with what else its file states: cones, matrix variables.

        Parameters
        ----------
        variables : mapping
            Name -> CVXPY variable.
        parts : sequence of (name, constraint)
            CVXPY constraints, or terms that state their own evidence.
        goal : cvxpy.Expression, optional
            What is added to the objective.
        """
        wide: FileProblem = self.with_variables(variables) if variables else self
        names = unique_names([*self.constraints, *(name for name, _ in parts)])
        terms: dict[str, ConstraintTerm] = dict(self.constraints)
        for name, (_, part) in zip(names[len(terms) :], parts, strict=True):
            term = named_term(wide, name, part)
            terms[name] = replace(term, origin="model")
        objective = dict(self.objective)
        if goal is not None:
            whole = sum((t.build() for t in objective.values()), goal)
            sum_of = objective_term("objective", whole, wide.names, self.sense)
            objective = {"objective": replace(sum_of, origin="model")}
        found: FileProblem = wide.with_terms(objective, terms)
        return found

    def separated(self, time_limit: float | None = None) -> tuple[Any, tuple[str, ...] | None]:
        """Return this problem with gathered rows that exclude each other as terms, and where to look."""
        found = carrying_entries(self, time_limit)
        if not found:
            return self, None
        terms: dict[str, ConstraintTerm] = {}
        named: list[str] = []
        for name, term in self.constraints.items():
            block = getattr(term, "block", None)
            if name not in found or block is None:
                terms[name] = term
                named.append(name)
                continue
            own = found[name]
            singles = [block.single(at) for at in own.tolist()]
            terms |= {single.name: single.term() for single in singles}
            named += [single.name for single in singles]
            if own.size < block.members.size:
                terms[name] = block.without(own).term()
        return self.with_terms(self.objective, terms), tuple(named)

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the way to the rows, where its terms are gathered ones."""
        blocks = (getattr(self.constraints.get(name), "block", None) for name in error.conflict)
        if not any(block is not None and block.gathered for block in blocks):
            return error
        remedy = "p.diagnose() says which rows and bounds"
        return Infeasible(
            error.cause,
            error.evidence,
            f"{error.remedy}; {remedy}" if error.remedy else remedy,
            certificate=error.certificate,
            conflict=error.conflict,
        )

    # --- composing ---------------------------------------------------------------------------

    def without(self, *names: str) -> Any:
        """Return this problem without some constraints, or without single rows by label."""
        child: Any = self
        for name in names:
            if name in child.constraints or not (places := child._terms_of(name)):
                child = Problem.without(child, name)
                continue
            terms: dict[str, ConstraintTerm] = dict(child.constraints)
            for term, at in places:
                block = getattr(terms.pop(term), "block", None)
                if block is not None and block.members.size > 1:
                    terms[term] = block.without(at).term()
            ordered = {k: terms[k] for k in child.constraints if k in terms}
            child = child._child(constraints=MappingProxyType(ordered))
        return child

    def with_integrality(self, *names: str) -> Any:
        """Return this problem with some arrays, columns or vectors integer.

        Part of a vector becomes integer by a copy of it: a variable ``NAME integer``, and a constraint that both
        are equal.
        """
        child: Any = self
        for name in names:
            if name in child.variables:
                child = Problem.with_integrality(child, name)
                continue
            part = child[name]
            copy = cp.Variable(part.shape, name=f"{name} integer")
            child = child.with_variables({f"{name} integer": copy})
            child = Problem.with_integrality(child, f"{name} integer")
            child = child.with_constraints({f"{name} is integer": part == copy})
        return child


def _entry(value: Any, at: int) -> Any:
    return np.asarray(np.ravel(np.asarray(value, dtype=float), order="F")[at])
