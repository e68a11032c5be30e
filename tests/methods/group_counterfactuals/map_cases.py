"""Groups, scores and models that the tests of maps share."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.methods.group_counterfactuals.affine_maps import AffineMap, PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import (
    CommutativeGaussianMap,
    DiagonalMap,
    ScaledMap,
)
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap, MixtureMap

Floats = NDArray[np.float64]

W, W0 = np.array([1.0, -0.5, 0.3, 0.0]), 0.4


def group(n: int = 40, d: int = 4, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / 2 - 1.0)


def target(**changed: Any) -> dict[str, Any]:
    return {"score": (W, W0), "probability": 0.8, **changed}


def labels(X: Floats) -> Any:
    return (X[:, 0] > np.median(X[:, 0])).astype(int)


MODELS: dict[str, Any] = {
    "affine": lambda X, K=None, k=None, **o: AffineMap(X, **o),
    "affine, bounded": lambda X, K=None, k=None, **o: AffineMap(X, K=K, **o),
    "psd": PSDMap,
    "diagonal": DiagonalMap,
    "commutative": CommutativeGaussianMap,
    "scaled": ScaledMap,
    "gaussian": GaussianMap,
    "gaussian, lmi": lambda X, **o: GaussianMap(X, form="lmi", **o),
    "mixture": lambda X, **o: MixtureMap(X, components=labels(X), **o),
    "mixture, global": lambda X, **o: MixtureMap(X, components=labels(X), bounds="global", **o),
}
CLASSES = {
    "affine": "QP",
    "affine, bounded": "SDP",
    "psd": "SDP",
    "diagonal": "QP",
    "commutative": "QP",
    "scaled": "QP",
    "gaussian": "SDP",
    "gaussian, lmi": "SDP",
    "mixture": "SDP",
    "mixture, global": "SDP",
}


def plain(
    name: str,
    X: Floats,
    K: float,
    k: float,
    level: float,
    costs: Floats | None = None,
    tolerance: float = 1e-11,
) -> float:
    """Solve it in plain CVXPY with the residuals of all members, by Clarabel."""
    n, d = X.shape
    b = cp.Variable(d)
    rules: list[Any] = []
    if name.startswith("affine"):
        A = cp.Variable((d, d))
        rules = [cp.sigma_max(A) <= K] if "bounded" in name else []
    elif name == "psd":
        A = cp.Variable((d, d), symmetric=True)
        rules = [np.eye(d) / k << A, A << K * np.eye(d)]
    elif name == "diagonal":
        a = cp.Variable(d)
        A = cp.diag(a)
        rules = [a >= 1 / k, a <= K]
    elif name == "commutative":
        U = np.linalg.eigh(np.cov(X.T, bias=True))[1]
        a = cp.Variable(d)
        A = U @ cp.diag(a) @ U.T
        rules = [a >= 1 / k, a <= K]
    else:
        a = cp.Variable()
        A = a * np.eye(d)
        rules = [a >= 1 / k, a <= K]
    Z = X @ A.T + np.ones((n, 1)) @ cp.reshape(b, (1, d), order="C")
    weights = np.sqrt(np.ones(d) if costs is None else costs)
    cost = cp.sum_squares((Z - X) @ np.diag(weights)) / n
    problem = cp.Problem(cp.Minimize(cost), [level <= Z @ W + W0, *rules])
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
    return float(problem.solve(solver="CLARABEL", **tight))
