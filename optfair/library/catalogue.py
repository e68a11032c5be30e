"""Find and read the instances in the folders of problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optfair.core.problem_class import ProblemClass
from optfair.errors import DataError, DeclarationError, nearest
from optfair.library.instance import Infeasibility, Instance, Optimum
from optfair.locate import check_keys, fact_files, load_facts

__all__ = ["load", "names", "read_instance"]

# Key -> type, for each table; the keys of [data] and [rules.*] belong to models and rules.
_TOP: dict[str, type] = {
    "schema": int,
    "model": str,
    "class": str,
    "source": str,
    "tags": list,
    "integrality": list,
    "data": dict,
    "rules": dict,
    "optimum": dict,
    "infeasible": dict,
}
_NEEDED = ("model", "class", "source", "data")
_OPTIMUM: dict[str, type] = {"value": float, "certified_by": str, "gap": float, "checked_by": list}
_INFEASIBLE: dict[str, type] = {"conflict": list, "certified_by": str, "checked_by": list}


def names() -> tuple[str, ...]:
    """Return the names of all instances, FAMILY/NAME.

    Examples
    --------
    >>> import optfair as of
    >>> "fair_clustering/german_k5" in of.library.names()
    True
    """
    return tuple(fact_files("problems"))


def load(name: str) -> Instance:
    """Return one instance.

    Parameters
    ----------
    name : str
        FAMILY/NAME, or NAME alone where one family only has it.

    Raises
    ------
    DataError
        No instance has this name, or several do.
    DeclarationError
        Its file has unknown, missing or ill-typed keys.
    """
    files = fact_files("problems")
    if name in files:
        return read_instance(files[name], name)
    hits = [full for full in files if full.rpartition("/")[2] == name]
    if len(hits) == 1:
        return read_instance(files[hits[0]], hits[0])
    if hits:
        raise DataError(f"several instances are called {name!r}", remedy="say " + " or ".join(hits))
    family = [full for full in files if full.startswith(f"{name}/")]
    if family:
        raise DataError(
            f"{name!r} is a family of {len(family)} instances",
            remedy="name one of them: " + ", ".join(family),
        )
    known = list(files) if "/" in name else [full.rpartition("/")[2] for full in files]
    raise DataError(
        f"no instance {name!r}",
        f"{len(files)} instances are known",
        nearest(name, [k for k in known if name in k] or known),
    )


def read_instance(path: Path, name: str) -> Instance:
    """Read and check one file."""
    facts = load_facts(path)
    _check(facts, _TOP, str(path), _NEEDED)
    if "optimum" in facts and "infeasible" in facts:
        raise DeclarationError(
            f"{path} has both [optimum] and [infeasible]", remedy="remove one of them"
        )
    ProblemClass.parse(facts["class"])
    return Instance(
        name=name,
        path=path,
        model=facts["model"],
        problem_class=facts["class"],
        source=facts["source"],
        data=facts["data"],
        rules=facts.get("rules", {}),
        integrality=tuple(facts.get("integrality", ())),
        optimum=_optimum(facts.get("optimum"), path),
        infeasible=_infeasible(facts.get("infeasible"), path),
        tags=tuple(facts.get("tags", ())),
    )


def _check(table: Mapping[str, Any], known: Mapping[str, type], where: str, needed: Any) -> None:
    check_keys(table, known, where)
    for key in needed:
        if key not in table:
            raise DeclarationError(f"{where} has no {key!r}", remedy="add it")
    for key, value in table.items():
        kinds = (float, int) if known[key] is float else (known[key],)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise DeclarationError(
                f"{key!r} in {where} is {value!r}", remedy=f"give a {known[key].__name__}"
            )


def _optimum(table: Mapping[str, Any] | None, path: Path) -> Optimum | None:
    if table is None:
        return None
    _check(table, _OPTIMUM, f"[optimum] of {path}", _OPTIMUM)
    return Optimum(
        float(table["value"]),
        table["certified_by"],
        float(table["gap"]),
        tuple(table["checked_by"]),
    )


def _infeasible(table: Mapping[str, Any] | None, path: Path) -> Infeasibility | None:
    if table is None:
        return None
    _check(table, _INFEASIBLE, f"[infeasible] of {path}", _INFEASIBLE)
    return Infeasibility(
        tuple(table["conflict"]), table["certified_by"], tuple(table["checked_by"])
    )
