"""Counterfactuals of clusters: classes, routes, agreement, tampering, bad input."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair.features.feature_problem import box, immutable, monotone
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.partition import COVARIANCES, Partition
from optfair.methods.cluster_counterfactuals.rules import least_density
from optfair.transforms.exactness import Exactness
from optfair.transforms.relaxation import shor

FAST = ["half-space-projection", "cell-projection", "secular-equation"]


def blobs(seed: int, K: int = 4, d: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(K, d, d))
    return {
        "means": 3.0 * rng.normal(size=(K, d)),
        "covariances": R @ R.transpose(0, 2, 1) + 0.3 * np.eye(d),
        "weights": rng.dirichlet(5.0 * np.ones(K)),
    }


def away_from(given: dict[str, Any], target: int, seed: int) -> Any:
    """Return a row of another cluster."""
    clusters = Partition.gaussian(given["means"], given["covariances"], given["weights"])
    rng = np.random.default_rng(seed)
    while True:
        y = 3.0 * rng.normal(size=clusters.dimension)
        if clusters.labels(y) != target:
            return y


# --- classes -------------------------------------------------------------------------------


def test_classes_with_evidence() -> None:
    g = blobs(0)
    y = away_from(g, 1, 0)
    centers = g["means"]

    def kmeans(**options: Any) -> Any:
        return ClusterCounterfactual.kmeans(centers=centers, factual=y, target=1, **options)

    box = {"lower": -9.0, "upper": 9.0}
    classes = {
        "QP": kmeans(),
        "LP": kmeans(distance="l1"),
        "MILP": kmeans(distance="changes", **box),
        "MIQP": kmeans(whole=["x0"]),
        "nonconvex QCQP": ClusterCounterfactual.gaussian(**g, factual=y, target=1),
    }
    for name, p in classes.items():
        assert str(p.problem_class) == name
        assert p.certificate.verify(), name
    tied = ClusterCounterfactual.gaussian(
        means=centers, covariances=np.eye(3) + 0.3, factual=y, target=1, covariance_type="tied"
    )
    assert str(tied.problem_class) == "QP" and tied.solve().solver == "half-space-projection"
    # a target that is tighter in every direction is an ellipsoid: convex
    tight = ClusterCounterfactual.gaussian(
        means=centers[:2], covariances=[2.0, 0.5], factual=centers[0], target=1
    )
    assert str(tight.problem_class) == "QCQP" and tight.certificate.verify()
    # and the other way round its complement: concave
    wide = ClusterCounterfactual.gaussian(
        means=centers[:2], covariances=[0.5, 2.0], factual=centers[0], target=1
    )
    assert "concave quadratic" in str(wide.explain())
    assert str(wide.problem_class) == "nonconvex QCQP"


def test_class_is_that_of_the_free_features() -> None:
    # along the first feature the target is tighter, along the second it is wider
    g = {
        "means": [[0.0, 0.0], [3.0, 0.0]],
        "covariances": [np.diag([1.0, 1.0]), np.diag([0.5, 2.0])],
    }
    p = ClusterCounterfactual.gaussian(**g, factual=[0.0, 0.0], target=1)
    assert str(p.problem_class) == "nonconvex QCQP"
    held = p.with_constraints(second=immutable("x1"))
    assert str(held.problem_class) == "QCQP"
    masked = ClusterCounterfactual.gaussian(**g, factual=[0.0, 0.0], target=1, mask=[1, 0])
    assert str(masked.problem_class) == "QCQP"
    assert masked.solve().objective == pytest.approx(held.solve().objective, rel=1e-12)
    freed = masked.without("immutable")
    assert str(freed.problem_class) == "nonconvex QCQP"
    assert freed.solve().objective == pytest.approx(p.solve().objective, rel=1e-12)


def test_boundaries_are_differences_of_log_densities() -> None:
    from scipy.stats import multivariate_normal

    g = blobs(3)
    clusters = Partition.gaussian(**g)
    z = np.random.default_rng(0).normal(size=(5, 3))
    for s, t in ((0, 1), (2, 3)):
        log = [
            np.log(g["weights"][k] / np.sum(g["weights"]))
            + multivariate_normal(g["means"][k], g["covariances"][k]).logpdf(z)
            for k in (s, t)
        ]
        b = clusters.boundary(s, t, 0.7)
        assert b.value(z) == pytest.approx(np.log(1.7) + log[0] - log[1], rel=1e-9, abs=1e-9)
        step = 1e-6
        numeric = [(b.value(z + step * e) - b.value(z - step * e)) / (2 * step) for e in np.eye(3)]
        assert b.gradient(z) == pytest.approx(np.array(numeric).T, rel=1e-5, abs=1e-5)
        section = b.section(z[0], np.array([0, 2]))
        other = z[0] + np.array([0.3, 0.0, -0.8])
        u = (other - z[0])[[0, 2]]
        expanded = section.level + section.slope @ u + 0.5 * u @ section.D @ u
        assert section.value(other) == pytest.approx(expanded, rel=1e-9)


def test_kmeans_margin_is_the_papers() -> None:
    m = np.array([[0.0, 0.0], [4.0, 2.0]])
    p = ClusterCounterfactual.kmeans(centers=m, factual=[0.5, 0.0], target=1, plausibility=0.1)
    z = p.solve()["point"]
    v = m[0] - m[1]
    c = (m[0] @ m[0] - m[1] @ m[1] - 0.1 * v @ v) / 2.0
    y = np.array([0.5, 0.0])
    assert z == pytest.approx(y - (y @ v - c) / (v @ v) * v, rel=1e-12)  # eq. (9)
    near, far = ((z - m[1]) ** 2).sum(), ((z - m[0]) ** 2).sum()
    assert far - near == pytest.approx(0.1 * v @ v, rel=1e-12)


# --- routes against generic solvers ----------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_full_kmeans_equals_the_quadratic_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, K = 4, 7
    centers, y = 2.0 * rng.normal(size=(K, d)), 2.0 * rng.normal(size=d)
    R = rng.normal(size=(d, d))
    options: dict[str, Any] = [
        {},
        {"mask": [1, 1, 0, 1]},
        {"weights": rng.random(d) + 0.1},
        {"metric": R @ R.T + 0.2 * np.eye(d), "mask": [1, 0, 1, 1]},
        {"lower": y - 3.0, "upper": y + 4.0},
        {"lower": y - 3.0, "metric": R @ R.T + 0.2 * np.eye(d), "increasing": ["x1"]},
    ][seed]
    target = int((Partition.kmeans(centers).labels(y) + 1) % K)
    p = ClusterCounterfactual.kmeans(
        centers=centers, factual=y, target=target, against="all", **options
    )
    s = p.solve()
    assert s.solver == "cell-projection" and s.is_optimal(1e-10)
    assert p.clusters.scores(s["point"]).max() <= p.clusters.scores(s["point"])[target] + 1e-9
    generic = p.solve("clarabel", tolerance=1e-9)
    assert s["point"] == pytest.approx(generic["point"], abs=1e-7)
    assert s.objective == pytest.approx(generic.objective, rel=1e-8)
    plain = cp.Variable(d)
    W = options.get("metric", np.diag(options.get("weights", np.ones(d))))
    rows = [2 * (centers[k] - centers[target]) @ plain for k in range(K) if k != target]
    right = [
        float(centers[k] @ centers[k] - centers[target] @ centers[target])
        for k in range(K)
        if k != target
    ]
    constraints = [row <= r for row, r in zip(rows, right, strict=True)]
    constraints += [
        plain[j] == y[j] for j in np.flatnonzero(np.array(options.get("mask", [1] * d)) == 0)
    ]
    if "lower" in options:
        constraints.append(plain >= options["lower"])
    if "upper" in options:
        constraints.append(plain <= options["upper"])
    if "increasing" in options:
        constraints.append(plain[1] >= y[1])
    written = cp.Problem(cp.Minimize(cp.quad_form(plain - y, cp.psd_wrap(W))), constraints)
    written.solve(solver=cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11)
    assert s["point"] == pytest.approx(plain.value, abs=1e-8 * (1.0 + np.abs(y).max()) * 10)
    assert s.objective == pytest.approx(written.value, rel=1e-8)


def test_pair_form_may_land_in_a_third_cluster_and_the_full_form_never() -> None:
    third = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        centers, y = rng.normal(size=(5, 2)), 2.0 * rng.normal(size=2)
        t = int((Partition.kmeans(centers).labels(y) + 1 + seed % 4) % 5)
        p = ClusterCounterfactual.kmeans(centers=centers, factual=y, target=t)
        full = p.against_all()
        third += p.clusters.scores(p.solve()["point"]).argmax() not in (t, p.source)
        scores = p.clusters.scores(full.solve()["point"])
        assert scores.max() - scores[t] <= 1e-12 * (1.0 + np.abs(scores).max())
    assert third >= 5


@pytest.mark.parametrize("seed", range(5))
def test_secular_equation_equals_relaxation_and_branch_and_bound(seed: int) -> None:
    g = blobs(seed, d=3)
    y = away_from(g, 1, seed)
    options: dict[str, Any] = [
        {},
        {"mask": [1, 0, 1]},
        {"prices": [1.0, 4.0, 0.5]},
        {"metric": np.eye(3) + 0.4, "mask": [1, 1, 0]},
        {"plausibility": 2.0},
    ][seed]
    p = ClusterCounterfactual.gaussian(**g, factual=y, target=1, **options)
    s = p.solve()
    assert s.solver == "secular-equation" and s.is_optimal(1e-10)
    exact = Exactness(p, s.values, s.multipliers, 1e-8)
    assert exact.verify() and exact.bound == pytest.approx(s.objective, rel=1e-8)
    relaxation = shor(p)
    relaxed = relaxation.problem.solve()
    assert relaxed.objective == pytest.approx(s.objective, rel=1e-5, abs=1e-6)
    again = relaxation.recover(relaxed)
    assert again.objective == pytest.approx(s.objective, rel=1e-6)
    branched = p.solve("scip")
    assert branched.objective == pytest.approx(s.objective, rel=1e-5, abs=1e-5)


def test_features_held_at_other_values() -> None:
    # "what if x1 were 2 larger": a box of one point, and a metric that couples the features
    g = blobs(0)
    y = away_from(g, 1, 0)
    W = np.eye(3) + 0.4
    held = box({"x1": (y[1] + 2.0, y[1] + 2.0)})
    p = ClusterCounterfactual.gaussian(**g, factual=y, target=1, metric=W)
    q = p.with_constraints(what_if=held)
    s = q.solve()
    assert s.solver == "secular-equation" and s.is_optimal(1e-9)
    assert s["point"][1] == y[1] + 2.0
    assert s.objective == pytest.approx(q.solve("scip").objective, rel=1e-5)
    assert Exactness(q, s.values, s.multipliers).verify()
    k = ClusterCounterfactual.kmeans(
        centers=g["means"], factual=y, target=1, metric=W, against="all"
    ).with_constraints(what_if=held)
    assert k.solve().objective == pytest.approx(k.solve("clarabel").objective, rel=1e-7)
    # and by hand: the coupled features follow before anything else is asked
    alone = k.without("target").solve("clarabel")["point"]
    follow = -np.linalg.solve(W[np.ix_([0, 2], [0, 2])], W[[0, 2], 1] * 2.0)
    assert (alone - y)[[0, 2]] == pytest.approx(follow, abs=1e-6)


def test_a_time_limit_does_not_turn_the_fast_routes_away() -> None:
    g = blobs(0)
    y = away_from(g, 1, 0)
    for p in (
        ClusterCounterfactual.gaussian(**g, factual=y, target=1),
        ClusterCounterfactual.kmeans(centers=g["means"], factual=y, target=1),
        ClusterCounterfactual.kmeans(centers=g["means"], factual=y, target=1, against="all"),
    ):
        assert p.solve(time_limit=10.0, seed=0).solver in FAST


def test_hard_case_is_certified() -> None:
    # the row sits at the common mean: all directions out are alike
    p = ClusterCounterfactual.gaussian(
        means=np.zeros((2, 3)), covariances=[0.5, 2.0], factual=np.zeros(3), target=1
    )
    s = p.solve()
    assert s.is_optimal(1e-10) and s.objective > 0.1
    assert Exactness(p, s.values, s.multipliers).verify()


TRIPLES = {
    "iris": lambda: (load_iris().data, 3),
    "wine": lambda: ((lambda X: (X - X.mean(0)) / X.std(0))(load_wine().data), 3),
    "digits": lambda: (PCA(16, random_state=0).fit_transform(load_digits().data), 10),
}


def certified_triples(name: str, covariance: str, count: int) -> None:
    X, K = TRIPLES[name]()
    model = GaussianMixture(K, covariance_type=covariance, random_state=0, reg_covar=1e-3).fit(X)
    rng, labels = np.random.default_rng(1), model.predict(X)
    solved = 0
    for i in range(count):
        row = int(rng.integers(len(X)))
        target = int(rng.choice([k for k in range(K) if k != labels[row]]))
        mask = np.ones(X.shape[1]) if i % 3 == 0 else (rng.random(X.shape[1]) < 0.6) * 1.0
        mask[int(rng.integers(X.shape[1]))] = 1.0
        p = ClusterCounterfactual.from_estimator(
            model, factual=X[row], target=target, mask=mask, plausibility=1e-5
        )
        try:
            s = p.solve()
        except of.Infeasible as e:
            # no counterfactual: proved, from the data
            assert e.certificate.verify() and "largest margin" in e.evidence
            continue
        solved += 1
        assert s.is_optimal(1e-9)
        assert max(t.relative_violation(s.values) for t in p.constraints.values()) <= 1e-9
        assert (s["point"][mask == 0.0] == X[row][mask == 0.0]).all()
    assert solved >= 0.7 * count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("name", TRIPLES)
def test_every_triple_is_certified(name: str, covariance: str) -> None:
    certified_triples(name, covariance, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIPLES)
def test_six_hundred_triples_are_certified(name: str) -> None:
    certified_triples(name, "full", 600)


def test_against_all_gaussian_clusters() -> None:
    solvers = []
    for seed in range(12):
        g = blobs(seed, K=4, d=2)
        p = ClusterCounterfactual.gaussian(
            **g, factual=away_from(g, 1, seed), target=1, against="all"
        )
        if p.problem_class.convex:
            continue
        s = p.solve()
        solvers.append(s.solver)
        assert not s.residuals().above(1e-6)
        scores = p.clusters.scores(s["point"])
        assert scores.max() - scores[1] <= 1e-7 * (1.0 + np.abs(scores).max())
        pairs = [
            ClusterCounterfactual.gaussian(**g, factual=p.factual, source=k, target=1).solve()
            for k in (0, 2, 3)
        ]
        assert s.objective >= max(q.objective for q in pairs) - 1e-7
    assert "pairwise-relaxation" in solvers


def test_best_known_reports_value_bound_and_gap() -> None:
    from optfair.methods.cluster_counterfactuals.adapters import best_known

    g = blobs(5, K=5, d=4)
    p = ClusterCounterfactual.gaussian(**g, factual=away_from(g, 0, 5), target=0, against="all")
    s = best_known(p, time_limit=10.0)
    assert s.bound <= s.objective * (1.0 + 1e-7)
    assert s.residuals().feasibility <= 1e-7
    assert np.isfinite(s.gap)


def test_bounds_on_a_curved_boundary_and_density() -> None:
    g = blobs(2, d=2)
    y = away_from(g, 1, 2)
    plain = ClusterCounterfactual.gaussian(**g, factual=y, target=1)
    s = plain.solve()
    tight = plain.with_constraints(b=box({"x0": (s["point"][0] + 0.1, None)}))
    assert tight.solve().objective > s.objective
    # so many densities above that of the nearest point
    clusters = plain.clusters
    at = clusters.scores(s["point"])[1] - clusters.log_weights[1]
    dense = plain.with_constraints(density=least_density(float(np.exp(at + 0.5))))
    inside = dense.solve()
    assert inside.is_optimal(1e-6) and inside.objective > s.objective
    reached = clusters.scores(inside["point"])[1] - clusters.log_weights[1]
    assert reached == pytest.approx(at + 0.5, abs=1e-6)
    same = ClusterCounterfactual.gaussian(**g, factual=y, target=1, density=np.exp(at + 0.5))
    assert same.solve().objective == pytest.approx(inside.objective, rel=1e-6)


# --- tampering -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["half-space", "box", "cell", "secular", "several"])
def test_perturbed_solutions_are_not_verified(case: str) -> None:
    g = blobs(1)
    y = away_from(g, 1, 1)
    options: dict[str, Any] = {"factual": y, "target": 1, "mask": [1, 1, 0]}
    if case == "secular":
        p = ClusterCounterfactual.gaussian(**g, **options)
    elif case == "several":
        g = blobs(5)
        options["factual"] = y = g["means"][0]
        loose = ClusterCounterfactual.gaussian(**g, **options).solve()["point"]
        half = float(y[0] + loose[0]) / 2.0
        p = ClusterCounterfactual.gaussian(
            **g,
            **options,
            lower={"x0": min(half, y[0]), "x1": -99.0},
            upper={"x0": max(half, y[0])},
        )
    elif case == "box":
        y = g["means"][0]
        options["factual"] = y
        loose = ClusterCounterfactual.kmeans(centers=g["means"], **options).solve()["point"]
        half = (y + loose) / 2.0  # the first feature stops half-way, the second goes on
        low, high = np.minimum(y, half)[0], np.maximum(y, half)[0]
        p = ClusterCounterfactual.kmeans(
            centers=g["means"], **options, lower={"x0": low, "x1": -99.0}, upper={"x0": high}
        )
    else:
        against = "all" if case == "cell" else "pair"
        p = ClusterCounterfactual.kmeans(centers=g["means"], **options, against=against)
    s = p.solve()
    fast = "pairwise-relaxation" if case == "several" else ""
    assert s.solver in [*FAST, fast] and s.certificate.verify()
    for i in range(3):
        z = s["point"].copy()
        z[i] += 1e-4
        assert not replace(s, values={"point": z}).is_optimal(1e-7)
    for name, value in s.multipliers.items():
        for i in range(np.size(value)):
            for step in (1e-4, -1e-4):
                y_new = np.array(value, dtype=float)
                y_new.flat[i] += step
                tampered = replace(s, multipliers={**s.multipliers, name: y_new})
                assert not tampered.is_optimal(1e-7), (name, i)
    assert not replace(s, multipliers={}).is_optimal(1e-3)
    assert not replace(s, bound=s.bound + 1e-4).is_optimal(1e-7)


def test_shadow_price_of_the_margin() -> None:
    # a target half a log-density harder costs as much as its price says
    g = blobs(4)
    y = away_from(g, 1, 4)
    p = ClusterCounterfactual.gaussian(**g, factual=y, target=1)
    s = p.solve()
    step = 1e-5
    harder = ClusterCounterfactual.gaussian(
        **g, factual=y, target=1, plausibility=float(np.expm1(step))
    )
    price = float(s.shadow_price[f"target.{p.source}"])
    assert (harder.solve().objective - s.objective) / step == pytest.approx(-price, rel=1e-3)


# --- options -------------------------------------------------------------------------------


def test_options_are_rules() -> None:
    g = blobs(6)
    y = away_from(g, 2, 6)
    options = ClusterCounterfactual.kmeans(
        centers=g["means"],
        factual=y,
        target=2,
        against="all",
        immutable="x2",
        lower={"x0": y[0] - 5.0},
        upper=y + 6.0,
        decreasing=["x1"],
    )
    rules = ClusterCounterfactual.kmeans(
        centers=g["means"], factual=y, target=2, against="all"
    ).with_constraints(
        immutable=immutable("x2"),
        bounds=box(
            {"x0": (y[0] - 5.0, y[0] + 6.0), "x1": (None, y[1] + 6.0), 2: (None, y[2] + 6.0)}
        ),
        direction=monotone(decreasing="x1"),
    )
    assert list(options.constraints) == list(rules.constraints)
    try:
        expected = rules.solve().objective
    except of.Infeasible as e:
        with pytest.raises(of.Infeasible):
            options.solve()
        assert e.certificate.verify()
    else:
        assert options.solve().objective == pytest.approx(expected, rel=1e-12)


def test_a_user_constraint_leaves_the_fast_route_but_not_the_truth() -> None:
    g = blobs(7)
    p = ClusterCounterfactual.kmeans(centers=g["means"], factual=away_from(g, 2, 7), target=2)
    q = p.with_constraints(budget=cp.norm1(p["point"] - p.factual) <= 100.0)
    with pytest.raises(of.UnsupportedProblem, match="'budget' is not a bound on a feature"):
        q.solve("half-space-projection")
    s = q.solve()
    assert s.solver not in FAST
    assert s.objective == pytest.approx(p.solve().objective, rel=1e-6)


def test_integer_one_hot_and_counted_changes_against_enumeration() -> None:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 5)) + np.array([0.0, 0.0, 0.5, 0.5, 0.0])
    y = np.array([0.0, 1.0, 1.0, 0.0, 0.3])
    t = int((Partition.kmeans(centers).labels(y) + 1) % 3)
    common: dict[str, Any] = {"centers": centers, "factual": y, "target": t, "against": "all"}
    p = ClusterCounterfactual.kmeans(
        **common, whole=["x0", "x1"], one_hot=["x2", "x3"], lower=-4.0, upper=4.0
    )
    assert str(p.problem_class) == "MIQP"
    s = p.solve()
    best = np.inf
    for a in range(-4, 5):
        for b in range(-4, 5):
            for hot in ((1.0, 0.0), (0.0, 1.0)):
                z = cp.Variable()
                full = cp.hstack([float(a), float(b), *hot, z])
                rows = [
                    2 * (centers[k] - centers[t]) @ full
                    <= centers[k] @ centers[k] - centers[t] @ centers[t]
                    for k in range(3)
                    if k != t
                ]
                q = cp.Problem(cp.Minimize(cp.sum_squares(full - y)), [*rows, z <= 4, z >= -4])
                rough = (a - y[0]) ** 2 + (b - y[1]) ** 2 + (hot[0] - y[2]) ** 2
                if rough >= best:
                    continue
                q.solve(solver=cp.CLARABEL)
                if q.status == "optimal":
                    best = min(best, float(q.value))
    assert s.objective == pytest.approx(best, rel=1e-5, abs=1e-5)
    # the least number of changes, against every set of features
    counted = ClusterCounterfactual.kmeans(**common, distance="changes", lower=-1.0, upper=1.5)
    assert str(counted.problem_class) == "MILP"
    few = counted.solve()
    least = next(
        (
            r
            for r in range(6)
            if any(_reachable(centers, y, t, subset) for subset in combinations(range(5), r))
        ),
        None,
    )
    assert least is not None and few.objective == pytest.approx(least, abs=1e-6)
    limited = ClusterCounterfactual.kmeans(**common, max_changes=least, lower=-1.0, upper=1.5)
    z = limited.solve()["point"]
    assert (np.abs(z - y) > 1e-5).sum() <= least


def _reachable(centers: Any, y: Any, t: int, subset: tuple[int, ...]) -> bool:
    z = cp.Variable(5)
    fixed = [z[j] == y[j] for j in range(5) if j not in subset]
    rows = [
        2 * (centers[k] - centers[t]) @ z <= centers[k] @ centers[k] - centers[t] @ centers[t]
        for k in range(3)
        if k != t
    ]
    q = cp.Problem(cp.Minimize(0), [*fixed, *rows, z >= -1.0, z <= 1.5])
    q.solve(solver=cp.HIGHS)
    return bool(q.status == "optimal")


def test_l1_changes_fewer_features_than_l2() -> None:
    g = blobs(8, d=6)
    y = g["means"][2]
    p = ClusterCounterfactual.kmeans(centers=g["means"], factual=y, target=0, distance="l1")
    s = p.solve()
    v = g["means"][p.source] - g["means"][0]
    level = p.sides[0].section.level
    assert s.objective == pytest.approx(level / np.abs(v).max(), rel=1e-7)  # the cheapest feature
    assert (np.abs(s["point"] - y) > 1e-7).sum() == 1


@pytest.mark.parametrize("kind", ["kmeans", "gaussian"])
def test_nearest_other_cluster(kind: str) -> None:
    for seed in range(6):
        g = blobs(seed)
        y = 3.0 * np.random.default_rng(seed).normal(size=3)
        if kind == "kmeans":
            make, g = ClusterCounterfactual.kmeans, {"centers": g["means"]}
        else:
            make = ClusterCounterfactual.gaussian
        p = make(**g, factual=y, target="nearest other")
        values = {
            k: make(**g, factual=y, target=k).solve().objective for k in range(4) if k != p.source
        }
        assert p.target == min(values, key=lambda k: values[k])
        z = p.solve()["point"]
        # the nearest point outside lies in the cluster it borders on
        scores = p.clusters.scores(z)
        assert scores.max() - scores[p.target] <= 1e-9 * (1.0 + np.abs(scores).max())


def test_from_estimators() -> None:
    frame = pd.DataFrame(load_iris().data, columns=["sl", "sw", "pl", "pw"])
    row = frame.iloc[0]
    for model in (
        KMeans(3, random_state=0, n_init=1),
        MiniBatchKMeans(3, random_state=0, n_init=1),
        GaussianMixture(3, random_state=0),
    ):
        model.fit(frame)
        own = int(model.predict(frame.iloc[:1])[0])
        p = ClusterCounterfactual.from_estimator(
            model, factual=row, target=(own + 1) % 3, against="all", plausibility=1e-6
        )
        assert p.features == ("sl", "sw", "pl", "pw") and p.source == own
        z = pd.DataFrame([p.solve()["point"]], columns=p.features)
        assert int(model.predict(z)[0]) == (own + 1) % 3
    groups = np.arange(150) % 2
    fair = of.FairKMeans(3, random_state=0).fit(frame.to_numpy(), groups=groups)
    assert ClusterCounterfactual.from_estimator(fair, factual=row.to_numpy(), target=0).solve()


# --- bad input -----------------------------------------------------------------------------


def test_already_there() -> None:
    centers = [[0.0, 0.0], [4.0, 0.0]]
    p = ClusterCounterfactual.kmeans(centers=centers, factual=[3.5, 1.0], target=1)
    assert p.inside and "already there" in repr(p)
    s = p.solve()
    assert s.objective == 0.0 and s["point"].tolist() == [3.5, 1.0] and s.is_optimal(1e-12)
    with pytest.raises(of.DeclarationError, match="source and target are both cluster 1"):
        ClusterCounterfactual.kmeans(centers=centers, factual=[3.5, 1.0], source=1, target=1)


def test_unreachable_target_under_bounds() -> None:
    centers = [[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]]
    p = ClusterCounterfactual.kmeans(
        centers=centers, factual=[0.0, 0.0], target=1, upper={"x0": 1.5}
    )
    with pytest.raises(of.Infeasible) as error:
        p.solve()
    # ½(|z - m0|² - |z - m1|²) is at most 4·1.5 - 8 = -2 there
    assert "largest margin that can be attained is -2" in error.value.evidence
    assert error.value.conflict == ("target.0", "bounds.upper")
    assert error.value.certificate.verify()
    assert not replace(error.value.certificate, weights=-np.ones(1)).verify()
    many = p.against_all()
    with pytest.raises(of.Infeasible) as error:
        many.solve()
    assert "is -2, it" in error.value.evidence and error.value.certificate.verify()
    # two boundaries that only together cannot be met: right of x = 2 and above y = x + 3
    q = ClusterCounterfactual.kmeans(
        centers=[[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]],
        factual=[0.0, 4.0],
        target=1,
        against="all",
        lower={"x1": 3.0},
    )
    with pytest.raises(of.Infeasible) as error:
        q.solve()
    assert error.value.certificate.verify() and "target.2" in error.value.conflict
    wide = ClusterCounterfactual.gaussian(
        means=[[0.0, 0.0], [2.0, 0.0]],
        covariances=[1.0, 0.2],
        weights=[0.999, 0.001],
        factual=[0.0, 3.0],
        target=1,
        mask=[1, 0],
    )
    with pytest.raises(of.Infeasible, match="largest margin") as error:
        wide.solve()
    assert error.value.certificate.verify()


def test_unreachable_curved_target_between_bounds() -> None:
    p = ClusterCounterfactual.gaussian(
        means=[[0.0, 0.0], [6.0, 0.0]],
        covariances=[[1.0, 2.0], [2.0, 1.0]],
        covariance_type="diag",
        factual=[0.0, 0.0],
        target=1,
        lower=-1.0,
        upper=1.0,
    )
    with pytest.raises(of.Infeasible, match="largest margin") as error:
        p.solve()
    assert error.value.certificate.verify()
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), -1).reshape(-1, 2)
    margin = float(-p.sides[0].boundary.value(grid).min())
    assert f"attained is {margin:.4g}"[:-1] in error.value.evidence
    broken = replace(error.value.certificate.solution, multipliers={})
    assert not replace(error.value.certificate, solution=broken).verify()


def test_several_convex_boundaries() -> None:
    # two tight targets' sides are ellipsoids: pair by pair where that is enough, else as a QCQP
    g = {"means": [[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]], "covariances": [1.0, 0.5, 2.0]}
    found = set()
    for y in ([0.0, 0.0], [0.0, 5.0], [2.0, 3.0], [4.0, 6.0], [7.0, 4.0]):
        p = ClusterCounterfactual.gaussian(**g, factual=y, target=1, against="all")
        assert str(p.problem_class) == "QCQP"
        s = p.solve()
        found.add(s.solver)
        assert s.is_optimal(1e-6)
        assert s.objective == pytest.approx(p.solve("clarabel").objective, rel=1e-6, abs=1e-7)
    assert "pairwise-relaxation" in found
    held = p.with_constraints(held=immutable("x0"))
    with pytest.raises(of.Infeasible, match="largest margin") as error:
        held.solve()
    assert error.value.certificate.verify()


def test_bounds_that_exclude_each_other() -> None:
    p = ClusterCounterfactual.kmeans(
        centers=[[0.0, 0.0], [4.0, 0.0]], factual=[0.0, 0.0], target=1, upper={"x0": 1.0}
    ).with_constraints(more=box({"x0": (2.0, None)}))
    with pytest.raises(of.Infeasible, match="exclude each other") as error:
        p.solve()
    assert error.value.conflict == ("bounds.upper", "more.lower")
    assert error.value.certificate.verify()


GAUSSIAN: dict[str, Any] = {"means": [[0.0, 0.0], [4.0, 0.0]], "covariances": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"factual": [np.nan, 0.0]}, "NaN or infinite"),
        ({"factual": [0.0]}, "does not fit the clusters"),
        ({"factual": ["a", "b"]}, "entries that are not numbers"),
        ({"mask": [0, 0]}, "frees no feature"),
        ({"mask": [1, 2]}, "not a flag"),
        ({"mask": [0, 1], "immutable": ["x0"]}, "not both"),
        ({"immutable": ["x0", "x1"]}, "every feature is held fixed"),
        ({"immutable": ["X0"]}, "did you mean 'x0'"),
        ({"lower": {"age": 1.0}}, "no feature 'age'"),
        ({"upper": [1.0, 2.0, 3.0]}, "upper does not fit"),
        ({"features": ["a", "a"]}, "1 different names for 2 features"),
        ({"target": 2}, "target 2 is not a cluster"),
        ({"target": "nearest"}, "is not a cluster"),
        ({"against": "both"}, "against 'both'"),
        ({"plausibility": -1.0}, "plausibility -1.0"),
        ({"distance": "l3"}, "unknown distance 'l3'"),
        ({"distance": "l1", "metric": np.eye(2)}, "has no metric matrix"),
        ({"metric": np.diag([1.0, -1.0])}, "not positive definite"),
        ({"metric": [[0.9, 0.3], [0.3, 0.1]]}, "not positive definite"),
        ({"prices": [1.0, 0.0]}, "not all positive"),
        ({"distance": "changes"}, "without bounds"),
        ({"max_changes": 1.5, "lower": 0, "upper": 1}, "max_changes is 1.5, not a whole number"),
        ({"density": 1e9}, "nowhere as dense"),
        ({"density": -1.0}, "density is -1.0, not a positive"),
        ({"imutable": ["x0"]}, "unknown option 'imutable'"),
        ({"covariances": [1.0, -1.0]}, "covariance 1 is not positive definite"),
        ({"covariances": [[[1.0, 2.0], [0.0, 1.0]]] * 2}, "covariance 0 is not symmetric"),
        ({"covariances": np.ones((2, 2))}, "may be tied or diag"),
        ({"covariances": np.ones(3)}, "does not fit the means"),
        ({"covariance_type": "ful"}, "did you mean 'full'"),
        ({"covariances": [np.nan, 1.0]}, "NaN or infinite"),
        ({"weights": [1.0, -1.0]}, "weights do not fit"),
        ({"means": [[0.0, 0.0]], "covariances": [1.0]}, "one cluster only"),
        ({"covariances": 1.0, "mask": [0, 1]}, "do not tell clusters 0 and 1 apart"),
    ],
)
def test_bad_input(changed: dict[str, Any], message: str) -> None:
    options = {**GAUSSIAN, "factual": [0.0, 0.0], "target": 1, **changed}
    with pytest.raises((of.DataError, of.DeclarationError)) as failure:
        ClusterCounterfactual.gaussian(**options)
    assert message in str(failure.value)


@pytest.mark.parametrize("one_hot", [None, [0, 1, 2]])
def test_a_metric_that_is_singular_but_for_rounding_is_refused(one_hot: Any) -> None:
    """Its least eigenvalue is 5e-12 in floats, and no equations are solved with it."""
    W = np.eye(6)
    W[3:, 3:] = 1e6 * np.array([[1.0, 1.0, -2.0], [1.0, 5.0, -2.0], [-2.0, -2.0, 4.0]])
    centers = np.array([[1.0, 0, 0, 0, 0, 1], [0.2, 0.8, 0, 4, 2, -1], [0, 0.2, 0.8, 0, 1, 3]])
    given = {"centers": centers, "factual": centers[0], "target": 1, "one_hot": one_hot}
    with pytest.raises(of.DataError, match="not positive definite"):
        ClusterCounterfactual.kmeans(**given, metric=W)
    W[5, 5] *= 1.0 + 1e-9  # and in units of their own
    unit = np.array([1.0, 1.0, 1.0, 1e-6, 1.0, 1e2])
    s = ClusterCounterfactual.kmeans(**given, metric=W * np.outer(unit, unit)).solve()
    assert s.is_optimal(1e-6)


def test_bad_centers_and_estimators() -> None:
    with pytest.raises(of.DataError, match="same point"):
        ClusterCounterfactual.kmeans(centers=np.zeros((2, 2)), factual=[0.0, 0.0], target=1)
    with pytest.raises(of.DataError, match="NaN"):
        ClusterCounterfactual.kmeans(centers=[[np.nan], [1.0]], factual=[0.0], target=1)
    with pytest.raises(of.DataError, match="KMeans is not fitted"):
        ClusterCounterfactual.from_estimator(KMeans(2), factual=[0.0], target=1)
    with pytest.raises(of.DataError, match="str is not a clustering"):
        ClusterCounterfactual.from_estimator("kmeans", factual=[0.0], target=1)
    medians = of.FairKMeans(2, metric="l1", random_state=0)
    medians.fit(np.arange(12.0)[:, None], groups=np.arange(12) % 2)
    with pytest.raises(of.DeclarationError, match="squared distances only"):
        ClusterCounterfactual.from_estimator(medians, factual=[0.0], target=1)
    with pytest.raises(of.DeclarationError, match="no density"):
        ClusterCounterfactual.kmeans(centers=[[0.0], [1.0]], factual=[0.0], target=1, density=0.1)
