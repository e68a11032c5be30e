"""The projection shows rows where they are, by cluster and group."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA

import optfair as of
from optfair.plots import MANY_COLOURS, plot_projection

mpl.use("Agg")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4)) * [3.0, 2.0, 1.0, 0.5]
LABELS = RNG.integers(0, 3, 120)
GROUPS = np.where(RNG.random(120) < 0.4, "old", "_young$")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def offsets(ax):
    return np.vstack([c.get_offsets() for c in ax.collections])


def numbers(ax):
    return {t.get_text(): t.xy for t in ax.texts if t.get_text().isdigit()}


def test_points_are_the_principal_components():
    ax = plot_projection(X, LABELS, GROUPS)
    pca = PCA(2, svd_solver="full").fit(X)
    Z = pca.transform(X)
    expected = np.vstack([Z[g == GROUPS] for g in np.unique(GROUPS)])
    np.testing.assert_allclose(offsets(ax), expected)
    share = pca.explained_variance_ratio_
    assert f"({share[0]:.0%} of the variance)" in ax.get_xlabel()
    assert f"({share[1]:.0%} of the variance)" in ax.get_ylabel()
    assert "PCA of 4 columns" in ax.texts[0].get_text()


def test_colour_is_the_cluster_and_shape_the_group():
    ax = plot_projection(X, LABELS, GROUPS)
    filled, hollow = ax.collections
    of_group = [g == GROUPS for g in np.unique(GROUPS)]
    expected = [[MANY_COLOURS[k].lower() for k in LABELS[of]] for of in of_group]
    assert [to_hex(c) for c in filled.get_facecolors()] == expected[0]
    assert [to_hex(c) for c in hollow.get_edgecolors()] == expected[1]
    assert filled.get_paths()[0] != hollow.get_paths()[0]
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == [r"_young\$", "old"]


def test_numbers_stand_for_the_centers():
    means = np.array([X[k == LABELS].mean(axis=0) for k in range(3)])
    pca = PCA(2, svd_solver="full").fit(X)
    for given, expected in ((None, means), (means + 1.0, means + 1.0)):
        ax = plot_projection(X, LABELS, GROUPS, centers=given)
        found = numbers(ax)
        np.testing.assert_allclose([found[str(k)] for k in range(3)], pca.transform(expected))


def test_close_numbers_are_moved_apart():
    ax = plot_projection(X, LABELS, GROUPS, centers=np.zeros((3, 4)))
    ax.figure.canvas.draw()
    notes = [t for t in ax.texts if t.get_text().isdigit()]
    boxes = [t.get_bbox_patch().get_window_extent() for t in notes]
    assert all(a.count_overlaps(boxes[i + 1 :]) == 0 for i, a in enumerate(boxes))


def test_two_columns_are_drawn_as_they_are():
    ax = plot_projection(X[:, :2], LABELS, GROUPS, columns=["income $", "age"])
    expected = np.vstack([X[g == GROUPS, :2] for g in np.unique(GROUPS)])
    np.testing.assert_array_equal(offsets(ax), expected)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"income \$", "age")


def test_one_column():
    ax = plot_projection(X[:, :1], LABELS, GROUPS)
    expected = np.concatenate([X[g == GROUPS, 0] for g in np.unique(GROUPS)])
    np.testing.assert_array_equal(offsets(ax)[:, 0], expected)
    assert "height is random" in ax.texts[0].get_text()


def test_sample_is_seeded_and_said():
    one, two, other = (
        offsets(plot_projection(X, LABELS, GROUPS, max_points=40, random_state=s))
        for s in (1, 1, 2)
    )
    assert len(one) == 40
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    full = {tuple(p) for p in offsets(plot_projection(X, LABELS, GROUPS)).round(9)}
    assert {tuple(p) for p in one.round(9)} <= full  # the plane is of all rows
    ax = plot_projection(X, LABELS, GROUPS, max_points=40)
    assert "40 of 120 rows, sampled" in ax.texts[0].get_text()


def test_more_clusters_than_colours_have_their_numbers():
    labels = np.arange(120) % 13
    ax = plot_projection(X, labels, GROUPS)
    assert set(numbers(ax)) == {str(k) for k in range(13)}


def test_an_empty_cluster_has_no_number_of_its_own():
    labels = np.where(LABELS == 1, 2, LABELS)
    assert set(numbers(plot_projection(X, labels, GROUPS))) == {"0", "2"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, LABELS[:5], GROUPS), "labels does not fit"),
        ((X, LABELS - 1, GROUPS), "labels does not fit"),
        ((X, LABELS, np.arange(120) % 8), "8 groups"),
        ((X, LABELS, GROUPS[:9]), "groups does not fit"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(of.DataError, match=message):
        plot_projection(*arguments)


def test_bad_centers_and_names():
    with pytest.raises(of.DataError, match="2 centers"):
        plot_projection(X, LABELS, GROUPS, centers=np.zeros((2, 4)))
    with pytest.raises(of.DataError, match="3 column names"):
        plot_projection(X, LABELS, GROUPS, columns=list("abc"))
