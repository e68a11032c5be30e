"""Rules on maps: each against the same thing said in plain CVXPY or by enumeration."""

from __future__ import annotations

import math
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import beta, norm, t

import optfair as of
from optfair.features.feature_problem import box, immutable, monotone
from optfair.methods.group_counterfactuals.affine_maps import AffineMap, PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
)
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap
from optfair.methods.group_counterfactuals.rules import (
    at_most,
    chance,
    l1_sparsity,
    loewner,
    moment_margin,
    transport_budget,
)

sys.path.insert(0, str(Path(__file__).parent))
from map_cases import MODELS, W0, W, group, target

BOUNDS = {"K": 1.4, "k": 1.6}
RULES: dict[str, Any] = {
    "immutable": immutable("x1"),
    "box": box({"x0": (None, 1.0), 2: (-4.0, 0.5)}),
    "monotone": monotone(increasing="x0", decreasing=["x2"]),
    "loewner": loewner(K=1.1),
    "chance": chance(0.002),
    "any": chance(0.05, distribution="any"),
    "l1": l1_sparsity(4.2),
    "budget": transport_budget(3.0),
}


# every model and every rule in the fast tier, each with half of the others
PAIRS = [
    pytest.param(name, rule, marks=[pytest.mark.slow] * ((i + j) % 2))
    for i, name in enumerate(MODELS)
    for j, rule in enumerate(RULES)
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_lazy_and_whole_agree_and_certify(name: str, rule: str) -> None:
    p = MODELS[name](group(), **BOUNDS, **target()).with_constraints(rule=RULES[rule])
    assert p.certificate.verify()
    one, two = p.solve(tolerance=1e-7), p.solve("clarabel", tolerance=1e-7)
    assert not one.residuals().above(one.certificate.tolerance)
    assert one.objective == pytest.approx(two.objective, rel=1e-6)
    X = group()
    moved = p.map(one).transform(X)
    if rule == "immutable":
        assert np.abs(moved[:, 1] - X[:, 1]).max() <= 1e-6
    if rule == "box":
        assert moved[:, 0].max() <= 1 + 1e-6
        assert moved[:, 2].min() >= -4 - 1e-6 and moved[:, 2].max() <= 0.5 + 1e-6
    if rule == "monotone":
        assert (moved - X)[:, 0].min() >= -1e-6 and (moved - X)[:, 2].max() <= 1e-6
    if rule == "budget":
        assert np.square(moved - X).sum(axis=1).mean() <= 9 + 1e-5 or name.startswith("mixture")


def test_feature_rules_are_what_they_say_in_plain_cvxpy() -> None:
    X = group()
    n, d = X.shape
    p = PSDMap(X, **BOUNDS, **target())
    base = p.solve().objective
    A, b = cp.Variable((d, d), symmetric=True), cp.Variable(d)
    Z = X @ A + np.ones((n, 1)) @ cp.reshape(b, (1, d), order="C")
    common = [np.log(4) <= Z @ W + W0, A << 1.4 * np.eye(d), A >> np.eye(d) / 1.6]
    moved = Z - X
    cases = {
        "fixed": (immutable(0), [Z[:, 0] == X[:, 0]]),
        "box": (
            box({"x0": (None, 4.0), "x2": (-2.0, 1.0)}),
            [Z[:, 0] <= 4, Z[:, 2] >= -2, Z[:, 2] <= 1],
        ),
        "moves": (monotone(increasing="x1", decreasing="x2"), [moved[:, 1] >= 0, moved[:, 2] <= 0]),
    }
    for name, (rule, rows) in cases.items():
        goal = cp.Minimize(cp.sum_squares(moved) / n)
        expected = cp.Problem(goal, common + rows).solve(solver="CLARABEL")
        found = p.with_constraints(rule=rule).solve(tolerance=1e-8).objective
        assert found == pytest.approx(expected, rel=1e-5), name
        assert found > base * (1 + 1e-3), name  # the case has to bind to test anything


def test_rows_of_features_are_terms_of_their_own() -> None:
    p = PSDMap(group(), **BOUNDS, **target())
    q = p.with_constraints(limits=box({"x0": (-1, 3), "x2": (None, 5)}))
    names = [n for n in q.constraints if n.startswith("limits")]
    assert names == ["limits.x0 lower", "limits.x0 upper", "limits.x2 upper"]
    assert q.constraints[names[0]].rows is not None
    assert list(q.without("limits").constraints) == list(p.constraints)


def test_loewner_by_rule_is_loewner_by_model() -> None:
    X = group()
    for model in (PSDMap, DiagonalMap, CommutativeGaussianMap):
        inside = model(X, K=1.2, k=1.3, **target()).solve(tolerance=1e-9).objective
        free = model(X, **target())
        for q in (
            free.with_constraints(b=loewner(K=1.2, k=1.3)),
            free.with_constraints(up=loewner(K=1.2), low=loewner(k=1.3)),
        ):
            assert q.solve(tolerance=1e-9).objective == pytest.approx(inside, rel=1e-7)
    bounded = AffineMap(X, K=1.05, **target()).solve(tolerance=1e-9).objective
    ruled = AffineMap(X, **target()).with_constraints(b=loewner(K=1.05))
    assert ruled.solve(tolerance=1e-9).objective == pytest.approx(bounded, rel=1e-7)
    with pytest.raises(of.DeclarationError, match="not convex"):
        AffineMap(X, **target()).with_constraints(b=loewner(k=2.0))


def known(seed: int = 0, d: int = 4) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) / 2
    return rng.normal(size=d) - 1.0, root @ root.T + 0.2 * np.eye(d)


