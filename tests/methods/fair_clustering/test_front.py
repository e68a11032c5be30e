"""The front: one clustering per rule, monotone, from the best of own and neighbouring starts."""

from __future__ import annotations

import logging
import warnings
from typing import ClassVar

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.methods.fair_clustering import front as module
from optfair.methods.fair_clustering.fair_kmeans import FairKMeans
from optfair.methods.fair_clustering.front import Front, fairness_front
from optfair.plots import plot_front

EPS = (0.0, 0.1, 0.3, 2.0)


@pytest.fixture(scope="module")
def data():
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    return X[:300], sex[:300]


@pytest.fixture(scope="module")
def front(data):
    X, sex = data
    model = FairKMeans(4, n_init=2, random_state=0)
    return fairness_front(
        model, X, groups=sex, rules=[of.additive_gap(e) for e in (0.3, *EPS[::3], 0.1)]
    )


def test_numbers_are_those_of_the_labels(front, data):
    X, sex = data
    assert front.values.tolist() == list(EPS) and front.parameter == "eps"
    assert front.label == "additive gap" and front.complete and len(front) == 4
    counts = np.unique(sex, return_counts=True)[1]
    assert front.best_balance == pytest.approx(counts.min() / counts.max())
    for i in range(4):
        assert front.balance[i] == pytest.approx(metrics.balance(sex, front.labels[i]))
        assert front.cost[i] == pytest.approx(metrics.cost(X, front.centers[i], front.labels[i]))
    assert (front.gap <= 1e-9).all()
    assert front.soft_balance[0] == pytest.approx(front.best_balance, abs=1e-7)


def test_a_looser_rule_never_costs_more(front):
    assert (np.diff(front.objective) <= 1e-12 * front.objective[1:]).all()
    assert front.objective[0] > front.objective[-1]


def test_each_is_at_least_as_good_as_a_plain_fit(front, data):
    X, sex = data
    for i, e in enumerate(EPS):
        alone = FairKMeans(4, fairness=of.additive_gap(e), n_init=2, random_state=0)
        assert front.objective[i] <= alone.fit(X, groups=sex).objective_ + 1e-12


def test_rules_are_obeyed(data):
    X, sex = data
    rules = [of.balance(b) for b in (0.1, 0.3)]
    front = fairness_front(FairKMeans(4, n_init=1, random_state=0), X, groups=sex, rules=rules)
    assert front.values.tolist() == [0.3, 0.1] and front.parameter == "b"
    assert (front.soft_balance >= front.values - 1e-7).all()
    assert front.objective[0] >= front.objective[1]


class _Spy(FairKMeans):
    """Records where each fit starts; ends where a script says."""

    log: ClassVar[list] = []
    script: ClassVar[dict] = {}

    def fit(self, X, y=None, *, groups, sample_weight=None):
        start = None if isinstance(self.init, str) else float(np.asarray(self.init)[0, 0])
        e = self.fairness.eps
        self.log.append((e, start))
        # a center of (value) at cost (script); the first center is also its name
        cost, name = self.script[(e, start)]
        self.cluster_centers_ = np.full((2, 1), name)
        self.objective_ = self.cost_ = cost
        self.balance_, self.gap_ = 0.5, 0.0
        self.masses_, self.shares_ = np.full((2, 2), 0.25), np.array([0.5, 0.5])
        self.labels_, self.status_ = np.zeros(3, dtype=int), "converged"
        return self


def test_better_centers_of_a_looser_rule_travel_both_ways(monkeypatch):
    """Own starts; the tighter one's end; back from the looser one; and on to who is worse now."""
    monkeypatch.setattr(_Spy, "log", [])
    monkeypatch.setattr(
        _Spy,
        "script",
        {
            (0.0, None): (9.0, 1.0),
            (0.5, None): (8.0, 2.0),
            (0.5, 1.0): (8.5, 3.0),  # not better: the own one is kept
            (1.0, None): (9.0, 4.0),
            (1.0, 2.0): (7.0, 5.0),  # better, from the tighter rule
            (0.5, 5.0): (6.0, 6.0),  # better, from the looser rule: 1.0 is worse than it now
            (1.0, 6.0): (5.5, 7.0),
            (0.0, 6.0): (8.7, 8.0),
        },
    )
    rules = [of.additive_gap(e) for e in (0.0, 0.5, 1.0)]
    front = fairness_front(_Spy(2), np.zeros((3, 1)), groups=list("aab"), rules=rules)
    assert front.objective.tolist() == [8.7, 6.0, 5.5]
    assert front.centers[:, 0, 0].tolist() == [8.0, 6.0, 7.0]
    assert _Spy.log == list(_Spy.script)


def test_a_mapping_names_the_values(data):
    X, sex = data
    model = FairKMeans(3, n_init=1, random_state=0)
    rules = {0.1: of.additive_gap(0.2), 0.0: of.perfect_fairness()}
    front = fairness_front(model, X[:80], groups=sex[:80], rules=rules, label="FCA-C")
    assert front.values.tolist() == [0.0, 0.1]
    assert (front.parameter, front.label) == ("value", "FCA-C")
    shares = {lower: of.cluster_share(lower=lower) for lower in (0.3, 0.1)}
    front = fairness_front(model, X[:80], groups=sex[:80], rules=shares)
    assert front.values.tolist() == [0.3, 0.1]  # as given
    assert front.objective[0] >= front.objective[1]


