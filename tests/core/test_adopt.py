"""Any CVXPY problem becomes a declared one."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.transforms.indicator import indicator
from cvxpy.transforms.partial_optimize import partial_optimize

import optfair as of
from optfair.core.adopt import declaration
from optfair.core.composition import objective_term
from optfair.transforms.duality import dualize


def test_attributes_become_terms() -> None:
    a = cp.Variable(2, name="a", nonneg=True)
    b = cp.Variable(2, name="b", bounds=[np.array([0.0, -np.inf]), 3.0])
    c = cp.Variable(name="c", boolean=True)
    S = cp.Variable((2, 2), name="S", PSD=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(a) + cp.trace(S) - c - cp.sum(b))))
    assert sorted(p.constraints) == [
        "S psd",
        "a nonnegative",
        "b lower",
        "b upper",
        "c lower",
        "c upper",
    ]
    assert p.integers == {"c"}
    assert str(p.problem_class) == "MISDP"
    for v in p.variables.values():
        assert not any(v.attributes[k] for k in ("nonneg", "boolean", "PSD", "bounds"))


@pytest.mark.filterwarnings("ignore:two variables are called:UserWarning")
@pytest.mark.parametrize("seed", range(4))
def test_same_optimum_as_cvxpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(8, 4)), rng.normal(size=8)
    x = cp.Variable(4, name="x", nonneg=True)
    t = cp.Variable(4, name="x", bounds=[-1, 1])  # the same name twice
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(A @ (x - t) - b) + cp.norm1(t)),
        [cp.sum(x) <= 2, cp.norm(t) <= 1],
    )
    p = of.from_cvxpy(problem)
    assert set(p.variables) == {"x", "x 2"}
    problem.solve(solver="CLARABEL")
    s = p.solve()
    assert s.objective == pytest.approx(problem.value, rel=1e-6)
    assert s.certificate.verify()


def test_bad_input() -> None:
    x = cp.Variable(2)
    with pytest.raises(of.DeclarationError, match="give a cvxpy"):
        of.from_cvxpy(x)
    with pytest.raises(of.DeclarationError, match="1 names for 2 constraints"):
        of.from_cvxpy(cp.Problem(cp.Minimize(0), [x >= 0, x <= 1]), ["one"])


def test_complex_variables_are_two_real_ones() -> None:
    z = cp.Variable(2, complex=True, name="z")
    goal = cp.Minimize(cp.norm(z - np.array([1 + 2j, 3 - 1j])))
    problem = cp.Problem(goal, [cp.real(z[0]) >= 2, z[1] == 2j])
    p = of.from_cvxpy(problem, ["part", "pin"])
    assert set(p.variables) == {"z", "z imaginary"}
    assert list(p.constraints) == ["part", "pin", "pin imaginary"]
    s = p.solve()
    assert s.objective == pytest.approx(np.sqrt(19.0)) and s.is_optimal(1e-6)
    np.testing.assert_allclose(s["z"] + 1j * s["z imaginary"], [2 + 2j, 2j], atol=1e-6)
    step = 1e-4
    moved = cp.Problem(goal, [cp.real(z[0]) >= 2, z[1] == (2 + step) * 1j])
    slope = (of.from_cvxpy(moved).solve(tolerance=1e-9).objective - s.objective) / step
    assert float(s.shadow_price["pin imaginary"]) == pytest.approx(slope, abs=1e-3)


def test_complex_parameters_of_any_kind_are_taken_without_a_warning() -> None:
    places = (np.array([0, 1]), np.array([0, 1]))
    sparse = cp.Parameter((2, 2), complex=True, sparsity=places, name="sparse")
    sparse.value_sparse = sp.coo_array((np.array([1 + 2j, 3 - 4j]), places), shape=(2, 2))
    one = cp.Parameter((1, 1), hermitian=True, value=np.array([[3.0 + 0j]]), name="one")
    x, t = cp.Variable((2, 2), complex=True, name="x"), cp.Variable(name="t")
    near = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x - sparse, "fro"))))
    assert near.solve(tolerance=1e-6).objective == pytest.approx(0.0, abs=1e-6)
    above = of.from_cvxpy(cp.Problem(cp.Minimize(t), [t * np.eye(1) >> one]))
    assert above.solve(tolerance=1e-6).objective == pytest.approx(3.0, abs=1e-5)


def test_hermitian_and_negative_semidefinite_variables() -> None:
    H = cp.Variable((2, 2), hermitian=True, name="H")
    least = np.array([[1, 1j], [-1j, 2]])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.real(cp.trace(H))), [H >> least]))
    assert p.solve(tolerance=1e-6).objective == pytest.approx(3.0, abs=1e-5)
    N = cp.Variable((2, 2), NSD=True, name="N")
    goal = cp.Maximize(cp.trace(N) + N[0, 1])
    assert of.from_cvxpy(cp.Problem(goal, [N[0, 0] == -1])).solve().objective == pytest.approx(
        -0.75, abs=1e-6
    )


def test_problems_of_constants() -> None:
    assert of.from_cvxpy(cp.Problem(cp.Minimize(3.0))).solve().objective == 3.0
    holds = cp.Problem(cp.Maximize(2.0), [cp.Constant(1.0) <= 2.0])
    assert of.from_cvxpy(holds).solve().objective == 2.0
    with pytest.raises(of.Infeasible) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(2.0), [cp.Constant(3.0) <= 2.0]), ["never"]).solve()
    assert e.value.conflict == ("never",)


@pytest.mark.parametrize(("kind", "optimum"), [("integer", 6.5), ("boolean", 4.5)])
def test_variables_of_which_some_entries_are_whole(kind: str, optimum: float) -> None:
    x = cp.Variable(3, name="x", **{kind: [(0,), (2,)]})
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [x <= 2.5, x >= 0]))
    assert p.problem_class.integer and p.solve().objective == pytest.approx(optimum)


def test_what_cannot_be_taken_apart_is_refused_by_name() -> None:
    class Odd(cp.exp):  # type: ignore[misc,name-defined]
        """An atom that is not made from its arguments alone."""

        def __init__(self, x: Any, more: int) -> None:
            super().__init__(x)

    for y, word in ((cp.Variable(nonneg=True), "be taken apart"), (cp.Variable(), "compile")):
        with pytest.raises(of.UnsupportedProblem, match=f"cannot {word}"):
            of.from_cvxpy(cp.Problem(cp.Minimize(Odd(y, 1)), [y >= 1]))


def test_plain_variables_are_taken_as_they_are_and_keep_no_value() -> None:
    x, y, twin = cp.Variable(2, name="x"), cp.Variable(name="y", nonneg=True), cp.Variable(name="x")
    rows = [x >= 1, cp.norm(x) <= 5, y >= x[0], twin == y]
    with pytest.warns(UserWarning, match="two variables are called 'x'"):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + y + twin), rows))
    assert p.variables["x"] is x and p.constraints["c1"].build() is rows[1]
    assert p.variables["y"] is not y and p.variables["x 2"] is not twin
    assert p.solve().objective == pytest.approx(4.0)
    # nothing is written back unless that is asked for, and what others write is not read
    assert [v.value for v in (x, y, twin)] == [None] * 3
    x.value = np.array([7.0, 7.0])
    assert p.with_constraints(more=x >= 2).solve().objective == pytest.approx(8.0)
    assert (x.value == 7.0).all()


@pytest.mark.parametrize("condition", [1.0, 1e7, 1e10])
def test_the_perspective_of_a_form_is_proved_of_its_own_matrix(condition: float) -> None:
    """A root that is rounded up would prove more than the form is worth along small directions."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        U = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        P = U @ np.diag([1.0, condition**-0.5, 1.0 / condition]) @ U.T
        P = (P + P.T) / 2
        v = U[:, 2] * condition**0.5 + 0.1 * rng.normal(size=3)
        x, s = cp.Variable(3, name="x"), cp.Variable(name="s", nonneg=True)
        cost = cp.Minimize(cp.perspective(cp.quad_form(x, P), s))
        solution = of.from_cvxpy(cp.Problem(cost, [x == v, s == 1])).solve()
        pairs = itertools.product(range(3), repeat=2)
        truth = sum(Fraction(v[i]) * Fraction(P[i, j]) * Fraction(v[j]) for i, j in pairs)
        assert str(solution.grade) == "proved" and Fraction(solution.bound) <= truth
        assert solution.objective == pytest.approx(float(truth), rel=1e-5)


