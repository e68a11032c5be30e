"""Rules on one point, the options that stand for them, and what a counterfactual may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.composition import Parts, Rule
from optfair.errors import DataError, DeclarationError, nearest
from optfair.features.feature_problem import Box, FeatureProblem, Immutable, Monotone, box, listed
from optfair.numbers import (
    LARGEST,
    Floats,
    check_choice,
    check_count,
    check_number,
    checked,
    floats,
    real,
    whole,
)
from optfair.proofs.definiteness import dense_shift

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Rules on how many features change.


@dataclass(frozen=True)
class AtMostChanges(Rule):
    """At most so many features change; None counts them and does not bound the number."""

    most: int | None = None
    latex = r"\textstyle\sum_j b_j \le s,\; (l_j - y_j) b_j \le z_j - y_j \le (u_j - y_j) b_j"

    def bind(self, problem: Problem) -> Any:
        """Return the flags of changed features and what ties them to the point."""
        p, z = _point(problem, self)
        lower, upper = p.limits
        y = p.factual
        loose = [p.features[j] for j in np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper)))]
        if loose:
            raise DeclarationError(
                "changes cannot be counted without bounds on every feature that may change",
                f"there are none for {', '.join(map(repr, loose[:10]))}",
                "give lower= and upper=, e.g. the range of the data, before counting changes",
            )
        b = cp.Variable(y.size, name="changed")
        constraints = {
            "up": z - y <= cp.multiply(upper - y, b),
            "down": y - z <= cp.multiply(y - lower, b),
            "zero": b >= 0,
            "one": b <= 1,
        }
        if self.most is not None:
            constraints["count"] = cp.sum(b) <= float(self.most)
        return Parts(constraints, {"changed": b}, {"changed"})


@checked(most=check_count)
def at_most_changes(most: int) -> AtMostChanges:
    r"""At most so many features change.

    .. math::
        \sum_j b_j \le s,\quad (l_j - y_j)\, b_j \le z_j - y_j \le (u_j - y_j)\, b_j,
        \quad b \in \{0, 1\}^d

    Class: MILP. The bounds l, u on the features must be there before this rule: they say how
    far a feature moves when it changes, and bind for as long as this rule is there.

    Parameters
    ----------
    most : int
        s.

    Returns
    -------
    AtMostChanges
        Its flags are the variable ``name.changed``.

    Raises
    ------
    DeclarationError
        No whole number, or a feature without bounds.

    Examples
    --------
    >>> at_most_changes(2)
    AtMostChanges(most=2)
    """
    return AtMostChanges(most)


# Rules that keep a point where data are.


@dataclass(frozen=True)
class LeastDensity(Rule):
    """The target cluster's density at the point is at least this."""

    density: float
    latex = r"p_t(z) \ge \delta"

    def bind(self, problem: Problem) -> Any:
        """Return the ellipsoid of the target."""
        p: Any = problem
        if not hasattr(p, "dense"):
            raise DeclarationError(
                "least_density is a rule on counterfactuals of Gaussian clusters",
                f"this problem has the variables {', '.join(problem.variables)}",
                "use it with ClusterCounterfactual.gaussian",
            )
        return p.dense(self.density)


def check_density(value: Any, what: str) -> float:
    """Return a number above zero; densities in small units are of any size."""
    return check_number(value, what, positive=True, infinite=True)


@checked(density=check_density)
def least_density(density: float) -> LeastDensity:
    r"""Density of the target cluster at the counterfactual is at least δ.

    .. math::
        p_t(z) \ge \delta \iff
        \tfrac12 (z - m_t)^T \Sigma_t^{-1} (z - m_t) \le \log p_t(m_t) - \log\delta

    An ellipsoid. Class: convex QCQP.

    Parameters
    ----------
    density : float
        δ > 0, at most the density at the mean of the target. Where it is that, the mean alone is
        left, by bounds on every feature.

    Returns
    -------
    LeastDensity

    Raises
    ------
    DeclarationError
        When bound: clusters that have no density, or a density that is nowhere reached.

    Examples
    --------
    >>> least_density(0.01)
    LeastDensity(density=0.01)
    """
    return LeastDensity(density)


