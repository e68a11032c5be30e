r"""MPS: the format of linear programs in columns, read line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.formats.file_problem import Disjunctions
from optfair.formats.layout import Products, Rows, RowsInProgress
from optfair.formats.text import Source

# The COLUMNS section of an MPS file, read all at once: it is nearly all of a file.

# words, numbers of their lines, and words of a line, of the lines with so many words
Group = tuple[list[str], NDArray[np.int64], int]
# fields of lines at the positions of fixed format, and how many each line has up to its last
Fields = tuple[NDArray[np.str_], NDArray[np.int64]]


class ColumnLines:
    """Lines of a column and one or two pairs of row and number, and integer markers.

    Parameters
    ----------
    source : Source
        The file.
    f : RowsInProgress
        Where columns and entries are added.
    goal : str
        Label of the objective.
    row, column : dict
        Label -> position; columns are added.
    summed : bool
        Whether two numbers for one place are added up instead of refused.
    """

    def __init__(
        self,
        source: Source,
        f: RowsInProgress,
        goal: str,
        row: dict[str, int],
        column: dict[str, int],
        summed: bool,
    ) -> None:
        self.source, self.f, self.goal = source, f, goal
        self.row, self.column, self.sum = row, column, summed

    def _groups(self, start: int, stop: int, fields: Fields | None) -> list[Group]:
        lines = self.source.lines[start:stop]
        number = np.arange(start + 1, stop + 1)
        if fields is not None:
            text, size = fields
            # an empty field repeats the column of the line above
            own = np.where((size > 0) & (text[:, 0] != ""), np.arange(1, len(lines) + 1), 0)
            above = np.maximum.accumulate(own) - 1
            if (none := (size > 0) & (above < 0)).any():
                self.source.line = int(number[none][0])
                raise self.source.fail("this line has no column, and no line above it has")
            text[:, 0] = text[above, 0]
        else:
            size = self.source.words[start:stop].copy()
            size[[k for k, line in enumerate(lines) if line[:1] == "*"]] = 0
        groups = []
        for length in np.unique(size[size > 0]).tolist():
            at = np.flatnonzero(size == length)
            if fields is not None:
                words = text[at, :length].ravel().tolist()
            elif at.size == len(lines):
                words = "\n".join(lines).split()
            else:
                words = "\n".join([lines[k] for k in at.tolist()]).split()
            groups.append((words, number[at], length))
        return groups

    def read(self, start: int, stop: int, fields: Fields | None) -> int:
        """Read the lines from ``start`` up to ``stop``.

        Parameters
        ----------
        start, stop : int
            Positions in the source.
        fields : pair of arrays, optional
            The words of each line, and how many; by default they are separated by spaces.

        Returns
        -------
        int
            Number of the first line with too many or too few words, 0 if there is none.
        """
        groups = self._groups(start, stop, fields)
        wrong = [int(lines[0]) for _, lines, length in groups if length not in (3, 5)]
        if wrong:
            return min(wrong)
        marks, starts = self._markers(groups)
        first: dict[str, int] = {}  # line on which a column stands first
        parts = []
        for words, lines, length in groups:
            names = words[::length]
            if length == 3 and marks:
                kept = np.flatnonzero(~np.isin(lines, marks)).tolist()
                lines, names = lines[kept], [names[k] for k in kept]
                pairs = [([words[3 * k + 1] for k in kept], [words[3 * k + 2] for k in kept])]
            else:
                pairs = [(words[k::length], words[k + 1 :: length]) for k in range(1, length, 2)]
            begin = dict(zip(reversed(names), lines[::-1].tolist(), strict=True))
            first = {**begin, **{k: min(v, begin.get(k, v)) for k, v in first.items()}}
            parts += [(names, lines, rows, texts) for rows, texts in pairs]
        new = [name for name in sorted(first, key=first.__getitem__) if name not in self.column]
        self.column.update(zip(new, count(len(self.f.columns)), strict=False))
        self.f.add_columns(new)
        for names, lines, _, _ in parts if starts else []:
            inside = np.searchsorted(marks, lines)
            for name in {names[k] for k in np.flatnonzero(np.array(starts)[inside]).tolist()}:
                j = self.column[name]
                self.f.integer[j], self.f.upper[j] = True, 1.0  # where no bound is given
        entries = [self._entries(*part) for part in parts]
        if entries:
            self._add(*(np.concatenate(each) for each in zip(*entries, strict=True)))
        return 0

    def _markers(self, groups: list[Group]) -> tuple[list[int], list[bool]]:
        """Return the lines of integer markers, and whether columns behind each are integer."""
        marks: list[int] = []
        starts = [False]
        for words, lines, length in groups:
            if length != 3:
                continue
            for k, middle in enumerate(words[1::3]):
                if "marker" not in middle.lower() or middle.strip("'\"").upper() != "MARKER":
                    continue
                self.source.line = int(lines[k])
                marker = words[3 * k + 2].strip("'\"").upper()
                if marker not in ("INTORG", "INTEND"):
                    raise self.source.fail(f"the marker {words[3 * k + 2]} is not known here")
                marks.append(int(lines[k]))
                starts.append(marker == "INTORG")
        return (marks, starts) if marks else ([], [])

    def _entries(
        self, names: list[str], lines: NDArray[np.int64], rows: list[str], texts: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return row (-1 for the objective), column, value and line of one pair of each line."""
        place = {self.goal: -1, **self.row}
        try:
            i = np.fromiter(map(place.__getitem__, rows), np.int64, len(rows))
        except KeyError:
            k = next(k for k, name in enumerate(rows) if name not in place)
            self.source.line = int(lines[k])
            raise self.source.fail(f"there is no row {rows[k]!r}") from None
        j = np.fromiter(map(self.column.__getitem__, names), np.int64, len(names))
        return i, j, self.source.numbers(texts, lambda k: int(lines[k])), lines

    def _add(
        self, i: NDArray[np.int64], j: NDArray[np.int64], value: NDArray[Any], lines: NDArray[Any]
    ) -> None:
        """Add entries, none of which may be there twice."""
        key = np.sort((i + 1) * len(self.f.columns) + j)
        if not self.sum and (key[1:] == key[:-1]).any():
            key = (i + 1) * len(self.f.columns) + j
            order = np.lexsort((lines, key))
            twice = order[1:][np.diff(key[order]) == 0]
            k = int(twice[np.argmin(lines[twice])])
            self.source.line = int(lines[k])
            row = self.goal if i[k] < 0 else self.f.rows[int(i[k])]
            raise self.source.twice(f"{self.f.columns[int(j[k])]!r} has two entries in {row!r}")
        goal = i < 0
        for column, v in zip(j[goal].tolist(), value[goal].tolist(), strict=True):
            self.f.cost[column] += v
        body = ~goal
        self.f.entries.append((i[body], j[body], value[body]))


