"""Equations: solutions of the promised size exist, and those that are kept imply the others."""

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
from optfair.proofs.effort import in_haste
from optfair.proofs.elimination import independent
from optfair.proofs.equations import (
    correcting_step,
    correction,
    with_own_unknowns,
)


@pytest.mark.parametrize("way", ["inverse", "squares", "length"])
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4), more=st.integers(0, 3))
def test_a_solution_of_the_size_that_is_promised_exists(
    way: str, seed: int, k: int, more: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(equations, "_too_large", lambda k, m: way == "squares")
        _promised(seed, k, more, quick=way == "length")


def _promised(seed: int, k: int, more: int, *, quick: bool) -> None:
    rng = np.random.default_rng(seed)
    M = rng.integers(-4, 5, size=(k, k + more)).astype(float) * 10.0 ** rng.integers(-6, 7)
    r = rng.normal(size=k) * 1e-8
    room = np.where(rng.random(k + more) < 0.2, 0.0, 1.0)
    found = correction(sp.csr_array(M), np.abs(r), room, quick=quick)
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


@pytest.mark.parametrize("seed", range(12))
def test_the_length_of_a_solution_bounds_each_of_its_entries(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, m = 6, 11
    M = rng.integers(-9, 10, (k, m)) * 2.0 ** rng.integers(-seed, seed + 1, (k, 1))
    r = rng.uniform(0.5, 1.0, k) * 2.0 ** rng.integers(-40, -20, k)
    room = np.append(0.0, rng.uniform(0.01, 3.0, m - 1))
    most = correction(sp.csr_array(M), r, room, quick=True)
    assert most is not None and most[0] == 0.0
    weight = np.minimum(room, 1.0)
    for signs in rng.choice([-1.0, 1.0], (20, k)):  # W M' (M W M')^-1 r is what is bounded
        step = weight * (M.T @ np.linalg.solve(M * weight @ M.T, signs * r))
        assert (np.abs(step) <= most * (1.0 + 1e-9)).all()
    # and is worth something beside what an inverse says
    inverse = correction(sp.csr_array(M), r, room)
    assert inverse is not None and most.max() <= 100.0 * inverse.max()
    twice = sp.csr_array(np.vstack([M, M[:1]]))
    assert correction(twice, np.append(r, 1.0), room, quick=True) is None


def test_what_is_known_of_equations_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    M, r, room = sp.csr_array(rng.normal(size=(5, 8))), rng.uniform(size=5), np.ones(8)
    by, made = equations._by_right_inverse, list[Any]()
    monkeypatch.setattr(equations, "_by_right_inverse", lambda *a: made.append(a) or by(*a))
    known: equations.Inverses = {}
    for side in (r, 3.0 * r, 1e-9 * r):
        again = correction(M, side, room, known=known)
        plain = correction(M, side, room)
        assert again is not None and plain is not None and (again == plain).all()
    assert len(made) == 1 + 3 and len(known) == 1
    # other room, other entries and other places are other equations
    half = correction(M, r, np.append(0.5, room[1:]), known=known)
    assert half is not None and (half == correction(M, r, np.append(0.5, room[1:]))).all()
    for other in (2.0 * M, M[:, ::-1], M[:4]):
        side = r[: other.shape[0]]
        now, then = correction(sp.csr_array(other), side, room, known=known), None
        then = correction(sp.csr_array(other), side, room)
        assert now is not None and then is not None and (now == then).all()
    # that nothing is known of some is known, too
    twice = sp.csr_array(np.ones((2, 3)))
    made.clear()
    assert [correction(twice, r[:2], room[:3], known=known) for _ in range(3)] == [None] * 3
    assert len(made) == 1


def test_in_haste_few_equations_are_solved() -> None:
    M, r = sp.csr_array(np.eye(3) + 0.1), np.full(3, 1e-9)
    for most, done in ((2, False), (3, True)):
        with in_haste(most) as haste:
            assert (correction(M, r, np.ones(3)) is not None) == done
            assert haste.left_out is not done
            assert correction(M, r, np.ones(3), quick=True) is not None  # by one factor


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_equations_of_one_unknown_are_solved_before_the_others(seed: int, quick: bool) -> None:
    # least absolute residuals: a multiplier of each row is tied by the bound of its size alone,
    # but of few rows, whose two multipliers leave a choice
    rng = np.random.default_rng(seed)
    k, n = 30, 4
    X = rng.integers(-9, 10, (k, n)) * 2.0 ** rng.integers(-3, 4, (k, 1))
    M = np.block([[np.eye(k), np.eye(k)], [X.T, -X.T]])
    room = np.concatenate([np.ones(k), np.zeros(k - 2 * n), np.ones(2 * n)])
    r = rng.uniform(0.5, 1.0, k + n) * 1e-9
    most = correction(sp.csr_array(M), r, room, quick=quick)
    assert most is not None
    given = slice(0, k - 2 * n)
    assert (most[given] >= r[given]).all() and (most[given] <= r[given] * (1.0 + 1e-14)).all()
    assert (most[k : 2 * k - 2 * n] == 0.0).all()
    for signs in rng.choice([-1.0, 1.0], (20, k + n)):
        side = -signs * r
        side[k:] -= X[given].T @ side[given]
        rest = np.r_[k - 2 * n : k], np.r_[2 * k - 2 * n : 2 * k]
        own = M[np.ix_(np.r_[k - 2 * n : k + n], np.concatenate(rest))]
        answer = np.linalg.lstsq(own, side[k - 2 * n :], rcond=None)[0]
        assert np.abs(own @ answer - side[k - 2 * n :]).max() <= 1e-20
        # the bound is of one solution: the shortest is no longer than it
        assert np.linalg.norm(answer) <= np.linalg.norm(most[np.concatenate(rest)]) * (1 + 1e-9)


def test_what_equations_of_one_unknown_give_is_rounded_up_and_may_be_nothing() -> None:
    chain = sp.csr_array([[2.0, 0.0, 0.0], [1.0, 4.0, 0.0], [0.0, 8.0, 0.5]])
    r = np.array([1e-9, 0.0, 1e-9])
    most = correction(chain, r, np.ones(3))
    assert most is not None
    exact = [Fraction(1e-9) / 2, Fraction(1e-9) / 8, 2 * (Fraction(1e-9) * 2)]
    assert all(Fraction(v) >= e for v, e in zip(most.tolist(), exact, strict=True))
    assert most == pytest.approx([float(e) for e in exact], rel=1e-13)
    # an unknown that two equations give has no value, but where both are 0
    twice = sp.csr_array([[1.0, 0.0], [3.0, 0.0], [1.0, 1.0]])
    assert correction(twice, np.array([1.0, 0.0, 1.0]), np.ones(2)) is None
    assert correction(twice, np.array([0.0, 1.0, 1.0]), np.ones(2)) is None
    both = correction(twice, np.array([0.0, 0.0, 1.0]), np.ones(2))
    assert both is not None and both[0] == 0.0 and both[1] >= 1.0
    # nor has one without unknowns that may move a solution
    assert correction(twice, np.ones(3), np.array([0.0, 1.0])) is None
    # what underflows is not lost
    tiny = sp.csr_array([[1e200, 0.0], [1e-200, 1e-200]])
    most = correction(tiny, np.array([1e-110, 0.0]), np.ones(2))
    assert most is not None and most[0] >= 1e-310 and most[1] >= 1e-310


def test_a_length_counts_what_the_product_of_equations_is_off() -> None:
    M = sp.csr_array([[1.0, 1.0], [1.0, 1.0 + 2.0**-40]])
    assert correction(M, np.ones(2), np.ones(2), quick=True) is None
    (most,) = correction(sp.csr_array([[2.0]]), np.array([1e-9]), np.ones(1), quick=True)
    assert 5e-10 < most < 5.1e-9  # a hundredth of the diagonal is what is proved
    tiny = correction(sp.csr_array([[1e20]]), np.array([1e-310]), np.ones(1), quick=True)
    assert tiny is not None and tiny[0] > 0.0


@pytest.mark.parametrize("off", [0.0, 1e-13])
def test_equations_that_contradict_each_other_leave_the_least(
    off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    k, m = 120, 150
    M, r = rng.normal(size=(k, m)), rng.normal(size=k) * 1e-9
    M[-1], r[-1] = M[0] + off * rng.normal(size=m), r[0] + 1e-9
    size = np.abs(M).max(axis=1)
    least = M @ np.linalg.lstsq(M / size[:, None], -r / size, rcond=1e-9)[0] + r
    asked, by = list[Any](), scipy.linalg.lstsq
    monkeypatch.setattr(equations, "LARGE", 0)
    monkeypatch.setattr(scipy.linalg, "lstsq", lambda *a, **b: asked.append(1) or by(*a, **b))
    step = correcting_step(sp.csr_array(M), r, np.ones(m))
    assert step is not None and np.abs(step).max() <= 1e3 * np.abs(r).max()
    assert np.linalg.norm((M @ step + r) / size) <= 1.001 * np.linalg.norm(least / size)
    assert not asked


def test_a_long_step_along_nearly_dependent_equations_is_none() -> None:
    k, m = 110, 120
    M = np.eye(k, m)
    M[-1], r = M[0], np.zeros(k)
    M[-1, -1], r[-1] = 1e-11, 1e-9
    step = correcting_step(sp.csr_array(M), r, np.ones(m))
    assert step is not None and np.abs(step).max() <= np.abs(r).max()


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
    again = correcting_step(twice, np.append(r, r[0]), room)
    assert again is not None  # but they are solved, where they agree
    np.testing.assert_allclose(again, shortest, atol=1e-6 * np.abs(shortest).max())
    monkeypatch.setattr(equations, "SQUARED", k - 1)
    assert correction(M, np.abs(r), room) is None and correcting_step(M, r, room) is not None
    monkeypatch.setattr(equations, "SOLVED", k - 1)
    assert correcting_step(M, r, room) is None


def test_a_correction_is_never_rounded_to_nothing() -> None:
    none = correction(sp.csr_array([[2.0]]), np.zeros(1), np.ones(1))
    assert none is not None and none.tolist() == [0.0]
    tiny = correction(sp.csr_array([[1e20]]), np.array([1e-310]), np.ones(1))
    assert tiny is not None and tiny[0] > 0.0
    twice = sp.csr_array(
        (np.array([1.0, 1e20, -1e20, -0.9999]), np.zeros(4, int), np.array([0, 4])), shape=(1, 1)
    )
    assert correction(twice, np.ones(1), np.ones(1)) is None


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


@pytest.mark.parametrize("full", [0, 40])
@pytest.mark.parametrize("weak", [1.0, 1e-6, 0.0])
def test_full_equations_border_the_thin_ones_and_weak_ones_are_solved_too(
    full: int, weak: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some equations are nearly those of others: by a share that the ridge does not see."""
    rng = np.random.default_rng(full)
    k, m = 300, 900
    thin = sp.random_array((k, m), density=0.004, rng=rng) + sp.eye_array(k, m)
    again = thin.tocsr()[:5] + weak * sp.eye_array(5, m, k=k)
    rows = [thin, again, *([rng.normal(size=(full, m))] if full else [])]
    M = sp.csr_array(sp.vstack(rows))
    r = 1e-9 * M @ rng.normal(size=(m, 2))
    made: list[Any] = []
    real = equations._bordered
    monkeypatch.setattr(equations, "_bordered", lambda M: made.append(real(M)) or made[-1])
    for module, name in ((np.linalg, "solve"), (scipy.linalg, "lstsq")):
        monkeypatch.setattr(module, name, None)
    step = correcting_step(M, r, np.ones(m))
    assert step is not None and step.shape == (m, 2)
    assert np.abs(M @ step + r).max() <= 1e-9 * np.abs(r).max()
    # the shortest, and each side has its own
    shortest = np.linalg.lstsq(M.toarray(), -r, rcond=1e-13)[0]
    off = 0.1 if 0.0 < weak < 1.0 else 1e-5  # what is left may be much along weak ones
    np.testing.assert_allclose(step, shortest, atol=off * np.abs(shortest).max())
    for one, other in zip(r.T, step.T, strict=True):
        alone = correcting_step(M, one, np.ones(m))
        assert alone is not None
        np.testing.assert_allclose(alone, other, atol=off * np.abs(other).max())
    assert all(made)


def test_what_is_left_of_equations_without_a_solution_never_grows() -> None:
    rng = np.random.default_rng(2)
    M = sp.csr_array(sp.vstack([sp.random_array((40, 90), density=0.1, rng=rng)] * 2))
    side = rng.normal(size=80)
    lines = M.toarray()
    square = lines @ lines.T + 1e-12 * np.eye(80)
    step = equations._in_steps(M, side, lambda r: np.linalg.solve(square, r))
    least = np.linalg.lstsq(lines, side, rcond=None)[0]
    assert np.linalg.norm(side - M @ step) <= 1.001 * np.linalg.norm(side - M @ least)


def staircase(k: int, m: int, seed: int = 0) -> sp.csr_array:
    """Return rows of which each has entries in two neighbouring groups of columns."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((k, m))
    for i in range(k):
        middle = i * m // k
        near = np.clip(middle + rng.integers(-12, 13, 8), 0, m - 1)
        rows[i, near] = np.round(rng.uniform(-3.0, 3.0, 8), 2)
    return sp.csr_array(rows)


def test_equations_with_long_fractions_are_told_apart_modulo_a_prime() -> None:
    rows = staircase(300, 450)
    nothing = [Fraction(1)] * 300
    assert independent(rows, nothing) == list(range(300))
    more = sp.csr_array(sp.vstack([rows, 2.0 * rows[[3]]]))
    assert independent(more, [*nothing, Fraction(3)]) is None  # it contradicts the others
    assert len(independent(more, [*nothing, Fraction(2)]) or []) == 300
