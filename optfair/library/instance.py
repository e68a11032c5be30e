"""Instances, models with data and what is known about their optimum, in folders of problems; public collections of problem files."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from optfair import registry
from optfair.core.problem_class import ProblemClass
from optfair.errors import DataError, DeclarationError, Known, OptfairError, kind_of, nearest
from optfair.registry import check_keys, fact_files, load_facts, nearest_of_families
from optfair.storage import read_toml

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optfair.core.composition import Rule
    from optfair.core.problem import Problem
    from optfair.library.certification import Certification
    from optfair.numbers import Floats


@dataclass(frozen=True)
class Optimum:
    """A certified optimum.

    Attributes
    ----------
    value : float
        The optimum.
    certified_by : str
        Solver that proves it, or "enumeration" of all integer points, for a few thousand.
    gap : float
        Relative gap of that proof.
    checked_by : tuple of str
        Solvers (or "enumeration") that must agree. One that takes no integer variables checks
        an integer optimum through the relaxations of a search tree; one that takes convex
        problems only, a nonconvex optimum through a convex form or the semidefinite relaxation.
    """

    value: float
    certified_by: str
    gap: float
    checked_by: tuple[str, ...]


@dataclass(frozen=True)
class Infeasibility:
    """A certified conflict.

    Attributes
    ----------
    conflict : tuple of str
        Names of the terms that exclude each other.
    certified_by : str
        Solver whose certificate names exactly these.
    checked_by : tuple of str
        Solvers that must find a verified certificate too.
    """

    conflict: tuple[str, ...]
    certified_by: str
    checked_by: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Instance:
    """One file of the problem library.

    Attributes
    ----------
    name : str
        FAMILY/NAME, where the file lies.
    path : Path
        The file.
    model : str
        Name of the model.
    problem_class : str
        Class it must have.
    source : str
        Where model and data come from.
    data, rules : mapping
        What the model is declared from; rules added to it, by name.
    integrality : tuple of str
        Variables made integer.
    optimum : Optimum or None
        What is known, for a feasible instance.
    infeasible : Infeasibility or None
        What is known, for one without solutions.
    tags : tuple of str
        Words to search for.

    Examples
    --------
    >>> import optfair as of
    >>> diet = of.library.load("textbook/diet")
    >>> diet.problem().problem_class, diet.optimum.value
    (LP, 88.2)
    >>> diet
    Instance textbook/diet: Diet, LP, optimum 88.2
    """

    name: str
    path: Path
    model: str
    problem_class: str
    source: str
    data: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    integrality: tuple[str, ...] = ()
    optimum: Optimum | None = None
    infeasible: Infeasibility | None = None
    tags: tuple[str, ...] = ()

    def __repr__(self) -> str:
        known = self.optimum and f"optimum {self.optimum.value:.10g}"
        return f"Instance {self.name}: {self.model}, {self.problem_class}, {known or 'infeasible'}"

    def problem(self) -> Problem:
        """Declare the problem.

        Raises
        ------
        DeclarationError, DataError
            Unknown keys, a data set that is not there, numbers the model refuses.
        """
        made: Any = construct(self.model, self.data, f"[data] of {self.path}")
        rules = {k: rule(t, f"[rules.{k}] of {self.path}") for k, t in self.rules.items()}
        if rules:
            made = made.with_constraints(rules)
        if self.integrality:
            made = made.with_integrality(*self.integrality)
        problem: Problem = made
        return problem

    def certify(self) -> Certification:
        """Check everything the file says; see `optfair.library.certify`."""
        from optfair.library.certification import certify

        return certify(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what the file says, without the data."""
        known = {}
        for word, said in (("optimum", self.optimum), ("infeasible", self.infeasible)):
            if said is not None:
                facts = asdict(said).items()
                known[word] = {k: list(v) if isinstance(v, tuple) else v for k, v in facts}
        return {
            "name": self.name,
            "model": self.model,
            "class": self.problem_class,
            "source": self.source,
            "tags": list(self.tags),
            **known,
        }


# Find and read the instances in the folders of problems.

