"""Faces of semidefinite blocks: proofs where no multipliers are inside the cone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.backends import blocks_backend
from optfair.backends.blocks_backend import interior_point
from optfair.compile.form import compile_problem
from optfair.proofs.bounds import lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.faces import (
    _declared,
    _without_copies,
    forced,
    integer_range,
    last_digit,
    on_face,
)
from optfair.proofs.turned import turned
from optfair.proofs.unpaid import Unpaid
from optfair.solution.conic_form import ConicForm

ROUTE = "psd-blocks"


def bisection(
    n: int, seed: int = 0, weight: float = 1.0
) -> tuple[of.Problem, np.ndarray[Any, Any]]:
    """The bound of equal halves of a graph: multipliers have Z e = 0, prices of e eᵀ no end."""
    rng = np.random.default_rng(seed)
    W = np.triu(rng.integers(0, 4, (n, n)) * 0.25, 1)
    C = np.diag((W + W.T).sum(axis=1)) - W - W.T
    y, t = cp.Variable(n, name="y"), cp.Variable(name="t")
    across = np.outer(v := np.r_[weight, np.ones(n - 1)], v)
    block = C - cp.diag(y) + t * across >> 0
    return of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [block]), ["block"]), C


def split(form: ConicForm, V: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return multipliers V Vᵀ of the only block."""
    (c,) = form.cones
    i, j = c.places
    return np.asarray((V @ V.T)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


@pytest.mark.parametrize("weight", [1.0, 2.0, 1.25])
def test_bounds_without_an_interior_are_proved(weight: float) -> None:
    problem, C = bisection(8, weight=weight)
    s = problem.solve(ROUTE, tolerance=1e-6)
    assert str(s.grade) == "proved" and s.is_optimal(1e-6)
    # the bound of the relaxation is below the least cut, over all signs with vᵀs = 0
    signs = np.array(list(product([-1.0, 1.0], repeat=8)))
    even = signs[signs @ np.r_[weight, np.ones(7)] == 0.0]
    if even.size:
        least = np.einsum("ki,ij,kj->k", even, C, even).min()
        assert s.bound <= least * (1.0 + 1e-9)
    generic = problem.solve("clarabel", tolerance=1e-4)
    assert s.objective == pytest.approx(generic.objective, rel=1e-3)


def test_the_block_gets_smaller_and_its_multipliers_go_back() -> None:
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    e = np.ones((6, 1))
    Z = np.eye(6) - e @ e.T / 6.0 + 1e-3 * np.diag([1, -1, 0, 0, 0, 0])
    Z -= e @ (e.T @ Z) / 6.0
    Z -= (Z @ e) @ e.T / 6.0
    z = split(form, np.linalg.cholesky(Z + 1e-15 * np.eye(6)))
    face = on_face(form, z)
    assert face is not None
    (c,) = face.form.cones
    assert c.order == 5 and np.linalg.eigvalsh(c.matrix(face.z))[0] > 1e-3
    np.testing.assert_allclose(face.whole(face.z), z, atol=1e-9)
    # the column of e eᵀ is empty there, and the others keep what they pay
    t = form.columns["t"].start
    assert face.form.A.tocsc()[:, [t]].nnz == 0
    np.testing.assert_allclose(face.form.A.T @ face.z, form.A.T @ z, atol=1e-9)
    assert face.form.b @ face.z == pytest.approx(form.b @ z, abs=1e-9)


def test_a_face_is_looked_for_before_multipliers_are_moved_into_their_cone() -> None:
    """A block so large is moved further than its least eigenvalue on the face, which hid it."""
    n, small = 260, 1e-10
    problem, C = bisection(n)
    form = compile_problem(problem, cp.CLARABEL).form
    waves = np.full(n, small)
    waves[0], waves[1 : n // 4] = 0.0, 1.0
    waves[-1 : -n // 4 : -1] = 1.0
    row = np.fft.ifft(waves * n / waves.sum()).real
    Z = row[(np.arange(n)[:, None] - np.arange(n)) % n]  # Z e = 0, and 1 along the diagonal
    (c,) = form.cones
    i, j = c.places
    z = Z[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    bound = lower_bound(form, np.zeros(form.q.size), z)
    assert bound.unpaid is None or bound.unpaid.slope < 1e-11
    assert bound.value == pytest.approx(-float((C * Z).sum()), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_wrong_face_proves_nothing_false(seed: int) -> None:
    problem, _ = bisection(5, seed)
    form = compile_problem(problem, cp.CLARABEL).form
    optimum = -problem.solve(ROUTE, tolerance=1e-6).bound
    rng = np.random.default_rng(seed)
    V = rng.integers(-2, 3, (5, 3)).astype(float)
    x = rng.standard_normal(form.q.size)
    found = form.lower_bound(x, split(form, V) * rng.uniform(0.1, 2.0))
    if found.unpaid is None and not found.fault:
        assert found.value <= optimum + 1e-12 * abs(optimum)


def test_columns_without_a_cost_show_the_face_and_make_its_points_feasible() -> None:
    problem, _ = bisection(8)
    form = compile_problem(problem, cp.CLARABEL).form
    known = forced(form)
    assert known is not None
    face, point = known
    (V,) = face.bases.values()
    assert V.shape == (8, 7) and not V.sum(axis=0).any()
    (t,) = np.flatnonzero(form.q == 0.0)
    (c,) = form.cones
    x = np.full(form.q.size, 0.1)  # C - 0.1 I has room on the face, and none off it
    x[t] = 0.0
    assert c.distance(form.slack(x)) > 0.05
    assert np.linalg.eigvalsh(V.T @ c.matrix(form.slack(x)) @ V)[0] > 0.0
    made = point(x)
    assert (made != x).nonzero()[0] == t
    assert c.distance(form.slack(made)) <= 1e-8


def test_a_slack_of_nothing_needs_no_way_along_a_column() -> None:
    y, t = cp.Variable(3, name="y"), cp.Variable(name="t")
    block = t * np.ones((3, 3)) - cp.diag(y) >> 0
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [block]))
    form = compile_problem(problem, cp.CLARABEL).form
    known = forced(form)
    assert known is not None and not form.b.any()
    assert known[1](np.zeros(4)).tolist() == [0.0] * 4
    below = np.where(np.diff(form.A.indptr) > 1, -1.0, 0.0)  # -e e', all of which it goes
    assert form.cones[0].distance(form.slack(below)) > 2.9
    assert form.cones[0].distance(form.slack(known[1](below))) <= 1e-8


def test_a_face_that_no_column_alone_shows_is_seen_in_the_answer() -> None:
    _, C = bisection(8)
    y, t = cp.Variable(8, name="y"), cp.Variable(2, name="t")
    other = np.zeros((8, 8))
    other[[0, 1, 2, 3], [1, 0, 3, 2]] = [1.0, 1.0, -1.0, -1.0]
    across = [np.ones((8, 8)) + other, np.ones((8, 8)) - other]
    block = C - cp.diag(y) + t[0] * across[0] + t[1] * across[1] >> 0
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [block]))
    assert forced(compile_problem(problem, cp.CLARABEL).form) is None
    s = problem.solve(ROUTE, tolerance=1e-6)
    assert str(s.grade) == "proved" and s.is_optimal(1e-6)


def test_columns_with_a_cost_or_with_other_rows_or_indefinite_ones_force_nothing() -> None:
    n = 5
    y, t = cp.Variable(n, name="y"), cp.Variable(name="t")
    e, C = np.ones((n, n)), np.diag(np.arange(1.0, n + 1))
    other = np.fliplr(np.eye(n)) + 0.5 * np.eye(n)  # indefinite

    def program(cost: float, matrix: Any, *more: Any) -> ConicForm:
        block = C - cp.diag(y) + t * matrix >> 0
        objective = cp.Maximize(cp.sum(y) + cost * t)
        problem = of.from_cvxpy(cp.Problem(objective, [block, *more]))
        return compile_problem(problem, cp.CLARABEL).form

    assert forced(program(0.0, e)) is not None
    assert forced(program(0.0, np.diag([1.0, 0.0, 0.0, 0.0, 0.0]))) is not None
    assert forced(program(1.0, e)) is None
    assert forced(program(0.0, -e)) is None
    assert forced(program(0.0, other)) is None
    assert forced(program(0.0, e, t <= 1)) is None
    assert forced(program(0.0, e, cp.bmat([[t, 1], [1, 2 - t]]) >> 0)) is None


def test_a_program_with_a_forced_face_is_solved_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a sparse graph: off the face the method needs many times the steps, and proves less
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((40, 40)) < 0.05, 1).astype(float)
    C = np.diag((W + W.T).sum(axis=1)) - W - W.T
    y, t = cp.Variable(40, name="y"), cp.Variable(name="t")
    block = C - cp.diag(y) + t * np.ones((40, 40)) >> 0
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), [block]))
    orders = []

    def followed(q: Any, A: Any, b: Any, cones: Any, **options: Any) -> Any:
        orders.append([c.order for c in cones])
        return interior_point(q, A, b, cones, **options)

    monkeypatch.setattr(blocks_backend, "interior_point", followed)
    s = problem.solve(ROUTE, tolerance=1e-6, verbose=2)
    assert str(s.grade) == "proved" and s.is_optimal(1e-6)
    assert orders == [[39]]
    steps = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "e+" in line]
    assert {"0", "1", "2"} <= {*steps}  # each step has a line
    assert np.linalg.eigvalsh(C - np.diag(s["y"]) + s["t"])[0] >= -1e-8


