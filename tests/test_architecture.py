"""The rooms: which may import which, and each solver library is imported in one file."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import optfair
from optfair import registry

PACKAGE = Path(optfair.__file__).parent

# Which room may import which: the language, from the bottom up. Nothing that is not here.
LANGUAGE = {
    "errors": set(),
    "storage": {"errors"},
    "attributes": {"errors"},
    "numbers": {"attributes", "errors"},
    "registry": {"errors", "storage"},
    "proofs": set(),
    "convexity": {"core", "errors", "numbers", "plots"},
    "core": {"convexity", "errors", "numbers", "proofs"},
    "solution": {"core", "errors", "numbers", "proofs"},
    "compile": {"core", "errors", "numbers", "proofs", "solution", "storage"},
    "transforms": {"backends", "compile", "core", "errors", "numbers", "proofs", "solution"},
    "backends": {
        *("compile", "convexity", "core", "errors", "numbers", "proofs", "registry"),
        *("solution", "transforms"),
    },
    "datasets": {"errors", "numbers", "registry", "storage"},
    "diagnosis": {"backends", "compile", "core", "errors", "numbers", "transforms"},
    "formats": {
        *("backends", "compile", "core", "diagnosis", "errors", "numbers", "proofs", "solution"),
        *("storage", "transforms"),
    },
    "library": {
        *("backends", "compile", "convexity", "core", "datasets", "errors", "formats"),
        *("numbers", "registry", "storage", "transforms"),
    },
    "metrics": set(),
    "plots": {"errors", "registry"},
    "pages": {"errors", "plots"},
    "rows": {"attributes", "errors", "numbers"},
    "sweeps": {
        *("backends", "compile", "core", "errors", "numbers", "plots", "solution", "storage"),
    },
    "features": {"core", "errors", "numbers"},
}
# A method may import the language, and these others.
METHODS = {
    "fair_clustering": set(),
    "fair_mixtures": {"fair_clustering"},
    "group_counterfactuals": set(),
    "cluster_counterfactuals": set(),
    "sparse_counterfactuals": {"fair_clustering", "group_counterfactuals"},
    "textbook": set(),
}
# What people run: it reaches methods through the registry only.
ABOVE = {"comparison": set(LANGUAGE), "cli": {*LANGUAGE, "comparison"}}
# the verbs of a problem and a solution forward to the layer that does the work
VERBS = {
    ("core/verbs.py", "optfair.backends.solve"),
    ("core/verbs.py", "optfair.backends.branching"),
    ("core/verbs.py", "optfair.backends.unattained"),
    ("core/verbs.py", "optfair.transforms.relaxation"),
    ("core/verbs.py", "optfair.diagnosis.diagnose"),
    ("core/verbs.py", "optfair.formats.proof_file"),
    ("core/verbs.py", "optfair.compile.export"),
    ("core/verbs.py", "optfair.compile.conic_proof"),
    ("core/verbs.py", "optfair.solution.residuals"),
    ("core/verbs.py", "optfair.formats.files"),
}
# what floats lose of a sum is added up as it is in the rows that solvers get
SUMS = {("core/coefficients.py", "optfair.compile.stuffing")}
ADAPTERS = {
    "highspy": {"backends/linear_program.py"},
    "clarabel": {"backends/cone_program.py"},
    "ot": {"methods/fair_clustering/coupling.py"},
    "scs": set(),
    "ortools": {"backends/ortools_worker.py"},
    "mosek": {"backends/conic_backend.py"},
    "sdpap": {"backends/conic_backend.py"},
    "gurobipy": {"backends/global_backend.py"},
    "pymoo": set(),
    "kmedoids": {"methods/group_counterfactuals/members.py"},
    "dccp": {"backends/nlp_backend.py"},
    "pyscipopt": {"backends/scip_backend.py"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, whether only for type checking) of every import in a file."""
    tree = parsed(path)
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only |= {id(n) for part in node.body for n in ast.walk(part)}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module in ("optfair", "optfair.convexity"):
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found += [(name, id(node) in typing_only) for name in names]
    return found


