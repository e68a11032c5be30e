"""Findings on numbers: scaling out of proportion, and what could be left out."""

from __future__ import annotations

from optfair.diagnosis.finding import Finding
from optfair.diagnosis.scaling import Scaling

__all__ = ["redundancy_finding", "scaling_finding"]

SHOWN = 10


def scaling_finding(scaling: Scaling) -> Finding | None:
    """Return what is out of proportion, None when nothing is."""
    if not scaling.faults:
        return None
    rows = [
        ("constraint", name, str(scaling.terms[name]), str(scaling.sides[name]))
        for name in scaling.worst_terms[:SHOWN]
    ]
    rows += [("row", f"{name}, row {i}", str(r), "") for name, i, r in scaling.rows]
    wide = sorted(scaling.columns, key=lambda k: -scaling.columns[k].ratio)
    rows += [("variable", name, str(scaling.columns[name]), "") for name in wide[:SHOWN]]
    if any(scaling.columns[name].ratio > 1e4 for name in wide):
        rows += [("entry", name, f"up to {r.largest:.1e}", "") for name, r in scaling.entries]
    rows.append(("objective", "", str(scaling.objective), ""))
    return Finding(
        "scaling",
        "the numbers are out of proportion: solvers lose digits on such data",
        scaling.faults,
        ("what", "name", "coefficients", "right-hand side"),
        tuple(rows),
        scaling.suggestions,
        scaling,
        scaling.to_dict(),
    )


def redundancy_finding(scaling: Scaling) -> Finding | None:
    """Return rows that repeat others and variables that nothing holds, None without any."""
    lines = [
        f"{second!r} has a row that {'repeats another of its own' if first == second else f'is also in {first!r}'}"
        for first, second in scaling.copies
    ]
    if scaling.unused:
        lines.append(f"no term uses {', '.join(map(repr, scaling.unused))}")
    if scaling.free and scaling.terms:  # without any constraint that is what was meant
        lines.append(f"no constraint uses {', '.join(map(repr, scaling.free))}")
    if not lines:
        return None
    return Finding(
        "redundancy",
        "some of it could be left out, or is not what was meant",
        tuple(lines),
        evidence=scaling,
        numbers={
            "copies": [list(pair) for pair in scaling.copies],
            "unused": list(scaling.unused),
            "free": list(scaling.free),
        },
    )
