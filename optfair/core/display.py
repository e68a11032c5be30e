"""How problems and results show themselves: as text, in LaTeX, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.canonical import built
from optfair.core.expressions import check_parameters
from optfair.core.term import ConstraintTerm, Term, family

if TYPE_CHECKING:
    from optfair.core.certificate import Certificate, Verdict
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


# Results as HTML, for notebooks: tables and what folds, with every text escaped and no script.

# Rows that a notebook shows of a table; entries of a term whose powers are explained.
SHOWN, READ = 20, 1000


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; what is behind the first rows is counted.

    Examples
    --------
    >>> html_table(("a",), [("<b>",)])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    cells = [[html.escape(str(c)) for c in row] for row in rows]
    body = "".join(
        "<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in cells[:SHOWN]
    )
    first = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    more = f"<p>and {len(cells) - SHOWN} more</p>" if len(cells) > SHOWN else ""
    return f"<table><tr>{first}</tr>{body}</table>{more}"


def text_table(rows: Iterable[Sequence[str]], *, right: bool = False) -> list[str]:
    """Return rows as lines with aligned columns, all but the first to the right if so asked.

    Examples
    --------
    >>> text_table([("name", "size"), ("x", "12")], right=True)
    ['name  size', 'x       12']
    """
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<", *((">" if right else "<") * (len(widths) - 1))]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [form.format(*row).rstrip() for row in cells]


def html_folded(title: str, inside: str) -> str:
    """Return HTML that unfolds at a click."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def html_lines(text: str) -> str:
    """Return text as it stands, its first line bold."""
    first, _, rest = text.partition("\n")
    return f"<p><b>{html.escape(first)}</b></p>" + (
        f"<pre>{html.escape(rest)}</pre>" if rest else ""
    )


def html_problem(p: Problem) -> str:
    """Return class, variables and terms of a problem; its formulas and proofs unfold."""
    sizes = [
        (name, "×".join(map(str, v.shape)) or "scalar", "integer" if name in p.integers else "")
        for name, v in p.variables.items()
    ]
    rows = [
        (t.name, t.evidence.function, t.evidence.set or p.sense, str(t.evidence.problem_class))
        for t in p.terms
    ]
    proofs = "".join(
        html_folded(f"proof of {t.name}: {t.evidence.proof}", t.evidence.proof._repr_html_())
        for t in p.terms
        if t.evidence.proof is not None
    )
    witness = "" if p.witness is None else f"<p>{html.escape(str(p.witness))}</p>"
    return (
        f"<p><b>{html.escape(p.title)}</b>: {html.escape(str(p.problem_class))}, {p.sense}</p>"
        + html_table(("variable", "shape", ""), sizes)
        + html_table(("term", "function", "set", "class"), rows)
        + witness
        + proofs
        + html_folded("formulas", html.escape(p._repr_latex_()))
    )


def html_solution(s: Solution) -> str:
    """Return objective, bound and grade of a solution; values and prices unfold."""
    facts = [
        ("objective", f"{s.objective:.10g}"),
        ("bound", f"{s.bound:.10g}, gap {s.gap:.1e}"),
        ("grade", s.grade),
        ("solver", f"{s.solver} {s.version}"),
        ("seconds", f"{sum(s.seconds.values()):.3f}"),
        *(("before", a) for a in s.attempts),
    ]
    return (
        f"<p><b>Solution of {html.escape(s.problem.title)}</b>: {html.escape(str(s.status))}</p>"
        + html_table(("", ""), facts)
        + html_folded("values", html_table(("name", "largest", "values"), _numbers(s.values)))
        + html_folded(
            "shadow prices", html_table(("name", "largest", "prices"), _numbers(s.shadow_price))
        )
    )


