"""Sparse factorisations and their errors: orders with long lines, held against matrices that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from optfair.proofs.definiteness import dense_shift, floor_of
from optfair.proofs.sparse_factors import factors, row_errors, sparse_shift


def _long_lines(n: int, others: int) -> Any:
    """Return a chain of n unknowns, or single ones, all joined to a few others."""
    across = np.random.default_rng(0).normal(size=(8, n))
    chain = sp.diags_array([-1.0, 9.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    own = chain if others else 9.0 * sp.eye_array(n)
    return sp.csc_array(sp.block_array([[n * np.eye(8), across], [across.T, own]]))


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
    assert (place[:8] >= n).all() and (D > 0.0).all()
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
