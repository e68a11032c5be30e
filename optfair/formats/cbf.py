"""The conic benchmark format, read and written."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.export import ConeProgram
from optfair.formats.file_problem import FileProblem
from optfair.formats.layout import Rows
from optfair.formats.mps import Duplicates
from optfair.formats.text import Source, number, stating
from optfair.numbers import Floats
from optfair.proofs.cones import Cone

# Write a cone program in CBF (conic benchmark format), version 3.

#: comments that carry the names of columns and blocks of rows, as JSON
MARK = "# names "
_WIDTH = 400
_SCALAR = {"zero": "L=", "nonneg": "L+", "soc": "Q", "exp": "EXP"}


def cbf_lines(program: ConeProgram, title: str) -> Iterator[str]:
    """Return the lines of a CBF file.

    The format has affine functions in cones: s = b - Ax of the cone program is its g(x). It
    has no quadratic objective, and lists an exponential cone in the reverse order
    (z, y, x with z >= y exp(x/y)). Semidefinite blocks are written as matrices: lower
    triangle, each off-diagonal entry once; rows of the program have no factor √2.
    """
    sign = -1.0 if program.maximize else 1.0
    A, b = sp.csr_array(-program.A), program.b
    scalar = [c for c in program.cones if c.kind != "psd"]
    matrices = [c for c in program.cones if c.kind == "psd"]
    yield f"# {title}"
    yield from stating(MARK, _names(program, scalar, matrices), _WIDTH)
    yield from ("VER", "3", "")
    powers = [c for c in scalar if c.kind == "pow"]
    if powers:
        yield from ("POWCONES", f"{len(powers)} {2 * len(powers)}")
        for c in powers:
            yield from ("2", number(c.power), number(1.0 - c.power))
        yield ""
    yield from ("OBJSENSE", "MAX" if program.maximize else "MIN", "")
    if matrices:
        yield from ("PSDCON", str(len(matrices)), *(str(c.order) for c in matrices), "")
    yield from ("VAR", f"{program.q.size} 1", f"F {program.q.size}", "")
    integer = np.flatnonzero(program.integer)
    if integer.size:
        yield from ("INT", str(integer.size), *map(str, integer), "")
    order, domains = _scalar_rows(scalar)
    if order.size:
        yield from ("CON", f"{order.size} {len(domains)}", *domains, "")
    cost = np.flatnonzero(program.q)
    yield from _section("OBJACOORD", ((str(j), sign * program.q[j]) for j in cost))
    if program.offset:
        yield from ("OBJBCOORD", number(sign * program.offset), "")
    rows = sp.coo_array(A[order, :])
    entries = zip(rows.row, rows.col, rows.data, strict=True)
    yield from _section("ACOORD", ((f"{i} {j}", v) for i, j, v in entries if v))
    yield from _section("BCOORD", ((str(i), b[order[i]]) for i in np.flatnonzero(b[order])))
    if matrices:
        yield from _section("HCOORD", _matrix_entries(A, matrices))
        constants = (
            (f"{k} {i} {j}", b[row])
            for k, c in enumerate(matrices)
            for row, i, j in triangle(c)
            if b[row]
        )
        yield from _section("DCOORD", constants)


def _section(head: str, entries: Any) -> Iterator[str]:
    lines = [f"{where} {number(value)}" for where, value in entries]
    if lines:
        yield from (head, str(len(lines)), *lines, "")


def _scalar_rows(cones: list[Cone]) -> tuple[NDArray[np.int64], list[str]]:
    """Return rows in the order of the file, and one domain per cone."""
    order: list[NDArray[Any]] = [np.zeros(0, dtype=np.int64)]
    domains = []
    power = 0
    for c in cones:
        rows = np.arange(c.start, c.stop)
        order.append(rows[::-1] if c.kind == "exp" else rows)
        if c.kind == "pow":
            domains.append(f"@{power}:POW 3")
            power += 1
        else:
            domains.append(f"{_SCALAR[c.kind]} {rows.size}")
    return np.concatenate(order), domains


def triangle(c: Cone) -> Iterator[tuple[int, int, int]]:
    """Return (row, i, j) with i >= j of each entry of a semidefinite block."""
    i, j = np.tril_indices(c.order)
    if not c.upper:  # column by column over the lower triangle
        j, i = np.triu_indices(c.order)
    return zip(range(c.start, c.stop), i.tolist(), j.tolist(), strict=True)


def _matrix_entries(A: Any, matrices: list[Cone]) -> Iterator[tuple[str, float]]:
    for k, c in enumerate(matrices):
        for row, i, j in triangle(c):
            for at in range(A.indptr[row], A.indptr[row + 1]):
                v = float(A.data[at])
                if v:
                    yield f"{k} {A.indices[at]} {i} {j}", v


def _names(program: ConeProgram, scalar: list[Cone], matrices: list[Cone]) -> dict[str, Any]:
    """Return names of columns, and of rows: (name, first row, one past the last) in the file.

    Where rows are called more than by their number, their labels stand beside.
    """
    starts = [start for _, start, _ in program.owners]

    def owner(row: int) -> tuple[str, int, int]:
        return program.owners[bisect.bisect_right(starts, row) - 1]

    rows: list[list[Any]] = []
    labels: list[str] = []
    named = False
    at = 0
    for c in scalar:
        start = c.start
        while start < c.stop:
            name, _, stop = owner(start)
            stop = min(stop, c.stop)
            rows.append([name, at, at + stop - start])
            own = program.rows[start:stop]
            counted = [f"{name}[{k}]" for k in range(len(own))]
            named = named or list(own) not in ([name], counted)
            labels += own
            at, start = at + stop - start, stop
    return {
        "columns": list(program.columns),
        "rows": rows,
        "matrices": [owner(c.start)[0] for c in matrices],
        **({"labels": labels} if named else {}),
    }


# Read CBF files (conic benchmark format, versions 1 to 4).

_LINEAR = ("L=", "L+", "L-")
_CONES = ("F", "L=", "L+", "L-", "Q", "QR", "EXP")


def read_cbf(path: Path, duplicates: Duplicates) -> FileProblem:
    """Read a CBF file into a problem.

    Known are linear, second-order and rotated, semidefinite, exponential and power cones of
    three entries, integer variables, and semidefinite matrix variables.

    Names are those in the comment that `export` writes; without it the scalar variables are
    one vector ``x``, matrix variables ``X0``, ``X1``, ..., and constraints ``c0``, ``c1``, ...

    Raises
    ------
    DataError
        What cannot be read or is not known, with the number of the line.
    """
    return _Reader(Source(path), duplicates).read()


class _Reader:
    def __init__(self, source: Source, duplicates: Duplicates) -> None:
        self.source, self.sum = source, duplicates == "sum"
        self.maximize = False
        self.names = self._names(source.stated(MARK))
        self.unnamed: set[str] = set()
        self.powers: list[list[float]] = []
        self.domains: dict[str, list[tuple[str, int, int]]] = {"VAR": [], "CON": []}
        self.size = {"VAR": 0, "CON": 0}
        self.orders: dict[str, list[int]] = {"PSDVAR": [], "PSDCON": []}
        self.integer: list[int] = []
        self.offset = 0.0
        self.entries: dict[str, list[tuple[list[int], float]]] = {}

    def read(self) -> FileProblem:
        """Read every section and build the problem."""
        lines = self._lines()
        version, seen = False, set[str]()
        for head in lines:
            if head == "VER":
                number = self.source.integer(next(lines, ""))
                if number not in range(1, 5):
                    raise self.source.fail(
                        f"version {number} is not known here", "known are 1 to 4"
                    )
                version = True
                continue
            if not version:
                raise self.source.fail("the file does not begin with VER")
            if head in seen:
                raise self.source.fail(f"the section {head!r} is there already")
            seen.add(head)
            self._section(head, lines)
        if not version:
            raise self.source.fail("the file is empty")
        return self._problem()

    def _lines(self) -> Iterator[str]:
        for at, line in enumerate(self.source.lines, start=1):
            self.source.line = at
            text = line.strip()
            if text and not text.startswith("#"):
                yield text

    @staticmethod
    def _names(said: dict[str, Any]) -> dict[str, Any]:
        """Return names that can be read, none where some cannot."""
        known = {"columns", "rows", "matrices"} <= set(said)
        fine = (
            known
            and all(isinstance(v, list) for v in said.values())
            and all(
                isinstance(r, list) and len(r) == 3 and {type(r[1]), type(r[2])} == {int}
                for r in said["rows"]
            )
        )
        return said if fine else {}

    def _next(self, lines: Iterator[str], count: int | None) -> list[str]:
        words = next(lines, "").split()
        if not words:
            raise self.source.fail("the file ends within a section", "check that it is complete")
        if count is not None and len(words) != count:
            raise self.source.fail(f"{count} numbers are needed here")
        return words

    def _section(self, head: str, lines: Iterator[str]) -> None:
        if head == "OBJSENSE":
            (word,) = self._next(lines, 1)
            if word not in ("MIN", "MAX"):
                raise self.source.fail(f"{word!r} is neither MIN nor MAX")
            self.maximize = word == "MAX"
        elif head in ("VAR", "CON"):
            self._domains(head, lines)
        elif head in ("PSDVAR", "PSDCON"):
            count = self.source.integer(self._next(lines, 1)[0])
            orders = [self.source.integer(self._next(lines, 1)[0]) for _ in range(count)]
            self.source.declared(sum(n * n for n in orders), "entries of matrices")
            self.orders[head] = orders
        elif head == "INT":
            count = self.source.integer(self._next(lines, 1)[0])
            integers = [self.source.integer(self._next(lines, 1)[0]) for _ in range(count)]
            if any(j >= self.size["VAR"] for j in integers):
                raise self.source.fail("an integer variable is not among the variables")
            self.integer = integers
        elif head == "POWCONES":
            count = self.source.integer(self._next(lines, 2)[0])
            for _ in range(count):
                length = self.source.integer(self._next(lines, 1)[0])
                self.powers.append(
                    [self.source.number(self._next(lines, 1)[0]) for _ in range(length)]
                )
        elif head == "OBJBCOORD":
            self.offset = self.source.number(self._next(lines, 1)[0])
        elif head in _COORDINATES:
            self._coordinates(head, lines)
        else:
            raise self.source.fail(f"the section {head!r} is not known here")

    def _domains(self, head: str, lines: Iterator[str]) -> None:
        words = self._next(lines, 2)
        total, count = (self.source.integer(w) for w in words)
        self.source.declared(total, "entries")
        at = 0
        for _ in range(count):
            kind, text = self._next(lines, 2)
            size = self.source.integer(text)
            known = kind in _CONES or (kind.startswith("@") and kind.endswith(":POW"))
            if not known:
                others = f"known are {', '.join(_CONES)} and @k:POW"
                raise self.source.fail(f"the cone {kind!r} is not known here", others)
            if (kind == "EXP" or kind.startswith("@")) and size != 3:
                raise self.source.fail(f"the cone {kind} has 3 entries here, not {size}")
            if size < {"Q": 1, "QR": 2}.get(kind, 0):
                raise self.source.fail(f"the cone {kind} has too few entries")
            self.domains[head].append((kind, at, at + size))
            at += size
        if at != total:
            raise self.source.fail(f"the cones of {head} have {at} entries, {total} are declared")
        self.size[head] = total

    def _coordinates(self, head: str, lines: Iterator[str]) -> None:
        limits = _COORDINATES[head]
        count = self.source.integer(self._next(lines, 1)[0])
        entries: list[tuple[list[int], float]] = []
        seen: set[tuple[int, ...]] = set()
        for _ in range(count):
            *where, value = self._next(lines, len(limits) + 1)
            index = [self.source.integer(w) for w in where]
            self._check(index, limits)
            # i, j and j, i of a matrix are one place
            place = (*index[:-2], *sorted(index[-2:])) if limits[-1] == "order" else tuple(index)
            if place in seen and not self.sum:
                raise self.source.twice()
            seen.add(place)
            entries.append((index, self.source.number(value)))
        self.entries[head] = entries

    def _check(self, index: list[int], limits: tuple[str, ...]) -> None:
        order = 0
        for i, limit in zip(index, limits, strict=True):
            if limit in ("PSDVAR", "PSDCON"):
                bound = len(self.orders[limit])
                order = self.orders[limit][i] if i < bound else 0
            else:
                bound = order if limit == "order" else self.size[limit]
            if i >= bound:
                raise self.source.fail(f"the index {i} is outside: there are {bound}")

    # --- building ------------------------------------------------------------------------

    def _problem(self) -> FileProblem:
        if not self.size["VAR"] and not self.orders["PSDVAR"]:
            raise self.source.fail("the file has no variables")
        A = self._matrix("ACOORD", self.size["CON"])
        b = np.zeros(self.size["CON"])
        for (i,), v in self.entries.get("BCOORD", []):
            b[i] += v
        blocks = [block for block in self._blocks() if block[0] != "F"]
        inner = {w[0] for w, _ in self.entries.get("FCOORD", [])}
        plain = [
            block
            for block in blocks
            if block[0] in _LINEAR and inner.isdisjoint(range(block[2], block[3]))
        ]
        base = FileProblem(self._linear(A, b, plain), self.source.path.name)
        matrices = [
            cp.Variable((n, n), symmetric=True, name=f"X{k}")
            for k, n in enumerate(self.orders["PSDVAR"])
        ]
        cones = self._variable_cones(base)
        cones += [(f"X{k} psd", X >> 0) for k, X in enumerate(matrices)]
        rest = [block for block in blocks if block not in plain]
        cones += self._rows(base, matrices, A, b, rest) + self._matrix_rows(base)
        goal: Any = 0.0
        for (k, i, j), v in self.entries.get("OBJFCOORD", []):
            goal = goal + v * (1.0 if i == j else 2.0) * matrices[k][i, j]
        named = {f"X{k}": X for k, X in enumerate(matrices)}
        return base.extended(named, cones, goal if "OBJFCOORD" in self.entries else None)

    def _linear(self, A: Any, b: Floats, blocks: list[tuple[str, str, int, int]]) -> Rows:
        """Return linear rows and the bounds of columns."""
        n = self.size["VAR"]
        names = self.names.get("columns", [])
        lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
        for kind, start, stop in self.domains["VAR"]:
            if kind in ("L+", "L="):
                lower[start:stop] = 0.0
            if kind in ("L-", "L="):
                upper[start:stop] = 0.0
        at = np.concatenate([np.zeros(0, int), *(np.arange(low, high) for *_, low, high in blocks)])
        kinds = np.repeat([kind for kind, *_ in blocks], [high - low for *_, low, high in blocks])
        side = 0.0 - b[at]
        labels: list[str] = []
        given = self.names.get("labels", [])
        for _, name, low, high in blocks:
            if len(given) == self.size["CON"]:
                labels += map(str, given[low:high])
                continue
            several = high - low > 1 or name in self.unnamed
            labels += [f"{name}[{k}]" if several else name for k in range(high - low)]
        cost = self._matrix("OBJACOORD", 1, fixed=True).toarray()[0]
        integer = np.zeros(n, dtype=bool)
        integer[self.integer] = True
        own = A[at, :]
        own.eliminate_zeros()
        return Rows(
            columns=[str(c) for c in names] if len(names) == n else [f"x[{j}]" for j in range(n)],
            rows=labels,
            cost=cost,
            lower=lower,
            upper=upper,
            integer=integer,
            A=own,
            row_lower=np.where(kinds == "L-", -np.inf, side),
            row_upper=np.where(kinds == "L+", np.inf, side),
            maximize=self.maximize,
            offset=self.offset,
            groups=np.repeat(np.arange(len(blocks)), [high - low for *_, low, high in blocks]),
        )

    def _matrix(self, head: str, rows: int, *, fixed: bool = False) -> Any:
        entries = self.entries.get(head, [])
        i = [0 if fixed else w[0] for w, _ in entries]
        shape = (rows, self.size["VAR"])
        return sp.csr_array(
            ([v for _, v in entries], (i, [w[-1] for w, _ in entries])), shape=shape
        )

    def _variable_cones(self, base: FileProblem) -> list[tuple[str, Any]]:
        constraints: list[tuple[str, Any]] = []
        for kind, start, stop in self.domains["VAR"]:
            if kind == "F" or kind in _LINEAR or start == stop:
                continue
            pick = sp.csr_array(sp.eye_array(self.size["VAR"], format="csr")[start:stop, :])
            names = base.arrays
            where = next((name for name in names if start in names[name].members), "x")
            cones = self._in_cone(kind, base.times(pick))
            constraints += [(f"{where} in cone", c) for c in cones]
        return constraints

    def _rows(
        self, base: FileProblem, matrices: list[Any], A: Any, b: Floats, blocks: list[Any]
    ) -> list[tuple[str, Any]]:
        inner: dict[int, Any] = {}
        for (i, k, p, q), v in self.entries.get("FCOORD", []):
            part = v * (1.0 if p == q else 2.0) * matrices[k][p, q]
            inner[i] = inner[i] + part if i in inner else part
        named: list[tuple[str, Any]] = []
        for kind, name, low, high in blocks:
            g = base.times(sp.csr_array(A[low:high, :])) + b[low:high]
            rows = [inner.get(i) for i in range(low, high)]
            if any(r is not None for r in rows):
                g = g + cp.hstack([0.0 if r is None else r for r in rows])
            named += [(name, c) for c in self._in_cone(kind, g)]
        return named

    def _blocks(self) -> list[tuple[str, str, int, int]]:
        """Return (cone, name, first row, one past the last) of each constraint.

        Linear rows are split by the names they carry, other cones stay whole; exponential
        cones of one name that follow each other are one constraint.
        """
        named = sorted((int(a), int(b), str(name)) for name, a, b in self.names.get("rows", []))
        starts = [a for a, _, _ in named]
        blocks: list[tuple[str, str, int, int]] = []
        for index, (kind, start, stop) in enumerate(self.domains["CON"]):
            first = max(bisect.bisect_right(starts, start) - 1, 0)
            last = bisect.bisect_left(starts, stop)
            inside = [
                (name, max(a, start), min(b, stop))
                for a, b, name in named[first:last]
                if max(a, start) < min(b, stop)
            ]
            complete = sum(b - a for _, a, b in inside) == stop - start
            if not complete or (len(inside) > 1 and not kind.startswith("L")):
                inside = [(f"c{index}", start, stop)]
                self.unnamed.add(f"c{index}")
            for name, low, high in inside:
                if kind == "EXP" and blocks and blocks[-1][:2] == (kind, name):
                    low = blocks.pop()[2]
                if low < high:
                    blocks.append((kind, name, low, high))
        return blocks

    def _in_cone(self, kind: str, g: Any) -> list[Any]:
        if kind == "L=":
            return [g == 0]
        if kind == "L+":
            return [g >= 0]
        if kind == "L-":
            return [g <= 0]
        if kind == "Q":
            return [cp.SOC(g[0], g[1:])] if g.size > 1 else [g[0] >= 0]
        if kind == "QR":  # (2 g0) g1 >= |g2|^2, g0, g1 >= 0: no number is rounded
            rest = [2.0 * g[2:]] if g.size > 2 else []
            return [cp.SOC(2.0 * g[0] + g[1], cp.hstack([2.0 * g[0] - g[1], *rest]))]
        if kind == "EXP":
            # g0 >= g1 exp(g2 / g1) as g2 + g1 log(g1 / g0) <= 0: the same set, and a function
            # whose value says how far a point is outside
            return [g[2::3] + cp.rel_entr(g[1::3], g[0::3]) <= 0]
        index = int(kind[1:].partition(":")[0]) if kind[1:].partition(":")[0].isdigit() else -1
        if not 0 <= index < len(self.powers) or len(self.powers[index]) != 2:
            raise self.source.fail(f"the power cone {kind!r} has no two exponents")
        first, second = self.powers[index]
        if min(first, second) <= 0.0:
            raise self.source.fail(f"the exponents of {kind!r} are not positive")
        return [cp.PowCone3D(g[0], g[1], g[2], first / (first + second))]

    def _by_matrix(self, head: str) -> dict[int, list[tuple[list[int], float]]]:
        """Return entries by the first of their indices."""
        by = defaultdict[int, list[tuple[list[int], float]]](list)
        for where, v in self.entries.get(head, []):
            by[where[0]].append((where, v))
        return by

    def _matrix_rows(self, base: FileProblem) -> list[tuple[str, Any]]:
        given = self.names.get("matrices", [])
        linear, constant = self._by_matrix("HCOORD"), self._by_matrix("DCOORD")
        named = []
        for k, n in enumerate(self.orders["PSDCON"]):
            both = [(v, i, j) for (_, j, p, q), v in linear[k] for i in {p + n * q, q + n * p}]
            values, rows, columns = zip(*both, strict=True) if both else ((), (), ())
            H = sp.csr_array((values, (rows, columns)), shape=(n * n, self.size["VAR"]))
            D = np.zeros((n, n))
            for (_, p, q), v in constant[k]:
                D[p, q] += v
                D[q, p] = D[p, q]
            matrix = cp.reshape(base.times(H), (n, n), order="F") + D
            name = str(given[k]) if k < len(given) else f"psd {k}"
            named.append((name, matrix >> 0))
        return named


#: section -> what each of its indices counts
_COORDINATES: dict[str, tuple[str, ...]] = {
    "OBJACOORD": ("VAR",),
    "OBJFCOORD": ("PSDVAR", "order", "order"),
    "ACOORD": ("CON", "VAR"),
    "BCOORD": ("CON",),
    "FCOORD": ("CON", "PSDVAR", "order", "order"),
    "HCOORD": ("PSDCON", "VAR", "order", "order"),
    "DCOORD": ("PSDCON", "order", "order"),
}
