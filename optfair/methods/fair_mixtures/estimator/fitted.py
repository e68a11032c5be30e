"""Fitted attributes of a fair mixture, from components and summaries of passes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from optfair.errors import DataError
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.expectation import Summary
from optfair.methods.fair_mixtures.estimator.mass_rules import fair_labels_problem
from optfair.methods.fair_mixtures.estimator.penalty_step import Gaps
from optfair.methods.fair_mixtures.estimator.sample import BLOCK, Sample
from optfair.rows.restarts import unfinished

Floats = NDArray[np.float64]

__all__ = [
    "fair_label_prices",
    "group_index",
    "keep_components",
    "keep_numbers",
    "keep_summary",
    "priced_labels",
    "warn_unfinished",
]


def keep_components(model: Any, components: Components, data: Any) -> None:
    """Set the attributes that describe the mixture and its columns.

    Parameters
    ----------
    model : FairMixture
        Gets the attributes.
    components : Components
        The mixture.
    data : object with ``columns``, ``names``, ``sample`` and ``grouped``
        What it was fitted on.
    """
    g, m = components.gaussians, components.multinoullis
    columns = data.columns
    model.components_, model.columns_ = components, columns
    model.weights_, model.means_ = components.weights, components.means
    model.covariances_ = np.zeros(0) if g is None else g.covariances
    model.probabilities_ = () if m is None else tuple(m.blocks(m.probabilities))
    model.categories_ = columns.categories
    model.n_features_in_ = columns.width
    if columns.names is not None:
        model.feature_names_in_ = np.array(columns.names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
    if data.grouped:
        model.groups_, model.shares_ = np.asarray(data.names), np.asarray(data.sample.shares)
    else:
        for name in ("groups_", "shares_"):  # of an earlier fit
            if hasattr(model, name):
                delattr(model, name)


def keep_summary(model: Any, found: Summary, sample: Sample, labels: NDArray[np.intp]) -> None:
    """Set the attributes that describe the fit on its rows.

    Parameters
    ----------
    model : FairMixture
        Gets the attributes.
    found : Summary
        Of a pass over the rows.
    sample : Sample
        The rows.
    labels : array (n,)
        Cluster of each row.
    """
    masses = sample.hard_masses(labels, found.fair.shape[1])
    cost = 0.0
    for start in range(0, sample.count, BLOCK):
        part = slice(start, start + BLOCK)
        apart = sample.rows.numeric[part] - model.means_[labels[part]]
        cost += float(sample.weights[part] @ np.einsum("ij,ij->i", apart, apart))
    keep_numbers(model, found, sample.shares, masses, cost)


def keep_numbers(
    model: Any, found: Summary, shares: Floats, label_masses: Floats, cost: float
) -> None:
    """Set the numbers of a fit; `keep_summary` for rows that are nowhere in memory.

    Parameters
    ----------
    model : FairMixture
        Gets the attributes.
    found : Summary
        Of a pass over the rows.
    shares : array (G,)
        Weight share of each group.
    label_masses : array (G, K)
        Weight of each group under each label.
    cost : float
        Mean squared distance of the numeric columns.
    """
    model.masses_ = found.fair
    model.log_likelihood_ = found.log_likelihood
    model.cost_ = cost if model.means_.shape[1] else float("nan")
    if shares.size < 2:
        model.delta_ = model.delta_plain_ = model.delta_labels_ = 0.0
        model.balance_ = 1.0
        return
    gaps = Gaps(shares.size)
    part = shares[:, None]
    model.delta_ = gaps.value(found.fair / part)
    model.delta_plain_ = gaps.value(found.plain / part)
    model.delta_labels_ = gaps.value(label_masses / part)
    filled = label_masses[:, label_masses.sum(axis=0) > 0.0]
    model.balance_ = float((filled.min(axis=0) / filled.max(axis=0)).min())


def group_index(names: NDArray[Any], labels: Any, rows: int) -> NDArray[np.intp]:
    """Return the position of each label among the groups of the fit.

    Raises
    ------
    DataError
        Labels that the fit did not see, or not one per row.
    """
    given = np.asarray(labels)
    if given.shape != (rows,):
        raise DataError(
            "groups does not fit the rows",
            f"shape {given.shape} for {rows} rows",
            "give one label per row",
        )
    known = {name: g for g, name in enumerate(np.asarray(names).tolist())}
    distinct, inverse = np.unique(given, return_inverse=True)
    unknown = [str(v) for v in distinct.tolist() if v not in known]
    if unknown:
        raise DataError(
            f"groups has labels the fit did not see: {', '.join(unknown[:5])}",
            f"it saw {', '.join(map(str, known))}; a new group has no prices",
            "fit again with rows of that group",
        )
    return np.array([known[v] for v in distinct.tolist()], dtype=np.intp)[inverse]


def priced_labels(components: Components, sample: Sample, prices: Floats) -> NDArray[np.intp]:
    """Return the cluster of the largest responsibility of each row (n,), block by block.

    Parameters
    ----------
    components : Components
        The mixture.
    sample : Sample
        Rows.
    prices : array (G, K)
        Λ.
    """
    labels = np.empty(sample.count, dtype=np.intp)
    for start in range(0, sample.count, BLOCK):
        part = slice(start, start + BLOCK)
        joint = components.log_prob(sample.rows[part])
        labels[part] = (joint - prices[sample.index[part]]).argmax(axis=1)
    return labels


def fair_label_prices(
    joint: Floats, data: Any, rules: dict[str, Any]
) -> tuple[Floats, NDArray[np.intp]]:
    """Return (prices, labels) of the labels that obey the rules themselves.

    Parameters
    ----------
    joint : array (n, K)
        Log joint densities.
    data : object with ``names`` and ``sample``
        Groups and weights.
    rules : dict
        Rules by name.
    """
    s = data.sample
    solution = fair_labels_problem(joint, np.asarray(data.names)[s.index], s.weights, rules).solve()
    labels = np.asarray(solution["assignment"]).argmax(axis=1)
    return np.asarray(solution.multipliers["mass definition"]), labels


def warn_unfinished(model: Any, stacklevel: int) -> None:
    """Warn when the best start was cut off.

    Parameters
    ----------
    model : FairMixture
        Fitted.
    stacklevel : int
        Of `warnings.warn`: where the user called.
    """
    if not model.converged_:
        text = unfinished(model.status_, model.n_iter_)
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel)
