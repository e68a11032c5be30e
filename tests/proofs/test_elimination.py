"""Elimination in whole numbers against fractions."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optfair.proofs import elimination as module
from optfair.proofs.elimination import (
    apart,
    exact_root,
    exactly_semidefinite,
    independent,
    root_down,
)
from optfair.proofs.roots import lower_root


def by_fractions(P: Any) -> bool:
    """Decide by elimination, the first line first."""
    M = [[Fraction(v) for v in row] for row in P]
    while M:
        pivot, rest = M[0][0], M[0][1:]
        if pivot < 0 or (pivot == 0 and any(rest)):
            return False
        M = [
            [v - (row[0] * rest[j] / pivot if pivot else 0) for j, v in enumerate(row[1:])]
            for row in M[1:]
        ]
    return True


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from("grls"))
def test_decided_as_in_fractions(n: int, rank: int, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n, rank)) if kind == "g" else rng.integers(-3, 4, (n, rank)) * 1.0
    if kind == "s":  # units of their own, all of them powers of two
        F *= np.exp2(rng.integers(-300, 300, (n, 1)))
    P = F @ F.T
    if kind == "l":  # lower by one rounding somewhere
        P[0, 0] = np.nextafter(P[0, 0], -1.0)
    assert exactly_semidefinite(P) == by_fractions(P)


@pytest.mark.parametrize(("n", "rank"), [(10, 3), (20, 10), (30, 10)])
def test_forms_that_are_rounded_are_refuted_before_the_elimination(
    n: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eliminate(_: Any) -> None:
        raise AssertionError("eliminated")

    F = np.random.default_rng(0).normal(size=(n, rank))
    P = F @ F.T
    P = (P + P.T) / 2.0
    assert not by_fractions(P)
    monkeypatch.setattr(module, "exact_root", eliminate)
    assert not exactly_semidefinite(P)


def narrow() -> Any:
    """A line of zeros, and a determinant of 1 in units of the last of 53 digits."""
    p, r = 2.0**26 + 1.0, 2.0**26
    P = np.zeros((3, 3))
    P[1:, 1:] = [[p * p + 1.0, p * r + 1.0], [p * r + 1.0, r * r + 1.0]]
    return np.ldexp(P, -53)


@pytest.mark.parametrize(
    ("P", "semidefinite"),
    [
        (np.zeros((2, 2)), True),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), False),
        (np.array([[0.0, 0.0], [0.0, -1.0]]), False),
        (np.array([[4.0, 0.0, 2.0], [0.0, 0.0, 1.0], [2.0, 1.0, 1.0]]), False),
        (np.array([[4.0, 2.0, 2.0], [2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), True),
        (narrow(), True),
        (narrow() - np.diag([0.0, 0.0, 2.0**-53]), False),
    ],
)
def test_what_is_left_below_a_last_pivot_decides(P: Any, semidefinite: bool) -> None:
    assert by_fractions(P) == semidefinite
    assert (exact_root(P) is not None) == semidefinite


@pytest.mark.parametrize("unit", [1.0, 2.0**-200, 2.0**200])
@pytest.mark.parametrize("below", [False, True])
def test_roots_have_the_signs_and_sizes_of_their_products(below: bool, unit: float) -> None:
    F = np.random.default_rng(3).integers(-3, 4, (3, 6)).astype(float)
    P = F.T @ F * unit
    assert P.min() < 0.0 < P.max()
    root = exact_root(P, below=below)
    assert root is not None
    np.testing.assert_allclose(root.T @ root, P, atol=1e-12 * P.max())


@pytest.mark.parametrize("digits", [1, 2, 13, 25, 52, 53])
def test_roots_are_the_next_numbers_below_of_so_many_digits(digits: int) -> None:
    rng = random.Random(digits)
    for _ in range(50):
        above, under = (rng.getrandbits(rng.choice([1, 3, 40, 54, 107, 301])) or 1 for _ in "ab")
        root = root_down(above, under, digits)
        last = math.ldexp(1.0, math.frexp(root)[1] - digits)
        assert (root / last).is_integer()
        assert Fraction(root) ** 2 <= Fraction(above, under) < Fraction(root + last) ** 2


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 8), st.integers(1, 8), st.integers(-60, 60), st.integers(0, 2**32 - 1))
def test_roots_of_singular_forms_of_whole_numbers_are_below(
    n: int, rank: int, power: int, seed: int
) -> None:
    F = np.random.default_rng(seed).integers(-3, 4, (min(rank, n - 1), n)).astype(float)
    P = np.ldexp(F.T @ F, power)
    root, below = lower_root(P)
    exact = [[Fraction(float(v)) for v in row] for row in np.asarray(root)]
    left = [
        [Fraction(float(P[i, j])) - sum(row[i] * row[j] for row in exact) for j in range(n)]
        for i in range(n)
    ]
    if below:
        assert by_fractions(left)
    assert below or n > 4, "rows of few numbers are short"
    assert max(abs(v) for row in left for v in row) <= 1e-8 * float(np.abs(P).max(initial=0.0))


def _rank(rows: list[list[Fraction]]) -> int:
    rank = 0
    for j in range(len(rows[0])):
        lead = next((i for i in range(rank, len(rows)) if rows[i][j]), None)
        if lead is None:
            continue
        rows[rank], rows[lead] = rows[lead], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][j] / rows[rank][j]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


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


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_rows_that_are_apart_modulo_a_prime_are_independent(k: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = rng.integers(-3, 4, (k, m)) * 2.0 ** rng.integers(-60, 60, (k, 1))
    M *= 2.0 ** rng.integers(-60, 60, m)
    exact = [[Fraction(float(v)) for v in row] for row in M]
    assert apart(sp.csr_array(M)) == (_rank(exact) == k)


def test_dense_rows_of_floats_are_seen_to_be_independent_without_fractions() -> None:
    M = np.random.default_rng(0).normal(size=(20, 240))
    assert independent(sp.csr_array(M), [Fraction(1)] * 20) == list(range(20))
    M[7] = 2.0 * M[3]
    assert not apart(sp.csr_array(M)) and not apart(sp.csr_array(M.T))
    twice = sp.csr_array((np.ones(3), [0, 0, 1], [0, 2, 3]), shape=(2, 2))  # an entry in two parts
    assert apart(twice)
