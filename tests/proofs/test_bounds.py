"""Bounds, Farkas vectors and rays hold for every feasible point, in exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.core.certificate import PROVED, reported, within
from optfair.proofs import bounds, columns, equations, moves
from optfair.proofs.bounds import lower_bound
from optfair.proofs.columns import (
    declared_bounds,
    linear_rows,
    propagated,
    rotated_rows,
    with_cut,
)
from optfair.proofs.cones import Cone, beside_diagonals
from optfair.proofs.contradictions import infeasibility
from optfair.proofs.definiteness import Definiteness
from optfair.proofs.moves import sides_of
from optfair.proofs.points import feasible_near, recession_faults
from optfair.proofs.residual import residual_of, sharper
from optfair.proofs.rounding import unscaled
from optfair.proofs.unpaid import Unpaid
from optfair.solution.conic_form import ConicForm


def form_of(
    A: Any, b: Any, cones: tuple[Cone, ...], q: Any, P: Any = None, offset: float = 0.0
) -> ConicForm:
    A, b, q = (np.asarray(v, dtype=float) for v in (A, b, q))
    P = sp.csc_array((q.size, q.size)) if P is None else sp.csc_array(np.asarray(P, dtype=float))
    return ConicForm(P, q, offset, sp.csc_array(A), b, cones)


def sized(rng: Any, *shape: int) -> np.ndarray:
    """Return whole numbers times powers of two: their products and sums are exact."""
    return rng.integers(-3, 4, size=shape) * 2.0 ** rng.integers(-12, 13, size=shape)


def objective(form: ConicForm, y: np.ndarray) -> Fraction:
    F = [Fraction(float(v)) for v in y]
    P = form.P.toarray()
    value = Fraction(form.offset)
    for i, v in enumerate(F):
        value += Fraction(float(form.q[i])) * v
        for j, w in enumerate(F):
            value += Fraction(float(P[i, j])) * v * w / 2
    return value


def random_form(rng: Any, quadratic: bool) -> tuple[ConicForm, np.ndarray]:
    """Return a program and a point that satisfies it exactly."""
    n, equal, unequal = (int(v) for v in rng.integers(1, 5, 3))
    y = rng.integers(-4, 5, n) * 2.0 ** rng.integers(-6, 12)
    A = sized(rng, equal + unequal, n)
    slack = np.concatenate([np.zeros(equal), np.abs(sized(rng, unequal))])
    if rng.random() < 0.5:  # signs of the columns
        A = np.vstack([A, -np.diag(np.sign(y) + (y == 0))])
        slack = np.concatenate([slack, np.abs(y)])
    b = A @ y + slack
    exact = [
        sum(
            (Fraction(float(a)) * Fraction(float(v)) for a, v in zip(row, y, strict=True)),
            Fraction(0),
        )
        for row in A
    ]
    good = [
        i for i in range(len(b)) if Fraction(float(b[i])) == exact[i] + Fraction(float(slack[i]))
    ]
    A, b = A[good], b[good]
    zeros = sum(i < equal for i in good)
    cones = (Cone("zero", 0, zeros), Cone("nonneg", zeros, len(b)))
    B = sized(rng, n, int(rng.integers(1, n + 1))) if quadratic else np.zeros((n, 1))
    return form_of(A, b, cones, sized(rng, n), B @ B.T, float(rng.normal())), y


@example(456, False, False)  # a move that was made is paid for, whatever is tried after it
@example(1874, False, False)
@given(st.integers(0, 100_000), st.booleans(), st.booleans())
def test_a_bound_is_below_every_feasible_value(seed: int, quadratic: bool, cut: bool) -> None:
    rng = np.random.default_rng(seed)
    form, y = random_form(rng, quadratic)
    z = sized(rng, form.b.size) * rng.choice([1.0, 1.0 + 1e-9, 1e-3])
    x = y + rng.normal(size=y.size) * rng.choice([0.0, 1e-8, 1.0])
    if rng.random() < 0.5:  # multipliers that nearly cancel, as a solver leaves them
        z = np.linalg.lstsq(form.A.toarray().T, -(form.q + form.P @ x), rcond=None)[0]
    value = objective(form, y)
    upper = float(value) + abs(float(value)) * 1e-12 + 1e-12 if cut else np.inf
    found = lower_bound(form, x, z, upper)
    if found.unpaid is None:
        if np.isfinite(found.value):
            assert Fraction(found.value) <= value
            enough = found.value - abs(found.value) * rng.choice([0.0, 1e-9, 1.0])
            less = lower_bound(form, x, z, upper, enough)
            assert less.unpaid is None and enough <= less.value and Fraction(less.value) <= value
        return
    u = found.unpaid
    reach = Fraction(float(np.abs(y[u.columns]).max()))
    loss = Fraction(u.slope) * reach
    loss += Fraction(u.curve) * u.columns.size * (reach + Fraction(u.size)) ** 2 / 2
    if np.isfinite(found.value):
        assert Fraction(found.value) - loss <= value


@given(st.integers(0, 100_000))
def test_a_program_with_a_point_is_never_infeasible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form, y = random_form(rng, False)
    z = sized(rng, form.b.size)
    found = infeasibility(form, z)
    assert not found.proved
    if found.columns is not None:
        assert np.abs(y[found.columns]).max() > found.radius


@given(st.integers(0, 100_000))
def test_where_a_curved_objective_is_at_most_its_value_a_point_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form, y = random_form(rng, True)
    bent = np.diag(2.0 ** rng.integers(-9, 10, y.size) * (rng.random(y.size) < 0.7))
    form = replace(form, P=sp.csc_array(bent))
    near = objective(form, y)
    upper = np.nextafter(float(near), np.inf)
    rows = with_cut(form, linear_rows(form), upper)
    for row, high in zip(rows.A[form.b.size :].toarray(), rows.high[form.b.size :], strict=True):
        assert (
            sum(Fraction(float(a)) * Fraction(float(v)) for a, v in zip(row, y, strict=True))
            <= high
        )
    lower, over = declared_bounds(rows)
    lower, over = np.maximum(lower, y - rng.random()), np.minimum(over, y + rng.random())
    boxes = bounds._held(form, bounds.Boxes(lower, over), upper)
    assert (boxes.lower <= y).all() and (y <= boxes.upper).all()


def test_what_a_cost_leaves_beside_large_ones_is_not_rounded_away() -> None:
    # min v + w² / 2, v >= 1e8: at 1e8 + 5e-7 is w = 1e-3, far below the digits of v
    form = form_of([[-1.0, 0.0]], [-1e8], (Cone("nonneg", 0, 1),), [1.0, 0.0], np.diag([0.0, 1.0]))
    upper = np.nextafter(float(objective(form, np.array([1e8, 1e-3]))), np.inf)
    boxes = bounds._held(form, bounds.Boxes(*form.column_bounds), upper)
    assert boxes.lower[1] <= -1e-3 and 1e-3 <= boxes.upper[1] < 3e-3


def test_of_moves_that_leave_something_the_one_that_leaves_less_is_taken() -> None:
    # min v, v = w for a free column v, and w between -1 and 1
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 3))
    form = form_of([[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 1.0, 1.0], cones, [1.0, 0.0])
    x, boxes = np.ones(2), bounds.Boxes(*form.column_bounds, x=np.ones(2))
    near, nearer, far = (np.array([z, 0.0, 0.0]) for z in (-0.9, -0.95, -0.5))
    own = {z[0]: bounds.residual_of(form, x, z, form.q) for z in (near, nearer, far)}
    made = moves._Moves(form, own[-0.9], x, near, boxes)
    assert not made.offer(far, own[-0.5], 0.0) and made.best[0] is near
    assert made.offer(nearer, own[-0.95], 0.0) and made.best[0] is nearer
    assert made.left == pytest.approx(0.05) and not made.settled


def test_rows_take_what_is_left_over_for_next_to_nothing_only() -> None:
    # min v, v = w + b and w = 0: 0.1 v is left over, and costs b / 10 to take
    x, z = np.array([5.0, 0.0]), np.array([-0.9, -0.9])
    for b, dear in ((5.0, True), (0.0, False)):
        form = form_of([[1.0, -1.0], [0.0, 1.0]], [b, 0.0], (Cone("zero", 0, 2),), [1.0, 0.0])
        boxes = bounds.Boxes(*form.column_bounds, x=x)
        residual = bounds.residual_of(form, x, z, form.q)
        moved = moves.lightly_peeled(form, residual, x, z, boxes)
        assert (moved is None) == dear
        assert moved is None or moved[0].size[0] == 0.0


@pytest.mark.parametrize("left", [1e-9, 1e-13])
def test_a_move_replaces_bounds_that_are_dear(left: float) -> None:
    # min v, w = v >= 0: what is left of w costs nothing to move, and much at |w| <= 1e12
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 2))
    form = form_of([[-1.0, 1.0], [-1.0, 0.0]], [0.0, 0.0], cones, [1.0, 0.0])
    x, z = np.zeros(2), np.array([left, 0.5])
    bare = bounds.Boxes(*form.column_bounds, x=x)
    wide = bare.tighter(np.array([0.0, -1e12]), np.array([1e12, 1e12]))
    residual = bounds.residual_of(form, x, z, form.q)
    total = bounds.total_of(form, x, z, residual, 0.0, wide)
    assert total < -0.09
    found = moves.cheaper(form, residual, x, z, total, wide, bare)
    assert found is not None and bounds.total_of(form, x, *found, wide) > -1e-9
    near = bare.tighter(np.array([0.0, -1e3]), np.array([1e3, 1e3]))
    total = bounds.total_of(form, x, z, residual, 0.0, near)
    cheap = moves.cheaper(form, residual, x, z, total, near, bare)
    assert (cheap is None) == (left < 1e-12)


def test_no_move_is_for_what_proves_far_from_enough_anyway() -> None:
    # min v, w = v >= 0, at w = 1: the residual of w costs 1e-3 there, and 1e-9 or so is allowed
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 2))
    form = form_of([[-1.0, 1.0], [-1.0, 0.0]], [0.0, 0.0], cones, [1.0, 0.0])
    x, z = np.ones(2), np.array([1e-3, 0.5])
    bare = bounds.Boxes(*form.column_bounds, x=x)
    wide = bare.tighter(np.array([0.0, -1e12]), np.array([1e12, 1e12]))
    residual = bounds.residual_of(form, x, z, form.q)
    total = bounds.total_of(form, x, z, residual, 0.0, wide)
    limits = (1.0 - 9e-7, False), (1.0 - 2e-6, True), (1.1, True), (np.inf, True), (-np.inf, True)
    for enough, tried in limits:
        near = moves.cheaper(form, residual, x, z, total, wide, bare, enough)
        assert (near is not None) == tried
        made = moves._Moves(form, residual, x, z, bare, enough)
        assert (made.enough == -np.inf) == (not tried or enough == -np.inf)


def test_bounded_columns_pay_for_a_slight_shift_before_a_form_is_looked_at_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # min |u v'x - 1|^2 / 2 between bounds: singular, and 1 at the least
    v = np.array([1.0, 3.0, 0.7])
    P, cones = np.outer(v, v), (Cone("nonneg", 0, 6),)
    form = form_of(np.vstack([-np.eye(3), np.eye(3)]), np.ones(6), cones, -v, P=P, offset=0.5)
    x, z = np.full(3, 1.0 / v.sum()), np.zeros(6)
    seen = []
    monkeypatch.setattr(
        bounds, "definiteness", lambda P: seen.append(True) or Definiteness(1e-9, size=9.0)
    )
    bound = lower_bound(form, x, z, enough=-1e-8)
    assert -1e-8 <= bound.value < -1e-9 and bound.unpaid is None and "curvature" not in vars(form)
    assert lower_bound(form, x, z, enough=-1e-12).value > -1e-12  # with what is exact
    half = replace(form, A=form.A[:5], b=form.b[:5], cones=(Cone("nonneg", 0, 5),))
    assert lower_bound(half, x, z[:5], enough=-1e-8).value > -1e-12  # not all are bounded
    assert lower_bound(replace(form), x, z).value > -1e-12  # as much as can be is asked for
    assert len(seen) == 2


@pytest.mark.parametrize(("n", "times"), [(moves.FEW, 2), (moves.FEW + 1, 1)])
def test_many_columns_are_closed_only_for_bounds_that_are_dear(
    n: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # min sum v, w = v >= 0: at first the column whose bounds are dear, then all that have none
    one = np.eye(n)
    A = np.block([[-one, one], [-one, np.zeros((n, n))]])
    cones = (Cone("zero", 0, n), Cone("nonneg", n, 2 * n))
    form = form_of(A, np.zeros(2 * n), cones, np.append(np.ones(n), np.zeros(n)))
    x, z = np.zeros(2 * n), np.append(np.full(n, 1e-9), np.full(n, 0.5))
    bare = bounds.Boxes(*form.column_bounds, x=x)
    far = np.append(1e12, np.ones(n - 1))
    wide = bare.tighter(np.append(np.zeros(n), -far), np.append(far, far))
    residual = bounds.residual_of(form, x, z, form.q)
    total = bounds.total_of(form, x, z, residual, 0.0, wide)
    asked: list[int] = []

    def closed(form: Any, left: Any, x: Any, z: Any, within: Any, enough: float) -> Any:
        asked.append(np.count_nonzero(within.unpaid(left)))
        return z, left, 0.0

    monkeypatch.setattr(moves, "closed", closed)
    moves.cheaper(form, residual, x, z, total, wide, bare)
    assert asked == [1, n][:times]


def test_a_bound_that_is_enough_is_not_improved_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    # min v + 1e-9 w, 0 <= v <= 1, v + 1e-6 w >= -1: w is as low as -2e6 as far as rows say
    form = form_of(
        [[-1.0, 0.0], [1.0, 0.0], [-1.0, -1e-6]],
        [0.0, 1.0, 1.0],
        (Cone("nonneg", 0, 3),),
        [1, 1e-9],
    )
    x, z = np.array([0.0, -1e6]), np.array([1.0, 0.0, 0.0])
    asked: list[float] = []
    monkeypatch.setattr(bounds, "cheaper", lambda *a: asked.append(a[4]))
    assert -0.01 < lower_bound(form, x, z, enough=-0.01).value <= -1e-3 and not asked
    lower_bound(form, x, z, enough=-1e-9)
    assert len(asked) == 1


def test_a_curved_objective_bounds_what_rows_link_to_it() -> None:
    # min (u² + v)/1e6: u = w, v >= 0, w free; in units of which the least is 1e-6 and the largest 1e6
    A = [[1.0, 0.0, -1e-6], [0.0, -1.0, 0.0], [0.0, 0.0, -1e-6]]
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 3))
    form = form_of(A, [0.0, 0.0, -1.0], cones, [0.0, 1e-6, 0.0], np.diag([2e-6, 0.0, 0.0]))
    x, z = np.array([1.0, 0.0, 1e6]), np.array([-2e-6, 1e-6, 2e-6]) * (1.0 + 1e-12) + 1e-17
    without = lower_bound(form, x, z)
    found = lower_bound(form, x, z, 1e-6)
    assert found.unpaid is None and 1e-6 * (1.0 - 1e-9) < found.value <= 1e-6
    assert without.unpaid is not None or without.value <= found.value * (1.0 + 1e-9)
    # the objective as it is, without the square that curved columns are worth by themselves
    tilted = replace(form, q=np.array([-4e-6, 1e-6, 0.0]))
    boxes = bounds._held(tilted, bounds.Boxes(*tilted.column_bounds), -3e-6)
    assert boxes.upper[0] == pytest.approx(3.0) and boxes.lower[0] == pytest.approx(1.0)
    assert np.isinf(bounds._held(tilted, bounds.Boxes(*tilted.column_bounds), np.inf).upper[0])


@given(st.integers(0, 100_000))
def test_bounds_that_rows_imply_hold(seed: int) -> None:
    form, y = random_form(np.random.default_rng(seed), False)
    rows = linear_rows(form)
    lower, upper = declared_bounds(rows)
    assert (lower <= y).all() and (y <= upper).all()
    lower, upper = propagated(rows, lower, upper, lambda low, high: False)
    assert (lower <= y).all() and (y <= upper).all()


def test_bounds_of_rows_that_exclude_each_other_do_not_cross() -> None:
    # 0 <= x <= 1, y >= 0 and x + y <= -1: no point, and nothing that is not a box
    A = [[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]
    rows = linear_rows(form_of(A, [1.0, 0.0, 0.0, -1.0], (Cone("nonneg", 0, 4),), [1.0, 1.0]))
    lower, upper = propagated(rows, *declared_bounds(rows), lambda low, high: False)
    assert (lower <= upper).all() and lower.tolist() == [0.0, 0.0] and upper[0] == 1.0


def test_passes_that_only_move_bounds_are_few() -> None:
    # x <= 0.9 y, y <= 0.9 x, 0 <= x, y <= 1: every pass moves both bounds, and gives none
    A = [[1.0, -0.9], [-0.9, 1.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    form = form_of(A, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0], (Cone("nonneg", 0, 6),), [1.0, 1.0])
    passes: list[float] = []

    def wanted(lower: np.ndarray, upper: np.ndarray) -> bool:
        passes.append(float(upper.max()))
        return False

    rows = linear_rows(form)
    _, upper = propagated(rows, *declared_bounds(rows), wanted)
    assert len(passes) == columns.IDLE
    assert 0.0 <= upper.max() < 0.9 ** (columns.IDLE - 1)


def test_a_move_as_dear_as_what_is_lacking_anyway_ends_the_search() -> None:
    # min x, x >= 0: the multiplier 0.9 leaves 0.1 x, which the bound pays; the point is 1e-6
    form = form_of([[-1.0]], [0.0], (Cone("nonneg", 0, 1),), [1.0], offset=1e3)
    x, z = np.array([1e-6]), np.array([0.9])
    residual = bounds.residual_of(form, x, z, form.q)
    made = moves._Moves(form, residual, x, z, bounds.Boxes(*form.column_bounds, x=x))
    assert made.enough == pytest.approx(1e3 - moves.SHORT * 1e-6, abs=1e-9)
    for far in (1.0, 1e-30):  # not more than a tilt may cost, and not less than it was
        x = np.array([far])
        made = moves._Moves(form, residual, x, z, bounds.Boxes(*form.column_bounds, x=x))
        share = 1.0 if far == 1.0 else 1e-2
        assert made.enough == pytest.approx(1e3 - share * moves.SLIGHT * (1e3 + far), abs=1e-9)


@pytest.mark.parametrize("turned", [False, True])
def test_bounds_travel_along_a_chain_of_rows(turned: bool) -> None:
    # x_0 <= 1, x_k <= 2 x_(k-1), x >= 0: each pass has one more bound to go on from
    n = 25
    links = (np.eye(n) - 2.0 * np.eye(n, k=-1))[:: -1 if turned else 1]
    b = np.where((links == 0.0).sum(axis=1) == n - 1, 1.0, 0.0)
    form = form_of(
        np.vstack([links, -np.eye(n)]), np.append(b, np.zeros(n)), (Cone("nonneg", 0, 2 * n),), b
    )
    rows = linear_rows(form)
    lower, upper = propagated(rows, *declared_bounds(rows), lambda low, high: False)
    truth = 2.0 ** np.arange(n)
    assert (lower == 0.0).all() and (truth <= upper).all() and (upper <= truth * (1 + 1e-12)).all()


def test_a_convex_objective_limits_its_linear_part(monkeypatch: pytest.MonkeyPatch) -> None:
    # min u^2 / 2 + v + w, v + w >= 1, all nonnegative: what v has left is paid by v + w <= 1
    rows, sides = np.vstack([[[0.0, -1.0, -1.0]], -np.eye(3)]), [-1.0, 0.0, 0.0, 0.0]
    x, z = np.array([0.0, 1.0, 0.0]), np.array([1.0 + 1e-13, 0.0, 0.0, 0.0])
    for name in ("lightly_peeled", "lowered", "closed"):
        monkeypatch.setattr(bounds, name, None)
    form = form_of(rows, sides, (Cone("nonneg", 0, 4),), [0.0, 1.0, 1.0], np.diag([1.0, 0.0, 0.0]))
    found = lower_bound(form, x, z, 1.0)
    assert found.unpaid is None and 1.0 - 1e-12 <= found.value <= 1.0
    monkeypatch.undo()
    # one that falls far out, by however little, is not limited so
    falling = replace(form, P=sp.csc_array(np.diag([1.0, -1e-14, 0.0])))
    found = lower_bound(falling, x, z, 1.0)
    assert found.unpaid is not None or found.value == -np.inf


def test_definitions_take_what_columns_without_bounds_have_left_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # min y'y / 2 - g'y subject to y = x - c: x has neither a bound nor a curvature
    c, g = np.array([0.1, 0.7, -0.3]), np.array([1.0, 2.0, 3.0])
    A = np.hstack([np.eye(3), -np.eye(3)])
    P = np.diag([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    form = form_of(A, c, (Cone("zero", 0, 3),), np.concatenate([np.zeros(3), -g]), P)
    x, z = np.concatenate([g + c, g]), np.array([3e-13, -1e-13, 2e-13])
    monkeypatch.setattr(bounds, "propagated", None)  # nothing has to be implied
    found = lower_bound(form, x, z)
    assert found.unpaid is None
    assert -7.0 - 1e-11 < found.value <= -7.0


def test_entries_behind_a_head_are_bounded() -> None:
    # |x| <= t <= 2, and a matrix with diagonal entries at most 3
    ball = form_of(-np.eye(3), np.zeros(3), (Cone("soc", 0, 3),), [0, 0, 0])
    rows = linear_rows(ball).below(np.array([[1.0, 0.0, 0.0]]), np.array([2.0]))
    lower, upper = propagated(rows, *declared_bounds(rows), lambda low, high: False)
    assert np.allclose(upper, 2.0) and (upper >= 2.0).all() and (lower[1:] <= -2.0).all()
    for top in (True, False):
        matrix = form_of(
            -np.eye(3), np.zeros(3), (Cone("psd", 0, 3, order=2, upper=top),), [0, 0, 0]
        )
        rows = linear_rows(matrix).below(np.array([[1.0, 0.0, 1.0]]), np.array([6.0]))
        lower, upper = propagated(rows, *declared_bounds(rows), lambda low, high: False)
        # off the diagonal an entry is scaled by the root of two: root(2) * root(6 * 6)
        assert 6 * np.sqrt(2) <= upper[1] <= 6 * np.sqrt(2) * (1 + 1e-9)
        assert upper[0] >= 6.0 and lower[0] <= 0.0


@pytest.mark.parametrize("weight", [0.5, 0.3, 0.99])
def test_the_last_of_a_power_cone_is_bounded(weight: float) -> None:
    # |w| <= u^a v^(1-a), u <= 2, v <= 5
    power = form_of(-np.eye(3), np.zeros(3), (Cone("pow", 0, 3, power=weight),), [0, 0, 0])
    more = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    rows = linear_rows(power).below(more, np.array([2.0, 5.0]))
    lower, upper = propagated(rows, *declared_bounds(rows), lambda low, high: False)
    most = 2.0**weight * 5.0 ** (1.0 - weight)
    assert most <= upper[2] <= most * (1.0 + 1e-9)
    assert -most * (1.0 + 1e-9) <= lower[2] <= -most


def test_signs_in_rotated_cones_are_bounds() -> None:
    # u + v >= |(u - v, 2 w)|, with a u that rounds and one that does not
    for a in (1e-6, 0.1):
        A = -np.array([[a, a, 0.0], [a, -a, 0.0], [0.0, 0.0, 2.0]])
        form = form_of(A, np.zeros(3), (Cone("soc", 0, 3),), [0, 0, 0])
        more, sides = rotated_rows(form)
        assert more.toarray().tolist() == [[-2 * a, 0.0, 0.0], [0.0, -2 * a, 0.0]]
        rows = linear_rows(form).below(more, sides)
        lower, _ = propagated(rows, *declared_bounds(rows), lambda low, high: False)
        assert -1e-290 <= lower[0] <= 0.0 and -1e-290 <= lower[1] <= 0.0
    # where a sum would round, there is none
    rounded = -np.array([[0.1, 1.0, 1e17], [0.3, -1.0, 1.0], [0.0, 0.0, 2.0]])
    more, _ = rotated_rows(form_of(rounded, np.zeros(3), (Cone("soc", 0, 3),), [0, 0, 0]))
    assert more.shape[0] == 0


@given(st.integers(0, 100_000))
def test_rotated_rows_follow_from_their_cones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.integers(-3, 4, (6, 4)) * 10.0 ** rng.integers(-2, 3, (6, 4))
    A[1] = A[0] * rng.choice([1.0, -1.0, 0.5], 4)
    y, cones = rng.integers(-4, 5, 4).astype(float), (Cone("soc", 0, 3), Cone("soc", 3, 6))
    own = A @ y
    slack = rng.normal(size=6)
    slack[[0, 3]] = np.linalg.norm(slack.reshape(2, 3)[:, 1:], axis=1) + 1e-9
    form = form_of(A, own + slack, cones, np.zeros(4))
    more, sides = rotated_rows(form)
    assert (more @ y <= sides + 1e-9 * (1.0 + np.abs(more) @ np.abs(y))).all()


@settings(max_examples=40)
@given(st.integers(0, 100_000))
def test_the_nearer_of_bounds_and_curvature_is_charged(seed: int) -> None:
    """min sum of ½ μ y² + q y over boxes, of which some are far away, has its optimum by column."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    curve = np.abs(sized(rng, n)) * rng.integers(0, 2, n)  # 0 where a column does not bend
    q, low = sized(rng, n), sized(rng, n) * rng.choice([1.0, 2.0**40], n)
    high = low + np.abs(sized(rng, n)) * rng.choice([1.0, 2.0**40], n)
    exact = Fraction(0)
    for mu, cost, lower, upper in zip(
        *([Fraction(float(v)) for v in a] for a in (curve, q, low, high)), strict=True
    ):
        free = -cost / mu if mu else lower
        ends = (lower, upper, min(max(free, lower), upper))
        exact += min(mu * y * y / 2 + cost * y for y in ends)
    A = np.vstack([np.eye(n), -np.eye(n)])
    form = form_of(A, np.r_[high, -low], (Cone("nonneg", 0, 2 * n),), q, np.diag(curve))
    x = low + rng.random(n) * (high - low) * rng.choice([1.0, 3.0]) - rng.choice([0.0, 5.0])
    z = np.abs(rng.normal(size=2 * n)) * rng.choice([0.0, 1.0, 1e9])
    found = lower_bound(form, x, z)
    assert found.unpaid is None and Fraction(found.value) <= exact


