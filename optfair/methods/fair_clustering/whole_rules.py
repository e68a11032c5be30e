"""What rules labels of whole rows can keep: refused before work, or said after it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.integer_masses import EQUAL, WholeCounts, whole_rows
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.numbers import Floats
from optfair.rows.survey import Survey

if TYPE_CHECKING:
    from optfair.methods.fair_clustering.labels import HardLabels

# Wall seconds in which branching on counts alone may settle that there are none.
SETTLED = 1.0
# How fractions are asked for in place of whole rows.
SOFT = 'labels="soft"'
# Relative excess of a weight that is rounding.
HEAVIER = 1e-6


def check_labelled(p: FairAssignment) -> None:
    """Raise where labels that obey the rules are not made: curved rules, and those on single rows."""
    if other := p.structure_refusal("mass-assignment"):
        raise DeclarationError(
            "labels that obey rules on single rows are not made",
            other,
            'ask the FairAssignment for whole rows, with_integrality("assignment"), or leave these'
            ' rules out, or use labels="soft"',
        )
    if not compile_rules(p).program.polyhedral:
        raise DeclarationError(
            "labels that obey curved rules are not made",
            "whole numbers of rows are sought by linear programs",
            'use linear rules, or labels="soft"',
        )


def check_whole(p: FairAssignment, soft: str = SOFT) -> None:
    """Raise where no whole numbers of rows obey the rules, whatever the centers.

    Parameters
    ----------
    p : FairAssignment
        Rules on its masses; what rows cost plays no part.
    soft : str
        How the caller is asked for fractions.

    Raises
    ------
    DataError
        With the groups whose number of rows forbids it. Where rows of a group weigh differently
        labels miss the rules by little, and say by how much: refused is only a row that weighs more
        than the rules let any cluster hold of its group.
    """
    check_labelled(p)
    whole = whole_rows(p.data["groups"], p.data["weights"], p.shares.size)
    if whole is None:
        w, groups = p.data["weights"], p.data["groups"]
        rows = [int(np.argmax(np.where(groups == g, w, -1.0))) for g in range(p.shares.size)]
        _check_heaviest(p, w[rows], [f"row {i}" for i in rows], soft)
        return
    _check_counts(p, *whole, soft)


def check_surveyed(p: FairAssignment, survey: Survey, soft: str = SOFT) -> None:
    """Raise as `check_whole` does, of rows that are not held: by their numbers and largest weights.

    Parameters
    ----------
    p : FairAssignment
        Rules on the masses of the sample of a survey.
    survey : Survey
    soft : str
        How the caller is asked for fractions.
    """
    if survey.complete:
        check_whole(p, soft)
        return
    check_labelled(p)
    if (survey.most - survey.least <= EQUAL * survey.most).all():
        _check_counts(p, survey.shares / survey.counts, survey.counts, soft)
    else:
        _check_heaviest(p, survey.most, ["a row"] * p.shares.size, soft)


def _check_counts(p: FairAssignment, unit: Floats, rows: Floats, soft: str) -> None:
    counts = WholeCounts(compile_rules(p).program, unit, rows)
    if counts.impossible(time_limit=SETTLED):
        raise unreachable(p, counts, soft)
    alone = _parts(p, unit, rows) == 1 or counts.impossible(time_limit=SETTLED, several=True)
    if p["masses"].shape[1] > 1 and alone:
        raise DataError(
            "labels of whole rows obey the rules only where one cluster holds all",
            f"groups of {', '.join(f'{n:.0f}' for n in rows)} rows do not divide among several"
            " clusters as the rules ask",
            f"allow more (a larger eps, a smaller balance), or use {soft}, whose fractions obey",
        )


def _parts(p: FairAssignment, unit: Floats, rows: Floats) -> int:
    """Return the most clusters that perfect fairness divides rows among, 0 where it does not say.

    Each has the same fraction of all that are compared: of whole rows, a multiple of one over the
    greatest common divisor of their numbers.
    """
    if np.ptp(unit) > EQUAL * unit.max():
        return 0
    parts = 0
    for rule in p.rules.values():
        if isinstance(rule, PerfectFairness):
            members = np.eye(rows.size) if rule.on is None else rule.on.of(p.group_names)[1]
            own = int(np.gcd.reduce(np.rint(members @ rows).astype(np.int64)))
            parts = own if parts == 0 else min(parts, own)
    return parts


def _check_heaviest(p: FairAssignment, heaviest: Floats, rows: list[str], soft: str) -> None:
    """Raise on a row, the heaviest of its group, that weighs more than any cluster may hold of it."""
    rules = compile_rules(p)
    at = rules.program.masses
    for g, name in enumerate(p.group_names):
        most, enough = float(rules.feasible[at[g]].max()), (1.0 - HEAVIER) * heaviest[g]
        for k in range(at.shape[1]):
            if most >= enough:
                break
            cost = np.zeros(at.shape)
            cost[g, k] = -1.0
            fullest = rules.program.feasible(cost)
            most = most if fullest is None else max(most, float(fullest[at[g, k]]))
        if most < enough:
            raise DataError(
                "no labels of whole rows obey the rules",
                f"{rows[g]} weighs {heaviest[g]:.4g} of all, and a cluster holds at most {most:.4g} of"
                f" its group {str(name)!r}",
                f"lower its weight, allow more, or use {soft}, whose fractions obey",
            )


def unreachable(p: FairAssignment, counts: WholeCounts, soft: str = SOFT) -> DataError:
    """Name the groups without whose whole numbers of rows the rules could hold, if none can."""
    names = p.group_names
    if not counts.impossible(time_limit=SETTLED):
        return DataError(
            "no labels of whole rows that obey the rules were found",
            "whole numbers of rows may obey them, but the search ended without labels",
            f"give more time, allow more (a larger eps, a smaller balance), or use {soft}",
        )
    blamed = [
        f"{str(name)!r} ({counts.counts[g]:.0f} rows)"
        for g, name in enumerate(names)
        if not counts.impossible(np.arange(names.size) != g, time_limit=SETTLED)
    ]
    why = (
        f"whole rows of group {' or '.join(blamed)} do not divide as the rules ask"
        if blamed
        else "whole rows of several groups together do not divide as the rules ask"
    )
    return DataError(
        "no labels of whole rows obey the rules",
        why,
        f"allow more (a larger eps, a smaller balance), or use {soft}, whose fractions obey",
    )


def warn_labelled(
    labels: HardLabels, masses: Floats | None = None, soft: str = SOFT, *, stacklevel: int
) -> None:
    """Warn where labels miss a rule, or leave clusters empty that have fractions of rows.

    Parameters
    ----------
    labels : HardLabels
    masses : array (G, K), optional
        Of the fractions.
    soft : str
        How the caller is asked for fractions.
    stacklevel : int
        Of the caller.
    """
    said = []
    if not labels.exact:
        said.append(
            f"labels miss {labels.missed!r} by {labels.violation:.2g} of it: whole rows need not add"
            f" up to what it asks; {soft} obeys by fractions"
        )
    filled = labels.masses if masses is None else masses
    empty = np.flatnonzero((filled.sum(axis=0) > 1e-15) & (labels.masses.sum(axis=0) == 0.0))
    if empty.size:
        said.append(
            f"labels leave the clusters {', '.join(map(str, empty))} empty: the rules hold for whole"
            f" rows without them; fewer clusters, a looser rule, or {soft} would say what is wanted"
        )
    for text in said:
        warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)
