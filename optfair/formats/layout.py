"""The columns of a file as entries of two vectors, found by array and by label."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.formats.entry_names import Families, Family
from optfair.formats.rows import Rows

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

__all__ = ["Layout"]


class Layout:
    """Which column is which entry of which vector.

    Parameters
    ----------
    rows : Rows
        The data.

    Attributes
    ----------
    families : Families
        The arrays that columns form.
    members : dict
        Vector -> its columns.
    variables : dict
        Vector -> CVXPY variable.
    integers : frozenset of str
        The integer vector, if there is one.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        integer = rows.integer
        self.families = Families(rows.columns, integer.tolist())
        self.members: dict[str, Indices] = {}
        self.place = np.zeros(integer.size, dtype=np.int64)
        for kind, fallback in ((False, "columns"), (True, "integer columns")):
            at = np.flatnonzero(integer == kind)
            if at.size:
                self.members[self._called(at, fallback)] = at
                self.place[at] = np.arange(at.size)
        self.variables = {n: cp.Variable(at.size, name=n) for n, at in self.members.items()}
        whole = {n for n, at in self.members.items() if integer[at[0]]}
        self.integers = frozenset(whole)

    def _called(self, at: Indices, fallback: str) -> str:
        """Return the name of the one array that a vector is, or a general one."""
        for name in self.families:
            if self.families.count(name) == at.size:
                f = self.families[name]
                if f.shape == (at.size,) and np.array_equal(f.members, at):
                    return name
        while fallback in self.families:
            fallback += "_"
        return fallback

    @cached_property
    def column_index(self) -> dict[str, int]:
        """Label of a column -> its position."""
        return {name: j for j, name in enumerate(self.rows.columns)}

    @cached_property
    def row_index(self) -> dict[str, int]:
        """Label of a row -> its position."""
        return {name: i for i, name in enumerate(self.rows.rows)}

    def find(self, name: object) -> Family | None:
        """Return the columns that a name stands for: an array or a single one."""
        if not isinstance(name, str):
            return None
        if name in self.families:
            return self.families[name]
        j = self.column_index.get(name)
        return None if j is None else Family(name, np.array([j]), ())

    def expression(self, f: Family) -> Any:
        """Return columns as an expression, in the shape of their array."""
        integer = bool(self.rows.integer[f.members[0]])
        name = next(n for n in self.members if (n in self.integers) == integer)
        part = self._part(name, self.place[f.members])
        if not f.shape:
            return part[0]
        return part if len(f.shape) == 1 else cp.reshape(part, f.shape, order="F")

    def _part(self, name: str, at: Indices) -> Any:
        x = self.variables[name]
        return x if np.array_equal(at, np.arange(x.size)) else x[at]

    def times(self, matrix: Any) -> Any:
        """Return matrix @ columns."""
        parts = []
        for name, at in self.members.items():
            block = matrix if at.size == self.place.size else sp.csr_array(matrix[:, at])
            if block.nnz:
                parts.append(block @ self.variables[name])
        if parts:
            return sum(parts)
        if not self.members:
            return cp.Constant(np.zeros(matrix.shape[0]))
        name, at = next(iter(self.members.items()))  # a row without entries is still a row
        return sp.csr_array((matrix.shape[0], at.size)) @ self.variables[name]

    def quadratic(self, P: Any, *, definite: bool = False) -> Any:
        """Return ½ x'Px on the columns it uses."""
        used = np.flatnonzero(np.diff(sp.csc_array(P).indptr))
        parts, order = [], []
        for name, at in self.members.items():
            own = used[np.isin(used, at)]
            if own.size:
                parts.append(self._part(name, self.place[own]))
                order.append(own)
        every = np.concatenate(order)
        z = parts[0] if len(parts) == 1 else cp.hstack(parts)
        half = 0.5 * sp.csc_array(P)[every, :][:, every]
        return cp.quad_form(z, cp.psd_wrap(half) if definite else half)

    def vector(self, values: Mapping[str, Any]) -> Floats:
        """Return the values of all columns, given by vector or by array."""
        x = np.zeros(self.place.size)
        if self.members.keys() <= set(values):
            for name, at in self.members.items():
                x[at] = np.ravel(np.asarray(values[name], dtype=float))
            return x
        for name in self.families:
            f = self.families[name]
            x[f.members] = np.ravel(np.asarray(values[name], dtype=float), order="F")
        return x

    def complete(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by vector, and by whatever other variable there is."""
        if self.members.keys() <= set(values):
            return values
        x = self.vector(values)
        return {**values, **{name: x[at] for name, at in self.members.items()}}

    def scope(self, columns: Indices) -> frozenset[str]:
        """Return the vectors that hold some columns."""
        if len(self.members) < 2 or not columns.size:
            return frozenset(list(self.members)[:1])
        return frozenset(n for n, at in self.members.items() if np.isin(columns, at).any())
