"""Rules of powers by themselves: what they need, and what they must not say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from optfair.convexity import powers
from optfair.convexity.algebra import Algebra
from optfair.convexity.expression import Node, opaque, raw_product
from optfair.convexity.powers import exact_sums, multiple_of_inverse, ratio
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import leaf_of, read
from optfair.convexity.rules import RULES, Goal

W, X, Y, Z = (cp.Variable(name=n) for n in "wxyz")
V = cp.Variable(2, name="v")
LOW = {"w": W >= 0, "x": X >= 0.5, "y": Y >= 0.5, "z": Z >= 0.5, "v": V >= 0.5}
BOX = {**LOW, "x high": X <= 1.5, "v high": V <= 3}


def needs(name: str, expression: Any, kind: Any, data: Any = None) -> list[Goal] | None:
    """Return what a rule asks for on a box where all variables are positive; None where it is silent."""
    reading = read(expression, domain_of(BOX))
    found = RULES[name].needs(reading.node, kind, Algebra(reading.domain), data)
    return None if found is None else list(found)


SAID = {
    "mean": ("geometric mean", lambda: cp.sqrt(X) * cp.sqrt(Y), "concave"),
    "root": ("power between 0 and 1", lambda: cp.sqrt(4 - X * X), "concave"),
    "cube": ("power at least 1", lambda: X * X * X, "convex"),
    "perspective": ("square over a positive function", lambda: X * X / Y, "convex"),
    "logarithms": ("log-convex", lambda: cp.exp(Y) / X, "convex"),
    "norm": ("norm of convex functions", lambda: cp.sqrt(1 + X * X * X * X), "convex"),
    "sum of roots": ("concave mean", lambda: cp.square(cp.sqrt(X) + cp.sqrt(Y)), "concave"),
    "parallel": ("harmonic mean", lambda: 1 / (1 / X + 1 / Y), "concave"),
    "length": ("norm of an affine map", lambda: cp.sqrt(X * X - 2 * X * Y + 2 * Y * Y + 1), "convex"),
    "falls": ("ratios of one variable", lambda: (X - 1) / X, "concave"),
    "one entry is flat": (
        "ratios of one variable",
        lambda: (V + np.array([1.0, -5.0])) / (5 - V),
        "convex",
    ),
    "rises": ("ratios of one variable", lambda: (V + 1) / (5 - V), "convex"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_a_rule_says_one_curvature_of_what_is_not_affine(case: str) -> None:
    name, make, kind = SAID[case]
    other = "concave" if kind == "convex" else "convex"
    assert needs(name, make(), kind) is not None
    assert needs(name, make(), other) is None


# What neither is convex nor concave, or by another rule.
SILENT = {
    "squares over numbers are not concave": ("geometric mean", lambda: X * X / Y, "concave"),
    "a product is no norm": ("norm of convex functions", lambda: cp.sqrt(1 + X**4 - Y**4), "convex"),
    "powers with two signs": (
        "norm of convex functions",
        lambda: cp.sqrt(99 + cp.multiply(np.array([1.0, -1.0]), V**4)),
        "convex",
    ),
    "a difference of powers": ("concave mean", lambda: cp.square(cp.sqrt(X) - cp.sqrt(Y)), "concave"),
    "a root of a difference": ("norm of an affine map", lambda: cp.sqrt(X * X - Y * Y), "convex"),
    "a mean of powers below 1 is no norm": (
        "norm of convex functions",
        lambda: cp.square(cp.sqrt(X) + cp.sqrt(Y)),
        "convex",
    ),
    "a logarithm of what may be 0": ("log-convex", lambda: (cp.exp(W) - 1) * cp.exp(Y), "convex"),
    "one entry bends down": (
        "ratios of one variable",
        lambda: cp.multiply(np.array([1.0, -1.0]), V) / (5 - V),
        "convex",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SILENT)
def test_a_rule_is_silent_where_a_condition_is_not_met(case: str) -> None:
    name, make, kind = SILENT[case]
    assert needs(name, make(), kind) is None


def test_a_denominator_below_0_turns_the_curvature() -> None:
    """exp(y)/(x - 4) and (x + 3)/(x - 4) are concave where x < 4."""
    domain = domain_of(BOX)
    a = Algebra(domain)
    exponential, line, below = (read(e, domain).node for e in (cp.exp(Y), X + 3, X - 4))
    for name, above in (("log-convex", exponential), ("ratios of one variable", line)):
        node = raw_product([(above, Fraction(1)), (below, Fraction(-1))])
        assert RULES[name].needs(node, "concave", a, None) is not None
        assert RULES[name].needs(node, "convex", a, None) is None


def test_a_denominator_that_crosses_0_has_no_curvature() -> None:
    domain = domain_of(BOX)
    line, across = (read(e, domain).node for e in (X + 3, X - 1))  # x is from 0.5 to 1.5
    node = raw_product([(line, Fraction(1)), (across, Fraction(-1))])
    for kind in ("convex", "concave"):
        needed = RULES["ratios of one variable"].needs(node, kind, Algebra(domain), None)  # type: ignore[arg-type]
        assert needed is None


def test_a_quadratic_and_the_rest_are_told_apart() -> None:
    goals = needs("quadratic part", X * X - X * Y + Y * Y + cp.exp(X) + Z, "convex")
    assert goals is not None and len(goals) == 2
    assert needs("quadratic part", cp.exp(X) + cp.exp(Y), "convex") is None
    assert needs("quadratic part", X * X + Y * Y, "convex") is None


def test_a_sheet_that_may_be_0_asks_for_a_definite_form_there() -> None:
    """w^2 - z^2 - 1 is negative where w = 0; w y - z^2 - 1 is so along all y."""
    name, sheet = "one positive eigenvalue", leaf_of(W)
    assert needs(name, cp.sqrt(W * W - Z * Z - 1), "concave", sheet) == []
    assert needs(name, cp.sqrt(W * Y - Z * Z - 1), "concave", sheet) is None
    assert needs(name, cp.sqrt(W * W + Z * Z), "concave", sheet) is None


@pytest.mark.parametrize(
    ("written", "multiple"),
    [
        (lambda: 1 / X, 1.0),
        (lambda: 2.5 / X, 2.5),
        (lambda: cp.sqrt(2 / (X * X)), 2.0**0.5),
        (lambda: -2.5 / X, None),
        (lambda: 1 / Y, None),
        (lambda: 1 / (X * Y), None),
        (lambda: 1 / X + 1, None),
        (lambda: 1 / X + 1 / Y, None),
        (lambda: 1 / (X * X), None),
        (lambda: 1 / V, None),
    ],
)
def test_multiples_of_an_inverse_are_known(written: Any, multiple: float | None) -> None:
    found = multiple_of_inverse(read(written(), domain_of(BOX)).node, leaf_of(X))
    assert found == multiple


def test_one_positive_eigenvalue_is_said_of_a_root_alone() -> None:
    """sqrt(xy - z^2) is concave; times another function it need not be."""
    name, sheet = "one positive eigenvalue", leaf_of(X)
    assert isinstance(sheet, Node)
    root = cp.sqrt(X * Y - Z * Z)
    assert needs(name, root, "concave", sheet) == []
    for other in (Z, 1 / Z, cp.exp(Z)):
        assert needs(name, root * other, "concave", sheet) is None
        assert needs(name, other * root, "concave", sheet) is None


def test_many_variables_are_a_factorisation() -> None:
    w = cp.Variable(50, name="w")
    needed = RULES["quadratic of many variables"].needs
    for size, kind, said in ((1, "convex", True), (1, "concave", False), (2, "convex", False)):
        node = opaque(cp.sum_squares(w) + 2 * size * w[0] * w[1], [leaf_of(w)])
        assert (needed(node, kind, Algebra(domain_of(BOX)), None) is not None) == said


def test_a_reciprocal_has_the_numerator_one() -> None:
    domain = domain_of(BOX)
    reading = read(1 / (X + Y), domain)
    found = ratio(reading.node, Algebra(reading.domain))
    assert found is not None and found[:2] == (1.0, {(): Fraction(1)})


def test_what_floats_add_up_exactly_is_left_as_it_is() -> None:
    for e in (X + 2 * Y, cp.exp(X) + Y, cp.exp(X + Y) <= 1, cp.maximum(X, Y - 1)):
        assert exact_sums(e) is e


def test_parts_of_a_sum_that_loses_nothing_are_not_added_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by, looked = powers.corrected, list[int]()
    monkeypatch.setattr(powers, "corrected", lambda *a: looked.append(1) or by(*a))
    rng = np.random.default_rng(0)
    a, z = rng.normal(size=(3, 9)), cp.Variable(9, name="z")
    a[0, 0] = 1e-14  # what is so far from 1 may be lost
    row = a[0] @ z + (a[1] @ z - 3 * (a[2] @ z + 0.1))
    for e in (row, row <= 1, row == cp.sum(z) / 3):
        looked.clear()
        assert exact_sums(e) is e and len(looked) == 1
    lost = row + 1e20 * (z[0] - 1) - 1e20 * z[0]
    point = rng.normal(size=9)
    z.value = point
    assert (
        exact_sums(lost).value == pytest.approx(row.value - 1e20) and exact_sums(lost) is not lost
    )
