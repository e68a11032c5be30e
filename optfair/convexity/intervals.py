"""Interval arithmetic on arrays: every end is rounded outward, unless it is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from optfair.numbers import Floats

# What elementary functions of NumPy are off by at most, in units of the last place, with room.
LAST_PLACES = 16.0
# Beyond these sizes the error of a product is not computed exactly.
LARGEST, SMALLEST = 1e140, 1e-240
# Where intervals without an end are cut for the last time.
FARTHEST = 1e300
# Beyond this angle a trigonometric function is only known to lie within its range.
FARTHEST_ANGLE = 1e6


def exact_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return s, e with s + e = a + b exactly (Knuth), NaN in e where that overflows."""
    with np.errstate(all="ignore"):
        s = np.add(a, b)
        t = s - a
        return s, (a - (s - t)) + (b - t)


def exact_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return p, e with p + e = a b exactly (Dekker), NaN in e where it is not known."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    with np.errstate(all="ignore"):
        p = a * b
        ca, cb = 134217729.0 * a, 134217729.0 * b
        ah, bh = ca - (ca - a), cb - (cb - b)
        al, bl = a - ah, b - bh
        e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
        zero = (a == 0.0) | (b == 0.0)
        known = (np.abs(a) < LARGEST) & (np.abs(b) < LARGEST) & (np.abs(p) > SMALLEST)
        return np.where(zero, 0.0, p), np.where(zero, 0.0, np.where(known, e, np.nan))


def _down(value: Any, error: Any) -> Any:
    """Return floats that are not above value + error, of which only the sign matters."""
    with np.errstate(over="ignore"):
        low = np.where(error >= 0.0, value, np.nextafter(value, -np.inf))
    return np.where(np.isnan(value), -np.inf, low)


def _up(value: Any, error: Any) -> Any:
    with np.errstate(over="ignore"):
        high = np.where(error <= 0.0, value, np.nextafter(value, np.inf))
    return np.where(np.isnan(value), np.inf, high)


def _quotient(a: Any, b: Any) -> tuple[Any, Any]:
    """Return q = a/b rounded and the sign of the error; infinite quotients count as inexact."""
    with np.errstate(all="ignore"):
        q = np.divide(a, b)
        p, e = exact_product(q, b)
        exact = ((p == a) & (e == 0.0)) | ((np.asarray(a) == 0.0) & (np.asarray(b) != 0.0))
        return q, np.where(exact, 0.0, np.nan)


