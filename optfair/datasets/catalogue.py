"""Data sets by name: ours, those of the user's folder, and OpenML's."""

from __future__ import annotations

import gzip
import importlib
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.datasets.dataset import (
    MANIFEST,
    VARIABLE,
    Columns,
    Dataset,
    DatasetFacts,
    check_file,
    column_of,
    data_folder,
    derived,
    known_facts,
    open_text,
    parsed,
    read_integers,
    typed,
    without_dropped,
)
from optfair.errors import DataError, nearest
from optfair.numbers import check_flag, check_text, checked

# Rows from OpenML, through scikit-learn and its cache.

MISSING = "?"  # ARFF's own sign, which the files of UCI use too
# HTTP and URL errors and time-outs are OSErrors; ValueError is a wrong checksum, a reply that
# is not JSON, or OpenML's own refusal; EOFError a download that broke off
FAILURES = (OSError, ValueError, HTTPException, EOFError)


def address(facts: DatasetFacts) -> str:
    """Return the page of the set at OpenML."""
    return f"https://www.openml.org/d/{facts.openml['data_id']}"


def fetch_columns(facts: DatasetFacts) -> Columns | str:
    """Return the columns of a set at OpenML, or why they cannot be had.

    Categories are decoded to their labels, whole numbers become integers, and a missing label
    becomes ``?``. Rows and names are those the facts choose.
    """
    sklearn_datasets = importlib.import_module("sklearn.datasets")
    with warnings.catch_warnings():
        # what it warns of becomes the reason we return
        warnings.filterwarnings("ignore", "A network error occurred", UserWarning)
        try:
            bunch = sklearn_datasets.fetch_openml(
                data_id=facts.openml["data_id"], as_frame=False, parser="liac-arff", n_retries=1
            )
        except FAILURES as e:
            return f"OpenML did not give it: {type(e).__name__}: {e}"
    return _chosen_rows(_renamed(_decoded(bunch), facts), facts)


def _decoded(bunch: Any) -> Columns:
    rows = bunch.data.shape[0]
    targets = np.empty((rows, 0)) if bunch.target is None else bunch.target.reshape(rows, -1)
    columns = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    decoded = {name: _labels(codes, name, bunch.categories) for name, codes in columns.items()}
    # scikit-learn has decoded the targets already
    for name, values in zip(bunch.target_names, targets.T, strict=True):
        decoded[name] = typed(values.astype(str)) if values.dtype == object else _whole(values)
    return decoded


