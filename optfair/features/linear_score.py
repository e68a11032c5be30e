"""A linear score: what a linear classifier says of a point, as numbers, with its scaling folded in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from optfair.core.expressions import dense
from optfair.errors import DataError, DeclarationError, kind_of, nearest
from optfair.numbers import (
    Floats,
    check_matrix,
    check_names,
    check_number,
    check_probability,
    checked,
    floats,
)

# A fitted classifier of scikit-learn as one affine function, with its scaling folded in.

BLACK_BOX = "optfair.group_counterfactuals.counterfactual_front takes any model with predict_proba"
# Points on which the affine function is compared with the classifier, and how far they may be.
PROBES, APART = 32, 1e-8


def affine_score(model: Any) -> LinearScore:
    """Return a fitted linear classifier, or a pipeline that ends in one, as a linear score.

    Nothing is believed by its name: the folded function must agree with the classifier's
    ``decision_function`` on points, and the link is logistic when ``predict_proba`` is the
    logistic function of it.

    Parameters
    ----------
    model : fitted classifier or pipeline
        With ``coef_``, ``intercept_`` and ``decision_function``.

    Raises
    ------
    DeclarationError
        Not a linear classifier of two classes, or not fitted.
    """
    steps = [step for _, step in getattr(model, "steps", ())] or [model]
    last = steps[-1]
    classes = getattr(last, "classes_", None)
    if classes is None and hasattr(last, "decision_function"):
        raise DeclarationError(f"{kind_of(last)} is not fitted", remedy="call fit(X, y) first")
    coef = getattr(last, "coef_", None)
    if coef is None or classes is None or not hasattr(last, "decision_function"):
        raise _not_linear(model, "it has no coefficients and classes of a linear classifier")
    if len(classes) != 2:
        raise DeclarationError(
            f"{kind_of(last)} has {len(classes)} classes, a linear score has two",
            f"classes {list(classes)[:5]}",
            f"fit the target class against the rest, or use the black-box route: {BLACK_BOX}",
        )
    w, w0 = np.ravel(dense(coef)), float(np.ravel(last.intercept_)[0])
    for step in reversed(steps[:-1]):
        w, w0 = _folded(step, w, w0, model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    link = _checked(model, w, w0, names, _typical(steps[0], w.size))
    return LinearScore(w, w0, link=link, names=names, classes=list(classes))


def _not_linear(model: Any, evidence: str) -> DeclarationError:
    return DeclarationError(
        f"{kind_of(model)} is not a linear score",
        evidence,
        f"give a linear classifier or (coef, intercept), or use the black-box route: {BLACK_BOX}",
    )


def _folded(step: Any, w: Floats, w0: float, model: Any) -> tuple[Floats, float]:
    """Return the score before one affine step: w(Mx + c) + w0."""
    from sklearn import decomposition, preprocessing

    if step is None or step == "passthrough":
        return w, w0
    if isinstance(step, preprocessing.StandardScaler | preprocessing.RobustScaler):
        standard = isinstance(step, preprocessing.StandardScaler)
        center = step.mean_ if standard and step.with_mean else getattr(step, "center_", None)
        inner = w / (1.0 if step.scale_ is None else step.scale_)
        return inner, w0 if center is None else w0 - float(np.sum(inner * center))
    if isinstance(step, preprocessing.MinMaxScaler) and not step.clip:
        return w * step.scale_, w0 + float(w @ step.min_)
    if isinstance(step, preprocessing.MaxAbsScaler) and not getattr(step, "clip", False):
        return w / step.scale_, w0
    if isinstance(step, decomposition.PCA):
        each = np.sqrt(step.explained_variance_) if step.whiten else 1.0
        inner = (w / each) @ step.components_
        return inner, w0 - float(inner @ step.mean_)
    if hasattr(step, "get_support"):
        support = np.asarray(step.get_support())
        inner = np.zeros(support.size)
        inner[support] = w
        return inner, w0
    if hasattr(step, "steps"):  # a pipeline inside the pipeline
        for _, inner_step in reversed(step.steps):
            w, w0 = _folded(inner_step, w, w0, model)
        return w, w0
    raise _not_linear(model, f"its step {type(step).__name__} is not known to be affine")


def _typical(step: Any, d: int) -> tuple[Floats, Floats]:
    """Return center and spread of the features, from the first step where it knows them."""

    def known(name: str, otherwise: float) -> Floats:
        value = np.asarray(getattr(step, name, None), dtype=float)
        return value if value.shape == (d,) else np.full(d, otherwise)

    return known("mean_", 0.0), np.abs(known("scale_", 1.0))


def _checked(
    model: Any, w: Floats, w0: float, names: Sequence[str] | None, typical: tuple[Floats, Floats]
) -> str | None:
    """Compare the affine function with the classifier, and return the link that holds."""
    center, spread = typical
    rng = np.random.default_rng(0)
    points = center + spread * rng.normal(size=(PROBES, w.size))
    size = np.abs(points) @ np.abs(w) + abs(w0)
    apart = np.abs(np.ravel(model.decision_function(_framed(points, names))) - points @ w - w0)
    if not (apart <= APART * (1.0 + size)).all():
        raise _not_linear(model, f"its scores are {float(apart.max()):.1e} from an affine function")
    if not hasattr(model, "predict_proba"):
        return None
    # moved to scores near 0: where a probability is 0 or 1 to the last digit every link agrees
    wanted = rng.uniform(-5.0, 5.0, size=PROBES)
    points += np.outer((wanted - points @ w - w0) / (w @ w), w)
    frame = _framed(points, names)
    margins = np.ravel(model.decision_function(frame))
    second = np.asarray(model.predict_proba(frame))[:, 1]
    agrees = np.abs(second - 1.0 / (1.0 + np.exp(-margins))).max() <= APART
    return "logistic" if agrees else None


def _framed(points: Floats, names: Sequence[str] | None) -> Any:
    if names is None:
        return points
    import pandas as pd  # fitted on a frame, a classifier warns of anything else

    return pd.DataFrame(points, columns=list(names))


# A linear score: what a linear classifier says of a point, as numbers.

LINKS = ("logistic", None)


class LinearScore:
    r"""The score :math:`s(x) = w^T x + w_0` of the second of two classes.

    .. math::
        P(1 \mid x) = \frac{1}{1 + e^{-s(x)}},\qquad
        P(c \mid z) \ge \alpha \iff \pm s(z) \ge \log\frac{\alpha}{1 - \alpha}

    The sign is + for the second class and − for the first. A target for one class is a
    half-space :math:`v^T z \ge t`, which is all that the problems of counterfactuals need.

    Parameters
    ----------
    coef : array-like (d,)
        w, in units of score per unit of the feature.
    intercept : float
        w₀.
    link : {"logistic", None}
        Whether the score is a log-odds; None when it stands for no probability.
    names : sequence of str, optional
        Features, in the order of ``coef``.
    classes : pair
        Labels of the first and the second class.

    Attributes
    ----------
    coef, intercept, link, names, classes
        As given: coefficients (d,) that cannot be written, and the names and labels as tuples.

    Raises
    ------
    DataError
        Entries that are not finite, coefficients that are all zero.
    DeclarationError
        Unknown link, names or classes that do not fit.

    Examples
    --------
    >>> score = LinearScore([1.0, -2.0], 0.5)
    >>> score.halfspace(probability=0.5)
    (array([ 1., -2.]), -0.5)
    >>> score.halfspace(target_class=0, threshold=1.0)
    (array([-1.,  2.]), 1.5)

    References
    ----------
    Valero-Leal, Bischl, Larrañaga, Bielza, Casalicchio: Optimal transport group
    counterfactual explanations, Definition 2.1 and Section 3.
    """

    @checked(coef=floats, intercept=floats, names=check_names, classes=check_names)
    def __init__(
        self,
        coef: Any,
        intercept: Any = 0.0,
        *,
        link: str | None = "logistic",
        names: Sequence[str] | None = None,
        classes: Sequence[Any] = (0, 1),
    ) -> None:
        if not isinstance(link, str | None) or link not in LINKS:
            raise DeclarationError(f"unknown link {link!r}", remedy="it is 'logistic' or None")
        row = np.atleast_2d(np.asarray(coef))
        if row.ndim != 2 or row.shape[0] != 1:
            raise DataError(
                f"coef has shape {np.shape(coef)}",
                "a linear score of two classes has one number per feature",
                "give a vector",
            )
        w: Floats = check_matrix(row, "coef").reshape(-1)
        w0 = check_matrix(np.reshape(np.asarray(intercept), (-1, 1)), "intercept")
        if w0.size != 1:
            raise DataError(f"intercept has {w0.size} entries", remedy="give one number")
        if not np.any(w):
            raise DataError(
                "every coefficient of the score is zero",
                "no feature moves it",
                "fit the classifier on features that matter",
            )
        names = None if names is None else check_names(names, "names")
        if names is not None and (len(names) != w.size or len(set(names)) != w.size):
            raise DeclarationError(
                f"{len(names)} names for {w.size} features",
                remedy="give one name per feature, all different",
            )
        labels = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
        if len(labels) != 2 or labels[0] == labels[1]:
            raise DeclarationError(f"classes is {labels}", remedy="give two different labels")
        w.flags.writeable = False
        self.coef: Floats = w
        self.intercept = float(w0[0, 0])
        self.link, self.classes = link, labels
        self.names = None if names is None else tuple(map(str, names))

    @classmethod
    def of(cls, score: Any) -> LinearScore:
        """Return the linear score that somebody gave in one form or another.

        Parameters
        ----------
        score : LinearScore, (coef, intercept), or fitted classifier
            A fitted linear classifier of scikit-learn, or a pipeline of scalers that ends in
            one; the scaling is folded into the coefficients. That it is linear, and whether
            its probabilities are logistic, is checked on points.

        Raises
        ------
        DeclarationError
            Not linear, not of two classes, or not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 0.0], [3.0, 5.0]]), [0, 0, 1, 1]
        >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
        >>> score = LinearScore.of(model)
        >>> bool(np.allclose(score.decision_function(X), model.decision_function(X)))
        True
        """
        if isinstance(score, LinearScore):
            return score
        if isinstance(score, (tuple, list)) and len(score) == 2:
            return cls(score[0], score[1])
        return affine_score(score)

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of rows X (n, d)."""
        points = self.check_points(X)
        return np.asarray(points @ self.coef + self.intercept)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of both classes (n, 2)."""
        self._need_probabilities()
        s = self.decision_function(X)
        # each side by itself: 1 - p loses the digits of a small probability
        return np.stack([expit(-s), expit(s)], axis=1)

    def check_points(self, X: Any) -> Floats:
        """Return rows as a matrix of as many columns as the score has features."""
        points = check_matrix(X, "X")
        if points.shape[1] != self.coef.size:
            raise DataError(
                f"X has {points.shape[1]} columns, the score has {self.coef.size} features",
                f"shape {points.shape}",
                "give the features the score was fitted on, in its order",
            )
        return points

    def halfspace(
        self,
        target_class: Any = None,
        *,
        probability: float | None = None,
        threshold: float | None = None,
    ) -> tuple[Floats, float]:
        r"""Return (v, t) such that :math:`v^T z \ge t` says that z reaches the target.

        Parameters
        ----------
        target_class : label, optional
            One of ``classes``; the second by default.
        probability : float, optional
            Least probability α of the target class, inside (0, 1). One half by default.
        threshold : float, optional
            Least score τ of the target class, in place of ``probability``: the score of the
            first class is −s.

        Raises
        ------
        DeclarationError
            Unknown class, α outside (0, 1), α for a score without probabilities, or both.
        """
        sign = self._sign(target_class)
        return sign * self.coef, self._level(probability, threshold) - sign * self.intercept

    def _sign(self, target_class: Any) -> float:
        if target_class is None:
            return 1.0
        for sign, label in zip((-1.0, 1.0), self.classes, strict=True):
            if np.isscalar(target_class) and bool(label == target_class):
                return sign
        raise DeclarationError(
            f"no class {target_class!r}",
            f"the score tells {self.classes[0]!r} from {self.classes[1]!r}",
            nearest(str(target_class), [str(c) for c in self.classes]),
        )

    def _level(self, probability: float | None, threshold: float | None) -> float:
        if probability is not None and threshold is not None:
            raise DeclarationError(
                "give a probability or a threshold of the score, not both", remedy="leave one out"
            )
        if threshold is not None:
            return check_number(threshold, "threshold")
        if probability is None:
            return 0.0
        alpha = check_probability(probability, "probability")
        self._need_probabilities()
        return math.log(alpha) - math.log1p(-alpha)

    def _need_probabilities(self) -> None:
        if self.link is None:
            raise DeclarationError(
                "this score stands for no probability",
                "its classifier has none, or they are not logistic in the score",
                "give threshold= in units of the score, e.g. 0.0 for the decision line",
            )

    def __repr__(self) -> str:
        what = "log-odds" if self.link else "score"
        return f"LinearScore: {what} of {self.classes[1]!r} in {self.coef.size} features"
