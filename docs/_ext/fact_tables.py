"""Directives that print the files of facts, so that no page repeats them by hand.

``{solver-table}`` lists the solvers, ``{structure-table}`` the special algorithms,
``{capability-table}`` solvers against classes,
``{policy-table}`` the default solvers of each class and structure, ``{tolerance-table}`` what
each solver is asked for, ``{option-table}`` its options, ``{quirk-list}`` what is known about
its behaviour, ``{instance-table}`` the instances, ``{rule-table}`` the rules of convexity.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import optfair as of
from optfair.backends.registry import profiles
from optfair.registry import fact_files, load_facts

# LP < QP < ... as in the classes, integer ones after the continuous
ORDER = ("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC", "NLP")


def _code(text: str) -> nodes.literal:
    return nodes.literal(text, text)


def _codes(names: Any) -> list[nodes.Node]:
    out: list[nodes.Node] = []
    for name in names:
        out += [nodes.Text(", "), _code(name)] if out else [_code(name)]
    return out or [nodes.Text("none")]


def _table(head: list[str], rows: list[list[Any]], widths: list[int]) -> nodes.table:
    """Return a table whose cells are strings or lists of inline nodes."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=w) for w in widths]
    top, body = nodes.thead(), nodes.tbody()
    for part, lines in ((top, [head]), (body, rows)):
        for line in lines:
            row = nodes.row()
            for cell in line:
                content = cell if isinstance(cell, list) else [nodes.Text(cell)]
                row += nodes.entry("", nodes.paragraph("", "", *content))
            part += row
    group += [top, body]
    return nodes.table("", group, classes=["facts"])


class Facts(SphinxDirective):
    """Base: the page depends on the files."""

    kind = "solvers"

    def run(self) -> list[nodes.Node]:
        for path in fact_files(self.kind).values():
            self.env.note_dependency(str(path))
        return self.content_nodes()

    def content_nodes(self) -> list[nodes.Node]:
        raise NotImplementedError


class SolverFacts(Facts):
    def content_nodes(self) -> list[nodes.Node]:
        known = profiles()
        rows = [
            [
                [_code(row["solver"])],
                row["title"],
                row["classes"],
                ", ".join(row["returns"]),
                row["licence"],
            ]
            for row in of.solvers().to_list()
            if not known[row["solver"]].structure
        ]
        head = ["solver", "what it is", "takes", "returns", "licence"]
        return [_table(head, rows, [18, 30, 24, 16, 12])]


class StructureFacts(Facts):
    """Special algorithms of this library: what they need, and what they do with it."""

    def content_nodes(self) -> list[nodes.Node]:
        rows = [
            [[_code(p.name)], [_code(p.structure)], p.title, ", ".join(p.classes)]
            for p in profiles().values()
            if p.structure
        ]
        return [_table(["algorithm", "structure", "what it is", "takes"], rows, [22, 20, 34, 24])]


class CapabilityFacts(Facts):
    """Solvers against classes: what the profiles claim and the conformance tests try."""

    def content_nodes(self) -> list[nodes.Node]:
        known = [p for p in profiles().values() if not p.structure]
        classes = list(dict.fromkeys(c for p in known for c in p.classes))
        classes.sort(
            key=lambda c: (
                c.startswith("MI"),
                ORDER.index("LP" if c == "MILP" else c.removeprefix("MI")),
            )
        )
        rows = []
        for p in known:
            cells: list[Any] = ["yes" if c in p.classes else "" for c in classes]
            rows.append([[_code(p.name)], *cells, p.nonconvex])
        listed = _table(["solver", *classes, "nonconvex"], rows, [14] + [7] * len(classes) + [10])
        listed["classes"].append("narrow")
        return [listed]


class OptionFacts(Facts):
    """What time_limit, threads, seed and a warm start are for each solver."""

    def content_nodes(self) -> list[nodes.Node]:
        rows = []
        for p in profiles().values():
            names: list[Any] = [
                [_code(p.options[o])] if o in p.options else "refused"
                for o in ("time_limit", "threads", "seed")
            ]
            rows.append([[_code(p.name)], *names, "used" if p.warm_start else "starts anew"])
        head = ["solver", "time_limit", "threads", "seed", "warm_start"]
        return [_table(head, rows, [18, 28, 18, 20, 16])]


class PolicyFacts(Facts):
    def content_nodes(self) -> list[nodes.Node]:
        policy, known = load_facts(fact_files("solvers")["_policy"]), profiles()
        rows: list[list[Any]] = []
        for name in policy["structures"]:
            structure = known[name].structure
            rows.append([[nodes.Text("structure "), _code(structure)], [_code(name)], "by class"])
        for kind, before in (("classes", "class "), ("nonconvex", "nonconvex ")):
            for word, order in policy[kind].items():
                quick = policy["integers"]["solver"]  # a little of it comes first
                first = kind == "classes" and quick in order[1:]
                names = [quick, *order] if first else order
                rows.append([before + word, [_code(names[0])], _codes(names[1:])])
        return [_table(["problem", "default", "then"], rows, [30, 30, 40])]


class ToleranceFacts(Facts):
    def content_nodes(self) -> list[nodes.Node]:
        rows = []
        for p in profiles().values():
            asked = dict(p.tolerance)
            share, smallest = asked.pop("share", 1.0), asked.pop("smallest", None)
            if asked:
                least = "none" if smallest is None else f"{smallest:g}"
                rows.append([[_code(p.name)], f"{share:g}", least, _codes(asked.values())])
        head = ["solver", "share", "smallest", "options that receive it"]
        return [_table(head, rows, [20, 10, 12, 58])]


class QuirkFacts(Facts):
    def content_nodes(self) -> list[nodes.Node]:
        listing = nodes.definition_list()
        for p in profiles().values():
            if not p.quirks:
                continue
            inner = nodes.bullet_list()
            for text in p.quirks.values():
                inner += nodes.list_item("", nodes.paragraph("", text))
            listing += nodes.definition_list_item(
                "", nodes.term("", "", _code(p.name)), nodes.definition("", inner)
            )
        return [listing]


class InstanceFacts(Facts):
    kind = "problems"

    def content_nodes(self) -> list[nodes.Node]:
        rows = []
        for name in of.library.names():
            i = of.library.load(name)
            by = ""
            if i.optimum is not None:
                by = i.optimum.certified_by
            elif i.infeasible is not None:
                by = f"infeasible, {i.infeasible.certified_by}"
            rows.append([[_code(name)], [_code(i.model)], i.problem_class, by])
        head = ["instance", "model", "class", "certified by"]
        return [_table(head, rows, [42, 24, 16, 18])]


class RuleTable(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        from optfair.convexity.proof import rule_table

        rows = []
        for name, theorem, example in rule_table():
            parts = [p.strip() for p in example.split("|")]
            where = f" on {parts[1]}" if len(parts) > 1 and parts[1] else ""
            rows.append([name, theorem, [_code(parts[0]), nodes.Text(where)]])
        return [_table(["rule", "theorem", "example"], rows, [20, 50, 30])]


def setup(app: Any) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("solver-table", SolverFacts)
    app.add_directive("structure-table", StructureFacts)
    app.add_directive("capability-table", CapabilityFacts)
    app.add_directive("option-table", OptionFacts)
    app.add_directive("policy-table", PolicyFacts)
    app.add_directive("tolerance-table", ToleranceFacts)
    app.add_directive("quirk-list", QuirkFacts)
    app.add_directive("instance-table", InstanceFacts)
    app.add_directive("rule-table", RuleTable)
    return {"version": "1", "parallel_read_safe": True}
