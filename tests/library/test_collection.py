"""Collections of problem files: what their manifest says, and what it must not."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import cvxpy as cp
import pytest

import optfair as of
from optfair.comparison import compare_solvers

TEXT = "* tiny\n1\n1\n2\n1.0\n0 1 1 2 1.0\n1 1 1 1 1.0\n1 1 2 2 1.0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.dat-s").write_text(TEXT)
    rows = [("tiny", "1.0"), ("wide", '"1.00e+00"'), ("none", '"primal infeasible"')]
    mark = hashlib.sha256(TEXT.encode()).hexdigest()
    tables = ['[[set]]\nname = "own"\nsource = "here"\n[[set]]\nname = "other"\n']
    for name, optimum in rows:
        tables.append(
            f'[[instance]]\nset = "own"\nname = "{name}"\nfile = "tiny.dat-s"\n'
            f'sha256 = "{mark}"\noptimum = {optimum}\n'
        )
    (tmp_path / "MANIFEST.toml").write_text("".join(tables))
    return tmp_path


def changed(folder: Path, old: str, new: str) -> None:
    file = folder / "MANIFEST.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_members_have_their_optima(folder: Path) -> None:
    first, second, third = of.library.collection("own", folder)
    assert first.name == "own/tiny" and first.source == "here"
    assert first.optimum == second.optimum == 1.0 and (first.digits, second.digits) == (17, 3)
    assert third.optimum is None and third.outcome == "infeasible"
    assert first.problem().solve().objective == pytest.approx(1.0, abs=1e-6)
    assert of.library.collection("other", folder) == ()


def test_an_optimum_is_held_to_the_digits_that_are_printed(folder: Path) -> None:
    exact, printed, unknown = of.library.collection("own", folder)
    assert exact.agrees(1.0 + 1e-8, 1e-7) is True and exact.agrees(1.004, 1e-7) is False
    assert printed.agrees(1.004, 1e-7) is True and printed.agrees(1.02, 1e-7) is False
    assert unknown.agrees(1.0, 1e-7) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tiny.dat-s", "../tiny.dat-s", "lies outside"),
        ("optimum = 1.0", 'optimum = "about 1"', "is 'about 1'"),
        ("optimum = 1.0", "optimum = true", "is True"),
        ("optimum = 1.0", "", "digits"),
        ('name = "tiny"', "", "has no 'name'"),
        ('sha256 = "', 'sha256 = "zz', "no SHA-256"),
        ("[[instance]]", "[[instance", "not valid TOML"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    folder: Path, old: str, new: str, message: str
) -> None:
    changed(folder, old, new)
    if message == "digits":  # an optimum need not be known
        assert of.library.collection("own", folder)[0].optimum is None
        return
    with pytest.raises(of.DataError, match=message):
        of.library.collection("own", folder)


def test_another_file_is_not_taken_for_the_one_that_is_named(folder: Path) -> None:
    (folder / "tiny.dat-s").write_text(TEXT.replace("1.0\n0", "2.0\n0"))
    with pytest.raises(of.DataError, match="not the file"):
        of.library.collection("own", folder)[0].problem()
    (folder / "tiny.dat-s").unlink()
    with pytest.raises(of.DataError, match="cannot be read"):
        of.library.collection("own", folder)[0].problem()


def test_a_folder_must_be_known_and_have_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(of.DataError, match=r"no MANIFEST\.toml"):
        of.library.collection("own", tmp_path)
    monkeypatch.delenv("OPTFAIR_COLLECTIONS", raising=False)
    with pytest.raises(of.DataError, match="no folder"):
        of.library.collection("own")
    assert of.library.collections() == ()


@pytest.mark.parametrize("folder", [3, ["netlib"], 0.5])
def test_a_folder_is_a_path(folder: Any) -> None:
    for read in (
        lambda: of.library.collection("netlib", folder),
        lambda: of.library.collections(folder),
    ):
        with pytest.raises(of.DataError, match=r"folder is an? \w+, no path"):
            read()


def test_a_collection_is_compared_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTFAIR_COLLECTIONS", str(folder))
    with pytest.raises(of.DataError, match="own"):
        of.library.collection("owm")
    c = compare_solvers("own/t*", ["psd-blocks", "clarabel"], tolerance=1e-6)
    assert [(r.problem, r.outcome, r.stated) for r in c.runs] == [("own/tiny", "solved", 1.0)] * 2
    assert c.conflicts() == ()
    with pytest.raises(of.DataError, match="no member"):
        compare_solvers("own/z*")


DAMAGED = {  # what a manifest says, what lies there, and what is said
    "changed": (TEXT, TEXT.replace("1.0\n0", "2.0\n0"), "is not the file"),
    "cut": (TEXT, TEXT[:20], "is not the file"),
    "missing": (TEXT, None, "cannot be read"),
    "nothing": ("no program", "no program", "nothing.dat-s"),
}


@pytest.mark.slow
def test_a_damaged_file_is_a_row_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, another one, cut, or no program though its checksum is right: each says so."""
    monkeypatch.setenv("OPTFAIR_COLLECTIONS", str(tmp_path))
    manifest = '[[set]]\nname = "own"\n'
    for name, (text, there, _) in {**DAMAGED, "sound": (TEXT, TEXT, "")}.items():
        mark = hashlib.sha256(text.encode()).hexdigest()
        manifest += f'[[instance]]\nset = "own"\nname = "{name}"\nfile = "{name}.dat-s"\n'
        manifest += f'sha256 = "{mark}"\n'
        if there is not None:
            (tmp_path / f"{name}.dat-s").write_text(there)
    (tmp_path / "MANIFEST.toml").write_text(manifest)
    asked = [f"own/{name}" for name in (*DAMAGED, "sound")]
    c = compare_solvers(asked, "clarabel", tolerance=1e-6, repeats=2)
    bad = {r.problem.removeprefix("own/"): r for r in c.runs if r.outcome == "unreadable"}
    assert list(bad) == list(DAMAGED)
    for name, run in bad.items():
        assert DAMAGED[name][2] in run.reason and f"{name}.dat-s" in run.reason
        assert not run.asked and run.problem_class == ""
        with pytest.raises(of.DataError, match=DAMAGED[name][2]):  # nothing is left to compare on
            compare_solvers(f"own/{name}", "clarabel")
    good = c.runs[len(bad) :]
    assert [(r.problem, r.outcome) for r in good] == [("own/sound", "solved")] * 2
    assert c.failures() == (*bad.values(),) and c.refusals() == ()
    assert list(c.values()["clarabel"]) == ["own/sound"] and c.summary()[0].taken == 1
    assert "unreadable" in c.to_html() and "not read" in c.to_html()
    c.save(tmp_path / "c.json")
    assert type(c).load(tmp_path / "c.json").runs == c.runs


