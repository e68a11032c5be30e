"""Where clarabel ends, pairs on the central path in 32 digits, and what only these answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends import cone_program
from optfair.backends.cone_program import (
    Stoppable,
    central_pair,
    has_few_numbers,
    inverse_root,
    solve_cone_program,
)
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.proofs.digits import bound_nearby
from optfair.proofs.effort import until
from optfair.proofs.rounding import DoubleDouble
from optfair.solution.conic_form import ConicForm

NAME, THIN = "extended-precision", 2.0**-54


def thin(cost: float = THIN, unit: float = 1.0) -> of.Problem:
    """An optimum of 2 sqrt(cost) far out: x = sqrt(cost), y = 1 / sqrt(cost)."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    block = cp.bmat([[x, 1.0], [1.0, y]]) >> 0
    return of.from_cvxpy(cp.Problem(cp.Minimize(unit * (x + cost * y)), [block]), ["block"])


@pytest.mark.parametrize("share", [1e-3, 1e-7])
def test_the_gap_is_the_share_that_was_asked_for(share: float) -> None:
    form = compile_problem(thin(unit=1.0 / np.sqrt(THIN)), cp.CLARABEL).form
    pair = central_pair(form, share)
    assert pair is not None
    x, z = pair
    found = bound_nearby(form, z)
    assert found is not None
    gap = (form.objective(x) - found[0]) / form.objective(x)
    assert 0.9 * share <= gap <= 1.1 * share


def test_none_where_multipliers_have_no_inside_or_the_time_is_over() -> None:
    form = compile_problem(thin(cost=0.0), cp.CLARABEL).form
    assert central_pair(form, 1e-6) is None
    form = compile_problem(thin(), cp.CLARABEL).form
    assert central_pair(form, 1e-6, deadline=0.0) is None


def test_an_optimum_that_is_far_out_is_proved() -> None:
    problem = thin(unit=1.0 / np.sqrt(THIN))
    s = problem.solve(NAME, tolerance=1e-6)
    assert s.is_optimal(1e-6) and s.grade.sound
    assert s.objective == pytest.approx(2.0, rel=2e-6) and s.bound <= 2.0


def curve(degree: int, seed: int) -> cp.Problem:
    """Least squares by a polynomial that is nonnegative everywhere, in the basis of its powers."""
    rng, x = np.random.default_rng(seed), np.linspace(0.0, 1.0, 40)
    y = np.maximum(0.0, np.sin(6.0 * x)) + 0.1 * rng.normal(size=40)
    half = degree // 2 + 1
    c, Q = cp.Variable(degree + 1, name="c"), cp.Variable((half, half), PSD=True, name="Q")
    sums = [sum(Q[i, k - i] for i in range(half) if 0 <= k - i < half) for k in range(degree + 1)]
    fit = np.vander(x, degree + 1, increasing=True) @ c - y
    return cp.Problem(cp.Minimize(cp.sum_squares(fit)), [c[k] == s for k, s in enumerate(sums)])


# Optima of the same programs with 50 digits would begin like these, as the bounds prove.
CURVES = {(6, 2): 0.374959429, (8, 2): 0.366884854, (8, 3): 0.490633333}


@pytest.mark.parametrize("key", CURVES, ids=str)
def test_polynomials_that_no_float_method_fits_to_the_tolerance_are_proved(
    key: tuple[int, int],
) -> None:
    s = of.from_cvxpy(curve(*key)).solve()
    assert s.grade.word == "proved" and s.solver == NAME and s.is_optimal()
    assert s.objective == pytest.approx(CURVES[key], abs=2e-9)
    assert 0.0 <= s.objective - s.bound <= 1e-7


def test_a_tilt_that_costs_little_spares_more_digits() -> None:
    s = of.from_cvxpy(curve(6, 3)).solve()
    assert s.grade.word == "proved" and s.solver == "clarabel" and not s.attempts
    assert s.objective == pytest.approx(0.512287129, abs=1e-7)
    assert s.bound <= 0.512287129 + 1e-9


