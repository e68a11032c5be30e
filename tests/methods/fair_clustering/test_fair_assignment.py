"""The declared fair assignment problem: evidence, data checks, generic = structured."""

from __future__ import annotations

import importlib
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of


def data(n: int = 40, K: int = 3, G: int = 2, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    groups = rng.permutation(np.arange(n) % G)
    X[groups == 0] += 0.8
    return X, groups, X[:K] + 0.1


def test_declared_evidence_is_what_analysis_finds() -> None:
    X, g, C = data()
    p = of.FairAssignment(X, groups=g, centers=C)
    assert str(p.problem_class) == "LP"
    assert p.certificate.verify()
    built, _, constraints = p.built(fresh=False)
    assert built.is_dcp() and all(c.is_dcp() for c in constraints.values())
    for name, t in p.constraints.items():
        assert t.shape == constraints[name].shape


def test_violations_agree_with_cvxpy() -> None:
    X, g, C = data()
    w = np.random.default_rng(1).random(40)
    p = of.FairAssignment(X, groups=g, centers=C, sample_weight=w)
    rng = np.random.default_rng(2)
    values = {"assignment": rng.normal(size=(40, 3)), "masses": rng.normal(size=(2, 3))}
    built, variables, constraints = p.built(fresh=True)
    for name, v in variables.items():
        v.value = values[name]
    for name, t in p.constraints.items():
        assert np.allclose(t.violation(values), np.abs(constraints[name].violation())), name
    assert p.objective_value(values) == pytest.approx(float(built.objective.value), rel=1e-12)


@pytest.mark.parametrize("metric", ["sqeuclidean", "l1", "lp", "precomputed"])
@pytest.mark.parametrize("G", [2, 3])
def test_objective_is_the_weighted_cost(metric: str, G: int) -> None:
    X, g, C = data(G=G)
    w = np.random.default_rng(1).random(40)
    D = {
        "sqeuclidean": ((X[:, None] - C) ** 2).sum(-1),
        "l1": np.abs(X[:, None] - C).sum(-1),
        "lp": (np.abs(X[:, None] - C) ** 3).sum(-1),
    }
    if metric == "precomputed":
        p = of.FairAssignment(costs=D["lp"], groups=g, sample_weight=w)
        expected = D["lp"]
    else:
        p = of.FairAssignment(X, groups=g, centers=C, sample_weight=w, metric=metric, p=3.0)
        expected = D[metric]
    A = np.random.default_rng(3).dirichlet(np.ones(3), 40)
    cost = (w[:, None] / w.sum() * A * expected).sum()
    assert p.objective_value({"assignment": A}) == pytest.approx(cost, rel=1e-12)
    s = p.solve()
    assert s.objective == pytest.approx(p.solve("highs").objective, rel=1e-9)


def test_without_fairness_every_row_goes_to_its_nearest_center() -> None:
    X, g, C = data(n=200)
    p = of.FairAssignment(X, groups=g, centers=C)
    s = p.without("fairness").solve()
    nearest = ((X[:, None] - C) ** 2).sum(-1).argmin(1)
    assert (s["assignment"].argmax(1) == nearest).all()
    assert of.FairAssignment(X, groups=g, centers=C, fairness=None).solve().objective == s.objective


@given(
    n=st.integers(6, 60),
    K=st.integers(1, 5),
    G=st.integers(2, 4),
    seed=st.integers(0, 10_000),
)
def test_a_vertex_splits_few_rows(n: int, K: int, G: int, seed: int) -> None:
    n, K = max(n, 2 * G), min(K, n)
    X, g, C = data(n=n, K=K, G=G, seed=seed)
    s = of.FairAssignment(X, groups=g, centers=C).solve()
    split = (s["assignment"].max(axis=1) < 1 - 1e-9).sum()
    assert split <= (K - 1) * (G - 1)


def test_labels_may_be_strings_and_frames_are_read() -> None:
    pandas = importlib.import_module("pandas")
    X, g, C = data()
    frame = pandas.DataFrame(X, columns=["a", "b"])
    names = np.array(["m", "f"])[g]
    p = of.FairAssignment(frame, groups=pandas.Series(names), centers=C)
    assert list(p.group_names) == ["f", "m"]
    same = of.FairAssignment(X, groups=1 - g, centers=C)
    assert p.solve().objective == pytest.approx(same.solve().objective, rel=1e-12)


def test_float32_and_lists_are_upcast() -> None:
    X, g, C = data()
    p = of.FairAssignment(X.astype(np.float32), groups=list(g), centers=C.tolist())
    assert p.cost.points.dtype == np.float64


def test_with_centers_keeps_rules_and_variables() -> None:
    X, g, C = data()
    p = of.FairAssignment(X, groups=g, centers=C).with_constraints(s=of.cluster_share(lower=0.2))
    q = p.with_centers(C + 1)
    assert q["masses"] is p["masses"] and list(q.constraints) == list(p.constraints)
    fresh = of.FairAssignment(X, groups=g, centers=C + 1)
    fresh = fresh.with_constraints(s=of.cluster_share(lower=0.2))
    assert q.solve().objective == pytest.approx(fresh.solve().objective, rel=1e-12)
    assert p.solve().objective != pytest.approx(q.solve().objective, rel=1e-3)


def test_declaring_two_million_rows_costs_nothing_of_size_n_k() -> None:
    import tracemalloc

    X = np.zeros((2_400_000, 1))
    X[:10, 0] = np.arange(10)
    g = np.zeros(2_400_000, dtype=np.int8)
    g[::2] = 1
    tracemalloc.start()
    p = of.FairAssignment(X, groups=g, centers=X[:10])
    assert str(p.problem_class) == "LP"
    assert "assignment 2400000x10" in repr(p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_400_000 * 10 * 8  # less than one n x K array


X0, G0, C0 = data(n=12, K=3)


def bad(**changes: Any) -> Any:
    return {"X": X0, "groups": G0, "centers": C0, **changes}


def with_entry(array: Any, value: float) -> Any:
    out = np.array(array, dtype=float)
    out.flat[3] = value
    return out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (bad(X=with_entry(X0, np.nan)), "X has 1 entries that are NaN or infinite"),
        (bad(X=with_entry(X0, np.inf)), "row 1, column 1"),
        (bad(centers=with_entry(C0, np.nan)), "centers has 1 entries"),
        (bad(X=X0[:, 0]), "1 dimension"),
        (bad(X=np.zeros((0, 2))), "empty"),
        (bad(X=[["a", "b"]] * 12), "not numbers"),
        (bad(groups=np.zeros(12)), "one group only"),
        (bad(groups=G0[:5]), "does not fit the rows"),
        (bad(groups=[None, *G0[1:]]), "missing labels"),
        (bad(groups=[np.nan, *G0[1:].astype(float)]), "missing labels"),
        (bad(groups=np.random.default_rng(0).normal(size=12)), "looks like a number"),
        (bad(centers=C0[:, :1]), "centers has 1 columns, the rows have 2"),
        (bad(centers=np.zeros((13, 2))), "13 clusters for 12 rows"),
        (bad(centers=None), "centers are missing"),
        (bad(sample_weight=np.full(12, -1.0)), "negative"),
        (bad(sample_weight=np.zeros(12)), "sums to zero"),
        (bad(sample_weight=np.ones(3)), "sample_weight does not fit"),
        (bad(sample_weight=(G0 == 0).astype(float)), "group 1 is empty"),
        (bad(sample_weight=np.where(G0 == 0, 1.0, 1e-300)), "its rows have weight 1e-300"),
        (bad(metric="euclid"), "unknown metric 'euclid'"),
        (bad(metric="lp", p=0.5), "at least 1"),
        (bad(metric="precomputed"), "needs costs"),
        (bad(costs=np.zeros((12, 3))), "not both"),
        (bad(X=None), "give rows X with centers"),
        (bad(X=None, costs=np.zeros((12, 3))), "centers are not used"),
        (bad(fairness=0.4), "fairness is a float"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bad_input_fails_before_any_work(arguments: Any, message: str) -> None:
    with pytest.raises((of.DataError, of.DeclarationError)) as failure:
        of.FairAssignment(**arguments)
    assert message in str(failure.value)
    assert failure.value.remedy or failure.value.evidence


@pytest.mark.parametrize("first, second", list(combinations(["share", "own", "cap"], 2)))
def test_integrality_turns_it_into_a_milp(first: str, second: str) -> None:
    X, g, C = data(n=16)
    p = of.FairAssignment(X, groups=g, centers=C, fairness=of.additive_gap(0.5))
    rules = {
        "share": of.cluster_share(lower=0.1),
        "own": p["masses"][0, 0] >= 0.05,
        "cap": cp.sum(p["masses"], axis=0) <= 0.6,
    }
    q = p.with_constraints({first: rules[first], second: rules[second]})
    h = q.with_integrality("assignment")
    assert str(h.problem_class) == "MILP"
    s = h.solve()
    assert set(np.unique(s["assignment"])) <= {0.0, 1.0}
    assert s.objective >= q.solve().objective - 1e-9
    assert "mass-dual" not in {s.solver}
    with pytest.raises(of.UnsupportedProblem, match="'assignment' is integer"):
        h.solve("mass-dual")
