"""Pictures; needs the extra `plot`.

Methods register theirs; importing this imports none.
"""

from __future__ import annotations

from typing import Any

from optfair import registry
from optfair.plots.axes import plot_profile

__all__ = ("plot_profile", *registry.names("plots"))


def __getattr__(name: str) -> Any:
    if name not in registry.names("plots"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.load("plots", name)


def __dir__() -> list[str]:
    return list(__all__)
