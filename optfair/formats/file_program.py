"""What a file of rows states, and the problem it becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.adopt import AdoptedProblem, from_cvxpy
from optfair.formats.columns import Columns, Products
from optfair.formats.entry_names import Family, families

Floats = NDArray[np.float64]

__all__ = ["FileProgram", "problem_of", "unique_names"]


@dataclass(eq=False)
class FileProgram:
    """Columns and rows as a reader finds them, in the order of the file.

    ``products`` and ``row_products[row]`` hold the coefficient of x_i x_j once, i <= j.
    """

    maximize: bool = False
    offset: float = 0.0
    columns: list[str] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    entries: list[tuple[int, int, float]] = field(default_factory=list)
    products: Products = field(default_factory=dict)
    row_products: dict[int, Products] = field(default_factory=dict)

    def add_column(self, name: str, *, integer: bool = False) -> int:
        """Add a column with bounds 0 and infinity."""
        self.columns.append(name)
        self.cost.append(0.0)
        self.lower.append(0.0)
        self.upper.append(np.inf)
        self.integer.append(integer)
        return len(self.columns) - 1


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names, a number added to those that were there already."""
    taken: set[str] = set()
    found = []
    for name in names:
        candidate, i = name, 1
        while candidate in taken:
            i += 1
            candidate = f"{name} {i}"
        taken.add(candidate)
        found.append(candidate)
    return found


def problem_of(f: FileProgram, title: str) -> AdoptedProblem:
    """Return the problem a file states: arrays as variables, rows and bounds as named terms."""
    groups = families(f.columns, f.integer)
    variables = [
        cp.Variable(g.shape, name=g.name, integer=bool(f.integer[g.members[0]])) for g in groups
    ]
    x = Columns(groups, variables)
    goal: Any = x.times(np.array(f.cost)[None, :])[0] + f.offset
    if f.products:
        goal = goal + x.quadratic(f.products)
    constraints = [
        *_rows(f, x),
        *_bounds(f, groups, variables),
    ]
    sense = cp.Maximize if f.maximize else cp.Minimize
    names = unique_names(name for name, _ in constraints)
    problem = from_cvxpy(cp.Problem(sense(goal), [c for _, c in constraints]), names)
    used = problem.variables
    ordered = {g.name: used[g.name] for g in groups if g.name in used}
    problem._set(title=title, variables=MappingProxyType(ordered))
    return problem


def _rows(f: FileProgram, x: Columns) -> list[tuple[str, Any]]:
    low, high = np.array(f.row_lower), np.array(f.row_upper)
    A = sp.csr_array(
        (
            [v for _, _, v in f.entries],
            ([i for i, _, _ in f.entries], [j for _, j, _ in f.entries]),
        ),
        shape=(len(f.rows), len(f.columns)),
    )
    kinds = [
        (i if i in f.row_products else -1, "E" if a == b else f"{np.isfinite(a)}{np.isfinite(b)}")
        for i, (a, b) in enumerate(zip(low, high, strict=True))
    ]
    found: list[tuple[str, Any]] = []
    for g in families(f.rows, kinds):
        if np.isinf(low[g.members]).all() and np.isinf(high[g.members]).all():
            continue  # a free row states nothing
        body = x.times(A[g.members, :])
        name = g.name
        if g.members[0] in f.row_products:
            name = f.rows[g.members[0]]
            body = body[0] + x.quadratic(f.row_products[int(g.members[0])])
            sides: list[Any] = [float(low[g.members[0]]), float(high[g.members[0]])]
        else:
            body = cp.reshape(body, g.shape, order="F")
            sides = [s[g.members].reshape(g.shape, order="F") for s in (low, high)]
        found += _between(name, body, *sides)
    return found


def _between(name: str, body: Any, low: Any, high: Any) -> list[tuple[str, Any]]:
    if np.array_equal(low, high):
        return [(name, body == high)]
    below, above = np.isfinite(low).all(), np.isfinite(high).all()
    if below and above:
        return [(f"{name} lower", body >= low), (f"{name} upper", body <= high)]
    return [(name, body <= high if above else body >= low)]


def _bounds(f: FileProgram, groups: list[Family], variables: list[Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    lower, upper = np.array(f.lower), np.array(f.upper)
    for g, v in zip(groups, variables, strict=True):
        low, high = (b[g.members].reshape(g.shape, order="F") for b in (lower, upper))
        fixed = low == high
        for word, limit, where in (
            ("fixed", low, fixed),
            ("lower", low, np.isfinite(low) & ~fixed),
            ("upper", high, np.isfinite(high) & ~fixed),
        ):
            if not where.any():
                continue
            part, side = (v, limit) if where.all() else (v[where], limit[where])
            side = float(side) if not np.ndim(side) else side
            c = (
                part == side
                if word == "fixed"
                else part >= side
                if word == "lower"
                else part <= side
            )
            found.append((f"{g.name} {word}", c))
    return found
