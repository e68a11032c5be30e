"""Rules on costs beside rules on masses: what cannot hold, and what is proved of rules that allow nothing."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair.errors import Infeasible
from optfair.methods.fair_clustering.mass_rules import compile_rules

fc = of.fair_clustering


def test_a_budget_that_only_barred_arcs_would_keep_is_refused_with_a_proof() -> None:
    X = np.concatenate([np.zeros((4, 1)), np.full((4, 1), 10.0)])
    arcs = np.zeros((8, 2), dtype=bool)
    arcs[:4, 0] = True
    rules = [fc.forbidden_arcs(arcs), fc.group_cost(1.0)]
    p = of.FairAssignment(X, groups=list("abab") * 2, centers=[[0.0], [10.0]], fairness=rules)
    with pytest.raises(Infeasible, match="costs at least 50 times its bound") as caught:
        p.solve("mass-dual")
    assert caught.value.certificate is not None
    assert bool(caught.value.certificate.verify())


def test_gaps_of_nothing_are_obeyed_up_to_the_rounding_of_masses() -> None:
    groups = np.arange(12) % 3
    p = of.FairAssignment(
        np.arange(12.0)[:, None], groups=groups, centers=[[0.0], [9.0]], fairness=of.max_gap(0.0)
    )
    rules = compile_rules(p)
    y, even = rules.feasible.copy(), np.full((3, 2), 1.0 / 6.0)
    own = np.ones(y.size, dtype=bool)
    own[rules.program.masses] = False
    assert own.any()
    y[own] = 1e-15
    assert rules.violation(y, even) <= 1e-14
    y[own] = 1e-6
    assert rules.violation(y, even) >= 1e-7
