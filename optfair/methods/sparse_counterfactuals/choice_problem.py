"""Problems that choose one set of edits for every row, and the rules on the edits of single rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

from optfair.compile.program import constraint_set, named_map
from optfair.core.composition import Rule, model_term
from optfair.core.parameters import Datum
from optfair.core.problem_class import LAZY_ROWS, LP, Structure
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.errors import DataError, DeclarationError, UnsupportedProblem
from optfair.features.feature_problem import FeatureProblem, checked_names
from optfair.methods.fair_clustering.margins import finite_vector
from optfair.methods.sparse_counterfactuals.choices import Choices, common_unit, model_choices
from optfair.methods.sparse_counterfactuals.tables import Cells
from optfair.numbers import Flags, Floats, Indices, check_names

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Constraints that leave single choices out: what every rule on a row comes down to.

# Rounding that a constraint's value at a choice may have, relative to its constant.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class ExclusionTerm(ConstraintTerm):
    """Choices that must not be made.

    Parameters
    ----------
    excluded : bool array (N,)
        Whether the choice is left out.
    """

    excluded: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))


def exclusion(problem: ChoiceProblem, excluded: Flags) -> ExclusionTerm:
    r"""Return the term :math:`\sum_{j \text{ excluded}} a_j \le 0`.

    With non-negative choices, a single row says the same as one equality for each.
    """
    weights = excluded.astype(float)
    weights.flags.writeable = False
    derived = model_term("excluded", weights @ problem["choice"] <= 0)
    known = {f.name: getattr(derived, f.name) for f in fields(ConstraintTerm)}
    return ExclusionTerm(**known, excluded=excluded)


def excluded_by(problem: ChoiceProblem, term: ConstraintTerm) -> Flags | str:
    """Return the choices that a constraint leaves out, or why it does more than that.

    A linear constraint each of whose rows has coefficients in one data row only says which
    choices of that row may be made, because exactly one of them is.

    Parameters
    ----------
    problem : ChoiceProblem
        Whose constraint it is.
    term : ConstraintTerm
        The constraint.

    Returns
    -------
    bool array (N,) or str
    """
    if isinstance(term, ExclusionTerm):
        return term.excluded
    if not term.scope <= {"choice"}:
        return f"{term.name!r} is not a rule on single rows"
    if term.evidence.problem_class != LP:
        return f"{term.name!r} is not linear"
    choices, a = problem.choices, problem["choice"]
    try:
        kind, sign, expression = constraint_set(term.name, term.build())
        line = named_map(term.name, expression, {a.id: 0}, a.size)
    except UnsupportedProblem:
        return f"{term.name!r} is not linear"
    if line.Q.nnz:
        return f"{term.name!r} is not linear"
    A, b = line.A.tocsr(), sign * line.b
    width = np.diff(A.indptr)
    of = np.repeat(np.arange(b.size), width)
    rows = choices.row[A.indices]
    some = np.flatnonzero(width)
    if some.size:
        starts = A.indptr[some]
        apart = np.maximum.reduceat(rows, starts) != np.minimum.reduceat(rows, starts)
        if apart.any():
            return f"{term.name!r} ties rows together: it is not a rule on single rows"
    allowed = ROUNDING * (1.0 + np.abs(b))

    def off(value: Floats, i: Any) -> Flags:
        size = np.abs(value) if kind == "zero" else value
        return np.asarray(size > allowed[i], dtype=bool)

    if off(b[width == 0], width == 0).any():
        return f"{term.name!r} cannot hold"
    excluded = np.zeros(choices.size, dtype=bool)
    excluded[A.indices[off(sign * A.data + b[of], of)]] = True
    # where the constant alone is outside, the choices without a coefficient are left out too
    for i in np.flatnonzero(off(b, np.arange(b.size)) & (width > 0)):
        mine = A.indices[A.indptr[i] : A.indptr[i + 1]]
        first, last = choices.starts[choices.row[mine[0]] : choices.row[mine[0]] + 2]
        excluded[np.setdiff1d(np.arange(first, last), mine)] = True
    return excluded


# Problems that choose one set of edits for every row.

ROW_CHOICES = "row-choices"


class ChoiceProblem(FeatureProblem):
    r"""Choose one set of edits S for every row i.

    .. math:: a_{iS} \in \{0, 1\},\qquad \textstyle\sum_S a_{iS} = 1

    A subclass says what it wants of the sum of effects :math:`\sum_{i,S} g_{iS} a_{iS}` and
    of the cost of the edits. As exactly one choice is made in a row, every linear rule on a
    single row says which of its choices may be made; such rules keep the structure.
    """

    rules_on = "edits", "use it with ActionPlan or MinimumEdits"

    # --- data ----------------------------------------------------------------------------

    @staticmethod
    def choice_data(
        effects: Any, edits: Any, costs: Any, features: Any, cells: Cells | None
    ) -> dict[str, Any]:
        """Return the data every such problem has.

        Raises
        ------
        DataError
            Tables or names that do not fit.
        """
        if isinstance(effects, Choices):
            if edits is not None or costs is not None:
                raise DeclarationError(
                    "choices have their edits and costs already", remedy="leave edits and costs out"
                )
            choices = effects
        elif edits is None:
            raise DeclarationError(
                "edits is missing", remedy="give a (P x d) table of truth values, or one per row"
            )
        else:
            choices = Choices.from_tables(effects, edits, costs)
        given = features if features is not None or cells is None else cells.names
        names = checked_names(given, choices.features)
        return {"choices": choices, "features": names, "cells": cells}

    @classmethod
    def from_model(
        cls,
        predict: Callable[[Any], Any],
        factuals: Any,
        values: Any,
        *,
        target: Any,
        costs: Any = None,
        most_edits: int | None = None,
        memory: int | None = None,
        **own: Any,
    ) -> Self:
        """Return the problem for rows, from the scores of a model.

        The score after every set of edits that changes something is asked for once, in
        batches: a row in which k features differ has 2^k sets.

        Parameters
        ----------
        predict : callable
            Rows, in the container of the factuals, to one number each.
        factuals, values : arrays or data frames (n, d)
            Rows as they are, and the value assigned to each cell.
        target : float or array-like
            y*: the mean score to reach, or one score per counterfactual.
        most_edits : int, optional
            Edits in one row; larger sets are not enumerated, for rows of many features.
        memory : int, optional
            Bytes that one batch of rows may take, 64 MB by default.
        costs, **own
            As of the class: ``budget``; ``effect`` and ``overshoot``.

        Examples
        --------
        >>> import optfair as of
        >>> score = lambda rows: rows.sum(axis=1)
        >>> p = of.ActionPlan.from_model(score, [[-1.0, 0.0]], [[1.0, 1.0]], target=1.0, budget=1)
        >>> p.refined(p.solve()).tolist()
        [[1.0, 0.0]]
        """
        choices, cells = model_choices(predict, factuals, values, target, costs, most_edits, memory)
        model: Any = cls
        problem: Self = model(choices, cells=cells, **own)
        return problem

    choices = Datum[Choices]("All choices of all rows.")

    @property
    def full_effect(self) -> float:
        r"""Counterfactual effect 1 − \|Σ g_full\| / \|Σ g_none\| when every cell is edited.

        Below 1, the counterfactuals themselves miss the target; NaN where it is not defined.
        """
        c = self.choices
        at = (c.edits == c.editable[c.row]).all(axis=1)
        if int(at.sum()) < c.rows:
            return np.nan
        return self._effect(float(c.effects[at].sum()))

    def _effect(self, total: float) -> float:
        before = abs(self.choices.unedited)
        return 1.0 - abs(total) / before if before > 0 else np.nan

    # --- reading solutions ---------------------------------------------------------------

    def chosen(self, solution: Solution | Mapping[str, Any]) -> Indices:
        """Return the choice made in each row (n,).

        Parameters
        ----------
        solution : Solution, or values by name
            Of this problem, or of one made from it.

        Raises
        ------
        DataError
            A fractional choice, as a relaxation has.
        """
        a = np.asarray(solution["choice"], dtype=float)
        at = np.flatnonzero(a > 0.5)
        whole = a.shape == (self.choices.size,) and np.abs(a - np.round(a)).max() <= 1e-6
        if not whole or not np.array_equal(self.choices.row[at], np.arange(self.choices.rows)):
            raise DataError(
                "the solution does not make one choice in every row",
                "its choices are fractional, or it belongs to another problem",
                "solve the problem with its integers",
            )
        return at

    def edits(self, solution: Solution | Mapping[str, Any]) -> Flags:
        """Return which cells are edited (n, d)."""
        return np.array(self.choices.edits[self.chosen(solution)])

    def cost(self, solution: Solution | Mapping[str, Any]) -> float:
        """Return the cost of the edits, their number where every edit costs 1."""
        return float(self.choices.costs[self.chosen(solution)].sum())

    def mean_difference(self, solution: Solution | Mapping[str, Any]) -> float:
        r"""Return \|mean f(z) − mean y*\| after the edits."""
        return abs(self.effect_sum(solution)) / self.choices.rows

    def effect_sum(self, solution: Solution | Mapping[str, Any]) -> float:
        """Return the sum of f(z) − mean y* over the rows."""
        return float(self.choices.effects[self.chosen(solution)].sum())

    def counterfactual_effect(self, solution: Solution | Mapping[str, Any]) -> float:
        r"""Return 1 − D(f(z), y*) / D(f(x), y*) with D = \|mean difference\|.

        Scores that pass the target miss it too: 1 is reached at the target alone.
        """
        return self._effect(self.effect_sum(solution))

    def refined(self, solution: Solution | Mapping[str, Any]) -> Any:
        """Return the factual rows with the chosen edits, in the container they came in.

        Raises
        ------
        DeclarationError
            The problem was declared from effects, without rows.
        """
        cells = self._cells("refined rows")
        return cells.rows(np.arange(self.choices.rows), self.edits(solution))

    def _cells(self, what: str) -> Cells:
        cells: Cells | None = self.data["cells"]
        if cells is None:
            raise DeclarationError(
                f"{what} need the rows, this problem was declared from effects",
                remedy=f"declare it with {type(self).__name__}.from_model(...)",
            )
        return cells

    # --- terms ---------------------------------------------------------------------------

    @property
    def objective_unit(self) -> float:
        """Largest effect, at most 1: gaps mean the same for scores of any size."""
        return min(1.0, float(np.abs(self.choices.effects).max(initial=0.0))) or 1.0

    def choice_terms(self, a: Any) -> tuple[ConstraintTerm, ConstraintTerm]:
        """Return what makes ``choice`` one choice per row."""
        n, N = self.choices.rows, self.choices.size
        rows = sp.csr_array((np.ones(N), (self.choices.row, np.arange(N))), shape=(n, N))
        return (
            model_term("one choice", rows @ a == 1, r"\textstyle\sum_S a_{iS} = 1"),
            model_term("nonnegativity", a >= 0, r"a_{iS} \ge 0"),
        )

    # --- what rules ask for --------------------------------------------------------------

    def fixed(self, indices: Indices) -> ExclusionTerm:
        """Return the term that these features are not edited."""
        return exclusion(self, np.asarray(self.choices.edits[:, indices].any(axis=1)))

    def within(self, indices: Indices, lower: Floats, upper: Floats) -> ExclusionTerm:
        """Return the term that these features end between bounds."""
        outside = np.zeros(self.choices.size, dtype=bool)
        for j, low, high in zip(indices, lower, upper, strict=True):
            before, after = self._numbers(int(j))
            end = np.where(self.choices.edits[:, j], after, before)
            outside |= (end < low) | (end > high)
        return exclusion(self, outside)

    def moves(self, indices: Indices, sign: Floats) -> ExclusionTerm:
        """Return the term that these features only grow or only shrink."""
        wrong = np.zeros(self.choices.size, dtype=bool)
        for j, s in zip(indices, sign, strict=True):
            before, after = self._numbers(int(j))
            wrong |= self.choices.edits[:, j] & (s * (after - before) < 0)
        return exclusion(self, wrong)

    def _numbers(self, feature: int) -> tuple[Floats, Floats]:
        """Return the feature before and after, one number per choice."""
        columns = self._cells("bounds and directions").column(feature)
        try:
            before, after = (np.asarray(c, dtype=np.float64) for c in columns)
        except (TypeError, ValueError):
            raise DeclarationError(
                f"{self.features[feature]!r} is not a number in every row",
                remedy="bounds and directions are for numeric features; use immutable for others",
            ) from None
        return before[self.choices.row], after[self.choices.row]

    # --- structure -----------------------------------------------------------------------

    def structure_refusal(self, name: str) -> str:
        """Return why a structure does not stand; rules on single rows keep ``row-choices``."""
        if name != ROW_CHOICES:
            return super().structure_refusal(name)
        exclusions = self.exclusions()
        return exclusions if isinstance(exclusions, str) else ""

    def exclusions(self) -> dict[str, Flags] | str:
        """Return the choices that each added rule leaves out, or why the structure is lost."""
        known = self.__dict__.get("_exclusions")
        # a child starts as a copy: what is known holds for the same terms only
        state = (self.constraints, self.objective, self.integers)
        if known is None or any(a is not b for a, b in zip(known[0], state, strict=True)):
            known = (state, self._left_out())
            self._set(_exclusions=known)
        result: dict[str, Flags] | str = known[1]
        return result

    def _left_out(self) -> dict[str, Flags] | str:
        own = {t.name for t in self.terms if t.origin == "model"}
        needs = next(s.needs for s in self.structures if s.name == ROW_CHOICES)
        for name in needs:
            if name not in own:
                return f"{name!r} was removed"
        if self.integers != {"choice"}:
            extra = sorted(self.integers - {"choice"})
            return f"{extra[0]!r} is integer" if extra else "'choice' is not integer"
        if common_unit(self.choices.cell_costs) is None:
            return "the costs of edits have no common unit"
        for goal in self.objective.values():
            if goal.origin != "model":
                return f"the objective {goal.name!r} is not the model's own"
        by_term: dict[str, Flags] = {}
        for term in self.constraints.values():
            if term.origin == "model":
                continue
            excluded = excluded_by(self, term)
            if isinstance(excluded, str):
                return excluded
            by_term[term.name] = excluded
        return by_term


def row_choices(*needs: str) -> tuple[Structure, ...]:
    """Return the structures of a problem that relies on these terms of its own."""
    own = ("one choice", "nonnegativity", *needs)
    rule = Structure(ROW_CHOICES, own, frozenset({"choice"}), "a rule on single rows")
    return (rule, LAZY_ROWS)


@dataclass(frozen=True)
class EditedTogether(Rule):
    """Features that are edited together or not at all."""

    features: tuple[Any, ...]
    latex = r"S \cap G \in \{\emptyset, G\}"

    def __post_init__(self) -> None:
        if len(self.features) < 2:
            raise DeclarationError(
                "edited_together needs two features", remedy="name the columns of the group"
            )

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves out choices with a part of the edits."""
        p = self.fitting(problem, ChoiceProblem)
        group = p.feature_indices(self.features)
        c = p.choices
        count = c.edits[:, group].sum(axis=1)
        whole = c.editable[:, group].sum(axis=1)[c.row]
        return exclusion(p, np.asarray((count > 0) & (count < whole)))


