"""Rows in: frames, chunks, and sources larger than memory."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
