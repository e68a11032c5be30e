"""Other ways to a counterfactual between two Gaussian clusters, for comparison.

Every function takes a `Pair`, the inequality q(z) = z'Dz - 2e'z + c <= 0 on the free features
(the target's weighted density is at least (1 + ε) times the source's), and the factual's free
part; it returns the free part of its answer, or None.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, root

__all__ = ["Pair", "dice", "dice_point", "pair_of", "recipe", "slsqp"]

Floats = np.ndarray


@dataclass(frozen=True)
class Pair:
    """q on the free features; ``crossless`` is c without the terms that join free and fixed."""

    D: Floats
    e: Floats
    c: float
    crossless: tuple[Floats, float]
    target_mean: Floats

    def value(self, z: Floats) -> float:
        return float(z @ self.D @ z - 2.0 * self.e @ z + self.c)

    def gradient(self, z: Floats) -> Floats:
        return 2.0 * (self.D @ z - self.e)


def pair_of(
    mixture: Any, y: Floats, source: int, target: int, free: Floats, epsilon: float
) -> Pair:
    """Return q of a fitted scikit-learn mixture with full covariances.

    With P = S^-1 and the fixed part y_G,
    D = P_t,FF - P_s,FF and e = [P_t,FF m_t,F - P_t,FG (y_G - m_t,G)] - [the same of s].
    """
    fixed = ~free
    parts = []
    for k in (target, source):
        m, P = mixture.means_[k], np.linalg.inv(mixture.covariances_[k])
        mF, gap = m[free], y[fixed] - m[fixed]
        FF, FG, GG = P[np.ix_(free, free)], P[np.ix_(free, fixed)], P[np.ix_(fixed, fixed)]
        _, logdet = np.linalg.slogdet(mixture.covariances_[k])
        alpha = logdet - 2.0 * np.log(mixture.weights_[k])
        parts.append(
            (
                FF,
                FF @ mF - FG @ gap,
                mF @ FF @ mF - 2.0 * mF @ FG @ gap + gap @ GG @ gap + alpha,
                FF @ mF,
                mF @ FF @ mF + gap @ GG @ gap + alpha,
            )
        )
    D, e, c, bare_e, bare_c = (t - s for t, s in zip(*parts, strict=True))
    shift = 2.0 * np.log1p(epsilon)
    return Pair(
        D, e, float(c + shift), (bare_e, float(bare_c + shift)), mixture.means_[target][free]
    )


def recipe(pair: Pair, y: Floats, *, cross: bool = True) -> Floats | None:
    """The paper's recipe: SciPy's `root` on q(z(λ)) = 0 from λ = 0, z(λ) = (I + λD)^-1 (y + λe).

    ``cross=False`` leaves the cross term c_ℓ of eq. (23) out of the equation, as the paper's
    public code does; without fixed features, or with diagonal covariances, there is none.
    """
    one = np.eye(y.size)
    bare_e, bare_c = pair.crossless

    def z(lam: float) -> Floats:
        return np.linalg.solve(one + lam * pair.D, y + lam * pair.e)

    def equation(lam: Floats) -> float:
        at = z(float(lam[0]))
        if cross:
            return pair.value(at)
        return float(at @ pair.D @ at - 2.0 * bare_e @ at + bare_c)

    try:
        with np.errstate(all="ignore"):
            found = root(equation, 0.0)
            return z(float(found.x[0])) if found.success else None
    except np.linalg.LinAlgError:
        return None


def slsqp(pair: Pair, y: Floats, *, starts: int = 5, seed: int = 0) -> Floats | None:
    """SLSQP from the factual, the target's mean and points around them; the best feasible end."""
    rng = np.random.default_rng(seed)
    far = float(np.linalg.norm(pair.target_mean - y))
    begins = [y + 1e-3 * far * rng.normal(size=y.size), pair.target_mean]
    begins += [
        pair.target_mean + 0.5 * far * rng.normal(size=y.size) / np.sqrt(y.size)
        for _ in range(starts - 2)
    ]
    # scaled so that the tolerance means the same on every data set
    unit = max(far**2, 1e-12)
    steep = 1.0 + abs(pair.value(y))
    best: tuple[float, Floats | None] = (np.inf, None)
    for begin in begins:
        found = minimize(
            lambda z: float((z - y) @ (z - y)) / unit,
            begin,
            jac=lambda z: 2.0 * (z - y) / unit,
            constraints={
                "type": "ineq",
                "fun": lambda z: -pair.value(z) / steep,
                "jac": lambda z: -pair.gradient(z) / steep,
            },
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-12},
        )
        if pair.value(found.x) <= 1e-6 * steep and found.fun < best[0]:
            best = (float(found.fun), found.x)
    return best[1]


class Pairwise:
    """Two clusters as the classifier that DiCE wants: 1 is the target."""

    def __init__(self, clusters: Any, source: int, target: int) -> None:
        self.clusters, self.pair = clusters, [source, target]

    def predict_proba(self, X: Any) -> Floats:
        scores = self.clusters.scores(np.asarray(X, dtype=float))[:, self.pair]
        share = 1.0 / (1.0 + np.exp(np.clip(scores[:, 0] - scores[:, 1], -500.0, 500.0)))
        return np.column_stack([1.0 - share, share])

    def predict(self, X: Any) -> Floats:
        return (self.predict_proba(X)[:, 1] >= 0.5).astype(int)


def dice_point(
    clusters: Any, X: Floats, y: Floats, source: int, target: int, free: Floats
) -> Floats | None:
    """DiCE's random search on the classifier between two clusters, one counterfactual."""
    import dice_ml
    import pandas as pd

    names = [f"x{j}" for j in range(X.shape[1])]
    model = Pairwise(clusters, source, target)
    frame = pd.DataFrame(X, columns=names).assign(cluster=model.predict(X))
    data = dice_ml.Data(dataframe=frame, continuous_features=names, outcome_name="cluster")
    search = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method="random")
    try:
        found = search.generate_counterfactuals(
            pd.DataFrame([y], columns=names),
            total_CFs=1,
            desired_class=1,
            features_to_vary=[n for n, f in zip(names, free, strict=True) if f],
            random_seed=0,
        )
        points = found.cf_examples_list[0].final_cfs_df
    except Exception as e:  # its own errors say "no counterfactuals found" in several ways
        if "counterfactual" not in str(e).lower():
            raise
        return None
    return None if points is None else np.asarray(points[names].iloc[0], dtype=float)


def dice() -> str | None:
    """Return why DiCE is left out, None if it is installed."""
    return None if importlib.util.find_spec("dice_ml") else "not installed (package dice-ml)"
