"""The declared problems; each only says what it is."""
