"""Files of AMPL say what the problem says: read back by a parser of their own text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

Body = Callable[[Any], float]
# What the file may use of the operators of .nl, by number.
OPERATORS: dict[int, Callable[[float, float], float]] = {
    0: lambda a, b: a + b,
    1: lambda a, b: a - b,
    2: lambda a, b: a * b,
    3: lambda a, b: a / b,
    5: lambda a, b: a**b,
}


class Nl:
    """The segments of a text .nl: bodies, sides and bounds of rows and columns.

    Attributes
    ----------
    bodies, goals : list of callable
        Rows and objectives as functions of the columns.
    sides, bounds : list of (lower, upper)
        Of rows and of columns.
    whole : int
        Columns that are integer: the last ones where all are linear.
    """

    def __init__(self, text: str) -> None:
        self.lines = iter([line.partition("#")[0].rstrip() for line in text.splitlines()])
        head = [next(self.lines) for _ in range(10)]
        assert head[0].startswith("g3")
        self.columns, rows, goals = (int(v) for v in head[1].split()[:3])
        discrete = [int(v) for v in head[6].split()]
        self.whole, self.nonlinear_whole = sum(discrete[:2]), sum(discrete[2:])
        parts: dict[str, list[Body]] = {"C": [lambda x: 0.0] * rows, "O": [lambda x: 0.0] * goals}
        linear: dict[str, list[dict[int, float]]] = {
            "J": [{} for _ in range(rows)],
            "G": [{} for _ in range(goals)],
        }
        self.senses = [""] * goals
        for line in self.lines:
            kind, words = line[:1], line[1:].split()
            if kind in "CO":
                parts[kind][int(words[0])] = self._expression()
                if kind == "O":
                    self.senses[int(words[0])] = "maximize" if words[1] == "1" else "minimize"
            elif kind in "JG":
                entries = [next(self.lines).split() for _ in range(int(words[1]))]
                linear[kind][int(words[0])] = {int(j): float(v) for j, v in entries}
            elif kind == "r":
                self.sides = [_interval(next(self.lines)) for _ in range(rows)]
            elif kind == "b":
                self.bounds = [_interval(next(self.lines)) for _ in range(self.columns)]
            else:  # starts of columns, and a first point
                assert kind in "kx"
                for _ in range(int(words[0])):
                    next(self.lines)
        self.entries = linear["J"]
        self.bodies, self.goals = (
            [_sum(f, row) for f, row in zip(parts[c], linear[r], strict=True)]
            for c, r in (("C", "J"), ("O", "G"))
        )
        self.curved = parts["C"]

    def _expression(self) -> Body:
        line = next(self.lines)
        kind, word = line[0], line[1:]
        if kind == "n":
            number = float(word)
            return lambda x: number
        if kind == "v":
            column = int(word)
            return lambda x: float(x[column])
        operator = int(word)
        if operator == 16:
            inner = self._expression()
            return lambda x: -inner(x)
        if operator == 54:
            several = [self._expression() for _ in range(int(next(self.lines)))]
            return lambda x: math.fsum(f(x) for f in several)
        first, second = self._expression(), self._expression()
        return lambda x: OPERATORS[operator](first(x), second(x))


def _interval(line: str) -> tuple[float, float]:
    kind, *numbers = line.split()
    values = [float(v) for v in numbers]
    low, high = {
        "0": lambda: (values[0], values[1]),
        "1": lambda: (-math.inf, values[0]),
        "2": lambda: (values[0], math.inf),
        "3": lambda: (-math.inf, math.inf),
        "4": lambda: (values[0], values[0]),
    }[kind]()
    return low, high


def _sum(curved: Body, row: dict[int, float]) -> Body:
    return lambda x: curved(x) + math.fsum(v * x[j] for j, v in row.items())


def slacks(pairs: Iterator[tuple[float, tuple[float, float]]]) -> list[float]:
    """Return how far bodies are inside their finite sides, sorted; of equations the distance."""
    inside = []
    for body, (low, high) in pairs:
        if low == high:
            inside.append(abs(body - low))
            continue
        inside += [body - low] if math.isfinite(low) else []
        inside += [high - body] if math.isfinite(high) else []
    return sorted(inside)


x, k, b = (
    cp.Variable(3, name="x"),
    cp.Variable(2, name="k", integer=True),
    cp.Variable(name="b", boolean=True),
)
# Rows that tell the columns apart, and in which order they are marked.
MARKS = [x >= -np.array([101.0, 102.0, 103.0]), k >= -np.array([104.0, 105.0]), b >= -106.0]
G = np.array([[1.0, -2.0, 0.0], [0.5, 0.0, 3.0]])
PROBLEMS: dict[str, tuple[Any, list[Any], Callable[[Any], float], Callable[[Any], list[float]]]] = {
    "linear": (
        cp.Minimize(2 * x[0] - 0.1 * k[1] + b + 7),
        [G @ x <= [4, 5], x[0] + k[0] == 1.5, k <= 9, 0.25 * x[2] + b >= -3],
        lambda v: 2 * v[0] - 0.1 * v[4] + v[5] + 7,
        lambda v: [
            *(np.array([4, 5]) - G @ v[:3]),
            abs(v[0] + v[3] - 1.5),
            *(9 - v[3:5]),
            0.25 * v[2] + v[5] + 3,
        ],
    ),
    "quadratic": (
        cp.Maximize(-cp.sum_squares(x - 1) - 0.3 * cp.square(k[0]) + x[1]),
        [cp.sum_squares(x) <= 50, cp.square(x[0]) + k[1] + b <= 20],
        lambda v: -((v[:3] - 1) ** 2).sum() - 0.3 * v[3] ** 2 + v[1],
        lambda v: [50 - (v[:3] ** 2).sum(), 20 - v[0] ** 2 - v[4] - v[5]],
    ),
    "products": (
        cp.Minimize(x[0] * x[1] - 2 * x[2] * k[0] + k[1]),
        [x[0] * x[2] + b >= -4, x[1] * k[1] - x[0] == 0.5],
        lambda v: v[0] * v[1] - 2 * v[2] * v[3] + v[4],
        lambda v: [v[0] * v[2] + v[5] + 4, abs(v[1] * v[4] - v[0] - 0.5)],
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_row_and_the_objective_say_what_was_declared(name: str, tmp_path: Path) -> None:
    goal, rows, value, inside = PROBLEMS[name]
    cover = 0 * (cp.sum(x) + cp.sum(k) + b)
    p = of.from_cvxpy(cp.Problem(type(goal)(goal.args[0] + cover), [*rows, *MARKS]))
    p.export(tmp_path / "p.nl")
    nl = Nl((tmp_path / "p.nl").read_text())
    assert nl.senses == [p.sense] and nl.columns == 6
    column = {}
    for i, (row, (low, high)) in enumerate(zip(nl.entries, nl.sides, strict=True)):
        side = low if math.isfinite(low) else -high
        if len(row) == 1 and -106.0 <= side <= -101.0:
            (column[round(-side - 101)],) = row
            assert nl.curved[i](np.ones(6)) == 0.0
    order = np.array([column[j] for j in range(6)])
    rng = np.random.default_rng(0)
    for _ in range(5):
        v = rng.normal(size=6) * 3.0
        at = np.empty(6)
        at[order] = v
        assert nl.goals[0](at) == pytest.approx(value(v), abs=1e-12)
        stated = slacks(
            pair
            for pair in [
                *((f(at), s) for f, s in zip(nl.bodies, nl.sides, strict=True)),
                *zip(at, nl.bounds, strict=True),
            ]
        )
        marks = v + np.arange(101.0, 107.0)
        binary = [v[5], 1.0 - v[5]]
        wanted = sorted([*inside(v), *marks, *binary])
        assert stated == pytest.approx(wanted, abs=1e-9)
    # those of k and b, wherever the file has them
    assert nl.whole + nl.nonlinear_whole == 3