# Key -> type, for each table; the keys of [data] and [rules.*] belong to models and rules.
_TOP: dict[str, type] = {
    "schema": int,
    **dict.fromkeys(("model", "class", "source"), str),
    **dict.fromkeys(("tags", "integrality"), list),
    **dict.fromkeys(("data", "rules", "optimum", "infeasible"), dict),
}
_NEEDED = ("model", "class", "source", "data")
# What is stated of an optimum, or of there being none.
_STATED: dict[str, type] = {
    **dict.fromkeys(("value", "gap"), float),
    **dict.fromkeys(("checked_by", "conflict"), list),
    "certified_by": str,
}
T = TypeVar("T")


def names(pattern: str = "*") -> tuple[str, ...]:
    """Return the names of instances, FAMILY/NAME.

    Parameters
    ----------
    pattern : str
        Of the whole name, as in ``"textbook/*"``.

    Examples
    --------
    >>> import optfair as of
    >>> of.library.names("*/diet*")[0]
    'textbook/diet'
    """
    if not isinstance(pattern, str):  # the gate of arguments would load NumPy
        raise DataError(f"pattern is {pattern!r}, not a text", remedy='write e.g. "textbook/*"')
    return tuple(n for n in _files() if fnmatch(n, pattern))


def _files() -> dict[str, Path]:
    """Return the files of instances; exercises lie beside them, and say less than they know."""
    return {k: v for k, v in fact_files("problems").items() if not k.startswith("exercises/")}


def load(name: str) -> Instance:
    """Return one instance.

    Parameters
    ----------
    name : str
        FAMILY/NAME, or NAME alone where one family only has it.

    Raises
    ------
    DataError
        No instance has this name, or several do.
    DeclarationError
        Its file has unknown, missing or ill-typed keys.

    Examples
    --------
    >>> load("diet").problem().title
    'Diet'
    """
    if not isinstance(name, str):  # listing names needs no NumPy, so no check of numbers
        raise DataError(f"name {name!r} is not a text", remedy="give a text")
    files = _files()
    if name in files:
        return read_instance(files[name], name)
    hits = [full for full in files if full.rpartition("/")[2] == name]
    if len(hits) == 1:
        return read_instance(files[hits[0]], hits[0])
    if hits:
        raise DataError(f"several instances are called {name!r}", remedy="say " + " or ".join(hits))
    family = [full for full in files if full.startswith(f"{name}/")]
    if family:
        raise DataError(
            f"{name!r} is a family of {len(family)} instances",
            remedy="name one of them: " + ", ".join(family),
        )
    known = f"{len(files)} instances are known"
    raise DataError(f"no instance {name!r}", known, nearest_of_families(name, files))


def read_instance(path: Path, name: str) -> Instance:
    """Read and check one file."""
    facts = load_facts(path)
    _check(facts, _TOP, str(path), _NEEDED)
    if "optimum" in facts and "infeasible" in facts:
        raise DeclarationError(
            f"{path} has both [optimum] and [infeasible]", remedy="remove one of them"
        )
    ProblemClass.parse(facts["class"])
    return Instance(
        name=name,
        path=path,
        model=facts["model"],
        problem_class=facts["class"],
        source=facts["source"],
        data=Known(facts["data"], "key of [data]"),
        rules=facts.get("rules", {}),
        integrality=tuple(facts.get("integrality", ())),
        optimum=_stated(Optimum, facts, "optimum", path),
        infeasible=_stated(Infeasibility, facts, "infeasible", path),
        tags=tuple(facts.get("tags", ())),
    )


def _check(
    table: Mapping[str, Any],
    known: Mapping[str, Any],
    where: str,
    needed: Iterable[str],
    error: type[OptfairError] = DeclarationError,
) -> None:
    check_keys(table, known, where)
    for key in needed:
        if key not in table:
            raise error(f"{where} has no {key!r}", remedy="add it")
    for key, value in table.items():
        kinds = known[key] if isinstance(known[key], tuple) else (known[key],)
        taken = (*kinds, int) if float in kinds else kinds
        if not isinstance(value, taken) or isinstance(value, bool):
            words = " or ".join(kind.__name__ for kind in kinds)
            raise error(f"{key!r} in {where} is {value!r}", remedy=f"give a {words}")