# Read MPS and QPS files.

#: what to do with two numbers for one place
Duplicates = Literal["refuse", "sum"]
_QUADRATIC = ("QUADOBJ", "QMATRIX", "QSECTION", "QCMATRIX")
# the sides of each type of row
_SIDES = {"N": (-np.inf, np.inf), "L": (-np.inf, 0.0), "G": (0.0, np.inf), "E": (0.0, 0.0)}
# what each kind of bound makes of the lower and the upper one; None leaves it
_BOUNDS: dict[str, tuple[float | Literal["value"] | None, float | Literal["value"] | None]] = {
    **dict.fromkeys(("UP", "UI", "SC", "SI"), (None, "value")),
    **dict.fromkeys(("LO", "LI"), ("value", None)),
    "FX": ("value", "value"),
    "FR": (-np.inf, np.inf),
    "MI": (-np.inf, None),
    "PL": (None, np.inf),
    "BV": (0.0, 1.0),
}
# how lines begin that are no heads of sections
_INSIDE = frozenset(("", " ", "\t", "*"))
# where the fields of fixed format are, and what lies between them
_FIELDS = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))
_WIDTH = 61
_BETWEEN = sorted(set(range(_WIDTH)).difference(*(range(*field) for field in _FIELDS)))
# fields at whose beginning a dollar sign makes the rest of the line a comment
_COMMENT = (14, 39)


