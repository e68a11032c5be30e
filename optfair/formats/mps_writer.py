"""Write a program in free MPS format."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import Program
from optfair.formats.entry_names import entry_names
from optfair.formats.text import number

__all__ = ["mps_lines"]


def mps_lines(program: Program, title: str) -> Iterator[str]:
    """Return the lines of a free MPS file.

    Every named constraint is a row, so its name and multiplier survive; bounds of columns
    are written only where the program has them. Numbers are written with all their digits.
    A quadratic objective ½xᵀPx is in ``QUADOBJ`` (lower triangle of P), quadratic rows in
    ``QCMATRIX`` (xᵀQx, both triangles).
    """
    columns, rows = entry_names(program.columns), entry_names(program.rows)
    goal = "objective"
    while goal in rows:
        goal += "_"
    yield f"NAME {title}"
    if program.sense == "maximize":
        yield from ("OBJSENSE", "    MAX")
    yield from ("ROWS", f" N {goal}")
    equal = program.row_lower == program.row_upper
    low, high = np.isfinite(program.row_lower), np.isfinite(program.row_upper)
    for i, row in enumerate(rows):
        kind = "E" if equal[i] else "L" if high[i] else "G" if low[i] else "N"
        yield f" {kind} {row}"
    yield from _columns(program, columns, rows, goal)
    yield "RHS"
    if program.offset:
        yield f"    RHS {goal} {number(-program.offset)}"
    side = np.where(high, program.row_upper, np.where(low, program.row_lower, 0.0))
    for i in np.flatnonzero(side).tolist():
        yield f"    RHS {rows[i]} {number(side[i])}"
    ranged = np.flatnonzero(low & high & ~equal)
    if ranged.size:
        yield "RANGES"
        width = program.row_upper - program.row_lower
        yield from (f"    RNG {rows[i]} {number(width[i])}" for i in ranged)
    yield from _bounds(program, columns)
    if program.P.nnz:
        yield "QUADOBJ"
        lower = sp.coo_array(sp.tril(program.P))
        for i, j, v in zip(lower.row.tolist(), lower.col.tolist(), lower.data, strict=True):
            yield f"    {columns[j]} {columns[i]} {number(v)}"
    for row in program.quadratic_rows:
        yield f"QCMATRIX {rows[row]}"
        for i, j, v in zip(*program.row_products(row), strict=True):
            if i == j:
                yield f"    {columns[i]} {columns[i]} {number(v)}"
            else:
                yield f"    {columns[i]} {columns[j]} {number(v / 2.0)}"
                yield f"    {columns[j]} {columns[i]} {number(v / 2.0)}"
    yield "ENDATA"


def _columns(program: Program, columns: list[str], rows: list[str], goal: str) -> Iterator[str]:
    yield "COLUMNS"
    A = sp.csc_array(program.A)
    inside = False
    for j, column in enumerate(columns):
        if program.integer[j] != inside:
            inside = not inside
            yield f"    MARKER 'MARKER' '{'INTORG' if inside else 'INTEND'}'"
        at = slice(A.indptr[j], A.indptr[j + 1])
        if program.q[j] or at.start == at.stop:  # a column nobody uses is still declared
            yield f"    {column} {goal} {number(program.q[j])}"
        for i, v in zip(A.indices[at], A.data[at], strict=True):
            yield f"    {column} {rows[i]} {number(v)}"
    if inside:
        yield "    MARKER 'MARKER' 'INTEND'"


def _bounds(program: Program, columns: list[str]) -> Iterator[str]:
    yield "BOUNDS"
    for j, column in enumerate(columns):
        low, high = program.lower[j], program.upper[j]
        if np.isneginf(low) and np.isposinf(high):
            yield f" FR BND {column}"
        elif low == high:
            yield f" FX BND {column} {number(low)}"
        else:
            if np.isneginf(low):
                yield f" MI BND {column}"
            elif low or high < 0.0:
                yield f" LO BND {column} {number(low)}"
            if np.isfinite(high):
                yield f" UP BND {column} {number(high)}"
            elif program.integer[j]:  # without it some readers bound integers by 1
                yield f" PL BND {column}"
