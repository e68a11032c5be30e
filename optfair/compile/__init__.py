"""Problem -> the form a target reads."""
