"""A fitted classifier of scikit-learn as one affine function, with its scaling folded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError

Floats = NDArray[np.float64]

__all__ = ["AffineScore", "affine_score"]

BLACK_BOX = "optfair.counterfactual_front takes any model with predict_proba"
# Points on which the affine function is compared with the classifier, and how far they may be.
PROBES, APART = 32, 1e-8


@dataclass(frozen=True, eq=False)
class AffineScore:
    """Coefficients, intercept, link, and the names a classifier knows."""

    coef: Floats
    intercept: float
    link: str | None
    names: Sequence[str] | None
    classes: Sequence[Any]


def affine_score(model: Any) -> AffineScore:
    """Return a fitted linear classifier, or a pipeline that ends in one, as an affine score.

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
        raise DeclarationError(f"{_called(last)} is not fitted", remedy="call fit(X, y) first")
    coef = getattr(last, "coef_", None)
    if coef is None or classes is None or not hasattr(last, "decision_function"):
        raise _not_linear(model, "it has no coefficients and classes of a linear classifier")
    if len(classes) != 2:
        raise DeclarationError(
            f"{_called(last)} has {len(classes)} classes, a linear score has two",
            f"classes {list(classes)[:5]}",
            f"fit the target class against the rest, or use the black-box route: {BLACK_BOX}",
        )
    w = np.ravel(coef.toarray() if hasattr(coef, "toarray") else coef).astype(float)
    w0 = float(np.ravel(last.intercept_)[0])
    for step in reversed(steps[:-1]):
        if step is None or step == "passthrough":
            continue
        w, w0 = _folded(step, w, w0, model)
    names = getattr(model, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    link = _checked(model, w, w0, names, _typical(steps[0], w.size))
    return AffineScore(w, w0, link, names, list(classes))


def _called(model: Any) -> str:
    return f"a {type(model).__name__}"


def _not_linear(model: Any, evidence: str) -> DeclarationError:
    return DeclarationError(
        f"{_called(model)} is not a linear score",
        evidence,
        f"give a linear classifier or (coef, intercept), or use the black-box route: {BLACK_BOX}",
    )


def _folded(step: Any, w: Floats, w0: float, model: Any) -> tuple[Floats, float]:
    """Return the score before one affine step: w(Mx + c) + w0."""
    from sklearn import decomposition, preprocessing

    if isinstance(step, preprocessing.StandardScaler):
        scale = 1.0 if step.scale_ is None else step.scale_
        mean = 0.0 if step.mean_ is None or not step.with_mean else step.mean_
        inner = w / scale
        return inner, w0 - float(np.sum(inner * mean))
    if isinstance(step, preprocessing.RobustScaler):
        inner = w / (1.0 if step.scale_ is None else step.scale_)
        return inner, w0 - float(np.sum(inner * (0.0 if step.center_ is None else step.center_)))
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
        for inner_step in reversed([s for _, s in step.steps]):
            if inner_step is not None and inner_step != "passthrough":
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
    told = np.ravel(model.decision_function(frame))
    second = np.asarray(model.predict_proba(frame))[:, 1]
    agrees = np.abs(second - 1.0 / (1.0 + np.exp(-told))).max() <= APART
    return "logistic" if agrees else None


def _framed(points: Floats, names: Sequence[str] | None) -> Any:
    if names is None:
        return points
    import pandas as pd  # fitted on a frame, a classifier warns of anything else

    return pd.DataFrame(points, columns=list(names))
