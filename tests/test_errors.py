"""What errors suggest."""

from __future__ import annotations

from optfair.errors import MOST_NAMES, kind_of, nearest


def test_names_that_are_near_are_suggested() -> None:
    assert nearest("clarabell", ["highs", "clarabel"]) == "did you mean 'clarabel'?"


def test_all_names_are_told_unless_they_are_many() -> None:
    assert nearest("zzz", ["b", "a"]) == "known names: a, b"
    many = [f"name{i:03}" for i in range(MOST_NAMES + 5)]
    assert nearest("zzz", many).endswith(f"{many[MOST_NAMES - 1]} and 5 more")


def test_types_are_named_with_their_article() -> None:
    made = [type(word, (), {})() for word in ("SVC", "Union", "Undecided", "FairKMeans", "Ridge")]
    named = [kind_of(value) for value in (1, "text", *made)]
    letters = ["an int", "a str", "an SVC", "a Union", "an Undecided", "a FairKMeans", "a Ridge"]
    assert named == letters
