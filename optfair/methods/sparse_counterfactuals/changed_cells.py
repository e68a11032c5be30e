"""A table of rows before and after, with the changed cells marked and the direction of each change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.tables import Cells

# What an edit does to a cell: it lowers or raises a number, or exchanges a category.

Directions = NDArray[np.int8]


UNCHANGED, LOWER, RAISED, OTHER = 0, 1, 2, 3


def edit_directions(factuals: Any, edited: Any) -> Directions:
    """Return what happens to each cell: 0 nothing, 1 lower, 2 higher, 3 another category.

    Parameters
    ----------
    factuals, edited : arrays or data frames (n, d)
        Rows before and after, aligned.

    Raises
    ------
    DataError
        Shapes or columns that do not fit, missing entries.

    Examples
    --------
    >>> edit_directions([[3.0, "own", 1.0]], [[2.0, "rent", 1.0]]).tolist()
    [[1, 3, 0]]
    """
    cells = Cells.of(factuals, edited)
    directions = np.zeros_like(cells.differ, dtype=np.int8)
    for j in range(len(cells.names)):
        before, after = cells.column(j)
        changed = cells.differ[:, j]
        if _numeric(before) and _numeric(after):
            rises = after[changed].astype(float) > before[changed].astype(float)
            directions[changed, j] = np.where(rises, RAISED, LOWER)
        else:
            directions[changed, j] = OTHER
    return directions


def _numeric(column: NDArray[Any]) -> bool:
    if column.dtype.kind == "O":
        return all(isinstance(v, Real) and not isinstance(v, bool) for v in column)
    return column.dtype.kind in "iuf"


# A table of rows before and after, with the changed cells marked, to be read by anybody.

ARROWS = {LOWER: "↓", RAISED: "↑", OTHER: "→"}
# Light fills under dark text (contrast above 10 : 1); the arrows say it without colours.
FILLS = {LOWER: "#D6E6F2", RAISED: "#F8DDCB", OTHER: "#D2EBE2"}
STYLE = """<style scoped>
.edit-table {border-collapse: collapse; font-size: 0.9em; color: #1B1B1B; background: #FFFFFF;
 font-variant-numeric: tabular-nums}
