"""All solvers known, from the files of facts."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.backends.probes import licence_state
from optfair.backends.profile import SolverProfile, load_profile
from optfair.errors import UnsupportedProblem, nearest
from optfair.locate import fact_files

if TYPE_CHECKING:
    from optfair.core.problem import Problem


def profiles() -> dict[str, SolverProfile]:
    """Return every profile by name; files that begin with an underscore are no solvers."""
    files = fact_files("solvers")
    return _load(tuple(sorted((k, v) for k, v in files.items() if not k.startswith("_"))))


@lru_cache(maxsize=4)
def _load(files: tuple[tuple[str, Path], ...]) -> dict[str, SolverProfile]:
    found = (load_profile(path) for _, path in files)
    return {p.name: p for p in found}


def profile(name: str) -> SolverProfile:
    """Return one profile, by its name in any case, or by CVXPY's constant for it.

    Raises
    ------
    UnsupportedProblem
        No solver has this name; the message suggests the nearest.

    Examples
    --------
    >>> import cvxpy as cp
    >>> profile("HiGHS").name, profile(cp.CLARABEL).name, profile(cp.SCIPY).name
    ('highs', 'clarabel', 'scipy-linprog')
    """
    known = profiles()
    if not isinstance(name, str):
        raise UnsupportedProblem(
            f"a solver is named by text, not by a {type(name).__name__}",
            remedy="name one, as in solver='highs'; compare_solvers takes several",
        )
    plain = name.lower().replace("_", "-")
    if plain in known:
        return known[plain]
    by_constant = {p.cvxpy_name.lower().replace("_", "-"): p for p in known.values()}
    if plain in by_constant:
        return by_constant[plain]
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    how = "" if not close or known[close[0]].installed else f" ({known[close[0]].install})"
    advice = nearest(plain, known) if close else "optfair.solvers() lists them all"
    raise UnsupportedProblem(f"unknown solver {name!r}", remedy=f"{advice}{how}")


def takers(problem: Problem) -> list[str]:
    """Return the names of the installed solvers that take a problem."""
    return [p.name for p in profiles().values() if p.installed and p.accepts(problem)]


def open_takers(problem: Problem) -> list[str]:
    """Return the names of the open solvers that take a problem, installed or not."""
    return [p.name for p in profiles().values() if p.kind == "open" and p.accepts(problem)]


@dataclass(frozen=True)
class SolverTable:
    """Rows of solver facts that print as a table."""

    rows: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        head = ("solver", "version", "classes", "licence", "state")
        lines = [tuple(str(row[h]) for h in head) for row in self.rows]
        widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
        table = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in (head, *lines)
        ]
        return "\n".join(table)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(row) for row in self.rows]


def solvers() -> SolverTable:
    """Return a table of all solvers: version, classes, licence, its state and how to get it."""
    rows = []
    for p in profiles().values():
        what = ", ".join(p.classes) + (f" with {p.structure}" if p.structure else "")
        if p.nonconvex:
            what += f", nonconvex ({p.nonconvex})"
        probed = licence_state(p)
        rows.append(
            {
                "solver": p.name,
                "version": p.version if p.installed else "-",
                "classes": what,
                "licence": p.licence,
                "state": str(probed),
                "installed": p.installed,
                "usable": probed.usable,
                "nonconvex": p.nonconvex,
                "install": p.install,
                "title": p.title,
                "returns": list(p.returns),
                "quirks": dict(p.quirks),
            }
        )
    return SolverTable(tuple(rows))
