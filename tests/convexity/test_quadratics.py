"""Quadratics of affine entries: their matrices in floats, roots of them, and ratios to these."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Leaf, Node
from optfair.convexity.quadratics import inertia, quadratic, quadratic_in_floats, squared_norm
from optfair.convexity.reading import read
from optfair.errors import OptfairError


def node_of(expression: Any) -> Node:
    return read(expression, Domain()).node


def covariance(n: int, seed: int = 0, samples: int = 5) -> Any:
    return np.cov(np.random.default_rng([n, seed]).normal(size=(n, samples * n)))


def value_of(node: Node, values: dict[int, Any]) -> Fraction:
    """Return the quadratic at a point, in fractions."""
    q = quadratic_in_floats(node)
    assert q is not None
    y: list[Fraction] = []
    for base, lines in q.lines:
        assert isinstance(base, Leaf)
        x = values[base.uid]
        y += [Fraction(c) * Fraction(x[int(i)]) + Fraction(d) for i, c, d in lines.tolist()]
    y.append(Fraction(1))
    M = [[Fraction(v) for v in row] for row in q.matrix.tolist()]
    return sum((a * b * M[i][j] for i, a in enumerate(y) for j, b in enumerate(y)), Fraction(0))


def declared(S: Any, u: list[Fraction]) -> Fraction:
    """Return u'Su in fractions."""
    M = [[Fraction(v) for v in row] for row in np.asarray(S).tolist()]
    return sum((a * b * M[i][j] for i, a in enumerate(u) for j, b in enumerate(u)), Fraction(0))


@pytest.mark.parametrize("n", [2, 7, 23])
def test_a_matrix_in_floats_is_that_of_the_form(n: int) -> None:
    """To the last digit, with factors, shifts and linear terms."""
    rng = np.random.default_rng(n)
    w, S, b = cp.Variable(n), covariance(n), rng.normal(size=n)
    S = (S + S.T) / 2
    x = rng.normal(size=n)
    node = node_of(cp.quad_form(w - b, S) + b @ w + 0.7)
    (leaf,) = node.leaves
    shifted = [Fraction(v) - Fraction(c) for v, c in zip(x.tolist(), b.tolist(), strict=True)]
    line = sum((Fraction(c) * Fraction(v) for c, v in zip(b, x, strict=True)), Fraction(0.7))
    assert value_of(node, {leaf.uid: x}) == declared(S, shifted) + line


def test_both_readings_of_a_form_agree() -> None:
    w, S = cp.Variable(6), covariance(6)
    node = node_of(cp.quad_form(w, (S + S.T) / 2) - 2.0 * w[3] + 1.0)
    in_floats, exact = quadratic_in_floats(node), quadratic(node)
    assert in_floats is not None and exact is not None and in_floats.of_leaves
    assert exact.matrix == [[Fraction(v) for v in row] for row in in_floats.matrix.tolist()]


def test_what_would_be_rounded_is_not_read() -> None:
    """Coefficients that do not add up to a float, a product of three, and tiny numbers."""
    x, y = cp.Variable(), cp.Variable()
    assert quadratic_in_floats(node_of(x * y * x)) is None
    S = np.array([[1.0, 0.1], [0.2, 1.0]])  # 0.1 + 0.2 is rounded
    algebra, leaf = Algebra(Domain()), Leaf(("test", "rounded"), "w", 2, (2,))
    from optfair.convexity.expression import linear, select

    pairs = algebra.product(
        [(select(leaf, [0, 0]), Fraction(1)), (select(leaf, [1, 1]), Fraction(1))]
    )
    assert quadratic_in_floats(linear([(S[[0, 1], [1, 0]][None, :], pairs)], np.zeros(1))) is None
    assert quadratic_in_floats(node_of(1e-310 * cp.square(x) + 0.0 * y + x * y)) is None


