"""Points that are moved onto the rows they are short of."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.generic import onto_rows
from optfair.compile.form import compile_problem
from optfair.solution.conic_form import ConicForm


def rows(seed: int = 0) -> tuple[ConicForm, np.ndarray]:
    """Return equations and bounds, and a point with a column at its bound that satisfies them."""
    rng = np.random.default_rng(seed)
    A, inside = rng.standard_normal((3, 8)), rng.uniform(1.0, 2.0, 8)
    inside[0] = 0.0
    x = cp.Variable(8, name="x")
    problem = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum_squares(x)), [A @ x == A @ inside, x >= 0])
    )
    return compile_problem(problem, cp.CLARABEL, quadratic=True).form, inside


def violation(form: ConicForm, x: np.ndarray) -> float:
    s = form.slack(x)
    return float(np.where(form.equal, np.abs(s), np.maximum(-s, 0.0)).max())


@pytest.mark.parametrize("seed", range(5))
def test_a_point_short_of_its_rows_is_moved_onto_them_and_stays_within_its_bounds(
    seed: int,
) -> None:
    form, inside = rows(seed)
    near = inside + 1e-4 * np.random.default_rng(seed).standard_normal(8) * (inside > 0.0)
    assert violation(form, near) > 1e-5
    found = onto_rows(form, near, 1e-8)
    assert violation(form, found) <= 1e-8 and found[0] == 0.0
    assert np.abs(found - inside).max() <= 1e-2


def test_what_is_good_enough_or_beyond_help_is_left_alone() -> None:
    form, inside = rows()
    assert onto_rows(form, inside, 1e-8) is inside
    outside = inside - 3.0  # every column beyond its bound: none may move
    assert onto_rows(form, outside, 1e-8) is outside
