"""Ranges of right-hand sides and costs: every end is checked by solving on both sides of it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import optfair as of

STEP = 1e-3


class Program:
    """max or min c x with A x <= b, x >= 0, as declared and as solved by somebody else."""

    def __init__(self, c: Any, A: Any, b: Any, sense: str = "min") -> None:
        self.c, self.A, self.b, self.sign = c, A, b, 1.0 if sense == "min" else -1.0
        x = cp.Variable(c.size, name="x")
        goal = cp.Minimize(c @ x) if sense == "min" else cp.Maximize(c @ x)
        self.problem = of.from_cvxpy(cp.Problem(goal, [A @ x <= b, x >= 0]), ["rows", "sign"])

    def value(self, kind: str, name: str, entry: int, number: float) -> float:
        """Return the optimum with one number replaced; infinite without one."""
        c, b, low = self.c.copy(), self.b.copy(), np.zeros(self.c.size)
        {"cost": c, "rows": b, "sign": low}["cost" if kind == "cost" else name][entry] = number
        bounds = [(v, None) for v in low]
        found = linprog(self.sign * c, A_ub=self.A, b_ub=b, bounds=bounds, method="highs")
        return self.sign * found.fun if found.status == 0 else np.inf


def regular(seed: int) -> Program:
    r = np.random.default_rng(seed)
    m, n = int(r.integers(3, 7)), int(r.integers(2, 6))
    A = r.random((m, n)) + 0.1
    return Program(r.random(n) + 0.5, A, A @ (r.random(n) + 0.5) + r.random(m), "max")


def tied(seed: int) -> Program:
    """Return a program with more active rows at its optimum than columns, in whole numbers."""
    r = np.random.default_rng(100 + seed)
    n = 3
    A = r.integers(1, 5, (6, n)).astype(float)
    b = A @ np.ones(n)
    return Program(A[:3].sum(axis=0) if seed % 2 else A[0].copy(), A, b, "max")


def check_ends(program: Program, one: Any) -> None:
    entry = one.entry[0]
    base = program.value(one.kind, one.name, entry, one.value)
    for end, slope, side in ((one.lower, one.below, -1.0), (one.upper, one.above, 1.0)):
        far = end if np.isfinite(end) else one.value + side * 10.0
        if not np.isfinite(slope):
            assert end == one.value
            beyond = program.value(one.kind, one.name, entry, one.value + side * STEP)
            assert not np.isfinite(beyond)
            continue
        assert side * (far - one.value) >= -1e-9
        inside = one.value + 0.999 * (far - one.value)
        expected = base + slope * (inside - one.value)
        assert program.value(one.kind, one.name, entry, inside) == pytest.approx(expected, abs=1e-7)
        if np.isfinite(end):
            outside = end + side * STEP
            expected = base + slope * (outside - one.value)
            beyond = program.value(one.kind, one.name, entry, outside)
            assert not np.isfinite(beyond) or abs(beyond - expected) > 1e-8


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(k, marks=pytest.mark.slow) for k in range(10, 30))]
)
def test_every_end_of_a_linear_program(seed: int) -> None:
    program = regular(seed)
    found = of.sensitivity(program.problem.solve())
    assert not found.degenerate
    assert len(found.rows) == program.b.size + 2 * program.c.size
    for one in found.rows:
        check_ends(program, one)
    prices = program.problem.solve().shadow_price
    for one in found["rows"]:
        assert one.above == one.below == pytest.approx(prices["rows"][one.entry], abs=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(10))
def test_degenerate_programs_are_two_sided(seed: int) -> None:
    program = tied(seed)
    found = of.sensitivity(program.problem.solve())
    assert found.degenerate
    assert any(one.degenerate for one in found.rows)
    for one in found.rows:
        check_ends(program, one)


def test_the_orientation_is_that_of_shadow_prices() -> None:
    x = cp.Variable(2, name="x")
    goal, rows = cp.Minimize(2 * x[0] + 3 * x[1]), [cp.sum(x) >= 4, x[0] - x[1] == 1, x[1] >= 0.2]
    p = of.from_cvxpy(cp.Problem(goal, rows), ["need", "apart", "least"])
    s = p.solve()
    found = of.sensitivity(s)
    for name in ("need", "apart", "least"):
        (one,) = found[name]
        assert one.above == pytest.approx(float(s.shadow_price[name]), abs=1e-7)
        assert one.value == {"need": 4.0, "apart": 1.0, "least": 0.2}[name]
    t = cp.Parameter(name="t", value=4.0)
    q = of.from_cvxpy(cp.Problem(goal, [cp.sum(x) >= t, *rows[1:]]), ["need", "apart", "least"])
    (need,) = found["need"]
    assert np.isfinite(need.lower) and need.upper == np.inf
    for end, outside in ((need.lower, -0.1), (5.0, None)):
        line = s.objective + need.above * (end - 4.0)
        assert q.at(t=end).solve().objective == pytest.approx(line)
        if outside is not None:
            beyond = q.at(t=end + outside).solve().objective
            assert abs(beyond - line - need.above * outside) > 1e-3


def test_quadratic_programs_along_their_active_rows() -> None:
    r = np.random.default_rng(0)
    x, t = cp.Variable(4, name="x"), cp.Parameter(name="t", value=2.0)
    F = r.standard_normal((6, 4))
    rows = [cp.sum(x) <= t, x >= 0]
    goal = cp.sum_squares(F @ x) - 3 * cp.sum(x)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows), ["budget", "sign"])
    s = p.solve(tolerance=1e-9)
    (one,) = of.sensitivity(s)["budget"]
    assert one.below == one.above == pytest.approx(float(s.shadow_price["budget"]), abs=1e-6)
    for end in (one.lower, one.upper):
        if not np.isfinite(end):
            continue

        def price(value: float) -> float:
            return float(p.at(t=value).solve(tolerance=1e-9).shadow_price["budget"])

        inside = end + 0.02 * (2.0 - end)
        rate = (price(inside) - one.below) / (inside - 2.0)
        beyond = end - 0.2 * (2.0 - end)
        off = price(beyond) - one.below - rate * (beyond - 2.0)
        middle = 0.5 * (end + 2.0)
        assert price(middle) == pytest.approx(one.below + rate * (middle - 2.0), abs=1e-6)
        assert abs(off) > 1e-6


def test_what_has_no_ranges_is_refused() -> None:
    x = cp.Variable(2, name="x")
    cone = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]))
    with pytest.raises(of.ClassError, match="linear and quadratic"):
        of.sensitivity(cone.solve())
    whole = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.5])).with_integrality("x")
    with pytest.raises(of.ClassError, match="linear and quadratic"):
        of.sensitivity(whole.solve())
    weak = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 0]))
    with pytest.raises(of.UnsupportedProblem, match="not strict"):
        of.sensitivity(weak.solve())


def test_the_frame_and_the_print() -> None:
    program = regular(1)
    found = of.sensitivity(program.problem.solve())
    frame = found.frame()
    assert len(frame) == len(found.rows) and set(frame["kind"]) == {"right-hand side", "cost"}
    assert "right-hand side rows[0]" in repr(found)


@pytest.mark.parametrize("quadratic", [False, True])
def test_ranges_are_those_of_the_same_program_in_other_units(quadratic: bool) -> None:
    """Rows, columns and costs are multiplied: what ends a range is as clear as before."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        A = rng.integers(-3, 6, (3, 3)).astype(float)
        A[0] = np.abs(A[0]) + 1.0
        b, c = rng.integers(1, 9, 3).astype(float), -rng.integers(1, 6, 3).astype(float)
        R, C, w = 10.0 ** rng.integers(-5, 6, 3), 10.0 ** rng.integers(-4, 5, 3), 1e-7
        made = []
        for rows, columns, cost in ((np.ones(3), np.ones(3), 1.0), (R, C, w)):
            x = cp.Variable(3, name="x")
            squares = cp.sum_squares(cp.multiply(columns, x)) if quadratic else 0.0
            goal = cp.Minimize(cost * (c * columns) @ x + cost * squares)
            sides = [(rows[:, None] * A * columns) @ x <= b * rows, x >= 0]
            p = of.from_cvxpy(cp.Problem(goal, sides), ["rows", "sign"])
            made.append(of.sensitivity(p.solve(tolerance=1e-9)))
        units = {"rows": R, "sign": 1.0 / C, "x": w * C}
        for one, other in zip(made[0].rows, made[1].rows, strict=True):
            unit = units[one.name][one.entry]
            ends = np.array([other.value, other.lower, other.upper]) / unit
            assert ends == pytest.approx([one.value, one.lower, one.upper], rel=1e-5, abs=1e-6)
            slopes = np.array([other.below, other.above]) * unit / w
            assert slopes == pytest.approx([one.below, one.above], rel=1e-5, abs=1e-6)


