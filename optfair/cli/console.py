"""What commands share: options, what they are about, files and pages they write, what they print."""

from __future__ import annotations

import difflib
import json
import math
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.errors import (
    DataError,
    Infeasible,
    OptfairError,
    SolverFailure,
    Unbounded,
    needed,
)
from optfair.formats.text import readable
from optfair.registry import fact_files
from optfair.storage import write_text, write_whole

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.library.instance import Instance


# What commands print: text for people, one JSON document for programs, errors either way.

# Exit codes: the result is not what was hoped for; the question could not be asked.
FAILED, MISUSED = 1, 2


def document(content: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return what JSON can say; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def lines(*rows: str) -> None:
    """Print lines of text as they stand."""
    for row in rows:
        typer.echo(row)


def answer(as_json: bool, content: Mapping[str, Any], *rows: str, failed: bool = False) -> None:
    """Print one document or lines of text, and leave with the exit code of a result that failed."""
    if as_json:
        document(content)
    else:
        lines(*rows)
    if failed:
        raise typer.Exit(FAILED)


# columns of a table that is too wide for the terminal are not made narrower than this
_LEAST = 8


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, listing: bool = True) -> None:
    """Print a table, aligned on a terminal, where all but its first column may be folded.

    In a pipe a listing has tabs between its cells and no padding, for other programs.
    """
    cells = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    if listing and not sys.stdout.isatty():
        lines(*("\t".join(row) for row in cells))
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = math.inf if not sys.stdout.isatty() else shutil.get_terminal_size().columns
    left -= 2 * (len(widths) - 1)
    while sum(widths) > left and max(widths[1:], default=0) > _LEAST:
        widest = max(range(1, len(widths)), key=widths.__getitem__)
        widths[widest] -= 1
    for i, row in enumerate(cells):
        folded = [textwrap.wrap(c, max(w, 1)) or [""] for c, w in zip(row, widths, strict=True)]
        for line in zip_longest(*folded, fillvalue=""):
            text = "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            typer.echo(text if i else typer.style(text, bold=True))


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Print an error of ours as cause, why and do, and leave with its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise
    except OptfairError as e:
        if as_json:
            document(e.to_dict())
        else:
            typer.echo(str(e), err=True)
        failed = isinstance(e, (Infeasible, Unbounded, SolverFailure))
        raise typer.Exit(FAILED if failed else MISUSED) from None


# Files that commands write: looked at before anything is solved, written whole or not at all.


def save_proof(certificate: Any, path: Path) -> None:
    """Write a proof, in place of one that is there: `check_outputs` has asked whether it may."""
    certificate.save(path, overwrite=True)


def check_outputs(
    given: Mapping[str, Path | None],
    force: bool,
    *,
    read: Mapping[str, Path | None] | None = None,
    endings: Iterable[str] | None = None,
) -> None:
    """Raise unless files that were asked for can be written, before any work.

    Parameters
    ----------
    given : mapping
        Option -> file; None where it was not asked for.
    force : bool
        Whether one that exists may be written over.
    read : mapping, optional
        What is read or gone on with -> file: none of the others may be one of them.
    endings : iterable of str, optional
        What these files may end in; asked for only where one is given.

    Raises
    ------
    DataError
        A folder does not exist or is in the place of a file, a file exists or may not be written,
        two are one, or it has another ending.
    """
    others = {option: path.resolve() for option, path in (read or {}).items() if path is not None}
    for option, path in given.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise DataError(
                f"{option} {path} is in a folder that does not exist",
                f"there is no folder {path.parent}",
                "make it, or choose another",
            )
        if path.is_dir():
            raise DataError(f"{option} {path} is a folder", remedy="give the name of a file")
        same = next((name for name, other in others.items() if other == path.resolve()), None)
        if same is not None:
            raise DataError(f"{option} {path} is {same} too", remedy="give each a file of its own")
        if path.exists() and not force:
            raise DataError(f"{option} {path} exists", remedy="choose another name, or --force")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise DataError(f"{option} {path} cannot be written", remedy="choose another place")
        allowed = None if endings is None else tuple(endings)
        if allowed is not None and path.suffix.lower() not in allowed:
            raise DataError(
                f"{option} {path} has no ending that is written",
                remedy=f"end it in one of {', '.join(allowed)}",
            )
        others[option] = path.resolve()


def write_files(texts: Mapping[Path, str]) -> None:
    """Write each file in one step, so that none is left half written."""
    for path, text in texts.items():
        write_text(path, text)


def pictures() -> Iterator[str]:
    """Yield the endings of pictures that can be drawn.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    """
    bases = needed("matplotlib.backend_bases", 'pip install "optfair[plot]"')
    yield from (f".{kind}" for kind in bases.FigureCanvasBase.filetypes)


