"""Counterfactual rows, and for which factual row each was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Counterfactuals", "given_counterfactuals", "in_container"]


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """Counterfactual rows, and for which factual row each was made.

    Attributes
    ----------
    rows : array or data frame (m, d)
        r.
    alignment : int array (m,) or None
        Factual row of each, where it is known.
    source : str
        Who made them.

    Examples
    --------
    >>> import numpy as np
    >>> found = given_counterfactuals(np.zeros((2, 3)))
    >>> found.alignment.tolist(), found.source
    ([0, 1], 'given')
    """

    rows: Any
    alignment: Indices | None
    source: str

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __repr__(self) -> str:
        known = "alignment unknown" if self.alignment is None else "aligned"
        return f"Counterfactuals: {len(self)} rows from {self.source}, {known}"


def given_counterfactuals(rows: Any, *, alignment: Any = "rows") -> Counterfactuals:
    """Return counterfactuals that exist already, from any generator.

    Parameters
    ----------
    rows : array or data frame (m, d)
        r.
    alignment : "rows", array-like (m,) of int, or None
        Row j is for factual row j; the factual row of each; or unknown.

    Raises
    ------
    DataError
        No table, an alignment that does not fit.
    """
    table = rows if hasattr(rows, "columns") else np.asarray(rows)
    if len(table.shape) != 2 or 0 in table.shape:
        raise DataError(
            "counterfactuals are no table with rows", f"shape {table.shape}", "give rows x columns"
        )
    if isinstance(alignment, str) and alignment == "rows":
        owner: Indices | None = np.arange(table.shape[0])
    elif alignment is None:
        owner = None
    else:
        owner = np.asarray(alignment)
        if owner.shape != (table.shape[0],) or owner.dtype.kind not in "iu":
            raise DataError(
                "alignment does not fit the counterfactuals",
                f"shape {owner.shape} and type {owner.dtype} for {table.shape[0]}",
                "give the number of a factual row for each of them",
            )
    return Counterfactuals(table, owner, "given")


def in_container(factuals: Any, points: Floats) -> Any:
    """Return points in the container of the factual rows."""
    if not hasattr(factuals, "columns"):
        return points
    names = list(factuals.columns)
    frame = type(factuals)({name: points[:, j] for j, name in enumerate(names)})
    return frame.set_axis(factuals.index, axis=0) if hasattr(frame, "set_axis") else frame
