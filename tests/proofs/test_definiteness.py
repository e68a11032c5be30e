"""Whether matrices of floats are semidefinite, in whole numbers and up to a shift, held against fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.proofs import definiteness as module
from optfair.proofs.bounds import lower_bound
from optfair.proofs.cones import Cone
from optfair.proofs.definiteness import (
    DENSE,
    curvature_of,
    definiteness,
    dominant,
    symmetric,
)
from optfair.solution.conic_form import ConicForm


def test_quadratic_rows_of_low_rank_are_proved_and_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for k in range(8):
        n = int(rng.integers(3, 7))
        F, q = rng.integers(-3, 4, (n - 1, n)).astype(float), rng.normal(size=n)
        x = cp.Variable(n, name="x")
        rows = [cp.quad_form(x - 1.0, F.T @ F) <= 2.0, cp.abs(x) <= 9.0]
        s = of.from_cvxpy(cp.Problem(cp.Minimize(q @ x), rows)).solve()
        assert s.grade.word == "proved"
        s.certificate.save(tmp_path / f"{k}.json")
        assert of.load_proof(tmp_path / f"{k}.json").verify()


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


def test_a_form_of_less_than_full_rank_is_decided_in_fractions_by_its_rank() -> None:
    """Elimination takes a step for each of the rank, so a larger order is no reason to leave it."""
    B = np.random.default_rng(0).integers(-3, 4, (12, 54)).astype(float)
    assert definiteness(B.T @ B, sharp=True).shift == 0.0
    off = B.T @ B
    off[0, 0] -= 2.0**-30
    assert definiteness(off, sharp=True).shift > 0.0


def test_a_quadratic_program_of_less_than_full_rank_without_bounds_is_proved() -> None:
    """A shift of its curvature would have to be paid with bounds, and there are none from above."""
    rng = np.random.default_rng(3)
    B, A = rng.integers(-2, 3, (10, 45)).astype(float), rng.integers(-3, 4, (8, 45)).astype(float)
    x, y = rng.integers(0, 3, 45).astype(float), rng.integers(-2, 3, 8).astype(float)
    P = B.T @ B
    q = A.T @ y + (x == 0.0) - P @ x
    s = of.from_arrays(P, q, A=A, l=A @ x, u=A @ x, lb=np.zeros(45)).solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(0.5 * x @ P @ x + q @ x)


@pytest.mark.parametrize("order", [3, 450])
@pytest.mark.parametrize("kind", ["definite", "singular", "indefinite"])
def test_what_is_known_of_a_matrix_is_known_of_its_multiples(order: int, kind: str) -> None:
    rng = np.random.default_rng(order)
    F = sp.csc_array(1.0 + rng.random((2 if kind == "singular" else order, order)))
    P = F.T @ F + {"definite": 1.0, "indefinite": -0.3}.get(kind, 0.0) * sp.eye_array(order)
    P = sp.csc_array((P + P.T) * 0.5)
    module.forget()
    fresh = definiteness(P)
    assert fresh.accepted == (kind != "indefinite")
    asked = module._once.cache_info().misses
    long = sp.csc_array((P.data, P.indices.astype(np.int64), P.indptr.astype(np.int64)), P.shape)
    for power in (0, 1, -20, 300):
        again = definiteness(sp.csc_array(long * 2.0**power), sharp=True)
        if kind != "singular":  # of which some blocks are shown to need no shift
            assert again.shift == np.ldexp(fresh.shift, power)
        if kind == "definite":
            assert (again.floor == np.ldexp(fresh.floor, power)).all() and again.floor.min() > 0.0
            least = np.linalg.eigvalsh((P - sp.diags_array(fresh.floor)).toarray())[0]
            assert least > -1e-9
    assert module._once.cache_info().misses == asked
    other = P.copy()
    other.data[0] *= 1.0 + 2.0**-50
    definiteness(sp.csc_array((other + other.T) * 0.5))
    assert module._once.cache_info().misses == asked + 1


def test_numbers_that_leave_the_range_of_floats_are_looked_at_as_they_stand() -> None:
    P = np.array([[2.0**600, 2.0**599, 0.0], [2.0**599, 2.0**600, 1.0], [0.0, 1.0, 1.0]])
    asked = module._once.cache_info()
    assert definiteness(P).shift == 0.0
    assert module._once.cache_info() == asked


def test_a_shift_that_is_slight_in_every_column_is_not_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []
    plain = module.definiteness
    monkeypatch.setattr(module, "definiteness", lambda P: looked.append(P) or plain(P))
    F = np.random.default_rng(0).normal(size=(3, 8)).round(2)
    assert curvature_of(F.T @ F).accepted and len(looked) == 1
    # the same in mixed units, where what is slight beside the largest number may be all there is
    units = np.array([1.0, 1e6, 1.0, 1e-6, 1.0, 1.0, 1.0, 1.0])
    assert curvature_of(F.T @ F * np.outer(units, units)).accepted and len(looked) == 3


@pytest.mark.parametrize("n", [2, DENSE, DENSE + 1])
@pytest.mark.parametrize("stored", ["array", "csc", "coo"])
def test_matrices_are_looked_at_alike_however_they_are_stored(n: int, stored: str) -> None:
    def kept(entries: dict[tuple[int, int], float]) -> Any:
        P = np.zeros((n, n))
        for place, entry in entries.items():
            P[place] = entry
        return P if stored == "array" else sp.coo_array(P).asformat(stored)

    last = n - 1
    for place in ((0, last), (last, 0)):  # one triangle is no quadratic form
        assert definiteness(kept({place: 1.0})).shift == np.inf
    full = definiteness(kept({(0, 0): 2.0, (0, last): 1.0, (last, 0): 1.0, (last, last): 2.0}))
    assert full.shift == 0.0 and full.size == pytest.approx(3.0)
    only = definiteness(kept({(last, last): 3.0}), sharp=True)
    assert only.shift == 0.0 and only.floor is not None and only.floor[last] == 3.0
    assert not only.floor[:last].any()
    down = definiteness(kept({(0, 0): 1.0, (0, last): 2.0, (last, 0): 2.0, (last, last): 1.0}))
    assert down.value == pytest.approx(-1.0) and down.witness is not None
    assert definiteness(kept({})).shift == 0.0
    half = symmetric(kept({(0, last): 2.0}))
    assert half[0, last] == half[last, 0] == 1.0


def test_zeros_are_not_looked_at_and_stay_with_whom_they_belong_to() -> None:
    n = DENSE + 2
    P = sp.csc_array((np.arange(n) % 2 + 0.0, np.arange(n), np.arange(n + 1)), shape=(n, n))
    assert module.stored(P).nnz == n // 2 < n == P.nnz


@pytest.mark.parametrize("n", [3, DENSE + 1])
def test_the_largest_share_of_the_diagonal_that_is_left_is_proved(n: int) -> None:
    # no line but the first and the last is dominant; the least eigenvalue is 0.6, or near 0.01
    P = sp.diags_array([[-1.005] * (n - 1), [2.02] * n, [-1.005] * (n - 1)], offsets=[-1, 0, 1])
    floor = module.floor_of(P.toarray() if n <= DENSE else sp.csc_array(P))
    least = float(np.linalg.eigvalsh(P.toarray())[0])
    most = next(2.02 * share for share in module.SHARES if 2.02 * share < least)
    assert floor is not None and floor.shape == (n,)
    assert (1.0 - 1e-9) * most <= floor.min() <= floor.max() <= most < least


def test_dominance_is_decided_exactly() -> None:
    tenth = np.array([[0.3, -0.1, -0.1], [-0.1, 0.2, -0.1], [-0.1, -0.1, 0.2]])
    assert dominant(tenth) and dominant(sp.csc_array(tenth))
    tenth[0, 0] = np.nextafter(0.2, 0.0)  # 0.1 + 0.1 is 0.2 to the last digit
    assert not dominant(tenth) and not dominant(sp.csc_array(tenth))
    assert not dominant(-np.eye(2)) and dominant(np.zeros((2, 2)))


@pytest.mark.parametrize("power", [-30, -50])
def test_columns_that_small_entries_join_are_not_decided_apart(power: int) -> None:
    e = 2.0**power
    P = np.array([[1.0, e], [e, e * e / 2.0]])  # its determinant is below 0
    for known in (definiteness(P, sharp=True), definiteness(sp.csc_array(P), sharp=True)):
        assert known.shift > 0.0 and known.floor is not None and not known.floor.any()
    # definite, but not by as much as each of its diagonal entries
    near = np.array([[1.0, e], [e, e * e * (1.0 + 2.0**-20)]])
    known = definiteness(near, sharp=True)
    assert known.shift == 0.0 and known.floor is not None
    assert is_semidefinite(near - np.diag(known.floor), Fraction(0))
    # a vertex at which multipliers fit is not the least point, which is (-2, 2 / e)
    A, b = np.array([[0.0, e], [0.0, -e]]), np.array([2.0, 1.0])
    cost, rows = np.array([0.0, -e / 8.0]), (Cone("nonneg", 0, 2),)
    form = ConicForm(sp.csc_array(P), cost, 0.0, sp.csc_array(A), b, rows)
    bound = lower_bound(form, np.array([1.0, -1.0 / e]), np.array([0.0, 0.375]))
    assert bound.value <= -1.25 or bound.unpaid is not None


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_matrices_of_other_numbers_are_factored_in_double_precision(kind: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        B = (4.0 * rng.normal(size=(4, 5))).astype(kind)
        P = B.T @ B
        P = (P + P.T) // 2 if kind is np.int64 else (P + P.T) * np.float32(0.5)
        for sharp in (False, True):
            known, same = definiteness(P, sharp=sharp), definiteness(P.astype(float), sharp=sharp)
            assert str(known) == str(same) and known.shift == same.shift
    large = sp.csc_array(sp.block_diag([P] * 81))
    assert large.shape[0] > DENSE and large.dtype == kind
    assert str(definiteness(large)) == str(definiteness(large.astype(float)))
