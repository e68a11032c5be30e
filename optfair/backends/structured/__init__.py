"""Routes of special algorithms, offered while a structure stands."""
