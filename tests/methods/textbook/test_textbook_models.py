"""The textbook problems: evidence, certificates, closed-form answers, bad input."""

from __future__ import annotations

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.constraints import Equality, Inequality, PowCone3D
from scipy.optimize import brentq

import optfair as of
from optfair.methods.textbook.allocation import Diet, Knapsack
from optfair.methods.textbook.estimation import (
    MaximumEntropy,
    MinimumVariance,
    NearestCorrelation,
    RidgeRegression,
    RiskBudget,
    SimplexRegression,
)
from optfair.methods.textbook.geometry import (
    BallProjection,
    MaxCutRelaxation,
    SmallestBall,
    TrustRegion,
)
from optfair.transforms.relaxation import relax_integrality

NAMES = [n for n in of.library.names() if n.startswith("textbook/")]
CONVEX = [n for n in NAMES if not n.startswith("textbook/trust_region")]


def problem(name):
    return of.library.load(name).problem()


@pytest.mark.parametrize("name", CONVEX)
def test_declared_class_is_what_cvxpy_compiles(name):
    """The cones of CVXPY's own reduction are those of the class, no more and no fewer."""
    p = problem(name)
    plain = p.cvxpy
    assert plain.is_dcp()
    family = p.problem_class.family
    assert plain.is_mixed_integer() == p.problem_class.integer
    rows = [c for c in plain.constraints if isinstance(c, (Equality, Inequality))]
    linear = all(c.expr.is_affine() for c in rows)
    if family in ("LP", "QP"):
        assert linear and plain.is_qp()
        assert plain.objective.args[0].is_affine() == (family == "LP")
        return
    if family == "QCQP":
        assert all(c.expr.is_quadratic() for c in plain.constraints) and not linear
        return
    # an interface that takes no integers reads the relaxation, which has the same cones
    relaxed = relax_integrality(p).problem.cvxpy if p.integers else plain
    dims = relaxed.get_problem_data(cp.CLARABEL)[0]["dims"]
    has = {"SOCP": bool(dims.soc), "SDP": bool(dims.psd), "CONIC": bool(dims.exp or dims.p3d)}
    assert [k for k, v in has.items() if v] == [family]


@pytest.mark.parametrize("name", NAMES)
def test_evidence_and_certificate_verify(name):
    p = problem(name)
    assert p.certificate.verify()
    assert all(t.origin == "model" and t.latex for t in p.terms)
    for t in p.terms:
        assert t.name == t.evidence.term and t.scope <= set(p.variables)
    assert r"\text{s.t.}" in p._repr_latex_() or not p.constraints
    for v in p.variables.values():
        signs = ("nonneg", "nonpos", "PSD", "boolean", "integer", "bounds")
        assert not any(v.attributes[k] for k in signs)


@pytest.mark.parametrize("name", CONVEX)
def test_terms_agree_with_cvxpy_at_random_points(name):
    p = problem(name)
    plain = p.cvxpy
    rng = np.random.default_rng(0)
    values = {}
    for v in plain.variables():
        x = rng.integers(-2, 3, v.shape) / (1.0 if p.integers else 2.0)
        values[v.name()] = v.value = (x + x.T) / 2 if v.is_symmetric() else x
    assert p.objective_value(values) == pytest.approx(plain.objective.args[0].value)
    for t, c in zip(p.constraints.values(), plain.constraints, strict=True):
        if isinstance(c, PowCone3D):  # ours bounds the largest entry of CVXPY's distance
            assert np.sqrt(3) * np.max(t.violation(values)) >= np.max(c.violation()) * (1 - 1e-6)
            continue
        assert np.max(t.violation(values)) == pytest.approx(np.max(c.violation()))


def test_diet_buys_macaroni_and_prices_the_vitamin():
    s = problem("textbook/diet").solve()
    assert s["servings"].nonzero()[0].tolist() == [4]
    assert s["servings"][4] == pytest.approx(700 / 15)
    # three vitamins are scarce together; at their prices the needs of a week cost the diet
    np.testing.assert_allclose(s.shadow_price["minimum nutrition"].sum() * 700, 88.2)
    assert problem("textbook/diet_salt").solve().objective == pytest.approx(118.0594032, abs=1e-7)


def test_portfolios_are_inverse_questions():
    """The largest return within a risk is the return whose least variance is that risk."""
    p = problem("textbook/risk_budget")
    best = p.solve(tolerance=1e-8).objective
    d = p.data
    q = MinimumVariance(returns=d["returns"], covariance=d["covariance"], wanted=best)
    assert q.solve().objective == pytest.approx(d["risk"] ** 2, rel=1e-5)
    assert q.problem_class.name == "QP" and p.problem_class.name == "SOCP"


