"""Curvature and semidefinite blocks under a congruence DSD: units that are undone exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.solution import units as solution_units
from optfair.solution.conic_form import ConicForm
from optfair.solution.units import congruence

Floats = np.ndarray[Any, Any]
N = 6


def laplacian() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    W = np.triu(rng.integers(0, 2, (N, N)), 1).astype(float)
    return W, np.diag((W + W.T).sum(1)) - W - W.T


def max_cut(D: Floats) -> cp.Problem:
    """The matrix itself in other units: DXD for X."""
    _, L = laplacian()
    X = cp.Variable((N, N), name="X", symmetric=True)
    cost = cp.sum(cp.multiply(L / 4 / np.outer(D, D), X))
    return cp.Problem(cp.Maximize(cost), [X >> 0, cp.diag(X) == D**2])


def lovasz(D: Floats) -> cp.Problem:
    W, _ = laplacian()
    X = cp.Variable((N, N), name="X", symmetric=True)
    whole = cp.sum(cp.multiply(np.diag(1 / D**2), X)) == 1
    cost = cp.sum(cp.multiply(1 / np.outer(D, D), X))
    return cp.Problem(cp.Maximize(cost), [X >> 0, whole, X[np.nonzero(W)] == 0])


def lmi(D: Floats) -> cp.Problem:
    """A row of matrices in other units, the variables in theirs."""
    rng = np.random.default_rng(1)
    F = [f @ f.T for f in rng.standard_normal((3, N, N))]
    x = cp.Variable(3, name="x")
    block = sum(x[k] * F[k] for k in range(3)) - np.eye(N)
    return cp.Problem(cp.Minimize(cp.sum(x)), [cp.multiply(np.outer(D, D), block) >> 0, x <= 9])


def units(power: int) -> Floats:
    return np.asarray(10.0 ** (power * np.array([(-1, 0, 1)[k % 3] for k in range(N)])))


@pytest.mark.parametrize("power", [2, 4, 6])
@pytest.mark.parametrize("model", [max_cut, lovasz, lmi])
def test_blocks_in_mixed_units_are_solved_and_proved(
    model: Callable[[Floats], cp.Problem], power: int
) -> None:
    plain, D = of.from_cvxpy(model(np.ones(N))).solve(), units(power)
    s = of.from_cvxpy(model(D)).solve()
    assert s.grade.word == "proved" and s.is_optimal(1e-7)
    # 1 / D² is rounded: the problem is another by as much
    assert s.objective == pytest.approx(plain.objective, rel=1e-6)
    if model is not lmi:
        X = s["X"] / np.outer(D, D)
        assert np.linalg.eigvalsh(X)[0] >= -1e-6
    if model is max_cut:  # X is in the units of D, its prices in those of 1 / D
        np.testing.assert_allclose(
            s.multipliers["c1"] * D**2, plain.multipliers["c1"], rtol=1e-4, atol=1e-5
        )


def test_units_are_powers_of_two_and_leave_the_cone_alone() -> None:
    form = compile_problem(of.from_cvxpy(lmi(units(4))), "CLARABEL").form
    assert form.congruent is not None
    near, rows, columns = form.congruent
    for unit in (rows, columns):
        assert (np.frexp(unit)[0] == 0.5).all()
    c = next(c for c in form.cones if c.kind == "psd")
    i, j = c.places
    own = rows[c.start : c.stop]
    d = np.log2(own[c.diagonal]) / 2  # exponents of the lines: an entry has the sum of two
    np.testing.assert_array_equal(np.log2(own), d[i] + d[j])
    before, after = (np.abs(f.A.data[f.A.data != 0.0]) for f in (form, near))
    assert before.max() > 1e12 * before.min() and after.max() < 1e4 * after.min()
    back = near.in_units(1.0 / rows, 1.0 / columns)
    assert abs(back.A - form.A).max() == 0.0 and np.array_equal(back.b, form.b)
    assert congruence(near) is None


def test_numbers_that_no_units_bring_nearer_are_seen_in_a_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # sizes that alternate in a checkerboard of a cycle: every row and column has large and small
    k = np.arange(60)
    A = np.zeros((60, 60))
    A[k, k], A[k, (k + 1) % 60] = np.where(k % 2, 1e9, 1e-9), np.where(k % 2, 1e-9, 1e9)
    A[k, (k + 7) % 60] = np.where(k % 3, 1e9, 1e-9)
    cones = (Cone("nonneg", 0, 60),)
    form = ConicForm(
        sp.csc_array(np.eye(60)), np.ones(60), 0.0, sp.csc_array(A), np.ones(60), cones
    )
    steps: list[int] = []
    solve = solution_units.spla.lsmr

    def lsmr(*given: Any, maxiter: int, **more: Any) -> Any:
        steps.append(maxiter)
        return solve(*given, maxiter=maxiter, **more)

    monkeypatch.setattr(solution_units.spla, "lsmr", lsmr)
    assert congruence(form) is None and steps == [solution_units.FEW]
    monkeypatch.setattr(solution_units, "FEW", solution_units.STEPS)  # as with all of them
    assert congruence(form) is None


def test_blocks_in_one_unit_are_left_as_they_are() -> None:
    for model in (max_cut, lovasz, lmi):
        for size in (1.0, 1e5):
            form = compile_problem(of.from_cvxpy(model(np.full(N, size))), "CLARABEL").form
            assert form.congruent is None
    x = cp.Variable(2)
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [1e9 * x >= 1])), "CLARABEL")
    assert congruence(form.form) is None


def test_costs_that_are_rounding_say_nothing_of_units() -> None:
    # what is left of inner products that are 0, beside others near 1
    C = np.outer(np.ones(N), np.ones(N)) + np.diag(np.arange(N))
    C[0, 1:] = C[1:, 0] = 1e-17 * np.arange(1, N)
    for D in (np.ones(N), units(4)):
        X = cp.Variable((N, N), PSD=True, name="X")
        p = cp.Problem(cp.Minimize(cp.trace((C / np.outer(D, D)) @ X)), [cp.diag(X) == D**2])
        form = compile_problem(of.from_cvxpy(p), "CLARABEL").form
        if (D == 1.0).all():
            assert form.congruent is None
        else:  # the units are those of the others
            near, _, _ = form.congruent or (form, None, None)
            sizes = np.abs(near.b[near.b != 0.0])
            assert sizes.max() <= 1e4 * sizes.min()
        assert of.from_cvxpy(p).solve().grade.word == "proved"


def test_what_excludes_points_in_mixed_units_is_proved() -> None:
    D = units(4)
    X = cp.Variable((N, N), name="X", symmetric=True)
    rows = [X >> 0, cp.diag(X) == D**2, X[0, 1] == 1.5 * D[0] * D[1]]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows), ["cone", "diagonal", "entry"])
    with pytest.raises(of.Infeasible) as told:
        p.solve()
    assert told.value.certificate.verify() and "entry" in told.value.conflict


def quadratic(seed: int, digits: int) -> tuple[of.Problem, float]:
    """Return a quadratic program whose columns, rows and costs are in units 2^-digits to 2^digits.

    Its optimum is known: x satisfies the conditions of Karush, Kuhn and Tucker in integers. The
    second number is what its objective is multiplied by.
    """
    rng = np.random.default_rng(seed)
    n, m = 24, 14
    root = sp.random_array((n // 2, n), density=0.3, rng=rng, format="csc")
    P = sp.csc_array((root.T @ root) * 16.0)
    P.data = np.round(P.data)
    P = sp.csc_array(P + sp.diags_array(np.abs(P).sum(axis=1)))  # diagonally dominant
    A = np.round(4.0 * rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.4))
    x, held = rng.integers(0, 9, n) * (rng.random(n) < 0.6), rng.random(m) < 0.6
    y = np.where(held, rng.integers(1, 9, m), 0)
    lower = A @ x - np.where(held, 0, rng.integers(1, 9, m))
    q = A.T @ y - P @ x + np.where(x == 0, rng.integers(0, 5, n), 0)
    value = 0.5 * x @ (P @ x) + q @ x
    units = [2.0 ** rng.integers(-digits, digits + 1, size) for size in (n, m, 1)]
    column, row, cost = units[0], units[1], float(units[2][0])
    P = sp.csc_array(sp.diags_array(column) @ P @ sp.diags_array(column)) * cost
    A = row[:, None] * A * column
    return of.from_arrays(P, q * column * cost, A, lower * row, np.inf, lb=0.0), cost * value


@pytest.mark.parametrize("digits", [0, 10, 20])
@pytest.mark.parametrize("seed", range(4))
def test_quadratic_programs_in_mixed_units_are_solved_and_proved(seed: int, digits: int) -> None:
    problem, value = quadratic(seed, digits)
    s = problem.solve(tolerance=1e-7)
    assert s.is_optimal(1e-7) and str(s.grade) == "proved", s
    assert s.objective == pytest.approx(value, rel=1e-6)


def test_units_of_curvature_are_powers_of_two() -> None:
    form = compile_problem(quadratic(1, 12)[0], "CLARABEL").form
    assert form.congruent is not None
    near, rows, columns = form.congruent
    assert all((np.frexp(u)[0] == 0.5).all() for u in (rows, columns))
    back = near.in_units(1.0 / rows, 1.0 / columns)
    for part in ("A", "P"):
        assert (getattr(back, part) != getattr(form, part)).nnz == 0
    assert np.array_equal(back.b, form.b) and np.array_equal(back.q, form.q)
    assert congruence(near) is None
    one = compile_problem(quadratic(1, 0)[0], "CLARABEL").form
    assert one.congruent is None


def test_units_in_which_a_number_is_lost_are_not_taken() -> None:
    # 2e-301 would be 0 in the units of the curvature, and the column without that row free
    A = sp.csc_array([[-1.2e18, 0.0], [-2.8e-301, -2.7e-12], [-3.0, 0.0]])
    P = sp.diags_array([0.125, 4.9e-91], format="csc")
    b = np.array([2.7e-12, 64.0, -1.2e18])
    form = ConicForm(P, np.zeros(2), 0.0, A, b, (Cone("nonneg", 0, 3),))
    rows, columns = congruence(form) or (np.ones(3), np.ones(2))
    assert form.in_units(rows, columns).A[1, 0] == 0.0
    assert form.congruent is None


@pytest.mark.parametrize("noise", [1e-17, -1.1e-16])
def test_a_side_of_a_block_that_is_rounding_says_nothing_of_units(noise: float) -> None:
    J = np.array([[0.0, -0.06, 0.4], [-0.06, 0.0, 0.1], [0.4, 0.1, noise]])
    Z = cp.Variable((3, 3), PSD=True, name="Z")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.lambda_max(Z)), [Z >> J]))
    assert compile_problem(p, "CLARABEL").form.congruent is None
    s = p.solve()
    assert s.grade.word == "proved" and s.attempts == ()
    D = np.diag([2.0**-18, 1.0, 2.0**18])  # lines in units of their own are not rounding
    Y = cp.Variable((3, 3), PSD=True, name="Y")
    own = cp.Problem(
        cp.Minimize(cp.trace(np.diag(1.0 / np.diag(D) ** 2) @ Y)), [Y >> D @ (J + 1.0) @ D]
    )
    assert compile_problem(of.from_cvxpy(own), "CLARABEL").form.congruent is not None
