"""Pictures; needs the extra `plot`."""
