"""Files: written whole or not at all, and read within a budget."""

from __future__ import annotations

import ast
import bz2
import contextlib
import csv
import gzip
import io
import json
import os
import struct
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bytes of a file, as it is or unpacked: beyond it somebody should look at it first.
LARGEST = 1 << 31
# A packed text is rarely smaller than this share of it; and a small one may be.
EXPANSION, ALWAYS = 200, 1 << 20
# Bytes of a file of facts or a record.
LARGEST_RECORD = 1 << 28
# Member of an archive that is no array.
RECORD = "record.json"

_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


# --- writing -------------------------------------------------------------------------------------


def write_whole(path: Path, fill: Callable[[Path], object], *, replace: bool = True) -> None:
    """Let ``fill`` write a file beside the one that is meant, then put it in its place.

    What was there stays as it was until the new file is on the disk, and if that fails. What is
    no plain file, such as a terminal, is written to directly.

    Parameters
    ----------
    path : Path
        File; of a link, the file that it points at.
    fill : callable
        Writes to the path it is given, whose ending is the same.
    replace : bool
        Whether an existing file is replaced.

    Raises
    ------
    DataError
        The folder does not exist or cannot be written, the disk is full, or the file exists.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise DataError(f"{path} is a folder", remedy="give the name of a file")
        if not target.parent.is_dir():
            raise DataError(
                f"there is no folder {path.parent}", remedy="make it, or check the path"
            )
        if target.exists() and not replace:
            raise _exists(path)
        if target.exists() and not target.is_file():
            fill(target)
            return
        ending = "".join(s for s in target.suffixes[-2:] if len(s) < 12)
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name[:60]}.", suffix=ending
        )
        os.close(handle)
        part = Path(name)
        try:
            fill(part)
            _settle(part, target)
            if replace:
                part.replace(target)
            else:  # fails if somebody else was quicker
                os.link(part, target)
            _sync(target.parent)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        raise _exists(path) from None
    except DataError:
        raise
    except (OSError, ValueError) as e:  # a null character is a ValueError
        why = e.strerror if isinstance(e, OSError) else ""
        raise DataError(
            f"{str(path)[:200]!r} cannot be written", why or str(e), "choose another place"
        ) from None


def check_free(path: str | Path, overwrite: bool) -> None:
    """Raise `DataError` where a file exists that is not to be written over."""
    if not overwrite and Path(path).exists():
        raise _exists(Path(path))


def _exists(path: Path) -> DataError:
    return DataError(f"{path} exists", remedy="choose another name, or say overwrite=True")


def _settle(part: Path, target: Path) -> None:
    """Bring a new file to the disk, with the rights of the one it replaces."""
    if target.exists():
        mode = target.stat().st_mode & 0o777
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    part.chmod(mode)
    _sync(part)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot, of folders
            os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a text in UTF-8; see `write_whole`."""
    data = text.encode("utf-8", "backslashreplace")
    write_whole(path, lambda part: part.write_bytes(data), replace=replace)


def csv_text(rows: Iterable[Iterable[Any]], delimiter: str = ",", *, safe: bool) -> str:
    """Return rows as the text of a CSV file; ``safe`` quotes what spreadsheets take for formulas.

    Examples
    --------
    >>> csv_text([("name", "x"), ("=A1", -3.5), (None, "-a")], safe=True).split()
    ['name,x', "'=A1,-3.5", ",'-a"]
    """
    text = io.StringIO()
    cells = _safe_cell if safe else lambda cell: cell
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows(map(cells, row) for row in rows)
    return text.getvalue()


def _safe_cell(cell: Any) -> Any:
    """Return what a spreadsheet takes for a text where it would take it for a formula."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell


def write_archive(
    path: str | Path,
    record: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    overwrite: bool = False,
) -> None:
    """Write a record and arrays as one file ``path.npz``, in place of one only if that is asked for.

    ``numpy.load`` reads it: the arrays by name, the record as the bytes of a JSON text under
    ``record.json``; what JSON has no word for stands there as a text. Nothing is pickled.
    """
    import numpy as np

    def fill(part: Path) -> None:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(RECORD, json.dumps(record, indent=1, default=repr) + "\n")
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)

    write_whole(_archive(path), fill, replace=overwrite)


def _archive(path: str | Path) -> Path:
    """Return the file of a name; dots in the name stay."""
    base = Path(path)
    return base if base.suffix == ".npz" else base.with_name(base.name + ".npz")


# --- reading -------------------------------------------------------------------------------------


def read_bytes(path: Path, *, largest: int = LARGEST) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in ``.gz`` or ``.bz2``.

    Raises
    ------
    DataError
        It cannot be read, is no such archive, is larger than ``largest``, or unpacks to far more than
        texts do.
    """
    try:
        if not path.is_file() and path.exists():
            raise DataError(f"{path} is no file", remedy="give a file")
        size = path.stat().st_size
        opened = _OPEN.get(path.suffix.lower())
        most = largest if opened is None else min(largest, EXPANSION * size + ALWAYS)
        if opened is None:
            data = path.read_bytes() if size <= most else b""
        else:
            with opened(path) as stream:  # what is asked for at once is allocated at once
                parts, size = [], 0
                while size <= most and (part := stream.read(1 << 20)):
                    parts.append(part)
                    size += len(part)
            data = b"".join(parts)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", remedy="check the path") from None
    except (DataError, MemoryError):
        raise
    except Exception as e:  # zlib.error, EOFError, a null character: whatever bad bytes make of it
        raise DataError(
            f"{str(path)[:200]} cannot be read",
            getattr(e, "strerror", None) or str(e)[:200],
            "give a file, or one compressed by gzip or bzip2",
        ) from None
    if size > most:
        raise DataError(
            f"{path} holds more than {most >> 20} MiB",
            f"the file itself has {path.stat().st_size} bytes",
            "look at it first" if opened is None else "unpack it, and read the file that comes out",
        )
    return data


