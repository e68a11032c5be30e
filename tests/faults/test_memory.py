"""Where memory runs out, a verb raises an error of ours, and leaves no half file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from harness import swept  # noqa: E402


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_no_verb_fails_raw_without_memory(step: int) -> None:
    found = swept(FOLDER / "memory.py", step)
    assert len(found) == -(-15 // step)
    assert [row for row in found if row[1] not in ("typed", "result")] == []
    assert ("solve in 1 MiB", "typed", "OutOfMemory") in found
