"""Text files: which formats there are, read with the line in every error, written whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from optfair.errors import DataError, shortened
from optfair.storage import read_text, write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The formats of files: which endings are read and written, by whom, and what they carry.

#: endings of compressed files
COMPRESSED = (".gz", ".bz2")
_ROWS = "LP, QP, QCQP (convex or not), each also with integer variables"


@dataclass(frozen=True)
class Format:
    """One format.

    Parameters
    ----------
    endings : tuple of str
        Endings of file names.
    carries : str
        Classes of problems.
    reads, writes : str
        Functions of the reader and the writer, empty where there is none; they are imported when they are
        called, so that this table costs nothing.
    compressed : bool
        Whether ``.gz`` and ``.bz2`` may stand behind the ending.
    needs : str
        What must be installed to write it.
    """

    endings: tuple[str, ...]
    carries: str
    reads: str = ""
    writes: str = ""
    compressed: bool = True
    needs: str = ""

    def read(self, file: Path, duplicates: str) -> Any:
        """Return the problem in a file."""
        return _function(self.reads)(file, duplicates)

    def write(self, problem: Any, file: Path) -> None:
        """Write a problem to a file."""
        _function(self.writes)(problem, file)


FORMATS = (
    Format((".mps", ".qps"), _ROWS, "files.from_mps", "files.to_mps"),
    Format((".lp",), _ROWS, "files.from_lp", "files.to_lp"),
    Format(
        (".cbf",),
        "every convex problem: linear, second-order, semidefinite, exponential, power cones;"
        " integer variables",
        "cbf.read_cbf",
        "files.to_cbf",
    ),
    Format((".dat-s",), "LP, SDP", "sdpa.read_sdpa", "files.to_sdpa"),
    Format(
        (".mat",), "QP in arrays P, q, r, A, l, u, G, h, lb, ub", "files.from_mat", compressed=False
    ),
    Format((".nl",), _ROWS, writes="files.to_nl", compressed=False, needs="Pyomo"),
    Format((".cip",), _ROWS, writes="files.to_cip", compressed=False),
)


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    loaded: Callable[..., Any] = getattr(
        importlib.import_module(f"optfair.formats.{module}"), function
    )
    return loaded


def plain_name(file: Path) -> Path:
    """Return the name without the ending of a compression.

    Examples
    --------
    >>> plain_name(Path("p.mps.gz")).name, plain_name(Path("p.mps")).name
    ('p.mps', 'p.mps')
    """
    return file.with_suffix("") if file.suffix.lower() in COMPRESSED else file


def readable() -> tuple[str, ...]:
    """Return the endings that `optfair.read` knows."""
    return tuple(e for f in FORMATS if f.reads for e in f.endings)


def is_problem_file(name: str | Path) -> bool:
    """Return whether a name ends like a file that `optfair.read` knows."""
    return plain_name(Path(name)).suffix.lower() in readable()


def ending_of(text: str) -> str:
    r"""Return the ending of the format that a text begins like.

    Raises
    ------
    DataError
        It begins like none.

    Examples
    --------
    >>> ending_of("* a comment\nNAME p\n"), ending_of("Minimize\n x\n"), ending_of("2 = m\n")
    ('.mps', '.lp', '.dat-s')
    """
    stated = (line.split() for line in text.splitlines() if line.strip()[:1] not in (*'*\\#"', ""))
    first = next(stated, [""])[0]
    begins = {".mps": "name|rows|objsense", ".lp": "min|max", ".cbf": "ver", ".dat-s": r"[+\d{(]"}
    for ending, begin in begins.items():
        if re.match(begin, first, re.IGNORECASE):
            return ending
    given = f"a text that begins with {shortened(first)!r}" if first else "a text without content"
    raise DataError(
        f"the format of {given} is not known",
        remedy=f"known are {', '.join(begins)}; or give a file, whose ending says the format",
    )


def writable() -> tuple[str, ...]:
    """Return the endings that `optfair.export` knows."""
    return tuple(e for f in FORMATS if f.writes for e in f.endings)


def format_of(file: Path, verb: Literal["read", "write"]) -> Format:
    """Return the format of a file name.

    Raises
    ------
    DataError
        The ending is not known, or not for this.
    """
    plain = plain_name(file)
    known = ", ".join(readable() if verb == "read" else writable())
    for f in FORMATS:
        if plain.suffix.lower() not in f.endings or (plain != file and not f.compressed):
            continue
        if f.reads if verb == "read" else f.writes:
            return f
        other = "written" if verb == "read" else "read"
        raise DataError(f"{f.endings[0]} files can be {other} only", remedy=f"known are {known}")
    if plain.suffix.lower() in (".json", ".npz") and verb == "read":
        raise DataError(
            f"{file.name} holds no model",
            "models are " + known,
            "read a proof by load_proof, a solution by load_solution(path, problem)",
        )
    if file.is_dir():
        raise DataError(
            f"{file} is a folder", remedy=f"give a file, whose ending is one of {known}"
        )
    packed = ", ".join(e for f in FORMATS if f.compressed for e in f.endings)
    raise DataError(
        f"the format of {file.name!r} is not known",
        "the ending of the name says which it is",
        f"known are {known}; {packed} also with {' or '.join(COMPRESSED)} behind",
    )


# Text files: read with the line in every error, written whole or not at all.

# Entries that a file may declare: these always, and so many for each character in it.
ROOM, EACH = 2_000_000, 100
#: what is no bound: the field writes infinity as 1e30 or 1e20
INFINITE = 1e20
# the exponent of Fortran: 1.0D+02
_FORTRAN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)[dD][+-]?\d+")
#: numbers of rows, columns and orders beyond this are a damaged file, not a problem
_MOST = 1 << 24


def number(value: float) -> str:
    """Return the shortest text that reads back as the same number.

    Examples
    --------
    >>> number(3.0), number(1 / 3), number(-1e-20)
    ('3', '0.3333333333333333', '-1e-20')
    """
    text = repr(float(value))
    return text.removesuffix(".0")


class Source:
    """The lines of a file, with the position for messages.

    Parameters
    ----------
    path : Path
        File; compressed if its name ends in ``.gz`` or ``.bz2``. A byte order mark is skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.lines = read_text(path).splitlines()
        if not any(map(str.strip, self.lines)):
            raise DataError(
                f"{path}: the file is empty",
                "it has no text",
                "write it again, e.g. by problem.export(path)",
            )

    @cached_property
    def words(self) -> NDArray[np.int64]:
        """How many words each line has."""
        import numpy as np  # the table of formats is read without it

        text = "\n".join(self.lines)
        if not text.isascii():
            return np.array([len(line.split()) for line in self.lines], dtype=np.int64)
        between = np.zeros(128, dtype=bool)
        between[[ord(c) for c in map(chr, range(128)) if c.isspace()]] = True
        byte = np.frombuffer(f"\n{text}\n".encode("ascii"), dtype=np.uint8)
        space = between[byte]
        first = np.flatnonzero(space[:-1] & ~space[1:])
        return np.diff(np.searchsorted(first, np.flatnonzero(byte == ord("\n"))))

    def stated(self, mark: str) -> dict[str, Any]:
        """Return what the comments behind a mark say as JSON, nothing where that is not ours."""
        text = "".join(line.removeprefix(mark) for line in self.lines if line.startswith(mark))
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}

    def declared(self, entries: int, what: str) -> None:
        """Refuse to make room for far more entries than a file of this length speaks of."""
        most = max(ROOM, EACH * sum(map(len, self.lines)))
        if entries > most:
            raise self.fail(
                f"it declares {entries} {what}, and has {len(self.lines)} lines",
                "correct the file; what nothing speaks of is left out",
            )

    def twice(self, reason: str = "the place has a number already") -> DataError:
        """Return the error about two numbers for one place."""
        return self.fail(
            reason, 'correct the file, or add them up: of.read(path, duplicates="sum")'
        )

    def fail(self, reason: str, remedy: str = "correct the file") -> DataError:
        """Return an error about the current line."""
        text = self.lines[self.line - 1].strip() if 0 < self.line <= len(self.lines) else ""
        return DataError(f"{self.path}, line {self.line}: {reason}", shortened(text, 100), remedy)

    def number(self, text: str, *, bound: bool = False) -> float:
        """Return a finite number; a bound may be infinite."""
        try:
            if "_" in text or not text.isascii():  # Python's own spelling, nobody else's
                raise ValueError
            value = float(text)
        except ValueError:
            if not _FORTRAN.fullmatch(text):
                raise self.fail(f"{text!r} is not a number") from None
            value = float(text.replace("d", "e").replace("D", "e"))
        if bound and abs(value) >= INFINITE:
            return math.copysign(math.inf, value)
        if not math.isfinite(value):
            raise self.fail(f"{text!r} is not a finite number")
        return value

    def numbers(self, words: Sequence[str], lines: Callable[[int], int]) -> NDArray[np.float64]:
        """Return many finite numbers; ``lines(k)`` is the line of the k-th."""
        import numpy as np  # the table of formats is read without it

        joined = "".join(words)
        try:
            if "_" in joined or not joined.isascii():
                raise ValueError
            array = np.fromiter(map(float, words), float, len(words))
            if np.isfinite(array).all():
                return array
        except ValueError:
            pass
        values = np.zeros(len(words))
        for k, word in enumerate(words):
            self.line = lines(k)
            values[k] = self.number(word)
        return values

    def integer(self, text: str) -> int:
        """Return an integer of at least 0."""
        if not (text.isascii() and text.isdigit()):
            raise self.fail(f"{text!r} is not a count")
        if len(text) > 12 or int(text) > _MOST:
            raise self.fail(f"{text} is more than a file can hold")
        return int(text)