def test_distances_without_noise_are_learned() -> None:
    """The optimum is 0, where every root is at the edge of its cone."""
    rng = np.random.default_rng(13)
    X, Y, M = rng.normal(size=(40, 4)), rng.normal(size=(40, 4)), rng.normal(size=(4, 4))
    apart = [np.outer(d, d) for d in X - Y]
    P = cp.Variable((4, 4), PSD=True, name="P")
    size = [cp.trace(D @ P) for D in apart]
    true = [float(np.sqrt(np.trace(D @ M @ M.T))) for D in apart]
    terms = [t**2 - 2.0 * t * cp.sqrt(f) + f for t, f in zip(true, size, strict=True)]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(sum(terms) / 40.0))).solve()
    assert s.is_optimal() and s.grade.word == "proved" and abs(s.objective) < 1e-6
    np.testing.assert_allclose(s["P"], M @ M.T, atol=1e-2)


def disturbance(seed: int) -> cp.Problem:
    """The largest amplification of a stable system, by an inequality whose multipliers are thin."""
    rng, n = np.random.default_rng(seed), 3
    A = rng.normal(size=(n, n))
    A -= (np.linalg.eigvals(A).real.max() + 0.5) * np.eye(n)
    B, C, zero = rng.normal(size=(n, 2)), rng.normal(size=(2, n)), np.zeros((2, 2))
    P, g = cp.Variable((n, n), PSD=True, name="P"), cp.Variable(name="g")
    lines = [
        [A.T @ P + P @ A, P @ B, C.T],
        [B.T @ P, -g * np.eye(2), zero],
        [C, zero, -g * np.eye(2)],
    ]
    return cp.Problem(cp.Minimize(g), [cp.bmat(lines) << 0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_inequalities_with_free_matrices_are_proved(seed: int, unit: float) -> None:
    problem = disturbance(seed)
    scaled = cp.Problem(cp.Minimize(unit * problem.objective.expr), problem.constraints)
    s = of.from_cvxpy(scaled).solve(NAME)
    assert s.grade.word == "proved" and s.is_optimal()
    problem.solve(solver="CLARABEL")
    assert s.objective / unit == pytest.approx(problem.value, rel=1e-5)


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e6])
def test_errors_far_below_the_size_of_the_data_are_proved_and_known_in_fractions(
    unit: float,
) -> None:
    """The exponential by a polynomial of degree 7, to within 2e-7, in the basis of its powers."""
    t, c = np.linspace(-1.0, 1.0, 120), cp.Variable(8, name="c")
    error = cp.norm_inf(np.vander(t, 8) @ c - unit * np.exp(t))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(error)))
    s, exact = p.solve(), p.solve(exact=True)
    assert s.grade.word == exact.grade.word == "proved"
    assert exact.objective / unit == pytest.approx(1.99273417e-7, rel=1e-6)
    assert s.bound <= exact.objective * (1.0 + 1e-12) and s.objective >= exact.objective * (
        1 - 1e-12
    )


def test_a_radius_is_taken_away_on_request(tmp_path: Any) -> None:
    s = of.from_cvxpy(disturbance(0)).solve()
    assert s.grade.word == "within"
    certificate = s.certificate.prove(time_limit=20)
    assert certificate.solution.grade.word == "proved" and certificate.verify()
    assert certificate.solution.objective == pytest.approx(s.objective, rel=1e-6)
    assert certificate.prove(time_limit=np.inf) is certificate
    certificate.save(tmp_path / "proof.json")
    assert of.load_proof(tmp_path / "proof.json").verify()
    # what is not of this kind stays as it is
    assert s.certificate.prove(time_limit=1e-9).solution is s