def read_mps(path: Path, duplicates: Duplicates = "refuse") -> Rows:
    """Read a free MPS file, or a fixed one, whose names may hold spaces.

    Known are OBJSENSE, OBJNAME, ROWS, COLUMNS with integer markers, RHS, RANGES, BOUNDS
    (semicontinuous SC and SI too), QUADOBJ, QMATRIX, QSECTION, QCMATRIX, SOS and INDICATORS.
    The first N row is the objective, further N rows are free. A file that is no free one is
    read by the positions of fixed format, in which a column that is left out is that of the line
    above, and a dollar sign at the third or fifth field begins a comment.

    Parameters
    ----------
    path : Path
        Which file.
    duplicates : {"refuse", "sum"}
        What to do with two numbers for one place, and with the two triangles of a quadratic
        section that differ.

    Raises
    ------
    DataError
        What cannot be read or is not known, with the number of the line.
    """
    source = Source(path)
    try:
        return _Reader(source, duplicates, fixed=False).read()
    except _NotFree as free:
        try:
            return _Reader(source, duplicates, fixed=True).read()
        except _NotFixed:
            raise DataError(free.cause, free.evidence, free.remedy) from None


class _NotFree(DataError):
    """A line has too many or too few words: names may hold spaces."""


class _NotFixed(DataError):
    """A line does not keep to the positions of fixed format."""


@dataclass
class _Section:
    """A head line and the lines of data below it."""

    name: str
    head: list[str]
    line: int
    first: int
    stop: int


