"""Read text files line by line; errors name the file and the line."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

from optfair.errors import DataError

__all__ = ["Source"]

# what is no bound: the field writes infinity as 1e30 or 1e20
_INFINITE = 1e20


class Source:
    """The lines of a file, with the position for messages.

    Parameters
    ----------
    path : Path
        File, compressed if its name ends in ``.gz``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        try:
            raw = path.read_bytes()
            data = gzip.decompress(raw) if path.suffix == ".gz" else raw
            self.lines = data.decode("utf-8").splitlines()
        except FileNotFoundError:
            raise DataError(f"there is no file {path}", remedy="check the path") from None
        except (OSError, EOFError, UnicodeDecodeError) as e:
            raise DataError(
                f"{path} cannot be read", str(e), "give a text file, or one compressed by gzip"
            ) from e

    def fail(self, reason: str, remedy: str = "correct the file") -> DataError:
        """Return an error about the current line."""
        text = self.lines[self.line - 1].strip() if 0 < self.line <= len(self.lines) else ""
        shown = text if len(text) <= 100 else text[:97] + "..."
        return DataError(f"{self.path}, line {self.line}: {reason}", shown, remedy)

    def number(self, text: str, *, bound: bool = False) -> float:
        """Return a finite number; a bound may be infinite."""
        try:
            value = float(text)
        except ValueError:
            raise self.fail(f"{text!r} is not a number") from None
        if bound and abs(value) >= _INFINITE:
            return math.copysign(math.inf, value)
        if not math.isfinite(value):
            raise self.fail(f"{text!r} is not a finite number")
        return value

    def integer(self, text: str) -> int:
        """Return an integer of at least 0."""
        if not text.isdigit():
            raise self.fail(f"{text!r} is not a count")
        return int(text)
