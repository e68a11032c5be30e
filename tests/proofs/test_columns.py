"""Bounds of columns that rows imply, held against linear programs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs import columns
from optfair.proofs.bounds import implied, in_circles
from optfair.proofs.columns import Rows, linear_rows, mutual_bounds, propagated, rotated_rows
from optfair.proofs.moves import Boxes
from optfair.proofs.residual import Residual


def rows_of(A: Any, high: Any, low: Any = None) -> Rows:
    A, high = sp.csr_array(np.atleast_2d(np.asarray(A, dtype=float))), np.asarray(high, dtype=float)
    low = np.full(high.size, -np.inf) if low is None else np.asarray(low, dtype=float)
    return Rows(A, low, high, high, np.zeros((3, 0), dtype=int), np.zeros((2, 0)))


def extreme(rows: Rows, lower: Any, upper: Any, j: int, sign: float) -> float:
    """Return the largest value of a column, or of its negative; -inf where no point is feasible."""
    cost, A = np.zeros(rows.A.shape[1]), rows.A.toarray()
    cost[j] = -sign
    both = np.vstack([A, -A]), np.append(rows.high, -rows.low)
    known = np.isfinite(both[1])
    ends = [
        (a if np.isfinite(a) else None, b if np.isfinite(b) else None)
        for a, b in zip(lower, upper, strict=True)
    ]
    found = linprog(cost, both[0][known], both[1][known], bounds=ends, method="highs")
    return {0: -(found.fun or 0.0), 2: -np.inf, 3: np.inf, 4: np.nan}[found.status]


@settings(deadline=None, max_examples=150)
@given(
    st.integers(2, 5),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_no_point_is_beyond_mutual_bounds(n: int, m: int, seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (m, n)) * rng.choice([0.25, 1.0], (m, n))
    at = rng.integers(0, n, m)
    A[np.arange(m), at] = rng.choice([-2.0, 2.0], m)
    A = A * unit ** rng.integers(0, 2, n)
    high = rng.integers(-2, 4, m) * 1.0
    low = np.where(rng.random(m) < 0.3, high - rng.integers(0, 3, m), -np.inf)
    lower = np.where(rng.random(n) < 0.5, rng.integers(-2, 1, n) * 1.0, -np.inf)
    upper = np.where(rng.random(n) < 0.2, 2.0, np.inf)
    rows = rows_of(A, high, low)
    ends = mutual_bounds(rows, lower, upper)
    assert (ends[0] >= lower).all() and (ends[1] <= upper).all()
    for j in range(n):
        for sign, end, own in ((1.0, ends[1][j], upper[j]), (-1.0, -ends[0][j], -lower[j])):
            if end != own:
                most = extreme(rows, lower, upper, j, sign)
                assert np.isnan(most) or most <= end + 1e-7 * max(1.0, abs(end)), (most, end)


def test_columns_that_no_row_brings_nearer_are_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = list[int]()

    def counted(*given: Any) -> Any:
        rounds.append(1)
        return limits_of(*given)

    limits_of = columns._limits_of
    monkeypatch.setattr(columns, "_limits_of", counted)
    free, A = np.full(3, np.inf), np.random.default_rng(0).choice([-1.0, 1.0], (40, 3))
    A[0] = [1.0, 0.9, -0.5]
    nothing = mutual_bounds(rows_of(A, np.ones(40)), -free, free)
    assert np.isinf(nothing).all() and len(rounds) == 1
    # one row that brings a column nearer is enough to go on
    A[0] = [1.0, 0.4, -0.5]
    mutual_bounds(rows_of(A, np.ones(40)), -free, free)
    assert len(rounds) > 2


def test_columns_bound_each_other_only_where_each_is_below_itself() -> None:
    free = np.full(2, np.inf)
    for share, known in ((0.5, True), (0.9, True), (1.0, False), (2.0, False)):
        circle = rows_of([[1.0, -share], [-share, 1.0]], [1.0, 1.0])
        upper = mutual_bounds(circle, np.zeros(2), free)[1]
        assert np.isfinite(upper).all() == known
        if known:  # both are at most 1 / (1 - share)
            assert (upper >= 1.0 / (1.0 - share)).all()
        assert not np.isfinite(propagated(circle, np.zeros(2), free, lambda *_: False)[1]).any()
    # a right-hand side below 0 is no help where numbers are large, and is not taken for one
    below = mutual_bounds(rows_of([[1.0, -2.0], [-0.5, 1.0]], [-9.0, 1.0]), np.zeros(2), free)[1]
    assert not np.isfinite(below).any()
    # one that nothing bounds is left out, and those that need it
    A = [[1.0, -0.5, 0.0, 0.0], [-0.5, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -0.5]]
    upper = mutual_bounds(rows_of(A, np.ones(3)), np.zeros(4), np.full(4, np.inf))[1]
    assert np.isfinite(upper).tolist() == [True, True, False, False]
    # the same from below, by the other side of a row
    low = mutual_bounds(rows_of([[1.0, -0.5], [-0.5, 1.0]], free, [-1.0, -1.0]), -free, np.zeros(2))
    assert np.isfinite(low[0]).all() and (low[0] <= -2.0).all()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("p", [1.5, 3, 4.5])
def test_powers_are_bounded_by_each_other(p: float, unit: float) -> None:
    rng = np.random.default_rng(0)
    A, b, x = rng.normal(size=(30, 3)), unit * rng.normal(size=30), cp.Variable(3, name="x")
    fit = of.from_cvxpy(cp.Problem(cp.Minimize(cp.pnorm(A @ x - b, p))))
    s = fit.solve()
    assert s.grade.word == "proved" and not s.attempts
    form = compile_problem(fit, "CLARABEL").form
    owed = Residual(np.full(form.q.size, -1.0), np.full(form.q.size, 1.0))
    bare = Boxes(*form.column_bounds, x=np.zeros(form.q.size), floor=None)
    cut = linear_rows(form).below(form.q[None, :], np.array([1.01 * s.objective]))
    held = in_circles(form, cut, owed, implied(form, cut, owed, bare))
    assert not held.unpaid(owed).any()


def test_few_columns_are_closed_before_they_are_bounded_by_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(4, name="x")
    balls = [cp.norm(rng.normal(size=(5, 4)) @ x - rng.normal(size=5)) <= 9 for _ in range(3)]
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(rng.normal(size=4) @ x), balls))
    monkeypatch.setattr("optfair.proofs.bounds.mutual_bounds", None)
    s = problem.solve("clarabel")
    assert s.grade.word == "proved" and not s.attempts


def test_many_columns_are_bounded_by_each_other_before_multipliers_are_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    A, b, x = rng.normal(size=(60, 3)), rng.normal(size=60), cp.Variable(3, name="x")
    fit = of.from_cvxpy(cp.Problem(cp.Minimize(cp.pnorm(A @ x - b, 3))))
    for move in ("lowered", "peeled_in_turn", "on_face"):
        monkeypatch.setattr(f"optfair.proofs.bounds.{move}", None)
    s = fit.solve("clarabel")
    assert s.grade.word == "proved" and not s.attempts


def test_rows_of_heads_follow_from_their_cones() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    ball = of.from_cvxpy(cp.Problem(cp.Minimize(t), [cp.norm(2 * x) <= t + 1, x >= 1]))
    form = compile_problem(ball, "CLARABEL").form
    few, every = rotated_rows(form), rotated_rows(form, shorter=False)
    assert not few[1].size and every[1].size == 4
    rng = np.random.default_rng(0)
    for _ in range(50):
        point = rng.normal(size=form.q.size)
        left = every[1] - every[0] @ point
        cone = next(c for c in form.cones if c.kind == "soc")
        s = form.slack(point)[cone.start : cone.stop]
        inside = np.append(s[0] - s[1:], s[0] + s[1:])
        np.testing.assert_allclose(np.sort(left), np.sort(inside), rtol=1e-12, atol=1e-12)


# Held against points that satisfy the rows in fractions.

LARGEST = float(np.finfo(float).max)


def above(value: Fraction) -> float:
    """Return a float that is not below a fraction."""
    if abs(value) > Fraction(LARGEST):
        return np.inf if value > 0 else -LARGEST
    near = float(value)
    return near if Fraction(near) >= value else float(np.nextafter(near, np.inf))


def numbers(rng: Any, count: int, digits: float) -> np.ndarray:
    """Return whole numbers, and others of so many digits before the point or after it."""
    wide = rng.normal(size=count) * 10.0 ** np.minimum(rng.uniform(-digits, digits, count), 306.0)
    return np.where(rng.random(count) < 0.3, rng.integers(-3, 4, count), wide)


def bounds_of(rows: Rows, lower: np.ndarray, upper: np.ndarray) -> Any:
    """Yield what rows imply, of what they bound by each other and of what is known."""
    mutual = mutual_bounds(rows, lower, upper)
    yield mutual
    for known in (mutual, (lower, upper)):
        yield propagated(rows, *known, lambda *_: False)


@given(st.integers(0, 1_000_000), st.sampled_from([0, 2, 16, 150, 307, 323]))
def test_no_point_that_satisfies_the_rows_is_cut_off(seed: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = (int(v) for v in rng.integers(1, 7, 2))
    x, entries, columns, high, low = numbers(rng, n, digits), [], [], [], []
    for _ in range(m):
        at = rng.integers(0, n, rng.integers(0, n + 2))  # some twice
        own = numbers(rng, at.size, digits)
        value = sum(
            (Fraction(a) * Fraction(v) for a, v in zip(own, x[at], strict=True)), Fraction()
        )
        spare = abs(Fraction(numbers(rng, 1, digits)[0])) * int(rng.integers(0, 2))
        high.append(above(value + spare) if rng.random() < 0.8 else np.inf)
        low.append(-above(spare - value) if rng.random() < 0.5 else -np.inf)
        columns.append(at)
        entries.append(own)
    starts = np.cumsum([0, *(at.size for at in columns)])
    A = sp.csr_array((np.concatenate(entries), np.concatenate(columns), starts), shape=(m, n))
    sides = np.array(low), np.array(high)
    rows = Rows(A, *sides, np.zeros(m), np.zeros((3, 0), dtype=int), np.zeros((2, 0)))
    lower, upper = (np.where(rng.random(n) < 0.4, x, s * np.inf) for s in (-1.0, 1.0))
    for least, most in bounds_of(rows, lower, upper):
        assert (least <= x).all() and (x <= most).all()


@pytest.mark.parametrize("row", [[1e-8, -1.0], [1e-310, -1.0], [1.0, 1e308]])
def test_bounds_beyond_the_range_of_floats_are_none(row: list[float]) -> None:
    # twice a bound, a quotient, or a side with what is taken off it
    A, high = sp.csr_array([row]), np.array([1e300 if row[1] < 0.0 else 1.7e308])
    rows = Rows(A, -np.inf * high, high, high, np.zeros((3, 0), dtype=int), np.zeros((2, 0)))
    for _, upper in bounds_of(rows, np.array([-np.inf, -1.0]), np.array([np.inf, 1.0])):
        assert np.isposinf(upper[0])


def test_rows_of_one_entry_bound_their_column_before_others_are_looked_at() -> None:
    # x <= 3, -2 y <= -1, z - x + y <= 0: nothing is known before
    A, free = [[1.0, 0.0, 0.0], [0.0, -2.0, 0.0], [-1.0, 1.0, 1.0]], np.full(3, np.inf)
    lower, upper = propagated(rows_of(A, [3.0, -1.0, 0.0]), -free, free, lambda *_: False)
    assert lower == pytest.approx([-np.inf, 0.5, -np.inf])
    assert upper == pytest.approx([3.0, np.inf, 2.5])
    assert upper[2] >= 2.5 and lower[1] <= 0.5
    # with z >= 1/2 it is x >= y + z >= 1
    stated = rows_of(A, [3.0, -1.0, 0.0])
    lower, _ = propagated(stated, np.array([-np.inf, -np.inf, 0.5]), free, lambda *_: False)
    assert lower[0] == pytest.approx(1.0) and lower[0] <= 1.0
