"""Paths of fair mixtures over the penalty or the allowed gap, each started from its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from optfair.errors import DeclarationError, needed
from optfair.methods.fair_mixtures.fair_mixture import FairMixture
from optfair.numbers import Floats, checked, floats
from optfair.rows.restarts import Ladder, same_starts

NUMBERS = (
    "objective",
    "log_likelihood",
    "delta",
    "delta_plain",
    "delta_labels",
    "balance",
    "cost",
)


@dataclass(frozen=True, eq=False, repr=False)
class MixturePath:
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
        pd = needed("pandas", "pip install pandas, or use the arrays")
        return pd.DataFrame(
            {self.parameter: self.values, **{name: getattr(self, name) for name in NUMBERS}}
        )

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
    model: FairMixture,
    X: Any,
    *,
    groups: Any,
    lams: Sequence[float],
    sample_weight: Any = None,
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
    model: FairMixture,
    X: Any,
    *,
    groups: Any,
    eps: Sequence[float],
    sample_weight: Any = None,
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