def test_numbers_off_the_grid_have_no_face() -> None:
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    z = split(form, np.vstack([np.eye(5), -np.ones((1, 5))]))
    assert on_face(form, z) is not None
    assert on_face(form.moved({"A": sp.csc_array(form.A * (1.0 / 3.0))}), z) is None
    assert on_face(form, split(form, np.eye(6))) is None


def test_columns_that_are_combinations_of_others_are_left_out_with_their_costs() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(-3, 4, (12, 4)).astype(float)
    mix = np.array([[1.0, 0.5], [2.0, 0.0], [0.0, -1.5], [0.0, 1.0]])
    cost = np.array([1.0, 2.0, 3.0, -1.0])
    A, q = sp.csc_array(np.hstack([base, base @ mix])), np.r_[cost, cost @ mix]
    fewer, left, (others, most) = _without_copies(A, q)
    empty = np.diff(fewer.indptr) == 0
    assert empty.sum() == 2 and not left[empty].any()
    assert sorted(others) == np.flatnonzero(empty).tolist() and 2.0 <= most < 4.5
    # one whose cost does not follow stays, as a price without end
    fewer, _, (others, _) = _without_copies(A, q + np.eye(6)[5])
    assert (np.diff(fewer.indptr) == 0).sum() == len(others) == 1


