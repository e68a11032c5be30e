"""The best labels of a few dozen rows, against all labellings, a mixed-integer solver and other bounds."""

from __future__ import annotations

from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms import set_search
from optfair.methods.fair_clustering.algorithms.partition_relaxation import PartitionRelaxation
from optfair.methods.fair_clustering.algorithms.set_search import SetSearch
from optfair.methods.fair_clustering.certified_labels import certified_kmeans
from optfair.methods.fair_clustering.rules import MaxGap
from optfair.rows.frames import generator

RULES: dict[str, Any] = {
    "perfect fairness": of.perfect_fairness(),
    "max gap": of.max_gap(0.3),
    "balance": of.balance(0.5),
    "proportion": of.fair_clustering.proportion(lower=0.3),
    "share": of.fair_clustering.cluster_share(lower=0.25, upper=0.5),
    "none": of.max_gap(1.0),
}


def small(n: int, seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    g = np.arange(n) % 2
    return rng.normal(size=(n, d)) + 0.7 * g[:, None], g


def enumerated(X: np.ndarray, g: np.ndarray, K: int, rule: Any) -> float:
    """Return the least cost over all labellings that obey the rule."""
    n, best = len(X), np.inf
    p = of.FairAssignment(X, groups=g, centers=X[:K], fairness=rule)
    rules = [t for t in p.constraints.values() if t.scope == {"masses"}]
    for labels in product(range(K), repeat=n - 1):
        A = np.eye(K)[[0, *labels]]
        size = A.sum(axis=0)
        cost = (
            np.square(X).sum() - (np.square(A.T @ X).sum(axis=1) / np.maximum(size, 1)).sum()
        ) / n
        if cost < best:
            M = np.stack([A[g == h].sum(axis=0) for h in range(2)]) / n
            if all(t.relative_violation({"masses": M}) <= 1e-9 for t in rules):
                best = cost
    return best


@pytest.mark.parametrize("rule", RULES)
def test_no_labelling_is_better(rule: str) -> None:
    X, g = small(8, 1)
    found = certified_kmeans(X, groups=g, n_clusters=3, fairness=RULES[rule])
    best = enumerated(X, g, 3, RULES[rule])
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-12)
    assert found.gap <= 1e-6
    # its labels cost what it says
    means = found.centers[found.labels]
    assert np.square(X - means).sum(axis=1).mean() == pytest.approx(found.objective, rel=1e-12)
    own = [X[found.labels == k].mean(axis=0) for k in np.unique(found.labels)]
    assert np.allclose(found.centers[: len(own)], own)


def test_the_generic_route_agrees_and_the_relaxation_is_below() -> None:
    X, g = small(20, 0, 3)
    found = certified_kmeans(X, groups=g, n_clusters=3, fairness=of.max_gap(0.1))
    assert found.gap <= 1e-6
    # at these centers no labels are cheaper, says a general solver
    p = of.FairAssignment(X, groups=g, centers=found.centers, fairness=of.max_gap(0.1))
    milp = p.with_integrality("assignment").solve("highs")
    assert milp.objective == pytest.approx(found.objective, rel=1e-6)
    loose = of.fair_clustering.FairKMeansBound(
        X, groups=g, n_clusters=3, fairness=of.additive_gap(0.3)
    ).solve()
    assert loose.bound <= found.bound
    # alternation from many starts does not come below the bound
    tried = of.FairKMeans(
        3, fairness=of.max_gap(0.1), n_init=10, random_state=0, labels="hard"
    ).fit(X, groups=g)
    means = np.stack([X[tried.labels_ == k].mean(axis=0) for k in range(3)])
    assert np.square(X - means[tried.labels_]).sum(axis=1).mean() >= found.bound


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_set_is_that_of_all_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, g = small(11, seed)
    counts = np.array([c for c in product(range(7), range(6)) if sum(c) and abs(c[0] - c[1]) <= 1])
    search = SetSearch(X, g, counts, 3, False, np.random.default_rng(seed))
    every = np.array(list(product([False, True], repeat=11)))
    held = {tuple(c) for c in counts.tolist()}
    fair = [
        tuple(row) in held
        for row in np.stack([every[:, g == h].sum(1) for h in (0, 1)], 1).tolist()
    ]
    every = every[fair]
    u = search.D.mean() * rng.uniform(0.2, 0.8, 11)
    reduced = np.sort(search.cost(every) - every @ u)
    # a target between two sets: those below are there, and the floor is right
    for rank in (0, 3, 20):
        target = 0.5 * (reduced[rank] + reduced[rank + 1])
        sets, least = search.cheapest(u, target, np.inf)
        values = search.cost(sets) - sets @ u
        assert (values < target).all() and len(sets) == rank + 1
        assert least == pytest.approx(reduced[0], abs=1e-12)
    sets, least = search.cheapest(u, reduced[0] - 1e-9, np.inf)
    assert len(sets) == 0 and least == reduced[0] - 1e-9
    # stopped at once, nothing is claimed
    assert search.cheapest(u, reduced[0], -np.inf)[1] == -np.inf


