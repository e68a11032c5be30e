"""Fronts: what is proved of the points and between them, against points drawn from the set."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.problem import Problem
from optfair.sweeps import ParetoFront
from optfair.sweeps.pareto_front import FrontPoint


def linear() -> tuple[Any, dict[str, Any], Any]:
    """Return a problem, two objectives, and points of its set."""
    rng = np.random.default_rng(3)
    x, A, C = cp.Variable(5, name="x"), rng.random((6, 5)), rng.random((2, 5))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [A @ x >= 1, x >= 0, x <= 3]))
    drawn = 3.0 * rng.random((4000, 5))
    drawn = drawn[(drawn @ A.T >= 1.0).all(axis=1)]
    return p, {"a": C[0] @ x, "b": C[1] @ x}, drawn @ C.T


def curved() -> tuple[Any, dict[str, Any], Any]:
    rng = np.random.default_rng(3)
    x, mean, half = cp.Variable(4, name="x"), rng.random(4), rng.random((4, 4))
    cov = half @ half.T + 0.1 * np.eye(4)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 1, x >= 0]))
    drawn = rng.dirichlet(np.full(4, 0.7), 4000)
    risk = np.einsum("ni,ij,nj->n", drawn, cov, drawn)
    goals = {"risk": cp.quad_form(x, cov), "return": cp.Maximize(mean @ x)}
    return p, goals, np.column_stack([risk, drawn @ mean])


def whole() -> tuple[Any, dict[str, Any], Any]:
    rng = np.random.default_rng(3)
    x = cp.Variable(8, name="x", boolean=True)
    worth, weight = rng.integers(1, 20, (2, 8)).astype(float), rng.integers(1, 9, 8)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [weight @ x <= 20]))
    every = np.array(np.meshgrid(*[[0, 1]] * 8)).reshape(8, -1).T
    every = every[every @ weight <= 20]
    return p, {n: cp.Maximize(w @ x) for n, w in zip("uv", worth, strict=True)}, every @ worth.T


@pytest.mark.parametrize("method", ["weighted", "epsilon", "lexicographic"])
@pytest.mark.parametrize("make", [linear, curved, whole])
def test_no_point_of_the_set_is_better_than_what_is_said(make: Any, method: str) -> None:
    p, goals, drawn = make()
    front = of.pareto(p, goals, method=method, points=8)
    signs, drawn = np.array(front.senses), drawn * front.senses
    assert front.grade == ("reported" if p.integers else "proved")
    for q in front:
        assert q.within <= 1e-6
        better = (np.array(q.values) * signs - drawn) / front.ranges
        assert better.min(axis=1).max() <= q.within + 1e-6
    # in the order of the first objective, none dominates another
    values = front.values * signs
    assert (np.diff(values[:, 0]) >= 0).all() and (np.diff(values[:, 1]) <= 1e-6).all()
    if method == "lexicographic":
        assert len(front) == 1
        assert values[0, 0] <= drawn[:, 0].min() + 2e-4
        return
    for level in np.linspace(values[:, 1].min(), values[:, 1].max(), 9):
        low, high = sorted(signs[0] * np.array(front.band(signs[1] * level)))
        assert low <= high + 1e-7
        feasible = drawn[drawn[:, 1] <= level]
        assert low <= feasible[:, 0].min(initial=np.inf) + 1e-9


def test_weights_find_every_corner_of_a_linear_front() -> None:
    x = cp.Variable(2, name="x")
    corners = [(0.0, 10.0), (1.0, 6.0), (3.0, 3.0), (6.0, 1.0), (10.0, 0.0)]
    rows = [x >= 0] + [
        (b[0] - a[0]) * (x[1] - a[1]) >= (b[1] - a[1]) * (x[0] - a[0])
        for a, b in itertools.pairwise(corners)
    ]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    front = of.pareto(p, {"first": x[0], "second": x[1]})
    np.testing.assert_allclose(front.values, corners, atol=1e-5)
    low, high = front.band(4.5)
    assert low == pytest.approx(2.0, abs=1e-5) and high == pytest.approx(2.0, abs=1e-5)


def test_levels_reach_what_no_weights_do() -> None:
    x = cp.Variable(3, name="x", boolean=True)
    # (0, 10), (6, 6), (10, 0): the middle lies above the chord
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 1]))
    goals = {"a": np.array([0.0, 6.0, 10.0]) @ x, "b": np.array([10.0, 6.0, 0.0]) @ x}
    assert len(of.pareto(p, goals)) == 2
    front = of.pareto(p, goals, method="epsilon", points=11)
    np.testing.assert_allclose(front.values, [(0, 10), (6, 6), (10, 0)], atol=1e-7)
    low, high = front.band(8.0)
    assert low <= 6.0 <= high + 1e-9


def test_three_objectives_and_terms_by_name() -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x[0])), [cp.sum(x) == 1, x >= 0]))
    goals = {"first": "objective", "second": cp.square(x[1]), "third": cp.square(x[2])}
    for method in ("weighted", "epsilon"):
        front = of.pareto(p, goals, method=method, points=10)
        assert front.grade == "proved" and max(q.within for q in front) <= 1e-6 and len(front) > 5
    with pytest.raises(of.DeclarationError, match="for two objectives"):
        front.band(0.1)


def test_a_model_of_its_own_and_its_rules() -> None:
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    p = of.FairAssignment(X[:60], groups=sex[:60], centers=X[:3], fairness=of.max_gap(0.2))
    first = p["masses"][0, 0] if "masses" in p.variables else p["assignment"][0, 0]
    goals = {"cost": next(iter(p.objective)), "share": first}
    front = of.pareto(p, goals, points=4)
    assert front.grade == "proved"
    # the cost alone is the problem's own optimum
    assert front.band(1.0)[0] == pytest.approx(p.solve().objective, abs=1e-5)


def test_what_does_not_trade_is_one_point_and_files_go_on(tmp_path: Path) -> None:
    p, goals, _ = linear()
    same = of.pareto(p, {"a": goals["a"], "again": 2.0 * goals["a"]})
    assert len(same) == 1 and same[0].within <= 1e-6
    file = tmp_path / "front.json"
    first = of.pareto(p, goals, method="epsilon", points=5, save=file)
    again = of.pareto(p, goals, method="epsilon", points=5, save=file)
    np.testing.assert_allclose(again.values, first.values)
    assert sum(q.solution is None for q in again) >= 3


@pytest.mark.parametrize("method", ["weighted", "epsilon"])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_the_tolerance_leaves_open_is_no_range(unit: float, method: str) -> None:
    x = cp.Variable(3, name="x")
    rows = [
        x <= 3 * unit,
        x >= -unit,
        np.array([[1.0, 0, -2], [2, 1, 2]]) @ x <= [2 * unit, 5 * unit],
    ]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    distance = cp.sum_squares(x - unit * np.array([-3.0, 3, -2]))
    goals = {"distance": distance, "height": cp.Maximize(2 * x[1])}
    front = of.pareto(p, goals, method=method, points=5)
    # (-1, 3, -1) is the optimum of both; what else was solved is worse in the distance alone
    np.testing.assert_allclose(front.values, [[5 * unit**2, 6 * unit]], rtol=1e-6)


def test_a_single_objective_that_is_not_convex() -> None:
    """Nothing is multiplied by a weight of 0: the concave distance and a cost, over a box."""
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [x >= 0, x <= 1]))
    front = of.pareto(p, {"far": -cp.sum_squares(x - 0.3), "cost": cp.sum(x)}, points=5)
    low, high = front.values.min(axis=0), front.values.max(axis=0)
    assert low == pytest.approx([-0.98, 0.0], abs=1e-6) and high[1] == pytest.approx(2.0, abs=1e-6)


def test_what_no_bound_is_near_is_not_called_proved() -> None:
    p, goals, _ = linear()
    front = of.pareto(p, goals, points=4)
    point = FrontPoint((1.0, 2.0), (), ())
    made = ParetoFront.of(
        p, front.names, front.senses, "weighted", [point], [], front.ranges, front.convex
    )
    assert made[0].within == np.inf and made[0].grade == "reported" == made.grade


def test_what_is_no_front_is_refused() -> None:
    p, goals, _ = linear()
    foreign = cp.Variable(name="theirs")
    for bad, cause in (
        ({"a": goals["a"]}, "1 objective"),
        (["nothing", "objective"], "no objective term 'nothing'"),
        ({"a": goals["a"], "b": 3.0}, "is a float"),
        ("objective", "objectives are a str"),
        ({"a": goals["a"], "b": cp.Constant(2.0)}, "depends on no variable"),
        ({"a": goals["a"], "b": foreign}, r"'b' uses variables of another problem: theirs"),
        ({"a": goals["a"], "b": foreign + goals["a"]}, "'b' uses variables of another problem"),
        ([goals["a"], goals["b"]], "has no name"),
    ):
        with pytest.raises(of.DeclarationError, match=cause):
            of.pareto(p, bad)
    for options, cause in (
        ({"method": "epsilonn"}, "unknown method"),
        ({"width": -1.0}, "width is -1.0"),
        ({"values": [[-1.0, 2.0]]}, "weights of the shape"),
        ({"values": [[1.0, 2.0]], "method": "epsilon"}, "levels of the shape"),
    ):
        with pytest.raises(of.OptfairError, match=cause):
            of.pareto(p, goals, **options)
    with pytest.raises(of.Unbounded):
        free = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.Variable(2, name="x") >= 0]))
        of.pareto(free, {"a": cp.sum(free["x"]), "b": -cp.sum(free["x"])})


def test_it_shows_itself() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    front = of.pareto(*curved()[:2], points=3, functions={"largest": lambda s: s["x"].max()})
    assert isinstance(front, ParetoFront)
    frame = front.frame()
    assert isinstance(frame, pd.DataFrame)
    assert {"risk", "return", "within", "largest"} <= set(frame.columns)
    assert front.plot().get_ylabel() == "return (more is better)"
    p, goals = curved()[:2]
    y = p["x"]
    goals |= {"least_$": cp.Maximize(cp.min(y)), "most": cp.max(y)}
    ax = of.pareto(p, goals, points=3).plot()
    assert ax.figure.axes[1].get_ylabel() == r"least_\$ (more is better)"
    assert "not drawn: most" in " ".join(t.get_text() for t in ax.texts)
    assert "<table>" in front._repr_html_() and "proved" in repr(front)


def test_processes_share_a_front(tmp_path: Path) -> None:
    p, goals, _ = curved()
    front = of.pareto(p, goals, points=4, n_jobs=2, save=tmp_path / "front.json")
    again = of.pareto(p, goals, points=4, n_jobs=2, save=tmp_path / "front.json")
    first, more = (set(map(tuple, f.values.tolist())) for f in (front, again))
    assert len(first) >= 5 and first < more  # it went on from there
    for weighted in (
        of.pareto(p, goals, values=[[1.0, 2.0], [2.0, 1.0]], n_jobs=n) for n in (1, 2)
    ):
        held = [q for q in weighted if q.weights in ((1.0, 2.0), (2.0, 1.0))]
        assert len(held) == 2 and max(q.within for q in held) <= 1e-6


@pytest.mark.parametrize("unit", [1e-10, 1e6])
def test_small_objectives_are_traded_as_large_ones_are(unit: float) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum_squares(x) <= 1, x >= -2]))
    goals = {"a": unit * x[0], "b": unit * x[1]}
    front = of.pareto(p, goals, width=0.02)
    assert len(front) > 5 and front.grade == "proved"
    assert np.linalg.norm(front.values / unit, axis=1) == pytest.approx(1.0, abs=1e-6)
    low, high = front.band(-0.6 * unit)
    assert low / unit <= -0.8 <= high / unit
    in_turn = of.pareto(p, goals, method="lexicographic")
    assert in_turn.values[0, 0] == pytest.approx(-unit, rel=1e-5)


def test_a_function_of_any_name_leaves_the_front_as_it_is() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum_squares(x) <= 1]))
    goals = {"a": x[0], "b": x[1]}
    odd = {"value of a": lambda s: 99.0}
    front = of.pareto(p, goals, method="epsilon", points=3, functions=odd)
    assert np.linalg.norm(front.values, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_a_front_goes_on_with_further_functions_and_names_of_columns(tmp_path: Path) -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [x >= 0, x <= 1]))
    goals = {"within": cp.square(x), "grade": cp.square(x - 1)}
    of.pareto(p, goals, points=3, save=tmp_path / "front.json")
    own = {"x": lambda s: float(s["x"])}
    front = of.pareto(p, goals, points=3, save=tmp_path / "front.json", functions=own)
    frame = front.frame()
    assert frame["within 2"].to_numpy() == pytest.approx(frame["x"] ** 2, abs=1e-9)
    assert frame["grade 2"].to_numpy() == pytest.approx((frame["x"] - 1) ** 2, abs=1e-9)
    assert frame["within"].max() < 1e-3 and set(frame["grade"]) == {"proved"}


@pytest.mark.parametrize("method", ["weighted", "epsilon"])
def test_ctrl_c_leaves_the_front_until_then(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 1, x >= 0]))
    goals = {"first": cp.square(x[0]), "second": cp.square(x[1])}
    whole = of.pareto(p, goals, method=method, points=9)
    solve, calls = Problem.solve, []

    def late(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(self)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return solve(self, *args, **options)

    monkeypatch.setattr(Problem, "solve", late)
    some = of.pareto(p, goals, method=method, points=9)
    assert len(calls) == 7 and 2 < len(some) < len(whole)
    at = [np.array(point.values) for point in whole.points]
    assert all(min(np.abs(v - point.values).max() for v in at) < 1e-6 for point in some.points)


def test_a_front_of_one_point() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [x >= 0, x <= 1]))
    front = of.pareto(p, {"a": -0.0 * x[0] + x[1], "b": x[0]}, points=3)
    assert len(front) == 1 and ": 1 point, " in repr(front) and "-0 " not in repr(front)


def test_an_objective_that_is_constant_beside_one_that_is_not_convex_is_no_range() -> None:
    """What a search leaves open of a row is no range that the other objective trades with."""
    w = cp.Variable(4, name="w", nonneg=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(w) == 1]), ["budget"])
    front = of.pareto(p, {"total": cp.sum(w), "spread": -cp.sum_squares(w)})
    assert [v.values for v in front.points] == [pytest.approx((1.0, -1.0), abs=1e-6)]
