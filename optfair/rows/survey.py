"""The first pass: how many rows, which groups and columns, and a sample to start from."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.attributes import lacks_labels, missing_rows
from optfair.errors import DataError
from optfair.numbers import LARGEST, Floats, Indices, encode_groups
from optfair.rows.sources import CHUNK, Chunk, RowSource, other_columns

# Up to HELD rows all of them are the sample; of more it has SAMPLE, and a thousand per group.
HELD, SAMPLE, FEWEST = 200_000, 50_000, 1_000
# Share of the largest sum of a chunk below which two sums of it are the same.
SAME = 1e-12
# Dates as labels, whatever the unit of a chunk: one that Python has a type for.
MOMENT = "datetime64[us]"


@dataclass(frozen=True, eq=False)
class Rows:
    """A chunk as passes see it: numbers only.

    Attributes
    ----------
    X : array (m, d)
    groups : array (m,) of int
        Group index.
    weights : array (m,)
        Weights; those of all rows have total 1.
    """

    X: Floats
    groups: Indices
    weights: Floats


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the rows after the first pass.

    Attributes
    ----------
    rows, columns : int
    names : tuple of str or None
        Column names.
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.
    total : float
        Sum of the weights as given.
    sample : Rows
        Some rows in their order, weighted so that every group keeps its share; all rows when
        they are few.
    lowest, highest : arrays (d,)
        Extreme entries of each column, of all rows.
    sums : dict
        Rows, and the sum of their entries, by the index of a chunk.
    counts : array (G,)
        Rows of positive weight of each group.
    least, most : arrays (G,)
        Extremes of these weights.
    """

    rows: int
    columns: int
    names: tuple[str, ...] | None
    group_names: NDArray[Any]
    shares: Floats
    total: float
    sample: Rows
    lowest: Floats
    highest: Floats
    sums: Mapping[int, tuple[int, float]]
    counts: Floats
    least: Floats
    most: Floats

    @property
    def complete(self) -> bool:
        """Whether the sample holds all rows."""
        return len(self.sample.X) == self.rows

    @property
    def header(self) -> Survey:
        """The survey without its sample: what a pass has to carry to workers."""
        none = Rows(self.sample.X[:0], self.sample.groups[:0], self.sample.weights[:0])
        return replace(self, sample=none)

    def read(self, chunk: Chunk) -> Rows:
        """Return a chunk as numbers.

        Raises
        ------
        DataError
            It is not what the first pass saw: other columns, a new label, missing or other values.
        """
        rows, total = self.sums.get(chunk.index, (0, 0.0))
        checked, own_total = _checked(chunk, total if rows else np.nan)
        if checked.X.shape[1] != self.columns or (
            self.names is not None and chunk.names is not None and chunk.names != self.names
        ):
            own = chunk.names, checked.X.shape[1]
            raise other_columns(chunk.index, own, (self.names, self.columns))
        size = float(np.maximum(np.abs(self.lowest), np.abs(self.highest)).max(initial=0.0))
        if rows == len(checked.X) and abs(own_total - total) > SAME * checked.X.size * size:
            raise DataError(
                f"chunk {chunk.index} has other values than in the first pass",
                f"its {rows} rows sum to {own_total:.9g}, and summed to {total:.9g}",
                "give a source that returns the same rows in every pass",
            )
        return Rows(
            checked.X,
            _index(checked.labels, self.group_names),
            np.full(len(checked.X), 1.0 / self.total)
            if chunk.weights is None
            else np.asarray(chunk.weights, dtype=float) / self.total,
        )


@dataclass(frozen=True)
class _Tally:
    """Rows of a label: all, those of positive weight, extremes of that, and its sums by chunk."""

    rows: int
    held: int
    least: float
    most: float
    sums: tuple[float, ...]

    @classmethod
    def of(cls, weights: Floats) -> _Tally:
        held = weights[weights > 0.0]
        ends = float(held.min(initial=np.inf)), float(held.max(initial=0.0))
        return cls(weights.size, held.size, *ends, (float(weights.sum()),))

    def __add__(self, other: _Tally) -> _Tally:
        ends = min(self.least, other.least), max(self.most, other.most)
        rows, held = self.rows + other.rows, self.held + other.held
        return _Tally(rows, held, *ends, self.sums + other.sums)


@dataclass(frozen=True, eq=False)
class _Count:
    """Sums of the first pass over some chunks."""

    rows: int
    width: int
    first: Chunk
    tallies: dict[Hashable, _Tally]
    spread: tuple[float, float]  # least and largest weight
    box: tuple[Floats, Floats]  # least and largest entry of each column
    sums: dict[int, tuple[int, float]]  # chunk -> rows, sum of entries
    keys: Floats  # random numbers of the rows kept: the smallest of each group stay
    kept: tuple[NDArray[Any], ...]  # X, labels, weights, order


