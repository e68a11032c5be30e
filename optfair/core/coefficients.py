"""Coefficients of affine and quadratic expressions, each the float next to what its numbers add up to."""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
from cvxpy.atoms.elementwise.power import Power
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin
from numpy.typing import NDArray

from optfair.core.expressions import dense
from optfair.core.quadratics import (
    COUNTS,
    SIZES,
    Indices,
    NotQuadratic,
    QuadraticMap,
    Substitution,
    affine_of,
    atom_matrix,
    in_floats,
)
from optfair.core.term import PLACED, adds, constant_numbers, is_whole, products_of
from optfair.errors import shortened
from optfair.numbers import Floats


def quadratic_map(expression: Any, offsets: Mapping[int, int], size: int) -> QuadraticMap:
    """Return the coefficients of an expression of numbers and variables.

    They are sums and products of its numbers: added up in floats, and in fractions where these
    lose them.

    Parameters
    ----------
    expression : cvxpy.Expression
        Real, of degree at most 2.
    offsets : dict
        CVXPY variable id -> position of its first entry in x; entries follow column by column.
    size : int
        Length n of x.

    Raises
    ------
    NotQuadratic
        Some part is not known to be quadratic, or a coefficient is no float.
    """
    if expression.parameters():  # CVXPY's compiled backend dies of them
        raise NotQuadratic(f"{shortened(expression)} has coefficients that are not numbers yet")
    f = in_floats(expression, offsets, size)
    return corrected([expression], offsets, f)


# Products that are made one by one as fractions, where other ways are slower, and at most.
FEW, FRACTIONS = 4_000, 100_000
# Binary exponents up to which products lose no digits.
_EXPONENT = 960.0


