"""Batches of producers and stages before they are answered: gathered, numbered, in flight."""
