"""The cone program of a problem: names, and the way back from a point."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.cone_program import solve_cone_program
from optfair.compile.export import cone_program
from optfair.storage import read_archive

CONVEX = [
    "textbook/chebyshev_triangle",
    "textbook/minimum_variance",
    "textbook/smallest_ball",
    "textbook/max_cut_pentagon",
    "textbook/dice_entropy",
    "fair_clustering/german_bound",
]


@pytest.mark.parametrize("quadratic", [True, False])
@pytest.mark.parametrize("name", CONVEX)
def test_solution_of_the_arrays_is_one_of_the_problem(name, quadratic):
    instance = of.library.load(name)
    p = instance.problem()
    c = cone_program(p, quadratic=quadratic)
    assert quadratic or c.P.nnz == 0
    r = solve_cone_program(c.P, c.q, c.A, c.b, c.cones)
    values, multipliers = c.by_name(r.x, r.z)
    assert p.objective_value(values) == pytest.approx(instance.optimum.value, rel=1e-6, abs=1e-7)
    compiled = 0.5 * r.x @ (c.P @ r.x) + c.q @ r.x + c.offset
    sign = -1.0 if c.maximize else 1.0
    assert sign * compiled == pytest.approx(instance.optimum.value, rel=1e-6, abs=1e-7)
    known = p.solve("clarabel").multipliers
    affine = [n for n, t in p.constraints.items() if t.evidence.function == "affine"]
    for n in affine:
        assert multipliers[n].shape == np.shape(known[n])
    if name in ("textbook/minimum_variance", "textbook/dice_entropy"):  # the multipliers are unique
        for n in affine:
            assert multipliers[n] == pytest.approx(known[n], abs=1e-4)


def test_names_of_columns_and_rows_say_which_entry():
    x, M = cp.Variable(2, name="x"), cp.Variable((2, 2), name="M", symmetric=True)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(x[0] + cp.trace(M) + cp.norm(x - 1)),
            [M >> 0, x >= np.array([1.0, 2.0]), M[0, 1] == x[1], cp.norm(x) <= 5],
        ),
        ["psd", "lower", "link", "disk"],
    )
    c = cone_program(p)
    assert {"x[0]", "x[1]", "M[0,0]", "M[1,0]", "M[1,1]"} <= set(c.columns)
    assert len(set(c.columns)) == c.q.size and len(set(c.rows)) == c.b.size
    at = {name: j for j, name in enumerate(c.columns)}
    point = np.zeros(c.q.size)
    point[at["M[1,0]"]] = 7.0
    assert c.by_name(point)[0]["M"].tolist() == [[0.0, 7.0], [7.0, 0.0]]
    # row by row: the second entry of "lower" is x[1] >= 2
    row = c.rows.index("lower[1]")
    entry = c.A[[row], :].toarray().ravel()
    assert np.flatnonzero(entry).tolist() == [at["x[1]"]] and abs(c.b[row]) == 2.0
    link = c.A[[c.rows.index("link")], :].toarray().ravel()
    assert sorted(np.flatnonzero(link)) == sorted([at["M[1,0]"], at["x[1]"]])
    assert sum(r.startswith("psd[") for r in c.rows) == 3
    # epigraphs of norms, of the objective and of "disk"
    assert {r.partition("[")[0] for r in c.rows} >= {"cone 1", "cone 2"}


def test_integers_are_marked():
    p = of.library.load("textbook/knapsack").problem()
    c = cone_program(p)
    assert c.maximize and c.integer.all()


def test_files(tmp_path):
    p = of.library.load("textbook/minimum_variance").problem()
    c = cone_program(p)
    c.save(tmp_path / "p")
    record = read_archive(tmp_path / "p")[0]
    assert record["schema"] == 1 and record["rows"] == list(c.rows)
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["q"], c.q) and np.array_equal(arrays["A_data"], c.A.data)
    assert [k["kind"] for k in record["cones"]] == [k.kind for k in c.cones]
    with pytest.raises(of.DataError, match="exists"):
        c.save(tmp_path / "p")


def test_nonconvex_is_refused():
    with pytest.raises(of.UnsupportedProblem, match="'model'"):
        cone_program(of.library.load("textbook/trust_region").problem())