X = cp.Variable(6, name="x")
RNG = np.random.default_rng(5)
A, START = RNG.normal(size=(9, 6)), RNG.random(6)
ROWS = [A @ START + RNG.random(9) >= A @ X, X >= -1.0]
EVERY: dict[str, Callable[[], Any]] = {
    "LP": lambda: cp.Problem(cp.Minimize(A[0] @ X), [*ROWS, X <= 2.0]),
    "QP": lambda: cp.Problem(cp.Minimize(cp.sum_squares(A @ X) - X[0]), ROWS),
    "QP of equations": lambda: cp.Problem(
        cp.Minimize(cp.sum_squares(A @ X - 1.0)), [cp.sum(X) == 1.0, 2.0 * cp.sum(X) == 2.0]
    ),
    "QP without rows": lambda: cp.Problem(cp.Minimize(cp.sum_squares(A @ X - 1.0))),
    "QCQP": lambda: cp.Problem(cp.Minimize(X[0]), [cp.sum_squares(A @ X) <= 3.0, X[1] == 0.25]),
    "SOCP": lambda: cp.Problem(cp.Minimize(cp.norm(A @ X - 1.0) + cp.norm(X[:2])), ROWS),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_every_class_is_proved_as_by_others(name: str, unit: float) -> None:
    problem = EVERY[name]()
    problem.solve(solver="CLARABEL")
    scaled = cp.Problem(cp.Minimize(unit * problem.objective.expr), problem.constraints)
    s = of.from_cvxpy(scaled).solve(NAME)
    assert s.grade.word == "proved"
    assert s.objective / unit == pytest.approx(problem.value, rel=1e-6, abs=1e-7)


def test_what_has_no_optimum_is_no_result_and_much_is_refused() -> None:
    for rows in ([*ROWS, X <= -2.0], [X <= 1.0]):
        with pytest.raises(of.SolverFailure, match="no central path"):
            of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(X)), rows)).solve(NAME)
    many = cp.Variable(400, name="many")
    with pytest.raises(of.UnsupportedProblem, match="of 401 columns and 402 rows"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(many - 1)), [cp.sum(many) == 1])).solve(NAME)
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(cp.exp(X[0])))), cp.CLARABEL).form
    assert central_pair(form, 1e-6) is None


def test_roots_are_those_of_definite_matrices_or_leave_lines_out() -> None:
    M = RNG.normal(size=(5, 3))
    square = DoubleDouble(M) @ DoubleDouble(M.T)
    with pytest.raises(np.linalg.LinAlgError):
        inverse_root(square - DoubleDouble(np.eye(5)))
    R = inverse_root(square, 1e-25)
    assert R.high[:3].any(axis=1).all() and not R.high[3:].any()
    kept = (R @ square @ R.T).high
    np.testing.assert_allclose(kept, np.diag([1.0, 1, 1, 0, 0]), atol=1e-24)
    whole = inverse_root(square + DoubleDouble(np.eye(5)))
    assert (
        np.abs((whole.T @ whole @ (square + DoubleDouble(np.eye(5)))).high - np.eye(5)).max()
        < 1e-28
    )


def test_few_numbers_are_those_of_a_second_for_a_step() -> None:
    def form(problem: Any) -> Any:
        return compile_problem(of.from_cvxpy(problem), cp.CLARABEL).form

    few, many = (cp.Variable(n, name="v") for n in (150, 300))
    assert has_few_numbers(form(cp.Problem(cp.Minimize(cp.norm(few - 1)))))
    assert not has_few_numbers(form(cp.Problem(cp.Minimize(cp.norm(many - 1)))))
    two_hundred = cp.Variable(200, name="v")
    assert has_few_numbers(form(cp.Problem(cp.Minimize(cp.norm(two_hundred - 1)))))
    y, parts = cp.Variable(50, name="y"), np.eye(50)
    assert has_few_numbers(form(cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(parts @ y) >> 0])))
    E = np.ones((2000, 2))  # that much is made of equations alone
    assert not has_few_numbers(form(cp.Problem(cp.Minimize(cp.norm(few)), [E @ few[:2] == 1])))
    for n, is_small in ((8, True), (24, False)):
        block = cp.Variable((n, n), PSD=True, name="B")
        assert has_few_numbers(form(cp.Problem(cp.Minimize(cp.trace(block))))) == is_small


