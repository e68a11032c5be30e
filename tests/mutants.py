"""Small changes to the code, each of which some test must notice: ``make mutants``.

A mutant is one changed operator, comparison, constant or statement of one function. The tests that
name its file run once with a record of the functions each of them calls; then every mutant runs in a
fork of that process, with the function replaced in memory, against those tests only that call it: the
nearest first, of these the quickest. One that survives them and is not listed is tried again by all
tests of the folder that mirrors its own and by those of the whole way to a proof. So many mutants of
each file are drawn, with a fixed seed: SCOPE says how many, and --count -1 takes all of them. The
files themselves are never edited. What became of each is kept in .mutants.jsonl: a run that is
stopped, or out of time, is taken up by the next; one that survived is tried anew once its tests
change. Survivors that are right are listed in mutants.toml, each with its reason. Exit: 1 when
another one survives, 2 when some are not tried yet.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_name("mutants.toml")
KEPT = ROOT / ".mutants.jsonl"
SEED = 16
# What is mutated, and how many mutants of each file are drawn.
SCOPE = {
    "optfair/proofs/*.py": 22,
    "optfair/compile/*.py": 5,
    "optfair/core/*.py": 3,
    "optfair/backends/repeat.py": 12,
    "optfair/methods/*/adapters*.py": 3,
    "optfair/methods/*/adapters/*.py": 3,
    "optfair/methods/*/algorithms/*.py": 3,
}
# Tests of the whole way from a declaration to a proof, which survivors of any file are tried by.
WHOLE = (
    "tests/backends/test_solve.py",
    "tests/proofs/test_traps.py",
    "tests/solution/test_honesty.py",
    "tests/solution/test_tampering.py",
)
# Folders whose tests name files of others.
NEAR = ("backends", "formats", "proofs", "compile", "core", "solution")
# CPU seconds of one test, of the tests of one mutant; wall seconds of one mutant.
TEST, TESTS, WALL = 1.0, 4.0, 200.0


def _both(pairs: str) -> dict[str, str]:
    """Return a map of names, both ways."""
    named = [pair.split() for pair in pairs.split(", ")]
    return {a: b for pair in named for a, b in (pair, pair[::-1])}


RENAMED = _both("max min, maximum minimum, any all, floor ceil")
SWAPPED = _both(
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Mult Div, BitAnd BitOr, And Or,"
    " LShift RShift"
)
SWAPPED["Pow"] = "Mult"
NEGATED = _both("Lt GtE, LtE Gt")


@dataclass(frozen=True)
class Mutant:
    """One change: which function of which file, the code before and after, and which of its like."""

    file: str
    function: str
    before: str
    after: str
    nth: int
    line: int
    place: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What names it in the list, whatever lines are added above it."""
        return self.file, self.function, self.before, self.after, self.nth


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand for a node."""

    def other(**parts: Any) -> ast.AST:
        made = copy.copy(node)
        for name, value in parts.items():
            setattr(made, name, value)
        return made

    if isinstance(node, ast.Compare):
        for table in (SWAPPED, NEGATED):
            for k, op in enumerate(node.ops):
                if type(op).__name__ in table:
                    new = getattr(ast, table[type(op).__name__])()
                    yield other(ops=[*node.ops[:k], new, *node.ops[k + 1 :]])
    elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op).__name__ in SWAPPED:
        yield other(op=getattr(ast, SWAPPED[type(node.op).__name__])())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        whole = isinstance(value, int) and not isinstance(value, bool)
        one = type(value)(not value)
        yield other(value=value + 1 if whole else one)
    elif isinstance(node, ast.Name) and node.id in RENAMED:
        yield other(id=RENAMED[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in RENAMED:
        yield other(attr=RENAMED[node.attr])
    elif isinstance(node, (ast.If, ast.IfExp)) and isinstance(
        node.test, (ast.Name, ast.Attribute, ast.Call)
    ):
        yield other(test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def _told(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}:"
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))


def _sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str, int | None, ast.AST]]:
    """Yield (function, parent, field, index, new node) of every change, in a fixed order."""
    skipped = {"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "msg"}

    def walk(node: ast.AST, name: str, inside: bool) -> Any:
        for field, value in ast.iter_fields(node):
            if field in skipped:
                continue
            for k, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr)):
                    continue
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not inside:
                    here = f"{name}.{child.name}".lstrip(".")
                    yield from walk(child, here, isinstance(child, ast.FunctionDef))
                elif inside or (isinstance(child, (ast.Assign, ast.AnnAssign)) and name == ""):
                    if inside or field == "value":
                        for new in _changes(child):
                            yield name, node, field, k if isinstance(value, list) else None, new
                    constant = isinstance(child, (ast.Assign, ast.AnnAssign)) and not inside
                    target = _target(child) if constant else name
                    if target:
                        yield from walk(child, target, True)

    return walk(tree, "", False)


def _target(node: Any) -> str:
    """Return the name of a number that a module defines, empty where it is none."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    numbers = all(isinstance(n, ast.Constant) and not isinstance(n.value, str)
                  for n in ast.walk(node.value) if isinstance(n, (ast.Constant, ast.Name, ast.Call)))  # fmt: skip
    names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return ", ".join(names) if numbers and node.value else ""


