"""Ranges on a domain: what sums say of their terms, and how much work it is."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends import unattained as module
from optfair.convexity.domain import Domain, _Stated
from optfair.convexity.expression import linear
from optfair.convexity.intervals import Interval
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import leaf_of, read

INF = np.inf


def one_by_one(M: sp.csr_array, box: Interval, target: Interval) -> Interval:
    """Return what rows of sums say of their terms, row by row and term by term."""
    low, high = box.low.copy(), box.high.copy()
    for i in range(M.shape[0]):
        at = slice(M.indptr[i], M.indptr[i + 1])
        columns, factors = M.indices[at], Interval.exactly(M.data[at])
        terms = factors * box[columns]
        for k, j in enumerate(columns):
            before, after = target[i], Interval.exactly(0.0)
            for left in range(k):
                before = before - terms[left]
            for right in range(len(columns) - 1, k, -1):
                after = after + terms[right]
            own = (before - after) / factors[k]
            low[j], high[j] = max(low[j], own.low), min(high[j], own.high)
    return Interval(low, high)


def random_sum(seed: int) -> tuple[sp.csr_array, Interval, Interval]:
    """Return coefficients, boxes with and without ends, and what the sums lie in."""
    rng = np.random.default_rng(seed)
    M = sp.random_array((4, 9), density=0.6, rng=rng, format="csr", data_sampler=rng.normal)
    low = rng.normal(size=9)
    high = low + rng.random(9)
    low[rng.random(9) < 0.1 * (seed % 3)] = -INF
    high[rng.random(9) < 0.1 * (seed % 3)] = INF
    inside = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    middle = M @ inside
    below = np.where(rng.random(4) < 0.5, -INF, middle - 0.1)
    return M, Interval(low, high), Interval(below, middle + 0.1 * rng.random(4))


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_a_sum_say_together_what_each_says_of_its_terms(seed: int) -> None:
    M, box, target = random_sum(seed)
    leaf = leaf_of(cp.Variable(9))
    found = Domain(boxes={leaf: box})
    found._backward(linear([(M, leaf)], np.zeros(4)), target, 8)
    wanted = one_by_one(M, box, target)
    assert np.array_equal(found.box(leaf).low, wanted.low)
    assert np.array_equal(found.box(leaf).high, wanted.high)


def test_a_sum_without_an_end_on_either_side_is_known_at_once() -> None:
    M = sp.csr_array(np.ones((2, 6)))
    r = Interval.of(np.full(6, -INF), np.arange(6.0))
    assert np.isneginf(r.linear(M).low).all() and r.linear(M).contains(15.0)
    r = Interval.of(np.full(6, -INF), np.full(6, INF)).linear(M)
    assert np.isneginf(r.low).all() and np.isposinf(r.high).all()


def test_what_is_left_of_a_total_holds_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(0)
    M, leaf = sp.csr_array(rng.normal(size=(1, 6))), leaf_of(cp.Variable(6))
    low, step = rng.normal(size=6), 1.0 - 2.0 * (M.data < 0.0)
    total = float(M.data @ low)
    c, at = [Fraction(v) for v in M.data.tolist()], [Fraction(v) for v in low.tolist()]
    for j in range(6):  # the others lie at the corner where their sum is least
        box = Interval(np.where(step > 0, low, low - 1.0), np.where(step > 0, low + 1.0, low))
        box.low[j], box.high[j] = -INF, INF
        found = Domain(boxes={leaf: box})
        found._backward(linear([(M, leaf)], np.zeros(1)), Interval.exactly(np.array([total])), 8)
        others = sum(
            (a * b for k, (a, b) in enumerate(zip(c, at, strict=True)) if k != j), Fraction()
        )
        x, own = (Fraction(total) - others) / c[j], found.box(leaf)[j]
        assert Fraction(float(own.low)) <= x <= Fraction(float(own.high))
        assert np.isclose(float(own.high if c[j] > 0 else own.low), float(x))


def balls(count: int) -> tuple[cp.Variable, list[cp.Constraint]]:
    """Return that many dense norm rows on 20 variables without bounds."""
    rng, x = np.random.default_rng(0), cp.Variable(20, name="x")
    return x, [cp.norm(rng.normal(size=(5, 20)) @ x - 1.0) <= 5.0 for _ in range(count)]


def test_rows_that_rest_on_nothing_are_taken_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rows = balls(6)
    built = []
    start = Domain.__init__
    monkeypatch.setattr(Domain, "__init__", lambda *a, **k: (built.append(1), start(*a, **k))[1])
    found = domain_of({f"row {i}": c for i, c in enumerate(rows)})
    assert len(found.facts) == 6 and len(built) <= 3


def test_rows_that_rest_on_rows_before_them_are_taken_in() -> None:
    x, y, z = cp.Variable(), cp.Variable(), cp.Variable()
    rows = {"b": 1 / y <= z, "a": cp.square(y - 3) <= 1, "c": 1 / z <= x}
    assert domain_of(rows).names == ("a", "b", "c")


def test_a_proof_beside_many_rows_keeps_those_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows = balls(8)
    named = {**{f"row {i}": c for i, c in enumerate(rows)}, "sign": x[0] >= 0.1}
    built = []
    start = Domain.__init__
    monkeypatch.setattr(Domain, "__init__", lambda *a, **k: (built.append(1), start(*a, **k))[1])
    found = of.prove(1 / x[0], named)
    assert found.curvature == "convex" and found.rests_on == ("sign",)
    assert len(built) <= 12  # by halves, not one by one


def test_whether_a_limit_is_missed_is_asked_of_the_objective_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, rows = balls(3)
    asked = []
    own = module.domain_of
    monkeypatch.setattr(module, "domain_of", lambda *a, **k: (asked.append(1), own(*a, **k))[1])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), rows))
    assert not module.misses(p, 0.0) and not asked
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.exp(x[0])), [x <= 0.0]))
    assert module.misses(p, 0.0) and asked


@pytest.mark.parametrize("seed", range(12))
def test_multiples_of_rows_that_cannot_help_are_left_out_and_no_other(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    x, y = cp.Variable(4, name="x"), cp.Variable(3, name="y")
    A, B = rng.integers(-2, 3, (7, 4)), rng.integers(-2, 3, (5, 3))
    rows = [A @ x <= rng.normal(size=7), B @ y <= 1.0, A[:5] @ x + B @ y == rng.normal(size=5)]
    rows += [x[:2] >= -3, y <= 10.0 ** rng.integers(-3, 4)][: rng.integers(0, 3)]
    named = {f"r{i}": row for i, row in enumerate(rows)}
    probes = [A[:3] @ x * 3.0 + 0.1, B[1:4] @ y - 7.0, A[2:4] @ x + B[2:4] @ y, x[0] + y[1]]

    def ranges() -> list[Interval]:
        domain = domain_of(named)
        return [domain.range(read(e, domain).node) for e in probes]

    few = ranges()

    def all_of_them(self: _Stated, a: Any, count: int, *_: Any) -> tuple[Any, Any]:
        r, k = np.nonzero((self._entries != 0.0) & (a != 0.0) & (self._least[:, None] <= count))
        return r, a[k] / self._entries[r, k]

    monkeypatch.setattr(_Stated, "useful", all_of_them)
    for one, other in zip(few, ranges(), strict=True):
        assert np.array_equal(one.low, other.low) and np.array_equal(one.high, other.high)


def test_bounds_of_its_own_variables_are_what_a_proof_is_tried_on_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, rows = balls(8)
    y = cp.Variable(name="y")
    named = {f"row {i}": c for i, c in enumerate(rows)}
    named |= {"sign": x[0] >= 0.1, "other": y >= 1, "disk": cp.square(y) <= 4}
    built = []
    start = Domain.__init__
    monkeypatch.setattr(
        Domain, "__init__", lambda *a, **k: (built.append(a[1:2]), start(*a, **k))[1]
    )
    found = of.prove(1 / x[0], named)
    assert found.curvature == "convex" and found.rests_on == ("sign",)
    assert len([a for a in built if a and len(a[0]) > 1]) <= 4  # with several facts


@pytest.mark.parametrize("n", [1, 2, 3, 7, 80])
def test_sums_of_intervals_enclose_the_exact_ones(n: int) -> None:
    rng = np.random.default_rng(n)
    ends = np.sort(rng.normal(size=(2, 3, n)) * 10.0 ** rng.integers(-9, 9, (3, n)), axis=0)
    each, M = Interval(*ends), sp.csr_array(rng.normal(size=(3, n)))
    total = each.sum()
    assert total.shape == (3,)
    for i in range(3):
        least, most = (sum(map(Fraction, end[i].tolist())) for end in ends)
        assert Fraction(float(total.low[i])) <= least <= most <= Fraction(float(total.high[i]))
        assert total.high[i] - total.low[i] <= float(most - least) * (1 + 1e-9) + 1e-6
    product = each[0].linear(M)
    for i in range(3):
        sides = [
            [Fraction(m) * Fraction(e) for e in (low, high)]
            for m, low, high in zip(M.toarray()[i].tolist(), *ends[:, 0].tolist(), strict=True)
        ]
        assert Fraction(float(product.low[i])) <= sum(map(min, sides))
        assert Fraction(float(product.high[i])) >= sum(map(max, sides))


def test_many_terms_of_one_sign_add_up_to_one_of_it() -> None:
    M = sp.csr_array(np.array([[1.0], [-1.0]]) * np.ones(100))
    total = Interval.of(np.zeros(100), np.full(100, 0.1)).linear(M)
    assert total.low[0] == 0.0 and total.high[1] == 0.0
    assert total.high[0] > 10.0 and total.low[1] < -10.0
    mixed = Interval.of(np.full(100, -1e-300), np.full(100, 0.1)).linear(M)
    assert mixed.low[0] < 0.0 < mixed.high[1]


def test_of_many_multiples_those_are_looked_at_that_take_most_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = cp.Variable(80, name="x")
    rows = {"row": 2.0 * cp.sum(x) + x[0] >= 6.0, "sign": x[0] <= 1.0}
    domain = domain_of(rows)
    monkeypatch.setattr("optfair.convexity.domain.MULTIPLES", 80)  # one of them
    # 2 sum(x) + x0 >= 6 and x0 <= 1
    assert domain.range(read(cp.sum(x), domain).node).low[0] == 2.5


@pytest.mark.parametrize("declared", [True, False])
def test_a_semidefinite_matrix_has_no_negative_entry_on_its_diagonal(declared: bool) -> None:
    """A product of such entries is maximised by its logarithm, or root; that of others is not."""
    A = cp.Variable((2, 2), PSD=declared, symmetric=not declared, name="A")
    rows = [cp.trace(A) <= 3, A[0, 1] >= 1, *([] if declared else [A >> 0])]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(A[0, 0] * A[1, 1]), rows)).solve()
    assert (s.solver, s.grade.word) == ("equivalent-convex", "proved")
    assert s.objective == pytest.approx(2.25, abs=1e-6)
    free = of.from_cvxpy(cp.Problem(cp.Maximize(A[0, 1] * A[1, 1]), rows[:1] + rows[2:]))
    assert not str(free.problem_class).startswith("quasiconvex")  # A[0, 1] may be negative


def test_what_a_cone_says_of_its_diagonal_is_not_all_it_says() -> None:
    """Chords between points outside the cone refute nothing."""
    A = cp.Variable((2, 2), symmetric=True, name="A")
    inside = domain_of({"cone": A >> 0})
    assert "cone" in inside.unread and len(inside.facts) == 1
    assert not domain_of({"cone": cp.bmat([[A, A], [A, A]]) + cp.square(A[0, 0]) >> 0}).facts
