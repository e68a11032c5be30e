"""Fair mixture models with scikit-learn's conventions, and paths of them over the penalty or the allowed gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin, clone

from optfair.errors import DeclarationError, Tabled, data_frame
from optfair.methods.fair_mixtures.expectation import MemoryPasses
from optfair.methods.fair_mixtures.fitted_mixture import (
    Labels,
    MixturePrediction,
    check_whole_labels,
    keep_fair_labels,
    priced_labels,
    taken_in,
    warn_unfinished,
)
from optfair.methods.fair_mixtures.mixture_fit import FitRows, fit_mixture
from optfair.methods.fair_mixtures.parameters import check_settings, rules_of
from optfair.methods.fair_mixtures.streamed_mixture import OnlineMixture, StreamedMixture
from optfair.numbers import Floats, checked, floats
from optfair.rows.restarts import Ladder, same_starts
from optfair.rows.survey import kept_rows

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
        A start ends after so many iterations, or when the objective, a log-likelihood per row,
        gains less than this for each column: units of the rows do not matter.
    reg_covar : float or "auto"
        Least variance in any direction. Estimates respect it exactly, so objectives stay
        monotone. "auto" is 1e-6 of the least variance of a column that is not constant.
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
        covariance where ``reg_covar`` is 0, a group below 1e-7 of all weight that rules compare.
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
        reg_covar: float | Literal["auto"] = "auto",
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
            self.labels_ = keep_fair_labels(self, data, rules_of(self), numbers)
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


NUMBERS = ("objective", "log_likelihood", "delta", "delta_plain", "delta_labels", "balance", "cost")


@dataclass(frozen=True, eq=False, repr=False)
class MixturePath(Tabled):
    """The best mixtures found along a path, from tight to loose.

    Attributes
    ----------
    label : str
        What the path is called.
    parameter : str
        "lam", falling, or "eps", rising.
    values : array (m,)
        One per mixture.
    objective, log_likelihood : array (m,)
        What each fit maximised, which never falls along the path, and the mean log-likelihood.
    delta, delta_plain, delta_labels : array (m,)
        Δ of the responsibilities that count, of the plain ones, and of the labels.
    balance, cost : array (m,)
        Balance of the labels; mean squared distance of the numeric columns.
    labels : array (m, n) of int
        Labels.
    models : tuple of FairMixture
        The fitted mixtures.
    complete : bool
        False after Ctrl-C: of the values that were fitted.
    """

    label: str
    parameter: str
    values: Floats
    objective: Floats
    log_likelihood: Floats
    delta: Floats
    delta_plain: Floats
    delta_labels: Floats
    balance: Floats
    cost: Floats
    labels: NDArray[np.intp]
    models: tuple[FairMixture, ...]
    complete: bool = True

    def __len__(self) -> int:
        return int(self.values.size)

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, one row per mixture.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return data_frame({self.parameter: self.values, **numbers})

    def __repr__(self) -> str:
        cut = "" if self.complete else ", interrupted"
        head = (self.parameter, "objective", "delta", "of psi", "of labels", "balance", "cost")
        lines = [
            f"MixturePath {self.label!r}: {len(self)} mixtures{cut}; best found, local optima",
            f"  {head[0]:<8}" + "".join(f"{name:>12}" for name in head[1:]),
        ]
        for i, value in enumerate(self.values):
            row = (
                self.objective[i],
                self.delta[i],
                self.delta_plain[i],
                self.delta_labels[i],
                self.balance[i],
                self.cost[i],
            )
            lines.append(f"  {value:<8.4g}" + "".join(f"{v:>12.4g}" for v in row))
        return "\n".join(lines)


@checked(lams=floats)
def lambda_path(
    model: FairMixture, X: Any, *, groups: Any, lams: Sequence[float], sample_weight: Any = None
) -> MixturePath:
    r"""Fit a penalised mixture for each λ, and return likelihood, Δ, balance and cost of each.

    .. math:: \lambda \mapsto \max_\Theta\; \ell(\Theta) - \lambda\,\Delta(\Theta)

    Each is the best of the model's own starts and of where its neighbours ended, so the
    objective never falls from large λ to small. Every fit is a local optimum: Δ need not be
    monotone.

    Parameters
    ----------
    model : FairMixture
        Its parameters but ``fairness`` and ``lam``; it is cloned, not fitted.
    X : array-like or DataFrame (n, d)
        Rows.
    groups : array-like (n,) or str
        As in `FairMixture.fit`.
    lams : sequence of float
        Values λ >= 0, in any order.
    sample_weight : array-like (n,), optional
        Weights.

    Returns
    -------
    MixturePath
        From large λ to small.

    Raises
    ------
    DeclarationError
        No values, a negative one, or one twice.
    DataError
        As `FairMixture.fit`.

    Examples
    --------
    >>> import optfair as of
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> path = lambda_path(FairMixture(3, random_state=0), X, groups=sex, lams=[0.0, 20.0])
    >>> path.values.tolist(), bool(path.delta[0] < path.delta[1])
    ([20.0, 0.0], True)
    """
    values = _sorted(lams, "lams")[::-1]
    settings = [{"fairness": "penalty", "lam": v} for v in values]
    return _path("penalty", "lam", values, settings, model, (X, groups, sample_weight))


@checked(eps=floats)
def eps_path(
    model: FairMixture, X: Any, *, groups: Any, eps: Sequence[float], sample_weight: Any = None
) -> MixturePath:
    r"""Fit a constrained mixture for each ε, and return likelihood, Δ, balance and cost of each.

    .. math::
        \varepsilon \mapsto \max_\Theta\; \ell(\Theta)
            - \min_{R : \Delta(R) \le \varepsilon} \mathrm{KL}(R \,\|\, \psi(\Theta))

    What obeys a small ε obeys a larger one, so with starts at the neighbours' ends the
    objective never falls from small ε to large.

    Parameters
    ----------
    model : FairMixture
        Its parameters but ``fairness`` and ``eps``; further ``rules`` are kept. It is cloned,
        not fitted.
    X, groups, sample_weight
        As of `lambda_path`.
    eps : sequence of float
        Largest differences of two groups' fractions, in any order.

    Returns
    -------
    MixturePath
        From small ε to large.

    Raises
    ------
    DeclarationError
        No values, one outside [0, 2], or one twice.
    DataError
        As `FairMixture.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> import optfair as of
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + 3.0 * (np.arange(60) % 3 > 1)[:, None]
    >>> groups = np.where(np.arange(60) % 4 > 1, "a", "b")
    >>> path = eps_path(of.FairMixture(2, n_init=1, random_state=0), X, groups=groups, eps=[0.1, 1.0])
    >>> path.values.tolist(), bool((path.delta <= path.values).all())
    ([0.1, 1.0], True)
    """
    values = _sorted(eps, "eps")
    settings = [{"fairness": "constraint", "eps": v} for v in values]
    return _path("constraint", "eps", values, settings, model, (X, groups, sample_weight))


def _path(
    label: str,
    parameter: str,
    values: list[float],
    settings: list[dict[str, Any]],
    model: FairMixture,
    data: tuple[Any, Any, Any],
) -> MixturePath:
    same_starts(model)

    def fit(i: int, start: FairMixture | None) -> FairMixture:
        fitted: FairMixture = clone(model).set_params(**settings[i])
        fitted.set_params(verbose=max(0, int(model.verbose) - 1))
        if start is None:
            fitted._fitted(*data, fitted.init, None)
        else:
            fitted.set_params(n_init=1)._fitted(*data, start.components_, start.prices_)
        return fitted

    steps = Ladder(values, fit, lambda fitted: -float(fitted.objective_))
    steps.run(model.verbose, parameter)

    def each(name: str) -> Any:
        return np.array([getattr(fitted, f"{name}_") for fitted in steps.fits])

    return MixturePath(
        label=label,
        parameter=parameter,
        values=np.array(values[: len(steps.fits)]),
        **{name: each(name) for name in NUMBERS},
        labels=each("labels"),
        models=tuple(steps.fits),
        complete=steps.complete,
    )


def _sorted(values: Any, name: str) -> list[float]:
    """Return the values in rising order."""
    try:
        numbers = sorted(float(v) for v in values)
    except (TypeError, ValueError):
        numbers = []
    if not numbers or not np.isfinite(numbers).all():
        raise DeclarationError(
            f"{name} is no sequence of numbers", f"it is {values!r}", "give e.g. [0.0, 0.05, 0.1]"
        )
    if len(set(numbers)) < len(numbers):
        raise DeclarationError(f"{name} has a value twice", f"{numbers}", "leave one out")
    return numbers