def test_two_rows_are_together_in_one_case_and_apart_in_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g = small(6, 0)
    search = SetSearch(X, g, np.array([[1, 1], [2, 2]]), 3, False, np.random.default_rng(0))
    search.value, met = 10.0, []

    def bounded(gap: float, deadline: float) -> Any:
        together, apart = bool(search.joined[0, 1]), bool(search.parted[0, 1])
        met.append((together, apart))
        search.value = 4.0 if together else search.value  # the best is where they are together
        search.reached = search.reached[0], search.value if together or apart else 1.0
        return None if together or apart else (0, 1)

    monkeypatch.setattr(search, "_node", bounded)
    monkeypatch.setattr(search, "_whole", lambda gap, time_limit: None)
    search.run(1e-6, np.inf)
    assert sorted(met) == [(False, False), (False, True), (True, False)]
    assert search.bound == search.value == 4.0


@pytest.mark.parametrize("after", [1, 2, 3])
def test_ctrl_c_leaves_the_labels_and_what_is_proved(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    X, g = small(24, 1)
    given: Any = {"groups": g, "n_clusters": 3, "fairness": of.balance(0.5)}
    best = certified_kmeans(X, **given)
    calls, bounded = [], PartitionRelaxation.bound

    def interrupted(self: Any, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == after:
            raise KeyboardInterrupt
        return bounded(self, *args)

    # prices are of no use, so that cases are split
    monkeypatch.setattr(SetSearch, "near", lambda self, u, target: np.zeros((0, 24), dtype=bool))
    monkeypatch.setattr(SetSearch, "floor", lambda self, u, least: -np.inf)
    monkeypatch.setattr(PartitionRelaxation, "bound", interrupted)
    X = X * [1.0, 0.2]
    rough = certified_kmeans(X, **given, gap=1e-9)
    assert len(calls) == after
    assert rough.bound <= certified_kmeans(X, **given).objective <= rough.objective
    assert (rough.gap < 1.0) == (after > 1) and best.gap <= 1e-6


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_change_nothing_but_units(unit: float) -> None:
    X, g = small(12, 2)
    one = certified_kmeans(X, groups=g, n_clusters=3, fairness=of.balance(0.5))
    other = certified_kmeans(unit * X + 3 * unit, groups=g, n_clusters=3, fairness=of.balance(0.5))
    assert np.array_equal(one.labels, other.labels)
    assert other.objective == pytest.approx(one.objective * unit**2, rel=1e-9)
    assert other.bound == pytest.approx(one.bound * unit**2, rel=1e-6)
    assert other.gap <= 1e-6


def test_time_that_is_up_leaves_labels_and_their_gap() -> None:
    X, g = small(20, 3)
    rough = certified_kmeans(X, groups=g, n_clusters=4, time_limit=0.0)
    best = certified_kmeans(X, groups=g, n_clusters=4)
    assert rough.gap > best.gap and best.gap <= 1e-6
    assert rough.bound <= best.bound and rough.objective >= best.objective * (1 - 1e-9)


def test_equal_rows_and_single_clusters() -> None:
    g = np.arange(6) % 2
    assert certified_kmeans(np.ones((6, 2)), groups=g, n_clusters=2).objective == 0.0
    X = np.arange(6.0)[:, None]
    one = certified_kmeans(X, groups=g, n_clusters=1)
    assert one.objective == pytest.approx(X.var()) and one.gap <= 1e-6


def cheapest(X: Any, g: Any, K: int, gap: float) -> float:
    """Return the least cost of all labels whose groups differ by at most the gap in each cluster."""
    best = np.inf
    for labels in product(range(K), repeat=len(X)):
        own = np.array(labels)
        shares = np.stack([np.bincount(own[g == h], minlength=K) / (g == h).sum() for h in (0, 1)])
        if np.abs(shares[0] - shares[1]).max() <= gap + 1e-12:
            parts = [X[own == k] for k in range(K) if (own == k).any()]
            best = min(best, sum(np.square(p - p.mean(axis=0)).sum() for p in parts) / len(X))
    return best


@pytest.mark.parametrize("given", [{"gap": of.max_gap(0.0)}, {"x": [of.max_gap(0.0)]}])
def test_rules_count_under_any_name(given: Any) -> None:
    X, g = small(8, 0)
    found = certified_kmeans(X, groups=g, n_clusters=2, fairness=given)
    assert found.bound <= cheapest(X, g, 2, 0.0) * (1.0 + 1e-12)
    assert found.objective == pytest.approx(cheapest(X, g, 2, 0.0))


class Summed(MaxGap):
    """An heir that says something of all clusters together."""

    def bind(self, problem: Any) -> Any:
        return cp.sum(problem.variables["masses"]) <= 2.0


@pytest.mark.parametrize(
    "given",
    [
        [of.additive_gap(1.0)],
        {"fairness": [of.max_gap(0.5), of.additive_gap(1.0)]},
        of.fair_clustering.cluster_share(lower=[0.125, 0.5, 0.0]),
        {"x": of.fair_clustering.cluster_share(lower=[0.0, 0.0, 0.5], upper=[0.25, 1.0, 1.0])},
        {"x": of.fair_clustering.group_cost(0.1)},
        Summed(0.5),
    ],
)
def test_rules_that_are_not_on_each_cluster_are_refused(given: Any) -> None:
    X, g = small(8, 0)
    with pytest.raises(DeclarationError, match="no rule on the masses of each cluster"):
        certified_kmeans(X, groups=g, n_clusters=3, fairness=given)


def test_shares_of_each_cluster_bound_no_labels_that_obey_them() -> None:
    X, g = small(8, 0)
    rule = of.fair_clustering.cluster_share(lower=[0.125, 0.5, 0.0])
    bound = of.fair_clustering.FairKMeansBound(
        X, groups=g, n_clusters=3, fairness=rule, labels="hard"
    )
    best = np.inf
    for labels in product(range(3), repeat=8):
        own = np.array(labels)
        if (np.bincount(own, minlength=3)[:2] >= [1, 4]).all():
            parts = [X[own == k] for k in range(3) if (own == k).any()]
            best = min(best, sum(np.square(p - p.mean(axis=0)).sum() for p in parts) / 8)
    assert bound.solve().bound <= best * (1.0 + 1e-9)


def test_generators_seed_the_search() -> None:
    X, g = small(8, 0)
    for seed in (np.random.default_rng(0), np.random.RandomState(0), None):
        found = certified_kmeans(X, groups=g, n_clusters=2, random_state=seed)
        assert found.objective == pytest.approx(cheapest(X, g, 2, 0.0))


def test_bad_input_is_refused_before_work() -> None:
    X, g = small(9, 0)
    with pytest.raises(DeclarationError, match="adds up"):
        certified_kmeans(X, groups=g, n_clusters=2, fairness=of.additive_gap(0.1))
    with pytest.raises(DataError, match="no labels of whole rows"):  # no cluster has half of 9
        certified_kmeans(
            X, groups=g, n_clusters=2, fairness=of.fair_clustering.cluster_share(0.5, 0.5)
        )
    with pytest.raises(DataError, match="4, 4 rows"):
        certified_kmeans(
            X[:8],
            groups=g[:8],
            n_clusters=3,
            fairness=of.fair_clustering.cluster_share(lower=0.0, upper=0.35),
        )
    with pytest.raises(DataError, match="n_clusters=10"):
        certified_kmeans(X, groups=g, n_clusters=10)
    with pytest.raises(DataError, match="too many counts"):
        certified_kmeans(np.ones((400, 1)), groups=np.arange(400) % 2, n_clusters=2)
    with pytest.raises(DataError):
        certified_kmeans(X * np.nan, groups=g, n_clusters=2)
    with pytest.raises(DeclarationError, match="unequal weight"):
        certified_kmeans(X, groups=g, n_clusters=2, sample_weight=np.arange(1.0, 10.0))
    assert np.array_equal(
        certified_kmeans(X, groups=g, n_clusters=2, sample_weight=np.full(9, 3.0)).labels,
        certified_kmeans(X, groups=g, n_clusters=2).labels,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_forty_rows_in_four_clusters(seed: int) -> None:
    X, g = small(40, seed, 3)
    found = certified_kmeans(
        X, groups=g, n_clusters=4, fairness=of.max_gap(0.1), gap=5e-3, time_limit=300.0
    )
    assert found.gap <= 5e-3


def test_rows_that_are_equal_cost_nothing_and_no_gap_is_left() -> None:
    X = np.array([[0.1], [0.1], [0.1], [1.1], [1.1], [1.1]])
    best = of.fair_clustering.certified_kmeans(
        X, groups=list("abaabb"), n_clusters=2, fairness=of.balance(0.2)
    )
    assert best.objective == best.gap == 0.0


def test_rows_in_any_units_have_the_same_labels():
    """Which counts a rule allows does not depend on what rows cost."""
    X, g = small(8, 0)
    plain = certified_kmeans(X, groups=g, n_clusters=2, fairness=of.balance(0.5))
    large = certified_kmeans(X * 2.0**33, groups=g, n_clusters=2, fairness=of.balance(0.5))
    np.testing.assert_array_equal(plain.labels, large.labels)
    assert large.objective == pytest.approx(plain.objective * 2.0**66)


def test_programs_without_a_solution_leave_no_partition() -> None:
    """Clusters at hand may be none, or no two of them part the rows where all must have some."""
    X = np.arange(6.0)[:, None]
    search = SetSearch(X, np.zeros(6, dtype=int), np.array([[3]]), 2, True, generator(0))
    assert search.start()
    best = search.value
    for sets in (np.zeros((0, 6), dtype=bool), np.array([[1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]])):
        search.sets = sets.astype(bool)
        search.costs = search.cost(search.sets)
        search.prices()
        search.mixed()
        assert search.value == best and np.array_equal(search.best.sum(axis=0), np.ones(6))
    # neither what leaves rows out, nor too few or too many clusters
    halves, thirds = np.repeat(np.eye(2, dtype=bool), 3, 1), np.repeat(np.eye(3, dtype=bool), 2, 1)
    for filled, refused in (
        (True, (halves[:1], thirds, thirds[:2])),
        (False, (thirds, halves[1:])),
    ):
        search.filled, search.value = filled, np.inf
        for sets in refused:
            search.keep(sets)
            assert search.value == np.inf
        search.keep(halves)
        assert search.value < np.inf


def test_a_case_that_cannot_be_split_is_priced_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relaxation that says nothing, and prices that are given up at once: the gap is closed."""
    monkeypatch.setattr(set_search, "PRICED", 8)
    X, g = small(8, 3)
    counts = np.array([[1, 1], [2, 2], [3, 3]])
    search = SetSearch(X, g, counts, 3, False, generator(0))
    assert search.start()
    apart = np.eye(8) + 1e-9
    monkeypatch.setattr(search.relaxation, "bound", lambda *given: (-np.inf, apart))
    search.run(1e-6, np.inf)
    best = certified_kmeans(X, groups=g, n_clusters=3)
    assert search.value * search.unit == pytest.approx(best.objective)
    assert search.bound >= (1.0 - 1e-6) * search.value


def stated_partitions(n: int) -> list[np.ndarray]:
    """Return the partitions of rows, as which of them are together."""
    every = {
        tuple((np.equal.outer(c, c)).ravel().tolist()) for c in product(range(n), repeat=n - 1)
        for c in [(0, *c)]
    }  # fmt: skip
    return [np.array(c).reshape(n, n) for c in sorted(every)]


@pytest.mark.parametrize("ends", ["all", "time", "before", "after"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_of_the_cases_is_bounded_wherever_the_search_ends(
    monkeypatch: pytest.MonkeyPatch, seed: int, ends: str
) -> None:
    """Partitions with costs at random; a case is bounded below the least that it has."""
    n, gap, rng = 4, 0.2, np.random.default_rng(seed)
    X, g = small(n, 0)
    every = stated_partitions(n)
    assert len(every) == 15
    costs = 0.1 + 0.1 * rng.random(15)
    counts = np.array([[1, 1], [2, 2]])
    last, seen = 0, 0
    while seen >= last:
        last += 1 if ends != "all" else 1000
        search = SetSearch(X, g, counts, 4, False, generator(0))
        search.value, seen, stopped = float(costs.max()), 0, False
        draws = np.random.default_rng(seed)

        def bounded(
            wanted: float,
            deadline: float,
            search: SetSearch = search,
            last: int = last,
            draws: np.random.Generator = draws,
        ) -> Any:
            nonlocal seen, stopped
            seen += 1
            stopped = seen == last and ends == "before"
            if stopped:
                raise KeyboardInterrupt
            own = [
                (c, Z)
                for c, Z in zip(costs, every, strict=True)
                if Z[search.joined].all() and not Z[search.parted].any()
            ]
            least, first = min(own, key=lambda at: at[0], default=(np.inf, None))
            alone = len(own) <= 1
            assert all((P == P.T).all() for P in (search.joined, search.parted))
            search._raise(-np.inf)  # nothing that was known is lost
            search._raise(least if alone else least * draws.uniform(0.6, 1.0))
            stopped = seen == last and ends == "after"
            if stopped:
                raise KeyboardInterrupt
            if own:
                search.value = min(search.value, own[draws.integers(len(own))][0])
            if alone:
                assert first is None or search.value <= least
                return None
            stopped = seen == last and ends == "time"
            if stopped:
                return None
            free = np.argwhere(np.triu(~(search.joined | search.parted), 1))
            i, j = free[draws.integers(len(free))]
            return int(i), int(j)

        monkeypatch.setattr(search, "_node", bounded)
        monkeypatch.setattr(search, "_whole", lambda gap, time_limit: None)
        search.run(gap, np.inf)
        assert search.bound <= min(costs.min(), search.value)
        # the first case bounds the others, once it is bounded
        first_was = last > 1 or ends != "before" or not stopped
        assert search.bound >= 0.06 if first_was else search.bound == 0.0
    assert search.bound >= (1.0 - gap) * search.value


@pytest.mark.parametrize("filled", [True, False])
def test_the_bound_of_prices_is_charged_for_each_sum(filled: bool) -> None:
    X, g = small(6, 0)
    search = SetSearch(X, g, np.array([[1, 1], [2, 2]]), 3, filled, generator(0))
    cost = float(search.cost(np.ones((1, 6), dtype=bool))[0])
    gamma, whole = search.rounding
    assert whole == pytest.approx(cost) and (36 + 10) * 2.0**-52 <= gamma < 1e-12
    search.rounding = 0.125, 2.0
    u = np.array([1.0, -2.0, 3.0, 4.0, -5.0, 6.0])
    slack = 0.125 * (2.0 + 21.0)
    for least in (-4.0, 0.0, 1.0, 8.0):
        paid = least - slack if filled else min(least - slack, 0.0)
        assert search.floor(u, least) == 7.0 + 3.0 * paid - slack


def test_a_case_keeps_the_best_of_its_bounds() -> None:
    X, g = small(6, 0)
    search = SetSearch(X, g, np.array([[1, 1], [2, 2]]), 3, False, generator(0))
    search.reached = 4, 1.0
    for low, best in ((0.5, 1.0), (2.0, 2.0), (-np.inf, 2.0), (1.5, 2.0)):
        search._raise(low)
        assert search.reached == (4, best)


def test_all_follows_of_rows_together_and_apart() -> None:
    n = 6
    every = stated_partitions(n)
    rng = np.random.default_rng(0)
    for _ in range(40):
        pairs = np.zeros((2, n, n), dtype=bool)
        Z = every[rng.integers(len(every))]
        for _ in range(4):
            i, j = rng.choice(n, 2, replace=False)
            pairs[0 if Z[i, j] else 1][[i, j], [j, i]] = True
        own = [P for P in every if P[pairs[0]].all() and not P[pairs[1]].any()]
        joined, parted = set_search._closed(pairs)
        assert np.array_equal(joined | np.eye(n, dtype=bool), np.all(own, axis=0))
        assert np.array_equal(parted, ~np.any(own, axis=0))


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_set_of_a_case_is_that_of_all_sets(seed: int) -> None:
    """With rows together and apart: whatever the target, no set is below the floor."""
    n, rng = 9, np.random.default_rng(seed)
    X, g = small(n, seed)
    counts = np.array([c for c in product(range(5), range(5)) if sum(c) and abs(c[0] - c[1]) <= 1])
    search = SetSearch(X, g, counts, 3, False, generator(0))
    pairs = np.zeros((2, n, n), dtype=bool)
    pairs[0][[0, 3], [3, 0]] = pairs[0][[3, 4], [4, 3]] = True
    pairs[1][[4, 7], [7, 4]] = pairs[1][[1, 2], [2, 1]] = True
    search.joined, search.parted = set_search._closed(pairs)
    every = np.array(list(product([False, True], repeat=n)))
    held = {tuple(c) for c in counts.tolist()}
    fits = np.array([
        tuple(int(row[m].sum()) for m in search.members) in held
        and row[0] == row[3] == row[4] and not (row[4] and row[7]) and not (row[1] and row[2])
        for row in every
    ])  # fmt: skip
    several = np.array([row.any() for row in every])
    holds = np.array([
        row[0] == row[3] == row[4] and not (row[4] and row[7]) and not (row[1] and row[2])
        for row in every
    ])  # fmt: skip
    assert np.array_equal(search._holds(every[several]), holds[several])
    every = every[fits]
    for scale in (0.2, 0.5, 0.8):
        u = search.D.mean() * rng.uniform(-0.1, scale, n)
        reduced = np.sort(search.cost(every) - every @ u)
        for rank in (0, 1, 3, 8):
            target = 0.5 * (reduced[rank] + reduced[rank + 1])
            sets, least = search.cheapest(u, target, np.inf)
            assert len(sets) == rank + 1
            assert least == pytest.approx(reduced[0], abs=1e-12)
            # stopped wherever, the floor is one
            for most in (1, 4, 16):
                search.nodes = 0
                low = search.cheapest(u, target, np.inf, most)[1]
                assert low <= reduced[0] + 1e-12
        assert search.cheapest(u, reduced[0] - 1e-9, np.inf)[1] == reduced[0] - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_floors_of_a_node_are_below_all_its_sets(seed: int) -> None:
    """Of sets of some size with all of some rows and some of others: all, those with a row, those without."""
    n, B, rng = 8, 60, np.random.default_rng(seed)
    X, g = small(n, seed)
    counts = np.array([c for c in product(range(5), range(5)) if sum(c) and abs(c[0] - c[1]) <= 2])
    search = SetSearch(X, g, counts, 3, False, generator(0))
    held = {tuple(c) for c in counts.tolist()}
    every = np.array(list(product([False, True], repeat=n)))
    fits = [tuple(int(row[m].sum()) for m in search.members) in held for row in every]
    every = every[fits]
    # rows that are worth less than their company costs, and more
    for worth in (0.1, 0.5, 1.5):
        u = search.D.mean() * rng.uniform(-worth, worth, n)
        reduced = search.cost(every) - every @ u
        J = rng.random((B, n)) < 0.2
        F = (rng.random((B, n)) < 0.7) & ~J
        size = rng.integers(1, 7, B)
        low, sets, _, with_it, without = search._bounded(J, F, size, u)
        met = 0
        for b in range(B):
            own = (every.sum(axis=1) == size[b]) & every[:, J[b]].all(axis=1)
            own &= ~every[:, ~(J[b] | F[b])].any(axis=1)
            values, rows = reduced[own], every[own]
            assert low[b] <= values.min(initial=np.inf) + 1e-12
            for f in np.flatnonzero(F[b]):
                assert with_it[b, f] <= values[rows[:, f]].min(initial=np.inf) + 1e-12
                assert without[b, f] <= values[~rows[:, f]].min(initial=np.inf) + 1e-12
            if np.isfinite(low[b]):
                assert (rows == sets[b]).all(axis=1).any()
                met += 1
        assert met > 10
