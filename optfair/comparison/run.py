"""One run: what was asked of one solver, what became of it, where, and how it is kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.errors import DataError

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile

__all__ = [
    "ANSWERS",
    "OUTCOMES",
    "Run",
    "Store",
    "environment",
    "finite",
]


# One run: what was asked of one solver, and what became of it.

# From best to worst. "solved" and "infeasible" are answers that were verified here; "refused"
# says that the solver was not asked.
OUTCOMES = ("solved", "infeasible", "local", "time_limit", "failed", "crashed", "refused")
ANSWERS = ("solved", "infeasible")


def finite(value: Any) -> float | None:
    """Return a number, None when it is not finite: JSON has no other."""
    number = float(value)
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Run:
    """One solver on one problem.

    Attributes
    ----------
    problem, problem_class : str
        What was to be solved.
    solver, version : str
        By whom.
    repeat : int
        Counted from 0.
    outcome : str
        "solved": every residual, recomputed here, is within the tolerance. "infeasible": a
        certificate was verified. "local": a feasible point that its solver calls locally
        optimal, without a bound. "time_limit": not within the limit, so ``seconds`` is a
        lower bound. "failed": it returned nothing that passes. "crashed": its process died
        or an exception was raised. "refused": it does not take the problem.
    reason : str
        Why it is not "solved".
    tolerance, time_limit : float
        What was asked.
    seconds, cpu_seconds : float or None
        Of the whole call, verification included; wall time and time of all threads.
    megabytes, megabytes_added : float or None
        Peak memory of the process; what the call added to what was there.
    objective, bound, feasibility, dual, gap : float or None
        Of the point returned, by our residuals.
    grade : str
        What the bound rests on: "proved", "proved for |x| ≤ R", or "reported by SOLVER".
    stated : float or None
        Certified optimum of the instance.
    phases : dict
        Seconds of choose, compile, solve, recover and verify.
    fingerprint : str
        Of the problem as declared; empty where nothing was kept.
    environment : dict
        Versions and machine.
    """

    problem: str
    problem_class: str
    solver: str
    version: str
    repeat: int
    outcome: str
    reason: str
    tolerance: float
    time_limit: float
    seconds: float | None = None
    cpu_seconds: float | None = None
    megabytes: float | None = None
    megabytes_added: float | None = None
    objective: float | None = None
    bound: float | None = None
    feasibility: float | None = None
    dual: float | None = None
    gap: float | None = None
    grade: str = ""
    stated: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer that was verified."""
        return self.outcome in ANSWERS

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """Return the run that `to_dict` wrote.

        Raises
        ------
        DataError
            Fields are missing or unknown, or there is no such outcome.
        """
        known = {f.name for f in fields(cls)}
        odd = sorted(set(record) ^ known)
        if odd or record["outcome"] not in OUTCOMES:
            raise DataError(
                "this is not the record of a run",
                f"fields {', '.join(odd)}" if odd else f"outcome {record['outcome']!r}",
                "give what Comparison.save wrote",
            )
        return cls(**record)

    def row(self) -> dict[str, Any]:
        """Return one flat row for a table; phases and environment become columns."""
        flat = {k: v for k, v in self.to_dict().items() if k not in ("phases", "environment")}
        flat |= {f"seconds_{name}": seconds for name, seconds in self.phases.items()}
        return flat | {f"environment_{k}": v for k, v in self.environment.items()}


# Runs in a folder, so that a comparison goes on where it was stopped.


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


# Where runs were made: versions and machine.

PACKAGES = ("cvxpy", "numpy", "scipy")


@lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    """Return versions and machine, by name; nothing in it names a person or a host."""
    from optfair import __version__

    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "optfair": __version__,
        "python": platform.python_version(),
        **found,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
