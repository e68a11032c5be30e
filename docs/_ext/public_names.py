"""The public names: the reference must list them all, and class pages need their members."""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import optfair

_SPACES = [name for name in optfair.__all__ if inspect.ismodule(getattr(optfair, name))]
_MODULES = ("", *_SPACES)


def _members(cls: type) -> dict[str, list[str]]:
    """Return public properties and methods of a class, with those of its mixins of verbs."""
    homes = [cls, *(b for b in cls.__bases__ if b.__name__.endswith("Verbs"))]
    found = {name: value for home in homes for name, value in vars(home).items()}
    shown = {n: v for n, v in found.items() if not n.startswith("_") and inspect.getdoc(v)}
    return {
        "properties": [n for n, v in shown.items() if isinstance(v, (property, cached_property))],
        "methods": [
            n for n, v in shown.items() if inspect.isfunction(v) or isinstance(v, classmethod)
        ],
        "inherited": _verbs()
        if issubclass(cls, optfair.Problem) and cls is not optfair.Problem
        else [],
    }


def _verbs() -> list[str]:
    """Return what every problem can be asked for."""
    found = _members(optfair.Problem)
    return sorted([*found["properties"], *found["methods"]])


def members_of() -> dict[str, dict[str, list[str]]]:
    """Return members by full name of every public class."""
    found = {}
    for module in _MODULES:
        home = getattr(optfair, module) if module else optfair
        for name in home.__all__:
            value = getattr(home, name)
            if inspect.isclass(value):
                full = ".".join(part for part in ("optfair", module, name) if part)
                found[full] = _members(value)
    return found


def check(app: Any) -> None:
    """Compare the names on the reference page with what the package calls public."""
    page = (Path(app.srcdir) / "api" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   ([\w.]+)$", page, flags=re.MULTILINE))
    public = set(optfair.__all__) - {"__version__", *_MODULES}
    for module in filter(None, _MODULES):
        home = getattr(optfair, module)
        # what is public at the top is listed there, and not once more in its module
        public |= {
            f"{module}.{n}"
            for n in home.__all__
            if getattr(optfair, n, None) is not getattr(home, n)
        }
    if listed != public:
        raise LookupError(
            f"api/index.md lacks {sorted(public - listed)}, and has {sorted(listed - public)} too many"
        )


def setup(app: Any) -> dict[str, Any]:
    """Register the check."""
    app.connect("builder-inited", check)
    return {"version": "1", "parallel_read_safe": True}
