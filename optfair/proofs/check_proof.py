r"""Check saved proofs in exact arithmetic: ``python check_proof.py proof.json [...]``.

About min y'Py/2 + q'y + c, b - Ay in K, some y integer. *bound*: any x, and any z in the dual cone,
with r = Px + q + A'z, give -x'Px/2 - b'z + c + inf r'y, less sum d_j (y_j - x_j)^2 / 2 where only P
+ diag(d) is proved semidefinite. The infimum is over bounds on columns, each a step from one row
and earlier steps; row m is the cut "the objective is at most this", bounding the lesser of both. A
point violates what is worth no more than the tolerance at z. *infeasible*: -b'z + inf (A'z)'y > 0.
*unbounded*: x is feasible, -Ad in K, Pd = 0, q'd < 0. A tree has one at each leaf. Rows of a block
are a triangle of a matrix; z is the sum of two entries beside its diagonal.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import sys
from fractions import Fraction
from typing import Any

FORMAT, SCHEMA, DIGITS, SMALL, FAR = "optfair proof", 3, 52, 2048, 10**60
MARGINS, SHIFTS = (-(2.0**-46), -(2.0**-40), -(2.0**-32), 0.0), (2.0**-46, 2.0**-40, 2.0**-32)


class Rejected(Exception):
    """The file proves less than it claims; the text says why."""


def require(holds: Any, why: str) -> None:
    """Reject the file unless a condition holds."""
    if not holds:
        raise Rejected(why)


def number(value: Any) -> Fraction:
    """Return an integer, a double in hexadecimal or a ratio of hexadecimals exactly."""
    over, _, under = (f"{value:#x}/1" if isinstance(value, int) else value).partition("/")
    return Fraction(int(over, 16), int(under, 16)) if under else Fraction(float.fromhex(value))


def integers(values: list[Fraction]) -> tuple[list[int], int]:
    """Return numerators over one denominator."""
    common = math.lcm(*{v.denominator for v in values}) if values else 1
    return [v.numerator * (common // v.denominator) for v in values], common


def vector(values: Any, size: int, what: str) -> tuple[list[int], int]:
    """Return a vector of this size as integers over one denominator."""
    require(len(values) == size, f"the {what} has not {size} entries")
    return integers([number(v) for v in values])


def digest(record: Any) -> str:
    """Return the hash of a record, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def triangle(more: Any) -> list[tuple[int, int]]:
    """Return the entries of the matrix that the rows of a semidefinite block hold."""
    lower = [(i, j) for i in range(more[0]) for j in range(i, more[0])]
    return [(i, j) for j in range(more[0]) for i in range(j + 1)] if more[1] else lower


