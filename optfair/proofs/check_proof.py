r"""Check saved proofs in exact arithmetic: ``python check_proof.py proof.json [...]``.

One file, standard library only. A proof is about

.. math:: \min_y \tfrac12 y^T P y + q^T y + c \quad\text{subject to}\quad b - A y \in K,\; y_J \in Z

whose numbers are exact: integers, doubles in hexadecimal, or ratios of hexadecimal integers.

*bound*: any x and any z in the dual cone give, with r = Px + q + A'z, the lower bound
``-x'Px/2 - b'z + c + inf r'y``, less ``sum d_j (y_j - x_j)^2 / 2`` where only P + diag(d) is
proved semidefinite. The infimum is over bounds on single columns, each a step that is replayed:
it follows from one row and from earlier steps. Row m is the cut "the objective is at most this":
what uses it bounds the lesser of that value and the optimum. *infeasible*: -b'z + inf (A'z)'y is
positive. *unbounded*: x is feasible, -Ad in K, Pd = 0, q'd < 0. A tree of branches on integer
columns has such a bound or contradiction at every leaf. Second-order cones are decided by
squares, semidefinite ones by a factorisation whose exact residual is below a margin.

It exits with 0 when every file is proved, 1 when one is not, 2 without a file.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import sys
from fractions import Fraction
from typing import Any

FORMAT, SCHEMA = "optfair proof", 1
# Binary digits of factors; what a diagonal of about 1 is changed by.
DIGITS = 52
MARGINS, SHIFTS = (-(2.0**-46), -(2.0**-40), -(2.0**-32)), (2.0**-46, 2.0**-40, 2.0**-32)

Entries = list[tuple[int, int, int]]


class Rejected(Exception):
    """The file proves less than it claims; the text says why."""


def require(holds: Any, why: str) -> None:
    """Reject the file unless a condition holds."""
    if not holds:
        raise Rejected(why)


def number(value: Any) -> Fraction:
    """Return an integer, a double in hexadecimal or a ratio of hexadecimals exactly."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    require(isinstance(value, str), f"{value!r} is no exact number")
    over, _, under = value.partition("/")
    return Fraction(int(over, 16), int(under, 16)) if under else Fraction(float.fromhex(value))


