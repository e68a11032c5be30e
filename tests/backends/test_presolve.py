"""What presolve takes out comes back: each case is solved, proved, and has its prices by name."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

INF = np.inf
C = np.array([1.0, 2.0, 3.0])
ONES = np.ones(3)
UNITS = np.array([1e-6, 1.0, 1e6])
x, s, t = cp.Variable(3, name="x"), cp.Variable(name="s"), cp.Variable(name="t")
X = cp.Variable((3, 3), name="X", symmetric=True)
PAIR = cp.Variable((2, 2), name="pair", symmetric=True)
COST = np.array([[2.0, 1, 1], [1, 2, 1], [1, 1, 5]])
total, sign = cp.sum(x), x >= 0

# name: objective, rows by name, least value, and what prices sum to: (weights by name, sum).
# Prices of rows that repeat each other are one price, shared in any way.
Price = tuple[dict[str, Any], float]
CASES: dict[str, tuple[Any, dict[str, Any], float, list[Price]]] = {
    "empty rows": (
        C @ x,
        {"sum": total >= 1, "sign": sign, "empty": np.zeros((2, 3)) @ x <= np.array([1.0, 0.0])},
        1.0,
        [({"sum": 1}, 1), ({"sign": C}, 8), ({"empty": np.array([1, 0])}, 0)],
    ),
    "empty equations": (
        C @ x,
        {"sum": total >= 1, "sign": sign, "empty": np.zeros(3) @ x == 0},
        1.0,
        [({"sum": 1}, 1), ({"sign": C}, 8)],
    ),
    "equations that repeat": (
        C @ x,
        {"same": np.outer([1, 1, 2], ONES) @ x == np.array([1.0, 1, 2]), "sign": sign},
        1.0,
        [({"same": np.array([1, 1, 2])}, -1), ({"sign": C}, 8)],
    ),
    "rows that repeat": (
        C @ x,
        {"same": np.outer([1, 1, 2], ONES) @ x >= np.array([1.0, 1, 2]), "sign": sign},
        1.0,
        [({"same": np.array([1, 1, 2])}, 1), ({"sign": C}, 8)],
    ),
    "rows of two names that repeat": (
        C @ x,
        {"one": total >= 1, "other": 4 * total >= 4, "sign": sign},
        1.0,
        [({"one": 1, "other": 4}, 1)],
    ),
    "infinite entries": (
        C @ x,
        {
            "sum": total >= 1,
            "low": x >= np.array([0.0, -INF, 0.0]),
            "high": x <= np.array([INF, 5.0, INF]),
            "second": x[1] >= 0,
        },
        1.0,
        [({"sum": 1}, 1), ({"low": C}, 6), ({"high": ONES}, 0), ({"second": 1}, 1)],
    ),
    "fixed entries, by bounds": (
        C @ x,
        {
            "sum": total >= 4,
            "low": x >= np.array([0.0, 2.0, 0.0]),
            "high": x <= np.array([INF, 2.0, 1.0]),
        },
        6.0,
        [({"sum": 1}, 1), ({"low": np.eye(3)[1], "high": -np.eye(3)[1]}, 1)],
    ),
    "fixed entries, by an equation": (
        C @ x,
        {"sum": total >= 4, "sign": sign, "fix": x[1] == 2},
        6.0,
        [({"sum": 1}, 1), ({"fix": -1, "sign": np.eye(3)[1]}, 1)],
    ),
    "a singleton column": (
        C @ x + 5 * s,
        {"sum": total + s == 1, "sign": sign, "slack": s >= 0},
        1.0,
        [({"sum": 1}, -1), ({"slack": 1}, 4)],
    ),
    "a free singleton column": (
        C @ x,
        {"sum": total + s == 1, "sign": sign, "cap": x[0] - x[1] >= 1},
        1.0,
        [({"sum": 1}, 0), ({"cap": 1}, 1), ({"sign": ONES}, 6)],
    ),
    "rows in other units": (
        C @ x,
        {"rows": np.outer(UNITS, ONES) @ x >= UNITS, "sign": sign},
        1.0,
        [({"rows": UNITS}, 1), ({"sign": C}, 8)],
    ),
    "columns in other units": (
        (C * UNITS) @ x,
        {"sum": UNITS @ x >= 1, "sign": sign},
        1.0,
        [({"sum": 1}, 1), ({"sign": 1 / UNITS}, 3)],
    ),
    "a quadratic program with all of it": (
        cp.sum_squares(cp.multiply(UNITS, x)),
        {
            "sum": UNITS @ x == 3,
            "again": 2 * UNITS @ x == 6,
            "empty": np.zeros(3) @ x <= 1,
            "low": x >= np.full(3, -INF),
        },
        3.0,
        [({"sum": 1, "again": 2}, -2), ({"empty": 1}, 0), ({"low": ONES}, 0)],
    ),
    "a cone with zero entries": (
        t,
        {"cone": cp.norm(cp.hstack([x, 0 * x])) <= t, "sum": total == 3, "again": total == 3},
        3**0.5,
        [({"cone": 1}, 1), ({"sum": 1, "again": 1}, -(3**-0.5))],
    ),
    "an exponential cone beside rows that repeat": (
        cp.sum(cp.exp(x)),
        {"sum": total == 0, "again": total == 0, "empty": np.zeros(3) @ x <= 1},
        3.0,
        [({"sum": 1, "again": 1}, -1), ({"empty": 1}, 0)],
    ),
    "a zero on the diagonal, by an equation": (
        cp.sum(cp.multiply(COST, X)),
        {"cone": X >> 0, "zero": X[2, 2] == 0, "trace": cp.trace(X) == 1},
        1.0,
        [
            ({"trace": 1}, -1),
            ({"cone": np.diag([1, 1, 0])}, 2),
            ({"cone": np.diag([0, 0, 1]), "zero": -1}, 4),
        ],
    ),
    "a zero line of a block": (
        t,
        {"cone": cp.bmat([[t, 1, 0], [1, t, 0], [0, 0, 0]]) >> 0},
        1.0,
        [({"cone": np.diag([1, 1, 0])}, 1), ({"cone": np.eye(3)[[1, 0, 2]] * [1, 1, 0]}, -1)],
    ),
    "a zero on the diagonal that forces others": (
        t,
        {"cone": cp.bmat([[t, 1, s], [1, t, 0], [s, 0, 0]]) >> 0, "row": s + t >= 0},
        1.0,
        [({"cone": np.diag([1, 1, 0])}, 1), ({"row": 1}, 0)],
    ),
    "equations of a block that repeat": (
        cp.trace(PAIR),
        {"cone": PAIR >> 0, "off": PAIR[0, 1] == 1, "again": 2 * PAIR[0, 1] == 2},
        2.0,
        [({"off": 1, "again": 2}, -2), ({"cone": np.eye(2)}, 2)],
    ),
}


def declared(cost: Any, rows: dict[str, Any]) -> of.Problem:
    return of.from_cvxpy(cp.Problem(cp.Minimize(cost), list(rows.values())), list(rows))


@pytest.mark.parametrize("case", CASES)
def test_it_is_solved_and_proved_with_its_prices(case: str) -> None:
    cost, rows, least, prices = CASES[case]
    found = declared(cost, rows).solve()
    assert found.grade.word == "proved" and found.is_optimal(1e-7)
    assert found.objective == pytest.approx(least, rel=1e-7)
    assert set(found.multipliers) == set(rows)
    for weights, value in prices:
        own = [np.sum(np.asarray(w) * found.multipliers[name]) for name, w in weights.items()]
        assert sum(own) == pytest.approx(value, rel=1e-3, abs=1e-3), weights
    assert all(np.isfinite(price).all() for price in found.multipliers.values())


# The same, where it contradicts itself.
CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "an empty row": {"sum": total >= 1, "empty": np.zeros(3) @ x <= -1},
    "an empty equation": {"sum": total >= 1, "empty": np.zeros(3) @ x == 1},
    "equations that repeat, of two sides": {"one": total == 1, "other": 2 * total == 3},
    "bounds that cross": {"low": x >= 1, "high": x <= np.array([INF, 0.5, INF])},
    "a fixed entry beyond a bound": {"fix": x[1] == 2, "high": x[1] <= 1},
    "a zero line beside a constant": {"cone": cp.bmat([[t, 1], [1, 0]]) >> 0},
    "a zero on the diagonal beside an entry": {
        "cone": X >> 0,
        "zero": X[0, 0] == 0,
        "entry": X[0, 1] == 1,
    },
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_what_contradicts_itself_is_proved_infeasible_by_name(case: str) -> None:
    rows = CONTRADICTIONS[case]
    with pytest.raises(of.Infeasible) as told:
        declared(0 * total, rows).solve(time_limit=5.0)
    assert told.value.certificate.verify()
    assert set(told.value.conflict) == set(rows) - ({"sum"} if "empty" in rows else set())
