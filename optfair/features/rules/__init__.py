"""Rules on features, and what they need of a problem."""