def integers(values: list[Fraction]) -> tuple[list[int], int]:
    """Return numerators over one denominator."""
    common = math.lcm(*{v.denominator for v in values}) if values else 1
    return [v.numerator * (common // v.denominator) for v in values], common


def vector(record: Any, size: int, what: str) -> tuple[list[int], int]:
    """Return a vector as integers over one denominator: values, and ratios added to some."""
    values = [number(v) for v in record["values"]]
    require(len(values) == size, f"the {what} has {len(values)} entries, not {size}")
    own, common = integers(values)
    at, over = record.get("places", []), [int(v, 16) for v in record.get("numerators", [])]
    under = int(record.get("denominator", "1"), 16)
    whole = under > 0 and len({*at}) == len(at) == len(over) and all(0 <= i < size for i in at)
    require(whole, f"the correction of the {what} is misshapen")
    own = [v * under for v in own]
    for i, v in zip(at, over, strict=True):
        own[i] += v * common
    return own, common * under


def dot(a: list[int], b: list[int]) -> int:
    """Return the inner product."""
    return sum(map(int.__mul__, a, b))


def digest(record: Any) -> str:
    """Return the hash of a record, whatever the order of its keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def triangle(more: Any) -> list[tuple[int, int]]:
    """Return the entries of the matrix that the rows of a semidefinite block hold."""
    order, upper = more
    if upper:
        return [(i, j) for j in range(order) for i in range(j + 1)]
    return [(i, j) for i in range(order) for j in range(i, order)]


class Form:
    """The program, its numbers as integers over one denominator ``unit``."""

    def __init__(self, record: Any) -> None:
        self.m, self.n = m, n = int(record["rows"]), int(record["columns"])
        (i, j, a), (k, j2, p), b, q = (record[key] for key in "APbq")
        require((len(b), len(q)) == (m, n), "the data have not the size that they state")
        whole, self.unit = integers([number(v) for v in (*a, *p, *b, *q, record["offset"])])
        cut = len(a) + len(p)
        self.b, self.q, self.offset = whole[cut : cut + m], whole[cut + m : -1], whole[-1]
        self.A = list(zip(i, j, whole[: len(a)], strict=True))
        self.P = list(zip(k, j2, whole[len(a) : cut], strict=True))
        for entries, height in ((self.A, m), (self.P, n)):
            here = {(i, j) for i, j, _ in entries}
            require(len(here) == len(entries), "an entry of a matrix stands twice")
            fits = all(0 <= i < height and 0 <= j < n for i, j in here)
            require(fits, "an entry of a matrix is out of range")
        require({(j, i, v) for i, j, v in self.P} == {*self.P}, "P is not symmetric")
        self.sign, self.integer = record["sign"], {*record["integer"]}
        require(self.integer <= {*range(n)}, "an integer column is out of range")
        self.rows: list[dict[int, int]] = [{} for _ in range(m + 1)]
        for i, j, v in [*self.A, *((m, j, v) for j, v in enumerate(self.q) if v)]:
            self.rows[i][j] = v
        # rows with a right-hand side, and rows whose slack two others bound, with a factor
        self.cones: list[tuple[str, int, int, Any]] = []
        self.heads: set[int] = set()
        self.behind: dict[int, tuple[int, int, int]] = {}
        at = 0
        for kind, size, more in record["cones"]:
            require(size > 0, "a cone has no rows")
            own, at = range(at, at + size), at + size
            self.cones.append((kind, own.start, at, more))
            if kind == "soc":
                self.heads.add(own[0])
                self.behind |= dict.fromkeys(own[1:], (own[0], own[0], 1))
            elif kind == "psd":
                place = dict(zip(triangle(more), own, strict=True))
                self.heads |= {i for (j, k), i in place.items() if j == k}
                pairs = [(i, place[j, j], place[k, k]) for (j, k), i in place.items() if j != k]
                self.behind |= {i: (first, second, 2) for i, first, second in pairs}
            elif kind in ("zero", "nonneg"):
                self.heads |= {*own}
        require(at == m, f"the cones have {at} rows, the matrix has {m}")

    def times(self, entries: Entries, x: list[int], height: int) -> list[int]:
        """Return a matrix of the program times x."""
        total = [0] * height
        for i, j, v in entries:
            total[i] += v * x[j]
        return total

    def holds(self, s: list[int], why: str, dual: bool = False) -> None:
        """Require that a vector is in every cone, or in their duals."""
        for kind, start, stop, more in self.cones:
            require(inside(kind, s[start:stop], more, dual), f"{why} ({kind} at row {start})")


def semidefinite(M: Entries, unit: int, shifts: Any, off: int = 0) -> dict[int, Fraction] | None:
    """Return d with M / unit + diag(d) semidefinite, None when none of the shifts proves it.

    Entries off the diagonal may be wrong by ``off``. With the diagonal brought near 1 by powers
    of two, any L and D > 0 give M + t I = L D L' + E, and so d = t + the row sums of E.
    """
    M, diagonal = [e for e in M if e[2]], {i: v for i, j, v in M if i == j and v}
    if any(i not in diagonal for i, _, _ in M) or min(diagonal.values(), default=1) < 0:
        return None
    power = {i: (unit.bit_length() - v.bit_length()) // 2 for i, v in diagonal.items()}
    fixed: dict[int, dict[int, int]] = {i: {} for i in diagonal}
    loose, one = dict.fromkeys(diagonal, 0), 1 << 3 * DIGITS
    for i, j, v in M:
        up = 3 * DIGITS + power[i] + power[j]
        fixed[i][j] = (v << up) // unit if up >= 0 else v // (unit << -up)
        loose[i] += 1 if i == j else 2 + (off << max(up, 0)) // unit
    for shift in shifts:
        step = int(shift * 2.0**DIGITS) << 2 * DIGITS
        left = {i: row | {i: row[i] + step} for i, row in fixed.items()}
        work = {i: {j: v / one for j, v in row.items()} for i, row in left.items()}
        queue = sorted((len(row), i) for i, row in work.items())  # fewest entries first
        while queue:
            size, k = heapq.heappop(queue)
            if k not in work or size != len(work[k]):
                continue
            row = work.pop(k)
            pivot = row.pop(k)
            if not pivot > 2.0**-DIGITS:
                break
            d, column = round(pivot * 2.0**DIGITS), {k: 1 << DIGITS}
            for i, v in row.items():
                column[i] = round(v / pivot * 2.0**DIGITS)
                del work[i][k]
                for j, w in row.items():
                    work[i][j] = work[i].get(j, 0.0) - v / pivot * w
                heapq.heappush(queue, (len(work[i]), i))
            for i, v in column.items():
                for j, w in column.items():
                    left[i][j] = left[i].get(j, 0) - d * v * w
        else:
            sums = {i: step + loose[i] + sum(map(abs, rest.values())) for i, rest in left.items()}
            found = {
                i: Fraction(d, one) / Fraction(4) ** power[i] for i, d in sums.items() if d > 0
            }
            if shift > 0 or not found:
                return found
    return None


def inside(kind: str, s: list[int], more: Any, dual: bool) -> bool:
    """Whether integers, in any common unit, are for sure in a cone, or in its dual."""
    if kind == "zero":
        return dual or not any(s)
    if kind == "nonneg" or not any(s):
        return min(s) >= 0
    if kind == "soc":
        return s[0] >= 0 and s[0] ** 2 >= sum(v * v for v in s[1:])
    if kind == "psd":
        M = []
        for v, (i, j) in zip(s, triangle(more), strict=True):
            if i == j:
                M.append((i, i, v << DIGITS))
            else:  # stored times the root of 2
                w = math.isqrt((v * v << 2 * DIGITS) // 2) * (1 if v > 0 else -1)
                M += [(i, j, w), (j, i, w)]
        return semidefinite(M, 1 << max(map(abs, s)).bit_length() + DIGITS, MARGINS, 1) == {}
    require(False, f"nothing is decided here about a cone of kind {kind!r}")
    return False


def take(ends: list[int | None], at: int, above: int, value: int) -> None:
    """Keep the tighter of two bounds."""
    old = ends[at]
    ends[at] = value if old is None else min(old, value) if above else max(old, value)


class Box:
    """Bounds on single columns, each implied by one row: integers over ``unit``."""

    def __init__(self, form: Form, steps: Any, branch: Any, cut: Fraction | None) -> None:
        values, u = integers([number(s[3]) for s in steps])
        self.form, self.unit = form, u
        # of columns: least, most; of rows: the same, times the unit of the form
        self.ends: list[list[int | None]] = [[None] * form.n, [None] * form.n]
        self.sides: list[list[int | None]] = [[None] * (form.m + 1), [None] * (form.m + 1)]
        for j, above, limit in branch:
            take(self.ends[above], j, above, limit * u)
        for i in form.heads:
            self.sides[1][i] = form.b[i] * u
        for kind, start, stop, _ in form.cones:
            if kind == "zero":
                self.sides[0][start:stop] = [v * u for v in form.b[start:stop]]
        if cut is not None:
            require(not form.P, "a cut needs a linear objective")
            self.sides[1][form.m] = math.ceil(cut * form.unit * u) - form.offset * u
        self.row, self.sums = -1, {}  # type: int, dict[int, Any]
        for step, value in zip(steps, values, strict=True):
            self.replay(step, value)

    def least(self, i: int, sign: int) -> tuple[int, int, dict[int, int | None]]:
        """Return the least of sign * row within the bounds: finite part, open terms, terms."""
        if i != self.row:  # bounds that got tighter since keep what is known valid
            self.row, self.sums = i, {}
        if sign not in self.sums:
            terms: dict[int, int | None] = {}
            for j, a in self.form.rows[i].items():
                bound = self.ends[0 if sign * a > 0 else 1][j]
                terms[j] = None if bound is None else sign * a * bound
            known = [t for t in terms.values() if t is not None]
            self.sums[sign] = sum(known), len(terms) - len(known), terms
        found: tuple[int, int, dict[int, int | None]] = self.sums[sign]
        return found

    def replay(self, step: Any, value: int) -> None:
        """Take over a bound when its row implies it."""
        (i, j, above, told), b, unit = step, self.form.b, self.form.unit
        require(0 <= i <= self.form.m and above in (0, 1), f"step {step} is out of range")
        why = f"row {i} does not imply {'<=' if above else '>='} {told} of column {j}"
        if j == -1:  # the slack of a row is at most the root of the product of two others
            *others, size = self.form.behind[i]
            for k in others:
                total, open_ones, _ = self.least(k, 1)
                require(not open_ones, why)
                size *= max(b[k] * self.unit - total, 0)
            away = (value * unit - b[i] * self.unit) * (1 if above else -1)
            require(away >= 0 and away**2 >= size, why)
            take(self.sides[above], i, above, value * unit)
            return
        a = self.form.rows[i].get(j, 0)
        sign = 1 if (a > 0) == bool(above) else -1
        side = self.sides[1 if sign > 0 else 0][i]
        total, open_ones, terms = self.least(i, sign)
        own = terms.get(j)
        require(a != 0 and side is not None and open_ones == (own is None), why)
        require(sign * a * value >= sign * (side or 0) - total + (own or 0), why)
        take(self.ends[above], j, above, value)


def lower(form: Form, leaf: Any, branch: Any, claim: Any) -> Fraction | None:
    """Return the exact bound that multipliers prove; None when they prove a contradiction."""
    z, over = vector(leaf["multipliers"], form.m, "multipliers")
    form.holds(z, "the multipliers are not in the dual cone", dual=True)
    costs, x, under = leaf["against"] != "constraints", [0] * form.n, 1
    if form.P and costs:
        x, under = vector(leaf["point"], form.n, "point")
    bent, unit = form.times(form.P, x, form.n), form.unit * over * under
    r = [costs * q * over * under + p * over for q, p in zip(form.q, bent, strict=True)]
    for i, j, v in form.A:
        r[j] += v * z[i] * under
    cut = number(claim["cut"]) if costs and claim["cut"] is not None else None
    box = Box(form, leaf["steps"], branch, cut)
    ends = [box.ends[0 if v > 0 else 1][j] if v else 0 for j, v in enumerate(r)]
    far = Fraction(sum(abs(v) for v, end in zip(r, ends, strict=True) if end is None), unit)
    total = Fraction(dot(r, [end or 0 for end in ends]), unit * box.unit)
    total -= Fraction(dot(form.b, z), form.unit * over)
    if not costs:
        require(not far, "a column that nothing bounds does not cancel")
        require(total > 0, "the rows do not contradict each other")
        return None
    total += Fraction(form.offset, form.unit) - Fraction(dot(x, bent), 2 * form.unit * under**2)
    curved = semidefinite(form.P, form.unit, MARGINS + SHIFTS)
    require(curved is not None, "P is not proved semidefinite")
    radius, everywhere = number(claim["radius"] or 0), not far
    for j, d in (curved or {}).items():
        here = Fraction(x[j], under)
        reach = [abs(Fraction(e[j], box.unit) - here) for e in box.ends if e[j] is not None]
        if len(reach) < 2:
            everywhere, reach = False, [radius + abs(here)]
        total -= d * max(reach) ** 2 / 2
    require(everywhere or radius > 0, "a column that nothing bounds has a residual")
    return total - far * radius


def leaves(form: Form, tree: Any, claim: Any) -> Fraction | None:
    """Return the least bound of the leaves of a tree; None when all are contradictions."""
    found: list[Fraction | None] = []
    stack: list[tuple[Any, tuple[Any, ...]]] = [(tree, ())]
    while stack:
        node, branch = stack.pop()
        if "column" in node:
            j, limit = node["column"], node["limit"]
            require(j in form.integer and isinstance(limit, int), "a branch leaves out a value")
            stack.append((node["below"], (*branch, (j, 1, limit))))
            stack.append((node["above"], (*branch, (j, 0, limit + 1))))
        else:
            found.append(lower(form, node, branch, claim))
    return min((v for v in found if v is not None), default=None)


def violation(form: Form, x: list[int], under: int, units: Any, off: Fraction) -> Fraction:
    """Return the largest violation of a row, of its own size; of a curved cone at most ``off``."""
    least = [math.ceil(number(u) * under) for u in units]
    most = [max(abs(v), u, 1) for v, u in zip(x, least, strict=True)]
    sizes = form.times([(i, j, abs(v)) for i, j, v in form.A], most, form.m)
    sizes = [max(a, abs(v) * under, 1) for a, v in zip(sizes, form.b, strict=True)]
    s = [v * under - a for v, a in zip(form.b, form.times(form.A, x, form.m), strict=True)]
    worst = max(
        (abs(Fraction(x[j], under) - round(Fraction(x[j], under))) for j in form.integer),
        default=Fraction(0),
    )
    for kind, start, stop, more in form.cones:
        own = range(start, stop)
        if kind in ("zero", "nonneg"):
            out = [i for i in own if s[i] < 0 or (s[i] and kind == "zero")]
            worst = max([worst, *(Fraction(abs(s[i]), sizes[i]) for i in out)])
            continue
        up = math.ceil(off * max(sizes[start:stop]))  # along the axis of the cone
        why = f"the point is farther outside the {kind} cone at row {start}"
        require(inside(kind, [s[i] + up * (i in form.heads) for i in own], more, False), why)
    return worst


def objective(form: Form, x: list[int], under: int) -> Fraction:
    """Return the objective of a point."""
    bent = Fraction(dot(x, form.times(form.P, x, form.n)), 2 * form.unit * under**2)
    return bent + Fraction(dot(form.q, x) + form.offset * under, form.unit * under)


def bound(form: Form, proof: Any) -> str:
    """Check a bound, a point and the gap between them; return what they prove."""
    claim = proof["claim"]
    told, tolerance, off, unit = (
        number(claim[k]) for k in ("bound", "tolerance", "violation", "unit")
    )
    found = leaves(form, proof["tree"], claim)
    require(found is None or told <= found, f"the multipliers prove {float(found or 0):.17g} only")
    require(claim["cut"] is None or told <= number(claim["cut"]), "the bound is above its own cut")
    x, under = vector(proof["point"], form.n, "point")
    worst = violation(form, x, under, proof["units"], off)
    require(
        worst <= off <= tolerance, f"the point violates a row by {float(worst):.3g} of its size"
    )
    value = objective(form, x, under)
    size = max(unit, abs(value - Fraction(form.offset, form.unit)))
    apart = abs(value - number(claim["objective"]))
    require(apart <= abs(value) / 2**52, f"the objective of the point is {float(value):.17g}")
    close = 0 < unit <= 1 and abs(value - told) <= tolerance * size
    require(close, "the gap exceeds the tolerance")
    figures = f"objective {float(form.sign * value):.12g}, bound {float(form.sign * told):.12g}"
    radius = "" if claim["radius"] is None else f" for |x| <= {float(number(claim['radius'])):.3g}"
    gap = float(abs(value - told) / size)
    return f"proved{radius}: {figures}, gap {gap:.1e}, violation {float(worst):.1e}"


def unbounded(form: Form, proof: Any) -> str:
    """Check a feasible point and a direction along which the objective falls for ever."""
    x, under = vector(proof["point"], form.n, "point")
    d, _ = vector(proof["direction"], form.n, "direction")
    s = [v * under - a for v, a in zip(form.b, form.times(form.A, x, form.m), strict=True)]
    form.holds(s, "the point is not feasible")
    require(all(x[j] % under == 0 for j in form.integer), "the point is not integer")
    form.holds([-v for v in form.times(form.A, d, form.m)], "the direction leaves the constraints")
    straight = not any(form.times(form.P, d, form.n)) and dot(form.q, d) < 0
    require(straight, "the objective does not fall along the direction for ever")
    return "proved: the objective improves without limit"


def infeasible(form: Form, proof: Any) -> str:
    """Check that every leaf is a contradiction."""
    found = leaves(form, proof["tree"], {"cut": None, "radius": None})
    require(found is None, "a leaf bounds the objective instead of excluding its points")
    return "proved: no point satisfies the constraints"


def check(document: Any) -> str:
    """Return what a document proves, in one line; raise `Rejected` when that is not its claim."""
    kinds = {"bound": bound, "infeasible": infeasible, "unbounded": unbounded}
    named = isinstance(document, dict) and document.get("format") == FORMAT
    require(named, f"this is not an {FORMAT}")
    told, kind = document.get("schema"), document.get("kind")
    require(told == SCHEMA, f"its schema is {told!r}; this program reads schema {SCHEMA}")
    try:
        rest = {k: v for k, v in document.items() if k != "digest"}
        require(digest(rest) == document["digest"], "its numbers are not those it was saved with")
        require(kind in kinds, f"a proof of kind {kind!r} is not known")
        return kinds[kind](Form(document["form"]), document["proof"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise Rejected(f"it is malformed: {type(e).__name__}: {e}") from None


def main(paths: list[str]) -> int:
    """Check files, say what each proves, and return the exit code."""
    failed = 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                found = check(json.load(file))
        except (Rejected, OSError, ValueError, RecursionError) as e:
            failed, found = 1, f"NOT proved: {e}"
        sys.stdout.write(f"{path}: {found}\n")
    return failed if paths else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
