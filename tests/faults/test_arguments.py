"""No argument, however odd, ends in a raw error, in silence, in a hang or in a dead process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from harness import swept  # noqa: E402


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_bad_arguments_end_in_errors_of_ours(step: int) -> None:
    found = swept(FOLDER / "calls.py", step)
    assert len(found) > 14_000 // step
    assert [row for row in found if row[1] != "typed"] == []
