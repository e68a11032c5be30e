"""Problems are immutable, compose monotonically, and explain themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize
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


def test_a_tree_says_by_which_rule_each_part_is_what_it_is() -> None:
    x = cp.Variable(2, name="x")
    goal = cp.exp(cp.norm(x)) - cp.log(cp.minimum(x[0], x[1]))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [cp.abs(x) <= 3, x[0] <= 1]), ["a", "b"])
    assert p.explain("objective") == "\n".join(
        [
            str(p.objective["objective"].evidence),
            "  exp(pnorm(x, 2)) + -(log(minimum(x[0], x[1]))): convex"
            " [affine and increasing in a convex function]",
            "    exp(pnorm(x, 2)): convex, nonnegative [convex and increasing in a convex function]",
            "      pnorm(x, 2): convex, nonnegative [convex, of affine functions]",
            "        x: affine",
            "    -(log(minimum(x[0], x[1]))): convex [affine and decreasing in a concave function]",
            "      log(minimum(x[0], x[1])): concave [concave and increasing in a concave function]",
            "        minimum(x[0], x[1]): concave [concave, of affine functions]",
            "          x[0]: affine",
            "          x[1]: affine",
        ]
    )
    assert str(p.explain("b")).splitlines()[1:] == ["  x[0] + -1.0: affine"]
    assert "<table" in p.explain()._repr_html_() and "<pre" in p.explain("b")._repr_html_()
    with pytest.raises(of.DeclarationError, match="no constraint or objective 'c'"):
        p.explain("c")
    free = p.with_terms({}, p.constraints)
    assert free.explain("objective") == "objective: none, any feasible point will do"


def test_a_tree_ends_after_so_many_parts() -> None:
    x = cp.Variable(name="x")
    for parts, lines in ((29, 60), (30, 62)):
        total = sum(cp.exp(x - k) for k in range(parts))
        told = str(of.from_cvxpy(cp.Problem(cp.Minimize(total))).explain("objective"))
        assert len(told.splitlines()) == lines
        assert told.endswith("further parts") == (parts == 30)


def test_a_row_is_explained_by_its_tree() -> None:
    """Composition part by part, a proof beyond it step by step, what refutes one; other names err."""
    x, z = cp.Variable(2, name="x"), cp.Variable(name="z")
    rows = [
        cp.norm(x) - 1 <= z,
        cp.sqrt(1 + z**2) <= 3,
        cp.power(z, 3) <= 8,
        cp.SOC(z, x),
        x[0] == z,
    ]
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.exp(cp.norm(x)) + x[0] * z), rows), ["a", "b", "c", "d", "e"]
    )
    a = str(p.explain("a")).splitlines()
    assert a[0] == str(p.constraints["a"].evidence)
    assert "  pnorm(x, 2) + -1.0 + -z: convex [affine and increasing in a convex function]" in a
    assert a[2:] == [
        "    pnorm(x, 2): convex, nonnegative [convex, of affine functions]",
        "      x: affine",
        "    -z: affine",
    ]
    assert "norm of convex functions]" in str(p.explain("b"))
    assert "  defined where z >= 0" in str(p.explain("c"))
    assert str(p.explain("d")).splitlines()[1:] == ["  reshape(z, (1,), F): affine", "  x: affine"]
    assert str(p.explain("e")).splitlines()[1:] == ["  x[0] + -z: affine"]
    assert "convex in" in str(p.explain("objective")) and "fixed" in str(p.explain("objective"))
    assert "<pre style='white-space:pre-wrap'>" in p.explain("a")._repr_html_()
    with pytest.raises(of.DeclarationError, match=r"no constraint or objective 'objectiv'"):
        p.explain("objectiv")
    with pytest.raises(of.DataError, match="name is 3"):
        p.explain(3)  # type: ignore[arg-type]
    total = cp.sum(cp.hstack([cp.norm(x - k) for k in range(50)]))
    q = of.from_cvxpy(cp.Problem(cp.Minimize(total)))
    deep = str(q.explain("objective"))
    assert len(deep.splitlines()) == 62 and deep.endswith("  and further parts")
    two = q.with_terms({"cost": q.objective["objective"]}, {})
    assert two.explain("cost") == two.explain("objective") == deep


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
    assert not {*p.constraints} & {*p.variables}
    with pytest.raises(of.DeclarationError, match="no variable") as e:
        p[next(iter(p.constraints))]
    assert e.value.remedy.startswith("it is a constraint")
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


def declared(sense: str, goal: Any, *rows: Any) -> of.Problem:
    """Return a model declared in one go, whose rows are called r0, r1 ..."""

    class Declared(of.Problem):
        def declare(self) -> Any:
            named = {f"r{i}": (row, "r") for i, row in enumerate(rows)}
            return of.core.declaration(sense, {"goal": (goal, "f")}, named)

    return Declared()


ATTRIBUTES: list[tuple[dict[str, Any], Any, str, float, list[str]]] = [
    ({"boolean": True}, lambda x: ("maximize", [4.0, 5.0] @ x, [3.0, 4.0] @ x <= 6), "MILP", 5, []),
    ({"integer": True}, lambda x: ("minimize", cp.sum_squares(x - 0.5), x <= 1), "MIQP", 0.5, []),
    ({"integer": [(1,)]}, lambda x: ("maximize", cp.sum(x), x <= 1.5), "MILP", 2.5, []),
    ({"nonneg": True}, lambda x: ("minimize", cp.sum(x), x >= -2), "LP", 0, ["x nonnegative"]),
    ({"pos": True}, lambda x: ("minimize", cp.sum(x + cp.inv_pos(x)), x <= 9), "SOCP", 4, []),
    ({"bounds": [-1, 2]}, lambda x: ("maximize", cp.sum(x), x[0] <= 1), "LP", 3, ["x lower"]),
]


@pytest.mark.parametrize(("attributes", "write", "word", "optimum", "terms"), ATTRIBUTES)
def test_attributes_of_a_models_variables_become_its_terms(
    attributes: dict[str, Any], write: Any, word: str, optimum: float, terms: list[str]
) -> None:
    x = cp.Variable(2, name="x", **attributes)
    sense, goal, row = write(x)
    p = declared(sense, goal, row)
    adopted = of.from_cvxpy(
        cp.Problem(cp.Maximize(goal) if sense == "maximize" else cp.Minimize(goal), [row])
    )
    assert p.problem_class == adopted.problem_class and p.problem_class.name == word
    assert {*p.constraints} - {"r0"} == {*adopted.constraints} - {"c0"} and {*terms} <= {
        *p.constraints
    }
    assert p.solve().objective == pytest.approx(optimum, abs=1e-6)
    # a rule may be written on the variable that was declared
    q = p.with_constraints(more=x[0] == 0.0)
    assert "x" in q.constraints["more"].scope


def test_a_variable_called_like_the_entries_of_another_is_not_lost() -> None:
    x, twin = cp.Variable(2, name="x", integer=[(1,)]), cp.Variable(name="x integer")
    p = declared("maximize", cp.sum(x) + twin, x <= 1.5, twin <= 4)
    assert len(p.variables) == 3 and p.solve().objective == pytest.approx(6.5)


@pytest.mark.parametrize("attribute", ["PSD", "NSD"])
def test_a_models_semidefinite_variable_is_that(attribute: str) -> None:
    X = cp.Variable((2, 2), name="X", **{attribute: True})
    sign = 1.0 if attribute == "PSD" else -1.0
    s = declared("minimize", sign * cp.trace(X), X[0, 1] == 1.0).solve()
    assert s.objective == pytest.approx(2.0, abs=1e-6) and s.certificate.verify()


def test_a_model_refuses_what_its_terms_do_not_show() -> None:
    u, v, z = cp.Variable(2, name="u"), cp.Variable(2, name="v"), cp.Variable(2, complex=True)
    inner = cp.Problem(cp.Minimize(cp.norm1(u - v)), [v >= 0])
    twin = cp.Variable(name="x") - cp.Variable(name="x")
    cases = [
        (partial_optimize(inner, [v], [u]), "variables of its own"),
        (cp.sum_squares(u) + cp.transforms.indicator([u <= 1]), "variables of its own"),
        (cp.norm(z - 1j), "complex numbers"),
        (twin, "two variables are called 'x'"),
    ]
    for goal, why in cases:
        with pytest.raises(of.errors.DeclarationError, match=why):
            declared("minimize", goal)

    class Signed(of.Problem):
        def declare(self) -> Any:
            return of.core.Declaration({"x": cp.Variable(name="x", nonneg=True)})

    with pytest.raises(of.errors.DeclarationError, match="attribute 'nonneg'"):
        Signed()
