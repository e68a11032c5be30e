"""The explainer: certified answers for one row, tables, separability, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair.methods.cluster_counterfactuals.explainer import ClusterExplainer
from optfair.methods.cluster_counterfactuals.explanation import Counterfactual

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


@pytest.fixture(scope="module")
def X():
    return of.datasets.load("iris").numeric("species")[0]


@pytest.fixture(scope="module")
def flowers(X):
    return pd.DataFrame(X, columns=NAMES, index=[f"f{i}" for i in range(len(X))])


@pytest.fixture(scope="module")
def kmeans(flowers):
    return KMeans(3, n_init=2, random_state=0).fit(flowers)


@pytest.fixture(scope="module")
def mixture(X):
    return GaussianMixture(3, random_state=0).fit(X)


def test_one_row_is_explained_with_a_certificate(kmeans, flowers):
    e = ClusterExplainer(kmeans, immutable=["petal width"])
    assert e.features == tuple(NAMES)
    c = e.explain(flowers.iloc[0]).best
    assert c.status == "optimal" and c.certificate.verify() and c.valid
    assert kmeans.predict(pd.DataFrame([c.point], columns=NAMES))[0] == c.target != c.source
    assert "petal width" not in c.changed and set(c.changed) == set(c.changes)
    assert c.distance == pytest.approx(np.linalg.norm(c.point - c.factual))
    frame = c.to_frame()
    assert frame.index.tolist() == NAMES and frame.loc["petal width", "change"] == 0.0
    json.dumps(c.to_dict())
    assert "petal length" in repr(c) and "proved" in repr(c)
    # a row of a frame in any order, a frame of one row, and an array are the same row
    for x in (flowers.iloc[0][NAMES[::-1]], flowers.iloc[[0]][NAMES[::-1]], c.factual):
        assert e.explain(x).best.distance == pytest.approx(c.distance, rel=1e-12)


def test_answers_show_themselves_in_notebooks(kmeans, mixture, X, flowers):
    e = ClusterExplainer(mixture)
    one, several = e.explain(X[60]), e.explain(X[60], k=2)
    assert one._repr_html_() == one.best._repr_html_()
    assert "proved to be nearest" in one._repr_html_() and "margin to clusters" in one._repr_html_()
    assert one._repr_html_().count("<tr>") == 1 + len(one.best.changed)
    assert several._repr_html_().count("<tr>") == 3 and "different targets" in several._repr_html_()
    here = e.explain(X[60], one.best.source).best
    assert "already belongs" in here._repr_html_() and "<table>" not in here._repr_html_()
    odd = ClusterExplainer(kmeans).explain_many(flowers.rename(lambda name: f"<{name}>"))
    page = odd._repr_html_()
    assert "&lt;f0&gt;" in page and f"and {len(X) - 20} more" in page and "<f0>" not in page


def test_targets_come_in_order_of_distance(mixture, X):
    e = ClusterExplainer(mixture)
    found = e.explain(X[60], k=5)
    assert len(found) == 2 and found.kind == "targets"
    assert {c.target for c in found} == {0, 1, 2} - {found.best.source}
    assert found[0].distance < found[1].distance and len(found[:1]) == 1
    for c in found:
        assert e.explain(X[60], c.target).best.distance == pytest.approx(c.distance, rel=1e-9)
        assert mixture.predict(c.point[None])[0] == c.target
    assert "different targets" in repr(found)
    assert found.to_frame()["target"].tolist() == [c.target for c in found]


@pytest.mark.parametrize("kind", ["kmeans", "mixture"])
def test_feature_sets_differ(kind, X, request):
    e = ClusterExplainer(request.getfixturevalue(kind), against="pair", features=NAMES)
    target = e.explain(X[70]).best.target
    found = e.explain(X[70], target, k=3)
    sets = [set(c.changed) for c in found]
    assert found.kind == "feature sets" and len(found) == 3
    for i, later in enumerate(sets):
        assert not any(earlier <= later for earlier in sets[:i])
    assert [c.distance for c in found] == sorted(c.distance for c in found)
    assert all(c.certificate.verify() for c in found)
    # the second is the best of all masks that leave one feature of the first alone
    alone = [
        ClusterExplainer(e.model, against="pair", features=NAMES, immutable=[name])
        .explain(X[70], target)
        .best.distance
        for name in NAMES
    ]
    assert found[1].distance == pytest.approx(min(alone), rel=1e-9)


@pytest.mark.parametrize("against", ["pair", "all"])
@pytest.mark.parametrize("kind", ["kmeans", "mixture"])
def test_a_table_is_row_by_row_the_same(kind, against, X, request):
    model = request.getfixturevalue(kind)
    e = ClusterExplainer(model, against=against, immutable=["x1"], features=["x0", "x1", "a", "b"])
    rows = X[::25]
    table = e.explain_many(rows)
    for i, y in enumerate(rows):
        c = e.explain(y).best
        assert table.distance[i] == pytest.approx(c.distance, rel=1e-7)
        assert table.target[i] == c.target and table.status[i] == "optimal"
        assert table[i].margins == pytest.approx(c.margins, nan_ok=True, abs=1e-6)
    assert (table.gap <= 1e-9).all()
    if against == "all":
        predict = request.getfixturevalue(kind).predict
        points = table.points if kind == "mixture" else pd.DataFrame(table.points, columns=NAMES)
        assert (predict(points) == table.target).all() and table.valid.all()


def test_a_frame_comes_back_with_its_index(kmeans, flowers):
    e = ClusterExplainer(kmeans)
    frame = e.explain_many(flowers[NAMES[::-1]]).to_frame()
    assert frame.index.tolist() == flowers.index.tolist()
    assert frame.columns.tolist() == [
        "source",
        "target",
        "distance",
        "changed",
        "status",
        "gap",
        *NAMES,
    ]
    assert (e.predict(flowers) == frame["source"]).all()
    assert "150 rows" in repr(e.explain_many(flowers))


def test_targets_by_row_and_rows_that_are_there(kmeans, flowers):
    e = ClusterExplainer(kmeans)
    own = e.predict(flowers)
    target = np.where(np.arange(150) % 2 == 0, own, (own + 1) % 3)
    table = e.explain_many(flowers, target)
    there = table.status == "already there"
    assert there[::2].mean() > 0.9 and not there[1::2].any()
    assert (table.distance[there] == 0.0).all() and (
        table.points[there] == table.factuals[there]
    ).all()
    c = e.explain(flowers.iloc[0], int(own[0])).best
    assert c.status == "already there" and c.distance == 0.0 and c.certificate is None
    assert "already belongs" in repr(c)


def test_unreachable_rows_are_said_to_be(X):
    e = ClusterExplainer(
        KMeans(3, n_init=2, random_state=0).fit(X), upper=X.max(axis=0) * 0.0 + 8.0
    )
    assert (e.explain_many(X).status == "optimal").all()
    tight = ClusterExplainer(e.model, lower=0.0, upper=2.0, mask=[1, 0, 0, 0])
    table = tight.explain_many(X[:5])
    assert (table.status == "unreachable").all() and np.isinf(table.distance).all()
    assert not table.valid.any() and np.isnan(table.to_frame()["x0"]).all()
    with pytest.raises(of.Infeasible, match="no other cluster"):
        tight.explain(X[0])


@pytest.mark.parametrize("distance", ["l1", "changes"])
def test_other_distances_go_row_by_row(distance, kmeans, flowers, X):
    bounds = {"lower": X.min(axis=0), "upper": X.max(axis=0)}
    e = ClusterExplainer(kmeans, distance=distance, **bounds)
    table = e.explain_many(flowers.iloc[[0, 60]])
    for i, row in enumerate((0, 60)):
        c = e.explain(X[row]).best
        moved = np.abs(c.point - X[row])
        expected = moved.sum() if distance == "l1" else (moved > 1e-7).sum()
        assert c.distance == pytest.approx(expected, abs=1e-6)
        assert table.distance[i] == pytest.approx(c.distance, abs=1e-6)
        assert c.metric == distance and c.valid


def test_few_changes_in_different_feature_sets(kmeans, X):
    e = ClusterExplainer(
        kmeans, distance="changes", lower=X.min(axis=0), upper=X.max(axis=0), against="pair"
    )
    target = e.explain(X[60]).best.target
    found = e.explain(X[60], target, k=2)
    assert found[0].distance <= found[1].distance
    assert not set(found[0].changed) <= set(found[1].changed)


def test_margins_are_what_they_say(kmeans, mixture, X):
    e = ClusterExplainer(mixture)
    logs = mixture._estimate_weighted_log_prob(X[:5])
    np.testing.assert_allclose(e.margins(X[:5], 1)[:, [0, 2]], logs[:, [1]] - logs[:, [0, 2]])
    assert np.isnan(e.margins(X[:5], 1)[:, 1]).all()
    k = ClusterExplainer(kmeans, features=NAMES)
    m = kmeans.cluster_centers_
    # on the middle of two centers the margin is 0, a step along the normal is the margin
    normal = (m[1] - m[0]) / np.linalg.norm(m[1] - m[0])
    point = (m[0] + m[1]) / 2 + 0.3 * normal
    assert k.margins(point[None], 1)[0, 0] == pytest.approx(0.3)


def test_the_pair_form_may_land_in_a_third_cluster():
    centers = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])
    model = MiniBatchKMeans(3, n_init=1, init=centers, max_iter=1, random_state=0).fit(centers)
    model.cluster_centers_ = centers
    pair = ClusterExplainer(model, against="pair").explain([1.0, 2.0], 1).best
    assert not pair.valid and "lands in cluster 2" in repr(pair)
    every = ClusterExplainer(model).explain([1.0, 2.0], 1).best
    assert every.valid and every.distance > pair.distance


def test_separability(mixture, X):
    e = ClusterExplainer(mixture, against="pair")
    apart = e.separability(X)
    for i in (0, 60, 120):
        for t in range(3):
            if t != apart.source[i]:
                c = e.explain(X[i], t).best
                assert apart.distances[i, t] == pytest.approx(c.distance, rel=1e-7)
    assert np.isnan(apart.distances[np.arange(150), apart.source]).all()
    median = apart.matrix()
    s, t = 0, 2
    assert median[s, t] == pytest.approx(np.median(apart.pair(s, t)))
    np.testing.assert_array_equal(apart.matrix(0.5), median)
    assert (apart.matrix("min") <= apart.matrix("max"))[~np.isnan(median)].all()
    assert np.isnan(np.diag(median)).all() and (apart.reached()[~np.eye(3, dtype=bool)] == 1).all()
    frame = apart.to_frame()
    assert len(frame) == 6 and frame["median"].is_monotonic_increasing
    assert apart.sizes.sum() == 150 and apart.gap <= 1e-9
    assert "closest pairs" in repr(apart)
    for wrong in ("mode", 1.5):
        with pytest.raises(of.DataError):
            apart.matrix(wrong)
    with pytest.raises(of.DataError, match="no cluster 7"):
        apart.pair(0, 7)


@pytest.mark.slow
def test_all_gaussian_clusters_on_every_row(mixture, X):
    table = ClusterExplainer(mixture).explain_many(X)
    assert (mixture.predict(table.points) == table.target).all()
    pair = ClusterExplainer(mixture, against="pair").explain_many(X)
    assert (table.distance >= pair.distance - 1e-12).all()


def test_bad_input_is_refused_in_the_users_words(kmeans, mixture, X, flowers):
    cases = [
        (of.DataError, "is not fitted", lambda: ClusterExplainer(KMeans(3))),
        (of.DataError, "no feature 'petal'", lambda: ClusterExplainer(kmeans, immutable=["petal"])),
        (of.DeclarationError, "unknown option", lambda: ClusterExplainer(kmeans, imutable=["x"])),
        (of.DeclarationError, "frees no feature", lambda: ClusterExplainer(kmeans, mask=[0] * 4)),
        (of.DeclarationError, "against", lambda: ClusterExplainer(kmeans, against="some")),
        (of.DeclarationError, "plausibility", lambda: ClusterExplainer(kmeans, plausibility=-1)),
        (of.DataError, "NaN", lambda: ClusterExplainer(kmeans).explain([np.nan] * 4)),
        (of.DataError, "NaN", lambda: ClusterExplainer(kmeans).explain_many([[np.nan] * 4])),
        (of.DataError, "does not fit", lambda: ClusterExplainer(kmeans).explain(X[0, :3])),
        (of.DataError, "3 columns", lambda: ClusterExplainer(kmeans).explain_many(X[:, :3])),
        (of.DataError, "no column", lambda: ClusterExplainer(kmeans).predict(flowers[NAMES[:3]])),
        (of.DeclarationError, "not a cluster", lambda: ClusterExplainer(kmeans).explain(X[0], 9)),
        (
            of.DataError,
            "target does not fit",
            lambda: ClusterExplainer(kmeans).explain_many(X, [1]),
        ),
        (
            of.DeclarationError,
            "target 9 is not a cluster",
            lambda: ClusterExplainer(kmeans).explain_many(X[:2], [9, 1]),
        ),
        (of.DeclarationError, "time_limit -1", lambda: ClusterExplainer(kmeans, time_limit=-1)),
        (of.DataError, "k is 0", lambda: ClusterExplainer(kmeans).explain(X[0], k=0)),
        (
            of.DeclarationError,
            "one target is given",
            lambda: ClusterExplainer(kmeans).explain(X[0], 1, k=2, diverse="targets"),
        ),
        (
            of.DeclarationError,
            "diverse=",
            lambda: ClusterExplainer(kmeans).explain(X[0], diverse="colours"),
        ),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words) as e:
            call()
        assert e.value.cause


def way(call):
    """Return the files that a call enters, in order; each function counts when it is first called."""
    home = f"{Path(of.__file__).parent}/"
    known, files = set(), []

    def step(frame, event, _):
        code = frame.f_code
        inside = code.co_filename.startswith(home) and not code.co_name.startswith("<")
        if event == "call" and inside and code not in known:
            known.add(code)
            if files[-1:] != [code.co_filename]:
                files.append(code.co_filename)

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        call()
    finally:
        sys.setprofile(before)
    return files


@pytest.mark.parametrize("target", [None, 1])
@pytest.mark.parametrize("clusters", ["kmeans", "mixture"])
def test_a_row_goes_a_short_way(clusters, target, X, request):
    """Few files, and few returns to one that was left: a reader can follow."""
    e = ClusterExplainer(request.getfixturevalue(clusters))
    row = X[0] if clusters == "mixture" else pd.Series(X[0], NAMES)
    files = way(lambda: e.explain(row, target))
    entered = len(set(files))
    assert 5 < entered <= 15
    assert len(files) - entered <= 15


def test_repr_says_what_is_asked(kmeans):
    text = repr(ClusterExplainer(kmeans, immutable=["petal width"], distance="l2"))
    assert "3 k-means clusters of 4 features" in text and "3 of 4 features may change" in text
    c = Counterfactual(
        ("a",), np.zeros(1), np.ones(1), 0, 1, 1.0, "l2", np.array([0.0, np.nan]), "bounded"
    )
    assert "best found" in repr(c) and c.gap == 0.0


def test_a_row_with_a_name_that_is_no_feature_is_refused() -> None:
    X = pd.DataFrame(
        np.random.default_rng(0).normal(size=(30, 3)), columns=["age", "income", "debt"]
    )
    explainer = of.ClusterExplainer(KMeans(2, n_init=1, random_state=0).fit(X))
    row = X.iloc[0]
    told = explainer.explain(row).best.distance
    assert explainer.explain(row[["debt", "age", "income"]]).best.distance == pytest.approx(told)
    assert explainer.explain(row.to_numpy()).best.distance == pytest.approx(told)
    with pytest.raises(of.DataError, match="factual has no age") as e:
        explainer.explain(row.rename({"age": "Age"}))
    assert e.value.evidence == "its entries are Age, income, debt"