@pytest.mark.parametrize("delta", [0.05, 0.3, 0.5])
def test_chance_is_exact_for_known_moments(delta: float) -> None:
    """No members: the share that misses is delta, by the normal distribution and by drawing."""
    mean, covariance = known()
    p = GaussianMap(mean=mean, covariance=covariance, K=3.0, k=3.0, **target())
    assert list(p.constraints) == ["loewner upper", "loewner lower"]
    q = p.with_constraints(most=chance(delta))
    assert "most.known moments" in q.constraints
    s = q.solve(tolerance=1e-9)
    g = q.map(s)
    v = g.matrix.T @ W
    score = W @ (g.matrix @ mean + g.offset) + W0 - np.log(4)
    share = norm.cdf(score / np.sqrt(v @ covariance @ v))
    assert share == pytest.approx(1 - delta, abs=1e-6)
    draws = np.random.default_rng(7).multivariate_normal(mean, covariance, 100_000)
    valid = np.mean(g.transform(draws) @ W + W0 >= np.log(4))
    error = 4 * np.sqrt(delta * (1 - delta) / 100_000)
    assert abs(valid - (1 - delta)) <= error


def test_cantelli_holds_for_the_distribution_that_attains_it() -> None:
    """Two points on a line with the given moments miss with probability exactly delta."""
    delta, mean, covariance = 0.2, *known()
    p = GaussianMap(mean=mean, covariance=covariance, K=3.0, k=3.0, **target())
    s = p.with_constraints(most=chance(delta, distribution="any")).solve(tolerance=1e-9)
    g = p.map(s)
    v = g.matrix.T @ W
    level = W @ (g.matrix @ mean + g.offset) + W0
    spread = np.sqrt(v @ covariance @ v)
    # worst case: score = mean - kappa sd with probability delta
    worst = level - np.sqrt((1 - delta) / delta) * spread
    assert worst == pytest.approx(np.log(4), abs=1e-6)


@pytest.mark.parametrize("name", ["affine", "psd", "diagonal", "commutative", "scaled"])
def test_chance_uses_the_moments_it_is_given(name: str) -> None:
    mean, covariance = known(3)
    p = MODELS[name](group(), **BOUNDS, **target()).without("classification")
    q = p.with_constraints(most=chance(0.05, mean=mean, covariance=covariance))
    g = q.map(q.solve(tolerance=1e-9))
    v = g.matrix.T @ W
    score = W @ (g.matrix @ mean + g.offset) + W0 - np.log(4)
    assert norm.cdf(score / np.sqrt(v @ covariance @ v)) == pytest.approx(0.95, abs=1e-6)


@pytest.mark.slow
def test_plug_in_falls_short_and_the_margin_does_not() -> None:
    """With 30 members the moments are off: the share that misses is above delta half the time."""
    mean, covariance = known(5, d=2)
    rng = np.random.default_rng(11)
    w = np.array([1.0, -0.5])
    missed: dict[str, list[float]] = {"plug-in": [], "margin": []}
    for _ in range(20):
        X = rng.multivariate_normal(mean, covariance, 30)
        p = PSDMap(X, score=(w, 0.0), threshold=2.0, K=2.0, k=2.0).without("classification")
        for word, rule in (("plug-in", chance(0.05)), ("margin", chance(0.05, confidence=0.9))):
            q = p.with_constraints(most=rule)
            assert any(word in name for name in q.constraints)
            g = q.map(q.solve())
            v = g.matrix.T @ w
            level = w @ (g.matrix @ mean + g.offset) - 2.0
            missed[word].append(float(norm.sf(level / np.sqrt(v @ covariance @ v))))
    assert np.mean(np.array(missed["plug-in"]) > 0.05) > 0.3
    assert np.mean(np.array(missed["margin"]) > 0.05) <= 0.1


