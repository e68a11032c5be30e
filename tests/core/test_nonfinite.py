"""Infinity is a bound that is none; anywhere else it is refused by name, and so is NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.core.composition import constraint_term
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.term import ObjectiveTerm
from optfair.transforms.duality import dualize
from optfair.transforms.relaxation import shor

inf, nan = np.inf, np.nan
A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
B = np.array([1.0, inf])
x = cp.Variable(2, name="x")
X = cp.Variable((2, 2), name="X")
S = cp.Variable((2, 2), name="S", symmetric=True)

# max sum(x) with x_1 <= 3 and this; where x ends, and the multiplier
VACUOUS: dict[str, tuple[Callable[[], Any], list[float], Any]] = {
    "upper": (lambda: x <= B, [1.0, 3.0], [1.0, 0.0]),
    "moved": (lambda: x - B <= 0, [1.0, 3.0], [1.0, 0.0]),
    "negated": (lambda: -x >= -B, [1.0, 3.0], [1.0, 0.0]),
    "scaled": (lambda: 2 * (x - B) <= 0, [1.0, 3.0], [0.5, 0.0]),
    "of a sum": (lambda: x[0] + 2 <= B + 2, [1.0, 3.0], [1.0, 0.0]),
    "stacked": (lambda: cp.hstack([x[1] - inf, x[0] - 1]) <= 0, [1.0, 3.0], [0.0, 1.0]),
    "in a cone": (lambda: cp.NonNeg(B - x), [1.0, 3.0], [1.0, 0.0]),
    "matrix": (
        lambda: cp.vstack([x, x]) <= np.array([B, [inf, inf]]),
        [1.0, 3.0],
        [[1, 0], [0, 0]],
    ),
    "sparse": (lambda: x <= cp.Constant(sp.csr_array(B[:, None]))[:, 0], [1.0, 3.0], [1.0, 0.0]),
    "parameter": (lambda: x <= cp.Parameter(2, value=B), [1.0, 3.0], [1.0, 0.0]),
    "of a parameter": (lambda: x <= 2 * cp.Parameter(2, value=B / 2), [1.0, 3.0], [1.0, 0.0]),
    "picked": (lambda: x[:1] <= B[:1], [1.0, 3.0], [1.0]),
    "below": (lambda: cp.hstack([-x, x[0]]) >= [-1.0, -inf, -inf], [1.0, 3.0], [1.0, 0.0, 0.0]),
}


def maximised(constraint: Any) -> Any:
    goal = cp.Maximize(cp.sum(x))
    return of.from_cvxpy(cp.Problem(goal, [x[1] <= 3, constraint]), ["roof", "cap"])


@pytest.mark.parametrize("solver", ["highs", "clarabel", "scs"])
@pytest.mark.parametrize("name", VACUOUS)
def test_rows_with_an_infinite_bound_are_vacuous(name: str, solver: str) -> None:
    make, point, multiplier = VACUOUS[name]
    constraint = make()
    p = maximised(constraint)
    assert str(p.problem_class) == "LP" and p.certificate.verify()
    s = p.solve(solver)
    np.testing.assert_allclose(s["x"], point, atol=1e-6)
    assert np.shape(s.multipliers["cap"]) == p.constraints["cap"].shape == constraint.shape
    np.testing.assert_allclose(s.multipliers["cap"], multiplier, atol=1e-6)
    # not small: 0
    assert not s.multipliers["cap"][np.asarray(multiplier) == 0].any()
    assert s.is_optimal(1e-6)


def test_a_vacuous_row_is_violated_by_nan_only() -> None:
    term = constraint_term("cap", x <= B, {x.id: "x"})
    assert term.violation({"x": [3.0, 1e300]}).tolist() == [2.0, 0.0]
    assert term.largest_side == 1.0
    assert term.relative_violation({"x": [0.0, 1e300]}) == 0.0
    assert term.relative_violation({"x": [0.0, nan]}) == inf
    assert constraint_term("cap", x <= [0.25, inf], {x.id: "x"}).largest_side == 0.25


def test_a_term_without_any_bound_binds_nothing() -> None:
    free = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 1)), [x >= -inf]), ["low"])
    s = free.solve()
    np.testing.assert_allclose(s["x"], 1.0, atol=1e-6)
    assert s.multipliers["low"].tolist() == [0.0, 0.0] and s.is_optimal(1e-6)
    with pytest.raises(of.Unbounded):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= -inf])).solve()


def test_rows_of_curved_terms_are_vacuous() -> None:
    p = maximised(cp.square(x) <= np.array([4.0, inf]))
    assert str(p.problem_class) == "QCQP"
    s = p.solve()
    np.testing.assert_allclose(s["x"], [2.0, 3.0], atol=1e-5)
    assert s.multipliers["cap"][1] == 0.0
    q = of.from_cvxpy(
        cp.Problem(cp.Minimize(-cp.sum_squares(x)), [cp.square(x) <= B, x[1] ** 2 <= 9])
    )
    relaxation = shor(q)
    assert relaxation.recover(relaxation.problem.solve()).objective == pytest.approx(-10.0)


def test_vacuous_rows_are_written_dualized_and_softened(tmp_path: Path) -> None:
    p = maximised(A @ x <= np.array([1.0, inf, 8.0])).with_constraints(low=x >= [-inf, 0.0])
    optimum = p.solve().objective
    for ending in ("mps", "lp", "cbf"):
        p.export(tmp_path / f"p.{ending}")
        assert of.read(tmp_path / f"p.{ending}").solve().objective == pytest.approx(optimum)
    model = p.to_pyomo()
    assert sorted(model.component("cap")) == [0, 2]
    dual = dualize(p)
    s = dual.recover(dual.problem.solve())
    assert s.objective == pytest.approx(optimum) and s.multipliers["cap"].shape == (3,)
    assert p.diagnose().verdict == "fine"
    assert maximised(x <= B).soften("cap", 10.0).solve().objective == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("constraint", "place"),
    [
        (x >= inf, r" at \[0\]"),
        (x <= -inf, r" at \[0\]"),
        (x == inf, r" at \[0\]"),
        (x == B, r" at \[1\]"),
        (x >= np.array([0.0, inf]), r" at \[1\]"),
        (np.array([[0.0, 1.0], [-inf, inf]]) >= X, r" at \[1, 0\]"),
        (cp.sum(x) >= inf, ""),
        (cp.NonNeg(x - B), r" at \[1\]"),
        (cp.Zero(x - B), r" at \[1\]"),
    ],
)
def test_bounds_that_never_hold_are_named(constraint: Any, place: str) -> None:
    with pytest.raises(of.DeclarationError, match=f"constraint 'c' can never hold{place}\n"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [constraint]), ["c"])


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (x <= nan, "'c' has NaN in its data"),
        (x >= np.array([0.0, nan]), r"NaN(.|\n)*shape 2 holds it at \[1\]"),
        (np.array([[1.0, nan]]) @ x <= 1, r"NaN(.|\n)*shape 1x2 holds it at \[0, 1\]"),
        (sp.csr_array([[0.0, 1.0], [0.0, nan]]) @ x <= 1, r"NaN(.|\n)*\[1, 1\]"),
        (np.array([[1.0, inf]]) @ x <= 1, r"has inf(.|\n)*\[0, 1\]"),
        (sp.csr_array([[0.0, 1.0], [0.0, -inf]]) @ x <= 1, r"has -inf(.|\n)*\[1, 1\]"),
        (np.array([[1.0, inf]]) @ x <= inf, "has inf"),
        (inf * x <= inf, "has inf"),
        (x / inf <= 1, "has inf"),
        (cp.norm(x - inf) <= 1, "has -inf"),
        (cp.pos(x - B) <= 1, "has -inf"),
        (cp.norm(A @ x - np.array([1.0, 2.0, nan])) <= 1, r"has NaN(.|\n)*\[2\]"),
        (cp.quad_form(x, np.diag([inf, 1.0])) <= 1, r"has inf(.|\n)*\[0, 0\]"),
        (cp.SOC(cp.Constant(inf), x), "has inf"),
        (S >> np.diag([0.0, -inf]), "has (-|)inf"),
        (x <= 1e308 * cp.Constant([10.0, 1.0]) - inf, "has NaN"),
    ],
)
def test_data_that_are_not_finite_are_named(constraint: Any, words: str) -> None:
    with pytest.raises(of.DeclarationError, match=words), np.errstate(all="ignore"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [constraint]), ["c"])


@pytest.mark.parametrize(
    "goal",
    [
        cp.sum(x) * inf,
        cp.sum(x) + nan,
        cp.sum(x) - inf,
        np.array([1.0, inf]) @ x,
        cp.sum_squares(A @ x - np.array([1.0, 2.0, nan])),
        cp.quad_form(x, np.diag([1.0, inf])),
        cp.sum(cp.multiply(cp.Parameter(2, value=B), x)),
    ],
)
def test_objectives_that_are_not_finite_are_named(goal: Any) -> None:
    with pytest.raises(of.DeclarationError, match=r"'objective' has (NaN|-inf|inf) in its data"):
        of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x >= 0]))


def test_constraints_added_later_are_looked_at() -> None:
    p = maximised(x <= 1)
    with pytest.raises(of.DeclarationError, match="'more' has NaN"):
        p.with_constraints(more=x[0] <= nan)
    q = p.with_constraints(more=x >= [-inf, 0.5])
    assert q.solve().multipliers["more"].tolist() == [0.0, 0.0]


def test_infinite_bounds_of_variables() -> None:
    limit = cp.Parameter(2, value=B, name="limit")
    y = cp.Variable(2, name="y", bounds=[np.array([-inf, 0.0]), limit])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [y[1] <= 3]))
    s = p.solve()
    np.testing.assert_allclose(s["y"], [1.0, 3.0])
    assert s.multipliers["y upper"].tolist() == [1.0, 0.0]
    limit.value = np.array([1.0, -inf])
    with pytest.raises(of.DeclarationError, match=r"'y upper' can never hold at \[1\]"):
        of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [y[1] <= 3]))


class Stated(Problem):
    """min c'x on terms that state themselves: nothing reads their data before they are built."""

    def declare(self) -> Declaration:
        c = self.data["c"]
        evidence = Evidence("cost", "affine", "minimize", ProblemClass())
        z = cp.Variable(2, name="z")
        cost = ObjectiveTerm(
            "cost",
            frozenset({"z"}),
            evidence,
            lambda: c @ z,
            value=lambda v: float(c @ v["z"]),
        )
        floor = constraint_term("floor", z >= 0, {z.id: "z"})
        return Declaration({"z": z}, objective=(cost,), constraints=(floor,))


def test_data_of_a_model_are_looked_at_when_it_is_compiled() -> None:
    assert Stated({"c": np.ones(2)}).solve().objective == pytest.approx(0.0)
    for bad in (nan, inf):
        with pytest.raises(of.DeclarationError, match=r"'cost' has (NaN|inf)(.|\n)*at \[1\]"):
            Stated({"c": np.array([1.0, bad])}).solve()
