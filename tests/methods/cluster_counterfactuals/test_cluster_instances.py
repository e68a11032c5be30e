"""Clusters from tables, and what the instances say about their optima."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

import optfair as of
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.partition import cluster_arguments
from optfair.registry import fact_files

FILES = {
    name.removeprefix("cluster_counterfactual/"): path
    for name, path in fact_files("problems").items()
    if name.startswith("cluster_counterfactual/")
}
FACTS = {name: tomllib.loads(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
OPTIMA = [name for name, facts in FACTS.items() if "optimum" in facts]
CONFLICTS = [name for name, facts in FACTS.items() if "infeasible" in facts]


def declared(name):
    return ClusterCounterfactual(**cluster_arguments(FACTS[name]["data"]))


def test_there_are_enough_of_every_class():
    assert len(FACTS) >= 10 and CONFLICTS
    assert {f["class"] for f in FACTS.values()} >= {"LP", "QP", "MILP", "MIQP", "nonconvex QCQP"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIMA)
def test_optimum_by_two_routes(name):
    p, known = declared(name), FACTS[name]["optimum"]
    assert str(p.problem_class) == FACTS[name]["class"] and p.certificate.verify()
    s = p.solve(known["certified_by"], tolerance=1e-8)
    assert not s.residuals().above(s.certificate.tolerance) and s.gap <= known["gap"]
    assert s.objective == pytest.approx(known["value"], rel=1e-7)
    for solver in known["checked_by"]:
        if p.integers and solver == "clarabel":
            continue  # it takes the relaxations of a search tree: `certify` does that
        assert p.solve(solver, tolerance=1e-7).objective == pytest.approx(known["value"], rel=1e-6)


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict_by_two_routes(name):
    p, known = declared(name), FACTS[name]["infeasible"]
    assert str(p.problem_class) == FACTS[name]["class"]
    for solver in (known["certified_by"], *known["checked_by"]):
        with pytest.raises(of.Infeasible) as e:
            p.solve(solver)
        assert e.value.certificate.verify()
        assert set(e.value.conflict) >= set(known["conflict"])


def test_the_points_solved_by_hand():
    assert declared("plane_pair").solve()["point"].tolist() == [2.0, 2.0]
    np.testing.assert_allclose(declared("plane_all").solve()["point"], [2.0, 1.5])
    z = declared("hard_case").solve()["point"]
    assert z @ z == pytest.approx(np.log(4.0) / (1.0 / 2.0 - 1.0 / 8.0))


def test_a_pair_ends_in_a_third_cluster():
    """What the instance against every cluster is there to show."""
    data = {**FACTS["iris_gaussian_all"]["data"], "against": "pair"}
    p = ClusterCounterfactual(**cluster_arguments(data))
    z = p.solve()["point"]
    assert int(p.clusters.labels(z)) not in (p.target, p.source)
    every = declared("iris_gaussian_all").solve()
    assert int(p.clusters.labels(every["point"])) == p.target


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"factual": [0.0]}, "no clusters"),
        ({"centers": [[0.0]], "means": [[0.0]]}, "both centers and means"),
        ({"means": [[0.0], [1.0]]}, "no covariances"),
    ],
)
def test_tables_without_clusters_are_refused(data, words):
    with pytest.raises(of.DeclarationError, match=words):
        cluster_arguments(data)
