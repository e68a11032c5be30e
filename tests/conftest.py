"""Settings every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

matplotlib.use("Agg")
# derandomised: a red run is red again when it is looked at
settings.register_profile("optfair", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("optfair")


def _has_data() -> bool:
    folder = os.environ.get("OPTFAIR_DATA", "")
    return bool(folder) and (Path(folder) / "MANIFEST.toml").is_file()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, by name and with a count, what needs data that is not there."""
    if _has_data():
        return
    gone = [item for item in items if item.get_closest_marker("data")]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]
        config.stash[_MISSING] = [item.name for item in gone]


_MISSING: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were left out for want of data."""
    names = terminalreporter.config.stash.get(_MISSING, [])
    if names:
        terminalreporter.write_line(
            f"{len(names)} tests need OPTFAIR_DATA and were deselected: {', '.join(names)}"
        )
