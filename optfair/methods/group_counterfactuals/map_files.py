"""Maps on disk: JSON for the record, npz for the arrays, nothing pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError

Floats = NDArray[np.float64]

__all__ = ["read_map", "write_map"]

SCHEMA = 1


def write_map(path: str | Path, record: Mapping[str, Any], arrays: Mapping[str, Floats]) -> None:
    """Write ``path.json`` and ``path.npz``; existing files are not overwritten."""
    files = _files(path)
    for file in files:
        if file.exists():
            raise DataError(f"{file} exists", remedy="remove it or choose another name")
    text = json.dumps({"schema": SCHEMA, **record}, indent=2)
    files[0].write_text(text + "\n", encoding="utf-8")
    np.savez_compressed(files[1], allow_pickle=False, **dict(arrays))


def read_map(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return record and arrays of a map of a kind.

    Raises
    ------
    DataError
        Another schema, or another kind of map.
    """
    text, data = _files(path)
    record: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    if record.get("schema") != SCHEMA:
        raise DataError(
            f"{text} has schema {record.get('schema')!r}", remedy=f"write schema {SCHEMA}"
        )
    if record.get("kind") != kind:
        raise DataError(
            f"{text} holds a {record.get('kind')!r} map, not {kind!r}",
            remedy="load it with the class it was saved by",
        )
    with np.load(data, allow_pickle=False) as stored:
        return record, {name: np.asarray(stored[name], dtype=float) for name in stored.files}


def _files(path: str | Path) -> tuple[Path, Path]:
    """Return the two files of a name; dots in the name stay."""
    base = Path(path)
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")
