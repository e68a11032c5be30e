"""The PyPI package xai-cola: its quickstart in an environment of its own, and ours on its inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sparse_counterfactual_measures import fewest_edits

from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
    SparseCounterfactuals,
)

HERE = Path(__file__).resolve().parent
PEER = "xai-cola==0.1.1"
# What xai-cola needs to run its quickstart; torch is for its neural models only.
PEER_NEEDS = ("numpy<2", "pandas<=2.3.0", "scikit-learn<=1.7.0", "scipy<=1.16.0", "dice-ml<=0.12")
PEER_NEEDS += ("cem==1.1.0", "matplotlib", "seaborn", "shap", "POT", "tqdm", "ipython")
Result = dict[str, Any]


def ready(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def peer_python(folder: Path, make: bool) -> Path | None:
    """Return the interpreter of the peer's environment, made on first use if asked."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    probe = "import cem, dice_ml, importlib.util, sys; sys.exit(not importlib.util.find_spec('xai_cola'))"
    if python.exists() and ready([str(python), "-c", probe]):
        return python
    if not make:
        return None
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for packages in (PEER_NEEDS, ("--no-deps", PEER)):
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, capture_output=True, text=True)
    return python


def peer(out: Path, quick: bool) -> list[Result] | str:
    """Compare on the quickstart's inputs; a reason if the package cannot run."""
    try:
        python = peer_python(out / "xai-cola-env", make=not quick)
        if python is None:
            return "left out: --quick makes no environment for it"
        files = [out / f"xai_cola_{end}.json" for end in ("in", "out")]
        seeds = [42] if quick else [42, *range(9)]
        files[0].write_text(json.dumps({"seeds": seeds, "rows": 10}))
        script = str(HERE / "peer_sparse_counterfactuals.py")
        run = [str(python), script, *map(str, files)]
        subprocess.run(run, check=True, capture_output=True, text=True)
    except (subprocess.CalledProcessError, OSError) as e:
        return f"absent: {(getattr(e, 'stderr', '') or str(e))[-300:]}"
    answers = json.loads(files[1].read_text())
    return [against(seed, given) for seed, given in zip(seeds, answers, strict=True)]


def against(seed: int, given: Result) -> Result:
    """Refine the peer's counterfactuals for its model, made again from its training rows."""
    columns, train = given["columns"], pd.DataFrame(given["train"])
    numbers = [c for c in columns if train[c].dtype.kind in "if"]
    encoder = ColumnTransformer(
        [
            ("numbers", StandardScaler(), numbers),
            (
                "categories",
                OneHotEncoder(drop="first", handle_unknown="ignore"),
                [c for c in columns if c not in numbers],
            ),
        ]
    )
    classifier = LogisticRegression(max_iter=1000, class_weight="balanced")
    model = make_pipeline(encoder, classifier).fit(train[columns], train["Risk"])
    x, r, theirs = (
        pd.DataFrame(given[k])[columns] for k in ("factuals", "counterfactuals", "refined")
    )
    begin = time.perf_counter()
    fitted = SparseCounterfactuals(
        model, outcome="label", target_class=0, on_missed="keep", random_state=0
    ).fit(x, r)
    z = fitted.minimum_actions(1.0, prune=True)
    seconds = time.perf_counter() - begin
    plain = fitted.minimum_actions(1.0)
    # its own model's decisions, where the one made again has others
    turned = [(np.asarray(d) == 0).mean() for d in (model.predict(theirs), given["predicted"])]
    least = fewest_edits(fitted, 1.0)
    return {
        "seed": seed,
        "rows": len(x),
        "same decisions": bool((model.predict(theirs) == np.array(given["predicted"])).all()),
        "peer effect": float(max(turned)),
        "peer actions": given["actions"],
        "peer edits": int((theirs.to_numpy() != x.to_numpy()).sum()),
        "peer seconds": given["seconds"],
        "effect": float((model.predict(z.rows) == 0).mean()),
        "edits": z.n_edits,
        "edits unpruned": plain.n_edits,
        "optimum": None if least is None else round(least * len(x)),
        "seconds": seconds,
    }
