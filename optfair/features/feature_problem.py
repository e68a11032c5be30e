"""Problems whose answer says what every feature becomes, and rules on single features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.core.composition import Rule
from optfair.core.labels import Axis
from optfair.core.parameters import Datum
from optfair.core.problem import Problem
from optfair.errors import DataError, DeclarationError, kind_of, nearest
from optfair.numbers import Floats, Indices, check_number, whole

# Problems whose answer says what every feature becomes.


def feature_names(X: Any, size: int) -> tuple[str, ...]:
    """Return the column names of a data frame, else ``x0`` to ``x{size - 1}``.

    Raises
    ------
    DataError
        Names that are not as many, or not different.
    """
    return checked_names(getattr(X, "columns", None), size, "column name")


def checked_names(given: Iterable[Any] | None, size: int, what: str = "name") -> tuple[str, ...]:
    """Return names of features as somebody gave them, as `feature_names` those of a frame."""
    names = () if given is None else tuple(map(str, given))
    if not names:
        return tuple(f"x{j}" for j in range(size))
    if len(names) != size or len(set(names)) != size:
        raise DataError(
            f"{len(set(names))} different {what}s for {size} features",
            f"they are {', '.join(names[:20])}",
            "give one per feature, each another",
        )
    return names


def column_index(names: Sequence[str], column: Any, what: str = "feature") -> int:
    """Return the place of a column given by name or number.

    Raises
    ------
    DataError
        No such column; the nearest names are given.
    """
    if whole(column):
        if 0 <= column < len(names):
            return int(column)
        raise DataError(
            f"no {what} {int(column)}",
            f"there are {len(names)}",
            f"give a column from 0 to {len(names) - 1}, or a name",
        )
    text = str(column)[:200]
    if text in names:
        return list(names).index(text)
    raise DataError(
        f"no {what} {column!r}",
        f"the {what}s are {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}",
        nearest(text, names),
    )


class FeatureProblem(Problem, ABC):
    """A problem that moves points of named features.

    The rules on features (`immutable`, `box`, `monotone`) ask a problem for their constraints
    through three hooks, because only it knows how its variables move a feature: `fixed`,
    `within` and `moves`. A hook returns one CVXPY constraint or `ConstraintTerm`, or a dict of
    them by part.

    A subclass puts ``features`` (tuple of names) into its data.
    """

    features = Datum[tuple[str, ...]]("Names of the features, in the order of the columns.")
    rules_on = "features", "use it with a problem of counterfactuals or of a map"

    def model_axes(self) -> Mapping[str, Any]:
        """Return the features, of what has a last axis of them."""
        last, d = Axis("feature", self.features), len(self.features)
        named = {**self.variables, **self.constraints}
        wide = {k: v.shape for k, v in named.items() if v.shape and v.shape[-1] == d}
        return {k: last if len(n) == 1 else (*[None] * (len(n) - 1), last) for k, n in wide.items()}

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
        return column_index(self.features, feature)

    def feature_indices(self, features: Iterable[Any]) -> Indices:
        """Return the columns of features given by name or number, each once."""
        indices = [self.feature_index(f) for f in features]
        twice = [self.features[j] for j in dict.fromkeys(indices) if indices.count(j) > 1]
        if twice:
            raise DataError(f"feature {twice[0]!r} is named twice", remedy="name it once")
        return np.array(indices, dtype=np.intp)

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


def sides_within(
    indices: Indices, lower: Floats, upper: Floats
) -> Iterator[tuple[str, str, Indices, Floats]]:
    """Yield (word, relation, columns, limits) of the finite bounds, below and above."""
    for word, relation, limit in (("lower", ">=", lower), ("upper", "<=", upper)):
        if (at := np.isfinite(limit)).any():
            yield word, relation, indices[at], limit[at]


def sides_moved(indices: Indices, sign: Floats) -> Iterator[tuple[str, str, Indices]]:
    """Yield (word, relation to where they start, columns) of what only grows, and only shrinks."""
    for word, relation, at in (("up", ">=", sign > 0), ("down", "<=", sign < 0)):
        if at.any():
            yield word, relation, indices[at]


# Rules on what may happen to single features.


@dataclass(frozen=True)
class Immutable(Rule):
    """Features that stay as they are."""

    features: tuple[Any, ...]
    latex = r"g(x)_j = x_j"

    def __post_init__(self) -> None:
        if not self.features:
            raise DeclarationError("immutable names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return what keeps the features."""
        p = self.fitting(problem, FeatureProblem)
        return p.fixed(p.feature_indices(self.features))


