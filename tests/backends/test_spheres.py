"""Semidefinite programs on spheres, against the interior-point method."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import spheres
from optfair.backends.blocks_backend import Beside
from optfair.backends.spheres import Spheres
from optfair.compile.form import compile_problem
from optfair.numbers import Floats

NAME = "psd-blocks"


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spheres, "LINES", 1)


def costs(n: int, seed: int = 0) -> Floats:
    """Return a symmetric matrix, most of it 0."""
    rng = np.random.default_rng(seed)
    C = np.triu(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4))
    return np.asarray(C + C.T)


def read(problem: cp.Problem) -> Spheres | None:
    form = compile_problem(of.from_cvxpy(problem), "CLARABEL").form
    stated = form if (beside := Beside.of(form)) is None else beside.form
    return Spheres.of(stated.q, stated.A, stated.b, stated.cones)


def gram(unit: float = 1.0) -> cp.Problem:
    """One sphere for each line, of several radii."""
    X = cp.Variable((9, 9), name="X", PSD=True)
    radii = unit * np.linspace(0.5, 3.0, 9)
    return cp.Problem(cp.Maximize(cp.trace(costs(9) @ X) / unit), [cp.diag(X) == radii])


def shares() -> cp.Problem:
    """Points on the spheres may be inside: half-lines take the rest."""
    X = cp.Variable((8, 8), name="X", PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(costs(8) @ X)), [cp.diag(X) <= np.arange(1.0, 9.0)])


def largest_eigenvalue(unit: float = 1.0) -> cp.Problem:
    """All lines on one sphere."""
    t = cp.Variable(name="t")
    return cp.Problem(cp.Minimize(t), [t * np.eye(7) - unit * costs(7) >> 0])


def blocks() -> cp.Problem:
    """Two blocks whose lines share spheres, and a bound on one column."""
    y = cp.Variable(5, name="y")
    first, second = cp.diag(y) - costs(5, 1), cp.diag(2.0 * y) - costs(5, 2)
    return cp.Problem(cp.Minimize(np.arange(1.0, 6.0) @ y), [first >> 0, second >> 0, y[2] >= 3.0])


@pytest.mark.parametrize(
    "problem",
    [
        gram(),
        gram(1e6),
        gram(1e-6),
        shares(),
        largest_eigenvalue(),
        largest_eigenvalue(1e6),
        blocks(),
    ],
    ids=["gram", "large", "small", "shares", "eigenvalue", "large eigenvalue", "blocks"],
)
def test_the_optimum_is_that_of_the_interior_point_method(
    problem: cp.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(problem) is not None
    ours = of.solve(of.from_cvxpy(problem), solver=NAME)
    assert ours.is_optimal(1e-7) and ours.grade.word == "proved"
    monkeypatch.setattr(spheres, "LINES", 10**9)
    assert read(problem) is None
    theirs = of.solve(of.from_cvxpy(problem), solver=NAME)
    assert ours.objective == pytest.approx(theirs.objective, rel=2e-7)


def test_a_column_is_worth_the_radius_of_its_sphere() -> None:
    radii = {gram(1e6): 1e6 * np.linspace(0.5, 3.0, 9), blocks(): np.arange(1.0, 6.0)}
    for problem, own in radii.items():
        program = read(problem)
        assert program is not None and np.allclose(np.abs(program.worth) * own, 1.0)


def test_the_largest_eigenvalue_is_that_of_lapack() -> None:
    s = of.solve(of.from_cvxpy(largest_eigenvalue()), solver=NAME)
    assert s.objective == pytest.approx(np.linalg.eigvalsh(costs(7))[-1], rel=1e-7)


def test_more_columns_lead_out_of_a_minimum_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """On spheres of one dimension, points, nothing can move."""
    program = read(gram())
    assert program is not None
    monkeypatch.setattr(spheres, "FEW", 0.0)
    pairs = list(program.pairs(1e-7, np.inf))
    values = [float((x / program.worth).sum()) for x, _ in pairs]
    full = [float((x / program.worth).sum()) for x, _ in read(gram()).pairs(1e-7, np.inf)]
    assert values[0] > full[-1] + 1e-3 * abs(full[-1])
    assert values[-1] == pytest.approx(full[-1], rel=1e-7)


def test_no_time_is_one_try() -> None:
    program = read(gram())
    assert program is not None
    lines: list[str] = []
    (pair,) = program.pairs(1e-7, -np.inf, lines.append)
    x, z = pair
    assert np.isfinite(x).all() and np.isfinite(z).all() and len(lines) == 1


@pytest.mark.parametrize(
    "which", ["free line", "other entry", "wrong sign", "two columns", "equation"]
)
def test_other_programs_are_not_taken_for_one(which: str) -> None:
    n = 4
    y, C = cp.Variable(n, name="y"), costs(n)
    u = cp.Variable(name="u")
    terms = {
        "free line": [cp.diag(cp.hstack([y[:3], 1.0])) - C >> 0, y[3] >= 1],
        "other entry": [cp.diag(y) + y[0] * np.ones((n, n)) - C >> 0],
        "wrong sign": [cp.diag(cp.hstack([y[:3], -y[2]])) - C >> 0, y[3] >= 1],
        "two columns": [cp.diag(y) - C >> 0, u + y[0] >= 1],
        "equation": [cp.diag(y) - C >> 0, y[0] == y[1]],
    }
    assert read(cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(y) - C >> 0])) is not None
    assert read(cp.Problem(cp.Minimize(cp.sum(y) + u), terms[which])) is None


def test_a_program_without_an_optimum_is_none_of_points_on_spheres() -> None:
    y = cp.Variable(3, name="y")
    with pytest.raises(of.Unbounded):
        of.solve(of.from_cvxpy(cp.Problem(cp.Minimize(-cp.sum(y)), [cp.diag(y) >> costs(3)])), NAME)


@pytest.mark.parametrize("problem", [gram(), shares(), blocks()], ids=["gram", "shares", "blocks"])
def test_what_a_deadline_leaves_is_feasible(problem: cp.Problem) -> None:
    form = compile_problem(of.from_cvxpy(problem), "CLARABEL").form
    beside = Beside.of(form)
    stated = form if beside is None else beside.form
    points = Spheres.of(stated.q, stated.A, stated.b, stated.cones)
    assert points is not None
    (pair,) = points.pairs(1e-7, deadline=-1.0)
    x, z = pair if beside is None else beside.back(*pair)
    left = form.residuals(x, z)
    assert left.primal <= 1e-12 and left.dual <= 1e-12
    assert left.bound < left.objective - 1e-3
    ended = of.solve(of.from_cvxpy(problem), solver=NAME).objective * form.sign
    assert left.bound <= ended + 1e-6 and ended <= left.objective + 1e-6
