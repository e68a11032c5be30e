"""The edits of a group, chosen within a budget."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
