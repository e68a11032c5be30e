"""Steps of propagation and exact multipliers, as the checker replays them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optfair.proofs import check_proof
from optfair.proofs.columns import Trace, declared_bounds, linear_rows, propagated
from optfair.proofs.cones import Cone
from optfair.proofs.portable import form_record, leaf_of, needed_steps, plain, vector_record
from optfair.solution.conic_form import ConicForm


def form_of(A: Any, b: Any, cones: tuple[Cone, ...], q: Any = None) -> ConicForm:
    A = sp.csc_array(A)
    n = A.shape[1]
    cost = np.zeros(n) if q is None else np.asarray(q, dtype=float)
    return ConicForm(sp.csc_array((n, n)), cost, 0.0, A, np.asarray(b, dtype=float), cones)


def replayed(form: ConicForm, steps: list[list[Any]]) -> check_proof.Box:
    return check_proof.Box(check_proof.Form(form_record(form)), steps, (), None)


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 2**32 - 1))
def test_every_step_is_replayed_and_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(2, 8))
    A = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.6)
    point = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    b = A @ point + np.where(rng.random(m) < 0.5, 1e-9, rng.random(m))
    signs = np.diag(rng.choice([-1.0, 1.0, 0.3], n))[rng.random(n) < 0.8]
    rows = np.vstack([A, signs])
    sides = np.concatenate([b, signs @ point + rng.random(len(signs))])
    form = form_of(rows, sides, (Cone("nonneg", 0, len(sides)),))
    held = linear_rows(form)
    trace: Trace = []
    lower, upper = propagated(held, *declared_bounds(held), lambda *_: False, trace=trace)
    # without what a crossed pair leaves: the point is inside
    assert (lower <= point).all() and (point <= upper).all()
    wanted = rng.random(n) < 0.7
    box = replayed(form, needed_steps(held, trace, wanted, wanted))
    for j in np.flatnonzero(wanted):
        for side, end in ((0, lower[j]), (1, upper[j])):
            found = box.ends[side][j]
            if np.isfinite(end):
                assert found is not None and Fraction(found, box.unit) == Fraction(float(end))
    # what nobody wants is not told, unless something wanted rests on it
    assert needed_steps(held, trace, np.zeros(n, bool), np.zeros(n, bool)) == []


def ball(radius: float) -> ConicForm:
    """Return t <= radius, |0.3 (x, y)| <= t, in the columns t, x, y."""
    A = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0, -0.3, 0], [0, 0, -0.3]])
    cones = (Cone("nonneg", 0, 1), Cone("soc", 1, 4))
    return form_of(A, [radius, 0.0, 0.0, 0.0], cones)


def block(most: float) -> ConicForm:
    """Return a semidefinite matrix [[a, v], [v, c]] with a, c <= most, in the columns a, v, c."""
    A = np.array([[1.0, 0, 0], [0, 0, 1.0], [-1.0, 0, 0], [0, -1.0, 0], [0, 0, -1.0]])
    cones = (Cone("nonneg", 0, 2), Cone("psd", 2, 5, order=2, root=2.0))
    return form_of(A, [most, most, 0, 0, 0], cones)


@pytest.mark.parametrize(
    ("form", "columns", "reach"), [(ball(3.0), [1, 2], 3.0 / 0.3), (block(3.0), [1], 3.0)]
)
def test_rows_behind_heads_are_bounded(form: ConicForm, columns: list[int], reach: float) -> None:
    held = linear_rows(form)
    trace: Trace = []
    propagated(held, *declared_bounds(held), lambda *_: False, trace=trace)
    wanted = np.isin(np.arange(3), columns)
    steps = needed_steps(held, trace, wanted, wanted)
    assert any(step[1] == -1 for step in steps)
    box = replayed(form, steps)
    for j in columns:
        ends = [Fraction(box.ends[side][j], box.unit) for side in (0, 1)]
        assert all(0 <= abs(end) - reach <= 1e-12 * reach for end in ends) and ends[0] < 0
    # the root of the product, and not less
    for step in steps:
        if step[1] == -1:
            forged = [list(s) for s in steps]
            at = steps.index(step)
            forged[at][3] = plain(float(check_proof.number(step[3])) * (1 - 1e-9))
            with pytest.raises(check_proof.Rejected, match="does not imply"):
                replayed(form, forged)


def test_what_multipliers_leave_in_free_columns_is_made_nothing() -> None:
    # min x0/3 + x1 over equalities with free columns: no float multipliers are exact
    A = np.array([[0.1, 0.3, 0.7], [0.2, 0.9, 0.4], [0.6, 0.5, 0.8]])
    q = np.array([1 / 3, 1.0, 0.2])
    form = form_of(A, [0.3, 0.1, 0.7], (Cone("zero", 0, 3),), q)
    z = np.linalg.solve(A.T, -q)
    exact = check_proof.Form(form_record(form))
    leaf = leaf_of(form, exact, z, np.zeros(3))
    claim = {"cut": None, "radius": None}
    bound = check_proof.lower(exact, leaf.record, (), claim)
    assert float(bound or 0) == pytest.approx(-form.b @ z, rel=1e-12)
    plainly = leaf.record | {"multipliers": vector_record(z)}
    with pytest.raises(check_proof.Rejected, match="residual"):
        check_proof.lower(exact, plainly, (), claim)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_curves_pay_for_what_a_point_is_off_by(side: float) -> None:
    # min (x - 1)²/2 within 1e6 of 0: off by 1e-4, a residual of 1e-4 would cost 100 at a bound
    A, b = np.array([[1.0], [-1.0]]), [1e6, 1e6]
    straight = form_of(A, b, (Cone("nonneg", 0, 2),), [-1.0])
    form = replace(straight, P=sp.csc_array([[1.0]]))
    exact = check_proof.Form(form_record(form))
    leaf = leaf_of(form, exact, np.zeros(2), np.array([1.0 + side * 1e-4]))
    bound = check_proof.lower(exact, leaf.record, (), {"cut": None, "radius": None})
    assert bound == Fraction(-1, 2)
    assert leaf.record["point"] == [1]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_the_checker_measures_by_what_the_form_measures_by(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(0, 6)), int(rng.integers(1, 6))
    A = rng.normal(size=(m, n)) * 10.0 ** rng.integers(-9, 10, (m, 1)) * (rng.random((m, n)) < 0.7)
    A = A * 10.0 ** rng.integers(-9, 10, n)
    b = rng.normal(size=m) * 10.0 ** rng.integers(-9, 10, m) * (rng.random(m) < 0.7)
    q = rng.normal(size=n) * 10.0 ** rng.integers(-12, 3)
    form = form_of(A, b, (Cone("nonneg", 0, m),) if m else (), q)
    bent = rng.random(n) * 10.0 ** rng.integers(-12, 3) * (rng.random() < 0.5)
    form = form.moved({"P": sp.csc_array(np.diag(bent))})
    exact = check_proof.Form(form_record(form))
    assert [float(u) for u in exact.units()] == form.column_units.tolist()
    assert float(exact.scale()) == pytest.approx(form.unit, rel=1e-15)


@pytest.mark.parametrize("unit", [2.0**-1060, 2.0**-1000, 2.0**1000])
def test_the_checker_measures_alike_beside_rows_at_the_ends_of_the_floats(unit: float) -> None:
    A, b = np.array([[1.0, -1.0], [0.0, unit]]), np.array([3.0, 1.5 * unit])
    form = form_of(A, b, (Cone("nonneg", 0, 2),), np.ones(2))
    units = [float(u) for u in check_proof.Form(form_record(form)).units()]
    assert units == pytest.approx(form.column_units.tolist(), rel=1e-9)
    assert unit > 1.0 or 1.0 < min(units) <= max(units) < 4.0
