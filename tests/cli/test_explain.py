"""optfair explain: a formula, its bounds, the verdict; text that is no formula is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optfair.cli.app import app

run = CliRunner().invoke


def test_a_proof_is_printed_as_a_tree() -> None:
    done = run(app, ["explain", "sqrt(1 + x**2) + x*x/y", "--where", "y>=1, x<=4"])
    assert done.exit_code == 0
    assert "convex on 'y >= 1'" in done.stdout and "verified" in done.stdout
    assert "square over a positive function" in done.stdout


def test_a_refutation_says_what_would_help() -> None:
    done = run(app, ["explain", "x**3", "--json"])
    record = json.loads(done.stdout)
    assert done.exit_code == 0 and record["curvature"] == "neither" and record["verified"]
    assert record["hints"] == ["convex if x >= 0", "concave if x <= 0"]
    assert {c["refutes"] for c in record["chords"]} == {"convex", "concave"}


def test_a_vector_has_a_length() -> None:
    done = run(
        app, ["explain", "sum(v*v)/(1 + sum(v))", "--where", "v>=0", "--shape", "v=6", "--json"]
    )
    assert json.loads(done.stdout)["curvature"] == "convex"


@pytest.mark.parametrize(
    ("formula", "where", "word"),
    [
        ("__import__('os').system('true')", "", "grammar"),
        ("(lambda: 1)()", "", "grammar"),
        ("x.value", "", "grammar"),
        ("log(x", "", "no formula"),
        ("x**y", "", "exponent"),
        ("1/(x - 1)", "0<=x<=2", "crosses 0"),
        ("log(x)*log(x)", "x<=-1", "defined nowhere"),
        ("foo(x)", "", "no function"),
        ("x*x", "x", "comparison"),
        ("x*x", "x>=", "'x>=' is no list of bounds"),
    ],
)
def test_bad_input_is_named(formula: str, where: str, word: str) -> None:
    done = run(app, ["explain", formula, "--where", where])
    assert done.exit_code == 2
    assert word in done.output


def test_a_bound_on_another_variable_is_refused_unless_it_is_linked() -> None:
    done = run(app, ["explain", "x*x/y", "--where", "Y>=1"])
    assert done.exit_code == 2 and "'Y' is no variable of it" in done.stderr
    linked = run(app, ["explain", "x*x/y", "--where", "y>=z, z>=1"])
    assert linked.exit_code == 0 and "verified" in linked.stdout
    single = run(app, ["explain", "x*x/y", "--where", "y=1"])
    assert single.exit_code == 2 and "write e.g. x >= 0, x <= 4, y == 1" in single.stderr


def test_the_chords_are_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "chord.svg"
    done = run(app, ["explain", "x*y", "--picture", str(picture)])
    assert done.exit_code == 0 and picture.read_text().count("<path") > 4
    assert run(app, ["explain", "x*x*y*y + x*x", "--picture", str(picture)]).exit_code == 2


def test_nothing_decided_is_no_success() -> None:
    done = run(app, ["explain", "exp(x) - x**2/2", "--where", "x>=0"])
    assert done.exit_code == 1 and "undecided" in done.stdout
