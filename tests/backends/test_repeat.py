"""Problems at other values, from the active set of the last optimum, against the general route."""

from __future__ import annotations

import pickle
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import optfair as of
from optfair.backends.repeat import KEPT, MISSES, ActiveSet, _kept
from optfair.backends.request import Request
from optfair.errors import Infeasible
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]


def regulator(unit: float = 1.0, cost: float = 1.0) -> tuple[Any, Floats]:
    """Return a control problem in some units, and its first state."""
    rng = np.random.default_rng(0)
    A = np.eye(3) + 0.1 * rng.standard_normal((3, 3))
    B = rng.standard_normal((3, 2))
    x, u = cp.Variable((3, 7), name="x"), cp.Variable((2, 6), name="u")
    start = unit * np.array([1.0, -1.0, 0.5])
    state = cp.Parameter(3, name="state", value=start)
    rows = [x[:, 0] == state, x[:, 1:] == A @ x[:, :-1] + B @ u]
    rows += [cp.norm_inf(u[:, t]) <= 0.2 * unit for t in range(6)]
    goal = cost * (cp.sum_squares(x[:, 1:]) + 0.1 * cp.sum_squares(u))
    return of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)), start


def same(hot: of.Solution, cold: of.Solution, tolerance: float = 1e-6) -> None:
    """Two solutions of one problem say the same."""
    size = max(1e-300, abs(cold.objective))
    assert abs(hot.objective - cold.objective) <= tolerance * size
    assert hot.grade == cold.grade and hot.status.primal == "feasible"
    assert list(hot.values) == list(cold.values) and set(hot.multipliers) == set(cold.multipliers)
    assert hot.is_optimal(1e-7)
    assert hot.bound <= hot.objective + 1e-9 * size or hot.problem.sense == "maximize"


@pytest.mark.parametrize(("unit", "cost"), [(1.0, 1.0), (1e-3, 1e6), (1e6, 1e-6), (1e6, 1e-12)])
def test_a_sequence_is_solved_as_by_the_general_route(unit: float, cost: float) -> None:
    """In any units: what the general route finds in good ones, times the units."""
    p, _ = regulator(unit, cost)
    plain, state = regulator()
    rng, kept, price = np.random.default_rng(1), 0, cost * unit
    for _ in range(12):
        state = state + 0.1 * rng.standard_normal(3)
        hot = p.at(state=unit * state).solve()
        kept += hot.options.get("kept") == KEPT
        cold = plain.at(state=state).solve("clarabel")
        assert hot.objective == pytest.approx(price * unit * cold.objective, rel=1e-6)
        assert hot.grade == cold.grade and hot.is_optimal(1e-7)
        assert list(hot.values) == list(cold.values) and [*hot.multipliers] == [*cold.multipliers]
        for name in ("x", "u"):
            np.testing.assert_allclose(hot[name] / unit, cold[name], rtol=1e-4, atol=1e-5)
        for name, y in cold.multipliers.items():
            np.testing.assert_allclose(hot.multipliers[name] / price, y, rtol=1e-3, atol=1e-4)
    assert kept >= 8


def test_the_answer_travels_and_every_tampered_entry_is_noticed() -> None:
    p, start = regulator()
    p.at(state=start).solve()
    s = p.at(state=1.01 * start).solve()
    assert s.options["kept"] == KEPT and "bound" not in s.__dict__
    t = pickle.loads(pickle.dumps(s))
    assert t.bound == s.bound and t.is_optimal(1e-7) and s.gap < 1e-9
    assert sum(s.seconds.values()) > 0.0
    values = {k: np.array(v) for k, v in s.values.items()}
    values["u"][0, 0] += 1e-4
    bad = of.Solution(**{**{k: getattr(s, k) for k in s.__dataclass_fields__}, "values": values})
    assert not bad.is_optimal(1e-7)


