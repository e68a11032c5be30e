"""How residuals are paid: by curvature, by own bounds, row by row, and by a tilt; never too little."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.proofs import bounds as bounds_module
from optfair.proofs.columns import linear_rows, with_cut
from optfair.proofs.cones import Cone
from optfair.proofs.definiteness import (
    curvature_of,
    definiteness,
    dominant,
)
from optfair.proofs.elimination import exactly_semidefinite
from optfair.proofs.faces import kernels_of, normals_of
from optfair.proofs.moves import SLIGHT
from optfair.proofs.residual import (
    LEVELS,
    Residual,
    _movable,
    _raised,
    _reached_in,
    absorbed,
    in_dual,
    peeled,
    polished,
    repaired,
    residual_of,
    sharper,
    tilted,
)
from optfair.proofs.roots import lower_root
from optfair.proofs.rounding import reached
from optfair.proofs.triples import exp_depths
from optfair.solution.conic_form import ConicForm


def semidefinite(rows: list[list[Fraction]]) -> bool:
    """Decide by elimination with the largest pivot, written apart from the package."""
    n = len(rows)
    left = list(range(n))
    M = [list(row) for row in rows]
    while left:
        k = max(left, key=lambda i: M[i][i])
        if M[k][k] <= 0:
            return M[k][k] == 0 and all(M[i][j] == 0 for i in left for j in left)
        left.remove(k)
        for i in left:
            factor = M[i][k] / M[k][k]
            for j in left:
                M[i][j] -= factor * M[k][j]
    return True


@pytest.mark.parametrize("apart", [1e1, 1e3, 1e4])
@pytest.mark.parametrize(
    "P",
    [
        [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 0.25]],
        [[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 0.0]],
        [[2.0, 1.0, 0.5], [1.0, 2.0, 1.0], [0.5, 1.0, -1.0]],
    ],
    ids=["inside", "nothing", "below"],
)
def test_columns_in_other_units_do_not_hide_that_a_form_falls(
    P: list[list[float]], apart: float
) -> None:
    """P is semidefinite where DPD is; the witness is one of the matrix in its own units."""
    D = np.diag([apart, 1.0, 1.0 / apart])
    Q = D @ np.array(P) @ D
    found = curvature_of(Q)
    assert not found.accepted and found.witness is not None
    v = [Fraction(float(a)) for a in found.witness]
    exact = sum(v[i] * v[j] * Fraction(float(Q[i, j])) for i in range(3) for j in range(3))
    assert exact < 0 and exact <= Fraction(found.value)
    assert curvature_of(D @ (np.array(P) + 2.0 * np.eye(3)) @ D).accepted


def test_rounding_beside_large_numbers_is_no_direction() -> None:
    A = np.array([[0.1, 0.2, 0.3], [0.7, 0.1, 0.9]])
    D = np.diag([1e5, 1.0, 1e-4])
    P = D @ A.T @ A @ D
    found = curvature_of((P + P.T) / 2.0)
    assert found.accepted and found.shift > 0.0
    # the value is that of a vector of length about 1
    assert curvature_of(np.diag([1e5, -1e-5])).value == pytest.approx(-1e-5)
    centred = np.array([[1.0, 1e-16, 0.5], [1e-16, -1e-16, 1e-16], [0.5, 1e-16, 1.0]])
    assert curvature_of(centred).accepted


@given(st.integers(0, 10_000))
def test_what_is_proved_of_a_matrix_holds_in_fractions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(rng.integers(1, 4)):
        n, kind = rng.integers(1, 6), rng.integers(0, 4)
        B = rng.integers(-3, 4, (n, 1 if kind == 1 else n)).astype(float)
        M = B + B.T if kind == 2 else B @ B.T
        M = rng.normal(size=(n, n)) if kind == 3 else M
        blocks.append((M @ M.T if kind == 3 else M) * 2.0 ** rng.integers(-9, 10))
    P = sp.block_diag([sp.coo_array(block) for block in blocks]).toarray()
    P = (P + P.T) / 2
    exact = [[Fraction(float(v)) for v in row] for row in P]
    truth = semidefinite(exact)
    assert exactly_semidefinite(P) == truth
    assert truth or not dominant(P)
    d = definiteness(P, sharp=True)
    if d.witness is not None:
        assert not truth
        return
    if d.shift == 0.0:
        assert truth
    assert d.floor is not None and d.shifted is not None
    assert not (d.floor[d.shifted] > 0.0).any()
    for i in range(len(P)):
        exact[i][i] -= Fraction(float(d.floor[i]))
        exact[i][i] += Fraction(float(d.shift)) if d.shifted[i] else 0
    assert semidefinite(exact)


def test_singular_matrices_of_integers_need_no_shift() -> None:
    laplacian = np.diag([1.0, *[2.0] * 60, 1.0]) - np.eye(62, k=1) - np.eye(62, k=-1)
    assert definiteness(laplacian, sharp=True).shift == 0.0
    assert definiteness(np.ones((5, 5)), sharp=True).shift == 0.0
    parts = (np.ones((5, 5)), [[2.0, 1.0], [1.0, 2.0]], [[3.0]])
    both = sp.block_diag([sp.coo_array(part) for part in parts])
    d = definiteness(both, sharp=True)
    assert d.shift == 0.0 and d.floor is not None
    assert (d.floor[:5] == 0.0).all() and (d.floor[5:] > 0.0).all()


def program(seed: int, *, curved: bool, sides: str) -> tuple[ConicForm, Any, Any, Fraction]:
    """Return a program of integers with its optimal pair and its exact optimum.

    ``sides`` says which columns have bounds of their own: "none", "lower" or "both".
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    x = rng.integers(0, 4, n).astype(float)
    A = rng.integers(-3, 4, (m, n)).astype(float)
    equal = rng.random(m) < 0.4
    slack = np.where(equal | (rng.random(m) < 0.5), 0, rng.integers(1, 4, m)).astype(float)
    z = np.where(slack > 0.0, 0, rng.integers(0, 4, m)).astype(float)
    z = np.where(equal, rng.integers(-3, 4, m), z).astype(float)
    B = rng.integers(-2, 3, (n, n)).astype(float)
    P = B @ B.T + (np.eye(n) if rng.random() < 0.5 else 0.0) if curved else np.zeros((n, n))
    q = -(P @ x + A.T @ z)
    order = np.argsort(~equal, kind="stable")  # equalities first
    rows, sizes = [A[order]], [(A @ x + slack)[order]]
    duals = [z[order]]
    if sides != "none":  # x >= 0, active where x is 0
        own = np.where(x == 0.0, rng.integers(0, 3, n), 0).astype(float)
        q = q + own
        rows, sizes, duals = [*rows, -np.eye(n)], [*sizes, np.zeros(n)], [*duals, own]
    if sides == "both":
        rows, sizes, duals = [*rows, np.eye(n)], [*sizes, np.full(n, 9.0)], [*duals, np.zeros(n)]
    A, b, z = np.vstack(rows), np.concatenate(sizes), np.concatenate(duals)
    k = int(equal.sum())
    cones = [Cone("zero", 0, k)] if k else []
    cones += [Cone("nonneg", k, b.size)] if b.size > k else []
    form = ConicForm(sp.csc_array(P), q, 0.0, sp.csc_array(A), b, tuple(cones), {"x": slice(0, n)})
    at = [Fraction(v) for v in x.tolist()]
    quadratic = sum(
        (Fraction(float(P[i, j])) * at[i] * at[j] for i in range(n) for j in range(n)), Fraction(0)
    )
    optimum = quadratic / 2 + sum(
        (Fraction(float(c)) * v for c, v in zip(q, at, strict=True)), Fraction(0)
    )
    return form, x, z, optimum