@cache
def mutants(file: str) -> tuple[Mutant, ...]:
    """Return every mutant of a file."""
    tree, seen, found = ast.parse((ROOT / file).read_text(encoding="utf-8")), {}, []
    for place, (name, parent, field, k, new) in enumerate(_sites(tree)):
        value = getattr(parent, field)
        old = value if k is None else value[k]
        same = (name, _told(old), _told(new))
        seen[same] = seen.get(same, -1) + 1
        found.append(Mutant(file, *same, seen[same], old.lineno, place))
    return tuple(found)


def drawn(file: str, count: int) -> list[Mutant]:
    """Return so many mutants of a file, the same at every run."""
    every = [*mutants(file)]
    own = sorted(every, key=lambda m: random.Random(f"{SEED} {m.key}").random())
    return own if count < 0 else own[:count]


def listed() -> dict[tuple[Any, ...], str]:
    """Return the reasons of the survivors that are right: by file, then by reason."""
    told = tomllib.loads(LISTED.read_text(encoding="utf-8"))
    reasons, found = told.pop("reasons"), {}
    for file, groups in told.items():
        for reason, entries in groups.items():
            for function, before, after, *nth in entries:
                found[file, function, before, after, *(nth or [0])] = reasons[reason]
    return found


def _code(root: CodeType, name: str) -> CodeType | None:
    """Return the code of a function or method in that of its module."""
    for part in name.split("."):
        inner = [c for c in root.co_consts if isinstance(c, CodeType) and c.co_name == part]
        if not inner:
            return None
        root = inner[-1]
    return root


def _installed(m: Mutant) -> None:
    """Put a mutant in the place of its function, or of its constant, in this process."""
    path, module = ROOT / m.file, m.file.removesuffix(".py").replace("/", ".")
    importlib.import_module(module)  # no test may have asked for it yet
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _, parent, field, k, new = next(s for i, s in enumerate(_sites(tree)) if i == m.place)
    if k is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[k] = new
    whole = compile(ast.fix_missing_locations(tree), str(path), "exec")
    code = _code(whole, m.function)
    if code is not None:
        functions = [f for f in gc.get_objects() if isinstance(f, FunctionType)]
        same = [f for f in functions if f.__code__.co_filename == str(path)
                and f.__code__.co_qualname == m.function]  # fmt: skip
        for f in same:
            f.__code__ = code
        return
    for name in m.function.split(", "):
        old, value = getattr(sys.modules[module], name), _constant(tree, name, module)
        for other in [v for k, v in sys.modules.items() if k.startswith("optfair")]:
            if getattr(other, name, None) is old:
                setattr(other, name, value)


def _constant(tree: ast.Module, name: str, module: str) -> Any:
    """Return what a module would give to a name."""
    space = dict(vars(sys.modules[module]))
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in _target(node).split(", "):
            exec(compile(ast.Module([node], []), module, "exec"), space)
    return space[name]


