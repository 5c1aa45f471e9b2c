"""A store that is written: commit log, consume queues, index, and its guards."""
