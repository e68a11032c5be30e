"""One thing a diagnosis found: what, in the user's names, with evidence and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optfair.core.certificate import Certificate, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Finding"]


@dataclass(frozen=True, eq=False, repr=False)
class Finding:
    """What was found, why it can be believed, and what to do.

    Parameters
    ----------
    kind : str
        conflict, relaxation, ray, nonconvexity, scaling, solution or unknown.
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

    def verify(self) -> Verdict:
        """Recompute the evidence."""
        if self.evidence is None:
            return Verdict(False, (f"no evidence goes with {self.title!r}",))
        return self.evidence.verify()

    def __str__(self) -> str:
        out = [self.title, *(f"  {line}" for line in self.lines)]
        if self.rows:
            table = [self.head, *self.rows]
            widths = [max(len(row[i]) for row in table) for i in range(len(self.head))]
            cells = ("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in table)
            out += [f"  {line}".rstrip() for line in cells]
        out += [f"  do: {remedy}" for remedy in self.remedies]
        return "\n".join(out)

    __repr__ = __str__

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
