"""Farkas by hand: three inequalities that exclude each other."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of


def data() -> dict[str, Any]:
    """Three inequalities in two unknowns that exclude each other, which is proved."""
    rows = [((1.0, 2.0), 4.0), ((-1.0, 0.0), -3.0), ((0.0, -1.0), -1.0)]
    x = cp.Variable(2, name="x")
    limits = [np.array(a) @ x <= b for a, b in rows]
    found = of.from_cvxpy(cp.Problem(cp.Minimize(0), limits)).diagnose()
    if found.conflict != ("c0", "c1", "c2") or not found.verify():
        raise RuntimeError("the three inequalities have to exclude each other")
    lines = ((-1, 2.5, 7, -1.5), (3, -1, 3, 6), (-1, 1, 7, 1))
    return {
        "names": ["x", "y"],
        "rows": [{"a": a, "b": b, "line": line} for (a, b), line in zip(rows, lines, strict=True)],
    }
