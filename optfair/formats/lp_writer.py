"""Write a program in LP format (the dialect of CPLEX)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import Program
from optfair.formats.entry_names import entry_names
from optfair.formats.text import number

__all__ = ["ONE", "lp_lines"]

_PER_LINE = 6
#: a column fixed at 1 that carries the constant of the objective: readers disagree on bare numbers
ONE = "ONE_VAR_CONSTANT"


def lp_lines(program: Program, title: str) -> Iterator[str]:
    """Return the lines of an LP file.

    Indices stand in parentheses, ``x(3)``, because square brackets enclose quadratic parts.
    The quadratic part of the objective is written as ``[ ... ] / 2``.
    """
    columns, rows = entry_names(program.columns, "()"), entry_names(program.rows, "()")
    yield f"\\ {title}"
    yield "Maximize" if program.sense == "maximize" else "Minimize"
    goal = "obj"
    while goal in rows:
        goal += "_"
    lower = sp.coo_array(sp.tril(program.P))
    # [ ... ] / 2 holds each product once: off-diagonal entries of P twice
    twice = np.where(lower.row == lower.col, 1.0, 2.0) * lower.data
    linear = _linear(np.flatnonzero(program.q), program.q[program.q != 0.0], columns)
    constant = [_signed(program.offset, ONE)] if program.offset else []
    parts = [*linear, *constant, *_quadratic(lower.col, lower.row, twice, columns, " / 2")]
    # an objective without terms still needs one
    yield from _wrapped(f" {goal}:", parts or [f"0 {columns[0]}"])
    yield "Subject To"
    A = sp.csr_array(program.A)
    for i, row in enumerate(rows):
        at = slice(A.indptr[i], A.indptr[i + 1])
        parts = _linear(A.indices[at], A.data[at], columns)
        if np.diff(program.products.Q.indptr[i : i + 2])[0]:
            parts += _quadratic(*program.row_products(i), columns, "")
        low, high = program.row_lower[i], program.row_upper[i]
        parts = parts or [f"0 {columns[0]}"]
        if low == high:
            yield from _wrapped(f" {row}:", [*parts, f"= {number(high)}"])
            continue
        if np.isfinite(high):
            yield from _wrapped(f" {row}:", [*parts, f"<= {number(high)}"])
        if np.isfinite(low):
            label = f"{row}_lower" if np.isfinite(high) else row
            yield from _wrapped(f" {label}:", [*parts, f">= {number(low)}"])
    yield "Bounds"
    for j, column in enumerate(columns):
        yield from _bound(column, program.lower[j], program.upper[j])
    if program.offset:
        yield f" {ONE} = 1"
    if program.integer.any():
        yield "General"
        yield from _wrapped("", [columns[j] for j in np.flatnonzero(program.integer)])
    yield "End"


def _bound(column: str, low: float, high: float) -> Iterator[str]:
    if np.isneginf(low) and np.isposinf(high):
        yield f" {column} free"
    elif low == high:
        yield f" {column} = {number(low)}"
    elif np.isposinf(high):
        if low:
            yield f" {column} >= {number(low)}"
    else:
        left = "-inf" if np.isneginf(low) else number(low)
        yield f" {left} <= {column} <= {number(high)}"


def _signed(value: float, what: str) -> str:
    sign = "-" if value < 0.0 else "+"
    return f"{sign} {number(abs(value))} {what}".rstrip()


def _linear(indices: Iterable[Any], values: Iterable[Any], columns: list[str]) -> list[str]:
    return [_signed(v, columns[j]) for j, v in zip(indices, values, strict=True)]


def _quadratic(i: Any, j: Any, values: Any, columns: list[str], after: str) -> list[str]:
    if not len(values):
        return []
    products = [
        _signed(v, f"{columns[a]} ^2" if a == b else f"{columns[a]} * {columns[b]}")
        for a, b, v in zip(i, j, values, strict=True)
    ]
    products[0] = products[0].removeprefix("+ ")
    return ["+ [", *products, f"]{after}"]


def _wrapped(head: str, parts: list[str]) -> Iterator[str]:
    for at in range(0, len(parts), _PER_LINE):
        yield f"{head if at == 0 else '   '} {' '.join(parts[at : at + _PER_LINE])}"
