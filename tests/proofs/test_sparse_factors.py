"""Sparse factorisations and their errors: orders with long lines, held against matrices that are known."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from optfair.proofs.definiteness import dense_shift, floor_of
from optfair.proofs.sparse_factors import factors, row_errors, sparse_shift


def _long_lines(n: int, others: int) -> Any:
    """Return a chain of n unknowns, or single ones, all joined to a few others, in any order."""
    across = np.random.default_rng(0).normal(size=(8, n))
    chain = sp.diags_array([-1.0, 9.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    own = chain if others else 9.0 * sp.eye_array(n)
    mixed = np.random.default_rng(1).permutation(n + 8)
    whole = sp.csr_array(sp.block_array([[n * np.eye(8), across], [across.T, own]]))
    return sp.csc_array(whole[mixed][:, mixed])


@pytest.mark.parametrize("others", [0, 2])
def test_lines_that_meet_most_others_are_factored_last(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minimum degree of all lines is not looked for: it takes longer than the factors."""
    asked, splu = [], spla.splu

    def counted(P: Any, permc_spec: str, **more: Any) -> Any:
        asked.append((permc_spec, P.nnz))
        return splu(P, permc_spec=permc_spec, **more)

    monkeypatch.setattr(spla, "splu", counted)
    n = 1_000
    P = _long_lines(n, others)
    factored = factors(P, 0.0)
    assert factored is not None
    assert max([size for spec, size in asked if spec != "NATURAL"], default=0) <= 3 * n
    place, L, U, D = factored
    long = np.diff(P.indptr) > n
    assert long.sum() == 8 and (place[long] >= n).all() and (D > 0.0).all()
    assert abs((L @ U)[place][:, place] - P).max() <= 1e-10
    assert L.nnz <= 11 * n  # nothing is filled in
    least = sparse_shift(P, 0.0)
    assert 0.0 < least <= 1e-8
    near = sp.csc_array(P - 9.0 * sp.eye_array(n + 8))
    assert sparse_shift(near, 0.0) == np.inf  # it is indefinite


@pytest.mark.parametrize("power", [20, 30, 40, 46])
def test_no_factorisation_proves_too_small_a_shift(power: int) -> None:
    n, off = 500, 2.0**-power
    ends = [np.full(n - 1, -1.0), np.array([1.0, *[2.0] * (n - 2), 1.0]), np.full(n - 1, -1.0)]
    P = sp.csc_array(sp.diags_array(ends, offsets=[-1, 0, 1]) - off * sp.eye_array(n))
    for shift in (0.0, 0.5 * off, off, 2.0 * off, 1e-12, 1e-9):
        for factor in (sparse_shift, dense_shift):  # the least eigenvalue is -off exactly
            assert factor(P, shift) >= max(off, shift)
    assert sparse_shift(P, 2.0 * off + 1e-9) <= 2.0 * off + 1e-8
    assert dense_shift(P, 2.0 * off + 1e-9) == 2.0 * off + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_row_has_its_own_error(seed: int) -> None:
    """Long rows have large errors and large diagonals; they do not spoil what is left of short ones."""
    rng = np.random.default_rng(seed)
    n, few = 3_000, 20
    across = rng.normal(size=(few, n))
    near = 1e-9 * (across * across).sum(axis=1)  # all that is left of it when the others are out
    whole = across @ across.T
    P = sp.csc_array(sp.block_array([[whole + np.diag(near), across], [across.T, sp.eye_array(n)]]))
    floor, errors = floor_of(P), row_errors(P, 0.0)
    assert floor is not None and (floor > 0.0).all()
    assert errors[few:].max() <= 1e-2 * errors[:few].min()
    least = floor[:few] / whole.diagonal()
    assert (least <= 1e-9).all()  # no more than there is


def _exact(M: Any) -> list[dict[int, Fraction]]:
    rows: list[dict[int, Fraction]] = [{} for _ in range(M.shape[0])]
    for i, j, v in zip(*sp.find(M), strict=True):
        rows[i][int(j)] = Fraction(float(v))
    return rows


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("shift", [0.0, 1e-3])
def test_errors_are_those_of_the_theorem_and_hold_in_fractions(others: int, shift: float) -> None:
    """Of a residual with |R| <= gamma |L| |U| + |L| |D L' - U|, and of the shift that is rounded."""
    n, unit = 150, 2.0**-53
    P = _long_lines(n, others)
    factored = factors(P, shift)
    assert factored is not None
    place, L, U, D = factored
    errors = row_errors(P, shift)
    assert sparse_shift(P, shift) == shift + errors.max()
    # exactly: the rows of P + shift I - L D L' in the order of the factors
    rows = _exact(L)
    back = np.argsort(place)
    own = _exact(sp.csr_array(P)[back][:, back])
    for i in range(n + 8):
        left = own[i] | {i: own[i][i] + Fraction(shift)}
        scaled = {k: v * Fraction(float(D[k])) for k, v in rows[i].items()}
        for j in range(n + 8):
            made = sum(v * rows[j][k] for k, v in scaled.items() if k in rows[j])
            left[j] = left.get(j, Fraction(0)) - made
        assert sum(map(abs, left.values())) <= Fraction(float(errors[back[i]]))
    most = int(np.diff(L.indptr).max()) + 4.0
    ones = np.ones(n + 8)
    turned = sp.diags_array(D) @ L.T
    bound = most * unit / (1.0 - most * unit) * (abs(L) @ (abs(U) @ ones))
    bound += abs(L) @ (abs(turned - U) @ ones) + 4.0 * unit * (abs(L) @ (abs(turned) @ ones))
    bound = bound[place] * (1.0 + 1e-9) + 2.0 * unit * (P.diagonal() + shift)
    assert errors == pytest.approx(bound, rel=1e-10, abs=0.0)


def test_what_breaks_down_has_no_errors() -> None:
    hole = sp.csc_array(np.diag([1.0, 0.0, 1.0]))
    huge = sp.csc_array(np.array([[1e-300, 1e200], [1e200, 1.0]]))
    for P in (hole, huge, sp.csc_array(np.diag([1.0, -1.0, 1.0]))):
        errors = row_errors(P, 0.0)
        assert errors.shape == (P.shape[0],) and (errors == np.inf).all()
