r"""Shapley values of rows against the counterfactuals coupled to them (p-SHAP)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError, NotInstalled, kind_of
from optfair.features.predictor import Predictor
from optfair.methods.sparse_counterfactuals.couplings import checked_coupling
from optfair.methods.sparse_counterfactuals.tables import StackedRows
from optfair.numbers import (
    Flags,
    Floats,
    Indices,
    check_choice,
    check_count,
    check_seed,
    check_table,
    check_text,
    checked,
    whole,
)
from optfair.rows.frames import generator

# What an attribution says: a value per cell, its error, and what it cost.


@dataclass(frozen=True, eq=False)
class Attribution:
    r"""Shapley values of the features of every row.

    Attributes
    ----------
    values : array (n, d)
        φ, in units of the score; row i sums to f(x_i) − E[f(r) | i].
    standard_error : array (n, d)
        Of a sampled value; 0 where it is exact.
    method : {"exact", "linear", "sampled", "mixed", "given"}
        All coalitions, the closed form of a linear score, an estimate, exact for some rows and
        estimated for others, or values from elsewhere.
    baseline : array (n,)
        E[f(r) | i], the mean score of the counterfactuals coupled to row i.
    evaluations : int
        Rows the model was asked for.

    Examples
    --------
    >>> f = lambda rows: rows @ [1.0, 10.0]
    >>> found = p_shap(f, [[2.0, 3.0]], [[0.0, 1.0]], [[1.0]])
    >>> found.values.tolist(), found.baseline.tolist(), found.sampled
    ([[2.0, 20.0]], [10.0], False)
    """

    values: Floats
    standard_error: Floats
    method: str
    baseline: Floats
    evaluations: int

    def __repr__(self) -> str:
        n, d = self.values.shape
        error = f", standard error up to {self.standard_error.max():.2g}" if self.sampled else ""
        return f"Attribution: {n} rows of {d} features, {self.method}{error}"

    @property
    def sampled(self) -> bool:
        """Whether some values are estimates."""
        return self.method in ("sampled", "mixed")


# Shapley values by all coalitions of the features in which coupled rows differ.

# Bytes of one batch of rows, and rough bytes of a cell while the model works on it.
MEMORY, CELL = 64_000_000, 32
# Coalitions of one pair that are held at a time are 2 to this power at most.
LARGEST = 20


def check_enumerated(features: Any) -> None:
    """Raise unless this many features can be enumerated.

    Raises
    ------
    DeclarationError
    """
    if not whole(features) or not 0 <= features <= LARGEST:
        raise DeclarationError(
            f"exact_features={features!r} is not a number of features to enumerate",
            "a pair of rows is 2 to the power of it rows of the model",
            f"give a whole number from 0 to {LARGEST}; beyond it, values are estimated",
        )


def most_differing(x: Indices, r: Indices, share: Floats) -> Indices:
    """Return in how many features each row differs at most from one coupled to it (n,).

    Parameters
    ----------
    x, r : int arrays (n, d), (m, d)
        Coded rows.
    share : array (n, m)
        Coupling; only pairs with mass count.
    """
    rows, partners = np.nonzero(share)
    most, step = np.zeros(x.shape[0], dtype=np.intp), max(1, MEMORY // (8 * x.shape[1]))
    for at in range(0, rows.size, step):
        i, j = rows[at : at + step], partners[at : at + step]
        np.maximum.at(most, i, (x[i] != r[j]).sum(axis=1))
    return most


def shapley_weights(players: int) -> Floats:
    r"""Return the matrix that takes the values of all coalitions to Shapley values.

    .. math::
        W_{Sk} = \frac{1}{d \binom{d-1}{|S| - 1}} \;(k \in S), \qquad
        W_{Sk} = -\frac{1}{d \binom{d-1}{|S|}} \;(k \notin S)

    Parameters
    ----------
    players : int
        d ≥ 1.

    Returns
    -------
    array (2^d, d)
        Coalition number s has the players whose bits are set in s.

    Examples
    --------
    >>> shapley_weights(1).tolist()
    [[-1.0], [1.0]]
    >>> (shapley_weights(2).T @ [0.0, 1.0, 0.0, 4.0]).tolist()
    [2.5, 1.5]
    """
    inside = members(players)
    size = inside.sum(axis=1)
    d = players
    # entry s: weight of a player who joins s others, or who is missed by them
    joins = np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)])
    gains = joins[np.maximum(size - 1, 0)][:, None]
    losses = joins[np.minimum(size, d - 1)][:, None]
    return np.asarray(np.where(inside, gains, -losses))


def members(players: int) -> Flags:
    """Return all coalitions of players (2^d, d), one per line."""
    return np.asarray((np.arange(2**players)[:, None] >> np.arange(players)) % 2 == 1)


def coalition_values(
    score: Callable[[Indices], Floats],
    x: Indices,
    r: Indices,
    share: Floats,
    *,
    memory: int = MEMORY,
) -> Floats:
    r"""Return the p-SHAP values of coded rows.

    Shapley values are linear in the value function, so those of a row are the mean of those
    against each counterfactual coupled to it. In a pair only the features that differ play.
    All pairs with as many of them are one batch, up to a memory cap, and the model is asked
    once for each different row in it.

    Parameters
    ----------
    score : callable
        Coded rows to one number each.
    x, r : int arrays (n, d), (m, d)
        Coded rows.
    share : array (n, m)
        Conditional coupling; rows sum to 1.
    memory : int
        Bytes a batch may take.

    Returns
    -------
    array (n, d)
    """
    phi = np.zeros(x.shape)
    rows, partners = np.nonzero(share)
    d = x.shape[1]
    pairs = max(1, memory // (8 * d))
    for start in range(0, rows.size, pairs):
        i, j = rows[start : start + pairs], partners[start : start + pairs]
        differ = x[i] != r[j]
        count = differ.sum(axis=1)
        for k in np.unique(count[count > 0]):
            at = np.flatnonzero(count == k)
            inside, weights = members(int(k)), shapley_weights(int(k))
            step = max(1, memory // (CELL * d * inside.shape[0]))
            for low in range(0, at.size, step):
                part = at[low : low + step]
                places = np.nonzero(differ[part])[1].reshape(part.size, k)
                values = _values(score, x[i[part]], r[j[part]], places, inside)
                parts = (values @ weights) * share[i[part], j[part], None]
                np.add.at(phi, (i[part, None], places), parts)
    return phi


def _values(
    score: Callable[[Indices], Floats], x: Indices, r: Indices, places: Indices, inside: Flags
) -> Floats:
    """Return the score of every coalition of every pair (pairs, 2^k)."""
    mixed = np.repeat(r[:, None, :], inside.shape[0], axis=1)
    own = np.take_along_axis(x, places, axis=1)
    other = np.take_along_axis(r, places, axis=1)
    np.put_along_axis(
        mixed,
        np.broadcast_to(places[:, None, :], (places.shape[0], *inside.shape)),
        np.where(inside, own[:, None, :], other[:, None, :]),
        axis=2,
    )
    flat = mixed.reshape(-1, x.shape[1])
    return scored_once(score, flat).reshape(places.shape[0], inside.shape[0])


def scored_once(score: Callable[[Indices], Floats], codes: Indices) -> Floats:
    """Return scores of coded rows, asking once for rows that are equal."""
    # random keys: equal rows have equal keys, and different ones practically never
    rng = np.random.default_rng(0)
    key = np.zeros(codes.shape[0], dtype=np.uint64)
    for j in range(codes.shape[1]):
        table = rng.integers(2**64, size=int(codes[:, j].max()) + 1, dtype=np.uint64)
        key += table[codes[:, j]]
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    if first.size > 0.9 * codes.shape[0] or not np.array_equal(codes[first[back]], codes):
        return score(codes)
    return np.asarray(score(codes[first])[back])


# Shapley values by Kernel SHAP of the package shap, with the coupling as weights.

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
    samples: int | None,
    random_state: Any,
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
    if not whole(total) or total < least:
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
            values = explainer.shap_values(row, nsamples=samples, l1_reg=False, silent=True)
        finally:
            np.random.set_state(state)  # noqa: NPY002
    return np.asarray(values, dtype=np.float64)


# Shapley values of rows against the counterfactuals coupled to them (p-SHAP).
#
# The value function is :math:`v_i(S) = E[f(x_{i,S}; r_{\bar S}) \mid r \sim p(\cdot \mid i)]` up
# to a constant: eq. (7a) of the paper subtracts E[f(r)] over all counterfactuals, which changes
# no Shapley value, but then :math:`v_i(\emptyset) = E[f(r) \mid i] - E[f(r)]` is not 0 as its
# Section 3 wants. Efficiency reads :math:`\sum_k \phi_{ik} = f(x_i) - E[f(r) \mid i]`.

METHODS = ("auto", "exact", "linear", "sampled")


@checked(
    factuals=check_table,
    counterfactuals=check_table,
    method=check_text,
    exact_features=check_count,
    output=check_text,
    random_state=check_seed,
)
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
    exact_features: int,
    samples: int | None,
    random_state: Any,
) -> Attribution:
    """Return p-SHAP values of coded rows; see `p_shap`."""
    check_choice(method, "method", METHODS)
    check_enumerated(exact_features)
    share = coupling / coupling.sum(axis=1, keepdims=True)
    before = predictor.rows_asked
    score: Callable[[Indices], Floats] = lambda codes: predictor(stack.rows(codes))
    numeric = bool(stack.numeric.all())
    coef = predictor.coefficients(stack.names)
    if method == "linear" and (coef is None or not numeric):
        raise DeclarationError(
            "the closed form needs a linear score of numeric features",
            f"the score is {predictor.output} of {kind_of(predictor.model)}",
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
