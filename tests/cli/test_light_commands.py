"""Commands that print facts load no modelling layer."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from typer.testing import CliRunner
from optfair.cli.app import app
result = CliRunner().invoke(app, {arguments!r})
assert result.exit_code == 0, result.output
assert {word!r} in result.output
heavy = [m for m in ("cvxpy", "sklearn", "numpy", "scipy", "rich") if m in sys.modules]
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--help"], "Commands"),
        (["list"], "textbook/diet"),
        (["list", "textbook/*", "--json"], "diet"),
        (["--version"], "."),
    ],
)
def test_facts_need_no_modelling_layer(arguments: list[str], word: str) -> None:
    program = PROGRAM.format(arguments=arguments, word=word)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
