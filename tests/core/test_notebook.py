"""What a notebook shows: tables that are whole and escaped, formulas as mathematics, keys to complete."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.display import latex

VOID = {"br", "hr", "img", "meta"}


class Whole(HTMLParser):
    """Raises where a tag is not closed in order, or something could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag != "script" and not any(k.startswith("on") for k, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data + "\n"


def adopted() -> of.Problem:
    x = cp.Variable(3, name="<x>")
    goal = cp.Minimize(cp.sum_squares(x - 1))
    return of.from_cvxpy(cp.Problem(goal, [cp.sum(x) == 1, x >= 0]), ["<script>", "sign"])


def test_everything_shows_itself() -> None:
    p = adopted()
    s = p.solve()
    low = of.library.load("diet_low_salt").problem()
    y = cp.Variable(name="y", bounds=[1, 2])
    shown = {
        "problem": (p, ("CVXPY problem", "QP", "<script>", "affine", "Zero")),
        "solution": (s, ("optimal", "proved", "shadow prices", "0.333333")),
        "explanation": (p.explain(), ("together", "QP")),
        "change": (p.with_constraints(ball=cp.norm(p["<x>"]) <= 1).explain_change(p), ("SOCP",)),
        "certificate": (s.certificate, ("Optimality", "verified")),
        "curvature": (p.certificate, ("Curvature", "verified")),
        "verdict": (of.core.Verdict(False, ("x < 0",)), ("NOT verified", "x < 0")),
        "diagnosis": (low.diagnose(), ("exclude each other", "least relaxation")),
        "comparison": (of.compare_solvers({"a": p}, ["clarabel"]), ("clarabel", "tolerance")),
        "sweep": (of.sweep(p, "<script>", [0.0, 3.0]), ("2 solved", "3", "0 (proved)")),
        "proof": (of.prove(cp.sqrt(1 + y * y)), ("convex", "(y^2 + 1)^(1/2)", "affine")),
        "refutation": (of.prove(y**3 - 4 * y**2), ("chord",)),
    }
    for name, (thing, words) in shown.items():
        page = Whole(thing._repr_html_())
        assert all(word in page.words for word in words), (name, page.words)


def test_no_eigenvalues_are_searched_for_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(*_: Any) -> bool:
        raise AssertionError("CVXPY searches eigenvalues")

    x, P = cp.Variable(30, name="x"), np.eye(30) + 0.1
    for f in (cp.quad_form(x, P), 2.0 * (0.0 * cp.quad_form(x, P) + cp.sum(x))):
        goal = cp.Minimize(f)
        with monkeypatch.context() as patched:
            patched.setattr(cp.Constant, "is_psd", searched)
            patched.setattr(cp.Constant, "is_nsd", searched)
            p = of.from_cvxpy(cp.Problem(goal, [cp.quad_form(x, P) <= 2.0, cp.sum(x) == 1]))
            assert "QCQP" in Whole(p._repr_html_()).words and p.solve().grade.word == "proved"


def test_long_tables_are_cut_and_say_so() -> None:
    p = of.library.load("german_k3").problem()
    many = p.with_constraints({f"cap {i}": p["masses"][0, 0] <= i + 1 for i in range(30)})
    assert "more" in Whole(many._repr_html_()).words
    assert len(p.solve()._repr_html_()) < 10_000


def test_keys_complete() -> None:
    p = adopted()
    s = p.solve()
    assert p._ipython_key_completions_() == s._ipython_key_completions_() == ["<x>"]
    assert s.shadow_price._ipython_key_completions_() == ["<script>", "sign"]


X, Y = cp.Variable(3, name="x"), cp.Variable(name="y_low")
Z = cp.Variable((2, 2), name="Z", symmetric=True)


@pytest.mark.parametrize(
    ("written", "formula"),
    [
        (cp.sum(X) <= 3, r"\mathbf 1^\top x \le 3"),
        (X[0] - 2 * Y >= 1, r"1 \le {x}_{0} - 2\, y_{\mathrm{low}}"),
        (-X * 2 == 0, r"2\, \left(-x\right) = 0"),
        (cp.norm(X[:2]) <= Y, r"\|{x}_{0:2}\|_2 \le y_{\mathrm{low}}"),
        (cp.SOC(Y, X), r"\|x\|_2 \le y_{\mathrm{low}}"),
        (np.eye(2) << Z, r"Z - \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix} \succeq 0"),
        (cp.quad_over_lin(X, Y), r"\frac{\|x\|_2^2}{y_{\mathrm{low}}}"),
        (cp.quad_form(X, np.eye(3)), r"x^\top C_{3 \times 3}\, x"),
        (np.ones((2, 3)) @ X, r"C_{2 \times 3}\, x"),
        (np.arange(6).reshape(2, 3) @ X, r"C_{2 \times 3}\, x"),
        (cp.multiply([1, 2, 3], X), r"(1, 2, 3) \odot x"),
        (cp.sqrt(Y) + cp.inv_pos(Y), r"\sqrt{y_{\mathrm{low}}} + \frac{1}{y_{\mathrm{low}}}"),
        (cp.max(cp.abs(X)) <= 1e-7, r"\max(\left|x\right|) \le 1 \cdot 10^{-7}"),
        (cp.Variable(name="pay_2%") <= 1, r"\mathrm{pay}_{\mathrm{2\%}} \le 1"),
    ],
    ids=str,
)
def test_formulas_are_mathematics(written: Any, formula: str) -> None:
    assert latex(written) == formula


def test_long_formulas_are_named() -> None:
    long = sum(cp.square(X[i % 3] - i) for i in range(60)) <= 1
    assert latex(long) == r"\text{Inequality of } x"
    assert r"\texttt" not in adopted()._repr_latex_()
