"""Names: of files of facts, of namespaces, of what methods register; loaded when asked for.

A method is a package with a file ``method.toml``. Ours lie in ``optfair/methods``; others are found
by the entry point ``optfair.methods`` of their distribution, whose value is the package. The
file lists what the package registers of each kind: names of the package itself, or a table of
names and the modules that define them:

.. code-block:: toml

    schema = 1
    title = "fair clustering"
    models = ["FairAssignment"]  # the package has this name

    [arguments]                  # how the [data] of an instance becomes arguments of a model
    FairAssignment = "arguments:assignment_arguments"

A package may hold folders ``problems`` and ``solvers`` with instances and profiles of its own.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from optfair.errors import DeclarationError, nearest
from optfair.storage import read_toml

# Where the folders of facts are: the checkout's, the wheel's, and the user's own.

_PACKAGE = Path(__file__).resolve().parent


@lru_cache(maxsize=1)
def _root() -> Path:
    """Return the checkout if this package lies in one, else the data shipped in the wheel."""
    parent = _PACKAGE.parent
    project = parent / "pyproject.toml"
    if project.is_file():
        with project.open("rb") as f:
            if tomllib.load(f).get("project", {}).get("name") == "optfair":
                return parent
    return _PACKAGE / "_library"


def folders(kind: str) -> tuple[Path, ...]:
    """Return the folders of "problems" or "solvers": ours, methods', the user's (``OPTFAIR_...``)."""
    extra = os.environ.get(f"OPTFAIR_{kind.upper()}", "")
    return _folders(kind, tuple(method_folders().values()), extra)


@lru_cache(maxsize=8)
def _folders(kind: str, packages: tuple[Path, ...], extra: str) -> tuple[Path, ...]:
    """Return the folders of that kind: ours, those that packages bring, and the user's."""
    brought = (folder / kind for folder in packages)
    named = (Path(part) for part in extra.split(os.pathsep) if part)
    return (_root() / kind, *(folder for folder in brought if folder.is_dir()), *named)


@lru_cache(maxsize=1)
def method_folders() -> dict[str, Path]:
    """Return the folder of every package that has a ``method.toml``: ours, then installed ones.

    Raises
    ------
    DeclarationError
        An entry point ``optfair.methods`` names a package that is not there, or has no such file.
    """
    import importlib.metadata  # half of what importing optfair would take
    import importlib.util

    ours = sorted(path.parent for path in _PACKAGE.glob("methods/*/method.toml"))
    known = {f"optfair.methods.{folder.name}": folder for folder in ours}
    known["optfair.features"] = _PACKAGE / "features"
    for point in importlib.metadata.entry_points(group="optfair.methods"):
        spec = importlib.util.find_spec(point.value)
        places = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]
        there = [folder for folder in places if (folder / "method.toml").is_file()]
        if not there:
            raise DeclarationError(
                f"the method {point.name!r} has no method.toml",
                f"its entry point names the package {point.value!r}",
                "name the package whose folder holds the file, or uninstall it",
            )
        known[point.value] = there[0]
    return known


def fact_files(kind: str) -> Mapping[str, Path]:
    """Return TOML files by name relative to their folder, without the ending.

    The same object as long as no folder changes.
    """
    stamps = []
    for folder in folders(kind):
        try:
            stamps.append((folder, _stamp(folder)))
        except (FileNotFoundError, NotADirectoryError):
            raise DeclarationError(
                f"the folder of {kind} {str(folder)!r} does not exist",
                remedy=f"correct OPTFAIR_{kind.upper()}, or reinstall optfair",
            ) from None
    return _listed(tuple(stamps))


def _stamp(folder: Path) -> tuple[int, ...]:
    """Return when a folder and the folders in it changed last."""
    changed = os.stat(folder).st_mtime_ns
    return changed, *(os.stat(inner).st_mtime_ns for inner in _inner(folder, changed))


