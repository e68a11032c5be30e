"""Numbers that describe clusterings and counterfactuals; each says what it is measured on.

Methods register them; importing this imports none.
"""

from __future__ import annotations

from typing import Any

from optfair import registry

__all__ = registry.names("metrics")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = registry.load("metrics", name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
