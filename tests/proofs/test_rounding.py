"""Enclosures contain the exact number, computed in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from optfair.proofs import equations
from optfair.proofs.definiteness import _sparse, definiteness, dense_shift
from optfair.proofs.equations import (
    correcting_step,
    correction,
    independent,
    with_own_unknowns,
)
from optfair.proofs.faces import last_digit
from optfair.proofs.rounding import (
    DENSE,
    Products,
    dot,
    entries_of,
    exact_dot,
    exact_products,
    exact_sums,
    product,
    reached,
)

numbers = st.floats(-1e12, 1e12, allow_nan=False, allow_infinity=False, allow_subnormal=False)


def exact(a: np.ndarray, b: np.ndarray) -> Fraction:
    return sum(
        (Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)),
        Fraction(0),
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_dots_are_enclosed(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    truth = exact(a, b)
    for center, radius in (dot(a, b), exact_dot(a, b)):
        assert abs(truth - Fraction(center)) <= Fraction(radius)
    if truth == 0:
        assert exact_dot(a, b)[0] == 0.0


@given(st.lists(st.floats(1e-60, 1e60) | st.floats(-1e60, -1e-60), min_size=1, max_size=8))
def test_what_cancels_is_exactly_zero(entries: list[float]) -> None:
    a = np.array(entries)
    pair = np.concatenate([a, -a]), np.concatenate([np.ones(a.size) * 0.3, np.ones(a.size) * 0.3])
    assert exact_dot(*pair) == (0.0, 0.0)


@pytest.mark.parametrize("width", [5, 5_000])
def test_products_of_matrices_that_are_held_dense_and_sparse_are_enclosed(width: int) -> None:
    rng = np.random.default_rng(width)
    A = sp.random_array((3, width), density=0.3, rng=rng, format="csr")
    A.data *= 10.0 ** rng.integers(-9, 9, A.nnz)
    x = rng.normal(size=width) * 10.0 ** rng.integers(-9, 9, width)
    products = Products(A)
    assert isinstance(products._rows, np.ndarray) == (A.shape[0] * width <= DENSE)
    center, radius = products(x)
    for i, row in enumerate(A.toarray()):
        truth = exact(row, x)
        assert abs(truth - Fraction(center[i])) <= Fraction(radius[i])
        assert abs(Fraction(center[i]) - truth) <= abs(Fraction(1e-9)) * sum(
            abs(Fraction(a) * Fraction(b)) for a, b in zip(row.tolist(), x.tolist(), strict=True)
        )


@given(st.integers(0, 10_000))
def test_products_are_enclosed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = sp.random_array((6, 5), density=0.6, rng=rng, format="csr") * 10.0 ** rng.integers(-9, 9)
    x = rng.normal(size=5) * 10.0 ** rng.integers(-9, 9, 5)
    center, radius = product(A, x)
    dense = A.toarray()
    for i in range(6):
        assert abs(exact(dense[i], x) - Fraction(center[i])) <= Fraction(radius[i])
    z = rng.normal(size=6)
    center, radius = exact_products(sp.csc_array(A), z, np.arange(5))
    for j in range(5):
        assert abs(exact(dense[:, j], z) - Fraction(center[j])) <= Fraction(radius[j])


@pytest.mark.parametrize("large", [False, True])
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), more=st.integers(0, 3))
def test_a_solution_of_the_size_that_is_promised_exists(
    large: bool, seed: int, k: int, more: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(equations, "_too_large", lambda k, m: large)
        _promised(seed, k, more)


def _promised(seed: int, k: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.integers(-4, 5, size=(k, k + more)).astype(float) * 10.0 ** rng.integers(-6, 7)
    r = rng.normal(size=k) * 1e-8
    room = np.where(rng.random(k + more) < 0.2, 0.0, 1.0)
    found = correction(sp.csr_array(M), np.abs(r), room)
    if found is None:
        return
    assert (found[room == 0.0] == 0.0).all()
    used = found > 0.0
    # |delta_i| <= found_i has a solution: a linear program says so
    from scipy.optimize import linprog

    answer = linprog(
        np.zeros(used.sum()),
        A_eq=M[:, used] * found[used] / np.abs(r).max(),
        b_eq=-r / np.abs(r).max(),
        bounds=[(-1.0000001, 1.0000001)] * int(used.sum()),
    )
    assert answer.status == 0


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_chain_is_factorised_once_and_sparsely(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    k = 700
    M = sp.csr_array(sp.diags_array([-1.01, 1.0], offsets=[0, 1], shape=(k, k + more)))
    r, room, by = np.full(k, 1e-9), np.ones(k + more), equations.splu
    made: list[Any] = []
    monkeypatch.setattr(equations, "splu", lambda *a, **k: made.append(a) or by(*a, **k))
    for module, name in (
        *((np.linalg, n) for n in ("inv", "solve")),
        *((scipy.linalg, n) for n in ("cho_factor", "qr", "lstsq")),
    ):
        monkeypatch.setattr(module, name, None)  # nothing is factorised densely
    thin, step = correction(M, r, room), correcting_step(M, r, room)
    assert thin is not None and step is not None and len(made) == 2
    assert np.abs(M @ step + r).max() <= 1e-6 * r.max()
    monkeypatch.undo()
    monkeypatch.setattr(equations, "THIN", np.inf)
    dense = correction(M, r, room)
    assert dense is not None and thin == pytest.approx(dense, rel=1e-6)
    # of full rows a dense factor is made, where most rows have a column in common too
    monkeypatch.setattr(equations, "splu", None)
    monkeypatch.setattr(equations, "THIN", 16)
    arrow = sp.csr_array(sp.hstack([sp.eye_array(k), np.ones((k, 1))]))
    assert correction(arrow, r, np.ones(k + 1)) is not None


@pytest.mark.parametrize("full", [0, 3])
def test_more_entries_than_a_dense_factor_takes_are_solved_by_products_of_equations(
    full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(full)
    k, m = 60, 40_000
    M = sp.random_array((k, m), density=0.002, rng=rng, format="lil")
    M[:full] = rng.normal(size=(full, m))  # equations that all unknowns have
    M, r, room = sp.csr_array(M), rng.normal(size=k) * 1e-9, rng.uniform(0.1, 2.0, m)
    dense, shortest = correction(M, np.abs(r), room), correcting_step(M, r, room)
    monkeypatch.setattr(equations, "_too_large", lambda k, m: True)
    monkeypatch.setattr(scipy.linalg, "qr", None)
    found, step = correction(M, np.abs(r), room), correcting_step(M, r, room)
    assert dense is not None and found is not None
    assert step is not None and shortest is not None
    np.testing.assert_allclose(step, shortest, atol=1e-6 * np.abs(shortest).max())
    assert found.max() < 100.0 * dense.max()
    # what is bounded is R (M R)^-1 r with R = W M' H, whatever H is
    weight = np.minimum(room, 1.0)
    near = np.linalg.solve((M @ sp.diags_array(weight) @ M.T).toarray(), r)
    assert (np.abs(weight * (M.T @ near)) <= found).all()
    # two equations that are one leave none proved
    twice = sp.csr_array(sp.vstack([M, M[:1]]))
    assert correction(twice, np.ones(k + 1), room) is None
    monkeypatch.setattr(equations, "SQUARED", k - 1)
    assert correction(M, np.abs(r), room) is None and correcting_step(M, r, room) is None


def determinant(M: list[list[Fraction]]) -> Fraction:
    M, sign, value = [row[:] for row in M], 1, Fraction(1)
    for k in range(len(M)):
        pivot = next((i for i in range(k, len(M)) if M[i][k] != 0), None)
        if pivot is None:
            return Fraction(0)
        if pivot != k:
            M[k], M[pivot], sign = M[pivot], M[k], -sign
        value *= M[k][k]
        for i in range(k + 1, len(M)):
            factor = M[i][k] / M[k][k]
            M[i] = [a - factor * b for a, b in zip(M[i], M[k], strict=True)]
    return sign * value


def is_semidefinite(P: np.ndarray, shift: Fraction) -> bool:
    """Whether every principal minor of P + shift I is nonnegative, in fractions."""
    n = len(P)
    F = [
        [Fraction(float(v)) + (shift if i == j else 0) for j, v in enumerate(row)]
        for i, row in enumerate(P)
    ]
    return all(
        determinant([[F[i][j] for j in at] for i in at]) >= 0
        for mask in range(1, 2**n)
        for at in [[i for i in range(n) if mask >> i & 1]]
    )


@pytest.mark.parametrize("seed", range(60))
def test_semidefinite_is_proved_up_to_the_shift_or_refuted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    B = rng.normal(size=(n, int(rng.integers(1, n + 1))))
    P = B @ B.T * 10.0 ** rng.integers(-8, 9)
    P = (P + P.T) / 2
    P -= np.eye(n) * np.abs(P).max() * rng.choice([0.0, 1e-17, 1e-15, 1e-12, 1e-6])
    found = definiteness(P)
    if found.witness is not None:
        v = [Fraction(t) for t in found.witness.tolist()]
        value = sum(v[i] * Fraction(float(P[i, j])) * v[j] for i in range(n) for j in range(n))
        assert value < 0
        assert not is_semidefinite(P, Fraction(0))
    elif np.isfinite(found.shift):
        assert is_semidefinite(P, Fraction(found.shift))
    assert found.witness is not None or found.accepted


def test_large_matrices_are_factored_sparsely() -> None:
    n = 2_000
    ends = [np.full(n - 1, -1.0), np.full(n, 2.0), np.full(n - 1, -1.0)]
    L = sp.csc_array(sp.diags_array(ends, offsets=[-1, 0, 1]))
    assert definiteness(L).accepted
    least = 2 - 2 * np.cos(np.pi / (n + 1))
    under = definiteness(sp.csc_array(L - 4 * least * sp.eye_array(n)))
    assert not under.accepted
    assert definiteness(sp.csc_array(L - 0.5 * sp.eye_array(n))).witness is not None
    hidden = sp.csc_array(([1.0, 1.0, 1.0], ([0, 1, 2], [1, 0, 2])), shape=(n, n))
    assert definiteness(hidden).witness is not None  # a pivot of 0, then of either sign


def test_a_correction_is_never_rounded_to_nothing() -> None:
    tiny = correction(sp.csr_array([[1e20]]), np.array([1e-310]), np.ones(1))
    assert tiny is not None and tiny[0] > 0.0
    twice = sp.csr_array(
        (np.array([1.0, 1e20, -1e20, -0.9999]), np.zeros(4, int), np.array([0, 4])), shape=(1, 1)
    )
    assert correction(twice, np.ones(1), np.ones(1)) is None


@given(st.integers(0, 10_000), st.booleans(), st.integers(0, 300))
def test_sums_of_many_products_are_enclosed_and_cancel(seed: int, opposite: bool, far: int) -> None:
    """Also where digits are far apart, or a product leaves the usual range."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 4)) * 10.0 ** rng.integers(-far // 3, far // 3 + 1, (12, 4))
    z, q = rng.normal(size=12) * 10.0 ** rng.integers(-8, 9, 12), rng.normal(size=4)
    A[rng.random(A.shape) < 0.2] = 0.0
    A[:, 3] *= 1e-250 if far > 250 else 1.0
    if opposite:
        A, z, q = np.vstack([A, A]), np.concatenate([z, -z]), 0.0 * q
    more = ((sp.csc_array(q[None, :]), np.ones(1)),)
    center, radius = exact_products(sp.csc_array(A), z, np.arange(4), more)
    for j in range(4):
        truth = exact(A[:, j], z) + Fraction(float(q[j]))
        assert abs(truth - Fraction(center[j])) <= Fraction(radius[j])
        assert truth != 0 or j == 3 or center[j] == radius[j] == 0.0
        assert radius[j] <= 1e-12 * abs(center[j]) or j == 3


