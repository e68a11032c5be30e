"""Facial reduction: chains of combinations that end in a contradiction, in fractions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone
from optfair.proofs.reduction import (
    Entries,
    Face,
    chain,
    chain_fault,
    excluded,
    links_of,
    missed,
    restated,
    roomy,
    unlimited,
    unlimited_fault,
)
from optfair.solution.conic_form import ConicForm

UNITS = (1e-6, 1.0, 3.0, 1e6)


def form_of(constraints: list[cp.Constraint], cost: cp.Expression | float = 0.0) -> ConicForm:
    return compile_problem(
        of.from_cvxpy(cp.Problem(cp.Minimize(cost), constraints)), "CLARABEL"
    ).form


def stairs(unit: float) -> list[cp.Constraint]:
    """A zero that shows a zero that shows a zero, and an entry beside it that is not 0."""
    T = cp.Variable((4, 4), symmetric=True)
    return [T >> 0, T[0, 0] == 0, T[1, 1] == T[0, 2], T[2, 2] == T[1, 3] * unit, T[2, 3] == unit]


@pytest.mark.parametrize("unit", UNITS)
def test_a_chain_proves_what_no_farkas_vector_does(unit: float) -> None:
    entries = Entries.of(form_of(stairs(unit)))
    found = excluded(entries)
    assert found is not None and not found.fault(entries)
    assert len(found.links) == 4 and found.others is not None
    # no link can be spared, and none be given out for another
    for k in range(4):
        assert chain_fault(entries, found.links[:k] + found.links[k + 1 :])
    row = next(iter(found.links[2]))
    wrong = {**found.links[2], row: found.links[2][row] * Fraction(1000001, 1000000)}
    assert chain_fault(entries, (*found.links[:2], wrong, found.links[3]))
    turned = {i: -v for i, v in found.links[0].items()}
    assert chain_fault(entries, (turned, *found.links[1:]))


def test_what_a_vector_separates_is_not_called_weak() -> None:
    S = cp.Variable((2, 2), symmetric=True)
    found = excluded(Entries.of(form_of([S >> 0, cp.trace(S) == -1])))
    assert found is not None and len(found.links) == 1 and found.others is None


def test_a_row_that_contradicts_itself_is_taken_once() -> None:
    sides = sp.csr_array([[0.0, -2.0]])
    assert chain(Entries(sides, np.array([True]), (Cone("nonneg", 0, 1),))) == ({0: Fraction(1)},)
    assert chain(Entries(sides, np.array([True]), (Cone("zero", 0, 1),))) == ({0: Fraction(1)},)
    upward = Entries(-sides, np.array([True]), (Cone("zero", 0, 1),))
    assert chain(upward) == ({0: Fraction(-1)},)


@pytest.mark.parametrize("seed", range(8))
def test_rows_with_a_point_have_no_chain(seed: int) -> None:
    """Equations that a singular matrix with zero lines satisfies: faces, and no contradiction."""
    rng = np.random.default_rng(seed)
    n = 5
    V = rng.integers(-2, 3, (n, 2)) * rng.integers(0, 2, (n, 1))
    X = (V @ V.T).astype(float)
    S = cp.Variable((n, n), symmetric=True)
    rows: list[cp.Constraint] = [S >> 0]
    for _ in range(7):
        C = np.triu(rng.integers(-1, 2, (n, n)) * rng.integers(0, 2, (n, n)))
        rows.append(cp.sum(cp.multiply(C, S)) == float((C * X).sum()))
    rows += [S[i, i] == X[i, i] for i in range(n)]
    assert chain(Entries.of(form_of(rows))) is None


def test_a_float_that_shares_its_product_with_the_root_of_2_is_not_taken_for_another() -> None:
    x, y = cp.Variable(), cp.Variable()
    for value, known in ((1.25, True), (3.0, False)):
        entry = value * x + y  # 3 and the float above it look alike once they are scaled
        form = form_of([cp.bmat([[x, entry], [entry, 0.0]]) >> 0, x + y >= 1])
        assert Entries.of(form).known.all()  # what was declared is known
        entries = Entries.of(replace(form))  # and here it is not
        assert entries.known.all() == known and (entries.alternative() is not None) == known
        # the row x (3, 1) = 0 is not used: its number is not known
        face = Face(entries)
        face.take(
            {int(np.flatnonzero(face.signed & (np.diff(entries.rows.indptr) == 0))[0]): Fraction(1)}
        )
        at = int(np.flatnonzero(np.diff(entries.rows.indptr) == 2)[0])
        off = next(i for i in np.flatnonzero(face.equal) if np.diff(entries.rows.indptr)[i] == 2)
        assert ("sign is not known" in face.fault({int(off): Fraction(1)})) != known or at != off


def test_links_that_are_no_combinations_are_refused() -> None:
    rows = sp.csr_array([[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    entries = Entries(rows, np.ones(3, dtype=bool), (Cone("psd", 0, 3, 2),))
    links = chain(entries)
    assert links == ({2: Fraction(1)}, {1: Fraction(-1)})
    assert chain_fault(entries, ()) and chain_fault(entries, ({},))
    assert "no combination" in chain_fault(entries, ({7: Fraction(1)},))
    rounded: Any = {1: 1.0}  # what sums to 0 in floats need not be 0
    assert "no combination" in chain_fault(entries, (rounded,))
    assert "sign" in chain_fault(entries, ({1: Fraction(-1)},))  # before its line is 0
    assert "cancel" in chain_fault(entries, ({0: Fraction(1)},))
    assert chain(Entries(rows, np.array([True, True, False]), entries.cones)) is None
    # without the constant there is a point
    assert chain(replace(entries, rows=sp.csr_array([[-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))) is None


@pytest.mark.parametrize("unit", UNITS)
def test_an_optimum_that_no_point_attains(unit: float) -> None:
    x, y = cp.Variable(), cp.Variable()
    block = cp.bmat([[x, unit], [unit, y]]) >> 0
    form = form_of([block], x)
    found = missed(form, 1e-9 * min(unit, 1.0))
    assert found is not None and found[0] == 0.0
    assert not found[1].fault(Entries.of(form).at_most(form.q, 0.0))
    assert found[1].fault(Entries.of(form).at_most(form.q, unit))  # what points attain
    assert missed(form, unit) is None  # a value far from the limit
    assert missed(form_of([block], x + y), 2.0 * unit) is None  # attained at x = y


# A cone, a point inside, and multipliers in its dual: inside, and on edges where entries are 0.
DUALS = [
    (Cone("exp", 0, 3), [0.0, 1.0, 2.0], [[-1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [0.0, 2.0, 1.0]]),
    (Cone("soc", 0, 3), [2.0, 0.0, 1.0], [[1.0, 0.0, 0.5], [1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]),
    (Cone("soc", 0, 4), [2.0, 0.0, 1.0, 1.0], [[2.0, -2.0, 0.0, 0.0], [1.0, 0.0, 0.0, -1.0]]),
    (Cone("pow", 0, 3, power=0.3), [1.0, 1.0, 0.5], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    (Cone("psd", 0, 3, 2, root=2.0), [1.0, 0.0, 1.0], [[0.0, 0.0, 1.0], [1.0, 0.5, 1.0]]),
]


@pytest.mark.parametrize(("cone", "inner", "duals"), DUALS)
def test_no_limit_is_claimed_where_multipliers_exist(
    cone: Cone, inner: list[float], duals: list[list[float]]
) -> None:
    # s = x: the objective is the product with multipliers; minus it is bounded by none of them
    m, x = cone.stop, np.array(inner)
    weight = np.where(cone.diagonal, 1.0, 2.0) if cone.kind == "psd" else np.ones(m)
    stated = ConicForm(
        sp.csc_array((m, m)), np.zeros(m), 0.0, -sp.eye_array(m, format="csc"), np.zeros(m), (cone,)
    )
    assert roomy(stated, x) and not roomy(stated, np.zeros(m)) and not roomy(stated, -x)
    for z in duals:
        assert unlimited(replace(stated, q=weight * z), x) is None
        below = replace(stated, q=-weight * z)
        links = unlimited(below, x)
        assert links is not None and not unlimited_fault(below, x, links)
        assert unlimited_fault(replace(below, q=-below.q), x, links)
        assert unlimited_fault(below, -x, links) and unlimited_fault(below, x[:2], links)


def test_no_limit_is_claimed_of_a_quadratic_objective() -> None:
    form = ConicForm(
        sp.eye_array(1, format="csc"),
        np.array([-1.0]),
        0.0,
        -sp.eye_array(1, format="csc"),
        np.zeros(1),
        (Cone("nonneg", 0, 1),),
    )
    assert unlimited(form, np.ones(1)) is None
    assert "not linear" in unlimited_fault(form, np.ones(1), ())


@pytest.mark.parametrize(
    ("cone", "edge", "way"),
    [
        (Cone("exp", 0, 3), [0.0, 1.0, 1.0], [-1.0, 1.0, 1.0]),
        (Cone("exp", 0, 3), [-1.0, 0.0, 1.0], [-1.0, 1.0, 1.0]),
        (Cone("exp", 0, 3), [-1.0, 1.0, 0.36787944117144233], [-1.0, 1.0, 1.0]),
        (Cone("pow", 0, 3), [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]),
        (Cone("pow", 0, 3), [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]),
        (Cone("soc", 0, 2), [1.0, 1.0], [1.0, 0.0]),
        (Cone("psd", 0, 3, order=2), [1.0, 0.0, 0.0], [1.0, 0.0, 1.0]),
    ],
)
def test_no_point_at_the_edge_of_a_cone_has_room(cone: Cone, edge: list[float], way: Any) -> None:
    m = cone.stop
    nothing, rows = sp.csc_array((1, 1)), sp.csc_array((m, 1))
    form = ConicForm(nothing, np.ones(1), 0.0, rows, np.array(edge), (cone,))
    assert not roomy(form, np.zeros(1))
    within = replace(form, b=np.array(edge) + 0.5 * np.array(way))
    assert roomy(within, np.zeros(1))


def test_what_is_restated_has_the_same_points() -> None:
    """Rows in the entries that were declared: 0.3 t = 0.7 is no 0.42426406871192845 t = ..."""
    T, t = cp.Variable((3, 3), symmetric=True), cp.Variable()
    block = cp.bmat([[0, 0.3 * t - 0.7 * T[0, 0], 0], [0.3 * t - 0.7 * T[0, 0], t, T[0, 1]],
                     [0, T[0, 1], T[1, 1]]])  # fmt: skip
    form = form_of([block >> 0, T >> 0, T[2, 2] == 0, t <= 4])
    links = links_of(Entries.of(form))
    face = restated(form, links)
    assert face is not None and sorted(c.order for c in face.cones if c.kind == "psd") == [2, 2]
    zeros = face.rows[: face.cones[0].stop].toarray()
    assert {0.3, 0.7} <= set(np.abs(zeros).ravel().tolist())
    assert not restated(form, [{0: Fraction(1), 1: Fraction(1)}])
    # a step further from there nothing more is 0, and the declared entries are still known
    assert not links_of(Entries.of(face)) and face.plain is not None
    rng = np.random.default_rng(0)
    for _ in range(20):  # every point of the face is one of the program, and the other way round
        x = rng.standard_normal(form.q.size)
        inside = face.slack(x)[face.cones[0].stop :]
        kept = [v for v in form.slack(x) if np.isclose(v, inside).any()]
        assert len(kept) >= inside.size


def test_cones_of_exponentials_are_not_restated() -> None:
    x, y = cp.Variable(), cp.Variable()
    form = form_of([cp.constraints.ExpCone(x, y, cp.Constant(0.0))])
    assert links_of(Entries.of(form)) and restated(form, links_of(Entries.of(form))) is None