def test_ridge_has_its_closed_form_until_it_is_composed():
    p = problem("textbook/ridge_regression")
    A, b, lam = (p.data[k] for k in ("A", "b", "penalty"))
    x = np.linalg.solve(A.T @ A + lam * np.eye(A.shape[1]), A.T @ b)
    s = p.solve(tolerance=1e-9)
    np.testing.assert_allclose(s["coefficients"], x, atol=1e-6)
    assert of.library.load("ridge_regression").optimum.value == pytest.approx(
        b @ b - b @ A @ x, rel=1e-12
    )
    q = p.with_constraints(budget=cp.norm1(p["coefficients"]) <= 0.5)
    assert q.problem_class == p.problem_class and q.solve().objective > s.objective


def test_simplex_projection_matches_sorting():
    b = np.random.default_rng(1).normal(size=6)
    u = np.sort(b)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, 7)
    tau = excess[np.flatnonzero(u > excess)[-1]]
    s = SimplexRegression(A=np.eye(6), b=b).solve(tolerance=1e-9)
    np.testing.assert_allclose(s["fractions"], np.maximum(b - tau, 0), atol=1e-5)


def test_center_of_the_smallest_ball_is_a_mean_by_its_multipliers():
    points = np.random.default_rng(2).normal(size=(12, 2))
    s = SmallestBall(points=points).solve(tolerance=1e-9)
    y = np.abs(s.multipliers["inside"])
    assert y.sum() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(y @ points, s["center"], atol=1e-4)
    away = np.linalg.norm(points - s["center"], axis=1)
    assert away.max() == pytest.approx(s.objective, abs=1e-6)


def test_ball_projection_of_an_inner_point_is_itself():
    p = BallProjection(point=[0.1, 0.2], centers=[[0, 0], [0.5, 0]], radii=[1, 1])
    np.testing.assert_allclose(p.solve()["projection"], [0.1, 0.2], atol=1e-4)
    s = problem("textbook/ball_projection").solve(tolerance=1e-9)
    np.testing.assert_allclose(s["projection"], [0, 4], atol=1e-4)


def test_max_cut_relaxation_bounds_every_cut():
    rng = np.random.default_rng(3)
    W = np.triu(rng.integers(0, 4, (6, 6)), 1).astype(float)
    W = W + W.T
    cuts = [(W * (1 - np.outer(s, s))).sum() / 4 for s in map(np.array, product((-1, 1), repeat=6))]
    bound = MaxCutRelaxation(weights=W).solve().objective
    assert max(cuts) - 1e-6 <= bound <= max(cuts) / 0.878
    pentagon = of.library.load("max_cut_pentagon").optimum.value
    assert pentagon == pytest.approx(2.5 * (1 + np.cos(np.pi / 5)), rel=1e-12)


def test_nearest_correlation_is_highams():
    s = problem("textbook/nearest_correlation").solve(tolerance=1e-9)
    X = s["correlation"]
    np.testing.assert_allclose([X[0, 1], X[0, 2]], [0.7607, 0.1573], atol=5e-5)
    assert np.sqrt(2 * s.objective) == pytest.approx(0.5278, abs=5e-5)
    C = np.array([[1.0, 0.3], [0.3, 1.0]])
    np.testing.assert_allclose(NearestCorrelation(estimate=C).solve()["correlation"], C, atol=1e-5)


def test_entropy_has_the_gibbs_form():
    faces = np.arange(1.0, 7.0)
    gibbs = lambda t: np.exp(t * faces) / np.exp(t * faces).sum()
    t = brentq(lambda t: gibbs(t) @ faces - 4.5, -5, 5)
    p = gibbs(t)
    s = problem("textbook/dice_entropy").solve(tolerance=1e-9)
    np.testing.assert_allclose(s["probabilities"], p, atol=1e-5)
    assert of.library.load("dice_entropy").optimum.value == pytest.approx(-p @ np.log(p), rel=1e-9)


def test_knapsack_by_enumeration():
    p = problem("textbook/knapsack")
    v, w, c = (p.data[k] for k in ("values", "weights", "capacity"))
    best = max(v @ x for x in map(np.array, product((0, 1), repeat=v.size)) if w @ x <= c)
    assert best == 309 == p.solve().objective


def secular_optimum(H, g, r):
    """The boundary solution of Moré and Sorensen: (H + mu I) x = -g, |x| = r."""
    d, Q = np.linalg.eigh(np.array(H, dtype=float))
    gamma = Q.T @ np.array(g)
    size = lambda mu: np.linalg.norm(gamma / (d + mu)) - r
    mu = brentq(size, -d[0] + 1e-10, -d[0] + 1e3, xtol=1e-14)
    y = -gamma / (d + mu)
    return y @ (d * y) / 2 + gamma @ y


