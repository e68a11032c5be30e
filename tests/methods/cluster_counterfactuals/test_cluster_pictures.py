"""Pictures of counterfactuals: the points, the regions, the numbers in the cells."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.cluster import KMeans

import optfair as of
from optfair.methods.cluster_counterfactuals.explanation import ClusterSeparability
from optfair.methods.cluster_counterfactuals.plots import (
    plot_cluster_counterfactuals,
    plot_distances,
    plot_image_counterfactuals,
    plot_separability,
)

mpl.use("Agg")

X = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 3.0], [5.0, 3.0]])
PATHS = {"all": [[2.0, 1.0], [2.5, 1.5]], "$x_0$ only": [[3.5, 0.0]]}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return KMeans(2, n_init=1, random_state=0).fit(X)


def words(ax):
    return [t.get_text() for t in ax.texts]


def test_points_and_lines_are_those_given(model):
    ax = plot_cluster_counterfactuals(
        model, [0.0, 0.0], PATHS, X=X, levels=["ε = 0", "ε = 1"], columns=["age", "income"]
    )
    drawn = [line.get_xydata() for line in ax.lines]
    assert any(np.array_equal(d, [[0, 0], [2, 1], [2.5, 1.5]]) for d in drawn)
    assert any(np.array_equal(d, PATHS["all"]) for d in drawn)
    assert any(np.array_equal(d, [[0, 0]]) for d in drawn)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "income")
    assert {"ε = 0", "ε = 1"} <= set(words(ax)) and any("2 clusters" in w for w in words(ax))
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == ["all", r"\$x_0\$ only"]
    assert ax.get_aspect() == 1.0
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), X)


def test_regions_are_the_models(model):
    ax = plot_cluster_counterfactuals(model, X[0], {"a": [X[2]]})
    mesh = ax.collections[0]
    seen = np.asarray(mesh.get_array())
    low, high = ax.get_xlim()[0], ax.get_xlim()[1]
    x = np.linspace(low, high, seen.shape[1])
    y = np.linspace(*ax.get_ylim(), seen.shape[0])
    for i, j in ((10, 20), (300, 340), (200, 100)):
        assert seen[i, j] == model.predict([[x[j], y[i]]])[0]


def test_given_axes_are_used_and_bad_series_refused(model):
    _, ax = plt.subplots()
    assert plot_cluster_counterfactuals(model, X[0], {"a": X[2:]}, ax=ax) is ax
    for bad in ({}, {str(i): [[0, 0]] for i in range(7)}, [[0, 0]], {"a": [[0, 0, 0]]}):
        with pytest.raises(of.DataError):
            plot_cluster_counterfactuals(model, X[0], bad)
    with pytest.raises(of.DataError, match="two axes"):
        plot_cluster_counterfactuals(model, [0.0, 0.0, 0.0], {"a": X})
    with pytest.raises(of.DataError, match="levels"):
        plot_cluster_counterfactuals(model, X[0], {"a": X}, levels=["one"])
    with pytest.raises(of.DataError, match="column names"):
        plot_cluster_counterfactuals(model, X[0], {"a": X}, columns=["one"])


def test_images_show_values_and_signed_differences():
    y, z = np.zeros(6), np.array([0.0, 1.0, -2.0, 0.0, 0.0, 0.5])
    figure = plot_image_counterfactuals(
        y, {"ε = 0": z, "ε = 1": 2 * z}, centers={"source": np.ones(6)}, shape=(2, 3)
    )
    images = [ax.images[0] for ax in figure.axes if ax.images]
    titles = [ax.get_title() for ax in figure.axes if ax.images]
    assert titles[:3] == ["source", "factual", "ε = 0"]
    shown = {t: np.asarray(i.get_array()) for t, i in zip(titles, images, strict=True)}
    np.testing.assert_array_equal(shown["ε = 1"].ravel(), 2 * z)
    moved = f"distance {np.linalg.norm(z):.3g}"
    np.testing.assert_array_equal(shown[moved].ravel(), z)
    limits = {i.get_clim() for t, i in zip(titles, images, strict=True) if "distance" in t}
    assert limits == {(-4.0, 4.0)}  # one scale, symmetric, for all differences


def test_images_that_do_not_fit_are_refused():
    for bad in (
        {"counterfactuals": {}},
        {"counterfactuals": {"a": np.zeros(3)}},
        {"counterfactuals": [np.zeros(4)]},
        {"counterfactuals": {"a": np.zeros(4)}, "shape": (3, 2)},
    ):
        with pytest.raises(of.DataError):
            plot_image_counterfactuals(np.zeros(4), **bad)
    with pytest.raises(of.DataError, match="shape"):
        plot_image_counterfactuals(np.zeros(5), {"a": np.zeros(5)})


@pytest.fixture
def apart():
    distances = np.array([[np.nan, 1.0, 4.0], [np.nan, 3.0, np.inf], [2.0, np.nan, np.inf]])
    return ClusterSeparability(np.array([0, 0, 1]), distances, 0.0)


def test_cells_are_the_matrix(apart):
    ax = plot_separability(apart, names=["a", "b", "c"])
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(shown, apart.matrix())
    assert {"2", "4", "×"} <= set(words(ax)) and "distance of rows" in " ".join(words(ax))
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b", "c"]
    assert plot_separability(apart, statistic=0.9).images
    with pytest.raises(of.DataError, match="names"):
        plot_separability(apart, names=["a"])
    with pytest.raises(of.DataError, match="explainer"):
        plot_separability(apart.matrix())


def overlaps(texts):
    boxes = [t.get_window_extent() for t in texts]
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_long_names_have_room(apart):
    """Cells stay as large as with short names, and labels of violins stand in lines."""
    sizes = []
    for names in (["a", "b", "c"], ["the first of the groups", "b", "c"]):
        ax = plot_separability(apart, names=names)
        ax.figure.canvas.draw()
        sizes.append(ax.get_window_extent().width)
    assert sizes[1] > 0.8 * sizes[0]
    ax = plot_distances({"short": [1.0, 2.0], "a name of many words that costs $ and more": [1.0]})
    ax.figure.canvas.draw()
    assert not overlaps(ax.get_xticklabels())


def test_violins_have_the_quartiles():
    rng = np.random.default_rng(0)
    given = {"many": rng.gamma(2.0, size=60), "few": [1.0, 2.0], "gone": [1.0, np.inf, np.nan]}
    ax = plot_distances(given, note="of 60")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["many", "few", "gone\n(2 left out)"]
    bar, middle = ax.lines[0].get_ydata(), ax.lines[1].get_ydata()
    np.testing.assert_allclose(bar, np.quantile(given["many"], [0.25, 0.75]))
    np.testing.assert_allclose(middle, np.median(given["many"]))
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), [1.0, 2.0])
    low, high = ax.collections[0].get_datalim(ax.transData).intervaly
    assert (low, high) == pytest.approx((given["many"].min(), given["many"].max()))
    log = plot_distances({"a": [0.0, 1.0, 10.0]}, log=True)
    assert log.get_yscale() == "log" and "(1 left out)" in log.get_xticklabels()[0].get_text()
    with pytest.raises(of.DataError, match="no distances"):
        plot_distances({"a": [np.nan]})
    with pytest.raises(of.DataError, match="no mapping"):
        plot_distances([1.0, 2.0])


def test_a_print_counts_the_pairs_it_leaves_out():
    distances = np.arange(1.0, 17.0).reshape(4, 4)
    lines = repr(ClusterSeparability(np.arange(4), distances, 0.0)).splitlines()
    assert sum(" to " in line and "(" in line for line in lines[2:]) == 8
    assert lines[-1] == "  ... and 4 more"  # of 12 pairs
