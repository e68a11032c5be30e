"""What all HTML pages share: escaping, a style that needs nothing from elsewhere, pictures as inline SVG."""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from optfair.errors import NotInstalled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What the names of pages end in.
PAGES = (".html", ".htm")


def check_page() -> None:
    """Raise unless a page can be made.

    Raises
    ------
    NotInstalled
        matplotlib or Jinja2 is missing.
    """
    for module in ("matplotlib", "jinja2"):
        if importlib.util.find_spec(module) is None:
            raise NotInstalled(
                f"{module} is not installed",
                "reports are drawn and written with it",
                'pip install "optfair[plot]", or leave the report out',
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
    return (files("optfair") / "templates" / name).read_text(encoding="utf-8")


def _breakable(text: str) -> Any:
    """Return escaped text that may be broken after underscores and the like."""
    from markupsafe import Markup, escape

    parts = re.split(r"(?<=[_/.\-])", text)
    return Markup("<wbr>").join(escape(part) for part in parts)


def count(number: int, thing: str) -> str:
    """Return how many there are of a thing, as "1 row" or "1,000 rows"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


# Pictures of matplotlib as part of a page: inline SVG in the page's colours, with a title.


def _theme() -> dict[str, str]:
    """Return colours of text and lines by the page's variables; bars and points keep theirs."""
    from optfair.plots import FAINT, INK, QUIET

    names = {INK: "ink", "#000000": "ink", QUIET: "quiet", FAINT: "faint"}
    return {colour.lower(): f"var(--{name})" for colour, name in names.items()}


@dataclass(frozen=True)
class Picture:
    """A drawing with its words; ``svg`` is markup, the rest is text."""

    heading: str
    svg: Any
    caption: str


def picture(
    draw: Callable[[Axes], object],
    name: str,
    heading: str,
    caption: str,
    height: float,
    *,
    title: str = "",
    description: str = "",
) -> Picture:
    """Return a drawing for a page; see `inline_svg`. Its title and description may say more."""
    from markupsafe import Markup

    svg = inline_svg(draw, name, title or heading, description or caption, height)
    return Picture(heading, Markup(svg), caption)  # escaped in it, the rest is matplotlib's own


def inline_svg(
    draw: Callable[[Axes], object], name: str, title: str, description: str, height: float
) -> str:
    """Return an ``<svg>`` element that can stand next to others in an HTML page.

    Text stays text, so that it can be read aloud, searched, and drawn in any script.

    Parameters
    ----------
    draw : callable
        Draws on the axes it is given.
    name : str
        Put before every id in it.
    title, description : str
        For those who do not see it.
    height : float
        In inches; the width is 5.4, so that text is readable on a telephone.
    """
    from xml.sax.saxutils import escape

    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        # the browser has more letters than the font that measures them here
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        # a figure that needs no screen and is not kept by pyplot
        figure = Figure(figsize=(5.4, height), layout="constrained")
        draw(figure.subplots())
        figure.savefig(text, format="svg", transparent=True)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style [^>]*>.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1 ROLE>", svg, count=1)
    for colour, variable in _theme().items():
        svg = re.sub(rf"(fill|stroke): ?{colour}\b", rf"\1: {variable}", svg)
    label = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    described = f'<title id="{name}-title">{escape(title)}</title>'
    described += f'<desc id="{name}-desc">{escape(description)}</desc>'
    return svg.replace(" ROLE>", f" {label}>{described}", 1)
