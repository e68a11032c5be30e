"""Fair k-means in passes is fair k-means in memory, to rounding."""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.errors import DataError, DeclarationError, Infeasible
from optfair.methods.fair_clustering import fair_kmeans, kmeans_fit, single_start
from optfair.methods.fair_clustering.algorithms import passed_rows, row_passes, soft_descent
from optfair.methods.fair_clustering.algorithms.descent import descend
from optfair.methods.fair_clustering.algorithms.pricing import Box
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.labels import hard_labels
from optfair.rows.sources import MatrixRows
from optfair.rows.survey import surveyed


def rows(n: int, d: int = 3, groups: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2.0 * rng.integers(0, 4, n)[:, None]
    return X, np.floor(groups * rng.random(n) ** (1 + 0.2 * X[:, 0].clip(-2, 5))).astype(int)


def chunked(X: np.ndarray, g: np.ndarray, size: int = 777, w: np.ndarray | None = None):
    def read():
        for i in range(0, len(X), size):
            part = (X[i : i + size], g[i : i + size])
            yield part if w is None else (*part, w[i : i + size])

    return read


RULES = {
    "perfect": of.perfect_fairness(),
    "additive gap": of.additive_gap(0.05),
    "two rules": [of.max_gap(0.02), of.cluster_share(lower=0.15)],
    "none": None,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("groups", [2, 3])
def test_equal_to_the_fit_in_memory(rule: str, groups: int) -> None:
    X, g = rows(4000, groups=groups)
    w = np.random.default_rng(1).random(4000)
    model = of.FairKMeans(4, fairness=RULES[rule], n_init=1, random_state=0)
    a = of.FairKMeans(**model.get_params()).fit(X, groups=g, sample_weight=w)
    b = model.fit_stream(chunked(X, g, w=w))
    assert np.abs(a.cluster_centers_ - b.cluster_centers_).max() < 1e-9
    assert np.abs(a.masses_ - b.masses_).max() < 1e-10
    assert np.abs(a.history_ - b.history_).max() < 1e-9
    assert b.cost_ == pytest.approx(a.cost_, rel=1e-12)
    assert b.balance_ == pytest.approx(a.balance_, rel=1e-9)
    assert b.gap_ <= 1e-9
    assert (b.n_iter_, b.status_) == (a.n_iter_, "converged")
    labels = np.concatenate(list(b.predict_stream(chunked(X, g))))
    assert (labels != a.labels_).sum() <= 4 * groups  # split rows and ties only


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("search", "rule"),
    [
        ("restarts", "perfect"),
        pytest.param("swap", "two rules", marks=pytest.mark.slow),
        pytest.param("restarts", "two rules", marks=pytest.mark.slow),
        pytest.param("swap", "perfect", marks=pytest.mark.slow),
    ],
)
def test_memory_is_one_more_source(
    large: bool, search: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, g = rows(5000, groups=3)
    w = np.random.default_rng(1).random(5000)
    monkeypatch.setattr(kmeans_fit, "LARGE", 2000 if large else 10**9)
    monkeypatch.setattr(kmeans_fit, "surveyed", partial(surveyed, held=2000, size=1200))
    if not large:
        monkeypatch.setattr(kmeans_fit, "surveyed", surveyed)
    asked = {"fairness": RULES[rule], "search": search, "n_init": 2, "random_state": 0}
    a = of.FairKMeans(4, **asked).fit(X, groups=g, sample_weight=w)
    b = of.FairKMeans(4, **asked).fit_stream(X, groups=g, sample_weight=w)
    assert np.abs(a.cluster_centers_ - b.cluster_centers_).max() <= 1e-13
    assert np.abs(a.masses_ - b.masses_).max() <= 1e-12
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-12)
    assert b.cost_ == pytest.approx(a.cost_, rel=1e-12)
    assert (b.n_iter_, b.status_) == (a.n_iter_, a.status_)
    assert max(a.gap_, b.gap_) <= 1e-9
    assert (b.n_passes_ > 1) == large
    exact = FairAssignment(
        X, groups=g, centers=b.cluster_centers_, fairness=RULES[rule], sample_weight=w
    ).solve("highs")
    assert b.objective_ == pytest.approx(exact.objective, rel=1e-9)


@pytest.mark.filterwarnings("ignore:labels miss 'fair")
@pytest.mark.parametrize("weights", ["equal", "by group", "any"])
def test_labels_that_obey_are_those_of_the_rows_in_memory(
    weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, g = rows(6000, groups=3)
    rng = np.random.default_rng(1)
    w = {"equal": None, "by group": 1.0 + g, "any": rng.random(6000)}[weights]
    rule, data = [of.max_gap(0.02), of.cluster_share(lower=0.1)], chunked(X, g, w=w)
    model = of.FairKMeans(4, fairness=rule, n_init=1, random_state=0, labels="hard")
    for module in (fair_kmeans, kmeans_fit):  # counts next to the soft masses, without branching
        monkeypatch.setattr(module, "HARD_SECONDS", 0.0)
    few = of.FairKMeans(**model.get_params()).fit(X, groups=g, sample_weight=w)
    held = of.FairKMeans(**model.get_params()).fit_stream(data)
    assert np.array_equal(held.hard_labels_.labels, few.labels_)
    monkeypatch.setattr(kmeans_fit, "LARGE", 2000)
    monkeypatch.setattr(kmeans_fit, "surveyed", partial(surveyed, held=2000, size=1200))
    passed = model.fit_stream(data).hard_labels_
    p = FairAssignment(X, groups=g, centers=model.cluster_centers_, fairness=rule, sample_weight=w)
    whole = hard_labels(p.solve(), time_limit=0.0)
    assert passed.labels.dtype == np.uint8 and passed.labels.shape == (6000,)
    assert passed.exact == whole.exact == (weights != "any")
    assert passed.violation <= 2e-3 and passed.grade.sound
    assert passed.objective == model.cost_ == pytest.approx(whole.objective, rel=3e-3)
    own = p.data["weights"] @ p.cost.matrix()[np.arange(6000), passed.labels]
    assert passed.objective == pytest.approx(float(own), rel=1e-12)
    masses = np.stack([np.bincount(g, p.data["weights"] * (passed.labels == k)) for k in range(4)])
    assert np.abs(passed.masses - masses.T).max() <= 1e-12
    assert passed.bound == pytest.approx(p.solve().bound, rel=1e-9) and passed.gap <= 5e-3
    assert passed.bound <= passed.objective or not passed.exact
    assert (passed.labels == whole.labels).mean() > 0.995


def test_labels_of_unequal_weight_are_repaired_as_those_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g = rows(6000, groups=3)
    w, rule = np.random.default_rng(1).uniform(0.2, 3.0, 6000), of.max_gap(0.02)
    monkeypatch.setattr(kmeans_fit, "LARGE", 2000)
    monkeypatch.setattr("optfair.methods.fair_clustering.labels.GAP", 3e-4)
    monkeypatch.setattr(kmeans_fit, "surveyed", partial(surveyed, held=2000, size=1200))
    model = of.FairKMeans(4, fairness=rule, n_init=1, random_state=0, labels="hard")
    passed = model.fit_stream(chunked(X, g, w=w)).hard_labels_  # a warning is an error
    p = FairAssignment(X, groups=g, centers=model.cluster_centers_, fairness=rule, sample_weight=w)
    soft = p.solve()
    assert hard_labels(soft, time_limit=0.0).violation > 0.0  # the largest fractions miss it
    assert passed.exact and passed.violation == 0.0
    masses = np.stack([np.bincount(g, p.data["weights"] * (passed.labels == k)) for k in range(4)])
    assert np.ptp(masses / p.shares, axis=1).max() <= 0.02 * (1 + 1e-9)
    assert passed.objective == pytest.approx(hard_labels(soft, gap=3e-4).objective, rel=3e-4)
    assert model.balance_ == pytest.approx(float((masses.min(axis=1) / masses.max(axis=1)).min()))


def test_a_row_too_heavy_for_any_cluster_is_refused_after_the_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g = rows(6000)
    w = np.random.default_rng(1).uniform(1.0, 2.0, 6000)
    w[5000] = 9_000.0
    monkeypatch.setattr(kmeans_fit, "fit_passed", None)
    monkeypatch.setattr(kmeans_fit, "LARGE", 2000)
    monkeypatch.setattr(kmeans_fit, "surveyed", partial(surveyed, held=2000, size=1200))
    model = of.FairKMeans(3, fairness=of.cluster_share(upper=0.4), labels="hard")
    named = f"a row weighs 0\\.4999.* of all, .* its group {str(g[5000])!r}"
    with pytest.raises(of.DataError, match=named):
        model.fit_stream(chunked(X, g, w=w))
    # equal in each group is enough for counts, which divide or do not
    g = np.array(["few"] * 2999 + ["many"] * 3001)
    model = of.FairKMeans(
        3, fairness=[of.perfect_fairness(), of.cluster_share(lower=0.1)], labels="hard"
    )
    with pytest.raises(of.DataError, match=r"'few' \(2999 rows\) or 'many' \(3001 rows\)"):
        model.fit_stream(chunked(X, g, w=np.where(g == "few", 2.0, 1.0)))


def test_what_no_whole_rows_obey_is_refused_after_the_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, _ = rows(6000)
    g = np.array(["few"] * 2999 + ["many"] * 3001)  # no common divisor
    rule = [of.perfect_fairness(), of.cluster_share(lower=0.1)]
    monkeypatch.setattr(kmeans_fit, "fit_passed", None)
    monkeypatch.setattr(kmeans_fit, "LARGE", 2000)
    monkeypatch.setattr(kmeans_fit, "surveyed", partial(surveyed, held=2000, size=1200))
    model = of.FairKMeans(3, fairness=rule, labels="hard")
    with pytest.raises(of.DataError, match=r"'few' \(2999 rows\) or 'many' \(3001 rows\)"):
        model.fit_stream(chunked(X, g))


@pytest.mark.parametrize("far", [0.0, 1e6, 1e9])
@pytest.mark.parametrize("groups", [2, 20])
def test_a_pass_in_single_precision_is_the_one_in_double(far: float, groups: int) -> None:
    # distances from the origin that leave single precision nothing, ties, rows without weight
    X, g = rows(6000, groups=groups)
    X[:3000] = np.round(X[:3000])
    X += far
    w = np.random.default_rng(1).integers(0, 3, 6000).astype(float)
    survey = surveyed(of_source(X, g, w))
    rng = np.random.default_rng(2)
    shape, centers = (groups, 5), np.round(X[::1200])
    prices = np.round(rng.normal(size=shape), 1)
    box = Box(0.3 * rng.random(shape), np.where(rng.random(shape) < 0.1, np.inf, 0.01))
    passed = row_passes.AssignmentPass(survey.header, centers, prices, box)
    part = of_source(X, g, w).map_reduce(passed, row_passes.joined)
    cost = ((X[:, None] - centers) ** 2).sum(axis=2)
    reduced, at = cost + prices[g], np.arange(6000)
    best, low = reduced.argmin(axis=1), reduced.min(axis=1)
    regret = reduced - box.down[g]
    regret[at, best] = np.inf
    free = (regret.min(axis=1) <= low + box.up[g, best]) & (w > 0)
    assert len(part.open.X) == free.sum() > 0
    assert np.array_equal(part.open.X, X[free])
    u = w / w.sum()
    value = np.bincount(g, u * low, groups)
    assert part.value == pytest.approx(value, rel=1e-12, abs=1e-12)
    settled = u * ~free
    masses = np.zeros(shape)
    np.add.at(masses, (g, best), settled)
    assert np.abs(part.masses - masses).max() <= 1e-14
    paid = np.bincount(g, settled * cost[at, best], groups)
    assert part.cost == pytest.approx(paid, rel=1e-12)
    sums = (settled[:, None] * (best[:, None] == np.arange(5))).T @ X
    assert part.sums == pytest.approx(sums, rel=1e-12)


def test_gap_is_certified_by_another_route() -> None:
    X, g = rows(3000)
    b = of.FairKMeans(4, n_init=1, random_state=0).fit_stream(chunked(X, g, 500))
    exact = FairAssignment(X, groups=g, centers=b.cluster_centers_).solve("highs")
    assert b.objective_ == pytest.approx(exact.objective, rel=1e-9)
    assert np.abs(b.masses_ / b.shares_[:, None]).sum(axis=1) == pytest.approx([1, 1], abs=1e-12)
    soft = b.masses_ / b.shares_[:, None]
    assert np.abs(soft[0] - soft[1]).max() < 1e-12


def test_curved_rules_go_through_the_cone_program() -> None:
    import cvxpy as cp

    from optfair.core.composition import Rule

    class Round(Rule):
        latex = r"\|M_0/\pi_0 - M_1/\pi_1\|_2 \le 0.03"

        def bind(self, problem):
            return cp.norm(problem["masses"][0] / p[0] - problem["masses"][1] / p[1]) <= 0.03

    X, g = rows(3000)
    p = np.bincount(g) / len(g)
    a = of.FairKMeans(3, fairness=Round(), n_init=1, random_state=0).fit(X, groups=g)
    b = of.FairKMeans(3, fairness=Round(), n_init=1, random_state=0).fit_stream(chunked(X, g))
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-6)
    assert b.gap_ < 1e-6


def test_many_rows_start_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    X, g = rows(30_000)
    seen = []

    def small(source, n_jobs):
        seen.append(surveyed(source, n_jobs=n_jobs, held=5000, size=4000))
        return seen[-1]

    monkeypatch.setattr(kmeans_fit, "LARGE", 20_000)
    monkeypatch.setattr(kmeans_fit, "surveyed", small)
    b = of.FairKMeans(4, n_init=3, random_state=0, tol=1e-5).fit_stream(chunked(X, g, 4096))
    assert not seen[0].complete
    assert len(b.restarts_) == 1  # the best of three goes on with all rows
    assert b.gap_ <= 1e-9
    exact = FairAssignment(X, groups=g, centers=b.cluster_centers_).solve()
    assert b.objective_ == pytest.approx(exact.objective, rel=1e-9)
    assert np.abs(b.masses_ - exact["masses"]).max() < 1e-9


def test_an_assignment_far_from_its_start_takes_long_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # without prices; soft choices at a low temperature bring them near in a few passes
    X, g = rows(60_000)
    passes = []
    original = row_passes.SmoothedPass.__call__

    def counted(self, chunk):
        passes.append(chunk.index)
        return original(self, chunk)

    monkeypatch.setattr(row_passes.SmoothedPass, "__call__", counted)
    source = of_source(X, g)
    program = kmeans_fit.compile_rules(FairAssignment(X, groups=g, centers=X[:4])).program
    rows_of = passed_rows.PassedRows(program, source, surveyed(source), 1.0)
    run = descend(X[:4], rows_of.assign, rows_of.move, max_iter=1, tol=0.0, rise=2e-7)
    assert run.gaps[0] <= 1e-9
    assert passes
    assert rows_of.passes <= 12
    exact = FairAssignment(X, groups=g, centers=X[:4]).solve()
    assert run.history[0] == pytest.approx(exact.objective, rel=1e-10)


def test_a_soft_pass_in_single_precision_is_the_one_in_double() -> None:
    X, g = rows(6000, groups=3)
    X += 1e4
    source = of_source(X, g, np.random.default_rng(1).uniform(0.5, 2.0, 6000))
    survey, prices = surveyed(source), np.random.default_rng(2).normal(size=(3, 4))
    scale = soft_descent.Scale.of(survey.sample.X, survey.sample.weights)
    u = scale.unit**2
    centers = (X[:4] - scale.middle) / scale.unit
    own = row_passes.SoftPass(survey.header, scale, centers, prices / u, 0.3 / u, True)
    plain = row_passes.SmoothedPass(survey.header, X[:4], prices / 0.3, 0.3)
    a = source.map_reduce(own, operator.add)
    b = source.map_reduce(plain, operator.add)
    assert a.mass.value == pytest.approx(b.value, rel=1e-5)
    assert np.abs(a.mass.masses - b.masses).max() <= 1e-5
    assert np.abs(a.mass.curvature - b.curvature).max() <= 1e-5
    assert np.abs(a.sums.sum(axis=0)).max() <= 1e-5  # rows are about their middle
    kept: dict[int, Any] = {}
    for times in range(2):  # the second time from what the first kept
        flat = source.map_reduce(replace(own, curved=False, kept=kept), operator.add)
        assert kept and flat.mass.curvature is None, times
        np.testing.assert_allclose(flat.mass.masses, a.mass.masses, atol=1e-6)
        np.testing.assert_allclose(flat.sums, a.sums, atol=1e-6)
        assert flat.mass.value == pytest.approx(a.mass.value, rel=1e-9)


def test_only_rows_in_memory_are_kept_from_pass_to_pass(tmp_path: Path) -> None:
    X, g = rows(60_000)
    program = kmeans_fit.compile_rules(FairAssignment(X, groups=g, centers=X[:4])).program
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    ends = []
    for given in (X, mapped):
        source = MatrixRows(given, g, chunk_rows=20_000)
        rows_of = passed_rows.PassedRows(program, source, surveyed(source), 1.0)
        assert rows_of.kept == ({} if given is X else None)
        rows_of.prices = rows_of.assign(X[:4], None, np.inf).answer.prices
        rows_of._softly(X[:4], rows_of.prices, 1.0, True)
        assert len(rows_of.kept or ()) == (3 if given is X else 0)
        ends.append(rows_of.begun(X[:4], 1e-6, 300).centers)
        assert not rows_of.kept  # a run later they are not held any more
    np.testing.assert_array_equal(*ends)


def test_after_soft_passes_an_assignment_takes_a_pass_or_two() -> None:
    X, g = rows(60_000)
    source = of_source(X, g)
    program = kmeans_fit.compile_rules(FairAssignment(X, groups=g, centers=X[:4])).program
    rows_of = passed_rows.PassedRows(program, source, surveyed(source), 1.0)
    rows_of.prices = rows_of.assign(X[:4], None, np.inf).answer.prices
    centers, found = rows_of.begun(X[:4], 1e-6, 300).centers, None
    for _ in range(3):
        before = rows_of.passes
        found = rows_of.assign(centers, found, np.inf)
        assert rows_of.passes - before <= 2
        exact = FairAssignment(X, groups=g, centers=centers).solve()
        assert found.objective == pytest.approx(exact.objective, rel=1e-9)
        assert found.answer.bound == pytest.approx(exact.bound, rel=1e-9)
        centers = rows_of.move(found)[0]


def test_a_master_stays_small_however_wide_its_box_is_to_be() -> None:
    X, g = rows(30_000)
    source = of_source(X, g)
    program = kmeans_fit.compile_rules(FairAssignment(X, groups=g, centers=X[:4])).program
    rows_of = passed_rows.PassedRows(program, source, surveyed(source), 1.0)
    search = passed_rows.PassedSearch(rows_of, X[:4])
    search._price(np.zeros((2, 4)), np.full((2, 4), 1e9))
    box, opened, free = search.look
    assert len(opened.part.open.X) == 30_000  # no side of the box it asked for was finite
    assert 100 < free.arcs.weight.size <= passed_rows.LARGEST
    assert np.isfinite(box.down).all() and np.isfinite(box.up).all()
    # the prices that are best there leave the other rows where they are
    found = search.assign(None)
    exact = FairAssignment(X, groups=g, centers=X[:4]).solve()
    assert found.objective == pytest.approx(exact.objective, rel=1e-9)


def test_soft_passes_lead_to_where_exact_ones_do() -> None:
    X, g = rows(30_000)
    program = kmeans_fit.compile_rules(FairAssignment(X, groups=g, centers=X[:4])).program
    source = of_source(X, g)
    ends = []
    for softly in (False, True):
        rows_of = passed_rows.PassedRows(program, source, surveyed(source), 1.0)
        first = rows_of.assign(X[:4], None, np.inf)
        rows_of.prices, centers = first.answer.prices, X[:4]
        if softly:
            centers = rows_of.begun(centers, 1e-6, 200).centers
        made = rows_of.passes
        run = descend(centers, rows_of.assign, rows_of.move, max_iter=200, tol=1e-6, rise=1e-8)
        ends.append((run, rows_of.passes - made))
    (plain, most), (near, few) = ends
    assert near.best.objective <= 1.001 * plain.best.objective and few < most / 2
    assert rows_of.begun(centers, 1e-6, 1) is None  # there are no moves to make


def of_source(X: np.ndarray, g: np.ndarray, w: np.ndarray | None = None):
    from optfair.rows.sources import row_source

    return row_source(X, g, w, chunk_rows=8192)


def test_threads_change_nothing() -> None:
    X, g = rows(5000)
    one, two = (
        of.FairKMeans(3, n_init=1, random_state=0, n_jobs=j).fit_stream(chunked(X, g, 400))
        for j in (1, 2)
    )
    assert np.array_equal(one.cluster_centers_, two.cluster_centers_)


def test_duplicates_ties_and_few_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (600, 2)).astype(float)  # nine points, many ties
    g = rng.integers(0, 2, 600)
    a = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=g)
    b = of.FairKMeans(3, n_init=1, random_state=0).fit_stream(chunked(X, g, 100))
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-6)
    assert b.gap_ <= 1e-9
    tiny = of.FairKMeans(2, n_init=1, random_state=0).fit_stream(chunked(X[:20], g[:20], 7))
    whole = of.FairKMeans(2, n_init=1, random_state=0).fit(X[:20], groups=g[:20])
    assert tiny.objective_ == pytest.approx(whole.objective_, rel=1e-9)


