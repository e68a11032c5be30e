"""Numbers that describe clusterings and counterfactuals; each says what it is measured on.

Methods register them; importing this imports none.
"""

from optfair.registry import attach_registered

__all__, __getattr__, __dir__ = attach_registered(__name__, "metrics")
