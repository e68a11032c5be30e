"""The edits of a group within a budget, and the fewest edits with a required effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from optfair.core.composition import model_goal, model_term
from optfair.core.parameters import Datum
from optfair.core.problem import Declaration
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, DeclarationError, nearest
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem, row_choices
from optfair.methods.sparse_counterfactuals.choices import Choices, enumerated_choices
from optfair.methods.sparse_counterfactuals.tables import Cells
from optfair.numbers import Floats, check_flag, check_names, check_number, checked, real

# The edits that bring the mean score of a group nearest to its target, within a budget.


class ActionPlan(ChoiceProblem):
    r"""Edit at most C cells so that the mean score comes nearest to its target.

    .. math::
        \min_{a, \eta}\; \eta \quad\text{s.t.}\quad
        -\eta \le \sum_{i,S} g_{iS} a_{iS} \le \eta,\;
        \sum_S a_{iS} = 1,\; \sum_{i,S} c(S)\, a_{iS} \le C,\; a_{iS} \in \{0, 1\}

    with :math:`g_{iS} = f(z_{iS}) - \overline{y^*}`, where z_iS is row i with the features in
    S changed to their assigned values. The optimum is n times the least mean difference
    ``|mean f(z) − mean y*|`` that so many edits can reach: what any way to pick edits is judged by.

    Class: MILP. The route of the structure ``row-choices`` proves it by a dynamic program over
    the budget; rules on single rows keep the structure.

    Parameters
    ----------
    effects : array-like (n, P), n sequences of numbers, or Choices
        g_iS for each set of edits of each row, in units of the score.
    edits : array-like (P, d), or n of them
        The sets S as truth values, shared by all rows or one table per row.
    budget : float
        C, in units of the costs: a number of edits by default.
    costs : array-like (d,), optional
        Cost of an edit by feature; 1 by default.
    features : sequence of str, optional
        Names of the features.
    cells : Cells, optional
        The rows, for `refined`; `from_model` fills it in.

    Attributes
    ----------
    variables : ``choice`` (N,) integer, ``deviation`` scalar
        Choices of all rows, one below the other; η = n times the mean difference.

    Raises
    ------
    DataError
        Tables that do not fit, entries that are not finite, a budget below 0 or above the
        cost of all edits.

    Examples
    --------
    Two rows of two features: the second row needs both edits, the first one.

    >>> import optfair as of
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = ActionPlan(effects, edits, budget=3)
    >>> p.problem_class
    MILP
    >>> s = p.solve()
    >>> round(s.objective, 9), s.solver, p.edits(s).astype(int).tolist()
    (0.1, 'action-dp', [[1, 0], [1, 1]])

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Appendix G, eq. (14).
    """

    structures = row_choices("deviation", "above", "below")

    @checked(budget=check_number, features=check_names)
    def __init__(
        self,
        effects: Any,
        edits: Any = None,
        *,
        budget: float,
        costs: Any = None,
        features: Any = None,
        cells: Cells | None = None,
    ) -> None:
        data = self.choice_data(effects, edits, costs, features, cells)
        super().__init__({**data, "budget": _checked_budget(budget, data["choices"])})

    movable = MappingProxyType({"budget": "sides"})

    def with_data(self, **changed: Any) -> ActionPlan:
        """Return this problem with another budget."""
        return self.with_budget(changed["budget"])

    budget = Datum[float]("C.")

    @checked(budget=check_number)
    def with_budget(self, budget: float) -> ActionPlan:
        """Return this problem with another budget; added rules stay.

        Parameters
        ----------
        budget : float
            C, in units of the costs.
        """
        changed = {**self.data, "budget": _checked_budget(budget, self.choices)}
        terms = {**self.constraints}
        if "budget" in terms:
            terms["budget"] = self._budget_term(changed["budget"], self["choice"])
        child: ActionPlan = self._child(
            data=MappingProxyType(changed), constraints=MappingProxyType(terms)
        )
        return child

    def declare(self) -> Declaration:
        """Declare choices and deviation; nothing of the number of choices is built."""
        a = cp.Variable(self.choices.size, name="choice")
        eta, total = cp.Variable(name="deviation"), self.choices.effects @ a
        return Declaration(
            variables={"choice": a, "deviation": eta},
            objective=(model_goal("deviation", eta, r"\eta"),),
            constraints=(
                *self.choice_terms(a),
                model_term("above", total <= eta, r"\textstyle\sum_{i,S} g_{iS} a_{iS} \le \eta"),
                model_term("below", -total <= eta, r"-\textstyle\sum_{i,S} g_{iS} a_{iS} \le \eta"),
                self._budget_term(self.data["budget"], a),
            ),
            integers=frozenset({"choice"}),
        )

    def _budget_term(self, budget: float, a: Any) -> ConstraintTerm:
        latex = r"\textstyle\sum_{i,S} c(S)\, a_{iS} \le C"
        return model_term("budget", self.choices.costs @ a <= budget, latex)


def _checked_budget(budget: Any, choices: Any) -> float:
    C = real(budget)
    largest = choices.rows * float(choices.cell_costs.sum())
    if not 0.0 <= C <= largest * (1.0 + 1e-12):
        raise DataError(
            f"budget is {budget!r}",
            f"{choices.rows} rows of {choices.features} features cost at most {largest:g}",
            f"give a number from 0 to {largest:g}",
        )
    return C


# The fewest edits that reach a required counterfactual effect.

# Sums of scores nearer than this, relative to their size, cannot be told apart.
ROUNDING = 1e-12


class MinimumEdits(ChoiceProblem):
    r"""Reach a required effect with the fewest edits, or the cheapest.

    .. math::
        \min_a\; \sum_{i,S} c(S)\, a_{iS} \quad\text{s.t.}\quad
        \sigma \sum_{i,S} g_{iS} a_{iS} \ge -(1 - \varepsilon) G,\;
        \sum_S a_{iS} = 1,\; a_{iS} \in \{0, 1\}

    with :math:`g_{iS} = f(z_{iS}) - \overline{y^*}`. Without edits the scores miss the target
    by :math:`G = |\sum_i g_{i\emptyset}|`, from the side -σ. The effect ε is the share of that
    distance to remove: the counterfactual effect 1 − D(f(z), y*) / D(f(x), y*) with D the mean
    difference. By default scores that pass the target have reached it; ``overshoot=False``
    also asks :math:`\sigma \sum g_{iS} a_{iS} \le (1 - \varepsilon) G`.

    Class: MILP.

    Parameters
    ----------
    effects, edits, costs, features, cells
        As of `ActionPlan`; every row has the empty set among its edits.
    effect : float
        ε in (0, 1].
    overshoot : bool
        Whether scores may pass the target by more than they may miss it.

    Attributes
    ----------
    variables : ``choice`` (N,) integer
        Choices of all rows, one below the other.

    Raises
    ------
    DataError
        Tables that do not fit, a row that must be edited, scores that are at the target
        already, an effect that no edits reach.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import MinimumEdits
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = MinimumEdits(effects, edits, effect=0.5)
    >>> s = p.solve()
    >>> s.objective, p.edits(s).astype(int).tolist(), round(p.counterfactual_effect(s), 3)
    (2.0, [[1, 0], [0, 1]], 0.545)

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Section 6 (counterfactual effect, Table 3) and Appendix G.
    """

    structures = row_choices("cost", "effect")

    @checked(effect=check_number, overshoot=check_flag, features=check_names)
    def __init__(
        self,
        effects: Any,
        edits: Any = None,
        *,
        effect: float,
        overshoot: bool = True,
        costs: Any = None,
        features: Any = None,
        cells: Cells | None = None,
    ) -> None:
        data = self.choice_data(effects, edits, costs, features, cells)
        required = _checked_effect(effect, data["choices"])
        super().__init__({**data, "effect": required, "overshoot": bool(overshoot)})

    @property
    def direction(self) -> float:
        """σ: +1 where the scores have to rise."""
        return -float(np.sign(self.choices.unedited))

    @property
    def missing(self) -> float:
        """(1 − ε) G: how far the sum of scores may stay from the target."""
        return (1.0 - float(self.data["effect"])) * abs(self.choices.unedited)

    @property
    def unit(self) -> float:
        """Power of two that small effects are stated in: 1, or about G where that is small."""
        return float(np.exp2(min(0.0, np.round(np.log2(abs(self.choices.unedited)) + 10.0))))

    def declare(self) -> Declaration:
        """Declare the choices; nothing of their number is built."""
        choices, left = self.choices, self.missing / self.unit
        a = cp.Variable(choices.size, name="choice")
        total = (self.direction / self.unit * choices.effects) @ a
        latex = r"\sigma\textstyle\sum_{i,S} g_{iS} a_{iS}"
        terms = [
            *self.choice_terms(a),
            model_term("effect", -total <= left, latex + r" \ge -(1-\varepsilon)G"),
        ]
        if not self.data["overshoot"]:
            above = model_term("overshoot", total <= left, latex + r" \le (1-\varepsilon)G")
            terms.append(above)
        cost = model_goal("cost", choices.costs @ a, r"\textstyle\sum_{i,S} c(S)\, a_{iS}")
        return Declaration({"choice": a}, "minimize", (cost,), tuple(terms), frozenset({"choice"}))


def _checked_effect(effect: Any, choices: Choices) -> float:
    required = check_number(effect, "effect", positive=True, most=1.0)
    before = choices.unedited
    if np.isnan(before):
        raise DataError(
            "some row has no choice without edits",
            "the effect is measured from the rows as they are",
            "include the empty set of edits in every row",
        )
    size = float(np.abs(choices.effects[~choices.edits.any(axis=1)]).sum())
    if abs(before) <= ROUNDING * size:
        raise DataError(
            "the scores are at the target without edits",
            "an effect is a share of the distance to the target, which is 0",
            "nothing has to be edited",
        )
    best = np.maximum.reduceat(-np.sign(before) * choices.effects, choices.starts[:-1]).sum()
    reach = 1.0 + min(float(best), 0.0) / abs(before)
    if reach < required - 1e-9:
        raise DataError(
            f"no edits reach an effect of {required:g}",
            f"the best choice in every row reaches {reach:.4g}",
            "ask for less, or give counterfactuals that reach their target",
        )
    return required


# Choices of edits from a [data] table: rows of a data set, scored by a table of points.

_KEYS = ("dataset", "rows", "seed", "intercept", "points", "accepted")


class Scorecard:
    r"""A logistic score from points: what lenders call a scorecard.

    .. math:: f(x) = \frac{1}{1 + e^{-(b + \sum_j p_j(x_j))}}

    Parameters
    ----------
    columns : mapping
        Feature -> its values in the data set, from which numbers are standardised.
    points : mapping
        Feature -> points per standard deviation, or a table of points by category.
    intercept : float
        b.
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], points: Mapping[str, Any], intercept: float
    ) -> None:
        self.features = tuple(points)
        self._points = [points[name] for name in self.features]
        self._scales = [
            None if isinstance(p, Mapping) else _scale(columns[name], name)
            for name, p in points.items()
        ]
        self._intercept = float(intercept)

    def coordinates(self, rows: NDArray[Any]) -> Floats:
        """Return the points of every cell (m, d)."""
        scaled = np.empty(rows.shape)
        for j, (p, scale) in enumerate(zip(self._points, self._scales, strict=True)):
            if scale is None:
                scaled[:, j] = _looked_up(rows[:, j], p, self.features[j])
            else:
                scaled[:, j] = float(p) * (rows[:, j].astype(np.float64) - scale[0]) / scale[1]
        return scaled

    def __call__(self, rows: NDArray[Any]) -> Floats:
        """Return the score of rows (m,)."""
        s = self._intercept + self.coordinates(rows).sum(axis=1)
        return np.asarray(expit(s))


