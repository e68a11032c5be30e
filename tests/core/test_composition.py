"""Adding variables and stated terms to a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.composition import Parts, Rule, named_term
from optfair.core.problem_class import LP, Evidence
from optfair.core.term import ConstraintTerm


def problem() -> Any:
    x = cp.Variable(3, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.4, x <= 5]), ["low", "high"])


@dataclass(frozen=True)
class Whole(Rule):
    """Every x is at least a whole number between 1 and 3."""

    def bind(self, problem: Any) -> Any:
        z = cp.Variable(3, name="step")
        rows = {"above": problem["x"] >= z, "range": z >= 0.5}
        return Parts(rows, {"step": z}, {"step"})


@dataclass(frozen=True)
class Stated(Rule):
    """x_0 >= 2, with evidence of its own."""

    def bind(self, problem: Any) -> Any:
        x = problem["x"]
        return ConstraintTerm(
            "anything",
            frozenset({"x"}),
            Evidence("anything", "affine", "Nonpositive", LP),
            build=lambda: x[0] >= 2,
            violation=lambda v: np.maximum(2 - np.asarray(v["x"])[:1], 0.0),
            shape=(1,),
        )


def test_a_rule_brings_variables_that_are_integer() -> None:
    p = problem()
    q = p.with_constraints(whole=Whole())
    assert list(q.variables) == ["x", "whole.step"]
    assert q.integers == {"whole.step"}
    assert str(q.problem_class) == "MILP"
    s = q.solve()
    assert s.objective == pytest.approx(3.0)
    assert s["whole.step"].tolist() == [1.0, 1.0, 1.0]
    # the problem it was made from knows nothing of them
    assert list(p.variables) == ["x"] and str(p.problem_class) == "LP"


def test_variables_come_along_from_a_list_of_rules() -> None:
    q = problem().with_constraints(both=[Whole(), Stated()])
    assert list(q.variables) == ["x", "both.0.step"] and q.integers == {"both.0.step"}
    assert q.solve().objective == pytest.approx(4.0)
    assert list(q.without("both").variables) == ["x"]


def test_variables_of_a_rule_go_with_it() -> None:
    p = problem()
    q = p.with_constraints(whole=Whole()).without("whole")
    assert list(q.variables) == ["x"] and not q.integers
    assert q.solve().objective == pytest.approx(p.solve().objective)
    again = q.with_constraints(whole=Whole())
    assert again.solve().objective == pytest.approx(3.0)


def test_a_variable_that_another_term_uses_stays() -> None:
    q = problem().with_constraints(whole=Whole())
    r = q.with_constraints(mine=cp.sum(q["whole.step"]) >= 4).without("whole")
    assert "whole.step" in r.variables


def test_a_rule_bound_twice_has_two_sets_of_variables() -> None:
    q = problem().with_constraints(one=Whole(), two=Whole())
    assert list(q.variables) == ["x", "one.step", "two.step"]
    assert q.solve().objective == pytest.approx(3.0)


def test_stated_terms_get_the_name_they_are_bound_under() -> None:
    q = problem().with_constraints(mine=Stated())
    term = q.constraints["mine"]
    assert (term.name, term.evidence.term, term.origin) == ("mine", "mine", "user")
    s = q.solve()
    assert s.objective == pytest.approx(2.8)
    assert s.shadow_price["mine"] == pytest.approx(1.0)


def test_stated_terms_must_be_on_variables_of_the_problem() -> None:
    p = problem()
    stray = ConstraintTerm(
        "t",
        frozenset({"y"}),
        Evidence("t", "affine", "Zero", LP),
        build=lambda: p["x"] == 1,
        violation=lambda v: np.abs(np.asarray(v["y"]) - 1),
    )
    with pytest.raises(of.DeclarationError, match="another problem: y"):
        named_term(p, "t", stray)


def test_users_add_variables() -> None:
    t = cp.Variable(name="t")
    q = problem().with_variables(t=t)
    r = q.with_constraints(top=cp.norm(q["x"]) <= t, cap=t <= 2)
    assert str(r.problem_class) == "SOCP"
    assert set(r.solve().values) == {"x", "t"}


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (cp.Variable(2, nonneg=True), "attribute 'nonneg'"),
        (cp.Variable(2, integer=True), "attribute 'integer'"),
        (np.zeros(2), "is a ndarray"),
    ],
)
def test_variables_that_cannot_be_added(variable: Any, words: str) -> None:
    with pytest.raises(of.DeclarationError, match=words):
        problem().with_variables(z=variable)


def test_a_name_is_used_once() -> None:
    with pytest.raises(of.DeclarationError, match="already there"):
        problem().with_variables(x=cp.Variable())