def test_a_column_that_counts_for_another_may_be_larger_than_either() -> None:
    # F = [3 a + 3 b + 7 c, 0; 0, b + 1024]: on the face of the first line a and b are one column
    slight = 2.0**-18
    A, b = -np.array([[3.0, 3.0, 7.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0, 0, 1024.0])
    q = np.array([3.0 + slight, 3.0 + slight, 7.0])
    form = ConicForm(
        sp.csc_array((3, 3)), q, 0.0, sp.csc_array(A), b, (Cone("psd", 0, 3, order=2),)
    )
    z = np.array([1.0, 0.0, 0.0])
    face = on_face(form, z)
    assert face is not None and len(face.copies[0]) == 1 and 2.0 <= face.copies[1] < 2.1
    bound = lower_bound(form, np.zeros(3), z)
    # with y = -R (1, 1, -6/7) the objective is -2 slight R, and no entry is larger than R
    assert bound.unpaid is not None
    R = Fraction(700)
    y = (-R, -R, R * 6 / 7)
    assert Fraction(3) * (y[0] + y[1]) + 7 * y[2] == 0 and y[1] + 1024 >= 0
    value = sum(Fraction(float(c)) * v for c, v in zip(q, y, strict=True))
    assert Fraction(bound.value) - Fraction(bound.unpaid.slope) * R <= value
    # on the face itself the two count once, and both are said to be unpaid
    spread = Unpaid(np.array([1]), slight, 0.0, 0.0).spread(*face.copies)
    assert spread.slope >= 2.0 * slight and spread.columns.tolist() == [0, 1]


def test_floats_that_share_their_product_with_the_root_of_2_are_charged_for_or_refused() -> None:
    root = np.sqrt(2.0)
    assert (
        3.0 * root == np.nextafter(3.0, 4.0) * root and 1.25 * root != np.nextafter(1.25, 2) * root
    )
    # a price of outer(v, v) with 3 beside the diagonal: 3 and the float above it look alike
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    (c,), t = form.cones, form.columns["t"].start
    z = split(form, np.vstack([np.eye(5), -np.ones((1, 5))]))
    face = on_face(form, z)
    assert face is not None
    dense, off = form.A.toarray(), ~c.diagonal
    for value, known in ((1.25, True), (3.0, False)):
        A = dense.copy()
        A[np.flatnonzero(off)[0], t] = value * root
        assert (on_face(form.moved({"A": sp.csc_array(A)}), z) is not None) == known
    # a constant: the smaller block is semidefinite for either float, by the charge
    for value in (0.75, -3.0, 7.0, np.nextafter(3.0, 4.0)):
        b = np.where(off, value * root, form.b)
        held = on_face(form.moved({"b": b}), z)
        assert held is not None
        known = _declared(c, sp.csr_array(b[:, None]))
        assert known is not None and (known[1][off] > 0).all() and not known[1][~off].any()
        V, near = held.bases[0], known[0].toarray().ravel()
        i, j = c.places
        plain = np.zeros((6, 6))
        plain[i, j] = plain[j, i] = near
        smaller = held.form.cones[0].matrix(
            held.form.b * np.where(held.form.cones[0].diagonal, 1, 0.5)
        )
        for true in (plain + d * (1 - np.eye(6)) * np.spacing(plain) for d in (-1, 0, 1)):
            wide = V.astype(np.longdouble)
            left = (smaller - wide.T @ true @ wide).astype(float)
            assert np.linalg.eigvalsh(left)[0] >= 0.0 or not left.any()
            assert np.abs(left).max() <= 1e-13
        size = np.abs(V).T @ (np.spacing(np.abs(plain)) * (1 - np.eye(6))) @ np.abs(V)
        exact = np.vectorize(Fraction, otypes=[object])
        raised = np.diag(exact(smaller) - exact(V).T @ exact(plain) @ exact(V))
        assert (raised >= Fraction(float(size.sum(axis=1).max()))).all()


def test_lines_without_multipliers_are_left_out_whatever_the_numbers() -> None:
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    (c,), rng = form.cones, np.random.default_rng(0)
    form = form.moved({"A": sp.csc_array(form.A * rng.uniform(0.5, 2.0, form.b.size)[:, None])})
    kept = np.array([0, 2, 3, 5])
    Z = np.zeros((6, 6))
    root = rng.normal(size=(4, 4))
    Z[np.ix_(kept, kept)] = root @ root.T
    i, j = c.places
    z = Z[i, j] * np.where(c.diagonal, 1.0, c.root)
    face = on_face(form, z + 1e-9 * c.diagonal)
    assert face is not None
    (inner,) = face.form.cones
    x = rng.normal(size=form.q.size)
    S, smaller = c.matrix(form.slack(x)), inner.matrix(face.form.slack(x))
    assert np.array_equal(smaller, S[np.ix_(kept, kept)])
    assert np.allclose(inner.matrix(face.z), Z[np.ix_(kept, kept)], atol=1e-8)
    assert np.allclose(face.whole(face.z), z, atol=1e-8)


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1.0, 1e6])
def test_constants_whose_products_are_rounded_are_charged_for(unit: float) -> None:
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    (c,), rng, exact = form.cones, np.random.default_rng(2), np.vectorize(Fraction, otypes=[object])
    z = split(form, np.vstack([np.eye(5), -np.ones((1, 5))]))
    (i, j), M = c.places, unit * rng.normal(size=(6, 6)) * 10.0 ** rng.integers(-4, 5, (6, 6))
    true = M[np.minimum(i, j), np.maximum(i, j)]
    face = on_face(form.moved({"b": np.where(c.diagonal, true, true * np.sqrt(2.0))}), z)
    assert face is not None
    V, inner = exact(face.bases[0]), face.form.cones[0]
    whole, smaller = np.zeros((6, 6)), np.zeros((5, 5))
    whole[i, j] = whole[j, i] = true
    p, q = inner.places
    smaller[p, q] = smaller[q, p] = np.where(p == q, face.form.b, face.form.b / 2.0)
    left = exact(smaller) - V.T @ exact(whole) @ V
    beside = np.abs(left - np.diag(np.diag(left))).sum(axis=1)
    assert (np.diag(left) >= beside).all() and np.diag(left).min() > 0
    size = (abs(V).T @ abs(exact(whole)) @ abs(V)).sum(axis=1).max()
    assert np.diag(left).max() <= 64 * 2.0**-53 * float(size) + 1e-260


