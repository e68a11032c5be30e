"""Counterfactuals made by DiCE (the package dice-ml), from what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError
from optfair.methods.sparse_counterfactuals.estimator.generated import Counterfactuals

__all__ = ["dice_counterfactuals"]


def dice_counterfactuals(
    result: Any, factuals: Any, *, on_missing: str = "raise"
) -> Counterfactuals:
    """Return the counterfactuals in a result of DiCE.

    Parameters
    ----------
    result : object, or sequence of data frames
        What ``generate_counterfactuals`` of dice-ml returns: an object with
        ``cf_examples_list``, one entry per query row whose ``final_cfs_df`` has its
        counterfactuals; or those frames themselves, None for a row without any.
    factuals : pandas.DataFrame (n, d)
        The query rows. Columns that it does not have, as the outcome that DiCE appends, are
        left out; values take the types of its columns.
    on_missing : {"raise", "skip"}
        What to do about rows for which none was found. Skipped rows are missing in the
        alignment: leave them out of the factuals, or let a coupling find partners.

    Returns
    -------
    Counterfactuals
        Aligned: row by row as in the query.

    Raises
    ------
    DataError, DeclarationError
        No such object, another number of entries than rows, missing columns, values that do
        not fit their column, rows without counterfactual.

    Examples
    --------
    >>> import pandas as pd
    >>> query = pd.DataFrame({"age": [20, 30], "job": ["a", "b"]})
    >>> found = [
    ...     pd.DataFrame({"age": ["25", "20"], "job": ["a", "b"], "income": [1, 1]}),
    ...     pd.DataFrame({"age": ["35"], "job": ["b"], "income": [1]}),
    ... ]
    >>> r = dice_counterfactuals(found, query)
    >>> r, r.alignment.tolist(), r.rows["age"].tolist()
    (Counterfactuals: 3 rows from DiCE, aligned, [0, 0, 1], [25, 20, 35])

    References
    ----------
    Mothilal, Sharma, Tan: Explaining Machine Learning Classifiers through Diverse
    Counterfactual Explanations, FAT* 2020.
    """
    if on_missing not in ("raise", "skip"):
        raise DeclarationError(
            f"unknown on_missing {on_missing!r}", remedy="it is 'raise' or 'skip'"
        )
    if not hasattr(factuals, "columns") or not hasattr(factuals, "astype"):
        raise DataError("factuals is no pandas data frame", remedy="give the query of DiCE")
    frames = _frames(result)
    if len(frames) != len(factuals):
        raise DataError(
            f"{len(frames)} entries for {len(factuals)} factual rows",
            remedy="give the rows that DiCE was asked about, in the same order",
        )
    without = [i for i, frame in enumerate(frames) if frame is None or not len(frame)]
    if without and (on_missing == "raise" or len(without) == len(frames)):
        raise DataError(
            f"DiCE found no counterfactual for {len(without)} rows",
            f"the first is row {without[0]}",
            'leave them out, or set on_missing="skip"',
        )
    names = list(factuals.columns)
    kept = [(i, frame) for i, frame in enumerate(frames) if frame is not None and len(frame)]
    for i, frame in kept:
        missing = [str(name) for name in names if name not in frame.columns]
        if missing:
            raise DataError(
                f"the counterfactuals of row {i} have no column {missing[0]!r}",
                f"they have {', '.join(map(str, frame.columns))}",
                "give the rows that DiCE was asked about, with the same columns",
            )
    import pandas as pd

    rows = pd.concat([frame[names].astype(object) for _, frame in kept], ignore_index=True)
    try:
        # DiCE gives numbers as text, or whole numbers as fractions
        rows = pd.DataFrame({name: _typed(rows[name], factuals[name].dtype) for name in names})
    except (TypeError, ValueError) as e:
        raise DataError(
            "counterfactuals have values that do not fit their column", str(e), "check them"
        ) from None
    owner = np.repeat([i for i, _ in kept], [len(frame) for _, frame in kept])
    return Counterfactuals(rows, owner.astype(np.intp), "DiCE")


def _typed(column: Any, dtype: Any) -> Any:
    if getattr(dtype, "kind", "O") in "iu":
        numbers = column.astype(float)
        if not (numbers == numbers.round()).all():
            raise ValueError(f"column {column.name!r} has fractions, the factuals whole numbers")
        return numbers.astype(dtype)
    return column.astype(dtype)


def _frames(result: Any) -> Sequence[Any]:
    entries = getattr(result, "cf_examples_list", None)
    if entries is not None:
        return [entry.final_cfs_df for entry in entries]
    if hasattr(result, "final_cfs_df"):  # of one row
        return [result.final_cfs_df]
    if isinstance(result, (list, tuple)) and all(
        frame is None or hasattr(frame, "columns") for frame in result
    ):
        return list(result)
    raise DataError(
        f"a {type(result).__name__} is no result of DiCE",
        "it has no cf_examples_list and is no sequence of data frames",
        "give what generate_counterfactuals returned",
    )