def surveyed(
    source: RowSource,
    seed: int = 0,
    n_jobs: int = 1,
    held: int = HELD,
    size: int = SAMPLE,
    *,
    grouped: bool = True,
) -> Survey:
    """Make the first pass.

    Parameters
    ----------
    source : RowSource
        Rows.
    seed : int
        Seed of the sample.
    n_jobs : int
        Threads.
    held, size : int
        Rows up to which the sample is all rows, and its rows otherwise.
    grouped : bool
        Whether one group is too few.

    Raises
    ------
    DataError
        Chunks with different columns, one group, missing values, unusable weights.
    """
    count = source.map_reduce(_Counter(seed, held), _Adder(held, size), n_jobs)
    if len({isinstance(label, str) for label in count.tallies}) > 1:
        raise DataError(
            "groups is text in some chunks and numbers in others",
            f"its labels are {', '.join(map(repr, list(count.tallies)[:6]))}",
            "write every label in one way",
        )
    dates = count.first.labels.dtype.kind == "M"
    labels = np.array(list(count.tallies), dtype=MOMENT if dates else None)
    tallies = list(count.tallies.values())
    weights = np.array([math.fsum(t.sums) for t in tallies])
    total = math.fsum(weights)
    if not total > 0:
        raise DataError("sample_weight sums to zero", remedy="give some row a positive weight")
    index, names, shares = _encoded(labels, weights / total, grouped, count.rows)
    tallies = [tallies[i] for i in np.argsort(index)]
    equal = count.spread[0] == count.spread[1]
    shares = np.array([t.rows for t in tallies]) / count.rows if equal else np.asarray(shares)
    X, own, w, position = count.kept
    inside = np.argsort(position, kind="stable")
    X, w, groups = X[inside], w[inside], _index(own[inside], names)
    if len(X) < count.rows:
        keep = np.sort(_stratified(groups, count.keys[inside], size))
        X, w, groups = X[keep], w[keep], groups[keep]
    if len(X) == count.rows:
        w = w / w.sum()  # as weights in memory are
    else:
        some = np.bincount(groups, w, names.size)
        w = w * (shares / some)[groups]
    sample = Rows(np.ascontiguousarray(X), groups, w)
    return Survey(
        *(count.rows, count.width, count.first.names, names, shares, total, sample),
        *(*count.box, count.sums, np.array([t.held for t in tallies], dtype=float)),
        *(
            np.array(ends) / total
            for ends in zip(*[(t.least, t.most) for t in tallies], strict=True)
        ),
    )


def _encoded(
    labels: NDArray[Any], weights: Floats, grouped: bool, seen: int
) -> tuple[Indices, NDArray[Any], Floats]:
    if labels.size == 1 and not grouped:
        return np.zeros(1, dtype=np.intp), labels, np.ones(1)
    return encode_groups(labels, labels.size, weights, seen)


