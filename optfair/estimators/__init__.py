"""Algorithms that alternate declared problems."""