def test_a_residual_in_a_wide_box_costs_what_curvature_says() -> None:
    """½ y² over |y| <= 1e12, with multipliers that miss by 1e-7: the box alone would charge 1e5."""
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 5))
    A = [[1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    form = form_of(A, [2.0, 1e12, 1e12, 1e12, 1e12], cones, [0.0, 0.0], np.eye(2))
    found = lower_bound(form, np.array([1.0, 1.0]), np.array([-1.0 + 1e-7, 0.0, 0.0, 0.0, 0.0]))
    assert found.unpaid is None and 1.0 - 1e-13 <= found.value <= 1.0


def test_curvature_that_rounding_leaves_is_paid_for() -> None:
    # min -½δy² + δy over |y| <= 1, seen from 1: the truth is -1.5 δ, paying on the old r gives 0
    delta = 1e-11
    P, q = [[1.0, 0.0], [0.0, -delta]], [0.0, delta]
    A = np.vstack([np.eye(2), -np.eye(2)])
    form = form_of(A, np.ones(4), (Cone("nonneg", 0, 4),), q, P)
    found = lower_bound(form, np.array([0.0, 1.0]), np.zeros(4))
    assert found.unpaid is None and found.value <= -1.5 * delta
    free = form_of(np.zeros((1, 2)), [1.0], (Cone("nonneg", 0, 1),), q, P)
    found = lower_bound(free, np.zeros(2), np.zeros(1))
    assert found.unpaid is not None and found.unpaid.curve >= delta
    bent = form_of(A, np.ones(4), (Cone("nonneg", 0, 4),), q, [[1.0, 0.0], [0.0, -1e-4]])
    assert lower_bound(bent, np.zeros(2), np.zeros(4)).value == -np.inf


def test_a_multiplier_that_is_missing_or_broken_proves_nothing() -> None:
    form = form_of([[1.0]], [1.0], (Cone("nonneg", 0, 1),), [1.0])
    assert lower_bound(form, np.zeros(1), np.array([np.nan])).value == -np.inf
    assert not infeasibility(form, np.array([np.inf])).proved
    assert not infeasibility(form, np.zeros(2)).proved
    assert not infeasibility(form, np.zeros(1)).proved


@pytest.mark.parametrize("curve", [0.0, 1e-12, 1e-3])
def test_the_radius_is_where_the_loss_is_spent(curve: float) -> None:
    u = Unpaid(np.arange(3), 2e-9, curve, 5.0)
    loss = 1e-3 + 0.5 * curve * 3 * 5.0**2
    R = u.radius(loss)
    assert R > 0.0
    assert u.slope * R + 0.5 * curve * 3 * (R + 5.0) ** 2 <= loss * (1 + 1e-6)
    assert u.radius(0.0) == u.radius(-1.0) == 0.0
    assert u.times(2.0).radius(2 * loss) == pytest.approx(R)


def test_what_is_lost_near_by_is_that_within_a_size_of_one_at_least() -> None:
    assert Unpaid(np.array([0]), 2.0, 0.0, 0.1, natural=0.5).near == 2.0
    assert Unpaid(np.array([0]), 2.0, 0.0, 3.0).near == 6.0
    # half of the curve, of each column, within twice the size
    assert Unpaid(np.arange(4), 2.0, 0.25, 3.0).near == 6.0 + 0.25 / 2.0 * 4 * 6.0**2


def test_the_lesser_of_two_bounds_loses_as_much_as_either_may() -> None:
    one = Unpaid(np.array([0, 2]), 1.0, 20.0, 3.0, 40.0, 5.0, 60.0, 7.0)
    other = Unpaid(np.array([1, 2]), 10.0, 2.0, 30.0, 4.0, 50.0, 6.0, 70.0)
    for both in (one.joined(other), other.joined(one)):
        assert both.columns.tolist() == [0, 1, 2]
        most = (both.slope, both.curve, both.size, both.here, both.natural)
        assert most == (10.0, 20.0, 30.0, 40.0, 50.0) and (both.reach, both.unit) == (6.0, 7.0)
    assert one.joined(None) is one


def test_what_holds_exactly_stays_where_another_row_is_mended() -> None:
    # columns x, k, y: k is held, two rows leave x one value where both hold, and y is rounded
    A = sp.csc_array(
        [[0.0, 1.0, 0.0], [6.0, -4.0, 0.0], [4.0, 5.0, 0.0], [0.0, 3.0, -7.0], [0.0, 0.0, -1.0]]
    )
    b, y = np.array([1.0, -40.0, -19.0, -167.0, 0.0]), 170.0 / 7.0
    cones = (Cone("zero", 0, 2), Cone("nonneg", 2, 5))
    low = np.nextafter(y, 0.0) if Fraction(y) * 7 >= 170 else y
    step = feasible_near(A, b, cones, np.array([-6.0, 1.0, low]))
    assert step is not None and (step[:2] == 0.0).all() and 0.0 < step[2] < 1e-13
    # x is where it has to be: nothing mends what is off there
    assert feasible_near(A, b, cones, np.array([-6.0 + 1e-9, 1.0, low])) is None
    # a row of columns that all stay is not mended either
    fixed = sp.csc_array(sp.vstack([A, sp.csr_array([[0.0, 0.0, 1.0]])]))
    held = (*cones, Cone("zero", 5, 6))
    assert feasible_near(fixed, np.append(b, low), held, np.array([-6.0, 1.0, low])) is None


def test_equations_that_hold_exactly_stay_beside_others_that_are_mended() -> None:
    # the first two are independent by one rounding: no inverse of theirs is proved
    A = [[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0 + 2.0**-52], [0.0, 1.0, 1.0, 0.0]]
    b, x = np.array([2.0, 2.0, 0.3]), np.array([2.0, 0.1, 0.2, 0.0])
    step = feasible_near(sp.csc_array(A), b, (Cone("zero", 0, 3),), x)
    assert step is not None and (step[[0, 3]] == 0.0).all() and 0.0 < step[1:3].max() < 1e-15


def test_points_near_which_a_feasible_one_is() -> None:
    A = [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [-1.0, 0.0, 0.0]]
    cones = (Cone("zero", 0, 2), Cone("nonneg", 2, 3))
    near = feasible_near(
        sp.csc_array(A), np.array([0.3, 0.7, 0.0]), cones, np.array([0.1, 0.2, 0.5])
    )
    assert near is not None and near.max() <= 1e-14
    # two equations that contradict each other by one ulp: no point, however near it looks
    twice = sp.csc_array([[1.0, 1.0], [1.0, 1.0]])
    b = np.array([0.3, np.nextafter(0.3, 1.0)])
    assert feasible_near(twice, b, (Cone("zero", 0, 2),), np.array([0.1, 0.2])) is None
    assert feasible_near(twice, b, (Cone("nonneg", 0, 2),), np.array([0.1, 0.1])) is not None
    outside = feasible_near(
        sp.csc_array([[0.0]]), np.array([-1e-9]), (Cone("nonneg", 0, 1),), np.ones(1)
    )
    assert outside is None


def test_rays() -> None:
    rows = form_of([[-1.0, 0.0], [0.0, -1.0]], [-1.0, -1.0], (Cone("nonneg", 0, 2),), [1.0, -2.0])
    assert recession_faults(rows, np.array([0.0, 1.0])) == []
    for wrong in ([-1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [0.0, 0.0]):
        assert recession_faults(rows, np.array(wrong))
    # it leaves by what a tolerance would pass: x grows to 2e9 and no farther
    small = form_of([[5e-10], [-1.0]], [1.0, 0.0], (Cone("nonneg", 0, 2),), [-1.0])
    assert recession_faults(small, np.array([1.0]))
    bent = form_of(np.zeros((1, 1)), [1.0], (Cone("nonneg", 0, 1),), [-1.0], [[1e-9]])
    assert recession_faults(bent, np.array([1.0]))
    flat = form_of(
        np.zeros((1, 2)), [1.0], (Cone("nonneg", 0, 1),), [-1.0, 0.0], np.diag([0.0, 1.0])
    )
    assert recession_faults(flat, np.array([1.0, 0.0])) == []
    # near it are directions that stay, and along these nothing is gained
    level = form_of([[3.0, -1.0]], [0.0], (Cone("zero", 0, 1),), [-3.0, 1.0])
    assert recession_faults(level, np.array([1 / 3 + 1e-9, 1.0]))
    assert recession_faults(replace(level, q=np.array([-3.0, 0.5])), np.array([1 / 3, 1.0])) == []


# --- numbers at the ends of the range ----------------------------------------------------------


def test_what_leaves_the_range_of_floats_proves_nothing() -> None:
    a, line = 2.0**33, (Cone("nonneg", 0, 4),)
    box = form_of([[a], [a], [-a], [-a]], [1, 1, -1, -1], line, [0.0])  # y = 2^-33, objective 0
    z = np.array([1.5e298, 1.5e298, 1.7e298, 1.7e298])
    assert lower_bound(box, np.array([2.0**-33]), z).value <= 0.0
    huge = 2.0**1023
    rows = [[huge], [huge], [-huge], [-huge], [-1.0]]
    far = form_of(rows, [1, 1, -1, -1, 0], (Cone("nonneg", 0, 5),), [0.0])
    assert not infeasibility(far, np.array([1.0, 1.0, 1.5, 1.5, 0.0])).proved
    assert Unpaid(np.array([0]), np.nan, 0.0, 1.0).radius(1e-7) == 0.0
    assert np.isfinite(Unpaid(np.array([0]), 1e-320, 0.0, 0.0).radius(1e-7))
    overflow = form_of(
        np.zeros((3, 1)), [1, 1, 0], (Cone("soc", 0, 2), Cone("nonneg", 2, 3)), [0.0]
    )
    assert not infeasibility(overflow, np.array([0.0, 1e200, 0.0])).proved


def test_small_multipliers_stay_in_the_dual_cone() -> None:
    cones = (Cone("nonneg", 0, 1), Cone("soc", 1, 4))
    form = form_of(np.zeros((4, 1)), [0, 1e300, -0.7e300, -0.7e300], cones, [0.0])
    z = np.array([2.0**1000, 2.3 * 2.0**-74, 1.6 * 2.0**-74, 1.6 * 2.0**-74])
    assert not infeasibility(form, z).proved  # (1, .7, .7) is in the cone
    tail = form_of(
        np.zeros((3, 1)), [1e300, -1e300, 0], (Cone("soc", 0, 2), Cone("nonneg", 2, 3)), [0]
    )
    assert not infeasibility(tail, np.array([0.0, 1e-170, 0.0])).proved
    assert lower_bound(tail, np.zeros(1), np.array([0.0, 1e-170, 0.0])).value <= 0.0


def test_an_exponential_below_all_floats_is_not_zero() -> None:
    cones = (Cone("nonneg", 0, 1), Cone("exp", 1, 4))
    rows = [[-1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, -1.0]]
    form = form_of(rows, [-800.0, 0.0, 1.0, 0.0], cones, [0.0, 0.0])  # log z >= 800: feasible
    assert not infeasibility(form, np.array([1.0, -1.0, 760.0, 0.0])).proved
    empty = form_of([[-1.0], [0.0], [0.0]], [0.0, 1.0, 0.0], (Cone("exp", 0, 3),), [0.0])
    assert feasible_near(empty.A, empty.b, empty.cones, np.array([-1000.0])) is None


@given(st.integers(0, 100_000))
def test_the_radius_spends_no_more_than_the_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slope, curve, size, loss = 10.0 ** rng.uniform([-12, -34, -3, -8], [-3, -2, 8, 3])
    R = Unpaid(np.arange(1), slope, curve, size).radius(loss)
    spent = (
        Fraction(slope) * Fraction(R) + Fraction(curve) * (Fraction(R) + Fraction(size)) ** 2 / 2
    )
    assert R == 0.0 or spent <= Fraction(loss)


def test_sides_without_end_are_no_rows() -> None:
    A = sp.csc_array([[1.0]])
    for kind, b in (("nonneg", -np.inf), ("zero", np.inf), ("nonneg", np.nan)):
        assert feasible_near(A, np.array([b]), (Cone(kind, 0, 1),), np.zeros(1)) is None


# --- open columns among others, and points that have room ---------------------------------------


def test_a_contradiction_pays_with_bounds_that_rows_imply() -> None:
    # w >= 2 + x and w <= 1 + (1 - 1e-9) x, with -5 - t <= x <= t and t between 0 and 1
    A = [[-1, 1, 0], [1, 1e-9 - 1, 0], [0, 1, -1], [0, -1, -1], [0, 0, 1], [0, 0, -1]]

    def proved(*b: float) -> bool:
        form = form_of(A, b, (Cone("nonneg", 0, 6),), np.zeros(3))
        return infeasibility(form, np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])).proved

    assert proved(-2.0, 1.0, 0.0, 5.0, 1.0, 0.0)
    assert not proved(-2.0, 1.0, 0.0, 5e9, 1.0, 0.0)  # x may be -4e9
    assert not proved(-2.0, 2.0 - 1e-9, 0.0, 5.0, 1.0, 0.0)  # x = -6 satisfies all


@pytest.mark.parametrize(
    ("z", "repair"), [([0.3, 0.1, 0.2], False), ([3.0, 1.0, 2.0], True), ([3.0, 1.0, 2.0], False)]
)
def test_columns_that_nothing_bounds_cancel_exactly_or_are_made_to(
    z: list[float], repair: bool
) -> None:
    """Beside a column with a bound: 0.1 (v + w) + u >= 3, 0.3 (v + w) <= 1, u <= 1."""
    A = [[-0.1, -0.1, -1.0], [0.3, 0.3, 0.0], [0.0, 0.0, 1.0]]
    form = form_of(A, (-3.0, 1.0, 1.0), (Cone("nonneg", 0, 3),), np.zeros(3))
    found = infeasibility(form, np.array(z), repair=repair)
    # a third of 0.3 is not the float 0.1: what is left of v and w is more than rounding
    assert found.proved == (repair or z[0] < 1.0)


def test_what_does_not_bend_is_charged_no_curve() -> None:
    form = form_of([[-1.0, -1.0 - 1e-12]], (-1.0,), (Cone("nonneg", 0, 1),), np.ones(2))
    left = lower_bound(form, np.array([1.0, 0.0]), np.ones(1)).unpaid
    assert left is not None and left.columns.tolist() == [1] and left.curve == 0.0
    assert left.slope == pytest.approx(1e-12, rel=1e-3)


@pytest.mark.parametrize("curve", [0.0, 1e-9])
def test_a_point_whose_square_is_no_float_has_a_radius_or_none(curve: float) -> None:
    left = Unpaid(np.array([0]), 1e-12, curve, 1e300)
    assert left.near == (1e288 if curve == 0.0 else np.inf)
    assert left.radius(1.0) == (0.0 if curve else pytest.approx(1e12))


@pytest.mark.parametrize("kind", ["soc", "psd", "exp", "pow"])
def test_points_in_curved_cones_need_room_for_the_move(kind: str) -> None:
    inner = {
        "soc": (Cone("soc", 1, 4), [3.0, 1.0, 1.0]),
        "psd": (Cone("psd", 1, 4, order=2), [2.0, 0.5, 2.0]),
        "exp": (Cone("exp", 1, 4), [0.0, 1.0, 2.0]),
        "pow": (Cone("pow", 1, 4, power=0.5), [1.0, 1.0, 0.5]),
    }
    cone, inside = inner[kind]
    A = np.vstack([[1.0, 1.0, 1.0], -np.eye(3)])
    cones = (Cone("zero", 0, 1), cone)
    for off, proved in ((1e-9, True), (1e-3, True), (-1e-3, True), (20.0, False)):
        b = np.array([sum(inside) + off, 0.0, 0.0, 0.0])
        step = feasible_near(sp.csc_array(A), b, cones, np.array(inside))
        assert (step is not None) == proved, off
        if step is not None:
            assert 0.3 * abs(off) <= step.max() <= abs(off)
    # a point outside, and one without an equation to move for
    assert feasible_near(sp.csc_array(A), b, cones, -np.array(inside)) is None
    alone = feasible_near(
        sp.csc_array(A[1:]), b[1:], (replace(cone, start=0, stop=3),), np.array(inside)
    )
    assert alone is not None and not alone.any()


def test_columns_at_their_bounds_are_held() -> None:
    # x + y = 1 + 1e-9 off, y at its bound 0: x alone moves; without x nothing does
    A, cones = [[1.0, 1.0], [0.0, -1.0]], (Cone("zero", 0, 1), Cone("nonneg", 1, 2))
    step = feasible_near(sp.csc_array(A), np.array([1.0 + 1e-9, 0.0]), cones, np.array([1.0, 0.0]))
    assert step is not None and step[1] == 0.0 and 1e-9 <= step[0] * (1 + 1e-6) <= 1.1e-9
    both = [*A, [-1.0, 0.0]]
    held = feasible_near(
        *(sp.csc_array(both), np.array([1.0 + 1e-9, 0.0, -1.0])),
        *((Cone("zero", 0, 1), Cone("nonneg", 1, 3)), np.array([1.0, 0.0])),
    )
    assert held is None
    # a row with less room than the move takes
    near = [[1.0, 1.0], [1.0, -1.0]]
    for room, proved in ((1e-3, True), (1e-5, False)):
        found = feasible_near(
            *(sp.csc_array(near), np.array([1.0 + 1e-4, room])),
            *((Cone("zero", 0, 1), Cone("nonneg", 1, 2)), np.array([0.5, 0.5])),
        )
        assert (found is not None) == proved


def test_what_bends_a_ray_is_said() -> None:
    bent = form_of(np.zeros((1, 1)), [1.0], (Cone("nonneg", 0, 1),), [-1.0], [[0.5]])
    assert "bends it by 5.0e-01" in recession_faults(bent, np.array([1.0]))[0]
    away = form_of([[1.0]], [1.0], (Cone("nonneg", 0, 1),), [-1.0])
    assert "recession cone" in recession_faults(away, np.array([1.0]))[0]
    # a direction whose correction is as large as itself is another one
    assert recession_faults(
        form_of([[1.0, 1.0]], [0.0], (Cone("zero", 0, 1),), [-1.0, 0.0]),
        np.array([1.0, -1.0 + 1e-3]),
    )


@pytest.mark.parametrize(
    ("radius", "words"),
    [(123456.0, "1.2e+05"), (9.99e-7, "9.9e-07"), (1e300, "1.0e+300"), (0.0, "0"), (np.inf, "inf")],
)
def test_a_radius_is_told_rounded_down(radius: float, words: str) -> None:
    grade = within(radius, "column 'x'")
    assert str(grade) == f"proved for |x| ≤ {words}" and float(words) <= radius
    told = grade.to_dict()
    assert told["radius"] == (None if radius == np.inf else radius) and told["sound"]
    assert told["because"] == "column 'x'" and not reported("scip").to_dict()["sound"]


def test_a_radius_is_rounded_down_in_words_and_whole_in_json() -> None:
    words = [within(r).limits for r in (123456.0, 99999.0, 1.0, 0.0, np.inf)]
    assert words == [f"for |x| ≤ {r}" for r in ("1.2e+05", "9.9e+04", "1.0e+00", "0", "inf")]
    assert PROVED.limits == reported("scip").limits == ""
    assert [g.to_dict()["radius"] for g in (within(2.5), PROVED)] == [2.5, None]


def test_entries_off_the_diagonal_of_a_block_are_known_to_the_root_of_2_only() -> None:
    # 3 and the float above it are the same number after the root of 2: rows do not say which it was
    root, above = np.sqrt(2.0), float(np.nextafter(3.0, 4.0))
    assert 3.0 * root == above * root
    exact = Fraction("1.41421356237309504880168872420969807856967")
    cones = (Cone("psd", 0, 3, order=2),)
    A = sp.csc_array(np.array([[0.0], [3.0 * root], [0.0]]))
    z = np.array([1.0, 0.5, 1.0])
    form = ConicForm(sp.csc_array((1, 1)), -(A.T @ z), 0.0, A, np.zeros(3), cones)
    plain = residual_of(form, None, z, form.q)
    for residual in (plain, sharper(form, plain, None, z, form.q, np.array([0]))):
        for declared in (Fraction(3), Fraction(above)):
            left = declared * exact * Fraction(z[1]) + Fraction(float(form.q[0]))
            assert left != 0 and residual.low[0] < left < residual.high[0]
    # on the diagonal they are what was declared
    on, there = form.moved({"A": sp.csc_array(A.toarray()[[1, 0, 2]])}), z[[1, 0, 2]]
    again = sharper(on, plain, None, there, form.q, np.array([0]))
    assert again.low[0] == again.high[0] == 0.0
    # sides are known as well as that
    center, radius = sides_of(form.moved({"b": A.toarray().ravel()}), z)
    for declared in (Fraction(3), Fraction(above)):
        assert abs(Fraction(center) - declared * exact * Fraction(z[1])) < Fraction(radius)


# 1.25 has a product with the root of 2 of its own; those of 1.5 and a float next to it are the same
TWIN = next(v for v in np.nextafter(1.5, [1.0, 2.0]) if v * np.sqrt(2.0) == 1.5 * np.sqrt(2.0))


def beside(one: float, other: float, q: Any = (0.0, 0.0)) -> ConicForm:
    """Return min q'(x, y) with x = y and [[1, w], [w, 0]] semidefinite, w = one x - other y."""
    A = np.array([[1.0, -1.0], [0.0, 0.0], [-one, other], [0.0, 0.0]])
    A[2] *= np.sqrt(2.0)
    return form_of(A, [0.0, 1.0, 0.0, 0.0], (Cone("zero", 0, 1), Cone("psd", 1, 4, order=2)), q)


def test_equations_follow_from_others_in_the_entries_that_were_declared() -> None:
    def kept(form: ConicForm, z: Any, rows: Any) -> list[int] | None:
        M = sp.csr_array(sp.csr_array(form.columns_of_rows.T)[:, rows])
        before = M.toarray(), form.A.toarray()
        z = np.array(z, dtype=float)
        implied = equations.implying(form, form.q, None, z, np.arange(2), M, rows)
        assert np.array_equal(M.toarray(), before[0]) and np.array_equal(
            form.A.toarray(), before[1]
        )
        return implied

    every, first = np.arange(4), np.arange(1)
    form = beside(1.25, 1.25)
    assert kept(form, [1.0, 0.0, 0.5, 0.0], every) in ([0], [1])
    assert kept(beside(1.25, 1.0), [1.0, 0.0, 0.5, 0.0], every) == [0, 1]
    # the columns differ, as the declared ones may, though their floats do not
    assert kept(beside(1.5, TWIN), [1.0, 0.0, 0.5, 0.0], every) is None
    # rounded products with the root of 2 cancel in floats; the numbers themselves do not
    q = np.sqrt(2.0) * np.array([1.25, -1.0])
    assert kept(beside(1.25, 1.0, q), [0.0, 0.0, 1.0, 0.0], first) is None
    assert kept(beside(1.25, 1.25, 1.25 * q[1] * np.array([-1.0, 1.0])), [0, 0, 1, 0], first)
    # curvature counts where it is measured
    bent = form_of(form.A.toarray(), form.b, form.cones, [2.0, 2.0], [[1.0, 0.0], [0.0, 0.0]])
    M, first = sp.csr_array(np.ones((2, 1))), np.array([1.0, 3.0])
    for q, x, same in (
        ([1.0, 2.0], first, [0]),
        ([2.0, 2.0], first, None),
        ([2.0, 2.0], None, [0]),
    ):
        parts = np.array(q), x, np.zeros(4), np.arange(2)
        assert equations.implying(bent, *parts, M, np.array([4])) == same


@pytest.mark.parametrize(("one", "other"), [(1.25, 1.25), (1.5, float(TWIN))])
def test_an_entry_beside_a_zero_of_the_diagonal_is_none_as_it_was_declared(
    one: float, other: float
) -> None:
    form, same = beside(one, other, [-1.0, 0.0]), one == other
    assert form.A.toarray()[2, 0] == -form.A.toarray()[2, 1]
    near = feasible_near(form.A, form.b, form.cones, np.ones(2))
    assert near is None if not same else not np.any(near)
    assert (recession_faults(form, np.ones(2)) == []) == same
    # what is 0 in every term is so for any entries
    assert not np.any(feasible_near(form.A, form.b, form.cones, np.zeros(2)))


def test_sides_and_each_number_count_in_what_is_none() -> None:
    root, cones = np.sqrt(2.0), (Cone("psd", 0, 3, order=2),)

    def near(row: list[float], side: float, x: list[float], last: float = 0.0) -> Any:
        A = sp.csc_array(root * np.array([[0.0] * len(row), row, [0.0] * len(row)]))
        return feasible_near(A, np.array([1.0, root * side, last]), cones, np.array(x))

    assert near([1.25], 1.25, [1.0]) is not None
    assert near([1.25], 1.25, [-1.0]) is None and near([1.25], 1.25, [0.5]) is None
    # one number that is not known is enough, of a column or of the side
    shown = float(unscaled(np.array([1.5 * root]))[0][0])
    parts = [1.25, 0.25] if shown == 1.5 else [1.25, 0.25 + (shown - 1.5)]
    assert unscaled(root * np.array(parts))[1].all() and sum(parts) == shown
    assert near([shown, *parts], 0.0, [1.0, -1.0, -1.0]) is None
    assert near([shown, *parts], 0.0, [-1.0, 1.0, 1.0]) is None
    assert near(parts, shown, [1.0, 1.0]) is None
    # what terms leave over is known to a share of the terms
    assert near([1e8 - 1.0], 1e8, [1.0], 1.0 + 1e-9) is None
    assert near([1e8 - 1.0], 1e8, [1.0], 1.0 + 1e-6) is not None
    plain = Cone("psd", 0, 3, order=2, root=1.0)
    assert beside_diagonals((plain, *cones), 3).tolist() == [False, True, False]
    assert not beside_diagonals((plain,), 3).any()


def test_numbers_beside_diagonals_are_sure_where_no_neighbour_has_the_same_product() -> None:
    v = np.random.default_rng(0).uniform(1.0, 2.0, 20_000) * 2.0 ** np.arange(-10, 10).repeat(1_000)
    shown, sure = unscaled(v * np.sqrt(2.0))
    alone = np.ones(v.size, dtype=bool)
    for far in (0.0, np.inf):
        alone &= np.nextafter(v, far) * np.sqrt(2.0) != v * np.sqrt(2.0)
    assert np.array_equal(sure, alone) and np.array_equal(shown[sure], v[sure])
    assert np.array_equal(shown * np.sqrt(2.0), v * np.sqrt(2.0))


def test_a_point_near_which_all_rows_hold_solves_its_equations_together() -> None:
    def near(A: Any, b: list[float], x: list[float], kind: Any = "zero") -> Any:
        rows = sp.csc_array(np.array(A))
        return feasible_near(rows, np.array(b), (Cone(kind, 0, len(b)),), np.array(x))

    # an equation that holds moves with the others; what is not known is near nothing
    assert near([[0.5, -0.5], [1.0, -1.0]], [0.0, 1e-17], [0.0, 0.0]) is None
    assert near([[0.5, -0.5], [1.0, 1.0]], [0.0, 1e-17], [0.0, 0.0]) is not None
    wide = [[1.0, *np.zeros(5_000)]]
    assert near(wide, [1.0], [1.0, *np.zeros(5_000)]) is not None
    assert near(wide, [1.0], [1.0, *np.zeros(4_999), np.nan]) is None
    # products beyond the range in which they are exact have an error of their own
    rng = np.random.default_rng(1)
    for _ in range(50):
        a, x = float(rng.uniform(1e160, 9e160)), float(rng.uniform(1.0, 2.0))
        b = a * x
        step = near([[a]], [b], [x])
        assert step is not None and step[0] > 0.0
        assert abs(Fraction(b) / Fraction(a) - Fraction(x)) <= Fraction(float(step[0]))


def test_squares_without_costs_are_at_least_0_only_where_they_are_squares() -> None:
    nothing = sp.csc_array((1, 2)), np.ones(1), (Cone("nonneg", 0, 1),)
    x, z = np.array([1.0, -1.0]), np.array([0.25])
    whole = ConicForm(sp.csc_array([[1.0, 1.0], [1.0, 1.0]]), np.zeros(2), 3.0, *nothing)
    assert lower_bound(whole, x, z).value == 3.0
    # below 0 by 2**-54 along (1, -1), however far out
    bent = sp.csc_array([[1.0, 1.0], [1.0, 1.0 - 2.0**-53]])
    known = lower_bound(ConicForm(bent, np.zeros(2), 3.0, *nothing), x, z)
    assert known.fault or known.unpaid is not None or known.value == -np.inf


def test_what_a_singular_quadratic_may_lack_is_paid_within_bounds_of_rows() -> None:
    n = 40
    root = np.round(np.random.default_rng(0).standard_normal((12, n)), 2)
    rows = sp.csc_array(np.vstack([-np.eye(n), np.ones((1, n))]))
    sides = np.append(np.zeros(n), 1.0)
    P = sp.csc_array(root.T @ root)  # singular but for rounding
    form = ConicForm(P, np.ones(n), 0.0, rows, sides, (Cone("nonneg", 0, n + 1),))
    assert form.curvature.shift > 0.0
    pair = np.zeros(n), np.append(np.ones(n), 0.0)
    bound = lower_bound(form, *pair)
    assert bound.unpaid is None and -1e-6 < bound.value <= 0.0
    far = replace(form, b=np.append(np.zeros(n), 1e9))  # there it would cost much
    assert lower_bound(far, *pair).unpaid is not None


@pytest.mark.parametrize("unit", [2.0**-20, 1.0, 2.0**20])
@pytest.mark.parametrize("seed", range(8))
def test_a_form_without_full_rank_has_its_least_value_everywhere(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    root, at = rng.integers(-3, 4, (n - 1, n)), rng.integers(-3, 4, n)
    P = unit * (root.T @ root + np.zeros((n, n)))
    form = form_of(np.zeros((0, n)), [], (), -P @ at, P, offset=unit * 5.0)
    least = objective(form, at)  # what it bends for is 0 there
    near = at + rng.normal(size=n) * 1e-7
    bound = lower_bound(form, near, np.zeros(0))
    assert bound.unpaid is None and not bound.fault
    assert (
        least - Fraction(1e-7) * max(abs(least), Fraction(unit)) <= Fraction(bound.value) <= least
    )
    # a point that is far, or costs along which it falls for ever, prove no such bound
    others = near + 1.0, form.q + unit * np.linalg.svd(root)[2][-1]
    for y, q in ((others[0], form.q), (near, others[1])):
        other = lower_bound(replace(form, q=q), y, np.zeros(0))
        assert other.fault or other.unpaid is not None


@pytest.mark.parametrize(
    ("enough", "tried"), [(0.4, ["half"]), (0.9, ["half", "whole"]), (5.0, ["half", "whole"])]
)
def test_candidates_in_other_units_are_tried_until_one_is_enough(
    enough: float, tried: list[str]
) -> None:
    # x >= 1 by a row of two entries, and x, y >= 0; the same times 4
    A, b, cones = (
        [[-1.0, -1.0], [-1.0, 0.0], [0.0, -1.0]],
        [-1.0, 0.0, 0.0],
        (Cone("nonneg", 0, 3),),
    )
    form = form_of(A, b, cones, [1.0, 1.0])
    seen = list[str]()

    def candidates(_: Any) -> Any:
        for name, part in (("half", 0.5), ("whole", 1.0)):
            seen.append(name)
            yield np.array([part, 0.0, 0.0])

    same = SimpleNamespace(
        form=form_of(A, b, cones, [4.0, 4.0]),
        columns=np.ones(2),
        candidates=candidates,
        multipliers_back=lambda z: z,
    )
    form.__dict__["same"] = (same, 4.0)
    found = lower_bound(form, np.array([1.0, 0.0]), np.zeros(3), enough=enough)
    assert seen == tried and found.unpaid is None and found.by is not None
    assert found.value == pytest.approx({"half": 0.5, "whole": 1.0}[tried[-1]], abs=1e-12)
    assert found.value <= 1.0 and found.by[0] == {"half": 0.5, "whole": 1.0}[tried[-1]]


def test_squares_without_costs_need_no_multipliers(monkeypatch: pytest.MonkeyPatch) -> None:
    form = form_of([[1.0]], [1.0], (Cone("nonneg", 0, 1),), [0.0], [[2.0]], offset=3.0)
    monkeypatch.setattr(bounds, "in_dual", None)
    bound = lower_bound(form, np.ones(1), np.ones(1), enough=3.0)
    assert bound.value == 3.0 and bound.unpaid is None and not bound.fault


def test_a_column_of_nothing_beside_a_form_without_full_rank_changes_nothing() -> None:
    P = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    form = form_of(np.zeros((0, 3)), [], (), [-2.0, -2.0, 0.0], P)
    bound = lower_bound(form, np.array([1.0 + 1e-7, 1.0, 0.0]), np.zeros(0))
    assert bound.unpaid is None and -2.0 - 1e-6 <= bound.value <= -2.0


def test_a_row_of_columns_that_all_stay_is_no_equation_for_the_others() -> None:
    # w and y are held at 0, so -w - 2 y <= 0 holds as it is; x and z move for 2 w + 2 x - y + z
    A = [[2, 2, -1, 1], [-2, -2, 1, 2], [-1, 0, -2, 0], [-1, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, -1]]
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 6))
    b, x = np.array([3.0 + 1e-9, 0.0, 0.0, 0.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0])
    step = feasible_near(sp.csc_array(np.array(A, dtype=float)), b, cones, x)
    assert step is not None and (step[[0, 2]] == 0.0).all() and 0.0 < step.max() < 2e-9


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_opposite_rows_are_bounds_that_hold(seed: int) -> None:
    """Of t >= |x - 0.1| - 0.7 neither row bounds t, and their sum does."""
    rng = np.random.default_rng(seed)
    a, c = rng.choice([1.0, 0.1, 3.0], 2)
    A = np.array([[c, -a, 0.0], [-c, -a, 0.0], [0.0, c, a], [0.0, -c, a], [c, 0.0, a]])
    side = np.array([0.1, -0.1 + 2.0 * rng.uniform(), 0.3, 0.4, 1.0]).round(3)
    nothing = np.zeros((3, 0), dtype=int), np.zeros((2, 0))
    rows = columns.Rows(sp.csr_array(A), np.full(5, -np.inf), side, side, *nothing)
    free = np.full(3, -np.inf), np.full(3, np.inf)
    lower, upper = bounds.opposite_sums(rows, *free)
    least = (Fraction(side[0]) + Fraction(side[1])) / (-2 * Fraction(a))
    most = (Fraction(side[2]) + Fraction(side[3])) / (2 * Fraction(a))
    assert Fraction(lower[1]) <= least <= Fraction(lower[1]) + Fraction(1e-12)
    assert Fraction(upper[2]) - Fraction(1e-12) <= most <= Fraction(upper[2])
    others = [lower[0], lower[2], -upper[0], -upper[1]]
    assert others == [-np.inf] * 4
    again = bounds.opposite_sums(rows, np.full(3, 9.0), np.full(3, -9.0))
    assert (again[0] == 9.0).all() and (again[1] == -9.0).all()


