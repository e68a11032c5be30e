"""Rows from OpenML, through scikit-learn and its cache."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.datasets.facts import DatasetFacts
from optfair.datasets.table import Columns, typed
from optfair.errors import DataError

__all__ = ["address", "fetch_columns"]

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
                data_id=facts.openml["data_id"],
                as_frame=False,
                parser="liac-arff",
                n_retries=1,
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