def test_products_read_by_rows_are_those_read_by_columns() -> None:
    rng = np.random.default_rng(2)
    A = sp.random_array((40, 9), density=0.4, rng=rng, format="csc")
    z = np.where(rng.random(40) < 0.2, rng.normal(size=40), 0.0)
    q = -(A.T @ z)
    for at in (np.arange(9), np.array([1, 2, 4, 6, 8]), np.array([7])):
        plain = exact_products(A, z, at, ((q, np.ones(1)),))
        by_rows = exact_products(
            A, z, at, ((sp.csc_array(q[None, :]), np.ones(1)),), sp.csr_array(A)
        )
        for one, other in zip(plain, by_rows, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=0.0)


def test_rows_and_columns_are_read_in_any_order() -> None:
    M = sp.random_array((7, 5), density=0.5, rng=np.random.default_rng(1), format="csr")
    for at in (np.array([3, 0, 3, 6]), np.arange(7), np.zeros(0, dtype=int)):
        data, inner, which = entries_of(M, at)
        built = np.zeros((at.size, 5))
        np.add.at(built, (which, inner), data)
        np.testing.assert_array_equal(built, M.toarray()[at])


# --- what is exact, what is independent, and steps that are judged -------------------------------


def test_products_that_underflow_are_not_taken_for_zero() -> None:
    one = np.nextafter(1e-160, 1.0)
    a, b = np.array([1e-160, -1e-160, 1.0, -1.0]), np.array([one, 1e-160, 1.0, 1.0])
    center, radius = exact_dot(a, b)
    assert radius > 0.0 and abs(exact(a, b) - Fraction(center)) <= Fraction(radius)
    # factors of 0 do not spoil what is exact
    assert exact_dot(np.array([0.0, 1.0, -1.0]), np.array([3.0, 1.0, 1.0])) == (0.0, 0.0)
    assert exact_dot(np.array([3.0, 1.0, -1.0]), np.array([0.0, 1.0, 1.0])) == (0.0, 0.0)


