"""One node of a group."""
