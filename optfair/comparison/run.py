"""One run: what was asked of one solver, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from optfair.errors import DataError

__all__ = ["ANSWERS", "OUTCOMES", "Run", "finite"]

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