def test_the_perspective_of_a_form_without_a_known_root_is_refused() -> None:
    x, s = cp.Variable(3, name="x"), cp.Variable(name="s", nonneg=True)
    B = np.random.default_rng(0).integers(-3, 4, size=(2, 3)).astype(float)
    long = np.random.default_rng(0).integers(-(2**22), 2**22, size=(2, 3)).astype(float)
    known = (B.T @ B, float(np.square(B.sum(axis=1)).sum()))
    others = (np.zeros((3, 3)), 0.0), (np.diag([1.0, 0.0, 2.0]), 3.0)
    for P, seen in ((long.T @ long, None), known, *others):
        cost = cp.Minimize(cp.perspective(cp.quad_form(x, cp.psd_wrap(P)), s))
        problem = cp.Problem(cost, [x == 1, s == 1])
        if seen is None:
            with pytest.raises(of.UnsupportedProblem, match="known to rounding only") as refused:
                of.from_cvxpy(problem)
            assert "sum_squares" in refused.value.remedy
        else:
            assert of.from_cvxpy(problem).solve().objective == pytest.approx(seen, abs=1e-6)


def test_the_perspective_of_a_concave_form_is_maximized() -> None:
    x, s = cp.Variable(2, name="x"), cp.Variable(name="s", nonneg=True)
    form = cp.perspective(cp.quad_form(x, np.diag([-1.0, -2.0])), s)  # -(1 + 2) / s at x = (1, 1)
    answer = of.from_cvxpy(cp.Problem(cp.Maximize(form - s), [x == 1, s >= 1])).solve()
    assert answer.objective == pytest.approx(-2.0 * np.sqrt(3.0))
    assert answer.grade.word == "proved"


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_the_perspective_of_an_affine_function_is_affine(sense: Any) -> None:
    """It is convex and concave: neither of its sides is without a limit."""
    x, s = cp.Variable(2, name="x"), cp.Variable(name="s", nonneg=True)
    for f in (3 * x[0] - x[1] + 2, cp.quad_form(x, np.zeros((2, 2))) + x[0] + x[1] + 2):
        goal = cp.perspective(f, s) - s  # 3 - 1 + 2s - s, and 1 + 1 + 2s - s
        answer = of.from_cvxpy(cp.Problem(sense(goal), [x == 1, s >= 1, s <= 2])).solve()
        assert answer.objective == pytest.approx(3.0 if sense is cp.Minimize else 4.0)
        assert answer.grade.word == "proved"