def test_a_basis_is_found_among_ties_of_no_cost() -> None:
    x = cp.Variable(3, name="x", nonneg=True)
    rows = [-x[0] + 2 * x[1] >= 4, -2 * x[0] + x[1] - x[2] <= -4, 2 * x[1] - x[2] >= 3]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(0 * cp.sum(x) - 3), rows), ["a", "b", "c"])
    found = of.sensitivity(p.solve())
    assert {(r.below, r.above) for name in "abc" for r in found[name]} == {(0.0, 0.0)}


def test_a_cost_that_may_move_to_no_side_has_two_infinite_prices() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [x[0] >= 0]))
    free = of.sensitivity(p.solve())["x"][1]
    assert (free.below, free.above) == (np.inf, -np.inf) and free.degenerate


def test_active_rows_that_depend_on_each_other_have_no_one_price_in_any_units() -> None:
    x = cp.Variable(2, name="x")
    P, q = np.array([[4e12, 1e12], [1e12, 3e12]]), np.array([4e9, -2e9])
    rows = [3 * x[1] <= 0, -x[0] <= 0, -x[1] <= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(x, P) / 2 + q @ x), rows))
    with pytest.raises(of.UnsupportedProblem, match=r"not strict|do not determine"):
        of.sensitivity(p.solve(tolerance=1e-9))


def test_ranges_are_found_by_entry_and_no_other_name_is_taken() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= [1, 2]]), ["need"])
    r = of.sensitivity(p.with_labels(need=["rye", "oats"]).solve())
    (oats,) = r["need[oats]"]
    assert oats.entry == (1,) and len(r["need"]) == 2 and f" {oats.called}: " in repr(r)
    with pytest.raises(of.DeclarationError, match="no range of 'ned'") as e:
        r["ned"]
    assert "'need'" in e.value.remedy
    with pytest.raises(of.DeclarationError, match="right-hand sides") as e:
        of.sweep(p.with_labels(need=["rye", "oats"]), "need", [1.0])
    assert "'need[rye]'" in e.value.remedy
