"""Programs with smaller blocks: the same slacks and multipliers, seen on the face."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs import check_proof
from optfair.proofs.cones import Cone
from optfair.proofs.faces import Face
from optfair.proofs.narrowed import Narrowed
from optfair.proofs.portable import _edge, declared, form_record, leaves_of, plain
from optfair.solution.conic_form import ConicForm


def partition(n: int = 6) -> of.Problem:
    """Bound a cut into halves, t free, beside a bound on y: multipliers are on the face Ze = 0."""
    cut = np.triu(np.random.default_rng(n).integers(0, 3, (n, n)), 1) * -1.0
    y, t = cp.Variable(n, name="y"), cp.Variable(name="t")
    rows = [y <= 9, cut + cut.T - cp.diag(y) - t * np.ones((n, n)) >> 0]
    return of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), rows))


def narrowed(form: ConicForm, z: Any) -> Narrowed | None:
    return Narrowed.of(form, z, *declared(form))


@pytest.fixture(scope="module")
def solved() -> tuple[ConicForm, Any, Any]:
    """A program, a point, and multipliers of it."""
    proof: Any = partition().solve(tolerance=1e-6).proof
    return proof.compiled.form, proof.x, proof.z


def test_slacks_and_prices_are_those_of_the_program(solved: Any) -> None:
    form, x, z = solved
    small = narrowed(form, z)
    assert small is not None
    (start,) = small.bases
    row, V = small.bases[start]
    (c,) = (c for c in form.cones if c.kind == "psd")
    (inner,) = (c for c in small.form.cones if c.kind == "psd")
    assert (row, start) == (c.start, inner.start) and V.shape == (6, 5) and inner.order == 5
    # rows of the smaller block are the entries of V'SV
    plain_form, factors = declared(form)
    s, less = plain_form.b - plain_form.A @ x, small.form.b - small.form.A @ x
    i, j = c.places
    S = np.zeros((6, 6))
    S[i, j] = S[j, i] = s[c.start : c.stop]
    p, q = inner.places
    assert np.allclose(less[inner.start : inner.stop], (V.T @ S @ V)[p, q], atol=1e-9)
    # every other row is where it was, and what multipliers leave over is the same but for rounding
    others = np.flatnonzero(small.rows >= 0)
    assert np.array_equal(less[others], s[small.rows[others]])
    assert np.array_equal(small.z[others], (factors * z)[small.rows[others]])
    assert np.abs(small.form.A.T @ small.z - plain_form.A.T @ (factors * z)).max() <= 1e-6
    assert small.z @ small.form.b == pytest.approx((factors * z) @ plain_form.b, abs=1e-5)


def test_steps_of_a_leaf_are_of_rows_that_the_program_has(solved: Any) -> None:
    form, _, z = solved
    small = narrowed(form, z)
    assert small is not None
    m = form.b.size
    at = {int(i): k for k, i in enumerate(small.rows) if i >= 0}
    inner = int(np.flatnonzero(small.rows < 0)[0])
    values = list(range(1, small.rows.size + 1))
    record = {"against": "objective", "multipliers": values}
    for own, whole in ((at[0], 0), (at[5], 5), (small.rows.size, m)):
        made = small.whole(record | {"steps": [[own, 3, 1, 9]]}, m)
        assert made is not None and made["steps"] == [[whole, 3, 1, 9]]
        assert made["against"] == "objective" and len(made["multipliers"]) == m
        for i, k in at.items():
            assert made["multipliers"][i] == values[k]
        ((row, lines, W),) = made["faces"]
        assert [values[k] for k in np.flatnonzero(small.rows < 0)] == W
        V = np.zeros((6, 5))
        for k, line in enumerate(lines):
            V[[i for i, _ in line], k] = [v for _, v in line]
        assert row == next(c.start for c in form.cones if c.kind == "psd")
        assert np.array_equal(V, small.bases[inner][1])
    assert small.whole(record | {"steps": [[inner, 3, 1, 9], [at[0], 1, 1, 2]]}, m) is None


def test_only_matrices_are_narrowed(solved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    form, _, z = solved
    k = next(k for k, c in enumerate(form.cones) if c.kind == "psd")
    both = replace(
        form,
        A=sp.csc_array(sp.vstack([form.A, sp.csr_array((3, form.q.size))])),
        b=np.r_[form.b, 1.0, 0.0, 0.0],
        cones=(*form.cones, Cone("soc", form.b.size, form.b.size + 3)),
    )
    V = np.vstack([np.eye(5), -np.ones((1, 5))])
    nothing = (np.zeros(0, dtype=int), 1.0)
    bases: dict[int, Any] = {k: V, len(form.cones): np.array([[5.0], [3.0], [4.0]])}
    face = Face(both, np.r_[z, np.zeros(3)], both.cones, bases, nothing)
    monkeypatch.setattr("optfair.proofs.narrowed.on_face", lambda *given: face)
    assert narrowed(both, face.z) is None
    monkeypatch.setattr("optfair.proofs.narrowed.on_face", lambda *given: None)
    assert narrowed(form, z) is None


@pytest.mark.parametrize("scale", [1.0, 4.0, 0.25])
def test_leaves_bound_the_objective_times_its_scale(solved: Any, scale: float) -> None:
    form, x, z = solved
    own, _ = declared(form)
    own = replace(own, P=own.P * scale, q=own.q * scale, offset=own.offset * scale)
    exact = check_proof.Form(form_record(own))
    cut = float(np.nextafter(own.objective(x), np.inf))
    leaf = next(leaf for leaf in leaves_of(form, exact, x, z, scale, cut) if "faces" in leaf.record)
    claim = {"cut": None if leaf.cut is None else plain(leaf.cut)}
    bound = check_proof.lower(exact, leaf.record, (), claim)
    assert bound is not None and bound <= own.objective(x)
    assert float(bound) == pytest.approx(own.objective(x), abs=1e-4 * scale)


def test_a_matrix_is_on_the_edge_in_any_units() -> None:
    units = 10.0 ** np.arange(-3.0, 3.0)
    for least, edge in ((1e-15, True), (1e-12, False), (-1e-12, True)):
        M = np.ones((6, 6)) + least * np.eye(6)
        assert _edge(M * np.outer(units, units)) is edge
    assert not _edge(np.zeros((2, 2)))


def test_a_program_without_a_face_is_left_alone() -> None:
    X = cp.Variable((3, 3), name="X", symmetric=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X >> np.eye(3)]))
    form = compile_problem(p, cp.CLARABEL).form
    assert narrowed(form, np.asarray(p.solve("clarabel").proof.z)) is None
