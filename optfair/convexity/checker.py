"""Checks proofs again: every step by its rule, on ranges computed anew. Searches for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optfair.convexity import calculus, powers, quadratics, squares, theorems
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.expression import Node, text
from optfair.convexity.rules import RULES, Goal, Kind

#: The modules whose rules a step may name.
TABLES = (powers, quadratics, theorems, calculus, squares)


@dataclass(frozen=True, eq=False)
class Step:
    """A claim, the rule it follows by, and the steps it follows from.

    Attributes
    ----------
    goal : Goal
        What is claimed.
    rule : str
        Name of the rule.
    premises : tuple of Step
        What the rule asks for, in its order.
    data : object
        What the search chose: a part, a denominator, boxes, a matrix.
    """

    goal: Goal
    rule: str
    premises: tuple[Step, ...] = ()
    data: Any = None

    @property
    def node(self) -> Node:
        """What it is about."""
        return self.goal.node

    @property
    def kind(self) -> Kind:
        """What is claimed of it."""
        return self.goal.kind

    def __len__(self) -> int:
        return 1 + sum(len(p) for p in self.premises)


def faults(step: Step, domain: Domain) -> tuple[str, ...]:
    """Return what is wrong with a proof on a domain; nothing when it holds.

    Parameters
    ----------
    step : Step
        The proof.
    domain : Domain
        Where.
    """
    if domain.empty:
        return ("the facts exclude each other",)
    return tuple(_faults(step, domain, {}))


def _faults(step: Step, domain: Domain, known: dict[Any, bool]) -> list[str]:
    if step.goal.boxes:
        domain, known = domain.extended(boxes=dict(step.goal.boxes)), {}
    if known.get(id(step)):
        return []
    own = RULES.get(step.rule)
    if own is None:
        return [f"there is no rule {step.rule!r}"]
    goals = own.needs(step.node, step.kind, Algebra(domain), step.data)
    if goals is None:
        return [f"{step.rule!r} does not show that {text(step.node)} is {step.kind}"]
    if [g.key for g in goals] != [p.goal.key for p in step.premises]:
        return [f"{step.rule!r} asks for other premises of {text(step.node)}"]
    found = [fault for p in step.premises for fault in _faults(p, domain, known)]
    if not found:
        known[id(step)] = True
    return found
