"""The layers: imports point downwards, each solver library is imported in one file."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import optfair

PACKAGE = Path(optfair.__file__).parent

LAYERS = {
    "errors": 0,
    "locate": 0,
    "proofs": 0,
    "core": 0,
    "convexity": 0,
    "solution": 1,
    "models": 2,
    "compile": 2,
    "transforms": 3,
    "backends": 3,
    "library": 4,
    "formats": 4,
    "diagnosis": 4,
    "datasets": 3,
    "metrics": 5,
    "estimators": 5,
    "comparison": 5,
    "plots": 5,
    "cli": 6,
}
# the verbs of a problem and a solution forward to the layer that does the work
ALLOWED = {
    ("core/verbs.py", "optfair.backends.solve"),
    ("core/verbs.py", "optfair.transforms.soften"),
    ("core/verbs.py", "optfair.diagnosis.diagnose"),
    ("core/verbs.py", "optfair.formats.export"),
    ("core/verbs.py", "optfair.compile.pyomo"),
    ("core/verbs.py", "optfair.solution.residuals"),
    ("core/verbs.py", "optfair.solution.shadow_prices"),
    ("core/verbs.py", "optfair.solution.files"),
}
ADAPTERS = {
    "highspy": {"backends/linear_program.py"},
    "clarabel": {"backends/cone_program.py"},
    "ot": {"backends/structured/network_simplex.py"},
    "scs": set(),
    "ortools": {"backends/ortools_worker.py"},
    "mosek": {"backends/mosek_backend.py"},
    "gurobipy": {"backends/gurobi_backend.py"},
    "pymoo": {"estimators/evolution.py"},
    "kmedoids": {"estimators/groups.py"},
    "dccp": {"backends/dccp_backend.py"},
    "pyscipopt": {"backends/scip_model.py"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether only for type checking) of every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only |= {id(n) for part in node.body for n in ast.walk(part)}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "optfair":
            names = [f"optfair.{a.name}" for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found += [(name, id(node) in typing_only) for name in names]
    return found


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    return LAYERS.get(parts[1]) if len(parts) > 1 and parts[0] == "optfair" else None


def test_imports_point_downwards() -> None:
    upward = set()
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        own = LAYERS.get(name.split("/")[0].removesuffix(".py"))
        if own is None:  # the package's own __init__
            continue
        for module, typing_only in imports(path):
            layer = layer_of(module)
            if layer is not None and layer > own and not typing_only:
                upward.add((name, module))
    assert upward - ALLOWED == set()


def test_every_allowed_upward_import_exists() -> None:
    verbs = {m for m, typing_only in imports(PACKAGE / "core/verbs.py") if not typing_only}
    assert {module for _, module in ALLOWED} <= verbs


def test_every_folder_has_a_layer() -> None:
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert folders <= set(LAYERS)


@pytest.mark.parametrize("library", ADAPTERS)
def test_each_solver_library_has_one_adapter(library: str) -> None:
    users = {
        p.relative_to(PACKAGE).as_posix()
        for p in modules()
        if any(m.split(".")[0] == library for m, _ in imports(p))
    }
    assert users == ADAPTERS[library]


def test_solver_names_stand_in_files_of_facts_only() -> None:
    names = {f'"{path.stem}"' for path in (PACKAGE.parent / "solvers").glob("[a-z]*.toml")}
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            f'"{n.value}"'
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
        # the module name of our own route is how its log lines are called
        assert constants & names <= {'"mass-dual"'}, path


def test_validation_raises_instead_of_asserting() -> None:
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Assert)], path


def test_files_stay_short() -> None:
    long = {p.name: len(p.read_text().splitlines()) for p in modules()}
    assert {name: n for name, n in long.items() if n > 600} == {}


def test_no_public_name_is_a_module_name() -> None:
    taken = {p.stem for p in PACKAGE.glob("*.py")} | {
        p.name for p in PACKAGE.iterdir() if p.is_dir()
    }
    names = set(optfair.__all__) - set(optfair._SUBPACKAGES)
    assert names & taken == set()


def test_every_public_name_loads() -> None:
    for name in optfair.__all__:
        assert getattr(optfair, name) is not None
    assert set(dir(optfair)) == set(optfair.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = optfair.nothing


def test_importing_optfair_loads_nothing_heavy() -> None:
    code = (
        "import sys, optfair; "
        "print([m for m in ('numpy', 'cvxpy', 'scipy', 'ot', 'sklearn', 'pandas', 'rich') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
