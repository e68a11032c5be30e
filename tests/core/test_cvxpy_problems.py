"""What CVXPY's own tests solve is solved here: no share of it may be lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cvxpy_problems import MODULES, Record, listed, run


def test_the_problems_of_its_tests_are_solved() -> None:
    record, names = Record(), listed()
    run(names, record)
    assert sum(names.values()) >= 200
    assert {n: record.solved[n] for n in names if record.solved[n] < names[n]} == {}
    assert record.outcomes["raw exception"] == record.outcomes["different"] == 0, record.wrong
    assert record.unlisted == []


@pytest.mark.slow
def test_the_share_of_its_modules_does_not_fall() -> None:
    record = Record()
    run(MODULES, record)
    met = record.met
    assert met >= 2000 and record.outcomes["solved"] / met >= 0.985  # 2,101 of 2,123, CVXPY 1.9.3
    assert record.outcomes["raw exception"] == record.outcomes["different"] == 0, record.wrong
    assert record.unlisted == []
