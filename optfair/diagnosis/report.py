"""What a diagnosis returns: findings with evidence, as text, as a table, as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optfair.core.certificate import Verdict
from optfair.diagnosis.finding import Finding
from optfair.errors import DeclarationError, nearest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optfair.core.problem import Problem

__all__ = ["Diagnosis"]


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Why a problem has no solution, or that it has one.

    Attributes
    ----------
    problem : Problem
        What was looked at.
    verdict : str
        fine, infeasible, unbounded, nonconvex, unverified (convexity), badly scaled, or
        unknown.
    findings : tuple of Finding
        Each with evidence that `Finding.verify` recomputes.
    checked : tuple of str
        What was looked at, in order.
    stopped : str
        "time_limit" or "interrupted" when the search ended early, else empty.
    seconds : float
        Wall time.
    """

    problem: Problem
    verdict: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    stopped: str = ""
    seconds: float = 0.0

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, kind: str) -> Finding:
        for finding in self.findings:
            if finding.kind == kind:
                return finding
        raise DeclarationError(
            f"the diagnosis has no finding {kind!r}",
            remedy=nearest(kind, [finding.kind for finding in self.findings]),
        )

    def __contains__(self, kind: object) -> bool:
        return any(finding.kind == kind for finding in self.findings)

    @property
    def conflict(self) -> tuple[str, ...]:
        """Names of the constraints that exclude each other, empty when there are none."""
        return tuple(self["conflict"].numbers["names"]) if "conflict" in self else ()

    def verify(self) -> Verdict:
        """Recompute the evidence of every finding that has some."""
        reasons: list[str] = []
        for finding in self.findings:
            if finding.evidence is not None:
                reasons += [f"{finding.kind}: {r}" for r in finding.verify().reasons]
        return Verdict(not reasons, tuple(reasons))

    @property
    def _title(self) -> str:
        called = self.problem.title or type(self.problem).__name__
        ended = {"time_limit": "the time limit came first", "interrupted": "it was interrupted"}
        early = f" ({ended[self.stopped]})" if self.stopped else ""
        return f"Diagnosis of {called}, {self.problem.problem_class}: {self.verdict}{early}"

    @property
    def _footer(self) -> str:
        text = f"checked in {self.seconds:.2f} s: {'; '.join(self.checked)}"
        return textwrap.fill(text, 100, subsequent_indent="  ")

    def __str__(self) -> str:
        return "\n".join([self._title, *map(str, self.findings), self._footer])

    __repr__ = __str__

    def __rich__(self) -> RenderableType:
        """Return the findings one under the other, for the terminal."""
        from rich.console import Group
        from rich.text import Text

        colour = {"fine": "bold green"}.get(self.verdict, "bold red")
        parts: list[RenderableType] = [Text(self._title, style=colour)]
        parts += [finding.__rich__() for finding in self.findings]
        return Group(*parts, Text(self._footer, style="dim"))

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "verdict": self.verdict,
            "class": str(self.problem.problem_class),
            "findings": [finding.to_dict() for finding in self.findings],
            "checked": list(self.checked),
            "stopped": self.stopped,
            "seconds": self.seconds,
        }
