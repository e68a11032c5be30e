"""Tables of groups and linear scores become the problems they describe."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair.library.instance import construct

DATA = {
    "dataset": "german_credit",
    "groups": "credit_risk",
    "group": 2,
    "sample": {"rows": 50, "seed": 0},
    "columns": ["age_in_years", "credit_amount"],
    "score": [[1.0, -2.0], 0.5],
    "probability": 0.7,
}


def test_members_are_the_sampled_rows_of_the_group() -> None:
    p = construct("PSDMap", {**DATA, "K": 1.5}, "here")
    X, y = of.datasets.load("german_credit").numeric(
        "credit_risk", columns=DATA["columns"], standardize=True
    )
    chosen = np.sort(np.random.default_rng(0).choice(1000, 50, replace=False))
    assert p.points == pytest.approx(X[chosen][y[chosen] == "2"])
    assert p.features == ("age_in_years", "credit_amount")
    assert p.normal.tolist() == [1.0, -2.0]
    assert p.level == pytest.approx(np.log(0.7 / 0.3) - 0.5)


def test_explicit_members_need_no_data_set() -> None:
    table = {"X": [[0.0, 0.0], [3.0, 1.0]], "score": [[1.0, 0.0], -1.0]}
    assert construct("IndependentCounterfactuals", table, "here").solve().objective == 0.5


def test_mistakes_are_named() -> None:
    def without(key: str) -> dict[str, object]:
        return {k: v for k, v in DATA.items() if k != key}

    with pytest.raises(of.DeclarationError, match="no group"):
        construct("PSDMap", without("group"), "here")
    with pytest.raises(of.DataError, match="no row has 'credit_risk' = '3'"):
        construct("PSDMap", {**DATA, "group": 3}, "here")
    with pytest.raises(of.DeclarationError, match="score in"):
        construct("PSDMap", {**DATA, "score": 3.0}, "here")
    with pytest.raises(of.DeclarationError, match="unknown key 'bound'"):
        construct("PSDMap", {**DATA, "bound": 3.0}, "here")
    with pytest.raises(of.DeclarationError, match="unknown key 'K'"):
        construct("IndependentCounterfactuals", {**DATA, "K": 3.0}, "here")