def corrected(
    expressions: Sequence[Any], offsets: Mapping[int, int], f: QuadraticMap
) -> QuadraticMap:
    """Return coefficients, as floats add them up, correctly rounded where they cancel.

    With the sizes of all numbers the same expressions have the sizes of what is added up: a
    coefficient that is much less is made again, and is known to a few roundings then, of itself or
    of the squares it stands beside; if it takes few products, where some are of two columns. The
    expressions are one, or several affine ones, without parameters, of the map's entries.

    Raises
    ------
    NotQuadratic
        A coefficient is no float: it is too large, or too small.
    """
    far = [beyond(e) for e in expressions]
    some = [k for k, e in enumerate(expressions) if far[k] or adds(e, {})]
    if not some:
        return f
    if not any(far) and all(e.is_affine() for e in expressions):
        from optfair.compile.stuffing import added_exactly

        with contextlib.suppress(ArithmeticError, TypeError, ValueError):
            A, b = added_exactly(expressions, offsets, f.A, f.b)
            return f if A is f.A else QuadraticMap.affine(A, b)
    n, starts = f.A.shape[1], np.cumsum([0, *(e.size for e in expressions)])
    chosen = [expressions[k] for k in some]
    at = np.concatenate([np.arange(*starts[k : k + 2]) for k in some])

    def summed_up(number: Substitution) -> QuadraticMap:
        if len(chosen) == 1:
            return in_floats(chosen[0], offsets, n, number)
        return QuadraticMap.affine(*affine_of(chosen, offsets, n, number))

    each = [(is_whole(e), far[k]) for k, e in zip(some, chosen, strict=True)]
    whole, out = np.repeat(np.array(each), [e.size for e in chosen], axis=0).T
    part = QuadraticMap(f.Q[at], f.pairs, sp.csr_array(f.A)[at], f.b[at])
    own, places = part.lost(sizes := summed_up(SIZES), whole)
    own[out] = 2
    places = np.union1d(places, np.flatnonzero(out)[:, None] * n + np.arange(n))
    if not own.any():
        return f
    products = summed_up(COUNTS)
    count = np.asarray(products.A.sum(axis=1)) + products.b
    count += np.where(own > 1, np.asarray(products.Q.sum(axis=1)), 0.0)
    rows: dict[int, Mapping[tuple[int, ...], Fraction]] = {}
    ends = np.searchsorted(places, n * np.arange(at.size + 1))
    first = np.searchsorted(at, starts).tolist()

    def one_by_one(most: float) -> None:
        for k in some:
            here = first[k] + np.flatnonzero(left[first[k] : first[k + 1]])
            if 0.0 < count[here].sum() <= most:
                entries = Entries(offsets)
                for i in here.tolist():
                    columns = places[ends[i] : ends[i + 1]] - n * i
                    rows.update(entries.of(expressions[k], at[i], starts[k], own[i], columns))
                left[here] = [
                    0 if i in rows else own[j] for j, i in zip(here, at[here], strict=True)
                ]

    left = own.copy()
    one_by_one(FEW)
    if left.any():
        asked = Places.of(products, left, places)
        with contextlib.suppress(ArithmeticError):
            numbers = by_remainders(summed_up, int(left.max()), asked, asked.read(sizes))
            rows |= {int(at[i]): row for i, row in asked.rows(numbers).items()}
            left[:] = 0
        one_by_one(FRACTIONS)
    if left.any():
        raise NotQuadratic(
            f"{shortened(chosen[0])} has sums of {count[left > 0].max():,.0f} numbers that all but cancel",
            "has numbers that floats lose",
            "divide by fewer different numbers, or write it in other units",
        )
    degree = np.zeros(f.b.size, dtype=np.int64)
    degree[at] = own
    return f.replaced(rows, degree, n * at[places // n] + places % n)


def beyond(e: Any) -> bool:
    """Whether products of the numbers of an expression may lose digits out of the range of floats."""
    return (k := factors(e)) > 1 and k * largest_exponent(e) > _EXPONENT


# Coefficients as fractions, from their remainders by primes.

# Binary digits of what stands for the inverse of a divisor where there are too many to be common,
# digits of a common one, and of coefficients that are known well enough.
_INVERSE, _COMMON, _KNOWN = 192, 1024, 60
# Primes that are tried first are below this; with those below the other there are too few.
_PRIMES, _FEWEST = 2**26, 2**7
# Entries of numbers that are kept in parts.
_HELD = 2**22


@dataclass(frozen=True)
class Places:
    """Coefficients of a map: constants by row, of columns by row, of products by row and pair."""

    constant: Indices
    linear: NDArray[np.int64]
    square: NDArray[np.int64]

    @classmethod
    def of(cls, f: QuadraticMap, degree: Indices, at: Indices) -> Places:
        """Return those of a map up to a degree by row, 0 for none, in places n * row + column."""
        n, where = f.A.shape[1], [np.flatnonzero(degree).astype(np.int64)]
        for M, d in ((f.A, 1), (f.Q, 2)):
            row, column = (v.astype(np.int64) for v in sp.coo_array(M).coords)
            columns = column[None] if d == 1 else f.pairs[:, column]
            here = (degree[row] >= d) & np.isin(n * row + columns, at).all(axis=0)
            where.append(np.vstack([row, columns])[:, here])
        return cls(*where)

    def read(self, f: QuadraticMap) -> Floats:
        """Return the coefficients of a map there."""
        n, (row, i, j) = f.A.shape[1], self.square
        keys, key = f.pairs[0] * n + f.pairs[1], i * n + j
        at = np.searchsorted(keys, key).clip(max=max(keys.size - 1, 0))
        square = np.zeros(key.size)
        if keys.size and key.size:
            square = np.where(keys[at] == key, np.ravel(dense(sp.csr_array(f.Q)[row, at])), 0.0)
        linear = np.ravel(dense(sp.csr_array(f.A)[self.linear[0], self.linear[1]]))
        return np.concatenate([f.b[self.constant], linear, square])

    def rows(self, numbers: Sequence[Fraction]) -> dict[int, dict[tuple[int, ...], Fraction]]:
        """Return numbers there by row and product of columns."""
        parts = self.constant[None], self.linear, self.square
        keys = [(row, tuple(of)) for part in parts for row, *of in part.T.tolist()]
        out: dict[int, dict[tuple[int, ...], Fraction]] = {}
        for (row, of), number in zip(keys, numbers, strict=True):
            out.setdefault(row, {}).update({of: number} if number else {})
        return out


def by_remainders(
    read: Callable[[Substitution], QuadraticMap], degree: int, places: Places, sizes: Floats
) -> list[Fraction]:
    r"""Return sums of products of numbers as fractions, whatever floats lose of them.

    With D a common denominator, D times each is a whole number N of at most 2 D times its size.
    For a prime p the same sums of the remainders of the numbers by p are whole numbers below
    :math:`2^{53}`, which floats add up without rounding, and leave the remainder of N by p. Those of
    primes whose product is more than 2 |N| say N.

    Parameters
    ----------
    read : callable
        Returns the map of the expression with others in place of its numbers.
    degree : int
        The largest of what is asked for, 1 or 2.
    places : Places
        What is asked for.
    sizes : array
        The sums with the sizes of all numbers.

    Returns
    -------
    list of Fraction
        Exact; of several different divisors, up to a relative error of 2^-60 at most.

    Raises
    ------
    ArithmeticError
        Numbers are not finite or too far apart, or what many divisors add up to all but cancels.

    References
    ----------
    Von zur Gathen, Gerhard (2013). Modern Computer Algebra, section 5.4.
    """
    known: dict[int, tuple[Floats, DyadicFloats]] = {}
    divisors: set[int] = set()

    def dyadic(value: Floats) -> DyadicFloats:
        if id(value) not in known:
            if (
                sum(v.size for v, _ in known.values()) > _HELD
            ):  # copies, which nobody asks for again
                known.clear()
            known[id(value)] = value, DyadicFloats.of(value)
        return known[id(value)][1]

    def below(value: Floats) -> Floats:
        parts = dyadic(value)
        divisors.update(np.unique(parts.odd[parts.odd > 0]).tolist())
        return parts.powers(lambda power: 2.0 ** max(power, 0))

    def above(value: Floats) -> Floats:
        return dyadic(value).powers(lambda power: 2.0 ** max(-power, 0))

    digits = _largest(read(Substitution(above, below, degree)))
    times, common, rounded = 0, 1, False
    if divisors - {1}:
        steps = Substitution(COUNTS.of, lambda value: (value != 0.0) * 2.0**40, degree)
        times = int(_largest(read(steps)) // 40)
        rounded = len(divisors) > 64 or times * math.lcm(*divisors).bit_length() > _COMMON
        common = 2**_INVERSE if rounded else math.lcm(*divisors)
    denominator = 2 ** int(digits) * common**times
    if not np.isfinite(sizes).all():
        raise OverflowError
    largest = int(math.log2(max(sizes.max(initial=0.0), 1.0))) + 3 + denominator.bit_length()
    product, primes, left = 1, list[int](), list[NDArray[Any]]()
    for p in _primes_below(_most(read, degree)):
        with contextlib.suppress(ZeroDivisionError):
            f = read(_by_prime(p, rounded, degree, dyadic))
            left.append(places.read(f).astype(np.int64) % p * (denominator % p) % p)
            primes.append(p)
            product *= p
        if product.bit_length() > largest + 1:
            break
    else:
        raise ArithmeticError
    total = np.zeros(sizes.size, dtype=object)
    for p, rest in zip(primes, left, strict=True):
        total += rest.astype(object) * (product // p * pow(product // p, -1, p))
    numbers = [n - product if 2 * n > product else n for n in (total % product).tolist()]
    out = [Fraction(n, denominator) for n in numbers]
    if rounded:
        least = 2.0 ** (_KNOWN + 54 - _INVERSE) * (times + 1.0)
        if any(abs(n) < least * s for n, s in zip(out, sizes.tolist(), strict=True)):
            raise ArithmeticError
    return out


@dataclass(frozen=True)
class DyadicFloats:
    """Floats as sign 2**power odd, odd whole numbers, 0 for 0; powers[at] are those of the entries."""

    sign: Floats
    each: list[int]
    at: Indices
    odd: Indices

    @classmethod
    def of(cls, value: Floats) -> DyadicFloats:
        """Return the parts of floats; OverflowError of others."""
        if not np.isfinite(value).all():
            raise OverflowError
        fraction, exponent = np.frexp(value)
        whole = np.abs(fraction * 2.0**53).astype(np.int64)
        low = np.maximum(whole & -whole, 1)
        power = exponent.astype(np.int64) - 53 + np.log2(low).astype(np.int64)
        least = int(power.min(initial=0))
        met = np.flatnonzero(np.bincount(np.ravel(power - least)))
        at = np.searchsorted(met, power - least)
        return cls(np.sign(value), (met + least).tolist(), at, whole // low)

    def powers(self, one: Callable[[int], float]) -> Floats:
        """Return a function of the powers, 0 for 0."""
        each = np.array([one(k) for k in self.each], dtype=float)
        return np.asarray(np.abs(self.sign) * each[self.at])


def _numbers_in(f: QuadraticMap) -> Floats:
    return np.asarray(np.abs(np.concatenate([f.Q.data, f.A.data, f.b])))


def _largest(f: QuadraticMap) -> float:
    """Return the binary logarithm of the largest coefficient, rounded up by a little."""
    most = _numbers_in(f).max(initial=1.0)
    if not most < np.inf:
        raise OverflowError
    return math.log2(most) * (1.0 + 1e-9)


def _most(read: Callable[[Substitution], QuadraticMap], degree: int) -> int:
    """Return below what primes floats add up remainders without rounding."""
    prime = _PRIMES
    while prime > _FEWEST:
        half, top = prime // 2 + 1.0, [0.0]

        def of(value: Floats, half: float = half) -> Floats:
            size = np.abs(value)
            small = (size <= half) & (np.rint(size) == size)
            return np.asarray(np.where(small, size, half))

        def over(value: Floats, half: float = half) -> Floats:
            size = np.abs(value)
            return np.asarray(np.where(size == 1.0, 1.0, half * (size > 0.0)))

        def reduced(f: QuadraticMap, half: float = half, top: list[float] = top) -> QuadraticMap:
            top.append(float(_numbers_in(f).max(initial=0.0)))
            return mapped(f, lambda data: np.minimum(np.abs(data), half))

        reduced(read(Substitution(of, over, degree, reduced=reduced)))
        if max(top) <= 2.0**53:
            return prime
        prime = int(prime / 2.0 ** math.ceil((math.log2(max(top)) - 53.0) / 3.0))
    return 0


def mapped(f: QuadraticMap, function: Callable[[Floats], Floats]) -> QuadraticMap:
    """Return a map with a function of its coefficients."""
    Q, A = (
        sp.csr_array((function(M.data), M.indices, M.indptr), shape=M.shape) for M in (f.Q, f.A)
    )
    return QuadraticMap(Q, f.pairs, A, function(f.b))


def _by_prime(
    p: int, rounded: bool, degree: int, dyadic: Callable[[Floats], DyadicFloats]
) -> Substitution:
    """Return remainders by a prime, between -p/2 and p/2, in place of numbers."""

    def centred(parts: DyadicFloats, odd: Indices, sign: int) -> Floats:
        powers = parts.powers(lambda power: pow(2, sign * power, p)).astype(np.int64)
        out = odd * powers % p
        return parts.sign * np.where(out > p // 2, out - p, out)

    def of(value: Floats) -> Floats:
        parts = dyadic(value)
        return centred(parts, parts.odd % p, 1)

    def inverse(odd: int) -> int:
        if odd % p == 0 and not rounded:
            raise ZeroDivisionError
        near, below = ((2**_INVERSE + odd // 2) // odd, 2**_INVERSE) if rounded else (1, odd)
        return near * pow(below, -1, p) % p

    def over(value: Floats) -> Floats:
        parts = dyadic(value)
        each, at = np.unique(parts.odd, return_inverse=True)
        inverses = np.array([inverse(m) if m else 0 for m in each.tolist()], dtype=np.int64)
        return centred(parts, inverses[at].reshape(parts.odd.shape), -1)

    def reduced(f: QuadraticMap) -> QuadraticMap:
        return mapped(f, lambda data: data - p * np.rint(data / p))

    return Substitution(of, over, degree, signed=True, reduced=reduced)


def _primes_below(most: int) -> Iterator[int]:
    """Yield odd primes below a number, downwards."""
    for p in range(most - 1 - most % 2, 2, -2):
        if all(p % d for d in range(3, math.isqrt(p) + 1, 2)):
            yield p


# Entries as polynomials in columns, one by one.

# Coefficient of a product of columns: () is 1.
Columns = dict[tuple[int, ...], Fraction]


class Entries:
    """Entries of expressions and of their parts, each made once.

    Parameters
    ----------
    offsets : mapping
        First column of each variable by id.
    """

    def __init__(self, offsets: Mapping[int, int]) -> None:
        self.offsets, self.degree, self.columns = offsets, 2, frozenset[int]()
        self.known: dict[tuple[int, int], Columns] = {}
        self.forms: dict[int, Any] = {}

    def of(self, e: Any, row: int, start: int, degree: int, columns: Any) -> dict[int, Columns]:
        """Return a row, that of e counted from a start; none if it is not finite.

        Up to a degree, and of products of some columns.
        """
        asked = frozenset(columns.tolist())
        if (degree, asked) != (self.degree, self.columns):
            self.known.clear()
            self.degree, self.columns = degree, asked
        try:
            return {int(row): self.entry(e, int(row - start))}
        except (TypeError, ValueError, ArithmeticError):
            return {}

    def entry(self, e: Any, i: int) -> Columns:
        """Return one entry."""
        key = (id(e), i)
        if key not in self.known:
            if e.is_constant():
                value = self._form(e, lambda: np.ravel(dense(e.value, None), order="F"))[i]
                self.known[key] = {(): Fraction(value)} if value else {}
            elif isinstance(e, cp.Variable):
                column = self.offsets[e.id] + i
                self.known[key] = {(column,): Fraction(1)} if column in self.columns else {}
            else:
                self.known[key] = self._added(e, i)
        return self.known[key]

    def _form(self, e: Any, made: Callable[[], Any]) -> Any:
        if id(e) not in self.forms:
            self.forms[id(e)] = made()
        return self.forms[id(e)]

    def _added(self, e: Any, i: int) -> Columns:
        out: Columns = {}
        for weight, part in self._terms(e, i):
            for monomial, c in part.items():
                out[monomial] = out.get(monomial, 0) + weight * c
        return {monomial: c for monomial, c in out.items() if c}

    def _terms(self, e: Any, i: int) -> Iterator[tuple[Fraction, Columns]]:
        """Yield the numbers and the polynomials whose products an entry adds up."""
        if isinstance(e, (AddExpression, DivExpression)):
            at = [self._place(a, e, i) for a in e.args]
            if isinstance(e, AddExpression):
                yield from (
                    (Fraction(1), self.entry(a, k)) for a, k in zip(e.args, at, strict=True)
                )
            else:
                below = self.entry(e.args[1], at[1]).get((), Fraction(0))
                yield 1 / below, self.entry(e.args[0], at[0])
            return
        squares, W, *form = self._form(e, lambda: _by_entry(e) or _of_atom(e))
        if squares:
            (left, right, divisor), args = form, [a for a in e.args if not a.is_constant()]
            for k in range(W.indptr[i], W.indptr[i + 1]):
                p = W.indices[k]
                if part := self._product(
                    self.entry(args[0], left[p]), self.entry(args[-1], right[p])
                ):
                    yield Fraction(float(W.data[k])) / divisor, part
        else:
            b, args, starts = form
            if b[i]:
                yield Fraction(float(b[i])), {(): Fraction(1)}
            for k in range(W.indptr[i], W.indptr[i + 1]):
                of = bisect_right(starts, place := int(W.indices[k])) - 1
                if part := self.entry(args[of], place - starts[of]):
                    yield Fraction(float(W.data[k])), part

    def _place(self, a: Any, e: Any, i: int) -> int:
        """Return which entry of an argument is spread to an entry of the whole."""
        if a.shape == e.shape or a.size == 1:
            return i if a.size > 1 else 0
        count = np.arange(a.size).reshape(a.shape, order="F")
        return int(np.ravel(np.broadcast_to(count, e.shape), order="F")[i])

    def _product(self, left: Columns, right: Columns) -> Columns:
        out: Columns = {}
        constant = {(): right[()]} if () in right else {}
        for m, c in left.items():
            for k, d in (right if self.degree > 1 or not m else constant).items():
                both = tuple(sorted(m + k))
                out[both] = out.get(both, 0) + c * d
        return out


def _by_entry(e: Any) -> Any:
    """Return the weights of products by entry, and the factors of each; None of what has none."""
    products = products_of(e)
    if products is None:
        return None
    entry, left, right, weight, divisor = products
    entry, left, right = (np.ravel(np.asarray(v, dtype=np.int64)) for v in (entry, left, right))
    data = np.broadcast_to(np.asarray(weight, dtype=float), entry.shape)
    where = (entry, np.arange(entry.size))
    W = sp.csr_array((data, where), shape=(e.size, entry.size))
    return True, W, left.tolist(), right.tolist(), Fraction(divisor)


def _of_atom(e: Any) -> Any:
    """Return A, b, the arguments and their first columns, of an affine atom."""
    made = atom_matrix(e)
    if made is None:
        raise TypeError
    A, b, args = made
    return False, sp.csr_array(A), b, args, [0, *accumulate(a.size for a in args)]


def means(
    row: NDArray[Any], at: NDArray[Any], data: Floats, beside: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any], Floats, bool]:
    """Return entries with the mean of the two at each place beside a diagonal, and whether all are exact.

    Examples
    --------
    >>> row, at, beside = np.array([0, 0, 1]), np.zeros(3, dtype=int), np.array([True, False])
    >>> means(row, at, np.array([1.0, 2.0, 5.0]), beside)[2:]
    (array([1.5, 5. ]), True)
    >>> means(row, at, np.array([1.0, 2.0**-53, 5.0]), beside)[2:]
    (array([0.5, 5. ]), False)
    """
    order = np.lexsort((at, row))
    row, at, data = row[order], at[order], data[order]
    first = np.flatnonzero((np.diff(row, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 0))
    two, half = np.diff(first, append=row.size) > 1, np.where(beside[row[first]], 0.5, 1.0)
    one, other = data[first], np.where(two, np.append(data, 0.0)[first + 1], 0.0)
    p, q = half * one, half * other
    mean = p + q
    error = (p - (mean - (mean - p))) + (q - (mean - p))
    exact = (error == 0.0) & (p / half == one) & (q / half == other)
    return row[first], at[first], mean, bool(exact.all())


# The numbers of an expression.


def largest_exponent(e: Any) -> float:
    """Return the largest size of the binary exponent of a number in an expression."""
    if isinstance(e, cp.Variable):
        return 0.0
    if not e.is_constant():
        return max(map(largest_exponent, e.args))
    data = np.abs(constant_numbers(e))
    low, high = float(data.min(initial=np.inf)), float(data.max(initial=0.0))
    if not 0.0 < low <= high < math.inf:
        data = data[(data > 0.0) & np.isfinite(data)]
        low, high = float(data.min(initial=1.0)), float(data.max(initial=1.0))
    return max(abs(math.log2(low)), abs(math.log2(high)))


def factors(e: Any) -> int:
    """Return how many numbers a product in an expression has at most."""
    if isinstance(e, cp.Variable) or e.is_constant():
        return int(e.is_constant())
    squares = isinstance(e, (Power, QuadForm, quad_over_lin))
    times = squares or isinstance(e, (MulExpression, DivExpression)) or type(e) not in PLACED
    varying = [a for a in e.args if not (times and a.is_constant())]
    most = (sum if isinstance(e, MulExpression) else max)(map(factors, varying))
    return most * (1 + squares) + (squares or len(varying) < len(e.args))
