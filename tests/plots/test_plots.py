"""Pictures show the numbers the metrics give, and say what they show."""

from __future__ import annotations

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.plots import plot_composition, plot_front

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
    _, (left, right) = plt.subplots(1, 2)
    assert plot_composition(GROUPS, SOFT, ax=left) is left
    assert plot_front([0, 1], [2, 1], [0.5, 0.1], ax=right) is right


def test_too_many_groups():
    with pytest.raises(of.DataError, match="8 groups"):
        plot_composition(np.arange(16) % 8, np.arange(16) // 8)


def test_front_draws_the_sweep_in_order_of_eps():
    ax = plot_front([0.4, 0.0, 0.2], [1.0, 3.0, 1.5], [0.1, 0.5, 0.3], best_balance=0.5, units="m²")
    curve = next(line for line in ax.lines if len(line.get_xdata()) == 3)
    np.testing.assert_array_equal(curve.get_xdata(), [0.5, 0.3, 0.1])
    np.testing.assert_array_equal(curve.get_ydata(), [3.0, 1.5, 1.0])
    assert ax.get_ylabel() == "cost (m²)"
    assert "soft" in ax.get_xlabel()
    texts = "\n".join(t.get_text() for t in ax.texts)
    assert "perfectly fair, ε = 0\ncost 3 (+200.0%), balance 0.500" in texts
    assert "plain, ε = 0.4\ncost 1, balance 0.100" in texts
    assert "balance of\nthe population" in texts
    low, high = ax.get_xlim()
    assert low < 0.1 and high > 0.5


def test_front_does_not_call_a_positive_eps_perfect():
    ax = plot_front([0.1, 0.4], [2.0, 1.0], [0.4, 0.1], soft=False)
    assert not any("perfectly" in t.get_text() for t in ax.texts)
    assert "hard labels" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (([0.0, 1.0], [1.0], [0.5, 0.1]), "not one sweep"),
        (([0.0], [1.0], [0.5]), "not one sweep"),
        (([0.0, 1.0], [1.0, np.nan], [0.5, 0.1]), "NaN"),
    ],
)
def test_bad_sweeps(sweep, message):
    with pytest.raises(of.DataError, match=message):
        plot_front(*sweep)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(of.NotInstalled, match=r"optfair\[plot\]"):
        plot_front([0, 1], [2, 1], [0.5, 0.1])
