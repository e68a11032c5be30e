"""Relaxation ladder: integer program, its relaxations and their bounds; a quadratic and its multiplier."""

from __future__ import annotations

import itertools
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of

ROWS = {"machine": ((6.0, 4.0), 23.0), "labour": ((1.0, 2.0), 7.3)}


def data() -> dict[str, Any]:
    """Bounds of an integer program by rung and objective, and dual functions of quadratics."""
    whole = [_climbed(np.array([k, 10.0 - k])) for k in range(1, 10)]
    return {
        "rows": [{"a": a, "b": b} for a, b in ROWS.values()],
        "points": [
            p
            for p in itertools.product(range(5), repeat=2)
            if all(np.dot(a, p) <= b for a, b in ROWS.values())
        ],
        "whole": whole,
        "quadratics": [
            _ball("one ball, not convex", [[-2.0, 1.5], [1.5, 1.0]], [1.0, -0.6], 1.5),
            _ball("the hard case", [[-2.0, 0.0], [0.0, 1.0]], [0.0, 1.0], 1.5),
            _cut(),
        ],
    }


def _climbed(worth: Any) -> dict[str, Any]:
    """Branch on the relaxation until its bound is the optimum; every number is proved."""
    x = cp.Variable(2, name="amount", integer=True)
    limits = [np.array(a) @ x <= b for a, b in ROWS.values()]
    program = of.from_cvxpy(cp.Problem(cp.Maximize(worth @ x), [*limits, x >= 0]), [*ROWS, "sign"])
    best = program.solve()
    linear = of.transforms.relax_integrality(program).problem

    def leaf(low: tuple[float, ...], high: tuple[float, ...]) -> dict[str, Any] | None:
        y = linear["amount"]
        try:
            s = linear.with_constraints(low=y >= np.array(low), high=y <= np.array(high)).solve()
        except of.Infeasible:
            return None
        _sound(s)
        return {
            "low": low,
            "high": high,
            "bound": s.bound,
            "point": [float(v) for v in s["amount"]],
        }

    leaves = [leaf((0.0, 0.0), (9.0, 9.0))]
    rungs = [list(leaves)]
    while True:
        top = max(leaves, key=lambda v: v["bound"])
        off = np.abs(np.array(top["point"]) - np.round(top["point"]))
        if off.max() < 1e-6:
            break  # the highest bound is reached by whole numbers: that is the proof
        j, at = int(off.argmax()), np.floor(top["point"])
        sides = [top["low"], top["high"]]
        parts = []
        for side, number in ((1, at[j]), (0, at[j] + 1.0)):
            corner = [list(s) for s in sides]
            corner[side][j] = float(number)
            parts.append(leaf(tuple(corner[0]), tuple(corner[1])))
        leaves = [v for v in leaves if v is not top] + [v for v in parts if v is not None]
        rungs.append(list(leaves))
    if abs(max(v["bound"] for v in leaves) - best.objective) > 1e-6:
        raise RuntimeError("the last rung has to prove the optimum")
    return {
        "worth": worth.tolist(),
        "optimum": best.objective,
        "point": [float(round(v)) for v in best["amount"]],
        "rungs": rungs,
    }


def _sound(solution: Any) -> None:
    if not solution.grade.sound:
        raise RuntimeError(f"the bound is {solution.grade}")


def _ball(title: str, H: Any, g: Any, radius: float) -> dict[str, Any]:
    """A quadratic over a ball: Shor's relaxation, and the certificate that it is exact."""
    p = of.textbook.TrustRegion(H=H, g=g, radius=radius)
    relaxation = of.transforms.shor(p)
    s = relaxation.recover(relaxation.problem.solve(tolerance=1e-9))
    if relaxation.exactness(s) is None:
        raise RuntimeError(f"{title}: the relaxation has to be exact")
    rotated = p.data["eigenvectors"].T @ p.data["g"]
    return {
        "title": title,
        "about": "Minimise a quadratic that curves down over a disk.",
        "d": p.data["eigenvalues"].tolist(),
        "g": rotated.tolist(),
        "constant": 0.0,
        "size": radius**2,
        "best": s.objective,
        "point": (p.data["eigenvectors"].T @ s["step"]).tolist(),
        "multiplier": float(s.multipliers["region"]),
        "exact": True,
    }


def _cut() -> dict[str, Any]:
    """The largest cut of a cycle of five, as the least sum of products of signs: a gap stays."""
    weights = np.array(of.library.load("textbook/max_cut_pentagon").data["weights"], dtype=float)
    x = cp.Variable(5, name="side")
    products = cp.quad_form(x, weights / 2.0, assume_PSD=False)
    signs = of.from_cvxpy(cp.Problem(cp.Minimize(products), [cp.square(x) == 1]), ["signs"])
    relaxation = of.transforms.shor(signs)
    s = relaxation.recover(relaxation.problem.solve(tolerance=1e-9))
    every = [np.array(v) for v in itertools.product((1.0, -1.0), repeat=5)]
    best = min(every, key=lambda v: v @ weights @ v)
    value = float(best @ weights @ best / 2.0)
    if not s.bound <= value - 1e-3:
        raise RuntimeError("a gap has to stay")
    return {
        "title": "the largest cut of a pentagon",
        "about": "Minimise the sum over edges of the products of signs: equal ends cost 1, a cut edge −1.",
        "d": np.linalg.eigvalsh(weights).tolist(),
        "g": [0.0] * 5,
        "constant": 0.0,
        "size": 5.0,
        "best": value,
        "point": best.tolist(),
        "multiplier": float(np.mean(s.multipliers["signs"])),
        "exact": False,
    }
