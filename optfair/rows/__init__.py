"""Rows in: frames, chunks, and sources larger than memory."""