def test_a_perspective_of_cvxpy_is_refused_by_name_where_its_rules_are_not_met() -> None:
    x, s = cp.Variable(name="x"), cp.Variable(name="s", nonneg=True)
    written = cp.perspective(cp.square(x), s)
    with pytest.raises(of.UnsupportedProblem, match="a perspective of CVXPY") as found:
        of.from_cvxpy(cp.Problem(cp.Maximize(written), [x >= 1, s <= 2]))
    assert "quad_over_lin(x, s)" in found.value.remedy


PERSPECTIVES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "reciprocals": (lambda x: cp.sum(cp.inv_pos(x)), 0.39),  # several cones of second order
    "powers": (lambda x: cp.sum(cp.power(x, 1.5)), 1.5),
    "norm": (lambda x: cp.norm(x, 3), 0.3 + 0.5 * 2.0 ** (1 / 3)),
    "logarithms": (lambda x: -cp.sum(cp.log(x)), -4.0 * np.exp(-1.5)),
    "constants": (lambda x: cp.norm1(cp.hstack([x, 3.0])) - 1, 1.9),
    "matrix": (lambda x: cp.lambda_max(cp.diag(x) + np.ones((2, 2))), 1.4),
}


@pytest.mark.parametrize("name", PERSPECTIVES)
def test_a_perspective_has_the_optimum_of_its_function(name: str) -> None:
    make, optimum = PERSPECTIVES[name]
    x, s = cp.Variable(2, name="x"), cp.Variable(name="s", nonneg=True)
    goal = cp.Minimize(cp.perspective(make(x), s) + s)
    answer = of.from_cvxpy(cp.Problem(goal, [x >= 0.5, x <= 2, s >= 0.3])).solve()
    x.value, t = answer["x"] / answer["s"], float(answer["s"])
    assert answer.objective == pytest.approx(t * float(make(x).value) + t, abs=1e-6)
    assert answer.grade.word == "proved" and answer.objective == pytest.approx(optimum, abs=1e-6)


X, S = cp.Variable(2, name="x"), cp.Variable(name="s", nonneg=True)
INNER = cp.Problem(cp.Minimize(cp.sum(X) + S), [S >= X])
HIDDEN: dict[str, tuple[Any, list[Any], float]] = {
    "perspective": (cp.perspective(cp.square(X[0]), S) + S, [X[0] >= 1], 2.0),
    "indicator": (cp.sum(X) + indicator([X >= 1]), [X[0] >= 2], 3.0),
    "partial": (
        partial_optimize(INNER, opt_vars=[S], solver=cp.CLARABEL) + 1,
        [X >= 2],
        7.0,
    ),
    "finite set": (cp.sum(X), [cp.FiniteSet(X, [1, 3, 5]), X >= 2], 6.0),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_hides_variables_or_constraints_is_written_out(name: str) -> None:
    goal, rows, optimum = HIDDEN[name]
    plain = cp.Problem(cp.Minimize(goal), rows)
    p = of.from_cvxpy(plain, [f"row {i}" for i in range(len(rows))])
    s = p.solve(write_back=True)
    assert s.objective == pytest.approx(optimum, abs=1e-6)
    assert set(p.constraints) >= {f"row {i}" for i in range(len(rows))}
    assert plain.status == "optimal" and np.isfinite(X[0].value)
    again = pickle.loads(pickle.dumps(p))
    assert again.solve().objective == pytest.approx(optimum, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_logic_is_what_enumeration_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, two, three = (cp.Variable(boolean=True, name=n) for n in "abc")
    logic = cp.logic
    words = [
        logic.And(one, logic.Not(two), three),
        logic.Or(logic.Xor(one, two), logic.And(two, three)),
        logic.Xor(one, two, logic.Not(three)),
        logic.implies(three, one),
    ]
    costs = rng.normal(size=7).round(2)
    goal = sum(c * e for c, e in zip(costs, [*words, one, two, three], strict=True))
    rule = logic.Or(one, two, three)
    best = np.inf
    for point in itertools.product([0.0, 1.0], repeat=3):
        one.value, two.value, three.value = map(np.array, point)
        best = min(best, float(goal.value)) if rule.value >= 1 else best
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [rule == 1]), ["rule"]).solve()
    assert s.objective == pytest.approx(best, abs=1e-9) and "rule" in s.problem.constraints
    one.value, two.value, three.value = (np.round(s[n]) for n in "abc")
    assert float(goal.value) == pytest.approx(best, abs=1e-9) and rule.value == 1