def test_costs_move_and_products_with_parameters_go_the_general_way() -> None:
    rng = np.random.default_rng(3)
    w = cp.Variable(6, name="w")
    gains = cp.Parameter(6, name="gains", value=rng.random(6))
    row = cp.Parameter(6, name="row", value=np.ones(6))
    risk = rng.standard_normal((8, 6))
    goal = cp.sum_squares(risk @ w) - gains @ w
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(goal), [cp.sum(w) == 1, w >= 0, row @ w <= 3.0]),
        ["budget", "sign", "cap"],
    )
    kept = []
    for k in range(10):
        at: dict[str, Any] = {"gains": rng.random(6) * (1.0 + k)}
        if k in (4, 5):
            at["row"] = 1.0 + rng.random(6)  # another matrix
        q = p.at(at)
        hot = q.solve()
        kept.append(hot.options.get("kept") == KEPT)
        same(hot, q.solve("clarabel"))
    assert not any(kept[4:6]) and sum(kept) >= 5


def test_degenerate_sets() -> None:
    """Rows twice over, a column without cost, and optima where many rows meet."""
    x, t = cp.Variable(3, name="x"), cp.Variable(name="t")
    to = cp.Parameter(3, name="to", value=np.array([0.5, 0.5, 0.5]))
    rows = [x <= 1, x <= 1, cp.sum(x) <= 3, cp.abs(x) <= t, t <= 5, x[0] + x[1] <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - to)), rows))
    found = []
    for target in ([0.5, 0.5, 0.5], [2, 2, 2], [1, 1, 1], [2, 1, -7], [1, 2, -3], [9, 9, 9.0]):
        q = p.at(to=np.array(target, dtype=float))
        hot = q.solve()
        found.append(hot.options.get("kept") == KEPT)
        cold = q.solve("clarabel")
        assert abs(hot.objective - cold.objective) <= 1e-7 * max(1.0, cold.objective)
        assert hot.is_optimal(1e-7) and hot.grade == cold.grade
    assert any(found)


def test_steps_without_a_point_have_a_certificate_and_the_next_is_solved() -> None:
    x = cp.Variable(2, name="x")
    need = cp.Parameter(name="need", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= need, x <= 1]))
    for k in range(MISSES + 2):
        assert p.at(need=1.0 + 0.01 * k).solve().is_optimal(1e-8)
        with pytest.raises(Infeasible) as e:
            p.at(need=3.0).solve()
        assert e.value.certificate is not None and e.value.certificate.verify()
    s = p.at(need=1.5).solve()
    assert s.objective == pytest.approx(1.125) and s.options["kept"] == KEPT


def test_what_is_asked_for_goes_the_general_way() -> None:
    p, start = regulator()
    p.at(state=start).solve()
    q = p.at(state=1.1 * start)
    for more in ({"solver": "clarabel"}, {"options": {"max_iter": 99}}, {"isolate": True}):
        asked: dict[str, Any] = dict(more)
        assert q.solve(**asked).options.get("kept") != KEPT
    assert q.solve(tolerance=1e-9).options["kept"] == KEPT
    # a value that was changed outside is said, not solved
    leaf = p.parameters["state"].leaf
    leaf.value = 2.0 * start
    with pytest.raises(of.errors.DeclarationError, match="state"):
        p.solve()


