"""How a problem lies in a file: its columns and rows in arrays, what each is called, and the way back."""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.program import Block
from optfair.core.labels import free_name
from optfair.errors import Known
from optfair.formats.text import KEPT, file_name, spellings
from optfair.numbers import Floats
from optfair.proofs.rounding import distinct

# Names of single columns and rows in files, and the way back to arrays.


def entry_names(
    blocks: Sequence[Block], brackets: str = "[]", reserved: Sequence[str] = ()
) -> list[str]:
    """Return one name per column or row, all different, and none that a format has for something else.

    The labels of the block where it has some, else ``name``, ``name[3]`` or ``name[0,2]``.
    """
    taken: set[str] = set(reserved)
    names: list[str] = []
    opening, closing = brackets[0], brackets[1]
    for b in blocks:
        if b.labels:
            names += [_free(_plain(label, brackets), taken) for label in b.labels]
            continue
        candidate = _free(file_name(b.name), taken)
        if not b.shape:
            names.append(candidate)
            continue
        places = [f"{opening}{','.join(map(str, index))}{closing}" for index in b.indices()]
        while not taken.isdisjoint(f"{candidate}{place}".lower() for place in places):
            candidate = _free(file_name(b.name), taken)
        taken.update(f"{candidate}{place}".lower() for place in places)
        names += [f"{candidate}{place}" for place in places]
    return names


def _plain(label: str, brackets: str) -> str:
    match = _INDEXED.match(label)
    if match is not None:
        index = ",".join(_parts(match["index"]))
    elif (match := _LABELLED.match(label)) is not None:
        index = ",".join(KEPT.sub("_", part.strip()) for part in _parts(match["index"]))
    else:
        return file_name(label)
    return f"{file_name(match['stem'])}{brackets[0]}{index}{brackets[1]}"


def _free(candidate: str, taken: set[str]) -> str:
    labelled = _LABELLED.match(candidate) is not None and _INDEXED.match(candidate) is None
    stem, end, i = candidate[:-1] if labelled else candidate, candidate[-1:] * labelled, 1
    while candidate.lower() in taken:
        i += 1
        candidate = f"{stem}_{i}{end}"
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


_BETWEEN, _BETWEEN_NUMBERS = r"(?:,|[\])][\[(])", r"(?:[,;_]|[\])][\[(])"
_NUMBERS = re.compile(rf"-?\d+(?:{_BETWEEN_NUMBERS}-?\d+)*")
_INDEXED = re.compile(rf"^(?P<stem>.+?(?<![\])]))[\[(](?P<index>{_NUMBERS.pattern})[\])]$")
_LABELLED = re.compile(r"^(?P<stem>[^\[(]+)[\[(](?P<index>.+)[\])]$")
_DIGITS, _CLOSING = "0123456789", ("]", ")")
# an array of more indices, or a longer number, is no array but a name
_MOST_INDICES, _MOST_DIGITS = 8, 15


def suffixed(label: str, word: str) -> str:
    """Return the label of a part of a row or column, which stays an entry of an array.

    Examples
    --------
    >>> suffixed("CAP", "lower"), suffixed("x[3]", "lower"), suffixed("x[Bonn]", "lower")
    ('CAP lower', 'x lower[3]', 'x lower[Bonn]')
    """
    match = _INDEXED.match(label) or _LABELLED.match(label)
    return f"{match['stem']} {word}[{match['index']}]" if match else f"{label} {word}"


def index_labels(labels: Sequence[str], axes: int = 1) -> tuple[Any, ...]:
    """Return what tells the labels of an array apart, along each axis; nothing where they are counted.

    Examples
    --------
    >>> index_labels(["x[Bonn]", "x[Kiel]"]), index_labels(["a", "x[0]"]), index_labels(["x1", "x2"])
    (('Bonn', 'Kiel'), ('a', 'x[0]'), ())
    >>> index_labels(["x[a,0]", "x[b,0]", "x[a,1]", "x[b,1]"], 2)
    (('a', 'b'), None)
    """
    if len({_stem(label) for label in labels}) > 1:
        return tuple(labels)
    stem, count = _stem(labels[0])
    closing = labels[0][-1] in _CLOSING
    if not count and (not closing or stem == labels[0]):
        return ()
    index = [label[len(stem) + closing : len(label) - closing] for label in labels]
    if axes == 1:
        return () if _counted(index) else tuple(",".join(_parts(label)) for label in index)
    known = [tuple(dict.fromkeys(axis)) for axis in zip(*map(_parts, index), strict=True)]
    counted = [_counted(axis) for axis in known]
    return (
        () if all(counted) else tuple(None if c else a for a, c in zip(known, counted, strict=True))
    )


