"""Price of fairness: what each wanted closeness of the groups costs, and which rows change cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

import optfair as of

CLUSTERS = 3


def data(points: int = 33) -> dict[str, Any]:
    """Fair assignments of German Credit to fixed centers, from perfect fairness to none."""
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    centers = KMeans(CLUSTERS, n_init=5, random_state=0).fit(X).cluster_centers_
    flat = PCA(2, svd_solver="full").fit_transform(X)
    names, group = np.unique(sex, return_inverse=True)
    free = of.FairAssignment(X, groups=sex, centers=centers, fairness=of.additive_gap(2.0)).solve()
    shares = np.bincount(group) / group.size
    fractions = free["masses"] / shares[:, None]
    widest = float(np.abs(np.diff(fractions, axis=0)).sum())
    steps = []
    for eps in np.linspace(0.0, 1.1 * widest, points):
        rule = of.additive_gap(float(eps))
        s = of.FairAssignment(X, groups=sex, centers=centers, fairness=rule).solve()
        if not s.grade.sound:
            raise RuntimeError(f"the bound at {eps} is {s.grade}")
        labels = s["assignment"].argmax(axis=1)
        counts = np.array([np.bincount(group[labels == k], minlength=2) for k in range(CLUSTERS)])
        steps.append(
            {
                "eps": float(eps),
                "cost": s.objective,
                "price": float(np.sum(s.shadow_price["fairness"])),
                "gap": float(np.abs(np.diff(s["masses"] / shares[:, None], axis=0)).sum()),
                "balance": of.metrics.balance(sex, labels),
                "counts": counts.tolist(),
                "labels": "".join(map(str, labels)),
            }
        )
    return {
        "groups": [str(n) for n in names],
        "group": "".join(map(str, group)),
        "at": np.round(flat, 2).tolist(),
        "share": shares.tolist(),
        "steps": steps,
    }
