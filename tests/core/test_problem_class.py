from __future__ import annotations

import itertools
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.core.problem_class import ProblemClass, known_symmetric, numeric_of, vanishing
from optfair.errors import ClassError

classes = st.builds(
    ProblemClass,
    st.booleans(),
    st.booleans(),
    st.frozensets(st.sampled_from(["soc", "psd", "exp", "pow", "nonlinear"])),
    st.booleans(),
    st.sampled_from(["convex", "unverified", "nonconvex"]),
)


@given(classes, classes, classes)
def test_join_is_a_semilattice(a: ProblemClass, b: ProblemClass, c: ProblemClass) -> None:
    assert a | a == a
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)


@given(classes, classes)
def test_join_is_above_both(a: ProblemClass, b: ProblemClass) -> None:
    assert a <= (a | b)
    assert b <= (a | b)


@given(classes, classes, classes)
def test_order_is_transitive(a: ProblemClass, b: ProblemClass, c: ProblemClass) -> None:
    if a <= b and b <= c:
        assert a <= c


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("LP", "LP"),
        ("QP", "QP"),
        ("QCQP", "QCQP"),
        ("SOCP", "SOCP"),
        ("SDP", "SDP"),
        ("CONIC(exp)", "CONIC"),
        ("MILP", "MILP"),
        ("MISOCP", "MISOCP"),
        ("nonconvex QCQP", "QCQP"),
        ("unverified NLP", "NLP"),
    ],
)
def test_parse_prints_back(text: str, name: str) -> None:
    parsed = ProblemClass.parse(text)
    assert str(parsed) == text
    assert parsed.name == name


def test_ladder() -> None:
    ladder = [ProblemClass.parse(t) for t in ("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC(exp)")]
    for low, high in pairwise(ladder):
        assert low <= high
        assert not high <= low
    assert not ProblemClass.parse("MILP") <= ProblemClass.parse("SDP")


def test_unknown_class_suggests() -> None:
    with pytest.raises(ClassError, match="did you mean 'SOCP'"):
        ProblemClass.parse("SOCPP")


@pytest.mark.parametrize("unit", [1.0, 1e-10, 1e200])
def test_condition_numbers_are_those_of_positive_definite_matrices(unit: float) -> None:
    number = numeric_of(cp.condition_number(cp.Variable((2, 2), symmetric=True)))
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    for own, ratio in (([4.0, 1.0], 4.0), ([1.0, 1e6], 1e6), ([3.0, 3.0], 1.0)):
        assert number([unit * (turn.T * own) @ turn]) == pytest.approx(ratio, rel=1e-9)
    assert number([unit * np.array([[2.0, 1.0], [1.0 + 1e-12, 2.0]])]) == pytest.approx(3.0)
    for entries in ([1, 2, 2, 1], [1, 0, 0, 0], [0, 0, 0, 0], [-1, 0, 0, -1], [4, 1, 0, 4]):
        assert np.isnan(number([unit * np.reshape(entries, (2, 2))]))
    assert number([np.full((1, 1), unit)]) == 1.0
    assert numeric_of(cp.exp(cp.Variable()))([np.array(0.0)]) == 1.0
    assert numeric_of(cp.lambda_max(cp.Variable((2, 2))))([unit * turn.T @ turn]) == pytest.approx(
        unit
    )


def test_what_cannot_say_whether_it_is_symmetric_is_not_known_to_be() -> None:
    class Broken:
        def is_symmetric(self) -> bool:
            raise IndexError

    assert known_symmetric(cp.Variable((2, 2), symmetric=True)) and not known_symmetric(Broken())
    assert not known_symmetric(cp.Variable((2, 2)))


def limits() -> dict[str, tuple[Any, list[Any]]]:
    """Return limits of 0 on what is never negative, and what each demands instead."""
    x, y, P = cp.Variable(2, name="x"), cp.Variable(name="y"), np.array([[1.0, -1.0], [-1.0, 1.0]])
    return {
        "squares": (cp.sum_squares(x) <= 0, [x == 0]),
        "sum": (cp.sum(cp.square(x)) + 2 * cp.power(y - 1, 4) <= 0, [x == 0, y == 1]),
        "turned": (cp.sum_squares(x - 1) / 3 <= 0, [x == 1]),
        "taken away": (-(-2 * cp.sum_squares(x)) <= 0, [x == 0]),
        "form": (cp.quad_form(x, P) + cp.square(cp.norm(y)) <= 0, [x[0] == x[1], y == 0]),
        "line": (cp.quad_over_lin(x, y) <= 0, [x == 0, y >= 0]),
        "robust": (cp.sum(3 * cp.huber(x - 1)) + cp.huber(cp.norm(y), 2) <= 0, [x == 1, y == 0]),
        "entries": (cp.square(x) <= np.zeros(2), [x == 0]),
    }


@pytest.mark.parametrize("name", limits())
def test_squares_that_are_at_most_0_vanish(name: str) -> None:
    row, demands = limits()[name]
    zero, found = vanishing(row)
    assert len(found) == len(demands) and zero.is_dcp() and not zero.variables()
    rng, variables = np.random.default_rng(3), row.variables()
    for point in itertools.product([0.0, 1.0, -2.0], repeat=2):
        for v in variables:
            v.value = np.full(v.shape, point[v.name() == "y"])
        assert sorted(z.value() for z in found) == sorted(d.value() for d in demands)
    for v in variables:
        v.value = rng.normal(size=v.shape)
    assert sorted(z.value() for z in found) == sorted(d.value() for d in demands)


def test_other_limits_stand_as_they_are() -> None:
    x, y = cp.Variable(2), cp.Variable()
    for expression in (
        *(cp.sum_squares(x) - 1, cp.sum_squares(x) - y, -cp.sum_squares(x), cp.sum_squares(x) + y),
        *(cp.sum_squares(x) - cp.square(y), -2 * cp.square(y), cp.square(y) / -2, cp.sum(x)),
        *(np.array([1.0, -1.0]) @ cp.square(x), cp.power(y, 1), cp.Constant(0.0)),
        *(cp.huber(y, 0), -cp.huber(y)),
    ):
        row = expression <= 0
        assert vanishing(row) == (row, [])
    equation = x == 0
    assert vanishing(equation) == (equation, [])
