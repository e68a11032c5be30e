"""The methods: one folder each, registered by its method.toml."""
