"""Turn named CVXPY expressions into a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optfair.core.classify import constraint_term, objective_term
from optfair.core.problem import Declaration, Sense

__all__ = ["declaration"]


def declaration(
    sense: Sense,
    objective: Mapping[str, Any],
    constraints: Mapping[str, Any],
    *,
    latex: Mapping[str, str],
    integers: frozenset[str] = frozenset(),
) -> Declaration:
    """Return the declaration of a small model from its expressions.

    Every term is analysed when it is declared, which a model of a few rows can afford.

    Parameters
    ----------
    sense : {"minimize", "maximize"}
        Direction of the objective.
    objective, constraints : dict
        Name -> CVXPY expression, name -> CVXPY constraint. Their variables are the
        variables of the model, under their own names.
    latex : dict
        Name of a term -> how it is printed.
    integers : frozenset of str
        Names of integer variables.
    """
    variables = {
        v.name(): v
        for part in (*objective.values(), *constraints.values())
        for v in part.variables()
    }
    names = {v.id: name for name, v in variables.items()}
    goals = [objective_term(name, e, names, sense) for name, e in objective.items()]
    terms = [constraint_term(name, c, names) for name, c in constraints.items()]
    return Declaration(
        variables,
        sense,
        tuple(replace(t, origin="model", latex=latex[t.name]) for t in goals),
        tuple(replace(t, origin="model", latex=latex[t.name]) for t in terms),
        integers,
    )
