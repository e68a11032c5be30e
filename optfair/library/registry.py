"""Which models and rules a file of facts may name, and how their tables become objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from optfair import registry
from optfair.core.problem import Problem
from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.locate import check_keys

__all__ = ["construct", "model_names", "rule"]


def model_names() -> tuple[str, ...]:
    """Return the names of the models an instance may have."""
    return registry.names("models")


def construct(model: str, data: Mapping[str, Any], where: str) -> Problem:
    """Return the problem a [data] table declares.

    Parameters
    ----------
    model : str
        Name of the model.
    data : mapping
        The table.
    where : str
        What to call the table in messages.
    """
    maker = registry.load("models", model, f"model of {where}")
    # models whose [data] says where rows come from; others take its entries as keywords
    reads = model in registry.names("arguments")
    arguments = registry.load("arguments", model)(data) if reads else dict(data)
    fairness = arguments.get("fairness")
    if isinstance(fairness, Mapping):
        arguments["fairness"] = rule(fairness, f"fairness in {where}")
    problem: Problem = _called(maker, arguments, where)
    return problem


def rule(table: Mapping[str, Any], where: str) -> Rule:
    """Return the rule of a table with the key ``kind`` and the rule's parameters."""
    if "kind" not in table:
        raise DeclarationError(
            f"{where} has no kind", remedy=f"write kind = one of {list(registry.names('rules'))}"
        )
    maker = registry.load("rules", table["kind"], f"kind of {where}")
    made: Rule = _called(maker, {k: v for k, v in table.items() if k != "kind"}, where)
    return made


def _called(maker: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """Call with keywords, after telling unknown and missing ones."""
    signature = inspect.signature(maker).parameters
    parameters = {k: p for k, p in signature.items() if p.kind is not p.VAR_KEYWORD}
    if len(parameters) == len(signature):  # else the maker checks what it is given
        check_keys(arguments, parameters, where)
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in arguments]
    if missing:
        raise DeclarationError(
            f"{where} lacks {', '.join(missing)}", remedy=f"it may have {', '.join(parameters)}"
        )
    return maker(**arguments)
