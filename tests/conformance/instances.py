"""Small instances of every class with known answers, as plain CVXPY problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np


@dataclass(frozen=True)
class Case:
    """One instance: class name, builder, optimum, known primal and shadow prices."""

    kind: str
    build: Callable[[], tuple[Any, list[str]]]
    value: float
    primal: dict[str, Any] = field(default_factory=dict)
    prices: dict[str, Any] = field(default_factory=dict)
    integers: tuple[str, ...] = ()


def _lp() -> tuple[Any, list[str]]:
    # Dantzig's corner: max 3a + 5b, a <= 4, 2b <= 12, 3a + 2b <= 18
    x = cp.Variable(2, name="x")
    rows = [x[0] <= 4, 2 * x[1] <= 12, 3 * x[0] + 2 * x[1] <= 18, x >= 0]
    return cp.Problem(cp.Maximize(3 * x[0] + 5 * x[1]), rows), ["a", "b", "c", "sign"]


def _degenerate_lp() -> tuple[Any, list[str]]:
    # three constraints meet in the optimal vertex of the plane
    x = cp.Variable(2, name="x")
    rows = [x[0] + x[1] >= 2, x[0] >= 1, x[1] >= 1, 2 * x[0] + x[1] >= 3]
    return cp.Problem(cp.Minimize(x[0] + 2 * x[1]), rows), ["sum", "first", "second", "mix"]


def _qp() -> tuple[Any, list[str]]:
    # the projection of (1, 2, 3) on the plane of sum 3
    x = cp.Variable(3, name="x")
    goal = cp.Minimize(cp.sum_squares(x - np.array([1.0, 2.0, 3.0])))
    return cp.Problem(goal, [cp.sum(x) == 3]), ["sum"]


def _qcqp() -> tuple[Any, list[str]]:
    x = cp.Variable(2, name="x")
    rows = [cp.sum_squares(x) <= 4]
    return cp.Problem(cp.Minimize(3 * x[0] + 4 * x[1]), rows), ["disk"]


def _socp() -> tuple[Any, list[str]]:
    # the distance of (3, 4) from the unit disk
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(cp.norm(x - np.array([3.0, 4.0])))
    return cp.Problem(goal, [cp.norm(x) <= 1]), ["disk"]


def _sdp() -> tuple[Any, list[str]]:
    # the largest eigenvalue of [[2, 1], [1, 2]] as a maximum over density matrices
    X = cp.Variable((2, 2), name="X", symmetric=True)
    C = np.array([[2.0, 1.0], [1.0, 2.0]])
    rows = [cp.trace(X) == 1, X >> 0]
    return cp.Problem(cp.Maximize(cp.trace(C @ X)), rows), ["trace", "psd"]


def _exponential() -> tuple[Any, list[str]]:
    # the distribution of largest entropy on four points
    x = cp.Variable(4, name="x")
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), [cp.sum(x) == 1]), ["sum"]


def _power() -> tuple[Any, list[str]]:
    # the largest weighted geometric mean of two numbers that sum to 2
    x = cp.Variable(3, name="x")
    rows = [cp.PowCone3D(x[0], x[1], x[2], 0.25), x[0] + x[1] == 2]
    return cp.Problem(cp.Maximize(x[2]), rows), ["cone", "sum"]


def _knapsack() -> tuple[Any, list[str]]:
    x = cp.Variable(4, name="x")
    w, v = np.array([5.0, 4, 6, 3]), np.array([10.0, 40, 30, 50])
    return cp.Problem(cp.Maximize(v @ x), [w @ x <= 10, x >= 0, x <= 1]), ["weight", "lo", "up"]


def _nearest_integer() -> tuple[Any, list[str]]:
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(cp.sum_squares(x - np.array([1.4, 2.6])))
    return cp.Problem(goal, [x >= 0, x <= 9]), ["lo", "up"]


def _integer_disk() -> tuple[Any, list[str]]:
    x = cp.Variable(2, name="x")
    return cp.Problem(cp.Maximize(2 * x[0] + x[1]), [cp.norm(x) <= 2.5]), ["disk"]


def _integer_quadratic() -> tuple[Any, list[str]]:
    # the same points, the disk as a quadratic
    x = cp.Variable(2, name="x")
    return cp.Problem(cp.Maximize(2 * x[0] + x[1]), [cp.sum_squares(x) <= 6.25]), ["disk"]


def _large_sdp() -> tuple[Any, list[str]]:
    # the largest eigenvalue of a path of four nodes, 2 cos(π/5): order and triangle matter
    X = cp.Variable((4, 4), name="X", symmetric=True)
    C = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    rows = [cp.trace(X) == 1, X >> 0]
    return cp.Problem(cp.Maximize(cp.trace(C @ X)), rows), ["trace", "psd"]


def _nonconvex() -> tuple[Any, list[str]]:
    # outside the disk and inside the box: the far corner
    x = cp.Variable(2, name="x")
    rows = [cp.sum_squares(x) >= 1, cp.abs(x) <= 2]
    return cp.Problem(cp.Minimize(cp.sum(x)), rows), ["out", "box"]


def _ring() -> tuple[Any, list[str]]:
    # the point of a ring nearest to (0.5, 0): radially outwards to (1, 0)
    x = cp.Variable(2, name="x")
    rows = [cp.sum_squares(x) >= 1, cp.sum_squares(x) <= 4]
    goal = cp.Minimize(cp.sum_squares(x - np.array([0.5, 0.0])))
    return cp.Problem(goal, rows), ["out", "in"]


def _saddle() -> tuple[Any, list[str]]:
    # x1² - x2² on the box [-1, 2]²: down the second axis as far as it goes
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(cp.quad_form(x, np.diag([1.0, -1.0])))
    return cp.Problem(goal, [x >= -1, x <= 2]), ["lo", "up"]


CASES = {
    "LP": Case("LP", _lp, 36.0, {"x": [2, 6]}, {"a": 0.0, "b": 1.5, "c": 1.0, "sign": [0.0, 0.0]}),
    "degenerate LP": Case("LP", _degenerate_lp, 3.0, {"x": [1, 1]}),
    "QP": Case("QP", _qp, 3.0, {"x": [0, 1, 2]}, {"sum": -2.0}),
    "QCQP": Case("QCQP", _qcqp, -10.0, {"x": [-1.2, -1.6]}, {"disk": -1.25}),
    "SOCP": Case("SOCP", _socp, 4.0, {"x": [0.6, 0.8]}, {"disk": -1.0}),
    "SDP": Case("SDP", _sdp, 3.0, {"X": [[0.5, 0.5], [0.5, 0.5]]}, {"trace": 3.0}),
    "CONIC": Case(
        "CONIC", _exponential, float(np.log(4)), {"x": [0.25] * 4}, {"sum": np.log(4) - 1}
    ),
    "CONIC with a power cone": Case(
        "CONIC", _power, 0.5**0.25 * 1.5**0.75, {"x": [0.5, 1.5, 0.5**0.25 * 1.5**0.75]}
    ),
    "MILP": Case("MILP", _knapsack, 90.0, {"x": [0, 1, 0, 1]}, integers=("x",)),
    "MIQP": Case("MIQP", _nearest_integer, 0.32, {"x": [1, 3]}, integers=("x",)),
    "MISOCP": Case("MISOCP", _integer_disk, 5.0, {"x": [2, 1]}, integers=("x",)),
    "MIQCQP": Case("MIQCQP", _integer_quadratic, 5.0, {"x": [2, 1]}, integers=("x",)),
    "SDP of order 4": Case("SDP", _large_sdp, 2.0 * float(np.cos(np.pi / 5))),
    "nonconvex QP": Case("QP", _saddle, -4.0, {"x": [0, 2]}),
    "nonconvex QCQP": Case("QCQP", _nonconvex, -4.0, {"x": [-2, -2]}),
    "nonconvex QCQP, ring": Case("QCQP", _ring, 0.25, {"x": [1, 0]}),
}


def _infeasible(kind: str) -> tuple[Any, list[str]]:
    x = cp.Variable(2, name="x")
    far = cp.sum(x) >= 10
    near = {
        "LP": cp.sum(x) <= 1,
        "QP": cp.sum(x) <= 1,
        "QCQP": cp.sum_squares(x) <= 1,
        "SOCP": cp.norm(x) <= 1,
        "SDP": cp.lambda_max(cp.diag(x)) <= 1,
        "CONIC": cp.exp(x[0]) + cp.exp(x[1]) <= 1,
    }[kind]
    goal = cp.sum_squares(x) if kind == "QP" else x[0]
    return cp.Problem(cp.Minimize(goal), [far, near]), ["far", "near"]


def _unbounded(kind: str) -> tuple[Any, list[str]]:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    more = {
        "LP": cp.sum(x) <= 1,
        "QP": cp.sum(x) <= 1,
        "QCQP": cp.sum_squares(x) <= t,
        "SOCP": cp.norm(x) <= t,
        "SDP": cp.lambda_max(cp.diag(x)) <= t,
        "CONIC": cp.exp(x[0]) <= t,
    }[kind]
    goal = cp.sum_squares(x) - t if kind == "QP" else -t
    return cp.Problem(cp.Minimize(goal), [more]), ["only"]


INFEASIBLE = {k: (lambda k=k: _infeasible(k)) for k in ("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC")}
UNBOUNDED = {k: (lambda k=k: _unbounded(k)) for k in ("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC")}


def _random(seed: int, quadratic: bool) -> tuple[Any, list[str], float]:
    # optimal by construction: a point, multipliers of its active rows, the costs from both
    rng = np.random.default_rng(seed)
    m, n = (10, 5) if quadratic else (12, 6)
    active = 3 if quadratic else n
    A, best, root = rng.normal(size=(m, n)), rng.normal(size=n), rng.normal(size=(n + 2, n))
    root = root * quadratic
    price = np.r_[rng.random(active) + 0.1, np.zeros(m - active)]
    slack = np.r_[np.zeros(active), rng.random(m - active) + 0.1]
    cost = A.T @ price - 2 * root.T @ (root @ best)
    x = cp.Variable(n, name="x")
    goal = cost @ x + (cp.sum_squares(root @ x) if quadratic else 0.0)
    value = float(cost @ best + np.sum((root @ best) ** 2))
    return cp.Problem(cp.Minimize(goal), [A @ x >= A @ best - slack]), ["rows"], value


def _badly_scaled() -> tuple[Any, list[str], float]:
    # rows of sizes 1e-3 and 1e3; the vertex is (1000, 0.001)
    x = cp.Variable(2, name="x")
    rows = [1e-3 * x[0] <= 1, 1e3 * x[1] <= 1]
    return cp.Problem(cp.Maximize(1e-3 * x[0] + 1e3 * x[1]), rows), ["long", "short"], 2.0


# the linear and quadratic programs that every tolerance is asked of: problem, names, optimum
PRECISE: dict[str, Callable[[], tuple[Any, list[str], float]]] = {
    "LP": lambda: (*_lp(), 36.0),
    "degenerate LP": lambda: (*_degenerate_lp(), 3.0),
    "QP": lambda: (*_qp(), 3.0),
    "badly scaled LP": _badly_scaled,
    **{f"random LP {i}": (lambda i=i: _random(i, False)) for i in range(4)},
    **{f"random QP {i}": (lambda i=i: _random(i, True)) for i in range(4)},
}
