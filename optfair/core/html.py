"""Results as HTML, for notebooks: tables and what folds, with every text escaped and no script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optfair.core.certificate import Certificate, Verdict
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

# Rows that a notebook shows of a table.
SHOWN = 20


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; what is behind the first rows is counted.

    Examples
    --------
    >>> table(("a",), [("<b>",)])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    cells = [[html.escape(str(c)) for c in row] for row in rows]
    body = "".join(
        "<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in cells[:SHOWN]
    )
    first = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    more = f"<p>and {len(cells) - SHOWN} more</p>" if len(cells) > SHOWN else ""
    return f"<table><tr>{first}</tr>{body}</table>{more}"


def folded(title: str, inside: str) -> str:
    """Return HTML that unfolds at a click."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def lines(text: str) -> str:
    """Return text as it stands, its first line bold."""
    first, _, rest = text.partition("\n")
    return f"<p><b>{html.escape(first)}</b></p>" + (
        f"<pre>{html.escape(rest)}</pre>" if rest else ""
    )


def problem(p: Problem) -> str:
    """Return class, variables and terms of a problem; its formulas and proofs unfold."""
    called = p.title or type(p).__name__
    sizes = [
        (name, "×".join(map(str, v.shape)) or "scalar", "integer" if name in p.integers else "")
        for name, v in p.variables.items()
    ]
    rows = [
        (
            t.name,
            t.evidence.function,
            t.evidence.set or p.sense,
            str(t.evidence.problem_class),
        )
        for t in p.terms
    ]
    proofs = "".join(
        folded(f"proof of {t.name}: {t.evidence.proof}", t.evidence.proof._repr_html_())
        for t in p.terms
        if t.evidence.proof is not None
    )
    witness = "" if p.witness is None else f"<p>{html.escape(str(p.witness))}</p>"
    return (
        f"<p><b>{html.escape(called)}</b>: {html.escape(str(p.problem_class))}, {p.sense}</p>"
        + table(("variable", "shape", ""), sizes)
        + table(("term", "function", "set", "class"), rows)
        + witness
        + proofs
        + folded("formulas", html.escape(p._repr_latex_()))
    )


def solution(s: Solution) -> str:
    """Return objective, bound and grade of a solution; values and prices unfold."""
    facts = [
        ("objective", f"{s.objective:.10g}"),
        ("bound", f"{s.bound:.10g}, gap {s.gap:.1e}"),
        ("grade", s.grade),
        ("solver", f"{s.solver} {s.version}"),
        ("seconds", f"{sum(s.seconds.values()):.3f}"),
        *(("before", a) for a in s.attempts),
    ]
    called = s.problem.title or type(s.problem).__name__
    return (
        f"<p><b>Solution of {html.escape(called)}</b>: {html.escape(str(s.status))}</p>"
        + table(("", ""), facts)
        + folded("values", table(("name", "largest", "values"), _numbers(s.values)))
        + folded("shadow prices", table(("name", "largest", "prices"), _numbers(s.shadow_price)))
    )


def _numbers(numbers: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    import numpy as np

    rows = []
    for name in numbers:
        array = np.asarray(numbers[name], dtype=float) + 0.0
        text = np.array2string(array, precision=6, threshold=12, max_line_width=90)
        largest = float(np.abs(array).max(initial=0.0))
        rows.append((name, f"{largest:.6g}", text))
    return rows


def verdict(v: Verdict) -> str:
    """Return what a verification says."""
    reasons = "".join(f"<li>{html.escape(r)}</li>" for r in v.reasons)
    word = f"verified {v.grade.limits}".strip() if v.ok else "NOT verified"
    return f"<p><b>{html.escape(word)}</b></p>" + (f"<ul>{reasons}</ul>" if reasons else "")


def certificate(c: Certificate) -> str:
    """Return what a certificate states, and its verification."""
    return f"<p>{html.escape(type(c).__name__)}: {html.escape(str(c))}</p>{verdict(c.verify())}"
