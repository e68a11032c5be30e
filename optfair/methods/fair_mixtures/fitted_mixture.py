"""What a fitted mixture says: its attributes, and about rows, seen or not, checked before any work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError
from optfair.methods.fair_clustering.algorithms.integer_masses import SettledRows
from optfair.methods.fair_clustering.algorithms.pricing import (
    Box,
    label_masses,
    label_sums,
    smallest_ratio,
)
from optfair.methods.fair_clustering.labels import (
    GAP,
    HARD_SECONDS,
    hard_labels,
    passed_labels,
)
from optfair.methods.fair_clustering.whole_rules import (
    check_surveyed,
    check_whole,
    warn_labelled,
)
from optfair.methods.fair_mixtures.components import Components
from optfair.methods.fair_mixtures.expectation import BLOCK, Gaps, Sample, Summary, log_sums
from optfair.methods.fair_mixtures.fair_em import fair_labels_problem
from optfair.numbers import Floats, check_count, check_weights, checked, encode_groups
from optfair.rows.frames import (
    Columns,
    MixedRows,
    check_row_order,
    group_index,
    start_seeds,
    without_groups,
)
from optfair.rows.restarts import unfinished
from optfair.rows.survey import Survey

# How fractions are asked for in place of whole rows.
SOFT = 'label_rule="fair"'


# Fitted attributes of a fair mixture, from components and summaries of passes.


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
    else:
        vars(model).pop("feature_names_in_", None)
    if data.grouped:
        model.groups_, model.shares_ = np.asarray(data.names), np.asarray(data.sample.shares)
    else:
        for name in ("groups_", "shares_"):  # of an earlier fit
            vars(model).pop(name, None)


def keep_numbers(
    model: Any, numbers: Summary, shares: Floats, label_masses: Floats, cost: float, apart: Floats
) -> None:
    """Set the numbers that describe a fit on its rows.

    Parameters
    ----------
    model : FairMixture
        Gets the attributes.
    numbers : Summary
        Of a pass over the rows.
    shares : array (G,)
        Weight share of each group.
    label_masses : array (G, K)
        Weight of each group under each label.
    cost : float
        Mean squared distance of the numeric columns to the mean of each label's component.
    apart : array (K, d)
        Weighted sum of the columns less that mean, of the rows with each label.
    """
    model.masses_ = numbers.fair
    model.log_likelihood_ = numbers.log_likelihood
    sizes = label_masses.sum(axis=0)
    nearer = float(((apart**2).sum(axis=1)[sizes > 0.0] / sizes[sizes > 0.0]).sum())
    numeric = model.means_.shape[1] > 0
    model.cost_ = cost if numeric else float("nan")
    model.label_cost_ = max(cost - nearer, 0.0) if numeric else float("nan")
    if shares.size < 2:
        model.delta_ = model.delta_plain_ = model.delta_labels_ = 0.0
        model.balance_ = 1.0
        return
    gaps = Gaps(shares.size)
    part = shares[:, None]
    model.delta_ = gaps.value(numbers.fair / part)
    model.delta_plain_ = gaps.value(numbers.plain / part)
    model.delta_labels_ = gaps.value(label_masses / part)
    model.balance_ = smallest_ratio(label_masses)


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


def check_whole_labels(
    data: Any, rules: dict[str, Any], components: int, survey: Survey | None = None
) -> None:
    """Raise where no labels of whole rows obey the rules; see `check_whole` and `check_surveyed`."""
    s = data.sample
    costless = np.zeros((s.count, components))
    p = fair_labels_problem(costless, np.asarray(data.names)[s.index], s.weights, rules)
    if survey is None:
        check_whole(p, SOFT)
    else:
        check_surveyed(p, survey, SOFT)


def keep_fair_labels(
    model: Any, data: Any, rules: dict[str, Any], numbers: Summary
) -> NDArray[np.intp]:
    """Return labels that obey the rules themselves; set their prices, and what is said of them.

    Parameters
    ----------
    model : FairMixture
        Gets the attributes; with label_rule "hard" no row is split, see `hard_labels`.
    data : object with ``names`` and ``sample``
        All rows of the fit, in groups.
    rules : dict
        Rules by name.
    numbers : Summary
        What describes the mixture on these rows.
    """
    s, K = data.sample, len(model.weights_)
    joint = s.log_joint(model.components_)
    solution = fair_labels_problem(joint, np.asarray(data.names)[s.index], s.weights, rules).solve()
    model.label_prices_ = np.asarray(solution.multipliers["mass definition"])
    labels = np.argmax(solution["assignment"], axis=1)
    if model.label_rule == "hard":
        model.hard_labels_ = hard_labels(solution, time_limit=HARD_SECONDS)
        labels = model.hard_labels_.labels
    masses = label_masses(labels, s.index, s.weights, (s.shares.size, K))
    apart = s.rows.numeric - model.means_[labels]
    cost = float(s.weights @ np.einsum("ij,ij->i", apart, apart))
    sums = label_sums(apart, labels, s.weights, K)
    keep_numbers(model, numbers, s.shares, masses, cost, sums)
    return np.asarray(labels)


def keep_passed_labels(
    model: Any,
    data: Any,
    rules: dict[str, Any],
    numbers: Summary,
    rows: int,
    sweep: Callable[[Floats, Box], SettledRows],
) -> None:
    """Set prices of labels that obey the rules themselves, and what is said of them, in passes.

    Parameters
    ----------
    model, rules, numbers
        As of `keep_fair_labels`.
    data : object with ``names`` and ``sample``
        Some rows of the fit.
    rows, sweep
        As of `passed_labels`.
    """
    s = data.sample
    joint = s.log_joint(model.components_)
    few = fair_labels_problem(joint, np.asarray(data.names)[s.index], s.weights, rules)
    begun = np.asarray(few.solve().multipliers["mass definition"])
    soft = passed_labels(few, sweep, begun, rows)
    model.label_prices_, hard = soft.prices, model.label_rule == "hard"
    chosen = soft.whole(few, GAP, HARD_SECONDS) if hard else soft.largest(few)
    model.hard_labels_ = chosen if hard else None
    part = soft.rows.rows
    own, K = chosen.labels[part.at].astype(np.intp), len(model.weights_)
    apart = part.points - model.means_[own]
    cost = part.spread + float(part.weights @ np.square(apart).sum(axis=1))
    sums = part.apart + label_sums(apart, own, part.weights, K)
    keep_numbers(model, numbers, s.shares, chosen.masses, cost, sums)


def warn_unfinished(model: Any, stacklevel: int) -> None:
    """Warn when the best start was cut off, and where labels of whole rows miss a rule.

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
    hard = getattr(model, "hard_labels_", None)
    if hard is not None:
        warn_labelled(hard, soft=SOFT, stacklevel=stacklevel)