def stating(mark: str, said: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield the comments that `Source.stated` reads; readers limit the length of lines."""
    text = json.dumps(said, separators=(",", ":"))
    yield from (mark + text[at : at + width] for at in range(0, len(text), width))


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, compressed if its name says so.

    The same lines give the same bytes, and an existing file is replaced at the end and as a whole.
    """
    ending = file.suffix.lower()
    packed = ending in COMPRESSED
    data = ("\n".join(lines) + "\n").encode("ascii" if packed else "utf-8", "backslashreplace")
    if ending == ".gz":
        data = gzip.compress(data, mtime=0)
    elif ending == ".bz2":
        data = bz2.compress(data)

    write_whole(file, lambda part: part.write_bytes(data))


# Names that every reader takes.

#: characters that are not kept
KEPT = re.compile(r"[^A-Za-z0-9_.#@%~]")
#: words of the LP format with which a section begins -> what stands in it
SECTIONS = {
    **dict.fromkeys(("max", "maximize", "maximise", "maximum"), "max"),
    **dict.fromkeys(("min", "minimize", "minimise", "minimum"), "min"),
    **dict.fromkeys(("subject to", "such that", "st", "s.t.", "st."), "rows"),
    **dict.fromkeys(("bounds", "bound"), "bounds"),
    **dict.fromkeys(("gen", "general", "generals", "int", "integer", "integers"), "integer"),
    **dict.fromkeys(("bin", "binary", "binaries"), "binary"),
    **dict.fromkeys(("semi", "semis", "semi-continuous"), "semicontinuous"),
    **dict.fromkeys(("sos", "sos1", "sos2"), "sets"),
    "end": "end",
}
# words and beginnings that mean something else in LP files
_WORDS = {word for head in SECTIONS for word in head.split()} | {
    *("free", "inf", "infinity", "range", "ranges")
}
_NUMBER_LIKE = re.compile(r"[0-9.]|[eE][0-9]*$")


def file_name(name: str) -> str:
    """Return a name that every reader takes: ASCII letters, digits and ``_.#@%~``.

    Examples
    --------
    >>> file_name("row marginal"), file_name("2nd"), file_name("free")
    ('row_marginal', '_2nd', 'free_')
    """
    plain = KEPT.sub("_", name) or "_"
    if plain.lower() in _WORDS:
        plain += "_"
    return f"_{plain}" if _NUMBER_LIKE.match(plain) else plain


def spellings(label: str) -> tuple[str, ...]:
    """Return a label, and how LP files may have it: without spaces, in round brackets.

    Examples
    --------
    >>> spellings("x[a, b]")
    ('x[a, b]', 'x[a,b]', 'x(a,b)')
    """
    close = label.replace(", ", ",")
    return tuple(dict.fromkeys((label, close, close.translate(str.maketrans("[]", "()")))))
