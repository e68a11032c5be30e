"""How problems and results show themselves: as text, in LaTeX, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.term import family

if TYPE_CHECKING:
    from optfair.core.certificate import Certificate, Verdict
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


# Results as HTML, for notebooks: tables and what folds, with every text escaped and no script.

# Rows that a notebook shows of a table; entries of a term whose powers are explained; names in a line.
SHOWN, READ, NAMED = 20, 1000, 12


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], shown: int = SHOWN) -> str:
    """Return a table; what is behind the first rows is counted.

    Examples
    --------
    >>> html_table(("a",), [("<b>",)])
    '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    cells = [[html.escape(str(c)) for c in row] for row in rows]
    body = "".join(
        "<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in cells[:shown]
    )
    first = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    more = f"<p>and {len(cells) - shown} more</p>" if len(cells) > shown else ""
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


def listed(names: Iterable[str], most: int = NAMED) -> str:
    """Return names with commas between them; what is behind the first is counted.

    Examples
    --------
    >>> listed("abc"), listed("abcdef", 4)
    ('a, b, c', 'a, b, c and 3 more')
    """
    every = list(names)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[: most - 1])} and {len(every) - most + 1} more"


def html_folded(title: str, inside: str) -> str:
    """Return HTML that unfolds at a click."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def html_lines(text: str) -> str:
    """Return text as it stands, its first line bold."""
    first, _, rest = text.partition("\n")
    return f"<p><b>{html.escape(first)}</b></p>" + (html_text(rest) if rest else "")


def html_text(text: str) -> str:
    """Return text as it stands, folded where the page ends."""
    return f"<pre style='white-space:pre-wrap'>{html.escape(text)}</pre>"


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
    return f"<p>{html.escape(type(c).__name__)}</p>{html_table(('', ''), account(c))}"


def account(c: Certificate) -> list[tuple[str, str]]:
    """Return what a certificate claims, what shows it, and what the claim is worth, line by line."""
    v, own = c.verify(), getattr(c, "solution", c)
    of: Any = getattr(own, "problem", None)
    lines = [
        ("claim", c.claim),
        ("of", f"{of.title}, {of.problem_class}" if hasattr(of, "problem_class") else ""),
        ("evidence", str(c)),
        ("means", c.means),
        ("grade", f"{v.grade}: {v.grade.meaning}"),
        ("check", str(v)),
    ]
    return [(word, said) for word, said in lines if said]


# How a problem shows itself: as text, and in LaTeX.


def describe(problem: Problem) -> str:
    """Return class, sizes, objective and constraint names, one line each."""
    sizes = [
        f"{repr(name) if ' ' in name else name} {'x'.join(map(str, v.shape)) or 'scalar'}"
        + " integer" * (name in problem.integers)
        for name, v in problem.variables.items()
    ]
    rows = listed(map(repr, problem.constraints)) or "none"
    goal = " + ".join(problem.objective) or "0"
    return (
        f"{problem.title}: {problem.problem_class}\n"
        f"  variables    {listed(sizes)}\n"
        f"  {problem.sense:<12} {goal}\n"
        f"  constraints  {rows}"
    )


def formulation(problem: Problem) -> str:
    """Return the problem in LaTeX, as notebooks show it; rows that read the same are one line."""
    word = r"\min" if problem.sense == "minimize" else r"\max"
    goal = " + ".join(t.formula for t in problem.objective.values()).replace("+ -", "- ") or "0"
    lines = [rf"{word}\quad & {goal} &&"]
    called: dict[str, dict[str, None]] = {}
    terms = list(problem.constraints.values())
    for t in terms[:READ]:
        called.setdefault(t.formula, {})[family(t.name)] = None
    for i, (formula, names) in enumerate(list(called.items())[:SHOWN]):
        lead = r"\text{s.t.}\quad & " if i == 0 else "& "
        lines.append(rf"{lead}{formula} && {_tag(listed(names, 3))}")
    if len(called) > SHOWN or len(terms) > READ:
        lines.append(r"& \dots")
    for formula, word in _domains(problem):
        lead = r"& " if terms else r"\text{s.t.}\quad & "
        lines.append(rf"{lead}{formula} && \text{{({word})}}")
    body = " \\\\\n".join(lines)
    return f"$$\\begin{{aligned}}\n{body}\n\\end{{aligned}}$$"


def _domains(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield where variables live that are not any arrays of numbers: what no term says."""
    alike: dict[tuple[str, str], list[str]] = {}
    terms = list(problem.constraints.values())[:READ]
    order = (r"\succeq", r"\preceq")
    ordered = [t for t in terms if any(sign in t.formula for sign in order)]
    compared = {name for t in ordered for name in t.scope}  # as symmetric matrices
    for name, v in problem.variables.items():
        if name in problem.integers:
            size = r" \times ".join(map(str, v.shape))
            said = (r"\in \mathbb{Z}" + (f"^{{{size}}}" if size else ""), "integer")
        elif v.attributes["diag"]:
            said = (r"\text{ diagonal}", "diagonal")
        elif v.attributes["symmetric"] and name not in compared:
            said = (rf"\in \mathbb{{S}}^{{{v.shape[0]}}}", "symmetric")
        else:
            continue
        alike.setdefault(said, []).append(_name(name))
    for (where, word), names in alike.items():
        shown = [*names[:6], *([r"\dots"] if len(names) > 6 else [])]
        yield f"{', '.join(shown)} {where}", word


