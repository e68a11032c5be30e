"""Entries of variables and constraints that have names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from optfair.errors import DeclarationError, nearest

__all__ = ["Labelled", "Labels"]


class Labels:
    """Labels of a problem's entries: none, unless a problem says otherwise."""

    def entry_labels(self, variable: str) -> Sequence[str]:
        """Return the names of a variable's entries, column by column, where they have any."""
        return ()

    def labelled(self, numbers: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return numbers by name, found by label too where there are labels.

        Parameters
        ----------
        numbers : mapping
            By variable or constraint.
        what : {"values", "multipliers", "prices"}
            What they are.
        """
        return numbers

    def separated(self, time_limit: float | None = None) -> tuple[Any, tuple[str, ...] | None]:
        """Return this problem with rows that exclude each other as terms, and where to look.

        The second part is None where every term has a name that somebody gave.
        """
        return self, None


class Labelled(Mapping[str, Any]):
    """Numbers by name, which also answer to labels of entries.

    Parameters
    ----------
    entries : mapping
        Numbers by variable or constraint; these are listed.
    find : callable
        Returns what another name stands for among the entries, or None.

    Examples
    --------
    >>> numbers = Labelled({"x": [1.0, 2.0]}, lambda entries, name: {"b": entries["x"][1]}.get(name))
    >>> list(numbers), numbers["b"], numbers.get("c", 0.0)
    (['x'], 2.0, 0.0)
    """

    def __init__(
        self, entries: Mapping[str, Any], find: Callable[[Mapping[str, Any], str], Any]
    ) -> None:
        self._entries, self._find = entries, find

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise DeclarationError(f"no value {name!r}", remedy=nearest(str(name), self._entries))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return what a name stands for, or the default."""
        found = self._entries[name] if name in self._entries else self._find(self._entries, name)
        return default if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._entries or (isinstance(name, str) and self.get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)
