"""A hash of a problem as it was declared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.errors import DataError

if TYPE_CHECKING:
    from optfair.core.problem import Problem


def fingerprint(problem: Problem) -> str:
    """Return a hash of variables, terms and all numbers in them.

    Two problems with the same hash are the same program under the same names. Every term is
    built, so this takes time and memory where a special algorithm would not.

    Parameters
    ----------
    problem : Problem
        What to hash.

    Raises
    ------
    DataError
        A term holds something whose value cannot be read.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.core.fingerprint import fingerprint
    >>> p = of.library.load("textbook/diet").problem()
    >>> fingerprint(p) == fingerprint(of.library.load("textbook/diet").problem())
    True
    """
    writer = _Writer(dict(problem.names))
    writer.say(problem.sense, type(problem).__qualname__)
    for name, variable in problem.variables.items():
        writer.say(name, variable.shape, name in problem.integers)
        writer.say(
            sorted(k for k, v in variable.attributes.items() if v is not None and v is not False)
        )
    for term in problem.terms:
        writer.say(term.name, str(term.evidence))
        writer.tree(term.build())
    return writer.digest()


class _Writer:
    def __init__(self, names: Mapping[int, str]) -> None:
        self._hash = hashlib.sha256()
        self._names = names

    def digest(self) -> str:
        return self._hash.hexdigest()[:32]

    def say(self, *things: Any) -> None:
        self._hash.update(repr(things).encode())

    def tree(self, node: Any) -> None:
        """Hash an expression or constraint from its leaves."""
        if isinstance(node, cp.Variable):
            self.say("variable", self._names.get(node.id, node.name()))
            return
        if isinstance(node, (cp.Constant, cp.Parameter)):
            self.say(type(node).__name__)
            self._number(node.value)
            return
        parts = node.args
        self.say(type(node).__name__, len(parts))
        # constraints count their own number among their data; it differs from run to run
        own = getattr(node, "id", None) if isinstance(node, cp.Constraint) else None
        for item in node.get_data() or ():
            if own is None or not (isinstance(item, int) and item == own):
                self._item(item)
        for part in parts:
            self.tree(part)

    def _item(self, item: Any) -> None:
        """Hash what an atom holds beside its arguments."""
        if isinstance(item, (list, tuple)):
            self.say(type(item).__name__, len(item))
            for part in item:
                self._item(part)
        elif item is None or isinstance(item, (bool, int, float, str, slice)):
            self.say(item)
        elif isinstance(item, (cp.Expression, cp.Constraint)):
            self.tree(item)
        else:
            self._number(item)

    def _number(self, value: Any) -> None:
        if sp.issparse(value):
            matrix: Any = sp.csc_array(value)  # type: ignore[call-overload]
            matrix.sum_duplicates()
            self.say("sparse", matrix.shape)
            for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)):
                self._hash.update(part.tobytes())
            value = matrix.data
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise DataError(
                f"a {type(value).__name__} in this problem cannot be hashed",
                "runs are kept by a hash of the problem",
                "leave out=None, or write the term with numbers only",
            ) from None
        self.say("array", array.shape, math.prod(array.shape))
        # + 0.0 makes -0.0 and 0.0 the same
        self._hash.update(np.ascontiguousarray(array + 0.0).tobytes())
