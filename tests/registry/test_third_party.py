"""A method in a package of its own: no line of optfair knows it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair import registry
from optfair.backends.registry import profiles
from optfair.registry import method_folders

INSTALLED = Path(__file__).with_name("installed")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    """Put the folder on the path, as an installer would."""
    monkeypatch.syspath_prepend(str(INSTALLED))
    method_folders.cache_clear()
    importlib.invalidate_caches()
    yield
    method_folders.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] == "isotonic_method"]:
        del sys.modules[name]


@pytest.fixture
def problem():
    return of.library.load("isotonic/dose").problem()


def test_the_package_is_nowhere_in_optfair() -> None:
    package = Path(of.__file__).parent
    for path in [*package.rglob("*.py"), *package.rglob("*.toml")]:
        assert "isotonic_method" not in path.read_text(encoding="utf-8"), path


def test_its_names_are_registered() -> None:
    assert "IsotonicRegression" in registry.names("models")
    assert registry.entry("rules", "steps_at_most").method == "isotonic_method"
    assert of.metrics.largest_step([0.0, 1.0, 3.0]) == 2.0


@pytest.mark.parametrize(("name", "value"), [("dose", 8.5), ("dose_steps", 11.0)])
def test_its_instances_are_certified(name: str, value: float) -> None:
    assert f"isotonic/{name}" in of.library.names()
    outcome = of.library.certify(of.library.load(f"isotonic/{name}"))
    assert outcome.ok and outcome.value == pytest.approx(value, rel=1e-6)


def test_its_route_is_the_default_and_agrees_with_the_generic_one(problem) -> None:
    assert profiles()["adjacent-violators"].structure == "chain"
    s = problem.solve()
    assert s.solver == "adjacent-violators" and s.is_optimal(1e-12)
    np.testing.assert_allclose(s["fitted"], [2.5, 2.5, 5.0, 5.0, 5.0], atol=1e-12)
    assert s.certificate.verify()
    other = problem.solve(solver="clarabel")
    assert other.objective == pytest.approx(s.objective, rel=1e-7)


def test_random_chains_agree_with_the_generic_route() -> None:
    model = registry.load("models", "IsotonicRegression")
    for seed in range(5):
        p = model(np.random.default_rng(seed).normal(size=30))
        s = p.solve(tolerance=1e-10)
        assert s.solver == "adjacent-violators"
        assert p.solve(solver="clarabel").objective == pytest.approx(s.objective, rel=1e-6)


def test_its_rule_takes_the_structure_away() -> None:
    p = of.library.load("isotonic/dose_steps").problem()
    s = p.solve()
    assert s.solver != "adjacent-violators" and s.is_optimal(1e-6)
    assert of.metrics.largest_step(s["fitted"]) <= 1.0 + 1e-6
    with pytest.raises(of.UnsupportedProblem, match="'smooth' is not part of the chain"):
        p.solve(solver="adjacent-violators")


def test_a_tampered_answer_is_not_verified(problem) -> None:
    s = problem.solve()
    proof = s.proof
    moved = {"order": np.add(s.multipliers["order"], [1e-4, 0.0, 0.0, 0.0])}
    assert proof.check(s.values, moved).dual > 1e-6
    assert proof.check(s.values, s.multipliers).dual < 1e-12


def test_the_command_line_lists_its_instances() -> None:
    paths = [str(INSTALLED), str(Path(of.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", "from optfair.cli.app import main; main()", "list", "isotonic/*"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "isotonic/dose_steps" in done.stdout


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ('schema = 1\n[models]\nFairAssignment = "regression"\n', "two methods register"),
        ('schema = 1\n[wishes]\nx = "y"\n', "unknown key 'wishes'"),
        ("schema = 1\n[models]\nMine = 3\n", "write a module"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, monkeypatch, file: str, said: str) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(INSTALLED)])
    info = tmp_path / "wrong_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[optfair.methods]\nwrong = wrong_method\n")
    (tmp_path / "wrong_method").mkdir()
    (tmp_path / "wrong_method" / "__init__.py").write_text("")
    method_folders.cache_clear()
    importlib.invalidate_caches()
    with pytest.raises(of.DeclarationError, match=r"no method\.toml"):
        registry.names("models")
    (tmp_path / "wrong_method" / "method.toml").write_text(file)
    with pytest.raises(of.DeclarationError, match=said):
        registry.names("models")


def test_what_is_registered_but_not_there_is_told(monkeypatch) -> None:
    wrong = registry.Entry(
        "models", "Mine", "isotonic_method", "isotonic_method.regression", "Mine"
    )
    with pytest.raises(of.DeclarationError, match=r"correct its method\.toml"):
        wrong.load()


def test_the_page_on_adding_names_every_kind() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adding.md").read_text(encoding="utf-8")
    table = page[page.index("## A method") :]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`\[?(\w+)\]?`", " ".join(rows)))
    assert named == {"schema", "title", "defaults", *registry.KINDS}


def test_a_misspelt_metric_or_picture_gets_the_nearest_name():
    with pytest.raises(AttributeError, match="did you mean 'balance'"):
        _ = of.metrics.balanse
    with pytest.raises(AttributeError, match="did you mean 'plot_profile'"):
        _ = of.plots.plot_profil