SETS: dict[str, Callable[[Any], list[Any]]] = {
    "ball": lambda x: [cp.norm(x) <= 2, x >= -1],
    "box": lambda x: [x <= 1, x >= -2, cp.sum(x) == 1],
    "entropy": lambda x: [cp.sum(cp.kl_div(x, np.ones(3))) <= 1],
    "matrix": lambda x: [cp.bmat([[1, x[0], x[1]], [x[0], 1, x[2]], [x[1], x[2], 1]]) >> 0],
}


@pytest.mark.parametrize("name", SETS)
def test_support_functions_keep_their_set(name: str) -> None:
    x, y = cp.Variable(3), cp.Variable(3, name="y")
    support = cp.suppfunc(x, SETS[name](x))
    rows = [cp.sum(y) >= 1, support(2 * y - 1) <= 40]
    problem = cp.Problem(cp.Minimize(support(y) + cp.sum_squares(y - 1)), rows)
    p = of.from_cvxpy(problem, ["sum", "limit"])
    s = p.solve()
    assert s.objective == pytest.approx(problem.solve(solver="CLARABEL"), abs=1e-5)
    assert s.is_optimal(1e-6) and s.grade.sound and p.constraints["limit"].evidence.proof is None
    again = pickle.loads(pickle.dumps(p.with_constraints(cap=y <= 0.36)))
    assert again.solve().objective == pytest.approx(
        cp.Problem(problem.objective, [*rows, y <= 0.36]).solve(solver="CLARABEL"), abs=1e-5
    )


C = np.array([[1.0], [2.0]])
ONE_ENTRY: dict[str, tuple[Any, Any, float]] = {
    "column": (lambda x: C.T @ x, (2, 1), 3.0),
    "row": (lambda x: C.T @ x, 2, 3.0),
    "shifted": (lambda x: C.T @ x + np.ones((1, 1)), (2, 1), 4.0),
    "product": (lambda x: cp.sum_squares(x) + C.T @ x, (2, 1), 5.0),
    "norm": (lambda x: cp.norm(x, axis=0), (2, 1), float(np.sqrt(2.0))),
}


@pytest.mark.parametrize("name", ONE_ENTRY)
def test_an_objective_is_a_matrix_of_one_entry(name: str, tmp_path: Path) -> None:
    make, shape, optimum = ONE_ENTRY[name]
    x = cp.Variable(shape, name="x")
    assert make(x).shape in {(1,), (1, 1)}
    for sense, sign in ((cp.Minimize, 1.0), (cp.Maximize, -1.0)):
        p = of.from_cvxpy(cp.Problem(sense(sign * make(x)), [x >= 1]))
        s = p.solve()
        assert type(s.objective) is float and s.objective == pytest.approx(sign * optimum, rel=1e-6)
        assert s.is_optimal(1e-6) and p.certificate.verify()
        value = p.objective["objective"].value({"x": np.full(x.shape, 2.0)})
        assert type(value) is float and np.isfinite(value)
        assert p.cvxpy.objective.args[0].shape == ()
        assert p.diagnose().verdict == "fine"
        dual = dualize(p)
        t = dual.recover(dual.problem.solve())
        assert t.objective == pytest.approx(sign * optimum, rel=1e-6)
        p.export(tmp_path / "p.cbf")
        assert of.read(tmp_path / "p.cbf").solve().objective == pytest.approx(
            sign * optimum, rel=1e-5
        )
        if name != "norm":
            p.export(tmp_path / "p.lp")
            assert of.read(tmp_path / "p.lp").solve().objective == pytest.approx(sign * optimum)
            assert p.to_pyomo().component("objective") is not None


def test_an_objective_of_several_entries_is_refused() -> None:
    x = cp.Variable(2, name="x")
    with pytest.raises(of.DeclarationError, match=r"'t' has the shape \(2,\), not one number"):
        objective_term("t", 2 * x, {x.id: "x"}, "minimize")


def test_odd_objectives_are_numbers_or_refused_in_words() -> None:
    z, root = cp.Variable(2, complex=True, name="z"), np.array([[2.0, 1.0j], [0.0, 1.0]])
    P = root.conj().T @ root
    goal = cp.Minimize(cp.quad_form(z, (P + P.conj().T) / 2))
    s = of.from_cvxpy(cp.Problem(goal, [z == np.array([1.0, 1.0j])])).solve()
    at = np.array([1.0, 1.0j])
    assert s.objective == pytest.approx(float((at.conj() @ P @ at).real), abs=1e-6)
    x, S = cp.Variable(2, name="x"), cp.Variable((2, 2), name="S", symmetric=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.matrix_frac(x, S)), [S << np.eye(2), x >= 1]))
    assert np.isnan(p.objective_value({"x": np.ones(2), "S": np.ones((2, 2))}))
    zero = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x[0]) * 0.0), [x >= 2]))
    assert zero.solve().objective == 0.0 and zero.solve()["x"].min() >= 2.0 - 1e-9


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_cones_of_half_lines_and_points_are_measured_by_entry(shape: tuple[int, ...]) -> None:
    x = cp.Variable(shape, name="x")
    for row, least in ((cp.NonNeg(x - 1), 1.0), (cp.Zero(x - 2), 2.0)):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [row, x >= -5]), ["row", "floor"])
        s = p.solve()
        assert s.grade.word == "proved" and np.allclose(s["x"], least, atol=1e-6)
        off = p.constraints["row"].violation({"x": np.full(shape, 0.5)})
        assert np.allclose(off, least - 0.5) and np.shape(off) == shape


