"""Problems made to be answered wrongly: none is called optimal, infeasible or unbounded that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

x = cp.Variable(2, name="x")
k = cp.Variable(2, integer=True, name="k")
on = cp.Variable(boolean=True, name="on")
S = cp.Variable((2, 2), name="S", symmetric=True)
T = cp.Variable((3, 3), name="T", PSD=True)
NEAR = np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]])
ILL = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12]])
INFEASIBLE, UNBOUNDED = np.inf, -np.inf

# (goal, rows, least value); an infimum need not be attained
ATTACKS: dict[str, Callable[[], tuple[Any, list[Any], float]]] = {
    # numbers far apart
    "far apart": lambda: (1e-12 * x[0] - x[1], [1e12 * x[0] >= x[1], x[0] <= 1e-6, x >= 0], -1e6),
    "tiny entry": lambda: (x[1], [1e-9 * x[0] + x[1] >= 1, x[1] >= 0], 0.0),
    "cancels at 1e13": lambda: (x[0], [x[0] + 1e-13 * x[1] >= 1, x[1] <= 1e13, x >= 0], 0.0),
    "bound at 1e10": lambda: (x[0], [x[0] >= 1e-10 * x[1], x[1] >= 1e10 + 1e3], 1.0 + 1e-7),
    "optimum at 1e13": lambda: (-x[0], [1e-13 * x <= 1], -1e13),
    "optimum at 1e16": lambda: (-x[0], [1e-16 * x <= 1], -1e16),
    "chain": lambda: (-1e-9 * x[0], [1e-9 * x[0] <= x[1], 1e-9 * x[1] <= 1, x >= 0], -1e9),
    "constant": lambda: (1e12 + 1e-3 * x[0], [x >= 1, x <= 2], 1e12 + 1e-3),
    "tiny costs": lambda: (1e-20 * x[0], [x >= 1, x <= 2], 1e-20),
    "ill rows": lambda: (
        cp.sum_squares(x),
        [ILL @ x == np.array([1.0, 2.0])],
        2 / (ILL[1, 1] - 1) ** 2,
    ),
    # the edge of feasible and bounded
    "parallel": lambda: (-x[0], [x[0] <= x[1], x[1] <= 1e12 + x[0] * (1 - 1e-12)], -1e24),
    "infeasible by 1e-3": lambda: (x[0], [cp.sum(x) >= 1, cp.sum(x) <= 1 - 1e-3], INFEASIBLE),
    "feasible at 100": lambda: (
        cp.sum(x),
        [cp.sum(x) >= 1, x[0] + (1 - 1e-10) * x[1] <= 1 - 1e-8],
        1.0,
    ),
    "scaled conflict": lambda: (
        x[0],
        [x[0] >= 0, 1e-8 * x[1] - 1e8 * x[0] >= 1, x[1] <= 1e8 * (1 - 1e-3)],
        INFEASIBLE,
    ),
    # curvature near 0
    "nearly convex": lambda: (cp.quad_form(x, cp.psd_wrap(NEAR)), [cp.abs(x) <= 1e3], -2e-3),
    "tiny curvature": lambda: (x[0] ** 2 + 1e-14 * x[1] ** 2 - 1e-9 * x[1], [], -2.5e-5),
    "flat ray": lambda: (x[0] ** 2 - 1e-9 * x[1], [x[0] <= x[1]], UNBOUNDED),
    "barely a ray": lambda: (cp.norm(x) - x[0] * (1 + 1e-8), [], UNBOUNDED),
    "barely no ray": lambda: (
        cp.norm(x) - x[0] * (1 - 1e-8),
        [x[1] >= 1],
        float(np.sqrt(1 - (1 - 1e-8) ** 2)),
    ),
    # the edge of cones
    "least at infinity": lambda: (cp.norm(x) - x[0], [x[1] >= 1], 0.0),
    "1/x": lambda: (x[1], [cp.quad_over_lin(1.0, x[0]) <= x[1]], 0.0),
    "weakly infeasible": lambda: (x[0], [cp.norm(cp.hstack([x[0], 1])) <= x[0]], INFEASIBLE),
    "semidefinite edge": lambda: (S[0, 0], [S >> 0, S[0, 1] == 1], 0.0),
    "no such matrix": lambda: (S[1, 1], [S >> 0, S[0, 1] == 1, S[0, 0] == 0], INFEASIBLE),
    "far matrix": lambda: (S[0, 0], [S >> 0, S[0, 0] + 1e-8 * S[1, 1] >= 1], 0.0),
    "tiny eigenvalue": lambda: (
        cp.trace(np.diag([1.0, 1e-4, -1e-4]) @ T),
        [cp.trace(T) <= 1e3],
        -0.1,
    ),
    "exponential": lambda: (cp.exp(x[0]), [x[0] <= x[1]], 0.0),
    "exponential in 1e9": lambda: (
        x[0],
        [cp.exp(x[1]) <= 1e-9 * x[0], x[1] >= -30],
        1e9 * np.exp(-30),
    ),
    "entropy at 0": lambda: (-cp.sum(cp.entr(x)), [cp.sum(x) == 1, x[0] == 0], 0.0),
    "log sum exp": lambda: (
        1e-3 * cp.log_sum_exp(1e3 * x),
        [cp.sum(x) == 1e-3],
        5e-4 + 1e-3 * np.log(2),
    ),
    "root at 0": lambda: (-cp.sqrt(x[0]), [x[0] <= 1e-14], -1e-7),
    "inverse": lambda: (cp.inv_pos(x[0]), [x[0] <= 1e9], 1e-9),
    "geometric mean": lambda: (-cp.geo_mean(x), [x[0] + 1e-8 * x[1] <= 1], -5e3),
    # integers
    "tiny gap": lambda: (k[1], [k[1] >= 1e-7 * k[0] + 1e-3, k[0] <= 5, k >= 0], 1.0),
    "parity": lambda: (k[0], [2 * k[0] - 2 * k[1] == 1], INFEASIBLE),
    "large steps": lambda: (k[0], [k[0] >= 1e9 * (k[1] - 0.5), k[1] >= 0.6, k[1] <= 3], 5e8),
    "switch": lambda: (on, [x[0] <= 1e8 * on, x[0] >= 10], 1.0),
}
OTHERS = ("highs", "clarabel", "scs", "osqp", "piqp", "scip")


def judged(attack: str, solver: str | None) -> None:
    """Fail on a claim that is false; honest doubts and refusals are right."""
    goal, rows, least = ATTACKS[attack]()
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows))
    try:
        s = p.solve(solver, tolerance=1e-7)
    except of.Infeasible as e:
        assert least == INFEASIBLE and e.certificate.verify()
        return
    except of.Unbounded as e:
        assert least == UNBOUNDED and e.certificate.verify()
        return
    except of.OptfairError:
        return
    size = 1e-5 * max(1.0, abs(least)) if np.isfinite(least) else 0.0
    right = np.isfinite(least) and abs(s.objective - least) <= size
    assert right or not (s.is_optimal(1e-7) or s.certificate.verify()), s
    assert s.grade.word != "proved" or s.bound <= least + size, s


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_false_is_claimed(attack: str) -> None:
    judged(attack, None)


@pytest.mark.slow
@pytest.mark.parametrize("solver", OTHERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_false_is_claimed_on_the_word_of_a_solver(attack: str, solver: str) -> None:
    judged(attack, solver)
