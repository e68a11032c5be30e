"""The LP format: problems as people write them, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import Program
from optfair.errors import DataError
from optfair.formats.file_problem import Disjunctions
from optfair.formats.layout import SECTIONS, Products, Rows, RowsInProgress, entry_names
from optfair.formats.text import Source, number

# Write a program in LP format (the dialect of CPLEX).

_PER_LINE = 6
#: a column fixed at 1 that carries the constant of the objective: readers disagree on bare numbers
ONE = "ONE_VAR_CONSTANT"


def lp_lines(program: Program, title: str) -> Iterator[str]:
    """Return the lines of an LP file.

    Indices stand in parentheses, ``x(3)``, because square brackets enclose quadratic parts.
    The quadratic part of the objective is written as ``[ ... ] / 2``.
    """
    columns, rows = entry_names(program.columns, "()"), entry_names(program.rows, "()")
    yield f"\\ {title}"
    yield "Maximize" if program.sense == "maximize" else "Minimize"
    goal = "obj"
    while goal in rows:
        goal += "_"
    lower = sp.coo_array(sp.tril(program.P))
    # [ ... ] / 2 holds each product once: off-diagonal entries of P twice
    twice = np.where(lower.row == lower.col, 1.0, 2.0) * lower.data
    linear = _linear(np.flatnonzero(program.q), program.q[program.q != 0.0], columns)
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

    def read(self) -> Rows:
        """Read every section."""
        seen: set[str] = set()
        for section, tokens in self._sections():
            if section in ("max", "min"):
                if seen & {"max", "min"}:
                    raise self.source.fail("the file has two objectives")
                self.f.maximize = section == "max"
                self._objective(tokens)
            elif section == "rows":
                self._rows(tokens)
            elif section == "bounds":
                self._bounds(tokens)
            elif section == "sets":
                self._ordered_sets(tokens)
            else:
                self._listed(tokens, section)
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

    def _fail(self, tokens: list[_Token], at: int, reason: str) -> DataError:
        if tokens:
            self.source.line = tokens[min(at, len(tokens) - 1)].line
        return self.source.fail(reason)

    def _index(self, name: str) -> int:
        if name not in self.column:
            self.column[name] = self.f.add_column(name)
        return self.column[name]

    def _objective(self, tokens: list[_Token]) -> None:
        at = 1 if tokens and tokens[0].kind == "label" else 0
        linear, products, constant, at = self._expression(tokens, at, halved=True)
        if at < len(tokens):
            raise self._fail(tokens, at, f"{tokens[at].text!r} cannot follow the objective")
        self.f.offset, self.f.products = constant, products
        for j, v in linear.items():
            self.f.cost[j] += v

    def _rows(self, tokens: list[_Token]) -> None:
        at = 0
        while at < len(tokens):
            if tokens[at].kind == "label":
                name, at = tokens[at].text, at + 1
            else:
                name = f"R{len(self.f.rows) + 1}"
            if name in self.rows:
                raise self._fail(tokens, at, f"the row {name!r} is there already")
            self.rows.add(name)
            at = self._row(name, tokens, at)

    def _row(self, name: str, tokens: list[_Token], at: int) -> int:
        first, products, constant, at = self._expression(tokens, at)
        sense, at = self._sense(tokens, at)
        low, high = -np.inf, np.inf
        if [t.kind for t in tokens[at : at + 2]] == ["number", "arrow"]:  # b = 1 -> row
            on = list(first)
            if list(first.values()) != [1.0] or tokens[at].text not in ("0", "1") or sense != "=":
                raise self._fail(tokens, at, "an indicator is a binary column = 0 or 1")
            value, line = int(tokens[at].text), tokens[at].line
            self.later.indicators.append((len(self.f.rows), on[0], value, line))
            return self._row(name, tokens, at + 2)
        if not first and not products:  # number <= expression (<= number)
            low, high = _side(_flipped(sense), constant, low, high)
            first, products, constant, at = self._expression(tokens, at)
            if at < len(tokens) and tokens[at].kind == "sense":
                sense, at = self._sense(tokens, at)
                number, at = self._number(tokens, at)
                low, high = _side(sense, number, low, high)
        else:
            number, at = self._number(tokens, at)
            low, high = _side(sense, number, low, high)
        if at < len(tokens) and tokens[at].kind not in ("label", "number", "name", "mark"):
            raise self._fail(tokens, at, f"{tokens[at].text!r} cannot stand here")
        i = self.f.add_row(name, low - constant, high - constant, first)
        if products:
            self.f.row_products[i] = products
        return at

    def _sense(self, tokens: list[_Token], at: int) -> tuple[str, int]:
        if at >= len(tokens) or tokens[at].kind != "sense":
            raise self._fail(tokens, at, "a row needs <=, >= or = and a number")
        return tokens[at].text.replace("=<", "<=").replace("=>", ">=")[0], at + 1

    def _number(self, tokens: list[_Token], at: int) -> tuple[float, int]:
        sign, at = _signs(tokens, at)
        if at < len(tokens) and tokens[at].text.lower() in _INFINITY:
            return sign * np.inf, at + 1
        if at >= len(tokens) or tokens[at].kind != "number":
            raise self._fail(tokens, at, "a number is missing")
        self.source.line = tokens[at].line
        return sign * self.source.number(tokens[at].text, bound=True), at + 1

    def _expression(
        self, tokens: list[_Token], at: int, *, halved: bool = False
    ) -> tuple[dict[int, float], Products, float, int]:
        """Read a sum: its linear part, products, constant, and where it ends."""
        linear: dict[int, float] = {}
        products: Products = {}
        constant = 0.0
        first = True
        while at < len(tokens) and tokens[at].kind in ("mark", "number", "name"):
            start = at
            sign, at = _signs(tokens, at)
            if not first and at == start:
                break  # the next row, without a name
            first = False
            value, numbered = sign, at < len(tokens) and tokens[at].kind == "number"
            if numbered:
                self.source.line = tokens[at].line
                value, at = sign * self.source.number(tokens[at].text), at + 1
            if at < len(tokens) and tokens[at].text == "[":
                quadratic, at = self._bracket(tokens, at + 1, halved=halved)
                for pair, v in quadratic.items():
                    products[pair] = products.get(pair, 0.0) + value * v
            elif at < len(tokens) and tokens[at].kind == "name":
                j = self._index(tokens[at].text)
                linear[j] = linear.get(j, 0.0) + value
                at += 1
            elif numbered:
                constant += value
            else:
                raise self._fail(tokens, at, "a number or a column is missing")
        return linear, products, constant, at

    def _bracket(self, tokens: list[_Token], at: int, *, halved: bool) -> tuple[Products, int]:
        """Read ``... ]``, and ``/ 2`` behind it in an objective."""
        products: Products = {}
        while at < len(tokens) and tokens[at].text != "]":
            value, at = _signs(tokens, at)
            if at < len(tokens) and tokens[at].kind == "number":
                self.source.line = tokens[at].line
                value, at = value * self.source.number(tokens[at].text), at + 1
            kinds = [t.kind for t in tokens[at : at + 3]]
            if kinds[:2] == ["name", "power"]:
                i = j = self._index(tokens[at].text)
                at += 2
            elif kinds == ["name", "mark", "name"] and tokens[at + 1].text == "*":
                i, j = self._index(tokens[at].text), self._index(tokens[at + 2].text)
                at += 3
            else:
                raise self._fail(tokens, at, "between [ and ] stand x ^2 and x * y")
            pair = (min(i, j), max(i, j))
            products[pair] = products.get(pair, 0.0) + value
        if at >= len(tokens):
            raise self._fail(tokens, at, "a [ has no ]")
        at += 1
        if [t.text for t in tokens[at : at + 2]] == ["/", "2"]:
            return {k: v / 2.0 for k, v in products.items()}, at + 2
        if halved:
            raise self._fail(tokens, at, "the quadratic part of an objective ends in ] / 2")
        return products, at

    def _bounds(self, tokens: list[_Token]) -> None:
        at = 0
        while at < len(tokens):
            start, left = at, None
            if tokens[at].kind != "name" or tokens[at].text.lower() in _INFINITY:
                number, at = self._number(tokens, at)
                sense, at = self._sense(tokens, at)
                left = (_flipped(sense), number)
            if at >= len(tokens) or tokens[at].kind != "name":
                raise self._fail(tokens, at, "a column is missing")
            name = tokens[at].text
            if name not in self.column:
                raise self._fail(tokens, at, f"there is no column {name!r}")
            j, at = self.column[name], at + 1
            low, high = self.f.lower[j], self.f.upper[j]
            if left is not None:
                low, high = _side(*left, low, high)
            if at < len(tokens) and tokens[at].text.lower() == "free":
                low, high, at = -np.inf, np.inf, at + 1
            elif at < len(tokens) and tokens[at].kind == "sense":
                sense, at = self._sense(tokens, at)
                number, at = self._number(tokens, at)
                low, high = _side(sense, number, low, high)
            elif left is None:
                raise self._fail(tokens, start, f"{name!r} has no bound")
            if low > high:
                raise self._fail(tokens, start, f"{name!r} has no value between its bounds")
            self.f.lower[j], self.f.upper[j] = low, high

    def _listed(self, tokens: list[_Token], section: str) -> None:
        """Read the columns that are integer, binary or semicontinuous."""
        for at, t in enumerate(tokens):
            if t.kind != "name" or t.text not in self.column:
                raise self._fail(tokens, at, f"there is no column {t.text!r}")
            j = self.column[t.text]
            if section == "semicontinuous":
                self.later.semicontinuous[j] = t.line
                continue
            self.f.integer[j] = True
            if section == "binary":
                self.f.lower[j], self.f.upper[j] = 0.0, 1.0

    def _ordered_sets(self, tokens: list[_Token]) -> None:
        for t in tokens:
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


def _signs(tokens: list[_Token], at: int) -> tuple[float, int]:
    """Return the sign that + and - make together, and where they end."""
    sign = 1.0
    while at < len(tokens) and tokens[at].text in ("+", "-"):
        sign, at = sign * (-1.0 if tokens[at].text == "-" else 1.0), at + 1
    return sign, at


def _flipped(sense: str) -> str:
    return {"<": ">", ">": "<", "=": "="}[sense]


def _side(sense: str, number: float, low: float, high: float) -> tuple[float, float]:
    """Return the two sides after ``expression sense number``."""
    if sense == "=":
        return number, number
    return (low, number) if sense == "<" else (number, high)