@pytest.mark.parametrize("weight", [0, 0.0, np.float64(0.0), cp.Constant(0.0)])
def test_what_is_multiplied_by_zero_is_nothing_wherever_it_is_finite(weight: Any) -> None:
    x = cp.Variable(3, name="x")
    far = cp.abs(x - 1) <= 2
    ends = {  # an elastic net at the ends of its ratio, deep in products
        0.5 * (cp.norm1(x - 1) + weight * cp.sum_squares(x)): ("LP", 0.0),
        2.0 * (weight * cp.norm1(x) + cp.sum_squares(x - 2)): ("QP", 0.0),
        2.0 * (cp.sum(x) - 3.0 * (weight * cp.square(cp.norm1(x)))): ("LP", -6.0),
        cp.sum(x) + (weight * cp.quad_form(x, -np.eye(3))) * 2.0: ("LP", -3.0),
        3.0 * (cp.sum(x) + weight * (x[0] * x[1])): ("LP", -9.0),
        3.0 * (weight * cp.exp(x[0]) + cp.sum(x)): ("LP", -9.0),
        3.0 * (cp.quad_form(x, np.zeros((3, 3))) - cp.sum(x)): ("LP", -27.0),
    }
    for f, (kind, least) in ends.items():
        p = of.from_cvxpy(cp.Problem(cp.Minimize(f), [far]))
        s = p.solve()
        assert s.grade.word == "proved" and s.objective == pytest.approx(least, abs=1e-6), f
        assert str(p.problem_class) == kind and set(s.values) == {"x"}
    # where it is not finite, its domain stays
    q = of.from_cvxpy(cp.Problem(cp.Minimize(2.0 * (weight * cp.log(x[0]) + cp.sum(x))), [far]))
    assert q.solve().objective == pytest.approx(-4.0, abs=1e-6)
    rows = [far, 2.0 * (weight * cp.sum_squares(x) + x[0]) >= 1.0]
    assert of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows)).solve().objective == (
        pytest.approx(-1.5, abs=1e-6)
    )


def test_bounds_of_variables_are_terms_where_they_are_finite() -> None:
    top = cp.Parameter(2, name="top", value=np.array([1.0, 2.0]))
    y = cp.Variable(2, name="y", bounds=[np.array([-np.inf, 0.0]), top])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y))))
    assert {name: t.shape for name, t in p.constraints.items()} == {
        "y lower": (1,),
        "y upper": (2,),
    }
    assert p.solve()["y"] == pytest.approx(np.array([1.0, 2.0]))
    assert p.constraints["y lower"].violation({"y": np.array([-9.0, -1.0])}) == pytest.approx(1.0)
    assert p._repr_latex_().startswith("$$\\begin{aligned}\n\\max")
    # one rule in a list is the rule
    listed = p.with_constraints(low=[y <= 0.5])
    assert listed.solve()["y"] == pytest.approx(np.full(2, 0.5))


def test_the_side_of_a_cone_is_its_largest_finite_number() -> None:
    x = cp.Variable(2, name="x")
    disk = cp.SOC(cp.Constant(2.0), x - np.array([3.0, 4.0]))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [disk]), ["disk"])
    assert p.constraints["disk"].largest_side == 4.0


def test_no_constraint_is_lost_to_an_attribute_of_its_name() -> None:
    """A bound of the variable x is called "x upper": so may be somebody's constraint."""
    x, X = cp.Variable(name="x", bounds=[0, 3]), cp.Variable((2, 2), PSD=True, name="X")
    for name in ("x lower", "x upper"):
        p = of.from_cvxpy(cp.Problem(cp.Maximize(x), [x <= 2]), [name])
        assert len(p.constraints) == 3 and p.solve().objective == pytest.approx(2.0)
    p = of.from_cvxpy(cp.Problem(cp.Maximize(X[0, 0]), [cp.trace(X) <= 2]), ["X psd"])
    assert p.solve().objective == pytest.approx(2.0)
    y = cp.Variable(2, boolean=[(0,)], name="y")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [y <= 0.5]), ["y boolean"])
    assert p.solve().objective == pytest.approx(0.5)


def test_the_violation_of_a_constraint_is_not_that_of_integrality() -> None:
    x = cp.Variable(name="x", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1]), ["x integer"])
    s = p.solve()
    wrong = replace(s, values={"x": np.array(0.0)}, objective=0.0, bound=0.0)
    assert s.residuals().feasibility == 0.0 and wrong.residuals().feasibility > 0.1


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e3, 1e6])
def test_an_optimum_at_the_origin_is_proved_in_any_unit(unit: float) -> None:
    """Its objective is all that the origin leaves; nothing that is added to it is constant."""
    rng = np.random.default_rng(0)
    A, b, x = rng.normal(size=(20, 3)), unit * rng.normal(size=20), cp.Variable(3, name="x")
    goal = cp.sum(cp.huber(A @ x - b, unit)) + 1e3 * unit * cp.norm1(x)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal))).solve()
    truth = float(np.sum(np.where(np.abs(b) <= unit, b**2, 2 * unit * np.abs(b) - unit**2)))
    assert s.grade.word == "proved" and s.problem.objective_constant == 0.0
    assert s.objective == pytest.approx(truth, rel=1e-7)
    assert truth - s.bound <= 1e-7 * max(min(unit, 1.0) ** 2, truth)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_squares_that_vanish_are_proved_in_any_unit(unit: float) -> None:
    rng = np.random.default_rng(1)
    A, x = rng.normal(size=(20, 3)), cp.Variable(3, name="x")
    b = A @ (unit * rng.normal(size=3))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)))).solve()
    assert s.grade.word == "proved" and s.bound <= s.objective
    assert s.objective <= 1e-7 * min(unit, 1.0) ** 2


