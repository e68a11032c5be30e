"""How an optimum depends on the data: sweeps along parameters, ranges of costs and sides."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