def _parts(index: str) -> tuple[str, ...]:
    """Return an index axis by axis."""
    between = _BETWEEN_NUMBERS if _NUMBERS.fullmatch(index) else _BETWEEN
    return tuple(part.strip() for part in re.split(between, index))


def _counted(index: Sequence[str]) -> bool:
    """Whether labels are numbers that count from 0 or 1."""
    if not all(label.isdecimal() for label in index):
        return False
    numbers = [int(label) for label in index]
    return numbers == list(range(numbers[0], numbers[0] + len(index))) and numbers[0] in (0, 1)


class Families(Mapping[str, Family]):
    """Names such as ``x[0]``, ``x[1]`` as arrays, by what they share.

    Names with the same stem and kind form one array. An index is what stands in brackets at
    the end, numbers or labels with commas or ``][`` between them, else trailing digits not behind a dot. If the indices fill a box that begins at
    0 or 1 they are its positions; if they are all combinations of two labels or more an axis, each
    axis has its labels in the order of the file; otherwise the array is a vector in that order.

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
    >>> names = ["ship[Bonn,north]", "ship[Kiel,north]", "ship[Bonn,south]", "ship[Kiel,south]"]
    >>> Families(names, "aaaa")["ship"].shape
    (2, 2)
    """

    def __init__(self, names: Sequence[str], kinds: Iterable[object]) -> None:
        groups: dict[tuple[str, int, bool, object], list[int]] = {}
        last: tuple[str, object] = "", None
        beside: list[int] = []  # names numbered like this one, of its kind
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            if kind is None:
                continue
            plain = name.rstrip(_DIGITS)
            if (plain, kind) == last and 0 < len(name) - len(plain) <= _MOST_DIGITS:
                beside.append(at)
                continue
            stem, count = _stem(name)
            closing = name[-1:] in _CLOSING
            members = groups.setdefault((stem, count, closing, kind), [])
            members.append(at)
            if count == 1 and not closing:
                last, beside = (stem, kind), members
        self._names = names
        self._members: dict[str, list[int]] = Known({}, "array")
        self._stems: dict[str, tuple[str, int]] = {}
        alone = {names[m[0]]: m for m in groups.values() if self._is_single(m)}
        for (stem, count, _, _), members in groups.items():
            single = self._is_single(members)
            # a name of the file stays with its owner
            taken = self._members if single else ChainMap(self._members, alone)
            label = free_name(names[members[0]] if single else stem, taken)
            self._members[label], self._stems[label] = members, (stem, count)
        self._arrays: dict[str, Family] = {}

    def __getitem__(self, name: str) -> Family:
        if name not in self._arrays:
            members = self._members[name]
            own, (stem, count) = [self._names[m] for m in members], self._stems[name]
            at = np.array(members, dtype=np.int64)
            if self._is_single(members):
                self._arrays[name] = Family(name, at, ())
            else:
                box = _array(name, at, _indices(own, stem, count)) if count else None
                self._arrays[name] = box or _labelled(name, at, own, len(stem))
        return self._arrays[name]

    def _is_single(self, members: list[int]) -> bool:
        name = self._names[members[0]]
        return len(members) == 1 and (name[-1:] not in _CLOSING or not _stem(name)[1])

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
        index = _parts(match["index"]) if match else ()
        if match and len(index) <= _MOST_INDICES and max(map(len, index)) <= _MOST_DIGITS:
            return match["stem"], len(index)
        if match is None and (match := _LABELLED.match(name)) is not None:
            return match["stem"], 0
    return name, 0


