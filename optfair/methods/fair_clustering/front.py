"""The front of cost against fairness: one clustering per rule, each started from its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from optfair.core.composition import Rule
from optfair.errors import DeclarationError, Tabled, data_frame
from optfair.methods.fair_clustering.fair_kmeans import FairKMeans
from optfair.methods.fair_clustering.rules import AdditiveGap, Balance, MaxGap, PerfectFairness
from optfair.numbers import Floats, real
from optfair.rows.restarts import Ladder, same_starts

# (value, what fairness= takes), from tight to loose
Rules = list[tuple[float, Any]]

# Rules with one number: its name, and the sign that sorts from tight to loose.
SCALES: dict[type[Rule], tuple[str, float]] = {
    AdditiveGap: ("eps", 1.0),
    MaxGap: ("eps", 1.0),
    Balance: ("b", -1.0),
}
NAMES: dict[type[Rule], str] = {AdditiveGap: "additive gap", MaxGap: "max gap", Balance: "balance"}
# Weight share below which a cluster counts as empty: fractions there are a solver's rounding.
EMPTY = 1e-9
NUMBERS = ("objective", "cost", "balance", "soft_balance", "gap")


@dataclass(frozen=True, eq=False, repr=False)
class Front(Tabled):
    """The best clusterings found under a sequence of rules, from tight to loose.

    Attributes
    ----------
    label : str
        What the sweep is called.
    parameter : str
        What ``values`` are: "eps", "b", or "value".
    values : array (m,)
        One per rule.
    objective : array (m,)
        Cost of the soft assignment.
    cost, balance : array (m,)
        Cost and balance of the hard labels.
    soft_balance : array (m,)
        Balance of the soft assignment, which the rules bound.
    gap : array (m,)
        Certified relative gap of each assignment at its centers; not a gap of the front.
    best_balance : float
        Balance of the population: no clustering has more.
    labels : array (m, n) of int
        Hard labels.
    centers : array (m, K, d)
        Centers; ``FairKMeans(init=front.centers[i])`` starts from them.
    complete : bool
        Whether every rule was fitted; an interrupted sweep keeps those that were.
    """

    label: str
    parameter: str
    values: Floats
    objective: Floats
    cost: Floats
    balance: Floats
    soft_balance: Floats
    gap: Floats
    best_balance: float
    labels: NDArray[np.intp]
    centers: Floats
    complete: bool = True

    def __len__(self) -> int:
        return int(self.values.size)

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, one row per rule.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return data_frame({self.parameter: self.values, **numbers})

    def __repr__(self) -> str:
        cut = "" if self.complete else ", interrupted"
        head = (self.parameter, "objective", "cost", "balance", "soft balance", "gap")
        lines = [
            f"Front {self.label!r}: {len(self)} clusterings{cut}; best found, not proven optimal",
            f"  {head[0]:<8}" + "".join(f"{name:>14}" for name in head[1:]),
        ]
        for i, value in enumerate(self.values):
            row = (self.objective[i], self.cost[i], self.balance[i], self.soft_balance[i])
            lines.append(
                f"  {value:<8.4g}" + "".join(f"{v:>14.6g}" for v in row) + f"{self.gap[i]:>14.1e}"
            )
        return "\n".join(lines)


def fairness_front(
    model: FairKMeans,
    X: Any,
    *,
    groups: Any,
    rules: Mapping[float, Any] | Sequence[Rule],
    label: str = "",
    sample_weight: Any = None,
) -> Front:
    r"""Fit the model under each rule, and return cost and balance of each.

    .. math::
        \varepsilon \mapsto \min_{\mu, A} \{ f(A, \mu) : A \text{ obeys the rule of } \varepsilon \}

    A heuristic, as every fit is: the best found of the model's own starts and of the centers
    that the rules next to it ended with. What obeys a rule also obeys a looser one, so each
    fit starts from the centers of the tighter one before it too, and with ``algorithm="exact"``
    the objective never rises from tight to loose (from 200,000 rows on, where a fit starts on a
    sample of them, it may by a little).

    Parameters
    ----------
    model : FairKMeans
        Its parameters but ``fairness``; it is cloned, not fitted. ``verbose=1`` draws a bar.
    X : array-like or DataFrame (n, d)
        Rows.
    groups : array-like (n,) or str
        As in `FairKMeans.fit`.
    rules : sequence of rules, or mapping of float to rule
        Rules `additive_gap`, `max_gap` or `balance` of one kind (`perfect_fairness` is gap
        0), in any order; or anything ``fairness=`` takes, by value, from tight to loose.
    label : str
        What to call the sweep; by default the kind of rule.
    sample_weight : array-like (n,), optional
        Weights.

    Returns
    -------
    Front
        From tight to loose. After Ctrl-C, of the rules that were fitted.

    Raises
    ------
    DeclarationError
        Rules of different kinds, none, twice the same value, or that the groups cannot obey.
    DataError
        As `FairKMeans.fit`.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.front import fairness_front
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> model = of.FairKMeans(3, n_init=1, random_state=0)
    >>> front = fairness_front(
    ...     model, X[:200], groups=sex[:200], rules=[of.additive_gap(e) for e in (0.0, 0.2, 2.0)]
    ... )
    >>> front.values.tolist(), bool((front.objective[:-1] >= front.objective[1:]).all())
    ([0.0, 0.2, 2.0], True)
    """
    parameter, ladder, name = _sorted(rules)
    same_starts(model)

    def fit(i: int, start: FairKMeans | None) -> FairKMeans:
        given: dict[str, Any] = {"fairness": ladder[i][1]}
        given["verbose"] = max(0, int(model.verbose) - 1)
        if start is not None:
            given |= {"init": start.cluster_centers_, "n_init": 1}
        fitted: FairKMeans = clone(model).set_params(**given)
        return fitted.fit(X, groups=groups, sample_weight=sample_weight)

    # what the model ranks its own starts by
    by = "cost_" if model.algorithm == "paper" else "objective_"
    steps = Ladder(
        [value for value, _ in ladder], fit, lambda clustering: float(getattr(clustering, by))
    )
    steps.run(model.verbose, parameter)
    return _front(label or name, parameter, steps)


def _sorted(rules: Any) -> tuple[str, Rules, str]:
    """Return (parameter, (value, rule) from tight to loose, name of the kind of rule)."""
    if isinstance(rules, Mapping):
        pairs = [(_number(value), rule) for value, rule in rules.items()]
    elif isinstance(rules, Iterable) and not isinstance(rules, str):
        pairs = [(np.nan, rule) for rule in rules]
    else:
        pairs = []
    if not pairs:
        raise DeclarationError(
            "rules is empty or no sequence",
            f"it is {rules!r}",
            "give a list such as [optfair.additive_gap(e) for e in (0.0, 0.1, 0.2)]",
        )
    kinds = {type(rule) for _, rule in pairs}
    if kinds & {AdditiveGap, MaxGap}:
        kinds.discard(PerfectFairness)  # a gap of 0
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is PerfectFairness:
        kind = AdditiveGap
    if kind not in SCALES:
        if not isinstance(rules, Mapping):
            raise DeclarationError(
                "rules are not of one kind with one number",
                f"they are {', '.join(sorted({type(r).__name__ for _, r in pairs}))}",
                "give additive_gap, max_gap or balance rules, or a dict {value: rule}",
            )
        return "value", pairs, "sweep"
    parameter, sign = SCALES[kind]
    own = [float(getattr(rule, parameter, 0.0)) for _, rule in pairs]
    if len(set(own)) < len(own):
        raise DeclarationError(f"rules has the same {parameter} twice", f"{own}", "leave one out")
    order = np.argsort(sign * np.array(own))
    values = [v if np.isfinite(v) else o for (v, _), o in zip(pairs, own, strict=True)]
    named = parameter if values == own else "value"
    return named, [(values[i], pairs[i][1]) for i in order], NAMES[kind]


def _number(value: Any) -> float:
    if np.isfinite(number := real(value)):
        return number
    raise DeclarationError(
        f"rules has the key {value!r}", "values of a sweep are numbers", "give {number: rule}"
    )


def _front(label: str, parameter: str, steps: Ladder) -> Front:
    fits = steps.fits
    shares = fits[0].shares_

    def each(value: Callable[[FairKMeans], Any]) -> Any:
        return np.array([value(fit) for fit in fits])

    return Front(
        label=label,
        parameter=parameter,
        values=np.array(steps.values[: len(fits)]),
        objective=each(lambda f: f.objective_),
        cost=each(lambda f: f.cost_),
        balance=each(lambda f: f.balance_),
        soft_balance=each(lambda f: _soft_balance(f.masses_)),
        gap=each(lambda f: f.gap_),
        best_balance=float(shares.min() / shares.max()),
        labels=each(lambda f: f.labels_),
        centers=each(lambda f: f.cluster_centers_),
        complete=steps.complete,
    )


def _soft_balance(masses: NDArray[Any]) -> float:
    filled = masses[:, masses.sum(axis=0) > EMPTY]
    return float((filled.min(axis=0) / filled.max(axis=0)).min())
