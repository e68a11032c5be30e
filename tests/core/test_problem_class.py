from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optfair.core.problem_class import ProblemClass
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