def edited_together(features: Sequence[Any]) -> EditedTogether:
    r"""Features that are edited together or not at all, such as the columns of one category.

    .. math:: S \cap G \in \{\emptyset,\; G \cap D_i\}

    with D_i the features that differ in row i. Half a change of a one-hot encoded category
    would leave a row with two categories or with none.

    Class: LP.

    Parameters
    ----------
    features : sequence of str or int
        The group G, by names or columns.

    Returns
    -------
    EditedTogether

    Raises
    ------
    DeclarationError
        Fewer than two features; when bound, a problem without edits.
    DataError
        When bound: an unknown feature, or one named twice.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> score = lambda rows: rows @ [0.2, 0.1, 0.5]
    >>> p = ActionPlan.from_model(
    ...     score, [[0.0, 1.0, 0.0]], [[1.0, 0.0, 1.0]], target=0.8, budget=2
    ... )
    >>> alone = p.solve()
    >>> p.refined(alone).tolist()
    [[1.0, 1.0, 1.0]]
    >>> q = p.with_constraints(category=edited_together([1, 2]))
    >>> q.refined(q.solve()).tolist()
    [[0.0, 0.0, 1.0]]
    """
    return EditedTogether(
        (features,) if isinstance(features, str) else check_names(features, "features")
    )