def test_an_active_set_that_never_settles_is_given_up() -> None:
    """Rows that exclude each other have no active set; nothing is returned."""
    A = sp.csc_array([[1.0], [-1.0]])
    cones = (Cone("nonneg", 0, 2),)
    form = ConicForm(sp.csc_array([[1.0]]), np.zeros(1), 0.0, A, np.array([1.0, 1.0]), cones)
    active = ActiveSet(form)
    active.start(form, np.zeros(1), np.zeros(2))
    assert active.solve(form) is not None
    assert active.solve(form.moved({"b": np.array([-1.0, -1.0])})) is None
    found = active.solve(form.moved({"b": np.array([-0.5, 1.0])}))
    assert found is not None and found[0][0] == pytest.approx(-0.5)
    assert found[1] == pytest.approx([0.5, 0.0])


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_linear_programs_keep_their_model_in_any_units(unit: float) -> None:
    """Right-hand sides and costs move; steps without a point have their certificate."""
    rng = np.random.default_rng(5)
    A, cost = rng.random((12, 6)), cp.Parameter(6, name="cost", value=np.ones(6))
    b = cp.Parameter(12, name="b", value=unit * A.sum(axis=1))
    x = cp.Variable(6, name="x")
    rows = [A @ x >= b, x >= 0, cp.max(x) <= 4 * unit]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost @ x), rows), ["need", "sign", "cap"])
    kept = 0
    for k in range(12):
        factor = 20.0 if k % 5 == 4 else 1.0 + 0.3 * rng.random()
        q = p.at(b=factor * unit * A.sum(axis=1), cost=0.1 + rng.random(6))
        if factor == 20.0:
            with pytest.raises(Infeasible) as e:
                q.solve()
            assert e.value.certificate is not None and e.value.certificate.verify()
            assert set(e.value.conflict) <= {"need", "sign", "cap"}
            continue
        hot, cold = q.solve(), q.solve("highs", options={"presolve": "off"})
        deferred = "_bound" in hot.__dict__
        kept += deferred
        assert hot.objective == pytest.approx(cold.objective, rel=1e-9, abs=1e-9 * unit)
        assert hot.grade == cold.grade and hot.is_optimal(1e-7)
        assert hot.options["iterations"] >= 0 and (not deferred or hot.options["kept"])
        for name, y in cold.multipliers.items():
            np.testing.assert_allclose(hot.multipliers[name], y, atol=1e-7)
    assert kept >= 4


def test_a_square_of_weight_zero_is_no_curvature() -> None:
    x, w = cp.Variable(3, name="x"), cp.Parameter(nonneg=True, name="w", value=1.0)
    goal = cp.Minimize(w * cp.sum_squares(x) + cp.sum(x))
    p = of.from_cvxpy(cp.Problem(goal, [x >= 1]), ["low"])
    for value in (0.0, 1.0, 0.0, 2.0, 0.0):
        s = p.at(w=value).solve()
        assert s.grade.word == "proved" and s.objective == pytest.approx(3.0 * value + 3.0)
    plain = of.from_cvxpy(cp.Problem(cp.Minimize(0.0 * cp.sum_squares(x) + cp.sum(x)), [x >= 1]))
    assert plain.solve().grade.word == "proved"
    assert p.at(w=0.0).solve(solver="clarabel").objective == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("row", "side", "size", "moves"),
    [
        # the only row is off by more than its own terms are worth, and by little beside 1
        (1e-4, 0.0, 1.0, ((0.0, True), (1e-4, True), (1e-3, False))),
        # a small right-hand side is the unit, however large the terms are
        (1.0, 1e-6, 1e-3, ((0.0, True), (1e-12, True), (1e-10, False))),
    ],
)
def test_a_kept_point_is_held_to_the_rows_in_their_units(
    row: float, side: float, size: float, moves: tuple[tuple[float, bool], ...]
) -> None:
    x, to = cp.Variable(2, name="x"), cp.Parameter(2, name="to", value=[size + side, size])
    goal = cp.Minimize(cp.quad_form(x, np.eye(2)) - 2 * to @ x)
    p = of.from_cvxpy(cp.Problem(goal, [row * (x[0] - x[1]) == row * side]))
    for k in range(3):
        q = p.at(to=size * (1.0 + k / 4) + np.array([side, 0.0]))
        s = q.solve()
    assert s.options.get("kept") == KEPT
    last = next(ended[KEPT] for ended in _kept(q).values() if KEPT in ended)
    request = Request(tolerance=1e-6)
    point, prices, compiled = s.proof.x, s.proof.z, s.proof.compiled
    for move, held in moves:
        off = point + np.array([move, 0.0])
        assert (last._verified(q, compiled, off, prices, request) is not None) == held
    # an objective that is off by more than its own size is worth is refused too
    along = point + 2e-2 * size
    assert last._verified(q, compiled, along, prices, request) is None
