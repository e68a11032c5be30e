"""Read MPS files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from optfair.formats.columns import Products
from optfair.formats.file_program import FileProgram
from optfair.formats.lines import Source

__all__ = ["read_mps"]

_QUADRATIC = ("QUADOBJ", "QMATRIX", "QSECTION", "QCMATRIX")


def read_mps(path: Path) -> FileProgram:
    """Read a free or fixed MPS file whose names have no spaces.

    Known are OBJSENSE, OBJNAME, ROWS, COLUMNS with integer markers, RHS,
    RANGES, BOUNDS, QUADOBJ, QMATRIX, QSECTION of the objective and QCMATRIX. The first N row
    is the objective, further N rows are free. Special ordered sets, semicontinuous columns,
    indicators and cones are refused.

    Raises
    ------
    DataError
        What cannot be read or is not known, with the number of the line.
    """
    return _Reader(Source(path)).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.f = FileProgram()
        self.row: dict[str, int] = {}
        self.kind: list[str] = []
        self.column: dict[str, int] = {}
        self.goal = ""
        self.integer = False
        self.bounded: set[int] = set()
        self.seen: set[tuple[int, int]] = set()
        self.given: dict[str, set[str]] = {"RHS": set(), "RANGES": set()}
        self.quadratic: dict[tuple[int, int], float] = {}
        self.section = ""
        self.argument = ""

    def read(self) -> FileProgram:
        """Read every line."""
        handlers: dict[str, Callable[[list[str]], None]] = {
            "OBJSENSE": self._sense,
            "OBJNAME": self._goal_name,
            "ROWS": self._rows,
            "COLUMNS": self._columns,
            "RHS": self._rhs,
            "RANGES": self._ranges,
            "BOUNDS": self._bounds,
            **dict.fromkeys(_QUADRATIC, self._product),
        }
        ended = False
        for at, line in enumerate(self.source.lines, start=1):
            self.source.line = at
            words = line.split()
            if not words or line.startswith("*"):
                continue
            if ended:
                raise self.source.fail("there is text after ENDATA")
            if not line[0].isspace():
                self._close()
                self.section = words[0].upper()
                self.argument = words[1] if len(words) > 1 else ""
                if self.section == "ENDATA":
                    ended = True
                elif self.section == "OBJSENSE" and self.argument:
                    self._sense(words[1:])
                elif self.section == "QCMATRIX" or (
                    self.section == "QSECTION" and self.argument != self.goal
                ):
                    self._row_of(self.argument)
                elif self.section not in {*handlers, "NAME"}:
                    raise self.source.fail(
                        f"the section {words[0]} is not known here",
                        "known are " + ", ".join(sorted(handlers)),
                    )
                continue
            if self.section not in handlers:
                raise self.source.fail("data before the first section")
            handlers[self.section](words)
        self.source.line = len(self.source.lines)
        if not ended:
            raise self.source.fail("the file ends without ENDATA", "check that it is complete")
        if not self.f.columns:
            raise self.source.fail("the file has no columns")
        return self.f

    def _sense(self, words: list[str]) -> None:
        word = words[0].upper()
        if word not in ("MAX", "MAXIMIZE", "MAXIMISE", "MIN", "MINIMIZE", "MINIMISE"):
            raise self.source.fail(f"{words[0]!r} is neither MIN nor MAX")
        self.f.maximize = word.startswith("MAX")

    def _goal_name(self, words: list[str]) -> None:
        self.goal = words[0]

    def _rows(self, words: list[str]) -> None:
        if len(words) != 2 or words[0].upper() not in "NLGE":
            raise self.source.fail("a row is a type N, L, G or E and a name without spaces")
        kind, name = words[0].upper(), words[1]
        if name in self.row or (name == self.goal and kind != "N"):
            raise self.source.fail(f"the row {name!r} is there already")
        if kind == "N" and self.goal in ("", name):
            self.goal = name
            return
        self.row[name] = len(self.f.rows)
        self.kind.append(kind)
        self.f.rows.append(name)
        self.f.row_lower.append(0.0 if kind in "GE" else -np.inf)
        self.f.row_upper.append(0.0 if kind in "LE" else np.inf)

    def _row_of(self, name: str) -> int:
        if name not in self.row:
            raise self.source.fail(f"there is no row {name!r}")
        return self.row[name]

    def _column_of(self, name: str) -> int:
        if name not in self.column:
            raise self.source.fail(f"there is no column {name!r}")
        return self.column[name]

    def _columns(self, words: list[str]) -> None:
        if len(words) >= 3 and words[1].strip("'\"").upper() == "MARKER":
            marker = words[2].strip("'\"").upper()
            if marker not in ("INTORG", "INTEND"):
                raise self.source.fail(f"the marker {words[2]} is not known here")
            self.integer = marker == "INTORG"
            return
        if len(words) not in (3, 5):
            raise self.source.fail("a column line has a column and one or two pairs of row, number")
        name = words[0]
        if name not in self.column:
            self.column[name] = self.f.add_column(name, integer=self.integer)
            if self.integer:  # what readers agree on where no bound is given
                self.f.upper[-1] = 1.0
        j = self.column[name]
        for row, text in zip(words[1::2], words[2::2], strict=True):
            value = self.source.number(text)
            if row == self.goal:
                if (-1, j) in self.seen:
                    raise self.source.fail(f"{name!r} has two entries in {row!r}")
                self.seen.add((-1, j))
                self.f.cost[j] = value
                continue
            i = self._row_of(row)
            if (i, j) in self.seen:
                raise self.source.fail(f"{name!r} has two entries in {row!r}")
            self.seen.add((i, j))
            self.f.entries.append((i, j, value))

    def _pairs(self, words: list[str]) -> list[tuple[str, float]]:
        pairs = words[1:] if len(words) % 2 else words  # the name of the vector may be left out
        found = [(r, self.source.number(v)) for r, v in zip(pairs[::2], pairs[1::2], strict=True)]
        for row, _ in found:
            if row in self.given[self.section]:
                raise self.source.fail(f"{row!r} is there already")
            self.given[self.section].add(row)
        return found

    def _rhs(self, words: list[str]) -> None:
        for name, value in self._pairs(words):
            if name == self.goal:
                self.f.offset = -value
                continue
            i = self._row_of(name)
            if self.kind[i] in "GE":
                self.f.row_lower[i] = value
            if self.kind[i] in "LE":
                self.f.row_upper[i] = value

    def _ranges(self, words: list[str]) -> None:
        for name, value in self._pairs(words):
            i = self._row_of(name)
            if self.kind[i] == "N":
                raise self.source.fail(f"the free row {name!r} has no range")
            if self.kind[i] == "G":
                self.f.row_upper[i] = self.f.row_lower[i] + abs(value)
            elif self.kind[i] == "L":
                self.f.row_lower[i] = self.f.row_upper[i] - abs(value)
            elif value >= 0.0:  # the sign counts for an equality
                self.f.row_upper[i] = self.f.row_lower[i] + value
            else:
                self.f.row_lower[i] = self.f.row_upper[i] + value

    def _bounds(self, words: list[str]) -> None:
        kind = words[0].upper()
        needs = kind not in ("FR", "MI", "PL", "BV")
        rest = words[1:]
        if needs and len(rest) in (2, 3):
            column, text = rest[-2], rest[-1]
        elif not needs and len(rest) in (1, 2, 3):
            # the name of the vector may be left out, a number may stand though nobody needs it
            column = rest[0] if len(rest) == 1 else rest[1] if rest[1] in self.column else rest[0]
            text = "0"
        else:
            raise self.source.fail("a bound is a type, a set, a column and a number")
        j = self._column_of(column)
        f, value = self.f, self.source.number(text, bound=True)
        if f.integer[j] and j not in self.bounded:
            f.upper[j] = np.inf  # bounds that are given replace the default of integers
        self.bounded.add(j)
        if kind in ("UP", "UI"):
            f.upper[j] = value
            if value < 0.0 and f.lower[j] == 0.0:
                raise self.source.fail(
                    f"{column!r} has the upper bound {text} and no lower bound before it",
                    "readers disagree on the lower bound: write MI or LO first",
                )
        elif kind in ("LO", "LI"):
            f.lower[j] = value
        elif kind == "FX":
            f.lower[j] = f.upper[j] = value
        elif kind == "FR":
            f.lower[j], f.upper[j] = -np.inf, np.inf
        elif kind == "MI":
            f.lower[j] = -np.inf
        elif kind == "PL":
            f.upper[j] = np.inf
        elif kind == "BV":
            f.lower[j], f.upper[j] = 0.0, 1.0
        else:
            raise self.source.fail(f"the bound {words[0]} is not known here")
        f.integer[j] |= kind in ("UI", "LI", "BV")
        if f.lower[j] > f.upper[j] or f.lower[j] == np.inf or f.upper[j] == -np.inf:
            raise self.source.fail(f"{column!r} has no value between its bounds")

    def _product(self, words: list[str]) -> None:
        if len(words) != 3:
            raise self.source.fail("an entry is a column, a column and a number")
        pair = (self._column_of(words[0]), self._column_of(words[1]))
        if pair in self.quadratic:
            raise self.source.fail(f"{words[0]!r}, {words[1]!r} is there already")
        self.quadratic[pair] = self.source.number(words[2])

    def _close(self) -> None:
        """Turn the matrix of the section that ends into products of columns."""
        if not self.quadratic:
            return
        entries, self.quadratic = self.quadratic, {}
        triangular = self.section == "QUADOBJ"
        row = self.section == "QCMATRIX" or (
            self.section == "QSECTION" and self.argument != self.goal
        )
        scale = 1.0 if row and self.section == "QCMATRIX" else 0.5
        products: Products = {}
        for (i, j), v in entries.items():
            low, high = min(i, j), max(i, j)
            if not triangular and i != j and entries.get((j, i)) != v:
                raise self.source.fail(
                    f"the section {self.section} before this line is not symmetric at"
                    f" {self.f.columns[i]!r}, {self.f.columns[j]!r}"
                )
            if triangular and i != j and (j, i) in entries:
                raise self.source.fail("QUADOBJ before this line has both triangles")
            both = 2.0 if triangular and i != j else 1.0
            products[low, high] = products.get((low, high), 0.0) + scale * both * v
        if row:
            self.f.row_products[self.row[self.argument]] = products
        else:
            self.f.products = products
