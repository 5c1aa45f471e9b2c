"""Writes, from a request to its applied entry: proposal queue, quotas, catalog time, applier."""
