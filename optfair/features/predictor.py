"""Any model as a function from rows to one score each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError, OptfairError, kind_of, nearest
from optfair.features.linear_score import LinearScore
from optfair.numbers import Flags, Floats, check_choice

OUTPUTS = ("predict_proba", "decision_function", "predict")
# Rows asked for at once.
BATCH = 200_000


class Predictor:
    r"""One finite number per row, from whatever the model offers.

    The first of these that the model has, unless ``output`` names one: the probability of the
    target class, its decision function, its predictions (for a classifier 1 where the target
    class is predicted, else 0), or the value of a function.

    Parameters
    ----------
    model : classifier, regressor, LinearScore, (coef, intercept) or callable
        Fitted; scikit-learn's pipelines with encoders included.
    output : {"auto", "predict_proba", "decision_function", "predict"}
        Which output is the score.
    target_class : label, optional
        The class to reach; the second of two by default.

    Attributes
    ----------
    output : str
        What is asked: one of the above, or "call".
    classes : tuple or None
        Labels of a classifier.
    target_class : label or None
        The class whose score it is.
    coef : array (d,) or None
        Coefficients, where the score is linear in the features, in the order of the model.
    calls, rows_asked : int
        How often the model was asked, and for how many rows.

    Raises
    ------
    DeclarationError
        A model without any output, an output it does not have, a class it does not know.

    Examples
    --------
    >>> import numpy as np
    >>> score = Predictor(lambda rows: rows.sum(axis=1))
    >>> score.output, score(np.array([[1.0, 2.0]])).tolist()
    ('call', [3.0])
    >>> Predictor(([1.0, -2.0], 0.5)).coef.tolist()
    [1.0, -2.0]
    """

    def __init__(self, model: Any, *, output: str = "auto", target_class: Any = None) -> None:
        if isinstance(model, (tuple, list)):
            model = LinearScore.of(model)
        if model is None or isinstance(model, type):
            raise DeclarationError(
                f"model is {model!r}", remedy="give a fitted model, or a function of rows"
            )
        self.model = model
        self.output = _output(model, output)
        self.calls = self.rows_asked = 0
        self.classes = class_labels(model)
        self.target_class = self._target(target_class)
        self._names: tuple[str, ...] | None = None
        self.coef = self._coefficients()

    def __call__(self, rows: Any) -> Floats:
        """Return one score per row.

        Parameters
        ----------
        rows : array or data frame (n, d)
            In the container the model was fitted on, or an array in the order of its features.

        Raises
        ------
        DataError
            The model refuses the rows (categories it has not seen, say), or returns
            something else than one finite number per row.
        """
        if self.output == "call":
            return self._batched(self.model, rows, lambda labels: labels)
        ask = getattr(self.model, self.output)
        return self._batched(ask, rows, self._selected)

    def coefficients(self, columns: Sequence[str]) -> Floats | None:
        """Return the coefficients in the order of columns, None where the score is not linear.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns of the rows; where the model knows none of them, as of arrays,
            its own order.
        """
        if self.coef is None or self._names is None or set(self._names) != set(columns):
            return self.coef
        return self.coef[[self._names.index(name) for name in columns]]

    def decided(self, rows: Any) -> Flags:
        """Return which rows the model puts into the target class.

        Raises
        ------
        DeclarationError
            The model is no classifier.
        """
        if self.classes is None:
            raise DeclarationError(
                f"{kind_of(self.model)} decides for no class",
                "it has no classes_",
                'give a classifier, or outcome="score"',
            )
        if hasattr(self.model, "predict"):
            scores = self._batched(self.model.predict, rows, self._is_target)
            return np.asarray(scores > 0.5)
        score = self(rows)  # a LinearScore: its boundary is log-odds 0
        return np.asarray(score > (0.5 if self.output == "predict_proba" else 0.0))

    def _target(self, wanted: Any) -> Any:
        if self.classes is None:
            if wanted is not None:
                raise DeclarationError(
                    f"{kind_of(self.model)} has no classes",
                    "it has no classes_: it is no classifier, or it is not fitted",
                    "fit it first, or leave target_class out",
                )
            return None
        if wanted is None:
            if len(self.classes) == 2:
                return self.classes[1]
            raise DeclarationError(
                f"the model has {len(self.classes)} classes",
                remedy=f"give target_class=, one of {self.classes}",
            )
        wanted = wanted.item() if isinstance(wanted, np.generic) else wanted
        if wanted not in self.classes:
            raise DeclarationError(
                f"no class {wanted!r}", remedy=nearest(str(wanted), map(str, self.classes))
            )
        return wanted

    def _coefficients(self) -> Floats | None:
        """Return the coefficients of a decision function that is linear."""
        if self.output != "decision_function" or len(self.classes or ()) != 2:
            return None
        try:
            score = LinearScore.of(self.model)
        except OptfairError:
            return None
        self._names = score.names
        return score.coef if self.classes.index(self.target_class) == 1 else -score.coef  # type: ignore[union-attr]

    def _is_target(self, output: Any) -> Floats:
        labels = np.asarray(output)
        return np.asarray(labels == self.target_class, dtype=np.float64)

    def _selected(self, output: Any) -> Any:
        """Return the part of an output that is the target's."""
        if self.output == "predict":
            return output if self.classes is None else self._is_target(output)
        values = np.asarray(output)
        if self.classes is None:
            return values
        column = self.classes.index(self.target_class)
        if self.output == "decision_function" and values.ndim == 1 and len(self.classes) == 2:
            return values if column == 1 else -values
        if values.ndim != 2 or values.shape[1] != len(self.classes):
            raise DataError(
                f"{self.output} returned shape {values.shape} for {len(self.classes)} classes",
                "one column per class is needed",
                "check the model on these rows",
            )
        return values[:, column]

    def _batched(self, ask: Callable[[Any], Any], rows: Any, read: Callable[[Any], Any]) -> Floats:
        count = int(rows.shape[0])
        given = self._given(rows)
        scores = np.empty(count)
        for at in range(0, count, BATCH):
            part = given if count <= BATCH else given[at : at + BATCH]
            size = min(BATCH, count - at)
            scores[at : at + size] = predicted(lambda r: read(self._answer(ask, r)), part, size)
        return scores

    def _answer(self, ask: Callable[[Any], Any], rows: Any) -> Any:
        self.calls += 1
        self.rows_asked += int(rows.shape[0])
        try:
            return ask(rows)
        except OptfairError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as e:
            if type(e).__name__ == "NotFittedError":
                raise DataError(
                    "the model is not fitted",
                    str(e).splitlines()[0] if str(e) else "",
                    "fit it first: rows are judged by the model as it is",
                ) from e
            raise DataError(
                "the model refuses the rows",
                f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}",
                "give the columns and categories that the model, or the pipeline around it, was"
                " fitted on",
            ) from e

    def _given(self, rows: Any) -> Any:
        """Return rows in the container the model was fitted on: it warns of any other."""
        names = getattr(self.model, "feature_names_in_", None)
        if names is not None and not hasattr(rows, "columns"):
            import pandas as pd

            if len(names) != rows.shape[1]:
                raise DataError(
                    f"rows of {rows.shape[1]} columns for a model of {len(names)} features",
                    remedy="give the features the model was fitted on",
                )
            return pd.DataFrame(rows, columns=list(names)).infer_objects()
        fitted_on_arrays = names is None and hasattr(self.model, "n_features_in_")
        if hasattr(rows, "columns") and isinstance(self.model, LinearScore):
            return self._in_order(rows)
        if hasattr(rows, "columns") and fitted_on_arrays:
            return rows.to_numpy()
        return rows

    def _in_order(self, rows: Any) -> Any:
        """Return the columns of a frame in the order of a linear score that knows their names."""
        names, columns = self.model.names, [str(c) for c in rows.columns]
        if names is None:
            return rows.to_numpy()
        if set(names) != set(columns):
            raise DataError(
                "the rows have other features than the score",
                f"{', '.join(columns)}; {', '.join(names)}",
                "give the features of the score, in any order",
            )
        return rows.to_numpy()[:, [columns.index(name) for name in names]]


