"""Semidefinite programs in the sparse format of SDPA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.export import ConeProgram
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.term import ConstraintTerm
from optfair.errors import UnsupportedProblem
from optfair.formats.cbf import triangle
from optfair.formats.file_problem import FileProblem
from optfair.formats.layout import Rows, unique_names
from optfair.formats.mps import Duplicates
from optfair.formats.text import Source, number, stating
from optfair.numbers import Floats
from optfair.proofs.cones import Cone, below_semidefinite

Indices = NDArray[np.int64]

#: a comment that carries names and sense, as JSON
MARK = "* names "
_WIDTH = 60_000
_SEPARATORS = str.maketrans(",(){}", "     ")


def read_sdpa(path: Path, duplicates: Duplicates) -> FileProblem:
    r"""Read a semidefinite program in the sparse format of SDPA.

    .. math:: \min_x\; c^T x \quad\text{s.t.}\quad \sum_i x_i F_i - F_0 \succeq 0

    Blocks of the matrices are terms ``block 1``, ``block 2``, ...; the variable is ``x``. Names
    that `export` has written in a comment are used instead.

    Parameters
    ----------
    path : Path
        Which file.
    duplicates : {"refuse", "sum"}
        What to do with two numbers for one place; i, j and j, i are one place.

    Raises
    ------
    DataError
        What cannot be read, with the number of the line.
    """
    return _Reader(Source(path), duplicates).read()


class _Reader:
    def __init__(self, source: Source, duplicates: Duplicates) -> None:
        self.source, self.sum = source, duplicates == "sum"
        said = source.stated(MARK)
        fine = all(isinstance(v, (list, bool)) for v in said.values())
        self.names = said if fine else {}

    def read(self) -> FileProblem:
        """Read the head, the costs and the entries."""
        head = takewhile(self._is_comment, self.source.lines)
        m, at = self._counts(sum(1 for _ in head), 1)
        blocks, at = self._counts(at, 1)
        if not m[0] or not blocks[0]:
            raise self.source.fail("a program has at least one column and one block")
        sizes, at = self._counts(at, blocks[0], signed=True)
        cost, at = self._costs(at, m[0])
        return self._problem(np.array(sizes), cost, *self._entries(at, m[0], np.array(sizes)))

    def _is_comment(self, line: str) -> bool:
        return line[:1] in ('"', "*") or not line.strip()

    def _counts(self, at: int, count: int, *, signed: bool = False) -> tuple[list[int], int]:
        """Return so many integers, and the next line; what stands behind them is a comment."""
        counts: list[int] = []
        while len(counts) < count:
            if at >= len(self.source.lines):
                self.source.line = len(self.source.lines)
                raise self.source.fail("the file ends within its head", "check that it is complete")
            self.source.line = at + 1
            words = self.source.lines[at].translate(_SEPARATORS).replace("=", " = ").split()
            at += 1
            for word in words[: count - len(counts)]:
                minus = signed and word.startswith("-")
                size = self.source.integer(word.lstrip("+-") if signed else word)
                if signed and not size:
                    raise self.source.fail("a block of order 0")
                counts.append(-size if minus else size)
        if signed:
            self.source.declared(sum(-n if n < 0 else n * n for n in counts), "entries of blocks")
        return counts, at

    def _costs(self, at: int, count: int) -> tuple[Floats, int]:
        words: list[str] = []
        lines: list[int] = []
        while len(words) < count and at < len(self.source.lines):
            more = self.source.lines[at].translate(_SEPARATORS).split()
            words += more
            at += 1
            lines += [at] * len(more)
        self.source.line = at
        if len(words) != count:
            raise self.source.fail(f"{len(words)} costs for {count} columns")
        return self.source.numbers(words, lines.__getitem__), at

    def _entries(
        self, at: int, m: int, sizes: Indices
    ) -> tuple[Indices, Indices, Indices, Indices, Floats]:
        """Return matrix, block (from 0), row, column (from 0, i <= j) and value of each entry."""
        texts = [line.translate(_SEPARATORS) for line in self.source.lines[at:]]
        count = np.array([len(text.split()) for text in texts], dtype=np.int64)
        line = np.arange(at + 1, len(self.source.lines) + 1)[count > 0]
        wrong = np.flatnonzero(count[count > 0] != 5)
        if wrong.size:
            self.source.line = int(line[wrong[0]])
            raise self.source.fail("an entry is a matrix, a block, a row, a column and a number")
        words = "\n".join(texts).split()
        value = self.source.numbers(words[4::5], lambda k: int(line[k]))
        k, b, i, j = (self._integers(words[c::5], line) for c in range(4))
        order = np.abs(sizes)[np.clip(b - 1, 0, sizes.size - 1)]
        for bad, reason in (
            (k > m, f"the matrix is outside: there are {m}"),
            ((b < 1) | (b > sizes.size), f"the block is outside: there are {sizes.size}"),
            ((i < 1) | (j < 1) | (np.maximum(i, j) > order), "the place is outside its block"),
            ((i != j) & (sizes[np.clip(b - 1, 0, sizes.size - 1)] < 0), "the block is diagonal"),
        ):
            if bad.any():
                self.source.line = int(line[np.argmax(bad)])
                raise self.source.fail(reason)
        low, high = np.minimum(i, j), np.maximum(i, j)
        sort = np.lexsort((line, high, low, b, k))
        same = np.ones(sort.size - 1, dtype=bool) if sort.size else np.zeros(0, dtype=bool)
        for part in (k, b, low, high):
            same &= part[sort][1:] == part[sort][:-1]
        if same.any() and not self.sum:
            self.source.line = int(line[sort[1:][same]].min())
            raise self.source.twice()
        return k, b - 1, low - 1, high - 1, value

    def _integers(self, words: list[str], line: Indices) -> Indices:
        try:
            joined = "".join(words)  # Python has other spellings too, and signs
            if words and not (joined.isascii() and joined.isdigit()):
                raise ValueError
            return np.array(list(map(int, words)), dtype=np.int64)
        except (ValueError, OverflowError):
            for k, word in enumerate(words):
                self.source.line = int(line[k])
                self.source.integer(word)
            raise self.source.fail("an index is not a count") from None

    def _problem(
        self,
        sizes: Indices,
        cost: Floats,
        k: Indices,
        b: Indices,
        i: Indices,
        j: Indices,
        value: Floats,
    ) -> FileProblem:
        m = cost.size
        given = [str(name) for name in self.names.get("columns", [])]
        columns = given if len(given) == m == len(set(given)) else [f"x[{c}]" for c in range(m)]
        title = [str(name) for name in self.names.get("blocks", [])]
        names = title if len(title) == sizes.size else [f"block {c + 1}" for c in range(sizes.size)]
        flat = (sizes < 0) | (sizes == 1)
        start = np.concatenate([[0], np.cumsum(np.where(flat, np.abs(sizes), 0))])
        own = flat[b]
        row, first = start[b[own]] + i[own], k[own] == 0
        side = np.zeros(start[-1])
        np.add.at(side, row[first], value[own][first])
        entries = (value[own][~first], (row[~first], k[own][~first] - 1))
        A = sp.csr_array(entries, shape=(int(start[-1]), m))
        A.eliminate_zeros()
        labels = [f"{names[c]}[{r}]" for c in np.flatnonzero(flat) for r in range(abs(sizes[c]))]
        given = [str(name) for name in self.names.get("rows", [])]
        labels = given if len(given) == len(labels) else labels
        sign = -1.0 if self.names.get("maximize") is True else 1.0
        base = FileProblem(
            Rows(
                columns=columns,
                rows=labels,
                cost=sign * cost,
                lower=np.full(m, -np.inf),
                upper=np.full(m, np.inf),
                integer=np.zeros(m, dtype=bool),
                A=A,
                row_lower=side,
                row_upper=np.full(side.size, np.inf),
                maximize=sign < 0.0,
            ),
            self.source.path.name,
        )
        parts = []
        for c in np.flatnonzero(~flat).tolist():
            at = b == c
            block = _Semidefinite(base, int(sizes[c]), k[at], i[at], j[at], value[at])
            parts.append((names[c], block.term(names[c])))
        return base.extended({}, parts)


@dataclass(frozen=True, eq=False)
class _Semidefinite:
    """One block: symmetric matrices by their upper triangle, F_0 among them."""

    problem: FileProblem
    order: int
    k: Indices
    i: Indices
    j: Indices
    value: Floats

    def build(self) -> Any:
        """Return the constraint in CVXPY."""
        n, whole = self.order, self.problem.rows.cost.size
        off = self.i != self.j
        place = np.concatenate([self.i + n * self.j, (self.j + n * self.i)[off]])
        k, value = np.concatenate([self.k, self.k[off]]), np.r_[self.value, self.value[off]]
        moving = k > 0
        H = sp.csc_array((value[moving], (place[moving], k[moving] - 1)), shape=(n * n, whole))
        fixed = (value[~moving], (place[~moving] % n, place[~moving] // n))
        matrix = cp.reshape(self.problem.times(H), (n, n), order="F")
        return matrix - sp.csc_array(fixed, shape=(n, n)) >> 0

    def violation(self, values: Mapping[str, Any]) -> Floats:
        """Return how far the least eigenvalue is below 0."""
        x = np.concatenate([[-1.0], self.problem.point(values)])
        entries = (self.value * x[self.k], (self.i, self.j))
        upper = sp.csr_array(entries, shape=(self.order, self.order)).toarray()
        whole = upper + np.triu(upper, 1).T
        if not np.isfinite(whole).all():
            return np.array(np.nan)
        return np.array(below_semidefinite(whole))

    def term(self, name: str) -> ConstraintTerm:
        """Return the term; it is affine in the cone by construction, so nothing is analysed."""
        own = ProblemClass(cones=frozenset({"psd"}))
        return ConstraintTerm(
            name=name,
            scope=frozenset(self.problem.variables),
            evidence=Evidence(name, "affine", "PSD", own),
            build=self.build,
            violation=self.violation,
            shape=(self.order, self.order),
            scale=float(np.abs(self.value[self.k == 0]).max(initial=0.0)),
        )


def sdpa_lines(program: ConeProgram, title: str) -> Iterator[str]:
    """Return the lines of a file in the sparse format of SDPA, of cones that blocks can say.

    b - Ax in the cones is its sum of x_i F_i - F_0. An equality is written as two inequalities,
    a second-order cone as the block with its head on the diagonal and its tail beside it,
    a maximisation as the minimisation of the negative objective, and a constant of the objective as
    the cost of a further column that is 1.

    Raises
    ------
    UnsupportedProblem
        A variable is integer, a cone is exponential or a power cone, or there is no constraint.
    """
    if not program.b.size:
        raise UnsupportedProblem(
            "the problem has no constraint",
            ".dat-s files have at least one column and one block",
            "export to .mps or .cbf",
        )
    if program.integer.any():
        name = program.columns[int(np.argmax(program.integer))]
        raise UnsupportedProblem(
            f"{name!r} is integer", ".dat-s has continuous columns only", "export to .mps or .cbf"
        )
    if curved := [c for c in program.cones if c.kind in ("exp", "pow")]:
        raise UnsupportedProblem(
            f"{_owner(program, curved[0].start)!r} has cones that are not semidefinite",
            ".dat-s has linear and semidefinite blocks",
            "export to .cbf",
        )
    zero = [np.arange(c.start, c.stop) for c in program.cones if c.kind == "zero"]
    least = [np.arange(c.start, c.stop) for c in program.cones if c.kind == "nonneg"]
    matrices = [c for c in program.cones if c.kind in ("psd", "soc")]
    none = np.zeros(0, dtype=np.int64)
    equal, plain = np.concatenate([none, *zero]), np.concatenate([none, *least])
    A, b = sp.csr_array(-program.A), program.b
    rows = sp.vstack([A[plain, :], A[equal, :], -A[equal, :]])
    side = np.concatenate([-b[plain], -b[equal], b[equal]])
    labels = [program.rows[r] for r in plain]
    labels += [f"{program.rows[r]} {word}" for word in ("least", "most") for r in equal]
    cost, columns = program.q, list(program.columns)
    if program.offset:
        one = sp.csr_array([[1.0], [-1.0]])
        rows = (
            sp.block_diag([rows, one])
            if rows.shape[0]
            else sp.hstack([sp.csr_array((2, cost.size)), one])
        )
        side = np.concatenate([side, [1.0, -1.0]])
        labels += ["one least", "one most"]
        cost = np.append(cost, program.offset)
        columns.append("one")
    blocks = [_owner(program, c.start) for c in matrices]
    orders = [c.order if c.kind == "psd" else c.stop - c.start for c in matrices]
    orders += [-side.size] if side.size else []
    blocks += ["rows"] if side.size else []
    names = {
        "columns": columns,
        "rows": unique_names(labels),
        "blocks": unique_names(blocks),
        "maximize": bool(program.maximize),
    }
    yield f"* {title}"
    yield from stating(MARK, names, _WIDTH)
    yield from (str(cost.size), str(len(orders)), " ".join(map(str, orders)))
    yield " ".join(number(v + 0.0) for v in cost)
    for at, c in enumerate(matrices, start=1):
        yield from _matrix_lines(at, list(triangle(c) if c.kind == "psd" else _arrow(c)), A, b)
    yield from _diagonal_lines(len(orders), sp.csc_array(rows), side)


def _arrow(c: Cone) -> Iterator[tuple[int, int, int]]:
    """Return (row, i, j) of a block that is semidefinite where a tail is not longer than its head."""
    for k in range(c.stop - c.start):
        yield c.start, k, k
        if k:
            yield c.start + k, k, 0


def _owner(program: ConeProgram, row: int) -> str:
    return next(name for name, start, stop in program.owners if start <= row < stop)


def _matrix_lines(
    block: int, places: list[tuple[int, int, int]], A: Any, b: Floats
) -> Iterator[str]:
    for row, i, j in places:
        own = [(0, -float(b[row]))] if b[row] else []
        own += [
            (int(A.indices[at]) + 1, float(A.data[at])) for at in range(*A.indptr[row : row + 2])
        ]
        for k, v in own:
            if v:
                yield f"{k} {block} {j + 1} {i + 1} {number(v)}"


def _diagonal_lines(block: int, rows: Any, side: Floats) -> Iterator[str]:
    for r in np.flatnonzero(side).tolist():
        yield f"0 {block} {r + 1} {r + 1} {number(side[r])}"
    for c in range(rows.shape[1]):
        for at in range(rows.indptr[c], rows.indptr[c + 1]):
            r = int(rows.indices[at]) + 1
            if rows.data[at]:
                yield f"{c + 1} {block} {r} {r} {number(rows.data[at])}"
