"""Problems are immutable, compose monotonically, and explain themselves."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of


def small() -> of.Problem:
    x = cp.Variable(3, name="x")
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x) == 1, x >= -1]), ["budget", "floor"]
    )


PIECES = {
    "linear": lambda x: cp.sum(x) <= 4,
    "absolute": lambda x: cp.norm1(x) <= 3,
    "quadratic": lambda x: cp.sum_squares(x) <= 5,
    "cone": lambda x: cp.norm(x) <= 2,
    "log": lambda x: cp.sum(cp.exp(x)) <= 50,
}


def test_words_that_a_verb_does_not_know_are_named() -> None:
    p = small()
    with pytest.raises(of.DeclarationError, match=r"(?s)solve has no option 'toleranz'.*tolerance"):
        p.solve(toleranz=1e-6)  # type: ignore[call-arg]
    assert p.diagnose(keep=("floor",)).verify()
    s = p.solve(tolerance=1e-6)
    assert f"bound      {s.bound:.10g} (proved), gap" in repr(s)
    unproved = replace(s, proof=None)
    assert f"(reported by {s.solver}), gap" in repr(unproved)


@given(st.lists(st.sampled_from(sorted(PIECES)), unique=True))
def test_composing_is_monotone_and_order_does_not_matter(names: list[str]) -> None:
    p = small()
    forward, backward = p, p
    for name in names:
        more = forward.with_constraints({name: PIECES[name](p["x"])})
        assert forward.problem_class <= more.problem_class
        forward = more
    for name in reversed(names):
        backward = backward.with_constraints({name: PIECES[name](p["x"])})
    assert forward.problem_class == backward.problem_class
    assert forward.without(*names).problem_class == p.problem_class if names else True


def test_nothing_mutates() -> None:
    p = small()
    q = p.with_constraints(cone=cp.norm(p["x"]) <= 1)
    assert list(p.constraints) == ["budget", "floor"]
    assert list(q.constraints) == ["budget", "floor", "cone"]
    assert (str(p.problem_class), str(q.problem_class)) == ("LP", "SOCP")
    for target, name in ((p, "sense"), (p, "anything")):
        with pytest.raises(of.DeclarationError, match="immutable"):
            setattr(target, name, 1)
    with pytest.raises(TypeError):
        p.constraints["x"] = 1  # type: ignore[index]


def test_solving_leaves_no_value_on_shared_variables() -> None:
    p = small()
    p.solve()
    assert p["x"].value is None


def test_a_constraint_on_an_ancestor_binds_on_a_descendant() -> None:
    x = cp.Variable(3, name="x", nonneg=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x[0] >= 1]))
    child = p.with_constraints(a=p["x"][1] >= 2)
    grandchild = child.with_constraints(b=x[2] >= 3)  # written on the user's own variable
    assert grandchild.solve().objective == pytest.approx(6.0, abs=1e-9)


def test_explain_change() -> None:
    p = small()
    q = p.with_constraints(cone=cp.norm(p["x"]) <= 1)
    assert str(q.explain_change(p)) == "LP -> SOCP because 'cone' is convex in Nonpositive"
    assert str(p.with_integrality("x").explain_change(p)) == "LP -> MILP because 'x' is integer"
    assert str(p.explain_change(q)).startswith("SOCP -> LP because these are gone: cone")
    assert str(p.explain_change(p)) == "LP stays LP"


def test_explain_has_a_row_per_term() -> None:
    rows = str(small().explain()).splitlines()
    assert rows == [
        "objective: minimize affine -> LP",
        "budget: affine in Zero -> LP",
        "floor: affine in Nonpositive -> LP",
        "together: LP",
    ]


def test_prints_help() -> None:
    p = small()
    assert repr(p).splitlines()[0] == "CVXPY problem: LP"
    assert "'budget', 'floor'" in repr(p)
    latex = p._repr_latex_()
    assert latex.startswith("$$") and latex.count(r"\text{(") == 2


def test_names_are_checked() -> None:
    p = small()
    with pytest.raises(of.DeclarationError, match="did you mean 'budget'"):
        p.without("budgett")
    with pytest.raises(of.DeclarationError, match="no variable 'y'"):
        p["y"]
    with pytest.raises(of.DeclarationError, match="already there"):
        p.with_constraints(budget=p["x"] <= 1)
    with pytest.raises(of.DeclarationError, match="no variable"):
        p.with_integrality("z")


def test_cvxpy_is_a_way_out() -> None:
    p = small()
    out = p.cvxpy
    out.solve(solver="CLARABEL")
    assert out.value == pytest.approx(p.solve().objective, abs=1e-6)
    assert p["x"].value is None
    assert all(v is not p["x"] for v in out.variables())


def test_several_constraints_under_one_name() -> None:
    p = small()
    q = p.with_constraints(box=[p["x"] >= -0.5, p["x"] <= 0.75])
    assert list(q.constraints)[-2:] == ["box.0", "box.1"]
    assert list(q.without("box").constraints) == ["budget", "floor"]


def test_a_feasibility_problem_solves() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 1, x >= 0]))
    s = p.solve()
    assert s.objective == 0.0
    assert np.isclose(s["x"].sum(), 1.0)