def test_coefficients_whose_products_are_not_exact_in_floats_have_no_face() -> None:
    problem, _ = bisection(6)
    form = compile_problem(problem, cp.CLARABEL).form
    (c,), t = form.cones, form.columns["t"].start
    z = split(form, np.vstack([np.eye(5), -np.ones((1, 5))]))
    for power, exact in ((28, True), (32, False)):
        A = form.A.toarray()
        A[:, t] = np.where(c.diagonal, A[:, t], 2.0**power * np.sqrt(2.0))
        assert (on_face(form.moved({"A": sp.csc_array(A)}), z) is not None) == exact
    # nor are columns copies of others
    rng = np.random.default_rng(1)
    base = rng.integers(-3, 4, (12, 3)).astype(float)
    base[0] = 1.0, 2.0, 1.0
    for size, count in ((1.0, 1), (2.0**31, 0)):
        A = np.hstack([base, base[:, :1] + base[:, 1:2]])
        A[0] *= size
        fewer, *_ = _without_copies(sp.csc_array(A), np.zeros(4))
        assert (np.diff(fewer.indptr) == 0).sum() == count


def bounded_by_a_cone(scale: float) -> ConicForm:
    """Return max x0 + ... over (b - A x) in a cone whose multipliers are a multiple of (5, 3, 4)."""
    A = scale * np.array([[1.0, 2.0, -1.0], [2.0, 0.0, 1.0], [1.0, -1.0, 3.0]])
    b = scale * np.array([1.0, 2.0, 3.0])
    v = np.array([5.0, 3.0, 4.0])
    q = -(A.T @ v) / 3.0
    cones = (Cone("soc", 0, 3),)
    return ConicForm(sp.csc_array((3, 3)), q, 0.0, sp.csc_array(A), b, cones, {"x": slice(0, 3)})


