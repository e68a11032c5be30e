"""What is simplified has the value of what it is built from, and the signs that are known of it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from optfair.convexity.algebra import (
    Algebra,
    added,
    is_written_positive,
    logarithm_of,
    sides_of,
)
from optfair.convexity.domain import Domain
from optfair.convexity.expression import (
    Leaf,
    Node,
    Product,
    Sum,
    constant,
    constant_value,
    diagonal,
    exact_matrix_product,
    linear,
    matrix,
    raw_call,
    raw_product,
    select,
)
from optfair.convexity.intervals import Interval
from optfair.convexity.reading import leaf_of, read

# x is positive, y not negative, m negative, and u of any sign: two entries each
X, Y, M, U = (Leaf(("test of algebra", n), n, 2, (2,)) for n in "xymu")
BOXES = {
    X: Interval.of([0.5, 0.5], [4.0, 4.0]),
    Y: Interval.of([0.0, 0.0], [4.0, 4.0]),
    M: Interval.of([-4.0, -4.0], [-0.5, -0.5]),
    U: Interval.of([-4.0, -4.0], [4.0, 4.0]),
}
A = Algebra(Domain(boxes=BOXES))
ONE, TWO, HALF = Fraction(1), Fraction(2), Fraction(1, 2)
Point = Mapping[Leaf, Any]


def point(seed: int) -> Point:
    rng = np.random.default_rng(seed)
    return {leaf: rng.uniform(box.low, box.high) for leaf, box in BOXES.items()}


def value(node: Node, at: Point) -> Any:
    """Return the values of a node at a point: ranges over a box of one point."""
    boxes = {leaf: Interval.exactly(v) for leaf, v in at.items()}
    found = Domain(boxes=boxes).range(node)
    assert (found.high - found.low <= 1e-9 * (1.0 + np.abs(found.low))).all()
    return 0.5 * (found.low + found.high)


def times(c: Any, node: Node, offset: Any = (0.0, 0.0)) -> Node:
    """Return c node + offset by entry."""
    return linear([(diagonal(np.array(c)), node)], np.array(offset))


def power(c: Any, p: Fraction) -> Any:
    return np.asarray(c) ** float(p)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "factors",
    [
        lambda: [(times([2.0, -3.0], U), TWO), (X, -ONE)],
        lambda: [(times([0.25, 4.0], X), HALF), (X, HALF)],
        lambda: [(times([0.25, 0.25], Y), HALF), (U, TWO)],
        lambda: [(times([-2.0, -2.0], M), HALF), (M, ONE)],
        lambda: [(times([2.0, 2.0], U, [2.0, -6.0]), Fraction(3)), (X, -TWO)],
        lambda: [(times([-1.5, -1.5], U, [0.0, 6.5]), -TWO), (times([2.0, 2.0], X), ONE)],
        lambda: [(times([0.3, -0.3], U), Fraction(3)), (X, ONE)],
        lambda: [(constant([3.0, 0.5]), TWO), (X, ONE)],
        lambda: [(constant([3.0, 0.0]), ONE), (U, ONE)],
        lambda: [(constant([0.3, 7.0]), HALF), (constant([0.1, 5.0]), TWO), (X, ONE)],
        lambda: [(raw_product([(X, -ONE), (U, ONE)]), -ONE), (X, TWO)],
        lambda: [(raw_product([(U, TWO)]), HALF), (X, ONE)],
        lambda: [(raw_product([(X, ONE), (M, TWO)]), HALF), (X, HALF)],
        lambda: [(raw_product([(X, ONE), (M, TWO), (Y, ONE)]), HALF)],
        lambda: [(raw_call("abs", [U], 2), HALF), (U, TWO)],
        lambda: [(raw_call("abs", [U], 2), TWO), (raw_call("abs", [M], 2), ONE)],
        lambda: [(raw_call("exp", [U], 2), TWO), (raw_call("exp", [X], 2), -ONE), (M, ONE)],
        lambda: [(X, HALF), (X, -TWO), (M, TWO), (M, -ONE)],
        lambda: [(times([1e-310, 1e-310], X, [1e-310, 1e-310]), ONE), (X, ONE)],
    ],
)
def test_a_product_has_its_value(factors: Any, seed: int) -> None:
    at, given = point(seed), factors()
    truth = np.prod([power(value(n, at), p) for n, p in given], axis=0)
    assert value(A.product(given), at) == pytest.approx(truth)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "inside",
    [
        *(X, Y, M, U),
        times([2.0, -3.0], U),
        times([1.0, -2.0], U),
        times([1.0, 1.0], U, [0.0, 1.0]),
        times([2.0, 2.0], U, [0.0, 1.0]),
        times([3.0, 3.0], U, [-1.0, 2.0]),
        times([-6.0, -6.0], U, [-1.0, 2.0]),
        times([1.0, -1.0], X),
        raw_product([(X, ONE), (U, ONE)]),
        raw_product([(U, TWO), (M, ONE)]),
        raw_product([(U, Fraction(3))]),
        raw_product([(U, TWO)]),
        raw_product([(U, ONE), (times([1.0, 1.0], U, [1.0, 1.0]), Fraction(3))]),
    ],
    ids=str,
)
def test_an_absolute_value_and_odd_and_even_functions(inside: Node, seed: int) -> None:
    at = point(seed)
    own = value(inside, at)
    assert value(A.call("abs", [inside], 2), at) == pytest.approx(np.abs(own))
    if np.abs(own).max() < 9.0:
        assert value(A.call("sinh", [inside], 2), at) == pytest.approx(np.sinh(own))
        assert value(A.call("cosh", [inside], 2), at) == pytest.approx(np.cosh(own))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "inside",
    [
        raw_call("log", [X], 2),
        times([2.0, 2.0], raw_call("log", [X], 2), [1.0, -1.0]),
        times([2.0, 3.0], raw_call("log", [X], 2)),
        linear(
            [(diagonal([1.0, 1.0]), raw_call("log", [X], 2)), (diagonal([1.0, 1.0]), U)], [0, 0]
        ),
        linear([(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]), raw_call("log", [X], 2))], [0, 0]),
        linear([(sp.csr_array([[1.0, 0.0], [1.0, 0.0]]), raw_call("log", [X], 2))], [0, 0]),
        linear([(sp.csr_array([[1.0, 1.0]]), raw_call("log", [X], 2))], [0.0]),
    ],
    ids=str,
)
def test_an_exponential_of_logarithms(inside: Node, seed: int) -> None:
    at = point(seed)
    made = A.call("exp", [inside], inside.size)
    assert value(made, at) == pytest.approx(np.exp(value(inside, at)))


@pytest.mark.parametrize(
    ("factors", "left"),
    [
        (
            [(times([2.0, 2.0], X, [2.0, 2.0]), ONE), (times([1.0, 1.0], X, [1.0, 1.0]), -ONE)],
            [2, 2],
        ),
        ([(times([2.0, 8.0], X), ONE), (X, -ONE)], [2, 8]),
        ([(times([1.0, 2.0], X), ONE), (X, -ONE)], [1, 2]),
        ([(times([1e-310, 1e-310], X), ONE), (X, -ONE)], [1e-310, 1e-310]),
        ([(M, TWO), (M, -TWO)], [1, 1]),
        ([(X, HALF), (times([1.0, 1.0], X), -HALF)], [1, 1]),
    ],
    ids=lambda e: None,
)
def test_what_cancels_is_a_number(factors: Any, left: Any) -> None:
    assert constant_value(A.product(factors)).tolist() == left


def test_logarithms_in_another_order_are_left() -> None:
    w, turned = Leaf(("test of algebra", "w"), "w", 3, (3,)), np.eye(3)[[0, 2, 1]]
    a = Algebra(Domain(boxes={w: Interval.of(np.ones(3), np.full(3, 9.0))}))
    inside = linear([(sp.csr_array(turned), raw_call("log", [w], 3))], np.zeros(3))
    made = value(a.call("exp", [inside], 3), {w: np.array([2.0, 3.0, 5.0])})
    assert made == pytest.approx([2.0, 5.0, 3.0])


def test_logarithms_and_units_are_taken_out() -> None:
    log = raw_call("log", [X], 2)
    assert A.call("exp", [times([2.0, 2.0], log)], 2) is raw_product([(X, TWO)])
    assert value(A.call("log", [constant([1.0, 2.0])], 2), {}) == pytest.approx([0.0, np.log(2.0)])
    four, one = times([4.0, 4.0], U, [4.0, 4.0]), times([1.0, 1.0], U, [1.0, 1.0])
    assert A.call("abs", [four], 2) is A.scaled(4.0, A.call("abs", [one], 2))


def test_positive_numbers_go_before_a_root() -> None:
    """So that the root of x is met wherever it occurs."""
    for c in (0.3, 3.0):
        made = A.product([(times([c, c], X), HALF), (X, -HALF)])
        assert not made.leaves and value(made, point(0)) == pytest.approx(np.sqrt(c))


def test_powers_of_what_has_no_sign_are_those_of_its_size() -> None:
    size = raw_call("abs", [U], 2)
    assert A.product([(raw_product([(U, TWO)]), HALF)]) is size
    assert A.product([(size, HALF), (U, TWO)]) is raw_product([(size, Fraction(5, 2))])
    inside = raw_product([(M, TWO), (Y, ONE)])
    made = A.product([(raw_product([(X, ONE), (M, TWO), (Y, ONE)]), HALF), (X, HALF)])
    assert made is raw_product([(X, ONE), (inside, HALF)])  # what is positive leaves the root


def test_what_may_be_0_is_not_cancelled() -> None:
    """1/(1/(u x)) is not defined where u is 0, and u x is."""
    below = raw_product([(U, -ONE), (X, -ONE)])
    assert A.product([(below, -ONE)]) is not A.product([(U, ONE), (X, ONE)])
    assert A.product([(raw_product([(M, -ONE), (X, -ONE)]), -ONE)]) is A.product(
        [(M, ONE), (X, ONE)]
    )
    assert A.product([(U, ONE), (U, -ONE)]).leaves == {U}
    assert A.product([(M, TWO), (M, -ONE)]) is M
    assert A.product([(M, HALF), (M, -HALF)]).leaves == {M}


def test_numbers_are_multiplied_where_no_entry_is_rounded() -> None:
    whole = A.product([(constant([0.5, 3.0]), ONE), (constant([3.0, 5.0]), ONE), (X, ONE)])
    assert isinstance(whole, Sum)
    assert [M.data.tolist() for M, _ in whole.parts] == [[1.5, 15.0]]
    rounded = A.product([(constant([0.1, 3.0]), ONE), (constant([0.1, 5.0]), ONE), (X, ONE)])
    assert isinstance(rounded, Sum)
    ((_, left),) = rounded.parts
    assert isinstance(left, Product) and len(left.factors) == 2


def test_signs_hold_for_every_entry() -> None:
    for node, sign in ((X, 1.0), (Y, 1.0), (M, -1.0), (U, None), (times([1.0, -1.0], X), None)):
        found = A.signed(node)
        assert (None if found is None else found[0]) == sign
        if found is not None:
            at = point(1)
            assert found[0] * value(found[1], at) == pytest.approx(value(node, at))
            assert A.nonnegative(found[1])
    assert A.nonpositive(M) and not A.nonpositive(times([1.0, -1.0], X))


def first(node: Node) -> Node:
    return linear([(sp.csr_array([[1.0, 0.0]]), node)], [0.0])


def test_what_is_never_as_low_as_its_range() -> None:
    far = {
        X: Interval.of([1.0, 1.0], [np.inf, np.inf]),
        U: Interval.of([-np.inf] * 2, [np.inf] * 2),
    }
    far |= {Y: Interval.of([0.0, 0.0], [np.inf, np.inf])}
    a = Algebra(Domain(boxes=far))
    x, y, u = (first(leaf) for leaf in (X, Y, U))
    exp, inverse = raw_call("exp", [u], 1), raw_product([(x, -ONE)])
    for node in (
        exp,
        inverse,
        raw_product([(x, ONE), (y, -ONE)]),
        a.total([exp, y]),
        raw_call("exp", [inverse], 1),
    ):
        assert a.never_least(node)
    alone = Leaf(("test of algebra", "alone"), "alone", 1, (1,))
    own = Algebra(Domain(boxes={alone: Interval.of([1.0], [np.inf])}))
    assert not own.never_least(alone) and not a.never_least(raw_product([(y, HALF)]))
    for node in (x, y, u, raw_product([(y, ONE), (x, ONE)]), raw_product([(y, ONE), (x, -ONE)])):
        assert not a.never_least(node)
    assert not a.never_least(raw_call("exp", [U], 2)) and not a.never_least(
        raw_product([(u, -ONE)])
    )


def test_what_is_written_positive() -> None:
    exp = raw_call("exp", [U], 2)
    other = raw_call("exp", [times([-1.0, -1.0], U)], 2)
    for node in (
        exp,
        A.total([exp, other]),
        times([2.0, 1.0], exp, [1.0, 0.0]),
        raw_product([(exp, -ONE), (other, ONE)]),
    ):
        assert is_written_positive(node)
    one_row = linear([(sp.csr_array([[1.0, 0.0], [0.0, 0.0]]), exp)], [0.0, 0.0])
    for node in (
        *(U, times([1.0, -1.0], exp), times([1.0, 1.0], exp, [0.0, -1.0]), one_row),
        *(
            A.total([exp, other], [1.0, -1.0]),
            A.total([exp, U]),
            raw_product([(exp, ONE), (U, TWO)]),
        ),
    ):
        assert not is_written_positive(node)


def test_sides_are_not_negative_and_their_difference_is_the_function() -> None:
    x, y, m, u = (first(leaf) for leaf in (X, Y, M, U))
    node = linear([(sp.csr_array([[c]]), n) for c, n in ((0.75, x), (-0.5, y), (0.25, m))], [-2.0])
    sides = sides_of(node, A)
    assert sides is not None
    P, N = sides
    at = point(2)
    assert [len(P), len(N)] == [1, 3] and all(c > 0.0 and A.nonnegative(n) for c, n in (*P, *N))
    assert value(added(P, A), at) - value(added(N, A), at) == pytest.approx(value(node, at))
    assert sides_of(A.total([x, u]), A) is None


def test_sides_of_positive_variables_are_multiplied_out_and_one_of_any_sign_is_above() -> None:
    x, y, u = first(X), first(Y), first(U)
    node = A.product([(x, ONE), (A.total([y, constant([1.0])], [0.5, -1.0]), ONE)])
    assert sides_of(node, A) is None  # x (y/2 - 1), y between 0 and 4
    sides = sides_of(node, A, positive=True)
    assert sides == ([(0.5, A.product([(x, ONE), (y, ONE)]))], [(1.0, x)])
    inexact = A.total([A.product([(x, ONE), (A.total([y, u], [0.1, 0.3]), ONE)])], [0.1])
    assert sides_of(inexact, A, positive=True) is None
    # of what is at most u it asks that u is positive, of what is at least u it does not
    assert sides_of(A.total([x, u], [1.0, -1.0]), A, positive=True) == ([(1.0, x)], [(1.0, u)])
    for other in (A.total([x, u]), A.scaled(-1.0, u), A.total([x, y, u], [1.0, -1.0, -1.0])):
        assert sides_of(other, A, positive=True) is None


@pytest.mark.parametrize("up", [True, False])
def test_the_logarithm_of_terms(up: bool) -> None:
    x, u = first(X), first(U)
    at = point(3)
    square = raw_product([(u, TWO)])
    for terms in (
        [(3.0, x)],
        [(0.1, A.product([(x, TWO)]))],
        [(7.0, square)],
        [(0.7, x), (0.1, square)],
    ):
        log, truth = logarithm_of(terms, A, up), np.log(sum(c * value(n, at) for c, n in terms))
        assert {log.size, *(n.size for n in log.below)} == {1}
        assert value(log, at) == pytest.approx(truth)
    shift = constant_value(logarithm_of([(3.0, constant([1.0]))], A, up))
    known = Interval.exactly(np.array([3.0])).call("log")
    assert shift == (known.high if up else known.low)


KEYS = [np.s_[2], np.s_[-1], np.s_[::-1], np.s_[::-1, 1], np.s_[3:0:-2, 0:2], np.s_[:, ::-1]]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_entries_are_read_where_they_stand_without_a_matrix(
    key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(e: Any) -> Any:
        raise AssertionError(f"{e} is written out as a matrix")

    monkeypatch.setattr("optfair.convexity.reading.atom_matrix", refused)
    x = cp.Variable((4, 3), pos=True)
    places = np.ravel(np.arange(12).reshape((4, 3), order="F")[key], order="F")
    squares = read(x**2, Domain()).node
    assert read(x[key], Domain()).node is select(leaf_of(x), places)
    assert read((x**2)[key], Domain()).node is select(squares, places)


@pytest.mark.parametrize("number", [1.0, 0.5, -3.0, 0.1, 1e-300, 1e300])
def test_a_number_times_a_row_is_what_matrices_give_or_nothing(number: float) -> None:
    row = np.array([[3.0, 0.0, -0.25, 1e-200, 1e200]])
    one, two = matrix(np.array([[number]])), matrix(np.array([[number], [number]]))
    product, known = (exact_matrix_product(m, matrix(row)) for m in (one, two))
    assert (product is None) == (known is None)
    if product is not None:
        assert (product.toarray()[0] == known.toarray()[0]).all()
        assert product.indices.dtype == np.int32 and product.data.all()
