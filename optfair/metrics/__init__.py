"""Numbers that describe clusterings and counterfactuals; each says what it is measured on.

Methods register them; importing this imports none.
"""

from __future__ import annotations

from typing import Any

from optfair import registry

__all__ = registry.names("metrics")


def __getattr__(name: str) -> Any:
    if name not in registry.names("metrics"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.load("metrics", name)


def __dir__() -> list[str]:
    return list(__all__)