def _output(model: Any, output: str) -> str:
    check_choice(output, "output", ("auto", *OUTPUTS))
    offered = [name for name in OUTPUTS if hasattr(model, name)]
    if isinstance(model, LinearScore):
        # its scores are exact and linear; its probabilities only where asked for
        offered = ["decision_function", "predict_proba"]
    if output != "auto":
        if output not in offered:
            raise DeclarationError(
                f"{kind_of(model)} has no {output}",
                remedy=f"it has {', '.join(offered)}" if offered else 'leave it at "auto"',
            )
        return output
    if offered:
        return offered[0]
    if callable(model):
        return "call"
    raise DeclarationError(
        f"{kind_of(model)} predicts nothing",
        "it has no predict_proba, decision_function or predict, and cannot be called",
        "give a fitted model, or a function of rows",
    )


def class_labels(model: Any) -> tuple[Any, ...] | None:
    """Return the labels of a classifier, None where there are none."""
    classes = getattr(model, "classes_", None)
    if classes is None and isinstance(model, LinearScore):
        classes = model.classes
    if classes is None:
        return None
    return tuple(c.item() if isinstance(c, np.generic) else c for c in classes)


def predicted(predict: Callable[[Any], Any], rows: Any, count: int) -> Floats:
    """Return one finite number per row, or say what the model returned instead.

    Raises
    ------
    DataError
        A wrong shape, NaN or infinite scores, or no numbers.
    """
    returned = predict(rows)
    try:
        scores = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise DataError(
            "the model does not return numbers",
            str(e),
            "give a function from rows to scores, such as the second column of predict_proba",
        ) from None
    if scores.shape not in ((count,), (count, 1)):
        raise DataError(
            f"the model returned shape {scores.shape} for {count} rows",
            "one number per row is needed",
            "give a function from rows to scores, such as the second column of predict_proba",
        )
    bad = ~np.isfinite(scores)
    if bad.any():
        raise DataError(
            f"the model returned {int(bad.sum())} scores that are NaN or infinite",
            f"of {count} rows",
            "check the model on the rows with some cells exchanged",
        )
    return scores.reshape(-1)
