"""Problems of textbooks: small, known, and solved by hand somewhere."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