def _labels(codes: NDArray[Any], name: str, categories: Mapping[str, Any] | None) -> NDArray[Any]:
    if name not in (categories or {}):
        return _whole(codes)
    words = np.array([*(categories or {})[name], MISSING])
    # the last word is the missing one
    return typed(words[np.where(np.isnan(codes), len(words) - 1, codes).astype(np.intp)])


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers where all numbers are whole, as a CSV file would give."""
    whole = np.isfinite(values).all() and (values == np.round(values)).all()
    return values.astype(np.int64) if whole else np.array(values)


def _renamed(columns: Columns, facts: DatasetFacts) -> Columns:
    names = facts.openml.get("columns")
    if names is None:
        return columns
    if len(names) != len(columns):
        raise DataError(
            f"{facts.name} at OpenML has {len(columns)} columns, declared are {len(names)}",
            f"read {', '.join(columns)} from {address(facts)}",
            "use the file whose source is " + facts.source,
        )
    return dict(zip(names, columns.values(), strict=True))


def _chosen_rows(columns: Columns, facts: DatasetFacts) -> Columns:
    first, last = facts.openml.get("first"), facts.openml.get("last")
    # copies, so that the rows left out are not kept in memory
    return {
        name: np.array(values[:first][-last if last else None :])
        for name, values in columns.items()
    }


# Data sets by name.


def names() -> dict[str, str]:
    """Return the names of all data sets, with where each comes from.

    Returns
    -------
    dict of str to str
        "package", "scikit-learn", the file in the folder of OPTFAIR_DATA, the page at OpenML,
        or that the folder does not have it.

    Examples
    --------
    >>> import optfair as of
    >>> of.datasets.names()["german_credit"]
    'package'
    """
    return {name: _where(facts) for name, facts in known_facts().items()}


def _where(facts: DatasetFacts) -> str:
    if facts.origin != "folder":
        return facts.origin
    if facts.path is not None:
        return str(facts.path)
    if facts.openml:
        return address(facts)
    return f"needs {VARIABLE}" if data_folder() is None else f"not in {VARIABLE}"


@checked(name=check_text, fetch=check_flag)
def load(name: str, *, fetch: bool = True) -> Dataset:
    """Return a data set.

    ``german_credit`` is shipped with the package, ``iris``, ``wine`` and ``digits`` with
    scikit-learn. Others are read from the folder that the environment variable OPTFAIR_DATA
    names. Its MANIFEST.toml has one table per set with file, sha256, columns, licence and
    citation, and may have numeric, groups, drop, derived and counts. ``census1990`` is read
    from UCI's USCensus1990.data.txt (or .gz) in that folder, with or without such a table.

    What the folder does not have is fetched from OpenML where it is there (``adult``,
    ``default_credit_card``), and kept in scikit-learn's cache; `Dataset.source` then says so.
    The number of rows and the sizes of the groups are checked wherever the rows come from.

    Parameters
    ----------
    name : str
        One of `names`.
    fetch : bool
        Whether the network may be used for this.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        Unknown name, a set that is not there, a checksum, number of rows or group sizes that
        do not match.

    Examples
    --------
    >>> import optfair as of
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> sorted(set(sex.tolist()))
    ['female', 'male']
    """
    known = known_facts()
    if name not in known:
        raise DataError(f"no data set {name!r}", remedy=nearest(str(name), known))
    columns, facts = _columns(known[name], fetch)
    columns = without_dropped(columns, facts.drop)
    numeric = _numeric(columns, facts)
    for column, rule in facts.derived.items():
        columns[column] = derived(columns, rule, column)
    for values in columns.values():
        values.flags.writeable = False
    dataset = Dataset(
        name=name,
        columns=MappingProxyType(columns),
        numeric_columns=numeric,
        group_columns=facts.groups,
        licence=facts.licence,
        citation=facts.citation,
        source=facts.source,
        note=facts.note,
    )
    _check_size(dataset, facts)
    return dataset


def _columns(facts: DatasetFacts, fetch: bool) -> tuple[Columns, DatasetFacts]:
    """Return the columns, and the facts with the source they were taken from."""
    if facts.origin == "scikit-learn":
        return _bundled(facts), facts
    if facts.path is not None:
        return _from_file(facts.path, facts), facts
    seen = f"{VARIABLE} is not set"
    if data_folder() is not None:
        seen = f"{data_folder()} does not have it, nor does its {MANIFEST} name a file for it"
    if facts.openml and fetch:
        columns = fetch_columns(facts)
        if not isinstance(columns, str):
            source = f"OpenML, {address(facts)}; originally {facts.source}"
            return columns, replace(facts, source=source)
        seen = f"{seen}; {columns}"
    raise DataError(
        f"the data set {facts.name!r} is not shipped with optfair", seen, _how_to_get(facts, fetch)
    )


def _how_to_get(facts: DatasetFacts, fetch: bool) -> str:
    source = f"get it from {facts.source or 'its source'}, put "
    if not facts.sha256_needed:
        how = f"{source}{facts.file}, as it is or as .gz, into a folder"
    else:
        how = (
            f"{source}it as CSV with a header into a folder with a {MANIFEST} that has a table"
            f" [{facts.name}] with file and sha256,"
        )
    how += f" and set {VARIABLE} to that folder"
    if not facts.openml:
        return how
    return how + (", or try again with a network" if fetch else ", or load it with fetch=True")


def _from_file(path: Path, facts: DatasetFacts) -> Columns:
    check_file(path, facts)
    try:
        if facts.integers:
            return read_integers(path, facts)
        with open_text(path) as f:
            return parsed(f, facts)
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise DataError(
            f"{path} cannot be read", f"{type(e).__name__}: {e}", "fetch the file again, as UTF-8"
        ) from None


def _bundled(facts: DatasetFacts) -> Columns:
    bunch = getattr(importlib.import_module("sklearn.datasets"), facts.loader)()
    columns = {
        str(feature): np.array(values)
        for feature, values in zip(bunch.feature_names, bunch.data.T, strict=True)
    }
    return {**columns, facts.target: np.asarray(bunch.target_names).astype(str)[bunch.target]}


def _numeric(columns: Columns, facts: DatasetFacts) -> tuple[str, ...]:
    """Return the default numeric columns: as listed, or all but those that are excepted."""
    if not isinstance(facts.numeric, Mapping):
        return facts.numeric
    others = facts.numeric["except"]
    for name in others:
        column_of(columns, name)
    kinds = {name: values.dtype.kind for name, values in columns.items() if name not in others}
    return tuple(name for name, kind in kinds.items() if kind in "iuf")


def _check_size(dataset: Dataset, facts: DatasetFacts) -> None:
    """Raise unless the number of rows and the sizes of the groups are the declared ones."""
    read = f"read from {facts.source if facts.path is None else facts.path}"
    remedy = f"use the file whose source is {facts.source}"
    if facts.rows and dataset.rows != facts.rows:
        raise DataError(
            f"{dataset.name} has {dataset.rows} rows, declared are {facts.rows}", read, remedy
        )
    for column, expected in facts.counts.items():
        values, sizes = np.unique(column_of(dataset.columns, column), return_counts=True)
        counted = dict(zip(values.astype(str).tolist(), sizes.tolist(), strict=True))
        if counted != expected:
            raise DataError(
                f"the groups {column!r} of {dataset.name} do not have their declared sizes",
                f"expected {_sizes(expected)}, found {_sizes(counted)}; {read}",
                remedy,
            )


def _sizes(counts: Mapping[str, int]) -> str:
    shown = [f"{label} {size}" for label, size in list(counts.items())[:10]]
    return ", ".join(shown + ["..."] * (len(counts) > 10))
