"""Pictures and tables of sparse counterfactuals: the numbers, marks and words in them."""

from __future__ import annotations

import importlib
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import optfair as of
from optfair.methods.sparse_counterfactuals.changed_cells import edit_directions, edit_table
from optfair.methods.sparse_counterfactuals.plots import plot_edits, plot_effect, plot_row_edits
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

mpl.use("Agg")

X = [[3.0, 1.0, 5.0], [4.0, 1.0, 5.0]]
R = [[2.0, 2.0, 5.0], [6.0, 1.0, 4.0]]
Z = [[2.0, 1.0, 5.0], [4.0, 1.0, 5.0]]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def frames():
    pd = importlib.import_module("pandas")
    before = pd.DataFrame(
        {"months": [36, 12], "home": ["rent", "own"], "income": [1200.5, 800.0]},
        index=["Ann", "Bo"],
    )
    after = before.assign(months=[24, 12], home=["own", "own"], income=[1200.5, 950.0])
    return before, after


# --- directions ---------------------------------------------------------------------------


def test_directions():
    assert edit_directions(X, R).tolist() == [[1, 2, 0], [2, 0, 1]]


def test_directions_of_categories_flags_and_mixed_columns():
    before = np.array([["a", 1, True], ["b", 2, False]], dtype=object)
    after = np.array([["b", 3, False], ["b", 1, False]], dtype=object)
    assert edit_directions(before, after).tolist() == [[3, 2, 3], [0, 1, 0]]


def test_polars_and_pandas_have_one_answer(frames):
    polars = importlib.import_module("polars")
    expected = [[1, 3, 0], [0, 0, 2]]
    assert edit_directions(*frames).tolist() == expected
    columns = [{c: f[c].tolist() for c in f} for f in frames]
    assert edit_directions(*(polars.DataFrame(c) for c in columns)).tolist() == expected


# --- the heat map -------------------------------------------------------------------------


def test_a_panel_shows_every_cell(frames):
    figure = plot_edits(X, {"all": R, "needed": Z}, features=["a", "b", "c"], rows=["p", "q"])
    first, second = figure.axes
    for ax, rows in ((first, R), (second, Z)):
        assert np.array_equal(ax.images[0].get_array(), edit_directions(X, rows).T)
        assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "c"]
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["all: 4 edits, 2.0 per row", "needed: 1 edit, 0.5 per row"]
    # the symbol of every edit at its cell, the number of edits of every feature at the right
    marks = {t.get_position(): t.get_text() for t in first.texts if t.get_text() in "▼▲◆"}
    assert marks == {(0, 0): "▼", (0, 1): "▲", (1, 0): "▲", (1, 2): "▼"}
    assert [t.get_text() for t in second.texts if t.get_text().isdigit()] == ["1", "0", "0"]
    assert [t.get_text() for t in second.get_xticklabels()] == ["p", "q"]


def test_the_legend_names_what_is_seen(frames):
    def words(figure):
        return [t.get_text() for t in figure.axes[-1].get_legend().get_texts()]

    assert words(plot_edits(X, {"needed": Z})) == ["lower"]
    before, after = frames
    assert words(plot_edits(before, {"all": after})) == ["lower", "higher", "other category"]


def test_a_long_title_leaves_room_for_the_counts():
    ax = plot_edits(X, {"word " * 20: R}).axes[0]
    assert "…" in ax.get_title(loc="left") and len(ax.get_title(loc="left")) < 45


def test_a_single_point_is_seen():
    ax = plot_effect({"one": [0.4]})
    assert ax.lines[0].get_marker() == "o" and ax.get_xlim() == (0.0, 1.0)


def test_many_rows_have_colours_only():
    x = np.zeros((60, 3))
    ax = plot_edits(x, {"all": x + 1}).axes[0]
    assert not [t for t in ax.texts if t.get_text() == "▲"]
    assert (ax.images[0].get_array() == 2).all()
    assert ax.get_xlabel() == "row"


def test_row_edits_stack_to_the_original_ones():
    ax = plot_row_edits(X, R, Z, rows=["p", "q"])
    kept, spared = ax.containers
    assert [p.get_height() for p in kept] == [1, 0]
    assert [p.get_height() for p in spared] == [1, 2]
    assert [p.get_y() for p in spared] == [1, 0]
    assert any("1 of 4 edits remain, 25%" in t.get_text() for t in ax.texts)


