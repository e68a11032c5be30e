"""What rules on masses compare: groups, or attributes of groups that have several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.attributes import attributes_of, crossed
from optfair.core.composition import Rule
from optfair.errors import DataError, DeclarationError, nearest
from optfair.numbers import Floats, check_number, floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem


@dataclass(frozen=True)
class Margin:
    """Attributes of the groups that a rule compares, whatever the others are.

    Attributes
    ----------
    attributes : tuple of str
        Their names.
    """

    attributes: tuple[str, ...]

    def of(self, names: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        """Return the labels compared, and which groups make up each (labels x groups).

        Raises
        ------
        DeclarationError
            The groups do not have these attributes, one of them has one value only, or some of
            their values never meet.
        """
        known = attributes_of(names)
        for name in self.attributes:
            if name not in known:
                raise DeclarationError(
                    f"the groups have no attribute {name!r}",
                    "" if known else f"their labels are {', '.join(map(str, names[:3]))}, ...",
                    nearest(name, known)
                    if known
                    else "give groups as a frame with a column for each attribute",
                )
        chosen = [known[name] for name in self.attributes]
        labels = (
            chosen[0]
            if len(chosen) == 1
            else crossed(dict(zip(self.attributes, chosen, strict=True)), "groups")
        )
        levels, index = np.unique(labels, return_inverse=True)
        if levels.size < 2:
            raise DeclarationError(
                f"{' and '.join(self.attributes)} has one value only",
                f"it is {str(levels[0])!r} in every row",
                "fairness compares groups: leave the rule out",
            )
        if len(chosen) > 1:
            met = set(labels.tolist())
            every = product(*(np.unique(values).tolist() for values in chosen))
            for values in every:
                own = dict(zip(self.attributes, ([v] for v in values), strict=True))
                if (label := str(crossed(own, "groups")[0])) not in met:
                    raise DeclarationError(
                        f"no row is {label}",
                        "groups without rows have no share, and cannot be compared",
                        "compare the margins: "
                        + ", ".join(f"margin({name!r})" for name in self.attributes),
                    )
        return levels, (index == np.arange(levels.size)[:, None]).astype(float)


def margin(attribute: str) -> Margin:
    r"""Return one attribute of groups that have several, for a rule to compare.

    .. math:: M_{ak} = \sum_{g: \text{attribute}(g) = a} M_{gk}

    Parameters
    ----------
    attribute : str
        Name of a column of ``groups``.

    Returns
    -------
    Margin
        For ``on=`` of a rule.

    Examples
    --------
    >>> import optfair as of
    >>> groups = {"sex": list("fmfmfm"), "race": list("bbwwww")}
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> p = of.FairAssignment(X, groups=groups, centers=[[0.0], [5.0]], fairness=None)
    >>> p = p.with_constraints(
    ...     sex=of.perfect_fairness(on=of.margin("sex")), race=of.max_gap(0.1, on="race")
    ... )
    >>> round(float(p.solve().objective), 3)
    5.167
    """
    return intersection(attribute)


def intersection(*attributes: str) -> Margin:
    r"""Return several attributes whose values together a rule compares.

    Parameters
    ----------
    *attributes : str
        Names of columns of ``groups``.

    Returns
    -------
    Margin
        For ``on=`` of a rule. Values that never meet in a row are refused when it is bound.

    Examples
    --------
    >>> import optfair as of
    >>> of.balance(0.2, on=of.intersection("sex", "race"))
    Balance(b=0.2, on=Margin(attributes=('sex', 'race')))
    """
    if not attributes or not all(isinstance(name, str) and name for name in attributes):
        raise DeclarationError(
            f"attributes {attributes!r} are no names", remedy="name columns of groups"
        )
    if len(set(attributes)) < len(attributes):
        raise DeclarationError(f"attributes {attributes!r} has one twice", remedy="name it once")
    return Margin(tuple(map(str, attributes)))


def as_margin(on: Any) -> Margin | None:
    """Return what a rule compares; a name or several stand for themselves."""
    if on is None or isinstance(on, Margin):
        return on
    return intersection(*([on] if isinstance(on, str) or not isinstance(on, Sequence) else on))


@dataclass(frozen=True, repr=False)
class MassRule(Rule):
    """A rule that compares groups by their masses, all of them or by some attributes."""

    on: Margin | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        stated = [f for f in fields(self) if f.name != "on"]
        stated += [f for f in fields(self) if f.name == "on" and self.on is not None]
        inner = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in stated)
        return f"{type(self).__name__}({inner})"

    def target(self, problem: Problem) -> Target:
        """Return what is compared."""
        M, shares = mass_target(problem, self)
        names = np.asarray(problem.data["group_names"])
        if self.on is None:
            return Target(M, shares, names)
        levels, members = self.on.of(names)
        return Target(members @ M, members @ shares, levels)


class Target(NamedTuple):
    """Masses by label and cluster, the labels' shares of the population, and the labels."""

    masses: Any
    shares: Floats
    names: NDArray[Any]


def mass_target(problem: Problem, rule: Rule) -> tuple[Any, Floats]:
    """Return (masses variable, group shares).

    Raises
    ------
    DeclarationError
        The problem has no masses.
    """
    if "masses" not in problem.variables or "shares" not in problem.data:
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on group masses",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with FairAssignment",
        )
    return problem["masses"], np.asarray(problem.data["shares"])


def open_limits(problem: Problem, limits: Any, rows: int = 0) -> Any:
    """Return limits of what clusters hold, in so many rows: nothing of sites that are closed."""
    if "opening_costs" not in problem.data:
        return limits
    held = cp.multiply(limits, problem["open"])
    return np.ones((rows, 1)) @ cp.reshape(held, (1, held.size), order="F") if rows else held


def between(value: Any, lower: float, upper: float) -> bool:
    """Whether a value is one number in an interval."""
    try:
        return lower <= check_number(value, "") <= upper
    except DataError:
        return False


def finite_vector(value: Any, size: int, what: str) -> Floats:
    """Return ``size`` finite numbers from one number or as many."""
    try:
        numbers = floats(value, what)
    except DataError:
        numbers = np.zeros(size + 1)
    if numbers.shape not in ((), (size,)):
        raise DeclarationError(
            f"{what}={value!r} is neither a finite number nor {size} of them",
            remedy=f"give one number, or {size}",
        )
    return np.broadcast_to(numbers, (size,)).copy()


def group_vector(value: Any, names: list[Any], what: str, default: float) -> Floats:
    """Return one number per group from a number or a dict by group label."""
    if value is None:
        return np.full(len(names), default)
    value = value.to_dict() if hasattr(value, "to_dict") else value  # a pandas Series, by label
    if isinstance(value, Mapping):
        known = {str(n): i for i, n in enumerate(names)}
        out = np.full(len(names), default)
        for label, number in value.items():
            if str(label) not in known:
                raise DeclarationError(
                    f"{what} names an unknown group {label!r}", remedy=nearest(str(label), known)
                )
            out[known[str(label)]] = check_number(number, f"{what} of group {label!r}")
        return out
    return finite_vector(value, len(names), what)
