r"""Shapley values of rows against the counterfactuals coupled to them (p-SHAP).

The value function is :math:`v_i(S) = E[f(x_{i,S}; r_{\bar S}) \mid r \sim p(\cdot \mid i)]` up
to a constant: eq. (7a) of the paper subtracts E[f(r)] over all counterfactuals, which changes
no Shapley value, but then :math:`v_i(\emptyset) = E[f(r) \mid i] - E[f(r)]` is not 0 as its
Section 3 wants. Efficiency reads :math:`\sum_k \phi_{ik} = f(x_i) - E[f(r) \mid i]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.sparse_counterfactuals.estimator.attribution import Attribution
from optfair.methods.sparse_counterfactuals.estimator.coalitions import (
    check_enumerated,
    coalition_values,
    most_differing,
)
from optfair.methods.sparse_counterfactuals.estimator.couplings import checked_coupling
from optfair.methods.sparse_counterfactuals.estimator.predictor import Predictor
from optfair.methods.sparse_counterfactuals.estimator.sampled_shapley import sampled_values
from optfair.methods.sparse_counterfactuals.estimator.stacked_rows import StackedRows

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["METHODS", "attributed", "p_shap"]

METHODS = ("auto", "exact", "linear", "sampled")


def p_shap(
    model: Any,
    factuals: Any,
    counterfactuals: Any,
    coupling: Any,
    *,
    method: str = "auto",
    exact_features: int = 12,
    samples: int | None = None,
    output: str = "auto",
    target_class: Any = None,
    categorical: Any = (),
    random_state: Any = None,
) -> Attribution:
    r"""Return the p-SHAP value of every cell: what its feature adds to the score of its row.

    .. math::
        \phi_{ik} = \tfrac1d \sum_{S \not\ni k} \tbinom{d-1}{|S|}^{-1} (v_i(S \cup k) - v_i(S)),
        \qquad v_i(S) = \sum_j \frac{p_{ij}}{\sum_{j'} p_{ij'}} f(x_{i,S}; r_{j,\bar S})

    Special couplings are known by names of their own: B-SHAP, every row with its own
    counterfactual (`aligned_coupling`); RB-SHAP, `uniform_coupling` to a background in place
    of the counterfactuals; CF-SHAP, a known distribution of counterfactuals for every row.

    Exact values sum over the coalitions of the features in which a row and a counterfactual
    differ, as the others are null players. For a linear score, φ_ik = w_k (x_ik − E[r_k | i]).

    Parameters
    ----------
    model : fitted model, (coef, intercept) or callable
        See `Predictor`.
    factuals, counterfactuals : arrays or data frames (n, d), (m, d)
        Rows; categories may be raw where the model takes them.
    coupling : array-like (n, m)
        p.
    method : {"auto", "exact", "linear", "sampled"}
        "auto" is the closed form for a linear score, else exact for the rows that differ from
        no counterfactual coupled to them in more than ``exact_features`` features, and sampled
        for the others: Kernel SHAP of the package shap with the coupling as weights of the
        background, with standard errors.
    exact_features : int
        Most differing features of a pair that are enumerated, up to 20: such a pair is 2 to
        the power of them rows of the model.
    samples : int, optional
        Coalitions that "sampled" asks for per row, 2d + 2048 by default.
    output, target_class
        Score of the model; see `Predictor`.
    categorical : sequence of str or int
        Columns of numbers that are codes of categories.
    random_state : int, Generator or None
        For "sampled".

    Returns
    -------
    Attribution

    Raises
    ------
    DataError
        Rows or coupling that do not fit, more differing features than "exact" enumerates, a
        model that refuses rows or returns no finite numbers.
    NotInstalled
        "sampled" needs shap.

    Examples
    --------
    >>> import numpy as np
    >>> f = lambda rows: rows[:, 0] * rows[:, 1]
    >>> found = p_shap(f, [[2.0, 3.0]], [[0.0, 1.0], [1.0, 1.0]], [[0.5, 0.5]])
    >>> found, found.values.tolist()  # they sum to 6 - 0.5
    (Attribution: 1 rows of 2 features, exact, [[3.0, 2.5]])

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, eq. (3) to (7).
    Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, NIPS 2017.
    """
    predictor = (
        model
        if isinstance(model, Predictor)
        else Predictor(model, output=output, target_class=target_class)
    )
    stack = StackedRows.of(factuals, counterfactuals, categorical=categorical)
    x, r = stack.blocks
    p = checked_coupling(coupling, x.shape[0], r.shape[0])
    return attributed(
        predictor,
        stack,
        x,
        r,
        p,
        method=method,
        exact_features=exact_features,
        samples=samples,
        random_state=random_state,
    )


def attributed(
    predictor: Predictor,
    stack: StackedRows,
    x: Indices,
    r: Indices,
    coupling: Floats,
    *,
    method: str = "auto",
    exact_features: int = 12,
    samples: int | None = None,
    random_state: Any = None,
) -> Attribution:
    """Return p-SHAP values of coded rows; see `p_shap`."""
    if method not in METHODS:
        raise DeclarationError(f"unknown method {method!r}", remedy=nearest(str(method), METHODS))
    check_enumerated(exact_features)
    share = coupling / coupling.sum(axis=1, keepdims=True)
    before = predictor.rows_asked
    score: Callable[[Indices], Floats] = lambda codes: predictor(stack.rows(codes))
    numeric = bool(stack.numeric.all())
    coef = predictor.coefficients(stack.names)
    if method == "linear" and (coef is None or not numeric):
        raise DeclarationError(
            "the closed form needs a linear score of numeric features",
            f"the score is {predictor.output} of a {type(predictor.model).__name__}",
            'give output="decision_function" of a linear classifier, or method="auto"',
        )
    many = most_differing(x, r, share)
    if method == "auto" and coef is not None and numeric:
        method = "linear"
    if method == "exact" and many.max() > exact_features:
        raise DataError(
            f"a row and a counterfactual differ in {many.max()} features, more than"
            f" {exact_features}",
            f"all coalitions would be 2^{many.max()} rows of the model for that pair alone",
            'use method="sampled", Kernel SHAP with a standard error per value that falls with'
            " the root of samples=; or raise exact_features=",
        )
    if method == "linear":
        columns = [stack.numbers(x, j) - share @ stack.numbers(r, j) for j in range(x.shape[1])]
        values, spread = np.stack(columns, axis=1) * coef, np.zeros(x.shape)
    else:
        drawn = many > exact_features if method == "auto" else np.full(len(x), method == "sampled")
        values, spread = np.zeros(x.shape), np.zeros(x.shape)
        if drawn.any():
            values[drawn], spread[drawn] = sampled_values(
                score, x[drawn], r, share[drawn], samples=samples, random_state=random_state
            )
        if not drawn.all():
            values[~drawn] = coalition_values(score, x[~drawn], r, share[~drawn])
        method = "sampled" if drawn.all() else "mixed" if drawn.any() else "exact"
    return Attribution(values, spread, method, share @ score(r), predictor.rows_asked - before)
