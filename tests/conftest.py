"""Settings every test shares."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

matplotlib.use("Agg")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so it is where a shell started the run in the background; Ctrl-C is tested all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)
# derandomised: a red run is red again when it is looked at
settings.register_profile("optfair", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("optfair")


def _has_data() -> bool:
    folder = os.environ.get("OPTFAIR_DATA", "")
    return bool(folder) and (Path(folder) / "MANIFEST.toml").is_file()


def _has_collections() -> bool:
    folder = os.environ.get("OPTFAIR_COLLECTIONS", "")
    return bool(folder) and (Path(folder) / "MANIFEST.toml").is_file()


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


# marker -> (is what it needs there, what it needs)
NEEDS = {
    "data": (_has_data, "OPTFAIR_DATA"),
    "collections": (_has_collections, "OPTFAIR_COLLECTIONS"),
    "browser": (lambda: _browser() is not None, "chromium or google-chrome"),
}


@pytest.fixture(scope="session")
def browser() -> str:
    """Path of a headless browser, for tests with the marker of that name."""
    path = _browser()
    if path is None:
        pytest.fail("give this test the marker browser")
    return path


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, by name and with a count, what needs something that is not there."""
    for marker, (there, what) in NEEDS.items():
        gone = [item for item in items if item.get_closest_marker(marker)]
        if gone and not there():
            config.hook.pytest_deselected(items=gone)
            items[:] = [item for item in items if item not in gone]
            config.stash.setdefault(_MISSING, {})[what] = [item.name for item in gone]


_MISSING: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were left out for want of something."""
    for what, names in terminalreporter.config.stash.get(_MISSING, {}).items():
        terminalreporter.write_line(
            f"{len(names)} tests need {what} and were deselected: {', '.join(names)}"
        )
