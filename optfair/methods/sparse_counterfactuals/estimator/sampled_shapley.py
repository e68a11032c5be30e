"""Shapley values by Kernel SHAP of the package shap, with the coupling as weights."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, NotInstalled
from optfair.methods.sparse_counterfactuals.estimator.coalitions import scored_once
from optfair.rows.parameters import generator

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["sampled_values"]

# Independent estimates, whose spread is the error.
REPEATS = 4
# Least number of coalitions per unknown in each: with fewer the regressions become singular.
ROWS = 4
# shap draws from NumPy's global generator: one thread at a time may set it.
LOCK = threading.Lock()


def sampled_values(
    score: Callable[[Indices], Floats],
    x: Indices,
    r: Indices,
    share: Floats,
    *,
    samples: int | None = None,
    random_state: Any = None,
) -> tuple[Floats, Floats]:
    r"""Return estimated p-SHAP values and their standard errors.

    .. math:: \hat\phi = \tfrac14 \sum_t \hat\phi^{(t)}, \qquad
              \mathrm{se}^2 = \tfrac{1}{4 \cdot 3} \sum_t (\hat\phi^{(t)} - \hat\phi)^2

    Each of four independent estimates is a weighted regression on a quarter of the sampled
    coalitions, without the selection of ten features that shap makes by default. Where these
    are all coalitions the estimate is exact and its error 0.

    Parameters
    ----------
    score : callable
        Coded rows to one number each.
    x, r : int arrays (n, d), (m, d)
        Coded rows.
    share : array (n, m)
        Conditional coupling, the weights of the background of each row.
    samples : int, optional
        Coalitions per row, 2d + 2048 by default.
    random_state : int, Generator or None
        Seeds the coalitions.

    Raises
    ------
    NotInstalled, DeclarationError
        shap is missing; too few samples for a regression.
    """
    try:
        with warnings.catch_warnings():
            # once, while it is imported, of what its plots ask of matplotlib
            warnings.simplefilter("ignore")
            from shap.explainers._kernel import KernelExplainer
            from shap.utils._legacy import DenseData
    except ImportError as e:
        raise NotInstalled(
            "shap is not installed", str(e), 'pip install "optfair[explain]"'
        ) from None
    n, d = x.shape
    total = 2 * d + 2048 if samples is None else samples
    least = REPEATS * ROWS * (d + 2)
    if isinstance(total, bool) or int(total) != total or total < least:
        raise DeclarationError(
            f"samples={samples!r} are too few coalitions for {d} features",
            f"{REPEATS} regressions of {d} unknowns each",
            f"give a whole number of at least {least}",
        )
    rng = generator(random_state)
    names = [str(j) for j in range(d)]
    values, spread = np.zeros((n, d)), np.zeros((n, d))
    for i in range(n):
        support = np.flatnonzero(share[i])
        # a copy: shap rescales the weights it is given in place
        background = DenseData(r[support].astype(float), names, None, share[i, support].copy())
        explainer = KernelExplainer(
            lambda codes: scored_once(score, np.rint(codes).astype(np.intp)), background
        )
        estimates = np.stack(
            [
                _seeded(explainer, x[i].astype(float), int(total) // REPEATS, int(seed))
                for seed in rng.integers(2**31 - 1, size=REPEATS)
            ]
        )
        values[i] = estimates.mean(axis=0)
        spread[i] = estimates.std(axis=0, ddof=1) / np.sqrt(REPEATS)
    return values, spread


def _seeded(explainer: Any, row: Floats, samples: int, seed: int) -> Floats:
    with LOCK:
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(seed)  # noqa: NPY002
        try:
            # l1_reg: by default shap keeps ten features and sets the others to zero
            found = explainer.shap_values(row, nsamples=samples, l1_reg=False, silent=True)
        finally:
            np.random.set_state(state)  # noqa: NPY002
    return np.asarray(found, dtype=np.float64)
