"""Instances from the folder of problems: load, solve, certify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optfair.library.instance import Instance, Member, Optimum, collection, collections, load, names

if TYPE_CHECKING:
    from optfair.library.certification import Certification, Check, certify

__all__ = [
    "Certification",
    "Check",
    "Instance",
    "Member",
    "Optimum",
    "certify",
    "collection",
    "collections",
    "load",
    "names",
]


def __getattr__(name: str) -> Any:
    """Load what certifies when it is asked for: listing facts needs no solver."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from optfair.library import certification

    return getattr(certification, name)
