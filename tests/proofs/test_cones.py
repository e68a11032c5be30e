"""Cones: distance, membership and points that are exactly inside, for every kind and its dual."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from optfair.proofs.cones import (
    KRYLOV,
    Cone,
    SecondOrder,
    _beyond,
    _semidefinite,
    below_semidefinite,
    cone_figures,
    largest_entry,
)
from optfair.proofs.definiteness import dense_shift
from optfair.proofs.elimination import exactly_semidefinite
from optfair.proofs.points import feasible_near, recession_faults
from optfair.proofs.residual import in_dual
from optfair.proofs.roots import Rooted
from optfair.proofs.triples import exp_rows
from optfair.solution.conic_form import ConicForm

PSD = Cone("psd", 0, 6, order=3)
LOWER = Cone("psd", 0, 6, order=3, upper=False)
CONES = {
    "zero": Cone("zero", 0, 3),
    "nonneg": Cone("nonneg", 0, 3),
    "soc": Cone("soc", 0, 3),
    "psd": PSD,
    "psd lower": LOWER,
    "exp": Cone("exp", 0, 3),
    "exp twice": Cone("exp", 0, 6),
    "pow": Cone("pow", 0, 3, power=0.3),
}
# (cone, point, distance, distance to the dual)
PLACES: list[tuple[str, list[float], float, float]] = [
    ("zero", [0.0, 0.0, 0.0], 0.0, 0.0),
    ("zero", [0.0, -2.0, 1.0], 2.0, 0.0),
    ("nonneg", [1.0, 0.0, 2.0], 0.0, 0.0),
    ("nonneg", [1.0, -3.0, -2.0], 3.0, 3.0),
    ("soc", [5.0, 3.0, 4.0], 0.0, 0.0),
    ("soc", [4.0, 3.0, 4.0], 1.0, 1.0),
    ("soc", [-1.0, 0.0, 0.0], 1.0, 1.0),
    ("soc", [6.0, -3.0, -4.0], 0.0, 0.0),
    ("psd", [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], 0.0, 0.0),
    ("psd", [1.0, 0.0, -2.0, 0.0, 0.0, 1.0], 2.0, 2.0),
    ("psd lower", [1.0, 0.0, 0.0, -2.0, 0.0, 1.0], 2.0, 2.0),
    ("exp", [0.0, 1.0, 1.0], 0.0, np.inf),
    ("exp", [0.0, 1.0, 0.5], 0.5, np.inf),
    ("exp", [-1.0, 0.0, 0.0], 0.0, np.inf),
    ("exp", [0.5, 0.0, 2.0], 0.5, np.inf),
    ("exp", [1.0, -1.0, 2.0], 1.0, np.inf),
    ("exp", [-5.0, -2.0, 1.0], 2.0, np.inf),
    ("exp", [-1.0, 0.0, np.exp(-1.0)], 0.0, 0.0),  # in the cone, and on the edge of the dual
    # the dual: u < 0 and -u exp(v/u - 1) <= w, or u = 0 and v, w >= 0
    ("exp", [0.0, 1.0, 2.0], np.inf, 0.0),
    ("exp", [1.0, 2.0, 2.0], np.inf, 1.0),
    ("exp", [0.0, -2.0, 1.0], np.inf, 2.0),
    ("exp", [0.0, 1.0, -3.0], np.inf, 3.0),
    ("exp", [-2.0, 0.0, 0.5], np.inf, 2.0 * np.exp(-1.0) - 0.5),
    ("exp", [-1.0, -1.0, 0.5], np.inf, 0.5),
    ("exp", [-1.0, -1.0, 1.5], np.inf, 0.0),
    # beside y = 0 a move of x is next to nothing where one of z is 1e30 or more; of the dual likewise
    ("exp", [1e-10, 1e-12, 1.0], 1e-10 - 1e-12 * np.log(1e12), np.inf),
    ("exp", [-1e-10, 1e-300, 0.0], 0.0, np.inf),
    ("exp", [-1e-12, -1e-10, 1.0], np.inf, 1e-10 - 1e-12 * (1.0 + np.log(1e12))),
    # of two triples the farther one counts
    ("exp twice", [0.0, 1.0, 0.5, 0.0, 1.0, 0.2], 0.8, np.inf),
    ("exp twice", [-1.0, -1.0, 2.0, -1.0, -1.0, 0.7], np.inf, 0.3),
    ("soc", [0.0, 0.0, 2.0], 2.0, 2.0),
    ("psd", [2.0, 2.0 * np.sqrt(2.0), 2.0, 0.0, 0.0, 1.0], 0.0, 0.0),
    ("psd", [2.0, 3.0 * np.sqrt(2.0), 2.0, 0.0, 0.0, 1.0], 1.0, 1.0),
    ("psd lower", [2.0, 3.0 * np.sqrt(2.0), 0.0, 2.0, 0.0, 1.0], 1.0, 1.0),
    ("pow", [1.0, 1.0, -2.0], 1.0, np.inf),
    ("pow", [-0.3, 1.0, 0.0], np.inf, 1.0),
    ("pow", [1.0, -1.4, 0.0], np.inf, 2.0),
    ("pow", [0.3, 0.7, -1.5], np.inf, 0.5),
    ("pow", [4.0, 0.5, 1.2], max(0.0, 1.2 - 4.0**0.3 * 0.5**0.7), np.inf),
    ("pow", [0.25, 4.0, 2.0], 2.0 - 0.25**0.3 * 4.0**0.7, np.inf),
    ("pow", [4.0, 0.25, 2.0], 2.0 - 4.0**0.3 * 0.25**0.7, np.inf),
    ("pow", [1.0, 1.0, 1.0], 0.0, 0.0),
    ("pow", [1.0, 1.0, 2.0], 1.0, np.inf),
    ("pow", [-1.0, 1.0, 0.0], 1.0, np.inf),
    ("pow", [1.0, -2.0, 0.0], 2.0, np.inf),
    ("pow", [0.3, 0.7, 1.0], np.inf, 0.0),  # on the edge of the dual
    ("pow", [0.3, 0.7, 1.5], np.inf, 0.5),
]


@pytest.mark.parametrize(("kind", "point", "far", "dual"), PLACES)
def test_distances(kind: str, point: list[float], far: float, dual: float) -> None:
    cone, p = CONES[kind], np.array(point)
    if np.isfinite(far):
        assert cone.distance(p) == pytest.approx(far, abs=1e-12)
    if np.isfinite(dual):
        assert cone.distance(p, dual=True) == pytest.approx(dual, abs=1e-12)
    # membership that counts as proof never says yes to what is outside
    nothing = np.zeros(p.size)
    if np.isfinite(far) and far > 0.0:
        assert cone.outside(p, nothing) > 0.0 or cone.kind in ("zero", "nonneg")


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("kind", CONES)
@given(seed=st.integers(0, 10_000))
def test_what_a_block_lacks_brings_it_into_the_cone(kind: str, dual: bool, seed: int) -> None:
    rng, cone = np.random.default_rng(seed), CONES[kind]
    s = rng.normal(size=cone.stop) * 10.0 ** rng.integers(-3, 4)
    moves, ways = cone.lacking(s, dual=dual), np.ones(cone.stop)
    if cone.kind == "exp":
        ways[0::3] = -1.0
    elif cone.kind == "pow":
        ways[2] = -np.sign(s[2])
        moves = moves * ([cone.power, 1.0 - cone.power, 1.0] if dual else 1.0)
    elif cone.kind == "zero":
        ways = -np.sign(s)
    size = max(1.0, float(np.abs(s).max()))
    assert (moves >= 0.0).all() and cone.distance(s, dual=dual) == cone.lacking(s, dual=dual).max()
    assert cone.distance(s + ways * moves, dual=dual) <= 1e-12 * size
    assert np.isinf(cone.lacking(np.full(cone.stop, np.nan), dual=dual)).all()


def test_a_violation_is_worth_what_mends_it_at_the_multipliers() -> None:
    def worth(kind: str, s: list[float], z: list[float]) -> float:
        slack = np.array(s)
        return CONES[kind].penalty(slack, CONES[kind].lacking(slack), np.array(z))

    assert worth("zero", [1.0, -3.0, 0.0], [2.0, 1.0, 9.0]) == 1.0  # others lose what one gains
    assert worth("nonneg", [1.0, -3.0, -2.0], [9.0, 2.0, 1.0]) == 8.0
    assert worth("soc", [4.0, 3.0, 4.0], [2.0, 0.0, -1.0]) == 2.0
    assert worth("exp", [0.0, 1.0, 0.5], [-1.0, 3.0, 2.0]) == 1.0
    assert worth("exp twice", [0.0, 1.0, 0.5] * 2, [-1.0, 3.0, 2.0] * 2) == 2.0
    assert worth("pow", [1.0, 1.0, -2.0], [1.0, 1.0, -3.0]) == 3.0
    # a block is measured in the units of its lines: a small line, and multipliers large there
    for u in (1.0, 1e-6, 1e6):
        units = np.array([u, 1.0, 1.0])
        M = np.array([[1.0, 1.1, 0.0], [1.1, 1.0, 0.0], [0.0, 0.0, 1.0]]) * np.outer(units, units)
        Z = np.diag([1.0, 1.0, 5.0]) / np.outer(units, units)
        i, j = PSD.places
        root = np.where(i == j, 1.0, np.sqrt(2.0))
        for factor in (1.0, 1e9):
            found = worth("psd", list(M[i, j] * root), list(factor * Z[i, j] * root))
            assert 0.1 * factor <= found <= (0.7 + 1e-9) * factor
    flat = [0.0, 0.1 * np.sqrt(2.0), 1.0, 0.0, 0.0, 1.0]  # a diagonal of 0 has no units
    assert worth("psd", flat, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]) == pytest.approx(0.00990195, 1e-6)


def inside(cone: Cone, rng: Any) -> np.ndarray:
    """Return a random point of a cone."""
    if cone.kind == "zero":
        return np.zeros(3)
    if cone.kind == "nonneg":
        return np.abs(rng.normal(size=3))
    if cone.kind == "soc":
        tail = rng.normal(size=2)
        return np.concatenate([[np.linalg.norm(tail) * rng.uniform(1, 2)], tail])
    if cone.kind == "psd":
        B = rng.normal(size=(3, int(rng.integers(1, 4))))
        M = B @ B.T
        i, j = cone.places
        return M[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    if cone.kind == "exp":
        y = rng.uniform(0.1, 3, cone.stop // 3)
        x = rng.normal(size=y.size)
        return np.column_stack([x, y, y * np.exp(x / y) * rng.uniform(1, 2, y.size)]).ravel()
    x, y = rng.uniform(0.1, 3, 2)
    return np.array([x, y, rng.uniform(-1, 1) * x**cone.power * y ** (1 - cone.power)])


@pytest.mark.parametrize("kind", CONES)
@given(seed=st.integers(0, 10_000))
def test_a_dual_point_has_no_negative_product_with_the_cone(kind: str, seed: int) -> None:
    rng, cone = np.random.default_rng(seed), CONES[kind]
    size = cone.stop
    z = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4)
    w = cone.dual_point(z)
    assert cone.distance(w, dual=True) <= 1e-12 * max(1.0, np.abs(w).max())
    for _ in range(20):
        s = inside(cone, rng)
        assert cone.distance(s) <= 1e-9 * max(1.0, np.abs(s).max())
        assert s @ w >= -1e-9 * (np.abs(s) @ np.abs(w))


def edge(cone: Cone, rng: Any) -> np.ndarray:
    """Return a random point on the edge of a cone."""
    if cone.kind == "soc":
        tail = rng.normal(size=2)
        return np.concatenate([[np.linalg.norm(tail)], tail])
    if cone.kind == "psd":
        v = rng.normal(size=3)
        i, j = cone.places
        return np.outer(v, v)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    if cone.kind == "exp":
        if rng.random() < 0.3:
            return np.array([-rng.exponential() * 3, 0.0, rng.exponential()])
        y, ratio = 1.0, rng.normal() * 3
        return np.array([ratio * y, y, y * np.exp(ratio)])
    x, y = 10.0 ** rng.uniform(-2, 2, 2)
    most = x**cone.power * y ** (1 - cone.power)
    return np.array([x, y, most * rng.choice([-1.0, 1.0])])


@pytest.mark.parametrize("kind", ["soc", "psd", "psd lower", "exp", "pow"])
def test_outside_the_dual_some_point_of_the_cone_says_so(kind: str) -> None:
    rng, cone = np.random.default_rng(7), CONES[kind]
    points = np.array([edge(cone, rng) for _ in range(6_000)])
    points /= np.linalg.norm(points, axis=1)[:, None]
    sides = set()
    for _ in range(150):
        z = rng.normal(size=cone.stop)
        far, least = cone.distance(z, dual=True), float((points @ z).min())
        # the distance and the definition, s'z >= 0 for all s in the cone, agree in sign
        if far == 0.0:
            assert least >= -1e-12
        elif far > 0.3 * np.abs(z).max():
            assert least < 0.0
        sides.add(far == 0.0)
    assert sides == {True, False}


@pytest.mark.parametrize("kind", ["soc", "psd", "psd lower", "exp", "pow"])
@given(seed=st.integers(0, 10_000))
def test_a_point_of_the_dual_is_hardly_moved(kind: str, seed: int) -> None:
    rng, cone = np.random.default_rng(seed), CONES[kind]
    z = cone.dual_point(rng.normal(size=cone.stop))
    again = cone.dual_point(z)
    assert np.abs(again - z).max() <= 1e-10 * max(1.0, np.abs(z).max())


@pytest.mark.parametrize("kind", ["soc", "psd", "exp", "pow"])
@given(seed=st.integers(0, 10_000))
def test_what_is_inside_with_its_error_is_inside(kind: str, seed: int) -> None:
    rng, cone = np.random.default_rng(seed), CONES[kind]
    s = inside(cone, rng)
    error = np.full(s.size, 10.0 ** rng.integers(-12, 0)) * rng.random()
    if cone.outside(s, error) == 0.0:
        for _ in range(20):
            moved = s + error * rng.choice([-1.0, 1.0, 0.0], s.size)
            assert cone.distance(moved) <= 1e-13 * max(1.0, np.abs(moved).max())


def test_a_boundary_is_inside_only_where_it_is_exact() -> None:
    none = np.zeros(3)
    assert CONES["soc"].outside(np.array([0.0, 0.0, 0.0]), none) == 0.0
    assert CONES["exp"].outside(np.array([-1.0, 0.0, 0.0]), none) == 0.0
    assert CONES["exp"].outside(np.array([0.0, 0.0, -1e-30]), none) > 0.0
    assert CONES["pow"].outside(np.array([0.0, 2.0, 0.0]), none) == 0.0
    assert CONES["pow"].outside(np.array([0.0, 2.0, 1e-30]), none) > 0.0
    assert PSD.outside(np.array([1.0, 0, 0, 0, 0, 0]), np.zeros(6)) == 0.0
    assert PSD.outside(np.array([1.0, 0, -1e-300, 0, 0, 0]), np.zeros(6)) > 0.0


@pytest.mark.parametrize("kind", CONES)
def test_complementary_pairs_have_no_product(kind: str) -> None:
    cone = CONES[kind]
    size = cone.stop
    assert cone.products(np.zeros(size), np.ones(size)) == (0.0, 0.0)
    if kind != "zero":
        s = inside(cone, np.random.default_rng(1))
        assert cone.products(s, s)[0] > 0.0


def test_places_of_the_triangle() -> None:
    M = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    root = np.sqrt(2.0)
    by_column = np.array([1.0, 2 * root, 4.0, 3 * root, 5 * root, 6.0])
    below = np.array([1.0, 2 * root, 3 * root, 4.0, 5 * root, 6.0])
    assert np.allclose(PSD.matrix(by_column), M) and np.allclose(LOWER.matrix(below), M)
    assert by_column[PSD.diagonal].tolist() == below[LOWER.diagonal].tolist() == [1.0, 4.0, 6.0]


def test_what_underflows_is_not_taken_for_nothing() -> None:
    exp, ball, power = CONES["exp"], Cone("soc", 0, 2), Cone("pow", 0, 3, power=0.5)
    # w >= -u exp(v/u - 1) > 0, however small
    assert exp.dual_point(np.array([-1.0, 800.0, 0.0]))[2] > 0.0
    # y exp(x/y) <= z with z = 0 has no point of y > 0
    assert exp.outside(np.array([-1000.0, 1.0, 0.0]), np.zeros(3)) > 0.0
    assert ball.dual_point(np.array([0.0, 1e-170]))[0] >= 1e-170
    assert ball.outside(np.array([0.0, 1e-170]), np.zeros(2)) > 0.0
    assert ball.dual_point(np.array([0.0, 1e200]))[0] < 1.1e200
    assert power.dual_point(np.array([1e308, 0.0, 5.0]))[2] == 0.0
    assert abs(Cone("pow", 0, 3, power=1e-5).dual_point(np.array([1e308, 1.0, 1e200]))[2]) < 1.1
    tiny = 5e-324
    assert power.dual_point(np.array([3 * tiny, 3 * tiny, 6 * tiny]))[2] == 0.0


def test_what_is_not_known_is_inside_nothing() -> None:
    for kind, cone in CONES.items():
        for wrong in (np.nan, np.inf, -np.inf):
            s, nothing = np.zeros(cone.stop), np.zeros(cone.stop)
            s[0] = wrong
            assert cone.distance(s) > 0.0
            if kind not in ("zero", "nonneg"):
                assert cone.outside(s, nothing) > 0.0 and cone.outside(nothing, s) > 0.0


@pytest.mark.parametrize("seed", range(40))
def test_roots_squared_exactly_prove_what_is_semidefinite_and_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, rank = int(rng.integers(2, 9)), int(rng.integers(1, 9))
    B = rng.normal(size=(n, rank)) * 10.0 ** rng.integers(-6, 7, size=(n, 1))
    M = B @ B.T
    M += np.diag(M.diagonal() * 10.0 ** rng.integers(-17, -12) * rng.choice([-1, 1], n))
    M = 0.5 * (M + M.T)
    assert exactly_semidefinite(M) or not _semidefinite(M)
    F = rng.normal(size=(n, n)) * 10.0 ** rng.integers(-6, 7, size=(n, 1))
    Z = F @ F.T
    whole = np.vectorize(Fraction, otypes=[object])
    apart = whole(Z) - whole(F).dot(whole(F).T)
    exact = float((apart * apart).sum()) ** 0.5
    assert exact <= _beyond(Z, F) <= 1e2 * exact + 1e-13 * float(np.abs(Z).max())


@pytest.mark.parametrize("seed", range(6))
def test_sums_of_products_lose_no_digit_of_what_is_left(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 40
    F = rng.uniform(0.5, 1.0, size=(n, n)) * 2.0 ** rng.integers(-12, 1, size=(n, n))
    whole = np.vectorize(int, otypes=[object])(
        np.ldexp(F, 70)
    )  # every float is a multiple of 2^-70
    square = whole.dot(whole.T)
    for Z in (F @ F.T, (F @ F.T) * (1.0 + 2.0**-40)):
        apart = np.vectorize(int, otypes=[object])(np.ldexp(Z, 140)) - square
        exact = float((apart * apart).sum()) ** 0.5 / 2.0**140
        assert exact <= _beyond(Z, F) <= exact + 1e-20 + 1e-7 * exact


def test_no_matrix_that_is_out_of_range_or_indefinite_is_called_semidefinite() -> None:
    swap, edge = (
        np.array([[0.0, 1.0], [1.0, 0.0]]),
        np.array([[1.0, 1.0 + 2e-16], [1.0 + 2e-16, 1.0]]),
    )
    for M in (swap, edge, -np.eye(2), np.array([[1.0, 0.0], [0.0, -1e-100]])):
        for unit in (1e-200, 1e-150, 1.0, 1e150):
            assert not _semidefinite(M * unit)
    for broken in (np.nan, np.inf, 1e200):
        M = np.eye(4)
        M[0, 2] = M[2, 0] = broken
        assert not _semidefinite(M) and dense_shift(M, 0.0) == np.inf
    assert _beyond(np.full((2, 2), np.nan)) == _beyond(np.full((2, 2), 1e150)) == np.inf
    assert _beyond(np.eye(2) * 1e-150) == np.inf


def test_large_blocks_are_proved_to_nearly_all_digits() -> None:
    n, rng = 400, np.random.default_rng(0)
    B = rng.choice([-1.0, 1.0], size=(n, 20))
    cone = Cone("psd", 0, n * (n + 1) // 2, order=n)
    M = B @ B.T + 4e-11 * np.eye(n)  # a factorisation is charged for 3e-10
    z = M[cone.places]
    z[~cone.diagonal] *= 2.0**0.5
    assert 1e-11 <= cone.depth(z) <= 2.1e-11
    assert (cone.dual_point(z) == z).all()
    assert not _semidefinite(B @ B.T - 4e-11 * np.eye(n))


def test_a_semidefinite_block_keeps_its_depth() -> None:
    root = np.sqrt(2.0)
    for cone in (PSD, LOWER):
        i, j = cone.places
        M = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.25], [0.5, -0.25, 2.0]])
        s = M[i, j] * np.where(i == j, 1.0, root)
        depth, least = cone.depth(s), np.linalg.eigvalsh(M)[0]
        assert 0.49 * least < depth < least
        # moved by its depth towards the smallest eigenvector it is still inside
        v = np.linalg.eigh(M)[1][:, 0]
        out = np.outer(v, v)[i, j] * np.where(i == j, 1.0, root)
        assert np.linalg.eigvalsh(cone.matrix(s - depth * out))[0] >= 0.0
        assert cone.depth(-s) == 0.0 and cone.depth(np.zeros(6)) == 0.0
        assert cone.depth(np.full(6, np.nan)) == cone.depth(np.array([np.nan, *s[1:]])) == 0.0
        assert cone.depth(s * 2.0**40) == depth * 2.0**40 and cone.depth(s * 1e-300) == 0.0
        singular = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])[i, j] * np.where(i == j, 1.0, root)
        assert cone.depth(singular) == 0.0
    # what rounding may take from large entries is not claimed
    for wide in (1e12, 1e15):
        edge = np.array([wide, root * (wide - 1.0), wide, 0.0, 0.0, wide])
        assert PSD.depth(edge) <= 1.0


def test_points_with_room_are_inside_and_near_the_edge_they_are_not() -> None:
    """What counts as inside is nearly all of it: within 1e-9 of the edge it says both."""
    rng, none = np.random.default_rng(3), np.zeros(3)
    for scale in (1e-3, 1.0, 1e6):
        for _ in range(20):
            x, y, a = *10.0 ** rng.uniform(-2, 2, 2) * scale, rng.uniform(0.05, 0.95)
            most = x**a * y ** (1.0 - a)
            power = Cone("pow", 0, 3, power=a)
            for sign in (1.0, -1.0):
                near = np.array([x, y, sign * most * (1.0 - 1e-9)])
                assert power.outside(near, none) == 0.0
                assert power.outside(near, np.array([0.0, 0.0, most * 3e-9])) > 0.0
                assert power.outside(near, np.array([x * 1e-6, 0.0, 0.0])) > 0.0
                assert power.outside(near, np.array([0.0, y * 1e-6, 0.0])) > 0.0
                # of the dual: (u / a)^a (v / (1 - a))^(1 - a) >= |w|
                dual = np.array([a * x, (1.0 - a) * y, sign * most * (1.0 - 1e-9)])
                assert np.array_equal(power.dual_point(dual), dual)
                beyond = power.dual_point(dual * [1.0, 1.0, 1.0 + 2e-9])
                assert most * (1.0 - 1e-11) <= abs(beyond[2]) <= most * (1.0 + 1e-15)
            h, ratio = 10.0 ** rng.uniform(-2, 2) * scale, rng.uniform(-30, 30)
            z = h * np.exp(ratio)
            exp, inner = CONES["exp"], np.array([ratio * h, h, z * (1.0 + 1e-9)])
            assert exp.outside(inner, none) == 0.0
            assert exp.outside(inner * [1.0, 1.0, 1.0 - 2e-9], none) > 0.0
            assert exp.outside(inner, np.array([3e-9 * h, 0.0, 0.0])) > 0.0
            assert exp.outside(inner, np.array([0.0, 0.0, z * 3e-9])) > 0.0
            assert exp.outside(inner, np.array([0.0, h, 0.0])) > 0.0
            # of the dual: -u exp(v / u - 1) <= w, lifted by no more than rounding
            own = exp.dual_point(np.array([-h, -ratio * h, 0.0]))
            assert own[:2].tolist() == [-h, -ratio * h]
            assert 0.0 < own[2] / (h * np.exp(ratio - 1.0)) - 1.0 < 1e-12
            high = np.array([-h, -ratio * h, 2.0 * own[2]])
            assert np.array_equal(exp.dual_point(high), high)
            tail = rng.normal(size=2) * scale
            size = float(np.linalg.norm(tail))
            ball, head = CONES["soc"], size * (1.0 + 1e-9)
            assert ball.outside(np.array([head, *tail]), none) == 0.0
            assert ball.outside(np.array([head, *tail]), np.array([3e-9 * size, 0, 0])) > 0.0
            assert (
                ball.outside(np.array([head, *tail]), np.full(3, 1e-8) * np.abs([0, *tail])) > 0.0
            )
            up = ball.dual_point(np.array([-1.0, *tail]))
            assert 0.0 <= up[0] / size - 1.0 < 1e-14 and np.array_equal(up[1:], tail)


def test_a_semidefinite_multiplier_is_lifted_by_what_it_lacks() -> None:
    rng, root = np.random.default_rng(5), np.sqrt(2.0)
    for scale in (1e-6, 1.0, 1e8):
        for _ in range(10):
            B = rng.normal(size=(3, 3))
            M = (B + B.T) * scale
            i, j = PSD.places
            z = M[i, j] * np.where(i == j, 1.0, root)
            lifted = PSD.dual_point(z)
            below, size = np.minimum(np.linalg.eigvalsh(M), 0.0), np.abs(M).sum(axis=1).max()
            least, most = -below[0] * (1.0 - 1e-12), np.linalg.norm(below) * (1.0 + 1e-8)
            assert np.array_equal(lifted[~PSD.diagonal], z[~PSD.diagonal])
            more = (lifted - z)[PSD.diagonal]
            assert (more >= least).all() and (more <= most + 1e-12 * size).all()
            # rank one, on the edge: what is added is rounding, and then it is inside
            v = rng.normal(size=3) * np.sqrt(scale)
            edge = np.outer(v, v)[i, j] * np.where(i == j, 1.0, root)
            more = (PSD.dual_point(edge) - edge)[PSD.diagonal]
            assert (more >= 0.0).all() and (more <= 1e-13 * (v @ v)).all()
            room = edge + 1e-9 * (v @ v) * (i == j)
            assert np.array_equal(PSD.dual_point(room), room)
            assert PSD.outside(room, np.zeros(6)) == 0.0 < PSD.outside(edge, 1e-9 * np.abs(edge))
            assert PSD.outside(room, 1e-12 * np.abs(edge)) == 0.0
            assert PSD.outside(room, 1e-8 * np.abs(edge)) > 0.0


def test_a_small_matrix_is_lifted_by_its_own_rounding() -> None:
    v, (i, j) = np.array([1e-3, -2e-3, 3e-3]), PSD.places
    edge = np.outer(v, v)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    more = (PSD.dual_point(edge) - edge)[PSD.diagonal]
    assert (more >= 0.0).all() and (more <= 1e-13 * (v @ v)).all()


def test_a_large_indefinite_matrix_is_lifted_until_it_is_proved() -> None:
    """Of this order no product in long doubles says how far it is from the cone."""
    n = 256
    v = np.random.default_rng(0).normal(size=n)
    Z = np.eye(n) - 1.001 * np.outer(v, v) / (v @ v)
    cone = Cone("psd", 0, n * (n + 1) // 2, order=n)
    i, j = cone.places
    z = Z[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    more = (cone.dual_point(z) - z)[cone.diagonal]
    assert (more >= 1e-3 * (1.0 - 1e-9)).all() and (more <= 1.1e-3).all()


def test_places_are_shared_and_moves_of_plain_entries_are_longer() -> None:
    assert not any(part.flags.writeable for part in PSD.places)
    assert PSD.stretch == 1.0 and replace(PSD, root=1.0).stretch ** 2 >= 2.0


def test_an_error_of_one_entry_counts_in_a_diagonal_matrix() -> None:
    s = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1e-9])
    for size, inside in ((1e-10, True), (1e-8, False)):
        assert (PSD.outside(s, np.array([0, 0, 0, 0, 0, size])) == 0.0) == inside
    assert PSD.outside(np.array([1.0, 0, 1.0, 0, 0, 0]), np.array([0, 0, 0, 1e-9, 0, 0])) > 0.0


def test_multipliers_of_powers_are_within_the_last_digits_of_the_edge() -> None:
    rng = np.random.default_rng(2)
    with mpmath.workdps(60):
        for _ in range(40):
            a, (u, v) = rng.uniform(0.02, 0.98), 10.0 ** rng.uniform(-3, 3, 2)
            w = Cone("pow", 0, 3, power=a).dual_point(np.array([u, v, 1e9]))[2]
            p, u, v = map(mpmath.mpf, (a, u, v))
            edge = (u / p) ** p * (v / (1 - p)) ** (1 - p)
            assert w <= edge <= w * (1 + 1e-12)


def test_a_move_of_less_than_one_leaves_a_cone_without_room() -> None:
    # x = y, and |x| <= 1 + room in a second-order cone; x and y are 1e-9 apart
    A = sp.csc_array([[1.0, -1.0], [0.0, 0.0], [-1.0, 0.0]])
    cones, x = (Cone("zero", 0, 1), Cone("soc", 1, 3)), np.array([1.0, 1.0 + 1e-9])
    for room, near in ((1e-7, True), (1e-10, False)):
        step = feasible_near(A, np.array([0.0, 1.0 + room, 0.0]), cones, x)
        assert (step is not None) == near


def test_directions_stay_in_every_form_of_the_rows() -> None:
    # the objective and a form have more rows than there are columns
    P = sp.csc_array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    A, q = sp.csc_array((1, 3)), np.array([-1.0, 0.0, 0.0])
    form = ConicForm(P, q, 0.0, A, np.ones(1), (Cone("nonneg", 0, 1),))
    d = np.array([1.0, 1.0, 0.0])
    assert recession_faults(form, d) == []
    bent = Rooted(2, slice(0, 2), np.zeros(2), sp.csr_array(np.diag([0.0, 1.0])))
    assert recession_faults(replace(form, rooted=(bent,)), d)
    assert recession_faults(form, d[:2]) == recession_faults(form, np.nan * d) != []


def test_a_direction_that_improves_only_as_floats_say_is_none() -> None:
    # the directions of x = y cost nothing, and one near them seems to gain
    A, q = sp.csc_array([[1.0, -1.0]]), np.array([1.0, -1.0])
    form = ConicForm(sp.csc_array((2, 2)), q, 0.0, A, np.zeros(1), (Cone("zero", 0, 1),))
    d = np.array([1.0, 1.0 + 1e-9])
    assert q @ d < 0.0 and recession_faults(form, d) == ["the objective does not improve along it"]
    assert recession_faults(replace(form, q=np.array([-1.0, -1.0])), d) == []


def test_points_and_errors_at_the_ends_of_cones() -> None:
    exp, power, none = CONES["exp"], CONES["pow"], np.zeros(3)

    def outside(cone: Cone, s: list[float], error: list[float]) -> float:
        return cone.outside(np.array(s), np.array(error))

    # y exp(x / y) is largest at the lower end of y, or at the upper one
    for s, error, inside in (
        ([2.0, 1.0, 28.0], [0.0, 0.5, 0.0], True),
        ([2.0, 1.0, 20.0], [0.0, 0.5, 0.0], False),
        ([-1.0, 1.0, 0.8], [0.0, 0.5, 0.0], True),
        ([-1.0, 1.0, 0.5], [0.0, 0.5, 0.0], False),
        ([-1.0, 0.0, 1e-3], [0.0, 0.0, 1e-3], True),
        ([-1.0, 0.0, 1e-3], [0.0, 0.0, 2e-3], False),
        ([-1.0, 0.0, 1e-3], [2.0, 0.0, 0.0], False),
        ([-1.0, 0.0, 5.0], [0.0, 1e-9, 0.0], False),
    ):
        assert (outside(exp, s, error) == 0.0) == inside, (s, error)
    assert outside(power, [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]) == 0.0
    for error in ([2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 1e-9], [0.0, 1.0, 1e-9]):
        assert outside(power, [1.0, 1.0, 0.0], error) > 0.0
    assert exp.outside(np.array([0.0, 1.0, 0.5]), none) == 0.5
    one = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    for k in range(6):  # an error in one entry alone
        assert PSD.outside(one, 2.0 * (np.arange(6) == k)) > 0.0
        assert PSD.outside(one, 0.5 * (np.arange(6) == k)) == 0.0
    assert exp.dual_point(np.array([0.0, 2.0, 0.5])).tolist() == [0.0, 2.0, 0.5]
    assert exp.dual_point(np.array([3.0, -1.0, -2.0])).tolist() == [0.0, 0.0, 0.0]
    low = PSD.dual_point(np.array([1.0, 0.0, -2.0, 0.0, 0.0, 3.0]))
    assert low[PSD.diagonal].tolist() == [3.0, 0.0, 5.0]
    assert CONES["zero"].products(np.ones(3), np.ones(3)) == (0.0, 0.0)
    for cone in CONES.values():
        assert cone.distance(np.zeros(0)) == cone.products(*np.zeros((2, 0)))[0] == 0.0


def test_no_rounding_of_powers_lets_a_point_in() -> None:
    """Points within a few ulps of the edge, decided with 60 digits."""
    rng, exp, none = np.random.default_rng(11), CONES["exp"], np.zeros(3)
    mpmath.mp.dps = 60
    counts = {True: 0, False: 0}
    for _ in range(400):
        ulps = 1.0 + float(rng.integers(-4, 5)) * 2.0**-52
        y, ratio = 10.0 ** rng.uniform(-3, 3), rng.uniform(-650, 650)
        s = np.array([ratio * y, y, y * np.exp(ratio) * ulps * 10.0 ** rng.choice([0.0, -12, 12])])
        if exp.outside(s, none) == 0.0:
            x, y, z = map(mpmath.mpf, s.tolist())
            assert y * mpmath.exp(x / y) <= z
        counts[exp.outside(s, none) == 0.0] += 1
        u, v, w = map(mpmath.mpf, exp.dual_point(np.array([-y, float(s[0]), 0.0])).tolist())
        assert u == 0 or -u * mpmath.exp(v / u - 1) <= w
        a = rng.uniform(0.02, 0.98)
        power = Cone("pow", 0, 3, power=a)
        x, y = (10.0 ** rng.uniform(-280, 280) for _ in range(2))
        s = np.array([x, y, x**a * y ** (1.0 - a) * ulps * 10.0 ** rng.choice([0.0, -12, 12])])
        p, x, y, z = map(mpmath.mpf, [a, *s.tolist()])
        if power.outside(s, none) == 0.0:
            assert x**p * y ** (1 - p) >= z
        counts[power.outside(s, none) == 0.0] += 1
        u, v, w = map(mpmath.mpf, power.dual_point(s).tolist())
        assert (u / p) ** p * (v / (1 - p)) ** (1 - p) >= w
    assert min(counts.values()) > 100
    for power in np.linspace(-760.0, -690.0, 60):  # a large factor shows what exp has no digits of
        y = 10.0 ** rng.uniform(40, 290)
        s = np.array([power * y, y, y * np.exp(power) * 1.000001])
        u, v, w = map(mpmath.mpf, exp.dual_point(np.array([-y, -s[0], 0.0])).tolist())
        assert u < 0 and -u * mpmath.exp(v / u - 1) <= w
        x, y, z = map(mpmath.mpf, s.tolist())
        assert exp.outside(s, none) > 0.0 or y * mpmath.exp(x / y) <= z


def test_products_of_pairs() -> None:
    soc, s, z = CONES["soc"], np.array([3.0, 1.0, -2.0]), np.array([2.0, 0.5, 1.0])
    assert soc.products(s, z)[0] == 4.5  # s'z; the others are 3.5 and -1
    assert soc.products(s * [0, 1, 1], np.array([5.0, 2.0, 1.0]))[0] == 10.0
    assert CONES["nonneg"].products(np.array([1.0, 2, 3]), np.array([0.5, -4.0, 1])) == (8.0, 8.0)
    assert CONES["exp"].products(np.array([1.0, 2, 3]), np.array([0.5, -4.0, 1])) == (4.5, 4.5)
    M, N = np.array([[1.0, 2.0], [2.0, 5.0]]), np.array([[2.0, 0.0], [0.0, -1.0]])
    pair = Cone("psd", 0, 3, order=2)
    scaled = [np.array([X[0, 0], X[0, 1] * np.sqrt(2.0), X[1, 1]]) for X in (M, N)]
    assert pair.products(*scaled)[0] == pytest.approx(np.abs(M @ N + N @ M).max() / 2)


@pytest.mark.parametrize("far", [1.0, 1e3, 1e6])
def test_products_far_out_are_as_large_as_the_gap_makes_them(far: float) -> None:
    # pairs in the cones, as far out as one likes: s'z = 1e-4 of an objective of 4
    gap, unit = 1e-4, 4.0
    block = Cone("psd", 0, 3, order=2)
    S = np.array([far, 0.0, gap / far])
    Z = np.array([gap / far, 0.5 * np.sqrt(2.0 * gap) / far, 1.0])  # 0.5 of what the root allows
    soc = CONES["soc"]
    s, z = far * np.array([1.0, 1.0, 0.0]), np.array([1.0, -1.0, np.sqrt(2 * gap / far)])
    z[0] = np.linalg.norm(z[1:])
    for cone, one, other in ((block, S, Z), (soc, s, z)):
        gap_of = abs(one @ other)
        size, figure = cone.products(one, other, unit)
        most = np.sqrt(gap_of * max(unit, np.linalg.norm(one) * np.linalg.norm(other)))
        assert size == cone.products(one, other)[0] <= 1.001 * most
        assert figure <= 1.001 * np.sqrt(gap_of * unit)
        assert figure <= size
    # where they are not far out nothing is divided, and what is no pair is none
    assert block.products(S, Z, 1e9) == (block.products(S, Z)[0],) * 2
    apart = block.products(np.array([far, 0.0, 1.0]), np.array([1.0, 0.0, 1.0]), unit)
    assert apart[0] >= apart[1] >= np.sqrt(unit * far) / 2
    large = np.array([gap / far, 0.5 * np.sqrt(1e3 * gap / far), 1e3])
    size, figure = block.products(S, large, unit)
    lengths = np.linalg.norm(S) * np.linalg.norm(large)
    assert figure == pytest.approx(size * np.sqrt(unit / lengths))


def cones_in_a_row(sizes: list[int]) -> tuple[Cone, ...]:
    ends = np.cumsum(sizes).tolist()
    return tuple(Cone("soc", end - size, end) for end, size in zip(ends, sizes, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_second_order_cones_are_measured_together_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cones = (
        Cone("nonneg", 0, 2),
        *(replace(c, start=c.start + 2, stop=c.stop + 2) for c in cones_in_a_row([1, 3, 2, 7])),
    )
    s, z = (rng.normal(size=15) * 10.0 ** rng.integers(-200, 100, 15) for _ in range(2))
    s[2:6] = z[2:6] = 0.0
    together = SecondOrder.of(cones)
    each = [c for c in cones if c.kind == "soc"]
    assert together.distances(s) == pytest.approx([c.distance(s[c.start : c.stop]) for c in each])
    for c, length, depth in zip(each, together.lengths(s), together.depths(np.abs(s)), strict=True):
        own = [mpmath.mpf(v) for v in s[c.start : c.stop]]
        with mpmath.workdps(60):
            true = mpmath.sqrt(sum(v * v for v in own))
            room = (abs(own[0]) - mpmath.sqrt(sum(v * v for v in own[1:]))) / mpmath.sqrt(2)
            assert true <= length <= true * (1 + mpmath.mpf(10) ** -13) + mpmath.mpf(10) ** -300
            assert 0.0 <= depth <= max(room, 0)
    one = Cone("soc", 0, 3)
    pair = SecondOrder.of([one]).products(np.array([5.0, 3, 4]), np.array([5.0, -3, -4]))
    assert pair == (0.0, 0.0) == SecondOrder.of(()).products(s, z)
    skew, _ = SecondOrder.of([one]).products(np.array([5.0, 3, 4]), np.array([5.0, -3, -3]))
    assert skew == pytest.approx(5.0)  # 5 (-3) + 5 * 4


@pytest.mark.parametrize(
    ("block", "head"),
    [
        ((5.0, 3.0, 4.0), 5.0),  # exactly on the boundary
        ((5.0 * 2.0**-40, 3.0 * 2.0**-40, -4.0 * 2.0**-40), 5.0 * 2.0**-40),
        ((6.0, 3.0, 4.0), 6.0),
        ((np.sqrt(2.0), 1.0, 1.0), None),  # the root is rounded: up, and the block is inside
        ((np.sqrt(3.0), 1.0, np.sqrt(2.0)), None),
        ((np.nextafter(5.0, 0.0), 3.0, 4.0), None),
        ((-1.0, 3.0, 4.0), None),
    ],
)
def test_a_head_is_raised_only_where_the_block_is_not_exactly_inside(
    block: tuple[float, ...], head: float | None
) -> None:
    z = np.array(block)
    raised = float(SecondOrder.of([Cone("soc", 0, z.size)]).raised(z)[0])
    exact = Fraction(raised) ** 2 - sum(Fraction(v) ** 2 for v in block[1:])
    assert exact >= 0 and raised >= z[0] and (head is None or raised == head)
    inside = z[0] > 0.0 and Fraction(block[0]) ** 2 >= sum(Fraction(v) ** 2 for v in block[1:])
    assert (raised == z[0]) == inside
    assert (Cone("soc", 0, z.size).outside(z, np.zeros(z.size)) == 0.0) == inside


def test_a_direction_along_the_boundary_is_exact_or_none() -> None:
    cones = (Cone("soc", 0, 3),)
    for head, found in ((5.0, True), (np.nextafter(5.0, 0.0), False)):
        A = -np.array([[head], [3.0], [4.0]])
        step = feasible_near(sp.csc_array(A), np.zeros(3), cones, np.ones(1))
        assert (step is not None) == found


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("order", [1, 4, 256, 259])
def test_matrices_of_triangles_have_every_entry_twice(order: int, upper: bool) -> None:
    cone = Cone("psd", 0, order * (order + 1) // 2, order=order, upper=upper)
    entries = np.random.default_rng(order).standard_normal(cone.stop)
    rows, columns = cone.places
    M = cone.matrix(entries)
    scaled = np.where(rows == columns, entries, entries / 2.0**0.5)
    assert (M[rows, columns] == scaled).all() and (M == M.T).all()
    assert (cone.diagonal == (rows == columns)).all()


def test_how_far_a_large_matrix_is_outside_is_confirmed_by_a_factor() -> None:
    rng = np.random.default_rng(0)
    B = rng.standard_normal((KRYLOV, 3))
    M = B @ B.T - np.diag(rng.random(KRYLOV))
    kept, least = M.copy(), float(scipy.linalg.eigh(M, subset_by_index=[0, 0])[0][0])
    assert -least <= below_semidefinite(M) <= -1.02 * least
    assert (kept == M).all()
    assert below_semidefinite(B @ B.T + np.eye(KRYLOV)) == 0.0
    sparse = sp.diags_array([rng.random(KRYLOV), np.full(KRYLOV - 1, 2.0)], offsets=[0, 1])
    S = (sparse + sparse.T).toarray()
    least = float(scipy.linalg.eigh(S, subset_by_index=[0, 0])[0][0])
    assert -least <= below_semidefinite(S) <= -1.02 * least


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_exponential_cones_together_are_those_one_by_one(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    m = 3 * count + 2
    cones = (
        Cone("nonneg", 0, 1),
        *(Cone("exp", 1 + 3 * k, 4 + 3 * k) for k in range(count)),
        Cone("zero", m - 1, m),
    )
    s, z = rng.normal(size=(2, m)) * np.exp2(rng.integers(-30, 30, (2, 1)))
    s[rng.random(m) < 0.2] = 0.0
    z[rng.random(m) < 0.2] = 0.0
    assert exp_rows(cones).tolist() == [[1 + 3 * k, 2 + 3 * k, 3 + 3 * k] for k in range(count)]
    moved = in_dual(cones, z)
    rows = []
    for c in cones:
        at = slice(c.start, c.stop)
        off, o = c.lacking(s[at]), c.distance(z[at], dual=True)
        sums = o * float(np.abs(s[at]).sum()), c.penalty(s[at], off, z[at], 1e-12)
        rows.append((largest_entry(off), o, *c.products(s[at], z[at]), *sums))
        assert np.array_equal(moved[at], c.dual_point(z[at]))
    table = np.array(rows).T
    one_by_one = [*table[:4].max(axis=1), *table[4:].sum(axis=1)]
    np.testing.assert_allclose(cone_figures(cones, s, z, 1.0, 1e-12), one_by_one, rtol=1e-12)
