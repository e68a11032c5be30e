"""The site, opened from the disk without network: formulas are drawn, nothing sticks out, nothing is asked for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

PAGES = (
    *("index", "tutorial", "cookbook", "is_it_convex", "fair_assignment", "fair_mixtures"),
    *("group_counterfactuals", "cluster_counterfactuals", "sparse_counterfactuals", "errata"),
    *("lectures", "textbook", "textbook/trust_region_hard", "solvers", "coming_from"),
    *("gallery/index", "api/index", "api/generated/optfair.FairAssignment"),
)
# text that a reader would see: formulas that were drawn are pictures by then
SHOWN = """
(() => {
  const skip = "script, style, pre, code, mjx-container, .highlight";
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walk.nextNode()) if (!walk.currentNode.parentElement.closest(skip)) texts.push(walk.currentNode.data);
  return texts.join(" ");
})()
"""


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder that ``make docs`` wrote, which the marker of that name makes sure of."""
    return Path(os.environ["OPTFAIR_SITE"]).resolve()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.site
@pytest.mark.parametrize("width", [1280, 800, 400])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_without_a_network(tab: Any, site: Path, page: str, width: int) -> None:
    tab.open(site / f"{page}.html", width)
    shown = tab.run(SHOWN)
    assert len(shown) > 200
    assert not [raw for raw in ("\\(", "\\[", "$$", "\\frac", "\\sum", "\\begin") if raw in shown]
    assert (
        tab.run("document.querySelectorAll('mjx-merror, mjx-container [data-mjx-error]').length")
        == 0
    )
    assert tab.overflow() <= 0
    assert tab.complaints() == []
    # every picture of the page is there
    assert tab.run("[...document.images].filter(i => !i.loading && !i.naturalWidth).length") == 0


@pytest.mark.slow
@pytest.mark.site
def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    gone = set()
    pages = [p for p in site.rglob("*.html") if "_static" not in p.parts]
    assert len(pages) > 200
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r'(?:href|src)="([^"#?:]+)["#?]', text):
            if not (page.parent / target).exists():
                gone.add((page.relative_to(site).as_posix(), target))
    assert gone == set()
