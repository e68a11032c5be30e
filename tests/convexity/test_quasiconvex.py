"""Quasiconvex functions: rows that keep their points, and objectives freed of increasing functions."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Leaf, Node, constant, raw_call, select
from optfair.convexity.intervals import Interval
from optfair.convexity.quasiconvex import (
    Increasing,
    increasing,
    inward,
    log_of_objective,
    outward,
    ratio,
    rewritten,
)

# x is positive, y not negative, m negative
X, Y, M = (Leaf(("test of quasiconvex", n), n, 1, (1,)) for n in "xym")
BOXES = {
    X: Interval.of([0.5], [4.0]),
    Y: Interval.of([0.0], [4.0]),
    M: Interval.of([-4.0], [-0.5]),
}
A = Algebra(Domain(boxes=BOXES))
ONE, TWO, HALF = Fraction(1), Fraction(2), Fraction(1, 2)


def point(seed: int) -> dict[Leaf, Any]:
    rng = np.random.default_rng(seed)
    return {leaf: rng.uniform(box.low, box.high) for leaf, box in BOXES.items()}


def value(node: Node, at: Mapping[Leaf, Any]) -> float:
    """Return the value of a node at a point: its range over a box of one point."""
    boxes = {leaf: Interval.exactly(v) for leaf, v in at.items()}
    at_point = Domain(boxes=boxes).range(node)
    assert (at_point.high - at_point.low <= 1e-9 * (1.0 + np.abs(at_point.low))).all()
    return float(at_point.middle()[0])


def log(node: Node) -> Node:
    return A.call("log", [node], 1)


ROWS = [
    A.total([constant([3.0]), A.product([(X, ONE), (Y, ONE)])], [1.0, -1.0]),
    A.total([A.product([(Y, ONE), (X, -ONE)]), constant([0.7])], [1.0, -1.0]),
    A.total([A.product([(Y, TWO)]), A.product([(X, ONE), (M, TWO)])], [1.0, -0.3]),
    A.total([X, Y, A.product([(X, HALF)])], [1.0, 1.0, -3.0]),
    A.total([log(A.total([X, Y])), constant([1.0])], [2.0, -1.0]),
    A.total([A.call("exp", [A.product([(Y, ONE), (X, -ONE)])], 1), constant([2.0])], [1.0, -1.0]),
    A.total([A.product([(A.total([X, Y]), Fraction(1, 4))]), constant([1.3])], [1.0, -1.0]),
    A.total([A.call("sinh", [A.total([X, Y])], 1), constant([9.0])], [-1.0, 1.0]),
]


def test_ways_to_write_a_row_keep_its_points() -> None:
    row = A.total([A.product([(X, ONE), (Y, ONE)]), M, constant([3.0])], [1.0, 0.1, -1.0])
    assert [*rewritten(row, A)][1:] == []
    for row in ROWS:
        ways = list(dict.fromkeys(rewritten(row, A)))
        assert ways[0] is row and len(ways) > 1
        for seed in range(40):
            at = point(seed)
            if abs(value(row, at)) > 1e-6:
                assert {value(way, at) > 0.0 for way in ways} == {value(row, at) > 0.0}


FUNCTIONS = [
    Increasing(f, Fraction(p), turned, c, d)
    for f, p in [("", 1), ("exp", 1), ("log", 1), ("sinh", 1), ("asinh", 1), ("power", 0.25)]
    for turned in (False, True)
    for c, d in [(1.0, 0.0), (0.3, 0.1)]
]


def said(value: Any) -> str | None:
    """Return what an objective says; others are numbered."""
    return str(value) if isinstance(value, cp.problems.objective.Objective) else None


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
def test_values_and_inverses_are_rounded_outward(f: Increasing) -> None:
    for v in (0.3, 1.7, 3.0):
        v = -v if f.turned else v
        at = Interval.exactly(np.array(v))
        there = f.of(at)
        assert there.high - there.low <= 1e-12
        back = f.inverse(there)
        assert back is not None and back.low <= v <= back.high <= v + 1e-12
        assert f.of(Interval.exactly(np.array(v + 0.1))).low > there.high
        assert (outward((f, f), at).low > -np.inf) or f.function in ("log", "power")


def test_what_no_value_is_has_no_inverse() -> None:
    assert Increasing("exp", d=1.0).most() is None and Increasing("power", d=1.0).most() is None
    assert Increasing("ceil", d=-1.0).most() is None and Increasing("atan", d=-9.0).most() is None
    assert inward((Increasing("exp"), Increasing(d=1.0)), -1.0) is None
    root, other = Increasing("power", HALF, d=-0.3), Increasing("log", turned=True, c=3.0, d=0.1)
    assert Fraction(0.3) ** 2 <= Fraction(root.most() or 0.0) < Fraction(0.09) + Fraction(1e-15)
    assert -np.exp(0.1 / 3.0) <= (other.most() or 0.0) < -np.exp(0.1 / 3.0) + 1e-14


def test_a_root_or_logarithm_is_taken_off_where_nothing_is_lost() -> None:
    """A logarithm says that what it is of is positive, which a convex function may not be."""
    free = Leaf(("test of quasiconvex", "free"), "free", 1, (1,))
    assert not list(increasing(log(A.total([X, free])), A))
    assert not list(increasing(A.product([(free, HALF)]), A))
    assert [inner for _, inner in increasing(log(A.total([X, Y])), A)] == [A.total([X, Y])]
    (outer, inner), *_ = increasing(A.scaled(-2.0, log(A.total([X, Y]))), A)
    assert outer == Increasing("log", ONE, True, 2.0) and inner is A.scaled(-1.0, A.total([X, Y]))
    assert select(inner, [0]) is inner


def test_a_sum_of_logarithms_is_the_logarithm_of_a_product() -> None:
    (outer, inner), *others = increasing(
        A.total([log(X), log(Y), constant([2.0])], [-1.0, 0.5, 1.0]), A
    )
    assert outer == Increasing("log", d=2.0) and not others
    assert inner is A.product([(X, -ONE), (Y, HALF)])


def test_a_power_has_no_values_of_what_is_negative() -> None:
    """A bound below what is squared says that the square is not negative, and no more."""
    squared = Increasing("power", Fraction(2), turned=True)  # -(-v)^2 of v <= 0
    assert squared.of(Interval.of(np.array(-3.0), np.array(np.inf))).low == -9.0
    assert outward((squared,), Interval.of(np.array(-3.0), np.array(np.inf))).low == -9.0


def test_functions_of_other_entries_or_of_several_terms_are_not_taken_off() -> None:
    free = Leaf(("test of quasiconvex", "free"), "free", 1, (1,))
    assert not list(increasing(A.total([log(X), log(A.total([X, free]))]), A))
    assert not list(increasing(A.total([log(X), log(Y)], [1.0, 0.1]), A))  # no simple exponent
    assert not list(increasing(A.total([log(X), Y, constant([1.0])]), A))
    two = Leaf(("test of quasiconvex", "two"), "two", 2, (2,))
    assert not list(increasing(A.call("exp", [two], 2), A))
    # a part of a function grows as it does, and a larger one
    for c in (0.5, 3.0):
        [(outer, inner)] = increasing(A.scaled(c, log(A.total([X, Y]))), A)
        assert outer == Increasing("log", ONE, False, c) and inner is A.total([X, Y])
    exp_x, exp_free = (A.call("exp", [n], 1) for n in (X, free))
    for word in ("of all: maximum", "of all: minimum"):
        own = raw_call(word, [exp_x, exp_free], 1)
        [(outer, inner)] = increasing(own, A)
        assert outer == Increasing("exp") and inner is raw_call(word, [X, free], 1)
        [(outer, inner)] = increasing(raw_call(word, [log(X), log(Y)], 1), A)
        assert outer == Increasing("log") and inner is raw_call(word, [X, Y], 1)
        # of two functions, beside none, of what may be negative, and of what does not grow
        others = (log(free), X), (exp_x, log(X)), (exp_x, X), (log(X), log(free))
        for pair in (*others, tuple(A.call("abs", [n], 1) for n in (X, free))):
            assert not list(increasing(raw_call(word, list(pair), 1), A))


def test_the_logarithm_of_an_objective_is_that_of_what_is_positive() -> None:
    f = A.total([X, A.product([(X, ONE), (Y, ONE)])], [1.0, 2.0])
    least, most = (
        log_of_objective(f, A, "minimize"),
        log_of_objective(A.scaled(-1.0, f), A, "maximize"),
    )
    assert least is not None and most is not None
    for seed in range(5):
        at = point(seed)
        assert value(least, at) == pytest.approx(np.log(value(f, at)))
        assert value(most, at) == pytest.approx(-np.log(value(f, at)))
    assert log_of_objective(f, A, "maximize") is None
    assert log_of_objective(A.scaled(-1.0, f), A, "minimize") is None
    assert log_of_objective(A.total([X, Y], [1.0, -1.0]), A, "minimize") is None
    # the least value may be 0, the largest is not
    assert log_of_objective(Y, A, "minimize") is None
    assert log_of_objective(A.scaled(-1.0, Y), A, "maximize") is not None


def test_a_ratio_has_convex_levels_only_with_the_signs_for_it() -> None:
    root, square = A.product([(X, -HALF)]), A.product([(X, -TWO)])
    either = A.total([Y, M])

    def over(p: Node, q: Node) -> Node:
        return A.product([(p, ONE), (q, ONE)])

    known = [
        over(either, A.product([(A.total([X, Y]), -ONE)])),
        over(Y, root),
        over(M, square),
    ]
    for goal in known:
        pair = ratio(goal, A)
        assert pair is not None
        for seed in range(5):
            at = point(seed)
            assert value(pair[1], at) > 0.0
            assert value(pair[0], at) / value(pair[1], at) == pytest.approx(value(goal, at))
    for goal in (over(either, root), over(either, square), over(M, root), over(Y, square)):
        assert ratio(goal, A) is None


rng = np.random.default_rng(0)
D, b = rng.normal(size=(8, 3)).round(2), rng.normal(size=8).round(2)
x = cp.Variable(3, name="x")
NORM, SQUARES = cp.norm(D @ x - b), cp.sum_squares(D @ x - b)
BOX = [x >= 0, x <= 2]
RATIO = (x[0] + 1) / (x[1] + 3)


def solved(problem: cp.Problem) -> of.Solution:
    """Return a proved solution of a problem that is quasiconvex."""
    p = of.from_cvxpy(problem)
    s = p.solve()
    assert s.solver == "equivalent-convex" and s.grade.word == "proved" and p.recast.verify()
    return s


def least() -> float:
    """Return the least norm."""
    return float(np.linalg.norm(D @ np.linalg.lstsq(D, b)[0] - b))


@pytest.mark.parametrize(
    ("goal", "f"),
    [
        (cp.Minimize(cp.log(NORM + 1)), lambda n: np.log(n + 1)),
        (cp.Maximize(2 - cp.log(SQUARES + 1)), lambda n: 2 - np.log(n * n + 1)),
        (cp.Minimize(3 * cp.sqrt(NORM) + 2), lambda n: 3 * np.sqrt(n) + 2),
        (cp.Minimize(cp.power(NORM, 0.3)), lambda n: n**0.3),
        (cp.Minimize(cp.log(cp.sqrt(NORM) + 1)), lambda n: np.log(np.sqrt(n) + 1)),
        (cp.Minimize(cp.log(cp.maximum(NORM, 9)) + 1), lambda n: np.log(9) + 1),
    ],
    ids=said,
)
def test_an_increasing_function_of_a_convex_one_is_minimised_by_that(goal: Any, f: Any) -> None:
    s = solved(cp.Problem(goal))
    assert s.objective == pytest.approx(f(least()), abs=1e-6)
    assert abs(s.objective - s.bound) <= 1e-6


@pytest.mark.parametrize(
    ("goal", "truth"),
    [
        (cp.Minimize(cp.sqrt(RATIO)), np.sqrt(0.2)),
        (cp.Maximize(cp.log(RATIO)), 0.0),
        (cp.Minimize(cp.exp(-RATIO) - 1), np.exp(-1.0) - 1),
    ],
    ids=said,
)
def test_an_increasing_function_of_a_ratio_is_minimised_by_levels(goal: Any, truth: float) -> None:
    assert solved(cp.Problem(goal, BOX)).objective == pytest.approx(truth, abs=1e-6)


RATIOS = cp.hstack([RATIO, (x[1] + 1) / (x[2] + 3)])
# A row, and the same by cones or affine functions.
SAME = [
    ([cp.log(SQUARES + 1) <= 3], [np.exp(3) - 1 >= SQUARES]),
    ([cp.log(NORM + 1) <= 2], [np.exp(2) - 1 >= NORM]),
    ([2 * cp.sqrt(NORM) <= 4], [NORM <= 4]),
    ([cp.power(NORM, 0.25) <= 1.2, x >= -5], [NORM <= 1.2**4, x >= -5]),
    ([cp.log(RATIO) >= -0.3, *BOX], [x[0] + 1 >= np.exp(-0.3) * (x[1] + 3), *BOX]),
    ([cp.max(RATIOS) <= 0.5, *BOX], [x[0] + 1 <= (x[1] + 3) / 2, x[1] + 1 <= (x[2] + 3) / 2, *BOX]),
    (
        [2 * cp.maximum(RATIO, RATIOS[1]) - 1 <= 0, *BOX],
        [x[0] + 1 <= (x[1] + 3) / 2, x[1] + 1 <= (x[2] + 3) / 2, *BOX],
    ),
    (
        [cp.minimum(RATIO, RATIOS[1]) >= 0.5, *BOX],
        [x[0] + 1 >= (x[1] + 3) / 2, x[1] + 1 >= (x[2] + 3) / 2, *BOX],
    ),
]


@pytest.mark.parametrize(("rows", "same"), SAME)
def test_a_row_of_an_increasing_function_or_a_largest_ratio(rows: Any, same: Any) -> None:
    goal = cp.Minimize(cp.sum_squares(x - [2, 3, -1]) + cp.sum(x))
    truth = of.from_cvxpy(cp.Problem(goal, same)).solve().objective
    assert solved(cp.Problem(goal, rows)).objective == pytest.approx(truth, abs=1e-5)


def test_the_price_of_a_largest_ratio_is_the_sum_of_those_of_its_ratios() -> None:
    """(x + 1)/(x + 3) <= c is x <= (3 c - 1)/(1 - c), whose derivative at 1/2 is 8."""
    goal = cp.Minimize(cp.sum_squares(x - [2, 3, 1]))
    s = solved(cp.Problem(goal, [cp.max((x + 1) / (x + 3)) <= 0.5, x >= 0]))
    assert float(s.multipliers["c0"]) == pytest.approx(8 * (2 * 1 + 2 * 2), rel=1e-4)


def test_the_price_of_a_row_below_a_logarithm_of_the_objective() -> None:
    goal, row = cp.Minimize(cp.log(cp.sum_squares(x) + 1)), [cp.sum(x) >= 3]
    s = solved(cp.Problem(goal, row))
    assert float(s.multipliers["c0"]) == pytest.approx(2.0 / 4.0, rel=1e-5)


@pytest.mark.parametrize(("rows", "known"), [((2.0, 1.2), True), ((0.5, 1.0), False)])
def test_the_price_of_a_largest_ratio_is_that_of_the_ratio_which_is_largest(
    rows: tuple[float, float], known: bool
) -> None:
    """And none where two of other sizes are as large as one another."""
    x = cp.Variable(2, nonneg=True)

    def solved(least: float, most: float) -> of.Solution:
        second = (x[1] + x[0]) / (x[0] + 5) if known else (5 - x[0] - x[1]) / (x[1] + 10)
        largest = cp.maximum((x[0] + 1) / (x[1] + 2), second)
        problem = cp.Problem(cp.Minimize(largest), [x[0] + x[1] >= least, x[1] <= most])
        return of.from_cvxpy(problem, ["least", "most"]).solve("equivalent-convex")

    s = solved(*rows)
    assert str(s.grade) == "proved"
    if not known:
        assert not s.multipliers
        return
    for name, moved, sign in (("least", (1e-4, 0.0), 1.0), ("most", (0.0, 1e-4), -1.0)):
        up, down = (solved(*(r + d * k for r, d in zip(rows, moved, strict=True))) for k in (1, -1))
        slope = (up.objective - down.objective) / 2e-4
        assert float(s.multipliers[name]) == pytest.approx(sign * slope, rel=1e-4)
