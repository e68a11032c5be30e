"""Ready-made rules that problems bind with ``with_constraints``. May use core only."""
