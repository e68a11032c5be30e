"""Labels of whole rows that obey the rules, against all labellings and a mixed-integer solver."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.fair_clustering import fair_kmeans, kmeans_fit
from optfair.methods.fair_clustering import labels as module
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.count_tree import (
    CountTree,
    IntegerSearch,
    _cheapest,
)
from optfair.methods.fair_clustering.algorithms.integer_masses import (
    CountedRows,
    CountRules,
    WholeCounts,
    settled,
    whole_rows,
)
from optfair.methods.fair_clustering.algorithms.pricing import Box, label_masses, price
from optfair.methods.fair_clustering.labels import hard_labels
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_mixtures import fitted_mixture


def masses_of(p: Any, labels: np.ndarray) -> dict[str, np.ndarray]:
    A = np.eye(p.cost.clusters)[labels]
    w, g = p.data["weights"], p.data["groups"]
    M = np.stack([np.bincount(g, w * a, p.shares.size) for a in A.T], axis=1)
    return {"assignment": A, "masses": M}


def obeys(p: Any, labels: np.ndarray) -> bool:
    values = masses_of(p, labels)
    return all(t.relative_violation(values) <= 1e-9 for t in p.constraints.values())


RULES = {
    "max gap": lambda: of.max_gap(0.25),
    "balance": lambda: of.balance(0.3),
    "additive gap": lambda: of.additive_gap(0.5),
    "share": lambda: of.cluster_share(lower=0.25, upper=0.5),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
@pytest.mark.parametrize("rule", RULES)
def test_no_labelling_is_better(rule: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, g = rng.normal(size=(9, 2)), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    p = of.FairAssignment(X, groups=g, centers=X[:3], fairness=RULES[rule]())
    every = np.array(list(product(range(3), repeat=9)))
    costs = p.cost.matrix()[np.arange(9), every].mean(axis=1)
    best = next((costs[i] for i in np.argsort(costs) if obeys(p, every[i])), np.inf)
    found = hard_labels(p.solve(), gap=0.0)
    assert found.exact and obeys(p, found.labels)
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert found.bound <= best * (1 + 1e-9)
    assert found.gap <= 1e-6 and found.soft_gap >= found.gap


@pytest.mark.parametrize("seed", [104, 218])
def test_fixed_counts_that_break_a_rule_of_sums_are_excluded(seed: int) -> None:
    """Their auxiliaries say so, a round after the counts are fixed."""
    D = np.random.default_rng(seed).integers(0, 60, (9, 3)).astype(float)
    p = of.FairAssignment(costs=D, groups=list("aaaabbbcc"), fairness=of.additive_gap(0.59))
    assert hard_labels(p.solve(), gap=1e-9).gap <= 1e-6


def test_the_units_of_costs_that_tie_in_all_rows_do_not_matter() -> None:
    D = np.array([[8.0, 10.0, 0.0], [1.0, 0.0, 10.0], [8.0, 10.0, 0.0], [0.0, 1.0, 8.0]])
    for unit in (1.0, 1e12, 1e-12):
        p = of.FairAssignment(costs=D * unit, groups=list("cbca"), fairness=of.balance(0.05))
        assert hard_labels(p.solve(), gap=1e-9).gap <= 1e-6


def test_what_counted_rows_prove_holds_for_all_at_any_prices() -> None:
    rng = np.random.default_rng(5)
    X, g, w = rng.normal(size=(3000, 2)), rng.integers(0, 2, 3000), np.full(3000, 1 / 3000)
    X[:300] = np.round(X[:300])  # ties
    D, prices = SeparableCost("sqeuclidean", X, X[:4]).columns(slice(None)), rng.normal(size=(2, 4))
    box = Box(0.2 * rng.random((2, 4)), 0.2 * rng.random((2, 4)))
    cuts = (slice(0, 1000), slice(1000, 3000))
    first, second = (settled(D[:, c], g[c], w[c], prices, box, 1e-15, (X[c], X[:4])) for c in cuts)
    shares, both = np.bincount(g) / 3000, first + second
    assert np.array_equal(both.points, X[both.at])
    rest, own = np.setdiff1d(np.arange(3000), both.at), (D + prices[g].T).argmin(axis=0)
    off = X[rest] - X[own[rest]]
    sums = [w[rest][own[rest] == k] @ off[own[rest] == k] for k in range(4)]
    np.testing.assert_allclose(both.apart, sums, atol=1e-12)
    assert both.spread == pytest.approx(w[rest] @ np.square(off).sum(axis=1))
    counted = CountedRows(both, prices, box, shares, 1e-15)
    assert counted.costs.size < 2000 and counted.counts.sum() == 3000
    assert counted.equal and counted.unit == pytest.approx(1 / 3000)
    for scale in (0.0, 0.5, 1.0, 3.0):
        side = rng.random((2, 4)) < 0.5
        at = prices + scale * np.where(side, box.up, -box.down) * (1 - 1e-12)
        exact = float(w @ (D + at[g].T).min(axis=0))
        value, _ = counted.proved(at)
        assert value <= exact
        assert scale > 1.0 or value == pytest.approx(exact, abs=1e-12)
    labels = (D + prices[g].T).argmin(axis=0)
    assert np.array_equal(counted.whole(price(counted.costs, prices).best), labels)


def test_labels_of_settled_rows_are_not_moved_by_what_counts_them() -> None:
    # three rows at 0, one between, one at 1 of each group: the last stands alone in its cell
    X = np.tile([[0.0], [0.0], [0.0], [0.49], [1.0]], (2, 1))
    g, w = np.repeat([0, 1], 5), np.full(10, 0.1)
    p = of.FairAssignment(X, groups=g, centers=[[0.0], [1.0]], fairness=of.max_gap(1.0))
    D, prices = p.cost.columns(slice(None)), np.zeros((2, 2))
    box = Box(np.full((2, 2), 0.1), np.full((2, 2), 0.1))
    rows = settled(D, g, w, prices, box, 1e-15, (X[:, :0], X[:2, :0]))
    counted = CountedRows(rows, prices, box, p.shares, 1e-15)
    assert sorted(counted.counts.tolist()) == [1, 1, 1, 1, 3, 3]
    search = IntegerSearch(compile_rules(p).program, counted, prices, 0.0)
    # rows of each group in the first cluster: for five the settled one had to move
    for few in (3, 4, 5):
        labelling = search.labelled(np.array([[few, 5 - few]] * 2, dtype=float))
        if few == 5:
            assert labelling is None
            continue
        assert labelling is not None
        whole = counted.whole(labelling.labels)
        assert np.bincount(whole[g == 0], minlength=2).tolist() == [few, 5 - few]
        assert labelling.objective == pytest.approx(float(w @ D[whole, np.arange(10)]))


def test_the_generic_route_agrees() -> None:
    rng = np.random.default_rng(1)
    X, g = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)
    p = of.FairAssignment(X, groups=g, centers=X[:4], fairness=of.max_gap(0.1))
    soft = p.solve()
    found = hard_labels(soft, gap=1e-9, time_limit=60.0)
    milp = p.with_integrality("assignment").solve("highs")
    assert found.objective == pytest.approx(milp.objective, rel=1e-6)
    assert found.exact
    # every case of the branching is proved
    assert found.bound > soft.bound and found.grade.sound and found.cases > 0
    assert found.bound <= milp.objective * (1 + 1e-9) and found.gap <= 1e-8
    rough = hard_labels(soft, gap=1e9, time_limit=0.0)
    assert rough.bound == soft.bound and rough.grade == soft.grade and rough.cases == 0


def test_few_rows_get_the_best_labels_where_branching_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(28, 2)), np.arange(28) % 6
    rules = [of.additive_gap(0.5), of.cluster_share(upper=0.375)]
    p = of.FairAssignment(X, groups=groups, centers=X[:4], metric="l1", fairness=rules)
    monkeypatch.setattr(CountTree, "run", lambda self, best, gap, deadline: best)
    found = hard_labels(p.solve())
    best = p.with_integrality("assignment").solve("highs")
    assert found.exact
    assert found.objective == pytest.approx(best.objective, rel=1e-7)


def test_the_estimator_obeys_what_was_asked_and_says_what_it_costs() -> None:
    rng = np.random.default_rng(0)
    g = rng.choice(4, 700, p=[0.02, 0.09, 0.4, 0.49])
    X = rng.normal(size=(700, 3)) + g[:, None]
    soft = of.FairKMeans(5, fairness=of.max_gap(0.05), n_init=1, random_state=0)
    hard = of.FairKMeans(5, fairness=of.max_gap(0.05), n_init=1, random_state=0, labels="hard")
    soft.fit(X, groups=g)
    hard.fit(X, groups=g)
    eye = np.eye(5)
    assert of.metrics.max_gap(g, eye[hard.labels_]) <= 0.05 + 1e-9
    assert of.metrics.max_gap(g, eye[soft.labels_]) > 0.05 + 1e-9  # the case says something
    assert np.array_equal(soft.cluster_centers_, hard.cluster_centers_)
    assert hard.hard_labels_.objective == hard.cost_ >= hard.solution_.bound
    assert hard.hard_labels_.gap <= 1e-2
    assert hard.balance_ == pytest.approx(of.metrics.balance(g, eye[hard.labels_]), rel=1e-12)
    assert soft.hard_labels_ is None


def test_rows_without_weight_and_weights_by_group() -> None:
    rng = np.random.default_rng(2)
    X, g = rng.normal(size=(200, 2)), np.arange(200) % 2
    w = np.where(g == 0, 1.0, 3.0)
    w[:10] = 0.0
    p = of.FairAssignment(X, groups=g, centers=X[:3], sample_weight=w, fairness=of.max_gap(0.05))
    found = hard_labels(p.solve())
    assert found.exact and obeys(p, found.labels)


def test_unequal_weights_say_by_how_much_a_rule_is_missed() -> None:
    rng = np.random.default_rng(3)
    X, g = rng.normal(size=(60, 2)), np.arange(60) % 2
    w = rng.exponential(size=60)
    p = of.FairAssignment(X, groups=g, centers=X[:3], sample_weight=w)
    found = hard_labels(p.solve(), time_limit=1.0)
    assert not found.exact
    share = p.data["weights"] / p.shares[p.data["groups"]]
    assert 0.0 < found.violation <= 4 * share.max()


@pytest.mark.parametrize("rule", [of.max_gap(0.05), of.additive_gap(0.05)])
def test_split_rows_of_unequal_weight_are_moved_until_the_rule_holds(rule: Any) -> None:
    kept = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, g, w = rng.normal(size=(400, 2)), rng.integers(0, 4, 400), rng.uniform(0.2, 3.0, 400)
        p = of.FairAssignment(X, groups=g, centers=X[:6], sample_weight=w, fairness=rule)
        soft = p.solve()
        A = np.asarray(soft["assignment"])
        largest, found = A.argmax(axis=1), hard_labels(soft, gap=5e-3)
        masses = [
            label_masses(labels, p.data["groups"], p.data["weights"], (4, 6))
            for labels in (largest, found.labels)
        ]
        before, after = (module._missed(p, {"masses": M})[0] for M in masses)
        assert after == found.violation < before  # rounding alone misses the rule
        assert (largest != found.labels).any() and found.gap <= 5e-3
        kept += found.exact
        assert np.array_equal(hard_labels(soft, time_limit=0.0).labels, largest)
    assert kept >= 3


def test_a_fit_says_what_its_labels_of_unequal_weight_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    for holder in (fair_kmeans, kmeans_fit, fitted_mixture):
        monkeypatch.setattr(holder, "HARD_SECONDS", 0.5)
    rng = np.random.default_rng(3)
    X, g, w = rng.normal(size=(60, 2)), np.arange(60) % 2, rng.exponential(size=60)
    given = {"groups": g, "sample_weight": w}
    for model, fit, soft in (
        (of.FairKMeans(3, labels="hard", n_init=1, random_state=0), "fit", "labels=.soft."),
        (of.FairKMeans(3, labels="hard", n_init=1, random_state=0), "fit_stream", "labels=.soft."),
        (of.FairMixture(3, label_rule="hard", n_init=1, random_state=0), "fit", "label_rule=.fair"),
    ):
        with pytest.warns(UserWarning, match=f"labels miss '.*' by .* add up .*{soft}"):
            getattr(model, fit)(X, **given)
        assert not model.hard_labels_.exact


def test_a_row_heavier_than_its_group_may_be_in_a_cluster_is_refused_before_the_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    X, g, w = rng.normal(size=(60, 2)), np.array(list("ab") * 30), rng.uniform(1.0, 2.0, 60)
    w[7] = 100.0
    room = of.cluster_share(upper=0.4)
    model = of.FairKMeans(4, fairness=room, n_init=1, random_state=0)
    assert model.fit(X, groups=g, sample_weight=w).gap_ <= 1e-9  # fractions obey
    monkeypatch.setattr("optfair.methods.fair_clustering.fair_kmeans.fit_held", None)
    with pytest.raises(
        of.DataError, match=r"row 7 weighs 0\.\d+ of all, .* 0\.4 of its group 'b'"
    ) as e:
        model.set_params(labels="hard").fit(X, groups=g, sample_weight=w)
    assert "whose fractions obey" in str(e.value)


def test_groups_that_do_not_divide_are_named() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(53, 2))
    g = np.array(["few"] * 3 + ["many"] * 50)
    rules = {"gap": of.max_gap(0.1), "share": of.cluster_share(lower=0.45)}
    p = of.FairAssignment(X, groups=g, centers=X[:2], fairness=None).with_constraints(rules)
    with pytest.raises(of.DataError, match="'few' \\(3 rows\\)"):
        hard_labels(p.solve())


def test_what_no_whole_rows_obey_is_refused_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(4).normal(size=(60, 2))
    g = np.array(["few"] * 23 + ["many"] * 37)  # 23 and 37 have no common divisor
    w = np.where(g == "few", 2.0, 1.0)
    rules = [of.perfect_fairness(), of.cluster_share(lower=0.1)]
    models = "optfair.methods"
    monkeypatch.setattr(f"{models}.fair_clustering.fair_kmeans.fit_held", None)
    monkeypatch.setattr(f"{models}.fair_mixtures.fair_mixture.fit_mixture", None)
    for model, soft in (
        (of.FairKMeans(3, fairness=rules, labels="hard"), 'labels="soft"'),
        (of.FairMixture(3, rules=rules, label_rule="hard"), 'label_rule="fair"'),
    ):
        with pytest.raises(of.DataError, match="no labels of whole rows obey the rules") as caught:
            model.fit(X, groups=g, sample_weight=w)
        assert "'few' (23 rows)" in str(caught.value) and soft in str(caught.value)


def test_what_it_does_not_take() -> None:
    import cvxpy as cp

    X, g = np.arange(12.0)[:, None], np.arange(12) % 2
    p = of.FairAssignment(X, groups=g, centers=X[:2], fairness=None)
    curved = p.with_constraints(near=cp.norm(p["masses"][0] - p["masses"][1]) <= 0.1)
    with pytest.raises(of.DeclarationError, match="curved"):
        hard_labels(curved.solve())
    with pytest.raises(of.DeclarationError, match="FairAssignment"):
        hard_labels(of.library.load("textbook/diet").problem().solve())
    with pytest.raises(of.DeclarationError, match="labels"):
        of.FairKMeans(2, labels="firm").fit(X, groups=g)
    with pytest.raises(of.DeclarationError, match="paper"):
        of.FairKMeans(2, labels="hard", algorithm="paper").fit(X, groups=g)


def test_limits_exclude_no_counts_that_obey_and_bounds_within_them_agree() -> None:
    rng = np.random.default_rng(5)
    X, g = rng.normal(size=(9, 2)), np.array([0] * 4 + [1] * 5)
    p = of.FairAssignment(X, groups=g, centers=X[:3], fairness=of.max_gap(0.2))
    rules = compile_rules(p)
    program, unit = rules.program, np.full(2, 1 / 9)
    counts = CountRules(program, unit, np.array([4.0, 5.0]))
    at = program.masses
    obeying = []
    for labels in product(range(3), repeat=9):
        M = masses_of(p, np.array(labels))["masses"]
        if (np.abs(M[0] / (4 / 9) - M[1] / (5 / 9)) <= 0.2 + 1e-12).all():
            obeying.append(tuple((M * 9).round().astype(int).ravel()))
    kept = np.array(sorted(set(obeying))).reshape(-1, 2, 3)
    for g_, k, value in product(range(2), range(3), range(5)):
        low, high = (v.copy() for v in counts.root)
        low[at[g_, k]] = high[at[g_, k]] = value
        inside = kept[kept[:, g_, k] == value]
        limits = counts.tightened(low, high)
        if limits is None:
            assert not len(inside)
        elif len(inside):
            assert (limits[0][at] <= inside.min(axis=0)).all()
            assert (limits[1][at] >= inside.max(axis=0)).all()
    s = p.solve()
    proof = s.proof
    low, high = (v.copy() for v in counts.root)
    low[at], high[at] = low[at] / 9, high[at] / 9
    quick = program.proved_bound(proof.y, proof.z, proof.prices, (low, high))
    slow = program.proved_bound(proof.y, proof.z, proof.prices)
    assert quick.value == pytest.approx(slow.value, rel=1e-9, abs=1e-12)
    wide = np.full(low.size, np.inf)
    wide[at] = high[at]
    open_ended = program.proved_bound(proof.y, proof.z, proof.prices, (-wide, wide))
    assert open_ended.value <= quick.value + 1e-12


def test_many_rows_are_labelled_near_the_bound_of_whole_rows() -> None:
    rng = np.random.default_rng(6)
    g = rng.choice(3, 1_500, p=[0.02, 0.3, 0.68])
    X = rng.normal(size=(1_500, 4)) + 0.7 * g[:, None]
    p = of.FairAssignment(X, groups=g, centers=X[:6], fairness=of.max_gap(0.05))
    soft = p.solve()
    found = hard_labels(soft, gap=1e-4, time_limit=60.0)
    assert found.exact and obeys(p, found.labels)
    assert found.gap <= 1e-4 < found.soft_gap and found.grade.word == "proved"


def test_labels_that_ties_split_are_moved_to_their_counts() -> None:
    # many clusters with narrow shares: a dive finds no counts, rows of the nearest are split
    rng, n, K, G = np.random.default_rng(3), 5000, 40, 4
    heap = rng.integers(0, 6, n)
    X = rng.normal(size=(n, 2)) + 2 * rng.normal(size=(6, 2))[heap]
    shares = rng.dirichlet(2 * np.ones(G), size=6)
    groups = np.array([rng.choice(G, p=shares[b]) for b in heap])
    groups[:G] = np.arange(G)
    share = np.bincount(groups) / n
    rule = of.fair_clustering.proportion(
        dict(enumerate(0.7 * share)), dict(enumerate(share + 0.3 * (1 - share)))
    )
    centers = X[rng.choice(n, K, replace=False)]
    soft = of.FairAssignment(X, groups=groups, centers=centers, fairness=rule).solve()
    labels = hard_labels(soft, time_limit=0.5)
    counts = np.array([np.bincount(groups[labels.labels == k], minlength=G) for k in range(K)])
    size = counts.sum(axis=1, keepdims=True)
    low, high = 0.7 * share * size, (share + 0.3 * (1 - share)) * size
    assert (counts >= low - 1e-6).all() and (counts <= high + 1e-6).all()
    assert labels.violation == 0.0 and soft.bound <= labels.objective <= 1.05 * soft.bound


@pytest.mark.parametrize("seed", range(8))
def test_rows_move_along_the_cheapest_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K = 4
    move = rng.random((K, K))
    np.fill_diagonal(move, np.inf)
    ends = rng.random(K) < 0.5
    ends[0] = False
    path = _cheapest(move, 0, ends)
    lengths = {
        (0, *middle, end): sum(move[a, b] for a, b in pairwise((0, *middle, end)))
        for end in np.flatnonzero(ends)
        for r in range(K - 1)
        for middle in permutations([k for k in range(1, K) if k != end], r)
    }
    if not lengths:
        assert path is None
    else:
        assert path is not None and path[0] == 0 and ends[path[-1]]
        assert sum(move[a, b] for a, b in pairwise(path)) == pytest.approx(min(lengths.values()))


def two_groups(first: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    g = np.repeat([0, 1], [first, second])
    X = np.random.default_rng(0).normal(size=(g.size, 2)) + 0.5 * g[:, None]
    return X, g


@pytest.mark.parametrize("sizes", [(10771, 21790), (27099, 81234), (27736, 81585, 67088)])
def test_rounded_weights_do_not_forbid_that_one_cluster_holds_all(sizes: tuple[int, ...]) -> None:
    g = np.repeat(np.arange(len(sizes)), sizes)
    p = of.FairAssignment(costs=np.zeros((g.size, 2)), groups=g)
    unit, rows = whole_rows(p.data["groups"], p.data["weights"], len(sizes))
    assert not WholeCounts(compile_rules(p).program, unit, rows).impossible()


@pytest.mark.parametrize("sizes", [(31, 69), (10771, 21790)])
def test_labels_that_only_one_cluster_can_hold_are_refused_before_a_fit(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, g = two_groups(*sizes)
    monkeypatch.setattr(fair_kmeans, "fit_held", None)  # nothing is fitted
    with pytest.raises(of.errors.DataError, match="only where one cluster holds all") as e:
        of.FairKMeans(3, labels="hard").fit(X, groups=g)
    assert f"groups of {sizes[0]}, {sizes[1]} rows" in str(e.value)
    with pytest.raises(of.errors.DataError, match="only where one cluster holds all"):
        of.FairMixture(3, label_rule="hard").fit(X, groups=g)
    where = of.perfect_fairness(on="s")
    with pytest.raises(of.errors.DataError, match="only where one cluster holds all"):
        of.FairKMeans(3, fairness=where, labels="hard").fit(X, groups={"s": g, "t": g})


def test_a_gap_that_only_one_cluster_keeps_is_refused_before_a_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g = two_groups(31, 69)
    of.FairKMeans(3, fairness=of.max_gap(0.02), labels="hard").fit(X, groups=g)
    monkeypatch.setattr(fair_kmeans, "fit_held", None)  # nothing is fitted
    with pytest.raises(of.errors.DataError, match="only where one cluster holds all"):
        of.FairKMeans(3, fairness=of.max_gap(1e-9), labels="hard").fit(X, groups=g)


def test_one_cluster_may_hold_all_where_no_more_are_asked_for() -> None:
    X, g = two_groups(31, 69)
    assert of.FairKMeans(1, labels="hard").fit(X, groups=g).hard_labels_.exact


def test_counts_far_from_the_masses_of_fractions_are_labelled_by_moving_any_row() -> None:
    X, g = two_groups(3334, 6666)  # halves, or all
    p = of.FairAssignment(X, groups=g, centers=X[[0, 1, -1]])
    found = hard_labels(p.solve(), time_limit=1.0)
    assert found.exact and obeys(p, found.labels)
    assert sorted(np.bincount(found.labels, minlength=3)) in ([0, 5000, 5000], [0, 0, 10000])


def test_clusters_that_labels_leave_empty_are_named() -> None:
    X, g = two_groups(6, 10)
    with pytest.warns(UserWarning, match="labels leave the clusters? .* empty"):
        found = of.FairKMeans(3, labels="hard", random_state=0).fit(X, groups=g)
    assert np.unique(found.labels_).size <= 2 and found.hard_labels_.exact
