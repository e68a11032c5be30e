"""A term says whether it holds: one that cannot be evaluated is not declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends.global_backend import quadratic_form
from optfair.compile.program import QuadraticForms
from optfair.core.canonical import Draft, reduction
from optfair.core.composition import evaluated_constraint, evaluated_objective
from optfair.core.expressions import Evaluator
from optfair.core.functions import _vanishes, exact_functions, proved_assertions
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import Evidence, ProblemClass, parts_of
from optfair.core.term import (
    ConstraintTerm,
    ObjectiveTerm,
    count_of,
    matrix_product,
    triangle,
)

LP = ProblemClass()


class Knapsack(Problem):
    """max 3 x_0 + 2 x_1 with x_0 + x_1 <= 1, x whole and not negative."""

    def __init__(self, **left_out: str) -> None:
        super().__init__(left_out)

    def declare(self) -> Declaration:
        x = cp.Variable(2, name="x")
        weights = np.array([3.0, 2.0])
        stated: dict[str, dict[str, Any]] = {
            "worth": {"value": lambda v: float(weights @ v["x"])},
            "room": {"violation": lambda v: np.maximum(np.sum(v["x"]) - 1.0, 0.0)[None]},
            "sign": {"violation": lambda v: np.maximum(-np.asarray(v["x"]), 0.0)},
        }
        for name, field in self.data.items():
            del stated[name][field]
        scope = frozenset({"x"})

        def row(name: str, build: Any, shape: tuple[int, ...]) -> ConstraintTerm:
            evidence = Evidence(name, "affine", "Nonpositive", LP)
            return ConstraintTerm(name, scope, evidence, build, shape=shape, **stated[name])

        worth = ObjectiveTerm(
            "worth",
            scope,
            Evidence("worth", "affine", "maximize", LP),
            lambda: weights @ x,
            **stated["worth"],
        )
        rows = (row("room", lambda: cp.sum(x) <= 1, ()), row("sign", lambda: x >= 0, (2,)))
        return Declaration({"x": x}, "maximize", (worth,), rows, frozenset({"x"}))


def test_a_model_that_states_every_term_is_declared() -> None:
    p = Knapsack()
    assert p.solve().objective == pytest.approx(3.0)
    assert p.constraints["room"].relative_violation({"x": np.array([5.0, 5.0])}) == 9.0


@pytest.mark.parametrize(
    ("name", "field"), [("worth", "value"), ("room", "violation"), ("sign", "violation")]
)
def test_a_term_without_its_evaluation_is_not_declared(name: str, field: str) -> None:
    with pytest.raises(of.DeclarationError, match=f"'{name}' has no {field}") as e:
        Knapsack(**{name: field})
    assert f"{field}=lambda values" in e.value.remedy


def test_nothing_takes_the_evaluation_of_a_term_away() -> None:
    p = Knapsack()
    with pytest.raises(of.DeclarationError, match="'room' has no violation"):
        replace(p.constraints["room"], violation=None)
    with pytest.raises(of.DeclarationError, match="'worth' has no value"):
        replace(p.objective["worth"], value=3.0)
    with pytest.raises(of.DeclarationError, match="'more' has no violation"):
        p.with_constraints(more=Bare())


class Bare(of.Rule):
    """x_0 <= 0, which nobody can check."""

    def bind(self, problem: Any) -> Any:
        x, evidence = problem["x"], Evidence("bare", "affine", "Nonpositive", LP)
        return ConstraintTerm("more", frozenset({"x"}), evidence, lambda: x[0] <= 0)


def test_a_violation_of_no_numbers_is_not_taken_for_satisfied() -> None:
    p = Knapsack()
    silent = replace(p.constraints["sign"], violation=lambda values: np.zeros(0))
    with pytest.raises(of.DeclarationError, match="violation of 'sign' returned no number"):
        silent.relative_violation({"x": -np.ones(2)})
    nothing = replace(p.constraints["sign"], violation=lambda values: None)  # forgot to return
    assert nothing.relative_violation({"x": np.ones(2)}) == np.inf
    assert replace(silent, shape=(0, 3)).relative_violation({"x": np.ones(2)}) == 0.0


def test_a_value_may_be_a_matrix_of_one_entry() -> None:
    p = Knapsack()
    at = {"x": np.ones(2)}
    for shape in ((), (1,), (1, 1)):
        worth = replace(p.objective["worth"], value=lambda v, s=shape: np.full(s, 5.0))
        found = p.with_terms({"worth": worth}, p.constraints).objective_value(at)
        assert type(found) is float and found == 5.0
    both = replace(p.objective["worth"], value=lambda v: v["x"])
    with pytest.raises(of.DeclarationError, match=r"value of 'worth' has the shape \(2,\)"):
        p.with_terms({"worth": both}, p.constraints).objective_value(at)
    nothing = replace(p.objective["worth"], value=lambda v: None)  # forgot to return
    assert np.isnan(p.with_terms({"worth": nothing}, p.constraints).objective_value(at))


def test_two_terms_of_one_name_are_not_declared() -> None:
    class Twice(Knapsack):
        def declare(self) -> Declaration:
            d = super().declare()
            return replace(d, constraints=(*d.constraints, replace(d.constraints[1], name="room")))

    with pytest.raises(of.DeclarationError, match="two terms are called 'room'"):
        Twice()


def test_terms_are_evaluated_as_they_are_built() -> None:
    x = cp.Variable(3, name="x")
    evidence = Evidence("t", "affine", "Zero", LP)
    row = evaluated_constraint("t", cp.sum(x) == 2, {x.id: "x"}, evidence)
    assert row.violation({"x": np.ones(3)}) == 1.0 and row.scope == {"x"} and row.shape == ()
    goal = evaluated_objective("t", cp.sum(x), {x.id: "x"}, evidence)
    assert goal.value({"x": np.ones(3)}) == 3.0 and goal.scope == {"x"}


def test_lifted_terms_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Problem] = []

    def kept(problem: Problem, **more: Any) -> QuadraticForms:
        seen.append(problem)
        return original(problem, **more)

    import optfair.backends.global_backend as module

    original = module.quadratic_terms
    monkeypatch.setattr(module, "quadratic_terms", kept)
    x = cp.Variable(2, name="x")
    A = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    goal = cp.sum_squares(A @ x - 1.0) - x[0] ** 2
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [cp.norm(x) <= 1, cp.sum(x) >= -1]))
    quadratic_form(p)
    (lifted,) = seen
    assert set(p.variables) < set(lifted.variables) and set(p.constraints) & set(lifted.constraints)
    far = {k: np.full(v.shape, 7.0) for k, v in lifted.variables.items()}
    violations = {k: t.relative_violation(far) for k, t in lifted.constraints.items()}
    assert max(violations.values()) > 1.0
    for k, t in lifted.constraints.items():
        expected = Evaluator(t.build(), lifted.names).violation(far).max()
        assert violations[k] == pytest.approx(expected) and t.scope
    assert lifted.objective_value(far) == pytest.approx(3 * 49.0 - 49.0)


def test_squares_beside_a_proved_objective_are_cones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices hold those of the objective alone."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + cp.square(y))))
    written = y + cp.square(y), [cp.square(x) <= y]
    monkeypatch.setattr("optfair.convexity.cones.disciplined", lambda proof, kind: written)
    (term,) = p.objective.values()
    Draft("objective", cp.square(x), 1.0, proof=object()).kept_for(term)
    cost, rows = reduction(term, 1.0)
    kinds = [{type(n).__name__ for n in parts_of(part)} for part in (cost, *rows)]
    assert "SymbolicQuadForm" in kinds[0] and "SOC" in set().union(*kinds[1:])
    assert "SymbolicQuadForm" not in set().union(*kinds[1:])


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (5, 3, 4))],
)
def test_the_scalar_products_of_a_matrix_product(left: Any, right: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=left), rng.normal(size=right)
    shape = (a @ b).shape
    entry, one, other = matrix_product(count_of(shape), count_of(left), count_of(right))
    terms = np.ravel(a, order="F")[one] * np.ravel(b, order="F")[other]
    total = np.bincount(np.ravel(entry), np.ravel(terms), max(1, int(np.prod(shape))))
    assert total == pytest.approx(np.ravel(a @ b, order="F"))


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_what_is_proved_of_a_form_is_handed_on(sign: float) -> None:
    x = cp.Variable(2, name="x")
    form = cp.quad_form(x, sign * np.array([[2.0, 1.0], [1.0, 2.0]]))
    made = proved_assertions("form", form)
    assert made.is_convex() == (sign >= 0.0) and made.is_concave() == (sign <= 0.0)
    neither = proved_assertions("form", cp.quad_form(x, np.diag([1.0, -1.0]), assume_PSD=True))
    assert not neither.is_convex() and not neither.is_concave()


def test_a_triangle_is_told_by_its_matrix() -> None:
    X = cp.Variable((2, 2), name="X")
    flat = cp.reshape(X, (4,), order="F")
    halves = np.array([[1.0, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1.0]])

    def taken(M: Any) -> Any:
        return triangle(cp.Constant(sp.csc_array(M)) @ flat)

    assert taken(halves) is not None
    twice = np.array([[1.0, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1.0]])
    stored = sp.csc_array(halves)
    stored.data[1] = 0.0
    for M in (-halves, halves[:2], twice, np.vstack([halves, halves[:1]]), stored):
        assert taken(M) is None
    assert triangle(cp.Constant(halves) @ flat) is None and triangle(cp.exp(flat)) is None


@pytest.mark.parametrize("turned", [False, True])
def test_products_by_zero_are_nothing_where_the_other_factor_is_finite_everywhere(
    turned: bool,
) -> None:
    x, never = cp.Variable(2, name="x"), cp.Parameter(value=0.0)

    def vanishes(f: Any, weight: Any = 0.0) -> bool:
        e = f * weight if turned else weight * f
        return _vanishes(e, e.args)

    form = cp.quad_form(x, np.diag([1.0, -1.0]))
    for f in (
        *(cp.sum_squares(x), cp.norm(x), cp.exp(x), x[0] * x[1], -cp.abs(x), cp.huber(x[0])),
        *(form, form + cp.sum(x), cp.sum_squares(x) - form),
    ):
        assert vanishes(f) and not vanishes(f, 2.0) and not vanishes(f, never)
        e = exact_functions(0.0 * f)
        assert e.is_affine() and e.shape == f.shape and {v.id for v in e.variables()} == {x.id}
    # 0 log(-1), 0 / 0 and the like are not 0; what is affine is 0 anyway
    for f in (cp.log(x), cp.sqrt(x), cp.inv_pos(x), x[0] / x[1], cp.power(x, -2), cp.entr(x), x):
        assert not vanishes(f)
    for M, nothing in ((np.zeros((2, 2)), True), (np.diag([1.0, 0.0]), False)):
        own = cp.quad_form(x, M)
        assert _vanishes(own, own.args) == nothing
    assert not _vanishes(cp.norm(x), [x]) and not _vanishes(0.0 + cp.norm(x), [cp.Constant(0.0)])
