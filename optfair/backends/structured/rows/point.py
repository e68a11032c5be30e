"""A primal-dual point of a relaxation by rows, read by the names of the declared problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optfair.compile.form import Compiled
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Block", "RelaxedPoint", "RowMultipliers"]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of one term, compiled, and where they stand in the relaxation.

    Attributes
    ----------
    term : str
        Name of the term.
    rows : array (k,)
        Which of its rows.
    compiled : Compiled
        The constraint of these rows alone.
    columns : array
        Column of the relaxation of each column of ``compiled``.
    start : int
        First row in the relaxation.
    """

    term: str
    rows: Indices
    compiled: Compiled
    columns: Indices
    start: int

    @property
    def stop(self) -> int:
        """One past the last row in the relaxation."""
        return self.start + self.compiled.form.b.size


@dataclass(frozen=True, eq=False)
class RowMultipliers:
    """Multipliers of a term of many rows, of which most are 0.

    Attributes
    ----------
    rows : array (k,)
        Rows that may have one.
    lines : array (k, width)
        A number per row for an inequality, the entries of the dual cone for a cone.
    """

    rows: Indices
    lines: Floats

    @property
    def size(self) -> Floats:
        """Size of the multiplier of each row."""
        return np.asarray(np.abs(self.lines).max(axis=1))

    def dense(self, count: int, shape: tuple[int, ...]) -> Floats:
        """Return the multipliers of all rows, in the shape of the term."""
        full = np.zeros((count, self.lines.shape[1]))
        full[self.rows] = self.lines
        return full.reshape(shape) if full.size == int(np.prod(shape)) else full.ravel()


@dataclass(frozen=True, eq=False)
class RelaxedPoint:
    """Where the solver of the relaxation ended; it does not change when rows are added later.

    Attributes
    ----------
    status : str
        Of the cone program.
    base : Compiled
        Objective and short terms.
    blocks : tuple of Block
        Rows of long terms.
    homes : dict
        Variables that first occur in a block, and in which.
    form : ConicForm
        The cone program.
    x, z : arrays
        Primal and dual point, or a Farkas vector z.
    """

    status: str
    problem: Problem
    base: Compiled
    blocks: tuple[Block, ...]
    homes: Mapping[str, int]
    form: ConicForm
    x: Floats
    z: Floats

    @cached_property
    def values(self) -> dict[str, Floats]:
        """Values of the declared variables."""
        values = self.base.by_name(self.x[: self.base.form.q.size], None)[0]
        for name, at in self.homes.items():
            block = self.blocks[at]
            values[name] = block.compiled.by_name(self.x[block.columns], None)[0][name]
        return values

    @cached_property
    def short(self) -> dict[str, Floats]:
        """Multipliers of the terms that are there as a whole."""
        base = self.base.form
        return self.base.by_name(self.x[: base.q.size], self.z[: base.b.size])[1]

    @cached_property
    def long(self) -> dict[str, RowMultipliers]:
        """Multipliers of the rows at hand, by term."""
        return {name: self._of(name) for name in dict.fromkeys(b.term for b in self.blocks)}

    def _of(self, term: str) -> RowMultipliers:
        rows, lines = [], []
        for block in self.blocks:
            if block.term != term:
                continue
            compiled = block.compiled
            nowhere = np.zeros(compiled.form.q.size)
            y = compiled.by_name(nowhere, self.z[block.start : block.stop])[1][term]
            rows.append(block.rows)
            lines.append(y.reshape(block.rows.size, -1))
        return RowMultipliers(np.concatenate(rows), np.concatenate(lines))
