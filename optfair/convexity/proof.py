"""What is answered about curvature: a proof, which is checked again step by step, chords that refute it, or where the search stopped."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.convexity import hessians, powers, rules, theorems
from optfair.convexity.algebra import Algebra
from optfair.convexity.derivatives import Jet, evaluate
from optfair.convexity.domain import IMPLIED, Domain, Fact
from optfair.convexity.expression import Leaf, Node, Opaque, select, text
from optfair.convexity.intervals import Interval
from optfair.convexity.reading import demanded, read
from optfair.convexity.rules import RULES, Goal, Kind
from optfair.core.display import html_text
from optfair.errors import OptfairError
from optfair.numbers import Floats
from optfair.plots import draw_chords, new_axes, plain, tidy

if TYPE_CHECKING:
    from optfair.core.certificate import Verdict


# Checks proofs again: every step by its rule, on ranges computed anew. Searches for nothing.

#: The modules whose rules a step may name, in the order in which they are tried.
TABLES = (rules, powers, hessians, theorems)
rules.arrange([table.__name__ for table in TABLES])


@dataclass(frozen=True, eq=False)
class Step:
    """A claim, the rule it follows by, and the steps it follows from.

    Attributes
    ----------
    goal : Goal
        What is claimed.
    rule : str
        Name of the rule.
    premises : tuple of Step
        What the rule asks for, in its order.
    data : object
        What the search chose: a part, a denominator, boxes, a matrix.
    """

    goal: Goal
    rule: str
    premises: tuple[Step, ...] = ()
    data: Any = None

    @property
    def node(self) -> Node:
        """What it is about."""
        return self.goal.node

    @property
    def kind(self) -> Kind:
        """What is claimed of it."""
        return self.goal.kind

    def __len__(self) -> int:
        return 1 + sum(len(p) for p in self.premises)


def faults(step: Step, domain: Domain) -> tuple[str, ...]:
    """Return what is wrong with a proof on a domain; nothing when it holds.

    Parameters
    ----------
    step : Step
        The proof.
    domain : Domain
        Where.
    """
    if domain.empty:
        return ("the facts exclude each other",)
    return tuple(_faults(step, domain, {}))


def _faults(step: Step, domain: Domain, known: dict[Any, bool]) -> list[str]:
    if step.goal.boxes:
        domain, known = domain.extended(boxes=dict(step.goal.boxes)), {}
    if known.get(id(step)):
        return []
    own = RULES.get(step.rule)
    if own is None:
        return [f"there is no rule {step.rule!r}"]
    goals = own.needs(step.node, step.kind, Algebra(domain), step.data)
    if goals is None:
        return [f"{step.rule!r} does not show that {text(step.node)} is {step.kind}"]
    if [g.key for g in goals] != [p.goal.key for p in step.premises]:
        return [f"{step.rule!r} asks for other premises of {text(step.node)}"]
    faults = [fault for p in step.premises for fault in _faults(p, domain, known)]
    if not faults:
        known[id(step)] = True
    return faults


# Chords that refute curvature, and points within a domain: shown by enclosures, nothing is searched.


@dataclass(frozen=True, eq=False)
class Chord:
    """Two points whose midpoint refutes convexity, or concavity, of one entry.

    Attributes
    ----------
    kind : {"convex", "concave"}
        What is refuted.
    first, second : dict
        Values of whole leaves at both ends; the midpoint is exact.
    entry : int
        The entry it is about.
    ends, middle : tuple of float
        Enclosures of the mean of both values and of the value between.
    """

    kind: Kind
    first: dict[Leaf, Floats]
    second: dict[Leaf, Floats]
    entry: int
    ends: tuple[float, float]
    middle: tuple[float, float]

    @property
    def gap(self) -> float:
        """By how much at least the value in the middle is on the wrong side."""
        if self.kind == "convex":
            return self.middle[0] - self.ends[1]
        return self.ends[0] - self.middle[1]

    def recomputed(self, node: Node, domain: Domain, asked: Sequence[Fact] = ()) -> Chord | None:
        """Return the chord with values computed anew, None where an end is not within."""
        return exact_chord(node, domain, self.kind, self.entry, self.first, self.second, asked)


def values(node: Node, leaves: dict[Leaf, Interval]) -> Interval | None:
    """Return enclosures (m, K) of a node from those of its leaves (size, K)."""
    jets = {leaf: Jet(x[:, None]) for leaf, x in leaves.items()}
    if not jets:
        return None
    with np.errstate(all="ignore"):
        evaluated = evaluate(node, jets)
    return None if evaluated is None else evaluated.c[:, 0]


def obeyed(
    point: Mapping[Leaf, Any], domain: Domain, count: int, *, beside: bool = True
) -> NDArray[np.bool_]:
    """Return which points (size, K) obey all facts, as enclosures show."""
    keep = np.ones(count, dtype=bool)
    for fact in (*domain.facts, *(domain.beside if beside else ())):
        if not fact.node.leaves <= point.keys():
            continue
        evaluated = values(fact.node, {n: Interval.exactly(point[n]) for n in fact.node.leaves})
        if evaluated is None:
            return np.zeros(count, dtype=bool)
        keep &= (evaluated.high <= 0.0).all(axis=0)
        if fact.zero:
            keep &= (evaluated.low >= 0.0).all(axis=0)
    return keep


def within(point: dict[Leaf, Floats], domain: Domain) -> bool:
    """Return whether a point of some leaves obeys, exactly, all facts about these alone."""
    if not all(domain.box(leaf).contains(x) for leaf, x in point.items()):
        return False
    shaped = {n: x[:, None] for n, x in point.items()}
    return bool(obeyed(shaped, domain, 1, beside=False).all())


def _defined(three: Mapping[Leaf, Interval], domain: Domain, asked: Sequence[Fact]) -> bool:
    """Return whether points obey what functions ask of their arguments, whatever other leaves are."""
    for fact in asked:
        if fact.node.leaves:
            whole = {
                n: three[n] if n in three else _everywhere(domain.box(n)) for n in fact.node.leaves
            }
            evaluated = values(fact.node, whole)
            if evaluated is None or not (evaluated.high <= 0.0).all():
                return False
    return True


def _everywhere(box: Interval) -> Interval:
    """Return a box as what a leaf is at three points."""
    return Interval(*(np.repeat(end[:, None], 3, axis=1) for end in (box.low, box.high)))


def exact_chord(
    node: Node,
    domain: Domain,
    kind: Kind,
    entry: int,
    first: dict[Leaf, Floats],
    second: dict[Leaf, Floats],
    asked: Sequence[Fact] = (),
) -> Chord | None:
    """Return a chord whose gap is proved, by enclosures at three exact points.

    What functions ask of their arguments is shown there, too.
    """
    three = {}  # both ends and the middle, as columns
    for leaf, a in first.items():
        b, box = second[leaf], domain.box(leaf)
        if not (box.contains(a) and box.contains(b)):
            return None
        both = Interval.exactly(a / 2) + Interval.exactly(b / 2)
        # where the midpoint is no float, an enclosure of it
        three[leaf] = Interval(np.stack([a, b, both.low], 1), np.stack([a, b, both.high], 1))
    ends_only = {leaf: x.low[:, :2] for leaf, x in three.items()}
    if not obeyed(ends_only, domain, 2).all() or not _defined(three, domain, asked):
        return None
    scalar = select(node, [entry])
    evaluated = values(scalar, {leaf: x for leaf, x in three.items() if leaf in scalar.leaves})
    if evaluated is None:
        return None
    fa, fb, fm = (evaluated[0][k] for k in range(3))
    mean = (fa + fb) * Interval.exactly(0.5)
    ends = (float(mean.low.item()), float(mean.high.item()))
    inside = (float(fm.low.item()), float(fm.high.item()))
    out = Chord(kind, first, second, entry, ends, inside)
    return out if np.isfinite(ends).all() and np.isfinite(inside).all() and out.gap > 0.0 else None


# What is answered about curvature: a proof, chords that refute it, or where the search stopped.


def _verdict(reasons: tuple[str, ...]) -> Verdict:
    from optfair.core.certificate import Verdict

    return Verdict(not reasons, reasons)


class _Answer:
    """What the three answers share: nothing of them changes, so a copy is itself."""

    #: what would make it convex or concave; a proof asks for nothing
    hints: tuple[str, ...] = ()

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # about one expression, which a copy of it would not be

    def __repr__(self) -> str:
        return str(self)

    def explain(self) -> str:
        """Return it in words, line by line."""
        return str(self)

    def _repr_html_(self) -> str:
        return html_text(self.explain())


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureProof(_Answer):
    """A proof that an expression is convex, concave, or both, on a convex domain.

    Attributes
    ----------
    expression : cvxpy.Expression
        What was declared.
    curvature : str
        "convex", "concave" or "affine".
    steps : tuple of Step
        One tree for each of convex and concave that is claimed.
    domain : Domain
        Where.
    rests_on : tuple of str
        Names of the terms without which the proof does not hold.
    shift : float
        A quadratic form with matrix P counts as convex when P + shift I is proved positive
        semidefinite: shift is the rounding of a factorisation, and 0 where none was needed.
    """

    expression: Any
    curvature: str
    steps: tuple[Step, ...]
    domain: Domain
    rests_on: tuple[str, ...] = ()
    shift: float = 0.0

    def __bool__(self) -> bool:
        return True

    @property
    def step(self) -> Step:
        """The first tree."""
        return self.steps[0]

    @property
    def rule(self) -> str:
        """The rule at the root, behind sums of one term."""
        step = self.step
        while (
            step.rule in ("sum", "without affine terms", "blocks without common variables")
            and len(step.premises) == 1
        ):
            step = step.premises[0]
        return step.rule

    def verify(self) -> Verdict:
        """Read the expression anew and check every step by its rule; nothing is searched."""
        node: Node | None = self.step.node
        if not (isinstance(node, Opaque) and node.expression is self.expression):
            node = read_again(self.expression, self.domain)
        if node is not self.step.node:
            return _verdict(("the expression is not what the proof is about",))
        claimed = {"affine": {"convex", "concave"}}.get(self.curvature, {self.curvature})
        if {s.kind for s in self.steps} != claimed or any(s.node is not node for s in self.steps):
            return _verdict((f"the steps do not show {self.curvature}",))
        return _verdict(tuple(f for s in self.steps for f in faults(s, self.domain)))

    def tree(self) -> list[tuple[int, str, str, str]]:
        """Return rows (depth, function, what is known of it, rule)."""
        rows: list[tuple[int, str, str, str]] = []

        def visit(step: Step, domain: Domain, depth: int) -> None:
            if step.goal.boxes:
                domain = domain.extended(boxes=dict(step.goal.boxes))
            known = f"{step.kind}, in {_range_text(domain, step.node)}"
            if step.rule == "affine":
                known = known.replace(step.kind, "affine", 1)
            rows.append((depth, text(step.node, 90), known, step.rule))
            for p in step.premises:
                visit(p, domain, depth + 1)

        for step in self.steps:
            visit(step, self.domain, 0)
        return rows

    def explain(self) -> str:
        """Return the tree in words."""
        lines = [str(self)]
        for depth, function, known, name in self.tree():
            lines.append(f"{'  ' * depth}{function}: {known} [{name}]")
        lines += [f"defined where {t}" for t in implied_text(self.expression, self.domain)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the tree; what has parts unfolds, from the root to the leaves."""
        tree = self.tree()
        below = [depth for depth, *_ in tree[1:]]
        parts, open_at = [f"<p>{html.escape(str(self))}</p>"], list[int]()
        for (depth, formula, known, name), after in zip(tree, [*below, 0], strict=True):
            while open_at and open_at[-1] >= depth:
                parts.append("</details>")
                open_at.pop()
            said = f"<code>{html.escape(formula)}</code>: {html.escape(f'{known} [{name}]')}"
            look = f" style='margin-left:{1 if depth else 0}em'"
            if after > depth:
                parts.append(f"<details open{look}><summary>{said}</summary>")
                open_at.append(depth)
            else:
                parts.append(f"<div{look}>{said}</div>")
        return "".join([*parts, *["</details>"] * len(open_at)])

    def plot(self, ax: Any = None) -> Any:
        """Draw the function, or its first entry, with a chord on its side; returns the axes.

        A function of one number is drawn over its variable, of more along the chord.
        """
        from optfair.convexity.pictures import draw_proved

        return draw_proved(self, ax)

    def _repr_latex_(self) -> str:
        lines = [
            chr(92).join(["", *["quad "] * depth])
            + rf"\texttt{{{_latex(f)}}} &: \text{{{_latex(known)}}} & \text{{{_latex(name)}}}"
            for depth, f, known, name in self.tree()
        ]
        return r"$$\begin{aligned}" + r" \\ ".join(lines) + r"\end{aligned}$$"

    def __str__(self) -> str:
        on = f" on {', '.join(map(repr, self.rests_on))}" if self.rests_on else ""
        up_to = f" up to {self.shift:.1e} |x|^2" if self.shift else ""
        return f"{self.curvature}{up_to}{on}: {self.rule}"