def room(module: str) -> str:
    """Return the room of a module: a folder or file of the package, ``methods.NAME`` for a method."""
    parts = [*module.split("."), "", ""]
    return f"methods.{parts[2]}" if parts[1] == "methods" and parts[2] else parts[1]


def allowed(own: str) -> set[str]:
    """Return the rooms that one may import."""
    if own.startswith("methods."):
        return {*LANGUAGE, *(f"methods.{other}" for other in METHODS[own.partition(".")[2]])}
    return LANGUAGE[own] if own in LANGUAGE else ABOVE[own]


def edges() -> set[tuple[str, str, str]]:
    """Return (file, its room, other room) of every import that is more than a type."""
    found = set()
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        own = room("optfair." + name.removesuffix(".py").replace("/", "."))
        if own in ("__init__", "__main__", "methods"):
            continue
        for module, typing_only in imports(path):
            other = room(module)
            # a namespace lists its names by the registry
            facade = path.name == "__init__.py" and module == "optfair.registry"
            facade |= module.startswith("optfair.__") or not module.startswith("optfair.")
            if not (typing_only or facade or other == own or (name, module) in VERBS | SUMS):
                found.add((name, own, other))
    return found


def test_imports_stay_in_the_table() -> None:
    assert {(name, other) for name, own, other in edges() if other not in allowed(own)} == set()


def test_every_edge_in_the_table_is_used() -> None:
    used = {(own, other) for _, own, other in edges()}
    listed = {(own, other) for own, others in LANGUAGE.items() for other in others}
    listed |= {(f"methods.{m}", f"methods.{o}") for m, others in METHODS.items() for o in others}
    assert listed - used == set()


def test_what_stands_below_the_methods_names_none() -> None:
    for path in modules():
        if "methods" in path.relative_to(PACKAGE).parts:
            continue
        tree = parsed(path)
        docs = {id(n.body[0].value) for n in ast.walk(tree) if ast_docstring(n)}
        said = {
            n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs
        }
        assert not any(re.search(r"optfair\.methods\.\w", text) for text in said), path
        assert not any(m.startswith("optfair.methods") for m, _ in imports(path)), path


def ast_docstring(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


@pytest.mark.parametrize("kind", registry.KINDS)
def test_everything_that_is_registered_is_there(kind: str) -> None:
    for name in registry.names(kind):
        thing = registry.load(kind, name)
        assert callable(thing), name


def test_every_verb_forwards() -> None:
    verbs = {m for m, typing_only in imports(PACKAGE / "core/verbs.py") if not typing_only}
    assert {module for _, module in VERBS} <= verbs


# What searches for proofs and chords: what checks them knows none of it.
PROVERS = {"prove", "recast", "search", "witness"}


def test_proofs_are_checked_without_provers() -> None:
    """Not even through a module in between; and what has a limit of time is a search."""
    left, seen = ["proof"], {"proof"}
    while left:
        for module, typing_only in imports(PACKAGE / "convexity" / f"{left.pop()}.py"):
            name = module.removeprefix("optfair.convexity.")
            if not typing_only and module.startswith("optfair.convexity.") and name not in seen:
                left.append(name)
                seen.add(name)
    assert {"rules", "hessians", "polynomials", "derivatives"} <= seen
    assert seen & PROVERS == set()
    outside = {m for name in seen for m, _ in imports(PACKAGE / "convexity" / f"{name}.py")}
    assert not outside & {"time", "scipy.optimize"}


def test_every_folder_is_in_the_table() -> None:
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert rooms == ({*LANGUAGE, *ABOVE, "methods"} & rooms)
    assert {p.parent.name for p in PACKAGE.glob("methods/*/__init__.py")} == set(METHODS)
    assert {p.parent.name for p in PACKAGE.glob("methods/*/method.toml")} == set(METHODS)


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
        tree = parsed(path)
        constants = {
            f'"{n.value}"'
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        }
        # the module name of our own route is how its log lines are called
        assert constants & names <= {'"mass-dual"'}, path


def test_validation_raises_instead_of_asserting() -> None:
    for path in modules():
        tree = parsed(path)
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Assert)], path


