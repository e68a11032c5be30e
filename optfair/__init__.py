"""optfair: declared optimization problems that know their class, prove it, and verify what solvers return.

The stub beside this file lists the names; each is imported when it is first used.
"""

from __future__ import annotations

from optfair.registry import attach

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = attach(__name__)
