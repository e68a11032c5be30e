"""What all pages share: escaping, and a style that needs nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from optfair.errors import NotInstalled

__all__ = ["check_page", "page"]


def check_page(modules: Iterable[str] = ("matplotlib", "jinja2")) -> None:
    """Raise unless a page can be made.

    Raises
    ------
    NotInstalled
        matplotlib or Jinja2 is missing.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NotInstalled(
                f"{module} is not installed",
                "the report is drawn and written with it",
                'pip install "optfair[plot]", or leave out --report',
            )


def page(template: str, **content: Any) -> str:
    """Return a template with its gaps filled, every text escaped.

    Parameters
    ----------
    template : str
        Name of a file among the templates.
    **content
        What it asks for.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    # everything from outside reaches the page through this escaping
    environment = Environment(
        loader=FunctionLoader(text_of),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.get_template(template).render(**content)


def text_of(name: str) -> str:
    """Return a file among the templates."""
    return (files("optfair.cli") / "templates" / name).read_text(encoding="utf-8")


def _breakable(text: str) -> Any:
    """Return escaped text that may be broken after underscores and the like."""
    from markupsafe import Markup, escape

    parts = re.split(r"(?<=[_/.\-])", text)
    return Markup("<wbr>").join(escape(part) for part in parts)