def write_picture(path: Path, draw: Callable[[Any], object]) -> None:
    """Draw on axes, and write the picture in one step."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(layout="constrained")
    draw(axes)
    write_whole(path, figure.savefig)
    plt.close(figure)


# What a command is about: an instance of the library, or a file.


@dataclass(frozen=True, eq=False)
class Named:
    """A problem and what it is called.

    Attributes
    ----------
    name : str
        Of the instance, or of the file.
    problem : Problem
    instance : Instance or None
        None for a file, of which nothing is known but the problem.
    """

    name: str
    problem: Problem
    instance: Instance | None = None


def named(name: str) -> Named:
    """Return the instance of a name, or what a file holds whose ending is known, or, for "-", stdin.

    Raises
    ------
    DataError
        No instance has this name; the file is missing or corrupt.
    """
    from optfair.formats.files import read
    from optfair.formats.text import is_problem_file
    from optfair.library import load

    if name == "-":
        return Named("stdin", piped())
    if is_problem_file(name):
        return Named(name, read(name))
    try:
        instance = load(name)
    except DataError:
        if Path(name).is_file():  # of an ending that cannot be read, which the reader says
            return Named(name, read(name))
        if Path(name).is_dir():
            raise DataError(
                f"{name} is a folder", remedy="give a file; `optfair compare` takes folders, too"
            ) from None
        raise
    return Named(instance.name, instance.problem(), instance)


def piped() -> Problem:
    """Return the problem on the standard input, in the format that it begins like."""
    from optfair.formats.files import read
    from optfair.formats.text import ending_of

    data = sys.stdin.buffer.read()
    with TemporaryDirectory() as folder:
        file = Path(folder, "stdin" + ending_of(data.decode("utf-8-sig", errors="replace")))
        file.write_bytes(data)
        try:
            return read(file)
        except DataError as e:
            said = (part.replace(folder + os.sep, "") for part in (e.cause, e.evidence, e.remedy))
            raise DataError(*said) from None


def is_model(text: str) -> bool:
    """Whether a text means a file with a model, or an instance; otherwise it may be a formula."""
    from optfair.formats.text import is_problem_file
    from optfair.library import names

    if is_problem_file(text):
        return True
    split = [n.partition("/") for n in names()]
    family, slash, name = text.partition("/")
    if slash:
        return name.isidentifier() and any(family == own for own, _, _ in split)
    # a word that is nearly a name is one that was mistyped, not a variable
    near = difflib.get_close_matches(text, [own for _, _, own in split], n=1, cutoff=0.85)
    return text.isidentifier() and bool(near)


# Options that several commands share, and what was typed.


# What changes how a command runs, and nothing of what it answers.
_HOW = ("force", "as_json", "verbose")


def typed(ctx: typer.Context, command: str) -> str:
    """Return the command that was typed with the options that matter, by their long names."""
    words = ["optfair", command]
    for p in ctx.command.params:
        source, value = ctx.get_parameter_source(p.name or ""), ctx.params.get(p.name or "")
        if source is None or source.name != "COMMANDLINE" or p.name in _HOW:
            continue
        if p.param_type_name == "argument":
            words += map(str, value if isinstance(value, (list, tuple)) else [value])
        elif isinstance(value, bool):
            words.append((p.opts if value else p.secondary_opts)[-1])
        else:
            words += [max(p.opts, key=len), str(value)]
    return shlex.join(words)


def _folder(kind: str, what: str) -> Any:
    """Return the option of a folder of facts, which is added for this process."""

    def add(folder: Path | None) -> Path | None:
        if folder is not None:
            variable = f"OPTFAIR_{kind.upper()}"
            known = os.environ.get(variable)
            os.environ[variable] = os.pathsep.join([known, str(folder)] if known else [str(folder)])
        return folder

    return typer.Option(
        f"--{kind}",
        metavar="DIR",
        help=f"Folder with further {what}.",
        exists=True,
        file_okay=False,
        callback=add,
    )


def _instances(incomplete: str) -> list[str]:
    """Return the names of instances that begin like this, for the shell's completion."""
    from optfair.library import names

    return [n for n in names() if n.startswith(incomplete)]


def _solver_names(incomplete: str) -> list[str]:
    """Return the names of solvers that begin like this."""
    return [n for n in fact_files("solvers") if n.startswith(incomplete) and not n.startswith("_")]


Name = Annotated[
    str,
    typer.Argument(
        autocompletion=_instances,
        help="FAMILY/NAME, or NAME where one family only has it; or a file:"
        f" {', '.join(readable())}; or - for the standard input.",
    ),
]
Solver = Annotated[
    str | None,
    typer.Option(
        help="Name of a solver; by default the policy decides.", autocompletion=_solver_names
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]
Force = Annotated[bool, typer.Option("--force", help="Write over files that exist.")]
SafeCells = Annotated[
    bool, typer.Option("--safe-cells", help="Quote what a spreadsheet takes for a formula, in CSV.")
]
Problems = Annotated[Path | None, _folder("problems", "instances")]
Solvers = Annotated[Path | None, _folder("solvers", "solver profiles")]