# Rules on features that take whole numbers, or one of several categories.


def _point(problem: Problem, rule: Rule) -> tuple[Any, Any]:
    p = rule.fitting(problem, FeatureProblem)
    if "point" not in p.variables:
        raise DeclarationError(
            f"{type(rule).__name__} needs a problem of one point",
            f"this one has {', '.join(p.variables)}",
            "use it with a ClusterCounterfactual",
        )
    return p, p["point"]


@dataclass(frozen=True)
class WholeNumbers(Rule):
    """Features that take whole numbers."""

    features: tuple[Any, ...]
    latex = r"z_j \in \mathbb{Z}"

    def __post_init__(self) -> None:
        if not self.features:
            raise DeclarationError("whole_numbers names no feature", remedy="name at least one")

    def bind(self, problem: Problem) -> Any:
        """Return an integer copy of the features."""
        p, z = _point(problem, self)
        at = p.feature_indices(self.features)
        whole = cp.Variable(at.size, name="whole")
        return Parts({"copy": z[at] == whole}, {"whole": whole}, {"whole"})


@dataclass(frozen=True)
class OneHot(Rule):
    """Features of which exactly one is 1 and the others are 0."""

    features: tuple[Any, ...]
    latex = r"z_J \in \{0, 1\}^J,\; \textstyle\sum_{j \in J} z_j = 1"

    def __post_init__(self) -> None:
        if len(self.features) < 2:
            raise DeclarationError(
                f"one_hot has {len(self.features)} feature(s)", remedy="name at least two"
            )

    def bind(self, problem: Problem) -> Any:
        """Return a binary copy of the features that sums to 1."""
        p, z = _point(problem, self)
        at = p.feature_indices(self.features)
        choice = cp.Variable(at.size, name="choice")
        # bounds on the features themselves, as other rules ask for them
        within = p.within(at, np.zeros(at.size), np.ones(at.size))
        return Parts(
            {"copy": z[at] == choice, "one": cp.sum(choice) == 1, **within},
            {"choice": choice},
            {"choice"},
        )


def whole_numbers(*features: Any) -> WholeNumbers:
    r"""Features that take whole numbers.

    .. math:: z_j \in \mathbb{Z}

    Class: makes a QP a MIQP, an LP a MILP.

    Parameters
    ----------
    *features : str or int
        Names or columns, in whole units: scaled features are not whole.

    Returns
    -------
    WholeNumbers
        Its integers are the variable ``name.whole``.

    Examples
    --------
    >>> whole_numbers("children")
    WholeNumbers(features=('children',))
    """
    return WholeNumbers(features)


def one_hot(*features: Any) -> OneHot:
    r"""Features that encode one category: exactly one is 1, the others are 0.

    .. math:: z_J \in \{0, 1\}^J,\quad \sum_{j \in J} z_j = 1

    Class: makes a QP a MIQP, an LP a MILP.

    Parameters
    ----------
    *features : str or int
        Names or columns of one group; a rule per group.

    Returns
    -------
    OneHot
        Its flags are the variable ``name.choice``.

    Examples
    --------
    >>> one_hot("owns", "rents")
    OneHot(features=('owns', 'rents'))
    """
    return OneHot(features)


# Checks of what a counterfactual may change and how distance is measured.

DISTANCES = ("l2", "l1", "changes")


