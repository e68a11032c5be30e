"""The tutorial, typed into an empty folder: every file, every command, and what it says comes out."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

import optfair

PAGE = Path(optfair.__file__).parents[1] / "docs" / "tutorial.md"
BLOCKS = re.findall(
    r"```\{code-block\} (\w+)\n(?::caption: (\S+)\n)?\n?(.*?)```",
    PAGE.read_text("utf-8"),
    re.DOTALL,
)


def test_it_is_short() -> None:
    lines = [line for _, _, text in BLOCKS for line in text.splitlines() if line.strip()]
    assert 40 <= len(lines) <= 60


def expected(printed: dict[str, str]) -> None:
    """Check what the files print."""
    first = printed["first.py"].splitlines()
    assert first[0] == "QP" and len(first) >= 6
    answer = dict(line.split(" ", 1) for line in printed["answer.py"].splitlines())
    assert answer["earned"] == "347.231 proved"
    assert {"rye", "wheat", "brioche"} <= answer.keys()
    text = " ".join(PAGE.read_text("utf-8").split())
    for name, unit in (
        ("ovens", "an oven hour"),
        ("shelf", "a place on the shelf"),
        ("flour", "a kilogram of flour"),
    ):
        assert f"{unit} {answer[name]}" in text
    change, whole, conflict = printed["changed.py"].splitlines()
    assert change.startswith("QP -> MIQP") and "promised" in conflict
    assert f"{float(whole):g} instead of {answer['earned'].split()[0]}" in text


def test_the_files_say_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "bakery", types.ModuleType("bakery"))
    printed = {}
    for kind, file, text in BLOCKS:
        if kind != "python" or file == "compared.py":
            continue
        names = sys.modules["bakery"].__dict__ if file == "bakery.py" else {}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(text, file, "exec"), names)
        printed[file] = out.getvalue()
    expected(printed)
    assert {p.name for p in tmp_path.iterdir()} == {"bakery.mps", "bakery.proof.json"}


@pytest.mark.slow
def test_from_an_empty_folder_to_a_comparison(tmp_path: Path) -> None:
    printed: dict[str, str] = {}
    paths = [str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for kind, file, text in BLOCKS:
        if kind == "python":
            (tmp_path / file).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            command = [sys.executable, *shlex.split(line)[1:]]
            if line.startswith("optfair "):
                command[1:1] = ["-m", "optfair"]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            printed[line] = done.stdout
    expected({line.removeprefix("python "): out for line, out in printed.items()})
    assert "convex" in printed['optfair explain "0.1*h**2 + 1/h" --where "h>=1"']
    assert "347.23" in printed["optfair solve bakery.mps"]
    assert "rye" in printed["optfair solve bakery.mps"]
    assert "proved" in printed["optfair verify bakery.proof.json"]
    assert all(name in printed["python compared.py"] for name in ("clarabel", "scs"))
