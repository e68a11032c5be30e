"""Fits that pass over rows chunk by chunk and never hold them."""