def _indices(names: list[str], stem: str, count: int) -> list[tuple[int, ...]]:
    """Return the indices of names that share a stem."""
    start = len(stem)
    if names[0][-1] in _DIGITS:
        return [(int(name[start:]),) for name in names]
    if count == 1:
        return [(int(name[start + 1 : -1]),) for name in names]
    return [tuple(map(int, _parts(name[start + 1 : -1]))) for name in names]


def _array(name: str, at: Indices, indices: list[tuple[int, ...]]) -> Family | None:
    """Return the array whose positions the indices are, None where they are none."""
    index = np.array(indices, dtype=np.int64)
    low = index.min(axis=0)
    shape = index.max(axis=0) - low + 1
    box = float(np.prod(shape.astype(float)))
    if (low == low[0]).all() and low[0] in (0, 1) and box == at.size:
        place = np.ravel_multi_index(tuple((index - low).T), tuple(shape), order="F")
        if np.unique(place).size == place.size:
            return Family(name, at[np.argsort(place)], tuple(int(s) for s in shape))
    return None


def _labelled(name: str, at: Indices, names: list[str], start: int) -> Family:
    """Return the array of all combinations of labels, a vector where they are not all."""
    labels = [_parts(label[start + 1 : -1]) for label in names if label[-1] in _CLOSING]
    if labels and len(set(map(len, labels))) == 1 and len(labels[0]) > 1:
        along = zip(*labels, strict=True)
        axes = [{a: i for i, a in enumerate(dict.fromkeys(axis))} for axis in along]
        shape = tuple(map(len, axes))
        if min(shape) > 1 and math.prod(shape) == at.size == len(set(labels)):
            places = [[axis[a] for axis, a in zip(axes, label, strict=True)] for label in labels]
            flat = np.ravel_multi_index(tuple(np.array(places).T), shape, order="F")
            return Family(name, at[np.argsort(flat)], shape)
    return Family(name, at, (at.size,))


# How a problem lies in a file: its columns and rows in arrays, and what they are called.

# Columns and rows as a file states them, in arrays.

#: coefficient of x_i x_j by (i, j), each pair i <= j once
Products = dict[tuple[int, int], float]


@dataclass(frozen=True, eq=False)
class Rows:
    r"""Linear and quadratic rows between two sides, in the order of a file.

    .. math::
        \min_x \text{ or } \max_x\; \tfrac12 x^T P x + c^T x + r
        \quad\text{s.t.}\quad
        l_k \le \tfrac12 x^T P_k x + a_k^T x \le u_k,\;
        l \le x \le u,\; x_j \in \mathbb{Z}\; (j \in J)

    Parameters
    ----------
    columns, rows : sequence of str
        Their labels.
    cost, lower, upper : array (n,)
        c, l, u; infinite where there is no bound.
    integer : array (n,) of bool
        J.
    A : sparse csr (m, n)
        Exactly the numbers of the file; entries in order, none twice, no zeros.
    row_lower, row_upper : array (m,)
        Sides of the rows; infinite where there is none.
    P : sparse csc (n, n) or None
        Symmetric.
    row_P : dict
        Row -> P_k, symmetric, of the rows that have a quadratic part.
    maximize : bool
    offset : float
        r.
    groups : array (m,) of int, optional
        Rows of different groups never form one array, whatever their labels.
    """

    columns: Sequence[str]
    rows: Sequence[str]
    cost: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]
    A: Any
    row_lower: Floats
    row_upper: Floats
    P: Any = None
    row_P: dict[int, Any] = field(default_factory=dict)
    maximize: bool = False
    offset: float = 0.0
    groups: NDArray[np.int64] | None = None