def test_a_row_with_more_edits_than_its_counterfactual_is_marked():
    ax = plot_row_edits(X, Z, R)
    (marks,) = (c for c in ax.collections if len(c.get_offsets()))
    assert np.asarray(marks.get_offsets()).tolist() == [[0, 1], [1, 0]]
    assert all(p.get_height() >= 0 for p in ax.patches)
    assert any("4 edits, the counterfactuals have 1" in t.get_text() for t in ax.texts)
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "edits of its own counterfactual" in legend


@pytest.mark.parametrize("rows", [None, ["a long name", "another one"]])
def test_the_legend_is_below_the_labels(rows):
    for ax in (plot_row_edits(X, R, Z, rows=rows), plot_edits(X, {"all": R}, rows=rows).axes[-1]):
        ax.figure.canvas.draw()
        legend = ax.get_legend().get_window_extent()
        words = [ax.xaxis.label, *ax.get_xticklabels()]
        assert legend.y1 < min(t.get_window_extent().y0 for t in words) and legend.y0 > 0


# --- along the budget ---------------------------------------------------------------------


def curve(ax, index):
    return tuple(np.asarray(v, dtype=float).tolist() for v in ax.lines[index].get_data())


def test_curves_are_steps_and_sparse_points_are_joined():
    ax = plot_effect({"first": [0.4, 0.2, 0.1]}, optimum=([0, 2], [0.4, 0.0]), levels=(0.5,))
    assert ax.lines[0].get_marker() == "o" and ax.lines[1].get_marker() == "None"
    best, first = ax.lines[0], ax.lines[1]
    assert first.get_drawstyle() == "steps-post" and best.get_drawstyle() == "default"
    assert curve(ax, 0) == ([0, 2], [0.4, 0.0]) and curve(ax, 1) == ([0, 1, 2], [0.4, 0.2, 0.1])
    # an effect of 50 % is half of the divergence without edits
    assert ax.lines[2].get_ydata()[0] == pytest.approx(0.2)
    assert any(t.get_text() == "effect 50%" for t in ax.texts)


def test_several_runs_have_a_mean_and_its_interval():
    runs = np.array([[0.4, 0.3, 0.1], [0.4, 0.1, 0.1], [0.4, 0.2, 0.1]])
    ax = plot_effect({"drawn": runs})
    assert curve(ax, 0)[1] == pytest.approx([0.4, 0.2, 0.1])
    (band,) = ax.collections
    half = 3.2905 * 0.1 / np.sqrt(3)  # 99.9 %: the normal quantile of 0.9995
    heights = band.get_paths()[0].vertices
    at_one = heights[heights[:, 0] == 1][:, 1]
    assert max(at_one) == pytest.approx(0.2 + half) or max(at_one) == pytest.approx(0.4)
    assert {round(float(v), 6) for v in at_one} >= {round(0.2 + half, 6), round(0.2 - half, 6)}
    assert any("99.9 % confidence" in t.get_text() for t in ax.texts)


def test_estimators_are_asked_for_the_divergence_on_the_axis():
    def model(rows):
        return 1.0 / (1.0 + np.exp(-np.asarray(rows)[:, 0]))

    cola = SparseCounterfactuals(model).fit(X - np.array([4.0, 0, 0]), np.array(R) + 2)
    ax = plot_effect({"COLA": cola}, divergence="median")
    assert curve(ax, 0)[1] == pytest.approx(cola.divergences("median"))
    assert ax.get_ylabel() == "median difference to the target"


def test_the_first_curve_stands_out_and_the_axis_may_end_early():
    ax = plot_effect({k: [0.4, 0.3, 0.9] for k in ("ours", "other")}, most_edits=1)
    other, ours = ax.lines[:2]
    assert ours.get_linewidth() > other.get_linewidth()
    assert ax.get_xlim() == (0, 1) and ax.get_ylim()[1] == pytest.approx(1.06 * 0.4)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["ours", "other"]


def test_words_leave_the_axes_their_room():
    runs = [[0.4, 0.3, 0.1], [0.4, 0.1, 0.1]]
    figure, axes = plt.subplots(1, 2, figsize=(13.2, 4.2), layout="constrained")
    for ax in axes:
        plot_effect({"a": runs[0], "b": runs}, optimum=([0, 2], [0.4, 0.0]), ax=ax)
    figure.canvas.draw()
    assert all(ax.get_position().width > 0.4 for ax in axes)


# --- the table ----------------------------------------------------------------------------


