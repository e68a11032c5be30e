"""The directive ``{collection-table}``: public collections, from the record that is kept here.

A run takes hours, so that it is not repeated when the site is built. The record,
``benchmarks/public_collections.json``, names commits, machines and versions; the tables are those
that ``benchmarks/public_collections.py --render`` prints. ``{collection-profiles}`` draws the
profiles of its runs.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from docutils import nodes
from fact_tables import Facts, _table

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "public_collections.py"
RECORD = SCRIPT.with_suffix(".json")


def benchmark() -> Any:
    """Return the module that makes the record: it has the tables too."""
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Collections(Facts):
    """Shares by collection, solver and tolerance; why not all are verified; what was made again."""

    def content_nodes(self) -> list[nodes.Node]:
        for file in (SCRIPT, RECORD):
            self.env.note_dependency(str(file))
        record, made_by = json.loads(RECORD.read_text(encoding="utf-8")), benchmark()
        out: list[nodes.Node] = []
        for (head, lines), widths in (
            (made_by.summary(record["runs"]), [16, 12, 10, 8, 12, 10, 8, 8]),
            (made_by.reasons(record["runs"]), [18, 12, 10, 10, 60]),
            (made_by.repeated(record["runs"]), [24, 12, 10, 20, 12]),
        ):
            out += [_table(head, lines, widths)] if lines else []
        for k, environment in enumerate(record["environments"]):
            text = ", ".join(f"{k} {v}" for k, v in environment.items())
            count = sum(run["environment"] == k for run in record["runs"])
            out.append(nodes.paragraph("", f"{count} runs were measured with {text}."))
        return out


class Profiles(Facts):
    """Performance and data profile of each collection and tolerance that several solvers ran on."""

    def content_nodes(self) -> list[nodes.Node]:
        for file in (SCRIPT, RECORD):
            self.env.note_dependency(str(file))
        made_by, out = benchmark(), list[nodes.Node]()
        runs = made_by.unpacked(json.loads(RECORD.read_text(encoding="utf-8")))
        for (group, tolerance), c in made_by.compared(runs).items():
            name = f"{group} at {tolerance:g}"
            shown = [made_by.pictured(c, name, to_best=best) for best in (True, False)]
            text = f"{name}: {len(c.problems)} problems, {', '.join(c.solvers)}."
            told = (
                f"<figure class='profile'>{''.join(shown)}<figcaption>{text}</figcaption></figure>"
            )
            out.append(nodes.raw("", told, format="html"))
        return out


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("collection-table", Collections)
    app.add_directive("collection-profiles", Profiles)
    return {"version": "1", "parallel_read_safe": True}
