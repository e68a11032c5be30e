"""Types through composition, as an editor or a type checker sees them."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import pytest
from mypy import api

import optfair as of
from optfair.core.verbs import DiagnoseOptions, SolveOptions


@pytest.mark.parametrize(
    "name", ["with_constraints", "with_variables", "with_integrality", "without", "at", "soften"]
)
def test_composing_returns_the_same_type(name: str) -> None:
    assert inspect.signature(getattr(of.Problem, name)).return_annotation == "Self"


@pytest.mark.parametrize(
    ("verb", "options"), [("solve", SolveOptions), ("diagnose", DiagnoseOptions)]
)
def test_a_verb_names_the_options_of_its_function(verb: str, options: type) -> None:
    known = list(inspect.signature(getattr(of, verb)).parameters.values())
    own = {p.name for p in known if p.kind is p.KEYWORD_ONLY}
    assert set(options.__annotations__) | set(getattr(options, "__optional_keys__", ())) == own
    assert typing.is_typeddict(options)


@pytest.mark.slow
def test_a_type_checker_agrees(tmp_path: Path) -> None:
    page = Path(__file__).with_name("composition.py")
    user = [
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(tmp_path),
    ]  # not as this project checks
    said, errors, code = api.run([*user, str(page)])
    assert code == 0, said + errors
