"""Sums inside a declaration are compiled to the numbers they are, also where floats lose them."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import compile_problem
from optfair.compile.sums import PLACES, Sums
from optfair.convexity.powers import exact_sums
from optfair.core.coefficients import Entries, quadratic_map
from optfair.core.composition import constraint_term, objective_term
from optfair.core.problem import Declaration, Problem
from optfair.core.term import adds

HUGE = 1e16
x = cp.Variable(name="x")
y = cp.Variable(3, name="y")
# 1e16 x + x - 1e16 x is x: floats add it up to 0
SUMS = {
    "sum": HUGE * x + x - HUGE * x,
    "sums": (HUGE * x + x) - (HUGE * x + 0 * y[0]),
    "product": np.array([HUGE, 1.0, -HUGE]) @ cp.hstack([x, x, x]),
    "row": (np.array([[HUGE, 1.0, -HUGE]]) @ cp.hstack([x, x, x]))[0],
    "total": cp.sum(cp.multiply([HUGE, 1.0, -HUGE], cp.hstack([x, x, x]))),
    "nested": np.ones(3) @ (np.array([HUGE, 1.0, -HUGE]) * x),
    "spread": np.array([HUGE, 1.0, -HUGE]) @ (np.ones(3) * x),
    "mean": 3.0 * cp.mean(cp.vstack([HUGE * x, x, -HUGE * x])),
    "trace": cp.trace(cp.diag(np.array([HUGE, 1.0, -HUGE])) @ (x * np.eye(3))),
}


class Terms(Problem):
    """x + 1 in three terms."""

    def declare(self) -> Declaration:
        back = -HUGE * x - HUGE
        costs = {"all": HUGE * x + HUGE, "one": x + 1.0, "less": back}
        known = {x.id: "x"}
        terms = tuple(objective_term(k, e, known, "minimize") for k, e in costs.items())
        return Declaration({"x": x}, "minimize", terms, (constraint_term("row", x >= 1, known),))


def compiled(rows: list[Any], cost: Any = 0) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows))
    return compile_problem(problem, cp.CLARABEL).form


@pytest.mark.parametrize("name", SUMS)
def test_what_cancels_is_added_up_as_it_is(name: str) -> None:
    form = compiled([SUMS[name] <= -1, x >= -10])
    row = np.flatnonzero(form.b == -1.0)
    assert row.size == 1
    assert form.A.toarray()[row[0]].tolist() == [1.0] + [0.0] * (form.q.size - 1)


@pytest.mark.parametrize("name", SUMS)
def test_no_point_is_excluded_by_what_floats_lose(name: str) -> None:
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(x), [SUMS[name] <= -1, x >= -10, y == 0]))
    assert problem.solve().objective == pytest.approx(-1.0)


def test_costs_and_constants_are_added_up_as_they_are() -> None:
    form = compiled([x >= -1], HUGE * x + 3.0 + x - HUGE * x + HUGE - HUGE)
    assert form.q.tolist() == [1.0] and form.offset == 3.0
    form = compiled([x >= -1], cp.square(x) + np.ones(3) @ (np.array([HUGE, 1.0, -HUGE]) * x))
    assert form.q[0] == 1.0
    form = compiled([HUGE + x - HUGE >= 0.5, HUGE + 2.0 + y - HUGE >= 0])
    assert form.b.tolist() == [-0.5, 2.0, 2.0, 2.0]
    # terms of an objective are one sum
    form = compile_problem(Terms(), cp.CLARABEL).form
    assert form.q.tolist() == [1.0] and form.offset == 1.0


def test_cones_hold_what_was_declared() -> None:
    form = compiled([cp.norm(cp.hstack([HUGE * x + x - HUGE * x, 2.0])) <= 3])
    (at,) = range(form.columns["x"].start, form.columns["x"].stop)
    assert np.abs(form.A.toarray()[:, at]).tolist().count(1.0) == 1
    assert np.abs(form.A.data).max() == 1.0


def test_among_many_rows_only_what_cancels_is_made_again() -> None:
    wide = cp.Variable(400, name="wide")
    lost = HUGE * wide[7] + wide[7] - HUGE * wide[7]
    rows = [cp.hstack([lost, 2.0 * wide[1:]]) @ np.ones(400) + cp.sum(wide) <= 3.0, wide >= 0]
    form = compiled(rows)
    expected = np.full(400, 3.0)
    expected[[0, 7]] = 1.0, 4.0
    (own,) = np.flatnonzero(form.b == 3.0)
    assert form.A.toarray()[own].tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_every_entry_is_known_to_a_few_roundings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    B[:, 1] = np.linalg.svd(A)[2][3] * 7.0  # nearly orthogonal to all rows
    z = cp.Variable(2, name="z")
    form = compiled([A @ (B @ z) <= 1.0])
    for i in range(3):
        for j in range(2):
            pairs = zip(A[i].tolist(), B[:, j].tolist(), strict=True)
            exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
            own = Fraction(float(form.A.toarray()[i, j]))
            assert abs(own - exact) <= abs(exact) * Fraction(1, 2**44)


def test_products_are_multiplied_out_as_they_are() -> None:
    at = {x.id: 0, y.id: 1}

    def coefficients(e: Any) -> dict[tuple[int, ...], float]:
        f = quadratic_map(e, at, 4)
        entries = {(i, j): float(f.Q[[0], [k]].item()) for k, (i, j) in enumerate(f.pairs.T)}
        linear = {(j,): v for j, v in enumerate(f.A.toarray()[0].tolist()) if v}
        return {k: v for k, v in (entries | linear | {(): float(f.b[0])}).items() if v}

    small = Fraction(0.1) ** 2 - Fraction(0.1 * 0.1)
    assert coefficients(cp.square(0.1 * x) - 0.1 * 0.1 * x * x) == {(0, 0): float(small)}
    assert coefficients(HUGE * x * y[0] - x * y[0] - HUGE * y[0] * x) == {(0, 1): -1.0}
    form = HUGE * cp.quad_form(y, np.eye(3)) - HUGE * cp.sum_squares(y) + cp.square(y[2])
    assert coefficients(form) == {(3, 3): 1.0}
    assert coefficients(cp.sum_squares(HUGE * x + y[:1]) - HUGE**2 * x**2)[1, 1] == 1.0
    assert coefficients(cp.cumsum(HUGE * y)[2] - HUGE * cp.sum(y) + y[1]) == {(2,): 1.0}
    assert coefficients(x / 3.0 + x / 3.0 + x / 3.0 - x + 1.0) == {(): 1.0}


# what floats add up is convex, or 0: the least value is far below
CONCAVE = {
    "by a rounding": (cp.square(0.1 * x) - 0.1 * 0.1 * cp.square(x), 1e9),
    "by a digit": (HUGE * x * x - x * x - HUGE * x * x, 3.0),
    "of a product": (HUGE * x * y[0] - x * y[0] - HUGE * x * y[0], 3.0),
}


@pytest.mark.parametrize("name", CONCAVE)
def test_no_curvature_is_proved_of_what_floats_lose(name: str) -> None:
    cost, most = CONCAVE[name]
    rows = [x >= -most, x <= most, y >= -most, y <= most]
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows))
    assert not problem.problem_class.convex


def test_numbers_that_no_float_is_are_refused() -> None:
    for tiny in (1e-200 * (1e-200 * x), 1e-200 * (1e-120 * x) + 1e-200 * (1e-130 * x)):
        with pytest.raises(of.UnsupportedProblem, match="no float"):
            compiled([tiny <= 1e-300, x >= -10])
    with pytest.raises(of.UnsupportedProblem, match="no float"):
        compiled([1e200 * (1e200 * x) <= 1.0])
    # what is within reach in the end is made of what is not
    form = compiled([1e-200 * (1e-200 * (1e200 * (1e200 * x))) <= 5.0])
    assert abs(form.A.toarray()).max() == pytest.approx(1.0)


LOST = HUGE * x + x - HUGE * x
# problems whose objective or rows floats evaluate to something else, and their optimal value
EVALUATED = {
    "an objective": (cp.Minimize(LOST), [x >= 1.5], 1.5),
    "a maximum": (cp.Maximize(1.0 - LOST + HUGE - HUGE), [x >= 1.5], -0.5),
    "an equality": (cp.Minimize(x), [LOST == 1.5], 1.5),
    "both sides": (cp.Minimize(x), [HUGE * x + x >= HUGE * x + 1.5], 1.5),
    "a cone": (cp.Maximize(x), [cp.norm(cp.hstack([LOST, 2.0])) <= 3], 5.0**0.5),
    "cones": (cp.Maximize(x), [cp.SOC(3.0, cp.hstack([LOST, 2.0]))], 5.0**0.5),
    "matrices": (cp.Minimize(x), [cp.bmat([[LOST, 1.0], [1.0, 2.0]]) >> 0], 0.5),
    "an exponential": (cp.Minimize(cp.exp(LOST) - 2.0 * x), [x >= -9, x <= 9], 2 - 2 * np.log(2.0)),
    "beside a square": (cp.Minimize(cp.square(x) + LOST), [x >= -9], -0.25),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_values_are_those_of_what_is_added_up(name: str) -> None:
    goal, rows, expected = EVALUATED[name]
    solution = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    assert solution.objective == pytest.approx(expected, abs=1e-6)
    assert solution.grade.sound and solution.is_optimal()


def test_a_search_is_told_what_floats_lose() -> None:
    cost, rows = HUGE * x * x - x * x - HUGE * x * x, [x >= -3, x <= 3]
    solution = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows)).solve()
    assert solution.objective == pytest.approx(-9.0, abs=1e-6)


def test_parameters_that_cancel_are_added_up_as_they_are() -> None:
    a, b = cp.Parameter(name="a", value=2.0), cp.Parameter(name="b", value=3.0)
    rows = [a * x + b * x - a * x <= 1.0, x >= -10]
    cost = a * x - b * x - a * x + b
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows))
    for large in (2.0, HUGE, -HUGE, 1.0):
        moved = problem.at(a=large, b=3.0)
        form = compile_problem(moved, cp.CLARABEL).form
        (row,) = np.flatnonzero(form.b == 1.0)
        assert form.A.toarray()[row].tolist() == [3.0] and form.q.tolist() == [-3.0]
        assert form.offset == 3.0
        assert moved.solve().objective == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("written", "truth"),
    [
        (lambda x: x @ x + np.ones(3) @ x, False),
        (lambda x: cp.sum_squares(x) - 2.0 * x[0] + 1.0, False),
        (lambda x: 1e16 * (x @ x) + x[0] - 1e16 * cp.sum_squares(x), True),
        (lambda x: cp.square(0.1 * x[0]), True),
        (lambda x: x[:2] @ x[1:], True),
        (lambda x: cp.quad_form(x, np.eye(3)), True),
        (lambda x: x @ x + x[0] - 0.5 * x[0], True),
    ],
)
def test_what_meets_no_number_twice_needs_no_sizes(written: Any, truth: bool) -> None:
    assert adds(written(cp.Variable(3)), {}) == truth


RNG = np.random.default_rng(7)
L, R, W = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=(4, 4))
X, w = cp.Variable((3, 3), name="X"), cp.Variable(4, name="w")
# affine atoms, alone and inside each other; numbers nearly cancel in some entries of each
ATOMS: dict[str, Any] = {
    "products": L @ (X @ R) - (1.0 + 1e-13) * (L @ X) @ R,
    "vectors": L.T @ (W @ w) - (L.T @ W) @ w,
    "rows": (w @ W) @ W.T - w @ (W @ W.T),
    "inner": L[:, 0] @ (W @ w) + cp.sum(w) * 0.1 - 0.1 * w[0],
    "sparse": sp.csr_array(L.T) @ (sp.csr_array(W) @ w) - (L.T @ W) @ w,
    "entries": cp.multiply(L[:3], 0.1 * X) - 0.1 * cp.multiply(L[:3], X),
    "a number": cp.multiply(W, 0.3 * w[0]) - cp.multiply(0.3 * W, w[0]),
    "stacks": W[:3] @ cp.hstack([w[1:], 0.7]) + cp.vstack([X[0], X[1]])[:, 0] @ R[:2] @ np.ones(2),
    "places": cp.vec(0.1 * X.T, order="F")
    + cp.reshape(0.2 * X, 9, order="C")
    - 0.3 * cp.vec(X, order="F"),
    "sums": cp.sum(0.1 * X, axis=0) + cp.sum(0.2 * X, axis=1) - 0.3 * X[0],
    "kept": cp.sum(L @ X, axis=1, keepdims=True) @ R[:1]
    - L @ cp.sum(X, axis=1, keepdims=True) @ R[:1],
    "triangles": cp.upper_tri(0.1 * X + 0.2 * X) - 0.3 * cp.hstack([X[0, 1], X[0, 2], X[1, 2]]),
    "diagonals": cp.diag(L[:3] @ X) + cp.diag(cp.diag(0.1 * w[:3]))[0] - 0.1 * w[0],
    "constants": (0.1 + 0.2 * w[0] + 0.7) - 0.8 - 0.2 * w[1],
    "others": cp.cumsum(0.1 * w) + cp.convolve([0.1, 0.3], 1.0 * w[:3]) - 0.1 * w,
    "minus": -(-(0.1 * w) - 0.2 * w) - 0.3 * w,
    "far apart": np.array([[1e8, 1e-8, 1.0]]) @ (np.array([[1e8], [1e16], [-1e8]]) @ w[None, :2])
    - 1e16 * w[None, :2],
}


@pytest.mark.parametrize("name", ATOMS)
@pytest.mark.parametrize("places", [0, PLACES])
def test_coefficients_are_those_of_fractions(
    name: str, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optfair.compile.sums.PLACES", places)
    monkeypatch.setattr("optfair.compile.sums.AT_ONCE", 7)  # some at a time
    e = ATOMS[name]
    sums = Sums(e)
    M = sums.read()
    M = M if isinstance(M, np.ndarray) else M.toarray()
    exact, columns = Entries(sums.first), np.arange(sums.n)
    for i in range(e.size):
        entries = exact.of(e, i, 0, 1, columns)[i]
        for j in range(sums.n + 1):
            truth = entries.get((j,) if j < sums.n else (), Fraction(0))
            assert abs(Fraction(float(M[i, j])) - truth) <= abs(truth) * Fraction(1, 2**44)


def test_products_beyond_any_count_are_added_up_as_they_are() -> None:
    """Half a million products, of which those of the first column cancel to one rounding."""
    A = RNG.normal(size=(500, 1000))
    z = cp.Variable(1000, name="z")
    lost = RNG.normal(size=1000)
    lost -= A.T @ np.linalg.lstsq(A.T, lost, rcond=None)[0]  # orthogonal to all rows, nearly
    form = compiled([A @ (lost * x + z) - A @ z <= 1.0])
    own = form.A[:, [form.columns["x"].start]].toarray().ravel()
    for i in range(0, 500, 100):
        products = zip(A[i].tolist(), lost.tolist(), strict=True)
        exact = sum(Fraction(a) * Fraction(b) for a, b in products)
        assert abs(Fraction(float(own[i])) - exact) <= abs(exact) * Fraction(1, 2**44)
    assert form.A.nnz == 500


def test_values_of_any_number_of_products_are_those_of_what_is_added_up() -> None:
    B = RNG.normal(size=(320, 320))  # 102,400 numbers, twice
    x = cp.Variable(320, name="x", value=np.full(320, 1.5))
    lost = B @ x * HUGE + x - B @ x * HUGE
    assert np.abs(lost.value - 1.5).max() > 0.4
    assert (exact_sums(lost).value == 1.5).all()
    f = quadratic_map(lost, {x.id: 0}, 320)
    assert (f.A.toarray() == np.eye(320)).all()


@pytest.mark.parametrize("sizes", [False, True])
def test_one_number_in_many_rows_does_not_fill_a_matrix(sizes: bool) -> None:
    """Of t >= 1 - b (A w + c), with c in every row, each row has but a few coefficients."""
    rng, rows = np.random.default_rng(0), 1200
    A, b = rng.normal(size=(rows, 3)), rng.normal(size=rows)
    t, w, c = cp.Variable(rows), cp.Variable(3), cp.Variable()
    made = Sums(1.0 - cp.multiply(b, A @ w + c) - t)
    M = made.made(made.e, sizes=sizes)
    assert rows * (made.n + 1) > PLACES and sp.issparse(M) and M.nnz <= 6 * rows
    at = {v.id: slice(made.first[v.id], made.first[v.id] + v.size) for v in (t, w, c)}
    W = -b[:, None] * A
    assert np.allclose(M[:, at[w.id]].toarray(), abs(W) if sizes else W, rtol=1e-15)
    assert np.allclose(M[:, at[c.id]].toarray()[:, 0], abs(b) if sizes else -b, rtol=1e-15)
    assert abs(M[:, at[t.id]] - (1.0 if sizes else -1.0) * sp.eye_array(rows)).max() == 0.0
    assert np.allclose(M[:, [made.n]].toarray(), 1.0)
