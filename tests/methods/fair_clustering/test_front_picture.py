"""The picture of the front: numbers, marks, and labels that hide nothing."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

import optfair as of
from optfair.plots import plot_front

mpl.use("Agg")

SWEEP = SimpleNamespace(
    label="additive gap",
    parameter="eps",
    values=[0.0, 0.2, 0.4],
    balance=[0.5, 0.3, 0.1],
    cost=[3.0, 1.5, 1.0],
    soft_balance=[0.45, 0.28, 0.12],
    objective=[2.9, 1.4, 0.9],
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def curve(ax, points):
    return next(line for line in ax.lines if len(line.get_xdata()) == points)


def words(ax):
    return "\n".join(t.get_text() for t in ax.texts)


def test_one_front():
    ax = plot_front(SWEEP, best_balance=0.5, units="m²")
    line = curve(ax, 3)
    np.testing.assert_array_equal(line.get_xdata(), [0.1, 0.3, 0.5])
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 1.5, 3.0])
    assert ax.get_ylabel() == "cost (m²)"
    assert "hard labels" in ax.get_xlabel()
    assert "ε = 0\ncost 3 (+200.0%), balance 0.500" in words(ax)
    assert "ε = 0.4\ncost 1, balance 0.100" in words(ax)
    assert "the population's balance, 0.500" in words(ax)
    assert ax.get_legend() is None
    low, high = ax.get_xlim()
    assert low < 0.1 and high > 0.5


def test_soft_takes_the_soft_numbers_of_a_front():
    ax = plot_front(SWEEP, soft=True)
    np.testing.assert_array_equal(curve(ax, 3).get_xdata(), [0.12, 0.28, 0.45])
    np.testing.assert_array_equal(curve(ax, 3).get_ydata(), [0.9, 1.4, 2.9])
    assert "soft assignment" in ax.get_xlabel()


def test_a_mapping_is_simple_use():
    ax = plot_front({"mine": ([0.1, 0.5, 0.3], [1.0, 3.0, 1.5])})
    np.testing.assert_array_equal(curve(ax, 3).get_xdata(), [0.1, 0.3, 0.5])
    assert "cost 3 (+200.0%), balance 0.500" in words(ax)
    assert "ε" not in words(ax)


def test_several_fronts_and_references():
    other = SimpleNamespace(label="balance", balance=[0.1, 0.4], cost=[1.1, 2.0])
    references = {"k-means": (0.08, 0.9), "FCA (paper)": (0.493, 3.2), "$x_1$": (0.3, 2.5)}
    ax = plot_front([SWEEP, other], references=references)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["additive gap", "balance"]
    np.testing.assert_array_equal(curve(ax, 2).get_ydata(), [1.1, 2.0])
    marks = {
        (line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "X"
    }
    assert marks == set(references.values())
    notes = {t.get_text(): t.xy for t in ax.texts if t.get_text()}
    assert notes["k-means"] == references["k-means"]
    assert notes[r"\$x_1\$"] == references["$x_1$"]  # drawn as it stands
    low, high = ax.get_ylim()
    assert low < 0.9 and high > 3.2


def test_dominated_points_are_hollow_and_off_the_line():
    ax = plot_front({"a": ([0.5, 0.4, 0.3, 0.1], [3.0, 3.5, 1.5, 1.0])})
    np.testing.assert_array_equal(curve(ax, 3).get_ydata(), [1.0, 1.5, 3.0])
    hollow = [
        line for line in ax.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())
    ]
    assert [line.get_xydata().tolist() for line in hollow] == [[[0.4, 3.5]]]
    assert "hollow" in words(ax)
    assert "hollow" not in words(plot_front(SWEEP))


def test_equal_points_do_not_dominate_each_other():
    ax = plot_front({"a": ([0.5, 0.1, 0.1], [3.0, 1.0, 1.0])})
    assert len(curve(ax, 3).get_xdata()) == 3


@pytest.mark.slow
def test_labels_cover_neither_points_nor_each_other():
    rng = np.random.default_rng(0)
    references = {
        f"method {i}": (float(b), float(c))
        for i, (b, c) in enumerate(
            zip(rng.uniform(0.3, 0.5, 7), rng.uniform(1.5, 3.0, 7), strict=True)
        )
    }
    ax = plot_front([SWEEP], references=references, best_balance=0.5)
    ax.figure.canvas.draw()
    notes = [t for t in ax.texts if t.get_text() in references]
    assert len(notes) == 7
    boxes = [Text.get_window_extent(t) for t in notes]
    points = ax.transData.transform(list(references.values()))
    for i, box in enumerate(boxes):
        assert box.count_overlaps(boxes[i + 1 :]) == 0
        assert not any(box.contains(*p) for p in points)
        assert ax.bbox.padded(3).containsx(box.x0) and ax.bbox.padded(3).containsx(box.x1)


@pytest.mark.parametrize(
    ("fronts", "message"),
    [
        ({"a": ([0.1, 0.5], [1.0])}, "not one sweep"),
        ({"a": ([0.1, 0.5], [1.0, np.nan])}, "NaN"),
        ({"a": ([1.0, 3.0], [0.1, 0.5])}, r"outside \[0, 1\]"),
        ({"a": 3.0}, "not a pair"),
        ({}, "too few"),
        ([SWEEP] * 7, "7 sweeps"),
        (3, "not a sweep"),
        (["front"], "not a sweep"),
    ],
)
def test_bad_sweeps(fronts, message):
    with pytest.raises(of.DataError, match=message):
        plot_front(fronts)


def test_swapped_reference():
    with pytest.raises(of.DataError, match="order"):
        plot_front(SWEEP, references={"k-means": (3.0, 0.1)})


def test_one_point_is_a_front():
    ax = plot_front({"a": ([0.4], [2.0])}, references={"b": (0.4, 2.0)})
    assert ax.get_ylim()[0] < 2.0 < ax.get_ylim()[1]


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(of.NotInstalled, match=r"optfair\[plot\]"):
        plot_front(SWEEP)
