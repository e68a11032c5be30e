"""Runs the quickstart of the PyPI package xai-cola in its own environment: seeds in, tables out.

python peer_sparse_counterfactuals.py IN.json OUT.json

IN has `seeds` and `rows`. OUT has, per seed, the training set, factuals and counterfactuals of the
quickstart, and what the package makes of them: its number of actions and its refined rows. The
package imports torch for neural models and for tensors of its data set; where torch is missing
an empty module stands in, as nothing here uses it.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import time
import types
from pathlib import Path


class Absent(types.ModuleType):
    """A module whose names are all there, as classes to derive from, and do nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def without_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        names = ("torch", "torch.nn", "torch.optim", "torch.optim.lr_scheduler")
        sys.modules.update({name: Absent(name) for name in names})
        sys.modules["torch"].nn = sys.modules["torch.nn"]
        sys.modules["torch"].optim = sys.modules["torch.optim"]


without_torch()

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xai_cola.ce_generator import DiCE
from xai_cola.ce_sparsifier import COLA
from xai_cola.ce_sparsifier.data import COLAData
from xai_cola.ce_sparsifier.models import Model
from xai_cola.datasets.german_credit import GermanCreditDataset

NUMBERS = ["Age", "Credit amount", "Duration"]
CATEGORIES = ["Sex", "Job", "Housing", "Saving accounts", "Checking account", "Purpose"]


def listed(frame: pd.DataFrame) -> dict[str, list]:
    return {c: frame[c].tolist() for c in NUMBERS + CATEGORIES}


def quickstart(seed: int, rows: int) -> dict:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002, the package draws from it
    X, y, rest, _ = GermanCreditDataset().get_original_train_test_split(random_state=seed)
    for c in CATEGORIES:
        X[c], rest[c] = X[c].astype(str), rest[c].astype(str)
    encoder = ColumnTransformer(
        [
            ("num", StandardScaler(), NUMBERS),
            ("cat", OneHotEncoder(drop="first", handle_unknown="ignore"), CATEGORIES),
        ],
        remainder="passthrough",
    )
    classifier = LogisticRegression(max_iter=1000, class_weight="balanced", random_state=seed)
    pipe = Pipeline([("preprocessor", encoder), ("classifier", classifier)])
    pipe.fit(X, y)
    labelled = rest.copy()
    labelled["Risk"] = pipe.predict(rest)
    df = labelled.loc[labelled["Risk"] == 1]
    df = df.sample(n=min(rows, len(df)), random_state=seed)
    data = COLAData(factual_data=df, label_column="Risk", numerical_features=NUMBERS)
    model = Model(model=pipe, backend="sklearn")
    begin = time.perf_counter()
    _, counterfactual = DiCE(ml_model=model).generate_counterfactuals(
        data=data,
        factual_class=1,
        total_cfs=2,
        features_to_keep=["Age", "Sex"],
        continuous_features=NUMBERS,
    )
    generated = time.perf_counter() - begin
    data.add_counterfactuals(counterfactual, with_target_column=True)
    begin = time.perf_counter()
    sparsifier = COLA(data=data, ml_model=model)
    sparsifier.set_policy(matcher="ot", attributor="pshap", random_state=seed)
    actions = int(sparsifier.query_minimum_actions())
    refined = sparsifier.get_refined_counterfactual(limited_actions=actions)
    seconds = time.perf_counter() - begin
    return {
        "train": {**listed(X), "Risk": y.tolist()},
        "factuals": listed(df),
        "counterfactuals": listed(counterfactual),
        "refined": listed(refined),
        "predicted": pipe.predict(refined[list(X.columns)]).tolist(),
        "columns": list(X.columns),
        "actions": actions,
        "seconds": seconds,
        "seconds of DiCE": generated,
    }


given = json.loads(Path(sys.argv[1]).read_text())
with contextlib.redirect_stdout(io.StringIO()):
    found = [quickstart(seed, given["rows"]) for seed in given["seeds"]]
Path(sys.argv[2]).write_text(json.dumps(found))