def check_factual(factual: Any, d: int, names: tuple[str, ...]) -> Floats:
    """Return the factual as a finite vector."""
    if hasattr(factual, "reindex") and hasattr(factual, "index"):  # a row of a data frame
        labels = [str(c) for c in factual.index]
        missing = [n for n in names if n not in labels]
        if 0 < len(missing) < d:  # names that are all others tell no feature
            raise DataError(
                f"factual has no {', '.join(missing[:10])}",
                f"its entries are {', '.join(labels[:20])}",
                "name them as the features, or give an array",
            )
        if not missing and len(labels) == d:
            factual = [factual.iloc[labels.index(n)] for n in names]
    y = floats(factual, "factual")
    if y.shape == (1, d):
        y = y[0]
    if y.shape != (d,):
        raise DataError(
            "factual does not fit the clusters",
            f"shape {y.shape} for {d} features",
            f"give one row of {d} numbers",
        )
    y.flags.writeable = False
    return y


def check_cluster(given: Any, K: int, what: str) -> int:
    """Return a cluster number."""
    if not whole(given) or not 0 <= given < K:
        raise DeclarationError(
            f"{what} {given!r} is not a cluster",
            f"there are {K}",
            f"give a number from 0 to {K - 1}"
            + (", or let ClusterCounterfactual.of choose" if what == "target" else ""),
        )
    return int(given)


def check_mask(mask: Any, d: int) -> NDArray[np.intp]:
    """Return the columns that a mask holds fixed; true is free, as in the paper."""
    if mask is None:
        return np.zeros(0, dtype=np.intp)
    m = floats(mask, "mask")
    if m.shape != (d,) or not np.isin(m, (0.0, 1.0)).all():
        raise DeclarationError(
            "mask is not a flag per feature",
            f"shape {np.shape(mask)} for {d} features",
            "give 1 for a feature that may change and 0 for one that may not,"
            " or name those that may not: immutable=[...]",
        )
    if not m.any():
        raise DeclarationError(
            "the mask frees no feature", remedy="free at least one: nothing could change"
        )
    return np.flatnonzero(m == 0.0)


def check_metric(weights: Any, metric: Any, distance: str, d: int) -> Floats | None:
    """Return weights (d,), a matrix (d, d), or None for equal weights."""
    check_choice(distance, "distance", DISTANCES)
    if weights is not None and metric is not None:
        raise DeclarationError(
            "give weights or a metric, not both", remedy="weights are the diagonal of the metric"
        )
    given, what = (weights, "weights") if metric is None else (metric, "metric")
    if given is None:
        return None
    W = floats(given, what)
    if W.shape != ((d,) if metric is None else (d, d)):
        raise DataError(
            f"{what} does not fit the features",
            f"shape {W.shape} for {d} features",
            "give one positive number per feature"
            if metric is None
            else f"give a symmetric matrix ({d}, {d})",
        )
    if metric is None:
        if (W <= 0.0).any():
            raise DataError(
                "weights are not all positive",
                f"the least is {W.min():g}",
                "a feature that must not change is immutable; one that is free of charge is not"
                " bounded by the distance",
            )
        return W
    if distance != "l2":
        raise DeclarationError(
            f"distance {distance!r} has no metric matrix", remedy="give weights, or distance='l2'"
        )
    fault, own = "it is not symmetric", np.asarray((W + W.T) / 2.0)
    if np.abs(W - W.T).max() <= 1e-10 * np.abs(W).max():
        fault = _singular(own)
    if fault:
        raise DataError(
            "metric is not positive definite",
            fault,
            "for a Mahalanobis distance give the inverse of a covariance",
        )
    return own


def _singular(W: Floats) -> str:
    """Say why a symmetric matrix is not positive definite clear of rounding, in units of its features."""
    least = float(np.linalg.eigvalsh(W)[0])
    if least <= 0.0:
        return f"its least eigenvalue is {least:.3g}"
    unit = np.exp2(np.round(np.log2(np.diag(W)) / 2.0))
    near = dense_shift(W / unit / unit[:, None], 0.0) > 0.0
    return "it is singular, up to the rounding of its entries" if near else ""


def check_plausibility(plausibility: Any, kind: str) -> float:
    """Return ε >= 0; for k-means it must leave the center of the target inside."""
    eps = real(plausibility)
    if not 0.0 <= eps <= LARGEST:
        raise DeclarationError(
            f"plausibility {plausibility!r} is not a number >= 0",
            remedy="0 is the boundary, larger lies deeper in the target",
        )
    return eps


