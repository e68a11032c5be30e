"""Data, classifiers, counterfactuals and methods that sparse counterfactuals are compared on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import optfair as of
from optfair.methods.sparse_counterfactuals.generators import nearest_unlike_neighbours
from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

# Table 1 of the paper, as far as scikit-learn has it: no LightGBM, no XGBoost; support vectors
# with a Gaussian kernel for the radial basis network.
CLASSIFIERS: dict[str, Any] = {
    "RndForest": RandomForestClassifier(random_state=0),
    "LR": LogisticRegression(class_weight="balanced", max_iter=2000),
    "GradBoost": GradientBoostingClassifier(random_state=0),
    "Bagging": BaggingClassifier(random_state=0),
    "AdaBoost": AdaBoostClassifier(random_state=0),
    "QDA": QuadraticDiscriminantAnalysis(reg_param=0.1),
    "SVM": SVC(kernel="linear", class_weight="balanced"),
    "RBF": SVC(kernel="rbf", class_weight="balanced"),
    "DNN": MLPClassifier((32, 16), max_iter=300, early_stopping=True, random_state=0),
    "GP": GaussianProcessClassifier(random_state=0),
}
# Table 2: coupling, attribution, value. Under the uniform coupling no counterfactual is more
# probable than another; the average is one value for all rows, the most probable one a draw.
METHODS: dict[str, tuple[str, str, str]] = {
    "CF-pOT": ("ot", "p-shap", "max"),
    "CF-pEct": ("aligned", "p-shap", "max"),
    "CF-pRnd": ("random", "p-shap", "max"),
    "CF-pUni": ("uniform", "p-shap", "avg"),
    "RB-pOT": ("ot", "rb-shap", "max"),
    "RB-pUni": ("uniform", "rb-shap", "avg"),
}
# A category too rare to be in the training rows counts as the one left out of the indicators.
warnings.filterwarnings("ignore", message="Found unknown categories")
GERMAN, HOTEL = "german_credit_cola9", "hotel_bookings"
DROPPED = ("reservation_status", "reservation_status_date")


@dataclass(frozen=True)
class Task:
    """A data set split into rows to fit on and rows to explain."""

    name: str
    X: pd.DataFrame
    y: np.ndarray
    wanted: Any
    train: np.ndarray
    rest: np.ndarray

    def fitted(self, classifier: str) -> Pipeline:
        """Return a pipeline that takes raw categories."""
        numbers = [c for c in self.X if self.X[c].dtype.kind in "if"]
        encoder = OneHotEncoder(
            drop="first", handle_unknown="ignore", min_frequency=0.01, sparse_output=False
        )
        prepared = ColumnTransformer(
            [
                ("numbers", StandardScaler(), numbers),
                ("categories", encoder, [c for c in self.X if c not in numbers]),
            ]
        )
        model = Pipeline([("encode", prepared), ("classify", clone(CLASSIFIERS[classifier]))])
        return model.fit(self.X.iloc[self.train], self.y[self.train])

    def factuals(self, model: Any, count: int) -> pd.DataFrame:
        """Return rows that the model refuses what is wanted."""
        rows = self.X.iloc[self.rest]
        return rows[model.predict(rows) != self.wanted].iloc[:count].reset_index(drop=True)


def task(name: str) -> Task:
    """Return German Credit (450 rows to fit on) or Hotel Bookings (4,000 rows to fit on)."""
    frame = of.datasets.load(name, fetch=False).frame()
    frame = pd.DataFrame({c: np.asarray(frame[c]) for c in frame.columns})
    label, wanted = ("Risk", "good") if name.startswith("german") else ("is_canceled", 0)
    X = frame.drop(columns=[label, *(c for c in DROPPED if c in frame)])
    order = np.random.default_rng(0).permutation(len(X))
    cut = min(4000, int(0.45 * len(X)))
    return Task(name, X, np.asarray(frame[label]), wanted, order[:cut], order[cut : cut + 2000])


# --- generators ---------------------------------------------------------------------------


def neighbours(job: Task, model: Any, x: pd.DataFrame) -> pd.DataFrame:
    """Return the nearest training row with the wanted decision, for each row."""
    found = nearest_unlike_neighbours(model, x, job.X.iloc[job.train], target_class=job.wanted)
    return found.rows


def random_search(job: Task, model: Any, x: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose random cells took random values of the training set until they flipped.

    DiCE's default in spirit: of 4 tries with one edit, then 4 with two and so on, the first
    success; more tries would leave less to refine.
    """
    rng = np.random.default_rng(1)
    pool, n, d = job.X.iloc[job.train], len(x), x.shape[1]
    found = x.copy()
    open_rows, tries = np.arange(n), 4
    for edits in range(1, d + 1):
        if not open_rows.size:
            break
        rows = np.repeat(open_rows, tries)
        rank = rng.random((rows.size, d)).argsort(axis=1)
        donors = rng.integers(len(pool), size=(rows.size, d))
        trial = pd.DataFrame(
            {
                c: np.where(
                    rank[:, j] < edits,
                    np.asarray(pool[c])[donors[:, j]],
                    np.asarray(x[c])[rows],
                )
                for j, c in enumerate(x.columns)
            }
        ).astype(x.dtypes.to_dict())
        good = np.asarray(model.predict(trial) == job.wanted).reshape(-1, tries)
        done = good.any(axis=1)
        first = np.flatnonzero(done) * tries + good[done].argmax(axis=1)
        for c in x.columns:
            column = np.array(found[c])
            column[open_rows[done]] = np.asarray(trial[c])[first]
            found[c] = column
        open_rows = open_rows[~done]
    return found


GENERATORS: dict[str, Callable[[Task, Any, pd.DataFrame], pd.DataFrame]] = {
    "KNN": neighbours,
    "random search": random_search,
}


# --- methods ------------------------------------------------------------------------------


def estimators(
    job: Task,
    model: Any,
    x: pd.DataFrame,
    r: pd.DataFrame,
    *,
    background: int,
    seeds: int,
    samples: int | None = None,
) -> Iterator[tuple[str, SparseCounterfactuals]]:
    """Yield the fitted methods of Table 2 on scores; the random coupling once per seed."""
    pool = job.X.iloc[job.train[:background]]
    for name, (coupling, attribution, value) in METHODS.items():
        for seed in range(seeds if coupling == "random" else 1):
            yield (
                name,
                SparseCounterfactuals(
                    model,
                    coupling=coupling,
                    attribution=attribution,
                    value=value,
                    background=pool if attribution == "rb-shap" else None,
                    target_class=job.wanted,
                    on_missed="keep",
                    samples=samples,
                    random_state=seed,
                ).fit(x, r, alignment=np.arange(len(x))),
            )


def on_decisions(
    job: Task,
    model: Any,
    fitted: SparseCounterfactuals,
    x: pd.DataFrame,
    r: pd.DataFrame,
    *,
    value: str | None = None,
    seed: int = 0,
    printed: bool = False,
) -> SparseCounterfactuals:
    """Return a method with its effect measured on decisions, nothing attributed again.

    As printed, Algorithm 1 goes on editing rows that are turned already.
    """
    return SparseCounterfactuals(
        model,
        coupling=fitted.coupling_,
        attribution=fitted.attribution_,
        value=value or fitted.value,
        arrived_last=not printed,
        outcome="label",
        target_class=job.wanted,
        on_missed="keep",
        random_state=seed,
    ).fit(x, r, alignment=np.arange(len(x)))