def test_margin_covers_every_direction() -> None:
    """Of Gaussian samples, at most 1 - confidence have a direction that is not covered."""
    n, d, factor, confidence = 80, 3, norm.ppf(0.95), 0.9
    k = moment_margin(n, d, factor, confidence)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(d, 300))
    directions /= np.linalg.norm(directions, axis=0)
    failed = 0
    for _ in range(400):
        X = rng.normal(size=(n, d))
        low = X.mean(axis=0) @ directions - k * (X - X.mean(axis=0)).T.__rmatmul__(
            directions.T
        ).std(axis=1)
        failed += bool((low > -factor).any())  # true quantile of each direction is -factor
    assert failed / 400 <= 1 - confidence
    wide = moment_margin(100_000, d, factor, confidence)
    assert factor < wide < factor + 0.05


@pytest.mark.parametrize(("n", "d"), [(30, 1), (30, 4), (12, 5)])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_margin_of_the_mean_is_hotellings(n: int, d: int, confidence: float) -> None:
    """Half of the risk is that of the mean; T² / (n - 1 + T²) has a beta distribution."""
    risk = (1.0 - confidence) / 2.0
    if math.sqrt(n - 1) <= math.sqrt(d) + math.sqrt(2.0 * math.log(1.0 / risk)):
        with pytest.raises(of.DeclarationError, match="too few"):
            moment_margin(n, d, 0.0, confidence)
        return
    share = float(beta.ppf(1.0 - risk, d / 2.0, (n - d) / 2.0))
    expected = math.sqrt(share / (1.0 - share))  # in sample deviations of weight 1/n
    assert moment_margin(n, d, 0.0, confidence) == pytest.approx(expected, rel=1e-9)
    if d == 1:
        student = float(t.ppf(1.0 - risk / 2.0, n - 1)) / math.sqrt(n - 1)
        assert expected == pytest.approx(student, rel=1e-9)


def test_margin_of_the_deviations_is_davidson_and_szareks() -> None:
    # 2 ln(2 / β) = 16 and n - 1 = 100, d = 4: the least singular value is above 10 - 2 - 4
    confidence = 1.0 - 2.0 * math.exp(-8.0)
    slope = moment_margin(101, 4, 1.0, confidence) - moment_margin(101, 4, 0.0, confidence)
    assert slope == pytest.approx(math.sqrt(101.0) / 4.0, rel=1e-9)
    # 2 + sqrt(2 ln 200) = 5.2552, whose square is 27.6: n - 1 has to be above that
    with pytest.raises(of.DeclarationError, match="4 features need at least 29"):
        moment_margin(28, 4, 1.0, 0.99)
    assert moment_margin(29, 4, 1.0, 0.99) > 0.0


def enumerate_supports(p: Any, s: int) -> float:
    """Solve once for each set of features that may move."""
    d = len(p.features)
    costs = []
    for moving in combinations(range(d), s):
        rest = [j for j in range(d) if j not in moving]
        try:
            costs.append(p.with_constraints(stay=immutable(*rest)).solve().objective)
        except of.Infeasible:
            continue
    return min(costs)


@pytest.mark.parametrize("name", ["affine", "diagonal"])
@pytest.mark.parametrize("s", [1, 2, 3])
def test_at_most_is_the_best_support(name: str, s: int) -> None:
    p = MODELS[name](group(n=20), **BOUNDS, **target())
    q = p.with_constraints(few=at_most(s))
    assert str(q.problem_class) == "MIQP"
    found = q.solve(tolerance=1e-6)
    assert found.objective == pytest.approx(enumerate_supports(p, s), rel=1e-5)
    g = p.map(found)
    moved = [j for j in range(4) if g.moved(j)]
    assert len(moved) <= s
    chosen = np.flatnonzero(np.asarray(found["few.moved"]) > 0.5)
    assert set(moved) <= set(chosen)


def test_at_most_with_a_chance_is_a_misocp() -> None:
    p = DiagonalMap(group(n=20), **BOUNDS, **target())
    q = p.with_constraints(few=at_most(2), most=chance(0.01))
    assert str(q.problem_class) == "MISOCP"
    one = q.solve(tolerance=1e-6)
    rest = p.with_constraints(most=chance(0.01))
    assert one.objective == pytest.approx(enumerate_supports(rest, 2), rel=1e-4)