@dataclass(frozen=True)
class Box(Rule):
    """Features that end between bounds."""

    bounds: tuple[tuple[Any, float, float], ...]
    latex = r"l_j \le g(x)_j \le u_j"

    def bind(self, problem: Problem) -> Any:
        """Return the bounds of the features."""
        p = self.fitting(problem, FeatureProblem)
        indices = p.feature_indices(f for f, _, _ in self.bounds)
        _, lower, upper = zip(*self.bounds, strict=True)
        return p.within(indices, np.array(lower, dtype=float), np.array(upper, dtype=float))


@dataclass(frozen=True)
class Monotone(Rule):
    """Features that only grow, or only shrink."""

    increasing: tuple[Any, ...] = ()
    decreasing: tuple[Any, ...] = ()
    latex = r"\pm (g(x)_j - x_j) \ge 0"

    def __post_init__(self) -> None:
        if not self.increasing and not self.decreasing:
            raise DeclarationError("monotone names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return the directions of the features."""
        p = self.fitting(problem, FeatureProblem)
        indices = p.feature_indices((*self.increasing, *self.decreasing))
        ups, downs = len(self.increasing), len(self.decreasing)
        return p.moves(indices, np.repeat([1.0, -1.0], [ups, downs]))


def immutable(*features: Any) -> Immutable:
    r"""Features that stay as they are.

    .. math:: g(x)_j = x_j

    Class: LP. Of a map, it holds for every point and not for the members alone.

    Parameters
    ----------
    *features : str or int
        Names or columns.

    Returns
    -------
    Immutable
        A rule for ``with_constraints``.

    Raises
    ------
    DeclarationError
        No feature named.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> immutable("age", "sex")
    Immutable(features=('age', 'sex'))
    """
    return Immutable(features)


def box(bounds: Mapping[Any, tuple[float | None, float | None]]) -> Box:
    r"""Features that end between bounds.

    .. math:: l_j \le g(x)_j \le u_j

    Class: LP. Of a map, it holds for the members; an affine map that is not constant in a
    feature leaves every box somewhere.

    Parameters
    ----------
    bounds : dict
        Feature, by name or column -> (lower, upper) in its units; None where there is no bound.

    Returns
    -------
    Box
        Its terms are called ``name.feature lower`` and ``name.feature upper``.

    Raises
    ------
    DeclarationError
        A bound that is no number, lower above upper, nothing bounded.

    Examples
    --------
    >>> box({"income": (0, None), "hours": (0, 60)})
    Box(bounds=(('income', 0.0, inf), ('hours', 0.0, 60.0)))
    """
    if not isinstance(bounds, Mapping) or not bounds:
        raise DeclarationError(
            "box names no feature", remedy="give a dict: box({'hours': (0, 60)})"
        )
    rows = []
    for feature, pair in bounds.items():
        try:
            low, high = pair
            lower = -np.inf if low is None else check_number(low, "bound", infinite=True)
            upper = np.inf if high is None else check_number(high, "bound", infinite=True)
        except (TypeError, ValueError):
            raise DeclarationError(
                f"the bounds of {feature!r} are {pair!r}",
                remedy="give (lower, upper), with None where there is no bound",
            ) from None
        if not lower <= upper or lower == np.inf or upper == -np.inf:
            raise DeclarationError(
                f"the bounds [{lower:g}, {upper:g}] of {feature!r} are no interval",
                remedy="give lower <= upper",
            )
        if np.isinf(lower) and np.isinf(upper):
            raise DeclarationError(
                f"the box of {feature!r} has no bound", remedy="give one, or leave the feature out"
            )
        rows.append((feature, lower, upper))
    return Box(tuple(rows))


def monotone(increasing: Any = (), decreasing: Any = ()) -> Monotone:
    r"""Features that only grow, or only shrink.

    .. math:: g(x)_j \ge x_j \quad\text{or}\quad g(x)_j \le x_j

    Class: LP. Of a map, it holds for the members.

    Parameters
    ----------
    increasing, decreasing : feature or sequence of features
        Names or columns.

    Returns
    -------
    Monotone

    Raises
    ------
    DeclarationError
        No feature named.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> monotone(increasing=("education",), decreasing="debt")
    Monotone(increasing=('education',), decreasing=('debt',))
    """
    return Monotone(listed(increasing), listed(decreasing))


def listed(features: Any) -> tuple[Any, ...]:
    """Return features given alone or in a sequence as a tuple."""
    if features is None:
        return ()
    if isinstance(features, (str, int, np.integer)):
        return (features,)
    if isinstance(features, Mapping) or not isinstance(features, Iterable):
        raise DeclarationError(
            f"features given as {kind_of(features)}", remedy="give a list of names"
        )
    return tuple(features)
