"""Files that commands write: looked at before anything is solved, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from optfair.errors import DataError

__all__ = ["check_output", "write_files"]


def check_output(option: str, path: Path, force: bool) -> None:
    """Raise unless a file can be written.

    Raises
    ------
    DataError
        Its folder does not exist, it is a folder, it exists, or it may not be written.
    """
    if not path.parent.is_dir():
        raise DataError(
            f"{option} {path} is in a folder that does not exist",
            f"there is no folder {path.parent}",
            "make it, or choose another",
        )
    if path.is_dir():
        raise DataError(f"{option} {path} is a folder", remedy="give the name of a file")
    if path.exists() and not force:
        raise DataError(f"{option} {path} exists", remedy="choose another name, or --force")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise DataError(f"{option} {path} cannot be written", remedy="choose another place")


def write_files(texts: Mapping[Path, str]) -> None:
    """Write each file in one step, so that none is left half written."""
    for path, text in texts.items():
        try:
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", newline="", dir=path.parent, suffix=path.suffix, delete=False
            ) as f:
                f.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(f.name, 0o666 & ~mask)
            os.replace(f.name, path)
        except OSError as e:
            raise DataError(
                f"{path} cannot be written", e.strerror or str(e), "choose another place"
            ) from None