@pytest.mark.parametrize(
    ("goal", "constant"),
    [
        (lambda x: x[0] + 5.0, 5.0),
        (lambda x: cp.sum_squares(x - 3.0), 0.0),
        (lambda x: 2.0 * (cp.norm(x - 1.0) + cp.sum(x + 4.0)) - 3.0, 13.0),
        (lambda x: cp.sum(cp.hstack([cp.exp(x), x + 1.0])), 2.0),
        (lambda x: 1.0 + cp.inv_pos(x[0]) / 4.0, 1.0),
        (lambda x: 1.0 / (1.0 + cp.square(x[0])) + 2.0, 2.0),
        (lambda x: x[0] * x[1] - 7.0, -7.0),
    ],
)
def test_constants_of_an_objective_are_those_that_are_added(goal: Any, constant: float) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(cp.Variable(2, name="x")))))
    assert p.objective_constant == constant


@pytest.mark.parametrize(("shape", "place"), [(3, (5,)), (3, (-4,)), (3, (0, 0)), ((2, 2), (0, 2))])
@pytest.mark.parametrize("kind", ["integer", "boolean"])
def test_whole_entries_that_a_variable_does_not_have_are_named(kind, shape, place):
    x = cp.Variable(shape, name="x", **{kind: [place]})
    with pytest.raises(of.DeclarationError, match="'x' has no entry"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.5]))


def soc_rows(axis: int) -> cp.Problem:
    M = cp.Variable((2, 3), name="M")
    t = cp.Variable(M.shape[1 - axis], name="t")
    cost = np.arange(1.0, t.size + 1.0)
    fixed = np.array([[1.0, 2.0, 3.0], [0.5, 0.6, 0.7]])
    return cp.Problem(cp.Minimize(cost @ t), [cp.SOC(t, M, axis=axis), fixed == M])


def exp_rows() -> cp.Problem:
    a, b, c = (cp.Variable(2, name=n) for n in "abc")
    rows = [cp.ExpCone(a, b, c), b == 1, a >= np.array([1.0, 0.5])]
    return cp.Problem(cp.Minimize(np.array([1.0, 2.0]) @ c), rows)


def power_rows() -> cp.Problem:
    M = cp.Variable((2, 3), name="M")
    rows = [cp.PowCone3D(M[:, 0], M[:, 1], M[:, 2], [0.2, 0.6]), M[:, 0] + M[:, 1] == 2]
    return cp.Problem(cp.Maximize(np.array([1.0, 2.0]) @ M[:, 2]), rows)


def complex_rows() -> cp.Problem:
    w = cp.Variable(2, complex=True, name="w")
    return cp.Problem(cp.Minimize(cp.norm(w)), [w[0] + w[1] == 1 + 2j, cp.real(w[0]) >= 2])


def imaginary_rows() -> cp.Problem:
    z = cp.Variable(2, imag=True, name="z")
    return cp.Problem(cp.Minimize(cp.norm(z)), [z[0] + 2 * z[1] == 5j])


def hidden_rows() -> cp.Problem:
    a, b = cp.Variable(name="a"), cp.Variable(name="b", nonneg=True)
    return cp.Problem(cp.Minimize(cp.perspective(cp.square(a), b) + b), [a >= 1])


DUALS = {
    "columns of cones": lambda: soc_rows(0),
    "rows of cones": lambda: soc_rows(1),
    "exponential": exp_rows,
    "power": power_rows,
    "complex": complex_rows,
    "imaginary": imaginary_rows,
    "perspective": hidden_rows,
}


@pytest.mark.parametrize("name", DUALS)
def test_duals_are_written_back_as_cvxpy_has_them(name: str) -> None:
    theirs, ours = DUALS[name](), DUALS[name]()
    theirs.solve(solver="CLARABEL")
    of.from_cvxpy(ours).solve(write_back=True)
    for one, other in zip(theirs.constraints, ours.constraints, strict=True):
        parts = zip(one.dual_variables, other.dual_variables, strict=True)
        for expected, written in ((a.value, b.value) for a, b in parts):
            assert np.shape(written) == np.shape(expected)
            assert np.allclose(written, expected, atol=1e-3)


