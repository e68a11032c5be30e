"""Cost, geometry and validity of a group of counterfactuals, and of maps on members they were not fitted on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from optfair.errors import DataError, DeclarationError, Tabled, data_frame, kind_of
from optfair.features.linear_score import LinearScore
from optfair.features.predictor import Predictor, class_labels
from optfair.numbers import (
    Floats,
    check_callable,
    check_count,
    check_matrix,
    check_number,
    check_probability,
    check_seed,
    check_weights,
    checked,
)
from optfair.rows.frames import in_one_order

# What a counterfactual must reach: a probability or a score of one class, from any classifier.


class Target:
    r"""A class and the least probability (or score) of it.

    .. math:: m(z) = P(c \mid z) - \alpha \quad\text{or}\quad m(z) = \pm s(z) - \tau

    Parameters
    ----------
    score : classifier
        Anything with ``predict_proba`` (or ``decision_function``, where a threshold is given),
        linear or not; or (coef, intercept) of a log-odds.
    probability : float, optional
        α inside (0, 1), one half by default.
    threshold : float, optional
        τ in place of α, in units of ``decision_function``.
    target_class : label, optional
        The second class by default.

    Raises
    ------
    DeclarationError
        α outside (0, 1), both α and τ, unknown class, or a model that gives no such number.

    Examples
    --------
    >>> target = Target(([1.0, -2.0], 0.5), probability=0.5)
    >>> target.margin([[0.0, 0.0], [-1.0, 0.0]]).round(4).tolist()
    [0.1225, -0.1225]
    """

    def __init__(
        self,
        score: Any,
        *,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
    ) -> None:
        if probability is not None and threshold is not None:
            raise DeclarationError(
                "give a probability or a threshold of the score, not both", remedy="leave one out"
            )
        model = LinearScore.of(score) if isinstance(score, (tuple, list)) else score
        linked = getattr(model, "link", "logistic") is not None
        self.in_scores = threshold is not None or (
            probability is None and not (linked and hasattr(model, "predict_proba"))
        )
        self.level = _level(0.0 if self.in_scores and threshold is None else threshold, probability)
        needed = "decision_function" if self.in_scores else "predict_proba"
        classes = class_labels(model)
        if classes is None:
            raise DeclarationError(
                f"{kind_of(model)} has no classes",
                "a fitted classifier has classes_, one per column of predict_proba",
                "fit it first, or give (coef, intercept)",
            )
        self.predictor = Predictor(model, output=needed, target_class=target_class)
        if self.in_scores and len(classes) > 2:
            raise DeclarationError(
                f"a score of {len(classes)} classes is not one number",
                remedy="give a model with predict_proba and probability=",
            )

    def margin(self, Z: Any) -> Floats:
        """Return by how much each row exceeds the level; negative where it falls short.

        Parameters
        ----------
        Z : array-like (n, d)
            Rows.

        Raises
        ------
        DataError
            The model returns something that is not one finite number per row and class.
        """
        return self.predictor(check_matrix(Z, "Z")) - self.level

    def __repr__(self) -> str:
        what = "score" if self.in_scores else "probability"
        return f"Target: {what} of {self.predictor.target_class!r} at least {self.level:g}"


def _level(threshold: float | None, probability: float | None) -> float:
    if threshold is not None:
        return check_number(threshold, "threshold")
    return 0.5 if probability is None else check_probability(probability, "probability")


# Cost, geometry and validity of a group of counterfactuals, member by member.
#
# Notation: members :math:`x_i` and their counterfactuals :math:`z_i = g(x_i)`, in the same order.
# The two constants say how a map stretches and how it shrinks distances,
#
# .. math::
#     \hat K = \max_{i \ne j} \frac{\|z_i - z_j\|}{\|x_i - x_j\|}, \qquad
#     \hat k = \max_{i \ne j} \frac{\|x_i - x_j\|}{\|z_i - z_j\|},
#
# over the pairs of different members. Equations (32) and (33) of the paper print the inverse of
# the first ratio, and a minimum in both: the minimum there is the share that remains of the pair
# that shrinks most, :math:`1/\hat k`, and cannot be the :math:`\hat k` of its own eq. (34).

# Distances held at a time: a block of rows against all later ones.
BLOCK = 1_000_000
# An exact projection stands on the threshold: rounding must not count it as invalid.
SLACK = 1e-9


class LipschitzConstants(NamedTuple):
    """How a map stretches and shrinks the distances of a group.

    Attributes
    ----------
    upper : float
        Largest distance ratio image / original, the least K that holds.
    lower : float
        Largest ratio original / image, the least k that holds; infinite when two different
        members have the same counterfactual.
    upper_pair, lower_pair : tuple of (int, int)
        Members that attain them; (-1, -1) where no two members differ.
    """

    upper: float
    lower: float
    upper_pair: tuple[int, int]
    lower_pair: tuple[int, int]


@in_one_order("X", "Z", "sample_weight")
def transport_cost(X: Any, Z: Any, *, sample_weight: Any = None) -> float:
    r"""Return the mean squared distance to the counterfactuals, the paper's :math:`W_2^2`.

    .. math:: \textstyle\sum_i w_i \|x_i - z_i\|^2, \qquad w_i = 1/n \text{ by default}

    The cost of the coupling that keeps each member with its own counterfactual; it is the
    squared Wasserstein distance when that coupling is optimal, as for a gradient of a convex
    function (A symmetric and positive semidefinite), and an upper bound otherwise.

    Parameters
    ----------
    X, Z : array-like (n, d)
        Members and their counterfactuals.
    sample_weight : array-like (n,), optional
        Weights; equal by default.

    Returns
    -------
    float
        In squared units of the features.

    Raises
    ------
    DataError
        Shapes that do not fit, non-finite entries.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.transport_cost([[0.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [1.0, 0.0]])
    2.0

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, eq. (31).
    """
    members, images = moved_members(X, Z)
    weights = check_weights(sample_weight, members.shape[0])
    return float(weights @ np.einsum("ij,ij->i", images - members, images - members))


@in_one_order("X", "Z")
def lipschitz_constants(X: Any, Z: Any) -> LipschitzConstants:
    r"""Return the empirical constants :math:`\hat K` and :math:`\hat k` with the pairs that attain them.

    All pairs are looked at, a block of rows at a time: memory does not grow with n². Pairs of
    equal members are skipped.

    Parameters
    ----------
    X, Z : array-like (n, d)
        Members and their counterfactuals.

    Returns
    -------
    LipschitzConstants
        Both constants are NaN when no two members differ.

    Raises
    ------
    DataError
        Shapes that do not fit, non-finite entries.

    Examples
    --------
    >>> from optfair import metrics
    >>> found = metrics.lipschitz_constants([[0.0], [1.0], [3.0]], [[0.0], [2.0], [3.0]])
    >>> found.upper, found.upper_pair, found.lower, found.lower_pair
    (2.0, (0, 1), 2.0, (1, 2))

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, eq. (32) and (33),
    corrected as above.
    """
    members, images = moved_members(X, Z)
    nobody = (-1, -1)
    high, low = (-np.inf, nobody), (np.inf, nobody)
    for start, before, after in _distances(members, images):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = after / before
        ratio[before == 0.0] = np.nan  # duplicates, and the diagonal
        if np.isnan(ratio).all():
            continue
        ends = (np.unravel_index(f(ratio), ratio.shape) for f in (np.nanargmax, np.nanargmin))
        most, least = ((float(ratio[i, j]), (int(start + i), int(start + j))) for i, j in ends)
        high, low = max(high, most, key=itemgetter(0)), min(low, least, key=itemgetter(0))
    if high[1] == nobody:
        return LipschitzConstants(np.nan, np.nan, nobody, nobody)
    shrunk = 1.0 / low[0] if low[0] > 0 else np.inf
    return LipschitzConstants(high[0], shrunk, high[1], low[1])


def distortion(X: Any, Z: Any) -> float:
    r"""Return how much a map changes distances, from 0 (none) to 1 (members collapse).

    .. math:: \hat D = 1 - \frac{1}{\max(\hat K, \hat k)}

    Parameters
    ----------
    X, Z : array-like (n, d)
        Members and their counterfactuals.

    Returns
    -------
    float
        Between 0 and 1; NaN when no two members differ.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.distortion([[0.0], [1.0], [3.0]], [[0.0], [2.0], [3.0]])
    0.5

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, eq. (34).
    """
    constants = lipschitz_constants(X, Z)
    # with two or more members the larger of a ratio and its inverse is at least 1
    return float(1.0 - 1.0 / np.maximum(constants.upper, constants.lower))


def validity(
    Z: Any,
    score: Any,
    *,
    probability: float | None = None,
    threshold: float | None = None,
    target_class: Any = None,
) -> float:
    r"""Return the share of counterfactuals that reach the target.

    .. math:: \tfrac1n \textstyle\sum_i [\,P(c \mid z_i) > \alpha - 10^{-9}\,]

    An exact projection stands on the threshold, so the paper's strict inequality would call it
    invalid or not by its last digit.

    Parameters
    ----------
    Z : array-like (n, d)
        Counterfactuals.
    score : classifier
        Any with ``predict_proba`` or ``decision_function``, or (coef, intercept) of a log-odds.
    probability : float, optional
        α, one half by default.
    threshold : float, optional
        Least score in place of α.
    target_class : label, optional
        The second class by default.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    DataError, DeclarationError
        Non-finite entries; a target the model has no number for.

    Examples
    --------
    >>> from optfair import metrics
    >>> metrics.validity([[1.0], [-1.0]], ([2.0], 0.0), probability=0.5)
    0.5

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, eq. (35).
    """
    target = Target(score, probability=probability, threshold=threshold, target_class=target_class)
    return float((target.margin(Z) > -SLACK).mean())


def moved_members(X: Any, Z: Any) -> tuple[Floats, Floats]:
    """Return members and their counterfactuals, checked to belong together."""
    members, images = check_matrix(X, "X"), check_matrix(Z, "Z")
    if members.shape != images.shape:
        raise DataError(
            "X and Z are not members and their counterfactuals",
            f"shapes {members.shape} and {images.shape}",
            "give one counterfactual per member, in the same order and features",
        )
    return members, images


def _distances(members: Floats, images: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield (first row, distances of some rows to all from the first row on) before and after."""
    from scipy.spatial.distance import cdist

    start, rows = 0, members.shape[0]
    while start < rows:
        stop = min(rows, start + max(1, BLOCK // (rows - start)))
        # differences, not the expansion of the square: that loses the digits of near pairs
        yield (
            start,
            cdist(members[start:stop], members[start:]),
            cdist(images[start:stop], images[start:]),
        )
        start = stop


NUMBERS = ("transport_cost", "upper", "lower", "distortion", "validity", "seconds")


@dataclass(frozen=True, eq=False, repr=False)
class MapValidation(Tabled):
    """Metrics of a map on the members left out, one number per fold.

    Attributes
    ----------
    transport_cost : array (folds,)
        Mean squared distance, in squared units of the features.
    upper, lower : array (folds,)
        Empirical constants; NaN for a fold whose members are all equal.
    distortion : array (folds,)
        1 − 1/max(upper, lower) of each fold.
    validity : array (folds,)
        Share that reaches the target.
    seconds : array (folds,)
        Wall time to declare, solve and read off the map.
    """

    transport_cost: Floats
    upper: Floats
    lower: Floats
    distortion: Floats
    validity: Floats
    seconds: Floats

    def __len__(self) -> int:
        return int(self.validity.size)

    def mean(self) -> dict[str, float]:
        """Return the mean over the folds of each metric, over those where it is a number."""
        means = {}
        for name in NUMBERS:
            values = getattr(self, name)
            kept = values[~np.isnan(values)]
            means[name] = float(kept.mean()) if kept.size else float("nan")
        return means

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, one row per fold.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame({name: getattr(self, name) for name in NUMBERS})

    def __repr__(self) -> str:
        means = self.mean()
        return "\n".join(
            [f"MapValidation: {len(self)} folds, means on the members left out"]
            + [f"  {name:<15} {means[name]:.6g}" for name in NUMBERS]
        )


# What a target is said with.
AIM = ("probability", "threshold", "target_class")


@checked(model=check_callable, n_splits=check_count, random_state=check_seed)
def cross_validate_map(
    model: Callable[..., Any],
    X: Any,
    *,
    score: Any,
    n_splits: int = 10,
    random_state: Any = None,
    **parameters: Any,
) -> MapValidation:
    """Fit a map on all folds but one, and measure it on the members of that one.

    Parameters
    ----------
    model : class of problems with a map, or callable
        `PSDMap` and the like, called with the rows and the target; or any function of the rows
        that returns an object with ``transform``.
    X : array-like (n, d)
        Members of the group.
    score, probability, threshold, target_class
        The target, as for the models.
    n_splits : int
        Folds.
    random_state : int or Generator, optional
        Shuffles the members first; in their order without.
    **parameters
        Further arguments of the model, such as ``K``.

    Returns
    -------
    MapValidation

    Raises
    ------
    DataError
        Fewer than two members per fold: there is no distance to measure.
    DeclarationError
        A model without a map: counterfactuals of members say nothing of other members.

    Examples
    --------
    >>> import numpy as np
    >>> class Shift:
    ...     def transform(self, X):
    ...         return X + np.array([2.0, 0.0])
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> found = cross_validate_map(lambda rows: Shift(), X, score=([1.0, 0.0], 0.0), n_splits=5)
    >>> mean = found.mean()
    >>> round(mean["transport_cost"], 9), round(mean["distortion"], 9) + 0.0
    (4.0, 0.0)

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, Section C.3.
    """
    points = check_matrix(X, "X")
    rows = points.shape[0]
    if not 2 <= n_splits <= rows // 2:
        raise DataError(
            f"{n_splits} folds of {rows} members",
            "a fold needs two members to measure a distance, and there are at least two folds",
            f"give n_splits between 2 and {rows // 2}",
        )
    aim = {name: parameters[name] for name in AIM if name in parameters}
    order = np.arange(rows)
    if random_state is not None:
        order = np.random.default_rng(random_state).permutation(rows)
    figures: dict[str, list[float]] = {name: [] for name in NUMBERS}
    for held in np.array_split(order, n_splits):
        begin = time.perf_counter()
        kept = np.setdiff1d(order, held)
        fitted = _fitted(model, points[kept], {"score": score, **parameters})
        figures["seconds"].append(time.perf_counter() - begin)
        members = points[held]
        images = np.asarray(fitted.transform(members))
        constants = lipschitz_constants(members, images)
        larger = np.maximum(constants.upper, constants.lower)
        figures["transport_cost"].append(transport_cost(members, images))
        figures["upper"].append(constants.upper)
        figures["lower"].append(constants.lower)
        figures["distortion"].append(float(1.0 - 1.0 / larger))
        figures["validity"].append(validity(images, score, **aim))
    return MapValidation(**{name: np.array(values) for name, values in figures.items()})


def _fitted(model: Callable[..., Any], rows: Floats, arguments: dict[str, Any]) -> Any:
    """Return an object with ``transform``."""
    if isinstance(model, type):
        if not hasattr(model, "map"):
            raise DeclarationError(
                f"{model.__name__} has no map",
                "it finds counterfactuals of its own members only",
                "measure it on the whole group, as the paper does, or give a model of maps",
            )
        problem = model(rows, **arguments)
        return problem.map(problem.solve())
    extra = set(arguments) - {"score", *AIM}
    if extra:
        raise DeclarationError(
            f"a function of the rows does not take {', '.join(sorted(extra))}",
            remedy="put them into the function, or give a class of problems",
        )
    fitted = model(rows)
    if not hasattr(fitted, "transform"):
        raise DeclarationError(
            f"the model returned {kind_of(fitted)} without transform",
            remedy="return an object whose transform(X) gives counterfactuals",
        )
    return fitted