@pytest.mark.parametrize("sides", ["none", "lower", "both"])
@pytest.mark.parametrize("curved", [False, True])
@given(seed=st.integers(0, 100_000), noise=st.sampled_from([0.0, 1e-16, 1e-12, 1e-8, 1e-3]))
def test_no_bound_exceeds_the_optimum(sides: str, curved: bool, seed: int, noise: float) -> None:
    form, x, z, optimum = program(seed, curved=curved, sides=sides)
    rng = np.random.default_rng(seed + 1)
    near = x + noise * rng.normal(size=x.size), z + noise * rng.normal(size=z.size)
    for known in (np.inf, float(optimum)):
        proved = bounds_module.lower_bound(form, *near, known)
        if proved.unpaid is None and np.isfinite(proved.value):
            assert Fraction(proved.value) <= optimum
        elif proved.unpaid is not None and proved.unpaid.size < 1e3:
            # near the origin it holds, short by what it says
            loss = proved.unpaid.slope * 1e3 + 0.5 * proved.unpaid.curve * x.size * 2e6
            assert proved.value - loss <= float(optimum) + 1e-9


@given(seed=st.integers(0, 100_000))
def test_curvature_pays_for_columns_without_bounds(seed: int) -> None:
    form, x, z, optimum = program(seed, curved=True, sides="none")
    if form.curvature.floor is None or not (form.curvature.floor > 0.0).all():
        return
    rng = np.random.default_rng(seed)
    near = x + 1e-7 * rng.normal(size=x.size)
    proved = form.lower_bound(near, z)
    assert proved.unpaid is None
    assert proved.value == pytest.approx(float(optimum), abs=1e-6 * (1.0 + abs(float(optimum))))


def test_own_bounds_absorb_what_an_interior_point_leaves() -> None:
    # min x with x >= 0: the multiplier of the bound is 1, and a little too much
    form = ConicForm(
        sp.csc_array((1, 1)),
        np.array([1.0]),
        0.0,
        sp.csc_array(np.array([[-1.0]])),
        np.zeros(1),
        (Cone("nonneg", 0, 1),),
        {"x": slice(0, 1)},
    )
    z = np.array([1.0 + 1e-9])
    found = residual_of(form, None, z, form.q)
    assert found.low[0] < 0.0
    near = absorbed(form, found, z, np.array([0]))
    after = residual_of(form, None, near, form.q)
    assert after.low[0] >= -1e-15 and 0.0 < z[0] - near[0] < 2e-9
    assert form.lower_bound(np.zeros(1), z).value <= 0.0


def chain(n: int) -> ConicForm:
    """min x_0 with x_{j+1} = x_j, x_n >= 1 for free columns: every column is closed by its own row."""
    A = sp.diags_array([np.append(np.full(n - 1, 0.1), -1.0), np.full(n - 1, -0.1)], offsets=[0, 1])
    q = np.zeros(n)
    q[0] = 0.3
    b = np.append(np.zeros(n - 1), -1.0)
    cones = (Cone("zero", 0, n - 1), Cone("nonneg", n - 1, n))
    return ConicForm(sp.csc_array((n, n)), q, 0.0, sp.csc_array(A), b, cones, {"x": slice(0, n)})


def test_columns_are_peeled_one_by_one() -> None:
    # one row at a time has a single open column: a chain of states
    for n in (60, 2_000):
        form, z = chain(n), np.append(np.full(n - 1, -3.0), 0.3)
        found = residual_of(form, None, z, form.q)
        moved = peeled(form, found, z, np.ones(n, dtype=bool))
        assert moved is not None and (moved[0].size == 0.0).all() and 0.0 < moved[1] < 1e-11
        proved = form.lower_bound(np.ones(n), z)
        assert proved.unpaid is None and 0.3 - 1e-11 <= proved.value <= 0.3
    longer, z = chain(LEVELS + 2), np.append(np.full(LEVELS + 1, -3.0), 0.3)
    found = residual_of(longer, None, z, longer.q)
    assert peeled(longer, found, z, np.ones(z.size, dtype=bool)) is None


@pytest.mark.parametrize("seed", range(10))
def test_some_rows_are_reached_as_all_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = abs(sp.random_array((30, 20), density=0.2, rng=rng, format="csr"))
    sizes.data *= 10.0 ** rng.integers(-308, 308, sizes.nnz)
    step = 10.0 ** rng.integers(-308, 0, 20) * rng.integers(0, 2, 20)
    rows = np.sort(rng.choice(30, 12, replace=False))
    some, every = _reached_in(sizes, rows, step), reached(sizes, step)[rows]
    assert some == pytest.approx(every, rel=1e-12, abs=0.0) and ((some > 0) == (every > 0)).all()


def closings(form: ConicForm, found: Residual, z: np.ndarray) -> list[tuple[Residual, float]]:
    """Return what a move of multipliers makes of the residual, row by row and by equations."""
    n = form.q.size
    at = found.unpaid(lower := np.where(np.arange(n) < 1, -np.inf, 0.0), -lower)
    moved = peeled(form, found, z, at)
    assert moved is not None and at.tolist() == [True] + [False] * (n - 1)
    return [moved, repaired(form, found, None, z, form.q, lower, -lower)]


@pytest.mark.parametrize("cone", ["psd", "soc", "exp"])
def test_what_is_raised_counts_in_other_columns_and_costs(cone: str) -> None:
    # column 0 is closed behind a head, off a diagonal or before a last entry, which column 1 has
    kinds: dict[str, tuple[Any, list[int], list[float]]] = {
        "psd": (Cone("psd", 0, 3, order=2), [0, 2], [1.0, 1.0, 1.0]),
        "soc": (Cone("soc", 0, 3), [0], [1.0, 0.6, 0.8]),
        "exp": (Cone("exp", 0, 3), [2], [-1.0, 1.0, float(np.exp(-2.0))]),
    }
    own, raised, z = kinds[cone]
    A, b = np.zeros((3, 2)), np.zeros(3)
    A[1, 0], A[raised, 1], b[raised] = 1.0, 1.0, 5.0
    form = ConicForm(sp.csc_array((2, 2)), np.zeros(2), 0.0, sp.csc_array(A), b, (own,))
    move = 1e-9 * (1.0 if cone != "exp" else float(np.exp(-2.0)))
    if cone == "psd":  # two neighbours of a matrix on the boundary are as far from it
        z = [1.0, np.sqrt(2.0), 1.0]
    for after, spent in closings(form, Residual(np.full(2, -1e-9), np.full(2, 1e-9)), np.array(z)):
        assert after.size[0] == 0.0
        assert after.high[1] >= 1e-9 + move * len(raised) and after.low[1] <= -after.high[1] * 0.99
        assert spent >= 5.0 * move * len(raised)