def test_a_log_has_a_line_for_each_step_and_smaller_gaps_follow() -> None:
    form = compile_problem(of.from_cvxpy(EVERY["SOCP"]()), cp.CLARABEL).form
    lines, pairs = list[str](), list[float]()

    def enough(x: Any, z: Any) -> bool:
        pairs.append(form.objective(x) + form.b @ z)
        return len(pairs) == 3

    assert central_pair(form, 1e-4, enough=enough, log=lines.append) is not None
    assert len(lines) > 8 and all("gap" in line for line in lines)
    assert 1e-5 < pairs[0] < 1e-3 and pairs[1] < 2e-3 * pairs[0] and abs(pairs[2]) < 2e-3 * pairs[1]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_an_ellipsoid_inside_many_rows_is_proved(unit: float) -> None:
    """More entries of second-order cones, and of a kernel, than were moved once."""
    rng, n = np.random.default_rng(0), 15
    A = rng.normal(size=(4 * n, n))
    b = np.linalg.norm(A, axis=1) + 1.0
    B, d = cp.Variable((n, n), PSD=True, name="B"), cp.Variable(n, name="d")
    rows = [cp.norm(B @ a) + a @ d <= unit * side for a, side in zip(A, b, strict=True)]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.log_det(B)), rows)).solve()
    assert str(s.grade) == "proved"
    inside = np.linalg.norm(A @ s["B"], axis=1) + A @ s["d"]
    assert (inside <= unit * b * (1.0 + 1e-6)).all()
    assert np.linalg.slogdet(s["B"])[1] == pytest.approx(s.bound, abs=1e-5)


@pytest.mark.slow
def test_a_sparse_precision_matrix_of_order_30_is_proved() -> None:
    """More equations than a bound on their solution is computed for."""
    rng, n = np.random.default_rng(0), 30
    A = rng.normal(size=(2 * n, n))
    S, X = A.T @ A / (2 * n), cp.Variable((n, n), PSD=True, name="X")
    goal = cp.log_det(X) - cp.trace(S @ X) - 0.1 * cp.sum(cp.abs(X))
    s = of.from_cvxpy(cp.Problem(cp.Maximize(goal))).solve()
    assert str(s.grade) == "proved"
    # of the dual: max log det(S + U) + n over |U| <= 0.1, whose U is that of the optimum
    U = np.clip(np.linalg.inv(s["X"]) - S, -0.1, 0.1)
    assert -np.linalg.slogdet(S + U)[1] - n == pytest.approx(s.bound, rel=1e-5)


class Given:
    """A solver that reports what is left at given steps, and how many it made."""

    def __init__(self, left: list[float], steps: list[float]) -> None:
        self.left, self.steps, self.made = left, steps, 0

    def get_settings(self) -> Any:
        return SimpleNamespace(tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)

    def set_termination_callback(self, ended: Any) -> None:
        self.ended = ended

    def unset_termination_callback(self) -> None:
        del self.ended

    def solve(self) -> Any:
        for k, (left, step) in enumerate(zip(self.left, self.steps, strict=True)):
            self.made = k + 1
            shown = {"gap_abs": 1.0, "gap_rel": left, "res_primal": 0.0, "res_dual": 0.1 * left}
            if self.ended(SimpleNamespace(step_length=step, **shown)):
                return SimpleNamespace(status="CallbackTerminated", x=[1.0])
        return SimpleNamespace(status="Solved", x=[2.0])


