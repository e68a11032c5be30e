"""The edits of a group, chosen within a budget."""
