"""Local optima in any unit, and points where functions have no value."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.boxes import Program
from optfair.backends.local_optima import definition, local_optimum, middle_of
from optfair.convexity.domain import Domain
from optfair.convexity.intervals import Interval
from optfair.convexity.reading import leaf_of

x, y = cp.Variable(name="x"), cp.Variable(name="y")


@pytest.mark.parametrize("wide", [1.0, 50.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_local_optimum_is_met_in_any_unit(unit: float, wide: float) -> None:
    """Of x^4/4 - x^2/2 one is 1, and of the rows x y <= 4 none is near."""
    rows = [x >= -2 * wide, x <= 3 * wide, x * y <= 4, y >= 1, y <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(unit * (x * x * x * x / 4 - x * x / 2)), rows))
    leaves = {n: leaf_of(v) for n, v in p.variables.items()}
    start = {leaves["x"]: np.array([0.3]), leaves["y"]: np.array([1.5])}
    found = local_optimum(p, leaves, Program.of(p).domain, start)
    assert found is not None and found[leaves["x"]][0] == pytest.approx(1.0, abs=1e-5)


def test_points_where_functions_have_no_value_are_told() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(1 / x + cp.exp(y)), [cp.log(y) <= 1, x <= 2]))
    leaves = [leaf_of(p.variables[n]) for n in "xy"]
    defined = definition(p)

    def at(a: float, b: float, tolerance: float = 1e-9) -> bool:
        point = {leaf: np.array([v]) for leaf, v in zip(leaves, (a, b), strict=True)}
        return defined(point, tolerance)

    assert at(1.0, 1.0) and at(-1.0, 2.0)
    assert not at(0.0, 1.0) and not at(1.0, -1.0) and not at(1.0, 0.0)
    assert not at(1.0, 1000.0)  # beyond floats


def test_a_middle_is_within_its_box() -> None:
    ends = [(-np.inf, np.inf), (-np.inf, -3.0), (-np.inf, 3.0), (2.0, np.inf), (-5.0, np.inf)]
    low, high = (np.array(side) for side in zip(*[*ends, (1.0, 4.0)], strict=True))
    v = cp.Variable(6, name="v")
    leaf = leaf_of(v)
    within = Domain(boxes={leaf: Interval.of(low, high)})
    middle = middle_of({"v": leaf}, within)[leaf]
    assert np.isfinite(middle).all() and ((low < middle) & (middle < high)).all()
    assert middle[5] == 2.5


def test_a_local_search_ends_at_the_deadline() -> None:
    v = cp.Variable(2, name="v")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(v) + cp.exp(v[0])), [cp.abs(v) <= 3]))
    leaves = {n: leaf_of(w) for n, w in p.variables.items()}
    start = {leaf: np.ones(2) for leaf in leaves.values()}
    assert local_optimum(p, leaves, Domain(), start) is not None
    assert local_optimum(p, leaves, Domain(), start, deadline=-np.inf) is None