def written(folder: Path, group: str, files: dict[str, tuple[of.Problem, object]]) -> None:
    """Write a folder of files with its manifest."""
    tables = [f'[[set]]\nname = "{group}"\n']
    for file, (problem, optimum) in files.items():
        problem.export(folder / file)
        mark = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        tables.append(
            f'[[instance]]\nset = "{group}"\nname = "{file.partition(".")[0]}"\n'
            f'file = "{file}"\nsha256 = "{mark}"\noptimum = {optimum}\n'
        )
    (folder / "MANIFEST.toml").write_text("".join(tables))


def cone(least: float) -> of.Problem:
    x = cp.Variable(2, name="x")
    rows = [cp.norm(x) <= 5.0, x[0] >= least, x[1] >= 4.0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows))


def integers() -> of.Problem:
    x = cp.Variable(3, name="x", integer=True)
    rows = [2 * x[0] + 3 * x[1] + 4 * x[2] <= 9, x >= 0, x <= 2]
    return of.from_cvxpy(cp.Problem(cp.Maximize(3 * x[0] + 5 * x[1] + 4 * x[2]), rows))


@pytest.mark.parametrize(
    ("group", "files", "solver"),
    [
        (
            "cblib",
            {"ball.cbf": (cone(3.0), 7.0), "none.cbf": (cone(4.0), '"primal infeasible"')},
            "clarabel",
        ),
        ("miplib", {"pack.mps": (integers(), 13.0), "packed.mps.gz": (integers(), 13.0)}, "highs"),
    ],
)
def test_cones_and_integers_are_collections_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    files: dict[str, tuple[of.Problem, object]],
    solver: str,
) -> None:
    written(tmp_path, group, files)
    monkeypatch.setenv("OPTFAIR_COLLECTIONS", str(tmp_path))
    members = of.library.collection(group, tmp_path)
    assert [m.name for m in members] == [f"{group}/{f.partition('.')[0]}" for f in files]
    c = compare_solvers(group, solver, tolerance=1e-6)
    for run, member in zip(c.runs, members, strict=True):
        assert run.outcome == ("solved" if member.outcome == "optimal" else "infeasible")
        assert member.optimum is None or member.agrees(run.objective, 1e-6)
    assert c.conflicts() == ()
    # a file that was cut is refused
    file = members[0].path
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(of.DataError, match="not the file that its manifest names"):
        members[0].problem()
    file.unlink()
    with pytest.raises(of.DataError, match="cannot be read"):
        members[0].problem()


def test_what_is_too_large_for_the_limit_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "miplib", {"pack.mps": (integers(), 13.0)})
    monkeypatch.setenv("OPTFAIR_COLLECTIONS", str(tmp_path))
    (run,) = compare_solvers("miplib", "highs", tolerance=1e-6, time_limit=1e-9).runs
    assert run.outcome == "time_limit" and run.stated == 13.0 and run.reason
