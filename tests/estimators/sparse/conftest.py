"""shap warns once while it is imported, of what its plots ask of matplotlib."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import shap.explainers  # noqa: F401
