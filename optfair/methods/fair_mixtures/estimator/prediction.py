"""What a fitted mixture says about rows, seen or not."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.fitted import group_index
from optfair.methods.fair_mixtures.estimator.sample import log_sums
from optfair.rows.columns import Columns, without_groups
from optfair.rows.parameters import start_seeds

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

__all__ = ["MixturePrediction"]


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
        asked: Any = n_samples
        if not isinstance(asked, numbers.Integral) or asked < 1:
            raise DeclarationError(
                f"n_samples={n_samples!r} is not a positive integer", remedy="give a number of rows"
            )
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
