"""Problems whose answer says what every feature becomes."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.problem import Problem
from optfair.errors import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["FeatureProblem", "feature_names"]


def feature_names(X: Any, size: int) -> tuple[str, ...]:
    """Return the column names of a data frame, else ``x0`` to ``x{size - 1}``.

    Parameters
    ----------
    X : array-like or DataFrame
        Rows; anything with ``columns`` is taken for a data frame.
    size : int
        Number of features.

    Examples
    --------
    >>> feature_names([[1.0, 2.0]], 2)
    ('x0', 'x1')
    """
    names = tuple(str(c) for c in getattr(X, "columns", ()))
    if not names:
        return tuple(f"x{j}" for j in range(size))
    if len(names) != size or len(set(names)) != size:
        raise DataError(
            f"{len(set(names))} different column names for {size} features",
            f"they are {', '.join(names)}",
            "give every column one name of its own",
        )
    return names


class FeatureProblem(Problem, ABC):
    """A problem that moves points of named features.

    The rules on features (`immutable`, `box`, `monotone`) ask a problem for their constraints
    through three hooks, because only it knows how its variables move a feature: `fixed`,
    `within` and `moves`. A hook returns one CVXPY constraint or `ConstraintTerm`, or a dict of
    them by part.

    A subclass puts ``features`` (tuple of names) into its data.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in the order of the columns."""
        names: tuple[str, ...] = self.data["features"]
        return names

    def feature_index(self, feature: Any) -> int:
        """Return the column of a feature given by name or number.

        Parameters
        ----------
        feature : str or int
            A name, or a column from 0.

        Raises
        ------
        DataError
            No such feature; the nearest names are given.
        """
        names = self.features
        if isinstance(feature, (int, np.integer)) and not isinstance(feature, bool):
            if 0 <= feature < len(names):
                return int(feature)
            raise DataError(
                f"no feature {int(feature)}",
                f"there are {len(names)}",
                f"give a column from 0 to {len(names) - 1}, or a name",
            )
        text = str(feature)
        if text in names:
            return names.index(text)
        near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
        raise DataError(
            f"no feature {feature!r}",
            f"the features are {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}",
            f"did you mean {' or '.join(map(repr, near))}?" if near else "give one of them",
        )

    def feature_indices(self, features: Iterable[Any]) -> Indices:
        """Return the columns of features given by name or number, each once."""
        found = [self.feature_index(f) for f in features]
        twice = [self.features[j] for j in dict.fromkeys(found) if found.count(j) > 1]
        if twice:
            raise DataError(f"feature {twice[0]!r} is named twice", remedy="name it once")
        return np.array(found, dtype=np.intp)

    @abstractmethod
    def fixed(self, indices: Indices) -> Any:
        """Return the constraint that these features stay as they are."""

    @abstractmethod
    def within(self, indices: Indices, lower: Floats, upper: Floats) -> Any:
        """Return the constraints that these features end between bounds.

        Parameters
        ----------
        indices : int array (m,)
            Columns.
        lower, upper : arrays (m,)
            Bounds in the units of the features; infinite where there is none.
        """

    @abstractmethod
    def moves(self, indices: Indices, sign: Floats) -> Any:
        """Return the constraints that these features only grow (+1) or only shrink (-1).

        Parameters
        ----------
        indices : int array (m,)
            Columns.
        sign : array (m,)
            +1 or -1.
        """
