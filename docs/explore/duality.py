"""One optimum bounds all others: optima of a quadratic program by its right-hand side, with prices."""

from __future__ import annotations

from typing import Any

import numpy as np

import optfair as of


def data(points: int = 41) -> dict[str, Any]:
    """Least variance by wanted return, with prices; the bound of each is proved."""
    known = dict(of.library.load("textbook/minimum_variance").data)
    solved = []
    for wanted in np.linspace(4.5, 12.5, points):
        s = of.textbook.MinimumVariance(**{**known, "wanted": float(wanted)}).solve(tolerance=1e-8)
        if not s.grade.sound:
            raise RuntimeError(f"the bound at {wanted} is {s.grade}")
        price = float(s.shadow_price["wanted return"])
        solved.append(
            {"b": float(wanted), "optimum": s.objective, "bound": s.bound, "price": price}
        )
    return {"points": solved}
