"""Write a cone program in CBF (conic benchmark format), version 3."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.cone_program import ConeProgram
from optfair.formats.text import number
from optfair.proofs.cones import Cone

Floats = NDArray[np.float64]

__all__ = ["MARK", "cbf_lines", "triangle", "unscaled"]

#: comments that carry the names of columns and blocks of rows, as JSON
MARK = "# names "
_WIDTH = 400
_SCALAR = {"zero": "L=", "nonneg": "L+", "soc": "Q", "exp": "EXP"}


def cbf_lines(program: ConeProgram, title: str) -> Iterator[str]:
    """Return the lines of a CBF file.

    The format has affine functions in cones: s = b - Ax of the cone program is its g(x). It
    has no quadratic objective, and lists an exponential cone in the reverse order
    (z, y, x with z >= y exp(x/y)). Semidefinite blocks are written as matrices: lower
    triangle, each off-diagonal entry once, without the factor √2.
    """
    sign = -1.0 if program.maximize else 1.0
    A, b = sp.csr_array(-program.A), program.b
    scalar = [c for c in program.cones if c.kind != "psd"]
    matrices = [c for c in program.cones if c.kind == "psd"]
    yield f"# {title}"
    names = json.dumps(_names(program, scalar, matrices), separators=(",", ":"))
    for at in range(0, len(names), _WIDTH):  # readers limit the length of lines
        yield MARK + names[at : at + _WIDTH]
    yield from ("VER", "3", "")
    powers = [c for c in scalar if c.kind == "pow"]
    if powers:
        yield from ("POWCONES", f"{len(powers)} {2 * len(powers)}")
        for c in powers:
            yield from ("2", number(c.power), number(1.0 - c.power))
        yield ""
    yield from ("OBJSENSE", "MAX" if program.maximize else "MIN", "")
    if matrices:
        yield from ("PSDCON", str(len(matrices)), *(str(c.order) for c in matrices), "")
    yield from ("VAR", f"{program.q.size} 1", f"F {program.q.size}", "")
    integer = np.flatnonzero(program.integer)
    if integer.size:
        yield from ("INT", str(integer.size), *map(str, integer), "")
    order, domains = _scalar_rows(scalar)
    if order.size:
        yield from ("CON", f"{order.size} {len(domains)}", *domains, "")
    cost = np.flatnonzero(program.q)
    yield from _section("OBJACOORD", ((str(j), sign * program.q[j]) for j in cost))
    if program.offset:
        yield from ("OBJBCOORD", number(sign * program.offset), "")
    rows = sp.coo_array(A[order, :])
    entries = zip(rows.row, rows.col, rows.data, strict=True)
    yield from _section("ACOORD", ((f"{i} {j}", v) for i, j, v in entries if v))
    yield from _section("BCOORD", ((str(i), b[order[i]]) for i in np.flatnonzero(b[order])))
    if matrices:
        yield from _section("HCOORD", _matrix_entries(A, matrices))
        constants = (
            (f"{k} {i} {j}", unscaled(float(b[row])) if scaled else b[row])
            for k, c in enumerate(matrices)
            for row, i, j, scaled in triangle(c)
            if b[row]
        )
        yield from _section("DCOORD", constants)


def _section(head: str, entries: Any) -> Iterator[str]:
    lines = [f"{where} {number(value)}" for where, value in entries]
    if lines:
        yield from (head, str(len(lines)), *lines, "")


def _scalar_rows(cones: list[Cone]) -> tuple[NDArray[np.int64], list[str]]:
    """Return rows in the order of the file, and one domain per cone."""
    order: list[NDArray[Any]] = [np.zeros(0, dtype=np.int64)]
    domains = []
    power = 0
    for c in cones:
        rows = np.arange(c.start, c.stop)
        order.append(rows[::-1] if c.kind == "exp" else rows)
        if c.kind == "pow":
            domains.append(f"@{power}:POW 3")
            power += 1
        else:
            domains.append(f"{_SCALAR[c.kind]} {rows.size}")
    return np.concatenate(order), domains


def triangle(c: Cone) -> Iterator[tuple[int, int, int, bool]]:
    """Return (row, i, j, whether scaled by √2) with i >= j of each entry of a semidefinite block."""
    i, j = np.tril_indices(c.order)
    if not c.upper:  # column by column over the lower triangle
        j, i = np.triu_indices(c.order)
    scaled = (i != j).tolist()
    return zip(range(c.start, c.stop), i.tolist(), j.tolist(), scaled, strict=True)


def unscaled(value: float) -> float:
    """Return the number whose product with √2 is the value: the shortest, if there are several.

    Examples
    --------
    >>> unscaled(0.1 * 2**0.5), unscaled(-3.0 * 2**0.5)
    (0.1, -3.0)
    """
    root = float(np.sqrt(2.0))
    plain = value / root
    near = [plain, float(np.nextafter(plain, -np.inf)), float(np.nextafter(plain, np.inf))]
    exact = [v for v in near if v * root == value]
    return min(exact or [plain], key=lambda v: len(_digits(v)))


def _digits(value: float) -> str:
    return repr(value).partition("e")[0].replace(".", "").strip("-0")


def _matrix_entries(A: Any, matrices: list[Cone]) -> Iterator[tuple[str, float]]:
    for k, c in enumerate(matrices):
        for row, i, j, scaled in triangle(c):
            for at in range(A.indptr[row], A.indptr[row + 1]):
                v = float(A.data[at])
                if v:
                    yield f"{k} {A.indices[at]} {i} {j}", unscaled(v) if scaled else v


def _names(program: ConeProgram, scalar: list[Cone], matrices: list[Cone]) -> dict[str, Any]:
    """Return names of columns, and of rows: (name, first row, one past the last) in the file.

    Where rows have labels of their own, these stand beside.
    """
    starts = [start for _, start, _ in program.owners]

    def owner(row: int) -> tuple[str, int, int]:
        return program.owners[bisect.bisect_right(starts, row) - 1]

    rows: list[list[Any]] = []
    labels: list[str] = []
    named = False
    at = 0
    for c in scalar:
        start = c.start
        while start < c.stop:
            name, _, stop = owner(start)
            stop = min(stop, c.stop)
            rows.append([name, at, at + stop - start])
            own = program.rows[start:stop]
            named = named or any(n != name and not n.startswith(f"{name}[") for n in own)
            labels += own
            at, start = at + stop - start, stop
    return {
        "columns": list(program.columns),
        "rows": rows,
        "matrices": [owner(c.start)[0] for c in matrices],
        **({"labels": labels} if named else {}),
    }