def _latex(written: str) -> str:
    for c in "\\{}":
        written = written.replace(c, "")
    for c in "_^%#&$":
        written = written.replace(c, f"\\{c}" if c != "^" else r"\^{}")
    return written


def _range_text(domain: Domain, node: Node) -> str:
    r = domain.range(node)
    low, high = float(r.low.min(initial=np.inf)), float(r.high.max(initial=-np.inf))
    return f"[{low:.4g}, {high:.4g}]"


def implied_text(expression: Any, domain: Domain | None = None) -> list[str]:
    """Return what functions demand of their arguments, in words: of x**3 that x >= 0."""
    facts = [f for f in domain.facts if f.name == IMPLIED] if domain is not None else []
    with contextlib.suppress(OptfairError):
        facts += demanded(expression, Domain())
    plain = Algebra(Domain())
    return list(dict.fromkeys(f"{text(plain.scaled(-1.0, f.node), 60)} >= 0" for f in facts))


def read_again(expression: Any, domain: Domain, *, refuting: bool = False) -> Node | None:
    """Return an expression in normal form, None where it cannot be read, or proved, on a domain."""
    try:
        reading = read(expression, domain)
    except OptfairError:
        return None
    return reading.node if refuting or not reading.curved else None


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureWitness(_Answer):
    """Chords that refute convexity, concavity or both, each shown at three exact points.

    Attributes
    ----------
    expression : cvxpy.Expression
        What was declared.
    chords : tuple of Chord
        One for each curvature that is refuted.
    domain : Domain
        Where.
    hints : tuple of str
        What would make it convex or concave, where the search met that.
    """

    expression: Any
    chords: tuple[Chord, ...]
    domain: Domain
    hints: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return False

    @property
    def curvature(self) -> str:
        """What is known: "neither", "not convex" or "not concave"."""
        kinds = {c.kind for c in self.chords}
        return "neither" if len(kinds) == 2 else f"not {next(iter(kinds))}"

    def verify(self) -> Verdict:
        """Compute the three values of every chord anew, rounded outward."""
        node = read_again(self.expression, self.domain, refuting=True)
        if node is None:
            return _verdict(("the expression cannot be read again",))
        if self.domain.unread:
            return _verdict(("chords may leave constraints that are not read",))
        asked = demanded(self.expression, Domain())
        reasons = tuple(
            f"the chord against {c.kind} does not show it"
            for c in self.chords
            if c.recomputed(node, self.domain, asked) is None
        )
        return _verdict(reasons if self.chords else ("there is no chord",))

    def points(self) -> list[Mapping[str, Any]]:
        """Return for each chord its ends by the names of the variables."""
        return [
            {
                "refutes": c.kind,
                "first": {n.name: v for n, v in c.first.items()},
                "second": {n.name: v for n, v in c.second.items()},
                "gap": c.gap,
            }
            for c in self.chords
        ]

    def plot(self, ax: Any = None) -> Any:
        """Draw the function and the chords that it crosses.

        A function of one number is drawn over its variable. Of more, it is drawn along each chord,
        from its first end at 0 to its second at 1, with a scale of its own.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where; by default a new figure.

        Returns
        -------
        matplotlib axes
            Of the first chord.
        """
        ax = new_axes(ax, 6.4, 4.8)
        node = read_again(self.expression, self.domain, refuting=True)
        title = {"neither": "Neither convex nor concave"}.get(self.curvature)
        tidy(
            ax,
            title or self.curvature.capitalize(),
            f"f = {plain(text(node, 90), 75)}" if node else "",
        )
        if node is None:
            return ax
        t, graph = np.linspace(0.0, 1.0, 201), self._graph(node)
        drawn = []
        for c in self.chords:
            points = {
                n: a[:, None] * (1 - t) + c.second[n][:, None] * t for n, a in c.first.items()
            }
            place = t if graph is None else next(iter(points.values()))[0]
            side = "above" if c.kind == "convex" else "below"
            said = f"f is {abs(c.gap):.3g} {side} the middle of this chord: not {c.kind}"
            drawn.append((place, _middle(node, points, c.entry), said))
        draw_chords(ax, drawn, graph)
        return ax

    def _graph(self, node: Node) -> tuple[Floats, Floats, str] | None:
        """Return a function of one number around all chords, None where one would not be seen."""
        leaves = {n for c in self.chords for n in c.first}
        if len(leaves) != 1 or node.size != 1 or next(iter(leaves)).size != 1:
            return None
        leaf = leaves.pop()
        ends = np.array([[c.first[leaf].item(), c.second[leaf].item()] for c in self.chords])
        width, inside = np.ptp(ends), self.domain.range(leaf)
        if np.abs(ends[:, 1] - ends[:, 0]).min() < width / 20:
            return None
        x = np.linspace(ends.min() - width / 8, ends.max() + width / 8, 1601)
        x = x[(x >= float(inside.low.min())) & (x <= float(inside.high.max()))]
        return x, _middle(node, {leaf: x[None]}, 0), leaf.name

    def __str__(self) -> str:
        lines = [f"{self.curvature}: " + "; ".join(_chord_text(c) for c in self.chords)]
        return "\n".join([*lines, *self.hints])


