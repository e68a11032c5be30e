"""Fits from rows larger than memory."""
