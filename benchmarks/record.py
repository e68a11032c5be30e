"""What every benchmark states beside its figures: where it ran, and which targets it reached."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

import optfair as of

__all__ = ["environment", "targets_table"]


def environment() -> dict[str, Any]:
    """Return versions and machine, for the record beside the figures."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "optfair": of.__version__,
    }


def targets_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of targets and what was measured, in Markdown.

    Parameters
    ----------
    rows : iterable of mapping
        With name, target, measured and reached; measured is None where something is missing, which
        the row may name.
    """
    lines = ["| must reach | target | measured | |", "|---|---:|---:|---|"]
    for row in rows:
        word = row.get("missing") or ("reached" if row["reached"] else "NOT reached")
        target, measured = (
            f"{v:.4g}" if isinstance(v, (int, float)) else "–" if v is None else v
            for v in (row["target"], row["measured"])
        )
        name = row["name"].replace("|", "\\|")
        lines.append(f"| {name} | {target} | {measured} | {word} |")
    return "\n".join(lines)