@pytest.mark.parametrize(
    ("left", "steps", "made"),
    [
        # near what was asked, and three steps that do not halve it
        ([1.0, 1e-5, 9e-10, 8e-10, 7e-10, 6e-10, 1e-11], 7 * [0.5], 6),
        ([1.0, 1e-5, 9e-10, 4e-10, 7e-10, 6e-10, 1e-11], 7 * [0.5], 7),  # halved once
        ([1.0, 1e-5, 9e-8, 8e-8, 7e-8, 6e-8, 5e-8], 7 * [0.5], 7),  # not near
        ([1.0, 1e-5, 9e-10, 8e-10, 7e-10, 6e-10, 1e-11], [0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5], 7),
    ],
)
def test_a_solver_ends_where_it_comes_no_nearer(
    left: list[float], steps: list[float], made: int
) -> None:
    solver = Stoppable(SimpleNamespace(zero=0, nonneg=1, soc=[], psd=[], exp=0, p3d=[], pnd=[]))
    solver._solver = given = Given(left, steps)
    result = solver.solve()
    assert given.made == made
    assert (result.status, result.x) == (("AlmostSolved", [1.0]) if made < 7 else ("Solved", [2.0]))
    solver.stop()  # by hand is another end
    assert solver.solve().status == "CallbackTerminated" and given.made == 1


def test_an_ellipsoid_of_largest_volume_takes_no_steps_that_lead_nowhere() -> None:
    """Asked for 1e-10, it makes 55 iterations, of which those after the 21st change nothing."""
    A = np.random.default_rng(0).normal(size=(80, 20))
    B, d = cp.Variable((20, 20), PSD=True, name="B"), cp.Variable(20, name="d")
    rows = [cp.norm(B @ a) + a @ d <= np.linalg.norm(a) + 1.0 for a in A]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.log_det(B)), rows)).solve("clarabel")
    assert s.options["iterations"] < 40 and not s.attempts
    assert s.grade.word == "proved" and s.gap <= 1e-7


def test_a_panic_of_the_solver_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    class Solver:
        def __init__(self, *given: Any) -> None:
            pass

        def solve(self) -> None:
            raise PanicException("Eigval error")

    monkeypatch.setattr(cone_program.clarabel, "DefaultSolver", Solver)
    program = sp.csc_array((1, 1)), np.ones(1), sp.csc_array([[1.0]]), np.ones(1)
    raw = cone_program.solve_cone_program(*program, (Cone("nonneg", 0, 1),))
    assert raw.status == "failed" and not raw.x.any() and not raw.z.any()
    monkeypatch.setattr(Solver, "solve", lambda self: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        cone_program.solve_cone_program(*program, (Cone("nonneg", 0, 1),))


def test_a_program_of_a_proof_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right, limits = cone_program.clarabel.DefaultSolver, list[float]()

    def timed(*args: Any) -> Any:
        limits.append(args[-1].time_limit)
        return right(*args)

    monkeypatch.setattr(cone_program.clarabel, "DefaultSolver", timed)
    one = sp.csc_array((1, 1)), np.ones(1), -sp.eye_array(1, format="csc"), np.zeros(1)
    cones = (Cone("nonneg", 0, 1),)
    assert solve_cone_program(*one, cones).status == "optimal"
    with until(time.perf_counter() + 5.0):
        solve_cone_program(*one, cones)
        solve_cone_program(*one, cones, time_limit=2.0)
        with until(0.0):
            solve_cone_program(*one, cones)
    solve_cone_program(*one, cones)
    assert limits[0] == limits[4] > 1e9 and limits[2:4] == [2.0, 1e-3]
    assert 2.0 < limits[1] <= 5.0


@pytest.mark.parametrize(
    ("above", "side", "equal", "at", "cost"),
    [
        ([[1e-300]], [-1e-20], [[0.0], [1e-300], [1.0]], [1e-300, 1e-300, -1e-20], [-1e-20]),
        ([[5e-324, 2.0]], [1.0], [[0.0, 1e-300], [0.0, 2e-300]], [0.0, 0.0], [0.0, 5e-324]),
    ],
)
def test_numbers_at_the_end_of_the_floats_have_no_pair(
    above: Any, side: Any, equal: Any, at: Any, cost: Any
) -> None:
    A, both = np.array(above + equal), (Cone("zero", 1, 1 + len(equal)), Cone("nonneg", 0, 1))
    n = A.shape[1]
    nothing = sp.csc_array((n, n))
    form = ConicForm(nothing, np.array(cost), 0.0, sp.csc_array(A), np.array(side + at), both)
    with np.errstate(all="ignore"):
        assert central_pair(form, 1e-9) is None