def test_an_empty_cluster_starts_again_at_a_costly_row() -> None:
    X, g = rows(900)
    far = np.vstack([X[:2], [[1e4, 1e4, 1e4]]])
    b = of.FairKMeans(3, init=far, fairness=None).fit_stream(chunked(X, g, 200))
    assert b.reseeded_[0] == (1, 2)
    assert (b.masses_.sum(axis=0) > 0.01).all()


def test_what_does_not_add_up_is_refused() -> None:
    X, g = rows(300)
    with pytest.raises(DeclarationError, match="medians do not add up"):
        of.FairKMeans(2, metric="l1").fit_stream(chunked(X, g))
    with pytest.raises(DeclarationError, match="couples rows in memory"):
        of.FairKMeans(2, algorithm="paper").fit_stream(chunked(X, g))
    with pytest.raises(Infeasible):
        rules = [of.cluster_share(lower=[0.7, 0.0]), of.cluster_share(upper=[0.6, 1.0])]
        of.FairKMeans(2, fairness=rules).fit_stream(chunked(X, g))
    with pytest.raises(DataError, match="more than the rows can fill"):
        of.FairKMeans(3).fit_stream(chunked(np.ones((300, 2)), g))


def test_limits_return_what_was_found() -> None:
    X, g = rows(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = of.FairKMeans(4, n_init=1, random_state=0, max_iter=2)
        assert model.fit_stream(chunked(X, g)).status_ == "max_iter"
        model = of.FairKMeans(4, n_init=3, random_state=0, time_limit=1e-9)
        model.fit_stream(chunked(X, g))
    assert model.status_ == "time_limit"
    assert len(model.restarts_) == 1
    assert model.gap_ < 1.0


def test_a_streamed_fit_forgets_the_rows_of_an_earlier_one() -> None:
    X, g = rows(500)
    model = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=g)
    model.fit_stream(chunked(X, g, 100))
    for name in ("labels_", "soft_assignment_", "solution_"):
        assert not hasattr(model, name)
    assert model.predict(X[:5], groups=g[:5]).shape == (5,)
    assert model.n_rows_ == 500