@dataclass(eq=False)
class RowsInProgress:
    """What a reader has found so far; `finished` turns it into arrays."""

    maximize: bool = False
    offset: float = 0.0
    columns: list[str] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    #: (row, column, value) of many entries each
    entries: list[tuple[Any, Any, Any]] = field(default_factory=list)
    products: Products = field(default_factory=dict)
    row_products: dict[int, Products] = field(default_factory=dict)

    def add_column(self, name: str, *, integer: bool = False, upper: float = np.inf) -> int:
        """Add a column that is at least 0."""
        self.columns.append(name)
        self.cost.append(0.0)
        self.lower.append(0.0)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.columns) - 1

    def add_columns(self, names: Sequence[str]) -> None:
        """Add columns between 0 and infinity."""
        self.columns += names
        self.cost += [0.0] * len(names)
        self.lower += [0.0] * len(names)
        self.upper += [np.inf] * len(names)
        self.integer += [False] * len(names)

    def add_row(self, name: str, lower: float, upper: float, entries: dict[int, float]) -> int:
        """Add a row."""
        i = len(self.rows)
        self.rows.append(name)
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        if entries:
            self.entries.append(([i] * len(entries), list(entries), list(entries.values())))
        return i

    def entries_of(self, row: int) -> dict[int, float]:
        """Return the entries of one row."""
        entries: dict[int, float] = {}
        for i, j, v in self.entries:
            for k in np.flatnonzero(np.asarray(i) == row):
                entries[int(j[k])] = entries.get(int(j[k]), 0.0) + float(v[k])
        return entries

    def finished(self) -> Rows:
        """Return the arrays; entries of one place are summed."""
        n = len(self.columns)
        i, j, v = self._stacked()
        A = sp.csr_array((v, (i, j)), shape=(len(self.rows), n))
        A.sum_duplicates()
        if A.nnz < v.size:
            i, j, v = distinct(i, j, v)
            A = sp.csr_array((v, (i, j)), shape=A.shape)
        A.eliminate_zeros()
        return Rows(
            columns=self.columns,
            rows=self.rows,
            cost=np.array(self.cost, dtype=float),
            lower=np.array(self.lower, dtype=float),
            upper=np.array(self.upper, dtype=float),
            integer=np.array(self.integer, dtype=bool),
            A=A,
            row_lower=np.array(self.row_lower, dtype=float),
            row_upper=np.array(self.row_upper, dtype=float),
            P=_hessian(self.products, n) if any(self.products.values()) else None,
            row_P={i: _hessian(q, n) for i, q in self.row_products.items() if any(q.values())},
            maximize=self.maximize,
            offset=self.offset,
        )

    def _stacked(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        # a reader of rows adds thousands of short lists: one pass over them all
        parts = self.entries or [([], [], [])]
        if all(isinstance(part[0], np.ndarray) for part in parts):
            i, j, v = (np.concatenate(each) for each in zip(*parts, strict=True))
        else:
            i, j, v = (
                np.array([x for each in part for x in each]) for part in zip(*parts, strict=True)
            )
        return i.astype(np.int64), j.astype(np.int64), v.astype(float)


def _hessian(products: Products, n: int) -> Any:
    """Return P with ½ x'Px the sum of coefficient * x_i * x_j."""
    pairs = np.array(list(products), dtype=np.int64).reshape(-1, 2)
    half = sp.coo_array((list(products.values()), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return sp.csc_array(half + half.T)


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names, a number added to those that were there already.

    Examples
    --------
    >>> unique_names(["cap", "need", "cap"])
    ['cap', 'need', 'cap 2']
    """
    unique: dict[str, None] = {}
    for name in names:
        unique[free_name(name, unique)] = None
    return list(unique)


# The columns of a file as entries of two vectors, found by array and by label.

Indices = NDArray[np.int64]


class Layout:
    """Which column is which entry of which vector.

    Parameters
    ----------
    rows : Rows
        The data.

    Attributes
    ----------
    families : Families
        The arrays that columns form.
    members : dict
        Vector -> its columns.
    variables : dict
        Vector -> CVXPY variable.
    integers : frozenset of str
        The integer vector, if there is one.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        integer = rows.integer
        self.families = Families(rows.columns, integer.tolist())
        self.members: dict[str, Indices] = {}
        self.place = np.zeros(integer.size, dtype=np.int64)
        for kind, fallback in ((False, "columns"), (True, "integer columns")):
            at = np.flatnonzero(integer == kind)
            if at.size:
                self.members[self._called(at, fallback)] = at
                self.place[at] = np.arange(at.size)
        self.variables = {n: cp.Variable(at.size, name=n) for n, at in self.members.items()}
        whole = {n for n, at in self.members.items() if integer[at[0]]}
        self.integers = frozenset(whole)

    def _called(self, at: Indices, fallback: str) -> str:
        """Return the name of the one array that a vector is, or a general one."""
        for name in self.families:
            if self.families.count(name) == at.size:
                f = self.families[name]
                if f.shape == (at.size,) and np.array_equal(f.members, at):
                    return name
        while fallback in self.families:
            fallback += "_"
        return fallback

    @cached_property
    def column_index(self) -> dict[str, int]:
        """Label of a column -> its position."""
        return {name: j for j, name in enumerate(self.rows.columns)}

    @cached_property
    def row_index(self) -> dict[str, int]:
        """Label of a row -> its position."""
        return {name: i for i, name in enumerate(self.rows.rows)}

    def find(self, name: object) -> Family | None:
        """Return the columns that a name stands for: an array or a single one."""
        if not isinstance(name, str):
            return None
        if name in self.families:
            return self.families[name]
        j = next((self.column_index[s] for s in spellings(name) if s in self.column_index), None)
        return None if j is None else Family(name, np.array([j]), ())

    def expression(self, f: Family) -> Any:
        """Return columns as an expression, in the shape of their array."""
        integer = bool(self.rows.integer[f.members[0]])
        name = next(n for n in self.members if (n in self.integers) == integer)
        part = self._part(name, self.place[f.members])
        if not f.shape:
            return part[0]
        return part if len(f.shape) == 1 else cp.reshape(part, f.shape, order="F")

    def _part(self, name: str, at: Indices) -> Any:
        x = self.variables[name]
        return x if np.array_equal(at, np.arange(x.size)) else x[at]

    def times(self, matrix: Any) -> Any:
        """Return matrix @ columns."""
        parts = []
        for name, at in self.members.items():
            block = matrix if at.size == self.place.size else sp.csr_array(matrix[:, at])
            if block.nnz:
                parts.append(block @ self.variables[name])
        if parts:
            return sum(parts)
        if not self.members:
            return cp.Constant(np.zeros(matrix.shape[0]))
        name, at = next(iter(self.members.items()))  # a row without entries is still a row
        return sp.csr_array((matrix.shape[0], at.size)) @ self.variables[name]

    def quadratic(self, P: Any, *, definite: bool = False) -> Any:
        """Return ½ x'Px on the columns it uses, or on a vector: parts of one are copied by CVXPY."""
        used = np.flatnonzero(np.diff(sp.csc_array(P).indptr))
        order = {name: used[np.isin(used, at)] for name, at in self.members.items()}
        order = {name: own for name, own in order.items() if own.size}
        if len(order) == 1:
            order = {name: self.members[name] for name in order}
        parts = [self._part(name, self.place[own]) for name, own in order.items()]
        every = np.concatenate([*order.values()])
        z = parts[0] if len(parts) == 1 else cp.hstack(parts)
        half = 0.5 * sp.csc_array(P)[every, :][:, every]
        return cp.quad_form(z, cp.psd_wrap(half) if definite else half)

    def vector(self, values: Mapping[str, Any]) -> Floats:
        """Return the values of all columns, given by vector or by array."""
        x = np.zeros(self.place.size)
        if self.members.keys() <= set(values):
            for name, at in self.members.items():
                x[at] = np.ravel(np.asarray(values[name], dtype=float))
            return x
        for name in self.families:
            f = self.families[name]
            x[f.members] = np.ravel(np.asarray(values[name], dtype=float), order="F")
        return x

    def complete(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values by vector, and by whatever other variable there is."""
        if self.members.keys() <= set(values):
            return values
        x = self.vector(values)
        return {**values, **{name: x[at] for name, at in self.members.items()}}

    def scope(self, columns: Indices) -> frozenset[str]:
        """Return the vectors that hold some columns."""
        if len(self.members) < 2 or not columns.size:
            return frozenset(list(self.members)[:1])
        return frozenset(n for n, at in self.members.items() if np.isin(columns, at).any())