# Options of a counterfactual as the rules they stand for.

OPTIONS = (
    *("immutable", "lower", "upper", "increasing", "decreasing"),
    *("whole", "one_hot", "max_changes", "density"),
)


def option_rules(
    d: int, names: tuple[str, ...], kept: NDArray[np.intp], options: Mapping[str, Any]
) -> dict[str, Rule]:
    """Return the rules that options stand for, by the names their terms get.

    Parameters
    ----------
    d : int
        Number of features.
    names : tuple of str
        Their names.
    kept : array
        Columns that a mask holds fixed.
    options : mapping
        As somebody typed them.
    """
    for name in options:
        if name not in OPTIONS:
            raise DeclarationError(f"unknown option {name!r}", remedy=nearest(name, OPTIONS))
    rules: dict[str, Rule] = {}
    held = list(listed(options.get("immutable")))
    if kept.size and held:
        raise DeclarationError(
            "give a mask or immutable features, not both", remedy="they say the same"
        )
    held += kept.tolist()
    if held:
        rules["immutable"] = Immutable(tuple(held))
    bounds = _bounds(d, names, options.get("lower"), options.get("upper"))
    if bounds is not None:
        rules["bounds"] = bounds
    up, down = listed(options.get("increasing")), listed(options.get("decreasing"))
    if up or down:
        rules["direction"] = Monotone(up, down)
    if listed(options.get("whole")):
        rules["whole"] = WholeNumbers(listed(options["whole"]))
    for i, group in enumerate(_groups(options.get("one_hot"))):
        rules[f"one-hot {i}"] = OneHot(group)
    if options.get("density") is not None:
        rules["density"] = LeastDensity(check_density(options["density"], "density"))
    if options.get("max_changes") is not None:
        rules["changes"] = AtMostChanges(
            check_count(options["max_changes"], "max_changes", least=0)
        )
    return rules


def _bounds(d: int, names: tuple[str, ...], lower: Any, upper: Any) -> Box | None:
    if lower is None and upper is None:
        return None
    low, low_keys = _side(d, names, lower, -np.inf, "lower")
    high, high_keys = _side(d, names, upper, np.inf, "upper")
    given: dict[Any, tuple[float, float]] = {}
    for j in range(d):
        if np.isfinite(low[j]) or np.isfinite(high[j]):
            given[names[j]] = (low[j], high[j])
    # names that are not features fail when the rule is bound, with a suggestion
    for key in (*low_keys, *high_keys):
        given[key] = (-1.0, 1.0)
    return box(given) if given else None


def _side(
    d: int, names: tuple[str, ...], given: Any, otherwise: float, what: str
) -> tuple[NDArray[np.float64], list[Any]]:
    side = np.full(d, otherwise)
    if given is None:
        return side, []
    if isinstance(given, Mapping):
        unknown = []
        for key, value in given.items():
            column = key if not isinstance(key, str) else names.index(key) if key in names else None
            if column is None or not 0 <= column < d:
                unknown.append(key)
            else:
                side[column] = (
                    otherwise if value is None else check_number(value, what, infinite=True)
                )
        return side, unknown
    try:
        rows = np.asarray(
            [otherwise if v is None else v for v in given] if np.ndim(given) else given, dtype=float
        )
        return np.array(np.broadcast_to(np.where(np.isnan(rows), otherwise, rows), (d,))), []
    except (TypeError, ValueError):
        raise DeclarationError(
            f"{what} does not fit the features",
            f"shape {np.shape(given)} for {d} features",
            "give a number, one per feature, or a dict by name",
        ) from None


def _groups(given: Any) -> list[tuple[Any, ...]]:
    if given is None:
        return []
    groups = [listed(g) for g in listed(given)]
    if groups and all(len(g) == 1 for g in groups):
        return [tuple(f for g in groups for f in g)]  # one group, not wrapped in a list
    return groups