def test_a_dual_is_that_of_its_own_constraint_whatever_names_are() -> None:
    a = cp.Variable(name="a")
    rows = [a >= 1, a >= -1, a <= 9]
    plain = cp.Problem(cp.Minimize(a), rows)
    of.from_cvxpy(plain, ["low", "low imaginary", "high"]).solve(write_back=True)
    assert [float(r.dual_value) for r in rows] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    # what is written out, with one name for two: neither is told which is which
    b = cp.Variable(name="b", nonneg=True)
    twins = [(a >= 1).set_label("same"), (a >= -1).set_label("same"), a <= 9]
    hidden = cp.Problem(cp.Minimize(cp.perspective(cp.square(a), b) + b), twins)
    of.from_cvxpy(hidden).solve(write_back=True)
    assert twins[0].dual_value is twins[1].dual_value is None
    assert float(twins[2].dual_value) == pytest.approx(0.0, abs=1e-6)


def test_matrices_of_one_entry_and_numbers_beside_them_are_read() -> None:
    """CVXPY asks a number among the parts of a sum for its second length."""
    x = cp.Variable(2, name="x")
    block = 1.0 * ((x[0] / 100 - 1) * np.array([[2.0]]) + np.eye(1)) >> 0
    with pytest.raises(of.Infeasible):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 3, block])).solve()


def test_a_function_of_complex_numbers_without_a_real_form_is_refused() -> None:
    H = cp.Variable((2, 2), hermitian=True, name="H")
    problem = cp.Problem(cp.Minimize(cp.condition_number(H)), [cp.real(H[0, 0]) == 1])
    with pytest.raises(of.UnsupportedProblem, match="no form in real ones"):
        of.from_cvxpy(problem)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    ("said", "truth"),
    [({"sparsity": [(0, 1), (1, 2)]}, 383.0), ({"diag": True}, 302.0), ({"symmetric": True}, 24.0)],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_parts_of_complex_variables_keep_their_shape(
    said: dict[str, Any], truth: float, unit: float
) -> None:
    C = unit * (np.arange(9).reshape(3, 3) + 1j * np.arange(9, 0, -1).reshape(3, 3))
    z = cp.Variable((3, 3), complex=True, name="z", **said)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(z - C)))).solve()
    assert s.objective == pytest.approx(truth * unit**2) and str(s.grade) == "proved"


def test_what_is_said_of_complex_variables_and_not_kept_is_refused() -> None:
    z = cp.Variable(2, complex=True, integer=True, name="z")
    with pytest.raises(of.UnsupportedProblem, match="'z' is integer"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(z - 0.4))))
    h = cp.Variable((2, 2, 2), hermitian=True, name="h")
    with pytest.raises(of.UnsupportedProblem, match="'h' is a stack"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(h - 1))))


@pytest.mark.parametrize("kind", ["complex", "imag", "hermitian"])
def test_a_complex_parameter_with_another_value_is_not_overlooked(kind: str) -> None:
    first, other = {
        "complex": (np.array([1 + 1j, 0]), np.array([5 + 1j, 0])),
        "imag": (np.array([1j, 0]), np.array([1j, 2j])),
        "hermitian": (np.array([[1, 1j], [-1j, 2]]), np.array([[1, 3j], [-3j, 2]])),
    }[kind]
    z = cp.Variable(first.shape, complex=True, name="z")
    c = cp.Parameter(first.shape, name="c", value=first, **{kind: True})
    given = cp.Problem(cp.Minimize(cp.norm(cp.vec(z - c, order="F"), 1)), [cp.abs(z) <= 0.5])
    p = of.from_cvxpy(given)
    before = p.solve().objective
    assert before == pytest.approx(np.maximum(np.abs(first) - 0.5, 0.0).sum())
    pickle.loads(pickle.dumps(p))
    c.value = other
    with pytest.raises(of.DeclarationError, match=r"'c_(real|imag)' in 'objective' was"):
        p.solve()
    truth = np.maximum(np.abs(other) - 0.5, 0.0).sum()
    assert of.from_cvxpy(given).solve().objective == pytest.approx(truth)
    upper = other[np.triu_indices(len(other), 1)] if kind == "hermitian" else other
    parts = {"c_real": other.real, "c_imag": upper.imag}
    moved = p.at({k: v for k, v in parts.items() if k in p.parameters})
    whole = p.at({"c": other}), p.at({c: other})
    c.value = first
    for q in (moved, *whole):
        assert q.solve().objective == pytest.approx(truth)
    kinds = {"imag": np.array([1 + 1j, 0]), "hermitian": np.array([[1, 1j], [1j, 2]])}
    own = cp.Parameter(name="a_real", value=1.0)  # of that name by chance
    plain = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(z - own))))
    with pytest.raises(of.DeclarationError, match="no parameter 'a'"):
        plain.at({"a": 1.0})
    for wrong in ("many", other[:1], np.full(other.shape, np.nan), kinds.get(kind, "none")):
        with pytest.raises(of.DeclarationError, match="parameter 'c"):
            p.at({"c": wrong})


def test_a_variable_that_was_pickled_is_the_same_variable() -> None:
    x = cp.Variable(3, name="x")
    y = pickle.loads(pickle.dumps(x))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [y >= 1]))
    assert list(p.variables) == ["x"] and p.solve().objective == pytest.approx(3.0)
    z = cp.Variable(2, complex=True, name="z")
    w = pickle.loads(pickle.dumps(z))
    q = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(z - [1, 2j])), [cp.real(w) <= 0.5]))
    assert q.solve().objective == pytest.approx(0.5)


