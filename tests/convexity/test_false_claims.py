"""What once was claimed and is not so: signs on other branches, structure, domains, numbers."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.trig import tan

import optfair as of
from optfair.convexity.domain import Domain
from optfair.convexity.prove import domain_of, proved_on
from optfair.convexity.reading import read

x, y = cp.Variable(name="x"), cp.Variable(name="y")


@pytest.mark.parametrize(
    ("low", "high", "truth"), [(2, 3, "concave"), (-3, -2, "convex"), (3.2, 4, "convex")]
)
def test_a_tangent_bends_by_its_own_sign(low: float, high: float, truth: Any) -> None:
    """tan is negative, and so concave, between pi/2 and pi."""
    domain = domain_of({"low": x >= low, "high": x <= high})
    other = "concave" if truth == "convex" else "convex"
    assert proved_on(tan(x), domain, truth, refute=False)
    assert not proved_on(tan(x), domain, other, refute=False)


def test_attributes_of_a_matrix_are_part_of_its_expression() -> None:
    S = cp.Variable((2, 2), symmetric=True, name="S")
    D = cp.Variable((2, 2), diag=True, name="D")
    K = cp.Variable((2, 2), sparsity=([0, 1], [1, 1]), name="K")
    P = cp.Variable((2, 2), PSD=True, name="P")
    assert of.prove(S[0, 1] * S[1, 0]).curvature == "convex"
    assert of.prove(D[0, 1] * D[1, 1] + D[0, 0] * D[0, 0]).curvature == "convex"
    assert of.prove(K[0, 0] * K[0, 1] + K[1, 1] * K[1, 1]).curvature == "convex"
    assert of.prove(cp.sqrt(P[0, 0] * P[1, 1] - P[0, 1] * P[1, 0])).curvature == "concave"
    # chords of positive semidefinite matrices are not searched: nothing is refuted
    assert of.prove(P[0, 1] * P[0, 0]).curvature == "undecided"


def test_a_chord_stays_within_what_is_stated() -> None:
    where = {"cone": cp.SOC(x + y, cp.hstack([x - y, 1])), "curve": x * y * x <= 50}
    found = of.prove(x * y, where)
    assert found.curvature == "neither"
    for c in found.points():
        for end in (c["first"], c["second"]):
            a, b = end["x"][0], end["y"][0]
            assert a + b >= np.hypot(a - b, 1) and a * b * a <= 50
    matrix = cp.bmat([[x, y], [y, 1]])
    answer = of.prove(x * y, {"psd": matrix >> 0})
    assert answer.curvature == "undecided" and "psd" in str(answer)


@pytest.mark.parametrize(
    "expression",
    [
        0 * cp.log(x * x - 1) + x * x,
        cp.log(x * y) - cp.log(x * y) + x * x,
        cp.square(cp.sqrt(x * x - 1)),
    ],
    ids=str,
)
def test_where_it_is_defined_does_not_get_lost(expression: Any) -> None:
    with pytest.raises(of.DataError, match="cancels out"):
        of.prove(expression)


def test_what_is_kept_or_defined_everywhere_is_not_refused() -> None:
    v, w = cp.Variable(3, name="v"), cp.Variable(3, name="w")
    where = [v >= 1, w >= 1]
    assert of.prove(cp.sum(cp.log(cp.multiply(v, w))), where).curvature == "concave"
    assert of.prove(cp.log(x * x + 1) - cp.log(x * x + 1) + x * x).curvature == "convex"
    assert of.prove(cp.log(x) - cp.log(x) + x * x).curvature == "convex"


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none(number: float) -> None:
    with pytest.raises(of.DataError, match="not finite"):
        of.prove(number * x * x + y * y)


def test_numbers_beyond_floats() -> None:
    assert of.prove((1e200 * x) * (1e200 * x)).curvature == "convex"
    assert of.prove(x * x * 1e-310 - x * x * 1.1e-310).curvature == "concave"
    A = np.array([[1e-310, 1.0], [0.0, 1.0]])
    v = cp.Variable(2, name="v")
    node = read(A @ (np.array([[0.3, 0.0], [0.0, 1.0]]) @ v), Domain()).node
    assert node is not None and not np.any(node.parts[0][0].data == 1e-310 * 0.3)  # type: ignore[attr-defined]


def test_entries_of_what_is_not_taken_apart() -> None:
    w = cp.Variable(3, name="w")
    column = cp.reshape(w, (3, 1), order="F")
    found = of.prove(cp.sum(cp.max(cp.multiply(column, column), axis=1)))
    assert found.curvature in ("convex", "undecided")


def test_arrays_of_other_shapes_are_read() -> None:
    v, row = cp.Variable(3, name="v"), cp.Variable((1, 3), name="row")
    table = cp.reshape(v, (3, 1), order="F") + row
    assert of.prove(cp.sum(cp.multiply(table, table))).curvature == "convex"
    assert of.prove(cp.sum(cp.multiply(cp.cumsum(v), cp.cumsum(v)))).curvature == "convex"
    s = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(cp.multiply(table, table))), [v >= 1, row >= -0.5])
    ).solve()
    assert s.objective == pytest.approx(9 * 0.25, abs=1e-6)


def test_a_quadratic_says_what_rounding_it_rests_on() -> None:
    d = np.ones(50)
    v = cp.Variable(50, name="v")
    assert of.prove(v @ (np.diag(d) @ v)).shift == 0.0
    d[-1] = -1e-13
    for expression in (v @ (np.diag(d) @ v), cp.quad_form(v, cp.psd_wrap(np.diag(d)))):
        found = of.prove(expression)
        assert found.curvature == "convex" and found.shift >= 1e-13 and "up to" in str(found)