@dataclass(frozen=True)
class Implies(Rule):
    """Whoever edits the first feature edits the second."""

    first: Any
    second: Any
    latex = r"j \in S \Rightarrow k \in S"

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves out choices with the first edit alone."""
        p = self.fitting(problem, ChoiceProblem)
        j, k = p.feature_index(self.first), p.feature_index(self.second)
        if j == k:
            raise DeclarationError(f"{p.features[j]!r} implies itself", remedy="name two features")
        c = p.choices
        able = c.editable[c.row, k]
        return exclusion(p, c.edits[:, j] & able & ~c.edits[:, k])


def implies(first: Any, second: Any) -> Implies:
    r"""Whoever edits ``first`` edits ``second`` too.

    .. math:: j \in S \Rightarrow k \in S

    Class: LP. In a row where ``second`` has its new value already there is nothing to edit,
    and the rule holds.

    Parameters
    ----------
    first, second : str or int
        Features, by name or column.

    Returns
    -------
    Implies

    Raises
    ------
    DeclarationError
        When bound: one feature twice, a problem without edits.
    DataError
        When bound: an unknown feature.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = ActionPlan(effects, edits, budget=3, features=["loan", "duration"])
    >>> s = p.with_constraints(both=implies("loan", "duration")).solve()
    >>> s.solver, round(s.objective, 9), p.edits(s).astype(int).tolist()
    ('action-dp', 0.4, [[1, 1], [0, 1]])
    """
    return Implies(first, second)


@dataclass(frozen=True)
class RowBudget(Rule):
    """The edits of a row cost at most so much."""

    most: Any
    latex = r"\textstyle\sum_S c(S)\, a_{iS} \le b_i"

    def bind(self, problem: Problem) -> Any:
        """Return the term that leaves dearer choices out."""
        p = self.fitting(problem, ChoiceProblem)
        most = finite_vector(self.most, p.choices.rows, "row_budget")
        if (most < 0.0).any():
            raise DeclarationError(
                f"row_budget is {most.min():g} in some row",
                "no edits cost 0, and no choice costs less",
                "give numbers from 0 on",
            )
        # a cost that passes its budget by rounding is within it
        room = most[p.choices.row] * (1.0 + 1e-12)
        return exclusion(p, np.asarray(p.choices.costs > room))


def row_budget(most: Any) -> RowBudget:
    r"""Bound the cost of the edits of every row: their number by default.

    .. math:: \sum_S c(S)\, a_{iS} \le b_i

    Class: LP. On integer choices it leaves out the dearer ones, and that is how it is stated:
    its relaxation is tighter than the sum.

    Parameters
    ----------
    most : float or array-like (n,)
        b: one number, or one per row, in units of the costs.

    Returns
    -------
    RowBudget

    Raises
    ------
    DeclarationError
        When bound: numbers that do not fit or are negative, a problem without edits.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan
    >>> edits = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> effects = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]
    >>> p = ActionPlan(effects, edits, budget=3).with_constraints(each=row_budget(1))
    >>> s = p.solve()
    >>> s.solver, round(s.objective, 9), p.edits(s).sum(axis=1).tolist()
    ('action-dp', 0.5, [1, 1])
    """
    return RowBudget(most)