@dataclass(frozen=True, eq=False)
class Interval:
    """Arrays of intervals [low, high]; an operation encloses what the exact one would give.

    Parameters
    ----------
    low, high : array
        Ends, of one shape, infinite where there is none.

    Examples
    --------
    >>> third = Interval.exactly(1.0) / Interval.exactly(3.0)
    >>> bool(third.low < third.high), bool((third * Interval.exactly(3.0)).contains(1.0))
    (True, True)
    >>> half = Interval.exactly(1.0) / Interval.exactly(2.0)
    >>> float(half.low), float(half.high)
    (0.5, 0.5)
    """

    low: Floats
    high: Floats

    @classmethod
    def near(cls, value: Fraction) -> Interval:
        """Return the fraction, or the floats about it."""
        v = np.array(float(value))
        if Fraction(float(v)) == value:
            return cls.exactly(v)
        return cls(np.nextafter(v, -np.inf), np.nextafter(v, np.inf))

    @classmethod
    def exactly(cls, value: Any) -> Interval:
        """Return intervals of one point."""
        point = np.asarray(value, dtype=float)
        return cls(point, point)

    @classmethod
    def of(cls, low: Any, high: Any) -> Interval:
        """Return intervals between arrays, brought to one shape."""
        a, b = np.broadcast_arrays(np.asarray(low, dtype=float), np.asarray(high, dtype=float))
        return cls(a, b)

    @classmethod
    def fraction(cls, value: Fraction) -> Interval:
        """Return the smallest interval of floats around a rational number."""
        near = float(value)
        exact = Fraction(near)
        low = near if exact <= value else float(np.nextafter(near, -np.inf))
        return cls.of(low, near if exact >= value else float(np.nextafter(near, np.inf)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the arrays."""
        return self.low.shape

    def contains(self, value: Any) -> bool:
        """Whether all values lie within."""
        return bool(np.all((self.low <= value) & (value <= self.high)))

    def within(self, other: Interval) -> bool:
        """Whether this lies in another one everywhere."""
        return bool(np.all((other.low <= self.low) & (self.high <= other.high)))

    def __getitem__(self, at: Any) -> Interval:
        low = self.low[at]
        return Interval(low, low if self.low is self.high else self.high[at])

    def middle(self) -> Floats:
        """Return a finite number within each, where it is cut: far out where it has no end."""
        low, high = self.low, self.high
        with np.errstate(all="ignore"):
            across = (low < 0.0) & (high > 0.0)
            up = np.where(across, 0.0, np.minimum(4.0 * np.maximum(low, 0.0) + 1.0, FARTHEST))
            down = np.where(across, 0.0, np.maximum(4.0 * np.minimum(high, 0.0) - 1.0, -FARTHEST))
            mean = low + (high - low) / 2
        mean = np.where(np.isfinite(high - low), mean, np.where(np.isposinf(high), up, down))
        return np.asarray(np.clip(mean, low, high))

    def meet(self, other: Interval) -> Interval:
        """Return the intersection of enclosures of the same numbers."""
        return Interval(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def join(self, other: Interval) -> Interval:
        """Return the smallest interval around both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval) -> Interval:
        s, e = exact_sum(self.low, other.low)
        t, f = exact_sum(self.high, other.high)
        # -inf + x and x + inf are exact; what overflows is not
        low = np.where(np.isneginf(self.low) | np.isneginf(other.low), -np.inf, _down(s, e))
        high = np.where(np.isposinf(self.high) | np.isposinf(other.high), np.inf, _up(t, f))
        return Interval(low, high)

    def __sub__(self, other: Interval) -> Interval:
        return self + (-other)

    def __mul__(self, other: Interval) -> Interval:
        if other.low is other.high:
            return self.scaled(other.low)
        if self.low is self.high:
            return other.scaled(self.low)
        # all products of an end and an end at once: arrays are short, calls are dear
        rank = max(self.low.ndim, other.low.ndim)
        ours, theirs = (
            np.stack([i.low, i.high]).reshape(2, *(1,) * (rank - i.low.ndim), *i.shape)
            for i in (self, other)
        )
        p, e = exact_product(ours[:, None], theirs)
        return Interval(
            np.asarray(_down(p, e).min(axis=(0, 1))), np.asarray(_up(p, e).max(axis=(0, 1)))
        )

    def scaled(self, factor: Floats) -> Interval:
        """Return the intervals times numbers."""
        if self.low is self.high:
            p, e = exact_product(self.low, factor)
            return Interval(_down(p, e), _up(p, e))
        up = np.asarray(factor) >= 0.0
        ends = np.stack([np.where(up, self.low, self.high), np.where(up, self.high, self.low)])
        p, e = exact_product(ends, factor)
        return Interval(_down(p[0], e[0]), _up(p[1], e[1]))

    def __truediv__(self, other: Interval) -> Interval:
        return self * other.reciprocal()

    def reciprocal(self) -> Interval:
        """Return 1 over numbers that are not 0; an interval across 0 tells nothing."""
        across = (self.low < 0.0) & (self.high > 0.0)
        with np.errstate(all="ignore"):
            one = np.ones(self.shape)
            q, e = _quotient(one, self.high)
            low = np.where(np.isposinf(self.high), 0.0, np.where(e == 0.0, q, _down(q, e)))
            q, e = _quotient(one, self.low)
            high = np.where(np.isneginf(self.low), 0.0, np.where(e == 0.0, q, _up(q, e)))
        low = np.where(across | (self.high == 0.0), -np.inf, low)
        high = np.where(across | (self.low == 0.0), np.inf, high)
        return Interval(low, high)

    def square(self) -> Interval:
        """Return the squares."""
        smallest = np.maximum(np.maximum(self.low, -self.high), 0.0)
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        p, e = exact_product(smallest, smallest)
        q, f = exact_product(largest, largest)
        return Interval(np.maximum(_down(p, e), 0.0), _up(q, f))

    def absolute(self) -> Interval:
        """Return the absolute values."""
        low = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return Interval(low, np.maximum(np.abs(self.low), np.abs(self.high)))

    def power(self, p: Fraction) -> Interval:
        """Return the powers; of an exponent that is no integer, those of the part ≥ 0."""
        if p == 1:
            return self
        if p.denominator == 1:
            n = int(p)
            if n == 0:
                return Interval.exactly(np.ones(self.shape))
            if n < 0:
                return self.power(-p).reciprocal()
            if n % 2 == 0:
                return self.square() if n == 2 else self.absolute()._monotone(p)
            sign = Interval(self.low.clip(min=0.0), self.high.clip(min=0.0))._monotone(p)
            mirror = Interval((-self.high).clip(min=0.0), (-self.low).clip(min=0.0))._monotone(p)
            low = np.where(self.low < 0.0, -mirror.high, sign.low)
            return Interval(low, np.where(self.high > 0.0, sign.high, -mirror.low))
        positive = Interval(self.low.clip(min=0.0), self.high.clip(min=0.0))
        if p < 0:
            return positive._monotone(-p).reciprocal()
        return positive._monotone(p)

    def _monotone(self, p: Fraction) -> Interval:
        """Return powers with p > 0 of intervals that are not negative."""
        return Interval(_power(self.low, p)[0], _power(self.high, p)[1])

    def sum(self) -> Interval:
        """Return the sums along the last axis."""
        total = self
        while (count := total.shape[-1]) > 1:
            half = total[..., : count // 2] + total[..., count // 2 : 2 * (count // 2)]
            left = total[..., 2 * (count // 2) :]
            low, high = (
                np.concatenate([a, b], axis=-1)
                for a, b in ((half.low, left.low), (half.high, left.high))
            )
            total = Interval(low, high)
        return total[..., 0] if count else Interval.exactly(np.zeros(self.shape[:-1]))

    def linear(self, M: Any) -> Interval:
        """Return M times the intervals, a sparse matrix on their first axis."""
        M = M.tocsr()
        counts = np.diff(M.indptr)
        rest = self.shape[1:]
        total = Interval.exactly(np.zeros((M.shape[0], *rest)))
        longest = int(counts.max(initial=0))
        if longest > 64:
            return self._dot(M)
        if longest > 4 and not rest and np.logical_and(*self._endless(M)).all():
            return Interval.of(np.full(M.shape[0], -np.inf), np.inf)
        for k in range(longest):
            rows = np.flatnonzero(counts > k)
            at = M.indptr[rows] + k
            factor = M.data[at].reshape((-1,) + (1,) * len(rest))
            part = self[M.indices[at]].scaled(factor)
            if rows.size == M.shape[0]:
                total = total + part if k else part
                continue
            own = total[rows] + part
            low, high = total.low.copy(), total.high.copy()
            low[rows], high[rows] = own.low, own.high
            total = Interval(low, high)
        return total

    def _dot(self, M: Any) -> Interval:
        """Return M times intervals for long rows, by an error bound for each."""
        up, down = M.maximum(0), M.minimum(0)
        finite_low = np.where(np.isfinite(self.low), self.low, 0.0)
        finite_high = np.where(np.isfinite(self.high), self.high, 0.0)
        shape = (self.shape[0], -1)
        lo, hi = finite_low.reshape(shape), finite_high.reshape(shape)
        k = float(np.diff(M.indptr).max(initial=0)) + 8.0
        size = abs(M) @ np.maximum(np.abs(lo), np.abs(hi))
        radius = k * 2.0**-52 * size * (1.0 + 1e-6) + k * 1e-300
        low, high = up @ lo + down @ hi - radius, up @ hi + down @ lo + radius
        # terms of one sign add up to one of it, whatever is rounded
        rise, fall = (M > 0).astype(float), (M < 0).astype(float)
        mixed = rise @ (lo < 0.0) + fall @ (hi > 0.0) > 0.0
        low = np.where(mixed, low, np.maximum(low, 0.0))
        mixed = rise @ (hi > 0.0) + fall @ (lo < 0.0) > 0.0
        high = np.where(mixed, high, np.minimum(high, 0.0))
        loose_low, loose_high = self._endless(M)
        low = np.where(loose_low, -np.inf, np.where(low == 0.0, low, np.nextafter(low, -np.inf)))
        high = np.where(loose_high, np.inf, np.where(high == 0.0, high, np.nextafter(high, np.inf)))
        full = (M.shape[0], *self.shape[1:])
        return Interval(low.reshape(full), high.reshape(full))

    def _endless(self, M: Any) -> tuple[Any, Any]:
        """Return where M times the intervals has no lower, and no upper, end."""
        up, down, shape = M > 0, M < 0, (self.shape[0], -1)
        low, high = np.isneginf(self.low).reshape(shape), np.isposinf(self.high).reshape(shape)
        return (up @ low) | (down @ high), (up @ high) | (down @ low)

    def call(self, name: str) -> Interval:
        """Return an elementary function of the intervals, on the part where it is defined."""
        return FUNCTIONS[name](self)


def _power(x: Floats, p: Fraction) -> tuple[Floats, Floats]:
    """Return floats below and above x**p for x ≥ 0 and p > 0."""
    if p == Fraction(1, 2):
        return _root(x)
    if p.denominator == 1 and 1 < p <= 8:
        low, high = x, x
        for _ in range(int(p) - 1):
            a, e = exact_product(low, x)
            b, f = exact_product(high, x)
            low, high = np.maximum(_down(a, e), 0.0), _up(b, f)
        return np.where(np.isposinf(x), np.finfo(float).max, low), high
    with np.errstate(all="ignore"):
        value = np.power(x, float(p))
        size = np.abs(np.log(np.where(x > 0.0, x, 1.0)))
        off = (LAST_PLACES + 4.0 * size * float(p)) * 2.0**-52
        low, high = value * (1.0 - off) - 1e-320, value * (1.0 + off) + 1e-320
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    point = (x == 0.0) | (x == 1.0)
    low = np.where(point, x, np.where(np.isfinite(low), np.maximum(low, 0.0), np.finfo(float).max))
    return low, np.where(point, x, np.where(np.isnan(high), np.inf, high))


def _root(x: Floats) -> tuple[Floats, Floats]:
    root = np.sqrt(x)
    p, e = exact_product(root, root)
    exact = ((p == x) & (e == 0.0)) | (x == 0.0)
    low = np.where(exact, root, np.maximum(np.nextafter(root, -np.inf), 0.0))
    return low, np.where(exact, root, np.nextafter(root, np.inf))


def _near(function: Callable[..., Any], x: Any) -> tuple[Floats, Floats]:
    """Return floats below and above an elementary function at points."""
    with np.errstate(all="ignore"):
        value = np.asarray(function(x), dtype=float)
        off = LAST_PLACES * np.spacing(np.abs(value))
        low = np.where(np.isfinite(value), value - off, value)
        high = np.where(np.isfinite(value), value + off, value)
    low = np.where(np.isnan(value), -np.inf, np.where(np.isposinf(low), np.finfo(float).max, low))
    high = np.where(
        np.isnan(value), np.inf, np.where(np.isneginf(high), -np.finfo(float).max, high)
    )
    return low, high


def _increasing(
    function: Callable[..., Any], least: float, most: float, zero: float = 0.0
) -> Callable[[Interval], Interval]:
    """Return an increasing function with values in [least, most] that is exact at 0."""

    def evaluate(x: Interval) -> Interval:
        low, high = _near(function, x.low)[0], _near(function, x.high)[1]
        low = np.where(x.low == 0.0, zero, np.where(np.isneginf(x.low), least, low))
        high = np.where(x.high == 0.0, zero, np.where(np.isposinf(x.high), most, high))
        return Interval(np.clip(low, least, most), np.clip(high, least, most))

    return evaluate


def _logarithm(x: Interval) -> Interval:
    positive = Interval(x.low.clip(min=0.0), x.high.clip(min=0.0))
    low, high = _near(np.log, positive.low)[0], _near(np.log, positive.high)[1]
    low = np.where(positive.low == 0.0, -np.inf, np.where(positive.low == 1.0, 0.0, low))
    high = np.where(np.isposinf(x.high), np.inf, np.where(positive.high == 1.0, 0.0, high))
    return Interval(np.where(np.isposinf(low), np.finfo(float).max, low), high)


def _entropy(x: Interval) -> Interval:
    """Return x log x on x >= 0: between -1/e and the value at the larger end."""
    x = Interval(x.low.clip(min=0.0), x.high.clip(min=0.0))
    ends = [x.low, x.high]
    at_ends = [Interval.exactly(e) * Interval.exactly(e).call("log") for e in ends]
    high = np.maximum(*(np.where(e > 0.0, v.high, 0.0) for e, v in zip(ends, at_ends, strict=True)))
    rising, falling = x.low >= 0.36787944117144239, x.high <= 0.36787944117144227
    low = np.where(rising, at_ends[0].low, np.where(falling, at_ends[1].low, -0.36787944117144239))
    return Interval(low, high)


def _wave(shift: float) -> Callable[[Interval], Interval]:
    """Return sin (shift 1/2) or cos (shift 0): the maxima lie at (2k + shift) pi."""
    function = np.sin if shift else np.cos
    exact = 0.0 if shift else 1.0

    def evaluate(x: Interval) -> Interval:
        low, high = np.full(x.shape, -1.0), np.full(x.shape, 1.0)
        far = ~((np.abs(x.low) < FARTHEST_ANGLE) & (np.abs(x.high) < FARTHEST_ANGLE))
        with np.errstate(all="ignore"):
            # extrema within the interval, which is taken wider by more than the rounding of pi
            a, b = x.low / np.pi - 1e-9, x.high / np.pi + 1e-9
            top = np.floor((b - shift) / 2.0) >= np.ceil((a - shift) / 2.0)
            bottom = np.floor((b - shift - 1.0) / 2.0) >= np.ceil((a - shift - 1.0) / 2.0)
        ends = [_near(function, np.where(far, 0.0, e)) for e in (x.low, x.high)]
        at_zero = [np.where(e == 0.0, exact, np.nan) for e in (x.low, x.high)]
        lows = [np.where(np.isnan(z), e[0], z) for e, z in zip(ends, at_zero, strict=True)]
        highs = [np.where(np.isnan(z), e[1], z) for e, z in zip(ends, at_zero, strict=True)]
        low = np.where(far | bottom, low, np.maximum(np.minimum(*lows), -1.0))
        high = np.where(far | top, high, np.minimum(np.maximum(*highs), 1.0))
        # the widening must not cost the exact value 1 of the cosine at 0, which is the maximum
        return Interval(low, high)

    return evaluate


def _tangent(x: Interval) -> Interval:
    """Return tan where no pole is met within the interval."""
    with np.errstate(all="ignore"):
        a, b = x.low / np.pi - 0.5, x.high / np.pi - 0.5
        one_branch = (np.floor(a - 1e-9) == np.floor(b + 1e-9)) & (np.abs(x.low) < FARTHEST_ANGLE)
        one_branch &= np.abs(x.high) < FARTHEST_ANGLE
        low = np.where(x.low == 0.0, 0.0, _near(np.tan, x.low)[0])
        high = np.where(x.high == 0.0, 0.0, _near(np.tan, x.high)[1])
    return Interval(np.where(one_branch, low, -np.inf), np.where(one_branch, high, np.inf))


def _cosh(x: Interval) -> Interval:
    size = x.absolute()
    low, high = _near(np.cosh, size.low)[0], _near(np.cosh, size.high)[1]
    low = np.where(size.low == 0.0, 1.0, np.maximum(low, 1.0))
    return Interval(low, np.where(size.high == 0.0, 1.0, high))


def _ceiling(x: Interval) -> Interval:
    """Return ceil as CVXPY evaluates it, of x rounded to four decimals: that does not fall."""
    with np.errstate(over="ignore"):
        low, high = (
            np.where(np.abs(e) < 2.0**52, np.ceil(np.around(e, 4)), e) for e in (x.low, x.high)
        )
    return Interval(low, high)


def _sign(x: Interval) -> Interval:
    """Return the sign as CVXPY evaluates it: that of 0 is -1."""
    return Interval(np.where(x.low > 0.0, 1.0, -1.0), np.where(x.high > 0.0, 1.0, -1.0))


#: Elementary functions of intervals by name.
FUNCTIONS: dict[str, Callable[[Interval], Interval]] = {
    "ceil": _ceiling,
    "sign": _sign,
    "exp": _increasing(np.exp, 0.0, np.inf, zero=1.0),
    "log": _logarithm,
    "xlogx": _entropy,
    "abs": Interval.absolute,
    "sin": _wave(0.5),
    "cos": _wave(0.0),
    "tan": _tangent,
    "sinh": _increasing(np.sinh, -np.inf, np.inf),
    "cosh": _cosh,
    "tanh": _increasing(np.tanh, -1.0, 1.0),
    "asinh": _increasing(np.arcsinh, -np.inf, np.inf),
    "atan": _increasing(np.arctan, -1.5707963267948968, 1.5707963267948968),
}
