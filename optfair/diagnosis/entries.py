"""Entries of variables as people write them: x[2] = 1.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["listed", "plain"]

# Entries shown in a text; the largest come first.
SHOWN = 8


def listed(values: Mapping[str, Any], *, nonzero: bool = False) -> str:
    """Return the entries, the largest when there are too many.

    Examples
    --------
    >>> listed({"x": [0.0, 2.0], "t": 1.0}, nonzero=True)
    'x[1] = 2, t = 1'
    """
    cells = []
    for name, value in values.items():
        x = np.asarray(value, dtype=float)
        for index in np.ndindex(x.shape):
            where = f"[{', '.join(map(str, index))}]" if index else ""
            if not nonzero or x[index] != 0.0:
                cells.append((f"{name}{where}", float(x[index])))
        if len(cells) > 100_000:
            break
    if len(cells) > SHOWN:
        largest = sorted(cells, key=lambda c: -abs(c[1]))[:SHOWN]
        more = f" and {len(cells) - SHOWN} more entries"
        return ", ".join(f"{k} = {v:.6g}" for k, v in largest) + more
    return ", ".join(f"{k} = {v:.6g}" for k, v in cells)


def plain(values: Mapping[str, Any], most: int = 1000) -> dict[str, Any]:
    """Return small arrays as nested lists and of large ones the shape, for JSON."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        x = np.asarray(value, dtype=float)
        found[name] = x.tolist() if x.size <= most else {"shape": list(x.shape)}
    return found