@dataclass(frozen=True)
class _Counter:
    """The map of the first pass; an object, so that it travels to workers."""

    seed: int
    size: int

    def __call__(self, chunk: Chunk) -> _Count:
        checked, entries = _checked(chunk)
        X, labels = checked.X, checked.labels
        w = np.ones(len(X)) if chunk.weights is None else np.asarray(chunk.weights, dtype=float)
        if not np.isfinite(w).all() or (w < 0).any():
            raise DataError(
                f"chunk {chunk.index} has negative or non-finite weights",
                remedy="give non-negative numbers",
            )
        names, index = np.unique(labels, return_inverse=True)
        if names.size > max(50, len(X) // 2):
            raise DataError(
                f"groups has {names.size} different labels in the {len(X)} rows of chunk"
                f" {chunk.index}",
                remedy="it looks like a number, not a group: bin it first",
            )
        names = names.astype(MOMENT) if names.dtype.kind == "M" else names
        tallies: dict[Hashable, _Tally] = {
            name: _Tally.of(w[index == g]) for g, name in enumerate(names.tolist())
        }
        keys = _keys(self.seed, chunk.index, w)
        order = chunk.index + np.arange(len(X)) / len(X)
        first = Chunk(X[:0], labels[:0], None, chunk.index, chunk.names, chunk.attributes)
        whole = _Count(
            len(X),
            X.shape[1],
            first,
            tallies,
            (float(w.min()), float(w.max())),
            (X.min(axis=0), X.max(axis=0)),
            {chunk.index: (len(X), entries)},
            keys,
            (X, labels, w, order),
        )
        return _thinned(whole, self.size)


@dataclass(frozen=True)
class _Adder:
    """The reduce of the first pass."""

    held: int
    size: int

    def __call__(self, a: _Count, b: _Count) -> _Count:
        total = _added(a, b)
        if total.rows <= self.held:
            return total
        # thinning every time would sort the sample again for each small chunk
        return _thinned(total, self.size) if len(total.keys) > 1.5 * self.size else total


def _added(a: _Count, b: _Count) -> _Count:
    named = a.first.names is not None and b.first.names is not None
    if a.width != b.width or (named and a.first.names != b.first.names):
        own, first = (b.first.names, b.width), (a.first.names, a.width)
        raise other_columns(b.first.index, own, first)
    if a.first.attributes != b.first.attributes:
        raise DataError(
            f"chunk {b.first.index} has groups of other attributes than the first",
            f"got {', '.join(b.first.attributes) or 'labels'};"
            f" the first has {', '.join(a.first.attributes) or 'labels'}",
            "give every chunk the same columns of groups in the same order",
        )
    tallies = dict(a.tallies)
    for label, tally in b.tallies.items():
        tallies[label] = tallies[label] + tally if label in tallies else tally
    kept = tuple(np.concatenate(pair) for pair in zip(a.kept, b.kept, strict=True))
    spread = min(a.spread[0], b.spread[0]), max(a.spread[1], b.spread[1])
    box = np.minimum(a.box[0], b.box[0]), np.maximum(a.box[1], b.box[1])
    keys, sums = np.concatenate([a.keys, b.keys]), {**a.sums, **b.sums}
    return _Count(a.rows + b.rows, a.width, a.first, tallies, spread, box, sums, keys, kept)


def _thinned(count: _Count, size: int) -> _Count:
    if len(count.keys) <= size:
        return count
    _, groups = np.unique(count.kept[1], return_inverse=True)
    keep = _stratified(groups, count.keys, size)
    return replace(count, keys=count.keys[keep], kept=tuple(part[keep] for part in count.kept))


def kept_rows(
    groups: Indices, weights: Floats, held: int = HELD, size: int = SAMPLE
) -> Indices | None:
    """Return the rows in memory that are the sample of a survey of them; None for all.

    Parameters
    ----------
    groups : array (n,) of int
        Group index.
    weights : array (n,)
        Weights.
    held, size : int
        As of `surveyed`.
    """
    if groups.size <= held:
        return None
    parts = (weights[i : i + CHUNK] for i in range(0, groups.size, CHUNK))
    keys = np.concatenate([_keys(0, index, w) for index, w in enumerate(parts)])
    return _stratified(groups, keys, size)


def _keys(seed: int, index: int, weights: Floats) -> Floats:
    """Return the random numbers of the rows of a chunk."""
    keys = np.random.default_rng((seed, index)).random(len(weights))
    keys[weights <= 0] = np.inf  # rows without weight stand for nothing
    return keys


def _stratified(groups: Indices, keys: Floats, size: int) -> Indices:
    """Return the rows with the smallest keys, and at least a thousand of each group."""
    order = np.argsort(keys, kind="stable")
    order = order[np.isfinite(keys[order])]
    chosen = np.zeros(keys.size, dtype=bool)
    chosen[order[:size]] = True
    for g in range(int(groups.max()) + 1):
        chosen[order[groups[order] == g][:FEWEST]] = True
    return np.flatnonzero(chosen)


def _checked(chunk: Chunk, known: float = np.nan) -> tuple[Chunk, float]:
    """Return a chunk of numbers, and their sum; one that is known stands for numbers that were fine."""
    X, labels = np.asarray(chunk.X, dtype=np.float64), np.asarray(chunk.labels)
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise DataError(
            f"chunk {chunk.index} has shape {X.shape}", remedy="give rows x columns, none empty"
        )
    # one sum shows every NaN and infinity, without a mask of the size of the rows
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(X.sum())
    if not np.isfinite(total):
        bad = np.argwhere(~np.isfinite(X))
        if bad.size:
            raise DataError(
                f"chunk {chunk.index} has {len(bad)} entries that are NaN or infinite",
                f"the first is in its row {bad[0, 0]}, column {bad[0, 1]}",
                "drop or impute them",
            )
    if total != known and max(X.max(), -X.min()) > LARGEST:
        raise DataError(
            f"chunk {chunk.index} has entries beyond {LARGEST:.0e}",
            "squared distances would overflow",
            "rescale the columns",
        )
    if labels.dtype == object and all(isinstance(v, str) for v in labels):
        labels = labels.astype(str)
    if lacks_labels(chunk.labels if isinstance(chunk.labels, np.ma.MaskedArray) else labels):
        raise DataError(
            f"chunk {chunk.index}: groups has missing labels",
            missing_rows(chunk.labels if isinstance(chunk.labels, np.ma.MaskedArray) else labels),
            "drop those rows or give them a label",
        )
    return Chunk(X, labels, chunk.weights, chunk.index, chunk.names), total


def _index(labels: NDArray[Any], names: NDArray[Any]) -> Indices:
    plain = labels.dtype.kind == "i" and np.array_equal(names, np.arange(names.size))
    if plain and labels.min() >= 0 and labels.max() < names.size:
        return np.asarray(labels, dtype=np.intp)
    places = np.minimum(np.searchsorted(names, labels), names.size - 1)
    wrong = names[places] != labels
    if wrong.any():
        new = sorted({str(v) for v in labels[wrong].tolist()})
        raise DataError(
            f"groups has labels the first pass did not see: {', '.join(new[:5])}",
            f"it saw {', '.join(map(str, names.tolist()))}",
            "give a source that returns the same rows in every pass",
        )
    return np.asarray(places, dtype=np.intp)
