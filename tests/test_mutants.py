"""The mutation run itself: it changes one thing, and its list names what is there."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any


def loaded() -> Any:
    path = Path(__file__).with_name("mutants.py")
    spec = importlib.util.spec_from_file_location("mutants", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


run = loaded()


def test_every_listed_survivor_is_a_change_of_the_code() -> None:
    reasons = run.listed()
    known = {m.key for file in {key[0] for key in reasons} for m in run.mutants(file)}
    assert not [key for key in reasons if key not in known]
    assert all(len(reason) > 20 for reason in reasons.values())


def test_mutants_are_drawn_alike_and_differ_from_the_code() -> None:
    file = "optfair/core/certificate.py"
    every = run.mutants(file)
    assert run.drawn(file, 5) == run.drawn(file, 5) and len({m.key for m in every}) == len(every)
    assert all(m.before != m.after for m in every)
    assert set(run.drawn(file, -1)) == set(every)
    whole = ast.unparse(ast.parse((run.ROOT / file).read_text(encoding="utf-8")))
    assert {m.before in whole for m in every if "if " not in m.before} == {True}
    # the operators that decide membership are among them
    cones = {(m.before, m.after) for m in run.mutants("optfair/proofs/cones.py")}
    assert ("z - ez >= most", "z - ez > most") in cones and ("np.maximum", "np.minimum") in cones


def test_a_file_is_tried_by_the_tests_that_name_it() -> None:
    names = {Path(t).name for t in run.tests_of("optfair/proofs/cones.py")}
    assert {"test_cones.py", "test_bounds.py"} <= names and "test_rational.py" not in names
    method = run.tests_of("optfair/methods/group_counterfactuals/adapters.py")
    assert all("methods/group_counterfactuals" in t for t in method) and method


def test_survivors_are_tried_by_more_tests_than_those_that_name_their_file(tmp_path: Any) -> None:
    files = ["optfair/proofs/cones.py", "optfair/proofs/residual.py"]
    near, far = run.direct(files), run.nets(files)
    assert {*near} < {*far} and {str(run.ROOT / t) for t in run.WHOLE} <= {*far}
    kept = run.Kept(tmp_path / "kept.jsonl")
    first, second = run.drawn(files[0], 2)
    kept.keep(first, near, "survives")
    kept.keep(second, near, "survives")
    kept.keep(second, far, "killed")
    again = run.Kept(kept.path)
    assert (again.word(first, near), again.word(first, far)) == ("survives", None)
    assert again.word(second, near) == again.word(second, far) == "killed"
