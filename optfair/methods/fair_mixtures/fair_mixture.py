"""Fair mixture models with scikit-learn's conventions, of all rows at once or batch by batch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin

from optfair.errors import DeclarationError
from optfair.methods.fair_mixtures.expectation import (
    MemoryPasses,
    label_masses,
    label_sums,
    summary,
)
from optfair.methods.fair_mixtures.fitted_mixture import (
    Intake,
    Labels,
    MixturePrediction,
    check_whole_labels,
    fair_label_prices,
    keep_components,
    keep_numbers,
    priced_labels,
    taken_in,
    warn_unfinished,
)
from optfair.methods.fair_mixtures.mixture_fit import Batches, FitRows, fit_mixture
from optfair.methods.fair_mixtures.parameters import (
    check_settings,
    check_start,
    empty_of,
    first_components,
    penalty_of,
    program_of,
    rules_of,
    start_scale,
)
from optfair.methods.fair_mixtures.streamed_mixture import StreamedMixture
from optfair.numbers import Floats
from optfair.rows.frames import start_seeds
from optfair.rows.survey import kept_rows

# Learning a fair mixture from batches that come one after the other.


class OnlineMixture:
    """The method of `FairMixture` that learns from one batch at a time."""

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Any:
        """Learn from one batch; rules and Δ are measured on the first ``delta_rows`` rows seen.

        Parameters are those of `fit`. The first batch fixes columns, categories, groups and
        their shares, so it must have every group; after `fit`, the next batch is a first one.
        What describes the rows (labels, Δ, cost) is that of the batch, where a constraint holds
        as far as the measured rows stand for it.

        Returns
        -------
        FairMixture
            Itself.

        Raises
        ------
        DeclarationError
            label_rule "fair", whose assignment couples all rows.
        DataError
            As `fit`; a group or columns that the first batch did not have.
        """
        model: Any = self
        check_settings(model)
        if model.label_rule != "argmax":
            raise DeclarationError(
                f"partial_fit does not take label_rule={model.label_rule!r}",
                "labels that obey the rules themselves need all rows at once",
                'use label_rule="argmax", or fit',
            )
        if model.keep != "last":
            raise DeclarationError(
                f"partial_fit does not take keep={model.keep!r}",
                "the labels of an iterate are those of all rows, and a batch has a few",
                'use keep="last", or fit',
            )
        online = getattr(model, "_online", None)
        data = taken_in(model, X, groups, sample_weight, fitted=online)
        kept, state, program = _first(model, data) if online is None else online
        kept = kept.with_rows(data, model.delta_rows)
        penalty = penalty_of(model, data.sample.shares.size)
        state = state.step(data.sample, kept.sample, program, penalty)
        _keep(model, state, kept, data)
        model._online = (kept, state, program)
        return model


def _first(model: Any, data: Intake) -> tuple[Intake, Batches, Any]:
    s = data.sample
    init = check_start(model.init, model.n_components, s.rows.numeric.shape[1])
    seed = start_seeds(model.random_state, 1, given=True)[0]
    empty = empty_of(model, s, data.columns)
    first = first_components(
        s, empty, init, scale=start_scale(model), seed=seed, soft=model.start == "soft"
    )
    zero = np.zeros((s.shares.size, model.n_components))
    return data, Batches(first, zero), program_of(model, data)


def _keep(model: Any, state: Batches, kept: Intake, data: Intake) -> None:
    s = data.sample
    keep_components(model, state.components, kept)
    model.prices_ = model.label_prices_ = state.prices
    model.reseeded_, model.n_iter_ = state.reseeded, state.steps
    model.kept_iter_ = state.steps
    model.status_, model.converged_ = "partial", False
    model.objective_, model.gap_ = state.objective, float("nan")
    model.labels_ = priced_labels(state.components, s, state.prices)
    numbers = summary(state.components, s.rows, s.index, s.weights, state.prices)
    keep_numbers(model, numbers, s.shares, numbers.fair_labels, numbers.cost, numbers.apart)


# Fair mixture models with scikit-learn's conventions.


class FairMixture(
    StreamedMixture,
    OnlineMixture,
    MixturePrediction,
    ClusterMixin,  # type: ignore[misc]
    DensityMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    r"""A mixture of Gaussians, multinoullis or both, whose clusters are fair to groups.

    .. math::
        \text{constraint:}\quad \max_\Theta\; \ell(\Theta)
            - \min_{R \in C} \mathrm{KL}(R \,\|\, \psi(\Theta)), \qquad
        \text{penalty:}\quad \max_\Theta\; \ell(\Theta) - \lambda\,\Delta(\Theta)

    with the mean log-likelihood ℓ, responsibilities ψ, the polytope C of responsibilities whose
    group masses obey the rules, and Δ the largest difference of groups' mean responsibilities.

    Class: for fixed components the fair E-step is convex and certified; estimation is not
    convex, whatever the fairness: EM is a local method, so give several starts.

    **What is guaranteed.** "constraint": the projected responsibilities R of the rows of the fit
    obey the rules, to 1e-8; not the plain ones ψ and not the labels argmax R. Unseen rows of a
    known group get R by the same formula. "penalty": nothing exactly; a large enough λ makes
    Δ(ψ) practically zero, and unseen rows need no group. All of these are reported.

    Parameters
    ----------
    n_components : int
        Number of components K.
    covariance_type : {"shared", "spherical", "diag", "tied", "full"}
        Covariances of the numeric columns: one variance for all (the paper), one per component,
        diagonal, one matrix, one matrix per component.
    fairness : {"constraint", "penalty"} or None
        Convex fair E-step, penalty, or a plain mixture.
    eps : float or None
        Constraint: largest difference of two groups' fractions in any component; 0 is perfect
        fairness. None leaves ``rules`` alone.
    rules : Rule, list of rules, dict of rules by name, or None
        Constraint: further rules on the group masses, e.g. ``cluster_share(lower=0.05)``.
    lam : float
        Penalty λ >= 0, in units of the mean log-likelihood.
    algorithm : {"em", "gradient"}
        Penalty: generalised EM (FMC-EM) or gradient ascent (FMC-GD). Neither lowers ℓ - λΔ.
    inner_steps : int
        Penalty: ascent steps per EM iteration.
    size_penalty : float
        Penalty: ρ >= 0; :math:`\rho \max_{gk} 1 / (K F_{gk})` is taken from the objective too,
        with the fraction :math:`F_{gk}` of group g in component k. It keeps components from
        losing a group, as the paper's code does.
    keep : {"last", "best balance"}
        Penalty: the last iterate, or the one whose labels argmax ψ have the best balance (among
        those with the fewest empty clusters), as the paper's code does.
    label_rule : {"argmax", "fair", "hard"}
        Labels by the largest responsibility, or labels that obey the rules themselves, but for a
        few rows: the fair E-step at temperature zero. "hard": whole rows that obey, with a gap;
        see `optfair.fair_clustering.hard_labels`. Without a constraint, "fair" and "hard" mean
        perfect fairness.
    categorical : "auto", or list of names or positions
        Categorical columns; "auto" takes the columns of a data frame that are not numbers.
        A missing category, or one that the fit did not see, says nothing about its row.
    init : {"k-means", "k-means++", "random"}, array (K, d) or Components
        Start.
    start : {"estimated", "soft"}
        What is not means at the start: estimated from the clusters of ``init``; or unit
        variances and probabilities of categories at random, as the paper starts.
    n_init : int or "auto"
        Starts; the best objective is kept. "auto" is 1.
    max_iter, tol : int, float
        A start ends after so many iterations, or when the objective gains less than this share.
    reg_covar : float
        Least variance in any direction. Estimates respect it exactly, so objectives stay
        monotone.
    min_probability : float
        Least probability of a category.
    batch_size : int, float or None
        Rows (or share of them) per iteration; None uses all.
    delta_rows : int, float or None
        Rows that rules and Δ are measured on with batches; as many as in a batch by default.
    learn_rows : int, float or None
        Learn from a random sub-sample and assign all rows; prices are those of all rows.
    random_state : int, Generator, RandomState or None
        Seeds starts, batches and `sample`.
    n_jobs, time_limit, verbose
        As in `FairKMeans`.

    Attributes
    ----------
    weights_ : array (K,)
    means_ : array (K, d)
        Of the numeric columns.
    covariances_ : array
        Variances (), (K,), (K, d), or matrices (d, d), (K, d, d), by ``covariance_type``.
    probabilities_ : tuple of arrays (K, categories)
        Of each categorical column, in the order of ``categories_``.
    categories_ : tuple of arrays
    components_ : Components
        All of these, with their floors.
    labels_ : array (n,)
        By ``label_rule``.
    hard_labels_ : HardLabels or None
        What is proved of the labels with label_rule="hard".
    prices_ : array (G, K)
        Λ: :math:`R_{ik} \propto \pi_k f_k(x_i) e^{-\Lambda_{g_i k}}`; zero without a constraint.
    masses_ : array (G, K)
        Weight share of each group in each component, of the responsibilities that count: R for
        "constraint", else ψ. Total 1.
    groups_, shares_ : arrays (G,)
        Sorted group labels and weight shares; left out when the fit had no groups.
    delta_, delta_plain_, delta_labels_ : float
        Δ of the responsibilities that count, of ψ, and of ``labels_``.
    balance_, cost_ : float
        Balance of ``labels_``; mean squared distance of the numeric columns to ``means_``.
    label_cost_ : float
        Mean squared distance of the numeric columns to the means of the rows with each label:
        the cost that the paper prints. It is at most ``cost_``.
    log_likelihood_, objective_ : float
        Mean log-likelihood; what the fit maximised.
    gap_ : float
        Duality gap of the last fair E-step.
    history_ : array
        Objective of each iteration of the best start; it never falls (but with batches).
    kept_iter_ : int
        Iterations that made the components; fewer than ``n_iter_`` only by ``keep``.
    n_iter_, converged_, status_
        Iterations, whether the best start converged, and why it ended: converged, max_iter,
        time_limit, interrupted, or inexact where the last E-step missed the rules by over 1e-8.
    reseeded_ : tuple of (int, int)
        Iteration and component wherever a dead component was started again.
    restarts_ : tuple of Restart

    Raises
    ------
    DataError
        Constant columns, missing groups, fewer distinct rows than components, a singular
        covariance where ``reg_covar`` is 0.
    DeclarationError
        Parameters out of range.
    Infeasible
        Rules that exclude each other.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_mixtures.fair_mixture import FairMixture
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> model = FairMixture(4, random_state=0).fit(X, groups=sex)
    >>> model.delta_ <= 1e-8, model.delta_ < model.delta_plain_
    (True, True)
    >>> model.predict_proba(X[:2], groups=sex[:2]).shape
    (2, 4)

    References
    ----------
    Park, Kim, Lee, Kim: Fair Model-based Clustering, AAAI 2026 (penalty: eq. 6, 10, 11, 14).
    Ganchev et al.: Posterior Regularization, JMLR 2010 (constraint).
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        covariance_type: str = "shared",
        fairness: str | None = "constraint",
        eps: float | None = 0.0,
        rules: Any = None,
        lam: float = 10.0,
        algorithm: str = "em",
        inner_steps: int = 1,
        size_penalty: float = 0.0,
        keep: str = "last",
        label_rule: str = "argmax",
        categorical: Any = "auto",
        init: Any = "k-means",
        start: str = "estimated",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-6,
        reg_covar: float = 1e-6,
        min_probability: float = 1e-6,
        batch_size: Any = None,
        delta_rows: Any = None,
        learn_rows: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        time_limit: float | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.fairness = fairness
        self.eps = eps
        self.rules = rules
        self.lam = lam
        self.algorithm = algorithm
        self.inner_steps = inner_steps
        self.size_penalty = size_penalty
        self.keep = keep
        self.label_rule = label_rule
        self.categorical = categorical
        self.init = init
        self.start = start
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.min_probability = min_probability
        self.batch_size = batch_size
        self.delta_rows = delta_rows
        self.learn_rows = learn_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.time_limit = time_limit
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> FairMixture:
        """Estimate the mixture.

        Of more than 200,000 rows, starts run on a sample of 50,000, as in `fit_stream`, and the
        best goes on with all rows.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Rows.
        y : ignored
            For pipelines.
        groups : array-like (n,) or str
            Group label of each row, or the name of a column of X; needed unless ``fairness`` is
            None.
        sample_weight : array-like (n,), optional
            Weights; equal by default.

        Returns
        -------
        FairMixture
            Itself.
        """
        return self._fitted(X, groups, sample_weight, self.init, None)

    def _fitted(
        self, X: Any, groups: Any, sample_weight: Any, init: Any, prices: Floats | None
    ) -> FairMixture:
        """Fit from a start, which paths replace by the components and prices before."""
        begin = time.perf_counter()
        check_settings(self)
        data = taken_in(self, X, groups, sample_weight)
        s, first = data.sample, data
        if self.label_rule == "hard" and data.grouped:
            check_whole_labels(data, rules_of(self), self.n_components)
        some = kept_rows(s.index, s.weights)
        if some is not None:  # as many rows as of a source start the fit
            first = replace(data, sample=s.some(some))
        rows = FitRows(first, lambda: MemoryPasses(s), s.count)
        numbers = fit_mixture(self, rows, init, prices, begin=begin)
        self.hard_labels_ = None
        if self.label_rule != "argmax" and data.grouped:
            joint, whole = s.log_joint(self.components_), self.label_rule == "hard"
            self.label_prices_, self.labels_, self.hard_labels_ = fair_label_prices(
                joint, data, rules_of(self), whole=whole
            )
            G, K = numbers.fair.shape
            masses = label_masses(self.labels_, s.index, s.weights, G, K)
            apart = s.rows.numeric - self.means_[self.labels_]
            cost = float(s.weights @ np.einsum("ij,ij->i", apart, apart))
            sums = label_sums(apart, self.labels_, s.weights, K)
            keep_numbers(self, numbers, s.shares, masses, cost, sums)
        else:
            self.labels_ = priced_labels(self.components_, s, self.prices_)
        self._online: Any = None
        warn_unfinished(self, stacklevel=4)
        return self

    def fit_predict(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Labels:
        """Estimate the mixture and return the labels; see `fit`."""
        return np.asarray(self.fit(X, y, groups=groups, sample_weight=sample_weight).labels_)