@pytest.mark.parametrize("seed", range(20))
def test_no_sum_of_opposite_rows_says_more_than_two_of_them(seed: int) -> None:
    """Among rows of one to three columns, of equal and other entries, with and without sides."""
    rng = np.random.default_rng(seed)
    wide, count = 3, 14
    A = rng.choice([-2.0, -1.0, 1.0, 2.0], (count, wide))
    A[np.arange(count), rng.integers(wide, size=count)] *= rng.random(count) < 0.2
    A[:2, 1] = A[1, 0] = 0.0  # of one column
    side = rng.choice([-1.0, 0.0, 0.1, 0.3, 1e16, np.inf], count)
    side[3], A[3] = -side[2], A[2] * [1.0, -1.0, 1.0]
    order = np.arange(wide) if seed % 2 else np.arange(wide)[::-1]
    stated = sp.csr_array(A[:, order])
    for i in range(count):  # entries of a row in any order
        at = np.arange(*stated.indptr[i : i + 2])
        turned = rng.permutation(at)
        stated.indices[at], stated.data[at] = stated.indices[turned], stated.data[turned]
    A = A[:, order]
    nothing = np.zeros((3, 0), dtype=int), np.zeros((2, 0))
    rows = columns.Rows(stated, np.full(count, -np.inf), side, side, *nothing)
    lower, upper = bounds.opposite_sums(rows, np.full(wide, -np.inf), np.full(wide, np.inf))
    # what each two of the rows say, in fractions
    low: list[list[Any]] = [[-np.inf] for _ in range(wide)]
    high: list[list[Any]] = [[np.inf] for _ in range(wide)]
    for i, k in combinations(np.flatnonzero(np.isfinite(side)).tolist(), 2):
        own, other = np.flatnonzero(A[i]), np.flatnonzero(A[k])
        if own.size != 2 or not np.array_equal(own, other):
            continue
        for kept, lost in (own, own[::-1]):
            if A[i, lost] == -A[k, lost] and A[i, kept] == A[k, kept]:
                end = (Fraction(side[i]) + Fraction(side[k])) / (2 * Fraction(A[i, kept]))
                (high if A[i, kept] > 0.0 else low)[kept].append(end)
    for j in range(wide):
        assert lower[j] <= max(low[j]) and min(high[j]) <= upper[j]
        # and each is what some two of them say
        assert pytest.approx(lower[j], rel=1e-12, abs=1e-300) in [float(v) for v in low[j]]
        assert pytest.approx(upper[j], rel=1e-12, abs=1e-300) in [float(v) for v in high[j]]


