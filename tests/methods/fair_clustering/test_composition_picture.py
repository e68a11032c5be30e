"""Pictures show the numbers the metrics give, and say what they show."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.plots import plot_composition

mpl.use("Agg")

GROUPS = np.repeat(["men", "other", "women"], [30, 10, 20])
SOFT = np.random.default_rng(2).dirichlet(np.ones(4), 60)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def widths(ax):
    """Return bar widths, groups by clusters."""
    return np.array([[bar.get_width() for bar in group] for group in ax.containers])


@pytest.mark.parametrize("soft", [False, True])
def test_bars_are_the_composition(soft):
    weights = np.random.default_rng(0).random(60)
    ax = plot_composition(GROUPS, SOFT, soft=soft, sample_weight=weights)
    expected = metrics.composition(GROUPS, SOFT, soft=soft, sample_weight=weights)
    np.testing.assert_allclose(widths(ax), expected)
    starts = np.array([[bar.get_x() for bar in group] for group in ax.containers])
    np.testing.assert_allclose(starts, np.vstack([np.zeros(4), expected.cumsum(axis=0)[:-1]]))
    assert ("soft" in ax.get_xlabel()) == soft


def test_composition_says_what_it_shows():
    ax = plot_composition(GROUPS, SOFT.argmax(axis=1), title="Mine")
    assert ax.get_title(loc="left") == "Mine"
    assert [t.get_text() for t in ax.get_yticklabels()] == [f"cluster {k}" for k in range(4)]
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == ["men (50% of all)", "other (17% of all)", "women (33% of all)"]
    dashed = sorted(line.get_xdata()[0] for line in ax.lines)
    np.testing.assert_allclose(dashed, [0.5, 40 / 60])
    texts = [t.get_text() for t in ax.texts]
    sizes = np.bincount(SOFT.argmax(axis=1), minlength=4) / 60
    for size in sizes:
        assert f"{size:.0%} of rows" in texts


def test_empty_cluster_is_drawn_as_empty():
    ax = plot_composition(["a", "b", "a", "b"], [0, 0, 2, 2])
    assert widths(ax)[:, 1].tolist() == [0.0, 0.0]
    assert "empty" in [t.get_text() for t in ax.texts]
    assert "nan%" not in [t.get_text() for t in ax.texts]


def test_labels_do_not_overlap():
    ax = plot_composition(GROUPS, SOFT)
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.texts if t.get_text()]
    boxes += [t.get_window_extent() for t in ax.get_yticklabels()]
    boxes.append(ax.get_legend().get_window_extent())
    boxes.append(ax.xaxis.label.get_window_extent())
    for i, box in enumerate(boxes):
        assert box.count_overlaps(boxes[i + 1 :]) == 0


def test_given_axes_are_used():
    _, ax = plt.subplots()
    assert plot_composition(GROUPS, SOFT, ax=ax) is ax


def test_long_and_odd_names_are_drawn_as_they_stand():
    names = np.array(["_hidden", r"$\bad$", "x" * 60, "middle aged people"])
    ax = plot_composition(np.tile(names, 15), SOFT)
    ax.figure.canvas.draw()
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert texts[0].startswith(r"\$\bad\$") and texts[1].startswith("_hidden")
    assert "x" * 29 + "…" + "x" * 10 in texts[3]
    legend = ax.get_legend().get_window_extent()
    assert legend.x1 <= ax.figure.bbox.x1


def test_too_many_groups():
    with pytest.raises(of.DataError, match="8 groups"):
        plot_composition(np.arange(16) % 8, np.arange(16) // 8)
