"""The semidefinite relaxation: a bound always, a certified optimum where it is exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import optfair as of
from optfair.methods.textbook.geometry import TrustRegion
from optfair.transforms.exactness import Exactness, LagrangianProof, quadratic_lagrangian
from optfair.transforms.relaxation import shor


def relaxed(p: Any) -> tuple[Any, Any, Any]:
    r = shor(p)
    assert str(r.problem.problem_class) == "SDP"
    lifted = r.problem.solve()
    return r, lifted, r.recover(lifted)


def trust_region(seed: int) -> TrustRegion:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    H = rng.normal(size=(n, n))
    H = H + H.T - 4 * np.eye(n)
    H[0, 0] = -abs(H[0, 0]) - 1
    return TrustRegion(H=H, g=rng.normal(size=n), radius=float(rng.uniform(0.3, 4)))


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_a_trust_region_is_always_exact(seed: int) -> None:
    p = trust_region(seed)
    r, lifted, s = relaxed(p)
    assert s.problem is p and s.transforms == ("shor",)
    assert s.is_optimal(1e-7) and s.status.termination == "optimal"
    certificate = r.exactness(s)
    assert certificate is not None and certificate.verify()
    expected = p.convex_form().solve().objective
    assert s.objective == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert certificate.bound == pytest.approx(lifted.objective, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("d", "g"),
    [
        ([-2, 1, 3], [0, 1, 1]),
        ([-2, -2, 3], [0, 0, 1]),
        ([-1, -1, -1], [0, 0, 0]),
        ([-3, 2, -3], [0, 0, 0]),
    ],
)
def test_the_hard_case(d: list[float], g: list[float]) -> None:
    """The gradient is orthogonal to the flattest direction: the moment matrix has rank 2 or more."""
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    p = TrustRegion(H=U @ np.diag(d) @ U.T, g=U @ np.array(g, dtype=float), radius=2.0)
    r, _, s = relaxed(p)
    assert s.is_optimal(1e-8) and r.exactness(s, 1e-8) is not None
    assert s.objective == pytest.approx(p.convex_form().solve().objective, abs=1e-6)
    assert np.linalg.norm(s["step"]) == pytest.approx(2.0)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_one_indefinite_constraint_agrees_with_the_secular_equation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 4
    D = rng.normal(size=(n, n))
    D = (D + D.T) / 2
    y, e = 2 * rng.normal(size=n), rng.normal(size=n)
    c = 0.5 + rng.random() - (y @ D @ y - 2 * e @ y)
    d, V = np.linalg.eigh(D)
    if d[0] > -0.1:
        return
    rotated, shift = V.T @ y, V.T @ e

    def point(lam: float) -> Any:
        return (rotated + lam * shift) / (1 + lam * d)

    def q(lam: float) -> float:
        z = point(lam)
        return float((d * z * z).sum() - 2 * shift @ z + c)

    end = -(1 - 1e-9) / d[0]
    if q(end) > 0:  # the hard case has no root inside
        return
    expected = float(((point(brentq(q, 0, end, xtol=1e-14)) - rotated) ** 2).sum())
    z = cp.Variable(n, name="z")
    curve = cp.quad_form(z, D) - 2 * e @ z + c <= 0
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(z - y)), [curve]), ["likelihood"])
    r, _, s = relaxed(p)
    assert s.is_optimal() and r.exactness(s) is not None
    assert s.objective == pytest.approx(expected, rel=1e-6, abs=1e-7)


def max_cut(W: Any, extra: Any = None) -> Any:
    x = cp.Variable(len(W), name="side")
    L = np.diag(W.sum(axis=1)) - W
    p = of.from_cvxpy(
        cp.Problem(cp.Maximize(cp.quad_form(x, L / 4)), [cp.square(x) == 1]), ["sign"]
    )
    return p if extra is None else p.with_constraints(extra=extra(p["side"]))


@pytest.mark.parametrize("extra", [None, lambda x: cp.sum(x) <= 1])
def test_max_cut_of_a_pentagon_is_not_exact(extra: Any) -> None:
    W = np.roll(np.eye(5), 1, axis=1)
    r, lifted, s = relaxed(max_cut(W + W.T, extra))
    cuts = [0.25 * x @ (np.diag((W + W.T).sum(1)) - W - W.T) @ x for x in map(np.array, product((-1, 1), repeat=5))]  # fmt: skip
    assert max(cuts) == 4
    assert s.bound == pytest.approx(5 * (1 + np.cos(np.pi / 5)) / 2, abs=1e-6)
    assert s.bound == pytest.approx(lifted.objective, abs=1e-6)
    # the point is feasible and here even the largest cut, but nothing proves it
    assert s.status.primal == "feasible" and s.objective == pytest.approx(4.0)
    assert s.status.termination == "relaxed" and not s.is_optimal(1e-3)
    assert s.gap == pytest.approx(0.1306, abs=1e-3)
    assert r.exactness(s) is None
    refused = Exactness(s.problem, s.values, s.multipliers).verify()
    assert not refused and "differ" in str(refused)


def test_max_cut_of_a_bipartite_graph_is_exact() -> None:
    W = np.array([[0, 0, 1, 2], [0, 0, 3, 1], [1, 3, 0, 0], [2, 1, 0, 0]], dtype=float)
    r, _, s = relaxed(max_cut(W))
    assert s.is_optimal() and s.objective == pytest.approx(7.0)
    assert r.exactness(s).verify()
    assert np.abs(s["side"]) == pytest.approx(1.0)


@settings(max_examples=8)
@given(st.integers(0, 10_000))
def test_the_bound_holds_for_quadratics_of_any_sign(seed: int) -> None:
    """No grid point inside may beat the bound, and no certificate may vouch for a worse point."""
    rng = np.random.default_rng(seed)
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    a, b, c, d, e = rng.normal(size=5)
    cost = a * x**2 + b * x * y + c * y**2 + d * x + e * y
    rows = [x**2 + y**2 <= 4, x * y >= -1, x + y <= 1.5]
    goal = cp.Minimize(cost) if rng.random() < 0.5 else cp.Maximize(cost)
    p = of.from_cvxpy(cp.Problem(goal, rows), ["disk", "product", "half"])
    r, _, s = relaxed(p)
    u, v = np.meshgrid(np.linspace(-2, 2, 161), np.linspace(-2, 2, 161))
    inside = (u**2 + v**2 <= 4) & (u * v >= -1) & (u + v <= 1.5)
    values = (a * u**2 + b * u * v + c * v**2 + d * u + e * v)[inside]
    sign = 1.0 if p.sense == "minimize" else -1.0
    best = float((sign * values).min())
    assert sign * s.bound <= best + 1e-6
    assert s.status.primal == "feasible" and sign * s.objective >= sign * s.bound - 1e-6
    assert sign * s.objective <= best + 0.05  # local searches from several points
    assert (not s.residuals().above(1e-6)) == (r.exactness(s, 1e-6) is not None)


def test_vectors_matrices_linear_terms_and_maximisation() -> None:
    C = np.array([[1.0, -2.0, 0.5], [0.3, 1.0, -1.0]])
    B = np.arange(1.0, 7.0).reshape(2, 3)
    X, y = cp.Variable((2, 3), name="X"), cp.Variable(name="y")
    goal = cp.Maximize(cp.sum(cp.multiply(C, X)) + cp.sum_squares(X[0]) - y)
    rows = [cp.square(X) <= B, cp.Constant(2) <= y, y**2 <= 9]
    p = of.from_cvxpy(cp.Problem(goal, rows), ["box", "low", "high"])
    r, _, s = relaxed(p)
    assert s.objective == pytest.approx(float((np.abs(C) * np.sqrt(B)).sum() + 6 - 2))
    assert s.is_optimal() and r.exactness(s).verify()
    assert s["X"] == pytest.approx(np.sign(C) * np.sqrt(B), abs=1e-6)
    assert s.multipliers["box"].shape == (2, 3)
    # shadow prices are derivatives here too
    step = np.zeros((2, 3))
    step[1, 2] = 1e-4
    up = of.from_cvxpy(
        cp.Problem(goal, [cp.square(X) <= B + step, *rows[1:]]), ["box", "low", "high"]
    )
    change = (relaxed(up)[2].objective - s.objective) / 1e-4
    assert s.shadow_price["box"][1, 2] == pytest.approx(change, abs=1e-3)
    assert float(s.shadow_price["low"]) == pytest.approx(-1.0, abs=1e-6)


def test_names_stay_and_constraints_compose() -> None:
    p = trust_region(3)
    r = shor(p)
    assert set(p.constraints) <= set(r.problem.constraints)
    assert r.problem.variables["step"] is p["step"]
    tighter = r.problem.with_constraints(cut=p["step"][0] >= 0.1)
    assert tighter.solve().objective >= r.problem.solve().objective - 1e-7
    with pytest.raises(of.DeclarationError, match="not a solution of the relaxation"):
        r.recover(tighter.solve())
    with pytest.raises(of.DeclarationError, match="original"):
        r.exactness(r.problem.solve())


def test_a_convex_problem_is_exact() -> None:
    p = of.library.load("textbook/ball_projection").problem()
    r, _, s = relaxed(p)
    assert s.is_optimal() and r.exactness(s) is not None
    assert s.objective == pytest.approx(of.library.load("textbook/ball_projection").optimum.value)


def test_tampering_is_rejected() -> None:
    p = of.library.load("textbook/trust_region").problem()
    r, _, s = relaxed(p)
    certificate = r.exactness(s)
    for i in range(3):
        moved = np.array(s["step"])
        moved[i] += 1e-4
        assert not replace(certificate, values={"step": moved}).verify()
        assert not replace(s, values={"step": moved}).is_optimal()
    (lam,) = s.multipliers.values()
    for other in (lam + 1e-4, lam - 1e-4, 0 * lam, -lam, np.nan * lam, np.zeros(2)):
        assert not replace(certificate, multipliers={"region": other}).verify()
        assert not replace(s, multipliers={"region": other}).is_optimal()
    assert "no multiplier of 'region'" in str(replace(certificate, multipliers={}).verify())
    assert not replace(s, multipliers={}).is_optimal()
    assert "no value of 'step'" in str(replace(certificate, values={}).verify())
    # a stationary point of H that curves downwards is no minimum
    H, g = p.data["H"], p.data["g"]
    x = -np.linalg.solve(H, g)
    verdict = Exactness(p, {"step": x}, {"region": 0.0}).verify()
    assert not verdict and "negative eigenvalue" in str(verdict)
    # the certificate of one problem says nothing about another
    other = TrustRegion(H=H, g=g + 0.01, radius=2.0)
    assert not replace(certificate, problem=other).verify()
    assert not replace(s, problem=other).is_optimal()


def test_nearest_point_of_a_sphere_from_inside() -> None:
    """An equality, with a negative multiplier; the ball would contain the point itself."""
    x = cp.Variable(2, name="x")
    point = np.array([0.3, -0.4])
    goal = cp.Minimize(cp.sum_squares(x - point))
    r, _, s = relaxed(of.from_cvxpy(cp.Problem(goal, [cp.sum_squares(x) == 1]), ["sphere"]))
    assert s.objective == pytest.approx(0.25) and s["x"] == pytest.approx(point / 0.5)
    assert float(s.multipliers["sphere"]) == pytest.approx(-0.5)
    assert r.exactness(s).verify()


def test_an_infeasible_point_is_no_optimum() -> None:
    """It minimises the Lagrangian with λ = 0, which is why feasibility is checked."""
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x**2), [x >= 1]), ["floor"])
    verdict = Exactness(p, {"x": 0.0}, {"floor": 0.0}).verify()
    assert verdict.reasons == ("'floor' is violated by 5.0e-01",)


def test_far_away_points_are_not_forgotten() -> None:
    """A slightly negative curvature costs a lot where the feasible set is wide."""
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(1e6 * x[0] ** 2 - 1e-7 * x[1] ** 2)
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum_squares(x) <= 1e10]), ["disk"])
    verdict = Exactness(p, {"x": np.zeros(2)}, {"disk": 0.0}).verify()
    assert "value 0 and bound -10" in str(verdict)


@pytest.mark.parametrize(
    ("rows", "radius"),
    [
        (lambda x: [cp.sum_squares(x - np.array([3, 4])) <= 4], 7.0),
        (lambda x: [cp.square(x) <= 1], np.sqrt(2)),
        (lambda x: [1 - cp.square(x) == 0, x[0] * x[1] >= -5], np.sqrt(2)),
        (lambda x: [cp.sum_squares(x) >= 1], np.inf),
        (lambda x: [x <= 1, x >= -1], np.inf),
        (lambda x: [cp.square(x[0]) <= 1], np.inf),
        (lambda x: [], np.inf),
    ],
)
def test_radius_of_the_feasible_set(rows: Any, radius: float) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), rows(x)))
    assert quadratic_lagrangian(p).radius == pytest.approx(radius)


@pytest.mark.parametrize("seed", range(6))
def test_data_of_other_sizes(seed: int) -> None:
    rng = np.random.default_rng(37 + seed)
    H = rng.normal(size=(4, 4))
    H = H + H.T - 3 * np.eye(4)
    scale, slope, r = 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-2, 1)
    relaxation, _, s = relaxed(TrustRegion(H=H * scale, g=slope * rng.normal(size=4), radius=r))
    assert s.is_optimal(1e-6) and relaxation.exactness(s) is not None


def test_negative_multipliers_prove_nothing() -> None:
    """With λ = -1 the Lagrangian would bound from the wrong side."""
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x**2), [x**2 <= 4]), ["interval"])
    verdict = Exactness(p, {"x": 2.0}, {"interval": -1.0}).verify()
    assert "multiplier of an inequality is negative" in str(verdict)


def test_the_lagrangian_is_the_declared_one() -> None:
    rng = np.random.default_rng(0)
    x, Y = cp.Variable(3, name="x"), cp.Variable((2, 2), name="Y")
    Q = rng.normal(size=(3, 3))
    rows = [Y[0] @ x[:2] + x[2] <= 1, cp.square(Y) == np.ones((2, 2)), x >= -1]
    goal = cp.Maximize(-cp.quad_form(x, Q + Q.T) + cp.sum(Y) + 2)
    p = of.from_cvxpy(cp.Problem(goal, rows), ["mixed", "ones", "low"])
    lagrangian = quadratic_lagrangian(p)
    for _ in range(5):
        values = {"x": rng.normal(size=3), "Y": rng.normal(size=(2, 2))}
        y = rng.normal(size=8)
        v, named = lagrangian.forms.vector(values), lagrangian.by_name(y)
        H, g, r = lagrangian.at(y)
        direct = -p.objective_value(values)
        direct += float(named["mixed"] * (values["Y"][0] @ values["x"][:2] + values["x"][2] - 1))
        direct += float((named["ones"] * (values["Y"] ** 2 - 1)).sum())
        direct += float((named["low"] * (-1 - values["x"])).sum())
        assert 0.5 * v @ H @ v + g @ v + r == pytest.approx(direct)
        J = lagrangian.jacobian(v, np.arange(8))
        h = 1e-6 * rng.normal(size=v.size)
        assert J @ h == pytest.approx(
            (lagrangian.rows(v + h) - lagrangian.rows(v - h)) / 2, abs=1e-11
        )
        assert lagrangian.vector(named) == pytest.approx(y)


def test_refusals() -> None:
    x = cp.Variable(2, name="x")
    concave = cp.Minimize(-cp.sum_squares(x))
    with pytest.raises(of.UnsupportedProblem, match="'u' is not quadratic"):
        shor(of.from_cvxpy(cp.Problem(concave, [cp.norm1(x) <= 1]), ["u"]))
    with pytest.raises(of.ClassError, match="'x' is integer"):
        shor(of.from_cvxpy(cp.Problem(concave, [cp.sum_squares(x) <= 1])).with_integrality("x"))
    S = cp.Variable((2, 2), name="S", symmetric=True)
    with pytest.raises(of.ClassError, match="declared symmetric"):
        shor(of.from_cvxpy(cp.Problem(cp.Minimize(-cp.sum_squares(S)), [cp.sum_squares(S) <= 1])))
    # linear bounds alone do not bound the moments
    with pytest.raises((of.Unbounded, of.SolverFailure), match="improves without limit"):
        shor(of.from_cvxpy(cp.Problem(concave, [x <= 1, x >= -1]))).problem.solve()
    with pytest.raises(of.Infeasible):
        shor(of.from_cvxpy(cp.Problem(concave, [cp.sum_squares(x) <= -1]))).problem.solve()


@pytest.mark.parametrize("size", [1.0, 1e3, 1e7])
def test_a_bound_is_not_above_the_optimum_by_a_rounding(size: float) -> None:
    """What a large multiplier times a side adds up to is much less than its terms."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        b, a, c = *rng.uniform(0.1, 1.0, 2), rng.uniform(0.5, 1.0)
        low, high = size * b, a * size * b / c + rng.uniform(-1.0, 1.0)
        x = cp.Variable(2, name="x")
        rows = [x[0] >= low, x[1] <= high, cp.sum_squares(x) <= 400.0 * size**2]
        p = of.from_cvxpy(cp.Problem(cp.Minimize(a * x[0] - c * x[1]), rows), ["low", "up", "ball"])
        values, prices = {"x": [low, high]}, {"low": a, "up": c, "ball": 0.0}
        check = LagrangianProof(p).check(values, prices)
        optimum = Fraction(a) * Fraction(low) - Fraction(c) * Fraction(high)
        assert check.unpaid is None and Fraction(check.bound) <= optimum
        assert float(optimum) - check.bound <= 1e-14 * size


