"""Fair facility location, and sites by prices, against the enumeration of the open sites."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.errors import UnsupportedProblem
from optfair.methods.fair_clustering.algorithms.site_tree import covering_sites
from optfair.methods.fair_clustering.site_prices import located_sites

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


@pytest.mark.sampled(2)
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
        ({"sites": np.zeros((3, 5))}, "sites has 5 columns"),
        ({"fairness": "fair"}, "not a rule"),
        ({"whole": 3}, "whole"),
        (
            {"whole": True, "capacities": 5.0, "sample_weight": [6.0] + [1.0] * 11},
            "row 0, which is to stay whole",
        ),
        (
            {"n_centers": 2, "fairness": [of.max_gap(0.5), of.cluster_share(upper=0.4)]},
            "their largest shares sum to 0.8",
        ),
        (
            {"n_centers": 2, "fairness": {"size": of.cluster_share(lower=0.1)}},
            "5 sites must hold rows",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_work(wrong: dict[str, Any], words: str) -> None:
    X, groups, sites = drawn(4)
    with pytest.raises(of.OptfairError) as e:
        FairFacilityLocation(X, **{"groups": groups, "sites": sites, **wrong})
    assert words in str(e.value)


# The bottleneck: no part of a row goes farther than the radius.


@pytest.mark.parametrize("rule", [None, of.max_gap(0.1), of.balance(0.5)])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_the_halved_radius_is_that_of_the_integer_program(unit: float, rule: Any) -> None:
    X, groups, sites = drawn(2)
    D = unit * np.square(X[:, None] - sites[None]).sum(axis=2)
    w = np.random.default_rng(2).random(len(X)) + 0.5
    w[3] = 0.0
    p = FairFacilityLocation(
        costs=D, groups=groups, n_centers=2, goal="bottleneck", fairness=rule, sample_weight=w
    )
    found = located_sites(p, gap=1e-9)
    assert found.verify() and found.gap == 0.0 and found.objective in D
    assert p.solve().objective == pytest.approx(found.objective, rel=1e-9)
    far = np.where(found.assignment[w > 0] > 0, D[w > 0], 0.0)
    assert far.max() == found.objective and found.sites.size <= 2
    plain = min(D[w > 0][:, c].min(axis=1).max() for c in combinations(range(5), 2))
    assert found.objective >= plain and (rule is not None or found.objective == plain)
    for change in (1 - 1e-9, 1 + 1e-9):  # just below nothing is left, just above there is a choice
        least = p.beyond(found.objective * change).solve()
        assert (least.bound > 1e-6) == (change < 1)


def test_a_rule_can_widen_the_radius_and_whole_rows_obey_the_same_one() -> None:
    X, groups, sites = drawn(2)
    more: dict[str, Any] = {"groups": groups, "sites": sites, "n_centers": 2}
    plain = located_sites(FairFacilityLocation(X, goal="bottleneck", fairness=None, **more))
    fair = located_sites(FairFacilityLocation(X, goal="bottleneck", **more))
    assert fair.objective > plain.objective * 1.1
    whole = FairFacilityLocation(X, goal="bottleneck", whole=True, **more).solve().objective
    center = FairFacilityLocation(X, goal="center", whole=True, **more).solve().objective
    assert whole == pytest.approx(center, rel=1e-7) and whole >= fair.objective * (1 - 1e-9)
    assert FairFacilityLocation(X, goal="center", **more).solve().objective <= whole * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_sites_cover_all_rows_or_none_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reach = rng.random((40, 9)) < 0.45
    for most in range(1, 7):
        sites, decided = covering_sites(reach, most)
        every = [c for c in combinations(range(9), most) if reach[:, c].any(axis=1).all()]
        assert decided and (sites is not None) == bool(every)
        if sites is not None:
            assert sites.size <= most and reach[:, sites].any(axis=1).all()


def test_radii_of_many_rows_are_excluded_by_covers() -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(500, 4)), rng.integers(0, 2, 500)
    p = FairFacilityLocation(
        X, groups=groups, sites=X[:40], n_centers=4, goal="bottleneck", fairness=of.max_gap(0.1)
    )
    found = located_sites(p, gap=1e-3, time_limit=60.0)
    assert found.gap <= 1e-3 and found.verify()
    assert "within reach" in str(found.conflict)
    above = p.radii()[np.searchsorted(p.radii(), found.objective) + 1]
    assert not replace(found, bound=float(above)).verify()


def test_a_changed_radius_is_not_verified() -> None:
    kinds = set()
    for seed in (14, 17):
        X, groups, sites = drawn(seed, 16, 6)
        p = FairFacilityLocation(
            X, groups=groups, sites=sites, n_centers=2, goal="bottleneck", fairness=of.max_gap(0.1)
        )
        found = located_sites(p)
        kinds.add(found.conflict is not None)
        radii = p.radii()
        at = np.searchsorted(radii, found.objective)
        for wrong in (
            replace(found, bound=float(radii[at + 1])),
            replace(found, objective=float(radii[at - 1])),
            replace(found, bound=found.bound * (1 - 1e-6)),
            replace(found, sites=found.sites[:1]),
            replace(found, conflict=None, row_prices=0.0 * found.row_prices),
        ):
            assert found.verify() and not wrong.verify()
        if found.conflict is None:
            continue
        # a tree of cases says nothing about a radius where its problem has a rule more
        narrow = p.beyond(radii[at])
        far = np.nonzero(narrow.data["cost"].matrix())
        with pytest.raises(of.errors.Infeasible) as refused:
            narrow.with_constraints(
                within=narrow["assignment"][far] == 0, more=cp.sum(narrow["assignment"]) <= 0
            ).solve()
        beyond = float(radii[at + 1])
        wrong = replace(found, bound=beyond, conflict=refused.value.certificate)
        assert refused.value.certificate.verify()
        assert f"radii below {beyond:.10g} are not excluded" in wrong.verify().reasons
    assert kinds == {True, False}


def test_a_bracket_that_time_cuts_short_is_a_bracket() -> None:
    X, groups, sites = drawn(7, 60, 12)
    p = FairFacilityLocation(X, groups=groups, sites=sites, n_centers=3, goal="bottleneck")
    short, whole = located_sites(p, time_limit=0.05), located_sites(p)
    assert short.verify() and short.bound <= whole.bound <= whole.objective <= short.objective


def test_a_radius_that_only_a_tree_excludes_is_verified() -> None:
    D = [
        [8.0, 7.0, 9.0, 11.0],
        [5.0, 12.0, 16.0, 3.0],
        [14.0, 4.0, 1.0, 10.0],
        [13.0, 6.0, 15.0, 2.0],
    ]
    rule = of.fair_clustering.proportion(lower={"a": 0.06, "b": 0.18})
    p = FairFacilityLocation(
        costs=D, groups=list("abab"), n_centers=2, goal="bottleneck", fairness=rule
    )
    found = located_sites(p)
    assert found.conflict is not None and found.gap == 0.0 and found.objective == 8.0
    assert found.verify()


# Sites by prices.


def more_drawn(unit: float = 1.0, n: int = 60, m: int = 6) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(5)
    groups = np.array(["a", "b"])[(rng.random(n) < 0.4).astype(int)]
    X, sites = rng.normal(size=(n, 2)) + (groups == "a")[:, None], rng.normal(size=(m, 2))
    return unit * np.square(X[:, None] - sites[None]).sum(axis=2), groups, rng.random(n) + 0.5, unit


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("rule", "unit"),
    [
        pytest.param(rule, unit, marks=[pytest.mark.slow] * (unit != 1.0 and i != 1))
        for i, rule in enumerate([None, of.max_gap(0.2), of.balance(0.3)])
        for unit in (1.0, 1e6, 1e-6)
    ],
)
def test_sites_are_the_best_and_their_bound_is_one(rule: Any, unit: float) -> None:
    D, groups, w, _ = more_drawn(unit)
    opening = unit * np.linspace(0.0, 0.1, 6)
    p = FairFacilityLocation(
        costs=D, groups=groups, n_centers=2, opening_costs=opening, fairness=rule, sample_weight=w
    )
    found = located_sites(p, gap=1e-3)
    best = enumerated(D, groups, 2, opening, rule, w)
    assert found.objective == pytest.approx(best, rel=1e-6)
    assert 0.85 * best <= found.bound <= best * (1.0 + 1e-9)
    assert found.verify()


def test_a_changed_answer_is_not_verified() -> None:
    D, groups, w, _ = more_drawn()
    p = FairFacilityLocation(
        costs=D, groups=groups, n_centers=3, fairness=of.max_gap(0.1), sample_weight=w
    )
    found = located_sites(p, gap=0.5)
    assert found.verify()
    A = found.assignment.copy()
    A[0] = np.roll(A[0], 1)
    for wrong in (
        replace(found, bound=found.bound * (1 + 1e-6)),
        replace(found, objective=found.objective * (1 - 1e-6)),
        replace(found, assignment=A),
        replace(found, sites=found.sites[:2]),
        replace(found, mass_prices=found.mass_prices + np.linspace(0, 1, 12).reshape(2, 6)),
    ):
        assert not wrong.verify()


def test_costs_that_count_as_no_optimum_are_refused_before_any_work() -> None:
    X, groups = 1e9 * np.arange(8.0)[:, None], list("abababab")
    for goal in ("median", "center", "bottleneck"):
        with pytest.raises(of.DataError, match="rows cost about"):
            FairFacilityLocation(X, groups=groups, n_centers=2, goal=goal)


def test_other_problems_are_refused() -> None:
    D, groups, *_ = more_drawn()
    for more, why in (
        ({"goal": "center"}, "largest cost"),
        ({"whole": True}, "as a whole"),
        ({"goal": "bottleneck", "opening_costs": 1.0}, "alone here, without 'opening'"),
        ({"goal": "bottleneck", "whole": True}, "as a whole"),
    ):
        with pytest.raises(UnsupportedProblem, match=why):
            located_sites(FairFacilityLocation(costs=D, groups=groups, **more))
    p = FairFacilityLocation(costs=D, groups=groups, goal="bottleneck")
    with pytest.raises(UnsupportedProblem, match="without 'soft fairness'"):
        located_sites(p.soften("fairness", weight=1.0))
    near = p.with_constraints(first=p["assignment"][0, 0] == 1.0)
    with pytest.raises(UnsupportedProblem, match="'first' is no rule on masses"):
        located_sites(near)


@pytest.mark.parametrize("seed", [35, 37, 179])
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_centers_under_capacities_are_proved_in_any_units(seed: int, unit: float) -> None:
    """Rows whose right-hand sides are 0 have no size but that of their terms, 1e12 here."""
    rng = np.random.default_rng(seed)
    X, sites = rng.normal(size=(5, 2)), rng.normal(size=(4, 2)) * 2
    p = of.fair_clustering.FairFacilityLocation(
        X * unit,
        groups=[0, 1, 0, 1, 1],
        sites=sites * unit,
        n_centers=3,
        capacities=rng.integers(2, 5, 4).astype(float) if seed < 100 else [3.0, 4.0, 2.0, 2.0],
        goal="center",
        fairness=of.perfect_fairness(),
    )
    proved = p.solve().certificate.prove()
    assert proved and proved.solution.grade.sound
    assert proved.solution.objective == pytest.approx(proved.solution.bound, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("unit", [1e-6, 1.0])
def test_sites_with_opening_costs_are_found_where_all_of_them_are_needed(seed, unit):
    """Prices open few sites, which may not hold the rows; where all do, others are left out again."""
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(10, 2)) * unit, np.arange(10) % 2
    opening = rng.uniform(0.0, 2.0, 4) * unit**2
    share = of.cluster_share(upper=0.5) if seed % 2 else of.cluster_share(lower=0.2)
    p = of.fair_clustering.FairFacilityLocation(
        X, groups=groups, sites=X[:4], fairness=share, opening_costs=opening
    )
    found = located_sites(p, gap=1e-7, time_limit=20.0)
    truth = p.solve("highs")
    assert found.verify()
    assert found.bound <= truth.objective * (1 + 1e-6)
    assert found.objective == pytest.approx(truth.objective, rel=1e-6)


def test_a_limit_is_written_with_what_is_open() -> None:
    X, groups, sites = drawn(3)
    rules = {"gap": of.max_gap(0.2), "share": of.cluster_share(lower=0.0, upper=0.6)}
    p = FairFacilityLocation(X, groups=groups, sites=sites, n_centers=3, fairness=rules)
    said = {k: t.latex for k, t in p.constraints.items()}
    assert said["gap"].endswith(r"\varepsilon\, y_k") and said["share.upper"].endswith(r"u_k\, y_k")
    assert not said["share.lower"].endswith("y_k")
    again = p.with_constraints(more=of.balance(0.1)).at(eps=0.3)
    assert again.constraints["gap"].latex == said["gap"] and again.solve().objective > 0.0
