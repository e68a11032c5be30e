"""The tour runs, its numbers hold, its pictures are there."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.image import imread

import optfair as of
from optfair.cli.learning import demo


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour") / "made" / "by demo"
    return folder, demo(folder, quick=True)


def test_first_problem_is_solved_and_verified(tour):
    _, found = tour
    assert found["class"] == "LP"
    assert found["solver"] == "mass-dual"
    assert found["verified"] is True
    assert found["gap"] <= 1e-9
    assert found["bound"] <= found["objective"] * (1 + 1e-9)
    assert found["population_balance"] == pytest.approx(310 / 690)
    assert found["balance_soft"] == pytest.approx(310 / 690, abs=1e-7)


def test_composing(tour):
    _, found = tour
    composed = found["composed"]
    assert (composed["class"], composed["integral_class"]) == ("LP", "MILP")
    assert composed["verified"] is True
    assert composed["smallest_share"] >= 0.15 - 1e-9
    assert composed["objective"] >= found["objective"] - 1e-9


def test_alternation(tour):
    _, found = tour
    a = found["alternation"]
    assert a["status"] == "converged"
    assert a["cost_after"] < a["cost_before"] == pytest.approx(found["objective"])
    assert (np.diff(a["history"]) <= 0).all()
    assert a["verified"] is True and a["gap"] <= 1e-9
    assert a["balance_hard"] >= 0.44


def test_front(tour):
    _, found = tour
    eps, cost, balance = (np.array(found["front"][k]) for k in ("eps", "cost", "balance"))
    assert eps.size == 6
    assert cost[0] == pytest.approx(found["alternation"]["cost_after"], rel=1e-9)
    assert (np.diff(cost) <= 1e-9).all()
    slopes = np.diff(cost) / np.diff(eps)
    assert (np.diff(slopes) >= -1e-7).all()  # the optimum of an LP is convex in its right side
    assert balance[0] == pytest.approx(310 / 690, abs=1e-7)
    assert balance[-1] < 0.2


def test_pictures(tour):
    folder, found = tour
    assert found["files"] == [str(folder / n) for n in ("composition.png", "front.png")]
    for name in ("composition.png", "front.png"):
        picture = imread(folder / name)[..., :3]
        assert min(picture.shape[:2]) > 400
        assert picture.std() > 0.05


def test_it_prints_each_step(tmp_path, capsys):
    demo(tmp_path, quick=True)
    out = capsys.readouterr().out
    for part in (
        "FairAssignment: LP",
        "fairness: affine in Zero -> LP",
        "certificate  verified",
        "LP stays LP",
        "LP -> MILP because 'assignment' is integer",
        "Alternation: converged",
        str(tmp_path / "front.png"),
    ):
        assert part in out


def test_without_matplotlib_it_says_so_first(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(of.NotInstalled, match=r"optfair\[plot\]"):
        demo(tmp_path)
    assert not list(tmp_path.iterdir())
