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
        "residuals": (of.residuals(s), ("gap", "duality", "<script>")),
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
M = cp.Variable((2, 3), name="M")
C23 = np.arange(6.0).reshape(2, 3)


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
        (cp.Variable(name="a^b") >= 0, r"0 \le \mathrm{a\wedge{}b}"),
        (cp.sum(M), r"\mathbf 1^\top M\, \mathbf 1"),
        (cp.sum(M, axis=0), r"\mathbf 1^\top M"),
        (cp.sum(M, axis=1), r"M\, \mathbf 1"),
        (cp.sum(X + 1) ** 2, r"{\left(\mathbf 1^\top \left(x + 1\right)\right)}^{2}"),
        (
            cp.square(cp.quad_over_lin(X, Y)),
            r"{\left(\frac{\|x\|_2^2}{y_{\mathrm{low}}}\right)}^{2}",
        ),
        (cp.norm(M, "fro"), r"\|M\|_F"),
        (cp.norm(M, axis=1), r"\left(\|{M}_{i, :}\|_2\right)_i"),
        (cp.max(M, axis=0), r"\max_{\text{axis 0}}(M)"),
        (X[::-1], r"{x}_{\{2, 1, 0\}}"),
        (X[[0, 2]], r"{x}_{\{0, 2\}}"),
        (cp.sum(X[::2]), r"\mathbf 1^\top {x}_{\{0, 2\}}"),
        (cp.convolve(np.ones(2), X), r"(1, 1) \ast x"),
        (cp.outer(X, X), r"x\, x^\top"),
        (cp.vec(M, order="F"), r"\operatorname{vec}(M)"),
        ((C23 @ X) @ [1, 2], r"\left(C_{2 \times 3}\, x\right)^\top\, (1, 2)"),
        (X @ C23.T, r"x^\top\, C_{3 \times 2}"),
        (-1.5 * Y + 3 * (2 * Y), r"-1.5\, y_{\mathrm{low}} + 3 \cdot 2\, y_{\mathrm{low}}"),
        (Z >> 0, r"Z \succeq 0"),
        (cp.log1p(Y) + cp.trace(Z), r"\log(1 + y_{\mathrm{low}}) + \operatorname{tr}(Z)"),
        (cp.huber(Y, 2), r"\operatorname{huber}_{2}(y_{\mathrm{low}})"),
        (cp.sum_largest(X, 2), r"\operatorname{sum largest}_{2}(x)"),
        (cp.hstack([X, Y]), r"\left(x, y_{\mathrm{low}}\right)"),
        (cp.vstack([X, X]), r"\begin{bmatrix} x^\top \\ x^\top \end{bmatrix}"),
    ],
    ids=str,
)
def test_formulas_are_mathematics(written: Any, formula: str) -> None:
    assert latex(written) == formula


def test_long_formulas_are_named() -> None:
    long = sum(cp.square(X[i % 3] - i) for i in range(60)) <= 1
    assert latex(long) == r"\text{Inequality of } x"
    assert r"\texttt" not in adopted()._repr_latex_()


def test_rows_that_read_the_same_keep_their_names_and_long_lists_are_counted() -> None:
    x = cp.Variable(5, name="x")
    terms = {f"row_{i} %": (np.arange(5.0) * i + np.arange(5.0)) @ x >= 1 for i in range(4)}
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), list(terms.values())), list(terms))
    shown = p.with_constraints(sign=x >= 0)._repr_latex_()
    assert r"\mathrm{(row\_0\ \%,\ row\_1\ \%\ and\ 2\ more)}" in shown
    assert r"\text{(sign)}" in shown
    caps = {f"cap{i}": x[0] <= i for i in range(50)}
    many = of.from_cvxpy(cp.Problem(cp.Minimize(-x[0]), list(caps.values())), list(caps))
    assert len(many._repr_latex_().splitlines()) < 30 and "'cap0', 'cap1'" in repr(many)
    assert "and 39 more" in repr(many) and len(repr(many)) < 500
    each = [cp.Variable(name=f"y{i}", nonneg=True) for i in range(40)]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(sum(each)), [each[0] >= 1])).solve()
    assert "y0, y1" in repr(s) and "and 29 more" in repr(s)
    assert r"\text{AddExpression of } y_{\mathrm{0}}" in s.problem._repr_latex_()


def test_formulas_say_where_variables_live() -> None:
    n, y = cp.Variable((2, 3), name="n", integer=True), cp.Variable(name="y", boolean=True)
    S = cp.Variable((2, 2), name="S", symmetric=True)
    D = cp.Variable((2, 2), name="D", diag=True)
    C = np.array([[1.0, 2.0], [0.0, 3.0]])
    goal = cp.sum(n) + y + cp.trace(C @ S) + cp.trace(D)
    shown = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [S >= 1, n >= 0, D >= 0]))._repr_latex_()
    for line in (
        r"n \in \mathbb{Z}^{2 \times 3} && \text{(integer)}",
        r"y \in \mathbb{Z} && \text{(integer)}",
        r"S \in \mathbb{S}^{2} && \text{(symmetric)}",
        r"D \text{ diagonal}",
        # CVXPY keeps the trace of a product as a sum of products of entries
        r"\operatorname{tr}\left(\begin{bmatrix} 1 & 2 \\ 0 & 3 \end{bmatrix}\, S\right)",
    ):
        assert line in shown
    ordered = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(S)), [S >> np.eye(2)]))
    assert r"\mathbb{S}" not in ordered._repr_latex_()  # which the order of matrices says
    x = cp.Variable(2, name="x", nonneg=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), []))
    assert r"\mathbb" not in p._repr_latex_()
    assert r"x \in \mathbb{Z}^{2}" in p.with_integrality("x")._repr_latex_()
    many = [cp.Variable(name=f"k{i}", integer=True) for i in range(9)]
    shown = of.from_cvxpy(cp.Problem(cp.Minimize(0), [sum(many) == 1]))._repr_latex_()
    assert r"k_{\mathrm{5}}, \dots \in \mathbb{Z}" in shown
    free = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(many[0])), []))._repr_latex_()
    assert r"\text{s.t.}\quad & k_{\mathrm{0}} \in \mathbb{Z}" in free
    rounded = of.from_cvxpy(cp.Problem(cp.Minimize(cp.ceil(x[0])), [cp.floor(x[1]) >= 1]))
    assert r"\left\lceil {x}_{0} \right\rceil" in rounded._repr_latex_()


def test_what_a_solution_holds_prints_on_few_lines() -> None:
    x = cp.Variable(3, name="x")
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 1])).solve("clarabel")
    assert repr(s.residuals()) == str(s.residuals())
    assert repr(s.residuals()).splitlines()[-1].startswith("consistency")
    assert repr(s.proof) == "ConicProof of CVXPY problem by duality: 3 columns, 3 rows of CLARABEL"
    assert repr(s.problem.scalar_rows) == "ScalarRows: 0 rows"


def test_long_lines_fold_and_lists_have_no_headline() -> None:
    x = cp.Variable(2, name="x")
    shown = of.prove(x[0] * x[1])._repr_html_()  # type: ignore[union-attr]
    assert shown.startswith("<pre style='white-space:pre-wrap'>neither: ")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [x >= 1, x <= 0]))
    looked = p.diagnose()._repr_html_().partition("what was looked at")[2]
    assert "convexity of every term\n" in looked and "<b>" not in looked
