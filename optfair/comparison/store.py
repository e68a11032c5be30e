"""Runs in a folder, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.comparison.run import Run
from optfair.errors import DataError

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile

__all__ = ["Store"]


class Store:
    """A folder with one file per run.

    Parameters
    ----------
    folder : path
        Made where it does not exist.

    Raises
    ------
    DataError
        It is a file, or cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.runs = self.folder / "runs"
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise DataError(
                f"the folder {str(folder)!r} cannot be made",
                e.strerror or str(e),
                "choose another place",
            ) from None
        if not os.access(self.runs, os.W_OK):
            raise DataError(f"the folder {str(folder)!r} cannot be written")

    def key(self, problem: str, profile: SolverProfile, tolerance: float, repeat: int) -> str:
        """Return the name of a run: everything that decides its result, but the time limit."""
        from optfair import __version__

        facts = (dict(profile.tolerance), dict(profile.fixed), dict(profile.options))
        parts = (problem, profile.name, profile.version, facts, tolerance, repeat, __version__)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def read(self, key: str, time_limit: float) -> Run | None:
        """Return a run that still says what happens within this limit, else None."""
        try:
            run = Run.from_dict(json.loads((self.runs / f"{key}.json").read_text("utf-8")))
        # what is not there, or is not ours, is made again
        except (OSError, ValueError, KeyError, TypeError, DataError):
            return None
        if run.outcome == "crashed":  # memory or an installation may be better now
            return None
        same = run.time_limit == time_limit
        done = run.outcome != "time_limit" and (run.seconds or 0.0) <= min(
            time_limit, run.time_limit
        )
        return run if same or done else None

    def write(self, key: str, run: Run) -> None:
        """Keep a run; the file is there whole or not at all."""
        _write(self.runs / f"{key}.json", json.dumps(run.to_dict(), indent=1))


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(name, path)


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Raises
    ------
    DataError
        It is not there, or not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as e:
        raise DataError(f"{path} cannot be read", e.strerror or str(e)) from None
    except ValueError as e:
        raise DataError(f"{path} is not JSON", str(e)) from None
