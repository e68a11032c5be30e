"""The fewest edits that reach a required counterfactual effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.evidence import Evidence
from optfair.core.problem import Declaration
from optfair.core.problem_class import LP
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.cells import Cells
from optfair.methods.sparse_counterfactuals.choice_problem import (
    ChoiceProblem,
    model_term,
    row_choices,
)
from optfair.methods.sparse_counterfactuals.choices import Choices

__all__ = ["MinimumEdits"]

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
    >>> from optfair.methods.sparse_counterfactuals.minimum_edits import MinimumEdits
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

    title = "MinimumEdits"
    structures = row_choices("cost", "effect")

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

    @classmethod
    def from_model(
        cls,
        predict: Callable[[Any], Any],
        factuals: Any,
        values: Any,
        *,
        target: Any,
        effect: float,
        overshoot: bool = True,
        costs: Any = None,
        most_edits: int | None = None,
        memory: int | None = None,
    ) -> MinimumEdits:
        """Return the problem for rows, from the scores of a model; see `ActionPlan.from_model`."""
        choices, cells = cls.model_choices(
            predict, factuals, values, target, costs, most_edits, memory
        )
        return cls(choices, effect=effect, overshoot=overshoot, cells=cells)

    @property
    def direction(self) -> float:
        """σ: +1 where the scores have to rise."""
        return -float(np.sign(self.choices.unedited))

    @property
    def missing(self) -> float:
        """(1 − ε) G: how far the sum of scores may stay from the target."""
        return (1.0 - float(self.data["effect"])) * abs(self.choices.unedited)

    def declare(self) -> Declaration:
        """Declare the choices; nothing of their number is built."""
        choices, left, sigma = self.choices, self.missing, self.direction
        a = cp.Variable(choices.size, name="choice")
        g, costs = sigma * choices.effects, choices.costs

        def side(name: str, sign: float, latex: str) -> ConstraintTerm:
            return model_term(
                name,
                {"choice"},
                "Nonpositive",
                build=lambda: sign * (g @ a) <= left,
                violation=lambda v: np.maximum(
                    sign * (g @ np.asarray(v["choice"], dtype=float)) - left, 0.0
                ),
                scale=left,
                latex=latex,
            )

        terms = [
            *self.choice_terms(a),
            side("effect", -1.0, r"\sigma\textstyle\sum_{i,S} g_{iS} a_{iS} \ge -(1-\varepsilon)G"),
        ]
        if not self.data["overshoot"]:
            latex = r"\sigma\textstyle\sum_{i,S} g_{iS} a_{iS} \le (1-\varepsilon)G"
            terms.append(side("overshoot", 1.0, latex))
        return Declaration(
            variables={"choice": a},
            objective=(
                ObjectiveTerm(
                    "cost",
                    frozenset({"choice"}),
                    Evidence("cost", "affine", "minimize", LP),
                    build=lambda: costs @ a,
                    latex=r"\textstyle\sum_{i,S} c(S)\, a_{iS}",
                    value=lambda v: float(costs @ np.asarray(v["choice"], dtype=float)),
                ),
            ),
            constraints=tuple(terms),
            integers=frozenset({"choice"}),
        )


def _checked_effect(effect: Any, choices: Choices) -> float:
    try:
        required = float(effect)
    except (TypeError, ValueError):
        required = np.nan
    if not 0.0 < required <= 1.0:
        raise DataError(
            f"effect is {effect!r}",
            remedy="give the share of the distance to the target to remove, in (0, 1]",
        )
    before = choices.unedited
    if np.isnan(before):
        raise DataError(
            "some row has no choice without edits",
            "the effect is measured from the rows as they are",
            "include the empty set of edits in every row",
        )
    size = float(np.abs(choices.effects[~choices.edits.any(axis=1)]).sum())
    if abs(before) <= ROUNDING * max(1.0, size):
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