@lru_cache(maxsize=64)
def _inner(folder: Path, changed: int) -> tuple[str, ...]:
    """Return the folders in a folder that changed last at that time."""
    with os.scandir(folder) as entries:
        return tuple(sorted(e.path for e in entries if e.is_dir()))


@lru_cache(maxsize=8)  # every solve asks for the solvers; walking the folders takes longer
def _listed(stamps: tuple[tuple[Path, tuple[int, ...]], ...]) -> Mapping[str, Path]:
    files: dict[str, Path] = {}
    for folder, _ in stamps:
        for path in sorted(folder.rglob("*.toml")):
            files[path.relative_to(folder).with_suffix("").as_posix()] = path
    return MappingProxyType(files)


def load_facts(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file of facts."""
    facts = read_toml(path)
    if facts.get("schema") != 1:
        raise DeclarationError(
            f"{path} has schema {facts.get('schema')!r}", remedy="write schema = 1 at its top"
        )
    return facts


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise on a key that nobody reads.

    Raises
    ------
    DeclarationError
        With the nearest known key.
    """
    names = list(known)
    for key in table:
        if key not in names:
            raise DeclarationError(f"unknown key {key!r} in {where}", remedy=nearest(key, names))


# What each kind of entry is.
KINDS = {
    "models": "a subclass of Problem that instances may name",
    "rules": "a function that returns a Rule, which instances may name as the kind of a rule",
    "routes": "a function `run` of a module, by the name that a solver's profile calls its route",
    "arguments": "a function from the [data] of an instance to the arguments of a model",
    "examples": "a function that returns a small problem with a structure",
    "estimators": "a class with fit, or a function that returns a fit",
    "metrics": "a function in optfair.metrics",
    "plots": "a function in optfair.plots",
}


@dataclass(frozen=True)
class Entry:
    """One registered thing.

    Attributes
    ----------
    kind, name : str
        As in the file.
    method : str
        Name of the method that registers it.
    module : str
        Full name of the module that defines it.
    attribute : str
        What it is called there.
    """

    kind: str
    name: str
    method: str
    module: str
    attribute: str

    def load(self) -> Any:
        """Import the module and return the thing."""
        try:
            return getattr(importlib.import_module(self.module), self.attribute)
        except AttributeError:
            raise DeclarationError(
                f"the method {self.method!r} registers {self.name!r} in {self.kind},"
                f" but {self.module} has no {self.attribute!r}",
                remedy="correct its method.toml",
            ) from None


def attach(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a namespace, from its stub.

    The stub ``__init__.pyi`` beside the package's ``__init__.py`` says what the namespace has,
    for type checkers and at run time. Nothing is imported before a name is used (SPEC 1 of
    Scientific Python).
    """
    home = sys.modules[package]
    stub = Path(str(home.__file__)).with_suffix(".pyi")
    places: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            places |= {name.name: str(node.module) for name in node.names}
        elif isinstance(node, ast.AnnAssign):  # what the package defines itself
            places[ast.unparse(node.target)] = ""

    def get(name: str) -> Any:
        if not places.get(name):
            raise _no_name(package, name, places)
        module = importlib.import_module(places[name])
        if module is home or not hasattr(module, name):
            value: Any = importlib.import_module(f"{places[name]}.{name}")
        else:
            value = getattr(module, name)
        setattr(home, name, value)
        return value

    return sorted(places), get, lambda: sorted(places)


def attach_registered(
    package: str, kind: str, *own: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return what `attach` does, of a namespace of what methods register, beside names of its own."""
    known = sorted({*own, *names(kind)})

    def get(name: str) -> Any:
        if name not in names(kind):
            raise _no_name(package, name, known)
        return load(kind, name)

    return known, get, lambda: known


def _no_name(package: str, name: str, known: Iterable[str]) -> AttributeError:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    near = f"; did you mean {close[0]!r}?" if close else ""
    return AttributeError(f"module {package!r} has no attribute {name!r}{near}")


def names(kind: str) -> tuple[str, ...]:
    """Return the names of a kind, sorted.

    Examples
    --------
    >>> "FairAssignment" in names("models"), "balance" in names("rules")
    (True, True)
    """
    return tuple(sorted(_tables()[kind]))


def entry(kind: str, name: Any, what: str = "") -> Entry:
    """Return the entry of a name.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    name : str
        As registered.
    what : str
        What to call it in messages.

    Raises
    ------
    DeclarationError
        No method registers it; the message names the nearest.
    """
    known = _tables()[kind]
    if not isinstance(name, str) or name not in known:
        what = what or kind.removesuffix("s")
        raise DeclarationError(f"unknown {what}: {name!r}", remedy=nearest(str(name), known))
    return known[name]


def load(kind: str, name: Any, what: str = "") -> Any:
    """Return what is registered under a name; see `entry`."""
    return entry(kind, name, what).load()


def route(name: str) -> Callable[..., Any]:
    """Return what runs a structured algorithm: of a method, or of a module of `backends`."""
    if name in _tables()["routes"]:
        run: Callable[..., Any] = _tables()["routes"][name].load()
    else:
        file, _, function = name.partition(":")
        run = getattr(importlib.import_module(f"optfair.backends.{file}"), function or "run")
    return run


def defaults() -> tuple[str, ...]:
    """Return the solvers that methods ask to try first where their structure is."""
    return tuple(solver for folder in method_folders().values() for solver in _file(folder)[1])


def _tables() -> dict[str, dict[str, Entry]]:
    return _read(tuple(method_folders().items()))


@lru_cache(maxsize=4)
def _read(folders: tuple[tuple[str, Path], ...]) -> dict[str, dict[str, Entry]]:
    tables: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
    for package, folder in folders:
        for new in _file(folder, package)[0]:
            known = tables[new.kind]
            if new.name in known:
                raise DeclarationError(
                    f"two methods register {new.name!r} in {new.kind}",
                    f"{known[new.name].module} and {new.module}",
                    "rename one of them",
                )
            known[new.name] = new
    return tables


@lru_cache(maxsize=64)
def _file(folder: Path, package: str = "") -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the entries of a method.toml, and the solvers it wants by default."""
    path = folder / "method.toml"
    facts = load_facts(path)
    check_keys(facts, ("schema", "title", "defaults", *KINDS), str(path))
    entries = []
    for kind in KINDS:
        listed = facts.get(kind, {})
        places = listed if isinstance(listed, dict) else dict.fromkeys(listed, "")
        for name, place in places.items():
            if not isinstance(place, str):
                raise DeclarationError(
                    f"{name} in [{kind}] of {path} is {place!r}", remedy="write a module"
                )
            module, _, attribute = place.partition(":")
            attribute = attribute or ("run" if kind == "routes" else name)
            home = f"{package}.{module}" if module else package
            entries.append(Entry(kind, name, folder.name, home, attribute))
    return tuple(entries), tuple(facts.get("defaults", ()))


def nearest_of_families(name: str, full: Iterable[str]) -> str:
    """Return a sentence that suggests names like FAMILY/NAME that are near one, else the families.

    Examples
    --------
    >>> known = ["textbook/diet", "textbook/knapsack", "letters/a"]
    >>> nearest_of_families("diett", known), nearest_of_families("textbok/*", known)
    ("did you mean 'diet'?", "did you mean 'textbook/*'?")
    >>> nearest_of_families("nope/*", known)
    'name one of a family, such as letters/a: letters/*, textbook/*'
    """
    every = sorted(full)
    families = list(dict.fromkeys(f"{one.partition('/')[0]}/*" for one in every))
    family, slash, _ = name.partition("/")
    own = [one for one in every if slash and one.startswith(f"{family}/")]
    if own:
        return nearest(name, own)
    if any(c in name for c in "*?["):
        known = families
    else:
        known = every if slash else [one.rpartition("/")[2] for one in every]
    close = nearest(name, [k for k in known if name in k] or known)
    if close.startswith("did you mean"):
        return close
    return f"name one of a family, such as {every[0]}: {', '.join(families)}" if every else close
