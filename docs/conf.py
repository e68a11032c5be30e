"""Configuration of the documentation site."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("MPLBACKEND", "Agg")

import public_names
from sphinx.application import Sphinx

import optfair

project = "optfair"
author = "The optfair developers"
copyright = author
version = release = optfair.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "myst_parser",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "code_blocks",
    "conformance_table",
    "explorable_pages",
    "fact_tables",
    "public_names",
    "textbook_gallery",
]
exclude_patterns = [
    "_build",
    "examples",
    "explore",
    "conftest.py",
    "gallery/*.ipynb",
    "gallery/*.py",
]
exclude_patterns += ["gallery/*.md5", "gallery/*.zip", "gallery/*.json"]
templates_path = ["_templates"]
# some docstrings write the size of the objective between bars
default_role = "py:obj"  # single backticks in docstrings name objects
highlight_language = "python"

# the site needs no network: MathJax is shipped with it, with glyphs as paths instead of fonts
mathjax_path = "mathjax/tex-svg.js"

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
# two public names that differ in case only must not share a file on case-blind disks
autosummary_filename_map = {"optfair.residuals": "optfair.residuals_function"}
autosummary_context = {"members_of": public_names.members_of()}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "",  # every example is run
    "ignore_pattern": r"__init__\.py",
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # no times on the pages
    "write_computation_times": False,
    "capture_repr": ("_repr_html_", "__repr__"),
}
# the figure cannot be shown at build time, and examples need no apology for it
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

html_theme = "pydata_sphinx_theme"
html_title = f"optfair {version}"
html_static_path = ["_static"]
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": html_title},
    "navbar_align": "left",
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "header_links_before_dropdown": 4,
}
html_sidebars = {
    "*": [],
    "api/**": ["sidebar-nav-bs"],
    "gallery/**": ["sidebar-nav-bs"],
}


def ship_mathjax(app: Sphinx) -> None:
    """Copy the one file of MathJax that pages load into the site."""
    files = importlib.metadata.files("sphinx-mathjax-offline") or []
    (script,) = (f for f in files if f.name == Path(mathjax_path).name)
    target = Path(app.outdir) / "_static" / mathjax_path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(str(script.locate()), target)


def setup(app: Sphinx) -> None:
    """Connect what this site adds."""
    app.connect("builder-inited", ship_mathjax)
