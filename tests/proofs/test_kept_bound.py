"""The bound of moving numbers is below the exact one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.cones import Cone
from optfair.proofs.kept_bound import KeptBound
from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]


def program(rng: np.random.Generator, n: int = 5) -> tuple[ConicForm, Floats, Floats]:
    """Return a quadratic program with open columns, a feasible point and multipliers."""
    P = np.zeros((n + 3, n + 3))
    root = rng.standard_normal((n, n))
    P[:n, :n] = root @ root.T + 0.1 * np.eye(n)
    A = rng.standard_normal((3 + 4, n + 3))
    x, z = rng.standard_normal(n + 3), np.concatenate([rng.standard_normal(3), rng.random(4)])
    b = A @ x + np.concatenate([np.zeros(3), rng.random(4)])
    cones = (Cone("zero", 0, 3), Cone("nonneg", 3, 7))
    q = -(P @ x + A.T @ z)
    return ConicForm(sp.csc_array(P), q, 0.5, sp.csc_array(A), b, cones), x, z


def exact_minimum(form: ConicForm, z: Floats) -> Fraction:
    """Return the least of the Lagrangian at multipliers that make the open columns cancel, exactly.

    Solved in fractions: stationarity of the curved columns, zero in the open ones.
    """
    n, m = form.q.size, form.b.size
    P, A = form.P.toarray(), form.A.toarray()
    # unknowns: y of curved columns, move of the equations; the open columns have no curvature
    curved = np.flatnonzero(np.diag(P) > 0.0)
    equal = np.flatnonzero(form.equal)
    rows, side = [], []
    free = [j for j in range(n) if j not in curved]
    for j in free:
        rows.append([Fraction(0)] * curved.size + [Fraction(A[i, j]) for i in equal])
        side.append(
            -Fraction(form.q[j]) - sum(Fraction(A[i, j]) * Fraction(z[i]) for i in range(m))
        )
    for j in curved:
        rows.append([Fraction(P[j, k]) for k in curved] + [Fraction(A[i, j]) for i in equal])
        side.append(
            -Fraction(form.q[j]) - sum(Fraction(A[i, j]) * Fraction(z[i]) for i in range(m))
        )
    solved = _solved(rows, side)
    y = dict(zip(curved.tolist(), solved[: curved.size], strict=True))
    price = [Fraction(v) for v in z]
    for i, d in zip(equal, solved[curved.size :], strict=True):
        price[i] += d
    bent = sum(Fraction(P[j, k]) * y[j] * y[k] for j in y for k in y) / 2
    gradient = {
        j: Fraction(form.q[j]) + sum(Fraction(A[i, j]) * price[i] for i in range(m)) for j in y
    }
    fixed = Fraction(form.offset) - sum(Fraction(b) * v for b, v in zip(form.b, price, strict=True))
    return fixed + bent + sum(gradient[j] * y[j] for j in y)


def _solved(rows: list[list[Fraction]], side: list[Fraction]) -> list[Fraction]:
    table = [[*r, s] for r, s in zip(rows, side, strict=True)]
    for k in range(len(table)):
        at = next(i for i in range(k, len(table)) if table[i][k] != 0)
        table[k], table[at] = table[at], table[k]
        table[k] = [v / table[k][k] for v in table[k]]
        for i in range(len(table)):
            if i != k and table[i][k] != 0:
                factor = table[i][k]
                table[i] = [v - factor * w for v, w in zip(table[i], table[k], strict=True)]
    return [row[-1] for row in table]


@pytest.mark.parametrize("seed", range(6))
def test_the_kept_bound_is_below_the_exact_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    form, x, z = program(rng)
    kept = KeptBound(form)
    for _ in range(3):
        b = form.b + 0.1 * rng.standard_normal(form.b.size)
        moved = form.moved({"b": b, "q": form.q * (1.0 + 1e-15)})
        bound = kept(moved, x, z)
        truth = exact_minimum(moved, z)
        assert Fraction(bound) <= truth
        assert float(truth - Fraction(bound)) <= 1e-9 * (1.0 + abs(float(truth)))
    assert kept(form, x, -z) == -np.inf  # not in the dual cone


def test_the_kept_bound_pays_for_equations_that_nearly_depend_on_each_other() -> None:
    """An inverse in floats alone is short in every second of these."""
    proved = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        M = rng.standard_normal((3, 3))
        M[2] = M[0] + M[1] + 10.0 ** rng.uniform(-14.5, -12.0) * rng.standard_normal(3)
        q = np.eye(3)[rng.integers(3)]
        b = np.sign(np.linalg.solve(M.T, -q)) * rng.random(3)
        form = ConicForm(sp.csc_array((3, 3)), q, 0.0, sp.csc_array(M), b, (Cone("zero", 0, 3),))
        try:
            bound = KeptBound(form)(form, np.zeros(3), np.zeros(3))
        except ValueError:
            continue
        proved += 1
        assert Fraction(bound) <= exact_minimum(form, np.zeros(3))
    assert proved >= 15


def test_the_kept_bound_says_what_it_cannot() -> None:
    form, _, _ = program(np.random.default_rng(0))
    short = form.moved(
        {"A": sp.csc_array(form.A.toarray() * np.array([0, 1, 1, 1, 1, 1, 1])[:, None])}
    )
    with pytest.raises(ValueError, match="cancel"):
        KeptBound(short)
    # bounds that rows imply hold for the right-hand sides they were read off
    A = sp.csc_array([[1.0, -1.0], [-1.0, -1.0], [0.0, 1.0]])
    box = ConicForm(
        sp.csc_array((2, 2)), np.ones(2), 0.0, A, np.array([0.0, 0.0, 1.0]), (Cone("nonneg", 0, 3),)
    )
    kept = KeptBound(box, np.zeros(3, dtype=bool))
    at, price = np.array([-1.0, 1.0]), np.array([0.0, 1.0, 0.0])
    assert -1e-9 < kept(box, at, price) <= 0.0
    assert kept(box.moved({"b": np.array([0.0, 0.0, 2.0])}), at, price) == -np.inf
    with pytest.raises(ValueError, match="without a bound"):
        KeptBound(box, np.array([True, True, True]))
    # rest of size 1 in columns between -1 and 1, and between 0 and 1
    assert -2.0 - 1e-6 < kept(box, at, np.zeros(3)) <= -2.0
    with pytest.raises(ValueError, match="half-lines"):
        KeptBound(replace(box, cones=(Cone("zero", 0, 1), Cone("soc", 1, 3))))


def test_the_kept_bound_pays_columns_between_sides_of_any_factor() -> None:
    """The least of a linear function on [-3, 2] x [-6, 1] is at a corner."""
    A = sp.csc_array([[1.0, 0.0], [-4.0, 0.0], [0.0, 0.5], [0.0, -1.0]])
    sides = np.array([2.0, 12.0, 0.5, 6.0])
    form = ConicForm(
        sp.csc_array((2, 2)), np.array([1.0, 2.0]), 0.0, A, sides, (Cone("nonneg", 0, 4),)
    )
    kept = KeptBound(form)
    assert -15.0 - 1e-6 < kept(form, np.zeros(2), np.zeros(4)) <= -15.0
    assert kept(form, np.zeros(2), np.array([1.0, -1.0, 1.0, 1.0])) == -np.inf
    # x <= y <= 1, y >= -2x: between -1/2 and 1 both, which rows of several entries imply
    A = sp.csc_array([[1.0, -1.0], [-2.0, -1.0], [0.0, 1.0]])
    sides = np.array([0.0, 0.0, 1.0])
    form = ConicForm(sp.csc_array((2, 2)), -np.ones(2), 0.0, A, sides, (Cone("nonneg", 0, 3),))
    kept = KeptBound(form, np.zeros(3, dtype=bool))
    assert -2.0 - 1e-6 < kept(form, np.zeros(2), np.zeros(3)) <= -2.0
    # one side is none
    one = ConicForm(
        sp.csc_array((1, 1)), -np.ones(1), 0.0, A[2:, 1:], sides[2:], (Cone("nonneg", 0, 1),)
    )
    with pytest.raises(ValueError, match="without a bound"):
        KeptBound(one)