@pytest.mark.parametrize("scale", [1.0, 2.0**-30, 2.0**30])
def test_multipliers_along_the_edge_of_a_cone_are_one_row(scale: float) -> None:
    form = bounded_by_a_cone(scale)
    z = np.array([5.0, 3.0, 4.0]) / 3.0
    face = on_face(form, z)
    assert face is not None and [c.kind for c in face.form.cones] == ["nonneg"]
    assert (face.form.rows.toarray() == np.array([5.0, 3, 4]) @ form.A.toarray()).all()
    assert face.form.b == [np.array([5.0, 3, 4]) @ form.b]
    assert face.whole(face.z) == pytest.approx(z)
    inside = z + np.array([0.1, 0.0, 0.0])
    assert on_face(form, inside) is None
    irrational = np.array([3.0**0.5, 1.0, 2.0**0.5])
    assert on_face(form, irrational) is None


def test_rows_of_an_edge_that_would_be_rounded_are_refused() -> None:
    form = bounded_by_a_cone(1.0)
    A = form.A.toarray()
    A[1, 0] += 2.0**-51
    assert on_face(replace(form, A=sp.csc_array(A)), np.array([5.0, 3.0, 4.0])) is None


@pytest.mark.parametrize("seed", range(6))
def test_bounds_by_edges_of_cones_are_below_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, z = 4, np.array([9.0, 1.0, -4.0, 8.0])
    A, x = rng.integers(-2, 3, (4, n)).astype(float), rng.integers(-3, 4, n).astype(float)
    s, y = np.array([9.0, -1.0, 4.0, -8.0]), rng.integers(1, 4, 2).astype(float)
    B = rng.integers(-2, 3, (2, n)).astype(float)
    q, b = -(A.T @ z) / 3.0 - B.T @ y, np.r_[B @ x, A @ x + s]
    cones = (Cone("nonneg", 0, 2), Cone("soc", 2, 6))
    form = ConicForm(
        *(sp.csc_array((n, n)), q, 0.0, sp.csc_array(np.vstack([B, A])), b, cones),
        {"x": slice(0, n)},
    )
    optimum = sum(Fraction(c) * Fraction(v) for c, v in zip(q.tolist(), x.tolist(), strict=True))
    closed = 0
    for noise in (0.0, 1e-12, 1e-9):
        near = np.r_[y, z / 3.0] * (1.0 + noise * rng.normal(size=6))
        found = lower_bound(form, x, near)
        if found.unpaid is None:
            closed += 1
            assert found.value <= optimum and found.value > float(optimum) - 1e-5
    assert closed