def test_l1_leaves_features_alone() -> None:
    p = DiagonalMap(group(), **target())
    free, limit = p.map(p.solve()), 3.0
    q = p.with_constraints(sparse=l1_sparsity(limit))
    s = q.solve()
    g = q.map(s)
    X = group()
    total = np.abs(g.matrix @ X.mean(axis=0) + g.offset - X.mean(axis=0)).sum()
    total += (np.abs(g.matrix - np.eye(4)) * X.std(axis=0)).sum()
    assert total <= limit + 1e-6
    assert np.abs(g.transform(X) - X).sum(axis=1).mean() <= limit + 1e-6
    assert sum(g.moved(j) for j in range(4)) < sum(free.moved(j) for j in range(4)) == 3


def test_feature_costs_move_the_cheap_one() -> None:
    X = group()
    dear = PSDMap(X, feature_costs={"x0": 100.0}, **BOUNDS, **target())
    g, h = (p.map(p.solve()) for p in (dear, PSDMap(X, **BOUNDS, **target())))
    shift = [abs(r["shift"]) for r in g.records()], [abs(r["shift"]) for r in h.records()]
    assert shift[0][0] < 0.2 * shift[1][0] and shift[0][1] > shift[1][1]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: chance(0.0), "delta=0.0 is not inside"),
        (lambda: chance(0.7), "above 1/2"),
        (lambda: chance(0.1, mean=[0.0]), "belong together"),
        (lambda: chance(0.1, distribution="cauchy"), "unknown distribution"),
        (lambda: chance(0.1, distribution="any", confidence=0.9), "confidence is about Gaussian"),
        (lambda: loewner(), "has no bound"),
        (lambda: loewner(K=0.9), "not at least 1"),
        (lambda: l1_sparsity(-1.0), "limit is -1.0, not a positive"),
        (lambda: transport_budget(0.0), "w2 is 0.0, not a positive"),
        (lambda: at_most(1.5), "not a whole number"),
        (lambda: at_most(1, largest=0), "not a positive"),
        (lambda: immutable(), "names no feature"),
        (lambda: monotone(), "names no feature"),
        (lambda: box({}), "names no feature"),
        (lambda: box({"a": (2, 1)}), "no interval"),
        (lambda: box({"a": (None, None)}), "has no bound"),
        (lambda: box({"a": 3}), "are 3"),
    ],
)
def test_rules_that_cannot_be(make: Any, words: str) -> None:
    with pytest.raises((of.DeclarationError, of.DataError), match=words):
        make()


def test_rules_that_do_not_fit_the_problem() -> None:
    p = PSDMap(group(), **target())
    with pytest.raises(of.DataError, match="did you mean 'x1'"):
        p.with_constraints(a=immutable("x1_"))
    with pytest.raises(of.DataError, match="named twice"):
        p.with_constraints(a=immutable("x1", 1))
    with pytest.raises(of.DataError, match="no feature 9"):
        p.with_constraints(a=monotone(increasing=9))
    with pytest.raises(of.DeclarationError, match="moments have 2 features"):
        p.with_constraints(a=chance(0.1, mean=[0.0, 0.0], covariance=np.eye(2)))
    few = PSDMap(group(n=5), **target())
    with pytest.raises(of.DeclarationError, match="too few"):
        few.with_constraints(a=chance(0.1, confidence=0.95))
    other = of.FairAssignment([[0.0], [1.0]], groups=[0, 1], centers=[[0.0]])
    for rule in (immutable(0), loewner(K=2), chance(0.1), at_most(1)):
        with pytest.raises(of.DeclarationError, match="is a rule on"):
            other.with_constraints(a=rule)


@pytest.mark.parametrize("seed", [24, 25, 26])
def test_a_map_that_lengthens_nothing_and_keeps_a_feature_is_proved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(9, 3)), rng.normal(size=3)
    far = {"score": (w, 0.0), "threshold": float((X @ w).max() + 1)}
    s = AffineMap(X, K=1.0, **far).with_constraints(r=immutable(0)).solve()
    assert s.certificate.verify() and s["matrix"][1:, 0] == pytest.approx(0.0, abs=1e-7)
    mean, B = cp.Variable(2), cp.Variable((2, 2))
    Y, own = X[:, 1:] - X[:, 1:].mean(axis=0), X[:, 1:].mean(axis=0)
    cost = cp.sum_squares(mean - own) + cp.sum_squares(Y @ (B - np.eye(2)).T) / 9
    reached = X[:, 0] * w[0] + w[1:] @ mean + Y @ B.T @ w[1:]
    plain = cp.Problem(cp.Minimize(cost), [reached >= far["threshold"], cp.sigma_max(B) <= 1])
    plain.solve(solver="CLARABEL")
    assert s.objective == pytest.approx(plain.value, rel=1e-5)
