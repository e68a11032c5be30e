"""Rules on the point of a counterfactual: what they refuse, and that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.core.composition import model_term
from optfair.features.feature_problem import box
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.rules import (
    at_most_changes,
    least_density,
    one_hot,
    whole_numbers,
)

CENTERS = [[0.0, 0.0, 0.0], [3.0, 2.0, 1.0]]


def counterfactual() -> Any:
    return ClusterCounterfactual.kmeans(centers=CENTERS, factual=[0.0, 0.0, 1.0], target=1)


RULES = [at_most_changes(1), whole_numbers(0), one_hot(0, 1), least_density(0.1)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_refuse_problems_they_do_not_fit(rule: Any) -> None:
    p = of.FairAssignment(np.eye(4), groups=[0, 0, 1, 1], centers=np.eye(4)[:2])
    with pytest.raises(of.DeclarationError) as error:
        p.with_constraints(rule=rule)
    assert error.value.remedy


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: at_most_changes(-1), "not a whole number"),
        (lambda: at_most_changes(True), "not a finite number"),
        (whole_numbers, "names no feature"),
        (lambda: one_hot("a"), r"has 1 feature\(s\)"),
    ],
)
def test_rules_that_say_nothing(make: Any, message: str) -> None:
    with pytest.raises((of.DeclarationError, of.DataError), match=message):
        make()


def test_whole_features_and_groups_hold() -> None:
    p = counterfactual().with_constraints(
        bounds=box({0: (-5, 5), 1: (-5, 5), 2: (-5, 5)}), whole=whole_numbers("x0")
    )
    s = p.solve()
    assert s["point"][0] == pytest.approx(np.round(s["point"][0]), abs=1e-9)
    free = counterfactual().solve()
    assert s.objective >= free.objective - 1e-7
    q = counterfactual().with_constraints(group=one_hot("x1", "x2"))
    z = q.solve()["point"]
    assert sorted(np.round(z[1:], 6)) == [0.0, 1.0]
    # a rule goes with its variables
    assert set(q.without("group").variables) == {"point"}
    assert q.without("group").solve().solver == "half-space-projection"


def test_features_of_a_group_are_bounded_by_it_for_as_long_as_it_is_there() -> None:
    given = {"centers": CENTERS, "factual": [1.9, 0.0, 1.0], "target": 1}
    p = ClusterCounterfactual.kmeans(**given, immutable=["x0"], one_hot=["x1", "x2"], max_changes=2)
    assert p.solve()["point"].round(9).tolist() == [1.9, 1.0, 0.0]
    assert p.limits[1].tolist() == [1.9, 1.0, 1.0]
    assert p.without("changes", "one-hot 0").limits[1].tolist() == [1.9, np.inf, np.inf]


def test_changes_need_bounds_and_hold() -> None:
    with pytest.raises(of.DeclarationError, match="'x0', 'x1', 'x2'"):
        counterfactual().with_constraints(few=at_most_changes(1))
    bounded = counterfactual().with_constraints(bounds=box(dict.fromkeys(range(3), (-1.0, 1.9))))
    counts = []
    for most in (1, 2, 3):
        try:
            s = bounded.with_constraints(few=at_most_changes(most)).solve()
        except (of.Infeasible, of.SolverFailure):
            counts.append(None)
            continue
        moved = int((np.abs(s["point"] - bounded.factual) > 1e-6).sum())
        assert moved <= most
        counts.append(s.objective)
    # 3 z0 + 2 z1 + z2 >= 7: no feature alone gets there from (0, 0, 1)
    assert counts[0] is None and counts[1] is not None
    assert counts[1] >= counts[2] * (1.0 - 1e-6)
    assert counts[2] == pytest.approx(bounded.solve().objective, rel=1e-5)


@pytest.mark.parametrize("covariances", [[1.0, 1.0], [0.4, 2.0], [3.0, 0.5]])
def test_sides_are_evaluated_as_they_are_built(covariances: list[float]) -> None:
    p = ClusterCounterfactual.gaussian(
        means=[[0.0, 0.0], [3.0, 1.0]], covariances=covariances, factual=[0.2, -0.1], target=1
    )
    rng = np.random.default_rng(0)
    for term in p.sides:
        derived = model_term(term.name, term.build())
        for z in rng.normal(scale=3.0, size=(20, 2)):
            values = {"point": z}
            expected = derived.violation(values)
            np.testing.assert_allclose(term.violation(values), expected, rtol=1e-9, atol=1e-12)
        assert term.evidence.problem_class.family == derived.evidence.problem_class.family


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("near", [-4e-16, 0.0, 4e-16])
def test_the_largest_density_leaves_the_mean_alone(unit: float, near: float) -> None:
    """An ellipsoid of one point has no multipliers; bounds on every feature have."""
    means = np.array([[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]]) * unit
    spread = np.array([[2.0, 0.3], [0.3, 1.0]]) * unit**2
    peak = 1.0 / (2.0 * np.pi * np.sqrt(np.linalg.det(spread)))
    given: dict[str, Any] = {"means": means, "factual": means[0] + 0.1 * unit, "target": 1}
    given |= {"covariances": [np.eye(2) * unit**2, spread, np.eye(2) * unit**2 / 2.0]}
    for against in ("pair", "all"):
        p = ClusterCounterfactual.gaussian(against=against, **given)
        s = p.with_constraints(dense=least_density(peak * (1.0 + near))).solve()
        assert s.grade.word == "proved" and s.certificate.verify()
        np.testing.assert_allclose(s["point"], means[1], rtol=1e-9)
    with pytest.raises(of.Infeasible, match="'x0' exclude each other"):
        ClusterCounterfactual.gaussian(**given, density=peak, immutable=["x0"]).solve()
    # a little less is an ellipsoid again, and more is nowhere
    below = ClusterCounterfactual.gaussian(**given, density=peak * (1.0 - 1e-9)).solve()
    assert 0.0 < float(np.abs(below["point"] - means[1]).max()) <= 1e-4 * unit
    with pytest.raises(of.DeclarationError, match="nowhere as dense"):
        ClusterCounterfactual.gaussian(**given, density=peak * (1.0 + 1e-9))


def test_bounds_that_leave_one_point_of_the_target_are_no_conflict() -> None:
    p = ClusterCounterfactual.kmeans(centers=CENTERS, factual=[0.0, 0.0, 1.0], target=1)
    at = dict(enumerate(CENTERS[1]))
    q = ClusterCounterfactual.kmeans(
        centers=CENTERS, factual=p.factual, target=1, lower=at, upper=at
    )
    s = q.solve()
    assert s["point"].tolist() == CENTERS[1] and s.grade.word == "proved"
    assert s.objective == pytest.approx(13.0)
    with pytest.raises(of.Infeasible):
        outside = dict(enumerate([0.5, 0.0, 1.0]))
        ClusterCounterfactual.kmeans(
            centers=CENTERS, factual=p.factual, target=1, lower=outside, upper=outside
        ).solve()
