"""Names of single columns and rows in files, and the way back to arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_from

import numpy as np
from numpy.typing import NDArray

from optfair.compile.program import Block

_KEPT = re.compile(r"[^A-Za-z0-9_.#@%~]")
# words and beginnings that mean something else in LP files
_WORDS = frozenset(
    [
        "max",
        "min",
        "maximize",
        "minimize",
        "maximum",
        "minimum",
        "st",
        "s.t.",
        "such",
        "subject",
        "to",
        "bounds",
        "bound",
        "free",
        "inf",
        "infinity",
        "gen",
        "general",
        "generals",
        "int",
        "integer",
        "integers",
        "bin",
        "binary",
        "binaries",
        "sos",
        "sos1",
        "sos2",
        "semi",
        "semis",
        "semi-continuous",
        "end",
        "range",
        "ranges",
    ]
)
_NUMBER_LIKE = re.compile(r"[0-9.]|[eE][0-9]*$")


def file_name(name: str) -> str:
    """Return a name that every reader takes: ASCII letters, digits and ``_.#@%~``.

    Examples
    --------
    >>> file_name("row marginal"), file_name("2nd"), file_name("free")
    ('row_marginal', '_2nd', 'free_')
    """
    plain = _KEPT.sub("_", name) or "_"
    if plain.lower() in _WORDS:
        plain += "_"
    return f"_{plain}" if _NUMBER_LIKE.match(plain) else plain


def entry_names(blocks: Sequence[Block], brackets: str = "[]") -> list[str]:
    """Return one name per column or row, all different.

    The labels of the block where it has some, else ``name``, ``name[3]`` or ``name[0,2]``.
    """
    taken: set[str] = set()
    found: list[str] = []
    opening, closing = brackets[0], brackets[1]
    for b in blocks:
        if b.labels:
            found += [_free(_plain(label, brackets), taken) for label in b.labels]
            continue
        candidate = _free(file_name(b.name), taken)
        if not b.shape:
            found.append(candidate)
            continue
        found += [
            f"{candidate}{opening}{','.join(map(str, index))}{closing}" for index in b.indices()
        ]
    return found


def _plain(label: str, brackets: str) -> str:
    match = _INDEXED.match(label)
    if match is None:
        return file_name(label)
    index = re.sub("[;_]", ",", match["index"])
    return f"{file_name(match['stem'])}{brackets[0]}{index}{brackets[1]}"


def _free(candidate: str, taken: set[str]) -> str:
    stem, i = candidate, 1
    while candidate.lower() in taken:
        i += 1
        candidate = f"{stem}_{i}"
    taken.add(candidate.lower())
    return candidate


@dataclass(frozen=True, eq=False)
class Family:
    """Columns or rows of a file that form one array.

    Parameters
    ----------
    name : str
        What they share.
    members : array of int
        Positions in the file, in the order of the array (column by column).
    shape : tuple of int
        Shape of the array; () for a single name without index.
    """

    name: str
    members: NDArray[np.int64]
    shape: tuple[int, ...]


_INDEXED = re.compile(r"^(?P<stem>.+?)[\[(](?P<index>-?\d+(?:[,;_]-?\d+)*)[\])]$")
_DIGITS, _CLOSING = "0123456789", ("]", ")")
# an array of more indices, or a longer number, is no array but a name
_MOST_INDICES, _MOST_DIGITS = 8, 15


def suffixed(label: str, word: str) -> str:
    """Return the label of a part of a row or column, which stays an entry of an array.

    Examples
    --------
    >>> suffixed("CAP", "lower"), suffixed("x[3]", "lower")
    ('CAP lower', 'x lower[3]')
    """
    match = _INDEXED.match(label)
    return f"{match['stem']} {word}[{match['index']}]" if match else f"{label} {word}"


class Families(Mapping[str, Family]):
    """Names such as ``x[0]``, ``x[1]`` as arrays, by what they share.

    Names with the same stem and kind form one array. An index is what stands in brackets at
    the end, else trailing digits not behind a dot. If the indices fill a box that begins at 0 or 1 they are
    its positions; otherwise the array is a vector in the order of the file.

    Parameters
    ----------
    names : sequence of str
        Names in the order of the file.
    kinds : iterable
        What must agree within an array: integrality, type of row. None leaves a name out.

    Examples
    --------
    >>> names = ["x[0]", "x[1]", "t", "C1", "C2"]
    >>> [(f.name, f.shape) for f in Families(names, "aaaaa").values()]
    [('x', (2,)), ('t', ()), ('C', (2,))]
    """

    def __init__(self, names: Sequence[str], kinds: Iterable[object]) -> None:
        groups: dict[tuple[str, int, bool, object], list[int]] = {}
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            if kind is None:
                continue
            stem, count = _stem(name)
            key = (stem, count, name[-1:] in _CLOSING, kind)
            if key in groups:
                groups[key].append(at)
            else:
                groups[key] = [at]
        self._names = names
        self._members: dict[str, list[int]] = {}
        self._stems: dict[str, tuple[str, int]] = {}
        for (stem, count, _, _), members in groups.items():
            first = names[members[0]]
            label = first if len(members) == 1 and first[-1:] not in _CLOSING else stem
            if label in self._members:
                label = next(c for i in count_from(2) if (c := f"{label} {i}") not in self._members)
            self._members[label], self._stems[label] = members, (stem, count)
        self._arrays: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        if name not in self._arrays:
            members = self._members[name]
            index = _indices([self._names[m] for m in members], *self._stems[name])
            single = len(members) == 1 and self._names[members[0]][-1:] not in _CLOSING
            if single or not index[0]:
                at = np.array(members, dtype=np.int64)
                shape = () if len(members) == 1 else (len(members),)
                self._arrays[name] = Family(name, at, shape)
            else:
                self._arrays[name] = _array(name, members, index)
        return self._arrays[name]

    def count(self, name: str) -> int:
        """Return the number of entries of an array."""
        return len(self._members[name])

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _stem(name: str) -> tuple[str, int]:
    """Return what an array would be called, and the number of its indices."""
    last = name[-1:]
    if last and last in _DIGITS:  # x1, x_2, C0003; the number of target.1 is part of its name
        stem = name.rstrip(_DIGITS)
        if stem and stem[-1] != "." and len(name) - len(stem) <= _MOST_DIGITS:
            return stem, 1
    elif last in _CLOSING:
        match = _INDEXED.match(name)
        index = re.split("[,;_]", match["index"]) if match else []
        if match and len(index) <= _MOST_INDICES and max(map(len, index)) <= _MOST_DIGITS:
            return match["stem"], len(index)
    return name, 0


def _indices(names: list[str], stem: str, count: int) -> list[tuple[int, ...]]:
    """Return the indices of names that share a stem."""
    start = len(stem)
    if not count:
        return [()] * len(names)
    if names[0][-1] in _DIGITS:
        return [(int(name[start:]),) for name in names]
    if count == 1:
        return [(int(name[start + 1 : -1]),) for name in names]
    return [tuple(map(int, re.split("[,;_]", name[start + 1 : -1]))) for name in names]


def _array(name: str, members: list[int], indices: list[tuple[int, ...]]) -> Family:
    at = np.array(members, dtype=np.int64)
    index = np.array(indices, dtype=np.int64)
    low = index.min(axis=0)
    shape = index.max(axis=0) - low + 1
    box = float(np.prod(shape.astype(float)))
    if (low == low[0]).all() and low[0] in (0, 1) and box == len(members):
        place = np.ravel_multi_index(tuple((index - low).T), tuple(shape), order="F")
        if np.unique(place).size == place.size:
            return Family(name, at[np.argsort(place)], tuple(int(s) for s in shape))
    return Family(name, at, (len(members),))