def test_frame_and_repr(front):
    frame = front.to_frame()
    assert frame.columns.tolist() == ["eps", "objective", "cost", "balance", "soft_balance", "gap"]
    np.testing.assert_array_equal(frame["cost"], front.cost)
    text = repr(front)
    assert "4 clusterings; best found, not proven optimal" in text
    assert len(text.splitlines()) == 6
    assert f"{front.cost[1]:.6g}" in text.splitlines()[3]


def test_without_pandas(front, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(of.NotInstalled, match="pandas"):
        front.to_frame()


def test_it_is_drawn(front):
    ax = plot_front(front, best_balance=front.best_balance, soft=True)
    line = next(li for li in ax.lines if len(li.get_xdata()) > 2)
    assert set(line.get_ydata()) <= set(front.objective)
    assert any(t.get_text().startswith("ε = 0\n") for t in ax.texts)


def test_the_model_is_not_touched(data):
    X, sex = data
    model = FairKMeans(2, n_init=1, random_state=0)
    fairness_front(model, X[:60], groups=sex[:60], rules=[of.max_gap(0.1)])
    assert not hasattr(model, "labels_")
    assert model.init == "k-means"


def test_progress(data, capsys, caplog):
    X, sex = data
    rules = [of.additive_gap(e) for e in (0.0, 1.0)]
    arguments = {"groups": sex[:60], "rules": rules}
    fairness_front(FairKMeans(2, n_init=1, random_state=0), X[:60], **arguments)
    assert capsys.readouterr() == ("", "")
    with caplog.at_level(logging.INFO, logger="optfair"):
        fairness_front(FairKMeans(2, n_init=1, random_state=0, verbose=1), X[:60], **arguments)
    out, err = capsys.readouterr()
    assert out == "" and "front" in err and "3/3" in err


def test_interrupted_keeps_what_was_fitted(data, monkeypatch):
    X, sex = data
    fit, calls = FairKMeans.fit, []

    def interrupted(self, *args, **rest):
        calls.append(1)
        if (
            len(calls) == 4
        ):  # the second rule's first fit is the second call, the third's the fourth
            raise KeyboardInterrupt
        return fit(self, *args, **rest)

    monkeypatch.setattr(FairKMeans, "fit", interrupted)
    model = FairKMeans(2, n_init=1, random_state=0)
    rules = [of.additive_gap(e) for e in (0.0, 0.5, 1.0)]
    front = fairness_front(model, X[:60], groups=sex[:60], rules=rules)
    assert front.values.tolist() == [0.0, 0.5] and not front.complete
    assert "interrupted" in repr(front)
    calls[:] = [1, 1, 1]
    with pytest.raises(KeyboardInterrupt):
        fairness_front(model, X[:60], groups=sex[:60], rules=rules)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([], "empty"),
        (of.additive_gap(0.1), "no sequence"),
        ([of.additive_gap(0.1), of.balance(0.1)], "not of one kind"),
        ([of.balance(0.1), of.perfect_fairness()], "not of one kind"),
        ([of.cluster_share(lower=0.1)], "not of one kind"),
        ([of.perfect_fairness(), of.additive_gap(0.0)], "same eps twice"),
        ({"tight": of.additive_gap(0.1)}, "values of a sweep are numbers"),
        ([of.balance(0.9), of.balance(0.1)], "cannot be reached"),
    ],
)
def test_rules_that_are_no_sweep(data, rules, message):
    X, sex = data
    with pytest.raises(of.DeclarationError, match=message):
        fairness_front(FairKMeans(2, n_init=1), X[:60], groups=sex[:60], rules=rules)


def test_a_generator_would_give_every_rule_other_starts(data):
    X, sex = data
    model = FairKMeans(2, random_state=np.random.default_rng(0))
    with pytest.raises(of.DeclarationError, match="Generator"):
        fairness_front(model, X, groups=sex, rules=[of.additive_gap(0.1)])


def test_the_printed_algorithm_is_ranked_by_cost(data, monkeypatch):
    X, sex = data
    ranks = []

    class Seen(module.Ladder):
        def __init__(self, values, fit, rank):
            ranks.append(rank(_fitted(cost_=1.0, objective_=2.0)))
            super().__init__(values, fit, rank)

    monkeypatch.setattr(module, "Ladder", Seen)
    rules = [of.additive_gap(e) for e in (0.0, 0.4)]
    for algorithm in ("paper", "exact"):
        model = FairKMeans(2, n_init=1, random_state=0, algorithm=algorithm, max_iter=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            front = fairness_front(model, X[:80], groups=sex[:80], rules=rules)
        assert isinstance(front, Front) and np.isfinite(front.cost).all()
    assert ranks == [1.0, 2.0]


def _fitted(**attributes):
    model = FairKMeans(2)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model