def _numbers(numbers: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows = []
    for name in numbers:
        array = np.asarray(numbers[name], dtype=float) + 0.0
        text = np.array2string(array, precision=6, threshold=12, max_line_width=90)
        largest = float(np.abs(array).max(initial=0.0))
        rows.append((name, f"{largest:.6g}", text))
    return rows


def html_verdict(v: Verdict) -> str:
    """Return what a verification says."""
    reasons = "".join(f"<li>{html.escape(r)}</li>" for r in v.reasons)
    word = f"verified {v.grade.limits}".strip() if v.ok else "NOT verified"
    return f"<p><b>{html.escape(word)}</b></p>" + (f"<ul>{reasons}</ul>" if reasons else "")


def html_certificate(c: Certificate) -> str:
    """Return what a certificate states, and its verification."""
    return (
        f"<p>{html.escape(type(c).__name__)}: {html.escape(str(c))}</p>{html_verdict(c.verify())}"
    )


# How a problem shows itself: as text, and in LaTeX.


def describe(problem: Problem) -> str:
    """Return class, sizes, objective and constraint names, one line each."""
    sizes = ", ".join(
        f"{name} {'x'.join(map(str, v.shape)) or 'scalar'}" for name, v in problem.variables.items()
    )
    rows = ", ".join(repr(name) for name in problem.constraints) or "none"
    goal = " + ".join(problem.objective) or "0"
    return (
        f"{problem.title}: {problem.problem_class}\n"
        f"  variables    {sizes}\n"
        f"  {problem.sense:<12} {goal}\n"
        f"  constraints  {rows}"
    )


def formulation(problem: Problem) -> str:
    """Return the problem in LaTeX, as notebooks show it."""
    word = r"\min" if problem.sense == "minimize" else r"\max"
    goal = " + ".join(t.formula for t in problem.objective.values()) or "0"
    lines = [rf"{word}\quad & {goal} &&"]
    seen: set[str] = set()
    for i, t in enumerate(problem.constraints.values()):
        latex = t.formula
        if latex in seen:
            continue
        seen.add(latex)
        lead = r"\text{s.t.}\quad & " if i == 0 else "& "
        lines.append(rf"{lead}{latex} && \text{{({family(t.name)})}}")
    body = " \\\\\n".join(lines)
    return f"$$\\begin{{aligned}}\n{body}\n\\end{{aligned}}$$"


# Text about the class of a problem.


class Explanation(str):
    """Text that shows itself line by line when typed at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = (line.partition(": ") for line in str(self).splitlines())
        return html_table(("term", "what it is"), ((name, said) for name, _, said in rows))


def explain(problem: Problem) -> Explanation:
    """Return one row of evidence per term, and the class they join to."""
    check_parameters(problem.terms)
    rows = [str(row) for row in problem.evidence]
    rows += [f"{t.name}: defined where {said}" for t in problem.terms for said in _implied(t)]
    rows.append(f"together: {problem.problem_class}")
    if problem.recast is not None:
        rows.append(str(problem.recast))
    elif problem.witness is not None:
        rows.append(f"witness: {problem.witness}")
    return Explanation("\n".join(rows))


def _implied(term: Term) -> list[str]:
    """Return what powers of a term demand of their arguments, and do not show."""
    from optfair.convexity.proof import implied_text

    sides = [e for e in getattr(built(term), "args", ()) if e.size <= READ]
    if not isinstance(term, ConstraintTerm):
        sides = [built(term)]
    powers = [e for e in sides if any(a.__name__ in ("Power", "PowerApprox") for a in e.atoms())]
    return list(dict.fromkeys(said for e in powers for said in implied_text(e)))


def explain_change(new: Problem, old: Problem) -> Explanation:
    """Return which terms moved the class from the old problem to the new one."""
    check_parameters((*new.terms, *old.terms))
    before, after = old.problem_class, new.problem_class
    lost = [t.name for t in old.terms if t.name not in {u.name for u in new.terms}]
    if before == after:
        return Explanation(f"{before} stays {after}")
    reasons = []
    if after <= before:
        gone = [str(t.evidence) for t in old.terms if t.name in lost]
        gone += [f"{name!r} is integer" for name in sorted(old.integers - new.integers)]
        reasons = [f"these are gone: {'; '.join(gone)}"]
    else:
        old_terms = {id(t) for t in old.terms}
        for t in new.terms:
            if id(t) not in old_terms and not (t.evidence.problem_class <= before):
                reasons.append(f"{t.name!r} is {t.evidence.function} in {t.evidence.set}")
        reasons += [f"{name!r} is integer" for name in sorted(new.integers - old.integers)]
        if not reasons:
            reasons = ["a witness was found" if new.witness else "no witness stands any more"]
    return Explanation(f"{before} -> {after} because {' and '.join(reasons)}")


# CVXPY expressions and constraints as mathematics, in LaTeX.

# Entries of constants that are written out, and characters after which a formula is cut to its name.
WRITTEN, LONGEST = 4, 400
# Strength of binding: what stands lower needs brackets inside what stands higher.
SUM, PRODUCT, ATOM = 1, 2, 3
_FUNCTIONS = {
    "exp": r"\exp",
    "log": r"\log",
    "log1p": r"\log(1 + \cdot)",
    "entr": r"\operatorname{entr}",
    "max": r"\max",
    "maximum": r"\max",
    "min": r"\min",
    "minimum": r"\min",
    "trace": r"\operatorname{tr}",
    "lambda_max": r"\lambda_{\max}",
    "lambda_min": r"\lambda_{\min}",
    "log_det": r"\log\det",
    "sigma_max": r"\sigma_{\max}",
    "log_sum_exp": r"\operatorname{logsumexp}",
    "GeoMean": r"\operatorname{geomean}",
    "GeoMeanApprox": r"\operatorname{geomean}",
    "diag_mat": r"\operatorname{diag}",
    "diag_vec": r"\operatorname{diag}",
}
_RELATIONS = {"Inequality": r"\le", "Equality": "="}


def latex(written: Any) -> str:
    r"""Return an expression or a constraint as mathematics.

    Constants of more than a few entries are written as a matrix of their size; functions without
    a sign of their own by their name.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
    >>> print(latex(cp.sum_squares(x - 1) + cp.exp(y) <= 2 * y))
    \|x - 1\|_2^2 + \exp(y) \le 2\, y
    """
    kind = type(written).__name__
    if kind in _RELATIONS:
        left, right = (_text(a)[0] for a in written.args)
        text = f"{left} {_RELATIONS[kind]} {right}"
    elif kind in ("Zero", "NonPos", "NonNeg", "PSD"):
        sign = {"Zero": "= 0", "NonPos": r"\le 0", "NonNeg": r"\ge 0", "PSD": r"\succeq 0"}[kind]
        text = f"{_text(written.args[0])[0]} {sign}"
    elif kind == "SOC":
        bound, inside = written.args
        text = rf"\|{_text(inside)[0]}\|_2 \le {_text(bound)[0]}"
    elif hasattr(type(written), "curvature"):  # not asked of it: CVXPY may search eigenvalues
        text = _text(written)[0]
    else:
        inside = ", ".join(_text(a)[0] for a in written.args)
        text = rf"({inside}) \in \mathcal K_{{\text{{{kind}}}}}"
    return text if len(text) <= LONGEST else rf"\text{{{kind} of }} {_names(written)}"


def _names(written: Any) -> str:
    return ", ".join(_name(v.name()) for v in written.variables())


def _name(name: str) -> str:
    """Return a name: one letter as it is, a word upright, what is behind ``_`` or a number below."""
    stem, _, below = name.partition("_")
    if not below and stem.rstrip("0123456789") and stem[-1:].isdigit():
        below = stem[len(stem.rstrip("0123456789")) :]
        stem = stem.rstrip("0123456789")
    below = below.replace("_", r"\_")
    written = stem if len(stem) == 1 else rf"\mathrm{{{stem or name}}}".replace(" ", r"\ ")
    for sign in "%#&$":
        written, below = written.replace(sign, f"\\{sign}"), below.replace(sign, f"\\{sign}")
    return written + (rf"_{{\mathrm{{{below}}}}}" if below else "")


def _number(value: float) -> str:
    text = f"{value:.4g}"
    mantissa, _, exponent = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def _constant(value: Any, *, broadcast: bool = True) -> tuple[str, int]:
    if hasattr(value, "todense"):
        size = r" \times ".join(map(str, value.shape))
        return rf"C_{{{size}}}", ATOM
    array = np.asarray(value)
    if broadcast and array.size and (array == array.flat[0]).all():  # a broadcast number
        number = float(array.flat[0].real)
        return _number(number), ATOM if number >= 0 else SUM
    if array.size <= WRITTEN and array.ndim == 1:
        return "(" + ", ".join(_number(float(v)) for v in array) + ")", ATOM
    if array.size <= WRITTEN and array.ndim == 2:
        rows = r" \\ ".join(" & ".join(_number(float(v)) for v in row) for row in array)
        return rf"\begin{{bmatrix}} {rows} \end{{bmatrix}}", ATOM
    size = r" \times ".join(map(str, array.shape))
    return rf"{'c' if array.ndim == 1 else 'C'}_{{{size}}}", ATOM


def _uniform(e: Any) -> bool:
    """Whether a constant is one number, broadcast or not."""
    value = e.value
    return not hasattr(value, "todense") and bool(
        (np.asarray(value) == np.asarray(value).flat[0]).all()
    )


def _bracketed(e: Any, strength: int) -> str:
    text, own = _text(e)
    return text if own >= strength else rf"\left({text}\right)"


def _text(e: Any) -> tuple[str, int]:
    """Return LaTeX and how strongly it binds."""
    kind, args = type(e).__name__, e.args
    if kind in ("Variable", "Parameter"):
        return _name(e.name()), ATOM
    if kind == "Constant":
        return _constant(e.value)
    if kind in ("Promote", "broadcast_to", "reshape", "Wrap", "psd_wrap", "symmetric_wrap", "conv"):
        return _text(args[0])
    if kind == "AddExpression":
        return _sum(args), SUM
    if kind == "NegExpression":
        return "-" + _bracketed(args[0], PRODUCT), SUM
    if kind in ("MulExpression", "multiply"):
        scalar = [
            a.is_constant() and (not a.shape or (kind == "multiply" and _uniform(a))) for a in args
        ]
        if scalar[1] and not scalar[0]:  # numbers stand first
            args = args[::-1]
        left, right = (_factor(a, kind) for a in args)
        if any(scalar):
            return rf"{left}\, {right}", PRODUCT
        sign = r" \odot " if kind == "multiply" and args[0].shape and args[1].shape else r"\, "
        if args[0].ndim == 1 and args[1].ndim == 1 and kind == "MulExpression":
            left += r"^\top"
        return f"{left}{sign}{right}", PRODUCT
    if kind == "DivExpression":
        return rf"\frac{{{_text(args[0])[0]}}}{{{_text(args[1])[0]}}}", ATOM
    return _atom(e, kind), ATOM


def _factor(e: Any, kind: str) -> str:
    """Return a factor; in a product of matrices one of equal entries is no number."""
    if kind == "MulExpression" and type(e).__name__ == "Constant" and e.shape:
        return _constant(e.value, broadcast=False)[0]
    return _bracketed(e, PRODUCT)


def _sum(args: Any) -> str:
    text = ""
    for i, a in enumerate(args):
        part = _bracketed(a, SUM)
        if i and part.startswith("-"):
            text += f" - {part[1:]}"
        else:
            text += f" + {part}" if i else part
    return text


def _atom(e: Any, kind: str) -> str:
    """Return a function of its arguments."""
    inside = [_text(a)[0] for a in e.args]
    if kind in ("index", "special_index"):
        key = e.get_data()[0] if kind == "index" else None
        places = (
            [_place(k, n) for k, n in zip(key, e.args[0].shape, strict=False)] if key else ["I"]
        )
        return rf"{{{_bracketed(e.args[0], ATOM)}}}_{{{', '.join(places)}}}"
    if kind == "Sum":
        return rf"\mathbf 1^\top {_bracketed(e.args[0], ATOM)}"
    if kind == "abs":
        return rf"\left|{inside[0]}\right|"
    if kind in ("norm1", "norm_inf", "Pnorm", "PnormApprox", "normNuc"):
        p = {"norm1": "1", "norm_inf": r"\infty", "normNuc": "*"}.get(kind) or _number(float(e.p))
        return rf"\|{inside[0]}\|_{{{p}}}" if len(p) > 1 else rf"\|{inside[0]}\|_{p}"
    if kind == "quad_over_lin":
        square = rf"\|{inside[0]}\|_2^2"
        return square if inside[1] == "1" else rf"\frac{{{square}}}{{{inside[1]}}}"
    if kind in ("QuadForm", "SymbolicQuadForm"):
        x = _bracketed(e.args[0], ATOM)
        return rf"{x}^\top {_bracketed(e.args[1], ATOM)}\, {x}"
    if kind in ("Power", "PowerApprox", "power"):
        power, base = float(e.p.value), _bracketed(e.args[0], ATOM)
        if power == 0.5:
            return rf"\sqrt{{{inside[0]}}}"
        if power == -1:
            return rf"\frac{{1}}{{{inside[0]}}}"
        return rf"{{{base}}}^{{{_number(power)}}}"
    if kind == "transpose":
        return rf"{_bracketed(e.args[0], ATOM)}^\top"
    name = _FUNCTIONS.get(kind) or rf"\operatorname{{{kind.replace('_', ' ')}}}"
    return rf"{name}({', '.join(inside)})"


def _place(key: Any, size: int) -> str:
    """Return an index: one place, or a range."""
    if not isinstance(key, slice):
        return str(key)
    start, stop = key.start or 0, size if key.stop is None else key.stop
    if stop - start == 1:
        return str(start)
    return ":" if (start, stop) == (0, size) else f"{start}:{stop}"
