"""The relaxation of partitions: its bound against every partition, in fractions, and against a solver's."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.fair_clustering.algorithms import partition_relaxation
from optfair.methods.fair_clustering.algorithms.partition_relaxation import (
    PartitionRelaxation,
    hull_sides,
)
from optfair.methods.fair_clustering.algorithms.set_search import SetSearch
from optfair.methods.fair_clustering.certified_labels import allowed_counts, certified_kmeans

NEVER = np.inf


def small(n: int, seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    g = np.arange(n) % 2
    return rng.normal(size=(n, d)) + 0.7 * g[:, None], g


def searched(X: np.ndarray, g: np.ndarray, K: int, rule: Any) -> SetSearch:
    counts, filled = allowed_counts(g, g, K, rule)
    return SetSearch(X, g, counts, K, filled, np.random.default_rng(0))


def partitions(search: SetSearch) -> list[np.ndarray]:
    """Return the labels of all partitions into clusters of allowed counts."""
    n, K, every = len(search.X), search.most, []
    allowed = {tuple(c) for c in search.counts.tolist()}
    for rest in product(range(K), repeat=n - 1):
        labels = np.array((0, *rest))
        first = [int(np.flatnonzero(labels == k)[0]) for k in range(K) if (labels == k).any()]
        if any(a > b for a, b in pairwise(first)):
            continue  # the same in another order
        own = [k for k in range(K) if (labels == k).any()]
        held = [tuple(int((labels[m] == k).sum()) for m in search.members) for k in own]
        if all(h in allowed for h in held) and (len(own) == K or not search.filled):
            every.append(labels)
    return every


def exact_cost(D: np.ndarray, labels: np.ndarray) -> Fraction:
    total = Fraction(0)
    for k in np.unique(labels):
        own = np.flatnonzero(labels == k)
        pairs = sum((Fraction(float(D[i, j])) for i in own for j in own), Fraction(0))
        total += pairs / (2 * len(own))
    return total


def nothing(n: int) -> np.ndarray:
    return np.zeros((n, n), dtype=bool)


@pytest.mark.parametrize("rule", ["max gap", "balance", "perfect fairness"])
@pytest.mark.parametrize("seed", range(3))
def test_no_partition_costs_less_whatever_the_multipliers(rule: str, seed: int) -> None:
    given = {"max gap": of.max_gap(0.3), "balance": of.balance(0.5)}
    X, g = small(8, seed)
    search = searched(X, g, 3, given.get(rule, of.perfect_fairness()))
    least = min(exact_cost(search.D, labels) for labels in partitions(search))
    relaxation = search.relaxation
    found, Z = relaxation.bound(nothing(8), nothing(8), NEVER, NEVER)
    assert Fraction(found) <= least and found >= 0.75 * float(least)
    assert Z.sum(axis=0) == pytest.approx(np.ones(8), abs=1e-6)
    # others than those it found, of any rows: triangles, pairs, sides of the hull
    rng = np.random.default_rng(seed)
    n, sides = 8, len(relaxation.normals)
    i, j, other = np.array([rng.choice(n, 3, replace=False) for _ in range(20)]).T
    j, other = np.minimum(j, other), np.maximum(j, other)
    triangles = i * n**2 + j * n + other
    pairs = n**3 + i * n + j
    hull = n**3 + n**2 + rng.choice(sides * n, min(20, sides * n), replace=False)
    A, b = relaxation._rows(np.concatenate([triangles, pairs, hull]))
    for size in (1e-3, 0.1, 10.0):
        N = size * rng.random((n, n))
        own = relaxation.proved(A, b, N + N.T, size * rng.random(b.size))
        assert Fraction(own) <= least


@pytest.mark.parametrize("rule", [of.max_gap(0.3), of.balance(0.5), of.perfect_fairness()])
def test_every_partition_obeys_every_row(rule: Any) -> None:
    X, g = small(8, 4)
    search = searched(X, g, 3, rule)
    relaxation = search.relaxation
    n = 8
    triangles = [
        i * n**2 + j * n + k for i, j, k in product(range(n), repeat=3) if j < k and i not in (j, k)
    ]
    pairs = [n**3 + i * n + j for i, j in product(range(n), repeat=2) if i != j]
    hull = range(n**3 + n**2, n**3 + n**2 + n * len(relaxation.normals))
    A, b = relaxation._rows(np.array([*triangles, *pairs, *hull]))
    assert (A - A[:, np.arange(n * n).reshape(n, n).T.ravel()]).count_nonzero() == 0
    tight = np.zeros(b.size, dtype=bool)
    for labels in partitions(search):
        together = labels[:, None] == labels
        Z = together / together.sum(axis=0)
        s = b - A @ Z.ravel()
        assert (s >= 0.0).all() or s.min() > -1e-16
        tight |= s < 1e-12
    # and no row of a triangle or pair could be stricter
    assert tight[: len(triangles) + len(pairs)].all()


def stated_row(relaxation: PartitionRelaxation, code: int) -> tuple[np.ndarray, float]:
    """Return a row by its number as the statement of the program has it, and its side."""
    n = relaxation.size
    row = np.zeros((n, n))
    if code < n**3:
        i, j, k = code // n**2, code // n % n, code % n
        for at, value in (((i, j), 1.0), ((i, k), 1.0), ((i, i), -1.0), ((j, k), -1.0)):
            row[at] += value
        return row, 0.0
    code -= n**3
    if code < n**2:
        i, j = divmod(code, n)
        row[i, j] += 1.0
        row[i, i] -= 1.0
        return row, 0.0
    side, i = divmod(code - n**2, n)
    normal = relaxation.normals[side]
    row[i, i] = normal[0]
    for g, value in enumerate(normal[1:]):
        row[i, relaxation.own[:, g] > 0.0] += value
    return row, float(relaxation.offsets[side])


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_each_number_stands_for_the_row_that_is_stated(groups: int) -> None:
    n = 5
    members = [np.flatnonzero(np.arange(n) % groups == g) for g in range(groups)]
    counts = np.array([c for c in product(range(3), repeat=groups) if sum(c)])
    D = np.square(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    relaxation = PartitionRelaxation(D, members, counts, 3, False, 1e-15)
    assert relaxation.normals.shape[1] == groups
    every = np.random.default_rng(0).permutation(n**3 + n**2 + n * len(relaxation.normals))
    A, b = relaxation._rows(every)
    for code, own, side in zip(every.tolist(), A.toarray(), b.tolist(), strict=True):
        row, end = stated_row(relaxation, code)
        assert np.abs(own.reshape(n, n) - 0.5 * (row + row.T)).max() < 1e-15 and side == end


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("convex", [True, False])
def test_what_is_proved_is_the_formula_less_what_rounding_may_cost(
    filled: bool, convex: bool
) -> None:
    """With a large rounding the charge is the most of it: each of its parts is there, and is added."""
    n, K = 6, 3
    X, g = small(n, 1)
    counts = np.array([c for c in product(range(4), repeat=2) if sum(c)])
    D = np.square(X[:, None] - X).sum(axis=2)
    members = [np.flatnonzero(g == k) for k in (0, 1)]

    def stated(rounding: float) -> PartitionRelaxation:
        return PartitionRelaxation(D, members, counts, K, filled, rounding)

    plain, rng = stated(0.0), np.random.default_rng(0)
    numbers = rng.permutation(n**3 + n**2 + n * len(plain.normals))[:150]
    A, b = plain._rows(numbers)
    N, y = rng.random((n, n)), rng.random(b.size)
    # many eigenvalues below 0, or none
    N = N + N.T + (0.0 if convex else 5.0) * np.eye(n) - (40.0 if convex else 0.0) * np.eye(n)
    N[0, 1] = N[1, 0] = -3.0  # of rows that are apart
    M = 0.5 * D - N + (A.T @ y).reshape(n, n)
    across = np.eye(n) - 1.0 / n
    P = across @ M @ across
    size = np.abs(M).max()
    least = np.linalg.eigvalsh(P + size)[0]
    assert (least > 0.0) == convex
    paid = (K - 1.0) * (least if filled else min(least, 0.0))
    value = M.sum() / n - b @ y + paid
    terms = (0.5 * D + np.abs(N) + (np.abs(A.toarray()).T @ y).reshape(n, n)).max()
    unit = n * terms + 8.0 * n * K * (size + abs(least)) + np.abs(b) @ y
    own = plain.proved(A, b, N, y)
    assert own == pytest.approx(value, rel=1e-9) and own < value
    for rounding in (1e-3, 10.0):
        found = stated(rounding).proved(A, b, N, y)
        assert own - found == pytest.approx(rounding * unit, rel=1e-9)
    # sums of so many rows have as many roundings
    rows = 4.0 * b.size * np.finfo(float).eps
    assert stated(-rows).proved(A, b, N, y) - own == pytest.approx(rows * unit, rel=1e-2)


def test_nothing_is_proved_where_nothing_is_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    X, g = small(6, 0)
    relaxation = searched(X, g, 2, of.balance(0.5)).relaxation
    A, b = relaxation._rows(np.zeros(0, dtype=np.int64))
    assert relaxation.proved(A, b, np.zeros((6, 6)), b) > -np.inf
    with monkeypatch.context() as patched:  # eigenvalues that are wrong are no proof
        values = np.linalg.eigvalsh
        patched.setattr(np.linalg, "eigvalsh", lambda P: values(P) + 1e-6)
        assert relaxation.proved(A, b, np.zeros((6, 6)), b) == -np.inf
    monkeypatch.setattr(partition_relaxation, "cholesky", lambda P, shift: None)
    assert relaxation.proved(A, b, np.zeros((6, 6)), b) == -np.inf


@pytest.mark.parametrize("largest", [4, 9])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_counts_are_within_their_hull_in_fractions(groups: int, largest: int) -> None:
    """Shares of counts are rounded, and so are the sums that the offsets come from."""
    counts = np.array([c for c in product(range(largest), repeat=groups) if sum(c)])
    size = counts.sum(axis=1, keepdims=True)
    normals, offsets = hull_sides(np.hstack([1.0 / size, counts[:, :-1] / size]), flat=True)
    exact = [[Fraction(1, sum(c)), *(Fraction(x, sum(c)) for x in c[:-1])] for c in counts.tolist()]
    for normal, end in zip(normals.tolist(), offsets.tolist(), strict=True):
        a = [Fraction(x) for x in normal]
        gaps = [Fraction(end) - sum(x * y for x, y in zip(a, p, strict=True)) for p in exact]
        assert 0 <= min(gaps) < Fraction(1, 10**12)


@pytest.mark.parametrize("filled", [True, False])
def test_multipliers_have_the_signs_that_the_proof_asks_for(
    monkeypatch: pytest.MonkeyPatch, filled: bool
) -> None:
    """Of either sign are those of entries of rows apart, and of equations of rows together."""
    X, g = small(8, 0, 1)
    search = searched(X, g, 3, of.balance(0.5))
    search.filled = filled
    joined, parted = nothing(8), nothing(8)
    joined[np.ix_([1, 4, 6], [1, 4, 6])] = True
    np.fill_diagonal(joined, False)
    parted[np.ix_([1, 4, 6], [0])] = parted[np.ix_([0], [1, 4, 6])] = True
    fits = [c for c in partitions(search) if c[1] == c[4] == c[6] != c[0]]
    least = min(exact_cost(search.D, c) for c in fits)
    every = [(c[:, None] == c) / (c[:, None] == c).sum(axis=0) for c in fits]
    proved, values = PartitionRelaxation.proved, []

    def checked(self: PartitionRelaxation, A: Any, b: Any, N: Any, y: Any) -> float:
        assert (N[~parted] >= 0.0).all() and (N[parted] < 0.0).any()
        assert (y[4:] >= 0.0).all()
        sides = np.array([A @ Z.ravel() - b for Z in every])
        assert np.abs(sides[:, :4]).max() <= 1e-15 and sides.max() <= 1e-15
        own = proved(self, A, b, N, y)
        assert Fraction(own) <= least if np.isfinite(own) else own < 0.0
        values.append(own)
        return own

    monkeypatch.setattr(PartitionRelaxation, "proved", checked)
    found, _ = search.relaxation.bound(joined, parted, NEVER, NEVER)
    assert found == max(values) >= 0.8 * float(least) and len(values) > 5


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_of_one_cluster_is_charged_for_rounding(seed: int) -> None:
    """All rows together are the only partition: the bound would be its cost, were nothing rounded."""
    X, g = small(7, seed)
    search = searched(X, g, 1, of.balance(0.1))
    found = search.relaxation.bound(nothing(7), nothing(7), NEVER, NEVER)[0]
    least = exact_cost(search.D, np.zeros(7, dtype=int))
    assert Fraction(found) < least < Fraction(found * (1.0 + 1e-9))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_together_or_apart(seed: int) -> None:
    X, g = small(8, seed, 1)
    search = searched(X, g, 3, of.balance(0.5))
    costs = {tuple(c): float(exact_cost(search.D, c)) for c in partitions(search)}
    free = search.relaxation.bound(nothing(8), nothing(8), NEVER, NEVER)[0]
    raised = 0.0
    for i, j in ((0, 1), (0, 7), (2, 5)):
        for together in (True, False):
            joined, parted = nothing(8), nothing(8)
            (joined if together else parted)[[i, j], [j, i]] = True
            found, Z = search.relaxation.bound(joined, parted, NEVER, NEVER)
            least = min(c for at, c in costs.items() if (at[i] == at[j]) == together)
            assert 0.8 * least <= found <= least
            assert Z[i, j] == pytest.approx(Z[i, i] if together else 0.0, abs=0.02)
            raised = max(raised, found - free)
    assert raised > 0.05 * free


@pytest.mark.parametrize("rule", [of.max_gap(0.2), of.balance(0.5)])
def test_a_solver_says_the_same_of_the_declared_relaxation(rule: Any) -> None:
    X, g = small(14, 2)
    search = searched(X, g, 3, rule)
    best = certified_kmeans(X, groups=g, n_clusters=3, fairness=rule)
    found = search.relaxation.bound(nothing(14), nothing(14), NEVER, NEVER)[0] * search.unit
    declared = of.fair_clustering.FairKMeansBound(
        X, groups=g, n_clusters=3, fairness=rule, labels="hard"
    ).solve(tolerance=1e-6)
    assert declared.bound * (1.0 - 1e-3) <= found <= best.objective
    assert best.bound >= found * (1.0 - 1e-9)


def test_a_bound_that_is_enough_ends_it_and_so_does_the_clock() -> None:
    X, g = small(20, 0)
    search = searched(X, g, 3, of.balance(0.5))
    whole = search.relaxation.bound(nothing(20), nothing(20), NEVER, NEVER)[0]
    again = searched(X, g, 3, of.balance(0.5)).relaxation
    some = again.bound(nothing(20), nothing(20), 0.5 * whole, NEVER)[0]
    assert 0.5 * whole <= some < whole
    first = searched(X, g, 3, of.balance(0.5)).relaxation
    assert first.bound(nothing(20), nothing(20), NEVER, -NEVER)[0] <= whole


def test_the_sides_of_a_hull_with_the_directions_in_which_it_is_flat() -> None:
    square = np.array([[0.0, 0.0, 0.5], [1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [1.0, 1.0, 0.5]])
    normals, offsets = hull_sides(square)
    assert sorted(map(tuple, normals.round(9) + 0.0)) == [
        (-1.0, 0.0, 0.0),
        (0.0, -1.0, 0.0),
        (0.0, 1.0, 0.0),
        (1.0, 0.0, 0.0),
    ]
    more, ends = hull_sides(square, flat=True)
    assert len(more) == 6 and (more[4:] @ [0.0, 0.0, 1.0]).tolist() in ([1.0, -1.0], [-1.0, 1.0])
    assert (square @ more.T <= ends).all() and (ends[4:] * more[4:, 2]) == pytest.approx(0.5)
    assert offsets == pytest.approx(np.where(normals.sum(axis=1) > 0, 1.0, 0.0), abs=1e-13)
    # one point alone is flat in all directions
    alone, sides = hull_sides(np.array([[0.25, 0.5]]), flat=True)
    assert len(alone) == 4 and alone @ [0.25, 0.5] == pytest.approx(sides)


def test_sides_of_many_points_need_no_square_of_them() -> None:
    counts = np.array(list(product(range(31), repeat=2)))[1:]
    size = counts.sum(axis=1, keepdims=True)
    points = np.hstack([1.0 / size, counts[:, :1] / size])
    tracemalloc.start()
    normals, ends = hull_sides(points, flat=True)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 * points.nbytes  # a square of the points has 480 times as much
    assert (points @ normals.T <= ends).all() and len(normals) >= 3


@pytest.mark.parametrize("K", [2, 3, 6])
def test_sixty_rows_are_certified(K: int) -> None:
    rng = np.random.default_rng(K)
    g = rng.integers(0, 2, 60)
    X = 4.0 * rng.normal(size=(K, 4))[rng.integers(0, K, 60)] + rng.normal(size=(60, 4))
    best = certified_kmeans(X, groups=g, n_clusters=K, fairness=of.balance(0.5), gap=5e-3)
    assert best.gap <= 5e-3
    fit = of.FairKMeans(K, fairness=of.balance(0.5), labels="hard", n_init=5, random_state=0)
    fit.fit(X, groups=g)
    means = np.stack([X[fit.labels_ == k].mean(axis=0) for k in range(K)])
    assert np.square(X - means[fit.labels_]).sum(axis=1).mean() >= best.bound
