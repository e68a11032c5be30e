"""What errors suggest."""

from __future__ import annotations

import copy
import pickle

import cvxpy as cp
import pytest

import optfair as of
from optfair.errors import MOST_NAMES, kind_of, nearest


def test_names_that_are_near_are_suggested() -> None:
    assert nearest("clarabell", ["highs", "clarabel"]) == "did you mean 'clarabel'?"


def test_all_names_are_told_unless_they_are_many() -> None:
    assert nearest("zzz", ["b", "a"]) == "known names: a, b"
    many = [f"name{i:03}" for i in range(MOST_NAMES + 5)]
    assert nearest("zzz", many).endswith(f"{many[MOST_NAMES - 1]} and 5 more")


def test_types_are_named_with_their_article() -> None:
    made = [type(word, (), {})() for word in ("SVC", "Union", "Undecided", "FairKMeans", "Ridge")]
    named = [kind_of(value) for value in (1, "text", *made)]
    letters = ["an int", "a str", "an SVC", "a Union", "an Undecided", "a FairKMeans", "a Ridge"]
    assert named == letters


def test_a_table_is_named_by_either_word() -> None:
    """What has ``frame`` says so for ``to_frame`` and the other way round; other errors stay."""
    X = of.datasets.load("iris").numeric("species")[0]
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]), ["low"])
    s = p.solve()
    frames = (s, of.sensitivity(s), of.sweep(p, "low[0]", [0.0, 1.0]), of.datasets.load("iris"))
    for thing in frames:
        with pytest.raises(AttributeError, match=r"'to_frame'.*frame\(\)"):
            thing.to_frame()
        assert not hasattr(thing, "to_frame") and len(thing.frame())
    answer = of.ClusterExplainer(of.FairKMeans(2, random_state=0).fit(X, groups=X[:, 0] > 5.8))
    others = (
        of.compare_solvers({"p": p}, ["highs"]),
        answer.explain(X[0]),
        answer.explain(X[0]).best,
    )
    for thing in others:
        with pytest.raises(AttributeError, match=r"'frame'; its table is to_frame\(\)"):
            thing.frame()
        again = pickle.loads(pickle.dumps(thing.to_frame()))
        assert len(again) == len(copy.copy(thing).to_frame())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = others[0].nothing