def _middle(node: Node, points: Mapping[Leaf, Floats], entry: int) -> Floats:
    """Return one entry of a function at points (size, K), NaN where it is not defined."""
    evaluated = values(node, {n: Interval.exactly(x) for n, x in points.items()})
    if evaluated is None:
        return np.full(next(iter(points.values())).shape[1], np.nan)
    with np.errstate(all="ignore"):
        middle: Floats = (evaluated.low[entry] + evaluated.high[entry]) / 2
    return np.where(np.isfinite(middle), middle, np.nan)


def _chord_text(c: Chord) -> str:
    def point(p: Mapping[Leaf, Any]) -> str:
        return ", ".join(f"{n.name} = {_short(v)}" for n, v in p.items())

    side = "above" if c.kind == "convex" else "below"
    return f"between {point(c.first)} and {point(c.second)} the function is {side} its chord by {abs(c.gap):.3g}"


def _short(v: Any) -> str:
    return f"{v[0]:.4g}" if v.size == 1 else np.array2string(v, precision=3, threshold=6)


@dataclass(frozen=True, eq=False, repr=False)
class Undecided(_Answer):
    """Neither proved nor refuted.

    Attributes
    ----------
    expression : cvxpy.Expression
        What was declared.
    stuck : tuple of str
        The claims at which the search stopped.
    hints : tuple of str
        What would make it convex or concave.
    reason : str
        Why it could not be looked at, where that is so.
    """

    expression: Any
    stuck: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    reason: str = ""
    domain: Domain | None = field(default=None)

    curvature = "undecided"

    def __bool__(self) -> bool:
        return False

    def verify(self) -> Verdict:
        """Nothing is claimed, so nothing holds."""
        return _verdict(("nothing is claimed",))

    def __str__(self) -> str:
        lines = ["undecided" + (f": {self.reason}" if self.reason else "")]
        lines += [f"not known: {s}" for s in self.stuck]
        return "\n".join([*lines, *self.hints])


def rule_table() -> list[tuple[str, str, str]]:
    """Return (name, theorem, example) of every rule, for documentation."""
    return [(r.name, r.states, r.example) for r in RULES.values()]
