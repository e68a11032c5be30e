"""Parts of the route of the structure ``row-choices``."""
