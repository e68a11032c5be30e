"""Isotonic regression: a method that somebody else installed."""