@pytest.mark.parametrize("n", [5, 45, 120])
def test_a_definite_form_is_a_squared_norm_and_one_that_is_not_is_none(n: int) -> None:
    rng = np.random.default_rng(n)
    U = np.linalg.qr(rng.normal(size=(n, n)))[0]
    sizes = np.linspace(1e-6, 1.0, n)
    for least, holds in ((1e-6, True), (-1e-6, False), (-1e-12, False)):
        sizes[0] = least
        S = U @ np.diag(sizes) @ U.T
        w = cp.Variable(n)
        node = node_of(cp.quad_form(w, cp.psd_wrap((S + S.T) / 2)))
        assert squared_norm(node) is holds
        assert (float(Domain().range(node).low[0]) >= 0.0) is holds
        assert not squared_norm(node_of(cp.quad_form(w, cp.psd_wrap((S + S.T) / 2)) - 1e-9))
    few = quadratic(node_of(cp.quad_form(cp.Variable(3), np.eye(3))))
    assert few is not None and inertia(few.matrix) == (3, 0, 1)


def test_a_root_of_an_indefinite_form_is_not_called_convex() -> None:
    """At any size: a form with one eigenvalue of -1e-9 has no root that is a norm."""
    for n in (4, 60):
        U = np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))[0]
        S = U @ np.diag(np.r_[-1e-9, np.ones(n - 1)]) @ U.T
        w = cp.Variable(n)
        p = of.from_cvxpy(
            cp.Problem(
                cp.Minimize(cp.sqrt(cp.quad_form(w, cp.psd_wrap((S + S.T) / 2))) - w[0]),
                [cp.sum(w) == 1, w >= 0],
            )
        )
        assert not p.problem_class.convex


def test_the_ratio_of_a_mean_to_a_deviation_has_its_closed_form() -> None:
    """Where shares may be negative: the sign of the mean is not known, and levels below 0 do."""
    n = 15
    S, mu = covariance(n), 0.05 + 0.1 * np.random.default_rng(n).normal(size=n)
    S = (S + S.T) / 2
    mu *= np.sign(np.linalg.solve(S, mu).sum())
    w = cp.Variable(n)
    p = of.from_cvxpy(
        cp.Problem(cp.Maximize(mu @ w / cp.sqrt(cp.quad_form(w, S))), [cp.sum(w) == 1])
    )
    s = p.solve()
    assert str(s.grade) == "proved" and s.solver == "equivalent-convex"
    best = float(np.sqrt(mu @ np.linalg.solve(S, mu)))
    assert s.objective == pytest.approx(best, rel=1e-6)
    assert "where its core is below 0" in str(p.explain())
    assert p.problem_class.curvature != "quasiconvex"  # at levels above 0 it is not


@pytest.mark.parametrize("n", [4, 60])
def test_a_ratio_is_the_same_in_other_units(n: int) -> None:
    S, mu = covariance(n), 0.05 + 0.1 * np.random.default_rng(n).normal(size=n)
    known = []
    for unit in (1.0, 1e-6, 1e6):
        w = cp.Variable(n)
        form = cp.quad_form(w, unit**2 * (S + S.T) / 2)
        ratio = ((unit * mu) @ w - 0.02 * unit) / cp.sqrt(form)
        s = of.from_cvxpy(
            cp.Problem(cp.Maximize(ratio), [cp.sum(w) == 1, cp.norm1(w) <= 2])
        ).solve()
        assert str(s.grade) == "proved"
        known.append(s.objective)
    assert known[1:] == pytest.approx([known[0]] * 2, rel=1e-6)


