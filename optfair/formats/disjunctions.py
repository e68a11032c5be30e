"""Semicontinuous columns, special ordered sets and indicators, as binaries and bounds.

What a file states about "zero, or between two bounds" becomes linear rows with binary columns.
The factor of a binary is the bound itself, so the rows say exactly what the file says; where a
bound is missing there is no such row, and the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optfair.errors import DataError
from optfair.formats.rows import RowsInProgress

__all__ = ["add_indicator", "add_semicontinuous", "add_special_ordered_set"]

Fail = Callable[[str, str], DataError]
_GIVE_BOUND = "give it a finite bound"


def _binary(f: RowsInProgress, name: str) -> int:
    return f.add_column(name, integer=True, upper=1.0)


def add_semicontinuous(f: RowsInProgress, j: int, fail: Fail) -> None:
    r"""Let a column be 0 or between its bounds: :math:`l y \le x \le u y`, y binary.

    Raises
    ------
    DataError
        A bound is infinite.
    """
    name, low, high = f.columns[j], f.lower[j], f.upper[j]
    if not (np.isfinite(low) and np.isfinite(high)):
        raise fail(f"the semicontinuous column {name!r} has no finite upper bound", _GIVE_BOUND)
    y = _binary(f, f"{name} on")
    f.add_row(f"{name} semicontinuous upper", -np.inf, 0.0, {j: 1.0, y: -high})
    if low != 0.0:
        f.add_row(f"{name} semicontinuous lower", 0.0, np.inf, {j: 1.0, y: -low})
    f.lower[j], f.upper[j] = min(low, 0.0), np.inf  # the upper bound is in the row


def add_special_ordered_set(
    f: RowsInProgress, name: str, kind: int, members: Sequence[tuple[int, float]], fail: Fail
) -> None:
    r"""Let at most one column, or two neighbours by weight, differ from 0.

    Parameters
    ----------
    f : RowsInProgress
        Where rows and binaries are added.
    name : str
        Of the set.
    kind : {1, 2}
        At most one, or two neighbours.
    members : sequence of (column, weight)
        The weights give the order.
    fail : callable
        Makes the error.

    Raises
    ------
    DataError
        A weight or column occurs twice, or a bound is infinite.
    """
    order = [j for j, _ in sorted(members, key=lambda m: m[1])]
    if len(set(order)) < len(order) or len({w for _, w in members}) < len(order):
        raise fail(f"the set {name!r} has a column or a weight twice", "correct the file")
    if len(order) <= kind:
        return  # it states nothing
    count = len(order) - kind + 1
    on = [_binary(f, f"{name} on[{k}]") for k in range(count)]
    f.add_row(f"{name} on", -np.inf, 1.0, dict.fromkeys(on, 1.0))
    for k, j in enumerate(order):
        owners = on[max(k - kind + 1, 0) : k + 1]
        for word, bound, needed in (
            ("upper", f.upper[j], f.upper[j] > 0.0),
            ("lower", f.lower[j], f.lower[j] < 0.0),
        ):
            if not needed:
                continue
            if not np.isfinite(bound):
                reason = f"{f.columns[j]!r} in the set {name!r} has no finite {word} bound"
                raise fail(reason, _GIVE_BOUND)
            entries = {j: 1.0, **dict.fromkeys(owners, -bound)}
            sides = (-np.inf, 0.0) if word == "upper" else (0.0, np.inf)
            f.add_row(f"{name} {word}[{k}]", *sides, entries)


def add_indicator(f: RowsInProgress, i: int, column: int, value: int, fail: Fail) -> None:
    r"""Let a row hold only where a binary column has a value.

    With M the largest value of :math:`a^T x` between the bounds, :math:`a^T x \le b` becomes
    :math:`a^T x \le M - (M - b) z` for z = 1 and :math:`a^T x \le b + (M - b) z` for z = 0.

    Raises
    ------
    DataError
        The column is not binary, the row has products, or a bound is missing.
    """
    name = f.rows[i]
    if not f.integer[column] or (f.lower[column], f.upper[column]) != (0.0, 1.0):
        raise fail(f"{f.columns[column]!r} decides {name!r} and is not binary", "make it binary")
    if i in f.row_products:
        raise fail(f"the indicator row {name!r} has products", "only linear rows can be switched")
    entries = f.entries_of(i)
    low, high = f.row_lower[i], f.row_upper[i]
    sides = [s for s in ("upper", "lower") if np.isfinite(high if s == "upper" else low)]
    for side in sides:
        sign = 1.0 if side == "upper" else -1.0
        b = high if side == "upper" else low
        most = _largest(f, entries, sign)
        if not np.isfinite(most):
            raise fail(
                f"the columns of the indicator row {name!r} have no finite bounds", _GIVE_BOUND
            )
        spare = max(most - sign * b, 0.0)  # how far the row may be broken at all
        factor, limit = (spare, sign * b + spare) if value == 1 else (-spare, sign * b)
        if side == sides[0]:
            f.entries.append(([i], [column], [sign * factor]))
            f.row_lower[i], f.row_upper[i] = (
                (-np.inf, limit) if side == "upper" else (-limit, np.inf)
            )
        else:
            more = {**entries, column: entries.get(column, 0.0) + sign * factor}
            f.add_row(f"{name} {side}", -limit, np.inf, more)


def _largest(f: RowsInProgress, entries: dict[int, float], sign: float) -> float:
    """Return the largest value of sign * a'x between the bounds of the columns."""
    total = 0.0
    for j, v in entries.items():
        if v:
            total += max(sign * v * f.lower[j], sign * v * f.upper[j])
    return total
