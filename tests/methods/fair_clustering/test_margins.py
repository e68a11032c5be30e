"""Rules that compare groups by some of their attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import optfair as of


@pytest.fixture(scope="module")
def people() -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(0)
    n = 120
    groups = pd.DataFrame(
        {
            "sex": rng.choice(["female", "male"], n),
            "race": rng.choice(["black", "white", "a, b=c"], n),
            "young": rng.integers(0, 2, n),
        }
    )
    X = rng.normal(size=(n, 2))
    X[:, 0] += groups["sex"] == "female"
    X[:, 1] += groups["race"] == "black"
    return X, groups


@pytest.mark.parametrize(
    ("rules", "measured"),
    [
        ({"a": of.perfect_fairness(on="sex")}, {"sex": 0.0}),
        ({"a": of.max_gap(0.05, on=of.margin("race"))}, {"race": 0.05}),
        ({"a": of.additive_gap(0.1, on="race"), "b": of.max_gap(0.02, on="sex")}, {"sex": 0.02}),
        ({"a": of.balance(0.4, on=of.intersection("sex", "young"))}, {}),
        (
            {
                "a": of.fair_clustering.proportion(
                    lower={"black": 0.2}, upper={"white": 0.5}, on="race"
                )
            },
            {},
        ),
    ],
)
def test_the_fast_route_agrees_with_the_generic_one_and_the_rule_holds(
    people: Any, rules: dict[str, Any], measured: dict[str, float]
) -> None:
    X, groups = people
    p = of.FairAssignment(X, groups=groups, centers=X[:4], fairness=rules)
    s = p.solve()
    assert s.solver == "mass-dual" and s.grade.sound
    assert s.objective == pytest.approx(p.solve("highs").objective, rel=1e-7)
    free = p.without(*rules).solve().objective
    assert s.objective > free * (1.0 + 1e-6)  # the rule costs something
    for attribute, limit in measured.items():
        gap = of.metrics.max_gap(groups[attribute], s["assignment"], soft=True)
        assert gap <= limit + 1e-8


def test_a_rule_on_one_attribute_is_the_rule_on_groups_of_it_alone(people: Any) -> None:
    X, groups = people
    for rule in (of.max_gap, of.balance, of.additive_gap):
        both = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rule(0.5, on="sex"))
        alone = of.FairAssignment(X, groups=groups["sex"], centers=X[:3], fairness=rule(0.5))
        assert both.solve().objective == pytest.approx(alone.solve().objective, rel=1e-8)
    labels = (groups["sex"] + groups["race"] + groups["young"].astype(str)).to_numpy()
    every = of.FairAssignment(X, groups=groups, centers=X[:3])
    assert every.shares.size == len(set(labels)) == 12
    same = of.FairAssignment(X, groups=labels, centers=X[:3])
    assert every.solve().objective == pytest.approx(same.solve().objective, rel=1e-8)


@pytest.mark.slow
def test_estimators_take_frames_and_names_of_columns(people: Any) -> None:
    X, groups = people
    rules = [of.max_gap(0.02, on="sex"), of.max_gap(0.1, on="race")]
    whole = of.FairKMeans(3, fairness=rules, labels="hard", n_init=1, random_state=0)
    few = groups[:24]
    whole.fit(X[:24], groups=few)
    assert of.metrics.max_gap(few["sex"], whole.labels_) <= 0.02 + 1e-12
    assert of.metrics.max_gap(few["race"], whole.labels_) <= 0.1 + 1e-12
    assert whole.hard_labels_.exact
    model = of.FairKMeans(3, fairness=rules, n_init=1, random_state=0).fit(X, groups=groups)
    table = pd.DataFrame(X, columns=["x", "y"]).join(groups)
    named = of.FairKMeans(3, fairness=rules, n_init=1, random_state=0)
    named.fit(table, groups=["sex", "race", "young"])
    assert named.feature_names_in_.tolist() == ["x", "y"]
    assert named.objective_ == pytest.approx(model.objective_, rel=1e-12)
    again = named.predict(table, groups=["sex", "race", "young"])
    assert np.mean(again == named.labels_) > 0.95  # but for split rows
    streamed = of.FairKMeans(3, fairness=rules, n_init=1, random_state=0).fit_stream(
        X, groups=groups
    )
    split = np.flatnonzero(model.soft_assignment_.max(axis=1) < 1.0 - 1e-9)
    apart = np.flatnonzero(streamed.predict(X, groups=groups) != model.labels_)
    assert set(apart) <= set(split) and split.size < 10  # prices alone say nothing of these
    assert of.metrics.max_gap(groups["sex"], model.soft_assignment_, soft=True) <= 0.02 + 1e-8
    mixture = of.FairMixture(2, eps=None, rules={"by sex": rules[0]}, n_init=1, random_state=0)
    mixture.fit(X, groups=groups)
    parts = mixture.predict_proba(X, groups=groups)
    assert mixture.groups_.size == 12
    assert of.metrics.max_gap(groups["sex"], parts, soft=True) <= 0.02 + 1e-4


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda X, g: of.max_gap(0.1, on="sxe"), "no attribute 'sxe'"),
        (lambda X, g: of.max_gap(0.1, on=of.intersection("sex", "height")), "'height'"),
    ],
)
def test_attributes_that_are_not_there_are_named(people: Any, ask: Any, words: str) -> None:
    X, groups = people
    with pytest.raises(of.DeclarationError) as e:
        of.FairAssignment(X, groups=groups, centers=X[:3], fairness=ask(X, groups))
    assert words in str(e.value)


def test_values_that_never_meet_are_refused_before_work() -> None:
    X = np.arange(6.0)[:, None]
    groups = {"sex": list("ffmmff"), "race": list("bwbbwb")}
    with pytest.raises(of.DeclarationError, match=r"no row is sex=m, race=w") as e:
        of.FairAssignment(
            X, groups=groups, centers=X[:2], fairness=of.balance(0.1, on=("sex", "race"))
        )
    assert "margin('sex'), margin('race')" in str(e.value)
    assert repr(of.intersection(*np.array(["sex", "race"]))) == repr(of.intersection("sex", "race"))
    with pytest.raises(of.DeclarationError, match=r"(?s)one value only.*it is 'f' in every row"):
        of.FairAssignment(
            X,
            groups={"sex": ["f"] * 6, "race": list("bwbbwb")},
            centers=X[:2],
            fairness=of.balance(0.1, on="sex"),
        )


@pytest.mark.parametrize("on", [3, "", ("sex", "sex"), (), ["sex", 2]])
def test_what_names_no_attributes_is_refused(on: Any) -> None:
    with pytest.raises(of.DeclarationError, match="attributes"):
        of.max_gap(0.1, on=on)


def test_numbers_of_a_rule_on_a_margin_are_parameters(people: Any) -> None:
    X, groups = people
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=of.max_gap(0.3, on="sex"))
    tight = p.at(eps=0.01)
    assert repr(tight.rules["fairness"]) == "MaxGap(eps=0.01, on=Margin(attributes=('sex',)))"
    assert repr(of.max_gap(0.1)) == "MaxGap(eps=0.1)"
    anew = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=of.max_gap(0.01, on="sex"))
    assert tight.solve().objective == pytest.approx(anew.solve().objective, rel=1e-9)
