"""The README: short, with pictures that exist, and commands that run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optfair
from optfair.cli.app import app

ROOT = Path(optfair.__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = "\n".join(re.findall(r"```shell\n(.*?)```", TEXT, flags=re.DOTALL))
COMMANDS = [line.partition("#")[0].strip() for line in SHELL.splitlines() if line.strip()]


def test_it_is_short_and_shows_two_pictures() -> None:
    assert len(TEXT.split()) < 700
    pictures = re.findall(r"!\[[^\]]{20,}\]\(([^)]+)\)", TEXT)
    assert len(pictures) == 2 and all((ROOT / p).stat().st_size < 120_000 for p in pictures)


def test_what_it_names_is_there() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", TEXT)]
    assert links and all((ROOT / link).exists() for link in links)
    assert all((ROOT / name).is_file() for name in re.findall(r"benchmarks/\w+\.py", TEXT))
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{t}:" in targets for t in re.findall(r"`make ([\w-]+)`", TEXT))


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner, words = CliRunner(), shlex.split(command)
    assert words[0] == "optfair"
    if words[1] == "verify":
        runner.invoke(app, ["prove", "diet", "--out", words[2]])
    done = runner.invoke(app, words[1:])
    # a model without a solution is what `diagnose` is asked about, and 1 says so
    assert done.exit_code == int(words[1] == "diagnose"), done.output
    assert done.stdout


def test_its_figures_are_of_benchmarks_with_quick() -> None:
    for script in re.findall(r"`python (benchmarks/\w+\.py) --quick`", TEXT):
        assert "--quick" in (ROOT / script).read_text(encoding="utf-8")