# What a fitted mixture says about rows, seen or not.

Labels = NDArray[np.intp]


class MixturePrediction:
    """Labels, responsibilities, densities and draws of a fitted `FairMixture`."""

    components_: Components
    columns_: Columns
    prices_: Floats
    label_prices_: Floats
    groups_: NDArray[Any]
    random_state: Any

    def _joint(self, X: Any, groups: Any) -> tuple[Floats, Any]:
        check_is_fitted(self, "components_")
        X, labels = without_groups(X, groups)
        return self.components_.log_prob(self.columns_.encoded(X)), labels

    def predict(self, X: Any, *, groups: Any = None) -> Labels:
        """Return the cluster of each row, seen or not.

        Parameters
        ----------
        X : array-like or DataFrame (m, d)
            Rows in the columns of the fit.
        groups : array-like (m,) or str
            Group label of each row, among ``groups_``; needed after a constraint, and for
            labels by "fair".

        Returns
        -------
        array (m,) of int
        """
        joint, labels = self._joint(X, groups)
        return np.asarray(self._priced(joint, labels, self.label_prices_).argmax(axis=1))

    def predict_proba(self, X: Any, groups: Any = None) -> Floats:
        r"""Return the responsibilities of rows, seen or not (m, K).

        .. math:: R_{ik} \propto \pi_k f_k(x_i)\, e^{-\Lambda_{g_i k}}

        Parameters are those of `predict`; without a constraint, groups are not used. For the
        plain responsibilities of a constrained fit, see `responsibilities`.
        """
        joint, labels = self._joint(X, groups)
        priced = self._priced(joint, labels, self.prices_)
        log_sums(priced)
        return priced

    def _priced(self, joint: Floats, labels: Any, prices: Floats) -> Floats:
        if not prices.any():
            return joint
        if labels is None:
            raise DataError(
                "groups is missing",
                "the responsibilities of a constrained fit depend on the group of the row",
                "give groups=, or use responsibilities(X) for those without the constraint",
            )
        return joint - prices[group_index(self.groups_, labels, len(joint))]

    def responsibilities(self, X: Any) -> Floats:
        """Return the plain responsibilities ψ (m, K), whatever the constraint."""
        joint, _ = self._joint(X, None)
        log_sums(joint)
        return joint

    def score_samples(self, X: Any) -> Floats:
        """Return the log density of each row (m,)."""
        joint, _ = self._joint(X, None)
        return log_sums(joint)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log density of rows."""
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on rows; smaller is better."""
        logs = self.score_samples(X)
        return float(-2.0 * logs.sum() + self.components_.free * np.log(logs.size))

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on rows; smaller is better."""
        return float(-2.0 * self.score_samples(X).sum() + 2.0 * self.components_.free)

    @checked(n_samples=check_count)
    def sample(self, n_samples: int = 1) -> tuple[NDArray[Any], Labels]:
        """Return random rows of the mixture and the component of each.

        Parameters
        ----------
        n_samples : int
            Number of rows.

        Returns
        -------
        X : array (n_samples, d)
            In the columns of the fit; of type object where there are categories.
        labels : array (n_samples,) of int
        """
        check_is_fitted(self, "components_")
        rng = np.random.default_rng(start_seeds(self.random_state, 1, given=True)[0])
        c, columns = self.components_, self.columns_
        which = np.asarray(rng.choice(c.clusters, n_samples, p=c.weights / c.weights.sum()))
        X = np.empty((n_samples, columns.width), dtype=object if columns.categorical else float)
        if c.gaussians is not None:
            X[:, list(columns.numeric)] = c.gaussians.drawn(which, rng)
        if c.multinoullis is not None:
            codes = c.multinoullis.drawn(which, rng)
            pairs = zip(columns.categorical, columns.categories, strict=True)
            for j, (column, known) in enumerate(pairs):
                X[:, column] = known[codes[:, j]]
        return X, which


# What a fair mixture is fitted on: rows, groups and weights, checked before any work.

# Rows that Δ is measured on while batches come in, where nothing else is asked for.
MEASURED = 10_000


@dataclass(frozen=True, eq=False)
class Intake:
    """Rows of a fit with their groups.

    Attributes
    ----------
    sample : Sample
        Without groups, all rows are in one.
    columns : Columns
    names : array (G,)
        Sorted group labels.
    grouped : bool
        Whether there are groups.
    """

    sample: Sample
    columns: Columns
    names: NDArray[Any]
    grouped: bool

    def with_rows(self, other: Intake, limit: Any) -> Intake:
        """Return these rows with those of another batch, up to a number of rows."""
        most = MEASURED if limit is None or isinstance(limit, float) else int(limit)
        mine, theirs = self.sample, other.sample
        room = most - mine.count
        if other is self or room <= 0:
            return self
        few = theirs.some(np.arange(min(room, theirs.count)))
        rows = MixedRows(
            np.concatenate([mine.rows.numeric, few.rows.numeric]),
            np.concatenate([mine.rows.codes, few.rows.codes]),
        )
        index = np.concatenate([mine.index, few.index])
        weights = np.concatenate([mine.count * mine.weights, few.count * few.weights])
        totals = np.bincount(index, weights, mine.shares.size)
        sample = Sample(rows, index, weights * (mine.shares / totals)[index], mine.shares)
        return replace(self, sample=sample)


def check_rows(model: Any, count: int) -> None:
    """Raise on fewer rows than components."""
    if count < model.n_components:
        raise DataError(
            f"n_components={model.n_components} for {count} rows",
            "every component starts at a row of its own",
            f"give n_components <= {count}",
        )


def taken_in(model: Any, X: Any, groups: Any, sample_weight: Any, *, fitted: Any = None) -> Intake:
    """Return what the model is fitted on.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    X, groups, sample_weight
        As given to `FairMixture.fit`.
    fitted : tuple, optional
        State of `FairMixture.partial_fit`, whose columns and groups the rows must have.
    """
    if groups is None and model.fairness is not None:
        raise DataError(
            "groups is missing",
            f"fairness={model.fairness!r} compares groups",
            "give groups=, one label per row; or fairness=None for a plain mixture",
        )
    check_row_order(X=X, groups=groups, sample_weight=sample_weight)
    X, labels = without_groups(X, groups)
    columns = Columns.of(X, model.categorical) if fitted is None else fitted[0].columns
    rows = columns.encoded(X)
    if fitted is None:
        check_rows(model, rows.count)
    weights = check_weights(sample_weight, rows.count)
    if labels is None:
        one = np.zeros(rows.count, dtype=np.intp)
        return Intake(Sample(rows, one, weights, np.ones(1)), columns, np.array([]), False)
    if fitted is not None:
        names, shares = fitted[0].names, fitted[0].sample.shares
        index = group_index(names, labels, rows.count)
        return Intake(Sample(rows, index, weights, shares), columns, names, True)
    index, names, shares = encode_groups(labels, rows.count, weights)
    return Intake(Sample(rows, index, weights, shares), columns, names, True)
