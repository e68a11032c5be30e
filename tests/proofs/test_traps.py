"""Problems whose answers are known by construction and which tolerances get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.compile.form import compile_problem

UNITS = [1e-6, 1.0, 1e6]
SOLVERS = [None, "highs", "clarabel", "piqp", "scip", "daqp", "scs", "osqp", "glop"]
# every solver in one unit, and what decides by itself in all: solvers get rows in units of our own
CASES = [(s, u) for u in UNITS for s in SOLVERS if u == 1.0 or s in (None, "highs", "clarabel")]


def adopted(goal: Any, rows: list[Any], names: list[str] | None = None) -> Any:
    return of.from_cvxpy(cp.Problem(goal, rows), names)


def claims(p: Any, truth: float, solver: str | None, unit: float = 1.0) -> str:
    """Solve; fail on any false claim, and say how it ended."""
    tolerance = 1e-7
    sign = 1.0 if p.sense == "minimize" else -1.0
    try:
        s = p.solve(solver, tolerance=tolerance)
    except (of.Infeasible, of.Unbounded) as e:
        pytest.fail(f"{type(e).__name__}: {e}")
    except (of.SolverFailure, of.UnsupportedProblem) as e:
        return type(e).__name__
    size = max(abs(truth), unit)
    wrong = abs(s.objective - truth) > 1e-4 * size
    for asked in (1e-9, tolerance, 1e-6, 1e-5):
        assert not (s.is_optimal(asked) and wrong), (s, asked)
    assert not (s.certificate.verify() and wrong), s
    if s.grade.word == "proved":
        assert sign * s.bound <= sign * truth + 1e-9 * size, s
    return str(s.grade)


@cache
def called_semidefinite(unit: float, curve: float) -> tuple[Any, ...]:
    """Return problems whose witnesses are looked for once, not by every solver."""
    x = cp.Variable(2, name="x")
    P = unit * np.diag([1.0, -curve])
    forms = (cp.quad_form(x, cp.psd_wrap(P)), cp.quad_form(x, P, assume_PSD=True))
    return tuple(adopted(cp.Minimize(form), [cp.abs(x) <= 1e6]) for form in forms)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("curve", [1e-4, 1e-7])
def test_an_indefinite_matrix_that_is_called_semidefinite_has_a_witness(
    unit: float, curve: float
) -> None:
    for p in called_semidefinite(unit, curve):
        assert not p.problem_class.convex
        assert not of.from_cvxpy(p.cvxpy).certificate.verify() or p.witness is not None


@pytest.mark.parametrize(("solver", "unit"), CASES)
@pytest.mark.parametrize("curve", [1e-4, 1e-7])
def test_an_indefinite_matrix_that_is_called_semidefinite(
    solver: str | None, unit: float, curve: float
) -> None:
    for p in called_semidefinite(unit, curve):
        claims(p, -unit * curve * 1e12, solver)


def test_a_covariance_of_incomplete_rows_is_not_solved_as_if_it_were_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 8))
    X[rng.random(X.shape) < 0.4] = np.nan
    seen = ~np.isnan(X)
    Z = np.where(seen, X, 0.0)
    count = np.maximum(seen.T @ seen.astype(float), 1)
    C = Z.T @ Z / count
    assert np.linalg.eigvalsh(C)[0] < -0.1
    w = cp.Variable(8, name="w")
    p = adopted(cp.Minimize(cp.quad_form(w, cp.psd_wrap(C))), [cp.sum(w) == 1, cp.abs(w) <= 5])
    assert not p.problem_class.convex
    for solver in ("highs", "piqp", "daqp", "clarabel", "osqp"):
        with pytest.raises(of.UnsupportedProblem):
            p.solve(solver)


def far_out(
    cap: Callable[[Any], list[Any]], small: float = 5e-10, cost: float = 1.0
) -> tuple[Any, Any, Any]:
    x, y, w = (cp.Variable(name=n, nonneg=True) for n in "xyw")
    rows = [small * x + y >= 1, *cap((x, w))]
    return adopted(cp.Minimize(cost * y), rows), x, y


@pytest.mark.parametrize(("solver", "cost"), CASES)
@pytest.mark.parametrize("small", [5e-10, 1e-9, 1e-11, 1e-8])
def test_a_small_coefficient_on_a_column_without_a_bound(
    solver: str | None, small: float, cost: float
) -> None:
    """The optimum is 0, at x = 1/small; with y alone it looks like 1."""
    caps = (
        lambda v: [v[0] + v[1] <= 20 / small],
        lambda v: [v[0] <= 20 / small],
        lambda v: [v[0] - v[1] <= 1, v[1] <= 20 / small],
        lambda v: [],
    )
    for cap in caps[:1] if solver == "glop" else caps:  # a process for each of its solves
        p, _, _ = far_out(cap, small, cost)
        claims(p, 0.0, solver, cost)


@pytest.mark.parametrize("solver", ["highs", "clarabel", None])
@pytest.mark.parametrize("unit", UNITS)
def test_constraints_that_hold_far_away_are_not_called_infeasible(
    solver: str | None, unit: float
) -> None:
    u, v = cp.Variable(name="u"), cp.Variable(name="v")
    rows = [u - v >= unit, (1 + 5e-10) * v >= u]  # u = 2e9 + 1, v = 2e9, in units
    claims(adopted(cp.Minimize(0), rows), 0.0, solver)
    claims(adopted(cp.Minimize(0), [*rows, u >= 0, v >= 0]), 0.0, solver)
    claims(adopted(cp.Minimize(v / unit), rows), 2e9, solver)
    for far in (1e-11, 1e-13, 1e-15):  # and farther: 1/far
        claims(adopted(cp.Minimize(0), [u - v >= unit, (1 + far) * v >= u]), 0.0, solver)


@pytest.mark.parametrize("solver", ["highs", "clarabel", "glop", "scip", None])
@pytest.mark.parametrize("small", [5e-10, 1e-8, 1e-12])
def test_what_a_small_coefficient_bounds_is_not_called_unbounded(
    solver: str | None, small: float
) -> None:
    x = cp.Variable(name="x", nonneg=True)
    claims(adopted(cp.Maximize(x), [small * x <= 1]), 1 / small, solver)


@pytest.mark.parametrize("solver", ["highs", "clarabel", "scs", "osqp", "piqp", None])
@pytest.mark.parametrize("unit", [1e-9, 1e-12, 1e9])
def test_a_row_counts_in_its_own_unit(solver: str | None, unit: float) -> None:
    """A solver that holds rows to 1e-7 does not see one of size 1e-9: its point breaks it tenfold."""
    x = cp.Variable(2, name="x")
    rows = [unit * x[0] <= unit, x >= 0, x <= 10]
    claims(adopted(cp.Minimize(-cp.sum(x)), rows), -11.0, solver)


def test_an_unbounded_product_is_no_optimum() -> None:
    x = cp.Variable(2, name="x")
    for scale in (1e-12, 1.0, 1e9):  # in which branch and bound counts its gaps
        p = adopted(cp.Minimize(-scale * x[0] * x[1]), [cp.sum(x) >= 1, x >= 0])
        with pytest.raises(of.Unbounded) as e:
            p.solve()
        assert e.value.certificate.verify()
    bounded = adopted(cp.Minimize(-x[0] * x[1]), [cp.sum(x) >= 1, x >= 0, x <= 3])
    s = bounded.solve()
    assert s.objective == pytest.approx(-9.0) and s.grade.word == "proved"


def test_a_bound_of_branch_and_bound_is_its_solvers_word() -> None:
    rng = np.random.default_rng(3)
    value, weight = rng.integers(10, 60, 12), rng.integers(5, 30, 12)
    take = cp.Variable(12, name="take", boolean=True)
    p = adopted(cp.Maximize(value @ take), [weight @ take <= 60])
    for solver in ("highs", "scip", "cp-sat", None):
        s = p.solve(solver)
        assert s.status.termination == "optimal" and s.status.grade.word == "reported"
        assert not s.is_optimal(1e-3) and not s.certificate.verify()
        verdict = str(s.certificate.verify())
        assert s.solver in verdict and "reported" in verdict
        assert f"reported by {s.solver}" in repr(s)
    nothing = {"take": np.zeros(12)}
    proof = replace(s.proof, bound=0.0)
    forged = replace(s, values=nothing, objective=0.0, bound=0.0, proof=proof)
    assert not forged.is_optimal() and str(forged.certificate.verify()) != "verified"


@pytest.mark.parametrize("solver", ["highs", "scip", None])
def test_a_small_coefficient_in_a_mixed_program(solver: str | None) -> None:
    x, y = (cp.Variable(name=n, nonneg=True) for n in "xy")
    b = cp.Variable(name="b", integer=True)
    rows = [5e-10 * x + y >= 1, x <= 1e10, b >= 0.5]
    claims(adopted(cp.Minimize(y + b), rows), 1.0, solver)


# --- relative to what ------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [1e6, 1e12, -1e12])
def test_a_constant_hides_no_error(constant: float) -> None:
    x = cp.Variable(name="x")
    p = adopted(cp.Minimize(x + constant), [x >= 0, x <= 1e3])
    s = p.solve()
    assert abs(float(s["x"])) <= 1e-6
    for wrong in (900.0, 1.0):
        forged = replace(s, values={"x": np.array(wrong)}, objective=constant + wrong)
        assert not forged.is_optimal(1e-3 if wrong > 1 else 1e-4)


def test_a_large_entry_hides_no_small_one() -> None:
    w = cp.Variable(2, name="w")
    limit = np.array([1e9, 1.0])
    p = adopted(cp.Maximize(cp.sum(w)), [w <= limit, w >= 0], ["cap", "sign"])
    s = p.solve()
    assert s.is_optimal(1e-7)
    for too_much in (90.0, 2.0, 1.001):
        moved = np.array([1e9, too_much])
        forged = replace(s, values={"w": moved}, objective=float(moved.sum()))
        assert not forged.is_optimal(1e-7)
        assert forged.residuals().primal["cap"] > 1e-4


@pytest.mark.parametrize("cost", [1e-12, 1e-8, 1e-4])
def test_small_costs_hide_no_error(cost: float) -> None:
    x = cp.Variable(3, name="x")
    c = cost * np.array([1.0, 2.0, 4.0])
    p = adopted(cp.Minimize(c @ x), [cp.sum(x) == 3, x >= 0])
    s = p.solve()
    assert s.objective == pytest.approx(3 * cost, rel=1e-6)
    worse = np.array([2.0, 0.5, 0.5])
    forged = replace(s, values={"x": worse}, objective=float(c @ worse))
    assert not forged.is_optimal(1e-3)
    assert forged.gap > 0.1


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1.0, 1e6])
def test_units_hide_no_error(unit: float) -> None:
    x = cp.Variable(3, name="x")
    b = unit * np.array([1.0, 2.0, 3.0])
    p = adopted(cp.Minimize(cp.sum(x)), [x >= b], ["low"])
    s = p.solve()
    assert s.objective == pytest.approx(6 * unit, rel=1e-6)
    assert s.is_optimal(1e-6)
    for factor in (0.5, 2.0):
        moved = factor * b
        forged = replace(s, values={"x": moved}, objective=float(moved.sum()))
        assert not forged.is_optimal(1e-2), factor


@pytest.mark.parametrize("value", [1e15, 3e17, 1e20])
def test_a_number_beyond_all_others_is_no_optimum(value: float) -> None:
    x = cp.Variable(name="x")
    p = adopted(cp.Minimize(x), [x >= -value, x <= value])
    with pytest.raises((of.SolverFailure, of.Unbounded)) as failure:
        p.solve()
    assert isinstance(failure.value, of.SolverFailure)


# --- certificates ----------------------------------------------------------------------------


def test_what_is_claimed_without_proof_names_who_claims_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optfair.backends.search.TREE_SECONDS", 60.0)  # of a busy machine
    x = cp.Variable(2, name="x", integer=True)
    between = [2 * x[0] - 2 * x[1] <= 1.5, 2 * x[0] - 2.0005 * x[1] >= 0.5]
    p = adopted(cp.Minimize(x[0]), [*between, cp.abs(x) <= 400])
    with pytest.raises(of.SolverFailure, match="which is not proved here") as failure:
        p.solve("highs")
    assert failure.value.claim == "infeasible" and failure.value.claimed_by == "highs"
    few = adopted(cp.Minimize(x[0]), [*between, cp.abs(x) <= 90])
    with pytest.raises(of.Infeasible) as proved:  # few enough cases for a tree
        few.solve("highs")
    assert proved.value.certificate.verify()
    assert "highs" in failure.value.cause and "diagnose" in failure.value.remedy


@pytest.mark.parametrize("unit", UNITS)
def test_a_curved_objective_does_not_hide_that_rows_exclude_each_other(unit: float) -> None:
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(cp.exp(x[0] / unit) + x[1] / unit)
    contradictory = [
        [2000 * x[0] == unit, 1e-4 * x[0] == -0.16 * unit],
        [x[0] + x[1] >= 3 * unit, cp.norm(x) <= unit],
    ]
    for rows in contradictory:
        with pytest.raises(of.Infeasible) as caught:
            adopted(goal, rows).solve()
        assert caught.value.certificate.verify() and set(caught.value.conflict) == {"c0", "c1"}


@pytest.mark.parametrize("unit", UNITS)
def test_infeasible_and_unbounded_carry_certificates(unit: float) -> None:
    x = cp.Variable(3, name="x")
    rows = [cp.sum(x) >= 4 * unit, x <= unit, x >= 0]
    with pytest.raises(of.Infeasible) as conflict:
        adopted(cp.Minimize(cp.sum(x)), rows).solve()
    assert str(conflict.value.certificate.verify()) == "verified"
    with pytest.raises(of.Unbounded) as ray:
        adopted(cp.Minimize(x[0] - 2 * x[1]), [x >= unit]).solve()
    assert str(ray.value.certificate.verify()) == "verified"
    ball = [cp.norm(x) <= unit, cp.sum(x) >= 2 * unit]
    with pytest.raises(of.Infeasible) as round_one:
        adopted(cp.Minimize(x[0]), ball).solve()
    assert round_one.value.certificate.verify()


def test_exponentials_beyond_the_range_of_floats() -> None:
    x, y, z = (cp.Variable(name=n) for n in "xyz")
    # y exp(x/y) <= z: x = log z grows without limit while the cost of y stays
    s = adopted(cp.Minimize(1600 * y - x), [cp.ExpCone(x, y, z), y <= 1, z >= 0]).solve()
    told = str(s.certificate.verify())
    assert s.grade.word != "proved" and ("|x|" in told or "free column" in told)
    one, zero = cp.Constant(1.0), cp.Constant(0.0)
    empty = adopted(cp.Minimize(y), [cp.ExpCone(x, one, zero), x <= -800])
    with pytest.raises((of.SolverFailure, of.Infeasible)):
        empty.solve()


def test_a_cost_below_all_others_is_a_cost() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    for solver in (None, "highs", "clarabel"):
        try:
            s = adopted(cp.Minimize(y + 1e-320 * x), [y >= 0]).solve(solver)
        except of.Unbounded:
            continue
        except of.SolverFailure:
            continue
        assert s.grade.word != "proved"


def test_costs_below_the_normal_floats_are_in_their_units() -> None:
    x, e = cp.Variable(3, name="x"), 8e-320
    small = adopted(cp.Minimize(e * cp.sum(x)), [x >= 1]).solve()
    assert small.grade.word == "proved" and small.objective == 3 * e


@pytest.mark.parametrize("e", [1e-8, 1e-20, 1e-30])
def test_cones_in_small_units_are_measured_by_their_own_terms(e: float) -> None:
    """Outside a cone of numbers of 1e-20, the auxiliary column was as large as one of 1: "proved"."""
    x = cp.Variable(3, name="x")
    for row in (cp.norm(e * x[:2]) <= e * x[2], cp.sum(cp.abs(e * x[:2])) <= e * x[2]):
        p = adopted(cp.Minimize(cp.sum(x)), [row, x >= -1, x <= 1])
        form = compile_problem(p, "CLARABEL").form
        declared = np.zeros(form.q.size, dtype=bool)
        declared[form.columns["x"]] = True
        point = np.where(declared, -1.0, 0.0)  # whatever its auxiliary columns are, it is outside
        for size in (0.0, e, -e):
            point[~declared] = size
            assert form.worst_row(point, form.slack(point)) > 0.1
        s, right = p.solve(), (1 - 2**0.5) if "norm" in str(row) else 0.0
        assert s.grade.word == "proved" and s.objective == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize("e", [1e-100, 1e-290, 1e-310, 8e-320])
@pytest.mark.parametrize("kind", ["linear", "norm", "matrix", "exponential"])
def test_rows_that_nothing_measures_are_refused_or_right(e: float, kind: str) -> None:
    """Points of declared violation 0 were "proved" outside cones whose numbers are below the normal floats."""
    x = cp.Variable(3, name="x")
    own = {
        "linear": [e * x[0] <= e * x[2], e * x[1] + e * x[2] >= e * x[0]],
        "norm": [cp.norm(e * x[:2]) <= e * x[2]],
        "matrix": [cp.bmat([[e * x[0], e * x[1]], [e * x[1], e * x[2]]]) >> 0, x[1] >= 0.5],
        "exponential": [cp.ExpCone(e * x[0], e * x[1], e * x[2]), x[0] == 0.0, x[1] == 0.5],
    }[kind]
    least = {"linear": -2.0, "norm": 1 - 2**0.5, "matrix": 1.5, "exponential": 1.0}[kind]
    p = adopted(cp.Minimize(cp.sum(x)), [*own, x >= -1, x <= 1])
    try:
        s = p.solve()
    except of.UnsupportedProblem as refusal:
        assert "beyond what solvers compute with" in str(refusal)
        assert kind != "linear" and e != 1e-100
        return
    assert s.grade.word != "proved" or s.objective == pytest.approx(least, abs=1e-6)
    assert s.grade.word == "proved" or (kind == "linear" and e < 1e-300)


def test_the_bound_of_a_column_says_nothing_of_its_unit() -> None:
    # beside the 1 of its bound the second column of the first rows looks like rounding
    A = [[3e-16, 4e-24, 4e-10, -2e-14], [3e-8, 0.0, -3e-2, -1e-6]]
    A += [[2e-16, 2e-24, -2e-10, 3e-14], [-1e-12, -4e-20, -2e-6, -3e-10]]
    z = cp.Variable(4, name="z")
    rows = [np.array(A) @ z <= [1.8e-11, 1e-3, 3.1e-11, -3.2e-7], z >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(np.array([-1.4e-3, 4e-12, 1.9e3, 8e-2]) @ z), rows))
    s = p.solve(tolerance=1e-7)
    assert s.objective == pytest.approx(-18.0, rel=1e-6) and s.grade.sound


@pytest.mark.parametrize("power", [3.00048828125, 2.123456789, 1.00048828125, -1.123456789])
def test_an_exponent_is_not_a_fraction_near_it(power: float) -> None:
    # with 253/81 in its place the second had an optimum 5e-9 higher, which was called proved
    x = cp.Variable(name="x")
    edge = x >= 100 if power > 0 else x <= 100
    s = adopted(cp.Minimize(cp.power(x, power)), [edge, x >= 1e-3]).solve()
    assert s.grade.word == "proved" and s.is_optimal(1e-7)
    assert s.bound <= 100.0**power * (1.0 + 1e-14)
    assert s.objective == pytest.approx(100.0**power, rel=1e-7)


@pytest.mark.parametrize("power", [1.00048828125, 3.0004883])
def test_a_norm_and_a_mean_have_the_exponents_they_were_given(power: float) -> None:
    # with 3 in its place the least norm was called proved at 2.4e-5 above it
    x = cp.Variable(2, name="x")
    s = adopted(cp.Minimize(cp.pnorm(x, power)), [x[0] + 3 * x[1] == 1]).solve()
    dual = power / (power - 1.0)
    least = 1.0 / (3.0 * float(np.linalg.norm([1.0 / 3.0, 1.0], dual)))
    assert s.grade.sound and s.is_optimal(1e-7) and s.bound <= least * (1.0 + 1e-14)
    # 1e-4 of the weight is not none of it: the second entry has to be positive
    mean = cp.Maximize(cp.geo_mean(x, [1.0, 1e-4]))
    s = adopted(mean, [x[0] + 3 * x[1] <= 1, x[1] >= -1]).solve()
    w = np.array([1.0, 1e-4]) / 1.0001
    most = float(np.prod((w / [1.0, 3.0]) ** w))
    assert s.is_optimal(1e-7) and s.bound >= most * (1.0 - 1e-14)
    assert s.objective == pytest.approx(most, rel=1e-6) and s["x"][1] > 0


def test_entropies_of_matrices_are_no_quadratures() -> None:
    X, A = cp.Variable((2, 2), symmetric=True, name="X"), np.array([[1.0, 0.3], [0.3, 2.0]])
    sizes = np.linalg.eigvalsh(A)
    goal = cp.Maximize(cp.von_neumann_entr(X, quad_approx=(2, 2)))
    s = adopted(goal, [X == A]).solve()
    assert s.bound >= -(sizes * np.log(sizes)).sum() - 1e-13 and s.is_optimal(1e-7)
    relative = adopted(cp.Minimize(cp.quantum_rel_entr(X, np.eye(2))), [X == A / 3.0])
    with pytest.raises(of.UnsupportedProblem, match="no cones are known for the quantum"):
        relative.solve("clarabel")


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # where a contradiction is looked for
@pytest.mark.parametrize("unit", [2.0**-1060, 2.0**-1000, 1.0])
def test_a_point_that_misses_all_a_tiny_row_says_is_not_proved(unit: float) -> None:
    x = cp.Variable(2, name="x")
    rows = [x[0] - x[1] == 3.0, unit * x[1] == 1.5 * unit, x[0] == 3.0]
    try:
        s = adopted(cp.Minimize(x[0] - x[1]), rows).solve()
    except of.OptfairError:
        return
    assert s.grade.word != "proved"
    assert not s.certificate.verify()


@pytest.mark.parametrize("small", [5e-324, 1e-310])
def test_numbers_at_the_end_of_the_floats_are_refused_without_a_warning(small: float) -> None:
    x = cp.Variable(2, name="x")
    rows = [x[0] + x[1] >= 1, x >= 0, small * x[0] <= 1]
    with pytest.raises(of.UnsupportedProblem, match="beyond what solvers compute with"):
        adopted(cp.Minimize(small * x[0] + x[1]), rows).solve()


NEARLY_FLAT = [np.diag([1.0, c]) for c in (1e-10, 1e-13, 1e-16)]
NEARLY_FLAT += [np.array([[1.0, 1.0], [1.0, 1.0 + d]]) for d in (2.0**-52, 1e-12, 1e-9, 1e-8, 1e-7)]


@pytest.mark.parametrize("P", NEARLY_FLAT, ids=lambda P: f"{P[0, 1]:g} {P[1, 1] - P[0, 1]:.3g}")
@pytest.mark.parametrize("written", ["form", "products", "root"])
def test_a_slight_curvature_in_a_row_is_not_lost(P: Any, written: str) -> None:
    """The least y with (x, y) in an ellipse is known to all digits: -sqrt(P00 / det P)."""
    x = cp.Variable(2, name="x")
    form = {
        "form": lambda: cp.quad_form(x, P),
        "products": lambda: x[0] * (P[0, 0] * x[0] + 2 * P[0, 1] * x[1]) + P[1, 1] * x[1] * x[1],
        "root": lambda: cp.sqrt(cp.quad_form(x, cp.psd_wrap(P))),
    }[written]()
    det = Fraction(P[0, 0]) * Fraction(P[1, 1]) - Fraction(P[0, 1]) ** 2
    with localcontext(Context(50)):
        least = -(Decimal(det.denominator) / Decimal(det.numerator)).sqrt()
        p = adopted(cp.Minimize(x[1]), [form <= 1])
        try:
            s = p.solve("clarabel", tolerance=1e-7)
        except of.Unbounded as e:
            pytest.fail(f"it is bounded: {e}")
        except (of.SolverFailure, of.UnsupportedProblem):
            return
        assert s.grade.word != "proved" or Decimal(s.bound) <= least * (1 - Decimal("1e-15")), s
        assert not s.is_optimal(1e-7) or abs(Decimal(s.objective) - least) <= abs(least) / 1000


# 1.25 has a product with the root of 2 of its own; those of 1.5 and a float next to it are the same
TWIN = next(v for v in np.nextafter(1.5, [1.0, 2.0]) if v * np.sqrt(2.0) == 1.5 * np.sqrt(2.0))


@pytest.mark.parametrize(("one", "other"), [(1.25, 1.25), (1.5, float(TWIN))])
def test_coefficients_beside_a_diagonal_that_a_program_cannot_tell_apart(
    one: float, other: float
) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    w = one * x + other * y

    def block(last: float) -> Any:
        return cp.bmat([[1.0, w], [w, last]]) >> 0

    same = one == other
    # -1 / 1.25, a ray along which nothing changes, and no point; of neighbours none of these is true
    s = adopted(cp.Minimize(x + y), [block(1.0)]).solve("clarabel")
    assert (s.grade.word == "proved") == same
    never = adopted(cp.Minimize(x), [block(1.0), x + y == 0])
    with pytest.raises(of.Unbounded if same else of.SolverFailure):
        never.solve("clarabel")
    none = adopted(cp.Minimize(x), [block(0.0), x + y == 1])
    with pytest.raises(of.Infeasible if same else of.SolverFailure):
        none.solve("clarabel")
