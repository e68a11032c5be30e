"""What a diagnosis returns: findings with evidence, as text, as a table, as JSON."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from optfair.core import display
from optfair.core.certificate import Certificate, Verdict
from optfair.errors import NoSuchName, nearest, say_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optfair.core.problem import Problem

# One thing a diagnosis found: what, in the user's names, with evidence and a remedy.


@dataclass(frozen=True, eq=False, repr=False)
class Finding:
    """What was found, why it can be believed, and what to do.

    Parameters
    ----------
    kind : str
        conflict, relaxation, ray, unbounded, nonconvexity, scaling, solution, unattained or
        unknown.
    title : str
        One sentence.
    lines : tuple of str
        Further sentences.
    head, rows : tuples
        A table: column names, and rows of text.
    remedies : tuple of str
        What to do.
    evidence : Certificate or None
        Recomputes the finding; None for a remark.
    numbers : mapping
        The same in numbers, for JSON.
    """

    kind: str
    title: str
    lines: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    remedies: tuple[str, ...] = ()
    evidence: Certificate | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        say_names(self, numbers="number")

    def verify(self) -> Verdict:
        """Recompute the evidence."""
        if self.evidence is None:
            return Verdict(False, (f"no evidence goes with {self.title!r}",))
        return self.evidence.verify()

    def __str__(self) -> str:
        out = [self.title, *(f"  {line}" for line in self.lines)]
        if self.rows:
            out += [f"  {line}" for line in display.text_table([self.head, *self.rows])]
        out += [f"  do: {remedy}" for remedy in self.remedies]
        return "\n".join(out)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        do = "".join(f"<p>do: {escape(remedy)}</p>" for remedy in self.remedies)
        rows = display.html_table(self.head, self.rows) if self.rows else ""
        return display.html_lines("\n".join([self.title, *self.lines])) + rows + do

    def to_dict(self) -> dict[str, Any]:
        """Return the finding, ready for JSON, with the outcome of its verification."""
        verdict = self.verify()
        return {
            "kind": self.kind,
            "title": self.title,
            "lines": list(self.lines),
            "table": [dict(zip(self.head, row, strict=True)) for row in self.rows],
            "remedies": list(self.remedies),
            "evidence": None if self.evidence is None else str(self.evidence),
            "verified": bool(verdict),
            "reasons": list(verdict.reasons),
            "numbers": dict(self.numbers),
        }

    def __rich__(self) -> RenderableType:
        """Return the finding as a table for the terminal."""
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = [Text(self.title, style="bold")]
        parts += [Text(f"  {line}") for line in self.lines]
        if self.rows:
            grid = Table(box=None, padding=(0, 2), header_style="bold")
            for name in self.head:
                grid.add_column(escape(name), overflow="fold")
            for row in self.rows:
                grid.add_row(*(escape(cell) for cell in row))
            parts.append(grid)
        parts += [Text(f"  do: {remedy}", style="green") for remedy in self.remedies]
        return Group(*parts)


# What a diagnosis returns: findings with evidence, as text, as a table, as JSON.


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Why a problem has no solution, or that it has one.

    Attributes
    ----------
    problem : Problem
        What was looked at.
    verdict : str
        fine, infeasible, weakly infeasible, unbounded, nonconvex, unverified (convexity), badly
        scaled, or unknown.
    findings : tuple of Finding
        Each with evidence that `Finding.verify` recomputes.
    checked : tuple of str
        What was looked at, in order.
    stopped : str
        "time_limit" or "interrupted" when the search ended early, else empty.
    seconds : float
        Wall time.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [cp.sum(x) >= 3, x <= 1]), ["demand", "limit"])
    >>> d = p.diagnose()
    >>> d.verdict, bool(d.verify())
    ('infeasible', True)
    >>> print(str(d.findings[0]).splitlines()[0])
    these 2 constraints exclude each other: 'demand', 'limit'
    """

    problem: Problem
    verdict: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    stopped: str = ""
    seconds: float = 0.0

    def _repr_html_(self) -> str:
        parts = "".join(finding._repr_html_() for finding in self.findings)
        stopped = f" ({self.stopped})" if self.stopped else ""
        looked = display.html_text("\n".join(self.checked))
        checked = display.html_folded("what was looked at", looked)
        return display.html_lines(f"{self.verdict}{stopped}") + parts + checked

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, kind: str) -> Finding:
        for finding in self.findings:
            if finding.kind == kind:
                return finding
        raise NoSuchName(
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
        called = self.problem.title
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


# Entries of variables as people write them: x[2] = 1.5.

# Entries shown in a text; the largest come first.
SHOWN = 8


def listed(
    values: Mapping[str, Any],
    *,
    nonzero: bool = False,
    label: Callable[[str, tuple[int, ...]], str] = lambda _, index: ", ".join(map(str, index)),
) -> str:
    """Return the entries by index or label, the largest when there are too many.

    Examples
    --------
    >>> listed({"x": [0.0, 2.0], "t": 1.0}, nonzero=True)
    'x[1] = 2, t = 1'
    """
    cells = []
    for name, value in values.items():
        x = np.asarray(value, dtype=float)
        for index in np.ndindex(x.shape):
            where = f"[{label(name, index)}]" if index else ""
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
    numbers: dict[str, Any] = {}
    for name, value in values.items():
        x = np.asarray(value, dtype=float)
        numbers[name] = x.tolist() if x.size <= most else {"shape": list(x.shape)}
    return numbers


# The time a diagnosis has, and why it stopped early.

Answer = TypeVar("Answer")


class Clock:
    """Wall seconds over a whole diagnosis; remembers that it was stopped by hand.

    Parameters
    ----------
    time_limit : float or None
        Wall seconds.

    Examples
    --------
    >>> clock = Clock(None)
    >>> clock.run(lambda: 1), clock.stopped
    (1, '')
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.began = time.perf_counter()
        self.deadline = None if time_limit is None else self.began + float(time_limit)
        self.interrupted = False

    @property
    def seconds(self) -> float:
        """Seconds since the diagnosis began."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least a millisecond; None without a limit."""
        if self.deadline is None:
            return None
        return max(1e-3, self.deadline - time.perf_counter())

    @property
    def stopped(self) -> str:
        """Why to stop: "interrupted", "time_limit", or empty."""
        if self.interrupted:
            return "interrupted"
        late = self.deadline is not None and time.perf_counter() >= self.deadline
        return "time_limit" if late else ""

    def run(self, step: Callable[[], Answer]) -> Answer | None:
        """Return the result of a step, None when it was stopped by hand or may not begin."""
        if self.stopped:
            return None
        try:
            return step()
        except KeyboardInterrupt:  # what was found before stays
            self.interrupted = True
            return None