@pytest.mark.parametrize("size", [2.0**-900, 2.0**900])
def test_columns_whose_squares_are_no_floats_are_left_as_they_are(size: float) -> None:
    A, q = sp.csc_array([[size, 2.0 * size], [size, 2.0 * size]]), np.array([1.0, 2.0])
    kept, costs, _ = _without_copies(A, q)
    assert kept is A and costs is q
    assert np.count_nonzero(_without_copies(A / size, q)[1]) == 1


@pytest.mark.parametrize("seed", [0, 3, 5, 8])
def test_multipliers_are_solved_for_again_on_their_face(seed: int) -> None:
    # nothing is paid for the entry of A that a constant column has: at no point is it optimal
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(11, 3)), rng.normal(size=3)
    X[:, 0] = 0.3
    w = np.random.default_rng(seed + 100).normal(size=3)
    p = of.PSDMap(X, score=(w, 0.0), threshold=float((X @ w).max() + 1), k=1.5)
    s = p.solve()
    assert s.certificate.verify() and s.is_optimal(1e-7) and s.grade.sound
    held = of.PSDMap(X, score=(w, 0.0), threshold=float((X @ w).max() + 1), k=1.5, K=1e4).solve()
    assert s.objective == pytest.approx(held.objective, rel=1e-4)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5), st.integers(-60, 60))
def test_the_last_digit_is_that_of_all(whole: list[int], power: int) -> None:
    v = np.ldexp(np.array(whole, dtype=float), power)
    e = last_digit(v)
    units = [Fraction(x) / Fraction(2) ** e for x in v.tolist()]
    assert all(u.denominator == 1 for u in units)
    assert not v.any() or any(u.numerator % 2 for u in units)


