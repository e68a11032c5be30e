"""Semidefinite programs on their blocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import optfair as of
from optfair.backends import blocks_backend
from optfair.backends.blocks_backend import Beside, interior_point
from optfair.backends.psd_block import (
    Block,
    Normal,
    Orthogonal,
    Point,
    _thin,
    inverse_root,
    step_length,
)
from optfair.compile.form import compile_problem
from optfair.proofs import equations
from optfair.proofs.cones import Cone
from optfair.proofs.residual import in_dual

NAME = "psd-blocks"


def solve(problem: cp.Problem, solver: str | None = None) -> of.Solution:
    return of.solve(of.from_cvxpy(problem), solver=solver)


def max_cut(n: int, *, matrix: bool) -> cp.Problem:
    """Return the relaxation with the matrix as a variable, or its dual, in prices of vertices."""
    rng = np.random.default_rng(n)
    W = np.triu((rng.random((n, n)) < 0.4) * rng.integers(1, 5, (n, n)), 1).astype(float)
    W += W.T
    L = (np.diag(W.sum(axis=1)) - W) / 4.0
    if matrix:
        X = cp.Variable((n, n), name="X", PSD=True)
        return cp.Problem(cp.Maximize(cp.trace(L @ X)), [cp.diag(X) == 1])
    y = cp.Variable(n, name="y")
    return cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(y) - L >> 0])


@pytest.mark.parametrize("n", [5, 30])
def test_a_program_and_its_dual_have_one_value(n: int) -> None:
    first = solve(max_cut(n, matrix=True), NAME)
    second = solve(max_cut(n, matrix=False), NAME)
    assert first.is_optimal(1e-7) and second.is_optimal(1e-7)
    assert first.grade.word == second.grade.word == "proved"
    assert first.objective == pytest.approx(second.objective, rel=2e-7)
    other = solve(max_cut(n, matrix=True), "clarabel")
    assert first.objective == pytest.approx(other.objective, rel=2e-6)


def test_large_ones_go_to_the_blocks_and_small_ones_do_not() -> None:
    assert solve(max_cut(30, matrix=True)).solver == NAME
    assert solve(max_cut(5, matrix=True)).solver != NAME


def test_a_quadratic_objective_is_refused_before_anything_is_solved() -> None:
    X = cp.Variable((3, 3), name="X", PSD=True)
    nearest = cp.Problem(cp.Minimize(cp.sum_squares(X - np.ones((3, 3)))), [cp.diag(X) == 1])
    with pytest.raises(of.UnsupportedProblem, match="linear"):
        solve(nearest, NAME)


def test_rows_of_every_kind_beside_blocks() -> None:
    X = cp.Variable((4, 4), name="X", PSD=True)
    t, u = cp.Variable(name="t"), cp.Variable(3, name="u")
    C = np.arange(16.0).reshape(4, 4)
    terms = [cp.trace(X) == 2, X[0, 1] + u[0] >= 0.3, u >= -1, cp.sum(u) == t, t <= 1, t >= -2]
    terms.append(cp.bmat([[t, u[1]], [u[1], 1.0]]) >> 0)
    problem = cp.Problem(cp.Minimize(cp.trace((C + C.T) @ X) + cp.sum(u)), terms)
    ours, theirs = solve(problem, NAME), solve(problem, "clarabel")
    assert ours.is_optimal(1e-7)
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-6, abs=1e-6)


def test_the_pair_of_the_dual_is_one_of_the_program() -> None:
    form = compile_problem(of.from_cvxpy(max_cut(12, matrix=True)), "CLARABEL").form
    beside = Beside.of(form)
    assert beside is not None and beside.form.q.size < form.q.size
    x, z = beside.back(*(lambda e: (e.x, e.z))(interior_point(*parts(beside.form), tolerance=1e-9)))
    r = form.residuals(x, z)
    assert max(r.primal, r.dual, r.gap) < 1e-7
    # with one entry in two columns a block is no variable
    assert (
        Beside.of(compile_problem(of.from_cvxpy(max_cut(6, matrix=False)), "CLARABEL").form) is None
    )


def parts(program: object) -> tuple[object, ...]:
    return tuple(getattr(program, name) for name in ("q", "A", "b", "cones"))


def test_infeasible_and_unbounded_come_with_certificates() -> None:
    X = cp.Variable((3, 3), name="X", PSD=True)
    with pytest.raises(of.Infeasible) as infeasible:
        solve(cp.Problem(cp.Minimize(0 * X[0, 0]), [X[0, 0] + X[1, 1] == -1]), NAME)
    assert infeasible.value.certificate.verify()
    with pytest.raises(of.Unbounded) as unbounded:
        solve(cp.Problem(cp.Minimize(-X[0, 1]), [X[2, 2] == 1]), NAME)
    assert unbounded.value.certificate.verify()


def test_equations_hold_to_the_last_digits_where_normal_equations_lose_them() -> None:
    """min t: [[t, 1], [1, u]] >= 0: t u >= 1, so the least value 0 is not attained."""
    A = sp.csc_array(np.array([[-1.0, 0.0], [0.0, 0.0], [0.0, -1.0]]))
    b = np.array([0.0, np.sqrt(2.0), 0.0])
    found = interior_point(np.array([1.0, 0.0]), A, b, [Cone("psd", 0, 3, order=2)])
    assert 0.0 < found.x[0] < 1e-3 and found.x[1] > 1e2
    assert np.abs(A.T @ found.z + [1.0, 0.0]).max() < 1e-12


def test_a_matrix_with_room_is_proved_to_have_it() -> None:
    rng = np.random.default_rng(0)
    cone = Cone("psd", 0, 15, order=5)
    F = rng.normal(size=(5, 5))
    Z = F @ F.T + 0.1 * np.eye(5)
    rows, columns = cone.places
    z = Z[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))
    depth = cone.depth(z)
    assert 0.04 < depth < np.linalg.eigvalsh(Z)[0]
    step = rng.normal(size=(200, 15))
    step *= depth / np.linalg.norm(step, axis=1, keepdims=True)
    assert min(np.linalg.eigvalsh(cone.matrix(z + s))[0] for s in step) > 0.0
    assert cone.depth(z - 2.0 * z * (rows == columns)) == 0.0


@pytest.mark.parametrize("rank", [1, 3])
def test_a_singular_matrix_is_raised_by_rounding_only(rank: int) -> None:
    rng = np.random.default_rng(rank)
    cone = Cone("psd", 0, 210, order=20)
    F = rng.normal(size=(20, rank))
    rows, columns = cone.places
    z = (F @ F.T)[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))
    inside = in_dual((cone,), z)
    assert np.abs(inside - z).max() < 1e-12
    assert np.linalg.eigvalsh(cone.matrix(inside))[0] > -1e-15 * np.abs(z).max()


def test_a_matrix_without_zeros_beside_single_entries_is_multiplied_by_dense_products() -> None:
    n = 300
    i, j = np.tril_indices(n)
    units = sp.csc_array((np.ones(n), np.flatnonzero(i == j), np.arange(n + 1)), (i.size, n))
    block = Block(n, np.arange(i.size), i, j)
    block.prepare(sp.csr_array(sp.hstack([np.ones((i.size, 1)), units])))
    assert block.many.tolist() == [0] and block.few.tolist() == [*range(1, n + 1)]


@pytest.mark.parametrize("density", [0.0, 0.02, 0.3])
def test_products_of_sparse_and_dense_matrices_are_what_they_stand_for(density: float) -> None:
    """T A_j T' and tr(A_i Z A_j S⁻¹): single entries, a few lines, and matrices without zeros."""
    rng = np.random.default_rng(1)
    n, count = 13, 11
    i, j = np.tril_indices(n)
    A = np.zeros((i.size, count))
    A[rng.choice(i.size, count, replace=False), np.arange(count)] = rng.normal(size=count)
    A += (rng.random(A.shape) < density) * rng.normal(size=A.shape)
    A[:, -1] = rng.normal(size=i.size)
    block = Block(n, np.arange(i.size), i, j)
    block.prepare(sp.csr_array(A))
    matrices = np.array([block.matrix(a) for a in A.T])
    T = rng.normal(size=(n, n))
    Z, S = T @ T.T, T.T @ T
    expected = np.array([block.entries(T @ a @ T.T) for a in matrices]).T
    np.testing.assert_allclose(block.scaled(T), expected, rtol=1e-11, atol=1e-11)
    M = np.zeros((count, count))
    block.add_to(M, Z, S)
    expected = np.einsum("iab,bc,jcd,da->ij", matrices, Z, matrices, S, optimize=True)
    np.testing.assert_allclose(M, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_an_optimum_that_is_not_attained_is_proved_at_a_point_near_the_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least x with Q [[x - 10, b], [b', Y]] Q' in the cone is 10, with Y without end."""
    rng = np.random.default_rng(1)
    Q = rng.normal(size=(3, 3))
    x, Y = cp.Variable(name="x"), cp.Variable((2, 2), symmetric=True, name="Y")
    b = rng.normal(size=(1, 2))
    M = cp.bmat([[cp.reshape(x - 10, (1, 1), order="F"), b], [b.T, Y]])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [Q @ M @ Q.T >> 0, x >= -1]))
    s = p.solve(NAME, tolerance=1e-6)
    assert s.is_optimal(1e-6) and s.grade.sound
    assert s.bound <= s.objective == pytest.approx(10.0, rel=1e-6)
    assert s.grade.radius >= 1e3 * np.abs(s["Y"]).max()
    monkeypatch.setattr(blocks_backend, "_nearer", lambda form, ended, *_, **__: ended)
    with pytest.raises(of.SolverFailure):
        p.solve(NAME, tolerance=1e-6)


@pytest.mark.parametrize("n", [40, 320])
def test_steps_end_at_the_boundary_of_the_cone(n: int) -> None:
    rng = np.random.default_rng(n)
    M = rng.standard_normal((n, n)) / n**0.5
    S, D = M @ M.T + 0.1 * np.eye(n), M + M.T
    line = np.zeros(0)
    length = step_length(Point([S], line), Point([D], line), [inverse_root(S)])
    exact = -1.0 / float(scipy.linalg.eigvalsh(D, S)[0])
    assert 0.95 * exact <= length <= exact * (1.0 + 1e-9)
    # no way is too far towards what is inside
    assert step_length(Point([S], line), Point([S], line), [inverse_root(S)]) > 10.0


def test_matrices_with_few_entries_are_multiplied_to_the_same_products() -> None:
    rng = np.random.default_rng(0)
    M, few = rng.standard_normal((300, 300)), np.diag(rng.standard_normal(300))
    assert sp.issparse(_thin(few)) and not sp.issparse(_thin(M))
    np.testing.assert_allclose(_thin(few) @ M, few @ M, rtol=1e-13)


def test_a_step_ends_where_its_time_does(
    monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    """The system of the third step is left unfinished: its pair is that of two steps."""
    rng = np.random.default_rng(0)
    X = cp.Variable((6, 6), name="X", PSD=True)
    B = rng.standard_normal((6, 6))
    rows = [cp.trace(np.diag(rng.random(6)) @ X) <= 1.0, X[0, 1] == 0.1, cp.trace(X) <= 5.0]
    form = compile_problem(
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(B @ X)), rows)), "CLARABEL"
    ).form
    steps, add = [], Block.add_to

    def counted(self: Block, *args: Any) -> None:
        steps.append(later(1000.0) if len(steps) == 2 else None)
        add(self, *args)

    def ended(deadline: float, iterations: int) -> blocks_backend.Ended:
        steps.clear()
        stated = form.q, form.A, form.b, form.cones
        return interior_point(*stated, deadline=deadline, iterations=iterations)

    for limit in ("CHEAP", "DEAR"):  # by normal equations only
        monkeypatch.setattr(blocks_backend, limit, 0.0)
    monkeypatch.setattr(Block, "add_to", counted)
    late = ended(time.perf_counter() + 500.0, 150)
    assert (late.status, late.iterations, len(steps)) == ("time_limit", 2, 3)
    two = ended(np.inf, 3)
    assert np.isfinite(late.error) and late.x.tolist() == two.x.tolist()


def equipartition(n: int) -> cp.Problem:
    """Return the relaxation of a graph cut into halves: no multipliers of it are inside the cone."""
    rng = np.random.default_rng(n)
    W = np.triu((rng.random((n, n)) < 0.1).astype(float), 1)
    W += W.T
    L = np.diag(W.sum(axis=1)) - W
    y, t = cp.Variable(n, name="y"), cp.Variable(name="t")
    return cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(y) + t * np.ones((n, n)) + L >> 0])


def test_a_face_of_more_equations_than_a_dense_factor_takes_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = solve(equipartition(40), NAME)
    assert plain.grade.word == "proved"
    monkeypatch.setattr(equations, "_too_large", lambda k, m: True)
    assert solve(equipartition(40), NAME).grade.word == "proved"
    monkeypatch.setattr(equations, "SQUARED", 0)  # and neither do products of equations
    assert solve(equipartition(40), NAME).grade.word == "proved"


def lyapunov(n: int) -> cp.Problem:
    """Return the largest margin of a quadratic form that falls along a linear system."""
    rng = np.random.default_rng(n)
    A, B, C = (rng.uniform(-10.0, 10.0, (n, n)) for _ in range(3))
    P, d, margin = cp.Variable((n, n), symmetric=True, name="P"), cp.Variable(n), cp.Variable()
    corner = -(P @ A + A.T @ P) - C.T @ cp.diag(d) @ C
    both = cp.bmat([[corner, -P @ B], [-(P @ B).T, cp.diag(d)]])
    return cp.Problem(cp.Maximize(margin), [both >> margin * np.eye(2 * n), P >> np.eye(n)])


def test_directions_are_made_by_orthogonal_factors_once_rounding_is_felt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks_backend, "CHEAP", 0.0)
    made: list[str] = []
    for kind in (Normal, Orthogonal):

        def counted(*given: Any, kind: Any = kind) -> Any:
            made.append(kind.__name__)
            return kind(*given)

        monkeypatch.setattr(blocks_backend, kind.__name__, counted)
    s = solve(lyapunov(12), NAME)
    assert s.grade.word == "proved"
    # one after the other, and not after many steps that gained nothing
    switched = made.index("Orthogonal")
    assert set(made[:switched]) == {"Normal"} and set(made[switched:]) == {"Orthogonal"}
    assert len(made) < 40


@pytest.mark.parametrize(
    ("status", "lacking", "error", "kept"),
    [
        ("time_limit", 0.0, np.inf, True),  # not a step was made
        ("inaccurate", 0.0, 1e-9, True),
        ("optimal", 2.0, 1e-9, True),  # it falls short of a proof by more
        ("optimal", 0.5, 1e-7, False),
    ],
)
def test_a_second_run_does_not_lose_what_the_first_found(
    status: str, lacking: float, error: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [("optimal", 1.0, 1e-8, np.ones(2)), (status, lacking, error, np.zeros(2))]

    def run(self: Any, *given: Any) -> Any:
        word, self.lacking, own, x = runs.pop(0)
        return blocks_backend.Ended(word, x, np.zeros(3), 5, own)

    monkeypatch.setattr(blocks_backend, "CHEAP", 0.0)
    monkeypatch.setattr(blocks_backend.Method, "run", run)
    A, cone = sp.csc_array(np.array([[-1.0, 0.0], [0.0, 0.0], [0.0, -1.0]])), Cone("psd", 0, 3, 2)
    ended = interior_point(np.ones(2), A, np.array([0.0, 1.0, 0.0]), [cone])
    assert not runs and (ended.x == 1.0).all() == kept


@pytest.mark.parametrize(("n", "seed"), [(8, 0), (10, 1), (15, 3), (25, 2)])
def test_matrices_that_an_equation_leaves_no_room_are_proved(n: int, seed: int) -> None:
    """Graph bisection: of e'Xe = 0 and X in the cone follows Xe = 0, so no point is inside."""
    rng = np.random.default_rng(100 * n + seed)
    edges = np.triu(rng.random((n, n)) < 0.4, 1).astype(float)
    laplacian = np.diag((edges + edges.T).sum(axis=1)) - edges - edges.T
    X = cp.Variable((n, n), name="X", PSD=True)
    cut = cp.Problem(cp.Minimize(cp.trace(laplacian @ X)), [cp.diag(X) == 1, cp.sum(X) == 0])
    s = of.from_cvxpy(cut).solve()
    assert s.grade.word == "proved" and s.gap <= 1e-7
    # the same in X = VYV' with Ve = 0, where points are inside
    V = np.vstack([np.eye(n - 1), -np.ones(n - 1)])
    Y = cp.Variable((n - 1, n - 1), name="Y", PSD=True)
    own = V @ Y @ V.T
    inner = cp.Problem(cp.Minimize(cp.trace(laplacian @ own)), [cp.diag(own) == 1])
    assert s.objective == pytest.approx(of.from_cvxpy(inner).solve().objective, rel=1e-6)


@pytest.mark.parametrize("n", [3, 5, 8])
@pytest.mark.parametrize("kind", ["line", "two lines", "vector"])
def test_lines_and_vectors_that_equations_exclude_are_proved(kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    X, C = cp.Variable((n, n), name="X", PSD=True), rng.normal(size=(n, n))
    v = np.eye(n)[1] if kind == "line" else np.round(rng.normal(size=n), 1)
    out = X[0, 0] + X[1, 1] if kind == "two lines" else v @ X @ v
    p = cp.Problem(cp.Minimize(cp.trace((C + C.T) @ X)), [out == 0, cp.trace(X) == 1])
    s = of.from_cvxpy(p).solve(tolerance=1e-6)
    assert s.grade.word == "proved"
    # what is left is the least eigenvalue beside them
    V = scipy.linalg.null_space(v[None, :] if kind != "two lines" else np.eye(n)[:2])
    least = np.linalg.eigvalsh(V.T @ (C + C.T) @ V)[0]
    assert s.objective == pytest.approx(least, rel=3e-6, abs=3e-6)


def test_rows_below_the_normal_floats_are_refused() -> None:
    X, unit = cp.Variable((2, 2), symmetric=True, name="X"), 8.095e-320
    cost = cp.trace(np.array([[1.0, 2.0], [2.0, -1.0]]) @ X)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [unit * X >> 0, unit * cp.trace(X) == unit]))
    with pytest.raises(of.UnsupportedProblem, match="lower end of the floats"):
        p.solve()
