"""The nonconvex map: witness, bounds on its singular values, solutions to start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.features.feature_problem import immutable
from optfair.methods.group_counterfactuals.affine_maps import AffineMap, BiLipschitzMap, PSDMap
from optfair.methods.group_counterfactuals.transport_map import TransportMap


def problem(n: int = 6, d: int = 2, **given: Any) -> BiLipschitzMap:
    X = np.random.default_rng(0).normal(size=(n, d))
    options = {"score": (np.arange(d) + 1.0, 0.0), "threshold": 3.0, "K": 1.5, "k": 1.2, **given}
    return BiLipschitzMap(X, **options)


@pytest.mark.parametrize("d", [1, 2, 3, 10])
@pytest.mark.parametrize("K", [None, 1.0, 1.5])
def test_a_witness_says_that_it_is_not_convex(d: int, K: float | None) -> None:
    p = problem(d=d, K=K)
    assert str(p.problem_class) == "nonconvex QCQP"
    w = p.certificate
    assert w.verify()
    assert w.term == "contraction"


def test_the_witness_holds_on_children_it_fits() -> None:
    q = problem(d=3).with_constraints(stay=immutable(0))
    assert str(q.problem_class) == "nonconvex QCQP"


def test_lifted_maps_are_feasible_exactly_within_the_bounds() -> None:
    p = problem(d=3)
    rng = np.random.default_rng(1)
    U, V = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
    A = (U * [1 / 1.2, 1.0, 1.5]) @ V
    values = p.lift(TransportMap(A, [9.0, 9.0, 9.0]))
    assert max(t.relative_violation(values) for t in p.constraints.values()) <= 1e-9
    with pytest.raises(of.DataError, match="outside the bounds"):
        p.lift(TransportMap((U * [0.8, 1.0, 1.5]) @ V, np.zeros(3)))
    with pytest.raises(of.DataError, match="outside the bounds"):
        p.lift(TransportMap((U * [1.0, 1.0, 1.51]) @ V, np.zeros(3)))


def test_built_terms_are_those_that_are_evaluated() -> None:
    p = problem(d=3)
    rng = np.random.default_rng(2)
    values = {name: rng.normal(size=v.shape) for name, v in p.variables.items()}
    for name in ("contraction", "expansion"):
        built = p.constraints[name].build()
        swap = {v.name(): v for v in built.variables()}
        for n, v in swap.items():
            v.value = values[n]
        assert np.allclose(np.abs(built.violation()), p.constraints[name].violation(values))
        for v in swap.values():
            v.value = None


@pytest.mark.slow
def test_global_optimum_lies_between_the_convex_ones() -> None:
    p = problem()
    options = {"score": ([1.0, 2.0], 0.0), "threshold": 3.0}
    above = PSDMap(p.points, K=1.5, k=1.2, **options).solve(tolerance=1e-9)
    below = AffineMap(p.points, K=1.5, **options).solve(tolerance=1e-9)
    s = p.solve(time_limit=60.0, tolerance=1e-6)
    assert below.objective - 1e-6 <= s.bound <= s.objective <= above.objective + 1e-6
    g = p.map(s)
    assert g.expansion <= 1.5 + 1e-4 and g.contraction <= 1.2 + 1e-4


def test_bad_bounds() -> None:
    with pytest.raises(of.DeclarationError, match=r"k=0\.5 is not at least"):
        problem(k=0.5)
    with pytest.raises(of.DeclarationError, match="use AffineMap"):
        problem(k=None)
