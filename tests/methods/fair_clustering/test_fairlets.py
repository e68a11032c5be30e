"""Fairlets: least transport, perfect fairness for any sizes, costs that add up."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import optfair as of
from optfair import metrics
from optfair.methods.fair_clustering import approximations
from optfair.methods.fair_clustering.approximations import _blocks, fairlet_clustering


def rows(n0=31, n1=44, seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(["a", "b"], [n0, n1]))
    X = rng.normal(size=(n0 + n1, 3)) + 1.5 * (groups == "a")[:, None]
    X[:, 1] += 5.0 * rng.integers(0, 2, n0 + n1)
    return X, groups


SIZES = [(40, 40), (31, 44), (7, 60)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("partition_size", [None, 20, 17])
def test_perfectly_fair_and_every_row_once(sizes, partition_size):
    X, groups = rows(*sizes)
    found = fairlet_clustering(
        X, groups=groups, n_clusters=3, partition_size=partition_size, random_state=0
    )
    A = found.soft_assignment
    np.testing.assert_allclose(A.sum(axis=1), 1.0, atol=1e-12)
    assert A.min() >= 0.0
    assert metrics.max_gap(groups, A, soft=True) <= 1e-12
    np.testing.assert_allclose(found.plan.sum(axis=1), 1.0 / sizes[0], rtol=1e-12)
    np.testing.assert_allclose(found.plan.sum(axis=0), 1.0 / sizes[1], rtol=1e-12)
    assert found.plan.shape == sizes and found.group_names.tolist() == ["a", "b"]
    assert found.plan.nnz < sum(sizes) + 2 * sum(sizes) / (partition_size or np.inf) + 1


@pytest.mark.parametrize("sizes", SIZES)
def test_costs_add_up(sizes):
    X, groups = rows(*sizes)
    found = fairlet_clustering(X, groups=groups, n_clusters=3, partition_size=30, random_state=0)
    soft = metrics.cost(X, found.centers, found.soft_assignment, soft=True)
    assert found.objective == pytest.approx(soft, rel=1e-12)
    a, b = X[groups == "a"], X[groups == "b"]
    pi0 = len(a) / len(X)
    plan = found.plan.toarray()
    inside = pi0 * (1 - pi0) * (plan * cdist(a, b, "sqeuclidean")).sum()
    assert found.decomposition_cost == pytest.approx(inside, rel=1e-12)
    i, j = np.nonzero(plan)
    means = pi0 * a[i] + (1 - pi0) * b[j]
    between = (plan[i, j] * cdist(means, found.centers, "sqeuclidean").min(axis=1)).sum()
    assert found.objective == pytest.approx(inside + between, rel=1e-12)
    np.testing.assert_array_equal(found.labels, found.soft_assignment.argmax(axis=1))
    assert found.cost == metrics.cost(X, found.centers, found.labels)
    assert found.balance == metrics.balance(groups, found.labels)


def test_equal_sizes_are_a_least_assignment():
    X, groups = rows(40, 40)
    found = fairlet_clustering(X, groups=groups, n_clusters=3, random_state=0)
    C = 0.25 * cdist(X[groups == "a"], X[groups == "b"], "sqeuclidean")
    i, j = linear_sum_assignment(C)
    assert found.decomposition_cost == pytest.approx(C[i, j].mean(), rel=1e-12)
    assert found.plan.nnz == 40
    # whole pairs: hard labels are fair too
    assert set(np.unique(found.soft_assignment)) == {0.0, 1.0}
    assert found.balance == 1.0 and found.cost == pytest.approx(found.objective, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_assigning_and_alternating_from_its_centers_is_no_worse(seed):
    X, groups = rows(seed=seed)
    found = fairlet_clustering(X, groups=groups, n_clusters=4, random_state=seed)
    p = of.FairAssignment(X, groups=groups, centers=found.centers)
    once = p.solve()
    assert once.objective <= found.objective + 1e-9
    further = of.fair_clustering.alternate(p)
    assert further.solution.objective <= once.objective + 1e-9
    assert further.solution.objective < found.objective - 1e-3


def test_blocks_cost_more_inside_the_fairlets():
    X, groups = rows(60, 80)
    whole, split = (
        fairlet_clustering(X, groups=groups, n_clusters=3, partition_size=m, random_state=0)
        for m in (None, 14)
    )
    assert split.decomposition_cost > 1.1 * whole.decomposition_cost


@pytest.mark.parametrize("sizes", [(5, 5), (6, 9), (7, 12), (2, 31), (97, 101)])
@pytest.mark.parametrize("partition_size", [2, 5, 10, 1000])
def test_blocks_hold_every_row_with_its_whole_mass(sizes, partition_size):
    n0, n1 = sizes
    sides = np.arange(n0), n0 + np.arange(n1)
    blocks = _blocks(sides, partition_size, np.random.default_rng(0))
    count = len(blocks)
    assert count == min(max(1, round((n0 + n1) / partition_size)), n0, n1)
    mass = np.zeros(n0 + n1)
    for i, a, j, b in blocks:
        assert a.sum() == b.sum() == n0 * n1
        assert (a > 0).all() and (b > 0).all()
        assert i.size <= -(-n0 // count) + 1 and j.size <= -(-n1 // count) + 1
        np.add.at(mass, i, a)
        np.add.at(mass, j, b)
    np.testing.assert_array_equal(mass[:n0], n1 * count)
    np.testing.assert_array_equal(mass[n0:], n0 * count)


def test_blocks_are_random():
    sides = np.arange(40), 40 + np.arange(40)
    first, again, other = (
        [set(block[0]) for block in _blocks(sides, 20, np.random.default_rng(s))] for s in (0, 0, 1)
    )
    assert first == again != other
    assert first[0] != set(range(10))


def test_seeds_reproduce():
    X, groups = rows()
    runs = [
        fairlet_clustering(
            X, groups=groups, n_clusters=3, partition_size=20, n_init=1, random_state=s
        )
        for s in (0, 0, 1, np.random.default_rng(0))
    ]
    np.testing.assert_array_equal(runs[0].soft_assignment, runs[1].soft_assignment)
    assert runs[0].objective == runs[1].objective != runs[2].objective
    assert runs[0].objective == runs[3].objective


def test_order_of_rows_and_labels_does_not_matter():
    X, groups = rows(20, 20)
    turn = np.random.default_rng(1).permutation(40)
    one = fairlet_clustering(X, groups=groups, n_clusters=3, random_state=0)
    two = fairlet_clustering(X[turn], groups=groups[turn] == "a", n_clusters=3, random_state=0)
    assert one.decomposition_cost == pytest.approx(two.decomposition_cost, rel=1e-12)
    assert one.objective == pytest.approx(two.objective, rel=1e-6)


def test_no_matrix_above_the_limit_is_built(monkeypatch):
    X, groups = rows(31, 44)
    monkeypatch.setattr(approximations, "LARGEST_COUPLING", 31 * 44 - 1)
    with pytest.raises(of.DataError, match="too large") as e:
        fairlet_clustering(X, groups=groups, n_clusters=3)
    assert "partition_size" in e.value.remedy
    assert fairlet_clustering(X, groups=groups, n_clusters=3, partition_size=30).balance >= 0
    # Adult by sex is refused, in no time
    monkeypatch.undo()
    big = np.zeros((10_771 + 21_790, 1))
    with pytest.raises(of.DataError, match="21790 x 10771"):
        fairlet_clustering(big, groups=np.arange(len(big)) < 10_771, n_clusters=3)


def test_bad_input_says_what_to_do():
    X, groups = rows()
    three = np.where(np.arange(len(X)) < 5, "c", groups)
    with pytest.raises(of.DataError, match="pair two groups, there are 3"):
        fairlet_clustering(X, groups=three, n_clusters=3)
    for bad in (0, 76, 2.5, True):
        with pytest.raises(of.DataError, match="number of clusters"):
            fairlet_clustering(X, groups=groups, n_clusters=bad)
    for size in (1, 0.5, "many"):
        with pytest.raises(of.DataError, match="rows per block"):
            fairlet_clustering(X, groups=groups, n_clusters=3, partition_size=size)
    with pytest.raises(of.DataError, match="NaN"):
        fairlet_clustering(np.where(X > 3, np.nan, X), groups=groups, n_clusters=3)
    with pytest.raises(of.DataError, match="more than the rows can fill"):
        fairlet_clustering(np.ones_like(X), groups=groups, n_clusters=3)


def test_repr_tells_what_is_soft_and_what_is_hard():
    X, groups = rows()
    text = repr(fairlet_clustering(X, groups=groups, n_clusters=3, random_state=0))
    assert "(soft)" in text and "inside the fairlets" in text and "hard" in text


@pytest.mark.parametrize("n_init", [0, -1, 2.5, "x", True, None])
def test_a_number_of_starts_that_is_none(n_init):
    X, groups = rows()
    with pytest.raises(of.DeclarationError, match="n_init"):
        fairlet_clustering(X, groups=groups, n_clusters=3, n_init=n_init)


def test_groups_may_be_a_column_of_a_frame():
    pd = importlib.import_module("pandas")
    X, groups = rows()
    frame = pd.DataFrame(X, columns=["x", "y", "z"])
    frame.insert(1, "sex", groups)
    named = fairlet_clustering(frame, groups="sex", n_clusters=3, random_state=0)
    given = fairlet_clustering(X, groups=groups, n_clusters=3, random_state=0)
    np.testing.assert_array_equal(named.soft_assignment, given.soft_assignment)
    assert named.group_names.tolist() == ["a", "b"] and named.objective == given.objective
    with pytest.raises(of.DataError, match="no column 'sx'"):
        fairlet_clustering(frame, groups="sx", n_clusters=3)
