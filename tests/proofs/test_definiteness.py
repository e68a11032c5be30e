"""Whether matrices of floats are semidefinite, decided in whole numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optfair.proofs import definiteness as module
from optfair.proofs.definiteness import exactly_semidefinite


def by_fractions(P: Any) -> bool:
    """Decide by elimination, the first line first."""
    M = [[Fraction(float(v)) for v in row] for row in P]
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
    monkeypatch.setattr(module, "_exact_root", eliminate)
    assert not exactly_semidefinite(P)