def _digest(paths: Iterable[Any]) -> str:
    """Return a fingerprint of some files."""
    texts = b"\0".join(Path(ROOT, p).read_bytes() for p in paths)
    return hashlib.sha256(texts).hexdigest()[:16]


class Kept:
    """What became of mutants in earlier runs, of code that has not changed since."""

    def __init__(self, path: Path = KEPT) -> None:
        self.path, self.words, self.calls = path, {}, {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):  # a line cut off
                code, tests, key, word = json.loads(line)
                if isinstance(key, str):
                    self.calls[code, tests, key] = word
                else:
                    self.words[code, tuple(key), word == "killed" or tests] = word

    def word(self, m: Mutant, tests: tuple[str, ...]) -> str | None:
        """Return what became of a mutant; a survivor's word goes stale with its tests."""
        code = _digest([m.file])
        killed = self.words.get((code, m.key, True))
        return killed or self.words.get((code, m.key, _digest(tests)))

    def keep(self, m: Mutant, tests: tuple[str, ...], word: str) -> None:
        """Append what became of a mutant."""
        self.append([_digest([m.file]), _digest(tests), m.key, word])

    def append(self, line: list[Any]) -> None:
        """Append a line, whoever else does so."""
        out = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(out, (json.dumps(line) + "\n").encode())
        os.close(out)


