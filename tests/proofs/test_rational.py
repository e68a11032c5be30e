"""Linear equations are solved exactly, or not at all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optfair.proofs.digits import chosen_columns, solve_exactly, whole_multiple


def product(B: np.ndarray, y: list[Fraction]) -> list[Fraction]:
    return [
        sum((Fraction(float(a)) * v for a, v in zip(row, y, strict=True)), Fraction(0)) for row in B
    ]


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
    st.integers(-40, 40),
    st.integers(-60, 20),
    st.booleans(),
)
def test_the_solution_satisfies_every_equation(
    k: int, seed: int, units: int, side: int, thirds: bool
) -> None:
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(k, k)) * (rng.random((k, k)) < 0.5)
    B[np.arange(k), rng.permutation(k)] = rng.integers(1, 9, k) / 10.0
    B *= 2.0 ** rng.integers(-abs(units), abs(units) + 1, k)
    c = [Fraction(int(v)) * Fraction(2) ** side for v in rng.integers(-5, 6, k)]
    if thirds:
        c = [v / 3 for v in c]
    found = solve_exactly(sp.csr_array(B), c)
    if found is None:
        assert np.linalg.cond(B / np.abs(B).max(axis=1, keepdims=True)) > 1e8
        return
    y = [Fraction(v, found[1]) for v in found[0]]
    assert product(B, y) == c


def test_large_systems_have_long_fractions() -> None:
    rng = np.random.default_rng(1)
    B = sp.csr_array(
        sp.diags_array(rng.random(120) + 0.1) + sp.random_array((120, 120), density=0.02, rng=rng)
    )
    c = [Fraction(float(v)) for v in rng.random(120)]
    numerators, denominator = solve_exactly(B, c) or ([], 1)
    assert denominator.bit_length() > 1000
    assert product(B.toarray(), [Fraction(v, denominator) for v in numerators]) == c


def test_what_has_no_solution_is_none() -> None:
    assert solve_exactly(sp.csr_array([[1.0, 1.0], [1.0, 1.0]]), [Fraction(1), Fraction(2)]) is None
    assert (
        solve_exactly(sp.csr_array([[1.0, 1.0], [0.5, 0.5]]), [Fraction(1), Fraction(1, 3)]) is None
    )
    B = sp.csr_array(np.diag([0.3, 0.7]))
    assert solve_exactly(B, [Fraction(1), Fraction(1)], seconds=0.0) is None
    assert solve_exactly(B, [Fraction(0), Fraction(0)]) == ([0, 0], 1)
    assert solve_exactly(sp.csr_array((0, 0)), []) == ([], 1)


@pytest.mark.parametrize("seed", range(5))
def test_chosen_columns_are_a_basis_of_the_equations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.integers(-3, 4, (6, 15)).astype(float)
    M[4] = M[0] + M[1]  # follows from the others
    weight = np.ones(15)
    weight[:3] = 0.0
    rows, columns = chosen_columns(sp.csr_array(M), weight) or (np.zeros(0), np.zeros(0))
    assert len(rows) == len(columns) == 5 and not {0, 1, 2} & set(columns.tolist())
    assert abs(np.linalg.det(M[np.ix_(rows, columns)])) > 0.5


@pytest.mark.parametrize("seed", range(12))
def test_columns_that_no_other_equation_has_are_a_basis_with_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = 8
    M = rng.integers(-3, 4, (k, 12)) * (rng.random((k, 12)) < 0.3)
    M = np.hstack([M, np.diag(rng.choice([0.0, 2.0, 5.0, 1e-9], k))]).astype(float)
    weight = np.where(rng.random(12 + k) < 0.2, 0.1, 1.0)
    rows, columns = chosen_columns(sp.csr_array(M), weight) or (np.zeros(0), np.zeros(0))
    assert len(rows) == len(columns) == np.linalg.matrix_rank(M, tol=1e-7)
    assert len({*columns.tolist()}) == len(columns)
    assert abs(np.linalg.det(M[np.ix_(rows, columns)])) > 0.1


def test_so_many_equations_are_left_for_a_dense_factorisation_as_have_no_column_of_their_own() -> (
    None
):
    k = 4_000
    shared = sp.csr_array((np.ones(k), (np.arange(k), np.arange(k) % 40)), (k, 40))
    M = sp.csr_array(sp.hstack([shared, 3.0 * sp.eye_array(k, format="csr")[:, 5:]]))
    rows, columns = chosen_columns(M, np.ones(M.shape[1])) or (np.zeros(0), np.zeros(0))
    assert rows.tolist() == [*range(k)] and {*range(40, k + 35)} <= {*columns.tolist()}
    solved = solve_exactly(M[rows][:, columns], [Fraction(i, 7) for i in range(k)])
    assert solved is not None
    values = [Fraction(v, solved[1]) for v in solved[0]]
    other = M[rows][:, columns].tocsr()
    for i in (0, 4, 5, 3_999):
        own = slice(other.indptr[i], other.indptr[i + 1])
        terms = zip(other.data[own], other.indices[own], strict=True)
        total = sum(Fraction(a) * values[j] for a, j in terms)
        assert total == Fraction(i, 7)
    # columns of little weight are not preferred, and dense ones are too many
    assert chosen_columns(M, np.where(np.arange(M.shape[1]) < 40, 1.0, 1e-3)) is None


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_small_whole_numbers_are_found_in_any_unit(whole: list[int], unit: float) -> None:
    v = np.array(whole, dtype=float)
    found = whole_multiple(unit * v * (1.0 + 1e-9))
    if not v.any():
        assert found is None
        return
    assert found is not None and (found == np.round(found)).all()
    at = int(np.abs(v).argmax())
    assert (found * v[at] == v * found[at]).all() and found[at] * v[at] > 0.0


def test_other_numbers_are_no_small_whole_ones() -> None:
    assert whole_multiple(np.array([1.0, np.sqrt(2.0)])) is None
    assert whole_multiple(np.array([np.nan, 1.0])) is None
    assert whole_multiple(np.arange(1.0, 3000.0)) is None