def test_multipliers_move_no_further_than_their_cones_allow() -> None:
    def left(cone: Cone, row: int, z: list[float], due: float) -> bool:
        A = np.zeros((cone.stop, 1))
        A[row] = 1.0
        form = ConicForm(
            sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array(A), np.zeros(cone.stop), (cone,)
        )
        found, none = Residual(np.full(1, due), np.full(1, due)), np.full(1, np.inf)
        moved = peeled(form, found, np.array(z), np.array([True]))
        after, _ = repaired(form, found, None, np.array(z), form.q, -none, none)
        assert (moved is None) == bool(after.size[0])
        return moved is None

    exp = Cone("exp", 0, 6)
    z = [-1.0, 1.0, float(np.exp(-2.0)) * (1.0 + 1e-15), -4.0, 4.0, 4.0 * float(np.exp(-2.0))]
    z[5] *= 1.0 + 1e-15
    # a sixteenth of u for u and v of each triple, and nothing for w, which is raised
    for row, most in ((0, 1 / 16), (1, 1 / 16), (2, 0.0), (3, 1 / 4), (4, 1 / 4), (5, 0.0)):
        assert left(exp, row, z, most * 1.01 + 1e-9)
        assert not most or not left(exp, row, z, most * 0.99)
    # on the boundary a head has no room, nor has a diagonal
    assert left(Cone("soc", 0, 2), 0, [1.0, 1.0], 1e-9)
    assert not left(Cone("soc", 0, 2), 1, [1.0, 1.0], 1e-9)
    assert left(Cone("psd", 0, 3, order=2), 0, [1.0, np.sqrt(2.0), 1.0], 1e-9)
    assert left(Cone("nonneg", 0, 1), 0, [1.0], 1.01) and not left(
        Cone("nonneg", 0, 1), 0, [1.0], 0.99
    )


@pytest.mark.parametrize("seed", range(20))
def test_what_is_raised_keeps_every_move_in_the_cones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cones = (Cone("soc", 0, 3), Cone("psd", 3, 9, order=3), Cone("psd", 9, 12, order=2, root=1.0))
    cones = (*cones, Cone("exp", 12, 18))
    z = np.zeros(18)
    z[1:3] = rng.standard_normal(2)
    z[0] = np.hypot(*z[1:3])
    for c in cones[1:3]:
        v, (i, j) = rng.standard_normal(c.order), c.places
        z[c.start : c.stop] = np.outer(v, v)[i, j] * np.where(i == j, 1.0, c.root)
    u, v = -(10.0 ** rng.uniform(-2.0, 2.0, 2)), 10.0 ** rng.uniform(-2.0, 2.0, 2) * [1.0, -1.0]
    v = np.clip(v, 20.0 * u, -20.0 * u)
    z[12::3], z[13::3], z[14::3] = u, v, -u * np.exp(v / u - 1.0)
    nothing = sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array((18, 1)), np.zeros(18)
    form = ConicForm(*nothing, cones)
    room = _movable(form, z)
    room = np.where(np.isinf(room), 10.0 ** rng.uniform(-3.0, 1.0), room)
    room[12:] *= rng.choice([1.0, 1e-3])
    for size in (room, room * (rng.random(18) < 0.3), np.where(np.arange(18) < 12, 0.0, room)):
        up = _raised(form, z, size)
        assert (
            up[np.flatnonzero(~np.isin(np.arange(18), [0, 3, 5, 8, 9, 11, 14, 17]))] == 0.0
        ).all()
        for _ in range(8):
            w = z + up + size * rng.choice([-1.0, 1.0], 18)
            for c in cones[:3]:
                assert c.distance(w[c.start : c.stop], dual=True) <= 1e-13 * np.abs(w).max()
            u, v, last = w[12:].reshape(-1, 3).T
            assert (u < 0.0).all() and (last >= -u * np.exp(v / u - 1.0) * (1.0 - 1e-13)).all()
    assert not _raised(form, z, np.zeros(18)).any()
    # what has the room within is raised by nothing, and by all that it moves where it has not
    within = {0: 0.7, 3: 1.0, 9: 1.0, 12: 0.1, 15: 0.1}
    z[12:] = [-1.0, 1.0, 1.0, -1.0, 1.0, 1.0]
    small = np.where(np.isin(np.arange(18), [14, 17]), 0.0, 1e-2)
    assert not _raised(form, z, small, within).any()
    for k, head in ((1, 0), (4, 3), (10, 9), (12, 14), (16, 17)):
        move = np.where(np.arange(18) == k, 2.0, 0.0)
        assert _raised(form, z, move, within)[head] > (0.1 if k > 11 else 1.99)


