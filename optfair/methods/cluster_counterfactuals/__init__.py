"""The nearest point of another cluster."""