def test_curvature_that_cancels_is_charged() -> None:
    """Of 0.1 * 3 - 0.3 nothing is left in floats; what there is in exact arithmetic is below 0."""
    x = cp.Variable(2, name="x")
    rows = [3.0 * x[0] ** 2 - x[1] <= 0.0, cp.sum_squares(x) <= 4.0]
    goal = cp.Minimize(-0.30000000000000004 * x[0] ** 2 - x[1])
    p = of.from_cvxpy(cp.Problem(goal, rows), ["curve", "ball"])
    check = LagrangianProof(p).check({"x": [0.0, 0.0]}, {"curve": 0.1, "ball": 0.0})
    H = 2 * (Fraction(0.1) * 3 - Fraction(0.30000000000000004))
    assert H < 0
    # L(x) = H x0^2 / 2 - 1.1 x1 over the ball of radius 2
    assert Fraction(check.bound) <= -2 * (1 + Fraction(0.1))


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e3])
def test_a_wrong_point_is_not_verified_in_any_unit(unit: float) -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x**2), [x**2 <= unit**2]), ["interval"])
    assert Exactness(p, {"x": unit}, {"interval": 1.0}).verify()
    assert not Exactness(p, {"x": 0.5 * unit}, {"interval": 1.0}).verify()
    assert not Exactness(p, {"x": 1.01 * unit}, {"interval": 1.0}).verify()


@pytest.mark.parametrize("fall", [lambda y: 1e-7 * y, lambda y: -1e-7 * y**2])
@pytest.mark.parametrize("limit", [np.inf, 1e6])
def test_what_falls_slowly_far_out_is_not_exact(fall: Any, limit: float) -> None:
    x = cp.Variable(2, name="x")
    rows = [] if np.isinf(limit) else [x <= limit, x >= -limit]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] ** 2 + fall(x[1])), rows))
    verdict = Exactness(p, {"x": [0, 0]}, {name: [0, 0] for name in p.constraints}).verify()
    assert not verdict and "not proved here" in str(verdict)
