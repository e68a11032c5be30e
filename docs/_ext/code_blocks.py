"""Drop the blank line that ends a checked code block: doctest needs it, readers do not."""

from __future__ import annotations

from typing import Any

from docutils import nodes


def strip(app: Any, doctree: nodes.document) -> None:
    """Remove trailing white space from every literal block."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext().rstrip()
        if block.rawsource == block.astext() and text:
            block.rawsource = text
            block.children = []
            block += nodes.Text(text)


def setup(app: Any) -> dict[str, Any]:
    """Register the change."""
    app.connect("doctree-read", strip)
    return {"version": "1", "parallel_read_safe": True}