@pytest.mark.parametrize("n", [3, 50])
def test_formulas_of_one_portfolio_have_one_answer(n: int) -> None:
    """A quotient by a root of a form, by a norm, its square, its logarithm, and a row of it."""
    S, mu = covariance(n), 0.05 + 0.1 * np.random.default_rng(n).random(n)
    S = (S + S.T) / 2
    w, root = cp.Variable(n), np.linalg.cholesky(S).T
    rows, deviation = [cp.sum(w) == 1, w >= 0], cp.sqrt(cp.quad_form(w, S))
    written = {
        "norm": mu @ w / cp.norm(root @ w),
        "root": mu @ w / deviation,
        "square": cp.square(mu @ w) / cp.quad_form(w, S),
        "logarithm": cp.log(mu @ w) - 0.5 * cp.log(cp.quad_form(w, S)),
    }
    found = {}
    for name, objective in written.items():
        s = of.from_cvxpy(cp.Problem(cp.Maximize(objective), rows)).solve()
        assert str(s.grade) == "proved", name
        found[name] = s.objective
    best = found["norm"]
    assert found["root"] == pytest.approx(best, rel=1e-6)
    assert found["square"] == pytest.approx(best**2, rel=1e-6)
    assert found["logarithm"] == pytest.approx(np.log(best), rel=1e-5)
    least = of.from_cvxpy(
        cp.Problem(cp.Minimize(mu @ w), [*rows, mu @ w / deviation >= 0.9 * best])
    ).solve()
    same = of.from_cvxpy(
        cp.Problem(cp.Minimize(mu @ w), [*rows, mu @ w >= 0.9 * best * cp.norm(root @ w)])
    ).solve()
    assert str(least.grade) == "proved"
    assert least.objective == pytest.approx(same.objective, rel=1e-6)


@pytest.mark.parametrize("n", [6, 60])
def test_roots_and_forms_stand_in_sums(n: int) -> None:
    """A form of shares less a benchmark, and one with other squares beside a linear part."""
    S, b = covariance(n), np.full(n, 1.0 / n)
    S = (S + S.T) / 2
    mu, root = np.random.default_rng(n).random(n), np.linalg.cholesky(S).T
    w = cp.Variable(n)
    rows = [cp.sum(w) == 1, w >= 0]
    rng = np.random.default_rng(n + 1)
    F, D, G = rng.normal(size=(n, 4)), 0.1 + rng.random(n), covariance(4)
    half = np.linalg.cholesky(G := (G + G.T) / 2).T
    pairs = [
        (
            cp.sqrt(cp.quad_form(w - b, S)) - 0.1 * mu @ w,
            cp.norm(root @ (w - b)) - 0.1 * mu @ w,
        ),
        (
            cp.sqrt(cp.quad_form(w, S)) + 0.2 * cp.quad_form(w, S) - 0.1 * mu @ w,
            cp.norm(root @ w) + 0.2 * cp.sum_squares(root @ w) - 0.1 * mu @ w,
        ),
        (
            cp.sqrt(cp.quad_form(w - b, S) + 0.5 * cp.sum_squares(w)),
            cp.norm(cp.hstack([root @ (w - b), 0.5**0.5 * w])),
        ),
        (  # a factor model
            cp.sqrt(cp.quad_form(F.T @ w, G) + cp.sum(cp.multiply(D, cp.square(w)))) - 0.1 * mu @ w,
            cp.norm(cp.hstack([half @ (F.T @ w), cp.multiply(np.sqrt(D), w)])) - 0.1 * mu @ w,
        ),
    ]
    for written, ruled in pairs:
        ours = of.from_cvxpy(cp.Problem(cp.Minimize(written), rows))
        assert ours.problem_class.convex
        s = ours.solve()
        assert str(s.grade) == "proved"
        other = cp.Problem(cp.Minimize(ruled), rows)
        other.solve(solver="CLARABEL")
        assert s.objective == pytest.approx(other.value, abs=1e-6)


def test_where_no_mean_is_positive_no_level_is_claimed() -> None:
    """The best attempt is kept, and what stops is said."""
    n = 50
    S, w = covariance(n), cp.Variable(n)
    rows = [cp.sum(w) == 1, cp.norm1(w) <= 2]
    p = of.from_cvxpy(
        cp.Problem(cp.Maximize((0.01 * w[0] - 5.0) / cp.sqrt(cp.quad_form(w, (S + S.T) / 2))), rows)
    )
    with pytest.raises(OptfairError, match="levels are convex below 0"):
        p.solve(time_limit=20)