def test_blocks_are_turned_by_numbers_whose_products_are_exact() -> None:
    """Of a matrix with x and y on its diagonal and 1 beside them."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + y), [cp.bmat([[x, 1], [1, y]]) >> 0]))
    form = compile_problem(p, cp.CLARABEL).form
    (k,) = (i for i, c in enumerate(form.cones) if c.kind == "psd")
    T = np.array([[1.0, 2.0], [0.0, 3.0]])
    near = turned(form, {k: T})
    assert near is not None
    point = np.array([5.0, 7.0])
    own = T.T @ form.cones[k].matrix(form.slack(point)) @ T
    assert np.allclose(near.cones[k].matrix(near.slack(point)), own)
    for wrong in (np.full((2, 2), np.inf), np.full((2, 2), np.nan), np.ones((2, 3)), T / 2):
        assert turned(form, {k: wrong}) is None
    listed: Any = T.tolist()
    assert turned(form, {k: listed}) is not None
    for size in (2**26, 2**33, 2**62):  # as integers some products are 0
        assert turned(form, {k: size * T.astype(np.int64)}) is None


@pytest.mark.parametrize("d", [7, 19, 1001])
def test_of_sharp_entries_denominators_may_be_large(d: int) -> None:
    kernel = np.array([[1.0, 3 / d, -2 / d]]).T
    Z = np.eye(3) - kernel @ kernel.T / (kernel.T @ kernel)
    V = integer_range(Z, sharp=True)
    assert V is not None and (np.round(V) == V).all() and np.linalg.matrix_rank(V) == 2
    assert (np.abs(kernel.T @ V) <= 1e-9).all()


@pytest.mark.parametrize("v", [[1, 1], [1, 0, -1], [5, -3, 4, 0], [3, 1, 2, 2]])
def test_a_second_order_cone_is_a_matrix_that_is_semidefinite_where_it_holds(v: list[int]) -> None:
    size, rng = len(v), np.random.default_rng(0)
    nothing = sp.csc_array((size, size))
    cones = (Cone("nonneg", 0, 1), Cone("soc", 1, size + 1), Cone("zero", size + 1, size + 2))
    A = sp.csc_array(np.vstack([np.ones(size), -np.eye(size), np.ones(size)]))
    form = ConicForm(nothing, np.zeros(size), 0.0, A, np.zeros(size + 2), cones)
    near = turned(form, {1: np.array(v, dtype=float)})
    assert near is not None and [c.kind for c in near.cones] == ["nonneg", "psd", "zero"]
    block, edge = near.cones[1], np.array([v[0], *(-w for w in v[1:])], dtype=float)
    for _ in range(200):
        s = rng.normal(size=size)
        s[0] = np.linalg.norm(s[1:]) * rng.choice([-1.0, 0.5, 0.99, 1.01, 2.0])
        values = np.linalg.eigvalsh(block.matrix(near.slack(s)[block.start : block.stop]))
        assert (values[0] >= -1e-9) == (s[0] >= np.linalg.norm(s[1:])), s
    M = block.matrix(near.slack(2.0 * edge)[block.start : block.stop])
    assert not M[0].any() and (np.diag(M)[1:] == 4.0 * v[0] ** 2).all()
    for wrong in (-edge, edge + np.eye(size)[0], edge / 2, edge[1:], np.zeros(size)):
        assert turned(form, {1: wrong}) is None
    for k in (0, 2):
        assert turned(form, {k: np.array(v, dtype=float)}) is None
    rounded = replace(
        form, A=A + sp.csc_array(np.vstack([0 * A[[0]].toarray(), 0.1 + 0.0 * A[1:].toarray()]))
    )
    assert turned(rounded, {1: np.array(v, dtype=float)}) is None
