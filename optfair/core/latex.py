"""CVXPY expressions and constraints as mathematics, in LaTeX."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    elif hasattr(written, "curvature"):
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
    if kind == "Variable":
        return _name(e.name()), ATOM
    if kind == "Parameter":
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
