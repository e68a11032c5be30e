"""Fair facility location against the enumeration of the sites that are open."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import optfair as of

FairFacilityLocation = of.fair_clustering.FairFacilityLocation


def drawn(seed: int, n: int = 12, m: int = 5) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    groups = np.array(["a", "b"])[np.arange(n) % 2]
    return rng.normal(size=(n, 2)) + (groups == "a")[:, None], groups, rng.normal(size=(m, 2))


def enumerated(D: Any, groups: Any, count: int, opening: Any, rule: Any, w: Any = None) -> float:
    """Return the least cost over all sets of sites of at most that size."""
    best = np.inf
    for size in range(1, count + 1):
        for some in combinations(range(D.shape[1]), size):
            costs = D[:, some] if size > 1 else np.repeat(D[:, some], 2, axis=1)
            if size == 1:  # all rows go there, and every rule on differences of groups holds
                value = float(np.average(costs[:, 0], weights=w))
            else:
                p = of.FairAssignment(costs=costs, groups=groups, fairness=rule, sample_weight=w)
                value = p.solve().objective
            best = min(best, value + float(opening[list(some)].sum()))
    return best


@pytest.mark.parametrize("rule", [of.perfect_fairness(), of.max_gap(0.2), of.balance(0.5), None])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_optimum_is_that_of_the_best_sites(rule: Any, unit: float) -> None:
    X, groups, sites = drawn(0)
    D = unit * np.square(X[:, None] - sites[None]).sum(axis=2)
    w = np.random.default_rng(1).random(len(X)) + 0.5
    opening = unit * np.array([0.3, 0.1, 0.2, 0.4, 0.0])
    p = FairFacilityLocation(
        costs=D,
        groups=groups,
        n_centers=2,
        opening_costs=opening,
        fairness=rule,
        sample_weight=w,
    )
    s = p.solve()
    assert s.objective == pytest.approx(enumerated(D, groups, 2, opening, rule, w), rel=1e-6)
    assert p.opened(s).size <= 2
    assert str(s.grade).startswith("reported by")
    proved = s.certificate.prove()
    assert proved and proved.verify()
    where = FairFacilityLocation(
        unit**0.5 * X,
        groups=groups,
        sites=unit**0.5 * sites,
        n_centers=2,
        opening_costs=opening,
        fairness=rule,
        sample_weight=w,
    )
    assert where.solve().objective == pytest.approx(s.objective, rel=1e-6)


def test_the_least_largest_distance_is_one_of_the_distances() -> None:
    X, groups, sites = drawn(2)
    D = np.square(X[:, None] - sites[None]).sum(axis=2)
    p = FairFacilityLocation(
        X, groups=groups, sites=sites, n_centers=2, goal="center", fairness=None
    )
    s = p.solve()
    radii = [D[:, some].min(axis=1).max() for some in combinations(range(5), 2)]
    assert s.objective == pytest.approx(min(radii), rel=1e-7)
    fair = p.with_constraints(fairness=of.max_gap(0.1)).solve()
    assert fair.objective >= s.objective - 1e-9
    whole = FairFacilityLocation(
        X, groups=groups, sites=sites, n_centers=2, goal="center", fairness=None, whole=True
    )
    assert whole.solve().objective == pytest.approx(min(radii), rel=1e-7)


def test_capacities_are_in_units_of_the_rows() -> None:
    X, groups, sites = drawn(3)
    tight = {"groups": groups, "sites": sites, "fairness": None}
    p = FairFacilityLocation(X, capacities=4.0, **tight)
    s = p.solve()
    masses = np.asarray(s["masses"]).sum(axis=0)
    assert masses.max() <= 4.0 / 12.0 + 1e-9
    assert (masses[np.setdiff1d(np.arange(5), p.opened(s))] <= 1e-9).all()
    assert s.objective > FairFacilityLocation(X, **tight).solve().objective + 1e-6
    same = FairFacilityLocation(X, capacities=8.0, sample_weight=np.full(12, 2.0), **tight)
    assert same.solve().objective == pytest.approx(s.objective, rel=1e-7)
    whole = FairFacilityLocation(X, capacities=4.0, whole=True, **tight)
    A = np.asarray(whole.solve()["assignment"])
    assert np.allclose(A, np.round(A), atol=1e-9) and A.sum(axis=0).max() <= 4.0 + 1e-9


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_centers": 0}, "n_centers=0 is not a number of centers"),
        ({"n_centers": 6}, "there are 5 sites"),
        ({"n_centers": 2, "capacities": 5.0}, "the 2 largest sum to 10, the rows weigh 12"),
        ({"capacities": [1.0, -1.0, 9.0, 9.0, 9.0]}, "capacities has a negative entry"),
        ({"opening_costs": [1.0, 2.0]}, "neither a finite number nor 5"),
        ({"goal": "mean"}, "unknown goal 'mean'"),
        ({"fairness": "fair"}, "not a rule"),
        ({"whole": 3}, "whole"),
    ],
)
def test_what_cannot_be_is_refused_before_work(wrong: dict[str, Any], words: str) -> None:
    X, groups, sites = drawn(4)
    with pytest.raises(of.OptfairError) as e:
        FairFacilityLocation(X, groups=groups, sites=sites, **wrong)
    assert words in str(e.value)
