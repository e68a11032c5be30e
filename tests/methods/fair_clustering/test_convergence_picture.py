"""The picture of convergence shows the numbers of the run."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import optfair as of
from optfair.plots import plot_convergence

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    return of.FairKMeans(3, n_init=3, random_state=0).fit(X[:300], groups=sex[:300])


def panels(ax):
    return ax, next(a for a in ax.figure.axes if a is not ax)


def test_it_shows_the_iterations_of_a_model(model):
    upper, lower = panels(plot_convergence(model))
    line = next(li for li in upper.lines if li.get_linestyle() == "-")
    np.testing.assert_array_equal(line.get_ydata(), model.history_)
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, model.n_iter_ + 1))
    gaps = next(li for li in lower.lines if li.get_linestyle() == "-")
    np.testing.assert_allclose(gaps.get_ydata(), np.maximum(model.gaps_, 1e-16))
    assert lower.get_yscale() == "log"
    note = "\n".join(t.get_text() for t in upper.texts)
    assert f"converged after {model.n_iter_} iterations at {model.objective_:.6g}" in note
    assert "where 2 other starts ended" in note


def test_other_starts_are_crosses_where_they_ended(model):
    upper, _ = panels(plot_convergence(model))
    crosses = next(li for li in upper.lines if li.get_marker() == "x").get_xydata()
    best = min(model.restarts_, key=lambda r: r.objective)
    others = sorted((r.n_iter, r.objective) for r in model.restarts_ if r is not best)
    np.testing.assert_allclose(sorted(map(tuple, crosses)), others)


def test_an_alternation(model):
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    run = of.fair_clustering.alternate(
        of.FairAssignment(X[:99], groups=sex[:99], centers=X[:2]), max_iter=2
    )
    upper, lower = panels(plot_convergence(run, title="Mine"))
    assert upper.get_title(loc="left") == "Mine"
    assert "stopped at max_iter" in upper.texts[0].get_text()
    assert "crosses" not in upper.texts[0].get_text()
    assert lower.get_ylabel() == "certified gap"


def fake(history, gaps, **rest):
    return SimpleNamespace(history_=np.array(history), gaps_=np.array(gaps), **rest)


def test_zero_gaps_stand_at_a_floor_and_say_so():
    _, lower = panels(plot_convergence(fake([3.0, 2.0, 1.0], [1e-6, 0.0, -1e-18])))
    rings = next(li for li in lower.lines if li.get_markerfacecolor() == "none")
    np.testing.assert_array_equal(rings.get_xydata(), [[2, 1e-16], [3, 1e-16]])
    assert "1e-16 or less, or 0" in lower.texts[0].get_text()
    _, lower = panels(plot_convergence(fake([3.0], [1e-6])))
    assert not any("rings" in t.get_text() for t in lower.texts)


def test_the_printed_algorithm_has_hard_cost_and_one_gap():
    model = fake([3.0, 2.0], [np.nan, 1e-3], algorithm="paper", status_="max_iter")
    upper, lower = panels(plot_convergence(model))
    assert upper.get_ylabel() == "cost (hard)"
    drawn = [tuple(p) for li in lower.lines for p in li.get_xydata()]
    assert set(drawn) == {(2.0, 1e-3)}


@pytest.mark.parametrize("free", [False, True])
def test_given_axes_are_split_in_place(free):
    figure = plt.figure()
    ax = figure.add_axes((0.2, 0.2, 0.5, 0.6)) if free else figure.subplots(1, 2)[0]
    box = ax.get_position().frozen()
    upper = plot_convergence(fake([3.0, 2.0], [0.0, 0.0]), ax=ax)
    lower = figure.axes[-1]
    assert upper is ax
    for panel in (upper, lower):
        inside = panel.get_position()
        assert inside.x0 == pytest.approx(box.x0) and inside.x1 == pytest.approx(box.x1)
        assert box.y0 - 1e-9 <= inside.y0 < inside.y1 <= box.y1 + 1e-9
    assert lower.get_position().y1 < upper.get_position().y0


@pytest.mark.parametrize(
    "model", [of.FairKMeans(), "k-means", fake([], []), fake([1.0, 2.0], [0.0])]
)
def test_nothing_to_draw(model):
    with pytest.raises(of.DataError, match=r"no iterations|belong together"):
        plot_convergence(model)
