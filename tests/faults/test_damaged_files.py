"""Damaged files are read or refused by errors of ours, in little time and memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from harness import swept  # noqa: E402


@pytest.mark.parametrize("count", [250, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_damaged_file_is_read_or_refused(count: int) -> None:
    found = swept(FOLDER / "damaged_files.py", 1, str(count))
    assert len(found) == count
    assert [row for row in found if row[1] not in ("typed", "result")] == []
    assert sum(row[1] == "typed" for row in found) > count // 2


@pytest.mark.slow
def test_no_file_takes_more_than_it_holds() -> None:
    found = swept(FOLDER / "damaged_files.py", 1, "0")
    assert len(found) == 12
    assert [row for row in found if row[1] not in ("typed", "result")] == []