def test_levels_that_only_an_undefined_point_reaches_end_soon_with_the_best_point() -> None:
    """At w = b the ratio is 0/0, and every level is reached there: nothing is proved."""
    n = 15
    S, mu = covariance(n), np.random.default_rng(n).normal(size=n)
    w, b = cp.Variable(n), np.full(n, 1.0 / n)
    ratio = mu @ (w - b) / cp.sqrt(cp.quad_form(w - b, (S + S.T) / 2))
    p = of.from_cvxpy(cp.Problem(cp.Maximize(ratio), [cp.sum(w) == 1, w >= 0]))
    with pytest.raises(OptfairError) as e:
        p.solve(time_limit=60)
    best = e.value.solution  # type: ignore[attr-defined]
    assert best is not None and best.objective > 0.0 and not best.certificate.verify()


def test_rows_that_stand_twice_are_one_entry() -> None:
    """The same map on both sides of a form, and coefficients of coefficients."""
    n = 50
    w, rng = cp.Variable(n), np.random.default_rng(n)
    D = rng.random(n)
    for k, parts in ((3, 3), (6, 1)):  # short sums are taken apart
        F, M = rng.normal(size=(n, k)), np.eye(k) + 1.0
        q = quadratic_in_floats(node_of(cp.quad_form(F.T @ w, M)))
        assert q is not None and len(q.lines) == parts and not q.of_leaves
        scale = q.matrix[0, 0] / 2.0  # short rows are brought to numbers near 1
        assert (q.matrix[:-1, :-1] == scale * M).all()
    own = quadratic_in_floats(node_of(cp.sum(cp.multiply(D, cp.square(w))) + 2.0))
    assert own is not None and (np.diag(own.matrix) == np.append(D, 2.0)).all()
    assert (
        quadratic_in_floats(node_of(0.1 * cp.sum(cp.multiply(D, cp.square(w))))) is None
    )  # rounded


def test_a_form_of_many_shares_is_read() -> None:
    n = 460
    w, S = cp.Variable(n), covariance(n, samples=2)
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sqrt(cp.quad_form(w, (S + S.T) / 2)) - w[0]), [cp.sum(w) == 1])
    )
    assert p.problem_class.convex and "norm of an affine map" in str(p.explain())
    lopsided = np.array([[1.0, 0.5], [0.5 + 2.0**-50, 1.0]])  # each entry counts
    q = quadratic_in_floats(node_of(cp.quad_form(cp.Variable(2), lopsided)))
    assert q is not None and q.matrix[0, 1] == q.matrix[1, 0] == 0.5 + 2.0**-51


def test_rows_of_two_variables_with_the_same_numbers_are_two_entries() -> None:
    """The square of the sum of 3 entries of x plus twice its product with the sum of as many of y."""
    n, k = 27, 9
    x, y = cp.Variable(n), cp.Variable(n)
    X, Y = ([cp.sum(v[3 * i : 3 * i + 3]) for i in range(k)] for v in (x, y))
    e = cp.sum(cp.multiply(cp.hstack(X + Y + X), cp.hstack(X + X + Y)))
    q = quadratic_in_floats(node_of(e))
    assert q is not None and q.matrix.shape == (2 * k + 1, 2 * k + 1)
    assert not squared_norm(node_of(e)) and not squared_norm(node_of(e + 1.0))
    assert not q.convex


def test_each_sum_of_pairs_is_in_order() -> None:
    """Places of entries follow those of the leaves, whatever order they are written in."""
    x, y = cp.Variable(3), cp.Variable(2)
    node = node_of(x[2] * y[0] + 2.0 * y[1] * x[0] + cp.square(x[1]))
    q = quadratic_in_floats(node)
    assert q is not None and len(q.lines) == 2
    serials = [base.serial for base, _ in q.lines]
    assert all(a < b for a, b in pairwise(serials))
    (_, own), (_, others) = q.lines
    assert own[:, 0].tolist() == [0, 1, 2] and others[:, 0].tolist() == [0, 1]
    assert q.matrix[2, 3] == 0.5 and q.matrix[0, 4] == 1.0 and q.matrix[1, 1] == 1.0
