"""Batch reads: which records, in which tasks, as which rows."""
