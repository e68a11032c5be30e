"""Multipliers that are moved: what is proved by them holds, and what is left over is less."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.conic_proof import ConicProof
from optfair.proofs import bounds, moves
from optfair.proofs.bounds import lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.effort import DEADLINE, finished, in_haste
from optfair.proofs.moves import Boxes, carrying, lowered
from optfair.proofs.residual import Residual, residual_of
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import measure

NORM, SELF = (Cone("soc", 0, 3),), -np.eye(3)


def least_norm(
    rows: Any = SELF, cones: tuple[Cone, ...] = NORM, curvature: float = 0.0
) -> ConicForm:
    """Return min t + 0.6 y + 0.8 w over t >= |(y, w)|, whose optimum is 0, or the like of it."""
    A = sp.csc_array(np.asarray(rows, dtype=float))
    P = sp.csc_array(np.diag([curvature, 0.0, 0.0]))
    return ConicForm(P, np.array([1.0, 0.6, 0.8]), 0.0, A, np.zeros(A.shape[0]), cones)


def moved(form: ConicForm, z: Any, at: Any = (0,)) -> Any:
    x = np.zeros(form.q.size)
    return lowered(form, residual_of(form, x, z, form.q), z, np.array(at, dtype=np.intp))


@pytest.mark.parametrize("more", [1e-15, 1e-9, 1e-7])
def test_the_head_of_a_cone_is_its_cost_and_the_others_are_within(more: float) -> None:
    form, z = least_norm(), np.array([1.0 + more, 0.6, 0.8])
    near = moved(form, z)
    assert near[0] == 1.0 and near[1:] == pytest.approx(z[1:], rel=1e-8)
    assert sum(Fraction(float(v)) ** 2 for v in near[1:]) <= 1
    found = lower_bound(form, np.zeros(3), z, 0.0)
    assert -1e-7 <= found.value <= 0.0


@pytest.mark.parametrize(
    ("form", "z", "at"),
    [
        (least_norm(), [1.0 + 1e-7, 0.6, 0.8], [1]),
        (least_norm(), [1.0, 0.6, 0.8], [0]),
        (least_norm(), [1.1, 0.66, 0.88], [0]),  # the others are too long for the cost
        (least_norm(curvature=1.0), [1.0 + 1e-7, 0.6, 0.8], [0]),
        (least_norm(np.diag([-0.5, -1.0, -1.0])), [2.0 + 1e-7, 0.6, 0.8], [0]),
        (least_norm(np.diag([1.0, -1.0, -1.0])), [1.0 + 1e-7, 0.6, 0.8], [0]),
        (least_norm([[-1, 0, 0.5], [0, -1, 0], [0, 0, -1]]), [1.0 + 1e-7, 0.6, 0.8], [0]),
        # another row has the column, too
        (
            least_norm([*SELF, [1.0, 1.0, 0.0]], (*NORM, Cone("nonneg", 3, 4))),
            [1.0 + 1e-7, 0.6, 0.8, 0.0],
            [0],
        ),
        (least_norm(cones=(Cone("psd", 0, 3, order=2),)), [1.0 + 1e-7, 0.1, 0.8], [0]),
    ],
)
def test_other_heads_stay(form: ConicForm, z: Any, at: Any) -> None:
    assert moved(form, np.array(z), at).tolist() == z


def test_cones_without_a_column_are_no_reason_to_look_for_one() -> None:
    # the rows of the last cone are empty: |(3, 4)| <= 5
    b, z = np.array([0.0, 0.0, 0.0, 5.0, 3.0, 4.0]), np.array([1.0 + 1e-9, 0.6, 0.8, 0.0, 0.0, 0.0])
    form = least_norm([*SELF, *np.zeros((3, 3))], (*NORM, Cone("soc", 3, 6)))
    assert moved(replace(form, b=b), z)[0] == 1.0
    found = lower_bound(replace(form, b=b), np.zeros(3), z, 0.0)
    assert -1e-7 <= found.value <= 0.0


@pytest.mark.parametrize("unit", [1.0, 1e-170, 1e-300, 1e150])
def test_a_head_below_the_length_of_the_others_is_never_its_cost(unit: float) -> None:
    # min t/2 + 0.6 y + 0.8 w falls for ever: squares of small numbers are 0 in floats
    form = replace(least_norm(), q=unit * np.array([0.5, 0.6, 0.8]))
    z = unit * np.array([1.0, 0.6, 0.8])
    assert np.array_equal(moved(form, z), z)
    bound = lower_bound(form, np.zeros(3), z, 0.0)
    assert bound.fault or (bound.unpaid is not None and bound.unpaid.slope >= 0.49 * unit)


def test_equations_without_a_multiplier_are_carried_as_nothing_and_other_rows_as_they_are() -> None:
    cones = Cone("zero", 0, 3), Cone("nonneg", 3, 5)
    A = sp.csc_array(np.arange(1.0, 11.0).reshape(5, 2))
    form = ConicForm(sp.csc_array((2, 2)), np.ones(2), 0.0, A, np.ones(5), cones)
    few, every = carrying(form, np.array([0.0, -2.0, 1e-300, 0.0, 1.0]))
    assert np.array_equal(few.A.toarray(), [[0, 0], [3, 4], [5, 6], [7, 8], [9, 10]])
    assert every is form and [*carrying(form, np.array([1.0, -2.0, 1.0, 0.0, 0.0]))] == [form]


def test_what_a_deadline_cuts_is_not_kept() -> None:
    rng = np.random.default_rng(0)
    V, w = rng.normal(size=(3, 6)), cp.Variable(6, nonneg=True, name="w")
    goal = cp.Maximize(cp.log_det(V @ cp.diag(w) @ V.T))
    s = of.from_cvxpy(cp.Problem(goal, [cp.sum(w) == 1])).solve()
    assert str(s.grade) == "proved"
    given = s.problem, s.values, s.multipliers, s.proof
    assert isinstance(s.proof, ConicProof)
    s.proof.compiled.form.last.clear()
    cut, whole = measure(*given, deadline=0.0), measure(*given)
    words = [m.against(s.objective, m.bound).grade(1e-7).word for m in (cut, whole)]
    assert words[0] != words[1] == "proved" and whole.bound == s.bound
    assert "residuals" in s.proof.compiled.form.last
    assert DEADLINE.get() == np.inf


def test_moves_of_a_solve_end_with_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []

    def seen(*args: Any) -> Any:
        ends.append(DEADLINE.get())
        return bound_of_rows(*args)

    bound_of_rows = bounds._bound_of_rows
    monkeypatch.setattr(bounds, "_bound_of_rows", seen)
    x = cp.Variable(2, name="x")
    given = cp.Problem(cp.Minimize(cp.norm(x - 1)), [x >= 2])
    of.from_cvxpy(given).solve()
    assert ends and set(ends) == {np.inf}
    begin = time.perf_counter()
    ends.clear()
    of.from_cvxpy(given).solve(time_limit=50.0)
    assert ends and begin < min(ends) <= max(ends) <= begin + 60.0


def test_no_start_is_tried_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    form, x, z = least_norm(), np.zeros(3), np.array([1.0, 0.0, 0.0])
    left = residual_of(form, x, z, form.q)
    free = Boxes(np.full(3, -np.inf), np.full(3, np.inf), x=x, floor=None)
    search = moves._Moves(form, left, x, z, free)
    tries: list[float] = []
    monkeypatch.setattr(moves._Moves, "_starts", lambda *_: iter([(z, left)] * 3))
    monkeypatch.setattr(moves, "repaired", lambda *_, **__: (left, tries.append(0.0) or 0.0))
    for deadline, most in ((np.inf, 3), (0.0, 0)):
        tries.clear()
        token = DEADLINE.set(deadline)
        search.close((z, left))
        DEADLINE.reset(token)
        assert len(tries) == most


def test_starts_that_leave_nothing_need_no_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    form, x, z = least_norm(), np.zeros(3), np.array([1.0, 0.0, 0.0])
    left = residual_of(form, x, z, form.q)
    nothing = Residual(np.zeros(3), np.zeros(3))
    free = Boxes(np.full(3, -np.inf), np.full(3, np.inf), x=x, floor=None)
    search = moves._Moves(form, left, x, z, free)
    assert search.left > 0.0
    starts = [(z, left), (z, nothing)]
    monkeypatch.setattr(moves._Moves, "_starts", lambda *_: iter(starts))
    monkeypatch.setattr(moves, "repaired", None)
    search.close((z, left), most=2)
    assert search.settled and search.best[1] is nothing and search.own[1] is nothing


def test_of_any_number_of_starts_one_is_closed_before_another_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form, x, z = least_norm(), np.zeros(3), np.array([1.0, 0.0, 0.0])
    left, nothing = residual_of(form, x, z, form.q), Residual(np.zeros(3), np.zeros(3))
    free = Boxes(np.full(3, -np.inf), np.full(3, np.inf), x=x, floor=None)

    def starts(*_: Any) -> Iterator[Any]:
        yield z, left
        raise AssertionError("another is made")

    monkeypatch.setattr(moves._Moves, "_starts", starts)
    monkeypatch.setattr(moves, "repaired", lambda *_, **how: (nothing, 0.0))
    search = moves._Moves(form, left, x, z, free)
    search.close((z, left))
    assert search.settled and search.best[1] is nothing
    with pytest.raises(AssertionError, match="another"):
        moves._Moves(form, left, x, z, free).close((z, left), most=2)


def test_dear_moves_wait_while_there_is_haste() -> None:
    # min v, w = v >= 0: what is left of w costs nothing to move, and much at |w| <= 1e12
    cones = (Cone("zero", 0, 1), Cone("nonneg", 1, 2))
    A = sp.csc_array([[-1.0, 1.0], [-1.0, 0.0]])
    form = ConicForm(sp.csc_array((2, 2)), np.array([1.0, 0.0]), 0.0, A, np.zeros(2), cones)
    x, z = np.zeros(2), np.array([1e-9, 0.5])
    bare = Boxes(*form.column_bounds, x=x)
    wide = bare.tighter(np.array([0.0, -1e12]), np.array([1e12, 1e12]))
    left = residual_of(form, x, z, form.q)
    total = moves.total_of(form, x, z, left, 0.0, wide)
    with in_haste() as haste:
        assert not haste.left_out and finished()
        assert moves.closed(form, left, x, z, bare)[1] is not left  # costs nothing
        assert not haste.left_out
        assert moves.cheaper(form, left, x, z, total, wide, bare) is None
        assert haste.left_out and not finished()
        known = form.remembered("bound", 1, lambda: "in haste")
    assert known == "in haste" and finished()
    assert form.remembered("bound", 1, lambda: "at leisure") == "at leisure"
    assert moves.cheaper(form, left, x, z, total, wide, bare) is not None
    with in_haste() as haste:  # what proves less than enough before a move is no better after it
        assert moves.closed(form, left, x, z, wide, 0.0)[1] is left
    assert haste.left_out


@pytest.mark.parametrize("offset", [0.0, 1e-3, -1e6, 1e8, 3e15, 1e300])
@pytest.mark.parametrize("total", [0.5, -1.0 / 3.0, 1e-20, 7e9])
def test_a_constant_costs_a_bound_one_rounding(offset: float, total: float) -> None:
    form = replace(least_norm(), offset=offset)
    near = moves.with_offset(form, total)
    exact = Fraction(offset) + Fraction(total)
    assert Fraction(near) <= exact < Fraction(float(np.nextafter(near, np.inf)))


def test_an_optimum_beside_a_large_constant_is_proved() -> None:
    x = cp.Variable(2, name="x")
    for cost, offset in ((cp.sum_squares(x - 1), 0.5), (cp.sum(x), -np.inf)):
        rows = [cp.sum(x) <= 1] if offset == 0.5 else [x >= 0.3]
        s = of.from_cvxpy(cp.Problem(cp.Minimize(cost + 1e8), rows)).solve()
        assert s.grade.word == "proved" and s.objective - s.bound <= 1e-7


@pytest.mark.parametrize(
    ("kind", "quadratic", "order"),
    [
        ("nonneg", False, ["close 2", "tilt True", "tilt False", "close on from 2"]),
        ("nonneg", True, ["tilt True", "tilt False", "close on from 0"]),
        ("soc", True, ["tilt True", "close 1", "tilt False", "close on from 1"]),
    ],
)
def test_moves_are_tried_in_the_order_of_what_settles_such_programs(
    kind: Any, quadratic: bool, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def tilt(_: Any, *, quick: bool) -> None:
        tried.append(f"tilt {quick}")

    def close(_: Any, around: Any, first: int = 0, most: int | None = None) -> None:
        tried.append(f"close on from {first}" if most is None else f"close {most}")

    monkeypatch.setattr(moves._Moves, "tilt", tilt)
    monkeypatch.setattr(moves._Moves, "close", close)
    P = sp.csc_array(np.diag([1.0 * quadratic, 0.0]))
    form = ConicForm(P, np.ones(2), 0.0, sp.csc_array(-np.eye(2)), np.zeros(2), (Cone(kind, 0, 2),))
    x, z = np.ones(2), np.full(2, 0.5)
    bare = Boxes(np.full(2, -np.inf), np.full(2, np.inf), x=x)
    moves.closed(form, residual_of(form, x, z, form.q), x, z, bare)
    assert tried == order


@pytest.mark.parametrize(
    ("several", "many", "ways"), [(9, 9, [False] * 2), (1, 9, [True, False] * 2), (1, 2, [True])]
)
def test_of_many_columns_one_factorisation_is_tried_once(
    several: int, many: int, ways: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []

    def repaired(form: Any, left: Any, *_: Any, quick: bool) -> Any:
        tried.append(quick)
        return left, 0.0

    monkeypatch.setattr(moves, "repaired", repaired)
    monkeypatch.setattr(moves, "SEVERAL", several)
    monkeypatch.setattr(moves, "MANY", many)
    none = sp.csc_array((3, 3))
    form = ConicForm(
        none, np.ones(3), 0.0, sp.csc_array(-np.eye(3)), np.zeros(3), (Cone("nonneg", 0, 3),)
    )
    x, z = np.ones(3), np.full(3, 0.5)
    bare = Boxes(np.full(3, -np.inf), np.full(3, np.inf), x=x)
    own = moves._Moves(form, residual_of(form, x, z, form.q), x, z, bare)
    monkeypatch.setattr(own, "_starts", lambda z, left: [(z, left)] * 2)
    own.close(own.own)
    assert tried == ways


def test_columns_are_dear_whose_rounding_costs_much_within_their_bounds() -> None:
    form = ConicForm(sp.csc_array((2, 2)), np.ones(2), 0.0, sp.csc_array((0, 2)), np.zeros(0), ())
    left = Residual(np.full(2, -1e-12), np.full(2, 1e-12))
    for far, dear in ((1e9, [0]), (1.0, [])):
        boxes = Boxes(np.zeros(2), np.array([far, 1.0]), x=np.ones(2))
        assert moves.dear_columns(form, np.ones(2), left, boxes).tolist() == dear


def test_what_many_columns_far_out_cost_is_not_left_to_their_bounds() -> None:
    # the free states of a controlled system: rows bound each by those before, further out at every step
    rng = np.random.default_rng(1)
    T, n, m = 40, 6, 2
    A = rng.normal(size=(n, n))
    A = np.round(0.95 * A / np.abs(np.linalg.eigvals(A)).max(), 4)
    B, start = np.round(rng.normal(size=(n, m)), 3), np.round(rng.normal(size=n), 2)
    x, u = cp.Variable((n, T + 1), name="x"), cp.Variable((m, T), name="u")
    Q, steps = np.diag([1.0] + [0.0] * (n - 1)), range(T)  # nothing is asked of the other states
    cost = sum(cp.quad_form(x[:, t + 1], Q) + 0.1 * cp.sum_squares(u[:, t]) for t in steps)
    rows = [x[:, t + 1] == A @ x[:, t] + B @ u[:, t] for t in steps]
    rows += [x[:, 0] == start, cp.abs(u) <= 0.5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows)).solve("clarabel")
    assert s.grade.word == "proved" and s.bound >= s.objective - 1e-7
