"""Pages to explore, static and offline: what they show is computed and proved when they are written.

A page is ``explore/NAME.html`` with the data that ``data()`` of ``explore/NAME.py`` returns.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parents[1] / "explore"
PAGES = tuple(sorted(page.stem for page in FOLDER.glob("*.html")))


def source(name: str) -> Any:
    """Return the module that computes what a page shows."""
    spec = importlib.util.spec_from_file_location(f"explore_{name}", FOLDER / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(name: str, data: dict[str, Any]) -> str:
    """Return a page with its data, style and script inside; nothing is fetched."""
    text = (FOLDER / f"{name}.html").read_text(encoding="utf-8")
    inside = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    for place, file in (("STYLE", "style.css"), ("COMMON", "common.js")):
        text = text.replace(f"/*{place}*/", (FOLDER / file).read_text(encoding="utf-8"))
    return text.replace("/*DATA*/null", inside)


def write_pages(app: Sphinx, exception: Exception | None) -> None:
    """Write all pages into the site."""
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "explore"
    folder.mkdir(exist_ok=True)
    for name in PAGES:
        text = written(name, source(name).data())
        (folder / f"{name}.html").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the writer."""
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True}
