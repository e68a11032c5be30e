"""The pictures of fair mixtures show the numbers they are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optfair.errors import DataError
from optfair.methods.fair_mixtures.plots import plot_category_profiles, plot_mixture_front
from optfair.rows.frames import Columns

ONE = ([0.0, 0.1, 0.3], [4.0, 3.0, 2.0])
TWO = ([0.0, 0.2, 0.3], [5.0, 3.5, 1.0])


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_lines_are_medians_of_the_least_cost_and_bands_reach_from_least_to_most() -> None:
    ax = plot_mixture_front({"a": [ONE, TWO], "b": ONE})
    line = next(x for x in ax.lines if str(x.get_drawstyle()) == "steps-post")
    assert line.get_xdata().tolist() == [0.0, 0.1, 0.2, 0.3]
    # at 0.1 the second seed has nothing better than its fit at 0
    assert line.get_ydata().tolist() == [4.5, 4.0, 3.25, 1.5]
    assert len(ax.collections) == 1  # a lone seed has no band
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (1.0, 5.0)
    marks = [x for x in ax.lines if x.get_linestyle() == "None"]
    assert [len(m.get_xdata()) for m in marks] == [6, 3]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]


def test_higher_balance_is_fairer() -> None:
    ax = plot_mixture_front({"a": ([0.1, 0.3, 0.2], [2.0, 4.0, 5.0])}, measure="balance")
    (line,) = [x for x in ax.lines if x.get_drawstyle() == "steps-pre"]
    assert line.get_ydata().tolist() == [2.0, 4.0, 4.0]  # 0.2 is dearer than 0.3
    assert "balance" in ax.get_xlabel()


def test_there_is_no_line_where_a_seed_has_no_fit_as_fair() -> None:
    ax = plot_mixture_front({"a": [([0.0, 0.2], [3.0, 1.0]), ([0.1, 0.2], [2.0, 1.0])]})
    line = next(x for x in ax.lines if x.get_drawstyle() == "steps-post")
    assert line.get_xdata().tolist() == [0.1, 0.2]


def test_objects_and_references_are_drawn() -> None:
    sweep = SimpleNamespace(delta=[0.0, 0.2], balance=[0.4, 0.1], cost=[2.0, 1.0])
    both = {"path": sweep, "paths": [sweep, sweep]}
    ax = plot_mixture_front(both, measure="delta", references={"k-means": (0.3, 0.9)})
    assert "responsibilities" in ax.get_xlabel()
    sweep.delta_labels = [0.05, 0.25]
    assert plot_mixture_front(both).lines[0].get_xdata().tolist() == [0.05, 0.25]
    assert "k-means" in [t.get_text() for t in ax.texts]
    assert plot_mixture_front(both, measure="balance").get_xlim()[1] > 0.4


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no mapping": ([ONE], {}, "is not a mapping"),
    "none": ({}, {}, "0 methods are too few"),
    "many": ({str(i): ONE for i in range(7)}, {}, "7 methods are too many"),
    "lengths": ({"a": ([0.1], [1.0, 2.0])}, {}, "are not one sweep"),
    "no pair": ({"a": [([0.1],), ONE]}, {}, "is not a pair"),
    "no sweeps": ({"a": []}, {}, "has no sweeps"),
    "number": ({"a": 3}, {}, "'a' is an int"),
    "infinite": ({"a": ([0.1], [np.inf])}, {}, "NaN or infinite"),
    "negative": ({"a": ([-0.1], [1.0])}, {}, "out of range"),
    "order": ({"a": ([3.0], [0.4])}, {"measure": "balance"}, "in the order \\(balance, cost\\)"),
    "measure": ({"a": ONE}, {"measure": "gap"}, "unknown measure"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_sweeps_are_refused(kind: str) -> None:
    given, more, message = BAD[kind]
    with pytest.raises(DataError, match=message):
        plot_mixture_front(given, **more)


def mixture() -> SimpleNamespace:
    return SimpleNamespace(
        weights_=np.array([0.25, 0.75]),
        columns_=Columns(("age", "job", "home"), 3, (1, 2), ()),
        categories_=(np.array(["cook", "smith"]), np.array([0.0, 1.5, 2.0])),
        probabilities_=(
            np.array([[0.8, 0.2], [0.4, 0.6]]),
            np.array([[0.1, 0.1, 0.8], [0.5, 0.5, 0.0]]),
        ),
    )


def test_profiles_show_probabilities_beside_those_of_all_rows() -> None:
    ax = plot_category_profiles(mixture())
    texts = {t.get_position(): t.get_text() for t in ax.texts if t.get_text().isdigit()}
    assert [texts[j, 0] for j in range(3)] == ["50", "80", "40"]  # 0.25 * 0.8 + 0.75 * 0.4
    assert [texts[j, 4] for j in range(3)] == ["20", "80", "0"]
    colours = np.asarray(ax.images[0].get_array())
    assert colours[:, 0] == pytest.approx(0.0)
    assert colours[0] == pytest.approx([0.0, 0.3, -0.1])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["cook", "smith", "0", "1.5", "2"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["all\nrows", "0\n25%", "1\n75%"]


@pytest.mark.parametrize("column", ["home", 2])
def test_columns_are_chosen_by_name_or_position(column: Any) -> None:
    ax = plot_category_profiles(mixture(), columns=[column])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0", "1.5", "2"]


def test_what_has_no_categories_is_refused() -> None:
    model = mixture()
    with pytest.raises(DataError, match="no categorical column 'jib'"):
        plot_category_profiles(model, columns=["jib"])
    with pytest.raises(DataError, match="no categorical column 0"):
        plot_category_profiles(model, columns=[0])
    with pytest.raises(DataError, match="columns is empty"):
        plot_category_profiles(model, columns=[])
    model.columns_ = Columns(("age",), 1, (), ())
    with pytest.raises(DataError, match="has no categorical columns"):
        plot_category_profiles(model)
    with pytest.raises(DataError, match="has no probabilities_"):
        plot_category_profiles(object())
    model = mixture()
    model.categories_ = (model.categories_[0], np.arange(60.0))
    model.probabilities_ = (model.probabilities_[0], np.full((2, 60), 1 / 60))
    with pytest.raises(DataError, match="62 categories are too many"):
        plot_category_profiles(model)
