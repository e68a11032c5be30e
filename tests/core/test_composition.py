"""Terms by their class and evidence; variables and stated terms added to a problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.atoms.affine import wraps
from cvxpy.constraints.power import PowCone3DApprox

import optfair as of
from optfair.core.composition import Parts, Rule, constraint_term, named_term, objective_term
from optfair.core.problem_class import LP, Evidence
from optfair.core.term import ConstraintTerm, degree


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
        (3, "is an int"),
        (np.zeros(2), "is a ndarray"),
        (cp.Variable(complex=True), "is complex"),  # and not taken for a real one
        (cp.Variable((2, 2), hermitian=True), "is complex"),
        (cp.Variable(imag=True), "is complex"),
    ],
)
def test_variables_that_cannot_be_added(variable: Any, words: str) -> None:
    with pytest.raises(of.DeclarationError, match=words):
        problem().with_variables(z=variable)


def test_what_attributes_of_a_further_variable_say_is_stated() -> None:
    x, on = cp.Variable(2, name="x", nonneg=True), cp.Variable(2, boolean=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x) >= 4]), ["need"])
    q = p.with_variables(open=on, least=cp.Variable(bounds=[1, 3])).with_constraints(
        link=x <= 3 * on
    )
    bounds = ["x nonnegative", "open lower", "open upper", "least lower", "least upper"]
    assert list(q.constraints) == ["need", *bounds, "link"] and q.integers == {"open"}
    assert q.solve()["open"].tolist() == [1.0, 1.0]
    once = q.with_constraints(one=on[0] <= 0.5, room=x[1] <= 5).without("link")  # on `on` as it is
    assert once.solve()["open"][0] == 0.0
    with pytest.raises(of.DeclarationError, match="already there"):
        q.with_variables(again=on)


def test_a_further_variable_is_known_when_data_change() -> None:
    on = cp.Variable(boolean=True)
    p = of.textbook.Diet(cost=[1.0], nutrition=[[1.0]], minimum=[1.0]).with_variables(on=on)
    assert p.at(cost=[2.0]).with_constraints(half=on >= 0.5).solve()["on"] == 1.0


def test_a_name_is_used_once() -> None:
    with pytest.raises(of.DeclarationError, match="already there"):
        problem().with_variables(x=cp.Variable())


@pytest.mark.parametrize("attributes", [{}, {"nonneg": True}])
def test_a_further_variable_has_one_name(attributes: dict[str, Any]) -> None:
    z = cp.Variable(**attributes)
    with pytest.raises(of.DeclarationError, match="already there"):
        problem().with_variables(one=z, two=z)


x, y = cp.Variable(3, name="x"), cp.Variable((2, 2), name="y")
NAMES = {x.id: "x", y.id: "y"}


@pytest.mark.parametrize(
    ("constraint", "function", "where", "name"),
    [
        (cp.sum(x) == 1, "affine", "Zero", "LP"),
        (x >= 0, "affine", "Nonpositive", "LP"),
        (cp.norm1(x) <= 1, "convex piecewise linear", "Nonpositive", "LP"),
        (cp.max(cp.abs(x)) <= 1, "convex piecewise linear", "Nonpositive", "LP"),
        (cp.sum_squares(x) <= 1, "convex quadratic", "Nonpositive", "QCQP"),
        (cp.norm(x) <= 1, "convex", "Nonpositive", "SOCP"),
        (cp.SOC(x[0], x[1:]), "affine", "SecondOrder", "SOCP"),
        (y >> 0, "affine", "PSD", "SDP"),
        (cp.lambda_max(y) <= 1, "convex", "Nonpositive", "SDP"),
        (cp.log(x[0]) >= 1, "convex", "Nonpositive", "CONIC(exp)"),
        (x[0] * x[1] <= 1, "indefinite quadratic", "Nonpositive", "unverified QCQP"),
        (cp.sum_squares(x) >= 1, "concave quadratic", "Nonpositive", "unverified QCQP"),
        (cp.multiply(cp.exp(x[0]), x[1]) <= 0, "no DCP proof", "Nonpositive", "unverified NLP"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_constraint_evidence(constraint: object, function: str, where: str, name: str) -> None:
    evidence = constraint_term("t", constraint, NAMES).evidence
    assert (evidence.function, evidence.set, str(evidence.problem_class)) == (function, where, name)


def test_eigenvalues_prove_what_composition_rules_cannot() -> None:
    # (x0 + x1)² + x2² written as a product: CVXPY does not see that it is convex
    constraint = x[0] * x[0] + 2 * x[0] * x[1] + x[1] * x[1] + x[2] * x[2] <= 1
    assert not constraint.is_dcp()
    evidence = constraint_term("t", constraint, NAMES).evidence
    assert str(evidence.problem_class) == "QCQP"
    assert "eigenvalues" in evidence.note


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_what_is_asserted_is_tested(scale: float) -> None:
    Q = scale * np.array([[2.0, -1.0, 0.0], [-1.0, 0.5, 3.0], [0.0, 3.0, -4.0]])
    for P in (Q, np.diag([scale, scale, -1e-4 * scale])):
        for form in (cp.quad_form(x, cp.psd_wrap(P)), cp.quad_form(x, P, assume_PSD=True)):
            term = objective_term("f", form + 5 * x[0] - 3, NAMES, "minimize")
            assert str(term.evidence.problem_class) == "unverified QP"
            assert "indefinite" in term.evidence.function
            assert term.value({"x": np.ones(3)}) == pytest.approx(P.sum() + 2, rel=1e-12)
    psd = scale * np.array([[2.0, -1.0, 0.0], [-1.0, 0.5, 0.0], [0.0, 0.0, 4.0]])
    sure = objective_term("f", cp.quad_form(x, psd), NAMES, "minimize")
    assert str(sure.evidence.problem_class) == "QP"


def test_assertions_about_signs_are_dropped_unless_they_hold() -> None:
    low = cp.multiply(wraps.nonneg_wrap(cp.Constant([1.0, -1.0, 1.0])), cp.square(x))
    assert not objective_term("f", cp.sum(low), NAMES, "minimize").evidence.problem_class.convex
    kept = cp.multiply(wraps.nonneg_wrap(cp.Constant([1.0, 2.0, 1.0])), cp.square(x))
    assert objective_term("f", cp.sum(kept), NAMES, "minimize").evidence.problem_class.convex
    varying = cp.square(wraps.nonneg_wrap(x[0]) ** 2 - 1)
    assert not objective_term("f", varying, NAMES, "minimize").evidence.problem_class.convex


def test_a_large_quadratic_is_decided_at_once() -> None:
    n = 3_000
    z = cp.Variable(n, name="z")
    D = sp.diags_array(
        [np.full(n - 1, -1.0), np.full(n, 2.0), np.full(n - 1, -1.0)], offsets=[-1, 0, 1]
    )
    term = objective_term("f", cp.quad_form(z, sp.csc_array(D)), {z.id: "z"}, "minimize")
    assert str(term.evidence.problem_class) == "QP"
    D = sp.csc_array(D - 0.01 * sp.eye_array(n))
    term = objective_term("f", cp.quad_form(z, cp.psd_wrap(D)), {z.id: "z"}, "minimize")
    assert term.evidence.function == "indefinite quadratic"


@pytest.mark.parametrize("wrong", [True, np.bool_(False), "x >= 0", 3.0])
def test_what_is_no_constraint_is_refused(wrong: object) -> None:
    with pytest.raises(of.DeclarationError):
        constraint_term("t", wrong, NAMES)


def test_foreign_variables_are_named() -> None:
    z = cp.Variable(2, name="stranger")
    with pytest.raises(of.DeclarationError, match="stranger"):
        constraint_term("t", cp.sum(z) <= 1, NAMES)


def test_violation_is_elementwise_and_leaves_no_value_behind() -> None:
    term = constraint_term("t", x >= np.array([1.0, 2.0, 3.0]), NAMES)
    assert np.allclose(term.violation({"x": np.array([1.0, 1.0, 4.0])}), [0.0, 1.0, 0.0])
    assert term.scale.tolist() == [1.0, 2.0, 3.0] and term.largest_side == 3.0
    assert term.violations({"x": np.array([1.0, 1.0, 4.0])})[1] == pytest.approx(1 / 3)
    assert term.relative_violation({"x": np.array([1.0, 1.0, 4.0])}) == pytest.approx(0.25)
    assert x.value is None


def test_a_term_of_degree_three_is_never_a_quadratic() -> None:
    # CVXPY calls each of these quadratic; the Hessian at the origin would call some convex
    for cubic in (
        cp.sum_squares(x) * x[0],
        x[0] * x[1] * x[2],
        (x @ x) * (x @ x),
        cp.sum(cp.multiply(cp.square(x), x)),
        cp.trace(y @ y @ y),
    ):
        assert cubic.is_quadratic()
        assert degree(cubic, {}) >= 3
        evidence = constraint_term("t", cubic <= 1, NAMES).evidence
        assert (evidence.function, str(evidence.problem_class)) == (
            "no DCP proof",
            "unverified NLP",
        )
        goal = objective_term("t", cubic, NAMES, "minimize").evidence
        assert str(goal.problem_class) == "unverified NLP"


def test_huber_is_a_quadratic_program_as_an_objective_and_no_quadratic_constraint() -> None:
    loss = cp.sum(cp.huber(x))
    goal = objective_term("t", loss, NAMES, "minimize").evidence
    assert (goal.function, str(goal.problem_class)) == ("convex piecewise quadratic", "QP")
    evidence = constraint_term("t", loss <= 1, NAMES).evidence
    assert (evidence.function, str(evidence.problem_class)) == ("convex", "SOCP")


@pytest.mark.parametrize(
    "loss",
    [
        cp.sum_squares(x - 1) + cp.norm(x, 1),
        0.5 * cp.sum_squares(x) + cp.sum(cp.pos(1 - x)),
        cp.sum(cp.huber(x)) + cp.max(x),
        cp.sum(cp.square(cp.pos(x - 2))) + cp.sum_largest(cp.abs(x), 1),
        cp.sum_squares(cp.abs(x)) + cp.sum(x),
    ],
    ids=["lasso", "margin", "huber", "one side", "absolute"],
)
def test_squares_and_piecewise_linear_functions_are_a_quadratic_program(loss: Any) -> None:
    """As one term as well as in two: solvers of quadratic programs take them."""
    plain = cp.Problem(cp.Minimize(loss), [x >= -4])
    plain.solve(solver="CLARABEL")
    p = of.from_cvxpy(plain)
    assert str(p.problem_class) == "QP" and "piecewise quadratic" in str(p.explain())
    assert str(of.from_cvxpy(cp.Problem(cp.Maximize(-loss))).problem_class) == "QP"
    for solver in ("clarabel", "osqp", "highs", "scs", "scip"):
        assert p.solve(solver).objective == pytest.approx(plain.value, abs=1e-5)
    assert str(p.with_constraints(disk=cp.norm(x) <= 9).problem_class) == "SOCP"
    assert str(of.from_cvxpy(cp.Problem(cp.Minimize(0), [loss <= 9])).problem_class) == "SOCP"


def test_small_negative_curvature_is_no_rounding() -> None:
    small = constraint_term("t", 1e-10 * (x[0] * x[1]) + 5 <= 1, NAMES).evidence
    assert (small.function, str(small.problem_class)) == (
        "indefinite quadratic",
        "unverified QCQP",
    )
    cancels = x[0] * x[1] - 0.1 * (10 * x[0] * x[1]) + 1e3 * cp.square(x[2]) <= 1
    assert str(constraint_term("t", cancels, NAMES).evidence.problem_class) == "QCQP"


def test_degree() -> None:
    for expression, expected in (
        (cp.Constant(3.0), 0),
        (cp.cumsum(x), 1),
        (cp.kron(np.eye(2), y), 1),
        (cp.sum_squares(x) / 2 + x[0], 2),
        (cp.quad_form(x, np.eye(3)), 2),
        (cp.power(x[0], 2) * x[1], 3),
        (cp.power(x[0], 3), 3),
        (cp.power(x[0], 1.5), np.inf),
        (x[0] / x[1], np.inf),
        (cp.quad_over_lin(x, x[0]), np.inf),
        (cp.square(cp.abs(x)), np.inf),
        (cp.huber(x), np.inf),
    ):
        assert degree(expression, {}) == expected, expression


def _of_axes(make: Any, shape: tuple[int, ...]) -> tuple[float, float, str]:
    """Return the optimum of a convex function over a box, its value there, and the grade."""
    x = cp.Variable(2, name="x")
    steps = np.random.default_rng(0).integers(-2, 3, (int(np.prod(shape)), 3)).astype(float)
    inside = cp.reshape(steps[:, :2] @ x + steps[:, 2], shape, order="F")
    goal = cp.sum(make(inside))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x >= 0.5, x <= 2])).solve()
    x.value = s["x"]
    return s.objective, float(np.sum(goal.value)), s.grade.word


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda e: cp.sum_largest(e, 9), (2, 3)),  # CVXPY's falls without limit
        (lambda e: cp.sum_largest(e, 2, axis=1, keepdims=True), (3, 2)),
        (lambda e: cp.sum_largest(e, 1.5, keepdims=True) + cp.max(e), (2, 3)),
        (lambda e: cp.cvar(e, 0.0), (6,)),
        (lambda e: cp.lambda_sum_largest(e + cp.transpose(e), 5), (2, 2)),
        (lambda e: cp.lambda_sum_largest(cp.diag(e), 5), (3,)),
        (lambda e: cp.pnorm(e, 2, keepdims=True), (2, 3)),  # CVXPY's fails
        (lambda e: cp.norm(e, axis=1), (2, 2, 3)),  # CVXPY's takes the lengths in another order
        (lambda e: cp.multiply(cp.norm(e, axis=-1), np.array([[1, 9], [0, 3]])), (2, 2, 2)),
        (lambda e: cp.std(e, axis=2, keepdims=True), (2, 2, 3)),
        (lambda e: cp.norm1(cp.concatenate([e, e + 1], axis=1)), (2, 3)),
    ],
)
def test_functions_of_all_entries_and_along_axes_have_their_own_optimum(
    make: Any, shape: tuple[int, ...]
) -> None:
    optimum, value, grade = _of_axes(make, shape)
    assert optimum == pytest.approx(value, rel=1e-6) and grade in ("proved", "within")


def test_a_power_cone_that_cvxpy_approximates_is_the_cone() -> None:
    x, y, z = (cp.Variable(name=name) for name in "xyz")
    rows = [PowCone3DApprox(x, y, z, 0.3001), x + y <= 2, x >= 0]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(z), rows)).solve()
    assert s.objective == pytest.approx(2 * 0.3001**0.3001 * 0.6999**0.6999, rel=1e-8)
    assert s.grade.word == "proved" and str(s.problem.problem_class) == "CONIC(pow)"


@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
def test_values_that_variables_have_change_no_rows(axis: Any) -> None:
    x = cp.Variable((2, 3, 2), name="x")
    numbers = np.random.default_rng(0).normal(size=x.shape)
    largest = cp.sum(cp.sum_largest(x, 2, axis=axis))
    problem = cp.Problem(cp.Minimize(largest), [x == numbers])
    x.value = numbers  # as after a solve
    assert of.from_cvxpy(problem).solve().objective == pytest.approx(largest.value, rel=1e-9)


def test_a_name_somebody_gave_is_not_taken_by_entries_that_are_whole() -> None:
    z, own = cp.Variable(2, boolean=[(0,)]), cp.Variable()
    for given in ({"z": z, "z boolean": own}, {"z boolean": own, "z": z}):
        p = problem().with_variables(given)
        assert p["z boolean"].shape == () and p.integers == {"z boolean 2"}
    later = problem().with_variables({"z boolean": own}).with_variables(z=z)
    assert later["z boolean"].shape == () and later.integers == {"z boolean 2"}
    x, named = cp.Variable(2, name="x", boolean=[(0,)]), cp.Variable(name="x boolean")
    adopted = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + named), [named >= 1]))
    assert adopted["x boolean"].shape == () and adopted.integers == {"x boolean 2"}


def test_a_print_says_which_variables_are_integer() -> None:
    assert "  variables    x 3 integer\n" in repr(problem().with_integrality("x"))
    assert "integer" not in repr(problem())
