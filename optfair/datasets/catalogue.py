"""Data sets by name."""

from __future__ import annotations

import importlib
from types import MappingProxyType

import numpy as np

from optfair.datasets.dataset import Dataset
from optfair.datasets.facts import MANIFEST, VARIABLE, DatasetFacts, data_folder, known_facts
from optfair.datasets.table import Columns, derived, parsed, read_verified, without_dropped
from optfair.errors import DataError, nearest

__all__ = ["load", "names"]


def names() -> dict[str, str]:
    """Return the names of all data sets, with where each comes from.

    Returns
    -------
    dict of str to str
        "package", "scikit-learn", the file in the folder of OPTFAIR_DATA, or that the
        folder does not have it.

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
    if facts.folder is None:
        return f"needs {VARIABLE}" if data_folder() is None else f"not in {VARIABLE}"
    return str(facts.folder / facts.file)


def load(name: str) -> Dataset:
    """Return a data set; nothing is fetched from a network.

    ``german_credit`` is shipped with the package, ``iris``, ``wine`` and ``digits`` with
    scikit-learn. Others are read from the folder that the environment variable OPTFAIR_DATA
    names. Its MANIFEST.toml has one table per set with file, sha256, columns, licence and
    citation, and may have numeric, groups, drop and derived.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Dataset

    Raises
    ------
    DataError
        Unknown name, no folder or file, a checksum or a number of rows that does not match.

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
    facts = known[name]
    columns = _bundled(facts) if facts.origin == "scikit-learn" else _from_file(facts)
    features = tuple(columns)[:-1] if facts.origin == "scikit-learn" else ()
    columns = without_dropped(columns, facts.drop)
    for column, rule in facts.derived.items():
        columns[column] = derived(columns, rule, column)
    for values in columns.values():
        values.flags.writeable = False
    dataset = Dataset(
        name=name,
        columns=MappingProxyType(columns),
        numeric_columns=facts.numeric or features,
        group_columns=facts.groups,
        licence=facts.licence,
        citation=facts.citation,
        source=facts.source,
        note=facts.note,
    )
    if facts.rows and dataset.rows != facts.rows:
        raise DataError(
            f"{name} has {dataset.rows} rows, declared are {facts.rows}",
            f"read from {_where(facts)}",
            "use the file whose source is " + facts.source,
        )
    return dataset


def _from_file(facts: DatasetFacts) -> Columns:
    if facts.folder is None or not facts.file:
        folder = data_folder()
        seen = f"{VARIABLE} is not set"
        if folder is not None:
            seen = f"{folder / MANIFEST} does not name a file for it"
        raise DataError(
            f"the data set {facts.name!r} is not shipped with optfair",
            seen,
            f"get it from {facts.source or 'its source'}, put it as CSV with a header into a folder"
            f" with a {MANIFEST} that has a table [{facts.name}] with file and sha256,"
            f" and set {VARIABLE} to that folder",
        )
    return parsed(read_verified(facts.folder / facts.file, facts.sha256), facts)


def _bundled(facts: DatasetFacts) -> Columns:
    bunch = getattr(importlib.import_module("sklearn.datasets"), facts.loader)()
    columns = {
        str(feature): np.array(values)
        for feature, values in zip(bunch.feature_names, bunch.data.T, strict=True)
    }
    return {**columns, facts.target: np.asarray(bunch.target_names).astype(str)[bunch.target]}