@given(st.integers(0, 10_000))
def test_nearly_singular_equations_are_not_promised_too_small_solutions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, near = (float(v) for v in rng.integers(1, 9, 3))
    M = np.array([[a, b], [near * a, near * b * (1.0 + 2.0 ** -float(rng.integers(30, 51)))]])
    r = np.abs(rng.normal(size=2))
    found = correction(sp.csr_array(M), r, np.ones(2))
    if found is None:
        return
    F = [[Fraction(float(v)) for v in row] for row in M]
    det = F[0][0] * F[1][1] - F[0][1] * F[1][0]
    for signs in ((1, 1), (1, -1)):
        side = [-Fraction(float(v)) * s for v, s in zip(r, signs, strict=True)]
        x = [(F[1][1] * side[0] - F[0][1] * side[1]) / det]
        x.append((F[0][0] * side[1] - F[1][0] * side[0]) / det)
        assert all(abs(v) <= Fraction(float(most)) for v, most in zip(x, found, strict=True))


def test_a_poor_inverse_costs_what_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """x = -r, of an inverse of 1 that is 0.7."""
    monkeypatch.setattr("optfair.proofs.equations._right_inverse", lambda M: np.array([[0.7]]))
    (most,) = correction(sp.csr_array([[1.0]]), np.array([1e-9]), np.ones(1))
    assert 1e-9 <= most <= 1e-9 * (1.0 + 1e-12)


