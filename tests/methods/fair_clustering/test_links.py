"""Links between rows: what is proved with rules that have auxiliaries, and units of uneven weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of

fc = of.fair_clustering


@pytest.mark.parametrize("rule", [of.max_gap(0.05), of.additive_gap(0.2)], ids=["max", "additive"])
def test_rows_kept_apart_are_proved_with_the_auxiliaries_of_their_own_masses(rule: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        X, pairs = rng.normal(size=(30, 2)), rng.permutation(30)[:8].reshape(4, 2)
        groups = np.concatenate([np.arange(4), rng.integers(0, 4, 26)])
        rules = [rule, fc.cannot_link(pairs)]
        p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rules)
        solution = p.solve("mass-dual")
        assert bool(solution.certificate.verify())
        assert solution.objective == pytest.approx(p.solve("highs").objective, rel=1e-7)


def test_units_whose_shares_of_groups_are_no_short_fractions_obey() -> None:
    X = np.array([[-0.2, 0.6], [-0.8, -0.9], [0.6, 0.6], [-0.4, 1.5], [0.0, 1.7], [0.1, 1.7]])
    p = of.FairAssignment(
        X,
        groups=[0, 2, 0, 1, 2, 2],
        centers=X[3:],
        sample_weight=[4.0, 3.0, 4.0, 3.0, 1.0, 5.0],
        fairness=[of.perfect_fairness(), fc.must_link([[0, 2], [2, 3]])],
    )
    solution = p.solve("mass-dual")
    assert bool(solution.certificate.verify())
    assert solution.objective == pytest.approx(p.solve("highs").objective, rel=1e-9)
