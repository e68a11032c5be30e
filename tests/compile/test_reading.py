"""Terms that are read say what CVXPY's matrices say, to the last digit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.utilities.psd_utils import TriangleKind, psd_format_mat

import optfair as of
from optfair.compile import stuffing
from optfair.compile.form import PLAIN, compile_problem
from optfair.proofs.cones import Cone
from optfair.proofs.rounding import ROOT

RNG = np.random.default_rng(5)
A, b, P = RNG.normal(size=(5, 4)), RNG.normal(size=5), RNG.normal(size=(4, 4))
P = P @ P.T
A[0, 1] = A[3, 3] = 0.0
MATRICES = sp.csc_array(
    np.kron(RNG.normal(size=(3, 4)), np.ones((3, 1)))
)  # columns that are not symmetric


def terms():
    x, y, z = cp.Variable((3, 2), name="x"), cp.Variable(4, name="y"), cp.Variable(name="z")
    t, S = cp.Variable(name="t"), cp.Variable((3, 3), symmetric=True, name="S")
    goals = {
        "linear": cp.Minimize(cp.sum(x) + b[:4] @ y - z + 3.0),
        "maximised": cp.Maximize(b[:4] @ y - cp.quad_form(y, P)),
        "form": cp.Minimize(0.3 * cp.quad_form(y[::-1], P) + b[:4] @ y),
        "squares": cp.Minimize(cp.sum_squares(y) + z),
        "residual": cp.Minimize(cp.sum_squares(A @ y - b)),
        "norm": cp.Minimize(cp.norm(A @ y - b) + cp.norm1(y)),
        "product": cp.Minimize(y @ y + (P @ y) @ y),
        "nothing": cp.Minimize(0),
    }
    rows = [
        A @ y <= b,
        sp.csr_array(A) @ y >= -3.0,
        y >= 0,
        y[1:3] == 1.5,
        y[::-1] >= -9,
        y[[2, 0, 2]] >= -7,
        y[np.array([True, False, True, True])] <= 8,
        x[np.array([True, False, True])] <= 9,
        x[:, 1] <= 2,
        x[0, 0] >= z,
        x[1:, ::-1] <= np.ones((2, 2)),
        cp.sum(y) - z == 1,
        cp.sum(x[:2]) <= 4,
        -y <= 4,
        b[:4] @ y + z <= 3 - y[0],
        x <= np.arange(6.0).reshape(3, 2),
        cp.NonNeg(y + 1),
        cp.Zero(z - t),
        2 * z <= 5,
        0.3 * y - 0.1 * (A[:4] @ y + b[:4]) <= 7,
        0 * z + t <= 5,
        0.7 * cp.sum(x) >= -9,
        A[:, :3] @ x <= 11,
        sp.csr_array(A[:, :2]) @ x[1:] == np.outer(b, [1.0, 2.0]),
        b[:3] @ x >= -8,
        cp.abs(A[:2, :3] @ x) <= 40,
        0.1 * (3 * z + t) <= 5,
        y <= z + 10,
        A[0] @ y == A[1] @ y,
        np.zeros(4) @ y <= 1,
        cp.norm(A @ y - b) <= t + 9,
        cp.norm(x[:, 0]) <= 7,
        cp.SOC(t + 1, y),
        cp.SOC(z * np.ones(2), x.T[:2, :2], axis=0),
        cp.norm1(y) <= 30,
        cp.exp(z) <= 20,
        cp.log(A @ y + 30.0) >= b - 9.0,
        cp.sum(cp.entr(y + 1.0)) >= -50.0,
        cp.power(A[:2] @ y + 40.0, 0.3) >= t - 9.0,
        cp.pnorm(x[:, 1], 2.5) <= 60,
        S[0, 1] == 0.25,
        S[2] <= 4,
        S[[0, 1], [1, 2]] >= -3,
        S[::-1, 1] >= z - 30,
        cp.reshape(MATRICES @ y, (3, 3), order="F") - sp.csc_array(np.diag([1.0, 2.0, 0.0])) >> 0,
        x.T @ np.ones((3, 2)) << 9 * np.eye(2),
        S - 0.1 * np.ones((3, 3)) >> 0,
    ]
    return goals, rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("goal", terms()[0])
@pytest.mark.parametrize("interface", ["CLARABEL", "SCS"])
def test_what_is_read_is_what_cvxpy_would_make(monkeypatch, goal, interface):
    goals, rows = terms()
    p = of.from_cvxpy(cp.Problem(goals[goal], rows))
    read = compile_problem(p, interface)
    monkeypatch.setattr(stuffing, "_read", lambda part: None)
    goals, rows = terms()
    made = compile_problem(of.from_cvxpy(cp.Problem(goals[goal], rows)), interface)
    for name in ("P", "A"):
        ours, theirs = getattr(read.form, name), getattr(made.form, name)
        assert ours.shape == theirs.shape and abs(ours - theirs).nnz == 0
    np.testing.assert_array_equal(read.form.q, made.form.q)
    np.testing.assert_array_equal(read.form.b, made.form.b)
    cones = [tuple(replace(c, mixed=False) for c in p.form.cones) for p in (read, made)]
    assert read.form.offset == made.form.offset and cones[0] == cones[1]
    assert not any(
        c.mixed and not m.mixed for c, m in zip(read.form.cones, made.form.cones, strict=True)
    )
    ours, theirs = read.handed[0], made.handed[0]
    assert ours.keys() == theirs.keys()
    for key in ("c", "q", "b", "A", "P"):
        if ours.get(key) is not None:
            apart = abs(ours[key] - theirs[key])
            assert apart.sum() == 0.0, key


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("kind", TriangleKind)
@pytest.mark.parametrize("scaled", [True, False])
def test_a_triangle_is_that_of_cvxpy(n, kind, scaled):
    theirs = psd_format_mat(cp.Variable((n, n)) >> 0, kind, scaled)
    ours = Cone("psd", 0, 0, order=n, upper=kind.name == "UPPER").reading(scaled=scaled)
    assert ours.shape == theirs.shape and abs(ours - theirs).nnz == 0


def test_rows_as_they_are_usually_written_need_no_matrices_of_cvxpy(monkeypatch):
    made = []
    monkeypatch.setattr(stuffing, "_stuff_group", lambda *given: made.append(given))
    y = cp.Variable(4, name="y")
    goal = cp.Minimize(cp.quad_form(y, P) + b[:4] @ y)
    x = cp.Variable((4, 2), name="x")
    rows = [A @ y <= b, y >= 0, cp.sum(y) == 1, cp.norm(A @ y - b) <= 9, 2 * y <= 9]
    rows += [cp.abs(sp.csr_array(A) @ x) <= 0.5, b[:4] @ x == 0]
    X = cp.Variable((3, 3), PSD=True, name="X")
    rows += [X[0, 1] == 0.5, X[2] <= 3, cp.sum(cp.exp(y)) <= 9, cp.power(y[0] + 1, 0.3) >= 0.5]
    rows += [cp.reshape(MATRICES @ y, (3, 3), order="F") - sp.csc_array(np.eye(3)) << 0]
    compile_problem(of.from_cvxpy(cp.Problem(goal, rows)), "CLARABEL")
    assert not made


def test_what_is_written_otherwise_is_left_to_cvxpy():
    y = cp.Variable(4, name="y")
    rows = [
        y + cp.sum(y) <= 5,
        cp.diff(y) <= 2,
        cp.hstack([y, y[:2]]) <= 1,
        A @ (A.T @ (A @ y)) <= 9,
    ]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(-cp.sum(y)), rows))
    form = compile_problem(p, "CLARABEL").form
    x = RNG.normal(size=4)
    sides = [5 - x - x.sum(), 2 - np.diff(x), 1 - np.hstack([x, x[:2]]), 9 - A @ A.T @ A @ x]
    np.testing.assert_allclose(form.slack(x), np.concatenate(sides), atol=1e-12)


def test_parameters_in_costs_alone() -> None:
    x, c = cp.Variable(2, name="x"), cp.Parameter(2, name="c", value=[1.0, 2.0])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x)))
    for value in ([1.0, 2.0], [3.0, -4.0]):
        form = compile_problem(p.at(c=value), "CLARABEL").form
        assert form.b.size == 0 and form.q.tolist() == value
        assert form.P.toarray().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    # a square whose weight is 0 is none
    weight = cp.Parameter(nonneg=True, name="w", value=0.0)
    goal = cp.Minimize(weight * cp.sum_squares(x) + cp.sum(x))
    compiled = compile_problem(of.from_cvxpy(cp.Problem(goal, [x >= 1])), "CLARABEL")
    assert compiled.form.P.nnz == 0 and not any(P.nnz for P in compiled.curvature.values())


def compiled_entry(P, Q, interface, constant=False):
    """Return the row beside the diagonal of a matrix whose mirrored entries are P y and Q y, or P and Q."""
    y = cp.Variable(1)
    M = np.array([[0.0], [P], [Q], [0.0]])
    whole = cp.reshape(M @ y, (2, 2), order="F") if not constant else y[0] * np.eye(2)
    whole = whole + (np.zeros((2, 2)) if not constant else M.reshape(2, 2))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), [whole >> 0, y <= 1]))
    form = compile_problem(p, interface).form
    at = int(np.flatnonzero(~form.cones[-1].diagonal)[0]) + form.cones[-1].start
    return (form.b[at] if constant else -form.A[at, 0]), form


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("constant", [True, False])
def test_entries_beside_a_diagonal_are_the_mean_of_two_rounded_once(monkeypatch, known, constant):
    if not known:
        monkeypatch.setattr(stuffing, "_read", lambda part: None)
    near = np.nextafter(0.1, 0)
    for P, Q in (
        (1.0, 2.0),
        (0.1, -near),
        (1.0, 2.0**-52 - 1),
        (0.1, 0.2),
        (2.0**53, 1.0),
        (3.0, 3.0),
    ):
        mean = (Fraction(P) + Fraction(Q)) / 2
        for interface, root in (("CLARABEL", ROOT), ("SCS", ROOT), (f"{PLAIN}CLARABEL", 1.0)):
            entry, form = compiled_entry(P, Q, interface, constant)
            assert entry == root * float(mean)
            # CVXPY's matrices do not say whether it was rounded
            assert form.cones[-1].mixed == (float(mean) != mean) or not known


def test_parameters_of_two_entries_are_added_up_before_they_are_scaled():
    x, theta = cp.Variable(), cp.Parameter(name="theta", value=1.0)
    less = (1 - 2.0**-52) * theta * x
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.bmat([[1, theta * x], [3 - less, 1]]) >> 0]))
    for value in (1.0, 0.7):
        form = compile_problem(p.at(theta=value), "CLARABEL").form
        assert form.A[1, 0] == pytest.approx(-ROOT * value * 2.0**-53, rel=1e-15)
        assert form.cones[0].mixed and form.b[1] == ROOT * 1.5


def test_what_two_entries_add_up_to_excludes_no_point():
    """The difference of 1 and its neighbour is exact: of products with a root of 2 it is not."""
    y, Q = cp.Variable(1), np.nextafter(1.0, 0)
    M, C = np.array([[0.0], [1.0], [-Q], [0.0]]), np.array([[1.0, -3.0], [-3.0, 1.0]])
    rows = [cp.reshape(M @ y, (2, 2), order="F") + C >> 0, y >= 3.95 * 2.0 / (1.0 - Q)]  # up to 4
    with pytest.raises(of.SolverFailure):
        of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), rows)).solve("clarabel")
    rows[1] = y >= 4.05 * 2.0 / (1.0 - Q)
    with pytest.raises(of.Infeasible):
        of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), rows)).solve("clarabel")


def test_a_mean_that_no_float_holds_is_no_proof_that_a_point_is_feasible():
    """x = 2**53 + 2 leaves 1 beside a diagonal of 0; the constant 2**53 + 1 is rounded."""
    x, y = cp.Variable(), cp.Variable()
    rows = [cp.bmat([[0, x - 2.0**53 - y], [y - 1, 0]]) >> 0, x == 2.0**53 + 2]
    with pytest.raises(of.SolverFailure):
        of.from_cvxpy(cp.Problem(cp.Minimize(y), rows)).solve("clarabel")


def test_means_that_no_float_holds_are_charged_and_written_into_no_file(tmp_path):
    t, file = cp.Variable(), tmp_path / "proof.json"
    for one, other in ((0.1, 0.2), (0.5, 0.25)):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(t), [cp.bmat([[t, one], [other, t]]) >> 0]))
        s = p.solve()
        assert s.objective == pytest.approx((one + other) / 2, rel=1e-6)
        assert s.certificate.verify().grade.word == "proved"
        if one == 0.1:
            with pytest.raises(of.UnsupportedProblem, match="rounded"):
                s.certificate.save(file)
    s.certificate.save(file)
    assert of.load_proof(file).verify()
