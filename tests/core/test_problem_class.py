from __future__ import annotations

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.core.problem_class import ProblemClass, known_symmetric, numeric_of
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
