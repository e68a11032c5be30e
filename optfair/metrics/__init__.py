"""Numbers that describe clusterings."""
