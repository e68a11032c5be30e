"""Convex programs with integers by outer approximation, against enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import conic_backend
from optfair.backends.case_search import CaseSearch
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.transforms.relaxation import relaxed

n, m = (cp.Variable(name=k, integer=True) for k in "nm")
x, y = cp.Variable(name="x"), cp.Variable(name="y")
lam = np.array([0.5, 1.2, 2.1, 0.7])
v = cp.Variable(4, integer=True, name="v")

K, J = np.meshgrid(np.arange(9.0), np.arange(9.0), indexing="ij")
FINE = np.linspace(0.0, 5.0, 50_001)


def _exponential() -> float:
    return min((np.exp(FINE - k) + k * k / 10 + (FINE - 2.3) ** 2).min() for k in range(7))


def _beyond() -> float:
    inside = FINE[FINE >= 0.4]
    return min((np.exp(k) - k * k / 2 - 3 * k + (inside - k) ** 2).min() for k in range(4))


def _row() -> float:
    t = FINE[FINE <= 4.0][:, None, None]
    held = np.exp(-t) + 1 / (1 + K) + t * t / (J + 1) <= 0.9
    return float(np.where(held, 2 * K + J + t, np.inf).min())


def _servers() -> float:
    points = np.array(list(itertools.product(range(1, 7), repeat=4)), dtype=float)
    points = points[(points.sum(axis=1) <= 10) & (points >= lam + 0.1).all(axis=1)]
    return float((lam / (points - lam)).sum(axis=1).min())


PROGRAMS: dict[str, tuple[Any, list[Any], Callable[[], float]]] = {
    "exponential": (
        cp.exp(x - n) + n * n / 10 + cp.square(x - 2.3),
        [n >= 0, n <= 6, x >= 0, x <= 5],
        _exponential,
    ),
    "beyond composition rules": (
        cp.exp(n) - n * n / 2 - 3 * n + cp.square(y - n),
        [n >= 0, n <= 3, y >= 0.4, y <= 5],
        _beyond,
    ),
    "curved row": (
        2 * n + m + x,
        [
            cp.exp(-x) + 1 / (1 + n) + x * x / (m + 1) <= 0.9,
            *(n >= 0, n <= 8, m >= 0, m <= 8, x >= 0, x <= 4),
        ],
        _row,
    ),
    "servers": (
        cp.sum(cp.multiply(lam, 1 / (v - lam))),
        [cp.sum(v) <= 10, v >= lam + 0.1, v <= 6],
        _servers,
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n == "curved row" else n for n in PROGRAMS],
)
def test_the_optimum_is_that_of_enumeration(name: str) -> None:
    goal, rows, enumerated = PROGRAMS[name]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))
    assert p.problem_class.integer and p.problem_class.convex
    truth, first = enumerated(), p.solve()
    if name != "beyond composition rules":  # others go to cones
        assert first.solver == "cone-cases" and first.grade.word == "proved"
    assert first.objective == pytest.approx(truth, abs=3e-4) and first.bound <= truth + 1e-9
    s = p.solve("tangents")
    assert s.grade.word == "reported"
    assert s.objective == pytest.approx(truth, abs=3e-4) and s.objective <= truth + 1e-9
    assert all(np.array_equal(s.values[k], np.round(s.values[k])) for k in p.integers)
    closed = s.certificate.prove()
    assert closed.verify() and closed.solution.grade.word == "proved"
    assert closed.solution.bound <= truth + 1e-9


def test_integers_without_a_point_are_infeasible() -> None:
    rows = [cp.exp(n) + n * n <= 6, n >= 1.2, n <= 4]
    with pytest.raises((of.Infeasible, of.SolverFailure)):
        of.from_cvxpy(cp.Problem(cp.Minimize(n), rows)).solve()


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-7])
def test_exponentials_of_integers_are_cut_until_bound_and_value_meet(tolerance: float) -> None:
    x = cp.Variable(3, integer=True, name="x")
    grid = np.stack(np.meshgrid(*[np.arange(-5, 6)] * 3), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) >= 2]
    truth = float((np.exp(grid).sum(axis=1) - 3.0 * grid.sum(axis=1) + grid[:, 0]).min())
    cost = cp.sum(cp.exp(x)) - 3.0 * cp.sum(x) + x[0]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [x >= -5, x <= 5, cp.sum(x) >= 2])).solve(
        tolerance=tolerance
    )
    assert s.objective == pytest.approx(truth, rel=tolerance)
    assert s.bound <= truth * (1 + 1e-9) and s["x"].tolist() == [1.0, 1.0, 1.0]


def test_ranges_of_rows_that_are_convex_bound_integers_for_tangents() -> None:
    x, A = cp.Variable(2, integer=True, name="x"), np.random.default_rng(0).normal(size=(10, 2))
    grid = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 2), axis=-1).reshape(-1, 2)
    truth = float(np.logaddexp(0.0, grid @ A.T - 1.0).sum(axis=1).min())
    cost = cp.sum(cp.logistic(A @ x - 1.0))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [cp.abs(x) <= 3])).solve()
    assert s.objective == pytest.approx(truth, rel=1e-6) and s.bound <= truth * (1 + 1e-9)


UNITS = [1e-3, 1.0, 1e3]


def _cone_rows(z: Any) -> dict[str, tuple[Any, list[Any], float]]:
    """Return objectives of two integers without a box, where they have their optimum, and it."""
    shifted = cp.diag(z) + 0.5 * np.eye(2)
    one = cp.Constant(1.0)
    kl = min(
        a * np.log(a / 1.5) - a + 1.5 + b * np.log(b / 2.2) - b + 2.2
        for a in range(1, 9)
        for b in range(1, 9)
    )
    return {
        "log_sum_exp": (-cp.log_sum_exp(z), [cp.sum(z) >= 3], -np.log(np.e + np.e**2)),
        "xexp": (3 * cp.sum(z) - cp.sum(cp.xexp(z)), [z >= 0], 6 - 2 * np.e),
        "logistic": (
            0.3 * cp.sum(z) - cp.sum(cp.logistic(z)),
            [],
            -0.6 - 2 * np.log1p(np.exp(-1.0)),
        ),
        "kl_div": (-cp.sum(cp.kl_div(z, np.array([1.5, 2.2]))), [], -kl),
        "log_det": (cp.log_det(shifted), [cp.sum(z) <= 3], np.log(3.75)),
        "log_det in a box": (cp.log_det(shifted), [cp.sum(z) <= 3, z >= 0, z <= 3], np.log(3.75)),
        "ExpCone": (z[1], [cp.ExpCone(z[1], one, z[0]), z[0] <= 5], 1.0),
        "PowCone3D": (z[1], [cp.PowCone3D(z[0], 3 * one, z[1], 0.5), z[0] <= 6], 4.0),
        "a matrix": (
            -cp.sum(z),
            [cp.bmat([[z[0], 2.5 * one], [2.5 * one, z[1]]]) >> 0, z[0] <= 2],
            -6.0,
        ),
    }


@pytest.mark.parametrize("name", _cone_rows(v[:2]))
@pytest.mark.parametrize("unit", UNITS)
def test_cones_of_integers_without_a_box(name: str, unit: float) -> None:
    z = cp.Variable(2, integer=True, name="z")
    goal, rows, best = _cone_rows(z)[name]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(unit * goal), rows)).solve()
    assert s.status.termination == "optimal" and s.objective == pytest.approx(unit * best, rel=1e-7)
    assert s.bound >= unit * best * (1.0 - 1e-9 * np.sign(best))
    assert s.solver == "tangents" or s.grade.sound


@pytest.mark.parametrize("unit", UNITS)
def test_integers_in_other_units_beside_an_exponential_cone(unit: float) -> None:
    z, t = cp.Variable(2, integer=True, name="z"), cp.Variable(name="t")
    rows = [cp.ExpCone(z[0] - 1.3, cp.Constant(1.0), t / unit), z[0] + 2 * z[1] >= 5, z[1] <= 1.7]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(t - 0.5 * unit * z[1]), rows)).solve()
    assert s.objective == pytest.approx(unit * (np.exp(3 - 1.3) - 0.5), rel=1e-6)
    assert s.grade.word == "proved" and s["z"].tolist() == [3.0, 1.0]


def test_no_integer_in_a_cone_is_proved_and_so_is_that_there_is_no_limit() -> None:
    z = cp.Variable(2, integer=True, name="z")
    cone = cp.ExpCone(z[0], cp.Constant(1.0), z[1])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), [cone, z[1] <= 2.6, z[0] >= 0.2]))
    with pytest.raises(of.Infeasible, match="no integer point") as none:
        p.solve()
    assert none.value.certificate is not None and none.value.certificate.verify()
    free = of.from_cvxpy(cp.Problem(cp.Maximize(z[1]), [cone]))
    with pytest.raises(of.Unbounded, match="improves without limit") as far:
        free.solve()
    assert far.value.certificate is not None and far.value.certificate.verify()


@pytest.mark.parametrize("stop", ["time_limit", "interrupted"])
def test_what_ends_a_tree_leaves_its_point_and_a_bound(
    stop: str, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = conic_backend._first_point

    def then(search: CaseSearch) -> bool:
        met = first(search)
        if stop == "time_limit":
            later(1e4)
        else:
            monkeypatch.setattr(search, "closed_below", interrupted)
        return met

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conic_backend, "_first_point", then)
    z = cp.Variable(2, integer=True, name="z")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.log_sum_exp(z)), [cp.sum(z) >= 3]))
    s = p.solve("cone-cases", time_limit=60)
    assert s.status.termination == stop and s.objective == pytest.approx(np.log(np.e + np.e**2))
    assert s.bound == pytest.approx(np.log(2) + 1.5, rel=1e-6)  # of the relaxation


def test_a_cone_without_any_integer_point_ends_the_search_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z = cp.Variable(name="z", integer=True)
    inside = cp.Problem(cp.Minimize(z), [cp.exp(z) <= 1.9, z >= 0.2])
    p = of.from_cvxpy(inside)
    compiled = compile_problem(relaxed(p), conic_interface())
    search = CaseSearch(p, compiled, 1e-7, np.inf)
    assert not conic_backend._first_point(search) and not search.x.size
    monkeypatch.setattr(conic_backend, "CASES", 1)
    with pytest.raises(of.SolverFailure, match="no case that was looked at has a point"):
        conic_backend._first_point(search)


def test_a_tree_of_exponential_cones_is_not_written(tmp_path: Path) -> None:
    z = cp.Variable(name="z", integer=True)
    rows = [cp.ExpCone(z, cp.Constant(1.0), cp.Constant(5.0))]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(z), rows)).solve()
    assert s.objective == 1.0 and s.certificate.verify()
    with pytest.raises(of.UnsupportedProblem, match="exponential and power cones"):
        s.certificate.save(tmp_path / "proof.json")
