"""Settings every test shares."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

# One thread a process, as there is a process a core; read where NumPy is first imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import matplotlib  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

import optfair  # noqa: E402

matplotlib.use("Agg")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so it is where a shell started the run in the background; Ctrl-C is tested all the same
    signal.signal(signal.SIGINT, signal.default_int_handler)
# derandomised: a red run is red again when it is looked at; no clock decides either
settings.register_profile(
    "optfair",
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("optfair")


def _has_data() -> bool:
    folder = os.environ.get("OPTFAIR_DATA", "")
    return bool(folder) and (Path(folder) / "MANIFEST.toml").is_file()


def _has_collections() -> bool:
    folder = os.environ.get("OPTFAIR_COLLECTIONS", "")
    return bool(folder) and (Path(folder) / "MANIFEST.toml").is_file()


def _has_site() -> bool:
    folder = os.environ.get("OPTFAIR_SITE", "")
    return bool(folder) and (Path(folder) / "index.html").is_file()


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


def _can_mount() -> bool:
    """Whether a file system can be mounted in a name space of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        return subprocess.run([*MOUNTED, folder, "true"], capture_output=True).returncode == 0
    return False


# Runs what stands behind a folder, and there is a disk of 1 MB in that folder for it.
MOUNTED = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    *('mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"',),
)
# marker -> (is what it needs there, why not)
NEEDS = {
    "collections": (_has_collections, "OPTFAIR_COLLECTIONS names no folder with a MANIFEST.toml"),
    "data": (_has_data, "OPTFAIR_DATA names no folder with a MANIFEST.toml"),
    "mount": (_can_mount, "unshare and mount make no file system of its own here"),
    "site": (_has_site, "OPTFAIR_SITE names no folder that make docs wrote"),
    "browser": (lambda: _browser() is not None, "no chromium or google-chrome on the path"),
}


@pytest.fixture(scope="session")
def browser() -> str:
    """Path of a headless browser, for tests with the marker of that name."""
    path = _browser()
    if path is None:
        pytest.fail("give this test the marker browser")
    return path


@pytest.fixture(scope="session")
def mounted() -> tuple[str, ...]:
    """Words before a folder and a command, which finds a disk of 1 MB there; marker mount."""
    return MOUNTED


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that puts the clock forward, so that a limit ends where a test says.

    What begins after that is late from the start.
    """
    now, ahead = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now() + sum(ahead))
    return ahead.append


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave one case in N of a test marked sampled(N) to every run; the others are slow ones."""
    sampled = item.get_closest_marker("sampled")
    if sampled is not None and zlib.crc32(item.name.encode()) % sampled.args[0]:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)  # what -m and -k left out was not asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, by name and with a count, what needs something that is not there."""
    for marker, (there, _) in NEEDS.items():
        gone = [item for item in items if item.get_closest_marker(marker)]
        if gone and not there():
            config.hook.pytest_deselected(items=gone)
            items[:] = [item for item in items if item not in gone]
            config.stash.setdefault(_LEFT_OUT, {})[marker] = [item.nodeid for item in gone]
    if any(getattr(getattr(item, "obj", None), "is_hypothesis_test", False) for item in items):
        # hypothesis draws constants of the modules that are loaded: always the same modules
        for module in pkgutil.walk_packages(optfair.__path__, "optfair."):
            importlib.import_module(module.name)


# marker -> ids of the tests left out
_LEFT_OUT: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker of xdist, which prints nothing, hand over what it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(_LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker left out; each collected all tests."""
    left_out = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash.setdefault(_LEFT_OUT, {}).update(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were left out, for want of what, and which, a line per file."""
    for marker, ids in sorted(terminalreporter.config.stash.get(_LEFT_OUT, {}).items()):
        many = "s" * (len(ids) > 1)
        terminalreporter.section(f"{len(ids)} test{many} left out: {NEEDS[marker][1]}", sep="-")
        files: dict[str, Counter[str]] = {}
        for test in ids:
            file, _, name = test.partition("::")
            files.setdefault(file, Counter())[name.partition("[")[0]] += 1
        for file, tests in sorted(files.items()):
            names = (name + f" ({n})" * (n > 1) for name, n in tests.items())
            terminalreporter.write_line(f"{file}: {', '.join(names)}")
