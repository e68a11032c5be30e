"""The COLUMNS section of an MPS file, read all at once: it is nearly all of a file."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.formats.rows import RowsInProgress
from optfair.formats.text import Source

__all__ = ["ColumnLines"]

# words, numbers of their lines, and words of a line, of the lines with so many words
Group = tuple[list[str], NDArray[np.int64], int]


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

    def _groups(
        self, start: int, stop: int, split: Callable[[str], list[str]] | None
    ) -> list[Group]:
        lines = self.source.lines[start:stop]
        number = np.arange(start + 1, stop + 1)
        each: list[list[str]] = []
        if split is not None:
            for self.source.line, line in enumerate(lines, start=start + 1):
                each.append(split(line))
            size = np.array([len(words) for words in each], dtype=np.int64)
        else:
            size = np.array([len(line.split()) for line in lines], dtype=np.int64)
            comments = [k for k, line in enumerate(lines) if line[:1] == "*"]
            size[comments] = 0
        found = []
        for length in np.unique(size[size > 0]).tolist():
            at = np.flatnonzero(size == length)
            if split is not None:
                words = [word for k in at for word in each[k]]
            elif at.size == len(lines):
                words = "\n".join(lines).split()
            else:
                words = "\n".join([lines[k] for k in at.tolist()]).split()
            found.append((words, number[at], length))
        return found

    def read(self, start: int, stop: int, split: Callable[[str], list[str]] | None) -> int:
        """Read the lines from ``start`` up to ``stop``.

        Parameters
        ----------
        start, stop : int
            Positions in the source.
        split : callable, optional
            Returns the words of a line; by default they are separated by spaces.

        Returns
        -------
        int
            Number of the first line with too many or too few words, 0 if there is none.
        """
        groups = self._groups(start, stop, split)
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
        found = [self._entries(*part) for part in parts]
        if found:
            self._add(*(np.concatenate(each) for each in zip(*found, strict=True)))
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
            i = np.array(list(map(place.__getitem__, rows)), dtype=np.int64)
        except KeyError:
            k = next(k for k, name in enumerate(rows) if name not in place)
            self.source.line = int(lines[k])
            raise self.source.fail(f"there is no row {rows[k]!r}") from None
        j = np.array(list(map(self.column.__getitem__, names)), dtype=np.int64)
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
            raise self.source.fail(
                f"{self.f.columns[int(j[k])]!r} has two entries in {row!r}",
                'correct the file, or add them up: of.read(path, duplicates="sum")',
            )
        goal = i < 0
        for column, v in zip(j[goal].tolist(), value[goal].tolist(), strict=True):
            self.f.cost[column] += v
        body = ~goal
        self.f.entries.append((i[body], j[body], value[body]))
