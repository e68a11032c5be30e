"""Run every solver on every problem, each time in a process of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import cvxpy as cp

from optfair.backends.registry import profile, profiles
from optfair.backends.request import Accept, Refusal, Request, SolverProfile
from optfair.backends.solve import solves_recast
from optfair.comparison.comparison import Comparison
from optfair.comparison.run import Run, Store, can_limit_memory, environment, measured
from optfair.comparison.server import FOLDERS, check_fork, in_fork, run_instance
from optfair.core.adopt import from_cvxpy
from optfair.core.identity import fingerprint
from optfair.core.labels import free_name
from optfair.core.problem import Problem
from optfair.errors import (
    DataError,
    DeclarationError,
    NotInstalled,
    OptfairError,
    UnsupportedProblem,
    kind_of,
    nearest,
    shortened,
)
from optfair.formats.files import read
from optfair.formats.text import is_problem_file
from optfair.library import Instance, Member, collection, collections, load, names
from optfair.numbers import (
    check_count,
    check_jobs,
    check_mapping,
    check_names,
    check_path,
    check_text,
    checked,
    real,
)
from optfair.registry import nearest_of_families
from optfair.rows.restarts import progress_bar

logger = logging.getLogger("optfair")

# What is to be solved: instances by name or pattern, and problems in memory.


@dataclass(frozen=True)
class Subject:
    """One problem of a comparison.

    Attributes
    ----------
    name : str
        What it is called in results.
    problem : Problem or None
        As declared here; None where its file cannot be read.
    instance : str
        Name in the problem library, under which another process finds it; else empty.
    stated : float or None
        Its certified optimum.
    fault : OptfairError or None
        Why its file cannot be read.
    file : Path or None
        Where it was read from.
    """

    name: str
    problem: Problem | None
    instance: str = ""
    stated: float | None = None
    fault: OptfairError | None = None
    file: Path | None = None

    @property
    def problem_class(self) -> str:
        """Class as it is printed, empty where nothing was read."""
        return "" if self.problem is None else str(self.problem.problem_class)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why its file cannot be read."""
        e = self.fault
        return () if e is None else (": ".join(filter(None, (e.cause, e.evidence))),)

    def answer(self, profile: SolverProfile) -> Accept | Refusal:
        """Return whether a solver takes it, in other words too; none takes what cannot be read."""
        if self.problem is None:
            return Refusal(self.reasons, ())
        answer = profile.accepts(self.problem)
        return Accept() if solves_recast(self.problem, profile.name) else answer


def subjects(problems: Any) -> list[Subject]:
    """Return what is meant, each under a name of its own.

    Parameters
    ----------
    problems : str, Problem, Instance, iterable of these, or dict of name to one of these
        A text is the name of an instance, a pattern of names and tags, a file that
        `optfair.read` knows, a folder or a pattern of such files, or a collection (or a pattern of
        its members, ``netlib/a*``) of the folder that ``OPTFAIR_COLLECTIONS`` names.

    Raises
    ------
    DataError
        Nothing matches, or it is something else; none of the files can be read.
    """
    named: dict[str, Subject] = {}
    for name, item in _named(problems):
        for subject in _meant(item, name):
            same = named.get(subject.name)
            origin = subject.instance or subject.file
            if same is not None and origin and origin == (same.instance or same.file):
                continue  # two patterns may meet
            unique = free_name(subject.name, named)
            named[unique] = replace(subject, name=unique)
    if not named:
        raise DataError("there is no problem to compare on", remedy="give at least one")
    faults = [s.fault for s in named.values() if s.fault is not None]
    if len(faults) == len(named):
        raise faults[0]
    return list(named.values())


