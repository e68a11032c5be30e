"""What a counterfactual must reach: a probability or a score of one class, from any classifier."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.features.linear_score import LinearScore
from optfair.numbers import check_matrix

Floats = NDArray[np.float64]

__all__ = ["Target"]


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
        if not math.isfinite(threshold):
            raise DeclarationError(f"threshold is {threshold!r}", remedy="give a finite score")
        return float(threshold)
    alpha = 0.5 if probability is None else float(probability)
    if not 0.0 < alpha < 1.0:
        raise DeclarationError(
            f"probability {probability!r} is not inside (0, 1)", remedy="give for example 0.8"
        )
    return alpha
