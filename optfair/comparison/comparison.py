"""What came out of a comparison: runs, whether answers agree, and figures over many problems."""

from __future__ import annotations

import html
import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from optfair.backends.request import Request
from optfair.comparison.figures import (
    Accuracy,
    PerformanceProfile,
    accuracy,
    best_of,
    performance_profile,
    shifted_geometric_mean,
)
from optfair.comparison.run import OUTCOMES, PROOFS, UNAVAILABLE, Run
from optfair.core import display
from optfair.errors import DataError, Tabled, data_frame, nearest, needed
from optfair.numbers import check_path, check_positive, check_text, checked
from optfair.pages import PAGES, check_page
from optfair.storage import check_record, csv_text, read_json, write_text, write_whole

# Whether verified answers agree with each other and with what is certified.

# Residuals of size tau move an optimum by more than tau: by tau times the multipliers.
SLACK = 100.0


def conflicts(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the contradictions among runs with a verified answer, in words.

    Parameters
    ----------
    runs : iterable of Run
        Of any problems.

    Notes
    -----
    Optima may differ by 100 times the tolerance, relative to max(1, abs(optimum)): residuals
    of that size are allowed, and multipliers enlarge what they do to the optimum.
    """
    by_problem: dict[str, list[Run]] = {}
    for run in runs:
        if run.answered:
            by_problem.setdefault(run.problem, []).append(run)
    return tuple(text for group in by_problem.values() for text in _among(group))


def _among(group: list[Run]) -> Iterable[str]:
    first = group[0]
    if first.stated is not None:
        for run in group:
            if run.outcome in PROOFS:
                yield f"{run.problem}: {run.solver} proves it {run.outcome}, certified optimum {first.stated:.10g}"
            elif not _close(run.objective, first.stated, run.tolerance):
                yield (
                    f"{run.problem}: {run.solver} has {run.objective:.10g},"
                    f" certified optimum {first.stated:.10g}"
                )
        return
    for k, run in enumerate(group):
        for other in group[:k]:  # the first that it contradicts
            if run.outcome != other.outcome:
                yield f"{run.problem}: {other.solver} says {other.outcome}, {run.solver} {run.outcome}"
            elif run.outcome == "solved" and not _close(
                run.objective, other.objective, run.tolerance
            ):
                yield (
                    f"{run.problem}: {other.solver} has {other.objective:.10g},"
                    f" {run.solver} {run.objective:.10g}"
                )
            else:
                continue
            break


def _close(a: float | None, b: float | None, tolerance: float) -> bool:
    if a is None or b is None:
        return False
    return abs(a - b) <= SLACK * tolerance * max(1.0, abs(b))


# What came out of a comparison.

# Solvers that took nothing whose reason is printed.
IDLE = 6
# Columns of the printed table.
HEAD = ("solver", "taken", "answered", "seconds", "to best", "added MB")
MEASURES = ("seconds", "cpu_seconds", "megabytes", "megabytes_added")


@dataclass(frozen=True)
class Cell:
    """One solver on one problem, over all repeats.

    Attributes
    ----------
    runs : tuple of Run
        Its repeats.
    """

    runs: tuple[Run, ...]

    @property
    def outcome(self) -> str:
        """The worst outcome of the repeats."""
        return max((r.outcome for r in self.runs), key=OUTCOMES.index)

    @property
    def worst(self) -> Run:
        """The first repeat with that outcome."""
        return next(r for r in self.runs if r.outcome == self.outcome)

    @property
    def answered(self) -> bool:
        """Whether every repeat ended with a verified answer."""
        return all(r.answered for r in self.runs)

    def median(self, measure: str) -> float | None:
        """Return the median of a measure over the repeats, None where one has none."""
        values = [getattr(r, measure) for r in self.runs]
        return None if None in values else float(statistics.median(values))


@dataclass(frozen=True)
class Summary:
    """One solver over all problems.

    Attributes
    ----------
    solver, version : str
        Who.
    taken, answered, refused : int
        Problems it was run on; of these, those with a verified answer; those it does not take.
    seconds : float or None
        Shifted geometric mean, by default with 1 s, over the problems it was run on; where it has no answer,
        the time limit.
    lower_bound : bool
        Whether it has no answer somewhere, so that ``seconds`` is at least this.
    ratio : float or None
        ``seconds`` / the same mean of the best solver of each of these problems.
    megabytes : float or None
        Most memory a run added to what had been loaded.
    """

    solver: str
    version: str
    taken: int
    answered: int
    refused: int
    seconds: float | None
    lower_bound: bool
    ratio: float | None
    megabytes: float | None


class Cells(dict[tuple[str, str], Cell]):
    """Cells by problem and solver; what was not compared is said."""

    def __missing__(self, pair: Any) -> Cell:
        raise DataError(f"{pair!r} was not compared", remedy=nearest(str(pair), map(str, self)))


@dataclass(frozen=True)
class Comparison(Tabled):
    """All runs of a comparison, and what they say; made by `optfair.compare_solvers`.

    Attributes
    ----------
    runs : tuple of Run
        One per problem, solver and repeat; refusals too.
    tolerance, time_limit : float
        What was asked.
    repeats : int
        Runs per problem and solver.

    Examples
    --------
    >>> import optfair as of
    >>> comparison = of.compare_solvers(of.library.load("textbook/diet"), ["highs", "clarabel"])
    >>> [(run.solver, run.grade) for run in comparison.runs]
    [('highs', 'proved'), ('clarabel', 'proved')]
    """

    runs: tuple[Run, ...]
    tolerance: float
    time_limit: float
    repeats: int = 1

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Cell]:
        """Map from (problem, solver) to its repeats together."""
        grouped: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            grouped.setdefault((run.problem, run.solver), []).append(run)
        return Cells({key: Cell(tuple(runs)) for key, runs in grouped.items()})

    @property
    def problems(self) -> tuple[str, ...]:
        """Names of the problems, in order."""
        return tuple(dict.fromkeys(r.problem for r in self.runs))

    @property
    def solvers(self) -> tuple[str, ...]:
        """Names of the solvers, in order."""
        return tuple(dict.fromkeys(r.solver for r in self.runs))

    @property
    def environments(self) -> list[dict[str, str]]:
        """The different environments of the runs; times from several are not comparable."""
        seen = {json.dumps(dict(r.environment), sort_keys=True) for r in self.runs if r.environment}
        return [json.loads(text) for text in sorted(seen)]

    def of_class(self, name: str) -> Comparison:
        """Return the part on problems of one class, as it is printed."""
        kept = tuple(r for r in self.runs if r.problem_class == name)
        if not kept:
            known = dict.fromkeys(r.problem_class for r in self.runs)
            raise DataError(f"no problem is {name!r}", remedy=nearest(name, known))
        return Comparison(kept, self.tolerance, self.time_limit, self.repeats)

    def at(self, tolerance: float) -> Comparison:
        """Return the same runs judged at another tolerance, by the residuals they have.

        Nothing is run again: solvers were asked for the tolerance of this comparison, and what
        they returned is held to another. Failed runs count by the best point they had.
        """
        Request(tolerance=tolerance)
        runs = tuple(r.at(tolerance) for r in self.runs)
        return replace(self, runs=runs, tolerance=float(tolerance))

    def values(self, measure: str = "seconds") -> dict[str, dict[str, float | None]]:
        """Return solver -> problem -> median measure, None without a verified answer.

        Problems that a solver does not take, or that nobody can read, have no entry.
        """
        if measure not in MEASURES:
            raise DataError(f"unknown measure {measure!r}", remedy=nearest(measure, MEASURES))
        table: dict[str, dict[str, float | None]] = {solver: {} for solver in self.solvers}
        for (problem, solver), cell in self.cells.items():
            if cell.worst.asked:
                table[solver][problem] = cell.median(measure) if cell.answered else None
        return table

    def profile(self, measure: str = "seconds") -> PerformanceProfile:
        """Return the performance profile of the solvers that take at least one problem."""
        taken = {s: v for s, v in self.values(measure).items() if v}
        return performance_profile(taken, measure)

    def data_profile(self, measure: str = "seconds") -> PerformanceProfile:
        r"""Return the shares of problems solved within so much of a measure, not of the best.

        .. math:: \delta_s(\alpha) = \frac{1}{|P_s|}\,\big|\{p \in P_s : t_{ps} \le \alpha\}\big|

        References
        ----------
        J. J. Moré, S. M. Wild, Benchmarking derivative-free optimization algorithms, SIAM Journal
        on Optimization 20, 2009.
        """
        taken = {s: v for s, v in self.values(measure).items() if v}
        own = {s: np.sort([t for t in v.values() if t is not None]) for s, v in taken.items()}
        return PerformanceProfile(
            measure, own, {s: len(v) for s, v in taken.items()}, to_best=False
        )

    def accuracy(self, *others: Comparison) -> tuple[Accuracy, ...]:
        """Return how exact the points of each solver are, and the seconds they took.

        `optfair.plots.plot_accuracy` draws it.

        Parameters
        ----------
        *others : Comparison
            Of the same problems and solvers, at other tolerances.

        Raises
        ------
        DataError
            One is no comparison, or two have the same tolerance.

        Examples
        --------
        >>> import optfair as of
        >>> asked = [of.compare_solvers("diet", ["clarabel"], tolerance=t) for t in (1e-2, 1e-8)]
        >>> rough, exact = asked[0].accuracy(asked[1])
        >>> rough.tolerance, exact.tolerance, exact.median("objective") <= 1e-8
        (0.01, 1e-08, True)
        """
        return accuracy([self, *others])

    @checked(shift=check_positive)
    def summary(self, shift: float = 1.0) -> tuple[Summary, ...]:
        """Return one row per solver, most answers first, then the fastest against the best.

        Parameters
        ----------
        shift : float
            Of the geometric means, in seconds.
        """
        times = self.values()
        limits = dict.fromkeys(self.problems, self.time_limit)
        best = best_of({**times, "the time limit": limits})
        rows = [self._summary(solver, times[solver], best, shift) for solver in self.solvers]
        return tuple(sorted(rows, key=_rank))

    def _summary(
        self,
        solver: str,
        times: Mapping[str, float | None],
        best: Mapping[str, float],
        shift: float,
    ) -> Summary:
        cells = [c for (_, s), c in self.cells.items() if s == solver]
        answered = sum(v is not None for v in times.values())
        added = [r.megabytes_added for c in cells for r in c.runs if r.megabytes_added is not None]
        mean = ratio = None
        if times:
            spent = (self.time_limit if v is None else v for v in times.values())
            mean = shifted_geometric_mean(spent, shift)
            ideal = shifted_geometric_mean((best[p] for p in times), shift)
            ratio = mean / ideal if ideal > 0 else None
        return Summary(
            solver,
            cells[0].runs[0].version,
            len(times),
            answered,
            sum(c.outcome == "refused" for c in cells),
            mean,
            answered < len(times),
            ratio,
            max(added, default=None),
        )

    def failures(self) -> tuple[Run, ...]:
        """Return the worst run of each pair that ended without an answer.

        Refusals, and solvers that are not available, are left out.
        """
        innocent = ("refused", *UNAVAILABLE)
        cells = self.cells.values()
        return tuple(c.worst for c in cells if not c.answered and c.outcome not in innocent)

    def refusals(self) -> tuple[Run, ...]:
        """Return what the solvers do not take."""
        return tuple(c.worst for c in self.cells.values() if c.outcome == "refused")

    def unavailable(self) -> tuple[Run, ...]:
        """Return the runs that could not be made here: no package, or no licence for this size."""
        return tuple(c.worst for c in self.cells.values() if c.outcome in UNAVAILABLE)

    def conflicts(self) -> tuple[str, ...]:
        """Return where verified answers contradict each other, or a certified optimum.

        There should be none: one of the two is wrong although it passed verification.
        """
        return conflicts(self.runs)

    # --- writing -------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per run, every row with every column."""
        rows = [run.row() for run in self.runs]
        columns = dict.fromkeys(k for row in rows for k in row)
        return [{k: row.get(k) for k in columns} for row in rows]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per run, versions and machine included.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "schema": 1,
            "tolerance": self.tolerance,
            "time_limit": self.time_limit,
            "repeats": self.repeats,
            "environments": self.environments,
            "summary": [vars(row) for row in self.summary()],
            "conflicts": list(self.conflicts()),
            "runs": [run.to_dict() for run in self.runs],
        }

    def save(self, path: str | Path, *, safe_cells: bool = False) -> None:
        """Write the runs with versions and machine; the ending decides the format.

        Parameters
        ----------
        path : path
            ``.json`` has everything and can be read by `load`; ``.csv`` and ``.parquet`` have
            one row per run.
        safe_cells : bool
            Quote what a spreadsheet would take for a formula, in CSV.

        Raises
        ------
        DataError
            Another ending, or a place that cannot be written.
        NotInstalled
            Parquet without pyarrow.
        """
        path = Path(path)
        writers: dict[str, Callable[[Path], object]] = {
            ".json": lambda part: part.write_text(
                json.dumps(self.to_dict(), indent=1, allow_nan=False), "utf-8"
            ),
            ".csv": partial(self._write_csv, safe=safe_cells),
            ".parquet": self._parquet,
        }
        if path.suffix not in writers:
            raise DataError(
                f"{path.name!r} ends in none of {', '.join(writers)}", remedy="choose one of them"
            )
        write_whole(path, writers[path.suffix])

    @overload
    def to_html(self, path: None = None, *, command: str = "") -> str: ...
    @overload
    def to_html(self, path: str | Path, *, command: str = "") -> Path: ...
    def to_html(self, path: str | Path | None = None, *, command: str = "") -> str | Path:
        """Return one HTML page about this comparison, or write it and return its path.

        The solvers, profiles and accuracies, every run in a table that sorts by a click,
        failures with reasons. It needs nothing from elsewhere; ``optfair compare --report``
        writes the same.

        Parameters
        ----------
        path : path, optional
            File to write, whole or not at all.
        command : str
            What made the comparison, shown under the heading "Reproduce".

        Returns
        -------
        str or Path
            The page as text; its path where one is given, as the text would fill a notebook.

        Raises
        ------
        NotInstalled
            matplotlib or Jinja2 is missing.
        DataError
            The place cannot be written, or its name does not end in .html.
        """
        from optfair.comparison.figures import rendered  # draws: not where nothing is drawn

        check_page()
        if path is not None and check_path(path, "path").suffix.lower() not in PAGES:
            raise DataError(f"{str(path)!r} is no name of a page", remedy="end it in .html")
        text = rendered(self, check_text(command, "command") if command else "")
        if path is None:
            return text
        write_text(check_path(path, "path"), text)
        return Path(path)

    def _write_csv(self, path: Path, safe: bool) -> None:
        rows = self.rows()
        text = csv_text((rows[0], *(row.values() for row in rows)), safe=safe)
        path.write_bytes(text.encode("utf-8", "backslashreplace"))

    def _parquet(self, path: Path) -> None:
        pa, pq = (needed(m, "pip install pyarrow") for m in ("pyarrow", "pyarrow.parquet"))
        about = {k: v for k, v in self.to_dict().items() if k not in ("runs", "summary")}
        table = pa.Table.from_pylist(self.rows())
        table = table.replace_schema_metadata({"optfair": json.dumps(about)})
        pq.write_table(table, path)

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read what `save` wrote as JSON.

        Raises
        ------
        DataError
            The file is something else.
        """
        record = read_json(Path(path))
        if not isinstance(record, dict) or record.get("schema") != 1 or not record.get("runs"):
            raise DataError(f"{path} is not a comparison", remedy="give what Comparison.save wrote")
        number = (int, float)
        fields = {"tolerance": number, "time_limit": number, "repeats": int, "runs": list}
        check_record(record, fields, str(path))
        runs = tuple(Run.from_dict(r) for r in record["runs"])
        return cls(runs, record["tolerance"], record["time_limit"], record["repeats"])

    # --- printing ------------------------------------------------------------------------

    def __repr__(self) -> str:
        every = self.summary()
        took = [row for row in every if row.taken] or every
        table = display.text_table([HEAD, *map(_line, took)], right=True)
        first = (
            f"{len(self.problems)} problem{'s' * (len(self.problems) != 1)}, tolerance {self.tolerance:g}, time limit"
            f" {self.time_limit:g} s; seconds: shifted geometric mean (1 s)"
        )
        conflicts = (f"CONFLICT {text}" for text in self.conflicts())
        return "\n".join([first, *table, *self._idle(), *conflicts])

    def _idle(self) -> list[str]:
        """Return for solvers that took no problem the reason, of the first few."""
        absent = {r.solver: r for r in reversed(self.unavailable())}
        refusing = {r.solver: r for r in reversed(self.refusals()) if r.solver not in absent}
        idle = [row.solver for row in self.summary() if not row.taken]
        shown = [
            f"{s} is {absent[s].outcome.replace('_', ' ')}: {_short(absent[s].reason)}"
            for s in idle
            if s in absent
        ]
        none = [s for s in idle if s in refusing]
        shown += [f"{s} took none: {_short(refusing[s].reason)}" for s in none[:IDLE]]
        return shown + [f"{len(none) - IDLE} more took none"] * (len(none) > IDLE)

    def _repr_html_(self) -> str:
        first = repr(self).splitlines()[0]
        conflicts = "".join(display.html_lines(f"CONFLICT {text}") for text in self.conflicts())
        return (
            display.html_lines(first)
            + display.html_table(HEAD, map(_line, self.summary()))
            + "".join(f"<p>{html.escape(text)}</p>" for text in self._idle())
            + conflicts
        )


def _short(reason: str) -> str:
    return " ".join(reason.split())[:100]


def _rank(row: Summary) -> tuple[bool, float, float, str]:
    share = row.answered / row.taken if row.taken else 0.0
    return (not row.taken, -share, row.ratio or 0.0, row.solver)


def _line(row: Summary) -> tuple[str, ...]:
    least = ">=" if row.lower_bound else ""
    numbers: Iterable[str] = (
        "-" if row.seconds is None else f"{least}{row.seconds:.3g}",
        "-" if row.ratio is None else f"{least}{row.ratio:.3g}",
        "-" if row.megabytes is None else f"{row.megabytes:.1f}",
    )
    return (row.solver, str(row.taken), str(row.answered), *numbers)