def _named(problems: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(problems, Mapping):
        return [(str(name), item) for name, item in problems.items()]
    if isinstance(problems, (str, Path, Problem, cp.Problem, Instance, Member)):
        return [("", problems)]
    if isinstance(problems, Iterable) and not isinstance(problems, bytes):
        return [("", item) for item in problems]
    return [("", problems)]


def _meant(item: Any, name: str) -> list[Subject]:
    if isinstance(item, Problem):
        return [Subject(name or item.title, item)]
    if isinstance(item, cp.Problem):
        return _meant(from_cvxpy(item), name)
    if isinstance(item, Instance):
        # read again elsewhere by its name only if that is the file it came from
        listed = item.name in names() and load(item.name) == item
        known = None if item.optimum is None else item.optimum.value
        return [Subject(name or item.name, item.problem(), item.name if listed else "", known)]
    if isinstance(item, Member):
        try:
            return [Subject(name or item.name, item.problem(), "", item.optimum, file=item.path)]
        except OptfairError as e:  # the others can be compared
            return [Subject(name or item.name, None, "", item.optimum, e, item.path)]
    if isinstance(item, (str, Path)) and (files := _files(str(item))):
        return [subject for file in files for subject in _meant(file, name)]
    if isinstance(item, Path) or (isinstance(item, str) and is_problem_file(item)):
        file = Path(item).resolve()
        try:
            return [Subject(name or Path(item).name, read(item), file=file)]
        except OptfairError as e:
            if not file.is_file():
                raise
            return [Subject(name or Path(item).name, None, "", None, e, file)]
    if isinstance(item, str) and (members := _members(item)):
        return [subject for m in members for subject in _meant(m, name)]
    if isinstance(item, str):
        instances = _matching(item)
        if name and len(instances) > 1:
            raise DataError(
                f"{name!r} stands for {len(instances)} instances",
                f"{item!r} matches " + ", ".join(i.name for i in instances),
                "give patterns in a list, without a name",
            )
        return [subject for i in instances for subject in _meant(i, name)]
    raise DataError(
        f"{kind_of(item)} is not a problem",
        remedy="call it"
        if callable(item)
        else "give names of instances, or problems, also CVXPY's",
    )


def _files(pattern: str) -> list[Path]:
    """Return the files in a folder, or of a pattern such as ``models/*.mps``; instances come first."""
    if Path(pattern).is_dir():
        if any(pattern in (n, n.rpartition("/")[2], n.partition("/")[0]) for n in names()):
            return []
        files = sorted(f for f in Path(pattern).iterdir() if f.is_file() and is_problem_file(f))
        if not files:
            raise DataError(f"the folder {pattern!r} has no file that can be read")
        return files
    wild = any(c in pattern for c in "*?[") and is_problem_file(pattern)
    return sorted(f for f in map(Path, glob(pattern)) if f.is_file()) if wild else []


def _members(pattern: str) -> list[Member]:
    """Return what a collection, or a pattern of its members, stands for; instances come first."""
    group, _, which = pattern.partition("/")
    if group not in collections() or any(k.startswith(f"{group}/") for k in names()):
        return []
    members = [m for m in collection(group) if fnmatch(m.name, f"{group}/{which or '*'}")]
    if not members:
        known = [m.name for m in collection(group)]
        raise DataError(f"no member of {group} matches {which!r}", remedy=nearest(pattern, known))
    return members


def _matching(pattern: str) -> list[Instance]:
    """Return the instances that a name or a pattern of names and tags stands for."""
    known = names()
    if not any(c in pattern for c in "*?["):
        return [load(pattern)]
    instances = [load(name) for name in known]
    matching = [i for i in instances if any(fnmatch(word, pattern) for word in (i.name, *i.tags))]
    if not matching:
        raise DataError(
            f"no instance matches {pattern!r}", remedy=nearest_of_families(pattern, known)
        )
    return matching


# Run every solver on every problem, each time in a process of its own.


@dataclass(frozen=True)
class ConfiguredSolver:
    """A solver with options of its own, to be compared as if it were another.

    Attributes
    ----------
    solver : str
        Name of the solver.
    options : dict
        Options by the solver's own names.
    name : str
        What it is called in results; by default the solver and its options.
    """

    solver: str
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def label(self) -> str:
        """What it is called in results."""
        stated = ", ".join(f"{k}={v}" for k, v in self.options.items())
        return self.name or (f"{self.solver} ({stated})" if stated else self.solver)


# (planned run, what to call for its result)
ASKED = ("solver", "tolerance", "time_limit", "options", "memory_limit")
Job = tuple[Run, str, Callable[[], dict[str, Any]]]


def _own_options(options: Any, what: str) -> None:
    """Say where options of a solver go: they are of one, and a comparison has several."""
    given = repr(options) if isinstance(options, Mapping) else "{...}"
    raise DeclarationError(
        f"compare_solvers has no argument {what!r}",
        "options are those of one solver, and each solver has other names for them",
        f"compare_solvers(problems, [ConfiguredSolver('highs', {shortened(given)}), ...]);"
        " ConfiguredSolver is in optfair.comparison",
    )


@checked(out=check_path, repeats=check_count, n_jobs=check_jobs, options=_own_options)
def compare_solvers(
    problems: Any,
    solvers: str | ConfiguredSolver | Iterable[str | ConfiguredSolver] | None = None,
    *,
    tolerance: float = 1e-8,
    time_limit: float = 60.0,
    memory_limit: float | None = None,
    repeats: int = 1,
    n_jobs: int = 1,
    out: str | Path | None = None,
    verbose: int = 0,
) -> Comparison:
    """Compare solvers on problems, at equal tolerance and by our residuals.

    A solver has solved a problem when every residual, recomputed on the declared problem, is
    within the tolerance; what it says itself does not count. Each run has a process of its own,
    with one thread, in which everything is loaded and the solver has solved a small problem
    before the clock starts. Wall time, CPU time and peak memory are those of the whole call:
    choose, compile, solve, recover and verify.

    Parameters
    ----------
    problems : str, Problem, Instance, iterable of these, or dict of name to one of these
        A text is the name of an instance of the problem library, or a pattern of names and
        tags such as ``"textbook/*"``, a file, or a folder of files, of which those that cannot be
        read are failures.
    solvers : str, ConfiguredSolver, or iterable of these, optional
        Names, or `ConfiguredSolver` of a solver with options; by default every installed open solver, but for those that find local optima
        only.
    tolerance : float
        Relative residuals to meet.
    time_limit : float
        Wall seconds of one run. One that exceeds them counts as at least the limit; one that
        does not stop is ended.
    memory_limit : float, optional
        Megabytes that one run may add to what was loaded; no limit by default.
    repeats : int
        Runs per problem and solver; medians are compared.
    n_jobs : int
        Runs at the same time, -1 for one per core; they share memory bandwidth and caches, so
        1 gives the cleanest times. Carried by joblib: inside
        ``joblib.parallel_config(backend=...)`` instances of the library run on that backend.
    out : path, optional
        Folder that keeps every finished run, as well as ``comparison.json`` and ``.csv`` at the
        end. Runs found there are not made again while problem, solver, version, settings and
        tolerance are the same; crashed ones are.
    verbose : {0, 1}
        1 draws a progress bar.

    Returns
    -------
    Comparison
        Of all runs; after Ctrl-C of those that had ended, where one had.

    Raises
    ------
    DataError, DeclarationError, UnsupportedProblem, NotInstalled
        No such problem, bad options, no such solver, or none of them is installed; before
        anything is run.

    Notes
    -----
    A file of a collection that is missing, damaged, or another one than its manifest says is a row
    for each solver with the outcome "unreadable" and the reason; the others are run. Where no file
    can be read the comparison is refused.

    A solver that is not installed, or has no licence, is a row with the outcome "not_installed" or
    "not_licensed" and what to do; the others are run. See `Comparison.unavailable`.

    Instances are declared again from their file in the process that solves them. A problem in
    memory cannot be sent anywhere; it is handed over by fork, on systems that have it, and on
    this machine whatever joblib's backend is. Its peak memory includes what this process held;
    ``megabytes_added`` does not.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.comparison import compare_solvers
    >>> c = compare_solvers("textbook/diet", ["highs", "clarabel"], tolerance=1e-7)
    >>> [(run.solver, run.outcome) for run in c.runs]
    [('highs', 'solved'), ('clarabel', 'solved')]
    >>> c.conflicts()
    ()
    """
    _check(tolerance, time_limit, memory_limit, verbose)
    configured = _configured(solvers)
    asked = [(s, profile(s.solver)) for s in configured]
    for s, facts in asked:
        _check_options(s, facts, tolerance, time_limit)
    given = subjects(problems)
    if not all(subject.instance for subject in given):
        check_fork()
    store = None if out is None else Store(out)
    done: dict[tuple[str, str, int], Run] = {}
    jobs: list[Job] = []
    for subject in given:
        answers = {facts.name: subject.answer(facts) for _, facts in asked}
        mark = ""
        if subject.problem is not None and store is not None and any(answers.values()):
            mark = fingerprint(subject.problem)
        for chosen, facts in asked:
            for repeat in range(repeats):
                run = _planned(subject, chosen, facts, repeat, tolerance, time_limit, mark)
                answer = answers[facts.name]
                if subject.fault is None and not facts.installed:
                    why = facts.install
                    done[_place(run)] = replace(run, outcome="not_installed", reason=why)
                    break
                if isinstance(answer, Refusal):
                    done[_place(run)] = replace(run, reason="; ".join(answer.reasons))
                    break  # it would say the same again
                options = sorted(chosen.options.items())
                more = (options, memory_limit)
                key = "" if store is None else store.key(mark, facts, tolerance, repeat, *more)
                kept = None if store is None else store.read(key, time_limit)
                if kept is None:
                    jobs.append((run, key, _call(subject, run, facts.name, memory_limit)))
                else:
                    done[_place(run)] = replace(
                        kept,
                        problem=run.problem,
                        solver=run.solver,
                        repeat=repeat,
                        stated=run.stated,
                    )
    order = [*done, *(_place(run) for run, _, _ in jobs)]
    try:
        for run, key, result in _results(jobs, n_jobs, verbose):
            ended = replace(run, **{"environment": environment(), **result})
            done[_place(run)] = ended
            if store is not None:
                store.write(key, ended)
    except KeyboardInterrupt:
        finished = sum(run.asked for run in done.values())
        if not finished:
            raise
        left = sum(place not in done for place in order)
        logger.warning("interrupted; runs kept: %d, not made: %d", finished, left)
    names = [s.name for s in given], [s.label for s in configured]
    order.sort(key=lambda place: (names[0].index(place[0]), names[1].index(place[1]), place[2]))
    comparison = Comparison(
        tuple(done[p] for p in order if p in done), tolerance, time_limit, repeats
    )
    if store is not None:
        for ending in ("json", "csv"):
            comparison.save(store.folder / f"comparison.{ending}")
    return comparison


def _check(tolerance: float, time_limit: float, memory_limit: float | None, verbose: int) -> None:
    if memory_limit is not None:
        if not real(memory_limit) > 0:
            raise DeclarationError(
                f"memory_limit {memory_limit!r} is not positive", remedy="give megabytes"
            )
        if not can_limit_memory():
            raise UnsupportedProblem(
                "memory cannot be limited on this system", remedy="leave memory_limit out"
            )
    Request(tolerance=tolerance, time_limit=time_limit, verbose=verbose)
    if time_limit is None:
        raise DeclarationError("there is no time limit", remedy="give seconds, such as 60")


def _configured(
    solvers: str | ConfiguredSolver | Iterable[str | ConfiguredSolver] | None,
) -> list[ConfiguredSolver]:
    if solvers is None:
        known = (p for p in profiles().values() if p.kind == "open" and p.installed)
        # one that finds local optima only cannot answer here: it must be named
        return [ConfiguredSolver(p.name) for p in known if p.nonconvex != "local"]
    several: Any = [solvers] if isinstance(solvers, (str, ConfiguredSolver)) else solvers
    listed = isinstance(several, Iterable) and not isinstance(several, (bytes, Mapping))
    several = list(several) if listed else several
    plain = [s for s in several if not isinstance(s, ConfiguredSolver)] if listed else several
    check_names(plain, "solvers")
    given = [s if isinstance(s, ConfiguredSolver) else ConfiguredSolver(s) for s in several]
    labelled: dict[str, ConfiguredSolver] = {}
    for s in given:
        if labelled.setdefault(s.label, s) != s:
            raise DeclarationError(
                f"two settings are called {s.label!r}", remedy="give each a name of its own"
            )
    if not labelled:
        raise DeclarationError("no solver to compare", remedy="name one, or leave solvers out")
    named = [profile(check_text(s.solver, "solver")) for s in labelled.values()]
    if not any(facts.installed for facts in named):
        facts = named[0]
        raise NotInstalled(f"{facts.name} is not installed", remedy=facts.install)
    return list(labelled.values())


def _check_options(
    chosen: ConfiguredSolver, facts: SolverProfile, tolerance: float, time_limit: float
) -> None:
    """Refuse options that the solver does not have, or that no file can keep."""
    options = check_mapping(chosen.options, "options")
    odd = [k for k, v in options.items() if not isinstance(v, (bool, int, float, str))]
    if odd:
        raise DeclarationError(
            f"the option {odd[0]!r} of {chosen.label!r} is no number, text or truth value",
            remedy="give one of these",
        )
    if options:
        clock = time_limit if "time_limit" in facts.options else None
        request = Request(tolerance=tolerance, time_limit=clock, options=options)
        (request.refuse_options if facts.structure else request.solver_options)(facts)


def _planned(
    subject: Subject,
    chosen: ConfiguredSolver,
    facts: SolverProfile,
    repeat: int,
    tolerance: float,
    time_limit: float,
    mark: str,
) -> Run:
    return Run(
        problem=subject.name,
        problem_class=subject.problem_class,
        solver=chosen.label,
        version=facts.version,
        repeat=repeat,
        outcome="refused" if subject.fault is None else "unreadable",
        reason="",
        tolerance=tolerance,
        time_limit=time_limit,
        stated=subject.stated,
        fingerprint=mark,
        options=dict(chosen.options),
    )


def _place(run: Run) -> tuple[str, str, int]:
    return run.problem, run.solver, run.repeat


def _call(
    subject: Subject, run: Run, solver: str, memory_limit: float | None
) -> Callable[[], dict[str, Any]]:
    """Return what makes a run; for an instance something that can be sent to other machines."""
    asked = (solver, run.tolerance, run.time_limit, dict(run.options), memory_limit)
    if not subject.instance:
        problem: Any = subject.problem
        return lambda: in_fork(lambda: measured(problem, *asked))
    folders = {name: os.environ[name] for name in FOLDERS if name in os.environ}
    given = dict(zip(ASKED, asked, strict=True))
    return partial(run_instance, {"problem": subject.instance, **given, "folders": folders})


def _results(
    jobs: list[Job], n_jobs: int, verbose: int
) -> Iterator[tuple[Run, str, dict[str, Any]]]:
    """Yield each job's run, key and result as it ends."""
    sent = [(i, call) for i, (run, _, call) in enumerate(jobs) if not _is_local(call)]
    here = [(i, call) for i, (run, _, call) in enumerate(jobs) if _is_local(call)]
    with _progress(verbose, len(jobs)) as tell:
        for calls, options in ((sent, {"prefer": "threads"}), (here, {"backend": "threading"})):
            for i, result in _parallel(calls, n_jobs, options):
                run, key, _ = jobs[i]
                tell(f"{run.problem} by {run.solver}")
                yield run, key, result


def _is_local(call: Callable[[], Any]) -> bool:
    return not hasattr(call, "func")


def _parallel(
    calls: list[tuple[int, Callable[[], dict[str, Any]]]], n_jobs: int, options: dict[str, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    if not calls:
        return
    from joblib import Parallel, delayed

    try:
        # as they end, so that what is finished is kept when the rest is interrupted
        parallel = Parallel(n_jobs, return_as="generator_unordered", batch_size=1, **options)
    except ValueError:  # a registered backend without that
        parallel = Parallel(n_jobs, batch_size=1, **options)
    yield from parallel(delayed(_numbered)(i, call) for i, call in calls)


def _numbered(i: int, call: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    return i, call()


@contextmanager
def _progress(verbose: int, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that counts one more run as ended."""
    if not verbose or not total:
        yield lambda what: None
        return
    with progress_bar("runs", total) as (bar, task):
        yield lambda what: bar.update(task, description=what, advance=1)