class _Reader:
    def __init__(self, source: Source, duplicates: Duplicates, *, fixed: bool) -> None:
        self.source, self.fixed, self.sum = source, fixed, duplicates == "sum"
        self.f = RowsInProgress()
        self.row: dict[str, int] = {}
        self.kind: list[str] = []
        self.column: dict[str, int] = {}
        self.goal, self.stated = "", False  # and whether there is a row of that name
        self.bounded: dict[int, dict[str, float]] = {}
        self.given: dict[str, dict[str, float]] = {"RHS": {}, "RANGES": {}}
        self.later = Disjunctions()
        self.section = ""
        self.vector: dict[str, str] = {}

    def read(self) -> Rows:
        """Read every section."""
        each: dict[str, Callable[[list[str]], None]] = {
            "OBJSENSE": self._sense,
            "OBJNAME": self._goal_name,
            "ROWS": self._rows,
            "RHS": self._sides,
            "RANGES": self._sides,
            "BOUNDS": self._bounds,
            "SOS": self._ordered_sets,
            "SETS": self._ordered_sets,
            "INDICATORS": self._indicators,
        }
        known = sorted({*each, "COLUMNS", *_QUADRATIC})
        ended = False
        for s in self._sections():
            self.section, self.source.line = s.name, s.line
            if ended:
                raise self.source.fail("there is text after ENDATA")
            if s.name == "ENDATA":
                ended = True
            elif s.name == "OBJSENSE" and s.head:
                self._sense(s.head)
            elif s.name not in {*known, "NAME"}:
                raise self.source.fail(
                    f"the section {s.name} is not known here", "known are " + ", ".join(known)
                )
            if s.name == "COLUMNS":
                if self.f.columns:
                    raise self.source.fail("the section COLUMNS is there already")
                self._columns(s)
            elif s.name in _QUADRATIC:
                self._products(s)
            else:
                for words in self._data(s):
                    if s.name not in each:
                        reason = "after ENDATA" if ended else "before the first section"
                        raise self.source.fail(f"there is text {reason}")
                    each[s.name](words)
        self.source.line = len(self.source.lines)
        if not ended:
            raise self.source.fail("the file ends without ENDATA", "check that it is complete")
        if not self.f.columns:
            raise self.source.fail("the file has no columns")
        self._close()
        return self.f.finished()

    def _sections(self) -> Iterator[_Section]:
        lines = self.source.lines
        heads = [k for k, line in enumerate(lines) if line[:1] not in _INSIDE and line.strip()]
        for k, stop in zip([-1, *heads], [*heads, len(lines)], strict=True):
            words = lines[k].split() if k >= 0 else [""]
            if k >= 0 or any(x.strip() and x[0] != "*" for x in lines[:stop]):
                yield _Section(words[0].upper(), words[1:], k + 1, k + 1, stop)

    def _data(self, s: _Section) -> Iterator[list[str]]:
        """Return the words of each line of data, the position kept for errors."""
        lines = self.source.lines[s.first : s.stop]
        if self.fixed:
            text, size = self._fields(s)
            each = ([*row[:n]] for row, n in zip(text.tolist(), size.tolist(), strict=True))
        else:
            each = ([] if line[:1] == "*" else line.split() for line in lines)
        for self.source.line, words in enumerate(each, start=s.first + 1):
            if words:
                yield words

    def _fields(self, s: _Section) -> Fields:
        """Return the words of all lines of a section by their positions."""
        lines = ["" if x[:1] == "*" else x for x in self.source.lines[s.first : s.stop]]
        for k in [k for k, line in enumerate(lines) if "$" in line]:
            for comment in _COMMENT:
                if lines[k][comment : comment + 1] == "$":
                    lines[k] = lines[k][:comment]
        marks: dict[int, list[str]] = {}  # they stand anywhere in their lines
        for k in [k for k, line in enumerate(lines) if "'MARKER'" in line]:
            if s.name == "COLUMNS" and len(words := lines[k].split()) == 3:
                marks[k], lines[k] = words, ""
        text = np.array(lines, dtype=f"<U{_WIDTH}")
        letters = text.view(np.uint32).reshape(len(lines), _WIDTH)
        wrong = (letters == ord("\t")).any(axis=1)
        wrong |= ~np.isin(letters[:, _BETWEEN], (0, ord(" "))).all(axis=1)
        if wrong.any():
            self.source.line = s.first + 1 + int(wrong.argmax())
            failed = self.source.fail("this line has no fields at the positions of fixed format")
            raise _NotFixed(failed.cause, failed.evidence, failed.remedy)
        first = 0 if s.name in ("ROWS", "BOUNDS", "SOS", "INDICATORS") else 1
        fields = np.stack(
            [
                np.char.strip(np.ascontiguousarray(letters[:, a:b]).view(f"<U{b - a}").ravel())
                for a, b in _FIELDS[first:]
            ],
            axis=1,
        )
        for k, words in marks.items():
            fields[k, :3] = words
        # a number goes on to its end
        long = {k: x[_FIELDS[-1][0] :].split() for k, x in enumerate(lines) if x[_WIDTH:].strip()}
        long = {k: rest for k, rest in long.items() if not lines[k][_WIDTH].isspace()}
        if long:
            fields = fields.astype(f"<U{max(12, *(len(rest[0]) for rest in long.values()))}")
            fields[list(long), -1] = [rest[0] for rest in long.values()]
        last = fields.shape[1] - (fields != "")[:, ::-1].argmax(axis=1)
        return fields, np.where((fields != "").any(axis=1), last, 0)

    def _not_free(self, reason: str) -> DataError:
        e = self.source.fail(reason)
        return e if self.fixed else _NotFree(e.cause, e.evidence, e.remedy)

    def _sense(self, words: list[str]) -> None:
        word = words[0].upper()
        if word not in ("MAX", "MAXIMIZE", "MAXIMISE", "MIN", "MINIMIZE", "MINIMISE"):
            raise self.source.fail(f"{words[0]!r} is neither MIN nor MAX")
        self.f.maximize = word.startswith("MAX")

    def _goal_name(self, words: list[str]) -> None:
        self.goal = words[0]

    def _rows(self, words: list[str]) -> None:
        kind = words[0].upper()
        if len(words) != 2 or kind not in _SIDES:
            raise self._not_free("a row is a type N, L, G or E and a name")
        name = words[1]
        if name in self.row or (name == self.goal and kind != "N"):
            raise self.source.fail(f"the row {name!r} is there already")
        if kind == "N" and self.goal in ("", name):
            self.goal, self.stated = name, True
            return
        self.row[name] = len(self.kind)
        self.kind.append(kind)
        self.f.add_row(name, *_SIDES[kind], {})

    def _row_of(self, name: str) -> int:
        if name not in self.row:
            raise self.source.fail(f"there is no row {name!r}")
        return self.row[name]

    def _column_of(self, name: str) -> int:
        if name not in self.column:
            raise self.source.fail(f"there is no column {name!r}")
        return self.column[name]

    def _columns(self, s: _Section) -> None:
        reader = ColumnLines(self.source, self.f, self.goal, self.row, self.column, self.sum)
        wrong = reader.read(s.first, s.stop, self._fields(s) if self.fixed else None)
        if wrong:
            self.source.line = wrong
            reason = "a column line has a column and one or two pairs of row, number"
            raise self._not_free(reason)

    # --- sides and bounds --------------------------------------------------------------------

    def _sides(self, words: list[str]) -> None:
        """Read right-hand sides or ranges; the name of the vector may be left out."""
        if len(words) < 2:
            raise self._not_free("a side is a row and a number")
        pairs = words[1:] if len(words) % 2 else words
        self._one_vector(words[: len(words) % 2])
        given = self.given[self.section]
        for name, text in zip(pairs[::2], pairs[1::2], strict=True):
            value = self.source.number(text)
            if name in given and not self.sum:
                raise self.source.fail(f"{name!r} is there already")
            if name != self.goal or self.section == "RANGES":
                i = self._row_of(name)
                if self.section == "RANGES" and self.kind[i] == "N":
                    raise self.source.fail(f"the free row {name!r} has no range")
            given[name] = given.get(name, 0.0) + value

    def _one_vector(self, name: list[str]) -> None:
        """Refuse a second vector of sides or bounds: readers take the first, or all of them."""
        if name and name[0] != (first := self.vector.setdefault(self.section, name[0])):
            raise self.source.fail(
                f"{name[0]!r} is a second vector of {self.section}, beside {first!r}",
                "readers take the first, or all: leave one",
            )

    def _bounds(self, words: list[str]) -> None:
        kind, *rest = words
        kind = kind.upper()
        needs = kind not in ("FR", "MI", "PL", "BV")
        if needs and len(rest) in (2, 3):
            self._one_vector(rest[:-2])
            column, text = rest[-2:]
        elif not needs and len(rest) in (1, 2, 3):
            # the name of the vector may be left out, a number may stand though nobody needs it
            column = rest[0] if len(rest) == 1 else rest[1] if rest[1] in self.column else rest[0]
            self._one_vector(rest[:1] if len(rest) > 1 and column == rest[1] else [])
            text = "0"
        else:
            raise self._not_free("a bound is a type, a set, a column and a number")
        j = self._column_of(column)
        f, value = self.f, self.source.number(text, bound=True)
        if f.integer[j] and j not in self.bounded:
            f.upper[j] = np.inf  # bounds that are given replace the default of integers
        if kind not in _BOUNDS:
            raise self.source.fail(f"the bound {words[0]} is not known here")
        before = self.bounded.setdefault(j, {})
        if before.setdefault(kind, value) != value:
            raise self.source.fail(
                f"{column!r} has two different bounds {kind}",
                "readers take the first or the last: leave one",
            )
        low, high = _BOUNDS[kind]
        if kind in ("UP", "UI", "SC", "SI") and value < 0.0 and f.lower[j] == 0.0:
            raise self.source.fail(
                f"{column!r} has the upper bound {text} and no lower bound before it",
                "readers disagree on the lower bound: write MI or LO first",
            )
        f.lower[j] = value if low == "value" else f.lower[j] if low is None else low
        f.upper[j] = value if high == "value" else f.upper[j] if high is None else high
        f.integer[j] |= kind in ("UI", "LI", "BV", "SI")
        if kind in ("SC", "SI"):
            self.later.semicontinuous[j] = self.source.line
        if f.lower[j] > f.upper[j] or f.lower[j] == np.inf or f.upper[j] == -np.inf:
            raise self.source.fail(f"{column!r} has no value between its bounds")

    # --- products, sets, indicators ----------------------------------------------------------

    def _products(self, s: _Section) -> None:
        """Read a matrix as products of columns, each pair once."""
        name = s.head[0] if s.head else ""
        of_row = s.name == "QCMATRIX" or (s.name == "QSECTION" and name not in ("", self.goal))
        row = self._row_of(name) if of_row else -1
        if not of_row and name not in ("", self.goal):
            raise self.source.fail(f"{s.name} is about the objective, which is {self.goal!r}")
        if row in self.f.row_products or (not of_row and self.f.products):
            raise self.source.fail("there are products already")
        entries: dict[tuple[int, int], float] = {}
        lines: dict[tuple[int, int], int] = {}
        for words in self._data(s):
            if len(words) != 3:
                raise self._not_free("an entry is a column, a column and a number")
            pair = (self._column_of(words[0]), self._column_of(words[1]))
            if pair in entries and not self.sum:
                raise self.source.fail(f"{words[0]!r}, {words[1]!r} is there already")
            entries[pair] = entries.get(pair, 0.0) + self.source.number(words[2])
            lines[pair] = self.source.line
        upper = {i < j for i, j in entries if i != j}  # MOSEK writes one triangle, CPLEX both
        triangular = s.name == "QUADOBJ" or (s.name == "QSECTION" and len(upper) == 1)
        scale = 1.0 if s.name == "QCMATRIX" else 0.5
        products: Products = {}
        for (i, j), v in entries.items():
            self.source.line = lines[i, j]
            if not triangular and i != j and entries.get((j, i)) != v and not self.sum:
                raise self.source.fail(
                    f"the section {s.name} is not symmetric at"
                    f" {self.f.columns[i]!r}, {self.f.columns[j]!r}",
                    'correct the file, or take the half of both: of.read(path, duplicates="sum")',
                )
            if triangular and i != j and (j, i) in entries and not self.sum:
                raise self.source.fail("QUADOBJ has both triangles")
            both = 2.0 if triangular and i != j else 1.0
            pair = min(i, j), max(i, j)
            products[pair] = products.get(pair, 0.0) + scale * both * v
        if of_row:
            self.f.row_products[row] = products
        elif products:
            self.f.products = products

    def _ordered_sets(self, words: list[str]) -> None:
        kind = words[0].upper()
        if kind in ("S1", "S2") and len(words) > 1:
            # S1 set, or S1 SOS set priority
            name = words[1] if len(words) == 2 else words[2]
            self.later.sets.append((name, int(kind[1]), [], self.source.line))
            return
        member = [w for w in words if w][-2:]
        if not self.later.sets or len(member) != 2:
            raise self.source.fail("a set is S1 or S2 and a name, then columns and weights")
        entry = self._column_of(member[0]), self.source.number(member[1])
        self.later.sets[-1][2].append(entry)

    def _indicators(self, words: list[str]) -> None:
        if len(words) != 4 or words[0].upper() != "IF" or words[3] not in ("0", "1"):
            raise self.source.fail("an indicator is IF, a row, a binary column and 0 or 1")
        i, j = self._row_of(words[1]), self._column_of(words[2])
        if any(row == i for row, *_ in self.later.indicators):
            raise self.source.fail(f"the row {words[1]!r} has an indicator already")
        self.later.indicators.append((i, j, int(words[3]), self.source.line))

    def _close(self) -> None:
        """Turn what is left into rows, once every bound and side is known."""
        f = self.f
        if self.goal and not self.stated:
            raise self.source.fail(f"there is no row {self.goal!r}, which OBJNAME names")
        f.offset = -self.given["RHS"].pop(self.goal, -0.0) + 0.0
        for name, value in self.given["RHS"].items():
            i = self.row[name]
            if self.kind[i] in "GE":
                f.row_lower[i] = value
            if self.kind[i] in "LE":
                f.row_upper[i] = value
        for name, value in self.given["RANGES"].items():
            i = self.row[name]
            if self.kind[i] == "G" or (self.kind[i] == "E" and value >= 0.0):
                f.row_upper[i] = f.row_lower[i] + abs(value)
            else:  # the sign counts for an equality
                f.row_lower[i] = f.row_upper[i] - abs(value)
        self.later.add_to(f, self.source)