def test_the_last_entry_of_an_exponential_multiplier_is_raised_enough_at_any_slope() -> None:
    ratios = np.linspace(-60.0, 120.0, 361)
    k = ratios.size
    form = ConicForm(
        sp.csc_array((1, 1)),
        np.zeros(1),
        0.0,
        sp.csc_array((3 * k, 1)),
        np.zeros(3 * k),
        (Cone("exp", 0, 3 * k),),
    )
    z = np.column_stack([-np.ones(k), -ratios, np.exp(ratios - 1.0)])
    for du, dv in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1e-3, 1e-3)):
        moved = np.tile([du / 16.0, dv / 16.0, 0.0], k)
        last = z[:, 2] + _raised(form, z.ravel(), moved)[2::3]
        for a, b in ((-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)):
            u, v = z[:, 0] + a * moved[::3], z[:, 1] + b * moved[1::3]
            assert (last >= -u * np.exp(v / u - 1.0) * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("share", [1.0, 0.1, 1e-6])
def test_multipliers_inside_exponential_cones_stay_there_whatever_moves_together(
    share: float,
) -> None:
    rng, k = np.random.default_rng(7), 200
    u, ratio = -(10.0 ** rng.uniform(-3.0, 3.0, k)), rng.uniform(-20.0, 20.0, k)
    least = -u * np.exp(ratio - 1.0)
    z = np.column_stack([u, ratio * u, least * (1.0 + 10.0 ** rng.uniform(-6.0, 1.0, k))])
    nothing = sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array((3 * k, 1)), np.zeros(3 * k)
    form = ConicForm(*nothing, (Cone("exp", 0, 3 * k),))
    depths = dict(zip(range(0, 3 * k, 3), exp_depths(z.ravel()).tolist(), strict=True))
    assert min(depths.values()) > 0.0
    size = share * _movable(form, z.ravel(), depths) * rng.random(3 * k)
    size *= np.where(np.arange(3 * k) % 3 < 2, 10.0 ** rng.uniform(-8.0, 0.0, 3 * k), 1.0)
    lifted = z.ravel() + _raised(form, z.ravel(), size, depths)
    for signs in itertools.product([-1.0, 1.0], repeat=3):
        u, v, last = (lifted.reshape(-1, 3) + size.reshape(-1, 3) * signs).T
        assert (u < 0.0).all() and (last >= -u * np.exp(v / u - 1.0) * (1.0 - 1e-12)).all()


def test_a_point_moves_where_curvature_is_proved_without_a_shift() -> None:
    v, nothing, due = np.array([1.0, 1.0, 2.0]), sp.csc_array((1, 3)), 2.0**-30
    z, x, open_ones = np.zeros(1), np.array([3.0, -1.0, 0.0]), np.array([np.inf, np.inf, 1.0])

    def moved(P: np.ndarray, point: np.ndarray | None) -> tuple[Residual, float]:
        own = (due - 2.0) * v if point is not None else due * v
        form = ConicForm(sp.csc_array(P), own, 0.0, nothing, np.zeros(1), (Cone("zero", 0, 1),))
        found = residual_of(form, point, z, form.q)
        found = sharper(form, found, point, z, form.q, np.arange(3))
        assert found.low.tolist() == found.high.tolist() == (due * v).tolist()
        return repaired(form, found, point, z, form.q, -open_ones, open_ones)

    # x moves by due in all, along v, in columns that are open
    P = np.outer(v, v)
    after, spent = moved(P, x)
    assert after.size[:2].tolist() == [0.0, 0.0]
    assert after.low[2] < 0.0 and 4.0 * due <= after.high[2] <= 6.0 * due
    assert 2.0 * due <= spent <= 3.0 * due
    # the square of a large move counts as well
    form = ConicForm(sp.csc_array(P), -v, 0.0, nothing, np.zeros(1), (Cone("zero", 0, 1),))
    found = Residual(-v, -v)
    after, spent = repaired(form, found, np.zeros(3), z, form.q, -open_ones, open_ones)
    assert after.size[:2].tolist() == [0.0, 0.0] and 0.5 <= spent <= 2.0
    # without a point, or with a shift, nothing moves
    assert moved(P, None)[0].size[0] > 0.0
    shifted = P.copy()
    shifted[0, 0] -= 2.0**-45
    form = ConicForm(sp.csc_array(shifted), due * v, 0.0, nothing, np.zeros(1), form.cones)
    assert form.curvature.shift > 0.0
    found = Residual(due * v, due * v)
    after, _ = repaired(form, found, np.zeros(3), z, form.q, -open_ones, open_ones)
    assert after.size[0] > 0.0


def test_moves_cost_what_they_are_and_reach_what_they_meet() -> None:
    A, cones, nothing = sp.csc_array([[3.0, 1.0]]), (Cone("zero", 0, 1),), np.zeros(2)
    form = ConicForm(sp.csc_array((2, 2)), nothing, 0.0, A, np.array([7.0]), cones)
    for after, spent in closings(
        form, Residual(np.array([1.0, 0.0]), np.array([1.0, 0.0])), np.ones(1)
    ):
        assert Fraction(spent) >= Fraction(7, 3)
        assert min(Fraction(float(after.high[1])), -Fraction(float(after.low[1]))) >= Fraction(1, 3)
    least = Residual(np.array([5e-324, 0.0]), np.array([5e-324, 0.0]))
    for after, spent in closings(form, least, np.ones(1)):
        assert after.size[0] == 0.0 < after.size[1] and spent > 0.0


def test_a_multiplier_has_room_for_no_more_than_itself() -> None:
    # a third of 1 is more than the float next to it, and that is all the multiplier has
    A, cones, nothing = sp.csc_array([[3.0]]), (Cone("nonneg", 0, 1),), np.zeros(1)
    form = ConicForm(sp.csc_array((1, 1)), nothing, 0.0, A, nothing, cones)
    one, third = Residual(np.ones(1), np.ones(1)), np.array([1.0 / 3.0])
    assert Fraction(third[0]) < Fraction(1, 3)
    assert peeled(form, one, third, np.array([True])) is None
    assert peeled(form, one, third * (1.0 + 1e-9), np.array([True])) is not None


@pytest.mark.parametrize("seed", range(20))
def test_residuals_are_enclosed_whatever_the_sizes_of_their_terms(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def sized(*shape: int) -> np.ndarray:
        return rng.uniform(-1.0, 1.0, shape) * 2.0 ** rng.integers(-60, 60, shape)

    n, m = (int(v) for v in rng.integers(1, 5, 2))
    A, z, x, q = sized(m, n) * (rng.random((m, n)) < 0.6), sized(m), sized(n), sized(n)
    P = (half := sized(n, n) * (rng.random((n, n)) < 0.6)) + half.T
    form = ConicForm(sp.csc_array(P), q, 0.0, sp.csc_array(A), np.zeros(m), (Cone("zero", 0, m),))
    for point in (None, x):
        bent = [Fraction(0)] * n
        if point is not None:
            bent = [
                sum(Fraction(a) * Fraction(b) for a, b in zip(row, x, strict=True)) for row in P
            ]
        exact = [
            Fraction(q[j])
            + bent[j]
            + sum(Fraction(a) * Fraction(b) for a, b in zip(A[:, j], z, strict=True))
            for j in range(n)
        ]
        plain = residual_of(form, point, z, q)
        sharp = sharper(form, plain, point, z, q, np.arange(n))
        for own in (plain, sharp):
            low, high = own.low.tolist(), own.high.tolist()
            assert all(a <= r <= b for a, r, b in zip(low, exact, high, strict=True))
        assert (sharp.high - sharp.low <= np.spacing(sharp.size) * 4.0).all()
    with np.errstate(over="ignore"):
        beyond = residual_of(form, x, np.full(m, 1e308), np.full(n, 1.7e308))
    known = np.isfinite(beyond.low)
    assert (beyond.low[~known] == -np.inf).all() and (beyond.high[~known] == np.inf).all()


def test_what_underflows_is_paid_for() -> None:
    tiny = Residual(np.full(1, 1e-200), np.full(1, 1e-200))
    assert tiny.cost(np.full(1, -1e-200), np.full(1, np.inf), np.array([True])) < 0.0


def test_a_column_that_a_move_reaches_with_a_tiny_entry_is_not_exact() -> None:
    """1e-30 times a move of 1e-300 is 0 in floats only."""
    A, cones = sp.csc_array([[1.0, 1e-30]]), (Cone("zero", 0, 1),)
    none = np.zeros(2)
    form = ConicForm(sp.csc_array((2, 2)), none, 0.0, A, np.zeros(1), cones, {"x": slice(0, 2)})
    found = Residual(np.array([-1e-310, 0.0]), np.array([1e-310, 0.0]))
    moved = peeled(form, found, np.zeros(1), np.array([True, False]))
    assert moved is not None and moved[0].size[0] == 0.0 and moved[0].size[1] > 0.0
    assert moved[1] > 0.0  # the cost is not below nothing, either


def test_a_raised_diagonal_spoils_any_column_that_was_made_exact() -> None:
    # column 0 is closed off the diagonal, which must then be raised: that opens column 1 again
    A = sp.csc_array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    cones = (Cone("zero", 0, 1), Cone("psd", 1, 4, order=2))
    form = ConicForm(sp.csc_array((2, 2)), np.zeros(2), 0.0, A, np.zeros(4), cones)
    z, found = np.array([0.0, 1.0, 0.0, 1.0]), Residual(np.full(2, -1e-9), np.full(2, 1e-9))
    assert peeled(form, found, z, np.array([True, True])) is None
    form = replace(form, A=sp.csc_array(A.toarray() * np.array([1, 0, 1, 1])[:, None]))
    moved = peeled(form, found, z, np.array([True, True]))
    assert moved is not None and (moved[0].size == 0.0).all()


def test_multipliers_get_deeper_along_the_normals_of_their_cones() -> None:
    rng = np.random.default_rng(2)
    cones = (Cone("soc", 0, 3), Cone("exp", 3, 9), Cone("soc", 9, 11), Cone("soc", 11, 13))
    form = ConicForm(
        sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array((13, 1)), np.zeros(13), cones
    )

    def depths(z: np.ndarray) -> np.ndarray:
        u, v, w = z[3:9].reshape(-1, 3).T
        curved = w + u * np.exp(v / u - 1.0)
        return np.array([z[0] - np.hypot(*z[1:3]), *curved, z[9] - abs(z[10])])

    z = np.array([3.0, 1.0, -2.0, -1.0, 0.5, 2.0, -0.7, -0.3, 1.0, 2.0, -1.0, 0.0, 0.0])
    normals, deep = normals_of(form, z)
    assert normals.shape == (4, 13) and np.allclose(deep, depths(z), rtol=1e-12)
    step = 1e-6 * rng.standard_normal(13)
    assert np.allclose(normals @ step, (depths(z + step) - depths(z - step)) / 2.0, rtol=1e-6)


def test_only_cones_in_which_the_depth_grows_have_normals() -> None:
    # a head alone, one entry, all of them 0; an edge, slopes beyond all floats, no point of the dual
    cones = Cone("soc", 0, 3), Cone("soc", 3, 4), Cone("soc", 4, 6), Cone("exp", 6, 21)
    triples = (
        [0.0, 1.0, 1.0],
        [-1.0, -1e3, 1.0],
        [-1.0, 1e3, 1.0],
        [1.0, 1.0, 1.0],
        [-1.0, -1.0, 3.0],
    )
    z = np.array([2.0, 0.0, 0.0, 3.0, 0.0, 0.0, *itertools.chain(*triples)])
    nothing = sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array((21, 1)), np.zeros(21)
    normals, depths = normals_of(ConicForm(*nothing, cones), z)
    expected = np.zeros((3, 21))
    expected[[0, 1, 2, 2], [0, 3, 19, 20]] = 1.0
    assert np.array_equal(normals.toarray(), expected) and depths.tolist() == [2.0, 3.0, 2.0]


def test_kernels_are_what_is_small_in_a_block_without_room() -> None:
    N = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    block, rng = Cone("psd", 1, 7, order=3), np.random.default_rng(2)
    nothing = sp.csc_array((1, 1)), np.zeros(1), 0.0, sp.csc_array((8, 1)), np.zeros(8)
    form = ConicForm(*nothing, (Cone("nonneg", 0, 1), block, Cone("nonneg", 7, 8)))
    i, j = block.places
    scale = np.where(i == j, 1.0, block.root)

    def entries(M: Any) -> np.ndarray:
        return np.concatenate([[5.0], M[i, j] * scale, [7.0]])

    for values, depth, few in (
        ([1.0, 1e-7, 1e-12], 1e-9, 2),
        ([1.0, 1e-4, 1e-12], 1e-9, 1),
        ([1.0, 1e-4, 1e-12], 1e-3, 2),
    ):
        rows, lacking = kernels_of(form, entries((N * values) @ N.T), depth)
        pairs = [(a, b) for a in range(3 - few, 3) for b in range(a, 3)]
        short = [min(values[a] - depth, 0.0) if a == b else 0.0 for a, b in pairs]
        assert np.sort(lacking) == pytest.approx(np.sort(short), rel=1e-3, abs=1e-13)
        move = rng.normal(size=(3, 3))
        inner = N.T @ (move + move.T) @ N
        found = np.abs(rows @ entries(move + move.T))
        assert np.sort(found) == pytest.approx(np.sort([abs(inner[at]) for at in pairs]), rel=1e-4)
    assert not kernels_of(form, entries((N * [1.0, 1e-7, 1e-8]) @ N.T), 1e-9)[0].nnz


@pytest.mark.parametrize("quick", [False, True])
def test_a_tilt_makes_residuals_payable(quick: bool) -> None:
    # min x + y with x + y >= 1, x, y >= 0: y = (1 + 1e-10) overshoots both columns
    A = np.array([[-1.0, -1.0], [-1.0, 0.0], [0.0, -1.0]])
    form = ConicForm(
        sp.csc_array((2, 2)),
        np.ones(2),
        0.0,
        sp.csc_array(A),
        np.array([-1.0, 0.0, 0.0]),
        (Cone("nonneg", 0, 3),),
        {"x": slice(0, 2)},
    )
    z = np.array([1.0 + 1e-10, 0.0, 0.0])
    found = residual_of(form, None, z, form.q)
    lower, upper = form.column_bounds
    assert found.unpaid(lower, upper).all()
    *_, near = tilted(form, found, np.array([0.5, 0.5]), z, lower, upper, quick=quick)
    assert np.abs(near - z).max() <= 1e-8
    after = residual_of(form, None, near, form.q)
    assert not after.unpaid(lower, upper).any()
    proved = form.lower_bound(np.array([0.5, 0.5]), z)
    assert proved.unpaid is None and 1.0 - 1e-9 <= proved.value <= 1.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_shortest_tilt_makes_room_in_curved_cones_and_never_leaves_half_lines(
    scale: float,
) -> None:
    # two multipliers on the boundaries of their cones, one half-line with nothing to give
    rng = np.random.default_rng(3)
    cones = (Cone("soc", 0, 3), Cone("exp", 3, 6), Cone("nonneg", 6, 9))
    z = scale * np.array([5.0, 3.0, 4.0, -1.0, -1.0, 1.0, 2.0, 0.0, 1.0])
    A = rng.normal(size=(9, 3))
    form = ConicForm(
        *(sp.csc_array((3, 3)), -(A.T @ z) * (1.0 + 1e-9), 0.0, sp.csc_array(A)),
        *(rng.normal(size=9), cones, {"x": slice(0, 3)}),
    )
    found = residual_of(form, None, z, form.q)
    lower, upper = np.array([-np.inf, 0.0, -np.inf]), np.array([np.inf, np.inf, 1.0])
    *_, near = tilted(form, found, np.zeros(3), z, lower, upper, quick=True)
    assert (near[6:] >= 0.0).all() and near[7] == 0.0
    assert np.abs(near - z).max() <= 1e-6 * scale
    before = normals_of(form, z)[1]
    unit = float(found.size[found.unpaid(lower, upper)].max())
    assert (before <= 1e-15 * scale).all() and (normals_of(form, near)[1] >= 7.9 * unit).all()
    after = residual_of(form, None, near, form.q)
    assert after.size[0] <= 1e-3 * unit and after.low[1] >= 0.9 * unit and after.high[2] <= 0.0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_shortest_tilt_raises_the_kernels_of_blocks_and_the_heads_of_cones_next_to_nothing(
    scale: float,
) -> None:
    # of rank 1, beside a cone whose multipliers are rounding
    v = np.array([1.0, -2.0, 0.5])
    block = (
        np.outer(v, v)[np.tril_indices(3)]
        * np.where(np.eye(3), 1.0, np.sqrt(2.0))[np.tril_indices(3)]
    )
    cones = Cone("psd", 0, 6, order=3), Cone("soc", 6, 9), Cone("nonneg", 9, 11)
    z = scale * np.concatenate([block, [1e-12, 0.6e-12, -0.8e-12], [1e-9, 2.0]])
    A = np.random.default_rng(2).normal(size=(11, 2))
    form = ConicForm(
        *(sp.csc_array((2, 2)), -(A.T @ z) * (1.0 + 1e-9), 0.0, sp.csc_array(A)),
        *(np.zeros(11), cones, {"x": slice(0, 2)}),
    )
    left, (lower, upper) = residual_of(form, None, z, form.q), form.column_bounds
    unit = float(left.size.max())
    *shorter, near = tilted(form, left, np.zeros(2), z, lower, upper, quick=True)
    assert np.abs(near - z).max() <= 1e-6 * scale
    raised = np.linalg.eigvalsh(cones[0].matrix(near[:6]))
    assert raised[0] >= 7.9 * unit and cones[0].depth(near[:6]) > 0.0
    assert near[6] - np.linalg.norm(near[7:9]) >= 7.9 * unit
    assert np.array_equal(near[7:9], z[7:9]) and (near[9:] >= 0.0).all()
    # less room costs less, and is enough where the equations are exact
    least = 64.0 * 2.0**-53 * z.max() / unit
    for v, share in zip([*shorter, near], (least, 1e-3, 1.0), strict=True):
        assert residual_of(form, None, v, form.q).size.max() <= 1e-3 * unit
        depth = np.linalg.eigvalsh(cones[0].matrix(v[:6]))[0], v[6] - np.linalg.norm(v[7:9])
        assert 0.9 * share <= min(depth) / (8.0 * unit) and max(depth) / (8.0 * unit) <= 1.1 * share


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_shortest_tilt_turns_multipliers_of_cones_where_nothing_else_is_in_a_column(
    scale: float,
) -> None:
    z, A = scale * np.array([1.0, -1.0]), sp.csc_array(np.array([[0.0], [1.0]]))
    form = ConicForm(
        *(sp.csc_array((1, 1)), -(A.T @ z) * (1.0 - 1e-9), 0.0, A),
        *(np.zeros(2), (Cone("soc", 0, 2),), {"x": slice(0, 1)}),
    )
    left, (lower, upper) = residual_of(form, None, z, form.q), form.column_bounds
    *_, near = tilted(form, left, np.zeros(1), z, lower, upper, quick=True)
    assert np.abs(near - z).max() <= 1e-6 * scale
    assert near[0] - abs(near[1]) >= 7.9e-9 * scale
    assert residual_of(form, None, near, form.q).size[0] <= 1e-12 * scale


@pytest.mark.parametrize("large", [1_300, 4])
def test_kernels_of_large_blocks_are_left_alone(large: int) -> None:
    size = large * (large + 1) // 2
    block = Cone("psd", 0, size, order=large)
    z = np.zeros(size)
    z[0] = 1.0
    form = ConicForm(
        *(sp.csc_array((1, 1)), np.ones(1), 0.0, sp.csc_array((size, 1))),
        *(np.zeros(size), (block,), {"x": slice(0, 1)}),
    )
    rows, lacking = kernels_of(form, z, 1e-9)
    if large == 4:  # three vectors, and their products two by two
        assert rows.shape == (6, size) and np.count_nonzero(lacking) == 3
        assert np.allclose((rows @ z), 0.0) and lacking.min() == pytest.approx(-1e-9)
    else:
        assert rows.shape == (0, size)


@pytest.mark.parametrize("function", [cp.norm, cp.sum_squares])
def test_an_optimum_of_nothing_is_proved_without_an_elimination(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an equation that can be met nothing is left: multipliers that are rounding are 0."""
    rng = np.random.default_rng(18)
    A, b = rng.normal(size=(30, 60)), rng.normal(size=30)
    x = cp.Variable(60, name="x")

    def never(*_: Any) -> Any:
        raise AssertionError("equations were eliminated in fractions")

    monkeypatch.setattr("optfair.proofs.equations.independent", never)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(function(A @ x - b)))).solve()
    assert s.grade.word == "proved" and -1e-12 <= s.bound <= s.objective <= 1e-9


# --- curved cones, free columns: known optima, multipliers that nearly cancel ------------------

# (cone, a multiplier, a slack with no product with it): all of it exact in floats
PAIRS: dict[str, tuple[Cone, list[float], list[float]]] = {
    "zero": (Cone("zero", 0, 2), [-3.0, 2.0], [0.0, 0.0]),
    "nonneg": (Cone("nonneg", 0, 3), [2.0, 0.0, 1.0], [0.0, 3.0, 0.0]),
    "soc": (Cone("soc", 0, 3), [5.0, 3.0, 4.0], [5.0, -3.0, -4.0]),
    "soc inside": (Cone("soc", 0, 3), [4.0, 1.0, 2.0], [0.0, 0.0, 0.0]),
    "psd": (Cone("psd", 0, 3, order=2), [1.0, 2.0, 2.0], [2.0, -2.0, 1.0]),
    "psd inside": (Cone("psd", 0, 3, order=2), [3.0, 1.0, 2.0], [0.0, 0.0, 0.0]),
    "exp": (Cone("exp", 0, 3), [-1.0, -1.0, 1.0], [0.0, 1.0, 1.0]),
}


def conic(kinds: list[str], seed: int) -> tuple[ConicForm, Any, Any, Fraction]:
    """Return a program over cones with free columns, its optimal pair and its exact optimum."""
    rng = np.random.default_rng(seed)
    cones, z, s, at = [], [], [], 0
    for kind in kinds:
        c, price, slack = PAIRS[kind]
        cones.append(replace(c, start=at, stop=at + c.stop))
        z, s, at = [*z, *price], [*s, *slack], at + c.stop
    n = int(rng.integers(1, 4))
    A = rng.integers(-3, 4, (at, n)).astype(float)
    x = rng.integers(-3, 4, n).astype(float)
    q = -(A.T @ np.array(z))
    form = ConicForm(
        *(sp.csc_array((n, n)), q, 0.0, sp.csc_array(A), A @ x + np.array(s), tuple(cones)),
        {"x": slice(0, n)},
    )
    return form, x, np.array(z), Fraction(float(q @ x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kinds",
    [
        *(["zero", "soc"], ["zero", "psd"], ["zero", "exp"], ["soc", "soc inside"]),
        *(["psd inside"], ["psd inside", "soc", "nonneg"], ["exp", "soc inside", "zero"]),
        ["nonneg", "psd", "psd"],
    ],
    ids=" ".join,
)
@given(seed=st.integers(0, 100_000), noise=st.sampled_from([0.0, 1e-15, 1e-11, 1e-8, 1e-4]))
def test_no_bound_over_cones_exceeds_the_optimum(kinds: list[str], seed: int, noise: float) -> None:
    form, x, z, optimum = conic(kinds, seed)
    rng = np.random.default_rng(seed + 1)
    near = z + noise * rng.normal(size=z.size)
    for known in (np.inf, float(optimum) + 1e-9):
        proved = bounds_module.lower_bound(form, x, near, known)
        if proved.unpaid is None:
            assert Fraction(proved.value) <= optimum if np.isfinite(proved.value) else True
        else:
            loss = Fraction(proved.unpaid.slope) * 4
            assert Fraction(proved.value) - loss <= optimum


@pytest.mark.parametrize(
    "kinds",
    [["zero", "soc"], ["zero", "psd"], ["zero", "exp"], ["soc inside"], ["psd inside"]],
    ids=" ".join,
)
def test_multipliers_that_nearly_cancel_over_cones_are_repaired(kinds: list[str]) -> None:
    closed = 0
    for seed in range(30):
        form, x, z, optimum = conic(kinds, seed)
        near = z + 1e-11 * np.random.default_rng(seed).normal(size=z.size)
        proved = bounds_module.lower_bound(form, x, near)
        if proved.unpaid is None:
            closed += 1
            slight = 1e-8 + SLIGHT * abs(float(optimum))  # no move is for less
            assert float(optimum) - slight <= proved.value <= float(optimum)
    assert closed >= 11


def test_polishing_keeps_what_is_better() -> None:
    better = 0
    for seed in range(20):
        form, x, z, _ = conic(["zero", "soc inside"], seed)
        near = in_dual(form.cones, z + 1e-9 * np.random.default_rng(seed).normal(size=z.size))
        found = residual_of(form, x, near, form.q)
        lower, upper = form.column_bounds
        moved, after = polished(form, found, x, near, form.q, lower, upper)
        assert after.size.sum() <= found.size.sum() and np.abs(moved - z).max() <= 1e-7
        better += bool(after.size.max() <= 1e-3 * found.size.max())
        far = near + 1.0  # not nearly right: left alone
        away = residual_of(form, x, far, form.q)
        kept, same = polished(form, away, x, far, form.q, lower, upper)
        assert kept is far and same is away
    assert better >= 8


def test_open_and_curved_columns_are_all_told() -> None:
    P = np.zeros((3, 3))
    P[:2, :2] = [[1.0, 1.0], [1.0, 1.0 - 1e-13]]  # not quite semidefinite
    form = ConicForm(
        *(sp.csc_array(P), np.array([0.0, 0.0, 1e-9]), 0.0, sp.csc_array(np.zeros((1, 3)))),
        *(np.ones(1), (Cone("nonneg", 0, 1),), {"x": slice(0, 3)}),
    )
    proved = form.lower_bound(np.zeros(3), np.zeros(1))
    assert proved.unpaid is not None and proved.unpaid.columns.tolist() == [0, 1, 2]
    assert proved.unpaid.slope >= 1e-9 and proved.unpaid.curve >= 1e-14


def test_a_raised_head_does_not_spoil_what_is_made_exact() -> None:
    # column 2 is closed behind the head, which must then be raised: that opens column 0
    A = np.array([[1.0, 1.0, 0.0], [-1.0, -1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
    z = np.array([0.25, 1.25, 0.75, 1.0])  # on the boundary: 3, 4 and 5 quarters
    q = -(A.T @ z) + 1e-9
    cones = (Cone("zero", 0, 1), Cone("soc", 1, 4))
    form = ConicForm(
        *(sp.csc_array((3, 3)), q, 0.0, sp.csc_array(A), np.zeros(4), cones, {"x": slice(0, 3)})
    )
    found = residual_of(form, None, z, q)
    lower, upper = form.column_bounds
    moved, _ = repaired(form, found, None, z, q, lower, upper)
    assert not (moved.size == 0.0).all() and moved.unpaid(lower, upper).any()
    inner = z + np.array([0.0, 0.5, 0.0, 0.0])  # inside, nothing has to be raised
    found = residual_of(form, None, inner, form.q - A.T @ (inner - z))
    moved, cost = repaired(form, found, None, inner, form.q - A.T @ (inner - z), lower, upper)
    assert (moved.size == 0.0).all() and cost < 1e-290
    apart = A.copy()
    apart[1] = 0.0  # with nothing in the head, all three are closed
    form = replace(form, A=sp.csc_array(apart), q=-(apart.T @ z) + 1e-9)
    found = residual_of(form, None, z, form.q)
    moved, cost = repaired(form, found, None, z, form.q, *form.column_bounds)
    assert (moved.size == 0.0).all() and 0.0 < cost < 1e-290


def test_slacks_beyond_the_range_of_floats_are_no_costs_of_a_tilt() -> None:
    A = np.array([[1.0, 1e300], [-1.0, 0.0], [0.0, -1.0], [1e300, 1.0]])
    form = ConicForm(
        sp.csc_array((2, 2)), np.array([-1.0, 1e-20]), 0.0, sp.csc_array(A),
        np.array([1e15, 1e9, 1e-9, 1.0]), (Cone("nonneg", 0, 4),)
    )  # fmt: skip
    x, z = np.array([1e291, -1e291]), np.array([1.0, 1e-10, 1e300, 1e-10])
    with np.errstate(all="ignore"):
        found = residual_of(form, None, z, np.zeros(2))
        assert not tilted(form, found, x, z, np.full(2, -1.0), np.full(2, np.inf))
        bound = bounds_module.lower_bound(form, x, z)
    assert bound.value < 0.0  # the origin is feasible, and costs nothing


def test_eigenvalues_of_huge_matrices_are_found_in_another_unit() -> None:
    huge = np.diag([0.0, 1e15, 1e-310, 1e8, 1e-8])
    for (i, j), v in {(0, 2): -1e-160, (0, 3): -1e300, (0, 4): 2.0, (1, 2): 1e20, (1, 3): -1e-160,
                      (1, 4): 1e-154, (2, 3): 1e-154, (2, 4): 1e-8, (3, 4): 1e15}.items():  # fmt: skip
        huge[i, j] = huge[j, i] = v
    refuted = definiteness(huge)
    assert refuted.witness is not None and not refuted.accepted
    v = [Fraction(float(part)) for part in refuted.witness]
    exact = [[Fraction(part) for part in row] for row in huge.tolist()]
    assert sum(v[i] * exact[i][j] * v[j] for i in range(5) for j in range(5)) < 0


def test_what_may_be_rounding_in_multipliers_is_left_out_where_that_is_exact() -> None:
    A = np.array([[-1.0, -2.0, 2.0], [0.0, 2.0, -2.0]])
    form = ConicForm(
        *(sp.csc_array((3, 3)), np.array([8.0, 16.0, -16.0]), 0.0, sp.csc_array(A), np.zeros(2)),
        *((Cone("zero", 0, 1), Cone("nonneg", 1, 2)), {"x": slice(0, 3)}),
    )
    proved = form.lower_bound(np.zeros(3), np.array([8.0, 3e-12]))
    assert proved.unpaid is None and -1e-9 <= proved.value <= 0.0
    nothing = replace(form, q=np.zeros(3))  # any point is optimal
    proved = nothing.lower_bound(np.ones(3), np.array([1e-12, 1e-12]))
    assert proved.unpaid is None and -1e-300 <= proved.value <= 0.0


def test_an_unstable_recursion_is_paid_by_moves_not_by_the_bounds_it_implies() -> None:
    rng = np.random.default_rng(0)
    A, B = np.eye(6) + 0.2 * rng.normal(size=(6, 6)), 5.0 * rng.normal(size=(6, 2))
    x, u = cp.Variable((6, 41), name="x"), cp.Variable((2, 40), name="u")
    rows = [x[:, 1:] == A @ x[:, :-1] + B @ u, x[:, 0] == 5, x[:, -1] == 0, cp.abs(u) <= 5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.norm(u, 2, axis=0))), rows)).solve()
    assert np.abs(np.linalg.eigvals(A)).max() > 1.2
    assert s.grade.word == "proved" and s.is_optimal(1e-7)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 7, 20, 60])
@pytest.mark.parametrize("rank", [0.5, 1.0])
def test_roots_lose_no_share_and_few_lines_are_below_the_matrix(order: int, rank: float) -> None:
    rng = np.random.default_rng(order)
    units = np.exp2(rng.integers(-40, 40, order))
    G = rng.integers(-3, 4, (max(1, int(order * rank)) + int(rank), order)) * units
    P = G.T @ G + np.diag(np.where(np.abs(G).sum(axis=0) > 0.0, 0.0, rank) * units**2)
    for matrix in (P, sp.csc_array(P)):
        F, _ = lower_root(matrix)
        size = np.sqrt(np.outer(np.diag(P), np.diag(P)))
        assert (np.abs(F.T @ F - P) <= 1e-12 * size).all()
        if order <= 4 or (order <= 30 and len(F) == order):
            both = np.block(
                [[np.eye(len(F)), F / units], [(F / units).T, P / units / units[:, None]]]
            )
            assert exactly_semidefinite(both)


def test_a_sparse_root_is_in_the_order_of_its_columns() -> None:
    rng = np.random.default_rng(0)
    n = 450
    G = sp.random_array((n, n), density=2 / n, rng=rng) @ sp.diags_array(
        10.0 ** rng.integers(-9, 9, n)
    )
    P = sp.csc_array(G.T @ G)
    P = sp.csc_array(P + sp.diags_array(np.maximum(P.diagonal(), 1.0)))
    F, size = lower_root(P)[0], np.sqrt(np.outer(P.diagonal(), P.diagonal()))
    assert hasattr(F, "toarray") and (np.abs((F.T @ F - P).toarray()) <= 1e-12 * size).all()
    assert not hasattr(lower_root(sp.csc_array(G[:5].T @ G[:5]))[0], "toarray")
    # singular within rounding: sparse factors grow, and lose digits that dense ones keep
    rng = np.random.default_rng(n)
    K = rng.normal(size=(n + 20, n)) * 2.0 ** rng.integers(-9, 10, n)
    K = np.where(rng.random(K.shape) < 2 / n, K, 0.0) + np.eye(n + 20, n)
    P = np.tril(K.T @ K) + np.tril(K.T @ K, -1).T
    F, size = lower_root(sp.csc_array(P))[0], np.sqrt(np.outer(np.diag(P), np.diag(P)))
    assert (np.abs(F.T @ F - P) <= 1e-12 * size).all()


@pytest.mark.parametrize("order", [35, 90, 450])
def test_roots_of_many_lines_are_below_their_matrix_in_every_direction(order: int) -> None:
    rng = np.random.default_rng(order)
    G = rng.normal(size=(order + 20, order)) * 2.0 ** rng.integers(-9, 10, order)
    if order > 400:
        G = np.where(rng.random(G.shape) < 2 / order, G, 0.0)
        G = np.vstack([G, np.diag(np.maximum(np.abs(G).max(axis=0), 1.0))])
    P = np.tril(G.T @ G) + np.tril(G.T @ G, -1).T
    F: Any = lower_root(sp.csc_array(P))[0]
    assert hasattr(F, "toarray") == (order > 400)
    F = F.toarray() if hasattr(F, "toarray") else F
    size = np.sqrt(np.diag(P))
    left = (P - F.T @ F) / size / size[:, None]
    assert np.abs(left).max() <= 1e-11
    worst = np.linalg.eigh(left)[1][:, [0, order // 2, -1]] / size[:, None]
    for v in [*worst.T, *np.eye(order)[:3]]:  # in fractions, where floats say next to nothing
        exact, at = [Fraction(float(w)) for w in v], np.flatnonzero
        rows = [sum((Fraction(float(r[j])) * exact[j] for j in at(r)), Fraction(0)) for r in F]
        value = sum(
            Fraction(float(P[i, j])) * exact[i] * exact[j]
            for i, j in zip(*np.nonzero(P), strict=True)
        )
        assert sum(r * r for r in rows) <= value


def test_what_curvature_adds_to_a_limit_of_the_costs_does_not_underflow() -> None:
    """At y = -q / mu the curved column gives 5e-41, which the linear one may cost."""
    q, nothing = np.array([1e-170, 1e-45, 0.0]), np.zeros(3)
    P = sp.csc_array(np.diag([1e-300, 0.0, 0.0]))
    A = sp.csc_array([[0.0, -1.0, 0.0], [0.0, -1.0, 1.0]])
    form = ConicForm(P, q, 0.0, A, np.zeros(2), (Cone("nonneg", 0, 2),))
    point = [Fraction(-1e130), Fraction(4e4), Fraction(4e4)]  # y1 >= 0, y2 <= y1
    value = Fraction(1e-300) * point[0] ** 2 / 2
    value += sum(Fraction(c) * v for c, v in zip(q.tolist(), point, strict=True))
    assert value < 0
    form = form.moved({"q": q - np.array([0.0, 0.0, 9e-46])})  # and a gain that y2 has no end for
    value -= Fraction(9e-46) * point[2]
    for z in (np.zeros(2), np.array([1e-46, 9e-46]), np.array([0.0, 9e-46])):
        known = bounds_module.lower_bound(form, nothing, z, float(value))
        assert known.unpaid is not None or Fraction(known.value) <= value
    cut = with_cut(form.moved({"q": q}), linear_rows(form), 0.0)
    assert cut.high[-1] >= 4e4 * 1e-45


@pytest.mark.parametrize("size", [5e-324, 1e-318, 1.7e-309, 3e-308])
@pytest.mark.parametrize("entries", [(1.0, 0.5), (1.0, 1.0), (0.0, 1.0)])
def test_the_search_of_a_shift_ends_for_numbers_below_the_normal_ones(
    size: float, entries: tuple[float, float]
) -> None:
    """Steps that are a share of their size are 0."""
    own, across = entries
    assert definiteness(size * np.array([[own, across], [across, own]])).shift >= 0.0


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("loss", [cp.logistic, cp.exp, cp.huber], ids=["logistic", "exp", "huber"])
def test_the_head_of_a_norm_beside_curved_costs_is_its_cost(loss: Any, unit: float) -> None:
    """In the cone it is above its cost, and the length has no upper bound to pay that."""
    rng = np.random.default_rng(3)
    A, signs = rng.normal(size=(40, 12)), np.sign(rng.normal(size=40))
    x = cp.Variable(12, name="x")
    cost = unit * (cp.sum(loss(0.5 - cp.multiply(signs, A @ x))) + 0.1 * cp.norm(x))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost))).solve()
    assert s.grade.word == "proved" and not s.attempts, s.grade
    assert s.objective - s.bound <= 1e-6 * abs(s.objective)
    assert len(s.seconds) and "attempts" not in s.seconds  # by the first pair
