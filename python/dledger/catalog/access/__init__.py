"""Replicated state of who may use the group, and how much of it."""
