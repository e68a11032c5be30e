"""Problem -> problem, each with the way back."""