def read_text(path: Path, *, largest: int = LARGEST) -> str:
    """Return a text in UTF-8, with or without a byte order mark.

    Raises
    ------
    DataError
        It cannot be read, or is in another encoding.
    """
    data = read_bytes(path, largest=largest)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise DataError(
            f"{path} cannot be read: it is not in UTF-8",
            f"byte {e.start} is 0x{data[e.start]:02x}",
            "save it in UTF-8; in another encoding its names would be others",
        ) from None


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Raises
    ------
    DataError
        It is not there, or not JSON; or some object has two entries of one name, of which readers
        take either.
    """

    def entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            twice = max(made, key=names.count)
            raise ValueError(f"two entries of an object are called {twice!r}")
        return made

    parse = partial(json.loads, object_pairs_hook=entries)
    return _parsed(parse, read_text(path, largest=LARGEST_RECORD), path, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of a TOML file.

    Raises
    ------
    DataError
        It is not there, or not TOML.
    """
    table: dict[str, Any] = _parsed(
        tomllib.loads, read_text(path, largest=LARGEST_RECORD), path, "TOML"
    )
    return table


def _parsed(parse: Callable[[str], Any], text: str, path: Path, what: str) -> Any:
    try:
        return parse(text)
    except RecursionError:
        raise DataError(f"{path} is nested too deeply", remedy="mend the file") from None
    except ValueError as e:
        raise DataError(f"{path} is not valid {what}", str(e)[:200], "mend the file") from None


def read_archive(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the record and the arrays that `write_archive` wrote.

    Raises
    ------
    DataError
        It is not there, damaged, or something else.
    """
    file = _archive(path)
    data = read_bytes(file)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise ValueError(f"it unpacks to more than {LARGEST >> 20} MiB")
            members = {m.filename: archive.read(m) for m in archive.infolist()}
        record = json.loads(members.pop(RECORD))
        if not isinstance(record, dict):
            raise ValueError("its record is no table")
        arrays = {name.removesuffix(".npy"): _array(part) for name, part in members.items()}
    except KeyError:
        raise DataError(f"{file} has no {RECORD}", remedy="give a file saved here") from None
    except MemoryError:
        raise
    except Exception as e:  # zipfile raises nine kinds of errors on bad bytes
        raise DataError(
            f"{file} is damaged", f"{type(e).__name__}: {str(e)[:200]}", "save it again"
        ) from None
    return record, arrays


def _array(data: bytes) -> NDArray[Any]:
    """Return an array of NumPy's format, of plain types, whose size is that of the data."""
    import numpy as np

    if data[:6] != b"\x93NUMPY":
        raise ValueError("a member is no array")
    long = data[6] > 1
    (size,) = struct.unpack_from("<I" if long else "<H", data, 8)
    begin = 12 if long else 10
    header = ast.literal_eval(data[begin : begin + min(size, 10_000)].decode("latin1"))
    dtype = np.dtype(header["descr"])
    if dtype.kind not in "biufUS":
        raise ValueError(f"an array of {dtype}")
    body = memoryview(data)[begin + size :]
    if np.prod(header["shape"], dtype=object) * dtype.itemsize != len(body):
        raise ValueError("an array of another size than it says")
    flat = np.frombuffer(body, dtype)
    return flat.reshape(header["shape"], order="F" if header["fortran_order"] else "C").copy()


def check_record(record: Mapping[str, Any], fields: Mapping[str, Any], where: str) -> None:
    """Raise unless a record has these fields, of these types.

    Parameters
    ----------
    record : mapping
        As it was read.
    fields : mapping
        Name -> type, tuple of types, or value.
    where : str
        Its file.

    Raises
    ------
    DataError
    """
    for name, wanted in fields.items():
        given = record.get(name)
        types = isinstance(wanted, (type, tuple))
        number = isinstance(given, bool) and wanted is not bool
        if (not isinstance(given, wanted) or number) if types else given != wanted:
            raise DataError(
                f"{where} has {name} {str(given)[:60]!r}",
                "it was saved by another version, or damaged" if given is not None else "",
                "save it again",
            )


def made_folder(folder: str | Path) -> Path:
    """Return a folder that files can be written to, made where it does not exist.

    Raises
    ------
    DataError
        It is a file, or cannot be made or written to.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DataError(
            f"the folder {str(folder)!r} cannot be made",
            e.strerror or str(e),
            "choose another place",
        ) from None
    if not os.access(path, os.W_OK):
        raise DataError(f"the folder {str(folder)!r} cannot be written")
    return path
