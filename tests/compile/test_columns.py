"""Columns of variables that have fewer free entries than their shape."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.cvxpy_backend import columns_of
from optfair.compile.form import compile_problem


def shapes() -> dict[str, Any]:
    return {
        "S": cp.Variable((3, 3), symmetric=True, name="S"),
        "D": cp.Variable((3, 3), diag=True, name="D"),
        "W": cp.Variable((3, 3), sparsity=([0, 1], [1, 2]), name="W"),
        "z": cp.Variable((2, 2), name="z"),
    }


def mixed(integer: str) -> Any:
    """Maximise the sum of all entries, each at most a half-integer: rounding down is optimal."""
    v = shapes()
    total = sum(cp.sum(x) for x in v.values())
    bounds = [v["S"] <= 2.5, v["D"] <= 3.5, v["W"] <= 4.5, v["z"] <= 5.5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(total), bounds), ["s", "d", "w", "z up"])
    return p.with_integrality(integer)


@pytest.mark.parametrize("interface", ["CLARABEL", "SCS", "HIGHS", "OSQP"])
def test_columns_do_not_overlap_and_hold_the_entries(interface: str) -> None:
    v = shapes()
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(sum(cp.sum(x) for x in v.values())), [x >= 0 for x in v.values()])
    )
    compiled = compile_problem(p, interface)
    columns = compiled.form.columns
    assert {k: at.stop - at.start for k, at in columns.items()} == {"S": 6, "D": 3, "W": 2, "z": 4}
    covered = np.concatenate([np.arange(at.start, at.stop) for at in columns.values()])
    assert np.unique(covered).size == covered.size == 15
    rng = np.random.default_rng(0)
    x = rng.normal(size=compiled.form.q.size)
    values, _ = compiled.by_name(x, None)
    for name, place in compiled.places().items():
        inside = place >= 0
        assert (values[name][inside] == x[place[inside]]).all()
        assert (values[name][~inside] == 0.0).all()
        assert set(place[inside].tolist()) == set(range(columns[name].start, columns[name].stop))


@pytest.mark.parametrize("integer", ["S", "D", "W", "z"])
@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_integrality_is_put_on_the_right_columns(solver: str, integer: str) -> None:
    s = mixed(integer).solve(solver)
    assert not s.residuals().above(1e-6)
    best = {"S": 2.5 * 9, "D": 3.5 * 3, "W": 4.5 * 2, "z": 5.5 * 4}
    whole = {"S": 2.0 * 9, "D": 3.0 * 3, "W": 4.0 * 2, "z": 5.0 * 4}
    assert s.objective == pytest.approx(sum({**best, integer: whole[integer]}.values()))


def test_an_earlier_solution_finds_its_columns() -> None:
    p = mixed("D")
    s = p.solve("highs")
    compiled = compile_problem(p, "HIGHS")
    x, word = columns_of(compiled, s)
    assert word == "used" and x is not None
    again, _ = compiled.by_name(x, None)
    assert all(np.array_equal(again[k], s[k]) for k in p.variables)
    assert p.solve("highs", warm_start=s).options["warm_start"] == "used"


def test_the_terms_of_a_diagonal_variable_share_its_columns() -> None:
    D = cp.Variable((2, 2), diag=True, name="D")
    W = cp.Variable((2, 2), sparsity=([0, 1], [1, 0]), name="W")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(cp.trace(D) + cp.sum(W)),
            [cp.trace(D) <= 3, D[0, 0] <= 1, cp.sum(W) <= 5, W >= 0, cp.norm(W, "fro") <= 4.5],
        ),
        ["total", "first", "pair", "sign", "ball"],
    )
    dual = of.transforms.dualize(p)
    assert dual.problem.solve().objective == pytest.approx(8.0, abs=1e-5)
    back = dual.recover(dual.problem.solve())
    assert back.is_optimal(1e-5)
    assert np.trace(back["D"]) == pytest.approx(3.0, abs=1e-5)
