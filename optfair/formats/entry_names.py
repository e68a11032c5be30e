"""Names of single columns and rows in files, and the way back to arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optfair.compile.program import Block

__all__ = ["Family", "entry_names", "families", "file_name"]

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
    """Return one name per column or row: ``name``, ``name[3]`` or ``name[0,2]``, all different."""
    taken: set[str] = set()
    found: list[str] = []
    for b in blocks:
        stem = candidate = file_name(b.name)
        i = 1
        while candidate.lower() in taken:
            i += 1
            candidate = f"{stem}_{i}"
        taken.add(candidate.lower())
        if not b.shape:
            found.append(candidate)
            continue
        opening, closing = brackets[0], brackets[1]
        found += [
            f"{candidate}{opening}{','.join(map(str, index))}{closing}" for index in b.indices()
        ]
    return found


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
# x1, x_2, C0003; the number of target.1 is part of its name
_NUMBERED = re.compile(r"^(?P<stem>.*?[^\d.])(?P<index>\d+)$")


def families(names: Sequence[str], kinds: Iterable[object]) -> list[Family]:
    """Group names such as ``x[0]``, ``x[1]`` into arrays.

    Names with the same stem and kind form one array. An index is what stands in brackets at
    the end, else trailing digits not behind a dot. If the indices fill a box that begins at 0 or 1 they are
    its positions; otherwise the array is a vector in the order of the file.

    Parameters
    ----------
    names : sequence of str
        Names in the order of the file.
    kinds : iterable
        What must agree within an array: integrality, type of row.

    Examples
    --------
    >>> [(f.name, f.shape) for f in families(["x[0]", "x[1]", "t", "C1", "C2"], "aaaaa")]
    [('x', (2,)), ('t', ()), ('C', (2,))]
    """
    groups: dict[tuple[str, int, object], list[tuple[int, tuple[int, ...]]]] = {}
    for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        match = _INDEXED.match(name) or _NUMBERED.match(name)
        index = tuple(int(i) for i in re.split("[,;_]", match["index"])) if match else ()
        stem = match["stem"] if match else name
        groups.setdefault((stem, len(index), kind), []).append((at, index))
    found = []
    taken: set[str] = set()
    for (stem, _, _), members in groups.items():
        alone = len(members) == 1 and not _INDEXED.match(names[members[0][0]])
        name = names[members[0][0]] if alone else stem
        label, i = name, 1
        while label in taken:
            i += 1
            label = f"{name} {i}"
        taken.add(label)
        found.append(_array(label, members, alone=alone))
    return found


def _array(name: str, members: list[tuple[int, tuple[int, ...]]], *, alone: bool) -> Family:
    at = np.array([m for m, _ in members], dtype=np.int64)
    if alone or not members[0][1]:
        return Family(name, at, () if len(members) == 1 else (len(members),))
    index = np.array([i for _, i in members], dtype=np.int64)
    low = index.min(axis=0)
    shape = index.max(axis=0) - low + 1
    box = float(np.prod(shape.astype(float)))
    if (low == low[0]).all() and low[0] in (0, 1) and box == len(members):
        place = np.ravel_multi_index(tuple((index - low).T), tuple(shape), order="F")
        if np.unique(place).size == place.size:
            return Family(name, at[np.argsort(place)], tuple(int(s) for s in shape))
    return Family(name, at, (len(members),))