def _tag(name: str) -> str:
    """Return the name of a row as text, upright mathematics where a character is not for text."""
    if not set(name) & _SIGNS.keys():
        return rf"\text{{({name})}}"
    return rf"\mathrm{{({_escaped(name)})}}".replace(" ", r"\ ")


# CVXPY expressions and constraints as mathematics, in LaTeX.

# Entries of constants that are written out, and characters after which a formula is cut to its name.
WRITTEN, LONGEST = 4, 400
# Strength of binding: what stands lower needs brackets inside what stands higher. A base takes an
# exponent or an index.
SUM, PRODUCT, ATOM, BASE = 1, 2, 3, 4
# Characters that mean something to LaTeX.
_SIGNS = {c: f"\\{c}" for c in "%#&$_{}"} | {
    "\\": r"\backslash{}",
    "^": r"\wedge{}",
    "~": r"\sim{}",
}
_FUNCTIONS = {
    "exp": r"\exp",
    "log": r"\log",
    "entr": r"\operatorname{entr}",
    "max": r"\max",
    "maximum": r"\max",
    "min": r"\min",
    "minimum": r"\min",
    "Trace": r"\operatorname{tr}",
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
    return listed((_name(v.name()) for v in written.variables()), 6).replace(
        " and ", r"\text{ and }"
    )


def _escaped(text: str) -> str:
    return "".join(_SIGNS.get(c, c) for c in text)


def _name(name: str) -> str:
    """Return a name: one letter as it is, a word upright, what is behind ``_`` or a number below."""
    stem, _, below = name.partition("_")
    if not below and stem.rstrip("0123456789") and stem[-1:].isdigit():
        below = stem[len(stem.rstrip("0123456789")) :]
        stem = stem.rstrip("0123456789")
    plain = len(stem) == 1 and stem not in _SIGNS
    written = stem if plain else rf"\mathrm{{{_escaped(stem or name)}}}".replace(" ", r"\ ")
    return written + (rf"_{{\mathrm{{{_escaped(below)}}}}}" if below else "")


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
        return _name(e.name()), BASE
    if kind == "Constant":
        return _constant(e.value)
    if kind in ("Promote", "broadcast_to", "Wrap") or kind.endswith("_wrap"):
        return _text(args[0])
    if kind == "reshape":
        return _reshaped(args[0], e.shape)
    if kind == "AddExpression":
        varying = [a for a in args if not _zero(a)]
        return (
            (_sum(varying), SUM) if len(varying) > 1 else _text(varying[0] if varying else args[0])
        )
    if kind == "NegExpression":
        return "-" + _bracketed(args[0], PRODUCT), SUM
    if kind in ("MulExpression", "multiply"):
        return _product(args, kind)
    if kind in ("conv", "convolve"):
        return r" \ast ".join(_factor(a, "MulExpression") for a in args), PRODUCT
    if kind == "DivExpression":
        return rf"\frac{{{_text(args[0])[0]}}}{{{_text(args[1])[0]}}}", ATOM
    if kind == "Sum":
        return _summed(e)
    return _atom(e, kind)


def _zero(e: Any) -> bool:
    """Whether an expression is the number 0, broadcast or not."""
    while type(e).__name__ in ("Promote", "broadcast_to", "NegExpression"):
        e = e.args[0]
    return type(e).__name__ == "Constant" and e.size > 0 and _uniform(e) and not np.any(e.value)


def _reshaped(e: Any, shape: tuple[int, ...]) -> tuple[str, int]:
    """Return what an array of another shape is: itself, turned, or with its entries in a row."""
    size, old, new = e.size, [n for n in e.shape if n > 1], [n for n in shape if n > 1]
    if e.shape == shape or size == 1 or (len(old) < 2 and len(new) < 2):
        turned = (
            size > 1 and len(shape) == 2 and (shape[0] == 1) != (e.ndim == 2 and e.shape[0] == 1)
        )
        return (rf"{_bracketed(e, BASE)}^\top", ATOM) if turned else _text(e)
    size_of = r" \times ".join(map(str, shape))
    name = r"\operatorname{vec}" if len(new) < 2 else rf"\operatorname{{mat}}_{{{size_of}}}"
    return rf"{name}({_text(e)[0]})", BASE


def _summed(e: Any) -> tuple[str, int]:
    """Return the sum of all entries, of each row or of each column."""
    inside, axis = e.args[0], e.axis
    if inside.size == 1:
        return _text(inside)
    if inside.ndim > 2:
        return _along(r"\operatorname{sum}", e, [_text(inside)[0]]), BASE
    if type(inside).__name__ == "multiply" and axis is None and inside.ndim == 2:
        left, right = inside.args
        if type(right).__name__ == "transpose":  # how CVXPY writes the trace of a product
            product = _product((left, right.args[0]), "MulExpression")[0]
            return rf"\operatorname{{tr}}\left({product}\right)", BASE
    text = _bracketed(inside, ATOM)
    rows = "" if inside.ndim == 2 and axis == 1 else r"\mathbf 1^\top "
    columns = r"\, \mathbf 1" if inside.ndim == 2 and axis != 0 else ""
    return f"{rows}{text}{columns}", PRODUCT


def _product(args: Any, kind: str) -> tuple[str, int]:
    """Return the product of two factors; numbers stand first."""
    scalar = [
        a.is_constant() and (not a.shape or (kind == "multiply" and _uniform(a))) for a in args
    ]
    if scalar[1] and not scalar[0]:
        args = args[::-1]
    if any(scalar):
        left, right = (_factor(a, kind) for a in args)
        if _text(args[0])[0].startswith("-"):  # a number below 0 is as good as a sign
            return rf"{_text(args[0])[0]}\, {right}", SUM
        dot = r" \cdot " if left[-1:].isdigit() and right[:1].isdigit() else r"\, "
        return f"{left}{dot}{right}", PRODUCT
    if kind == "MulExpression" and args[0].ndim == 1:
        row = rf"{_constant(args[0].value, broadcast=False)[0] if _plain(args[0]) else _bracketed(args[0], BASE)}^\top"
        return rf"{row}\, {_factor(args[1], kind)}", PRODUCT
    sign = r" \odot " if kind == "multiply" and args[0].shape and args[1].shape else r"\, "
    return sign.join(_factor(a, kind) for a in args), PRODUCT


def _plain(e: Any) -> bool:
    """Whether an expression is an array of numbers."""
    return type(e).__name__ == "Constant" and bool(e.shape)


def _factor(e: Any, kind: str) -> str:
    """Return a factor; in a product of matrices one of equal entries is no number."""
    if kind == "MulExpression" and _plain(e):
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


def _atom(e: Any, kind: str) -> tuple[str, int]:
    """Return a function of its arguments."""
    inside = [_text(a)[0] for a in e.args]
    if kind in ("index", "special_index"):
        key = e.get_data()[0]
        parts = key if isinstance(key, tuple) else (key,)
        places = [_place(k, n) for k, n in zip(parts, e.args[0].shape, strict=False)]
        return rf"{{{_bracketed(e.args[0], BASE)}}}_{{{', '.join(places)}}}", BASE
    if kind == "abs":
        return rf"\left|{inside[0]}\right|", BASE
    if kind in ("ceil", "floor"):
        return rf"\left\l{kind} {inside[0]} \right\r{kind}", BASE
    if kind in ("norm1", "norm_inf", "Pnorm", "PnormApprox", "normNuc"):
        return _norm(e, kind), BASE
    if kind == "quad_over_lin" and getattr(e, "axis", None) is None:
        square = (
            rf"\|{inside[0]}\|_{'F' if e.args[0].ndim == 2 and min(e.args[0].shape) > 1 else 2}^2"
        )
        return (square if inside[1] == "1" else rf"\frac{{{square}}}{{{inside[1]}}}"), ATOM
    if kind in ("QuadForm", "SymbolicQuadForm"):
        x = _bracketed(e.args[0], BASE)
        return rf"{x}^\top {_bracketed(e.args[1], ATOM)}\, {x}", PRODUCT
    if kind in ("Power", "PowerApprox", "power"):
        power, base = float(e.p.value), _bracketed(e.args[0], BASE)
        if power == 0.5:
            return rf"\sqrt{{{inside[0]}}}", BASE
        if power == -1:
            return rf"\frac{{1}}{{{inside[0]}}}", ATOM
        return rf"{{{base}}}^{{{_number(power)}}}", ATOM
    if kind == "transpose":
        return rf"{_bracketed(e.args[0], BASE)}^\top", ATOM
    if kind == "log1p":
        return rf"\log(1 + {inside[0]})", BASE
    if kind in ("Vstack", "Hstack"):
        return _stacked(e, kind), BASE
    name = (
        _FUNCTIONS.get(kind) or rf"\operatorname{{{kind[:1].lower()}{kind[1:].replace('_', ' ')}}}"
    )
    further = {"sum_largest": "k", "huber": "M", "lambda_sum_largest": "k"}.get(kind)
    if further is not None:
        number = getattr(getattr(e, further), "value", getattr(e, further))
        name += rf"_{{{_number(float(np.asarray(number).item()))}}}"
    return _along(name, e, inside), BASE


def _along(name: str, e: Any, inside: Sequence[str]) -> str:
    """Return a function, with the axis along which it is taken."""
    axis = getattr(e, "axis", None)
    below = rf"_{{\text{{axis {axis}}}}}" if axis is not None and e.args[0].ndim > 1 else ""
    return rf"{name}{below}({', '.join(inside)})"


def _norm(e: Any, kind: str) -> str:
    """Return a norm of a vector, of all entries of a matrix, or of each of its rows or columns."""
    of = e.args[0]
    p = {"norm1": "1", "norm_inf": r"\infty", "normNuc": "*"}.get(kind) or _number(float(e.p))
    below = rf"_{{{p}}}" if len(p) > 1 else f"_{p}"
    if getattr(e, "axis", None) is not None and of.ndim == 2:
        i, place = ("i", "i, :") if e.axis == 1 else ("j", ":, j")
        return rf"\left(\|{{{_bracketed(of, BASE)}}}_{{{place}}}\|{below}\right)_{i}"
    if p == "2" and type(of).__name__ == "reshape":
        of = of.args[0]
    below = "_F" if p == "2" and of.ndim == 2 and min(of.shape) > 1 else below
    return rf"\|{_text(of)[0]}\|{below}"


def _stacked(e: Any, kind: str) -> str:
    """Return arrays on or beside each other."""
    if kind == "Hstack" and all(a.ndim < 2 for a in e.args):
        return rf"\left({', '.join(_text(a)[0] for a in e.args)}\right)"
    each = [
        rf"{_bracketed(a, BASE)}^\top"
        if kind == "Vstack" and a.ndim == 1 and a.size > 1
        else _text(a)[0]
        for a in e.args
    ]
    body = (" & " if kind == "Hstack" else r" \\ ").join(each)
    return rf"\begin{{bmatrix}} {body} \end{{bmatrix}}"


def _place(key: Any, size: int) -> str:
    """Return an index: one place, a range, or some places."""
    if not isinstance(key, slice):
        picked = np.atleast_1d(np.asarray(key))
        if picked.dtype == bool and picked.ndim == 1:
            picked = np.flatnonzero(picked)
        few = picked.ndim == 1 and picked.dtype != bool and picked.size <= WRITTEN
        return rf"\{{{', '.join(str(int(k)) for k in picked)}\}}" if few else "I"
    start, step = key.start or 0, key.step or 1
    stop = size if key.stop is None else key.stop
    each = range(start, stop, step)
    if len(each) == 1:
        return str(each[0])
    if step != 1:
        shown = [*map(str, each[:2]), r"\dots", str(each[-1])] if len(each) > 3 else map(str, each)
        return rf"\{{{', '.join(shown)}\}}"
    return ":" if (start, stop) == (0, size) else f"{start}:{stop}"