class Trials:
    """A plugin that runs collected tests once, then against every mutant of some files."""

    def __init__(self, wanted: list[Mutant], tests: tuple[str, ...], jobs: int, end: float) -> None:
        self.wanted, self.tests, self.jobs, self.end = wanted, tests, jobs, end
        self.kept = Kept()

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run the tests in forks, with and without mutants."""
        items = {item.nodeid: item for item in session.items}
        called = self._called(session)
        running: dict[int, tuple[Mutant, float]] = {}
        for m in [*self.wanted, None]:
            while running and (m is None or len(running) >= self.jobs):
                self._reap(running)
            if m is None or time.monotonic() > self.end:
                continue
            own = {Path(t).relative_to(ROOT).as_posix() for t in tests_of(m.file)}
            tests = sorted((t.partition("::")[0] not in own, cpu, t)
                           for t, (cpu, names) in called.items()
                           if m.function in names.get(m.file, ())
                           or (m.function.isupper() and m.file in names))  # fmt: skip
            spent, some = 0.0, []
            for _, cpu, t in tests:
                spent += cpu
                if spent <= TESTS:
                    some.append(items[t])
            if not some:
                self.kept.keep(m, self.tests, "no test runs it")
                continue
            pid = os.fork()
            if pid == 0:
                self._child(session, m, some, min(spent, TESTS))
            running[pid] = (m, time.monotonic())
        return True

    def _reap(self, running: dict[int, tuple[Mutant, float]]) -> None:
        for pid, (m, begun) in [*running.items()]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() - begun > WALL:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                done, status = pid, 9
            if done:
                self.kept.keep(m, self.tests, "killed" if status else "survives")
                del running[pid]
                mark = "." if status else "S"
                os.write(2, mark.encode())
        time.sleep(0.01)

    def _child(self, session: Any, m: Mutant, items: list[Any], spent: float) -> None:
        _silent()
        soft = int(4.0 * spent + 10.0)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
        code = 1
        with contextlib.suppress(BaseException):
            _installed(m)
            for item, after in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if session.testsfailed:
                    break
            code = int(bool(session.testsfailed))
        os._exit(code)

    def _called(self, session: Any) -> dict[str, tuple[float, dict[str, set[str]]]]:
        """Return CPU seconds of each quick test and the functions of the package it calls."""
        folders = sorted({Path(m.file).parent for m in self.wanted})
        package = _digest(sorted(f for part in folders for f in (ROOT / part).glob("*.py")))
        own = {item.nodeid: (package, _digest([item.path]), item.nodeid) for item in session.items}
        new = [item for item in session.items if own[item.nodeid] not in self.kept.calls]
        for k in range(self.jobs):
            self._record(session, new[k :: self.jobs], own, folders)
        for _ in range(self.jobs):
            os.wait()
        self.kept = Kept()
        told = {t: self.kept.calls[key] for t, key in own.items() if key in self.kept.calls}
        return {t: (cpu, {f: {*n} for f, n in names.items()})
                for t, (cpu, names) in told.items() if cpu is not None}  # fmt: skip

    def _record(self, session: Any, items: list[Any], own: Any, folders: list[Path]) -> None:
        """Run some tests in a fork, which keeps what each of them calls."""
        if os.fork() == 0:
            _silent()
            prefix, begun = str(ROOT) + os.sep, 0.0
            seen: dict[int, CodeType] = {}

            def profile(frame: Any, event: str, _: Any) -> None:
                if event == "call":
                    seen[id(frame.f_code)] = frame.f_code

            def late(*_: Any) -> None:
                raise TimeoutError

            signal.signal(signal.SIGVTALRM, late)
            for item, after in zip(items, [*items[1:], None], strict=True):
                failed, begun = session.testsfailed, time.process_time()
                seen.clear()
                sys.setprofile(profile)
                with contextlib.suppress(TimeoutError):
                    signal.setitimer(signal.ITIMER_VIRTUAL, 2.0 * TEST)
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
                sys.setprofile(None)
                names: dict[str, list[str]] = {}
                for code in seen.values():
                    file = code.co_filename.removeprefix(prefix)
                    if Path(file).parent in folders:
                        names.setdefault(file, []).append(code.co_qualname)
                cpu = time.process_time() - begun
                right = session.testsfailed == failed and cpu <= 2.0 * TEST
                self.kept.append([*own[item.nodeid], (cpu if right else None, names)])
            os._exit(0)


def _silent() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)


def tests_of(file: str) -> tuple[str, ...]:
    """Return the test files that name a file; where none does, those of the folder that mirrors it."""
    own = [t for t in naming(file) if t.parent == folder_of(file)] or naming(file)
    return tuple(map(str, own or sorted(folder_of(file).glob("test_*.py"))))


def naming(file: str) -> list[Path]:
    """Return the test files, of any folder, that import a file or bear its name."""
    module = ".".join(Path(file).with_suffix("").parts)
    parent, _, stem = module.rpartition(".")
    words = re.compile(
        rf"{re.escape(module)}\b|{re.escape(parent)} import .*\b{stem}\b".replace("\\_", "_")
    )
    here = folder_of(file)
    files = (t for f in {*NEAR, here.name} for t in here.parent.glob(f"{f}/test_*.py"))
    every = {t: t.read_text(encoding="utf-8") for t in files}
    return sorted(t for t, text in every.items() if words.search(text)
                  or (t.stem == f"test_{stem}" and t.parent == here))  # fmt: skip


def nets(files: Iterable[str]) -> tuple[str, ...]:
    """Return the tests that survivors of files of one folder are tried by."""
    found = {ROOT / t for t in WHOLE}
    for file in files:
        found |= {*folder_of(file).glob("test_*.py"), *naming(file)}
    return tuple(sorted(map(str, found)))


def direct(files: Iterable[str]) -> tuple[str, ...]:
    """Return the tests that files of one folder are tried by first."""
    files = [f for f in files if mutants(f)]
    named = {str(t) for f in files for t in naming(f)}
    return tuple(sorted(named or {t for f in files for t in tests_of(f)}))


def folder_of(file: str) -> Path:
    """Return the folder of tests that mirrors a file's own."""
    parts = Path(file).parts[1:]
    return ROOT / "tests" / Path(*parts[: 2 if parts[0] == "methods" else 1])


def tried(wanted: list[Mutant], tests: tuple[str, ...], jobs: int, end: float) -> None:
    """Try mutants that have the same tests, in a process of their own."""
    pid = os.fork()
    if pid == 0:
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        trials = Trials(wanted, tests, jobs, end)
        pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[trials])
        os._exit(0)
    os.waitpid(pid, 0)