def test_trust_region_by_its_secular_equation():
    instance = of.library.load("trust_region")
    d = instance.data
    exact = secular_optimum(d["H"], d["g"], d["radius"])
    assert instance.optimum.value == pytest.approx(exact, rel=1e-9)
    assert instance.problem().convex_form().solve().objective == pytest.approx(exact, rel=1e-6)


def test_trust_region_hard_case():
    """A gradient without a part along the worst direction: the secular equation has no root."""
    p = TrustRegion(H=np.diag([-2.0, 1.0]), g=[0.0, 1.0], radius=3.0)
    # x2 = -1/3 minimises x2^2/2 + 2 x2^2/2 + x2 once x1^2 = r^2 - x2^2
    x2 = -1 / 3
    exact = -(9 - x2**2) + x2**2 / 2 + x2
    assert p.convex_form().solve().objective == pytest.approx(exact, rel=1e-6)


def test_trust_region_witness_is_analytic_and_checked_after_composing():
    p = TrustRegion(H=[[-1.0, 0.0], [0.0, 1.0]], g=[0.0, 0.0], radius=2.0)
    np.testing.assert_allclose(np.abs(p.witness.first["step"]), [2.0, 0.0])
    assert str(p.problem_class) == "nonconvex QCQP"
    # on the line x1 = 0 the objective is convex, so the witness falls, and nothing is claimed
    q = p.with_constraints(line=p["step"][0] == 0)
    assert q.witness is None and str(q.problem_class) == "unverified QCQP"
    assert not of.core.NonconvexityWitness(q, "model", p.witness.first, p.witness.second).verify()


eye = np.eye(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Diet(cost=[1, np.nan], nutrition=eye, minimum=[1, 1]), "cost .* NaN"),
        (lambda: Diet(cost=[1, 2], nutrition=[[1, 2, 3]], minimum=[1]), "each row of nutrition"),
        (lambda: Diet(cost=[1, 2], nutrition=eye, minimum=[1]), "minimum has shape"),
        (lambda: Diet(cost=[1, 2], nutrition=eye, minimum=[1, 1], most=[1]), "most has shape"),
        (lambda: Diet(cost=["a"], nutrition=[[1]], minimum=[1]), "not numbers"),
        (
            lambda: MinimumVariance(returns=[1, 2], covariance=[[1, 2], [2, 1]], wanted=1),
            "negative eigenvalue",
        ),
        (lambda: MinimumVariance(returns=[1], covariance=eye, wanted=1), "returns has shape"),
        (lambda: MinimumVariance(returns=[1, 2], covariance=eye, wanted=np.inf), "wanted"),
        (lambda: RiskBudget(returns=[1, 2], covariance=eye, risk=0), "risk is 0, not a positive"),
        (lambda: RidgeRegression(A=eye, b=[1, 2], penalty=-1), "penalty is -1"),
        (lambda: RidgeRegression(A=eye, b=[1], penalty=1), "b has shape"),
        (lambda: SimplexRegression(A=eye, b=[1, 2, 3]), "b has shape"),
        (lambda: SmallestBall(points=[[1, np.inf]]), "NaN or infinite"),
        (lambda: SmallestBall(points=[1, 2]), "1 dimension"),
        (lambda: BallProjection(point=[0], centers=[[0]], radii=[0]), "not positive"),
        (lambda: BallProjection(point=[0, 1], centers=[[0]], radii=[1]), "each center"),
        (lambda: MaxCutRelaxation(weights=[[0, 1], [2, 0]]), "not symmetric"),
        (lambda: MaxCutRelaxation(weights=[[0, -1], [-1, 0]]), "negative entries"),
        (lambda: MaxCutRelaxation(weights=[[1, 0], [0, 1]]), "loops"),
        (lambda: NearestCorrelation(estimate=[[1, 2, 3]]), "not square"),
        (lambda: MaximumEntropy(functions=[[1, 2]], moments=[1, 2]), "moments has shape"),
        (lambda: Knapsack(values=[1], weights=[-1], capacity=1), "weights has negative"),
        (lambda: Knapsack(values=[1], weights=[1], capacity="much"), "capacity is 'much'"),
        (lambda: TrustRegion(H=eye, g=[1, 1], radius=1), "no negative eigenvalue"),
        (lambda: TrustRegion(H=-eye, g=[1, 1], radius=-1), "radius is -1"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(of.DataError, match=message):
        make()
