"""A primal-dual point of a relaxation by rows, read by the names of the declared problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optfair.compile.form import Compiled
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Block", "RelaxedPoint", "RowMultipliers"]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of one term.

    Attributes
    ----------
    term : str
        Name of the term.
    rows : array (k,)
        Which of its rows.
    """

    term: str
    rows: Indices


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
    compiled : Compiled
        The cone program.
    blocks : dict
        Term of the relaxation -> the rows of a long term that it is.
    x, z : arrays
        Primal and dual point, or a Farkas vector z.
    """

    status: str
    compiled: Compiled
    blocks: Mapping[str, Block]
    x: Floats
    z: Floats

    @property
    def form(self) -> ConicForm:
        """The cone program in arrays."""
        return self.compiled.form

    @cached_property
    def values(self) -> dict[str, Floats]:
        """Values of the declared variables."""
        return self.compiled.values(self.x)

    @cached_property
    def _multipliers(self) -> dict[str, Floats]:
        return self.compiled.multipliers(self.z)

    @cached_property
    def short(self) -> dict[str, Floats]:
        """Multipliers of the terms that are there as a whole."""
        return {k: y for k, y in self._multipliers.items() if k not in self.blocks}

    @cached_property
    def long(self) -> dict[str, RowMultipliers]:
        """Multipliers of the rows at hand, by term."""
        names = dict.fromkeys(block.term for block in self.blocks.values())
        return {name: self._of(name) for name in names}

    def _of(self, term: str) -> RowMultipliers:
        own = {key: block for key, block in self.blocks.items() if block.term == term}
        lines = [self._multipliers[key].reshape(b.rows.size, -1) for key, b in own.items()]
        return RowMultipliers(np.concatenate([b.rows for b in own.values()]), np.concatenate(lines))
