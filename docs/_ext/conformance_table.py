"""The directive ``{conformance-table}``: solvers against classes, measured when this site is built.

It runs ``benchmarks/conformance.py --json``, so that the page shows what is true of these
versions of the solvers, and no number has to be kept up to date by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from docutils import nodes
from fact_tables import Facts, _code, _table
from sphinx.errors import ExtensionError

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "conformance.py"


@lru_cache(maxsize=1)
def measured() -> dict[str, Any]:
    """Return what the command prints; it takes some seconds, once per build."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        raise ExtensionError(f"{SCRIPT.name} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    missed = [row["name"] for row in found["must_reach"] if not row["reached"]]
    if missed:
        raise ExtensionError(f"{SCRIPT.name} did not reach: {'; '.join(missed)}")
    return found


class Conformance(Facts):
    """A row per class, a column per solver, and the versions they were measured with."""

    def content_nodes(self) -> list[nodes.Node]:
        self.env.note_dependency(str(SCRIPT))
        found = measured()
        table, versions = found["by_class"], found["environment"]["solvers"]
        solvers = [s for s in versions if any(row[s] for row in table.values())]
        rows = [[name, *(_cell(row[s]) for s in solvers)] for name, row in table.items()]
        listed = _table(["class", *solvers], rows, [16] + [8] * len(solvers))
        listed["classes"].append("narrow")
        told = [f"{name} {version}" for name, version in versions.items()]
        text = f"Measured at tolerance {found['tolerance']:g} with {', '.join(told)}."
        out: list[nodes.Node] = [listed, nodes.paragraph("", text)]
        if found["absent"]:
            absent: list[Any] = [nodes.Text("Not measured: ")]
            for i, (name, state) in enumerate(found["absent"].items()):
                why = state.removeprefix("installed, ").split(":")[0]
                absent += [nodes.Text(", ")] * bool(i) + [_code(name), nodes.Text(f" ({why})")]
            out.append(nodes.paragraph("", "", *absent, nodes.Text(".")))
        return out


def _cell(text: str) -> list[nodes.Node]:
    """Return a cell; its class gives it a colour."""
    kinds = {"": "refused", "local": "weak", "said": "weak", "proved": "proved"}
    kind = kinds.get(text, "residual" if "e-" in text else "missed")
    return [nodes.inline("", text, classes=[f"cell-{kind}"])]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("conformance-table", Conformance)
    return {"version": "1", "parallel_read_safe": True}
