"""Pictures of counterfactual maps: the numbers, marks and words in them."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import optfair as of
from optfair.methods.group_counterfactuals.transport_map import TransportMap
from optfair.plots import plot_arrows, plot_counterfactual_front, plot_groups, plot_map

mpl.use("Agg")

X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
Z = X + np.array([1.0, 2.0])
SCORE = ([1.0, 1.0], -2.0)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_arrows_go_from_members_to_counterfactuals():
    ax = plot_arrows(X, Z, names=("income", "age"))
    arrows = [t for t in ax.texts if t.arrow_patch is not None]
    assert [tuple(a.xy) for a in arrows] == [tuple(z) for z in Z]
    assert [tuple(a.xyann) for a in arrows] == [tuple(x) for x in X]
    before, after = (c.get_offsets() for c in ax.collections)
    assert np.array_equal(before, X) and np.array_equal(after, Z)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("income", "age")
    assert any("mean squared distance 5" in t.get_text() for t in ax.texts)
    assert ax.get_aspect() == 1.0


def test_the_target_line_is_where_the_target_is():
    ax = plot_arrows(X, Z, score=SCORE, probability=0.8)
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines) == {"target: probability 0.8", "decision line"}
    for label, score in (("target: probability 0.8", np.log(4.0)), ("decision line", 0.0)):
        line = lines[label]
        (x, y), slope = line.get_xy1(), line.get_slope()
        for point in ((x, y), (x + 1, y + slope)):
            assert point[0] + point[1] - 2 == pytest.approx(score)


def test_one_line_where_the_target_is_the_decision():
    assert [line.get_label() for line in plot_arrows(X, Z, score=SCORE).lines] == ["target"]
    vertical = plot_arrows(X, Z, score=([2.0, 0.0], -1.0)).lines[0]
    assert np.asarray(vertical.get_xdata()).tolist() == [0.5, 0.5]


def test_more_features_are_named_not_drawn():
    rows = np.column_stack([X, X[:, :1]])
    ax = plot_arrows(rows, rows + 1, score=([1.0, 1.0, 1.0], 0.0), features=("x2", 0))
    assert ax.get_xlabel() == "x2" and not ax.lines  # a line in two of three features is none
    assert any("1 more feature not shown" in t.get_text() for t in ax.texts)


def test_many_members_share_the_arrows():
    rows = np.random.default_rng(0).normal(size=(400, 2))
    ax = plot_arrows(rows, rows + 1)
    assert sum(t.arrow_patch is not None for t in ax.texts) == 134
    assert len(ax.collections[0].get_offsets()) == 400


def test_a_frame_names_its_features():
    pd = importlib.import_module("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    ax = plot_arrows(frame, frame + 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")


def test_panels_have_one_scale():
    figure = plot_groups(X, {"K = 1.01": Z, "K = 5": 9.0 + 0 * Z}, score=SCORE, probability=0.8)
    left, right = figure.axes
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["K = 1.01", "K = 5"]
    assert left.get_xlim() == right.get_xlim() and left.get_xlim()[1] > 9.0
    (legend,) = figure.legends
    words = [t.get_text() for t in legend.get_texts()]
    assert words == ["members", "counterfactuals", "target: probability 0.8", "decision line"]


def test_long_titles_of_panels_are_cut():
    figure = plot_groups(X, {"word " * 20 + "end": Z, "b": Z})
    title = figure.axes[0].get_title(loc="left")
    assert len(title) == 36 and "…" in title and title.endswith("word end")


def test_bad_pictures():
    with pytest.raises(of.DataError, match="members and their counterfactuals"):
        plot_arrows(X, Z[:2])
    with pytest.raises(of.DataError, match="did you mean 'x1'"):
        plot_arrows(X, Z, features=("x0", "x11"))
    with pytest.raises(of.DataError, match="no feature 2"):
        plot_arrows(X, Z, features=(0, 2))
    with pytest.raises(of.DeclarationError, match="give two"):
        plot_arrows(X, Z, features="x0")
    with pytest.raises(of.DataError, match="one per feature"):
        plot_arrows(X, Z, names=("a",))
    with pytest.raises(of.DataError, match="0 panels"):
        plot_groups(X, {})
    with pytest.raises(of.DataError, match="not an affine map"):
        plot_map(np.eye(2))
    with pytest.raises(of.DataError, match="0 fronts"):
        plot_counterfactual_front([])


def cells(ax):
    return {(t.get_position()): t.get_text() for t in ax.texts if t.get_position()[1] in (0, 1)}


def test_map_in_standard_deviations():
    found = TransportMap(
        [[0.5, 0.3], [0.0, 1.0]],
        [3.0, 0.0],
        features=("a", "b"),
        mean=[2.0, 1.0],
        covariance=np.diag([4.0, 1.0]),
    )
    ax = plot_map(found)
    image = np.asarray(ax.images[0].get_array())
    # mean of a: 0.5*2 + 0.3*1 + 3 = 4.3, so 2.3 / 2 deviations; b enters a by 0.3 * 1 / 2
    assert image == pytest.approx(np.array([[1.15, -0.5, 0.15], [0.0, 0.0, 0.0]]))
    written = [t.get_text() for t in ax.texts[:4]]
    assert written == ["+1.15", "0.50", "0.15", "1.00"]
    assert ax.images[0].get_clim() == (-1.0, 1.0)
    plain = plot_map(found, standardized=False)
    assert np.asarray(plain.images[0].get_array())[0] == pytest.approx([2.3, -0.5, 0.3])
    assert [t.get_text() for t in plain.get_xticklabels()] == ["mean", "a", "b"]


def test_many_features_have_colours_only():
    d = 20
    ax = plot_map(TransportMap(0.9 * np.eye(d), np.zeros(d)))
    assert len([t for t in ax.texts if t.get_text().replace(".", "").isdigit()]) == 0


def front(**changes):
    given = {
        "label": "psd, sweep of K",
        "method": "sweep",
        "transport_cost": np.array([5.0, 3.0, 4.0, 2.0]),
        "distortion": np.array([0.0, 0.3, 0.35, 0.6]),
        "complete": True,
    }
    return SimpleNamespace(**{**given, **changes})


def test_front_of_cost_and_distortion():
    found = front(label="psd, NSGA-II", method="nsga2", complete=False)
    ax = plot_counterfactual_front([front(), found], references={"each by itself": (1.0, 0.9)})
    lines = [line for line in ax.lines if len(line.get_xdata()) == 3]
    for line in lines:  # (4.0, 0.35) is beaten
        assert np.asarray(line.get_xdata()).tolist() == [0.0, 0.3, 0.6]
        assert np.asarray(line.get_ydata()).tolist() == [5.0, 3.0, 2.0]
    assert [line.get_drawstyle() for line in lines] == ["default", "steps-post"]
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert words == ["psd, sweep of K", "psd, NSGA-II (interrupted)"]
    assert any("each by itself" in t.get_text() for t in ax.texts)
    assert ax.get_ylim()[0] == 0.0
    for odd in (None, 3, [1.0]):
        with pytest.raises(of.DataError, match="cannot be drawn"):
            plot_counterfactual_front(odd)
    with pytest.raises(of.DataError, match="no mapping"):
        plot_groups(X, Z)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(of.NotInstalled, match=r"optfair\[plot\]"):
        plot_arrows(X, Z)
