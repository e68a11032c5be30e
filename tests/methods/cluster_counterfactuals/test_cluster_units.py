"""Rows in any units: the same counterfactuals, the same rules kept, and no refusal that is rounding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import nearest_in_polyhedron
from optfair.methods.cluster_counterfactuals.algorithms.several_quadrics import Several
from optfair.methods.cluster_counterfactuals.evidence import unreachable
from optfair.methods.cluster_counterfactuals.explanation import changed_entries
from optfair.methods.cluster_counterfactuals.partition import Partition

MEANS = np.array([[-2.014, 3.2047], [3.8434, -0.0324], [-1.8733, -1.1818]])
COVARIANCES = np.array(
    [
        [[1.2956, -0.48], [-0.48, 4.852]],
        [[1.4345, 1.1424], [1.1424, 1.3166]],
        [[2.3097, -0.7855], [-0.7855, 1.1211]],
    ]
)
ROW = np.array([2.1413, -1.9178])
UNITS = [1e-6, 1e-3, 1e3, 1e6, (1e-2, 1e2), (1e3, 1e-3)]


def gaussians(unit: Any) -> Any:
    u = np.broadcast_to(unit, 2)
    covariances = COVARIANCES * u[:, None] * u
    weights = np.full(3, 1 / 3)
    return SimpleNamespace(
        means_=MEANS * u, covariances_=covariances, weights_=weights, covariance_type="full"
    )


def explained(unit: Any, target: int, **options: Any) -> Any:
    """Return the counterfactual in units of 1: distances are weighted by the units."""
    u = np.broadcast_to(unit, 2)
    e = of.ClusterExplainer(gaussians(u), weights=1.0 / u**2, **options)
    c = e.explain(ROW * u, target=target).best
    assert c.valid and e.explain_many((ROW * u)[None], target).valid.all()
    return c, c.point / u


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("target", "options"), [(0, {}), (2, {}), (0, {"increasing": ["x1"]})])
def test_units_of_rows_change_nothing(unit: Any, target: int, options: dict[str, Any]) -> None:
    one, point = explained(1.0, target, **options)
    c, moved = explained(unit, target, **options)
    assert c.status == one.status == "optimal"
    assert c.distance == pytest.approx(one.distance, rel=1e-6)
    assert moved == pytest.approx(point, rel=1e-5, abs=1e-6)
    assert c.changed == one.changed
    assert c.solution["point"] / np.broadcast_to(unit, 2) == pytest.approx(moved, abs=1e-5)


def test_sizes_are_powers_of_two_and_one_where_features_are_alike() -> None:
    clusters = Partition.gaussian(MEANS, COVARIANCES)
    assert (np.log2(clusters.sizes) % 1.0 == 0.0).all() and np.ptp(clusters.sizes) == 0.0
    far = Partition.kmeans(MEANS * [1e-6, 1e6])
    assert far.sizes[1] / far.sizes[0] == pytest.approx(1e12, rel=1.0)
    flat = Partition.kmeans([[0.0, 0.0], [0.0, 3.0]])
    assert flat.sizes[0] == flat.sizes[1] == 2.0  # a feature in which no cluster differs
    rows, at = np.random.default_rng(0).normal(size=(20, 2)), far.sizes
    scores, scaled = far.scores(rows * at), far.in_sizes().scores(rows)
    assert scaled * at.max() ** 2 == pytest.approx(scores)
    same = far.boundary(0, 1, 0.1), far.in_sizes().boundary(0, 1, 0.1)
    assert same[1].value(rows) * at.max() ** 2 == pytest.approx(same[0].value(rows * at))
    assert same[1].linear


def test_a_gap_is_relative_to_the_distance_however_small() -> None:
    """In units of 1e-6 squared distances are 1e-12, and any point has an absolute gap of 1e-9."""
    clusters = Partition.gaussian(MEANS * 1e-6, COVARIANCES * 1e-12)
    sides = [clusters.boundary(k, 0) for k in (1, 2)]
    several = Several(sides, np.array([True, True]), None, least=1e-9 * clusters.sizes.max() ** 2)
    nearest = several.nearest(ROW * 1e-6)
    assert nearest is not None and nearest[2] <= 1e-9
    one = Several(
        [Partition.gaussian(MEANS, COVARIANCES).boundary(k, 0) for k in (1, 2)],
        np.array([True, True]),
        None,
    ).nearest(ROW)
    assert one is not None and nearest[0] * 1e6 == pytest.approx(one[0], rel=1e-6)


def test_a_bound_is_met_only_where_the_point_is_at_it() -> None:
    """Multipliers of bounds far away are small, not 0: the point stays where it is."""
    model = SimpleNamespace(
        means_=np.array(
            [
                [0.00100463, 0.00100513],
                [0.00099343, 0.0009382],
                [0.0010322, 0.00101428],
                [0.00097057, 0.00103657],
            ]
        ),
        covariances_=np.array([3.82696199e-11, 8.68502181e-11, 1.82288715e-11, 6.59540877e-11]),
        weights_=np.array([0.37504025, 0.20833334, 0.16662577, 0.25000064]),
        covariance_type="spherical",
    )
    y = np.array([0.00099238, 0.00095297])
    limits = {"lower": [0.00095632, 0.00092414], "upper": [0.00103821, 0.00104426]}
    e = of.ClusterExplainer(model, weights=[1e10, 1e10], **limits)
    for target in (0, 2, 3):
        c = e.explain_many(y[None], target)[0]
        assert c.status == "optimal"
        assert c.distance == pytest.approx(1e5 * np.linalg.norm(c.point - y), rel=1e-9)
        assert (c.point >= limits["lower"]).all() and (c.point <= limits["upper"]).all()


def test_normals_that_are_all_but_parallel_exclude_nothing() -> None:
    """Reached at x1 = 1008, for normals that differ by one part in a million in the metric."""
    model = SimpleNamespace(
        cluster_centers_=np.array([[-2, 0.005], [1.5, 0.04], [-4, 0.015], [-5.7, 0.035]])
    )
    e = of.ClusterExplainer(model, decreasing=["x0"], weights=[1.0, 1e4])
    many = e.explain_many([[-2.8, -0.03]], 1)
    assert many.status.tolist() == ["optimal"] and many.points[0, 1] > 1000.0
    assert e.predict(many.points).tolist() == [1]
    # weights whose normals do not cancel prove nothing, those that do exclude every point
    A = np.array([[1.0, 1e-9], [-1.0, 0.0]])
    wide = nearest_in_polyhedron(np.zeros((1, 2)), A, np.array([-1.0, 0.0]))
    assert wide.reached.all() or not wide.multipliers.any()
    A[0, 1] = 0.0
    none = nearest_in_polyhedron(np.zeros((1, 2)), A, np.array([-1.0, 0.0]))
    assert not none.reached.any() and (none.multipliers > 0.0).all()


def test_what_is_not_proved_is_not_called_infeasible() -> None:
    p = of.ClusterCounterfactual(Partition.gaussian(MEANS, COVARIANCES), factual=ROW, target=0)
    error = unreachable(p, np.ones(len(p.sides)))
    assert isinstance(error, of.SolverFailure) and "not proved" in str(error)


def test_bounds_are_measured_in_the_size_of_their_feature() -> None:
    p = of.ClusterCounterfactual(
        Partition.gaussian(MEANS * 1e-6, COVARIANCES * 1e-12),
        factual=ROW * 1e-6,
        target=0,
        increasing=["x0"],
    )
    (term,) = p.bounds
    values = {"point": ROW * 1e-6 - [1e-10, 0.0]}  # by 5e-5 of the row
    assert p.data_unit > 0.1 and term.violations(values, p.data_unit)[1] > 1e-5
    least = np.array([1e-6])
    assert changed_entries(np.zeros(1), np.array([1e-12]), least).all()
    assert not changed_entries(np.zeros(1), np.array([1e-12])).any()


def test_a_row_that_bounds_hold_where_it_is_is_out_of_reach() -> None:
    model = SimpleNamespace(cluster_centers_=np.array([[0.0], [1.0]]))
    e = of.ClusterExplainer(model, upper=[0.2], increasing=["x0"])
    for row in (0.2, 0.1):
        with pytest.raises(of.Infeasible) as error:
            e.explain([row], target=1)
        assert error.value.certificate is not None and error.value.certificate.verify()
    assert e.explain_many([[0.2], [0.1]], 1).status.tolist() == ["unreachable"] * 2
    with pytest.raises(of.DeclarationError, match="every feature is held"):
        of.ClusterExplainer(model, immutable=["x0"]).explain([0.2], target=1)


@pytest.mark.parametrize("target", [None, np.nan, "a", np.inf, 7, -1, 1.7, True, {}, [0, 1]])
def test_margins_are_to_a_cluster(target: Any) -> None:
    e = of.ClusterExplainer(SimpleNamespace(cluster_centers_=np.array([[0.0], [1.0]])))
    with pytest.raises((of.DeclarationError, of.DataError)):
        e.margins([[0.1]], target)
    assert e.margins([[0.1]], 1).shape == (1, 2)


@pytest.mark.parametrize(
    ("price", "options"),
    [(1e-12, {"max_changes": 2, "lower": -3.0, "upper": 3.0}), (1e-20, {"distance": "l1"})],
)
def test_prices_in_any_units(price: float, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    centers, row = rng.normal(size=(4, 4)), rng.normal(size=4)
    goal = int(np.square(centers - row).sum(axis=1).argsort()[2])

    def solved(unit: float) -> of.Solution:
        weights = np.array([1.0, 2.0, 3.0, 0.5]) * unit
        given = {"factual": row, "target": goal, "against": "all", "weights": weights}
        return of.ClusterCounterfactual.kmeans(centers=centers, **given, **options).solve()

    one, s = solved(1.0), solved(price)
    assert s.objective / price == pytest.approx(one.objective, rel=1e-6)
    assert s["point"] == pytest.approx(one["point"], abs=1e-4)


def test_counted_changes_of_unlike_prices_are_measured_by_the_least() -> None:
    given = {"centers": MEANS, "factual": ROW, "target": 0, "lower": -9.0, "upper": 9.0}
    p = of.ClusterCounterfactual.kmeans(**given, distance="changes", weights=[1e-6, 3.0])
    assert p.objective_unit == 1e-6


def test_densities_in_small_units_are_large() -> None:
    def solved(unit: float) -> of.Solution:
        given = {"covariances": np.full(2, unit**2), "factual": [0.0] * 3, "target": 1}
        means = [[0.0] * 3, [unit] * 3]
        p = of.ClusterCounterfactual.gaussian(
            means=means, density=0.05 / unit**3, prices=np.full(3, unit**-2), **given
        )
        return p.solve()

    assert solved(1e-6).objective == pytest.approx(solved(1.0).objective, rel=1e-6)
    with pytest.raises(of.DeclarationError, match="nowhere as dense as inf"):
        of.ClusterCounterfactual.gaussian(
            means=np.eye(2), covariances=[1.0, 1.0], factual=[0, 0], target=1, density=np.inf
        )


@pytest.mark.parametrize("unit", [1e-6, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("options", [{"distance": "changes"}, {"distance": "l1", "max_changes": 1}])
def test_counts_beside_small_units_leave_the_boundary_its_own(
    unit: float, options: dict[str, Any]
) -> None:
    """The boundary has a side of 4.5 unit^2, the counts sides of 1."""
    centers = np.array([[0, 0], [3.0, 0], [0, 4.0]]) * unit
    reach = 10.0 * unit * np.ones(2)
    p = of.ClusterCounterfactual.kmeans(
        centers=centers, factual=np.array([0.1, 0.2]) * unit, target=1, lower=-reach, upper=reach,
        **options,
    )  # fmt: skip
    s = p.solve()
    point = np.asarray(s["point"])
    to_own, to_target = (np.linalg.norm(point - c) for c in centers[:2])
    assert to_target <= to_own + 1e-6 * unit
    least = 1.0 if options["distance"] == "changes" else 1.4 * unit
    assert s.objective == pytest.approx(least, rel=1e-6)
