"""Maps that send a group to its counterfactuals, as declared problems."""
