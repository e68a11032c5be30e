"""Units change nothing: variables, rows and objective in units of 1e-6 and 1e6, and mixed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import NDArray

import optfair as of

Floats = NDArray[np.float64]
N = 5
Parts = tuple[Any, list[Any]]


def linear(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return np.abs(c) @ x, [np.abs(A) @ x >= b, x >= 0]


def equalities(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return c @ x, [A[:2] @ x == A[:2] @ np.ones(N), x >= 0, x <= 3]


def absolute(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.norm1(A @ x - b), [cp.norm_inf(x) <= 2]


def largest(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.max(A @ x - b), [cp.sum(x) == 1, x >= -1]


def squares(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.sum_squares(A @ x - b), [x >= 0]


def portfolio(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.quad_form(x, cp.psd_wrap(A.T @ A + 0.1 * np.eye(N))) - c @ x, [cp.sum(x) == 1, x >= 0]


def norm(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.norm(A @ x - b), [cp.sum(x) == 1]


def ball(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return c @ x, [cp.norm(A[:N] @ x - b[:N]) <= 2]


def ratio(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.quad_over_lin(A[:, 1:] @ x[1:] - b, x[0]) + x[0], [x[0] >= 0.1]


def robust(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.sum(cp.huber(A @ x - b)), [cp.sum(x) <= 1]


def mean(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return -cp.geo_mean(x), [np.abs(A) @ x <= 10]


def exponential(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.log_sum_exp(A @ x - b), [cp.norm(x) <= 2]


def entropy(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return -cp.sum(cp.entr(x)) + c @ x, [cp.sum(x) == 1]


def logistic(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return cp.sum(cp.logistic(A @ x)) - b @ (A @ x) * 0.2 + cp.sum_squares(x), [x <= 5]


def eigenvalue(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    S = sum(x[i] * (np.outer(A[i], A[i + 1]) + np.outer(A[i + 1], A[i])) for i in range(N))
    return cp.lambda_max(S + np.diag(np.arange(1.0, N + 1))), [cp.sum(x) == 1, cp.abs(x) <= 2]


def semidefinite(x: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return np.abs(c) @ x, [cp.diag(x) - A[:N] @ A[:N].T / 4.0 >> 0]


MODELS: list[Callable[..., Parts]] = [
    *(linear, equalities, absolute, largest, squares, portfolio, norm, ball, ratio, robust),
    *(mean, exponential, entropy, logistic, eigenvalue, semidefinite),
]
UNITS = {
    "variables 1e-6": (1e-6, 1.0, 1.0),
    "variables 1e6": (1e6, 1.0, 1.0),
    "rows 1e-6": (1.0, 1e-6, 1.0),
    "rows 1e6": (1.0, 1e6, 1.0),
    "objective 1e-6": (1.0, 1.0, 1e-6),
    "objective 1e6": (1.0, 1.0, 1e6),
    "mixed": (10.0 ** np.linspace(-6, 6, N), 1e3, 1e-3),
}


def stated(model: Callable[..., Parts], seed: int, unit: Any, row: float, cost: float) -> Any:
    """Return a problem with its variables in some unit, its rows and its objective times others."""
    rng = np.random.default_rng(seed)
    A, b, c = rng.normal(size=(8, N)), rng.normal(size=8), rng.normal(size=N)
    y = cp.Variable(N, name="y")
    goal, rules = model(cp.multiply(1.0 / np.broadcast_to(unit, N), y), A, b, c)
    scaled = [type(r)(*(row * arg for arg in r.args)) for r in rules]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cost * goal), scaled))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_the_optimum_is_the_same_in_any_units(model: Callable[..., Parts], seed: int) -> None:
    own = stated(model, seed, 1.0, 1.0, 1.0).solve()
    assert own.grade.sound and own.is_optimal(1e-7)
    for name, (unit, row, cost) in UNITS.items():
        s = stated(model, seed, unit, row, cost).solve()
        size = max(1.0, abs(own.objective))
        assert abs(s.objective / cost - own.objective) <= 1e-5 * size, name
        assert s.grade.sound and s.is_optimal(1e-7), (name, s.grade)


def products(x: Any, whole: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return x[0] * x[1] - 2 * cp.square(x[2]) + c[:3] @ x, [x <= 2, x >= -1, A[0, :3] @ x <= 1]


def bent(x: Any, whole: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    return c[:3] @ x, [x[0] * x[1] <= 0.5, cp.sum_squares(x) >= 1, cp.abs(x) <= 2]


def switched(x: Any, whole: Any, A: Floats, b: Floats, c: Floats) -> Parts:
    rules = [x <= 2 * whole, x >= -whole, cp.sum(whole) <= 2]
    return x[0] * x[1] + cp.square(x[1]) - cp.square(x[2]) + c[:3] @ x, rules


@pytest.mark.parametrize("model", [products, bent, switched], ids=lambda m: m.__name__)
def test_branch_and_bound_finds_the_same_optimum_in_any_units(model: Callable[..., Parts]) -> None:
    """No search of its numbers as they stand ends: rows are held and gaps counted in one unit."""
    rng = np.random.default_rng(7)
    A, b, c = rng.normal(size=(8, N)), rng.normal(size=8), rng.normal(size=N)
    optima = []
    for unit, row, cost in (
        (np.ones(3), 1.0, 1.0),
        (np.full(3, 1e6), 1e-6, 1e6),
        (np.array([1e-6, 1e2, 1e5]), 1e5, 1e-6),
    ):
        y, whole = cp.Variable(3, name="y"), cp.Variable(3, boolean=True, name="whole")
        goal, rules = model(cp.multiply(1.0 / unit, y), whole, A, b, c)
        scaled = [type(r)(*(row * arg for arg in r.args)) for r in rules]
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cost * goal), scaled))
        assert not p.problem_class.convex
        s = p.solve(tolerance=1e-6)
        assert s.gap <= 1e-6
        optima.append(s.objective / cost)
    assert np.ptp(optima) <= 2e-6 * abs(optima[0])


# --- every model of the library ------------------------------------------------------------------

INSTANCES = [n for n in of.library.names() if of.library.load(n).optimum is not None]
QUICK = (
    *("textbook/diet", "textbook/triangle_ball", "action_plan/two_rows"),
    *("textbook/cobb_douglas", "fair_clustering/german_bound_plain"),
)
SCALES = {
    "columns": (1.0, 0.0, 0.0),
    "rows": (0.0, 1.0, 0.0),
    "objective": (0.0, 0.0, 1.0),
    "all": (-1.0, 1.0, -1.0),
}


def cases() -> list[Any]:
    """Return every instance in every other unit, the quick ones in each run of the tests."""
    return [
        pytest.param(name, way, marks=[] if name in QUICK else [pytest.mark.slow])
        for name, way in itertools.product(INSTANCES, SCALES)
    ]


@cache
def as_declared(name: str) -> Any:
    return restated(of.library.load(name).problem(), 1.0, 1.0, 1.0).solve(tolerance=1e-6)


def restated(p: Any, column: float, row: float, cost: float) -> Any:
    """Return a problem whose continuous variables, rows and objective are in other units.

    Every second variable gets the inverse unit, as do every second row and its multiplier.
    """
    units, own = {}, p.cvxpy
    whole = {name.rpartition(".")[2] for name in p.integers}
    for k, (name, x) in enumerate(sorted((v.name(), v) for v in own.variables())):
        if name not in whole:
            y = cp.Variable(x.shape, name=name, **{k: v for k, v in x.attributes.items() if v})
            units[id(x)] = y / column ** (-1) ** k
    goal = own.objective.args[0].tree_copy(units)
    rows = [r.tree_copy(units) for r in own.constraints]
    for k, r in enumerate(rows):
        rows[k] = r.copy([row ** (-1) ** k * arg for arg in r.args])
    sense = cp.Minimize if p.sense == "minimize" else cp.Maximize
    return of.from_cvxpy(cp.Problem(sense(cost * goal), rows)).with_integrality(*whole)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "way"), cases())
def test_models_of_the_library_mean_the_same_in_any_units(name: str, way: str) -> None:
    own = as_declared(name)
    column, row, cost = (1e6**power for power in SCALES[way])
    s = restated(of.library.load(name).problem(), column, row, cost).solve(tolerance=1e-6)
    size = max(own.problem.objective_unit, abs(own.objective))
    assert abs(s.objective / cost - own.objective) <= 1e-5 * size
    assert s.grade.sound or not own.grade.sound, (s.grade, own.grade)
