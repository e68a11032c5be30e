"""What pytest collects here: the examples in the pages, none of the scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

collect_ignore_glob = ["*.py", "*/*.py", "_build/*", "gallery/*", "textbook/*", "api/generated/*"]


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Undo what a page sets, also when it fails half way."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