def test_entries_with_little_room_are_moved_little() -> None:
    room = np.array([1.0, 1e-6])
    for rows in ([[1.0, 1.0]], [[2.0, 1.0]]):
        moved = correction(sp.csr_array(rows), np.array([1e-9]), room)
        assert moved is not None and moved[1] <= 1e-5 * moved[0]
    step = correcting_step(sp.csr_array([[1.0, 1.0]]), np.array([1e-9]), room)
    assert step is not None and abs(step.sum() + 1e-9) <= 1e-20
    assert abs(step[1]) <= 1e-5 * abs(step[0])


def test_a_step_solves_its_equations() -> None:
    rng = np.random.default_rng(4)
    for k, m in ((3, 3), (2, 5)):
        M, r = rng.normal(size=(k, m)), rng.normal(size=k)
        step = correcting_step(sp.csr_array(M), r, np.ones(m))
        assert step is not None and np.abs(M @ step + r).max() <= 1e-12
    M = np.array([[1.0, 2.0], [2.0, 4.0]])  # singular: the least squares that are left
    step = correcting_step(sp.csr_array(M), np.array([1.0, 2.0]), np.ones(2))
    assert step is not None and np.abs(M @ step + [1.0, 2.0]).max() <= 1e-12
    held = correcting_step(sp.csr_array(np.eye(2)), np.ones(2), np.array([1.0, 0.0]))
    assert held is not None and held.tolist() == [-1.0, 0.0]
    assert correcting_step(sp.csr_array(np.eye(2)), np.ones(2), np.zeros(2)) is None
    assert correcting_step(sp.csr_array(np.eye(2)), np.array([np.nan, 0.0]), np.ones(2)) is None


@given(st.integers(0, 10_000))
def test_equations_that_are_kept_imply_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, m = (int(v) for v in rng.integers(1, 6, 2))
    B = rng.integers(-2, 3, (k, m)).astype(float)
    M = np.vstack([B, rng.integers(-2, 3, (2, k)) @ B])
    r = M @ rng.integers(-3, 4, m)
    if wrong := bool(rng.random() < 0.3):
        r[-1] += 1.0
    kept = independent(sp.csr_array(M), [Fraction(float(v)) for v in r])
    both = np.linalg.matrix_rank(np.column_stack([M, r]))
    if both > np.linalg.matrix_rank(M):
        assert wrong and kept is None
    else:
        assert kept is not None and len(kept) == np.linalg.matrix_rank(M[kept]) == both


