"""Tables of mixtures become the projections they describe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import log_softmax

import optfair as of
from optfair.library.instance import construct

DATA: dict[str, Any] = {
    "dataset": "german_credit",
    "groups": "sex",
    "sample": {"rows": 50, "seed": 0},
    "columns": ["age_in_years", "credit_amount"],
    "centers": [[0.0, 0.0], [1.0, 0.5]],
    "precision": 0.8,
    "component_weights": [3.0, 1.0],
}


def test_densities_are_those_of_the_mixture() -> None:
    p: Any = construct("FairResponsibilities", DATA, "here")
    X, labels = of.datasets.load("german_credit").numeric(
        "sex", columns=DATA["columns"], standardize=True
    )
    chosen = np.sort(np.random.default_rng(0).choice(1000, 50, replace=False))
    logs = np.log([0.75, 0.25]) - 0.4 * cdist(X[chosen], DATA["centers"], "sqeuclidean")
    np.testing.assert_allclose(p.log_prob, log_softmax(logs, axis=1), atol=1e-12)
    assert p.group_names[p.data["groups"]].tolist() == labels[chosen].tolist()
    assert set(p.constraints) >= {"fairness"}


def test_explicit_densities_need_no_data_set() -> None:
    table = {"log_prob": [[2.0, 0.0], [0.0, 2.0]], "groups": ["a", "b"], "fairness": "none"}
    assert construct("FairResponsibilities", table, "here").solve().objective == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"precision": None}, of.DeclarationError, "no precision"),
        ({"precision": 0.0}, of.DataError, "precision"),
        ({"component_weights": [1.0]}, of.DataError, "2 centers"),
        ({"component_weights": [1.0, 0.0]}, of.DataError, "2 centers"),
        ({"centers": None}, of.DeclarationError, "no centers"),
        ({"colour": "red"}, of.DeclarationError, "unknown key 'colour'"),
    ],
)
def test_mistakes_are_named(changes: Any, error: Any, words: str) -> None:
    table = {k: v for k, v in {**DATA, **changes}.items() if v is not None}
    with pytest.raises(error, match=words):
        construct("FairResponsibilities", table, "here")


def test_projections_and_likelihood_are_in_the_library() -> None:
    names = [n for n in of.library.names() if n.startswith("fair_mixture/")]
    found = [of.library.load(n) for n in names]
    assert len(found) >= 6
    assert {i.model for i in found} == {"FairResponsibilities", "FairMixtureLikelihood"}
    for i in found:
        if i.optimum is not None:
            assert i.optimum.certified_by == "entropic-mass" and "clarabel" in i.optimum.checked_by
    by_hand = of.library.load("fair_mixture/two_soft_rows").optimum
    assert by_hand is not None and by_hand.value == pytest.approx(-np.log(0.6), rel=1e-12)


@pytest.mark.parametrize("name", ["fairness", "eps", "reg_covar", "n_jobs", "lam", "tol", "n_init"])
@pytest.mark.parametrize("value", [np.array([1, 2]), [1], "x"])
def test_arrays_and_words_are_no_settings(name: str, value: Any) -> None:
    with pytest.raises(of.DeclarationError, match=name):
        of.FairMixture(2, **{name: value}).fit(np.eye(4), groups=[0, 1, 0, 1])


@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_a_group_that_weighs_next_to_nothing_is_refused_before_work(eps: float) -> None:
    """Its fractions are lost beside those of others, and no E-step ended."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), np.array(list("abc") * 20)
    for light in (1e-50, 1e-10):
        w = np.where(groups == "b", light, 1.0)
        with pytest.raises(of.DataError, match="group 'b' weighs too little") as e:
            of.FairMixture(2, eps=eps).fit(X, groups=groups, sample_weight=w)
        assert "sample_weight" in str(e.value) and "of all rows" in str(e.value)
    for free in (None, {"size": of.cluster_share(upper=0.8)}):
        model = of.FairMixture(2, eps=None, rules=free, n_init=1, random_state=0)
        model.fit(X, groups=groups, sample_weight=w)
        assert model.status_ == "converged"
    w = np.where(groups == "b", 1e-6, 1.0)
    model = of.FairMixture(2, eps=eps, n_init=1, random_state=0)
    model.fit(X, groups=groups, sample_weight=w)
    assert model.delta_ <= eps + 1e-8 and model.status_ == "converged"


def test_two_groups_may_weigh_what_they_like_where_fractions_are_equal() -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), np.arange(60) % 2
    w = np.where(groups == 1, 1e-50, 1.0)
    model = of.FairMixture(2, eps=0.0, n_init=1, random_state=0)
    model.fit(X, groups=groups, sample_weight=w)
    assert model.delta_ <= 1e-8 and model.status_ == "converged"