@pytest.mark.parametrize("large", [False, True])
def test_ctrl_c_ends_all_starts_and_keeps_the_best(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, g = rows(3000)
    monkeypatch.setattr(kmeans_fit, "LARGE", 1000 if large else 10**9)
    alternation, made = single_start.first_descent, []

    def stopped_the_second_time(*args, **options):
        made.append(options)
        found = alternation(*args, **options)
        return found if len(made) < 2 else replace(found, status="interrupted")

    for module in (single_start, kmeans_fit):
        monkeypatch.setattr(module, "first_descent", stopped_the_second_time)
    model = of.FairKMeans(4, n_init=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whichever of the two is better is kept
        model.fit_stream(chunked(X, g))
    assert len(made) == 2
    assert model.gap_ <= 1e-9
    assert len(model.restarts_) == (1 if large else 2)
    if large:  # all rows get one assignment
        assert (model.status_, model.n_iter_) == ("interrupted", 1)


def test_later_starts_are_not_prepared_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    X, g = rows(3000)
    at_once, made = single_start.start_of, []

    def counted(*args):
        made.append(args)
        return at_once(*args)

    monkeypatch.setattr(single_start, "start_of", counted)
    model = of.FairKMeans(4, n_init=20, random_state=0, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit_stream(chunked(X, g))
    assert len(made) == 1


@pytest.mark.parametrize("verbose", [1, 2])
@pytest.mark.parametrize("large", [False, True])
def test_progress_is_told(
    verbose: int, large: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    X, g = rows(1000)
    monkeypatch.setattr(kmeans_fit, "LARGE", 500 if large else 10**9)
    model = of.FairKMeans(3, n_init=2, random_state=0, verbose=verbose).fit_stream(chunked(X, g))
    out, err = capfd.readouterr()
    assert out == ""
    assert "2/2" in err if verbose == 1 else f"alternation {model.n_iter_}: objective" in err


def test_an_assignment_cut_short_does_not_replace_a_proven_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, g = rows(3000)
    monkeypatch.setattr(kmeans_fit, "LARGE", 1000)
    assign, made = passed_rows.PassedSearch.assign, []

    def cut(self, prices):
        found = assign(self, prices)
        made.append(found)
        if len(made) == 3:
            return replace(found, status="interrupted", bound=-np.inf)
        return found

    monkeypatch.setattr(passed_rows.PassedSearch, "assign", cut)
    model = of.FairKMeans(7, n_init=4, random_state=0, init="random", tol=0.0)
    with pytest.warns(ConvergenceWarning, match="interrupted .* is kept") as caught:
        model.fit_stream(chunked(X, g))
    assert caught[0].filename == __file__
    assert (model.status_, model.n_iter_, len(model.restarts_)) == ("interrupted", 2, 1)
    assert model.gap_ <= 1e-9
    assert model.objective_ == pytest.approx(made[1].objective, rel=1e-12)


@pytest.mark.parametrize("model", [of.FairKMeans(2, random_state=0), of.FairMixture(2)])
def test_chunks_have_the_columns_of_the_fit(model: Any) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["u", "v", "z"])
    g = np.arange(60) % 2
    model.fit(frame, groups=g)
    assert len(list(model.predict_stream(lambda: iter([(frame, g)])))) == 1
    for other in (frame[["z", "u", "v"]], frame.rename(columns={"u": "q"})):
        with pytest.raises(DataError, match="chunk 1 has other columns than the fit"):
            list(model.predict_stream(lambda o=other: iter([(frame, g), (o, g)])))
