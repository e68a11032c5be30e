"""Pairs on the central path in many digits, and the problems that only these answer."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs.digits import bound_nearby, central_pair

THIN = 2.0**-54


def thin(cost: float = THIN, unit: float = 1.0) -> of.Problem:
    """An optimum of 2 sqrt(cost) far out: x = sqrt(cost), y = 1 / sqrt(cost)."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    block = cp.bmat([[x, 1.0], [1.0, y]]) >> 0
    return of.from_cvxpy(cp.Problem(cp.Minimize(unit * (x + cost * y)), [block]), ["block"])


@pytest.mark.parametrize("share", [1e-3, 1e-7])
def test_the_gap_is_the_share_that_was_asked_for(share: float) -> None:
    form = compile_problem(thin(unit=1.0 / np.sqrt(THIN)), cp.CLARABEL).form
    pair = central_pair(form, share)
    assert pair is not None
    x, z = pair
    found = bound_nearby(form, z)
    assert found is not None
    gap = (form.objective(x) - found[0]) / form.objective(x)
    assert 0.9 * share <= gap <= 1.1 * share


def test_none_where_multipliers_have_no_inside_or_the_time_is_over() -> None:
    form = compile_problem(thin(cost=0.0), cp.CLARABEL).form
    assert central_pair(form, 1e-6) is None
    form = compile_problem(thin(), cp.CLARABEL).form
    assert central_pair(form, 1e-6, deadline=0.0) is None


def test_an_optimum_that_is_far_out_is_proved() -> None:
    problem = thin(unit=1.0 / np.sqrt(THIN))
    s = problem.solve("psd-blocks", tolerance=1e-6)
    assert s.is_optimal(1e-6) and s.grade.sound
    assert s.objective == pytest.approx(2.0, rel=2e-6) and s.bound <= 2.0
