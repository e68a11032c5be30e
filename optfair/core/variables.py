"""What attributes of CVXPY's variables say, as constraints on plain ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.labels import free_name
from optfair.errors import DeclarationError

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Attributes that stay on a variable because they say what it is, not where it may lie.
SHAPES = ("symmetric", "diag", "sparsity")


def stated_attributes(variable: Any, but: Sequence[str] = SHAPES) -> list[str]:
    """Return the names of what a variable states of its entries, but for some."""
    return [k for k, on in variable.attributes.items() if on not in (None, False) and k not in but]


def sign_constraints(name: str, old: Any, new: Any) -> dict[str, Any]:
    """Return what the attributes of a variable say of all its entries, as constraints on another."""
    a = old.attributes
    constraints: dict[str, Any] = {}
    if a.get("nonneg") or a.get("pos"):
        constraints[f"{name} nonnegative"] = new >= 0
    if a.get("nonpos") or a.get("neg"):
        constraints[f"{name} nonpositive"] = new <= 0
    if a.get("PSD"):
        constraints[f"{name} psd"] = new >> 0
    if a.get("NSD"):
        constraints[f"{name} nsd"] = new << 0
    if a.get("boolean") is True:
        constraints[f"{name} lower"], constraints[f"{name} upper"] = new >= 0, new <= 1
    if a.get("bounds"):
        for word, bound in zip(("lower", "upper"), a["bounds"], strict=True):
            if bound is None:
                continue
            if isinstance(bound, cp.Expression):  # of parameters
                constraints[f"{name} {word}"] = new >= bound if word == "lower" else new <= bound
                continue
            whole = bound.toarray() if hasattr(bound, "toarray") else bound
            limit = np.broadcast_to(np.asarray(whole, dtype=float), new.shape)
            finite = np.isfinite(limit)
            if finite.all():
                constraints[f"{name} {word}"] = new >= limit if word == "lower" else new <= limit
            elif finite.any():
                part, limit = new[finite], limit[finite]
                constraints[f"{name} {word}"] = part >= limit if word == "lower" else part <= limit
    return constraints


def entries_at(variable: Any, places: Any) -> Any:
    """Return some entries of a variable, as one vector.

    Raises
    ------
    DeclarationError
        There is no such entry: CVXPY looks at places when it solves.
    """
    for place in (tuple(int(i) for i in one) for one in places):
        inside = len(place) == variable.ndim
        if not inside or any(not -n <= i < n for i, n in zip(place, variable.shape, strict=True)):
            raise DeclarationError(
                f"{variable.name()!r} has no entry {list(place)}",
                f"it has the shape {variable.shape}, and this entry is to be whole",
                "name entries of it, as integer=[(0,), (1,)] does",
            )
    return cp.hstack([variable[tuple(int(i) for i in one)] for one in places])


@dataclass(frozen=True, eq=False)
class Plain:
    """Variables without attributes but those of shape, and what attributes said of others.

    Attributes
    ----------
    variables : dict
        By name.
    rows : dict
        Constraints that say what attributes did, by name.
    integers : set of str
        Names of those that are integer.
    aliases, swaps : dict
        The variables that stood for them -> their names; and by ``id`` -> them.
    reserved : set of str
        Names that entries which are whole may not take.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)
    aliases: dict[Any, str] = field(default_factory=dict)
    swaps: dict[int, Any] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, known: Iterable[Any]) -> Plain:
        """Take variables, copies where attributes say more; one that was pickled is the same by its number."""
        every = list(known)
        plain, same = cls(reserved={v.name() for v in every}), dict[int, Any]()
        for old in every:
            if old.id in same:
                plain.swaps[id(old)] = same[old.id]
                continue
            if old.name() in plain.variables or stated_attributes(old):
                plain.add(old.name(), old)
            else:
                plain.variables[old.name()] = plain.swaps[id(old)] = old
            same[old.id] = plain.swaps[id(old)]
        return plain

    def add(self, called: str, old: Any) -> None:
        """Copy a variable, with what its attributes say."""
        name = free_name(called, self.variables)
        new = cp.Variable(old.shape, name=name, **kept_attributes(old))
        self.variables[name], self.aliases[old], self.swaps[id(old)] = new, name, new
        self.rows.update(sign_constraints(name, old, new))
        if any(old.attributes[k] is True for k in ("boolean", "integer")):
            self.integers.add(name)
        for kind, at in (("boolean", old.boolean_idx), ("integer", old.integer_idx)):
            if old.attributes[kind] is True or not at:
                continue
            # entries that are whole
            label = free_name(f"{name} {kind}", {*self.variables, *self.reserved})
            part = self.variables[label] = cp.Variable(len(at), name=label)
            self.integers.add(label)
            self.rows[label] = entries_at(new, at) == part
            if kind == "boolean":
                self.rows[f"{label} lower"], self.rows[f"{label} upper"] = part >= 0, part <= 1

    def take(self, name: str, variable: Any) -> None:
        """Add a variable that no term uses yet: as it is, or copied where attributes say more."""
        if stated_attributes(variable, ("symmetric",)):
            self.add(name, variable)
        else:
            self.variables[name] = variable

    def beside(self, problem: Problem) -> dict[str, Any]:
        """Return the fields of a problem that has these variables, too."""
        return {
            "variables": MappingProxyType({**problem.variables, **self.variables}),
            "integers": problem.integers | self.integers,
            "_names": {**problem._names, **{v.id: k for k, v in self.variables.items()}},
            "_aliases": {**problem._aliases, **{v.id: k for v, k in self.aliases.items()}},
            "_alias_variables": (*problem._alias_variables, *self.aliases),
        }


def kept_attributes(variable: Any) -> dict[str, Any]:
    """Return the attributes of a variable that say what it is, for a copy of it."""
    a = variable.attributes
    kept = {k: a[k] for k in SHAPES if a.get(k)}
    if a.get("PSD") or a.get("NSD"):
        kept["symmetric"] = True
    return kept


def check_plain(name: str, variable: Any) -> None:
    """Refuse a variable with signs, bounds or integrality as attributes: no term would say so."""
    if extra := stated_attributes(variable):
        raise DeclarationError(
            f"variable {name!r} has the attribute {extra[0]!r}",
            "signs, bounds and integrality have names of their own here",
            "give a plain variable, then with_constraints and with_integrality",
        )


def fresh_copy(variable: Any, *, integer: bool = False) -> Any:
    """Return a new variable with the same shape, name and attributes."""
    attributes = {k: v for k, v in variable.attributes.items() if v not in (None, False)}
    attributes |= {"integer": True} if integer else {}
    return cp.Variable(variable.shape, name=variable.name(), **attributes)
