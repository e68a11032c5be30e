r"""Cost, geometry and validity of a group of counterfactuals, member by member, and its target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.features.linear_score import LinearScore
from optfair.numbers import check_matrix, check_number, check_weights

__all__ = [
    "LipschitzConstants",
    "Target",
    "distortion",
    "lipschitz_constants",
    "transport_cost",
    "validity",
]


# What a counterfactual must reach: a probability or a score of one class, from any classifier.

Floats = NDArray[np.float64]


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
        self.model = LinearScore.of(score) if isinstance(score, (tuple, list)) else score
        self.classes = _classes(self.model)
        self.column = _column(self.classes, target_class)
        names = getattr(self.model, "feature_names_in_", None)
        self._frame_names = None if names is None else [str(name) for name in names]
        linked = getattr(self.model, "link", "logistic") is not None
        self.in_scores = threshold is not None or (
            probability is None and not (linked and hasattr(self.model, "predict_proba"))
        )
        self.level = _level(0.0 if self.in_scores and threshold is None else threshold, probability)
        needed = "decision_function" if self.in_scores else "predict_proba"
        if not hasattr(self.model, needed):
            raise DeclarationError(
                f"a {type(self.model).__name__} has no {needed}",
                remedy="give threshold= for a model of scores, probability= for one of probabilities",
            )
        if self.in_scores and len(self.classes) > 2:
            raise DeclarationError(
                f"a score of {len(self.classes)} classes is not one number",
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
        points = check_matrix(Z, "Z")
        given: Any = points
        if self._frame_names is not None:  # fitted on a frame, it warns of anything else
            import pandas as pd

            if len(self._frame_names) != points.shape[1]:
                raise DataError(
                    f"Z has {points.shape[1]} columns, the model {len(self._frame_names)} features",
                    remedy="give the features the model was fitted on",
                )
            given = pd.DataFrame(points, columns=self._frame_names)
        if self.in_scores:
            values = np.asarray(self.model.decision_function(given), dtype=np.float64)
            if self.column == 0:
                values = -values
            expected: tuple[int, ...] = (points.shape[0],)
        else:
            values = np.asarray(self.model.predict_proba(given), dtype=np.float64)
            expected = (points.shape[0], len(self.classes))
        if values.shape != expected or not np.isfinite(values).all():
            raise DataError(
                "the model does not return one finite number per row and class",
                f"shape {values.shape} for {points.shape[0]} rows and {len(self.classes)} classes",
                "check the model on these rows",
            )
        return np.asarray((values if self.in_scores else values[:, self.column]) - self.level)

    def __repr__(self) -> str:
        what = "score" if self.in_scores else "probability"
        return f"Target: {what} of {self.classes[self.column]!r} at least {self.level:g}"


def _classes(model: Any) -> tuple[Any, ...]:
    found = getattr(model, "classes_", None)
    if found is None:
        found = getattr(model, "classes", None)
    if found is None or callable(found):
        raise DeclarationError(
            f"a {type(model).__name__} has no classes",
            "a fitted classifier has classes_, one per column of predict_proba",
            "fit it first, or give (coef, intercept)",
        )
    return tuple(c.item() if isinstance(c, np.generic) else c for c in found)


def _column(classes: tuple[Any, ...], wanted: Any) -> int:
    if wanted is None:
        if len(classes) == 2:
            return 1
        raise DeclarationError(
            f"the model has {len(classes)} classes", remedy=f"give target_class= one of {classes}"
        )
    if isinstance(wanted, np.generic):
        wanted = wanted.item()
    if wanted in classes:
        return classes.index(wanted)
    raise DeclarationError(
        f"no class {wanted!r}", remedy=nearest(str(wanted), [str(c) for c in classes])
    )


def _level(threshold: float | None, probability: float | None) -> float:
    if threshold is not None:
        return check_number(threshold, "threshold")
    alpha = 0.5 if probability is None else check_number(probability, "probability")
    if not 0.0 < alpha < 1.0:
        raise DeclarationError(
            f"probability {probability!r} is not inside (0, 1)", remedy="give for example 0.8"
        )
    return alpha


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
    members, images = _pair(X, Z)
    weights = check_weights(sample_weight, members.shape[0])
    return float(weights @ np.einsum("ij,ij->i", images - members, images - members))


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
    members, images = _pair(X, Z)
    high, low = -np.inf, np.inf
    pairs = {"high": (-1, -1), "low": (-1, -1)}
    for start, before, after in _distances(members, images):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = after / before
        ratio[before == 0.0] = np.nan  # duplicates, and the diagonal
        if np.isnan(ratio).all():
            continue
        for name, at in (("high", np.nanargmax(ratio)), ("low", np.nanargmin(ratio))):
            row, column = np.unravel_index(at, ratio.shape)
            value = float(ratio[row, column])
            if (name == "high" and value > high) or (name == "low" and value < low):
                pairs[name] = (int(start + row), int(start + column))
                if name == "high":
                    high = value
                else:
                    low = value
    if pairs["high"] == (-1, -1):
        return LipschitzConstants(np.nan, np.nan, (-1, -1), (-1, -1))
    return LipschitzConstants(high, 1.0 / low if low > 0 else np.inf, pairs["high"], pairs["low"])


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
    found = lipschitz_constants(X, Z)
    # with two or more members the larger of a ratio and its inverse is at least 1
    return float(1.0 - 1.0 / np.maximum(found.upper, found.lower))


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


def _pair(X: Any, Z: Any) -> tuple[Floats, Floats]:
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