def _settled(
    tests: dict[Mutant, tuple[str, ...]], turn: dict[Mutant, int], jobs: int, end: float
) -> dict[Mutant, str]:
    """Try what is not settled by its tests yet; return what became of each mutant."""
    kept, groups = Kept(), dict[tuple[str, ...], list[Mutant]]()
    for m in sorted(tests, key=turn.__getitem__):
        if kept.word(m, tests[m]) is None:
            groups.setdefault(tests[m], []).append(m)
    for some, wanted in groups.items():
        if time.monotonic() < end:
            tried(wanted, some, jobs, end)
    kept = Kept()
    return {m: kept.word(m, own) or "not tried" for m, own in tests.items()}


def _seconds() -> float:
    """Return the CPU seconds of this process and of all that it started."""
    return sum(os.times()[:4])


def main(arguments: list[str] | None = None) -> int:
    """Try the mutants of some files, or of all in scope; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="files, else those in scope")
    parser.add_argument("--count", type=int, help="mutants of each file; -1 all of them")
    parser.add_argument("--tests", nargs="*", type=os.path.abspath, help="else those that mirror")
    parser.add_argument("--listed", action="store_true", help="those of the list alone")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    counts = {f.relative_to(ROOT).as_posix(): n for g, n in SCOPE.items() for f in ROOT.glob(g)}
    files = {str(Path(f)): counts.get(f, 40) for f in asked.files} or dict(sorted(counts.items()))
    begun, known = time.monotonic(), listed()
    end = begun + 60.0 * asked.minutes
    alike: dict[Path, list[Mutant]] = {}
    near: dict[Mutant, tuple[str, ...]] = {}
    far: dict[Mutant, tuple[str, ...]] = {}
    turn: dict[Mutant, int] = {}
    for file in files:
        own = drawn(file, files[file] if asked.count is None else asked.count)
        own = [m for m in mutants(file) if m.key in known] if asked.listed else own
        alike.setdefault(folder_of(file), []).extend(own)
        turn |= {m: k for k, m in enumerate(own)}
    for folder, own in alike.items():
        every = [f for f in counts if folder_of(f) == folder] or [m.file for m in own]
        near |= dict.fromkeys(own, tuple(asked.tests or direct(every)))
        far |= dict.fromkeys(own, tuple(asked.tests or nets(every)))
    first = _settled(near, turn, asked.jobs, end)
    live = [m for m, word in first.items() if word not in ("killed", "not tried")]
    again = live if asked.listed else [m for m in live if m.key not in known]
    found = first | _settled({m: far[m] for m in again}, turn, asked.jobs, end)
    live = {m: word for m, word in found.items() if word in ("survives", "no test runs it")}
    wrong = {m: w for m, w in live.items() if m.key not in known}
    if asked.listed:
        wrong = {m: w for m, w in found.items() if w == "killed"}
    missing = [*found.values()].count("not tried")
    if asked.json:
        print(json.dumps({"tried": len(found) - missing, "missing": missing, "live": len(live),
                          "not listed": [[*m.key] for m in wrong]}))  # fmt: skip
        return 1 if wrong else 2 * (missing > 0)
    for file in files:
        words = [w for m, w in found.items() if m.file == file]
        told = {w: words.count(w) for w in dict.fromkeys(words)}
        print(f"{file}: {', '.join(f'{n} {w}' for w, n in told.items())}")
    for m, word in wrong.items():
        entry = [*m.key[1:4], *([m.nth] if m.nth else [])]
        print(f"  {m.file}:{m.line} {word}: {json.dumps(entry, ensure_ascii=False)}")
    said = "listed are killed" if asked.listed else "survivors are not listed"
    print(f"\n{len(found)} mutants, {missing} not tried yet, {len(live)} survive; "
          f"{len(wrong)} {said}; {_seconds():.0f} CPU seconds in {time.monotonic() - begun:.0f}")  # fmt: skip
    return 1 if wrong else 2 * (missing > 0)


if __name__ == "__main__":
    sys.exit(main())