def _stated(kind: type[T], facts: Mapping[str, Any], word: str, path: Path) -> T | None:
    """Return what a table of a file states, None where the file has no such table."""
    if word not in facts:
        return None
    types = {f.name: _STATED[f.name] for f in fields(cast("Any", kind))}
    _check(facts[word], types, f"[{word}] of {path}", types)
    given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in facts[word].items()}
    return kind(**{k: float(v) if types[k] is float else v for k, v in given.items()})


# Which models and rules a file of facts may name, and how their tables become objects.


def construct(model: str, data: Mapping[str, Any], where: str) -> Problem:
    """Return the problem a [data] table declares.

    Parameters
    ----------
    model : str
        Name of the model.
    data : mapping
        The table.
    where : str
        What to call the table in messages.
    """
    maker = registry.load("models", model, f"model of {where}")
    # models whose [data] says where rows come from; others take its entries as keywords
    reads = model in registry.names("arguments")
    arguments = registry.load("arguments", model)(data) if reads else dict(data)
    fairness = arguments.get("fairness")
    if isinstance(fairness, Mapping):
        arguments["fairness"] = rule(fairness, f"fairness in {where}")
    problem: Problem = _called(maker, arguments, where)
    return problem


def rule(table: Mapping[str, Any], where: str) -> Rule:
    """Return the rule of a table with the key ``kind`` and the rule's parameters."""
    if "kind" not in table:
        raise DeclarationError(
            f"{where} has no kind", remedy=f"write kind = one of {list(registry.names('rules'))}"
        )
    maker = registry.load("rules", table["kind"], f"kind of {where}")
    made: Rule = _called(maker, {k: v for k, v in table.items() if k != "kind"}, where)
    return made


def _called(maker: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """Call with keywords, after telling unknown and missing ones."""
    signature = inspect.signature(maker).parameters
    parameters = {k: p for k, p in signature.items() if p.kind is not p.VAR_KEYWORD}
    if len(parameters) == len(signature):  # else the maker checks what it is given
        check_keys(arguments, parameters, where)
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in arguments]
    if missing:
        raise DeclarationError(
            f"{where} lacks {', '.join(missing)}", remedy=f"it may have {', '.join(parameters)}"
        )
    return maker(**arguments)


# Rows, groups and centers of a data set, from a [data] table.

ROW_KEYS = ("dataset", "groups", "columns", "standardize", "l2", "sample", "centers")


def dataset_rows(
    arguments: dict[str, Any], *, centers: bool = True
) -> tuple[Floats, NDArray[Any], Any]:
    """Take the keys about rows out of a table; return rows, labels, and the centers asked for."""
    from optfair import datasets  # data are asked for by name, and only then

    taken = ROW_KEYS if centers else tuple(k for k in ROW_KEYS if k != "centers")
    asked = {key: arguments.pop(key) for key in taken if key in arguments}
    for key in ("groups", "centers") if centers else ("groups",):
        if key not in asked:
            raise DeclarationError(f"[data] names a dataset but no {key}", remedy=f"add {key}")
    X, labels = datasets.load(asked["dataset"]).numeric(
        asked["groups"],
        columns=asked.get("columns"),
        standardize=asked.get("standardize", True),
        l2=asked.get("l2", False),
    )
    if "sample" in asked:
        s = _exactly(asked["sample"], ("rows", "seed"), "sample")
        if not 0 < s["rows"] <= X.shape[0]:
            raise DataError(
                f"a sample of {s['rows']} rows", f"there are {X.shape[0]}", "ask for fewer"
            )
        import numpy as np

        chosen = np.random.default_rng(s["seed"]).choice(X.shape[0], s["rows"], replace=False)
        chosen.sort()
        X, labels = X[chosen], labels[chosen]
    return X, labels, asked.get("centers")


