"""Enumeration: every integer point, judged by the declared terms or completed and verified."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.library.certification import enumerated
from optfair.methods.textbook.allocation import Knapsack
from optfair.methods.textbook.estimation import (
    CardinalityPortfolio,
    IntegerLeastSquares,
    MinimumVariance,
)
from optfair.transforms.relaxation import relax_integrality


def test_knapsack_by_hand():
    p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    found = enumerated(p, 1e-8)
    assert (found.objective, found.bound, found.gap) == (10.0, 10.0, 0.0)
    assert (found.feasible, found.points) == (5, 8)


def test_matrices_keep_their_entries_in_place():
    """The box and the points stack columns alike: a wrong order would mix up the bounds."""
    X = cp.Variable((2, 3), name="X", integer=True)
    top = np.array([[0, 1, 2], [3, 0, 1]])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(X)), [X >= -1, top - X >= 0]))
    found = enumerated(p, 1e-8)
    assert found.objective == top.sum()
    assert found.feasible == found.points == int(np.prod(top + 2))


def test_mixed_problems_are_completed():
    """Every pair of assets is a continuous problem of its own."""
    S = np.diag([1.0, 2.0, 5.0, 3.0]) + 0.5
    r = np.array([1.0, 3.0, 6.0, 2.0])
    p = CardinalityPortfolio(returns=r, covariance=S, wanted=2.5, most=2)
    best = np.inf
    for pair in combinations(range(4), 2):
        i = list(pair)
        if r[i].max() < 2.5:
            continue
        q = MinimumVariance(returns=r[i], covariance=S[np.ix_(i, i)], wanted=2.5)
        best = min(best, q.solve(tolerance=1e-8).objective)
    found = enumerated(p, 1e-8)
    assert found.objective == pytest.approx(best, rel=1e-7)
    assert 0.0 < found.feasible < found.points == 16 and found.gap <= 1e-8


def test_lattice_points_by_numpy():
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(4, 2)), 3 * rng.normal(size=4)
    grid = np.stack(np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), -1).reshape(-1, 2)
    best = ((grid @ A.T - b) ** 2).sum(axis=1).min()
    found = enumerated(IntegerLeastSquares(A=A, b=b, lower=-2.5, upper=2.2), 1e-8)
    assert found.points == 25 and found.objective == pytest.approx(best, rel=1e-12)


def test_what_cannot_be_enumerated_is_named():
    x = cp.Variable(2, name="x", integer=True)
    open_box = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]))
    with pytest.raises(of.DataError, match="'x' has entries without lower and upper bounds"):
        enumerated(open_box, 1e-8)
    large = open_box.with_constraints(most=open_box["x"] <= 1e4)
    with pytest.raises(of.DataError, match="integer points, more than"):
        enumerated(large, 1e-8)
    with pytest.raises(of.DataError, match="no integer variables"):
        enumerated(of.library.load("textbook/diet").problem(), 1e-8)
    small = open_box.with_constraints(most=open_box["x"] <= 1, odd=cp.sum(open_box["x"]) == 0.5)
    with pytest.raises(of.Infeasible, match="no integer point"):
        enumerated(small, 1e-8)


def test_a_bound_that_nobody_attains_is_not_certified():
    """The value of the relaxation passes the tree at its root; enumeration finds it out."""
    instance = of.library.load("textbook/integer_least_squares")
    relaxed = relax_integrality(instance.problem()).problem.solve().objective
    assert relaxed < instance.optimum.value - 1
    outcome = of.library.certify(
        replace(instance, optimum=replace(instance.optimum, value=relaxed))
    )
    said = {check.what: check.ok for check in outcome.checks}
    assert said["checked by clarabel"] and not said["certified by enumeration"] and not outcome
