"""Multipliers in many digits: what they prove holds, and where floats have too few they prove it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.proofs.bounds import lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.digits import SmallProgram, bound_nearby
from optfair.proofs.rounding import ROOT, exact_halves, exact_parts, unscaled
from optfair.solution.conic_form import ConicForm


def form_of(
    q: list[float], matrices: list[list[list[float]]], side: list[list[float]]
) -> ConicForm:
    """Return min q'x with side - sum x_j F_j semidefinite, and x_0 >= -1e9."""
    n = len(side)
    cones = (Cone("psd", 0, n * (n + 1) // 2, order=n),)
    i, j = cones[0].places
    unit = np.where(i == j, 1.0, np.sqrt(2.0))
    A = np.column_stack([np.array(F)[i, j] * unit for F in matrices])
    nothing = sp.csc_array((len(q), len(q)))
    return ConicForm(nothing, np.array(q), 0.0, sp.csc_array(A), np.array(side)[i, j] * unit, cones)


def thin(cost: float) -> ConicForm:
    """min x + cost y, [[x, 1], [1, y]] semidefinite: 2 sqrt(cost), at x = sqrt(cost), y = 1 / x."""
    first, second = [[-1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]]
    return form_of([1.0, cost], [first, second], [[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("power", [4, 10, 24, 30])
def test_thin_sets_of_multipliers_prove_their_optimum(power: int) -> None:
    form = thin(4.0**-power)
    best = 2.0 * 2.0**-power
    # a multiplier off the diagonal a little too small, the others off by rounding
    z = np.array([1.0 + 2.0**-52, -(2.0**-power) * (1.0 - 1e-7) * np.sqrt(2.0), 4.0**-power])
    found = bound_nearby(form, z)
    assert found is not None
    value, slope = found
    assert best * (1.0 - 1e-6) <= value <= best and 0.0 < slope < 1e-30
    assert lower_bound(form, np.array([2.0**-power, 2.0**power]), z).value <= best


def test_rows_of_half_lines_count_beside_matrices() -> None:
    # min x, y <= 4: 1/4 at x = 1/4, with multipliers of the matrix on its boundary
    form = thin(0.0)
    A = sp.csc_array(np.vstack([form.A.toarray(), [0.0, 1.0]]))
    cones = (*form.cones, Cone("nonneg", 3, 4))
    form = replace(form, A=A, b=np.append(form.b, 4.0), cones=cones)
    z = np.array([1.0, -0.25 * np.sqrt(2.0), 0.0625, 0.0625 + 1e-9])
    found = bound_nearby(form, z)
    assert found is not None
    assert 0.25 - 1e-6 < found[0] <= 0.25 and found[1] < 1e-30


def test_numbers_beside_a_diagonal_count_as_they_were_declared() -> None:
    # min x, [[a, c, k], [c, d, l], [k, l, x]]: beside a matrix next to singular a rounding shows
    rng = np.random.default_rng(1)
    for _ in range(12):
        a, d = rng.uniform(0.9, 1.1, 2)
        c, k = float(np.sqrt(a * d)) * (1.0 - 1e-10 * rng.uniform(0.5, 2.0)), rng.uniform(0.3, 0.5)
        last = k * np.sqrt(d / a) + 1e-5 * rng.uniform(0.5, 2.0)
        side = [[a, c, k], [c, d, last], [k, last, 0.0]]
        (A, C, K), (_, D, L) = ([Fraction(float(v)) for v in row] for row in side[:2])
        v = [(D * K - C * L) / (A * D - C * C), (A * L - C * K) / (A * D - C * C), Fraction(-1)]
        best = K * v[0] + L * v[1]
        form = form_of([1.0], [np.diag([0.0, 0.0, -1.0]).tolist()], side)
        i, j = form.cones[0].places
        own = [float(v[a] * v[b]) for a, b in zip(i, j, strict=True)]
        z = np.array(own) * np.where(i == j, 1.0, np.sqrt(2.0))
        found = bound_nearby(form, z)
        assert found is not None and Fraction(found[0]) <= best and found[1] < 1e-30
        assert Fraction(lower_bound(form, np.array([float(best)]), z).value) <= best


@pytest.mark.parametrize("column", [0, 1, 2])
def test_coefficients_that_are_not_known_are_charged_for(column: int) -> None:
    # the products of 1.5 and of a float next to it with the root of 2 are the same
    matrices = [[[-1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, -1.0]], [[0.0, 0.25], [0.25, 0.0]]]
    matrices[column][0][1] = matrices[column][1][0] = 1.5
    q = [-float((np.array(F) * [[1.0, 0.5], [0.5, 1.0]]).sum()) for F in matrices]
    z = np.array([1.0, 0.5 * np.sqrt(2.0), 1.0])
    side = [[1.0, 0.0], [0.0, 1.0]]
    found = bound_nearby(form_of(q, matrices, side), z)
    assert found is not None and found[1] >= 0.5 * (np.nextafter(1.5, 2.0) - 1.5)
    side[0][1] = side[1][0] = 1.5
    value, slope = bound_nearby(form_of(q, matrices, side), z) or (np.inf, 0.0)
    assert slope == found[1] and value <= found[0] - 1.5 - (np.nextafter(1.5, 2.0) - 1.5)


@pytest.mark.parametrize(("unit", "less"), [(1.0, 1e-60), (4.0, 2e-45)])
def test_what_is_inside_by_no_more_than_rounding_proves_nothing(unit: float, less: float) -> None:
    form = form_of([1.0], [[[-1.0 / unit, 0.0], [0.0, 0.0]]], [[1.0, 0.0], [0.0, 1.0]])
    assert bound_nearby(form, np.array([unit, 0.0, less])) is None
    assert bound_nearby(form, np.array([unit, 0.0, 1e-30])) is not None


def test_what_is_proved_holds_at_every_feasible_point() -> None:
    rng = np.random.default_rng(0)
    proved = 0
    for _ in range(60):
        n, k = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        F = [M + M.T for M in rng.standard_normal((k, n, n))]
        Z = (root := rng.standard_normal((n, n))) @ root.T
        x, slack = rng.standard_normal(k), (root := rng.standard_normal((n, n))) @ root.T
        q = [-float((M * Z).sum()) for M in F]
        side = slack + sum(a * M for a, M in zip(x, F, strict=True))
        form = form_of(q, [M.tolist() for M in F], side.tolist())
        (c,) = form.cones
        i, j = c.places
        z = (Z + rng.choice([1e-12, 1e-3, 1.0]) * np.eye(n))[i, j]
        found = bound_nearby(form, z * np.where(i == j, 1.0, np.sqrt(2.0)))
        if found is not None:
            proved += 1
            inside = x * (1.0 - 1e-9)
            room = float(np.linalg.eigvalsh(c.matrix(form.slack(inside)))[0])
            assert room < 0.0 or found[0] - found[1] * np.abs(x).sum() <= form.objective(inside)
    assert proved > 30


def test_multipliers_that_are_none_prove_nothing() -> None:
    form = thin(1e-4)
    assert bound_nearby(form, np.array([1.0, np.nan, 1.0])) is None
    assert bound_nearby(form, np.array([-1.0, 0.0, -1.0])) is None
    without = thin(-1.0)  # no multipliers solve the equations inside the cone
    found = bound_nearby(without, np.array([1.0, 0.0, 1e-3]))
    assert found is None or found[1] > 1e-3


def test_large_programs_are_left_alone() -> None:
    n = 31
    matrices = [np.diag(row).tolist() for row in -np.eye(n)]
    form = form_of([1.0] * n, matrices, np.zeros((n, n)).tolist())
    assert bound_nearby(form, np.ones(form.b.size)) is None


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_products_are_a_few_floats_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=60) * 2.0 ** rng.integers(-40, 40, 60) for _ in range(2))
    a[30:40], b[30:40] = -a[20:30], b[20:30]  # a group that cancels
    starts = np.array([0, 5, 20, 40, 41])
    parts = exact_parts(np.array(exact_halves(a, b)), starts)
    near = exact_parts(np.array(exact_halves(a, b)), starts, 60.0)
    for k, (first, end) in enumerate(pairwise([*starts.tolist(), 60])):
        truth = sum(
            Fraction(x) * Fraction(y) for x, y in zip(a[first:end], b[first:end], strict=True)
        )
        assert sum(Fraction(float(p[k])) for p in parts) == truth
        off = abs(sum(Fraction(float(p[k])) for p in near) - truth)
        assert off <= abs(truth) * Fraction(1, 2**60)


def test_products_out_of_range_are_none_of_few_floats() -> None:
    for a, b in ((1e-200, 1e-200), (1e200, 1e200), (1e160, 1.0)):
        with pytest.raises(ArithmeticError):
            exact_halves(np.array([1.0, a]), np.array([1.0, b]))
    with pytest.raises(ArithmeticError):
        exact_parts(np.ldexp(1.0, -150 * np.arange(12))[None], np.array([0]))
    assert not any(h.any() for h in exact_halves(np.zeros(2), np.array([1e140, 1e-300])))


# another float of which the product with the root of 2 is that of 1.5
TWIN = float(np.nextafter(1.5, 1.0 if np.nextafter(1.5, 1.0) * ROOT == 1.5 * ROOT else 2.0))


@pytest.mark.parametrize("number", [1.5, TWIN])
def test_a_compiled_program_knows_what_was_declared(number: float) -> None:
    x = cp.Variable(name="x")
    M = cp.bmat([[1.0, number * x], [number * x, 1.0]])
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(x), [M >> 0])), "CLARABEL").form
    assert not unscaled(np.array([1.5, TWIN]) * ROOT)[1].any()  # one product, two numbers
    other = replace(form, cones=tuple(replace(c, upper=not c.upper) for c in form.cones))
    object.__setattr__(other, "_plain", lambda: form.plain)  # of rows in another order
    mixed = SmallProgram.of(other)
    assert mixed is not None and mixed.within.any()
    known, bare = SmallProgram.of(form), SmallProgram.of(replace(form))
    assert known is not None and bare is not None
    assert not known.within.any() and bare.within.any()
    off = [Decimal(a) - Decimal(number) * Decimal(2).sqrt() for a in abs(known.A[:, 0]) if a]
    assert [abs(d) < Decimal("1e-26") for d in off] == [True]