.edit-table caption {text-align: left; font-weight: bold; padding: 0.3em 0; color: #1B1B1B;
 background: #FFFFFF}
.edit-table th, .edit-table td {padding: 0.3em 0.7em; text-align: left; white-space: nowrap;
 border-bottom: 1px solid #E3E3E3; background: #FFFFFF}
.edit-table thead th {border-bottom: 2px solid #6B6B6B; vertical-align: bottom}
.edit-table td.same {color: #6B6B6B}
.edit-table td.number, .edit-table th.number {text-align: right}
.edit-table del {color: #4A4A4A; text-decoration: line-through}
.edit-table ins {font-weight: bold; text-decoration: none}
%s
</style>"""


@dataclass(frozen=True, eq=False)
class EditTable:
    """Rows before and after, cell by cell.

    Shown as HTML in notebooks; ``print`` gives one line per row.

    Attributes
    ----------
    features : tuple of str
        Columns.
    labels : tuple of str
        What the rows are called.
    before, after : tuples of tuples of str (n, d)
        Cells as text.
    directions : int array (n, d)
        0 unchanged, 1 lower, 2 higher, 3 another category.
    outputs : tuple of (str, str), or None
        Outputs of each row before and after.
    output_name, caption : str
        Head of that column; title of the table.
    shown : int array
        Rows that are shown.
    """

    features: tuple[str, ...]
    labels: tuple[str, ...]
    before: tuple[tuple[str, ...], ...]
    after: tuple[tuple[str, ...], ...]
    directions: NDArray[np.int8]
    outputs: tuple[tuple[str, str], ...] | None
    output_name: str
    caption: str
    shown: NDArray[np.intp]

    @property
    def html(self) -> str:
        """The table as HTML that stands by itself; no text of the data is taken for markup."""
        fills = "\n".join(
            f".edit-table td.{name} {{background: {FILLS[k]}}}"
            for k, name in ((LOWER, "lower"), (RAISED, "raised"), (OTHER, "other"))
        )
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.features)
        if self.outputs is not None:
            head += f'<th scope="col" class="number">{escape(self.output_name)}</th>'
        body = "\n".join(self._html_row(int(i)) for i in self.shown)
        return (
            f"{STYLE % fills}\n"
            '<table class="edit-table">\n'
            f"<caption>{escape(self.caption)}</caption>\n"
            f'<thead><tr><th scope="col"></th>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )

    @property
    def text(self) -> str:
        """One line per row: its changes, then its output."""
        lines = [self.caption] if self.caption else []
        width = max((len(self.labels[i]) for i in self.shown), default=0)
        for i in self.shown:
            changes = [
                f"{self.features[j]} {self.before[i][j]} {ARROWS[OTHER]} {self.after[i][j]}"
                for j in np.flatnonzero(self.directions[i])
            ]
            said = ", ".join(changes) or "no change"
            if self.outputs is not None:
                said += f"  [{self.output_name} {' → '.join(self.outputs[i])}]"
            lines.append(f"{self.labels[i]:<{width}}  {said}")
        return "\n".join(lines)

    def _html_row(self, i: int) -> str:
        cells = [f'<th scope="row">{escape(self.labels[i])}</th>']
        for j, direction in enumerate(self.directions[i].tolist()):
            before, after = escape(self.before[i][j]), escape(self.after[i][j])
            if not direction:
                cells.append(f'<td class="same">{before}</td>')
                continue
            kind = {LOWER: "lower", RAISED: "raised", OTHER: "other"}[direction]
            cells.append(
                f'<td class="{kind}"><del>{before}</del> {ARROWS[direction]} <ins>{after}</ins></td>'
            )
        if self.outputs is not None:
            before, after = (escape(text) for text in self.outputs[i])
            cells.append(f'<td class="number">{before} → <ins>{after}</ins></td>')
        return f"<tr>{''.join(cells)}</tr>"

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        count = int((self.directions > 0).sum())
        return (
            f"EditTable: {count} edits in {len(self.labels)} rows of {len(self.features)} features"
        )


def edit_table(
    factuals: Any,
    edited: Any,
    *,
    outputs: Any = None,
    output_name: str = "score",
    features: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    rows: Any = None,
    formats: Mapping[str, str] | None = None,
    only_edited: bool = False,
    caption: str = "",
) -> EditTable:
    """Return rows before and after as one table in which the changed cells are marked.

    Parameters
    ----------
    factuals, edited : arrays or data frames (n, d)
        Rows before and after, aligned.
    outputs : pair of array-like (n,), optional
        Outputs of the model before and after, or what they mean, shown as a last column.
    output_name : str
        Its head.
    features : sequence of str, optional
        Names of the features of arrays.
    names : mapping of str to str, optional
        What to call a feature in the table, with its unit say.
    rows : sequence, optional
        What to call the rows; the row labels of pandas, or numbers, by default.
    formats : mapping of str to str, optional
        Format of the numbers of a feature, as ``{"income": ",.0f"}``; of the outputs under
        their name.
    only_edited : bool
        Whether to leave out rows without any edit.
    caption : str
        Title.

    Returns
    -------
    EditTable

    Raises
    ------
    DataError
        Tables, names, labels or outputs that do not fit, features that are not there.

    Examples
    --------
    >>> from optfair.methods.sparse_counterfactuals.changed_cells import edit_table
    >>> table = edit_table(
    ...     [[36, "rent"], [12, "own"]],
    ...     [[15, "rent"], [12, "own"]],
    ...     features=["months", "housing"],
    ...     outputs=([0.31, 0.7], [0.58, 0.7]),
    ...     formats={"score": ".0%"},
    ... )
    >>> print(table)
    0  months 36 → 15  [score 31% → 58%]
    1  no change  [score 70% → 70%]
    >>> "<del>36</del> ↓ <ins>15</ins>" in table.html
    True
    """
    directions = edit_directions(factuals, edited)
    cells = Cells.of(factuals, edited)
    known = cells.names if features is None else tuple(map(str, features))
    n, d = directions.shape
    if len(known) != d:
        raise DataError(f"{len(known)} names for {d} features", remedy="give one each")
    wanted = {**(formats or {})}
    output_format = wanted.pop(output_name, ".3g") if output_name not in known else ".3g"
    for what, given in (("names", names or {}), ("formats", wanted)):
        unknown = [str(k) for k in given if k not in known]
        if unknown:
            raise DataError(
                f"{what} has no feature {unknown[0]!r} to speak of",
                f"the features are {', '.join(known)}",
                "correct, or leave it out",
            )
    columns = [
        _pair_texts(*cells.column(j), cells.differ[:, j], wanted.get(name))
        for j, name in enumerate(known)
    ]
    before, after = (tuple(zip(*[pair[side] for pair in columns], strict=True)) for side in (0, 1))
    return EditTable(
        features=tuple((names or {}).get(name, name) for name in known),
        labels=_labels(factuals, rows, n),
        before=before,
        after=after,
        directions=directions,
        outputs=_outputs(outputs, n, output_format),
        output_name=output_name,
        caption=caption,
        shown=np.flatnonzero(directions.any(axis=1)) if only_edited else np.arange(n),
    )


def _pair_texts(
    before: NDArray[Any], after: NDArray[Any], differ: NDArray[np.bool_], form: str | None
) -> tuple[list[str], list[str]]:
    """Return both columns as text; in full where different values would read the same."""
    texts = _texts(before, form), _texts(after, form)
    for i in np.flatnonzero(differ):
        if texts[0][i] == texts[1][i]:
            texts[0][i], texts[1][i] = str(before[i]), str(after[i])
    return texts


def _texts(column: NDArray[Any], form: str | None) -> list[str]:
    return [_text(value, form) for value in column.tolist()]


def _text(value: Any, form: str | None) -> str:
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value) or "(empty)"
    if form is not None:
        return format(value, form)
    return str(int(value)) if isinstance(value, Integral) else f"{float(value):.6g}"


def _labels(factuals: Any, rows: Any, n: int) -> tuple[str, ...]:
    if rows is None:
        rows = getattr(factuals, "index", None)
        rows = range(n) if rows is None or callable(rows) else rows
    return row_labels(rows, n)


def row_labels(rows: Iterable[Any], n: int) -> tuple[str, ...]:
    """Return the labels of rows as texts, one per row."""
    labels = tuple(map(str, rows))
    if len(labels) != n:
        raise DataError(f"{len(labels)} labels for {n} rows", remedy="give one per row")
    return labels


def _outputs(outputs: Any, n: int, form: str) -> tuple[tuple[str, str], ...] | None:
    if outputs is None:
        return None
    try:
        before, after = (np.asarray(part) for part in outputs)
    except (TypeError, ValueError):
        raise DataError("outputs is no pair", remedy="give (before, after)") from None
    if before.shape != (n,) or after.shape != (n,):
        raise DataError(
            "outputs do not fit the rows",
            f"shapes {before.shape} and {after.shape} for {n} rows",
            "give one output per row, before and after",
        )
    return tuple(zip(_texts(before, form), _texts(after, form), strict=True))