def test_bounds_may_be_sparse() -> None:
    low = sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2))
    x = cp.Variable((2, 2), sparsity=([0, 1], [1, 0]), bounds=[low, None], name="x")
    assert of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)))).solve().objective == pytest.approx(3.0)


def test_each_matrix_of_a_stack_is_symmetric() -> None:
    y = cp.Variable((2, 3, 3), symmetric=True, name="y")
    assert of.prove(y[0, 0, 1] * y[0, 1, 0]).curvature == "convex"
    assert of.prove(y[0, 0, 1] * y[1, 0, 0]).curvature == "neither"
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y[0, 0, 1] * y[1, 0, 0]), [y <= 2, y >= -2]))
    assert p.solve().objective == pytest.approx(-4.0)
    x, C = (
        cp.Variable((2, 3, 3), PSD=True, name="x"),
        np.random.default_rng(0).normal(size=(2, 3, 3)),
    )
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - C)))).solve()
    truth = 0.0
    for part in C:
        even = 0.5 * (part + part.T)
        truth += np.minimum(np.linalg.eigvalsh(even), 0.0) @ np.minimum(
            np.linalg.eigvalsh(even), 0.0
        )
        truth += float(np.sum((part - even) ** 2))
    assert s.objective == pytest.approx(truth) and "proved" in str(s)


def test_attributes_of_variables_are_terms_of_a_model_beside_those_of_their_names() -> None:
    x = cp.Variable(2, name="x", nonneg=True)
    for given in ({}, {"x nonnegative": (cp.sum(x) <= 3, "")}):
        found = declaration("minimize", {"goal": (cp.sum(x), "")}, given)
        assert len({t.name for t in found.constraints}) == len(found.constraints) == 1 + len(given)
        assert {*given} <= {t.name for t in found.constraints}


def test_values_are_written_back_where_cvxpy_finds_none_of_the_objective() -> None:
    x, s = cp.Variable(name="x"), cp.Variable(nonneg=True, name="s")
    given = cp.Problem(cp.Minimize(cp.perspective(cp.square(x) + 1, s)), [x >= 0])
    answer = of.from_cvxpy(given).solve(write_back=True)  # at s = 0
    assert given.value == answer.objective and given.status == cp.OPTIMAL
    assert x.value == pytest.approx(answer["x"]) and s.value == pytest.approx(answer["s"])


def test_nothing_is_written_of_a_variable_that_a_solution_does_not_have() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + y), [x >= 1, y >= 2]))
    y.value = 7.0
    s = p.solve()
    p.write_back(replace(s, values={"x": s["x"]}))
    assert x.value == pytest.approx(1.0) and y.value == 7.0


def test_finite_sets_stand_beside_products_and_perspectives_within_each_other() -> None:
    x, y = cp.Variable(pos=True, name="x"), cp.Variable(pos=True, name="y")
    rows = [cp.FiniteSet(x, [1.0, 2.0, 3.0]), x * y >= 2]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(x * y), rows)).solve()
    assert s.objective == pytest.approx(2.0, abs=1e-6) and np.min(np.abs(s["x"] - [1, 2, 3])) < 1e-6
    with pytest.raises(
        (of.UnsupportedProblem, of.DeclarationError)
    ):  # hidden in what is not convex
        of.from_cvxpy(cp.Problem(cp.Maximize(cp.perspective(cp.square(x), y)), [x <= 1, y <= 1]))
    P, t = cp.Variable((2, 2), PSD=True, name="P"), cp.Variable(nonneg=True, name="t")
    inner = cp.perspective(
        cp.square(cp.trace(P)), t
    )  # trace(P)^2 / t, which is its own perspective
    twice = cp.Problem(cp.Minimize(cp.perspective(inner, t)), [t <= 5, P >> np.eye(2)])
    assert of.from_cvxpy(twice).solve().objective == pytest.approx(4.0 / 5.0)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_product_may_be_one_of_finitely_many_numbers(ordered: bool) -> None:
    x, y = cp.Variable(pos=True, name="x"), cp.Variable(pos=True, name="y")
    rows = [cp.FiniteSet(x * y, {1, 2, 3.5}, ineq_form=ordered), x == 1]
    plain = cp.Problem(cp.Maximize(x * y - y / 2), rows)
    s = of.from_cvxpy(plain, ["numbers", "one"]).solve(write_back=True)
    assert s.objective == pytest.approx(1.75, abs=1e-6) and "numbers" in s.problem.constraints
    assert y.value == pytest.approx(3.5, abs=1e-6) and rows[0].violation() < 1e-6


def test_two_constraints_of_one_name_are_refused_and_variables_warned_about() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="x")
    plain = cp.Problem(cp.Minimize(x + y), [x >= 1, y >= 2])
    with pytest.warns(UserWarning, match="two variables are called 'x'"):
        p = of.from_cvxpy(plain, ["first", "second"])
    assert list(p.variables) == ["x", "x 2"] and "  x scalar, 'x 2' scalar\n" in repr(p)
    with pytest.raises(of.DeclarationError, match="two constraints are called 'least'"):
        of.from_cvxpy(plain, ["least", "least"])
