"""Units change nothing: variables, rows and objective in units of 1e-6 and 1e6, and mixed."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_the_same_in_any_units(model: Callable[..., Parts], seed: int) -> None:
    own = stated(model, seed, 1.0, 1.0, 1.0).solve()
    assert own.grade.sound and own.is_optimal(1e-7)
    for name, (unit, row, cost) in UNITS.items():
        s = stated(model, seed, unit, row, cost).solve()
        size = max(1.0, abs(own.objective))
        assert abs(s.objective / cost - own.objective) <= 1e-5 * size, name
        assert s.grade.sound and s.is_optimal(1e-7), (name, s.grade)
