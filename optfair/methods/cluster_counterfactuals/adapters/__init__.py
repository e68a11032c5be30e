"""From problems to arrays and back: the routes that solvers' files of facts name."""
