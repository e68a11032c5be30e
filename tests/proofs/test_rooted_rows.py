"""Quadratic forms whose rows have a rounded root: what the rows say more is charged for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends.cone_program import solve_cone_program
from optfair.compile.form import compile_problem
from optfair.core.quadratics import root_below
from optfair.errors import Infeasible, SolverFailure, Unbounded, UnsupportedProblem
from optfair.formats.proof_file import SavedProof
from optfair.proofs import check_proof
from optfair.proofs.bounds import lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.portable import form_record, leaf_of
from optfair.proofs.roots import Rooted, root_excess
from optfair.solution.conic_form import ConicForm

# Neighbours of 1: an eigenvalue is -2**-52, along (1, -1).
INDEFINITE = np.array([[1.0, 1.0 + 2.0**-52], [1.0 + 2.0**-52, 1.0]])


def covariance(order: int, factors: int, units: Any = 1.0) -> np.ndarray[Any, Any]:
    G = np.random.default_rng(order).normal(size=(factors, order)) * units
    return np.asarray((G.T @ G + (G.T @ G).T) / 2.0)


@pytest.mark.parametrize("order", [2, 5, 9])
@pytest.mark.parametrize("span", [0, 30])
@pytest.mark.parametrize("sparse", [False, True])
def test_what_a_root_is_off_is_covered(order: int, span: int, sparse: bool) -> None:
    rng = np.random.default_rng(order + span)
    units = np.exp2(rng.integers(-span, span + 1, order))
    P = covariance(order, max(1, order // 2), units)
    F = np.linalg.cholesky(P + 1e-9 * np.diag(units**2)).T  # 1e-9 too much
    kind: Any = sp.csr_array if sparse else np.asarray
    d = root_excess(kind(P), kind(F))

    def covered(d: Any) -> bool:
        whole = np.array(
            [
                [
                    sum(Fraction(float(f)) * Fraction(float(g)) for f, g in zip(a, b, strict=True))
                    for b in F.T
                ]
                for a in F.T
            ]
        )
        gap = np.array([[Fraction(float(v)) for v in row] for row in P + 0.0]) - whole
        gap[np.diag_indices(order)] += np.array([Fraction(float(v)) for v in d])
        while len(gap):  # elimination in fractions
            k = int(np.argmax(gap.diagonal()))
            if gap[k, k] <= 0:
                return not any(map(any, gap))
            rest = np.arange(len(gap)) != k
            gap = gap[np.ix_(rest, rest)] - np.outer(gap[rest, k], gap[k, rest]) / gap[k, k]
        return True

    assert covered(d)
    assert not covered(0.01 * d)
    assert (d <= 1e-7 * order**2 * units**2).all()


def test_roots_of_numbers_are_the_largest_below() -> None:
    rng = np.random.default_rng(0)
    v = np.concatenate([10.0 ** rng.uniform(-300, 300, 300), rng.random(300), [0.0, 4.0, 5e-324]])
    for number, s in zip(v, root_below(v), strict=True):
        above = Fraction(float(np.nextafter(s, np.inf)))
        assert Fraction(float(s)) ** 2 <= Fraction(float(number)) < above**2


def test_columns_are_charged_where_something_is_lost_and_known() -> None:
    nothing = sp.csr_array((3, 3))
    rooted = Rooted(0, slice(1, 4), np.array([0.0, 1e-16, np.inf]), nothing)
    assert rooted.charged.tolist() == [False, True, False]


def test_a_bound_of_rows_that_the_form_does_not_have_is_not_proved() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    form = cp.quad_form(x, cp.psd_wrap(INDEFINITE))
    far = [x >= -1e8, x <= 1e8]
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(t), [form <= t, *far]))
    # x = (1e8, -1e8) has t = -2**-51 * 1e16 = -4.4
    with pytest.raises(SolverFailure, match="gap"):
        problem.solve()
    compiled = compile_problem(problem, "CLARABEL").form
    assert lower_bound(compiled, np.zeros(compiled.q.size), dual_of(compiled)).value < -4.4
    near = of.from_cvxpy(cp.Problem(cp.Minimize(t), [form <= t, x >= -1, x <= 1])).solve()
    assert near.is_optimal() and str(near.grade) == "proved"


def dual_of(form: ConicForm) -> Any:
    """Return multipliers of the rows of the program, by any means."""
    end = solve_cone_program(form.P, form.q, form.A, form.b, form.cones, tolerance=1e-9)
    assert end.status == "optimal"
    return end.z


def test_a_set_that_the_rows_do_not_meet_is_not_called_empty() -> None:
    x = cp.Variable(2, name="x")
    form = cp.quad_form(x, cp.psd_wrap(INDEFINITE))
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [form <= -1, x >= -1e8, x <= 1e8]))
    far = problem.solve()  # (1e8, -1e8) is in it
    assert far.objective == pytest.approx(-1e8) and far.certificate.verify()
    near = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [form <= -1, x >= -1e6, x <= 1e6]))
    with pytest.raises(Infeasible) as caught:
        near.solve()
    assert caught.value.certificate.verify()


def test_a_ray_stays_in_the_form_itself() -> None:
    x = cp.Variable(2, name="x")
    for matrix, ends in ((np.ones((2, 2)), Unbounded), (INDEFINITE, SolverFailure)):
        form = cp.quad_form(x, cp.psd_wrap(matrix))
        with pytest.raises(ends):
            of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - x[1]), [form <= 1])).solve()


@pytest.mark.parametrize("order", [12, 40])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_singular_covariances_are_proved_by_bounds_and_within_a_radius_without(
    order: int, unit: float
) -> None:
    S, mean = covariance(order, order // 3) * unit**2, np.random.default_rng(1).normal(size=order)
    w = cp.Variable(order, name="w")
    risk = cp.quad_form(w, cp.psd_wrap(S)) <= 2.0 * unit**2
    held = cp.Problem(cp.Maximize(unit * mean @ w), [cp.sum(w) == 1, risk, w >= 0])
    solution = of.from_cvxpy(held).solve()
    assert solution.is_optimal() and str(solution.grade) == "proved"
    problem = of.from_cvxpy(cp.Problem(held.objective, [cp.sum(w) == 1, risk, cp.norm(w) <= 3]))
    assert problem.solve().is_optimal()
    (rooted,) = compile_problem(problem, "CLARABEL").form.rooted
    assert 0.0 < rooted.share.max() < 1e-12 * order * unit**2


def test_the_charge_is_the_same_in_other_units() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    form = cp.quad_form(x, cp.psd_wrap(INDEFINITE)) <= t
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(t), [form, x >= -1e8, x <= 1e8]))
    compiled = compile_problem(problem, "CLARABEL").form
    rng = np.random.default_rng(0)
    rows, columns = np.exp2(rng.integers(-9, 9, 1)), np.exp2(rng.integers(-9, 9, compiled.q.size))
    other = compiled.in_units(np.repeat(rows, compiled.b.size), columns)
    z = dual_of(compiled)
    here = lower_bound(compiled, np.zeros(columns.size), z).value
    there = lower_bound(other, np.zeros(columns.size), z / rows).value
    assert here == pytest.approx(there, rel=1e-9) and here < -4.4


def test_a_proof_file_says_why_it_is_not_written(tmp_path: Path) -> None:
    x = cp.Variable(2, name="x")
    form = cp.quad_form(x, cp.psd_wrap(INDEFINITE))
    solution = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + x[1]), [form <= 1])).solve()
    assert solution.certificate.verify() and solution.grade.limits
    with pytest.raises(UnsupportedProblem, match="rounded root"):
        solution.certificate.save(tmp_path / "proof.json")
    assert not list(tmp_path.iterdir())


def test_no_bound_is_above_the_value_that_points_are_held_to() -> None:
    # y + s >= 9, s <= 1e-15 w², both not negative: min y + 1e-9 w is 0.1 at most, where w is 1e8
    A = sp.csc_array([[0.0, 0.0, 1.0], [-1.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    rooted = Rooted(2, slice(1, 2), np.array([1e-15]), sp.csr_array([[0.0]]))
    form = ConicForm(
        sp.csc_array((3, 3)),
        np.array([1.0, 1e-9, 0.0]),
        0.0,
        A,
        np.array([0.0, -9.0, 0.0, 0.0]),
        (Cone("zero", 0, 1), Cone("nonneg", 1, 4)),
        rooted=(rooted,),
    )
    z = np.array([1.0, 1.0, 0.0, 1e-9])
    for upper in (1e-3, 1.0, 9.0, np.inf):
        assert lower_bound(form, np.zeros(3), z, upper).value <= 0.1


@pytest.mark.parametrize("tiny", [1e-300, 1e-310, 5e-324])
def test_numbers_below_all_units_are_charged_for(tiny: float) -> None:
    P = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, tiny], [0.0, tiny, 0.0]])
    d = root_excess(P, np.array([[1.0, 0.0, 0.0]]))
    assert (d[1:] > 0.0).all() and d[1] * d[2] >= tiny**2
    x = cp.Variable(3, name="x")
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.quad_form(x, cp.psd_wrap(P)) <= 1]))
    # x[1] * x[2] has no least value
    solution = problem.solve()
    assert str(solution.grade) != "proved"


# Its least eigenvalue is 2**-52, along (1, 1), where the root is 0.
HARDLY = np.array([[1.0 + 2.0**-52, -1.0], [-1.0, 1.0 + 2.0**-52]])


def test_a_ray_begins_where_the_form_itself_holds() -> None:
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    form = cp.quad_form(x, cp.psd_wrap(HARDLY)) <= 1
    for far, ends in ((1e8, SolverFailure), (1e7, Unbounded)):  # of (1e8, 1e8) the form is 4.4
        with pytest.raises(ends):
            of.from_cvxpy(cp.Problem(cp.Minimize(y), [form, x == far])).solve()
    # beyond the rules of disciplined programming, too
    other = 2 * x[0] * x[0] + x[1] * x[1] + x[0] * x[1] <= 1
    with pytest.raises(Unbounded) as caught:
        of.from_cvxpy(cp.Problem(cp.Minimize(y), [other, x >= 0.25])).solve()
    ray = caught.value.certificate
    assert ray.verify() and ray.point["x"].min() >= 0.25


def test_a_file_about_the_rows_is_no_proof_about_the_forms() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    form = cp.quad_form(x, cp.psd_wrap(INDEFINITE))
    far = of.from_cvxpy(cp.Problem(cp.Minimize(t), [form <= t, x >= -1e8, x <= 1e8]))
    compiled = compile_problem(far, "CLARABEL").form
    record, tolerance = form_record(compiled), "0x1p-10"
    z, point = dual_of(compiled), np.zeros(compiled.q.size)
    exact = check_proof.Form(record)
    leaf = leaf_of(compiled, exact, z, point).record
    claim = {"bound": "-0x1p-11", "objective": 0, "cut": None, "radius": None}
    claim |= {"tolerance": tolerance, "violation": tolerance}
    assert refused(far, "bound", record, {"tree": leaf, "claim": claim, "point": [0] * exact.n})
    # no point has the direction (1, 1) without limit
    held = cp.quad_form(x, cp.psd_wrap(HARDLY)) <= 1
    near = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [held]))
    compiled = compile_problem(near, "CLARABEL").form
    (rooted,) = compiled.rooted
    way = np.zeros(compiled.q.size)
    way[compiled.columns["x"]] = way[rooted.own] = 1.0
    rest = {"point": [0] * way.size, "direction": [int(v) for v in way]}
    assert refused(near, "unbounded", form_record(compiled), rest)


def refused(problem: Any, kind: str, record: Any, body: Any) -> bool:
    """Whether a file is right about its rows and not taken for a proof about a problem."""
    head = {"format": check_proof.FORMAT, "schema": check_proof.SCHEMA, "kind": kind}
    document = head | {"problem": {"interface": "CLARABEL"}, "form": record, "proof": body}
    proof = SavedProof(document | {"digest": check_proof.digest(document)})
    (fault,) = proof.faults(problem)
    return bool(proof.verify()) and "rounded roots" in fault
