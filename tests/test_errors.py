"""What errors suggest."""

from __future__ import annotations

from optfair.errors import MOST_NAMES, nearest


def test_names_that_are_near_are_suggested() -> None:
    assert nearest("clarabell", ["highs", "clarabel"]) == "did you mean 'clarabel'?"


def test_all_names_are_told_unless_they_are_many() -> None:
    assert nearest("zzz", ["b", "a"]) == "known names: a, b"
    many = [f"name{i:03}" for i in range(MOST_NAMES + 5)]
    assert nearest("zzz", many).endswith(f"{many[MOST_NAMES - 1]} and 5 more")
