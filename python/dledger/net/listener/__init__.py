"""The port of a node."""
