"""Metrics and health of a node over HTTP, by a thread of its own."""
