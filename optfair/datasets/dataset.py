"""A data set: named columns with their licence and citation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled, nearest
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["Dataset"]

# more different numbers than this are no groups; the limits of groups given as arrays are alike
MOST_CODES = 50
MOST_FRACTIONS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Columns of equal length, and what must be said about where they come from.

    Attributes
    ----------
    name : str
        What `optfair.datasets.load` calls it.
    columns : mapping of str to array (n,)
        Integers, floats or strings; read-only.
    numeric_columns : tuple of str
        Columns `numeric` takes unless told otherwise.
    group_columns : tuple of str
        Columns that make sensible groups.
    licence, citation, source, note : str
        Under which terms, whom to cite, where it comes from, what was done to it.

    Examples
    --------
    >>> import optfair as of
    >>> data = of.datasets.load("german_credit")
    >>> data.rows, data["sex"][:3].tolist()
    (1000, ['male', 'female', 'male'])
    >>> X, sex = data.numeric("sex", standardize=True)
    >>> X.shape
    (1000, 7)
    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    numeric_columns: tuple[str, ...] = ()
    group_columns: tuple[str, ...] = ()
    licence: str = ""
    citation: str = ""
    source: str = ""
    note: str = ""

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return int(next(iter(self.columns.values())).size)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of the file, derived ones last."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, column: str) -> NDArray[Any]:
        try:
            return self.columns[column]
        except KeyError:
            raise DataError(
                f"no column {column!r} in {self.name}", remedy=nearest(column, self.columns)
            ) from None

    def numeric(
        self,
        groups: str,
        *,
        columns: Sequence[str] | None = None,
        standardize: bool = False,
        l2: bool = False,
    ) -> tuple[Floats, NDArray[Any]]:
        r"""Return numeric rows and the group label of each.

        .. math::
            z_{ij} = (x_{ij} - \bar x_j) / s_j, \qquad
            s_j^2 = \tfrac1n \textstyle\sum_i (x_{ij} - \bar x_j)^2

        Parameters
        ----------
        groups : str
            Column of the labels, at most 50 if it holds numbers (10 unless they are whole); its
            values are returned as strings.
        columns : sequence of str, optional
            Numeric columns to take; by default those in ``numeric_columns``.
        standardize : bool
            Shift and scale each column to mean 0 and population standard deviation 1. A
            constant column becomes 0.
        l2 : bool
            Scale each row to Euclidean norm 1, after standardising; a row of zeros stays.

        Returns
        -------
        X : array (n, d)
            float64, in the data's units unless standardised.
        labels : array (n,) of str

        Raises
        ------
        DataError
            Unknown or non-numeric column, missing values, no default columns, groups that are
            measurements.
        """
        labels = self._labels(groups)
        chosen = self._chosen(columns)
        X = check_matrix(np.column_stack([self[c] for c in chosen]), self.name)
        if standardize:
            # the mean of a constant is rounded: what is left would be scaled to 1, not 0
            constant = X.min(axis=0) == X.max(axis=0)
            scale = X.std(axis=0)
            X -= X.mean(axis=0)  # in place: 2.4 million rows of 66 columns are 1.3 GB
            X /= np.where(scale > 0, scale, 1.0)
            X[:, constant] = 0.0
        if l2:
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            X /= np.where(norms > 0, norms, 1.0)
        return X, labels

    def _labels(self, groups: str) -> NDArray[Any]:
        """Return a column as strings, unless its numbers measure something."""
        column = self[groups]
        if column.dtype.kind not in "iuf":
            return column.astype(str)
        if np.isnan(column).any():
            raise DataError(
                f"column {groups!r} of {self.name} has {int(np.isnan(column).sum())} missing labels",
                remedy="choose a column without missing values",
            )
        values = np.unique(column)
        whole = bool((values == np.round(values)).all())
        if values.size > (MOST_CODES if whole else MOST_FRACTIONS):
            others = [c for c in self.group_columns if c != groups]
            raise DataError(
                f"column {groups!r} of {self.name} has {values.size} different numbers",
                f"from {values[0]} to {values[-1]}: it measures something, it is not a group",
                (f"choose {' or '.join(map(repr, others))}, or " if others else "")
                + f"bin it: numpy.digitize(data[{groups!r}], [{np.median(column):g}])",
            )
        return column.astype(str)

    def _chosen(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        if isinstance(columns, str):
            raise DataError(
                f"columns={columns!r} is one string", remedy=f"give a list: columns=[{columns!r}]"
            )
        chosen = self.numeric_columns if columns is None else tuple(columns)
        numeric = [c for c, values in self.columns.items() if values.dtype.kind in "iuf"]
        if not chosen:
            raise DataError(
                f"{self.name} has no default numeric columns"
                if columns is None
                else "columns is empty",
                remedy=f"give columns=[...] out of {', '.join(numeric) or 'none: no column is numeric'}",
            )
        for column in chosen:
            if self[column].dtype.kind not in "iuf":
                raise DataError(
                    f"column {column!r} of {self.name} is not numeric",
                    f"its first entry is {self[column][0]!s}",
                    f"choose among {', '.join(numeric)}",
                )
        return chosen

    def frame(self) -> Any:
        """Return the columns as a pandas DataFrame.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        try:
            import pandas as pd
        except ImportError as e:
            raise NotInstalled(
                "pandas is not installed", str(e), "pip install pandas, or use .columns"
            ) from None
        return pd.DataFrame({c: values.copy() for c, values in self.columns.items()})

    def __repr__(self) -> str:
        lines = [
            f"Dataset {self.name}: {self.rows} rows, {len(self.columns)} columns",
            f"  columns   {', '.join(self.columns)}",
        ]
        if self.numeric_columns:
            lines.append(f"  numeric   {', '.join(self.numeric_columns)}")
        for column in self.group_columns:
            values, counts = np.unique(self[column], return_counts=True)
            sizes = ", ".join(f"{v} {c}" for v, c in zip(values, counts, strict=True))
            lines.append(f"  groups    {column}: {sizes}")
        for word in ("licence", "citation", "source", "note"):
            text = getattr(self, word)
            if text:
                lines.append(f"  {word:<9} {text}")
        return "\n".join(lines)
