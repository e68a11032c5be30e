"""The LP format: problems as people write them, read and written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import Program
from optfair.core.labels import free_name
from optfair.errors import DataError, UnsupportedProblem
from optfair.formats.file_problem import Disjunctions
from optfair.formats.layout import Products, Rows, RowsInProgress, entry_names
from optfair.formats.text import INFINITE, SECTIONS, Source, number

# Write a program in LP format (the dialect of CPLEX).

_PER_LINE = 6
#: a column fixed at 1 that carries the constant of the objective: readers disagree on bare numbers
ONE = "ONE_VAR_CONSTANT"
# names, in small letters, that some reader takes for something else
RESERVED = (ONE.lower(), "lazy", "pwlobj", "nan")


def lp_lines(program: Program, title: str) -> Iterator[str]:
    """Return the lines of an LP file.

    Indices stand in parentheses, ``x(3)``, because square brackets enclose quadratic parts.
    The quadratic part of the objective is written as ``[ ... ] / 2``.
    """
    columns, rows = (
        entry_names(blocks, "()", RESERVED) for blocks in (program.columns, program.rows)
    )
    yield f"\\ {title}"
    yield "Maximize" if program.sense == "maximize" else "Minimize"
    goal = "obj"
    while goal in rows:
        goal += "_"
    for name, sides in (
        (rows, program.row_lower),
        (rows, program.row_upper),
        (columns, program.lower),
        (columns, program.upper),
    ):
        far = np.flatnonzero(np.isfinite(sides) & (np.abs(sides) >= INFINITE))
        if far.size:
            raise UnsupportedProblem(
                f"{name[far[0]]!r} has the side {sides[far[0]]:g}",
                f"what is {INFINITE:g} or more is infinite in .lp",
                "write it in other units, or export to .mps or .cbf",
            )
    lower = sp.coo_array(sp.tril(program.P))
    # [ ... ] / 2 holds each product once: off-diagonal entries of P twice
    twice = np.where(lower.row == lower.col, 1.0, 2.0) * lower.data
    curved = program.products.pairs[:, np.unique(program.products.Q.indices)]
    used = np.concatenate([program.A.indices, program.P.indices, curved.ravel()])
    # a column nobody uses is declared with its bounds only if the objective has it
    stated = np.union1d(np.flatnonzero(program.q), np.setdiff1d(np.arange(len(columns)), used))
    linear = _linear(stated.astype(int), program.q[stated.astype(int)], columns)
    constant = [_signed(program.offset, ONE)] if program.offset else []
    parts = [*linear, *constant, *_quadratic(lower.col, lower.row, twice, columns, " / 2")]
    # an objective without terms still needs one
    yield from _wrapped(f" {goal}:", parts or [f"0 {columns[0]}"])
    yield "Subject To"
    A = sp.csr_array(program.A)
    for i, row in enumerate(rows):
        at = slice(A.indptr[i], A.indptr[i + 1])
        parts = _linear(A.indices[at], A.data[at], columns)
        if np.diff(program.products.Q.indptr[i : i + 2])[0]:
            parts += _quadratic(*program.row_products(i), columns, "")
        low, high = program.row_lower[i], program.row_upper[i]
        parts = parts or [f"0 {columns[0]}"]
        if low == high:
            yield from _wrapped(f" {row}:", [*parts, f"= {number(high)}"])
            continue
        if np.isfinite(high):
            yield from _wrapped(f" {row}:", [*parts, f"<= {number(high)}"])
        if np.isfinite(low):
            label = f"{row}_lower" if np.isfinite(high) else row
            yield from _wrapped(f" {label}:", [*parts, f">= {number(low)}"])
    yield "Bounds"
    for j, column in enumerate(columns):
        yield from _bound(column, program.lower[j], program.upper[j])
    if program.offset:
        yield f" {ONE} = 1"
    if program.integer.any():
        yield "General"
        yield from _wrapped("", [columns[j] for j in np.flatnonzero(program.integer)])
    yield "End"


def _bound(column: str, low: float, high: float) -> Iterator[str]:
    if np.isneginf(low) and np.isposinf(high):
        yield f" {column} free"
    elif low == high:
        yield f" {column} = {number(low)}"
    elif np.isposinf(high):
        if low:
            yield f" {column} >= {number(low)}"
    else:
        left = "-inf" if np.isneginf(low) else number(low)
        yield f" {left} <= {column} <= {number(high)}"


def _signed(value: float, what: str) -> str:
    sign = "-" if value < 0.0 else "+"
    return f"{sign} {number(abs(value))} {what}".rstrip()


def _linear(indices: Iterable[Any], values: Iterable[Any], columns: list[str]) -> list[str]:
    return [_signed(v, columns[j]) for j, v in zip(indices, values, strict=True)]


def _quadratic(i: Any, j: Any, values: Any, columns: list[str], after: str) -> list[str]:
    if not len(values):
        return []
    products = [
        _signed(v, f"{columns[a]} ^2" if a == b else f"{columns[a]} * {columns[b]}")
        for a, b, v in zip(i, j, values, strict=True)
    ]
    products[0] = products[0].removeprefix("+ ")
    return ["+ [", *products, f"]{after}"]


def _wrapped(head: str, parts: list[str]) -> Iterator[str]:
    for at in range(0, len(parts), _PER_LINE):
        yield f"{head if at == 0 else '   '} {' '.join(parts[at : at + _PER_LINE])}"


# Read LP files (the dialect of CPLEX).

_REFUSED = ("lazy constraints", "lazy", "user cuts", "pwlobj", "general constraints", "scenario")
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NAME = r"[A-Za-z_!\"#$%&(),;?@'`{}~][A-Za-z0-9_!\"#$%&(),;?@'`{}~.\[\]|]*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<label>{_NAME})\s*:(?!=)|(?P<number>{_NUMBER})|(?P<power>\^\s*2(?![\d.]))"
    rf"|(?P<arrow>->)|(?P<sense><=|>=|=<|=>|<|>|=)|(?P<mark>[+\-*/\[\]])|(?P<name>{_NAME}))"
)
# s1: S1:: x1:1 x2:2
_SET = re.compile(rf"\s*(?:(?P<name>{_NAME})\s*:)?\s*(?P<kind>[sS][12])\s*::(?P<rest>.*)")
_MEMBER = re.compile(rf"\s*(?P<name>{_NAME}?)\s*:\s*(?P<weight>[+-]?{_NUMBER})(?=\s|$)")
_INFINITY = ("inf", "infinity")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def read_lp(path: Path) -> Rows:
    """Read an LP file: linear and quadratic objective and rows, bounds, integers, binaries.

    Semicontinuous columns, special ordered sets and indicator rows become rows with binaries; lazy
    and piecewise linear sections are refused. A column without bounds lies between 0 and
    infinity; one that stands twice in a sum counts twice; a column ``ONE_VAR_CONSTANT`` fixed at 1
    is the constant of the objective.

    Raises
    ------
    DataError
        What cannot be read or is not known, with the number of the line.
    """
    return _Reader(Source(path)).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.f = RowsInProgress()
        self.column: dict[str, int] = {}
        self.rows: set[str] = set()
        self.later = Disjunctions()
        #: what a section consists of, with an empty token behind, and the place of the next one
        self.tokens: list[_Token] = []
        self.at = 0

    def read(self) -> Rows:
        """Read every section."""
        seen: set[str] = set()
        for section, tokens in self._sections():
            line = tokens[-1].line if tokens else self.source.line
            self.tokens, self.at = [*tokens, _Token("end", "", line)], 0
            if section in ("max", "min"):
                if seen & {"max", "min"}:
                    raise self.source.fail("the file has two objectives")
                self.f.maximize = section == "max"
                self._objective()
            elif section == "rows":
                self._rows()
            elif section == "bounds":
                self._bounds()
            elif section == "sets":
                self._ordered_sets()
            else:
                self._listed(section)
            seen.add(section)
        if not seen & {"max", "min"}:
            raise self.source.fail("the file has no objective")
        if not self.f.columns:
            raise self.source.fail("the file has no columns")
        self.later.add_to(self.f, self.source)
        return _without_one(self.f.finished())

    def _sections(self) -> Iterator[tuple[str, list[_Token]]]:
        section = ""
        tokens: list[_Token] = []
        for at, raw in enumerate(self.source.lines, start=1):
            self.source.line = at
            line = raw.split("\\", 1)[0]
            word = " ".join(line.split()).lower()
            if not word:
                continue
            if word in _REFUSED or word.split()[0] in _REFUSED:
                raise self.source.fail(f"the section {word!r} is not known here")
            if section == "end":
                raise self.source.fail("there is text after End")
            head = next((h for h in (word, word.split()[0]) if h in SECTIONS), None)
            two = " ".join(word.split()[:2])
            head = two if two in SECTIONS else head
            # a column may be called like a section, but no section continues with an operator
            rest = line.split(None, len(head.split()))[len(head.split()) :] if head else []
            if head is not None and not (rest and re.match(r"[<>=:+\-*^]", rest[0].lstrip())):
                if section:
                    yield section, tokens
                section, tokens = SECTIONS[head], []
                line = rest[0] if rest else ""
            elif not section:
                raise self.source.fail("the file does not begin with Minimize or Maximize")
            tokens += [_Token("text", line, at)] if section == "sets" else self._tokens(line)
        if not section:
            raise self.source.fail("the file has comments only", "write it again")
        if section != "end":
            raise self.source.fail("the file ends without End", "check that it is complete")

    def _tokens(self, line: str) -> Iterator[_Token]:
        at = 0
        line = line.rstrip()
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None or match.lastgroup is None:
                raise self.source.fail(f"{line[at:].strip()[:20]!r} is not understood")
            kind = match.lastgroup
            yield _Token(kind, match[kind], self.source.line)
            at = match.end()

    @property
    def _next(self) -> _Token:
        return self.tokens[self.at]

    def _taken(self) -> _Token:
        token = self.tokens[self.at]
        self.source.line, self.at = token.line, self.at + 1
        return token

    def _fail(self, reason: str, at: int | None = None) -> DataError:
        self.source.line = self.tokens[self.at if at is None else at].line
        return self.source.fail(reason)

    def _index(self, name: str) -> int:
        if name not in self.column:
            self.column[name] = self.f.add_column(name)
        return self.column[name]

    def _known(self) -> int:
        """Take a column that the objective or a row has."""
        if self._next.kind != "name" or self._next.text not in self.column:
            raise self._fail(f"there is no column {self._next.text!r}")
        return self.column[self._taken().text]

    def _objective(self) -> None:
        if self._next.kind == "label":
            self.at += 1
        linear, self.f.products, self.f.offset = self._expression(halved=True)
        if self._next.kind != "end":
            raise self._fail(f"{self._next.text!r} cannot follow the objective")
        for j, v in linear.items():
            self.f.cost[j] += v

    def _rows(self) -> None:
        named = {token.text for token in self.tokens if token.kind == "label"}
        while self._next.kind != "end":
            labelled = self._next.kind == "label"
            number = f"R{len(self.f.rows) + 1}"
            name = self._taken().text if labelled else free_name(number, named, "_")
            if name in self.rows:
                raise self._fail(f"the row {name!r} is there already")
            self.rows.add(name)
            self._row(name)

    def _row(self, name: str) -> None:
        first, products, constant = self._expression()
        sense, value = self._sense(), self._next
        low, high = -np.inf, np.inf
        if value.kind == "number" and self.tokens[self.at + 1].kind == "arrow":  # b = 1 -> row
            plain = list(first.values()) == [1.0] and not products and constant == 0.0
            if not plain or value.text not in ("0", "1") or sense != "=":
                raise self._fail("an indicator is a binary column = 0 or 1")
            (on,) = first
            self.later.indicators.append((len(self.f.rows), on, int(value.text), value.line))
            self.at += 2
            self._row(name)
            return
        if not first and not products:  # number <= expression (<= number)
            low, high = _side(_flipped(sense), constant, low, high)
            first, products, constant = self._expression()
            if self._next.kind == "sense":
                self._same_way(sense)
                low, high = _side(self._sense(), self._number(), low, high)
        else:
            low, high = _side(sense, self._number(), low, high)
        self._reached(low, high)
        if self._next.kind not in ("label", "number", "name", "mark", "end"):
            raise self._fail(f"{self._next.text!r} cannot stand here")
        i = self.f.add_row(name, low - constant, high - constant, first)
        if products:
            self.f.row_products[i] = products

    def _same_way(self, sense: str) -> None:
        """Refuse a second side that does not point the way of the first."""
        if sense == "=" or self._next.text.replace("=<", "<=").replace("=>", ">=")[0] != sense:
            raise self._fail("the two sides point different ways")

    def _reached(self, low: float, high: float, at: int | None = None) -> None:
        """Refuse sides that no number reaches."""
        if low == np.inf or high == -np.inf:
            raise self._fail("no number is as large as an infinite side", at)

    def _sense(self) -> str:
        if self._next.kind != "sense":
            raise self._fail("a row needs <=, >= or = and a number")
        return self._taken().text.replace("=<", "<=").replace("=>", ">=")[0]

    def _sign(self) -> float:
        """Take the sign that + and - make together."""
        sign = 1.0
        while self._next.text in ("+", "-"):
            sign *= -1.0 if self._taken().text == "-" else 1.0
        return sign

    def _number(self) -> float:
        sign = self._sign()
        if self._next.text.lower() in _INFINITY:
            self.at += 1
            return sign * np.inf
        if self._next.kind != "number":
            raise self._fail("a number is missing")
        return sign * self.source.number(self._taken().text, bound=True)

    def _expression(self, *, halved: bool = False) -> tuple[dict[int, float], Products, float]:
        """Read a sum: its linear part, products, constant."""
        linear: dict[int, list[float]] = {}
        products: dict[tuple[int, int], list[float]] = {}
        constants: list[float] = []
        begin = self.at
        while self._next.kind in ("mark", "number", "name"):
            start = self.at
            value = self._sign()
            if begin < start == self.at:
                break  # the next row, without a name
            numbered = self._next.kind == "number"
            if numbered:
                value *= self.source.number(self._taken().text)
            if self._next.text == "[":
                self.at += 1
                for pair, v in self._bracket(halved=halved):
                    products.setdefault(pair, []).append(value * v)
            elif self._next.kind == "name":
                j = self._index(self._taken().text)
                linear.setdefault(j, []).append(value)
            elif numbered:
                constants.append(value)
            else:
                raise self._fail("a number or a column is missing")
        return (
            {j: math.fsum(each) for j, each in linear.items()},
            {pair: math.fsum(each) for pair, each in products.items()},
            math.fsum(constants),
        )

    def _bracket(self, *, halved: bool) -> list[tuple[tuple[int, int], float]]:
        """Read ``... ]``, and ``/ 2`` behind it in an objective."""
        products: list[tuple[tuple[int, int], float]] = []
        while self._next.kind != "end" and self._next.text != "]":
            value = self._sign()
            if self._next.kind == "number":
                value *= self.source.number(self._taken().text)
            part = self.tokens[self.at : self.at + 3]
            kinds = [t.kind for t in part]
            if kinds[:2] == ["name", "power"]:
                i = j = self._index(part[0].text)
                self.at += 2
            elif kinds == ["name", "mark", "name"] and part[1].text == "*":
                i, j = self._index(part[0].text), self._index(part[2].text)
                self.at += 3
            else:
                raise self._fail("between [ and ] stand x ^2 and x * y")
            products.append(((min(i, j), max(i, j)), value))
        if self._next.kind == "end":
            raise self._fail("a [ has no ]")
        self.at += 1
        if [t.text for t in self.tokens[self.at : self.at + 2]] == ["/", "2"]:
            self.at += 2
            return [(pair, v / 2.0) for pair, v in products]
        if halved:
            raise self._fail("the quadratic part of an objective ends in ] / 2")
        return products

    def _bounds(self) -> None:
        stated: dict[int, int] = {}  # where each column has its last bound
        while self._next.kind != "end":
            start, left = self.at, None
            if self._next.kind != "name" or self._next.text.lower() in _INFINITY:
                number = self._number()
                left = (_flipped(self._sense()), number)
            if self._next.kind != "name":
                raise self._fail("a column is missing")
            name, j = self._next.text, self._known()
            low, high = self.f.lower[j], self.f.upper[j]
            if left is not None:
                low, high = _side(*left, low, high)
            if self._next.text.lower() == "free":
                low, high, self.at = -np.inf, np.inf, self.at + 1
            elif self._next.kind == "sense":
                if left is not None:
                    self._same_way(_flipped(left[0]))
                low, high = _side(self._sense(), self._number(), low, high)
            elif left is None:
                raise self._fail(f"{name!r} has no bound", start)
            self._reached(low, high, start)
            self.f.lower[j], self.f.upper[j], stated[j] = low, high, start
        for j, start in stated.items():
            if self.f.lower[j] > self.f.upper[j]:
                name = self.f.columns[j]
                raise self._fail(f"{name!r} has no value between its bounds", start)

    def _listed(self, section: str) -> None:
        """Read the columns that are integer, binary or semicontinuous."""
        while self._next.kind != "end":
            j = self._known()
            if section == "semicontinuous":
                self.later.semicontinuous[j] = self.source.line
                continue
            self.f.integer[j] = True
            if section == "binary":
                low, high = max(self.f.lower[j], 0.0), min(self.f.upper[j], 1.0)
                if low > high:
                    name = self.f.columns[j]
                    raise self._fail(f"the binary column {name!r} has no value between its bounds")
                self.f.lower[j], self.f.upper[j] = low, high

    def _ordered_sets(self) -> None:
        for t in self.tokens[:-1]:
            self.source.line, text, sets = t.line, t.text, self.later.sets
            head = _SET.match(text)
            if head is not None:
                name = head["name"] or f"set{len(sets) + 1}"
                sets.append((name, int(head["kind"][1]), [], t.line))
                text = head["rest"]
            while text.strip():
                member = _MEMBER.match(text)
                if member is None or not sets:
                    raise self.source.fail("a set is S1:: or S2:: and columns with weights, x:1")
                if member["name"] not in self.column:
                    raise self.source.fail(f"there is no column {member['name']!r}")
                weight = self.source.number(member["weight"])
                sets[-1][2].append((self.column[member["name"]], weight))
                text = text[member.end() :]


def _without_one(f: Rows) -> Rows:
    """Turn the column that carries a constant into that constant."""
    if ONE not in f.columns:
        return f
    j = list(f.columns).index(ONE)
    curved = [P for P in (f.P, *f.row_P.values()) if P is not None]
    if not f.lower[j] == f.upper[j] == 1.0 or any(m[:, [j]].nnz for m in (f.A, *curved)):
        return f
    kept = np.flatnonzero(np.arange(len(f.columns)) != j)
    return replace(
        f,
        columns=[f.columns[k] for k in kept.tolist()],
        cost=f.cost[kept],
        lower=f.lower[kept],
        upper=f.upper[kept],
        integer=f.integer[kept],
        A=f.A[:, kept],
        P=None if f.P is None else f.P[kept, :][:, kept],
        row_P={i: P[kept, :][:, kept] for i, P in f.row_P.items()},
        offset=f.offset + float(f.cost[j]),
    )


def _flipped(sense: str) -> str:
    return {"<": ">", ">": "<", "=": "="}[sense]


def _side(sense: str, number: float, low: float, high: float) -> tuple[float, float]:
    """Return the two sides after ``expression sense number``."""
    if sense == "=":
        return number, number
    return (low, number) if sense == "<" else (number, high)