@pytest.mark.parametrize(
    "path",
    sorted([*PACKAGE.glob("methods/*/algorithms/*.py"), *PACKAGE.glob("methods/*/algorithms.py")]),
    ids=lambda p: ".".join(p.relative_to(PACKAGE / "methods").parts),
)
def test_algorithms_know_no_problem(path: Path) -> None:
    """They take arrays: what takes a Problem is an adapter."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    known = vars(importlib.import_module(name)).values()
    assert not [v for v in known if inspect.isclass(v) and issubclass(v, optfair.Problem)]
    assert not {m for m, _ in imports(path)} & {"optfair.core.problem", "optfair.backends.request"}


def test_estimators_call_no_adapter() -> None:
    asked = set()
    for path in PACKAGE.glob("methods/*/*.py"):
        if path.stem != "adapters":
            asked |= {(path.name, m) for m, _ in imports(path) if ".adapters" in m}
    # nearest points of rows that only the relaxation settles are problems, one by one
    assert asked == {("nearest_points.py", "optfair.methods.cluster_counterfactuals.adapters")}


SAYS_NOTHING = {
    *("entries", "found", "helpers", "misc", "options", "setting", "settings", "setup", "sugar"),
    *("tools", "utils"),
}
# Files of fewer than 80 lines, and why they stand alone.
SHORT = {
    "__main__.py": "what python -m optfair runs",
    "proofs/effort.py": "moves, and the equations and residuals they are made of, ask it",
}


def test_files_are_named_for_what_they_hold() -> None:
    assert not {p.stem for p in modules()} & SAYS_NOTHING


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to variables, arguments, attributes, functions and classes."""
    for n in ast.walk(tree):
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store):
            yield n.id if isinstance(n, ast.Name) else n.attr
        elif isinstance(n, ast.arg):
            yield n.arg
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            yield n.name


def test_no_name_says_only_that_something_was_found() -> None:
    empty = {"found", "setting", "sugar", "told"}
    named = {(p.name, n) for p in modules() for n in bound_names(parsed(p))}
    assert not {(file, n) for file, n in named if n.strip("_").lower() in empty}


def test_short_files_have_a_reason() -> None:
    own = [p for p in modules() if p.name != "__init__.py"]
    short = {p.relative_to(PACKAGE).as_posix() for p in own if len(p.read_text().splitlines()) < 80}
    assert short == set(SHORT)


def test_files_stay_short() -> None:
    long = {p.name: len(p.read_text().splitlines()) for p in modules()}
    assert {name: n for name, n in long.items() if n > 600} == {}


NAMESPACES = [p.parent for p in sorted(PACKAGE.rglob("__init__.pyi"))]


@pytest.mark.parametrize("folder", NAMESPACES, ids=lambda p: p.name)
def test_every_public_name_loads(folder: Path) -> None:
    module = importlib.import_module(".".join(("optfair", *folder.relative_to(PACKAGE).parts)))
    for name in module.__all__:
        value = getattr(module, name)
        # a name that is a module's too would be that module once somebody imports it
        inside = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        assert inspect.ismodule(value) or not inside, name
    assert dir(module) == module.__all__ == sorted(module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_the_top_level_has_few_names() -> None:
    assert len(optfair.__all__) <= 70


def test_a_name_at_the_top_is_the_one_in_its_namespace() -> None:
    spaces = [
        value for name in optfair.__all__ if inspect.ismodule(value := getattr(optfair, name))
    ]
    for name in optfair.__all__:
        for space in spaces:
            if name in space.__all__ and space.__name__ != "optfair.metrics":
                assert getattr(space, name) is getattr(optfair, name), (space, name)


def test_importing_optfair_loads_nothing_heavy() -> None:
    code = (
        "import sys, optfair; "
        "print([m for m in ('numpy', 'cvxpy', 'scipy', 'ot', 'sklearn', 'pandas', 'rich') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