def test_every_residual_of_an_equation_must_follow_from_those_that_are_kept() -> None:
    one, two = Fraction(1), Fraction(2)
    M = sp.csr_array(np.ones((2, 1)))
    assert independent(M, [one, one], [two, two]) == [0]
    assert independent(M, [one, one], [one, two]) is None
    assert independent(M, [one, two], [one, two]) is None
    # what is taken out brings a column back that a later equation takes out
    M = sp.csr_array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, -1.0]])
    assert independent(M, [one, two, -one]) == [0, 1]


@pytest.mark.parametrize("power", [20, 30, 40, 46])
def test_no_factorisation_proves_too_small_a_shift(power: int) -> None:
    n, off = 500, 2.0**-power
    ends = [np.full(n - 1, -1.0), np.array([1.0, *[2.0] * (n - 2), 1.0]), np.full(n - 1, -1.0)]
    P = sp.csc_array(sp.diags_array(ends, offsets=[-1, 0, 1]) - off * sp.eye_array(n))
    for shift in (0.0, 0.5 * off, off, 2.0 * off, 1e-12, 1e-9):
        for factor in (_sparse, dense_shift):  # the least eigenvalue is -off exactly
            assert factor(P, shift) >= max(off, shift)
    assert _sparse(P, 2.0 * off + 1e-9) <= 2.0 * off + 1e-8
    assert dense_shift(P, 2.0 * off + 1e-9) == 2.0 * off + 1e-9


@given(
    st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_exact_sums_are_those_of_fractions(terms: list[tuple[float, float, int]]) -> None:
    expected = [Fraction(0)] * 3
    for a, b, k in terms:
        expected[k] += Fraction(a) * Fraction(b)
    a, b, group = (np.array([t[k] for t in terms]) for k in range(3))
    assert exact_sums(a.astype(float), b.astype(float), group.astype(np.intp), 3) == expected


def test_a_sum_that_is_a_float_has_no_radius() -> None:
    A = sp.csc_array(np.array([[1.0, 0.1], [3.0, 0.2], [-0.5, 0.3]]))
    center, radius = exact_products(A, np.array([2.0, 1.0, 4.0]), np.arange(2))
    assert (center[0], radius[0]) == (3.0, 0.0)
    truth = 2 * Fraction(0.1) + Fraction(0.2) + 4 * Fraction(0.3)
    assert radius[1] > 0.0 and abs(Fraction(center[1]) - truth) <= Fraction(radius[1])


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5), st.integers(-60, 60))
def test_the_last_digit_is_that_of_all(whole: list[int], power: int) -> None:
    v = np.ldexp(np.array(whole, dtype=float), power)
    e = last_digit(v)
    units = [Fraction(x) / Fraction(2) ** e for x in v.tolist()]
    assert all(u.denominator == 1 for u in units)
    assert not v.any() or any(u.numerator % 2 for u in units)


def test_what_a_step_reaches_is_never_rounded_down() -> None:
    rng = np.random.default_rng(4)
    sizes = rng.random((40, 8)) * 10.0 ** rng.integers(-160, 3, (40, 8))
    sizes[rng.random(sizes.shape) < 0.5] = 0.0
    for scale in (1.0, 1e-160, 1e-300):
        step = rng.random(8) * (rng.random(8) < 0.5) * scale
        found = reached(sp.csr_array(sizes), step)
        for row, most in zip(sizes.tolist(), found.tolist(), strict=True):
            exact = sum(Fraction(a) * Fraction(v) for a, v in zip(row, step.tolist(), strict=True))
            assert most > exact or most == exact == 0
            assert most <= exact * (1 + Fraction(1, 10**8)) + Fraction(1e-299)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_equations_with_own_unknowns_are_in_no_dependency(k: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = sp.csr_array(rng.integers(-2, 3, (k, m)) * (rng.random((k, m)) < 0.4) * 1.0)
    M.eliminate_zeros()
    row, column = sp.coo_array(M).coords
    own = with_own_unknowns(row, column, k)
    rank = np.linalg.matrix_rank
    dense = M.toarray()
    # they add as many to the rank of the others as there are
    assert rank(dense) == own.sum() + (rank(dense[~own]) if (~own).any() else 0)
    # and each column of those left has two entries among them, or none
    assert (np.count_nonzero(dense[~own], axis=0) != 1).all()