def named_centers(asked: Any, X: Floats) -> Floats:
    """Return explicit centers, or those that k-means++ draws."""
    import numpy as np

    if not isinstance(asked, Mapping):
        return np.asarray(asked, dtype=np.float64)
    c = _exactly(asked, ("method", "seed", "k"), "centers")
    if c["method"] != "kmeans++":
        raise DeclarationError(
            f"unknown method {c['method']!r} of centers", remedy=nearest(c["method"], ["kmeans++"])
        )
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(X, c["k"], random_state=c["seed"])
    return np.asarray(centers, dtype=np.float64)


def _exactly(table: Any, keys: tuple[str, ...], what: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping) or set(table) != set(keys):
        raise DeclarationError(
            f"{what} in [data] is {table!r}", remedy=f"give a table with exactly {', '.join(keys)}"
        )
    return table


#: environment variable that names the folder of the manifest
FOLDER = "OPTFAIR_COLLECTIONS"
MANIFEST = "MANIFEST.toml"
# Key -> type, for the tables of a manifest.
_SET: dict[str, type] = dict.fromkeys(("name", "title", "source", "licence", "optimum"), str)
_STATES = ("set", "name", "file", "sha256")
_MEMBER: dict[str, Any] = dict.fromkeys(_STATES, str) | {"optimum": (float, str)}
# Words of a manifest for a program without optimum, and the outcome they mean.
_OUTCOMES = {word: word for word in ("infeasible", "unbounded", "nonconvex")}
_OUTCOMES |= {"primal infeasible": "infeasible", "dual infeasible": "unbounded"}


@dataclass(frozen=True)
class Member:
    """One problem file of a collection.

    Attributes
    ----------
    name : str
        COLLECTION/NAME.
    path : Path
        The file.
    sha256 : str
        Its checksum.
    optimum : float or None
        What its collection says; None where nothing is known, or there is no optimum.
    digits : int
        Significant digits to which that is printed, 17 for a float.
    outcome : str
        optimal, infeasible, unbounded or nonconvex.
    source, licence : str
        Where it comes from, and on what terms.
    """

    name: str
    path: Path
    sha256: str
    optimum: float | None = None
    digits: int = 17
    outcome: str = "optimal"
    source: str = ""
    licence: str = ""

    def problem(self) -> Problem:
        """Read the problem, after a look at the checksum.

        Raises
        ------
        DataError
            The file is missing, is another one, or cannot be read.
        """
        from optfair.formats.files import read

        try:
            data = self.path.read_bytes()
        except OSError as e:
            why = e.strerror or str(e)
            remedy = "restore it from its source"
            raise DataError(f"{self.name} cannot be read: {self.path}", why, remedy) from None
        own = hashlib.sha256(data).hexdigest()
        if own != self.sha256:
            raise DataError(
                f"{self.path} is not the file that its manifest names",
                f"SHA-256 {own}, stated {self.sha256}",
                "restore the file, or correct the manifest",
            )
        return read(self.path)

    def agrees(self, objective: float, tolerance: float) -> bool | None:
        """Return whether an objective is the known optimum, to the digits that are printed.

        None where no optimum is known.
        """
        if self.optimum is None:
            return None
        size = max(1.0, abs(self.optimum))
        exponent = int(f"{abs(self.optimum):e}".partition("e")[2])
        printed = 10.0 ** (exponent - self.digits + 1) if self.digits < 17 else 0.0
        return abs(objective - self.optimum) <= tolerance * size + printed


