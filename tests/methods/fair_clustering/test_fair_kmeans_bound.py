"""The bound: below every fair clustering, tight where it should be, and proved."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import optfair as of
from optfair import metrics
from optfair.core.composition import Rule
from optfair.methods.fair_clustering.algorithms.costs import best_centers
from optfair.methods.fair_clustering.bound import WHOLE, FairKMeansBound, optimality_gap

# Relative residuals asked for: degenerate semidefinite programs end a little short of 1e-7.
TOLERANCE = 1e-6
CARRIED = {
    "perfect": of.perfect_fairness(),
    "balance": of.balance(0.3),
    "proportion": of.fair_clustering.proportion(lower=0.15, upper=0.7),
    "additive gap": of.additive_gap(0.3),
}


def rows(n=18, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % groups)
    X = rng.normal(size=(n, 2)) + 2.0 * (labels == 0)[:, None] * [1.0, 0.0]
    X[:, 1] += 3.0 * rng.integers(0, 2, n)
    return X, labels


def solved(X, groups, K, **options):
    p = FairKMeansBound(X, groups=groups, n_clusters=K, **options)
    return p.solve(tolerance=TOLERANCE)


def alternations(X, labels, K, starts=15, **options):
    """Soft assignments at which alternating from random starts ends, best first."""
    rng = np.random.default_rng(0)
    found = [
        of.fair_clustering.alternate(
            of.FairAssignment(X, groups=labels, centers=X[rows], **options)
        ).solution
        for rows in (rng.choice(len(X), K, replace=False) for _ in range(starts))
    ]
    return sorted(found, key=lambda s: s.objective)


def cost_at_best_centers(X, A, w):
    weighted = w[:, None] * A
    used = weighted.sum(axis=0) > 0
    centers = best_centers("sqeuclidean", X, weighted[:, used])
    return float((weighted[:, used] * cdist(X, centers, "sqeuclidean")).sum())


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_objective_of_a_clustering_is_its_soft_cost(groups, weighted):
    rng = np.random.default_rng(4)
    X, labels = rows(15, groups)
    w = rng.random(15) + 0.1 if weighted else np.ones(15)
    p = FairKMeansBound(X, groups=labels, n_clusters=4, fairness=None, sample_weight=w)
    A = rng.dirichlet(np.full(4, 0.4), 15)
    point = p.lift(A)
    expected = cost_at_best_centers(X, A, w / w.sum())
    assert p.objective_value(point) == pytest.approx(expected, rel=1e-12)
    v = np.sqrt(w / w.sum())
    pairs = np.outer(v, v) * point["projection"] * cdist(X, X, "sqeuclidean")
    assert expected == pytest.approx(pairs.sum() / 2, rel=1e-12)
    # every own term holds, and the masses are averages of the clusters' masses
    assert max(t.relative_violation(point) for t in p.constraints.values()) <= 1e-12
    U = (w / w.sum())[:, None] * A
    masses = np.stack([U[labels == g].sum(axis=0) for g in range(groups)])
    np.testing.assert_allclose(point["masses"], masses @ (U / U.sum(axis=0)).T, atol=1e-15)
    assert np.trace(point["projection"]) < 4 - 0.1


def test_a_hard_clustering_is_a_projection_of_its_number_of_clusters():
    X, labels = rows(12)
    p = FairKMeansBound(X, groups=labels, n_clusters=3, fairness=None)
    S = p.lift(np.arange(12) % 3)["projection"]
    np.testing.assert_allclose(S @ S, S, atol=1e-15)
    assert np.trace(S) == pytest.approx(3.0)
    np.testing.assert_array_equal(S, p.lift(5 - 2 * (np.arange(12) % 3))["projection"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weighted", [False, True])
def test_bound_is_below_every_alternation(groups, seed, weighted):
    X, labels = rows(18, groups, seed)
    w = np.random.default_rng(seed).random(18) + 0.2 if weighted else None
    s = solved(X, labels, 3, sample_weight=w)
    assert s.is_optimal(TOLERANCE)
    found = alternations(X, labels, 3, sample_weight=w)
    assert s.bound <= found[0].objective
    assert s.bound > 0.6 * found[0].objective  # and says something
    gap = optimality_gap(found[0]["assignment"], s)
    # alternating stops at the best centers of its assignment, up to its tolerance
    assert gap == pytest.approx(1 - s.bound / found[0].objective, abs=1e-4)
    assert gap <= optimality_gap(found[-1]["assignment"], s)


@pytest.mark.parametrize("name", CARRIED)
@pytest.mark.parametrize("groups", [2, 3])
def test_clusterings_that_obey_a_rule_are_in_the_relaxation(name, groups):
    X, labels = rows(18, groups)
    rule = CARRIED[name]
    p = FairKMeansBound(X, groups=labels, n_clusters=3, fairness=rule)
    for s in alternations(X, labels, 3, starts=4, fairness=rule):
        point = p.lift(s["assignment"])
        assert max(t.relative_violation(point) for t in p.constraints.values()) <= 1e-7
    # and one that does not obey it is outside: each cluster lacks a group
    alone = p.lift(labels)
    fairness = [t for k, t in p.constraints.items() if k.startswith("fairness")]
    assert max(t.relative_violation(alone) for t in fairness) > 1e-3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CARRIED)
def test_rule_costs_and_its_bound_holds(name):
    X, labels = rows(18)
    plain = solved(X, labels, 3, fairness=None)
    fair = solved(X, labels, 3, fairness=CARRIED[name])
    best = alternations(X, labels, 3, fairness=CARRIED[name])[0]
    assert plain.bound + 0.02 < fair.bound <= best.objective


def partitions(n, K):
    seen = {tuple(np.unique(p, return_inverse=True)[1]) for p in product(range(K), repeat=n)}
    return [np.array(p) for p in seen]


@pytest.mark.parametrize("seed", range(3))
def test_plain_bound_is_the_optimum_by_enumeration(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 2)) + 4.0 * (np.arange(7) < 3)[:, None]
    labels, w = np.arange(7) % 2, rng.random(7) + 0.5
    s = solved(X, labels, 2, fairness=None, sample_weight=w)
    w = w / w.sum()
    best = min(cost_at_best_centers(X, np.eye(2)[p], w) for p in partitions(7, 2))
    assert s.bound == pytest.approx(best, rel=1e-5)
    assert s.bound <= best + 1e-7


@pytest.mark.parametrize("seed", range(3))
def test_fair_bound_is_below_all_fair_partitions(seed):
    X, labels = rows(6, 2, seed)
    s = solved(X, labels, 3)
    fair = [p for p in partitions(6, 3) if metrics.max_gap(labels, p) <= 1e-12]
    assert len(fair) > 5
    gaps = [optimality_gap(p, s) for p in fair]  # each is checked and none is below
    assert min(gaps) < 0.35
    with pytest.raises(of.DataError, match="breaks 'fairness'"):
        optimality_gap(labels, s)


def test_an_equality_for_the_trace_would_cut_off_fair_clusterings():
    # the row of group b is split between two clusters with one row of group a each
    X, labels = np.array([[0.0], [4.0], [2.0]]), np.array([0, 0, 1])
    A = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert metrics.max_gap(labels, A, soft=True) == 0.0
    p = FairKMeansBound(X, groups=labels, n_clusters=2)
    point = p.lift(A)
    assert max(t.relative_violation(point) for t in p.constraints.values()) <= 1e-12
    assert np.trace(point["projection"]) == pytest.approx(5 / 3)
    s = p.solve(tolerance=TOLERANCE)
    assert 0 <= optimality_gap(A, s) < 1e-4  # it is the best one
    with pytest.raises(of.Infeasible):
        p.with_constraints(exactly=cp.trace(p["projection"]) == 2).solve(tolerance=TOLERANCE)


def test_rules_that_are_the_same_have_the_same_bound():
    X, labels = rows(13)
    pi = np.bincount(labels) / 13
    bounds = [
        solved(X, labels, 3, fairness=rule).bound
        for rule in (
            of.perfect_fairness(),
            of.balance(pi.min() / pi.max()),
            of.fair_clustering.proportion(lower=dict(enumerate(pi)), upper=dict(enumerate(pi))),
            of.additive_gap(0.0),
        )
    ]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-5)
    b = 0.4
    loose = [
        solved(X, labels, 3, fairness=rule).bound
        for rule in (of.balance(b), of.fair_clustering.proportion(lower=b / (1 + b)))
    ]
    assert loose[0] == pytest.approx(loose[1], rel=1e-5)
    assert loose[0] < bounds[0] - 1e-3


def test_bound_falls_with_slack_and_with_clusters():
    X, labels = rows(14)
    by_gap = [solved(X, labels, 3, fairness=of.additive_gap(e)).bound for e in (0, 0.2, 0.6, 2)]
    assert (np.diff(by_gap) < -1e-3).all()
    plain = solved(X, labels, 3, fairness=None).bound
    assert by_gap[-1] == pytest.approx(plain, rel=1e-5)
    by_count = [solved(X, labels, K).bound for K in (1, 2, 4)]
    assert (np.diff(by_count) < -1e-3).all()
    assert by_count[0] == pytest.approx(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean(), rel=1e-5)


def test_equal_rows_may_be_given_once_with_their_weight():
    X, labels = rows(10)
    times = np.array([1, 2, 1, 1, 3, 1, 1, 2, 1, 1])
    once = solved(X, labels, 3, sample_weight=times)
    many = solved(np.repeat(X, times, 0), np.repeat(labels, times), 3)
    assert once.bound == pytest.approx(many.bound, rel=1e-5)


def test_rows_without_weight_are_left_out():
    X, labels = rows(10)
    w = np.where(np.arange(10) < 7, 1.0, 0.0)
    p = FairKMeansBound(X, groups=labels, n_clusters=2, sample_weight=w)
    assert p["projection"].shape == (7, 7)
    few = FairKMeansBound(X[:7], groups=labels[:7], n_clusters=2)
    A = np.random.default_rng(0).dirichlet([1.0, 1.0], 10)
    assert p.objective_value(p.lift(A)) == pytest.approx(few.objective_value(few.lift(A[:7])))


@pytest.mark.parametrize("unit", [1e-2, 1e4])
def test_units_and_origin_do_not_matter(unit):
    X, labels = rows(14)
    here, there = solved(X, labels, 3), solved(unit * (X + 5.0), labels, 3)
    assert there.bound == pytest.approx(unit**2 * here.bound, rel=1e-4, abs=2e-6)


def raw_german(n=20):
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=False)
    rows = np.random.default_rng(0).choice(len(X), n, replace=False)
    return X[rows], np.asarray(sex)[rows]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e3, 1e4, 1e6])
def test_rows_in_any_units_at_the_default_tolerance(scale):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        labels = rng.permutation(np.arange(20) % 2)
        X = rng.normal(size=(20, 3)) + 2.0 * (labels == 0)[:, None] * [1.0, 0.0, 0.0]
        one, s = (FairKMeansBound(c * X, groups=labels, n_clusters=3).solve() for c in (1.0, scale))
        assert s.is_optimal() and s.certificate.verify()
        assert s.bound / scale**2 == pytest.approx(one.bound, rel=1e-6)
        assert s.bound <= s.objective * (1 + 1e-12)
        # objective and multipliers are those of the declared problem, in its units
        assert s.problem.objective_value(s.values) == pytest.approx(s.objective, rel=1e-12)
        count = s.multipliers["cluster count"] / scale**2
        assert count == pytest.approx(one.multipliers["cluster count"], rel=1e-3)
        assert optimality_gap(2 * s.bound, s) == pytest.approx(0.5)
        assert optimality_gap(s.bound, s) == 0.0
        for below in (0.1, 0.999):
            with pytest.raises(of.DataError, match="below the bound"):
                optimality_gap(below * s.bound, s)


def test_raw_rows_at_the_default_tolerance():
    X, sex = raw_german()
    assert np.square(X - X.mean(axis=0)).sum(axis=1).mean() > 1e5
    s = FairKMeansBound(X, groups=sex, n_clusters=3).solve()
    assert s.is_optimal() and s.certificate.verify()
    model = of.FairKMeans(3, random_state=0).fit(X, groups=sex)
    assert 0 <= optimality_gap(model, s) < 0.5


def test_a_bound_of_other_units_still_guards_its_multipliers():
    X, labels = rows(8)
    s = FairKMeansBound(1e4 * X, groups=labels, n_clusters=2).solve()
    for name, y in s.multipliers.items():
        forged = np.array(y, dtype=float, order="C")
        forged.reshape(-1)[0] += 1e-3 * s.problem.objective_unit
        assert not replace(s, multipliers={**s.multipliers, name: forged}).certificate.verify()
    other = FairKMeansBound(1e4 * X, groups=labels, n_clusters=2)
    assert not replace(s, problem=other).certificate.verify()
    assert not replace(s, bound=s.bound * (1 + 1e-6)).certificate.verify()


def test_warm_starts_and_penalties_are_in_the_units_of_the_rows():
    X, labels = rows(8)
    first = FairKMeansBound(1e3 * X, groups=labels, n_clusters=2)
    s = first.solve()
    assert first.solve(warm_start=s).bound == pytest.approx(s.bound, rel=1e-6)
    soft = first.soften("fairness", weight=1e9).solve()
    assert soft.objective == pytest.approx(s.objective, rel=1e-5)
    cheap = first.soften("fairness", weight=1e-6).solve()
    plain = FairKMeansBound(1e3 * X, groups=labels, n_clusters=2, fairness=None).solve()
    assert cheap.objective == pytest.approx(plain.objective, rel=1e-5)


def test_class_and_evidence():
    X, labels = rows(8)
    p = FairKMeansBound(X, groups=labels, n_clusters=2)
    assert str(p.problem_class) == "SDP"
    assert "semidefinite: affine in PSD -> SDP" in p.explain()
    assert p.certificate.verify()
    assert str(p.without("semidefinite").problem_class) == "LP"
    assert list(p.constraints) == [
        *("row sum", "cluster count", "nonnegativity", "semidefinite", "mass definition"),
        "fairness",
    ]
    assert p.constraints["nonnegativity"].shape == (28,)
    assert p.data["n_clusters"] == 2 and p.group_names.tolist() == [0, 1]


def test_rules_compose_and_go():
    X, labels = rows(12)
    p = FairKMeansBound(X, groups=labels, n_clusters=3)
    plain = p.without("fairness")
    both = plain.with_constraints(rules=[of.balance(0.2), of.additive_gap(0.5)])
    assert [k for k in both.constraints if k.startswith("rules")] == ["rules.0", "rules.1"]
    low, high = (q.solve(tolerance=TOLERANCE).bound for q in (plain, both))
    assert low < high - 1e-4
    apart = plain.with_constraints(apart=plain["projection"][0, 1] == 0)  # cannot link
    assert apart.solve(tolerance=TOLERANCE).bound >= low - 1e-6


@dataclass(frozen=True)
class AtLeast(Rule):
    def bind(self, problem):
        return problem["masses"] >= 0.1


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        (of.max_gap(0.1), r"additive_gap\(0.3\)"),
        (of.max_gap(0.9), r"additive_gap\(2\)"),
        (of.cluster_share(lower=0.1), "leave it out"),
        (AtLeast(), "leave it out"),
    ],
)
def test_other_rules_are_refused(rule, remedy):
    X, labels = rows(8)
    for declare in (
        lambda: FairKMeansBound(X, groups=labels, n_clusters=3, fairness=rule),
        lambda: FairKMeansBound(X, groups=labels, n_clusters=3).with_constraints(more=rule),
        lambda: FairKMeansBound(X, groups=labels, n_clusters=3).with_constraints(
            more=[of.balance(0.1), rule]
        ),
    ):
        with pytest.raises(of.DeclarationError, match="does not carry over") as e:
            declare()
        assert re.search(remedy, e.value.remedy)


def test_maximal_gap_would_cut_off_clusterings_that_obey_it():
    """Why max_gap is refused: its bound holds in every cluster, but not for their averages."""
    X, labels = rows(12)
    A = np.zeros((12, 11))
    A[:, 0] = 1.0
    for group, own in ((0, slice(1, 6)), (1, slice(6, 11))):
        row = np.flatnonzero(labels == group)[0]
        A[row, 0], A[row, own] = 0.45, 0.11  # five small clusters of its own
    eps = metrics.max_gap(labels, A, soft=True)
    p = FairKMeansBound(X, groups=labels, n_clusters=11, fairness=None)
    averaged = np.abs(np.diff(p.lift(A)["masses"] / 0.5, axis=0))
    assert eps == pytest.approx(0.11 / 6)
    assert averaged.max() == pytest.approx(5 * eps)
    # the sum over clusters, which additive_gap bounds, does not grow
    assert averaged.sum() <= metrics.additive_gap(labels, A, soft=True) + 1e-12


def test_tampered_solutions_do_not_verify_and_bound_nothing():
    X, labels = rows(8)
    s = solved(X, labels, 2)
    assert s.certificate.verify()
    S = np.array(s["projection"])
    S[0, 1] += 1e-4
    S[1, 0] += 1e-4
    assert not replace(s, values={**s.values, "projection": S}).certificate.verify()
    for name in ("row sum", "semidefinite", "nonnegativity", "cluster count", "fairness"):
        y = np.array(s.multipliers[name])
        y.reshape(-1)[0] += 1e-3
        forged = replace(s, multipliers={**s.multipliers, name: y})
        assert not forged.certificate.verify(), name
        with pytest.raises(of.DeclarationError, match="does not prove"):
            optimality_gap(np.arange(8) // 4, forged)
    with pytest.raises(of.DeclarationError, match="does not prove"):
        optimality_gap(100.0, replace(s, bound=s.bound + 1.0))
    with pytest.raises(of.DeclarationError, match="no proof"):
        optimality_gap(100.0, replace(s, proof=None))


def test_a_proved_bound_with_loose_multipliers_bounds_clusterings(monkeypatch):
    """What charges the multipliers for their misses is a proof, however large these are."""
    X, labels = rows(8)
    s = solved(X, labels, 2)
    loose = replace(s.residuals(), dual=0.9)
    assert loose.grade(TOLERANCE).sound
    monkeypatch.setattr(type(s), "residuals", lambda self: loose)
    assert 0.0 <= optimality_gap(100.0, s) <= 1.0
    word = replace(loose, reported="somebody")
    monkeypatch.setattr(type(s), "residuals", lambda self: word)
    with pytest.raises(of.DeclarationError, match="reported by somebody"):
        optimality_gap(100.0, s)


def test_gap_of_costs_arrays_and_estimators():
    X, labels = rows(12)
    s = solved(X, labels, 3)
    model = of.FairKMeans(n_clusters=3, random_state=0).fit(X, groups=labels)
    A = model.soft_assignment_
    gap = optimality_gap(model, s)
    assert (
        gap
        == optimality_gap(A, s)
        == pytest.approx((model.objective_ - s.bound) / model.objective_, abs=1e-5)
    )
    assert 0 <= gap < 0.5
    assert optimality_gap(2 * s.bound, s) == pytest.approx(0.5)
    assert optimality_gap(s.bound, s) == 0.0
    with pytest.raises(of.DataError, match="below the bound"):
        optimality_gap(0.99 * s.bound, s)
    # rounding below the bound is no error
    assert optimality_gap(s.bound - 1e-8, s) == 0.0


def test_gap_refuses_what_the_bound_does_not_cover():
    X, labels = rows(12)
    s = solved(X, labels, 2)
    with pytest.raises(of.DataError, match="breaks 'fairness'"):
        optimality_gap(labels, s)
    plain = solved(X, labels, 2, fairness=None)
    with pytest.raises(of.DataError, match="breaks 'cluster count'"):
        optimality_gap(np.arange(12) % 3, plain)
    with pytest.raises(of.DataError, match="breaks 'row sum'"):
        optimality_gap(np.full((12, 2), 0.4), plain)
    with pytest.raises(of.DataError, match="neither labels nor fractions"):
        optimality_gap(np.zeros(11, dtype=int), plain)
    with pytest.raises(of.DataError, match="neither labels nor fractions"):
        optimality_gap(np.zeros(12), plain)
    with pytest.raises(of.DataError, match="cost"):
        optimality_gap("cheap", plain)
    other = of.FairAssignment(X, groups=labels, centers=X[:2]).solve()
    with pytest.raises(of.DeclarationError, match="FairAssignment, not a solution"):
        optimality_gap(1.0, other)
    with pytest.raises(of.DeclarationError, match="float, not a Solution"):
        optimality_gap(1.0, 0.5)


def test_rows_that_cost_nothing_have_no_gap():
    X, labels = np.repeat([[0.0], [5.0]], 4, axis=0), np.arange(8) % 2
    s = solved(X, labels, 2)
    assert optimality_gap(np.arange(8) // 4, s) == 0.0


def test_bad_input_says_what_to_do():
    X, labels = rows(8)
    for K in (0, 9, 2.0, True, "2"):
        with pytest.raises(of.DataError, match="number of clusters"):
            FairKMeansBound(X, groups=labels, n_clusters=K)
    with pytest.raises(of.DataError, match="one group only"):
        FairKMeansBound(X, groups=np.zeros(8, dtype=int), n_clusters=2)
    with pytest.raises(of.DataError, match="NaN"):
        FairKMeansBound(np.where(X > 1, np.nan, X), groups=labels, n_clusters=2)
    with pytest.raises(of.DeclarationError, match="not a rule"):
        FairKMeansBound(X, groups=labels, n_clusters=2, fairness="perfect")
    with pytest.raises(of.DeclarationError, match="cannot be reached"):
        FairKMeansBound(X, groups=np.arange(8) < 2, n_clusters=2, fairness=of.balance(0.9))


def test_instances_are_declared_from_a_table_without_centers():
    fair = of.library.load("german_bound")
    p = fair.problem()
    assert isinstance(p, FairKMeansBound) and "fairness" in p.constraints
    assert p["projection"].shape == (14, 14)
    plain = of.library.load("german_bound_plain").problem()
    assert "fairness" not in plain.constraints
    np.testing.assert_array_equal(p.data["points"], plain.data["points"])
    centers = {"method": "kmeans++", "seed": 0, "k": 3}
    with pytest.raises(of.DeclarationError, match="unknown key 'centers'"):
        replace(fair, data={**fair.data, "centers": centers}).problem()


# --- labels of whole rows -----------------------------------------------------------------------------

HARD = {
    **CARRIED,
    "max gap": of.max_gap(0.3),
    "cluster share": of.cluster_share(0.2, 0.7),
    "none": None,
}


def labels_that_obey(K, groups, rule, weights):
    """Yield all labellings of a few rows that obey a rule, the first row in the first cluster."""
    n = len(groups)
    X = np.arange(float(n))[:, None]
    p = of.FairAssignment(X, groups=groups, centers=X[:K], fairness=rule, sample_weight=weights)
    terms = [t for name, t in p.constraints.items() if name.startswith("fairness")]
    w = p.data["weights"]
    for rest in product(range(K), repeat=n - 1):
        A = np.equal.outer((0, *rest), np.arange(K)).astype(float)
        masses = np.stack([w[groups == g] @ A[groups == g] for g in range(2)])
        if all(t.relative_violation({"masses": masses}) <= 1e-9 for t in terms):
            yield A, w


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weights", [None, (1, 2, 1, 1, 2, 1, 1, 1)], ids=["equal", "unequal"])
@pytest.mark.parametrize("rule", HARD.values(), ids=HARD)
def test_no_labels_that_obey_cost_less_than_the_bound_of_labels(rule, weights):
    X, groups = rows(8, seed=3)
    hard = solved(X, groups, 2, fairness=rule, sample_weight=weights, labels="hard")
    terms = hard.problem.constraints.values()
    costs = []
    for A, w in labels_that_obey(2, groups, rule, weights):
        point = hard.problem.lift(A)
        assert max(t.relative_violation(point) for t in terms) <= 1e-9
        costs.append(cost_at_best_centers(X, A, w))
    assert hard.bound <= min(costs) * (1.0 + 1e-9)
    if not isinstance(rule, WHOLE):
        soft = solved(X, groups, 2, fairness=rule, sample_weight=weights)
        assert hard.bound >= soft.bound - 1e-5


def test_triangles_close_what_fractions_leave():
    X, groups = rows(12, seed=3)
    given = {"n_clusters": 2, "fairness": of.max_gap(0.2)}
    best = of.fair_clustering.certified_kmeans(X, groups=groups, **given)
    soft = solved(X, groups, 2, fairness=of.additive_gap(0.4))
    hard = solved(X, groups, labels="hard", K=2, fairness=of.max_gap(0.2))
    assert optimality_gap(best.labels, soft) > 1e-2
    assert optimality_gap(best.labels, hard) == pytest.approx(0.0, abs=1e-5)
    assert hard.grade.word == "proved"


def test_a_rule_that_only_all_rows_obey_leaves_one_cluster():
    X, groups = np.arange(5.0)[:, None], np.array([0, 0, 0, 1, 1])
    hard = solved(X, groups, 2, labels="hard")
    assert "fairness.clusters" not in hard.problem.constraints
    assert hard.bound <= 2.0 + 1e-9 and optimality_gap(np.zeros(5, dtype=int), hard) <= 1.0


def test_fractions_are_no_labels():
    X, groups = np.array([[0.0], [1.0], [2.0]]), ["a", "b", "a"]
    hard = solved(X, groups, 2, fairness=None, labels="hard")
    with pytest.raises(of.DataError, match="triangle"):
        optimality_gap(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]), hard)
    with pytest.raises(of.DeclarationError, match="unknown labels"):
        FairKMeansBound(X, groups=groups, n_clusters=2, labels="whole")


def test_costs_that_are_rounding_do_not_set_the_units() -> None:
    # a row at the mean of all has inner products of 1e-17 with the others
    X = np.array([[0, 0], [1, 2], [1, 1], [1, 1], [2, 1], [0, 2], [2, 0]], dtype=float)
    bound = of.fair_clustering.FairKMeansBound(X, groups=[0, 2, 2, 2, 0, 1, 2], n_clusters=3)
    for solver in (None, "clarabel", "psd-blocks"):
        s = bound.solve(solver)
        assert s.grade.word == "proved"
        assert s.objective == pytest.approx(36.0 / 49.0, rel=1e-6)
