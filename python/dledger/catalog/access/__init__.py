"""Replicated state of who may use the group, what each may do there, and how much."""
