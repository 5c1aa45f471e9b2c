"""Damaged entries: found by the scrub or a read, fetched from other members, written back."""