def test_sums_of_opposite_rows_are_rounded_outward_where_they_are_rounded() -> None:
    nothing = np.zeros((3, 0), dtype=int), np.zeros((2, 0))

    def ends(a: float, first: float, second: float) -> tuple[float, float]:
        A = sp.csr_array(np.array([[a, 1.0], [a, -1.0]]))
        side = np.array([first, second])
        rows = columns.Rows(A, np.full(2, -np.inf), side, side, *nothing)
        lower, upper = bounds.opposite_sums(rows, np.full(2, -np.inf), np.full(2, np.inf))
        return float(lower[0]), float(upper[0])

    for first, second in ((1.0, 2.0**-60), (1.0, 2.0**-53), (0.1, 0.7), (-1.0, 2.0**-60)):
        end = (Fraction(first) + Fraction(second)) / 2
        assert Fraction(ends(1.0, first, second)[1]) >= end
        assert Fraction(ends(-1.0, first, second)[0]) <= -end
    assert 0.0 <= ends(1.0, 0.25, -0.25)[1] <= 1e-300
    assert 0.0 >= ends(-1.0, 0.25, -0.25)[0] >= -1e-300
    # twice the entry is no float, nor is the sum of the sides
    assert ends(1.7e308, 1.0, 1.0) == (-np.inf, np.inf)
    assert ends(1.0, 1.7e308, 1.7e308)[1] >= 1.7e308
    assert ends(1.0, -1.7e308, -1.7e308)[1] >= -1.7e308


def test_basis_pursuit_of_many_columns_is_proved_everywhere() -> None:
    n, rng = 1000, np.random.default_rng(0)
    A, y = rng.normal(size=(n // 5, n)), cp.Variable(n)
    signal = (np.arange(n) < n // 40).astype(float)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(y)), [A @ y == A @ signal]))
    assert p.solve().grade.word == "proved"