def action_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ActionPlan` and `MinimumEdits`.

    With ``dataset``, the factuals are rows that a scorecard rejects, a sample of them; the value
    of every cell is that of the nearest row it accepts, near in points. ``target`` is the mean
    score of those counterfactuals unless it is given. Other entries are arguments as they stand.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    from optfair import datasets  # data are asked for by name, and only then

    asked = {key: arguments.pop(key) for key in _KEYS if key in arguments}
    missing = [key for key in _KEYS if key not in asked]
    if missing:
        raise DeclarationError(
            f"[data] names a dataset but no {missing[0]}", remedy=f"add {', '.join(missing)}"
        )
    table = datasets.load(asked["dataset"])
    columns = {name: table[name] for name in asked["points"]}
    score = Scorecard(columns, asked["points"], asked["intercept"])
    rows = np.column_stack([column.astype(object) for column in columns.values()])
    known = score(rows)
    rejected, accepted = np.flatnonzero(known < 0.5), np.flatnonzero(known >= asked["accepted"])
    count = int(asked["rows"])
    if not 0 < count <= rejected.size or not accepted.size:
        raise DataError(
            f"{count} rejected rows are asked for",
            f"the scorecard rejects {rejected.size} rows and accepts {accepted.size}"
            f" at {asked['accepted']:g}",
            "ask for fewer rows, or change the points",
        )
    rng = np.random.default_rng(asked["seed"])
    chosen = np.sort(rng.choice(rejected, count, replace=False))
    at, there = score.coordinates(rows[chosen]), score.coordinates(rows[accepted])
    apart = np.abs(at[:, None, :] - there[None, :, :]).sum(axis=2)
    values = rows[accepted[apart.argmin(axis=1)]]
    cells = Cells.of(rows[chosen], values)
    target = float(arguments.pop("target", score(values).mean()))
    choices = enumerated_choices(score, cells, target, costs=arguments.pop("costs", None))
    features = arguments.pop("features", score.features)
    return arguments | {"effects": choices, "cells": cells, "features": features}


def _scale(column: NDArray[Any], name: str) -> tuple[float, float]:
    try:
        numbers = column.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name!r} is not a number in every row",
            remedy="give points by category: NAME = { category = points }",
        ) from None
    return float(numbers.mean()), float(numbers.std()) or 1.0


def _looked_up(column: NDArray[Any], points: Mapping[str, Any], name: str) -> Floats:
    labels, where = np.unique(column.astype(str), return_inverse=True)
    for label in map(str, labels):
        if label not in points:
            raise DeclarationError(
                f"no points for {label!r} of {name!r}", remedy=nearest(label, points)
            )
    return np.array([float(points[label]) for label in labels])[where]