def test_a_table_marks_changed_cells_only(frames):
    table = edit_table(
        *frames,
        outputs=([0.2, 0.45], [0.55, 0.61]),
        output_name="chance",
        formats={"chance": ".0%", "income": ",.2f"},
        names={"home": "housing"},
        caption="What has to change",
    )
    assert str(table).splitlines() == [
        "What has to change",
        "Ann  months 36 → 24, housing rent → own  [chance 20% → 55%]",
        "Bo   income 800.00 → 950.00  [chance 45% → 61%]",
    ]
    html = table.html
    assert html.count("<del>") == html.count("↓") + html.count("↑") + html.count("→ <ins>own") == 3
    assert '<td class="lower"><del>36</del> ↓ <ins>24</ins></td>' in html
    assert '<td class="raised"><del>800.00</del> ↑ <ins>950.00</ins></td>' in html
    assert '<td class="other"><del>rent</del> → <ins>own</ins></td>' in html
    assert '<td class="same">1,200.50</td>' in html and '<th scope="col">housing</th>' in html
    assert repr(table) == "EditTable: 3 edits in 2 rows of 3 features"


def test_text_of_the_data_is_no_markup():
    table = edit_table(
        [["<b>x</b>"]], [["a & b"]], features=["<i>"], rows=["<script>"], caption="<"
    )
    for text in ("<b>x", "<i>", "<script>", "a & b"):
        assert text not in table.html
    assert "&lt;b&gt;x&lt;/b&gt;" in table.html and "a &amp; b" in table.html


def test_rows_without_edits_can_be_left_out():
    whole, edited = (edit_table(X, Z, only_edited=only) for only in (False, True))
    assert len(str(whole).splitlines()) == 2 and "1  no change" in str(whole)
    assert str(edited) == "0  x0 3 → 2"
    assert edited.html.count("<tr>") == 2  # its head and one row


def test_a_change_never_reads_as_none():
    x, z = [[10001.5, 0.5]], [[10001.5000001, 0.5]]
    assert str(edit_table(x, z)) == "0  x0 10001.5 → 10001.5000001"
    table = edit_table([[1200.4]], [[1200.1]], features=["income"], formats={"income": ".0f"})
    assert str(table) == "0  income 1200.4 → 1200.1"


def test_empty_text_is_said():
    assert str(edit_table([[""]], [["own"]])) == "0  x0 (empty) → own"


# --- bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plot_edits(X, {}), "no edited rows"),
        (lambda: plot_edits(X, R), "no edited rows"),
        (lambda: plot_edits(X, {"a": R[:1]}), "does not fit"),
        (lambda: plot_edits(X, {"a": R}, features=["a"]), "1 names for 3 features"),
        (lambda: plot_edits(X, {"a": R}, rows=["a"]), "1 labels for 2 rows"),
        (lambda: plot_edits([[np.nan]], {"a": [[1.0]]}), "missing"),
        (lambda: plot_row_edits(X, X, Z), "are the factuals"),
        (lambda: plot_row_edits(X, R, Z, rows=["a"]), "1 labels for 2 rows"),
        (lambda: plot_effect({}), "0 curves"),
        (lambda: plot_effect([0.4, 0.1]), "no mapping"),
        (lambda: plot_effect({"a": [0.4]}, divergence="max"), "unknown divergence"),
        (lambda: plot_effect({"a": [0.4, -0.1]}), "negative"),
        (lambda: plot_effect({"a": [0.4, np.nan]}), "a"),
        (lambda: plot_effect({"a": [[0.4, 0.1], [0.4]]}), "no row of numbers"),
        (lambda: plot_effect({"a": ([0, 1], [0.4])}), "do not fit"),
        (lambda: plot_effect({"a": [0.4]}, optimum=3), "no pair"),
        (lambda: plot_effect({"a": [0.4]}, levels=(1.5,)), "level is 1.5, not a positive"),
        (lambda: edit_table(X, Z, features=["a"]), "1 names for 3 features"),
        (lambda: edit_table(X, Z, names={"x9": "y"}), "names has no feature 'x9'"),
        (lambda: edit_table(X, Z, formats={"x9": ".0f"}), "formats has no feature 'x9'"),
        (lambda: edit_table(X, Z, outputs=([1.0], [1.0])), "outputs do not fit"),
        (lambda: edit_table(X, Z, outputs=3), "no pair"),
        (lambda: edit_table(X, Z, rows=["a"]), "1 labels for 2 rows"),
    ],
)
def test_bad_input(draw, words):
    with pytest.raises(of.DataError, match=words):
        draw()


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(of.NotInstalled, match="matplotlib"):
        plot_edits(X, {"a": R})
    with pytest.raises(of.NotInstalled, match="matplotlib"):
        plot_row_edits(X, R, Z)
    with pytest.raises(of.NotInstalled, match="matplotlib"):
        plot_effect({"a": [0.4, 0.1]})
    assert "<table" in edit_table(X, Z).html
