"""Public collections, read exactly: Netlib against HiGHS's reader, SDPLIB and Maros-Mészáros."""

from __future__ import annotations

import importlib
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.formats.mps import read_mps

pytestmark = pytest.mark.collections

FOLDER = Path(os.environ.get("OPTFAIR_COLLECTIONS", ""))
#: what HiGHS drops on reading
SMALL = 1e-9
NETLIB = sorted(p.name for p in FOLDER.glob("netlib/*.mps.gz"))


def facts():
    with (FOLDER / "MANIFEST.toml").open("rb") as stream:
        return {f["name"]: f for f in tomllib.load(stream)["instance"]}


def by_highs(file):
    highspy = importlib.import_module("highspy")
    h = highspy.Highs()
    h.silent()
    assert h.readModel(str(file)) == highspy.HighsStatus.kOk
    return h.getLp()


def test_the_collection_is_there():
    assert len(NETLIB) == 46


@pytest.mark.parametrize("name", NETLIB or ["none"])
def test_netlib_is_read_as_highs_reads_it(name):
    file = FOLDER / "netlib" / name
    f, lp = read_mps(file), by_highs(file)
    if name != "forplan.mps.gz":  # its labels hold spaces, which HiGHS does not keep
        assert list(f.columns) == list(lp.col_names_)
        known = set(lp.row_names_)
        rows = [i for i, label in enumerate(f.rows) if label in known]
        assert [f.rows[i] for i in rows] == list(lp.row_names_)
    else:
        rows = np.flatnonzero(np.isfinite(f.row_lower) | np.isfinite(f.row_upper)).tolist()
    assert np.array_equal(f.cost, lp.col_cost_) and f.offset == lp.offset_
    assert np.array_equal(f.lower, lp.col_lower_) and np.array_equal(f.upper, lp.col_upper_)
    assert np.array_equal(f.row_lower[rows], lp.row_lower_)
    assert np.array_equal(f.row_upper[rows], lp.row_upper_)
    # bit for bit, but for entries it drops
    a = lp.a_matrix_
    theirs = sp.csc_array((a.value_, a.index_, a.start_), shape=(lp.num_row_, lp.num_col_))
    ours = sp.csc_array(f.A[rows, :])
    ours.data[np.abs(ours.data) <= SMALL] = 0.0
    ours.eliminate_zeros()
    for matrix in (ours, theirs):
        matrix.sort_indices()
    assert np.array_equal(ours.indptr, theirs.indptr)
    assert np.array_equal(ours.indices, theirs.indices)
    assert np.array_equal(ours.data, theirs.data)


@pytest.mark.parametrize("name", NETLIB or ["none"])
def test_netlib_becomes_few_terms_with_the_same_numbers(name):
    p = of.read(FOLDER / "netlib" / name)
    f = p.rows
    assert str(p.problem_class) == "LP" and list(p.variables) and len(p.variables) == 1
    families = len(p.arrays)
    assert len(p.constraints) <= 32 * 2 + 3 * min(families, 32)
    # every row and bound is in one term, with its label
    labels = [label for t in p.constraints.values() for label in t.labels()]
    assert len(set(labels)) == len(labels)
    sided = np.isfinite(f.row_lower).sum() + np.isfinite(f.row_upper).sum()
    sided -= (f.row_lower == f.row_upper).sum()
    bounds = np.isfinite(f.lower).sum() + np.isfinite(f.upper).sum() - (f.lower == f.upper).sum()
    assert len(labels) == sided + bounds
    # what the terms say at a point is what the arrays say
    x = np.random.default_rng(0).normal(size=len(f.columns))
    values = {next(iter(p.variables)): x}
    body = f.A @ x
    outside = np.maximum(np.maximum(f.row_lower - body, body - f.row_upper), 0.0)
    outside = np.concatenate([outside, np.maximum(np.maximum(f.lower - x, x - f.upper), 0.0)])
    stated = sum(float(t.violation(values).sum()) for t in p.constraints.values())
    assert stated == pytest.approx(outside.sum(), rel=1e-12)
    assert p.objective_value(values) == pytest.approx(f.cost @ x + f.offset, rel=1e-12)


@pytest.mark.parametrize("name", ["adlittle", "25fv47", "forplan", "boeing1", "capri"])
def test_optima_of_netlib(name):
    s = of.read(FOLDER / f"netlib/{name}.mps.gz").solve("highs", tolerance=1e-7)
    assert s.objective == pytest.approx(facts()[name]["optimum"], rel=1e-7)


def test_every_program_of_maros_and_meszaros_is_read():
    found = {}
    for file in sorted(FOLDER.glob("maros_meszaros/*.mat")):
        p = of.read(file)
        found[p.title] = str(p.problem_class)
    assert len(found) == 68
    others = {k for k, v in found.items() if v != "QP"}
    # the first is not convex; of the others, of order 10,000, the proof may be too coarse
    assert {"VALUES.mat"} <= others <= {"VALUES.mat", "CVXQP1_L.mat", "CVXQP3_L.mat"}
    assert {found[k] for k in others} <= {"unverified QP", "nonconvex QP"}


@pytest.mark.parametrize("name", ["HS118", "HS76", "DUALC2", "QADLITTL", "CVXQP1_S"])
def test_optima_of_maros_and_meszaros(name):
    s = of.read(FOLDER / f"maros_meszaros/{name}.mat").solve(tolerance=1e-7)
    assert s.objective == pytest.approx(facts()[name]["optimum"], rel=1e-6)


def test_every_program_of_sdplib_is_read():
    found = {}
    for file in sorted(FOLDER.glob("sdplib/*.dat-s.gz")):
        p = of.read(file)
        found[p.title] = str(p.problem_class)
    assert len(found) == 41 and set(found.values()) == {"SDP"}


@pytest.mark.parametrize("name", ["truss4", "truss2"])
def test_optima_of_sdplib(name):
    s = of.read(FOLDER / f"sdplib/{name}.dat-s.gz").solve("clarabel", tolerance=1e-5)
    # SDPLIB prints 7 digits
    assert s.objective == pytest.approx(float(facts()[name]["optimum"]), rel=1e-5)