def collection(name: str, folder: str | Path | None = None) -> tuple[Member, ...]:
    r"""Return the members of a public collection, with their known optima.

    Nothing but the manifest is read; ``member.problem()`` reads a file.

    Parameters
    ----------
    name : str
        What the manifest calls the collection: netlib, maros_meszaros, sdplib ...
    folder : path, optional
        Folder with ``MANIFEST.toml``: ``[[set]]`` tables (name, title, source, licence) and
        ``[[instance]]`` tables (set, name, file, sha256, optimum). By default that of the
        environment variable ``OPTFAIR_COLLECTIONS``.

    Raises
    ------
    DataError
        No folder, no manifest, an unknown collection, or a manifest that does not say what it
        must; a file outside the folder.

    Examples
    --------
    >>> import hashlib, pathlib, tempfile
    >>> import optfair as of
    >>> text = "* tiny\n1\n1\n2\n1.0\n0 1 1 2 1.0\n1 1 1 1 1.0\n1 1 2 2 1.0\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tiny.dat-s")
    ...     _ = file.write_text(text)
    ...     mark = hashlib.sha256(file.read_bytes()).hexdigest()
    ...     _ = pathlib.Path(folder, "MANIFEST.toml").write_text(
    ...         '[[set]]\nname = "own"\n[[instance]]\nset = "own"\nname = "tiny"\n'
    ...         f'file = "tiny.dat-s"\nsha256 = "{mark}"\noptimum = 1.0\n')
    ...     member, = of.library.collection("own", folder)
    ...     objective = member.problem().solve().objective
    >>> member.name, round(objective, 6)
    ('own/tiny', 1.0)
    """
    place, facts = _manifest(folder)
    sets = {s["name"]: s for s in facts["set"]}
    if name not in sets:
        raise DataError(
            f"no collection {name!r} in {place / MANIFEST}",
            f"it has {', '.join(sets) or 'none'}",
            nearest(name, sets),
        )
    return tuple(_member(i, sets[name], place) for i in facts["instance"] if i["set"] == name)


def collections(folder: str | Path | None = None) -> tuple[str, ...]:
    """Return the names of the collections of a folder, none where no folder is known."""
    if folder is None and not os.environ.get(FOLDER):
        return ()
    return tuple(s["name"] for s in _manifest(folder)[1]["set"])


def _manifest(folder: str | Path | None) -> tuple[Path, dict[str, Any]]:
    named = folder if folder is not None else os.environ.get(FOLDER, "")
    if not isinstance(named, (str, os.PathLike)):
        raise DataError(f"folder is {kind_of(named)}, no path", remedy="give the name of a folder")
    if not str(named):
        raise DataError(
            "no folder of collections is known",
            remedy=f"give a folder with {MANIFEST}, or set {FOLDER}",
        )
    place = Path(named).resolve()
    file = place / MANIFEST
    if not file.is_file():
        remedy = "give the folder of a collection, with its manifest"
        raise DataError(f"{place} has no {MANIFEST}", remedy=remedy)
    facts = read_toml(file)
    for key in ("set", "instance"):
        tables = facts.setdefault(key, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise DataError(
                f"{place / MANIFEST}: {key!r} is no list of tables", remedy=f"[[{key}]]"
            )
        for k, table in enumerate(tables, start=1):
            where = f"[[{key}]] {k} of {place / MANIFEST}"
            known, needed = (_SET, ("name",)) if key == "set" else (_MEMBER, _STATES)
            _check(table, known, where, needed, DataError)
    return place, facts


def _member(table: Mapping[str, Any], group: Mapping[str, Any], place: Path) -> Member:
    name = f"{table['set']}/{table['name']}"
    path = (place / table["file"]).resolve()
    if not path.is_relative_to(place):
        raise DataError(f"the file of {name} lies outside {place}", str(path), "keep it inside")
    if not re.fullmatch("[0-9a-f]{64}", table["sha256"]):
        raise DataError(f"{table['sha256']!r} of {name} is no SHA-256", remedy="give 64 hex digits")
    known = table.get("optimum")
    value, digits, outcome = None, 17, "optimal"
    if isinstance(known, str) and known in _OUTCOMES:
        outcome = _OUTCOMES[known]
    elif known is not None:
        try:
            value = float(known)
        except ValueError:
            words = ", ".join(_OUTCOMES)
            raise DataError(
                f"the optimum of {name} is {known!r}", remedy=f"give a number, or one of {words}"
            ) from None
        if isinstance(known, str):  # as printed
            digits = len(re.sub(r"[eE].*|[^0-9]", "", known).lstrip("0")) or 1
    source, licence = (str(group.get(key, "")) for key in ("source", "licence"))
    return Member(name, path, table["sha256"], value, digits, outcome, source, licence)
