"""No argument, however odd, ends in a raw error, in silence, in a hang or in a dead process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import calls


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
def test_bad_arguments_end_in_errors_of_ours(step: int) -> None:
    found = calls.swept(step)
    assert len(found) > 14_000 // step
    assert [row for row in found if row[1] != "typed"] == []
