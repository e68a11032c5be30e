"""A run is told what was left out, and repeats the examples of its properties."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
MARKERS = "[pytest]\nmarkers =\n    data: d\n    browser: b\n    slow: s\n"
TESTS = """
import pytest

@pytest.mark.data
@pytest.mark.parametrize("name", ["adult", "bank::[0]"])
def test_counts(name):
    raise AssertionError("ran without data")

@pytest.mark.data
class TestGroups:
    def test_shares(self):
        raise AssertionError("ran without data")

@pytest.mark.data
@pytest.mark.slow
def test_not_asked_for():
    raise AssertionError("ran without data")

def test_plain():
    pass
"""


def run(folder: Path, *options: str, **environment: str) -> str:
    """Run the tests of a folder under the settings of these tests."""
    (folder / "pytest.ini").write_text(MARKERS)
    (folder / "conftest.py").write_bytes(CONFTEST.read_bytes())
    paths = [str(CONFTEST.parents[1]), os.environ.get("PYTHONPATH", "")]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "OPTFAIR_DATA"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options],
        cwd=folder,
        env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one", "two"])
def test_what_is_left_out_is_named(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_first.py").write_text(TESTS)
    (tmp_path / "test_second.py").write_text(
        "import pytest\n@pytest.mark.browser\ndef test_click(browser): pass\ndef test_b(): pass\n"
    )
    out = run(tmp_path, "-m", "not slow", *workers, PATH="", OPTFAIR_DATA=str(tmp_path))
    assert " 3 tests left out: OPTFAIR_DATA names no folder with a MANIFEST.toml -" in out
    assert "\ntest_first.py: test_counts (2), TestGroups::test_shares\n" in out
    assert " 1 test left out: no chromium or google-chrome on the path -" in out
    assert "\ntest_second.py: test_click\n" in out
    assert "2 passed" in out and "test_not_asked_for" not in out


@pytest.mark.slow
def test_nothing_is_said_where_nothing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "MANIFEST.toml").touch()
    (tmp_path / "test_first.py").write_text("def test_a(): pass\n")
    assert "left out" not in run(tmp_path, "-n", "1", OPTFAIR_DATA=str(tmp_path))


@pytest.mark.slow
def test_examples_do_not_depend_on_what_was_loaded_before(tmp_path: Path) -> None:
    (tmp_path / "test_draws.py").write_text(
        "import os, importlib\n"
        "from hypothesis import given, settings, strategies as st\n"
        "importlib.import_module(os.environ['LOADED'])\n"
        "@settings(max_examples=100)\n"
        "@given(st.lists(st.floats() | st.integers() | st.text()))\n"
        "def test_draws(drawn):\n"
        "    with open(os.environ['LOADED'], 'a') as file:\n"
        "        print(ascii(drawn), file=file)\n"
    )
    for module in ("optfair", "optfair.cli.app"):
        run(tmp_path, LOADED=module)
    first, second = (tmp_path / m for m in ("optfair", "optfair.cli.app"))
    assert first.read_text() == second.read_text() != ""