class Form:
    """The program in integers over ``unit``; heads: rows <= b, or equal; behind: slacks that two bound."""

    def __init__(self, record: Any) -> None:
        (i, j, a), (k, j2, p), b, q, cones = (record[k] for k in ("A", "P", "b", "q", "cones"))
        self.m, self.n = m, n = len(b), len(q)
        whole, self.unit = integers([number(v) for v in (*a, *p, *b, *q, record["offset"])])
        self.b, self.q, self.offset = whole[-n - m - 1 : -n - 1], whole[-n - 1 : -1], whole[-1]
        self.A = list(zip(i, j, whole[: len(a)], strict=True))
        self.P = list(zip(k, j2, whole[len(a) : -n - m - 1], strict=True))
        for entries, height in ((self.A, m), (self.P, n)):
            here = {(i, j) for i, j, _ in entries if 0 <= i < height and 0 <= j < n}
            require(len(here) == len(entries), "an entry stands twice or out of range")
        require({(j, i, v) for i, j, v in self.P} == {*self.P}, "P is not symmetric")
        self.sign, self.integer, self.dual = record["sign"], {*record["integer"]}, ([0] * m, 1)
        require(self.integer <= {*range(n)} and self.sign in (1, -1), "a sense or column is none")
        self.rows: list[dict[int, int]] = [{} for _ in range(m + 1)]
        for i, j, v in [*self.A, *((m, j, v) for j, v in enumerate(self.q) if v)]:
            self.rows[i][j] = v
        self.cones, self.heads, self.behind, self.places, at = [], {}, {}, {}, 0  # type: Any, Any, Any, Any, int
        fit = all(s > 0 and (k != "psd" or c[0] * (c[0] + 1) == 2 * s) for k, s, c in cones)
        require(fit and sum(c[1] for c in cones) == m, "the cones do not fit the rows")
        for kind, size, more in cones:
            own, at = range(at, at + size), at + size
            self.cones.append((kind, own.start, at, more))
            if kind == "soc":
                self.heads[own[0]] = False
                self.behind |= dict.fromkeys(own[1:], (own[0], own[0]))
            elif kind == "psd":
                place = self.places[own[0]] = dict(zip(triangle(more), own, strict=True))
                self.behind |= {i: (place[j, j], place[k, k]) for (j, k), i in place.items()}
                self.heads |= {place[j, j]: False for j in range(more[0])}
            elif kind in ("zero", "nonneg"):
                self.heads |= dict.fromkeys(own, kind == "zero")

    def times(self, entries: list[Any], x: list[int], height: int) -> list[int]:
        """Return a matrix of the program times x."""
        total = [0] * height
        for i, j, v in entries:
            total[i] += v * x[j]
        return total

    def varying(self, x: list[int], under: int) -> Fraction:
        """Return the objective without its constant."""
        bent = Fraction(sum(map(int.__mul__, x, self.times(self.P, x, self.n))), 2 * under)
        return (bent + sum(map(int.__mul__, self.q, x))) / (self.unit * under)

    def units(self) -> list[Fraction]:
        """Return the sizes of columns that bring entries and right-hand sides near 1."""
        ends = ((i, self.n, v) for i, v in enumerate(self.b))
        entries = sorted((abs(v), i, self.m + j) for i, j, v in (*self.A, *ends) if v)
        own = {i: min(max(self.unit, v // FAR), v * FAR) for v, i, _ in entries}
        unit = [1.0] * (self.m + self.n + 1)
        for _ in range(8):
            most = [0.0] * len(unit)
            for i, j, v in ((i, j, unit[i] * (v / own[i]) * unit[j]) for v, i, j in entries):
                most[i], most[j] = max(most[i], v), max(most[j], v)
            unit = [u / math.sqrt(min(v, 1e300) or 1.0) for u, v in zip(unit, most, strict=True)]
        return [Fraction(min(u / (unit[-1] or 1.0), 1e300)) for u in unit[self.m : -1]]

    def scale(self) -> Fraction:
        """Return the least size that an objective with these data is measured by, at most 1."""
        parts = self.b, self.q, [v for _, _, v in self.P]
        b, q, p = (Fraction(max((abs(v) for v in part), default=0), self.unit) for part in parts)
        side = min(b, Fraction(1)) or Fraction(1)
        return min(max(q, p * side) * side, Fraction(1)) or Fraction(1)

    def multipliers(self, leaf: Any) -> tuple[list[int], int]:
        """Return multipliers, with V W V' added at ``faces`` [row, V, W] for V in integers."""
        faces = leaf.get("faces", [])
        whole = [v for part in (leaf["multipliers"], *(W for *_, W in faces)) for v in part]
        z, over = vector(whole, self.m + sum(len(W) for *_, W in faces), "multipliers")
        rest = iter(z[self.m :])
        z, why = z[: self.m], "the multipliers are not in the dual cone"
        self.holds(z, why, dual=True)
        for row, V, _ in faces:
            own = dict(zip(triangle([len(V), True]), rest, strict=False))
            require(
                inside("psd", [*own.values()], [len(V), True], True), f"{why} (face at row {row})"
            )
            for (p, q), w in own.items():
                for (i, u), (j, v) in itertools.product(V[p], V[q]):
                    z[self.places[row][min(i, j), max(i, j)]] += w * int(u) * int(v)
        self.dual = z, over
        return self.dual

    def holds(self, s: list[int], why: str, dual: bool = False) -> None:
        """Require that a vector is in every cone, or in their duals."""
        for kind, start, stop, more in self.cones:
            require(inside(kind, s[start:stop], more, dual), f"{why} ({kind} at row {start})")


def semidefinite(M: list[Any], unit: int, shifts: Any) -> dict[int, Fraction] | None:
    """Return d with M / unit + diag(d) semidefinite, or None: t + row sums of M - L D L', D > 0."""
    M, diagonal = [e for e in M if e[2]], {i: v for i, j, v in M if i == j and v}
    if any(i not in diagonal for i, _, _ in M) or min(diagonal.values(), default=1) < 0:
        return None
    power = {i: (unit.bit_length() - v.bit_length()) // 2 for i, v in diagonal.items()}
    fixed, whole, one = {i: {} for i in diagonal}, {i: {} for i in diagonal}, 1 << 3 * DIGITS  # type: Any, Any, int
    for i, j, v in M:
        up = 3 * DIGITS + power[i] + power[j]
        fixed[i][j] = (v << up) // unit if up >= 0 else v // (unit << -up)
        whole[i][j] = v
    for shift in shifts:
        exact = not shift and len(M) <= SMALL  # in fractions, where D >= 0 is enough
        step = int(shift * 2.0**DIGITS) << 2 * DIGITS
        left = {i: row | {i: row[i] + step} for i, row in (whole if exact else fixed).items()}
        work = {i: {*row} for i, row in left.items()}
        queue = sorted((len(row), i) for i, row in work.items())  # fewest entries first
        while queue:
            size, k = heapq.heappop(queue)
            if k not in work or size != len(work[k]):
                continue
            near, d = work.pop(k) - {k}, left[k][k] if exact else left[k][k] >> 2 * DIGITS
            if d < 0 or (any(left[k].values()) and not d if exact else d <= 1):
                break
            column: Any = {k: 1 if exact else 1 << DIGITS}
            for i in near:
                v = left[k][i]
                column[i] = Fraction(v, d or 1) if exact else round(v / d / 2**DIGITS)
                work[i] = (work[i] | near) - {k}
                heapq.heappush(queue, (len(work[i]), i))
            for i, v in column.items():
                row, by = left[i], d * v
                row.update({j: row.get(j, 0) - by * w for j, w in column.items()})
        else:
            sums = {i: step + len(fixed[i]) + sum(map(abs, v.values())) for i, v in left.items()}
            scale = {i: one * Fraction(4) ** power[i] for i, d in sums.items() if d > 0}
            if exact or shift > 0 or not scale:
                return {} if exact else {i: sums[i] / unit for i, unit in scale.items()}
    return None


def inside(kind: str, s: list[int], more: Any, dual: bool) -> bool:
    """Whether integers, in any common unit, are for sure in a cone, or in its dual (twice a matrix)."""
    if kind in ("zero", "nonneg") or not any(s):
        return (dual if kind == "zero" else min(s) >= 0) or not any(s)
    if kind == "soc":
        return s[0] >= 0 and s[0] ** 2 >= sum(v * v for v in s[1:])
    if kind == "psd":
        at, n = dict(zip(triangle(more), s, strict=True)), range(more[0])
        whole = [(i, j, at[min(i, j), max(i, j)] << (dual and i == j)) for i in n for j in n]
        return semidefinite(whole, 1 << max(map(abs, s)).bit_length(), MARGINS) == {}
    raise Rejected(f"nothing is decided here about a cone of kind {kind!r}")


class Box:
    """The least and the most of columns: over ``unit``; and of rows: over that of the form too."""

    def __init__(self, form: Form, steps: Any, branch: Any, cut: Any) -> None:
        values, u = integers([number(s[3]) for s in steps])
        ends: Any = [[[None] * k, [None] * k] for k in (form.n, form.m + 1)]
        self.form, self.unit, self.line, (self.ends, self.sides) = form, u, (-1, 0), ends
        for j, above, limit in branch:
            self.tighten(self.ends, j, above, limit * u)
        for i, equal in form.heads.items():
            self.sides[1][i], self.sides[0][i] = form.b[i] * u, form.b[i] * u if equal else None
        if cut is not None:
            require(not form.P, "a cut needs a linear objective")
            self.sides[1][form.m] = math.ceil(number(cut) * form.unit * u) - form.offset * u
        for step, value in zip(steps, values, strict=True):
            self.replay(step, value)

    def tighten(self, ends: Any, at: int, above: int, value: int) -> None:
        """Take over a bound where it is the tighter one."""
        old = ends[above][at]
        ends[above][at] = value if old is None else (min if above else max)(value, old)

    def least(self, i: int, sign: int) -> Any:
        """Return the least of sign * row within the bounds: finite part, open terms, terms."""
        if (i, sign) != self.line:  # bounds that got tighter since keep what is known valid
            ends = self.ends if sign > 0 else self.ends[::-1]
            near = ((j, sign * a, ends[a < 0][j]) for j, a in self.form.rows[i].items())
            terms = {j: None if end is None else a * end for j, a, end in near}
            shut = [t for t in terms.values() if t is not None]
            self.line, self.known = (i, sign), (sum(shut), len(terms) - len(shut), terms)
        return self.known

    def replay(self, step: Any, value: int) -> None:
        """Take over a bound when its row implies it."""
        (i, j, above, end), b, unit = step, self.form.b, self.form.unit
        require(0 <= i <= self.form.m and above in (0, 1), f"step {step} is out of range")
        why = f"row {i} does not imply {'<=' if above else '>='} {end} of column {j}"
        if j == -1:  # the slack of a row is at most the root of the product of two others
            others = [(b[k] * self.unit, *self.least(k, 1)) for k in self.form.behind[i]]
            require(not any(open_ones for *_, open_ones, _ in others), why)
            size = math.prod(max(end - total, 0) for end, total, *_ in others)
            away = (value * unit - b[i] * self.unit) * (1 if above else -1)
            require(away >= 0 and away**2 >= size, why)
            return self.tighten(self.sides, i, above, value * unit)
        a = self.form.rows[i].get(j, 0)
        sign = 1 if (a > 0) == bool(above) else -1
        side, (total, open_ones, terms) = self.sides[sign > 0][i], self.least(i, sign)
        require(a != 0 and side is not None and open_ones == ((own := terms.get(j)) is None), why)
        require(sign * a * value >= sign * side - total + (own or 0), why)
        return self.tighten(self.ends, j, above, value)


def lower(form: Form, leaf: Any, branch: Any, claim: Any) -> Fraction | None:
    """Return the exact bound that multipliers prove; None when they prove a contradiction."""
    z, over = form.multipliers(leaf)
    costs: int = leaf["against"] != "constraints"
    x, under = vector(leaf["point"] if form.P and costs else [0] * form.n, form.n, "point")
    bent, unit = form.times(form.P, x, form.n), form.unit * over * under
    paid = form.times([(j, i, v * under) for i, j, v in form.A], z, form.n)
    r = [over * (costs * q * under + p) + v for q, p, v in zip(form.q, bent, paid, strict=True)]
    box = Box(form, leaf["steps"], branch, claim.get("cut") if costs else None)
    ends = [box.ends[0 if v > 0 else 1][j] if v else 0 for j, v in enumerate(r)]
    far = Fraction(sum(abs(v) for v, end in zip(r, ends, strict=True) if end is None), unit)
    total = Fraction(sum(map(int.__mul__, r, [end or 0 for end in ends])), unit * box.unit)
    total += (costs * form.offset - Fraction(sum(map(int.__mul__, form.b, z)), over)) / form.unit
    require(costs or (total > 0 and not far), "the rows do not contradict each other")
    if not costs:
        return None
    total -= Fraction(sum(map(int.__mul__, x, bent)), 2 * form.unit * under**2)
    curved = semidefinite(form.P, form.unit, MARGINS + SHIFTS)
    require(curved is not None, "P is not proved semidefinite")
    radius, everywhere = number(claim.get("radius") or 0), not far
    for j, d in (curved or {}).items():
        here, ends = Fraction(x[j], under), [box.ends[0][j], box.ends[1][j]]
        reach = [abs(Fraction(e, box.unit) - here) for e in ends if e is not None]
        if len(reach) < 2:
            everywhere, reach = False, [radius + abs(here)]
        total -= d * max(reach) ** 2 / 2
    require(everywhere or radius > 0, "a column that nothing bounds has a residual")
    return total - far * radius


def leaves(form: Form, tree: Any, claim: Any, branch: Any = ()) -> Fraction | None:
    """Return the least bound of the leaves of a tree; None when all are contradictions."""
    if "column" not in tree:
        return lower(form, tree, branch, claim)
    j, limit = tree["column"], tree["limit"]
    require(j in form.integer and isinstance(limit, int), "a branch leaves out a value")
    ends = (("below", (j, 1, limit)), ("above", (j, 0, limit + 1)))
    bounds = [leaves(form, tree[side], claim, (*branch, end)) for side, end in ends]
    return min((v for v in bounds if v is not None), default=None)


def violation(form: Form, x: list[int], under: int, off: Fraction, z: Any, spare: int) -> Any:
    """Return the violation of rows of their sizes (cones: off), as such, and what z spares for it."""
    most = [max(abs(v), math.ceil(u * under), 1) for v, u in zip(x, form.units(), strict=True)]
    s, far = [v * under - a for v, a in zip(form.b, form.times(form.A, x, form.m), strict=True)], 0
    own = [e for e in form.A if e[1] not in form.integer]  # beside integers; these alone: a step
    step = [min(map(abs, r.values()), default=0) * (r.keys() <= form.integer) for r in form.rows]
    sizes = form.times([(i, j, abs(v)) for i, j, v in own], most, form.m)
    left = zip(form.times(own, x, form.m), s, sizes, step[:-1], strict=True)
    sizes = [max(a, abs(v + w), u * under, 1) for w, v, a, u in left]
    worst = Fraction(max([0, *(min(x[j] % under, -x[j] % under) for j in form.integer)]), under)
    for kind, start, stop, more in form.cones:
        if kind in ("zero", "nonneg"):
            at = [i for i in range(start, stop) if s[i] < 0 or (s[i] and kind == "zero")]
            worst = max([worst, *(Fraction(abs(s[i]), sizes[i]) for i in at)])
            far, spare = max([far, *(abs(s[i]) for i in at)]), spare + sum(s[i] * z[i] for i in at)
        else:  # a step along the axis of the cone
            worst, far = max(worst, off), max(far, up := math.ceil(off * max(sizes[start:stop])))
            price = sum(z[i] for i in range(start, stop) if i in form.heads)
            up = min(up, spare // price) if price else up
            moved = [s[i] + up * (i in form.heads) for i in range(start, stop)]
            require(inside(kind, moved, more, False), f"the {kind} cone at row {start} is violated")
    return worst, Fraction(far, form.unit * under), spare


def bound(form: Form, proof: Any) -> str:
    """Check a bound, a point and the gap between them; return what they prove."""
    claim = proof["claim"]
    low, tolerance, off = (number(claim[key]) for key in ("bound", "tolerance", "violation"))
    least = leaves(form, proof["tree"], claim)
    require(least is None or low <= least, f"the multipliers prove {float(least or 0):.17g} only")
    require(claim["cut"] is None or low <= number(claim["cut"]), "the bound is above its own cut")
    x, under = vector(proof["point"], form.n, "point")
    z, over = form.dual if "multipliers" in proof["tree"] else ([0] * form.m, 1)
    size, radius = max(form.scale(), abs(varying := form.varying(x, under))), claim["radius"]
    spare = math.floor(tolerance * size * form.unit * under * over)
    worst, absolute, left = violation(form, x, under, off, z, spare)
    require(worst <= off <= tolerance <= 1, f"violated by {float(worst):.3g}, or more, or above 1")
    require(left >= 0, "at the multipliers, violations are worth more than the tolerance")
    value = varying + Fraction(form.offset, form.unit)
    near = radius is not None and number(radius) * under < 1000 * max([under, *map(abs, x)])
    require(not near, "the radius is too small")
    slip = abs(value - number(claim["objective"])) - abs(value) / 2**52
    require(slip <= 0, f"the objective of the point is {float(value):.17g}")
    require((gap := abs(value - low) / size) <= tolerance, f"the gap {float(gap):.3g} exceeds it")
    figures = f"objective {float(form.sign * value):.12g}, bound {float(form.sign * low):.12g}"
    figures += f", gap {float(gap):.1e}, violation {float(worst):.1e}"
    where = "" if radius is None else f" for |x| <= {float(number(radius)):.3g}"
    return f"proved{where}: {figures} (absolute {float(absolute):.1e}, tolerance {float(tolerance):.0e})"


def unbounded(form: Form, proof: Any) -> str:
    """Check a feasible point and a direction along which the objective falls for ever."""
    x, under = vector(proof["point"], form.n, "point")
    d, _ = vector(proof["direction"], form.n, "direction")
    s = [v * under - a for v, a in zip(form.b, form.times(form.A, x, form.m), strict=True)]
    form.holds(s, "the point is not feasible")
    require(all(x[j] % under == 0 for j in form.integer), "the point is not integer")
    form.holds([-v for v in form.times(form.A, d, form.m)], "the direction leaves the constraints")
    require(not any(form.times(form.P, d, form.n)), "the objective is curved along the direction")
    require(sum(map(int.__mul__, form.q, d)) < 0, "the objective does not fall along the direction")
    return "proved: the objective improves without limit"


def check(document: Any) -> str:
    """Return what a document proves, in one line; raise `Rejected` when that is not its claim."""
    try:
        require(document["format"] == FORMAT, f"it is no {FORMAT}")
        require(document["schema"] == SCHEMA, f"this program reads schema {SCHEMA} only")
        rest = {k: v for k, v in document.items() if k != "digest"}
        require(digest(rest) == document["digest"], "its numbers are not those it was saved with")
        form, proof, kind = Form(document["form"]), document["proof"], document["kind"]
        if kind in ("bound", "unbounded"):
            return bound(form, proof) if kind == "bound" else unbounded(form, proof)
        require(kind == "infeasible", f"kind {kind!r} is not decided by this program")
        require(leaves(form, proof["tree"], {}) is None, "a leaf bounds, and excludes no points")
        return "proved: no point satisfies the constraints"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise Rejected(f"it is malformed: {type(e).__name__}: {e}") from None


def main(paths: list[str]) -> int:
    """Check files, say what each proves, and return 0 for all, 1 if one is not, 2 without any."""
    read = json.JSONDecoder(object_pairs_hook=lambda p: len(dict(p)) == len(p) and dict(p))
    failed = 0 if paths else 2
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                verdict = check(read.decode(file.read()))  # two entries of a name are no object
        except (Rejected, OSError, ValueError, RecursionError) as e:
            failed, verdict = 1, f"NOT proved: {e}"
        sys.stdout.write(f"{path}: {verdict}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
