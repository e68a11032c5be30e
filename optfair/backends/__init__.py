"""Choose, compile, solve, recover, verify."""
