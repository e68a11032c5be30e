"""Rows of one number each, every one a constraint of its own: measured together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.binary_operators import MulExpression
from cvxpy.constraints import Equality, Inequality

from optfair.core.expressions import Evaluator, Values, dense, fitted
from optfair.core.term import ConstraintTerm
from optfair.numbers import Floats

# Rows on one variable from which on they are one product.
SEVERAL = 8


@dataclass(frozen=True, eq=False)
class _Row:
    """Coefficients times a vector of variables is at most, or equal to, a constant."""

    variable: str
    leaf: Any
    coefficients: Floats
    constant: float
    equal: bool


def _row(t: ConstraintTerm) -> _Row | None:
    """Return the numbers of a row that is written ``a @ x <= b``, None of anything else."""
    evaluator = getattr(t.violation, "__self__", None)
    if not isinstance(evaluator, Evaluator) or np.ndim(t.scale):
        return None
    if "row" not in evaluator.__dict__:  # problems share their terms
        evaluator.__dict__["row"] = _read(evaluator.stated, evaluator.names)
    row: _Row | None = evaluator.__dict__["row"]
    return row


def _read(e: Any, names: Mapping[int, str]) -> _Row | None:
    row = scalar_row(e) if isinstance(e, (Equality, Inequality)) and not e.shape else None
    return row and _Row(names[row[0].id], *row, isinstance(e, Equality))


def scalar_row(e: Any) -> tuple[Any, Floats, float] | None:
    """Return x, a and b of a row that is written ``a @ x <= b``, as most are, else None."""
    for body, side, sign in zip(e.args, e.args[::-1], (1.0, -1.0), strict=True):
        if type(body) is MulExpression and isinstance(side, cp.Constant):
            a, x = body.args
            plain = isinstance(a, cp.Constant) and isinstance(x, cp.Variable) and a.shape == x.shape
            if plain and not (a.is_complex() or side.is_complex()):
                return x, sign * dense(a.value), sign * float(dense(side.value).item())
    return None


class ScalarRows:
    r"""Constraints :math:`a_i^T x \le b_i`, :math:`\ge` or :math:`=` that somebody wrote one by one.

    Parameters
    ----------
    terms : mapping
        Constraints by name; those that are written in another way are left out.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> rows = [np.array([1.0, i]) @ x <= i for i in range(9)]
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    >>> found = ScalarRows(p.constraints).violations({"x": np.array([1.0, 2.0])})
    >>> len(found), [float(v) for v in found["c1"]]
    (9, [1.0, 1.0])
    """

    def __init__(self, terms: Mapping[str, ConstraintTerm]) -> None:
        groups: dict[Any, list[tuple[str, Any, float]]] = {}
        for name, t in terms.items() if len(terms) >= SEVERAL else ():
            row = _row(t)
            if row is not None:
                groups.setdefault((row.variable, row.leaf.shape), []).append((name, row, t.scale))
        self._groups = [
            (
                rows[0][1],
                [name for name, _, _ in rows],
                np.array([row.coefficients for _, row, _ in rows]),
                np.array([row.constant for _, row, _ in rows]),
                np.array([row.equal for _, row, _ in rows]),
                np.array([scale for _, _, scale in rows], dtype=float),
            )
            for rows in groups.values()
            if len(rows) >= SEVERAL
        ]

    def violations(self, values: Values, unit: float = 1.0) -> dict[str, tuple[float, float]]:
        """Return what `ConstraintTerm.violations` does, by name."""
        found: dict[str, tuple[float, float]] = {}
        for first, names, A, b, equal, scale in self._groups:
            if first.variable not in values:
                continue
            x = fitted(values, first.variable, first.leaf)
            with np.errstate(all="ignore"):
                over = A @ x - b
                outside = np.where(equal, np.abs(over), np.maximum(over, 0.0))
                finite = np.isfinite(outside)
                side = np.where(np.isfinite(scale), scale, 0.0)
                loose = np.where(finite, outside / (1.0 + side), np.inf)
                own = np.where(outside > 0.0, outside / (unit + scale), 0.0)
            own = np.where(finite, own, np.inf)
            found |= zip(names, zip(loose.tolist(), own.tolist(), strict=True), strict=True)
        return found
